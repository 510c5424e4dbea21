package main

import (
	"fmt"
	"io"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/pkg/sftp"
	"golang.org/x/crypto/ssh"
)

// How long a command's ends are waited for.
const (
	// drainLimit is how long a silent pipe is still held after the command has
	// ended: a background process that it left may keep it open for ever.
	drainLimit = time.Second
	// maxLate is how much output is then still taken; a pipe holds at most this.
	maxLate = 1 << 20
	// hangUpLimit is what a command has between SIGHUP and SIGKILL when its
	// client has gone.
	hangUpLimit = 500 * time.Millisecond
)

// maxEnv bounds the variables that a client may set in one session.
const maxEnv = 1000

// session is one SSH session channel.
type session struct {
	s   *server
	ch  ssh.Channel
	env []string
	pty *pty // allocated by pty-req, nil without a terminal

	mu    sync.Mutex
	child *child // the running command

	began bool          // exec, shell or subsystem was accepted: one a session
	done  chan struct{} // closed when what began has ended
}

func newSession(s *server, ch ssh.Channel) *session {
	return &session{s: s, ch: ch, done: make(chan struct{})}
}

// run answers the channel's requests until the client closes it, then ends what
// still runs.
func (se *session) run(requests <-chan *ssh.Request) {
	for req := range requests {
		ok, start := se.handle(req)
		if req.WantReply {
			_ = req.Reply(ok, nil) // fails only when the connection is gone
		}
		if start != nil {
			go func() {
				defer close(se.done)
				se.finish(start())
			}()
		}
	}
	// The channel is gone: its pipes fail from now on.
	if se.began {
		se.hangUp()
		<-se.done
	}
	if se.pty != nil {
		se.pty.close()
	}
	se.ch.Close()
}

// handle answers one request. start, when not nil, is run after the reply.
func (se *session) handle(req *ssh.Request) (ok bool, start func() exit) {
	switch req.Type {
	case "env":
		var m struct{ Name, Value string }
		kv := ""
		if ssh.Unmarshal(req.Payload, &m) == nil {
			kv = m.Name + "=" + m.Value
		}
		if _, _, valid := cutEnv(kv); !valid || strings.Contains(m.Name, "=") || len(se.env) >= maxEnv {
			return false, nil
		}
		se.env = append(se.env, kv)
		return true, nil
	case "pty-req":
		return se.allocate(req.Payload), nil
	case "window-change":
		var m struct{ Cols, Rows, Width, Height uint32 }
		if ssh.Unmarshal(req.Payload, &m) != nil || se.pty == nil {
			return false, nil
		}
		return se.pty.resize(m.Rows, m.Cols) == nil, nil
	case "signal":
		var m struct{ Name string }
		sig, known := syscall.Signal(0), false
		if ssh.Unmarshal(req.Payload, &m) == nil {
			sig, known = signals[m.Name]
		}
		return known && se.signal(sig), nil
	case "exec", "shell", "subsystem":
		return se.begin(req)
	}
	return false, nil
}

// begin accepts the one command of a session.
func (se *session) begin(req *ssh.Request) (ok bool, start func() exit) {
	if se.began {
		return false, nil
	}
	var m struct{ Text string }
	if req.Type != "shell" && ssh.Unmarshal(req.Payload, &m) != nil {
		return false, nil
	}
	switch {
	case req.Type == "shell":
		start = func() exit { return se.shell() }
	case req.Type == "exec" && strings.HasPrefix(m.Text, "@"):
		start = func() exit { return se.builtin(m.Text) }
	case req.Type == "exec":
		start = func() exit { return se.exec(m.Text) }
	case m.Text == "sftp":
		start = func() exit { return se.sftp() }
	default:
		return false, nil
	}
	se.began = true
	return true, start
}

func (se *session) allocate(payload []byte) bool {
	var m struct {
		Term                      string
		Cols, Rows, Width, Height uint32
		Modes                     string
	}
	if ssh.Unmarshal(payload, &m) != nil || se.pty != nil || se.began {
		return false
	}
	p, err := openPTY()
	if err != nil {
		fmt.Fprintf(se.ch.Stderr(), "kbisect-init: %v\r\n", err)
		return false
	}
	se.pty = p
	if m.Term != "" && !strings.ContainsRune(m.Term, 0) {
		se.env = append(se.env, "TERM="+m.Term)
	}
	return p.resize(m.Rows, m.Cols) == nil
}

// signal passes a signal on to the running command.
func (se *session) signal(sig syscall.Signal) bool {
	se.mu.Lock()
	defer se.mu.Unlock()
	if se.child == nil {
		return false
	}
	se.child.signal(sig)
	return true
}

// hangUp ends the running command: asked first, then killed.
func (se *session) hangUp() {
	if !se.signal(syscall.SIGHUP) {
		return
	}
	select {
	case <-se.done:
	case <-time.After(hangUpLimit):
		se.signal(syscall.SIGKILL)
	}
}

// sftp serves the subsystem.
func (se *session) sftp() exit {
	srv, err := sftp.NewServer(se.ch)
	if err != nil {
		return se.fail(1, err)
	}
	defer srv.Close()
	if err := srv.Serve(); err != nil && err != io.EOF {
		return se.fail(1, err)
	}
	return exit{}
}

// exit is how a command ended.
type exit struct {
	status int
	signal string // its SSH name, "" when it was not killed
	core   bool
}

// fail says why on the session's standard error.
func (se *session) fail(status int, err error) exit {
	fmt.Fprintf(se.ch.Stderr(), "kbisect-init: %v\n", err)
	return exit{status: status}
}

// finish sends the end of a command and closes the channel. Its errors only say
// that the client has gone.
func (se *session) finish(e exit) {
	_ = se.ch.CloseWrite()
	if e.signal != "" {
		_, _ = se.ch.SendRequest("exit-signal", false, ssh.Marshal(struct {
			Signal  string
			Core    bool
			Message string
			Lang    string
		}{e.signal, e.core, "", ""}))
	} else {
		_, _ = se.ch.SendRequest("exit-status", false, ssh.Marshal(struct{ Status uint32 }{uint32(e.status)}))
	}
	_ = se.ch.Close()
}

// exitOf translates a wait status.
func exitOf(ws syscall.WaitStatus) exit {
	if ws.Signaled() {
		for name, sig := range signals {
			if sig == ws.Signal() {
				return exit{signal: name, core: ws.CoreDump()}
			}
		}
		// A signal that SSH has no name for is told as a shell would.
		return exit{status: 128 + int(ws.Signal())}
	}
	return exit{status: ws.ExitStatus()}
}

// signals are the names of RFC 4254, section 6.10, and the few beside them that
// a workload meets.
var signals = map[string]syscall.Signal{
	"ABRT": syscall.SIGABRT, "ALRM": syscall.SIGALRM, "FPE": syscall.SIGFPE, "HUP": syscall.SIGHUP,
	"ILL": syscall.SIGILL, "INT": syscall.SIGINT, "KILL": syscall.SIGKILL, "PIPE": syscall.SIGPIPE,
	"QUIT": syscall.SIGQUIT, "SEGV": syscall.SIGSEGV, "TERM": syscall.SIGTERM,
	"USR1": syscall.SIGUSR1, "USR2": syscall.SIGUSR2, "BUS": syscall.SIGBUS, "SYS": syscall.SIGSYS,
}
