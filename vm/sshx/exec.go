package sshx

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"

	"golang.org/x/crypto/ssh"

	"github.com/kbisect/kbisect/internal/proc"
	"github.com/kbisect/kbisect/vm"
)

// Exec runs a command and blocks until it ends and its output was written. No
// Argv means a login shell; a command of kbisect-init's own (see its
// documentation) is an Argv[0] that begins with '@'.
//
// A non-zero end is a *vm.ExitError. When ctx is done the command is killed, or
// if it cannot be, the connection closed, and ctx.Err() returned. When Stdout
// or Stderr fails the command is killed too and that error returned. The
// goroutine that reads Stdin ends with the next byte or the end of it, which
// may be after Exec has returned.
func (c *Client) Exec(ctx context.Context, cmd vm.Command) error {
	if err := checkEnv(cmd.Env); err != nil {
		return err
	}
	x := &execution{cmd: cmd, quit: make(chan struct{})}
	err := c.do(ctx, func() error { return x.run(c) }, x.kill)
	if e := x.outputError(); e != nil {
		return fmt.Errorf("write output: %w", e)
	}
	var exit *vm.ExitError
	if errors.As(err, &exit) || ctx.Err() != nil {
		return err
	}
	return c.reason(err)
}

// execution is one running command.
type execution struct {
	cmd  vm.Command
	quit chan struct{} // closed when the command has ended

	mu      sync.Mutex
	session *ssh.Session
	killed  bool
	outErr  error
}

func (x *execution) run(c *Client) error {
	defer close(x.quit)
	s, err := c.ssh.NewSession()
	if err != nil {
		return fmt.Errorf("open session: %w", err)
	}
	defer s.Close()
	x.mu.Lock()
	x.session = s
	killed := x.killed
	x.mu.Unlock()
	if killed {
		return context.Canceled
	}
	s.Stdout, s.Stderr = x.output(x.cmd.Stdout), x.output(x.cmd.Stderr)
	if err := x.input(s); err != nil {
		return err
	}
	if err := x.prepare(s); err != nil {
		return err
	}
	if err := x.start(s); err != nil {
		return fmt.Errorf("start command: %w", err)
	}
	return exitError(s.Wait())
}

// prepare sends the variables and asks for a terminal. The variables need no
// answer: one round trip each would be the most of a short command's time.
func (x *execution) prepare(s *ssh.Session) error {
	for _, kv := range x.cmd.Env {
		name, value, _ := strings.Cut(kv, "=")
		payload := ssh.Marshal(struct{ Name, Value string }{name, value})
		if _, err := s.SendRequest("env", false, payload); err != nil {
			return fmt.Errorf("set %s: %w", name, err)
		}
	}
	t := x.cmd.TTY
	if t == nil {
		return nil
	}
	if err := s.RequestPty(t.Term, t.Rows, t.Cols, ssh.TerminalModes{}); err != nil {
		return fmt.Errorf("open terminal: %w", err)
	}
	if t.Resize != nil {
		go x.resize(s, t.Resize)
	}
	return nil
}

// resize passes on the size of the caller's window until the command has ended.
func (x *execution) resize(s *ssh.Session, sizes <-chan [2]int) {
	for {
		select {
		case size, ok := <-sizes:
			if !ok || s.WindowChange(size[0], size[1]) != nil {
				return
			}
		case <-x.quit:
			return
		}
	}
}

func (x *execution) start(s *ssh.Session) error {
	argv := x.cmd.Argv
	if len(argv) == 0 {
		return s.Shell()
	}
	if strings.HasPrefix(argv[0], "@") {
		// Init takes the rest of the line as it is.
		return s.Start(strings.Join(argv, " "))
	}
	return s.Start(proc.Quote(argv))
}

// input copies Stdin. Session.Stdin will not do: its Wait waits for a read of a
// terminal that never ends.
func (x *execution) input(s *ssh.Session) error {
	if x.cmd.Stdin == nil {
		return nil
	}
	w, err := s.StdinPipe()
	if err != nil {
		return fmt.Errorf("open stdin: %w", err)
	}
	go func() {
		_, _ = io.Copy(w, x.cmd.Stdin) // fails when the command has ended
		_ = w.Close()
	}()
	return nil
}

// kill ends the command: KILL for a command that can be signalled, and then the
// end of the session, at which the server hangs up on it.
func (x *execution) kill() {
	x.mu.Lock()
	x.killed = true
	s := x.session
	x.mu.Unlock()
	if s != nil {
		_ = s.Signal(ssh.SIGKILL)
		_ = s.Close()
	}
}

// output wraps a writer whose failure must end the command: nobody would read
// what it says, and it would block on a full window for ever.
func (x *execution) output(w io.Writer) io.Writer {
	if w == nil {
		return io.Discard
	}
	return writerFunc(func(p []byte) (int, error) {
		n, err := w.Write(p)
		if err != nil {
			x.mu.Lock()
			if x.outErr == nil {
				x.outErr = err
			}
			x.mu.Unlock()
			x.kill()
		}
		return n, err
	})
}

func (x *execution) outputError() error {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.outErr
}

type writerFunc func([]byte) (int, error)

func (f writerFunc) Write(p []byte) (int, error) { return f(p) }

// exitError translates the end of a session.
func exitError(err error) error {
	var exit *ssh.ExitError
	var missing *ssh.ExitMissingError
	switch {
	case errors.As(err, &exit):
		status := exit.ExitStatus()
		if n, ok := signalNumbers[exit.Signal()]; ok {
			status = 128 + n
		}
		return &vm.ExitError{Status: status, Signal: exit.Signal()}
	case errors.As(err, &missing):
		return fmt.Errorf("%w: the command's end was not told", ErrLost)
	}
	return err
}

// signalNumbers are Linux's, of the names that SSH has.
var signalNumbers = map[string]int{
	"HUP": 1, "INT": 2, "QUIT": 3, "ILL": 4, "TRAP": 5, "ABRT": 6, "BUS": 7, "FPE": 8, "KILL": 9,
	"USR1": 10, "SEGV": 11, "USR2": 12, "PIPE": 13, "ALRM": 14, "TERM": 15, "SYS": 31,
}

// checkEnv refuses what cannot be a variable, since the guest does not answer.
func checkEnv(env []string) error {
	for _, kv := range env {
		name, _, ok := strings.Cut(kv, "=")
		if !ok || name == "" || strings.ContainsRune(kv, 0) {
			return fmt.Errorf("environment %q: want NAME=value", kv)
		}
	}
	return nil
}
