package agent

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"runtime/debug"
	"strings"
	"testing"
	"time"

	"github.com/kbisect/kbisect/guest/proto"
	"github.com/kbisect/kbisect/guest/workload"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m)
}

// fake is a workload made of functions.
type fake struct {
	setup    func(workload.Env) error
	run      func(ctx context.Context, env workload.Env) (int64, error)
	teardown error
	env      workload.Env
}

func (f *fake) Name() string             { return "fake" }
func (f *fake) Doc() string              { return "a test's" }
func (f *fake) Params() []workload.Param { return nil }
func (f *fake) Metrics() []workload.Metric {
	return []workload.Metric{
		{Name: "elapsed", Unit: proto.Nanoseconds, Better: proto.Lower},
		{Name: "op", Unit: proto.Nanoseconds, Better: proto.Lower, Dist: true},
	}
}
func (f *fake) Setup(_ context.Context, env workload.Env) (workload.Instance, error) {
	f.env = env
	if f.setup != nil {
		if err := f.setup(env); err != nil {
			return nil, err
		}
	}
	return f, nil
}
func (f *fake) Run(ctx context.Context) (int64, error) { return f.run(ctx, f.env) }
func (f *fake) Teardown() error                        { return f.teardown }

// good does three operations of 1, 2 and 3 ms, as it says.
func good(_ context.Context, env workload.Env) (int64, error) {
	env.Rec.Phase("work")
	for i := range int64(3) {
		env.Rec.Observe("op", (i+1)*1e6)
		env.Rec.Progress(i+1, 3)
	}
	env.Rec.Metric("elapsed", 6e6)
	return 3, env.Rec.Check("all gone", 0, 0)
}

// loud undoes what a run does to the process when the test ends.
func loud(t *testing.T) {
	t.Helper()
	percent, procs := debug.SetGCPercent(100), runtime.GOMAXPROCS(0)
	t.Cleanup(func() {
		debug.SetGCPercent(percent)
		runtime.GOMAXPROCS(procs)
	})
}

// measured runs f and returns what the host would have read.
func measured(t *testing.T, ctx context.Context, f *fake, cfg Config, now func() int64) (*proto.Report, error) {
	t.Helper()
	loud(t)
	var b bytes.Buffer
	if now == nil {
		begin := time.Now()
		now = func() int64 { return int64(time.Since(begin)) }
	}
	cfg.Nonce = "n"
	w := proto.NewWriter(&b, now)
	err := measure(ctx, cfg, f, workload.Params{}, w, now)
	var fail *failure
	if errors.As(err, &fail) {
		if werr := w.Fail(fail.reason, fail.Error()); werr != nil {
			t.Fatal(werr)
		}
	} else if err != nil {
		t.Fatalf("write: %v", err)
	}
	rep, rerr := proto.Collect(&b, "n", nil)
	if rerr != nil {
		t.Fatalf("the host refuses the stream: %v", rerr)
	}
	return rep, err
}

func TestGoodRun(t *testing.T) {
	rep, err := measured(t, t.Context(), &fake{run: good}, Config{}, nil)
	if err != nil {
		t.Fatal(err)
	}
	if rep.Done == nil || rep.Done.Ops != 3 || len(rep.Checks) != 1 || len(rep.Metrics) != 1 || rep.Metrics[0].Value != 6e6 {
		t.Errorf("report %+v", rep)
	}
	d := rep.Dists[0]
	if d.N != 3 || d.Min != 1e6 || d.Max != 3e6 || d.Sum != 6e6 || len(d.Samples) != 3 || d.Censored != 0 {
		t.Errorf("dist %+v", d)
	}
	if off := d.P50 - 2e6; off < 0 || off > 2e3 {
		t.Errorf("median %d, want 2 ms to three digits", d.P50)
	}
	h := rep.Hello
	if h.Release == "" || h.CPUs < 1 || h.HZ < 1 || h.ResolutionNS < 1 || h.BootNS < 1 {
		t.Errorf("hello %+v", h)
	}
}

