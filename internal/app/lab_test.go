package app

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/kbisect/kbisect/guest/proto"
	"github.com/kbisect/kbisect/internal/measure"
	"github.com/kbisect/kbisect/vm"
	"github.com/kbisect/kbisect/vm/vmtest"
)

// argOf returns the value behind a flag of the agent's command.
func argOf(c vm.Command, flag string) string {
	i := slices.Index(c.Argv, flag)
	if i < 0 || i+1 == len(c.Argv) {
		return ""
	}
	return c.Argv[i+1]
}

// agentWith is an agent that reports one flush time.
func agentWith(flush time.Duration) func(context.Context, vm.Command) error {
	return func(_ context.Context, c vm.Command) error {
		w := proto.NewWriter(c.Stdout, func() int64 { return 1 })
		return errors.Join(
			w.Hello(hello(c)),
			w.Metric(proto.Metric{Name: "flush", Unit: proto.Nanoseconds, Better: proto.Lower, Value: float64(flush) * countOf(c) / 1000}),
			w.Check(proto.Check{Name: "nexthops gone", OK: true}),
			w.Done(argOf(c, "-nonce"), 1000))
	}
}

// countOf is the workload's parameter "count", 1000 if it is not set.
func countOf(c vm.Command) float64 {
	n := 1000.0
	if _, list, ok := strings.Cut(argOf(c, "-workload"), "count="); ok {
		fmt.Sscanf(list, "%g", &n) //nolint:errcheck // then it stays 1000
	}
	return n
}

func hello(c vm.Command) proto.Hello {
	return proto.Hello{Workload: workloadName(argOf(c, "-workload")), Params: map[string]string{}, Release: "6.1.192", Version: "#1",
		Cmdline: "quiet", CPUs: 2, HZ: 250, Clocksource: "hpet", ResolutionNS: 10, BootNS: 1e9}
}

// labOn is a lab whose machines are all m.
func labOn(t *testing.T, m *vmtest.Machine) *lab {
	t.Helper()
	agent := filepath.Join(t.TempDir(), "agent")
	if err := os.WriteFile(agent, []byte("agent"), 0o755); err != nil {
		t.Fatal(err)
	}
	return &lab{agent: agent, start: func(context.Context, vm.Spec) (vm.Machine, error) { return m, nil }}
}

func TestLabRun(t *testing.T) {
	crash := &vm.CrashError{Event: vm.Event{Kind: vm.EventPanic, Line: "Kernel panic"}}
	raw := func(text string) func(context.Context, vm.Command) error {
		return func(_ context.Context, c vm.Command) error {
			_, err := io.WriteString(c.Stdout, text)
			return err
		}
	}
	tests := []struct {
		name   string
		m      vmtest.Machine
		want   measure.Status
		reason string
	}{
		{"measured", vmtest.Machine{ExecFunc: agentWith(40 * time.Millisecond)}, measure.OK, ""},
		{"nothing said", vmtest.Machine{}, measure.Infra, ""},
		{"garbage", vmtest.Machine{ExecFunc: raw("\x00\xff{}\n")}, measure.Infra, ""},
		{"forged done", vmtest.Machine{ExecFunc: func(_ context.Context, c vm.Command) error {
			w := proto.NewWriter(c.Stdout, func() int64 { return 1 })
			return errors.Join(w.Hello(hello(c)), w.Done("0123456789abcdef01234567", 1))
		}}, measure.Infra, "nonce"},
		{"gave up", vmtest.Machine{ExecFunc: func(_ context.Context, c vm.Command) error {
			w := proto.NewWriter(c.Stdout, func() int64 { return 1 })
			_ = w.Hello(hello(c))
			_ = w.Fail(proto.FailUnsupported, "no nexthop objects")
			return &vm.ExitError{Status: 1}
		}}, measure.Untestable, "no nexthop objects"},
		{"agent died", vmtest.Machine{ExecFunc: func(_ context.Context, c vm.Command) error {
			fmt.Fprintln(c.Stderr, "agent: out of memory")
			return &vm.ExitError{Status: 2}
		}}, measure.Infra, "out of memory"},
		{"panic while it ran", vmtest.Machine{ExecFunc: func(context.Context, vm.Command) error { return crash }}, measure.Crash, "panic"},
		{"oops behind a whole report", vmtest.Machine{ExecFunc: agentWith(time.Millisecond),
			EventsSent: []vm.Event{{Kind: vm.EventOops, Line: "BUG: unable to handle page fault"}}}, measure.Crash, "page fault"},
		{"stall is no crash", vmtest.Machine{ExecFunc: agentWith(time.Millisecond),
			EventsSent: []vm.Event{{Kind: vm.EventRCUStall, Line: "rcu: INFO: self-detected stall"}}}, measure.OK, ""},
		{"agent not taken", vmtest.Machine{PutErr: &vm.InfraError{Op: "put", Err: io.ErrClosedPipe}}, measure.Infra, "put"},
	}
	for i := range tests {
		tt := &tests[i]
		t.Run(tt.name, func(t *testing.T) {
			l := labOn(t, &tt.m)
			tr, err := l.run(t.Context(), "vmlinux", job{workload: "nexthop-delete", limit: time.Minute}, filepath.Join(t.TempDir(), "001"))
			if err != nil {
				t.Fatal(err)
			}
			if tr.outcome.Status != tt.want || !strings.Contains(tr.outcome.Reason, tt.reason) {
				t.Errorf("got %s (%s), want %s with %q", tr.outcome.Status, tr.outcome.Reason, tt.want, tt.reason)
			}
			if !tt.m.Closed() {
				t.Error("the machine was left running")
			}
		})
	}
}

