package sshx

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"time"

	"golang.org/x/crypto/ssh"
)

// Credentials are how a client shows who it is, and knows whom it speaks to.
type Credentials interface {
	config(user string) *ssh.ClientConfig
}

// Login is a user of a system that is not kbisect's, with a key that it lets in.
// Its host key cannot be known; the connection does not leave the host.
type Login struct {
	User string
	key  ssh.Signer
	path string
}

// ReadLogin reads the private key of a user from a file.
func ReadLogin(user, path string) (*Login, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("read key: %w", err)
	}
	key, err := ssh.ParsePrivateKey(data)
	var locked *ssh.PassphraseMissingError
	switch {
	case errors.As(err, &locked):
		return nil, fmt.Errorf("read key %s: it has a passphrase; make one without (ssh-keygen -N '' -f FILE) and add it to the image's authorized_keys", path)
	case err != nil:
		return nil, fmt.Errorf("read key %s: it is no private key: %w", path, err)
	}
	return &Login{User: user, key: key, path: path}, nil
}

// config prefers what is quick on an emulated CPU, and takes what the image's
// sshd has.
func (l *Login) config(string) *ssh.ClientConfig {
	c := &ssh.ClientConfig{User: l.User, Auth: []ssh.AuthMethod{ssh.PublicKeys(l.key)},
		HostKeyCallback: ssh.InsecureIgnoreHostKey()} //nolint:gosec // see Login
	supported := ssh.SupportedAlgorithms()
	c.KeyExchanges = preferred(supported.KeyExchanges, ssh.KeyExchangeCurve25519)
	c.Ciphers = preferred(supported.Ciphers, ssh.CipherChaCha20Poly1305)
	return c
}

// preferred puts one of a list first.
func preferred(list []string, first string) []string {
	out := []string{first}
	for _, s := range list {
		if s != first {
			out = append(out, s)
		}
	}
	return out
}

// RefusedError says that an SSH server answered and did not let the user in.
type RefusedError struct {
	User, Key string
	Err       error
}

func (e *RefusedError) Error() string {
	return fmt.Sprintf("the guest's sshd does not let %s in with %s (%v): add its public key to the authorized_keys in the image, or say another --ssh-user or --ssh-key", e.User, e.Key, e.Err)
}

func (e *RefusedError) Unwrap() error { return e.Err }

// Times of a dial to a guest that is booting.
const (
	// redial is the pause after a connection that led nowhere.
	redial = 100 * time.Millisecond
	// greeting is how long a connection may say nothing. A forward accepts one
	// long before there is somebody behind it.
	greeting = 3 * time.Second
)

// DialUp connects to a server that may not be there yet, again and again until ctx
// is done. It fails at once with a *RefusedError if the server does not let the
// user in.
func DialUp(ctx context.Context, addr string, login *Login, opts Options) (*Client, error) {
	for {
		conn, err := greeted(ctx, addr)
		if err == nil {
			var c *Client
			if c, err = Dial(ctx, conn, login, opts); err == nil {
				return c, nil
			}
			if strings.Contains(err.Error(), "unable to authenticate") { // ssh has no type for it
				return nil, &RefusedError{login.User, login.path, err}
			}
		}
		select {
		case <-ctx.Done():
			return nil, fmt.Errorf("dial guest: %w", ctx.Err())
		case <-time.After(redial):
		}
	}
}

// greeted returns a connection on which the server has begun to speak.
func greeted(ctx context.Context, addr string) (net.Conn, error) {
	d := net.Dialer{Timeout: greeting}
	conn, err := d.DialContext(ctx, "tcp", addr)
	if err != nil {
		return nil, err
	}
	stop := context.AfterFunc(ctx, func() { conn.Close() })
	defer stop()
	first := make([]byte, 1)
	_ = conn.SetReadDeadline(time.Now().Add(greeting))
	if _, err := conn.Read(first); err != nil {
		conn.Close()
		return nil, err
	}
	_ = conn.SetReadDeadline(time.Time{})
	return &resumed{Conn: conn, first: first}, nil
}

// resumed is a connection of which a byte was read already.
type resumed struct {
	net.Conn
	first []byte
}

func (r *resumed) Read(p []byte) (int, error) {
	if len(r.first) > 0 && len(p) > 0 {
		n := copy(p, r.first)
		r.first = r.first[n:]
		return n, nil
	}
	return r.Conn.Read(p)
}