func TestFailures(t *testing.T) {
	boom := errors.New("boom")
	for name, c := range map[string]struct {
		f      *fake
		reason proto.FailReason
		text   string
	}{
		"unsupported": {&fake{setup: func(workload.Env) error {
			return &workload.UnsupportedError{Feature: "dummy devices", Needs: "CONFIG_DUMMY", Err: boom}
		}}, proto.FailUnsupported, "CONFIG_DUMMY"},
		"setup": {&fake{setup: func(workload.Env) error { return boom }}, proto.FailError, "set up fake: boom"},
		"check": {&fake{run: func(_ context.Context, env workload.Env) (int64, error) {
			return 1, env.Rec.Check("all gone", 0, 7)
		}}, proto.FailCheck, "all gone"},
		"run": {&fake{run: func(context.Context, workload.Env) (int64, error) { return 0, boom }}, proto.FailError, "run fake: boom"},
		"panic": {&fake{run: func(context.Context, workload.Env) (int64, error) { panic("oh") }}, proto.FailError,
			"workload fake panicked: oh"},
		"teardown": {&fake{run: good, teardown: boom}, proto.FailError, "tear down fake: boom"},
		"no operation": {&fake{run: func(ctx context.Context, env workload.Env) (int64, error) {
			_, err := good(ctx, env)
			return 0, err
		}}, proto.FailError, "did no operation"},
		"metric missing": {&fake{run: func(_ context.Context, env workload.Env) (int64, error) {
			env.Rec.Metric("elapsed", 1e9)
			return 1, nil
		}}, proto.FailError, `did not report "op"`},
		"metric unknown": {&fake{run: func(ctx context.Context, env workload.Env) (int64, error) {
			env.Rec.Metric("else", 1)
			return good(ctx, env)
		}}, proto.FailError, `"else"`},
		"metric twice": {&fake{run: func(ctx context.Context, env workload.Env) (int64, error) {
			env.Rec.Metric("elapsed", 1e9)
			return good(ctx, env)
		}}, proto.FailError, "twice"},
		"dist as metric": {&fake{run: func(ctx context.Context, env workload.Env) (int64, error) {
			env.Rec.Observe("elapsed", 1e9)
			return good(ctx, env)
		}}, proto.FailError, "no distribution"},
	} {
		t.Run(name, func(t *testing.T) {
			rep, err := measured(t, t.Context(), c.f, Config{}, nil)
			if err == nil || rep.Done != nil || rep.Fail == nil {
				t.Fatalf("report %+v, %v; want a fail", rep, err)
			}
			if rep.Fail.Reason != c.reason || !strings.Contains(rep.Fail.Text, c.text) {
				t.Errorf("fail %+v, want %s with %q", rep.Fail, c.reason, c.text)
			}
		})
	}
}

// TestCoarseClock: on a clock of 4 ms (refined-jiffies) latencies of 1 to 3 ms
// mean nothing, whatever they say.
func TestCoarseClock(t *testing.T) {
	begin := time.Now()
	jiffies := func() int64 { return int64(time.Since(begin)) / 4e6 * 4e6 }
	rep, err := measured(t, t.Context(), &fake{run: good}, Config{}, jiffies)
	if err == nil || rep.Fail == nil || rep.Fail.Reason != proto.FailClock {
		t.Fatalf("report %+v, %v, want a clock fail", rep, err)
	}
	if rep.Hello.ResolutionNS != 4e6 {
		t.Errorf("resolution %d, want 4 ms", rep.Hello.ResolutionNS)
	}
}

func TestClockThatStandsStill(t *testing.T) {
	if got := resolution(func() int64 { return 42 }); got != int64(time.Hour) {
		t.Errorf("resolution %d, want an hour", got)
	}
}

// TestLimit: what hangs is reported as longer than it was waited for.
func TestLimit(t *testing.T) {
	release := make(chan struct{})
	ended := make(chan struct{})
	f := &fake{run: func(_ context.Context, env workload.Env) (int64, error) {
		defer close(ended)
		env.Rec.Phase("work")
		env.Rec.Observe("op", 1e6)
		env.Rec.Progress(1, 2)
		<-release // as a thread in the kernel: it does not see the context
		env.Rec.Observe("op", 1)
		env.Rec.Metric("elapsed", 1)
		return 2, nil
	}}
	const limit = 50 * time.Millisecond
	rep, err := measured(t, t.Context(), f, Config{Limit: limit}, nil)
	close(release)
	<-ended
	if err != nil {
		t.Fatal(err)
	}
	m, d := rep.Metrics[0], rep.Dists[0]
	if !m.Censored || m.Value < 40e6 {
		t.Errorf("metric %+v, want one censored at about %v", m, limit)
	}
	if d.N != 2 || d.Censored != 1 || d.Max < 40e6 || d.Min != 1e6 {
		t.Errorf("dist %+v, want the operation that hung as its censored maximum", d)
	}
	if rep.Done.Ops != 2 {
		t.Errorf("%d operations begun, want 2", rep.Done.Ops)
	}
}

func TestCancelled(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	f := &fake{run: func(ctx context.Context, _ workload.Env) (int64, error) {
		defer close(ended)
		cancel()
		<-ctx.Done()
		return 0, ctx.Err()
	}}
	rep, err := measured(t, ctx, f, Config{}, nil)
	<-ended
	if err == nil || rep.Fail == nil || rep.Fail.Reason != proto.FailError {
		t.Errorf("report %+v, %v", rep, err)
	}
}

func TestManyOperations(t *testing.T) {
	f := &fake{run: func(_ context.Context, env workload.Env) (int64, error) {
		const n = 3 * proto.MaxSamples
		for i := range int64(n) {
			env.Rec.Observe("op", 1e6+i)
		}
		env.Rec.Metric("elapsed", n*1e6)
		return n, nil
	}}
	rep, err := measured(t, t.Context(), f, Config{}, nil)
	if err != nil {
		t.Fatal(err)
	}
	if d := rep.Dists[0]; d.N != 3*proto.MaxSamples || len(d.Samples) != proto.MaxSamples {
		t.Errorf("%d operations, %d samples", d.N, len(d.Samples))
	}
}

