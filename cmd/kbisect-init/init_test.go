package main

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"encoding/pem"
	"errors"
	"fmt"
	"hash/crc64"
	"io"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/pkg/sftp"
	"go.uber.org/goleak"
	"golang.org/x/crypto/ssh"
)

func TestMain(m *testing.M) {
	// The reaper is for ever, as PID 1 is.
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction("github.com/kbisect/kbisect/cmd/kbisect-init.(*reaper).run"))
}

// theReaper is one for all tests: it waits for every child of the process.
var theReaper = sync.OnceValue(func() *reaper {
	r := newReaper()
	go r.run()
	return r
})

func newKey(t *testing.T) (ed25519.PrivateKey, ssh.Signer) {
	t.Helper()
	_, key, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	signer, err := ssh.NewSignerFromKey(key)
	if err != nil {
		t.Fatal(err)
	}
	return key, signer
}

// guest is a server on one end of a socket pair.
type guest struct {
	s      *server
	host   ssh.PublicKey
	client ssh.Signer
	off    chan struct{} // closed by powerOff
	sysrq  string
}

func newGuest(t *testing.T) *guest {
	t.Helper()
	dir := t.TempDir()
	hostKey, hostSigner := newKey(t)
	_, client := newKey(t)
	block, err := ssh.MarshalPrivateKey(hostKey, "")
	if err != nil {
		t.Fatal(err)
	}
	g := &guest{host: hostSigner.PublicKey(), client: client, off: make(chan struct{}), sysrq: filepath.Join(dir, "sysrq")}
	write := func(name string, b []byte) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, b, 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	config, err := serverConfig(write("host_key", pem.EncodeToMemory(block)), write("authorized_key", ssh.MarshalAuthorizedKey(client.PublicKey())))
	if err != nil {
		t.Fatal(err)
	}
	g.s = &server{config: config, reap: theReaper(), env: []string{"PATH=/usr/bin:/bin", "HOME=/root"}, dir: dir,
		powerOff: sync.OnceFunc(func() { close(g.off) }), sysrq: write("sysrq", nil)}
	return g
}

// dial connects; the server's end is served until the connection ends.
func (g *guest) dial(t *testing.T, signer ssh.Signer) (*ssh.Client, error) {
	t.Helper()
	ours, theirs := socketPair(t)
	served := make(chan struct{})
	go func() {
		defer close(served)
		_ = g.s.serve(theirs) // its error is the client's, too
		theirs.Close()
	}()
	conn, channels, requests, err := ssh.NewClientConn(ours, "guest", &ssh.ClientConfig{
		User: "root", Auth: []ssh.AuthMethod{ssh.PublicKeys(signer)}, HostKeyCallback: ssh.FixedHostKey(g.host), Timeout: 10 * time.Second})
	t.Cleanup(func() {
		ours.Close()
		select {
		case <-served:
		case <-time.After(10 * time.Second):
			t.Error("the server did not end with its connection")
		}
	})
	if err != nil {
		return nil, err
	}
	return ssh.NewClient(conn, channels, requests), nil
}

