// Package proc starts children that never outlive kbisect, whatever ends it.
//
//	c := proc.Command(ctx, "make", "-j2", "vmlinux")
//	c.Dir = tree
//	err := c.Run() // *exec.ExitError, ctx.Err(), ... exactly as with os/exec
//
// Every child runs in a process group of its own. The group's leader is a tiny
// `/bin/sh` (the guard) that blocks reading a pipe whose only write end is
// ours. When we end by any means, SIGKILL included, the kernel closes that end,
// and the guard kills the whole group. The guard is a sibling of the program,
// not its parent: the program's pid, its exit status and the error of a failed
// exec are those of os/exec, and it has no child that it does not know.
//
// Killed between fork and exec we leak nothing either: a forked child holds a
// copy of the write end until its exec, and has joined the group by then, so
// the guard fires late enough to see it.
//
// Pdeathsig is no substitute: it fires when the creating thread ends, which Go
// may do at any time (golang/go#27505).
//
// What is not covered: a program that leaves its group (setsid, a daemon), and
// one that must talk to the terminal, because a group of its own is a
// background job there (sudo asking for a password would be stopped by
// SIGTTIN). Start such a program with os/exec.
package proc

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"sync"
	"syscall"
	"time"
)

// DefaultWaitDelay is how long a child has between the cancel signal and the
// SIGKILL of its group.
const DefaultWaitDelay = 5 * time.Second

// guardScript ignores what a terminal or a polite killer sends to the group, so
// that only the end of the pipe (or SIGKILL) ends the guard.
const guardScript = `trap '' HUP INT QUIT TERM; read _; kill -KILL 0`

// stderrLimit bounds what Output keeps of a failing child's standard error.
const stderrLimit = 32 << 10

// Cmd is an exec.Cmd whose whole process group ends with it and with us. Its
// fields are those of exec.Cmd (Dir, Env, Stdin, Stdout, Stderr, ExtraFiles,
// WaitDelay, ...) and mean the same; SysProcAttr's Setpgid and Pgid are ours.
//
// As with exec.Cmd, a started Cmd needs exactly one Wait.
type Cmd struct {
	*exec.Cmd

	// Signal is sent to the program (not to the group) when ctx is done.
	// Default SIGTERM, at which make and git remove what they had half
	// written. SIGKILL ends the group at once.
	Signal syscall.Signal

	guard  *exec.Cmd
	pipe   *os.File      // our end of the guard's pipe; closing it kills the group
	exited chan struct{} // closed when the program is dead and its group was sent SIGKILL

	mu    sync.Mutex
	ended bool // the guard is about to be reaped
}

// Command returns a Cmd that runs name with args. When ctx is done the program
// gets Signal, and after WaitDelay the whole group SIGKILL; Wait then returns
// ctx.Err() unless the program succeeded nevertheless.
func Command(ctx context.Context, name string, args ...string) *Cmd {
	c := &Cmd{Cmd: exec.CommandContext(ctx, name, args...), Signal: syscall.SIGTERM}
	c.WaitDelay = DefaultWaitDelay
	c.Cancel = func() error {
		if c.Signal == syscall.SIGKILL {
			return c.Kill()
		}
		return c.Process.Signal(c.Signal)
	}
	return c
}

// Start starts the program and returns once it was exec'd. Its errors are those
// of exec.Cmd.Start; after one, nothing runs.
func (c *Cmd) Start() error {
	if c.guard != nil {
		return errors.New("proc: already started")
	}
	if c.Err != nil { // not found in PATH: no guard needed to say that
		return c.Err
	}
	if err := c.startGuard(); err != nil {
		return fmt.Errorf("start guard of %q: %w", c.Path, err)
	}
	if c.SysProcAttr == nil {
		c.SysProcAttr = new(syscall.SysProcAttr)
	}
	c.SysProcAttr.Setpgid = true
	c.SysProcAttr.Pgid = c.guard.Process.Pid
	// The closure of Cancel may run as soon as the child does.
	c.exited = make(chan struct{})
	if err := c.Cmd.Start(); err != nil {
		_ = c.endGroup()
		return err
	}
	go c.watch(c.Process.Pid)
	return nil
}

