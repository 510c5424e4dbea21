package qemu

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	"github.com/kbisect/kbisect/internal/proc"
	"github.com/kbisect/kbisect/vm"
	"github.com/kbisect/kbisect/vm/console"
	"github.com/kbisect/kbisect/vm/qmp"
)

// maxQEMULog bounds what QEMU itself may print.
const maxQEMULog = 1 << 20

// instance is one running QEMU with all its handles.
type instance struct {
	plan    *plan
	argv    []string
	start   time.Time
	cmd     *proc.Cmd
	pipes   *pipes
	console *console.Log
	output  *console.Log // QEMU's own
	monitor *qmp.Client
	events  *eventQueue

	connected chan struct{} // closed when monitor.Connect has returned
	connErr   error         // of Connect; set before connected is closed
	exited    chan struct{} // closed when QEMU is reaped and its console is at its end
	waitErr   error         // set before exited is closed
	work      sync.WaitGroup

	mu       sync.Mutex
	shutdown string    // reason of QMP's SHUTDOWN event
	fatal    *vm.Event // the first fatal one on the console
	noticed  *vm.Event // the last one of any kind
}

// launch starts QEMU with its console, output and monitor attended to. Its
// errors are *vm.InfraError.
func (p *plan) launch(initrd *os.File) (i *instance, err error) {
	i = &instance{
		plan: p, start: time.Now(), events: newEventQueue(),
		connected: make(chan struct{}), exited: make(chan struct{}),
	}
	pipes, n, err := openPipes(initrd)
	if err != nil {
		return nil, i.infra("start qemu", err)
	}
	defer pipes.closeTheirs()
	i.pipes, i.argv = pipes, p.argv(n)
	if err := i.openLogs(); err != nil {
		pipes.closeOurs()
		return nil, i.infra("start qemu", err)
	}
	i.cmd = proc.Command(context.Background(), i.argv[0], i.argv[1:]...)
	i.cmd.Stdout, i.cmd.Stderr = i.output, i.output
	i.cmd.ExtraFiles = pipes.theirs
	if p.Disk != nil { // QEMU's overlay of the disk: a file that has no name by the time it is written
		i.cmd.Env = append(os.Environ(), "TMPDIR="+p.Dir)
	}
	i.start = time.Now()
	if err := i.cmd.Start(); err != nil {
		i.closeLogs()
		pipes.closeOurs()
		return nil, i.infra("start qemu", err)
	}
	i.attend()
	return i, nil
}

// openLogs makes the three files of the run folder.
func (i *instance) openLogs() (err error) {
	if err := os.WriteFile(i.plan.file("qemu.argv"), []byte(i.plan.manual()+"\n"), 0o644); err != nil {
		return fmt.Errorf("write qemu.argv: %w", err)
	}
	i.console, err = console.Create(i.plan.file("console.log"), console.Options{Start: i.start, Notify: i.notice})
	if err != nil {
		return err
	}
	i.output, err = console.Create(i.plan.file("qemu.log"), console.Options{MaxFile: maxQEMULog})
	if err != nil {
		_ = i.console.Close() // nothing was written to it
	}
	return err
}

func (i *instance) closeLogs() error { return errors.Join(i.console.Close(), i.output.Close()) }

// notice takes an event of the console.
func (i *instance) notice(e vm.Event) {
	i.mu.Lock()
	i.noticed = &e
	if e.Kind.Fatal() && i.fatal == nil {
		i.fatal = &e
	}
	i.mu.Unlock()
	i.events.push(e)
}

// attend starts the goroutines that live as long as QEMU does.
func (i *instance) attend() {
	consoleDone := make(chan struct{})
	i.work.Go(func() {
		defer close(consoleDone)
		drain(i.console, i.pipes.console)
	})
	i.monitor = qmp.New(i.pipes.monitor, qmp.Options{})
	qmpEvents, _ := i.monitor.Events(context.Background()) // fails only on a dead monitor
	eventsDone := make(chan struct{})
	i.work.Go(func() {
		defer close(eventsDone)
		i.watchMonitor(qmpEvents)
	})
	i.work.Go(func() {
		defer close(i.connected)
		i.connErr = i.monitor.Connect()
	})
	i.work.Go(func() {
		i.waitErr = i.cmd.Wait()
		// What it said last is still in the sockets, and ends with it.
		<-consoleDone
		<-i.connected
		<-i.monitor.Done()
		<-eventsDone
		close(i.exited)
	})
}

// watchMonitor keeps why the guest is being shut down.
func (i *instance) watchMonitor(events <-chan qmp.Event) {
	for e := range events {
		if e.Event != "SHUTDOWN" {
			continue
		}
		reason, _ := e.Data["reason"].(string)
		i.mu.Lock()
		i.shutdown = reason
		i.mu.Unlock()
	}
}

// consolePause is how long the console is left alone after each reading, so that
// a guest that writes byte by byte does not wake us for each of them: the two
// processors are needed for its virtual ones.
const consolePause = 4 * time.Millisecond

// drain copies the console to its end.
func drain(l *console.Log, r io.Reader) {
	buf := make([]byte, 64<<10) // all that a pipe holds
	for {
		n, err := r.Read(buf)
		_, _ = l.Write(buf[:n]) // never fails
		if err != nil {
			return
		}
		time.Sleep(consolePause)
	}
}

// close kills QEMU and returns when nothing of it is left: no process, no
// goroutine, no file descriptor. It is idempotent.
func (i *instance) close() error {
	_ = i.cmd.Kill() // it may have ended already
	<-i.exited
	_ = i.monitor.Disconnect()
	i.pipes.closeOurs()
	i.work.Wait()
	i.events.close()
	return i.closeLogs()
}

// failure gathers what a reader of an error needs.
func (i *instance) failure() vm.Failure {
	f := vm.Failure{Command: i.plan.manual()}
	if i.console != nil {
		f.Console = i.console.Tail()
	}
	if i.output != nil {
		f.Stderr = i.output.Tail()
	}
	return f
}

func (i *instance) infra(op string, err error) *vm.InfraError {
	return &vm.InfraError{Failure: i.failure(), Op: op, Err: err}
}

// ending gathers what is known of QEMU's end. exited is closed.
func (i *instance) ending(booted bool) ending {
	i.mu.Lock()
	defer i.mu.Unlock()
	return ending{
		booted: booted, wait: i.waitErr, shutdown: i.shutdown, fatal: i.fatal,
		console: i.console.Tail(), output: i.output.Tail(), at: time.Since(i.start),
	}
}

// ended returns the error that QEMU's end is.
func (i *instance) ended(booted bool) error { return i.ending(booted).err(i.failure()) }

// eventQueue is the bounded channel of Machine.Events.
type eventQueue struct {
	mu      sync.Mutex
	ch      chan vm.Event
	closed  bool
	dropped int
}

// maxEvents is how many wait for a reader; a guest that warns in a loop must
// not fill our memory.
const maxEvents = 256

func newEventQueue() *eventQueue { return &eventQueue{ch: make(chan vm.Event, maxEvents)} }

// push never blocks.
func (q *eventQueue) push(e vm.Event) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.closed {
		return
	}
	select {
	case q.ch <- e:
	default:
		q.dropped++
	}
}

func (q *eventQueue) close() {
	q.mu.Lock()
	defer q.mu.Unlock()
	if !q.closed {
		q.closed = true
		close(q.ch)
	}
}

// lost returns how many events were dropped.
func (q *eventQueue) lost() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.dropped
}