func (g *guest) mustDial(t *testing.T) *ssh.Client {
	t.Helper()
	c, err := g.dial(t, g.client)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func socketPair(t *testing.T) (a, b net.Conn) {
	t.Helper()
	fds, err := syscall.Socketpair(syscall.AF_UNIX, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	conns := make([]net.Conn, 2)
	for i, fd := range fds {
		f := os.NewFile(uintptr(fd), "pair")
		if conns[i], err = net.FileConn(f); err != nil {
			t.Fatal(err)
		}
		f.Close()
	}
	return conns[0], conns[1]
}

// output runs a command and returns what it said.
func output(t *testing.T, c *ssh.Client, command string, stdin string) (out, errOut string, err error) {
	t.Helper()
	s, err := c.NewSession()
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	var o, e bytes.Buffer
	s.Stdout, s.Stderr, s.Stdin = &o, &e, strings.NewReader(stdin)
	err = s.Run(command)
	return o.String(), e.String(), err
}

func TestCommands(t *testing.T) {
	g := newGuest(t)
	c := g.mustDial(t)
	for name, x := range map[string]struct {
		command, stdin string
		out, errOut    string
		status         int
		signal         string
	}{
		"output":       {command: "echo hello", out: "hello\n"},
		"both streams": {command: "echo a; echo b >&2", out: "a\n", errOut: "b\n"},
		"status":       {command: "exit 42", status: 42},
		"signal":       {command: "kill -9 $$", signal: "KILL"},
		"unnamed":      {command: "kill -16 $$", status: 128 + 16},
		"stdin":        {command: "cat", stdin: "a b\n", out: "a b\n"},
		"stdin unread": {command: "true", stdin: "nobody reads this"},
		"environment":  {command: "echo $HOME", out: "/root\n"},
		"not there":    {command: "/nonexistent/thing", status: 127, errOut: "not found"},
		"much":         {command: "head -c 3000000 /dev/zero | wc -c", out: "3000000\n"},
		"built in":     {command: "@nonsense", status: 127, errOut: "not a command of init"},
		"crc64 of dir": {command: "@crc64 /", status: 1, errOut: "is a directory"},
		"sysrq of two": {command: "@sysrq ab", status: 1, errOut: "one letter"},
	} {
		t.Run(name, func(t *testing.T) {
			out, errOut, err := output(t, c, x.command, x.stdin)
			if out != x.out || !strings.Contains(errOut, x.errOut) {
				t.Errorf("said %q, %q; want %q, %q", out, errOut, x.out, x.errOut)
			}
			var ee *ssh.ExitError
			switch {
			case err == nil && x.status == 0 && x.signal == "":
			case errors.As(err, &ee) && ee.Signal() == x.signal && (x.signal != "" || ee.ExitStatus() == x.status):
			default:
				t.Errorf("ended with %v, want status %d, signal %q", err, x.status, x.signal)
			}
		})
	}
}

func TestLargeOutputIsWhole(t *testing.T) {
	g := newGuest(t)
	out, _, err := output(t, g.mustDial(t), "head -c 5000000 /dev/zero", "")
	if err != nil || len(out) != 5000000 {
		t.Errorf("%d bytes, %v", len(out), err)
	}
}

func TestManyAtOnce(t *testing.T) {
	g := newGuest(t)
	c := g.mustDial(t)
	var wg sync.WaitGroup
	for i := range 20 {
		wg.Go(func() {
			s, err := c.NewSession()
			if err != nil {
				t.Error(err)
				return
			}
			defer s.Close()
			out, err := s.Output(fmt.Sprintf("echo %d; exit 0", i))
			if err != nil || string(out) != fmt.Sprintf("%d\n", i) {
				t.Errorf("%d: %q, %v", i, out, err)
			}
		})
	}
	wg.Wait()
}

func TestEnvAndSignal(t *testing.T) {
	g := newGuest(t)
	s, err := g.mustDial(t).NewSession()
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	for name, value := range map[string]string{"KB_A": "x y", "HOME": "/tmp"} {
		if err := s.Setenv(name, value); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Setenv("BAD=NAME", "x"); err == nil {
		t.Error("a variable with = in its name was taken")
	}
	out, err := s.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Start(`echo "$KB_A $HOME"; trap 'echo got; exit 3' USR1; while :; do sleep 0.05; done`); err != nil {
		t.Fatal(err)
	}
	line := make([]byte, len("x y /tmp\n"))
	if _, err := io.ReadFull(out, line); err != nil || string(line) != "x y /tmp\n" {
		t.Fatalf("%q, %v", line, err)
	}
	time.Sleep(50 * time.Millisecond) // the trap comes after the echo
	if err := s.Signal("USR1"); err != nil {
		t.Fatal(err)
	}
	rest, err := io.ReadAll(out)
	if err != nil || !strings.Contains(string(rest), "got") {
		t.Errorf("%q, %v", rest, err)
	}
	var ee *ssh.ExitError
	if err := s.Wait(); !errors.As(err, &ee) || ee.ExitStatus() != 3 {
		t.Errorf("ended with %v, want status 3", err)
	}
}

func TestTerminal(t *testing.T) {
	g := newGuest(t)
	s, err := g.mustDial(t).NewSession()
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if err := s.RequestPty("vt100", 33, 77, ssh.TerminalModes{}); err != nil {
		t.Skipf("no terminals here: %v", err)
	}
	out, err := s.Output("tty; echo $TERM; stty size")
	text := string(out)
	if err != nil || !strings.Contains(text, "/dev/pts/") || !strings.Contains(text, "vt100") || !strings.Contains(text, "33 77") {
		t.Errorf("%q, %v", text, err)
	}
}

// TestBackgroundProcess: one that keeps the output open does not keep the
// session open for long.
func TestBackgroundProcess(t *testing.T) {
	g := newGuest(t)
	begin := time.Now()
	out, _, err := output(t, g.mustDial(t), "sleep 30 & echo $!", "")
	if err != nil || time.Since(begin) > 15*time.Second {
		t.Errorf("%v after %v", err, time.Since(begin))
	}
	var pid int
	if _, err := fmt.Sscan(out, &pid); err != nil {
		t.Fatal(err)
	}
	_ = syscall.Kill(pid, syscall.SIGKILL)
}

// TestHangUpEndsCommands: nothing of a lost connection goes on, not even what
// ignores SIGHUP.
func TestHangUpEndsCommands(t *testing.T) {
	g := newGuest(t)
	c := g.mustDial(t)
	s, err := c.NewSession()
	if err != nil {
		t.Fatal(err)
	}
	out, err := s.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Start("trap '' HUP; echo $$; while :; do sleep 0.1; done"); err != nil {
		t.Fatal(err)
	}
	var pid int
	if _, err := fmt.Fscan(out, &pid); err != nil {
		t.Fatal(err)
	}
	c.Close()
	for deadline := time.Now().Add(10 * time.Second); syscall.Kill(pid, 0) == nil; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("the command outlived its connection")
		}
	}
}

func TestOnlyTheRunsKey(t *testing.T) {
	g := newGuest(t)
	_, other := newKey(t)
	if _, err := g.dial(t, other); err == nil {
		t.Error("another key was let in")
	}
}

func TestOnlySessions(t *testing.T) {
	g := newGuest(t)
	if c, err := g.mustDial(t).Dial("tcp", "127.0.0.1:1"); err == nil {
		c.Close()
		t.Error("a connection was forwarded")
	}
}

func TestSFTPAndCRC64(t *testing.T) {
	g := newGuest(t)
	c := g.mustDial(t)
	f, err := sftp.NewClient(c, sftp.UseConcurrentWrites(true))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	content := make([]byte, 3<<20)
	if _, err := rand.Read(content); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "with a space")
	file, err := f.Create(path + ".tmp")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := file.ReadFrom(bytes.NewReader(content)); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(file.Chmod(0o755), file.Close(), f.PosixRename(path+".tmp", path)); err != nil {
		t.Fatal(err)
	}
	out, _, err := output(t, c, "@crc64 "+path, "")
	if want := fmt.Sprintf("%016x\n", crc64.Checksum(content, crc64.MakeTable(crc64.ECMA))); err != nil || out != want {
		t.Errorf("got %q, %v, want %q", out, err, want)
	}
	if fi, err := os.Stat(path); err != nil || fi.Mode().Perm() != 0o755 {
		t.Errorf("%v, %v", fi, err)
	}
}

