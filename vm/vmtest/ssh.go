package vmtest

import (
	"errors"
	"fmt"
	"hash/crc64"
	"io"
	"net"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"

	"github.com/pkg/sftp"
	"golang.org/x/crypto/ssh"
)

// SSHServer is a stand-in for the guest's SSH server, on the host: commands run
// by /bin/sh here, files are files here.
type SSHServer struct {
	HostPEM       []byte // private key, OpenSSH PEM
	AuthorizedKey []byte // authorized_keys line

	Plain bool // no '@' commands, as another server than kbisect-init

	// Handle, when not nil, sees each command line first. ok = false leaves
	// it to the shell.
	Handle func(line string, ch ssh.Channel) (status int, ok bool)
}

// Serve serves one connection until it ends and returns when its commands have
// ended too.
func (s *SSHServer) Serve(conn net.Conn) error {
	signer, err := ssh.ParsePrivateKey(s.HostPEM)
	if err != nil {
		return fmt.Errorf("parse host key: %w", err)
	}
	want, _, _, _, err := ssh.ParseAuthorizedKey(s.AuthorizedKey)
	if err != nil {
		return fmt.Errorf("parse authorized key: %w", err)
	}
	config := &ssh.ServerConfig{
		PublicKeyCallback: func(_ ssh.ConnMetadata, got ssh.PublicKey) (*ssh.Permissions, error) {
			if string(got.Marshal()) != string(want.Marshal()) {
				return nil, errors.New("key not allowed")
			}
			return nil, nil
		},
	}
	config.AddHostKey(signer)
	sc, channels, requests, err := ssh.NewServerConn(conn, config)
	if err != nil {
		return fmt.Errorf("handshake: %w", err)
	}
	defer sc.Close()
	go ssh.DiscardRequests(requests)
	var work sync.WaitGroup
	defer work.Wait()
	for nc := range channels {
		if nc.ChannelType() != "session" {
			_ = nc.Reject(ssh.UnknownChannelType, "only sessions")
			continue
		}
		ch, reqs, err := nc.Accept()
		if err != nil {
			return err
		}
		work.Go(func() { s.session(ch, reqs) })
	}
	return nil
}

// session answers one session's requests.
func (s *SSHServer) session(ch ssh.Channel, reqs <-chan *ssh.Request) {
	defer ch.Close()
	x := &sshCommand{ch: ch}
	defer x.signal(syscall.SIGKILL)
	var work sync.WaitGroup
	defer work.Wait()
	defer x.signal(syscall.SIGKILL)
	for req := range reqs {
		start, ok := s.request(x, req)
		// The answer goes first: a command may close the channel at once.
		if req.WantReply {
			_ = req.Reply(ok, nil)
		}
		if start != nil {
			work.Go(start)
		}
	}
}

// request handles one request; start runs after its answer.
func (s *SSHServer) request(x *sshCommand, req *ssh.Request) (start func(), ok bool) {
	var text struct{ Text string }
	switch req.Type {
	case "env":
		var m struct{ Name, Value string }
		_ = ssh.Unmarshal(req.Payload, &m)
		x.env = append(x.env, m.Name+"="+m.Value)
	case "pty-req":
	case "window-change":
		fmt.Fprintln(x.ch, "resized")
	case "signal":
		x.signal(syscall.SIGKILL)
	case "shell":
		start = func() { s.run("echo shell; exec sh", x) }
	case "exec":
		_ = ssh.Unmarshal(req.Payload, &text)
		start = func() { s.run(text.Text, x) }
	case "subsystem":
		start = func() { serveSFTP(x.ch) }
	default:
		return nil, false
	}
	return start, true
}

func serveSFTP(ch ssh.Channel) {
	if srv, err := sftp.NewServer(ch); err == nil {
		_ = srv.Serve()
		_ = srv.Close()
	}
}

// sshCommand is one session's command.
type sshCommand struct {
	ch  ssh.Channel
	env []string

	mu  sync.Mutex
	cmd *exec.Cmd
}

func (x *sshCommand) signal(sig syscall.Signal) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.cmd != nil {
		_ = syscall.Kill(-x.cmd.Process.Pid, sig)
	}
}

// run runs one command line and tells its end.
func (s *SSHServer) run(line string, x *sshCommand) {
	defer x.ch.Close()
	status, ok := 0, false
	if s.Handle != nil {
		status, ok = s.Handle(line, x.ch)
	}
	if path, found := strings.CutPrefix(line, "@crc64 "); found && !ok && !s.Plain {
		status, ok = printCRC64(x.ch, path), true
	}
	if !ok {
		ws := x.shell(line)
		if ws.Signaled() {
			_, _ = x.ch.SendRequest("exit-signal", false, ssh.Marshal(struct {
				Name      string
				Core      bool
				Text, Tag string
			}{"KILL", false, "", ""}))
			return
		}
		status = ws.ExitStatus()
	}
	_, _ = x.ch.SendRequest("exit-status", false, ssh.Marshal(struct{ N uint32 }{uint32(status)}))
}

func printCRC64(w io.Writer, path string) int {
	b, err := os.ReadFile(path)
	if err != nil {
		return 1
	}
	fmt.Fprintf(w, "%016x\n", crc64.Checksum(b, crc64.MakeTable(crc64.ECMA)))
	return 0
}

// shell runs a line by the shell in a process group of its own.
func (x *sshCommand) shell(line string) syscall.WaitStatus {
	cmd := exec.Command("/bin/sh", "-c", line)
	cmd.Env = append(os.Environ(), x.env...)
	cmd.Stdout, cmd.Stderr = x.ch, x.ch.Stderr()
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	in, err := cmd.StdinPipe()
	if err != nil {
		return 0x7f00
	}
	x.mu.Lock()
	err = cmd.Start()
	if err == nil {
		x.cmd = cmd
	}
	x.mu.Unlock()
	if err != nil {
		return 0x7f00
	}
	go func() {
		_, _ = io.Copy(in, x.ch)
		in.Close()
	}()
	_ = cmd.Wait() // the status says all
	x.mu.Lock()
	x.cmd = nil
	x.mu.Unlock()
	return cmd.ProcessState.Sys().(syscall.WaitStatus)
}
