// Package store keeps what kbisect did: runs, kernels built, outcomes measured
// and the journal of decisions, in one SQLite file, with a folder of artifacts
// a run.
//
//	s, err := store.Open(ctx, stateDir)
//	defer s.Close()
//	j, err := s.NewRun(ctx, store.Spec{Mode: "case", Name: "nexthop-delete"})
//	defer j.Close()                       // without Finish: the run is interrupted
//	err = j.Outcome(ctx, store.Outcome{...}) // on disk when it returns
//	err = j.Finish(ctx, store.Done, "faster", j.Path("result.json"))
//
// A folder looks like this:
//
//	kbisect.db            the database (WAL mode: kbisect.db-wal, -shm beside it)
//	runs/ID/              artifacts of one run, owned by whoever measures
//	runs/ID/.lock         locked by the process that runs it, and by nobody else
//
// Several processes may use one folder at once. Every append is one transaction
// that is synced before the call returns, so that a journal survives a power
// cut up to its last entry.
package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"time"

	_ "modernc.org/sqlite" // the "sqlite" driver
)

// dbName is the database's file name in the state folder.
const dbName = "kbisect.db"

// busy is how long a writer waits for another process's transaction. Each is a
// handful of rows, so a longer wait means a stuck disk.
const busy = 20 * time.Second

// Store is an open state folder. It is safe for use by several goroutines. Its
// opener calls Close; journals made from it must be closed before.
type Store struct {
	dir string
	db  *sql.DB
	now func() time.Time
}

// Open opens the state folder dir, makes it if need be and brings the schema up
// to date. It blocks for as long as another process migrates. Errors are of
// type *Error and name the file.
func Open(ctx context.Context, dir string) (*Store, error) {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return nil, fmt.Errorf("resolve state folder: %w", err)
	}
	if err := os.MkdirAll(filepath.Join(dir, "runs"), 0o700); err != nil {
		return nil, wrap("make state folder", dir, err)
	}
	path := filepath.Join(dir, dbName)
	db, err := sql.Open("sqlite", dsn(path))
	if err != nil {
		return nil, wrap("open database", path, err)
	}
	// One connection: SQLite has one writer anyway, and transactions of two
	// connections of one process would only wait for each other.
	db.SetMaxOpenConns(1)
	s := &Store{dir: dir, db: db, now: time.Now}
	if err := s.migrateWaiting(ctx); err != nil {
		db.Close()
		return nil, err
	}
	return s, nil
}

// Check reads the whole database of the state folder dir, if there is one, and
// returns what is wrong with it, an *Error.
func Check(ctx context.Context, dir string) error {
	if _, err := os.Stat(filepath.Join(dir, dbName)); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	s, err := Open(ctx, dir)
	if err != nil {
		return err
	}
	defer s.Close()
	var found string
	if err := s.db.QueryRowContext(ctx, "PRAGMA quick_check(1)").Scan(&found); err != nil {
		return wrap("check database", s.Path(), err)
	}
	if found != "ok" {
		return &Error{Op: "check database", Path: s.Path(), Kind: ErrCorrupt, Err: errors.New(found)}
	}
	return nil
}

// migrateWaiting repeats migrate while another process makes the same new
// database a WAL one: SQLite does not wait for that, whatever its busy_timeout
// (https://www.sqlite.org/wal.html, section 9).
func (s *Store) migrateWaiting(ctx context.Context) error {
	const pause = 20 * time.Millisecond
	for deadline := time.Now().Add(busy); ; {
		err := s.migrate(ctx)
		if err == nil || !errors.Is(err, ErrBusy) || time.Now().After(deadline) {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(pause):
		}
	}
}

// dsn builds the data source name. synchronous=FULL is what makes a commit in
// WAL mode durable: NORMAL may lose the last ones on a power cut.
func dsn(path string) string {
	q := url.Values{}
	q.Set("_txlock", "immediate") // take the write lock at BEGIN: no upgrade can fail half way
	q.Add("_pragma", fmt.Sprintf("busy_timeout(%d)", busy.Milliseconds()))
	q.Add("_pragma", "journal_mode(WAL)")
	q.Add("_pragma", "synchronous(FULL)")
	q.Add("_pragma", "foreign_keys(1)")
	u := url.URL{Scheme: "file", Path: path, RawQuery: q.Encode()}
	return u.String()
}

// Dir returns the state folder's absolute path.
func (s *Store) Dir() string { return s.dir }

// Path returns the database's absolute path.
func (s *Store) Path() string { return filepath.Join(s.dir, dbName) }

// Close releases the database. It does not end runs.
func (s *Store) Close() error {
	if err := s.db.Close(); err != nil {
		return wrap("close database", s.Path(), err)
	}
	return nil
}

// tx runs f in one write transaction that is on disk when tx returns nil.
func (s *Store) tx(ctx context.Context, op string, f func(*sql.Tx) error) error {
	t, err := s.db.BeginTx(ctx, nil)
	if err != nil {
		return wrap(op, s.Path(), err)
	}
	defer t.Rollback() //nolint:errcheck // after a commit it has nothing to do
	if err := f(t); err != nil {
		return wrap(op, s.Path(), err)
	}
	if err := t.Commit(); err != nil {
		return wrap(op, s.Path(), err)
	}
	return nil
}