func TestSysRqAndPowerOff(t *testing.T) {
	g := newGuest(t)
	c := g.mustDial(t)
	if _, errOut, err := output(t, c, "@sysrq w", ""); err != nil {
		t.Fatal(errOut, err)
	}
	if b, err := os.ReadFile(g.sysrq); err != nil || string(b) != "w" {
		t.Errorf("sysrq got %q, %v", b, err)
	}
	if _, _, err := output(t, c, "@poweroff", ""); err != nil {
		t.Errorf("poweroff: %v", err)
	}
	select {
	case <-g.off:
	case <-time.After(5 * time.Second):
		t.Error("the machine is still on")
	}
}

func TestReaperKeepsStatuses(t *testing.T) {
	r := theReaper()
	var wg sync.WaitGroup
	for i := range 30 {
		wg.Go(func() {
			c, err := r.start("/bin/sh", []string{"sh", "-c", fmt.Sprintf("(true &) ; exit %d", i)},
				&syscall.ProcAttr{Env: os.Environ(), Sys: &syscall.SysProcAttr{Setsid: true}})
			if err != nil {
				t.Error(err)
				return
			}
			<-c.done
			if c.status.ExitStatus() != i {
				t.Errorf("status %d, want %d", c.status.ExitStatus(), i)
			}
			c.signal(syscall.SIGKILL) // of one that is gone: nothing
		})
	}
	wg.Wait()
}

