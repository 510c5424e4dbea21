package sshx_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
	"golang.org/x/crypto/ssh"

	"github.com/kbisect/kbisect/vm"
	"github.com/kbisect/kbisect/vm/sshx"
	"github.com/kbisect/kbisect/vm/vmtest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// pair returns the two ends of a connection, closed at the test's end.
func pair(t testing.TB) (client, server net.Conn) {
	t.Helper()
	l, err := net.Listen("unix", filepath.Join(t.TempDir(), "s"))
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	client, err = net.Dial("unix", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	server, err = l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { client.Close(); server.Close() })
	return client, server
}

// dial returns a client of a stand-in server, whose fields change may set.
func dial(t testing.TB, opts sshx.Options, change func(*vmtest.SSHServer)) *sshx.Client {
	t.Helper()
	keys, err := sshx.NewKeys()
	if err != nil {
		t.Fatal(err)
	}
	client, server := pair(t)
	s := &vmtest.SSHServer{HostPEM: keys.HostPEM, AuthorizedKey: keys.AuthorizedKey}
	if change != nil {
		change(s)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = s.Serve(server)
	}()
	c, err := sshx.Dial(context.Background(), client, keys, opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
		<-done
	})
	return c
}

func sh(script string) []string { return []string{"sh", "-c", script} }

func TestExec(t *testing.T) {
	c := dial(t, sshx.Options{}, nil)
	for _, tt := range []struct {
		name           string
		cmd            vm.Command
		in             string
		stdout, stderr string
		want           error
	}{
		{name: "quoting", cmd: vm.Command{Argv: []string{"printf", "%s|", "a b", "it's", "$HOME", ""}}, stdout: "a b|it's|$HOME||"},
		{name: "both outputs", cmd: vm.Command{Argv: sh("echo out; echo err >&2")}, stdout: "out\n", stderr: "err\n"},
		{name: "stdin", cmd: vm.Command{Argv: []string{"cat"}}, in: "through", stdout: "through"},
		{name: "env", cmd: vm.Command{Argv: sh(`printf "$KB_A$KB_B"`), Env: []string{"KB_A=a=b", "KB_B="}}, stdout: "a=b"},
		{name: "shell", cmd: vm.Command{}, in: "echo typed\n", stdout: "shell\ntyped\n"},
		{name: "status", cmd: vm.Command{Argv: sh("exit 7")}, want: &vm.ExitError{Status: 7}},
		{name: "signal", cmd: vm.Command{Argv: sh("kill -KILL $PPID; :")}, want: &vm.ExitError{Status: 137, Signal: "KILL"}},
		{name: "much", cmd: vm.Command{Argv: sh("head -c 3000000 /dev/zero | tr '\\0' x")}, stdout: strings.Repeat("x", 3_000_000)},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var stdout, stderr bytes.Buffer
			tt.cmd.Stdout, tt.cmd.Stderr = &stdout, &stderr
			if tt.in != "" {
				tt.cmd.Stdin = strings.NewReader(tt.in)
			}
			err := c.Exec(t.Context(), tt.cmd)
			if tt.want == nil && err != nil || tt.want != nil && (err == nil || err.Error() != tt.want.Error()) {
				t.Errorf("err = %v, want %v", err, tt.want)
			}
			if stdout.String() != tt.stdout || stderr.String() != tt.stderr {
				t.Errorf("stdout %.99q, stderr %.99q", stdout.String(), stderr.String())
			}
		})
	}
	if err := c.Exec(t.Context(), vm.Command{Argv: []string{"true"}, Env: []string{"=x"}}); err == nil {
		t.Error("bad variable: no error")
	}
}

func TestExecCancel(t *testing.T) {
	c := dial(t, sshx.Options{Grace: 10 * time.Second}, nil)
	ctx, cancel := context.WithCancel(context.Background())
	r, w := io.Pipe()
	go func() {
		_, _ = r.Read(make([]byte, 1))
		cancel()
		_, _ = io.Copy(io.Discard, r)
	}()
	begin := time.Now()
	err := c.Exec(ctx, vm.Command{Argv: sh("echo up; sleep 600"), Stdout: w})
	w.Close()
	if !errors.Is(err, context.Canceled) || time.Since(begin) > 8*time.Second {
		t.Errorf("err = %v after %s", err, time.Since(begin))
	}
	if err := c.Exec(t.Context(), vm.Command{Argv: []string{"true"}}); err != nil {
		t.Errorf("the next command: %v", err)
	}
}

