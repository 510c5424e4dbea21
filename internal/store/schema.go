package store

import (
	"context"
	"database/sql"
	"fmt"
)

// migrations bring a database from version i to i+1; user_version counts them.
// An entry that was released is never edited: add one.
func migrations() []string {
	return []string{`
CREATE TABLE runs(
	id      TEXT PRIMARY KEY,
	created INTEGER NOT NULL,            -- Unix nanoseconds
	ended   INTEGER NOT NULL DEFAULT 0,  -- 0: not ended
	mode    TEXT NOT NULL,
	name    TEXT NOT NULL,
	args    TEXT NOT NULL,               -- JSON
	status  TEXT NOT NULL,
	verdict TEXT NOT NULL DEFAULT '',
	result  TEXT NOT NULL DEFAULT '',    -- path of result.json
	pid     INTEGER NOT NULL
) STRICT;
CREATE INDEX runs_created ON runs(created);
CREATE TABLE builds(
	run      TEXT NOT NULL REFERENCES runs(id) ON DELETE CASCADE,
	seq      INTEGER NOT NULL,
	at       INTEGER NOT NULL,
	key      TEXT NOT NULL,
	identity TEXT NOT NULL,
	revision TEXT NOT NULL,
	seconds  REAL NOT NULL,
	cached   INTEGER NOT NULL,
	error    TEXT NOT NULL,
	PRIMARY KEY(run, seq)
) STRICT, WITHOUT ROWID;
CREATE TABLE outcomes(
	run      TEXT NOT NULL REFERENCES runs(id) ON DELETE CASCADE,
	seq      INTEGER NOT NULL,
	casename TEXT NOT NULL,
	side     TEXT NOT NULL,
	revision TEXT NOT NULL,
	kernel   TEXT NOT NULL,
	status   TEXT NOT NULL,
	reason   TEXT NOT NULL,
	vals     TEXT NOT NULL,              -- JSON
	worklimit INTEGER NOT NULL,          -- nanoseconds
	started  INTEGER NOT NULL,
	boot     REAL NOT NULL,              -- seconds, as all durations here
	push     REAL NOT NULL,
	work     REAL NOT NULL,
	total    REAL NOT NULL,
	hostload TEXT NOT NULL,              -- JSON
	dir      TEXT NOT NULL,
	PRIMARY KEY(run, seq)
) STRICT, WITHOUT ROWID;
CREATE TABLE events(
	run  TEXT NOT NULL REFERENCES runs(id) ON DELETE CASCADE,
	seq  INTEGER NOT NULL,
	at   INTEGER NOT NULL,
	kind TEXT NOT NULL,
	data TEXT NOT NULL,                  -- JSON
	PRIMARY KEY(run, seq)
) STRICT, WITHOUT ROWID;
`}
}

// migrate applies what is missing, in one transaction: two processes that open
// a new folder at once find either nothing or everything.
func (s *Store) migrate(ctx context.Context) error {
	steps := migrations()
	v, err := s.version(ctx)
	if err != nil || v == len(steps) {
		return err
	}
	return s.tx(ctx, "migrate database", func(t *sql.Tx) error {
		// Read again under the write lock: another process may have been faster.
		var v int
		if err := t.QueryRowContext(ctx, "PRAGMA user_version").Scan(&v); err != nil {
			return err
		}
		if v > len(steps) {
			return s.newer(v)
		}
		for ; v < len(steps); v++ {
			if _, err := t.ExecContext(ctx, steps[v]); err != nil {
				return fmt.Errorf("to version %d: %w", v+1, err)
			}
		}
		_, err := t.ExecContext(ctx, fmt.Sprintf("PRAGMA user_version=%d", v))
		return err
	})
}

// version reads the schema version and refuses one from the future.
func (s *Store) version(ctx context.Context) (int, error) {
	var v int
	if err := s.db.QueryRowContext(ctx, "PRAGMA user_version").Scan(&v); err != nil {
		return 0, wrap("open database", s.Path(), err)
	}
	if v > len(migrations()) {
		return 0, s.newer(v)
	}
	return v, nil
}

func (s *Store) newer(v int) error {
	return &Error{Op: "open database", Path: s.Path(), Kind: ErrNewer,
		Err: fmt.Errorf("%w (schema %d, this program knows %d)", ErrNewer, v, len(migrations()))}
}