func TestServerConfigErrors(t *testing.T) {
	dir := t.TempDir()
	bad := filepath.Join(dir, "bad")
	if err := os.WriteFile(bad, []byte("no key"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{bad, filepath.Join(dir, "missing")} {
		if _, err := serverConfig(path, path); err == nil || !strings.Contains(err.Error(), path) {
			t.Errorf("%s: got %v, want an error that names it", path, err)
		}
	}
}

func TestSplitWords(t *testing.T) {
	for line, want := range map[string][]string{
		"a":                        {"a"},
		"  a \t b\n":               {"a", "b"},
		`'a b' "c d" e\ f`:         {"a b", "c d", "e f"},
		`a'b'"c"\d`:                {"abcd"},
		`'it'\''s'`:                {"it's"},
		`"" ''`:                    {"", ""},
		`"\$x \" \\ \a"`:           {`$x " \ \a`},
		"'$x `y` | *'":             {"$x `y` | *"},
		"a\\\nb":                   {"ab"},
		"x=1 --a=b,c=d a#b a~ -n1": {"x=1", "--a=b,c=d", "a#b", "a~", "-n1"},
	} {
		if got, err := splitWords(line); err != nil || !slices.Equal(got, want) {
			t.Errorf("%q: got %q, %v, want %q", line, got, err, want)
		}
	}
	for line, want := range map[string]error{
		"": errNoWords, "  ": errNoWords, "'a": errUnclosed, `"a`: errUnclosed, `a\`: errUnclosed, `"a\`: errUnclosed,
		"a | b": errShell, "$x": errShell, `"$x"`: errShell, "a; b": errShell, "*.c": errShell, "~": errShell, "#x": errShell,
	} {
		if got, err := splitWords(line); !errors.Is(err, want) {
			t.Errorf("%q: got %q, %v, want %v", line, got, err, want)
		}
	}
}

// FuzzSplitWords: words quoted as a shell wants them come back as they were.
func FuzzSplitWords(f *testing.F) {
	f.Add("a b", "c'd")
	f.Add("", "\\\"$")
	f.Fuzz(func(t *testing.T, a, b string) {
		quote := func(s string) string { return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'" }
		got, err := splitWords(quote(a) + " " + quote(b))
		if err != nil || !slices.Equal(got, []string{a, b}) {
			t.Fatalf("%q, %v, want %q %q", got, err, a, b)
		}
		_, _ = splitWords(a)
	})
}

func TestMergeEnv(t *testing.T) {
	got := mergeEnv([]string{"A=1", "B=2"}, []string{"B=3", "C=4", "C=5"})
	if want := []string{"A=1", "B=3", "C=5"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

// fakeDevice answers reads from a list, as a port does: nothing yet, hung up, data.
type fakeDevice struct {
	reads  []any // string, error
	writes bytes.Buffer
	short  bool
	closed bool
}

func (d *fakeDevice) Read(b []byte) (int, error) {
	if len(d.reads) == 0 {
		return 0, errors.New("end of test")
	}
	next := d.reads[0]
	d.reads = d.reads[1:]
	if err, ok := next.(error); ok {
		return 0, err
	}
	return copy(b, next.(string)), nil
}

func (d *fakeDevice) Write(b []byte) (int, error) {
	if d.short = !d.short; d.short && len(b) > 1 {
		n, _ := d.writes.Write(b[:1])
		return n, os.ErrDeadlineExceeded
	}
	return d.writes.Write(b)
}
func (d *fakeDevice) Close() error                     { d.closed = true; return nil }
func (d *fakeDevice) SetReadDeadline(time.Time) error  { return nil }
func (d *fakeDevice) SetWriteDeadline(time.Time) error { return nil }

func TestAwaitClient(t *testing.T) {
	for name, reads := range map[string][]any{
		"at once":               {"SSH-2.0-Go\r\n"},
		"host comes later":      {io.EOF, io.EOF, os.ErrDeadlineExceeded, "SSH-2.0-Go\r\n"},
		"in parts":              {"SS", "H-2.", "0-", "Go\r\n"},
		"behind a broken one":   {"\x00\x13garbage", "SSH-1", "\xffSSH-2.0-Go\r\n"},
		"a half then a new one": {"SSH-2", io.EOF, "SSH-2.0-Go\r\n"},
	} {
		t.Run(name, func(t *testing.T) {
			p := &portConn{dev: &fakeDevice{reads: reads}}
			if err := p.awaitClient(t.Context(), nil); err != nil {
				t.Fatal(err)
			}
			got, err := io.ReadAll(io.LimitReader(p, int64(len("SSH-2.0-"))))
			if err != nil || string(got) != "SSH-2.0-" {
				t.Errorf("the server reads %q, %v", got, err)
			}
		})
	}
	boom := errors.New("boom")
	if err := (&portConn{dev: &fakeDevice{reads: []any{boom}}}).awaitClient(t.Context(), nil); !errors.Is(err, boom) {
		t.Errorf("got %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := (&portConn{dev: &fakeDevice{}}).awaitClient(ctx, nil); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
}

// TestAnotherClient: a host that comes back at once ends the old connection, and
// its hello is not lost, however the reads cut it.
func TestAnotherClient(t *testing.T) {
	for name, reads := range map[string][]any{
		"alone":    {"\x01\x02", "SSH-2.0-New\r\n"},
		"in a row": {"\x01\x02SSH-2.0-New\r\n"},
		"cut":      {"\x01\x02SS", "H-2", ".0-", "New\r\n"},
	} {
		t.Run(name, func(t *testing.T) {
			old := &portConn{dev: &fakeDevice{reads: append([]any{"SSH-2.0-Old\r\n"}, reads...)}}
			if err := old.awaitClient(t.Context(), nil); err != nil {
				t.Fatal(err)
			}
			if got, err := io.ReadAll(old); err != nil || !strings.HasPrefix(string(got), "SSH-2.0-Old\r\n") {
				t.Errorf("the old connection read %q, %v", got, err)
			}
			// What the device still has is read by the next connection.
			next := &portConn{dev: old.dev}
			if err := next.awaitClient(t.Context(), old.takeNext()); err != nil {
				t.Fatal(err)
			}
			got := make([]byte, len("SSH-2.0-"))
			if _, err := io.ReadFull(next, got); err != nil || string(got) != "SSH-2.0-" {
				t.Errorf("the next connection read %q, %v", got, err)
			}
		})
	}
}

func TestPortTriesAgain(t *testing.T) {
	d := &fakeDevice{reads: []any{os.ErrDeadlineExceeded, os.ErrDeadlineExceeded, "x"}}
	p := &portConn{dev: d}
	b := make([]byte, 4)
	if n, err := p.Read(b); n != 1 || err != nil {
		t.Errorf("read %d, %v", n, err)
	}
	if n, err := p.Write([]byte("hello")); n != 5 || err != nil || d.writes.String() != "hello" {
		t.Errorf("wrote %d, %v: %q", n, err, d.writes.String())
	}
}

func TestFindPort(t *testing.T) {
	class := t.TempDir()
	add := func(dev, name string) {
		if err := os.MkdirAll(filepath.Join(class, dev), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(class, dev, "name"), []byte(name+"\n"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	add("vport1p1", "org.qemu.guest_agent.0")
	if _, err := findPort(t.Context(), class, portName, 20*time.Millisecond); err == nil ||
		!strings.Contains(err.Error(), "guest_agent") || !strings.Contains(err.Error(), "CONFIG_VIRTIO_CONSOLE") {
		t.Errorf("got %v, want what is there and what is needed", err)
	}
	timer := time.AfterFunc(20*time.Millisecond, func() { add("vport1p2", portName) })
	defer timer.Stop()
	if dev, err := findPort(t.Context(), class, portName, 10*time.Second); err != nil || dev != "/dev/vport1p2" {
		t.Errorf("got %q, %v", dev, err)
	}
}