// startGuard starts the group's leader; it is exec'd, hence in its own group,
// when it returns.
func (c *Cmd) startGuard() error {
	r, w, err := os.Pipe()
	if err != nil {
		return err
	}
	defer r.Close()
	// An empty environment and "/" keep the guard free of the caller's world
	// (BASH_ENV, a folder that wants to be unmounted).
	g := exec.Command("/bin/sh", "-c", guardScript)
	g.Stdin, g.Env, g.Dir = r, []string{}, "/"
	g.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := g.Start(); err != nil {
		w.Close()
		return err
	}
	c.guard, c.pipe = g, w
	return nil
}

// watch kills what the program left in its group as soon as it is dead. It runs
// from Start, not from Wait, because a leftover that holds the write end of a
// StdoutPipe would block a caller who reads to the end before calling Wait.
func (c *Cmd) watch(pid int) {
	defer close(c.exited)
	// WNOWAIT leaves the zombie to exec.Cmd.Wait.
	waitExited(pid)
	_ = c.Kill()
}

// Kill sends SIGKILL to the whole group. It does not wait: Wait does. It may be
// called from any goroutine once Start has returned; after the end it returns
// os.ErrProcessDone.
func (c *Cmd) Kill() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	// Until it is reaped, the guard's number cannot be another group's.
	if c.ended {
		return os.ErrProcessDone
	}
	return syscall.Kill(-c.guard.Process.Pid, syscall.SIGKILL)
}

// Wait blocks until the program has ended, its output was copied, and no
// process of its group is left. Its errors are those of exec.Cmd.Wait.
func (c *Cmd) Wait() error {
	if c.exited == nil || c.Process == nil {
		return errors.New("proc: not started")
	}
	<-c.exited
	err := c.Cmd.Wait()
	if end := c.endGroup(); err == nil {
		err = end
	}
	return err
}

// endGroup ends and reaps the guard and waits for the rest of its group.
func (c *Cmd) endGroup() error {
	pgid := c.guard.Process.Pid
	_ = c.Kill()
	c.mu.Lock()
	c.ended = true
	c.mu.Unlock()
	c.pipe.Close()
	_ = c.guard.Wait() // always "signal: killed"
	return waitGroupGone(pgid)
}

// Run is Start and Wait.
func (c *Cmd) Run() error {
	if err := c.Start(); err != nil {
		return err
	}
	return c.Wait()
}

// Output runs the program and returns its standard output. If Stderr is nil,
// the first and last 16 KiB of the standard error go to ExitError.Stderr.
func (c *Cmd) Output() ([]byte, error) {
	if c.Stdout != nil {
		return nil, errors.New("proc: Stdout already set")
	}
	var out bytes.Buffer
	c.Stdout = &out
	var tail *ends
	if c.Stderr == nil {
		tail = &ends{limit: stderrLimit / 2}
		c.Stderr = tail
	}
	err := c.Run()
	var exit *exec.ExitError
	if tail != nil && errors.As(err, &exit) {
		exit.Stderr = tail.Bytes()
	}
	return out.Bytes(), err
}

// CombinedOutput runs the program and returns its standard output and error.
func (c *Cmd) CombinedOutput() ([]byte, error) {
	if c.Stdout != nil || c.Stderr != nil {
		return nil, errors.New("proc: Stdout or Stderr already set")
	}
	var out bytes.Buffer
	c.Stdout, c.Stderr = &out, &out
	err := c.Run()
	return out.Bytes(), err
}

// ends keeps the first and the last limit bytes written to it.
type ends struct {
	limit   int
	head    []byte
	tail    []byte
	dropped int
}

var _ io.Writer = (*ends)(nil)

// Write implements io.Writer; it never fails.
func (e *ends) Write(p []byte) (int, error) {
	n := len(p)
	if room := e.limit - len(e.head); room > 0 {
		k := min(room, len(p))
		e.head = append(e.head, p[:k]...)
		p = p[k:]
	}
	e.tail = append(e.tail, p...)
	if over := len(e.tail) - e.limit; over > 0 {
		e.dropped += over
		e.tail = append(e.tail[:0], e.tail[over:]...)
	}
	return n, nil
}

// Bytes returns what was kept, with a note where something is missing.
func (e *ends) Bytes() []byte {
	out := bytes.Clone(e.head)
	if e.dropped > 0 {
		out = fmt.Appendf(out, "\n... %d bytes left out ...\n", e.dropped)
	}
	return append(out, e.tail...)
}
