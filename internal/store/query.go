package store

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/gofrs/flock"

	"github.com/kbisect/kbisect/internal/measure"
)

// Run is one row of the history.
type Run struct {
	ID      string          `json:"id"`
	Created time.Time       `json:"created"`
	Ended   time.Time       `json:"ended"` // zero while it runs or was interrupted
	Mode    string          `json:"mode"`
	Name    string          `json:"name"`
	Args    json.RawMessage `json:"args"`
	Status  Status          `json:"status"`
	Verdict string          `json:"verdict"`
	Result  string          `json:"result"` // path of result.json, "" if none was written
	Dir     string          `json:"dir"`    // the run's folder
	PID     int             `json:"pid"`    // of the process that ran it last
}

// Build is one kernel that a run needed.
type Build struct {
	Run      string    `json:"run"` // filled in by Builds
	Seq      int64     `json:"seq"` // filled in by Builds
	At       time.Time `json:"at"`  // zero: now
	Key      string    `json:"key"` // of the cache: source + patches + config + toolchain
	Identity string    `json:"identity"`
	Revision string    `json:"revision"`
	Seconds  float64   `json:"seconds"`
	Cached   bool      `json:"cached"`
	Error    string    `json:"error"` // "" when it was built
}

// Outcome is one run of a workload on one kernel.
type Outcome struct {
	Run      string                   `json:"run"` // filled in by Outcomes
	Seq      int64                    `json:"seq"` // filled in by Outcomes
	Case     string                   `json:"case"`
	Side     string                   `json:"side"` // "with", "without", or "" in a bisection
	Revision string                   `json:"revision"`
	Kernel   string                   `json:"kernel"`   // identity
	Status   string                   `json:"status"`   // "ok", "untestable", "infra", ...
	Reason   string                   `json:"reason"`   // why, when it is not "ok"
	Values   map[string]measure.Value `json:"values"`   // metric or metric.stat; the same threshold or another decides from them later
	Limit    time.Duration            `json:"limit_ns"` // that a timeout ran into
	Started  time.Time                `json:"started"`
	Boot     time.Duration            `json:"boot_ns"`
	Push     time.Duration            `json:"push_ns"`
	Work     time.Duration            `json:"work_ns"`
	Total    time.Duration            `json:"total_ns"`
	HostLoad map[string]float64       `json:"host_load"`
	Dir      string                   `json:"dir"` // of this run's artifacts
}

// Event is one entry of the decision journal.
type Event struct {
	Run  string          `json:"run"`
	Seq  int64           `json:"seq"`
	At   time.Time       `json:"at"`
	Kind string          `json:"kind"`
	Data json.RawMessage `json:"data"`
}

// Filter selects runs; the zero value selects all.
type Filter struct {
	Status Status    // "" for any
	Name   string    // "" for any
	Since  time.Time // created at or after
	Limit  int       // the newest so many; 0 for all
}

const runColumns = `id, created, ended, mode, name, args, status, verdict, result, pid`

// Runs lists the history, newest first.
func (s *Store) Runs(ctx context.Context, f Filter) ([]Run, error) {
	q := `SELECT ` + runColumns + ` FROM runs WHERE created >= ?1 AND (?2 = '' OR name = ?2) ORDER BY created DESC, rowid DESC`
	var since int64
	if !f.Since.IsZero() {
		since = f.Since.UnixNano()
	}
	all, err := query(ctx, s, "list runs", s.scanRun, q, since, f.Name)
	if err != nil {
		return nil, err
	}
	// The status is known only after the locks were looked at, so it and the
	// limit are applied here.
	var runs []Run
	for _, r := range all {
		if f.Limit > 0 && len(runs) == f.Limit {
			break
		}
		s.judge(&r)
		if f.Status == "" || r.Status == f.Status {
			runs = append(runs, r)
		}
	}
	return runs, nil
}

// Run finds a run by its id, by a beginning of it that only one has, or by
// "last", the newest. Errors wrap ErrNotFound or ErrAmbiguous.
func (s *Store) Run(ctx context.Context, id string) (Run, error) {
	where, arg := `substr(id, 1, length(?1)) = ?1 ORDER BY id`, id
	if id == "last" {
		where, arg = `?1 = 'last' ORDER BY created DESC, rowid DESC LIMIT 1`, "last"
	}
	found, err := query(ctx, s, "find run", s.scanRun, `SELECT `+runColumns+` FROM runs WHERE `+where, arg)
	if err != nil {
		return Run{}, err
	}
	for i := range found {
		if found[i].ID == id { // exact, though it may begin others too
			found = found[i : i+1]
			break
		}
	}
	switch {
	case len(found) == 0 || id == "":
		return Run{}, fmt.Errorf("find run %q: %w: see `kbisect runs`", id, ErrNotFound)
	case len(found) > 1:
		return Run{}, fmt.Errorf("find run %q: %w: %s", id, ErrAmbiguous, idList(found))
	}
	s.judge(&found[0])
	return found[0], nil
}

