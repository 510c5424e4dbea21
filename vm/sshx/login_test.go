package sshx_test

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"encoding/pem"
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/crypto/ssh"

	"github.com/kbisect/kbisect/vm"
	"github.com/kbisect/kbisect/vm/sshx"
	"github.com/kbisect/kbisect/vm/vmtest"
)

// userKey writes a private key, with a passphrase unless it is "", and returns its
// file and its authorized_keys line.
func userKey(t *testing.T, passphrase string) (file string, public []byte) {
	t.Helper()
	pub, key, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	block, err := ssh.MarshalPrivateKey(key, "")
	if passphrase != "" {
		block, err = ssh.MarshalPrivateKeyWithPassphrase(key, "", []byte(passphrase))
	}
	if err != nil {
		t.Fatal(err)
	}
	p, err := ssh.NewPublicKey(pub)
	if err != nil {
		t.Fatal(err)
	}
	file = filepath.Join(t.TempDir(), "key")
	if err := os.WriteFile(file, pem.EncodeToMemory(block), 0o600); err != nil {
		t.Fatal(err)
	}
	return file, ssh.MarshalAuthorizedKey(p)
}

// serve answers connections to a port: the first silent ones as a forward does to
// which nobody listens yet, the others as an sshd.
func serve(t *testing.T, authorized []byte, closed int) string {
	t.Helper()
	keys, err := sshx.NewKeys()
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var work sync.WaitGroup
	work.Go(func() {
		for n := 0; ; n++ {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			if n < closed {
				conn.Close()
				continue
			}
			work.Go(func() {
				s := &vmtest.SSHServer{HostPEM: keys.HostPEM, AuthorizedKey: authorized}
				_ = s.Serve(conn)
			})
		}
	})
	t.Cleanup(func() { l.Close(); work.Wait() })
	return l.Addr().String()
}

func TestDialUp(t *testing.T) {
	file, public := userKey(t, "")
	login, err := sshx.ReadLogin("root", file)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	c, err := sshx.DialUp(ctx, serve(t, public, 3), login, sshx.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	var out bytes.Buffer
	if err := c.Exec(ctx, vm.Command{Argv: []string{"echo", "it's", "up"}, Stdout: &out}); err != nil || out.String() != "it's up\n" {
		t.Errorf("%q, %v", &out, err)
	}
}

// A server that answers and refuses will go on to refuse.
func TestDialUpRefused(t *testing.T) {
	file, _ := userKey(t, "")
	_, other := userKey(t, "")
	login, err := sshx.ReadLogin("root", file)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	begin := time.Now()
	_, err = sshx.DialUp(ctx, serve(t, other, 0), login, sshx.Options{})
	var refused *sshx.RefusedError
	if !errors.As(err, &refused) || refused.Key != file || !strings.Contains(err.Error(), "authorized_keys") || time.Since(begin) > 10*time.Second {
		t.Errorf("after %s: %v", time.Since(begin), err)
	}
}

// Nobody there, or somebody who says nothing, is waited for until the context's end.
func TestDialUpWaits(t *testing.T) {
	file, public := userKey(t, "")
	login, err := sshx.ReadLogin("root", file)
	if err != nil {
		t.Fatal(err)
	}
	for name, addr := range map[string]string{"closes": serve(t, public, 1<<30), "nobody": "127.0.0.1:1"} {
		ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
		_, err := sshx.DialUp(ctx, addr, login, sshx.Options{})
		cancel()
		if !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestReadLogin(t *testing.T) {
	locked, public := userKey(t, "secret")
	text := filepath.Join(t.TempDir(), "key.pub")
	if err := os.WriteFile(text, public, 0o600); err != nil {
		t.Fatal(err)
	}
	for file, want := range map[string]string{locked: "it has a passphrase", text: "it is no private key", "/no/such/key": "no such file"} {
		if _, err := sshx.ReadLogin("root", file); err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), file) {
			t.Errorf("%s: %v, want %q", file, err, want)
		}
	}
}