// TestObserveDoesNotAllocate: an allocation in the measured loop is noise.
func TestObserveDoesNotAllocate(t *testing.T) {
	rec, err := newRecorder(proto.NewWriter(&bytes.Buffer{}, func() int64 { return 0 }), func() int64 { return 0 }, (&fake{}).Metrics())
	if err != nil {
		t.Fatal(err)
	}
	if n := testing.AllocsPerRun(1000, func() { rec.Observe("op", 12345); rec.Progress(1, 2) }); n != 0 {
		t.Errorf("%v allocations an operation", n)
	}
}

func TestBadSpecIsAFailRecord(t *testing.T) {
	var b bytes.Buffer
	err := Run(t.Context(), Config{Spec: "nonsense", Nonce: "n"}, &b)
	rep, rerr := proto.Collect(&b, "n", nil)
	if !errors.Is(err, ErrFailed) || rerr != nil || rep.Fail == nil || !strings.Contains(rep.Fail.Text, "nonsense") {
		t.Errorf("%v, %v, %+v", err, rerr, rep)
	}
}

// TestRealRun runs a real workload as the agent does, where that is possible.
func TestRealRun(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root to make network namespaces")
	}
	loud(t)
	var b bytes.Buffer
	err := Run(t.Context(), Config{Spec: "netdev-delete,count=5,type=veth", Nonce: "n"}, &b)
	rep, rerr := proto.Collect(&b, "n", nil)
	if rerr != nil {
		t.Fatal(rerr)
	}
	if rep.Fail != nil && rep.Fail.Reason == proto.FailUnsupported {
		t.Skip(rep.Fail.Text)
	}
	if err != nil || rep.Done == nil || rep.Done.Ops != 5 {
		t.Errorf("%v, %+v", err, rep)
	}
}

// TestTooShort holds times against a clock of 100 ns: a number needs 20 steps, the
// median of many five.
func TestTooShort(t *testing.T) {
	one := workload.Metric{Name: "one", Unit: proto.Nanoseconds, Better: proto.Lower}
	all := workload.Metric{Name: "all", Unit: proto.Nanoseconds, Better: proto.Lower, Dist: true}
	for name, c := range map[string]struct {
		one, each int64
		n         int
		want      string
	}{
		"fine":              {2000, 500, many, ""},
		"number too short":  {1999, 500, many, "one"},
		"median too short":  {2000, 499, many, "all"},
		"few, too short":    {2000, 1999, many - 1, "all"},
		"few, long enough":  {2000, 2000, many - 1, ""},
		"a clock that ends": {0, 0, many, "all"},
	} {
		rec, err := newRecorder(nil, func() int64 { return 0 }, []workload.Metric{one, all})
		if err != nil {
			t.Fatal(err)
		}
		rec.Metric("one", float64(c.one))
		for range c.n {
			rec.Observe("all", c.each)
		}
		got, ns, found := rec.tooShort(100)
		if got != c.want || found != (c.want != "") {
			t.Errorf("%s: %q, %d ns, %v, want %q", name, got, ns, found, c.want)
		}
	}
}

// A script that prints without end costs bounded memory; what is kept is its
// beginning, its end, and how much is missing.
func TestTranscriptIsBounded(t *testing.T) {
	f := &fake{run: func(_ context.Context, env workload.Env) (int64, error) {
		out := env.Rec.Output()
		for i := range 200_000 {
			fmt.Fprintf(out, "line %d of it, \xff\n", i)
		}
		env.Rec.Observe("op", 5e6)
		env.Rec.Metric("elapsed", 5e6)
		env.Rec.Define(workload.Metric{Name: "time[1].real", Unit: proto.Nanoseconds, Better: proto.Lower, Printed: true})
		env.Rec.Metric("time[1].real", 0)
		return 1, nil
	}}
	rep, err := measured(t, t.Context(), f, Config{}, nil)
	if err != nil {
		t.Fatal(err)
	}
	if n := len(rep.Output); n > proto.MaxOutput || n < keepHead+keepTail-100 {
		t.Errorf("%d bytes were kept", n)
	}
	for _, text := range []string{"line 0 of it, ?\nline 1 of it", " bytes left out]\nline ", "line 199999 of it, ?\n"} {
		if !strings.Contains(rep.Output, text) {
			t.Errorf("%q is not in it", text)
		}
	}
	if n := len(rep.Metrics); n != 2 {
		t.Errorf("%d metrics: %+v", n, rep.Metrics)
	}
}

// What a script printed helps most when it failed.
func TestTranscriptOfAFailure(t *testing.T) {
	f := &fake{run: func(_ context.Context, env workload.Env) (int64, error) {
		fmt.Fprintln(env.Rec.Output(), "RTNETLINK answers: Operation not supported")
		return 0, errors.New("exit 2")
	}}
	rep, err := measured(t, t.Context(), f, Config{}, nil)
	if err == nil || rep.Fail == nil || !strings.Contains(rep.Output, "RTNETLINK answers") {
		t.Errorf("%v: %+v", err, rep)
	}
}
