package store

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"go.uber.org/goleak"

	"github.com/kbisect/kbisect/guest/proto"
	"github.com/kbisect/kbisect/internal/measure"
)

// TestMain doubles as the other process of the tests with two of them.
func TestMain(m *testing.M) {
	if dir := os.Getenv("KBISECT_STORE_CHILD"); dir != "" {
		if err := child(dir, os.Getenv("KBISECT_STORE_STAY") != ""); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	goleak.VerifyTestMain(m)
}

// child starts a run, appends to it and finishes it; with stay it prints the id
// and waits to be killed instead.
func child(dir string, stay bool) error {
	ctx := context.Background()
	s, err := Open(ctx, dir)
	if err != nil {
		return err
	}
	defer s.Close()
	j, err := s.NewRun(ctx, Spec{Mode: "case", Name: "child"})
	if err != nil {
		return err
	}
	defer j.Close()
	for i := range 30 {
		if err := j.Outcome(ctx, Outcome{Case: "c", Values: map[string]measure.Value{"i": {Number: float64(i)}}}); err != nil {
			return err
		}
	}
	if stay {
		fmt.Println(j.ID())
		time.Sleep(time.Minute)
	}
	return j.Finish(ctx, Done, "faster", "")
}

func open(t *testing.T, dir string) *Store {
	t.Helper()
	s, err := Open(t.Context(), dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

func start(t *testing.T, s *Store, name string) *Journal {
	t.Helper()
	j, err := s.NewRun(t.Context(), Spec{Mode: "case", Name: name, Args: []string{name}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { j.Close() })
	return j
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func TestRoundTrip(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "a b", "100% ?#x:y", "kbisect") // SQLite reads it as a URI
	s := open(t, dir)
	j := start(t, s, "nexthop-delete")
	b := Build{Key: "k", Identity: "sha", Revision: "v6.1", Seconds: 180.5, Error: ""}
	o := Outcome{Case: "nexthop-delete", Side: "with", Revision: "v6.1", Kernel: "sha", Status: "ok",
		Values:  map[string]measure.Value{"flush": {Number: 4.0e7, Unit: proto.Nanoseconds, Censored: true}, "delete.p99": {Number: 1}},
		Limit:   time.Minute,
		Started: time.Unix(1000, 5).UTC(), Boot: time.Second, Push: 2 * time.Millisecond, Work: 3 * time.Second,
		Total: 5 * time.Second, HostLoad: map[string]float64{"steal": 0.1}, Dir: j.Path("01")}
	must(t, j.Build(t.Context(), b))
	must(t, j.Outcome(t.Context(), o))
	must(t, j.Outcome(t.Context(), o))
	must(t, j.Event(t.Context(), "decision", map[string]int{"looks": 3}))
	must(t, j.Finish(t.Context(), Done, "faster", j.Path("result.json")))
	must(t, j.Finish(t.Context(), Failed, "slower", "")) // only the first counts
	must(t, j.Close())
	must(t, s.Close())

	s = open(t, dir)
	r, err := s.Run(t.Context(), "last")
	must(t, err)
	want := Run{ID: j.ID(), Mode: "case", Name: "nexthop-delete", Args: json.RawMessage(`["nexthop-delete"]`), Status: Done,
		Verdict: "faster", Result: j.Path("result.json"), Dir: j.Dir(), PID: os.Getpid()}
	if d := cmp.Diff(want, r, cmpopts.IgnoreFields(Run{}, "Created", "Ended")); d != "" {
		t.Error(d)
	}
	if r.Ended.Before(r.Created) || time.Since(r.Created) > time.Minute {
		t.Errorf("times %v .. %v", r.Created, r.Ended)
	}
	outs, err := s.Outcomes(t.Context(), j.ID())
	must(t, err)
	o1, o2 := o, o
	o1.Run, o1.Seq, o2.Run, o2.Seq = j.ID(), 1, j.ID(), 2
	if d := cmp.Diff([]Outcome{o1, o2}, outs); d != "" {
		t.Error(d)
	}
	builds, err := s.Builds(t.Context(), j.ID())
	must(t, err)
	b.Run, b.Seq = j.ID(), 1
	if d := cmp.Diff([]Build{b}, builds, cmpopts.IgnoreFields(Build{}, "At")); d != "" {
		t.Error(d)
	}
	evs, err := s.Events(t.Context(), j.ID())
	must(t, err)
	if len(evs) != 1 || evs[0].Kind != "decision" || string(evs[0].Data) != `{"looks":3}` {
		t.Errorf("events %+v", evs)
	}
	if err := j.Event(t.Context(), "late", nil); err == nil {
		t.Error("an ended run takes events")
	}
}

func TestID(t *testing.T) {
	s := open(t, t.TempDir())
	s.now = func() time.Time { return time.Date(2026, 11, 30, 16, 42, 0, 0, time.FixedZone("CET", 3600)) }
	for name, want := range map[string]string{
		"nexthop-delete":        `^20261130-1542-nexthop-delete-[0-9a-f]{3}$`,
		"../../Etc/passwd":      `^20261130-1542-etc-passwd-[0-9a-f]{3}$`,
		"":                      `^20261130-1542-run-[0-9a-f]{3}$`,
		strings.Repeat("x", 99): `^20261130-1542-x{32}-[0-9a-f]{3}$`,
	} {
		if id := start(t, s, name).ID(); !regexp.MustCompile(want).MatchString(id) {
			t.Errorf("%q: id %q, want %s", name, id, want)
		}
	}
}

func FuzzSlug(f *testing.F) {
	f.Add("nexthop-delete")
	f.Add("--A//b..")
	f.Fuzz(func(t *testing.T, s string) {
		if got := slug(s); !regexp.MustCompile(`^[a-z0-9]([a-z0-9-]{0,30}[a-z0-9])?$`).MatchString(got) {
			t.Errorf("slug(%q) = %q", s, got)
		}
	})
}

func TestLookUp(t *testing.T) {
	s := open(t, t.TempDir())
	if _, err := s.Run(t.Context(), "last"); !errors.Is(err, ErrNotFound) {
		t.Errorf("empty: %v", err)
	}
	a, b := start(t, s, "aaa"), start(t, s, "bbb")
	for id, want := range map[string]error{
		a.ID():                  nil,
		b.ID()[:18]:             nil,
		a.ID()[:2]:              ErrAmbiguous,
		"":                      ErrNotFound,
		"%":                     ErrNotFound,
		a.ID() + "x":            ErrNotFound,
		strings.ToUpper(b.ID()): ErrNotFound,
	} {
		if _, err := s.Run(t.Context(), id); !errors.Is(err, want) {
			t.Errorf("%q: %v, want %v", id, err, want)
		}
	}
	if r, err := s.Run(t.Context(), "last"); err != nil || r.ID != b.ID() {
		t.Errorf("last is %v %v", r.ID, err)
	}
	must(t, a.Finish(t.Context(), Failed, "", ""))
	for _, tt := range []struct {
		f    Filter
		want []string
	}{
		{Filter{}, []string{b.ID(), a.ID()}},
		{Filter{Limit: 1}, []string{b.ID()}},
		{Filter{Status: Failed}, []string{a.ID()}},
		{Filter{Name: "aaa"}, []string{a.ID()}},
		{Filter{Status: Done}, nil},
		{Filter{Since: time.Now().Add(time.Hour)}, nil},
	} {
		runs, err := s.Runs(t.Context(), tt.f)
		must(t, err)
		var ids []string
		for _, r := range runs {
			ids = append(ids, r.ID)
		}
		if d := cmp.Diff(tt.want, ids); d != "" {
			t.Errorf("%+v: %s", tt.f, d)
		}
	}
}

func TestInterruptedAndResumed(t *testing.T) {
	dir := t.TempDir()
	s, other := open(t, dir), open(t, dir)
	j := start(t, s, "x")
	must(t, j.Build(t.Context(), Build{Identity: "live"}))
	status := func() Status {
		t.Helper()
		r, err := other.Run(t.Context(), "last")
		must(t, err)
		return r.Status
	}
	if status() != Running {
		t.Errorf("while it runs: %s", status())
	}
	if ids, err := other.Identities(t.Context()); err != nil || len(ids) != 1 || ids[0] != "live" {
		t.Errorf("kernels of live runs: %v %v", ids, err)
	}
	if _, err := other.Resume(t.Context(), j.ID()); !errors.Is(err, ErrRunning) {
		t.Errorf("resume while it runs: %v", err)
	}
	if err := other.Delete(t.Context(), j.ID()); !errors.Is(err, ErrRunning) {
		t.Errorf("delete while it runs: %v", err)
	}
	must(t, j.Close()) // as when the process dies
	if status() != Interrupted {
		t.Errorf("after its end: %s", status())
	}
	k, err := other.Resume(t.Context(), j.ID()[:len(j.ID())-1])
	must(t, err)
	defer k.Close()
	if status() != Running {
		t.Errorf("after resume: %s", status())
	}
	must(t, k.Build(t.Context(), Build{Identity: "more"}))
	builds, err := s.Builds(t.Context(), j.ID())
	must(t, err)
	if len(builds) != 2 || builds[1].Seq != 2 {
		t.Errorf("builds %+v", builds)
	}
	must(t, k.Finish(t.Context(), Done, "", ""))
	must(t, k.Close())
	if _, err := s.Resume(t.Context(), j.ID()); err == nil {
		t.Error("a finished run was resumed")
	}
}

func TestTwoHandles(t *testing.T) {
	dir := t.TempDir()
	var wg sync.WaitGroup
	const writers, each = 4, 15
	for range writers {
		wg.Add(1)
		go func() {
			defer wg.Done()
			s, err := Open(t.Context(), dir) // all at once: the migration races too
			if err != nil {
				t.Error(err)
				return
			}
			defer s.Close()
			j, err := s.NewRun(t.Context(), Spec{Name: "w"})
			if err != nil {
				t.Error(err)
				return
			}
			defer j.Close()
			for range each {
				if err := j.Event(t.Context(), "e", nil); err != nil {
					t.Error(err)
				}
			}
		}()
	}
	wg.Wait()
	s := open(t, dir)
	runs, err := s.Runs(t.Context(), Filter{})
	must(t, err)
	if len(runs) != writers {
		t.Errorf("%d runs", len(runs))
	}
	for _, r := range runs {
		evs, err := s.Events(t.Context(), r.ID)
		must(t, err)
		if len(evs) != each || evs[each-1].Seq != each {
			t.Errorf("%s: %d events", r.ID, len(evs))
		}
	}
}

func startChild(t *testing.T, dir string, stay bool) (*exec.Cmd, *bufio.Reader, *bytes.Buffer) {
	t.Helper()
	exe, err := os.Executable()
	must(t, err)
	c := exec.CommandContext(t.Context(), exe)
	c.Env = append(os.Environ(), "KBISECT_STORE_CHILD="+dir)
	if stay {
		c.Env = append(c.Env, "KBISECT_STORE_STAY=1")
	}
	var errs bytes.Buffer
	c.Stderr = &errs
	out, err := c.StdoutPipe()
	must(t, err)
	must(t, c.Start())
	return c, bufio.NewReader(out), &errs
}

func TestTwoProcesses(t *testing.T) {
	dir := t.TempDir()
	a, _, aerr := startChild(t, dir, false)
	b, _, berr := startChild(t, dir, false)
	if err := errors.Join(a.Wait(), b.Wait()); err != nil {
		t.Fatal(err, aerr, berr)
	}
	s := open(t, dir)
	runs, err := s.Runs(t.Context(), Filter{Status: Done})
	must(t, err)
	if len(runs) != 2 {
		t.Fatalf("runs %+v", runs)
	}
	for _, r := range runs {
		outs, err := s.Outcomes(t.Context(), r.ID)
		must(t, err)
		if len(outs) != 30 || outs[29].Seq != 30 {
			t.Errorf("%s: %d outcomes", r.ID, len(outs))
		}
	}
}

func TestKilledProcess(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir)
	c, out, errs := startChild(t, dir, true)
	id, err := out.ReadString('\n')
	if err != nil {
		t.Fatal(err, errs)
	}
	id = strings.TrimSpace(id)
	if r, err := s.Run(t.Context(), id); err != nil || r.Status != Running || r.PID != c.Process.Pid {
		t.Errorf("while it lives: %+v %v", r, err)
	}
	must(t, c.Process.Kill())
	c.Wait() //nolint:errcheck // it was killed
	if r, err := s.Run(t.Context(), id); err != nil || r.Status != Interrupted {
		t.Errorf("after SIGKILL: %+v %v", r, err)
	}
	outs, err := s.Outcomes(t.Context(), id)
	must(t, err)
	if len(outs) != 30 {
		t.Errorf("%d outcomes survived, want 30", len(outs))
	}
}

func TestPrune(t *testing.T) {
	s := open(t, t.TempDir())
	var js []*Journal
	for i := range 4 {
		s.now = func() time.Time { return time.Unix(int64(1000+i), 0) }
		j := start(t, s, fmt.Sprint(i))
		must(t, os.WriteFile(j.Path("console.log"), make([]byte, 1000), 0o600))
		js = append(js, j)
	}
	for _, j := range js[1:] {
		must(t, j.Close())
	} // js[0] runs on
	orphan := s.runDir("20260101-0000-orphan-abc")
	must(t, os.Mkdir(orphan, 0o700))
	must(t, os.Chtimes(orphan, time.Unix(1, 0), time.Unix(1, 0)))
	want := []Removed{{js[1].ID(), 1000}, {filepath.Base(orphan), 0}}
	for _, dry := range []bool{true, false} {
		got, err := s.Prune(t.Context(), Policy{Keep: 2, DryRun: dry})
		must(t, err)
		if d := cmp.Diff(want, got); d != "" {
			t.Errorf("dry=%v: %s", dry, d)
		}
		if _, err := os.Stat(orphan); (err == nil) != dry {
			t.Errorf("dry=%v: orphan %v", dry, err)
		}
	}
	runs, err := s.Runs(t.Context(), Filter{})
	must(t, err)
	if len(runs) != 3 {
		t.Errorf("left %+v", runs)
	}
	if _, err := os.Stat(js[1].Dir()); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("folder of the removed: %v", err)
	}
	got, err := s.Prune(t.Context(), Policy{Before: time.Unix(1003, 0)})
	must(t, err)
	if len(got) != 1 || got[0].ID != js[2].ID() {
		t.Errorf("by age: %+v", got)
	}
	for _, id := range []string{"", "..", ".", "a/b"} {
		if err := s.Delete(t.Context(), id); !errors.Is(err, ErrNotFound) {
			t.Errorf("delete %q: %v", id, err)
		}
	}
}

func TestBadDays(t *testing.T) {
	damaged := t.TempDir()
	must(t, os.WriteFile(filepath.Join(damaged, dbName), bytes.Repeat([]byte("no database "), 1000), 0o600))
	newer := t.TempDir()
	s := open(t, newer)
	_, err := s.db.Exec("PRAGMA user_version=99")
	must(t, err)
	must(t, s.Close())
	file := filepath.Join(t.TempDir(), "file")
	must(t, os.WriteFile(file, nil, 0o600))
	locked := t.TempDir()
	must(t, os.MkdirAll(filepath.Join(locked, "runs"), 0o700))
	must(t, os.Mkdir(filepath.Join(locked, dbName), 0o700)) // a folder in its place: also root cannot open it
	for _, tt := range []struct {
		name, dir string
		want      error
		hint      string
	}{
		{"damaged", damaged, ErrCorrupt, "move it away"},
		{"newer", newer, ErrNewer, "schema 99, this program knows 1"},
		{"under a file", filepath.Join(file, "x"), ErrUnwritable, "XDG_STATE_HOME"},
		{"not a file", locked, ErrUnwritable, "XDG_STATE_HOME"},
	} {
		_, err := Open(t.Context(), tt.dir)
		var e *Error
		if !errors.Is(err, tt.want) || !errors.As(err, &e) || !strings.Contains(err.Error(), tt.dir) || !strings.Contains(err.Error(), tt.hint) {
			t.Errorf("%s: %v", tt.name, err)
		}
	}
}

// TestCheck damages a page in the middle of a database, which opens as before.
func TestCheck(t *testing.T) {
	dir := t.TempDir()
	must(t, Check(t.Context(), dir))
	if _, err := os.Stat(filepath.Join(dir, dbName)); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a check made a database: %v", err)
	}
	s := open(t, dir)
	j := start(t, s, "x")
	for range 100 {
		must(t, j.Event(t.Context(), "fill", strings.Repeat("x", 1000)))
	}
	must(t, j.Close())
	must(t, s.Close())
	must(t, Check(t.Context(), dir))
	path := filepath.Join(dir, dbName)
	data, err := os.ReadFile(path)
	must(t, err)
	copy(data[len(data)/2:], bytes.Repeat([]byte{0xff}, 8192))
	must(t, os.WriteFile(path, data, 0o600))
	if err := Check(t.Context(), dir); !errors.Is(err, ErrCorrupt) || !strings.Contains(err.Error(), path) {
		t.Errorf("damaged: %v", err)
	}
}

func TestDiskFull(t *testing.T) {
	s := open(t, t.TempDir())
	j := start(t, s, "full")
	must(t, j.Event(t.Context(), "before", nil))
	var pages int
	must(t, s.db.QueryRow("PRAGMA page_count").Scan(&pages))
	_, err := s.db.Exec(fmt.Sprintf("PRAGMA max_page_count=%d", pages)) // what SQLite calls full
	must(t, err)
	err = j.Event(t.Context(), "big", strings.Repeat("x", 1<<20))
	if !errors.Is(err, ErrFull) || !strings.Contains(err.Error(), s.Path()) || !strings.Contains(err.Error(), "free some space") {
		t.Errorf("full: %v", err)
	}
	_, err = s.db.Exec("PRAGMA max_page_count=100000")
	must(t, err)
	must(t, j.Event(t.Context(), "after", nil))
	evs, err := s.Events(t.Context(), j.ID())
	must(t, err)
	if len(evs) != 2 || evs[1].Kind != "after" {
		t.Errorf("events %+v", evs)
	}
}

func TestCancelled(t *testing.T) {
	s := open(t, t.TempDir())
	j := start(t, s, "x")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := j.Event(ctx, "e", nil); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
	must(t, j.Event(t.Context(), "e", nil))
}

func BenchmarkOutcome(b *testing.B) {
	s, err := Open(b.Context(), b.TempDir())
	if err != nil {
		b.Fatal(err)
	}
	defer s.Close()
	j, err := s.NewRun(b.Context(), Spec{Name: "bench"})
	if err != nil {
		b.Fatal(err)
	}
	defer j.Close()
	o := Outcome{Case: "c", Values: map[string]measure.Value{"flush": {Number: 1}, "insert": {Number: 2}}}
	for b.Loop() {
		if err := j.Outcome(b.Context(), o); err != nil {
			b.Fatal(err)
		}
	}
}
