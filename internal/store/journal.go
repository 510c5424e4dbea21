package store

import (
	"context"
	"crypto/rand"
	"database/sql"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/gofrs/flock"
)

// Status is what became of a run.
type Status string

// Statuses. A run whose process died without saying so is Interrupted.
const (
	Running     Status = "running"
	Done        Status = "done"
	Interrupted Status = "interrupted"
	Failed      Status = "failed"
)

// Spec describes a new run.
type Spec struct {
	Mode string // "case", "range", "series"
	Name string // for the id: the case, or the workload
	Args any    // stored as JSON: the plan, so that it can be resumed
}

// Journal is a run that this process carries out: the only one that may append
// to it. It is safe for use by several goroutines. Its owner calls Close.
type Journal struct {
	s    *Store
	id   string
	dir  string
	lock *flock.Flock

	mu       sync.Mutex
	finished bool
	closed   bool
}

// NewRun starts a run: a row, and a folder with its lock. The id looks like
// 20261130-1542-nexthop-delete-a3f (UTC): it sorts by time and can be said.
func (s *Store) NewRun(ctx context.Context, spec Spec) (*Journal, error) {
	args, err := json.Marshal(spec.Args)
	if err != nil {
		return nil, fmt.Errorf("encode arguments: %w", err)
	}
	created := s.now()
	j, err := s.claim(created, spec.Name)
	if err != nil {
		return nil, err
	}
	err = s.tx(ctx, "start run", func(t *sql.Tx) error {
		_, err := t.ExecContext(ctx,
			`INSERT INTO runs(id, created, mode, name, args, status, pid) VALUES(?,?,?,?,?,?,?)`,
			j.id, created.UnixNano(), spec.Mode, spec.Name, string(args), Running, os.Getpid())
		return err
	})
	if err != nil {
		os.RemoveAll(j.dir)
		j.lock.Close()
		return nil, err
	}
	return j, nil
}

// claim makes a new folder with a free name and takes its lock, before the row
// exists: whoever sees the row finds the lock held.
func (s *Store) claim(at time.Time, name string) (*Journal, error) {
	for range 100 { // 4096 names a minute and case: a hundred tries do not run out
		id := newID(at, name)
		dir := s.runDir(id)
		err := os.Mkdir(dir, 0o700)
		if errors.Is(err, os.ErrExist) {
			continue
		}
		if err != nil {
			return nil, wrap("make run folder", dir, err)
		}
		l := flock.New(filepath.Join(dir, lockName))
		if ok, err := l.TryLock(); err != nil || !ok {
			os.RemoveAll(dir)
			return nil, wrap("lock run folder", dir, cmpErr(err, ErrRunning))
		}
		return &Journal{s: s, id: id, dir: dir, lock: l}, nil
	}
	return nil, &Error{Op: "make run folder", Path: s.runDir(""), Err: errors.New("no free name")}
}

// lockName is the file in a run's folder that its process keeps locked. A lock
// ends with the process, however it ends; a pid in a file does not.
const lockName = ".lock"

func (s *Store) runDir(id string) string { return filepath.Join(s.dir, "runs", id) }

// cmpErr returns err, or other if err is nil.
func cmpErr(err, other error) error {
	if err != nil {
		return err
	}
	return other
}

// newID makes a run id from a time, a name and twelve random bits.
func newID(at time.Time, name string) string {
	var b [2]byte
	rand.Read(b[:]) //nolint:errcheck // never fails since Go 1.24
	return at.UTC().Format("20060102-1504") + "-" + slug(name) + "-" + hex.EncodeToString(b[:])[:3]
}

// slug turns a name into at most 32 bytes of [a-z0-9-]: it becomes a path and
// is typed by people.
func slug(name string) string {
	var b strings.Builder
	for _, r := range strings.ToLower(name) {
		switch {
		case r >= 'a' && r <= 'z', r >= '0' && r <= '9':
			b.WriteRune(r)
		case b.Len() > 0 && !strings.HasSuffix(b.String(), "-"):
			b.WriteByte('-')
		}
		if b.Len() == 32 {
			break
		}
	}
	if s := strings.Trim(b.String(), "-"); s != "" {
		return s
	}
	return "run"
}

// Resume takes a run that was interrupted and lets this process go on with it.
// It fails with ErrRunning while the process that started it lives.
func (s *Store) Resume(ctx context.Context, id string) (*Journal, error) {
	r, err := s.Run(ctx, id)
	if err != nil {
		return nil, err
	}
	if r.Status == Done {
		return nil, &Error{Op: "resume run", Path: r.ID, Err: errors.New("it is done already")}
	}
	l, err := s.seize(r.ID)
	if err != nil {
		return nil, err
	}
	err = s.tx(ctx, "resume run", func(t *sql.Tx) error {
		_, err := t.ExecContext(ctx, `UPDATE runs SET status=?, ended=0, pid=? WHERE id=?`, Running, os.Getpid(), r.ID)
		return err
	})
	if err != nil {
		l.Close()
		return nil, err
	}
	return &Journal{s: s, id: r.ID, dir: r.Dir, lock: l}, nil
}