// TestExecStuck: a server that does not even end a killed command costs the
// connection, not the caller.
func TestExecStuck(t *testing.T) {
	release := make(chan struct{})
	defer close(release)
	c := dial(t, sshx.Options{Grace: 50 * time.Millisecond}, func(s *vmtest.SSHServer) {
		s.Handle = func(string, ssh.Channel) (int, bool) { <-release; return 0, true }
	})
	ctx, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond)
	defer cancel()
	if err := c.Exec(ctx, vm.Command{Argv: []string{"x"}}); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("err = %v", err)
	}
}

// TestBadWriter: a caller that refuses output must not leave the guest blocked.
func TestBadWriter(t *testing.T) {
	c := dial(t, sshx.Options{}, nil)
	boom := errors.New("boom")
	err := c.Exec(t.Context(), vm.Command{Argv: sh("while echo flood; do :; done"), Stdout: badWriter{boom}})
	if !errors.Is(err, boom) {
		t.Errorf("err = %v, want boom", err)
	}
}

type badWriter struct{ err error }

func (b badWriter) Write([]byte) (int, error) { return 0, b.err }

func TestTTY(t *testing.T) {
	c := dial(t, sshx.Options{}, nil)
	resize := make(chan [2]int)
	r, w := io.Pipe()
	result := make(chan error, 1)
	go func() {
		result <- c.Exec(context.Background(), vm.Command{
			Argv: []string{"cat"}, Stdin: r, Stdout: w,
			TTY: &vm.TTY{Term: "xterm", Rows: 25, Cols: 80, Resize: resize},
		})
		w.Close()
	}()
	go func() { resize <- [2]int{30, 100} }()
	line := make([]byte, len("resized\n"))
	if _, err := io.ReadFull(r, line); err != nil || string(line) != "resized\n" {
		t.Errorf("got %q, %v", line, err)
	}
	r.Close()
	<-result
}

func TestPut(t *testing.T) {
	for _, plain := range []bool{false, true} {
		c := dial(t, sshx.Options{}, func(s *vmtest.SSHServer) { s.Plain = plain })
		dir := t.TempDir()
		for _, size := range []int{0, 1, 1<<20 + 7} {
			name := filepath.Join(dir, "agent")
			body := bytes.Repeat([]byte("7"), size)
			if err := c.Put(t.Context(), bytes.NewReader(body), int64(size), name, 0o750); err != nil {
				t.Fatalf("plain %v, %d bytes: %v", plain, size, err)
			}
			got, err := os.ReadFile(name)
			if err != nil || !bytes.Equal(got, body) {
				t.Errorf("%d bytes arrived, want %d, %v", len(got), size, err)
			}
			if fi, _ := os.Stat(name); fi.Mode().Perm() != 0o750 {
				t.Errorf("mode %v", fi.Mode())
			}
		}
		if names, _ := filepath.Glob(filepath.Join(dir, ".*")); len(names) > 0 {
			t.Errorf("left behind: %q", names)
		}
	}
}

func TestPutErrors(t *testing.T) {
	dir := t.TempDir()
	kept := filepath.Join(dir, "kept")
	if err := os.WriteFile(kept, []byte("old"), 0o600); err != nil {
		t.Fatal(err)
	}
	c := dial(t, sshx.Options{}, func(s *vmtest.SSHServer) {
		s.Handle = func(line string, ch ssh.Channel) (int, bool) {
			if strings.Contains(line, "corrupt") {
				io.WriteString(ch, "0000\n")
				return 0, true
			}
			return 0, false
		}
	})
	boom := errors.New("boom")
	for _, tt := range []struct {
		name string
		r    io.Reader
		size int64
		path string
		want string
	}{
		{"too short", strings.NewReader("ab"), 3, kept, "source has 2 bytes"},
		{"too long", strings.NewReader("abcd"), 3, kept, "source has 4 bytes"},
		{"reader fails", io.MultiReader(strings.NewReader("ab"), badReader{boom}), 3, kept, "boom"},
		{"no folder", strings.NewReader("ab"), 2, filepath.Join(dir, "no", "x"), "not exist"},
		{"corrupt", strings.NewReader("ab"), 2, filepath.Join(dir, "corrupt"), "differs"},
	} {
		err := c.Put(t.Context(), tt.r, tt.size, tt.path, 0o600)
		if err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: %v, want %q", tt.name, err, tt.want)
		}
	}
	if b, _ := os.ReadFile(kept); string(b) != "old" {
		t.Errorf("the old file became %q", b)
	}
	if names, _ := os.ReadDir(dir); len(names) != 1 {
		t.Errorf("left behind: %v", names)
	}
	if err := c.Put(t.Context(), strings.NewReader("new"), 3, kept, 0o600); err != nil {
		t.Errorf("after errors: %v", err)
	}
}

type badReader struct{ err error }

func (b badReader) Read([]byte) (int, error) { return 0, b.err }

