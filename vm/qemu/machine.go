package qemu

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/kbisect/kbisect/vm"
	"github.com/kbisect/kbisect/vm/sshx"
)

// Machine is a booted guest. It implements vm.Machine.
type Machine struct {
	inst  *instance
	ssh   *sshx.Client
	facts vm.Facts

	closing  atomic.Bool
	once     sync.Once
	closeErr error
	watching sync.WaitGroup
}

var _ vm.Machine = (*Machine)(nil)

func newMachine(i *instance, client *sshx.Client) *Machine {
	p := i.plan
	m := &Machine{inst: i, ssh: client, facts: vm.Facts{
		Accel: p.Accel, Machine: "q35", Firmware: p.firmware.name,
		CPUs: p.CPUs, MemoryMiB: p.MemoryMiB, Cmdline: p.cmdline(), Argv: i.argv,
		Boot: time.Since(i.start),
	}}
	if p.Disk != nil {
		m.facts.Image = p.Disk.Path
	}
	m.facts.QEMU = i.monitor.Version().String()
	m.watching.Go(m.watch)
	return m
}

// watch ends the event stream with QEMU.
func (m *Machine) watch() {
	<-m.inst.exited
	if !m.closing.Load() {
		why := m.inst.ended(true).Error()
		m.inst.events.push(vm.Event{Kind: vm.EventExit, At: time.Since(m.inst.start), Line: why})
	}
	m.inst.events.close()
}

// Facts implements vm.Machine.
func (m *Machine) Facts() vm.Facts { return m.facts }

// Events implements vm.Machine.
func (m *Machine) Events() <-chan vm.Event { return m.inst.events.ch }

// DroppedEvents returns how many events were dropped because nobody read
// Events.
func (m *Machine) DroppedEvents() int { return m.inst.events.lost() }

// Exec implements vm.Machine. When ctx passes its deadline the guest is first
// asked where it stands, which takes a second or two, and a *vm.TimeoutError
// returned; when ctx is cancelled, ctx.Err() at once.
func (m *Machine) Exec(ctx context.Context, c vm.Command) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	begin := time.Now()
	running, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	done := make(chan error, 1)
	go func() { done <- m.ssh.Exec(running, c) }()
	var err error
	select {
	case err = <-done:
		return m.explain("run command", err)
	case <-ctx.Done():
	}
	if !errors.Is(ctx.Err(), context.DeadlineExceeded) {
		cancel()
		<-done
		return ctx.Err()
	}
	// The command still runs: that is what the trace is to show.
	late := m.timeout(c, time.Since(begin))
	cancel()
	if err = <-done; errors.Is(err, sshx.ErrLost) {
		return m.explain("run command", err) // it died of what made it late
	}
	return late
}

// timeout makes the error of a command that is late.
func (m *Machine) timeout(c vm.Command, after time.Duration) *vm.TimeoutError {
	stack := m.sysrq(context.Background())
	if len(stack) == 0 {
		stack = m.inst.postMortem(context.Background())
	}
	what := "shell"
	if len(c.Argv) > 0 {
		what = "command " + c.Argv[0]
	}
	return &vm.TimeoutError{Failure: m.inst.failure(), What: what, Limit: after.Round(time.Millisecond), Stack: stack}
}

// Put implements vm.Machine.
func (m *Machine) Put(ctx context.Context, r io.Reader, size int64, path string, mode os.FileMode) error {
	return m.explain("put file", m.ssh.Put(ctx, r, size, path, mode))
}

// explain finds out why the connection is gone, if that is what err says.
func (m *Machine) explain(op string, err error) error {
	switch {
	case m.closing.Load() && err != nil:
		return m.inst.infra(op, errors.New("machine closed"))
	case errors.Is(err, sshx.ErrNoAnswer):
		trace := m.inst.postMortem(context.Background())
		return m.crash(vm.EventNoAnswer, err.Error(), trace)
	case !errors.Is(err, sshx.ErrLost):
		return err
	case m.inst.waitExit(exitGrace):
		return m.inst.ended(true)
	}
	return m.crash(vm.EventNoAnswer, fmt.Sprintf("%v, and the guest still runs", err), m.inst.postMortem(context.Background()))
}

// crash makes the error of a guest that runs but is of no use any more. A fatal
// event on its console is the better reason.
func (m *Machine) crash(kind vm.EventKind, line string, trace []string) error {
	e := vm.Event{Kind: kind, At: time.Since(m.inst.start), Line: line}
	m.inst.mu.Lock()
	if m.inst.fatal != nil {
		e = *m.inst.fatal
	}
	m.inst.mu.Unlock()
	f := m.inst.failure()
	f.PostMortem = trace
	return &vm.CrashError{Failure: f, Event: e}
}

// Close implements vm.Machine. Its error is that of writing the logs.
func (m *Machine) Close() error {
	m.once.Do(func() {
		m.closing.Store(true)
		_ = m.inst.cmd.Kill() // at once, before anything is waited for
		_ = m.ssh.Close()     // always nil
		m.closeErr = m.inst.close()
		m.watching.Wait()
	})
	return m.closeErr
}
