// Package agent runs one workload in the guest and streams what it measured as
// records of package proto.
//
//	err := agent.Run(ctx, agent.Config{Spec: "netdev-delete", Nonce: "..."}, os.Stdout)
//
// The stream ends in a done record that carries the host's nonce and the number
// of operations, or in a fail record that says why nothing was measured. An
// agent that dies leaves neither.
package agent

import (
	"context"
	"errors"
	"fmt"
	"io"
	"runtime"
	"runtime/debug"
	"time"

	"github.com/kbisect/kbisect/guest/proto"
	"github.com/kbisect/kbisect/guest/workload"
)

// Config is one run.
type Config struct {
	Spec  string // workload specification, see workload.Parse
	Nonce string // repeated in the done record
	// Limit ends a run that takes longer: what is not finished by then is
	// reported as censored, the operations that are as they are. 0 is no limit.
	Limit time.Duration
	// Start is when the process began; zero means now.
	Start time.Time
}

// ErrFailed says that the stream ended in a fail record, which says why.
var ErrFailed = errors.New("the workload measured nothing")

// memoryLimit is where the garbage collector begins to work after all. A run
// allocates some megabytes.
const memoryLimit = 256 << 20

// Run runs the workload and writes the stream to out. It returns ErrFailed after
// a fail record, and another error when out cannot be written. It blocks for the
// whole run; when ctx ends first, the stream ends in a fail record.
func Run(ctx context.Context, cfg Config, out io.Writer) error {
	if cfg.Start.IsZero() {
		cfg.Start = time.Now()
	}
	now := func() int64 { return int64(time.Since(cfg.Start)) }
	w := proto.NewWriter(out, now)
	err := run(ctx, cfg, w, now)
	var f *failure
	if errors.As(err, &f) {
		if err := w.Fail(f.reason, f.err.Error()); err != nil {
			return err
		}
		return fmt.Errorf("%w: %w", ErrFailed, f.err)
	}
	return err
}

// failure is an error that ends the stream in a fail record.
type failure struct {
	reason proto.FailReason
	err    error
}

func (f *failure) Error() string { return f.err.Error() }

// classify makes a failure of a workload's error.
func classify(err error) *failure {
	var unsupported *workload.UnsupportedError
	var check *workload.CheckError
	switch {
	case errors.As(err, &unsupported):
		return &failure{proto.FailUnsupported, err}
	case errors.As(err, &check):
		return &failure{proto.FailCheck, err}
	}
	return &failure{proto.FailError, err}
}

// run is Run without the fail record.
func run(ctx context.Context, cfg Config, w *proto.Writer, now func() int64) error {
	load, params, err := workload.Parse(cfg.Spec)
	if err != nil {
		return classify(err)
	}
	return measure(ctx, cfg, load, params, w, now)
}

// measure says hello, runs a workload and writes what it measured.
func measure(ctx context.Context, cfg Config, load workload.Workload, params workload.Params, w *proto.Writer, now func() int64) error {
	hello, err := readFacts("/")
	if err != nil {
		return classify(err)
	}
	hello.Workload, hello.Params = load.Name(), params.Map()
	hello.ResolutionNS = resolution(now)
	if err := w.Hello(hello); err != nil {
		return err
	}
	rec, err := newRecorder(w, now, workload.MetricsFor(load, params))
	if err != nil {
		return classify(err)
	}
	env := workload.Env{Params: params, Rec: rec, Now: now}
	res := execute(ctx, cfg.Limit, load, env)
	if res.err != nil {
		// What was verified before it failed helps to see why.
		if err := rec.flushChecks(); err != nil {
			return err
		}
		return classify(res.err)
	}
	return finish(cfg, rec, w, hello.ResolutionNS, res)
}

// finish writes what was measured, if the clock was good enough for it.
func finish(cfg Config, rec *recorder, w *proto.Writer, step int64, res result) error {
	if res.limited {
		rec.censor()
	}
	if err := rec.flushChecks(); err != nil {
		return err
	}
	if err := rec.complete(); err != nil {
		return classify(err)
	}
	if name, ns, found := rec.tooShort(step); found {
		return &failure{proto.FailClock, fmt.Errorf("%s is %d ns, and the clock moves in steps of %d ns: "+
			"boot with another clocksource, or measure more operations", name, ns, step)}
	}
	if err := rec.flush(); err != nil {
		return err
	}
	return w.Done(cfg.Nonce, res.ops)
}

// result is how a workload ended.
type result struct {
	ops     int64
	limited bool // the limit passed before it was done
	err     error
}

// execute sets the workload up, runs it on a thread of its own and tears it
// down. When the limit passes it does not wait for the thread, which may hang in
// the kernel: the process ends next.
func execute(ctx context.Context, limit time.Duration, load workload.Workload, env workload.Env) result {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	quiet()
	done := make(chan result, 1)
	go func() {
		// Never unlocked: the thread ends with the goroutine, with whatever the
		// workload did to it.
		runtime.LockOSThread()
		done <- work(ctx, load, env)
	}()
	var passed <-chan time.Time
	if limit > 0 {
		t := time.NewTimer(limit)
		defer t.Stop()
		passed = t.C
	}
	select {
	case res := <-done:
		return res
	case <-ctx.Done():
		return result{err: ctx.Err()}
	case <-passed:
		return result{ops: env.Rec.(*recorder).begun(), limited: true}
	}
}

// quiet keeps the Go runtime out of the measurement: no garbage collection, and
// one thread at a time, because an idle second one is woken after every long
// system call (a quarter of the time of 16,000 requests under emulation). A
// workload of several threads raises GOMAXPROCS in its Setup.
func quiet() {
	runtime.GC()
	runtime.GOMAXPROCS(1)
	debug.SetGCPercent(-1)
	debug.SetMemoryLimit(memoryLimit)
}

func work(ctx context.Context, load workload.Workload, env workload.Env) (res result) {
	defer func() {
		if p := recover(); p != nil {
			res = result{err: fmt.Errorf("workload %s panicked: %v\n%s", load.Name(), p, debug.Stack())}
		}
	}()
	inst, err := load.Setup(ctx, env)
	if err != nil {
		return result{err: fmt.Errorf("set up %s: %w", load.Name(), err)}
	}
	ops, err := inst.Run(ctx)
	if err != nil {
		err = fmt.Errorf("run %s: %w", load.Name(), err)
	}
	if terr := inst.Teardown(); terr != nil {
		err = errors.Join(err, fmt.Errorf("tear down %s: %w", load.Name(), terr))
	}
	if err == nil && ops < 1 {
		err = fmt.Errorf("run %s: it did no operation", load.Name())
	}
	return result{ops: ops, err: err}
}