func TestLabTimeout(t *testing.T) {
	m := &vmtest.Machine{ExecFunc: func(ctx context.Context, _ vm.Command) error {
		<-ctx.Done()
		return ctx.Err()
	}}
	l := labOn(t, m)
	l.grace = time.Millisecond
	tr, err := l.run(t.Context(), "vmlinux", job{"nexthop-delete", 20 * time.Millisecond}, t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	if tr.outcome.Status != measure.Timeout || tr.outcome.Limit != 20*time.Millisecond {
		t.Errorf("got %+v", tr.outcome)
	}
}

// TestLabFlood lets a guest talk for ever: the host stops listening, and keeps
// no more than it promised.
func TestLabFlood(t *testing.T) {
	m := &vmtest.Machine{ExecFunc: func(_ context.Context, c vm.Command) error {
		line := []byte(strings.Repeat("x", 1<<16))
		for {
			if _, err := c.Stdout.Write(line); err != nil {
				return &vm.ExitError{Status: 1}
			}
		}
	}}
	dir := t.TempDir()
	tr, err := labOn(t, m).run(t.Context(), "vmlinux", job{workload: "nexthop-delete", limit: time.Minute}, dir)
	if err != nil {
		t.Fatal(err)
	}
	if tr.outcome.Status != measure.Infra {
		t.Errorf("got %s", tr.outcome.Status)
	}
	st, err := os.Stat(filepath.Join(dir, "records.jsonl"))
	if err != nil || st.Size() > maxRecordBytes {
		t.Errorf("records: %v, %v", st, err)
	}
}

func TestLabCancelled(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	m := &vmtest.Machine{ExecFunc: func(ctx context.Context, _ vm.Command) error {
		cancel()
		<-ctx.Done()
		return ctx.Err()
	}}
	_, err := labOn(t, m).run(ctx, "vmlinux", job{workload: "nexthop-delete", limit: time.Minute}, t.TempDir())
	if !errors.Is(err, context.Canceled) || !m.Closed() {
		t.Errorf("got %v, closed %v", err, m.Closed())
	}
}

func TestBootError(t *testing.T) {
	l := labOn(t, nil)
	l.start = func(context.Context, vm.Spec) (vm.Machine, error) {
		return nil, &vm.BootError{Reason: "silent for 30s"}
	}
	tr, err := l.run(t.Context(), "vmlinux", job{workload: "nexthop-delete", limit: time.Minute}, t.TempDir())
	if err != nil || tr.outcome.Status != measure.Untestable {
		t.Errorf("got %v, %+v", err, tr.outcome)
	}
}

// TestWorkloadCmdline: a workload's own kernel parameters are added to the user's.
func TestWorkloadCmdline(t *testing.T) {
	l := labOn(t, &vmtest.Machine{})
	var got []string
	l.start = func(_ context.Context, s vm.Spec) (vm.Machine, error) {
		got = s.Cmdline
		return nil, &vm.InfraError{Op: "test", Err: io.EOF}
	}
	l.machine.Append = "quiet nohz=off"
	if _, err := l.run(t.Context(), "vmlinux", job{"netns-churn,count=5", time.Minute}, t.TempDir()); err != nil {
		t.Fatal(err)
	}
	if want := []string{"quiet", "nohz=off", "initcall_blacklist=pg_init"}; !slices.Equal(got, want) {
		t.Errorf("parameters %q, want %q", got, want)
	}
}