// idList names up to five runs.
func idList(runs []Run) string {
	var ids []string
	for i, r := range runs {
		if i == 5 {
			ids = append(ids, "...")
			break
		}
		ids = append(ids, r.ID)
	}
	return strings.Join(ids, ", ")
}

// judge turns the status of a run whose process is gone into Interrupted.
func (s *Store) judge(r *Run) {
	if r.Status == Running && !s.alive(r.ID) {
		r.Status = Interrupted
	}
}

// alive reports whether a process holds the run's lock. Looking takes the lock
// shared, so that two who look do not see each other.
func (s *Store) alive(id string) bool {
	path := filepath.Join(s.runDir(id), lockName)
	if _, err := os.Stat(path); err != nil {
		return false // nobody can hold it; and flock would create it
	}
	l := flock.New(path, flock.SetFlag(os.O_RDONLY))
	defer l.Close()
	ok, err := l.TryRLock()
	return err == nil && !ok
}

// Builds lists the kernels a run needed, in order.
func (s *Store) Builds(ctx context.Context, id string) ([]Build, error) {
	return query(ctx, s, "list builds", func(r *sql.Rows) (b Build, err error) {
		var at int64
		err = r.Scan(&b.Run, &b.Seq, &at, &b.Key, &b.Identity, &b.Revision, &b.Seconds, &b.Cached, &b.Error)
		b.At = time.Unix(0, at).UTC()
		return b, err
	}, `SELECT run, seq, at, key, identity, revision, seconds, cached, error FROM builds WHERE run=? ORDER BY seq`, id)
}

// Outcomes lists what a run measured, in order.
func (s *Store) Outcomes(ctx context.Context, id string) ([]Outcome, error) {
	return query(ctx, s, "list outcomes", scanOutcome,
		`SELECT run, seq, casename, side, revision, kernel, status, reason, vals, worklimit, started, boot, push, work, total, hostload, dir
		 FROM outcomes WHERE run=? ORDER BY seq`, id)
}

// Events lists a run's decision journal, in order.
func (s *Store) Events(ctx context.Context, id string) ([]Event, error) {
	return query(ctx, s, "list events", func(r *sql.Rows) (e Event, err error) {
		var at int64
		var data string
		err = r.Scan(&e.Run, &e.Seq, &at, &e.Kind, &data)
		e.At, e.Data = time.Unix(0, at).UTC(), json.RawMessage(data)
		return e, err
	}, `SELECT run, seq, at, kind, data FROM events WHERE run=? ORDER BY seq`, id)
}

// Identities returns the identities of all kernels that live runs have built,
// sorted: what a cache must not evict.
func (s *Store) Identities(ctx context.Context) ([]string, error) {
	runs, err := s.Runs(ctx, Filter{Status: Running})
	if err != nil {
		return nil, err
	}
	var out []string
	for _, r := range runs {
		ids, err := query(ctx, s, "list kernels", func(r *sql.Rows) (id string, err error) {
			err = r.Scan(&id)
			return id, err
		}, `SELECT DISTINCT identity FROM builds WHERE run=? AND identity<>''`, r.ID)
		if err != nil {
			return nil, err
		}
		out = append(out, ids...)
	}
	return sortedSet(out), nil
}

func (s *Store) scanRun(rows *sql.Rows) (Run, error) {
	var r Run
	var created, ended int64
	var args string
	err := rows.Scan(&r.ID, &created, &ended, &r.Mode, &r.Name, &args, &r.Status, &r.Verdict, &r.Result, &r.PID)
	r.Created, r.Args, r.Dir = time.Unix(0, created).UTC(), json.RawMessage(args), s.runDir(r.ID)
	if ended != 0 {
		r.Ended = time.Unix(0, ended).UTC()
	}
	return r, err
}

func scanOutcome(r *sql.Rows) (Outcome, error) {
	var o Outcome
	var vals, load string
	var started, limit int64
	var boot, push, work, total float64
	err := r.Scan(&o.Run, &o.Seq, &o.Case, &o.Side, &o.Revision, &o.Kernel, &o.Status, &o.Reason, &vals, &limit, &started,
		&boot, &push, &work, &total, &load, &o.Dir)
	if err != nil {
		return o, err
	}
	o.Started, o.Limit = time.Unix(0, started).UTC(), time.Duration(limit)
	o.Boot, o.Push, o.Work, o.Total = seconds(boot), seconds(push), seconds(work), seconds(total)
	return o, errors.Join(json.Unmarshal([]byte(vals), &o.Values), json.Unmarshal([]byte(load), &o.HostLoad))
}

func seconds(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }

// query collects the rows of one statement.
func query[T any](ctx context.Context, s *Store, op string, scan func(*sql.Rows) (T, error), q string, args ...any) ([]T, error) {
	rows, err := s.db.QueryContext(ctx, q, args...)
	if err != nil {
		return nil, wrap(op, s.Path(), err)
	}
	defer rows.Close()
	var out []T
	for rows.Next() {
		v, err := scan(rows)
		if err != nil {
			return nil, wrap(op, s.Path(), err)
		}
		out = append(out, v)
	}
	return out, wrap(op, s.Path(), rows.Err())
}