func TestDialErrors(t *testing.T) {
	keys, err := sshx.NewKeys()
	if err != nil {
		t.Fatal(err)
	}
	other, err := sshx.NewKeys()
	if err != nil {
		t.Fatal(err)
	}
	for name, s := range map[string]*vmtest.SSHServer{
		"wrong host key":   {HostPEM: other.HostPEM, AuthorizedKey: keys.AuthorizedKey},
		"wrong client key": {HostPEM: keys.HostPEM, AuthorizedKey: other.AuthorizedKey},
	} {
		client, server := pair(t)
		done := make(chan struct{})
		go func() { defer close(done); _ = s.Serve(server); server.Close() }()
		if c, err := sshx.Dial(t.Context(), client, keys, sshx.Options{}); err == nil {
			c.Close()
			t.Errorf("%s: no error", name)
		}
		<-done
	}

	client, server := pair(t) // nobody answers
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Millisecond)
	defer cancel()
	if _, err := sshx.Dial(ctx, client, keys, sshx.Options{}); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("silent: %v", err)
	}
	_, _ = io.Copy(io.Discard, server)
	if _, err := server.Read(make([]byte, 1)); err != io.EOF {
		t.Errorf("the connection was not closed: %v", err)
	}
}

// mute forwards to a connection until it is told to swallow.
type mute struct {
	net.Conn
	off chan struct{}
}

func (m *mute) Write(b []byte) (int, error) {
	select {
	case <-m.off:
		return len(b), nil
	default:
		return m.Conn.Write(b)
	}
}

func TestKeepalive(t *testing.T) {
	keys, err := sshx.NewKeys()
	if err != nil {
		t.Fatal(err)
	}
	client, server := pair(t)
	m := &mute{Conn: server, off: make(chan struct{})}
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = (&vmtest.SSHServer{HostPEM: keys.HostPEM, AuthorizedKey: keys.AuthorizedKey}).Serve(m)
	}()
	c, err := sshx.Dial(t.Context(), client, keys, sshx.Options{Keepalive: 5 * time.Millisecond, Patience: 500 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	time.Sleep(50 * time.Millisecond)
	if c.Err() != nil {
		t.Fatalf("while it answers: %v", c.Err())
	}
	close(m.off)
	err = c.Exec(t.Context(), vm.Command{Argv: []string{"true"}})
	if !errors.Is(err, sshx.ErrNoAnswer) || !errors.Is(c.Err(), sshx.ErrNoAnswer) {
		t.Errorf("err = %v, Err = %v", err, c.Err())
	}
	<-c.Done()
	<-done
}

func TestLost(t *testing.T) {
	keys, err := sshx.NewKeys()
	if err != nil {
		t.Fatal(err)
	}
	client, server := pair(t)
	done := make(chan struct{})
	s := &vmtest.SSHServer{HostPEM: keys.HostPEM, AuthorizedKey: keys.AuthorizedKey}
	s.Handle = func(string, ssh.Channel) (int, bool) { server.Close(); return 0, true }
	go func() { defer close(done); _ = s.Serve(server) }()
	c, err := sshx.Dial(t.Context(), client, keys, sshx.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Exec(t.Context(), vm.Command{Argv: []string{"x"}}); !errors.Is(err, sshx.ErrLost) {
		t.Errorf("Exec: %v, want ErrLost", err)
	}
	if err := c.Put(t.Context(), strings.NewReader("x"), 1, "/tmp/x", 0o600); !errors.Is(err, sshx.ErrLost) {
		t.Errorf("Put: %v, want ErrLost", err)
	}
	<-c.Done()
	c.Close()
	c.Close()
	<-done
}

func TestClosed(t *testing.T) {
	c := dial(t, sshx.Options{}, nil)
	c.Close()
	if err := c.Exec(t.Context(), vm.Command{Argv: []string{"x"}}); !errors.Is(err, sshx.ErrClosed) {
		t.Errorf("Exec: %v, want ErrClosed", err)
	}
}

// BenchmarkExec is one short command over a warm connection.
func BenchmarkExec(b *testing.B) {
	c := dial(b, sshx.Options{}, func(s *vmtest.SSHServer) {
		s.Handle = func(string, ssh.Channel) (int, bool) { return 0, true }
	})
	for b.Loop() {
		if err := c.Exec(context.Background(), vm.Command{Argv: []string{"x"}}); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkPut is 2 MiB, about the size of the agent.
func BenchmarkPut(b *testing.B) {
	c := dial(b, sshx.Options{}, nil)
	body := bytes.Repeat([]byte("7"), 2<<20)
	name := filepath.Join(b.TempDir(), "agent")
	b.SetBytes(int64(len(body)))
	for b.Loop() {
		if err := c.Put(context.Background(), bytes.NewReader(body), int64(len(body)), name, 0o700); err != nil {
			b.Fatal(err)
		}
	}
}