// seize takes the lock of an existing run. Readers hold it shared for an
// instant when they look whether a run lives, so it tries for a while.
func (s *Store) seize(id string) (*flock.Flock, error) {
	dir := s.runDir(id)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, wrap("make run folder", dir, err)
	}
	l := flock.New(filepath.Join(dir, lockName))
	for range 50 {
		ok, err := l.TryLock()
		if err != nil {
			l.Close()
			return nil, wrap("lock run folder", dir, err)
		}
		if ok {
			return l, nil
		}
		time.Sleep(2 * time.Millisecond)
	}
	l.Close()
	return nil, &Error{Op: "lock run", Path: id, Kind: ErrRunning, Err: ErrRunning}
}

// ID returns the run's id.
func (j *Journal) ID() string { return j.id }

// Dir returns the absolute path of the run's folder.
func (j *Journal) Dir() string { return j.dir }

// Path returns the absolute path of a file in the run's folder.
func (j *Journal) Path(elem ...string) string {
	return filepath.Join(append([]string{j.dir}, elem...)...)
}

// Build records that a kernel was built, found in the cache, or failed to build.
func (j *Journal) Build(ctx context.Context, b Build) error {
	if b.At.IsZero() {
		b.At = j.s.now()
	}
	return j.append(ctx, "append build", "builds",
		"at, key, identity, revision, seconds, cached, error",
		b.At.UnixNano(), b.Key, b.Identity, b.Revision, b.Seconds, b.Cached, b.Error)
}

// Outcome records one boot and workload execution. Whatever is decided from it
// is decided afterwards.
func (j *Journal) Outcome(ctx context.Context, o Outcome) error {
	vals, err := json.Marshal(o.Values)
	if err != nil {
		return fmt.Errorf("encode values: %w", err)
	}
	load, err := json.Marshal(o.HostLoad)
	if err != nil {
		return fmt.Errorf("encode host load: %w", err)
	}
	return j.append(ctx, "append outcome", "outcomes",
		"casename, side, revision, kernel, status, reason, vals, worklimit, started, boot, push, work, total, hostload, dir",
		o.Case, o.Side, o.Revision, o.Kernel, o.Status, o.Reason, string(vals), int64(o.Limit), o.Started.UnixNano(),
		o.Boot.Seconds(), o.Push.Seconds(), o.Work.Seconds(), o.Total.Seconds(), string(load), o.Dir)
}

// Event records a decision, with whatever a resume needs to replay it.
func (j *Journal) Event(ctx context.Context, kind string, data any) error {
	b, err := json.Marshal(data)
	if err != nil {
		return fmt.Errorf("encode event: %w", err)
	}
	return j.append(ctx, "append event", "events", "at, kind, data", j.s.now().UnixNano(), kind, string(b))
}

// append inserts one row with the next number of its table and run.
func (j *Journal) append(ctx context.Context, op, table, columns string, args ...any) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.closed || j.finished {
		return &Error{Op: op, Path: j.id, Err: errors.New("the run has ended")}
	}
	q := fmt.Sprintf(`INSERT INTO %[1]s(run, seq, %[2]s) SELECT ?1, coalesce(max(seq), 0)+1%[3]s FROM %[1]s WHERE run=?1`,
		table, columns, placeholders(len(args)))
	return j.s.tx(ctx, op, func(t *sql.Tx) error {
		_, err := t.ExecContext(ctx, q, append([]any{j.id}, args...)...)
		return err
	})
}

// placeholders returns ", ?2, ?3, ..." for n values.
func placeholders(n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, ", ?%d", i+2)
	}
	return b.String()
}

// Finish ends the run with a status other than Running, a verdict and the path
// of the result ("" if there is none). Nothing can be appended after it; Close
// is still due. Only the first call counts.
func (j *Journal) Finish(ctx context.Context, status Status, verdict, result string) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.closed || j.finished {
		return nil
	}
	err := j.s.tx(ctx, "finish run", func(t *sql.Tx) error {
		_, err := t.ExecContext(ctx, `UPDATE runs SET status=?, verdict=?, result=?, ended=? WHERE id=?`,
			status, verdict, result, j.s.now().UnixNano(), j.id)
		return err
	})
	if err != nil {
		return err
	}
	j.finished = true
	return nil
}

// Close gives the run's lock back. A run that was not finished is interrupted
// from then on, and can be resumed. It is idempotent.
func (j *Journal) Close() error {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.closed {
		return nil
	}
	j.closed = true
	if err := j.lock.Close(); err != nil {
		return wrap("unlock run", j.dir, err)
	}
	return nil
}
