// Package sshx is an SSH client for one guest over any connection. x/crypto/ssh
// and pkg/sftp wait without limit once a connection is up (golang/go#26643,
// golang/go#19338); here every call ends with its context, and a guest that
// stops answering is noticed.
//
//	keys, err := sshx.NewKeys() // keys.HostPEM and keys.AuthorizedKey go to the guest
//	c, err := sshx.Dial(ctx, conn, keys, sshx.Options{})
//	defer c.Close()
//	err = c.Exec(ctx, vm.Command{Argv: []string{"uname", "-r"}, Stdout: os.Stdout})
package sshx

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/pkg/sftp"
	"golang.org/x/crypto/ssh"
)

// Defaults of Options.
const (
	DefaultKeepalive = 10 * time.Second
	DefaultPatience  = 60 * time.Second
	DefaultGrace     = 3 * time.Second
)

// endWait is how long a failed call waits to hear that the connection is over.
const endWait = 200 * time.Millisecond

var (
	// ErrLost says that the connection ended under a call: the guest died, or
	// its SSH server.
	ErrLost = errors.New("ssh connection lost")
	// ErrNoAnswer says that the guest left a keepalive unanswered for
	// Options.Patience. The connection is closed then.
	ErrNoAnswer = errors.New("guest does not answer")
	// ErrClosed says that Close was called.
	ErrClosed = errors.New("ssh connection closed")
)

// Options of a Client. A zero field means its default.
type Options struct {
	User      string        // default "root", or that of the Login
	Keepalive time.Duration // between two keepalives
	Patience  time.Duration // for the answer to one; long, since a guest under a workload may be slow
	Grace     time.Duration // for a cancelled command to end before the connection is closed
}

// Client is one connection. It owns the net.Conn. Its methods may be called from
// several goroutines.
type Client struct {
	opts Options
	ssh  *ssh.Client
	conn net.Conn
	done chan struct{} // closed when the connection is over; Err is set then
	work sync.WaitGroup

	mu  sync.Mutex
	err error // the first reason

	files sftpState
}

// sftpState is the one SFTP session, opened by the first Put and kept: it costs
// three round trips.
type sftpState struct {
	mu     sync.Mutex // held by the one Put at a time
	client atomic.Pointer[sftp.Client]
}

// drop closes the session, if there is one, and forgets it.
func (s *sftpState) drop() {
	if c := s.client.Swap(nil); c != nil {
		_ = c.Close() // it is given up: nothing to learn
	}
}

// Dial does the handshake over conn, which it owns from now on, also after an
// error. It blocks until the guest answers or ctx is done: the guest need not
// have booted yet.
func Dial(ctx context.Context, conn net.Conn, keys Credentials, opts Options) (*Client, error) {
	if opts.User == "" {
		opts.User = "root"
	}
	opts.Keepalive = positive(opts.Keepalive, DefaultKeepalive)
	opts.Patience = positive(opts.Patience, DefaultPatience)
	opts.Grace = positive(opts.Grace, DefaultGrace)

	stop := context.AfterFunc(ctx, func() { conn.Close() })
	sc, channels, requests, err := ssh.NewClientConn(conn, "guest", keys.config(opts.User))
	if !stop() && err == nil { // closed just now
		err = ctx.Err()
		sc.Close()
	}
	if err != nil {
		conn.Close()
		if ctx.Err() != nil {
			err = ctx.Err()
		}
		return nil, fmt.Errorf("dial guest: %w", err)
	}
	c := &Client{opts: opts, ssh: ssh.NewClient(sc, channels, requests), conn: conn, done: make(chan struct{})}
	c.work.Go(c.watch)
	c.work.Go(c.keepalive)
	return c, nil
}

func positive(d, def time.Duration) time.Duration {
	if d <= 0 {
		return def
	}
	return d
}

// watch notices the end of the connection.
func (c *Client) watch() {
	err := c.ssh.Wait()
	if err == nil {
		err = errors.New("closed by the guest")
	}
	c.fail(fmt.Errorf("%w: %w", ErrLost, err))
	close(c.done)
}

// keepalive asks the guest now and then whether it is there.
func (c *Client) keepalive() {
	tick := time.NewTicker(c.opts.Keepalive)
	defer tick.Stop()
	for {
		select {
		case <-c.done:
			return
		case <-tick.C:
		}
		// Any answer will do, also the refusal that OpenSSH gives.
		limit := time.AfterFunc(c.opts.Patience, func() {
			c.fail(fmt.Errorf("%w: for %s", ErrNoAnswer, c.opts.Patience))
		})
		_, _, err := c.ssh.SendRequest("keepalive@kbisect", true, nil)
		limit.Stop()
		if err != nil {
			return // watch knows why
		}
	}
}

// fail records the first reason and closes the connection, which ends all that
// waits on it.
func (c *Client) fail(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err == nil {
		c.err = err
	}
	c.conn.Close()
}

// Done is closed when the connection is over; Err then says why.
func (c *Client) Done() <-chan struct{} { return c.done }

// Err returns why the connection is over: an error that is ErrLost, ErrNoAnswer
// or ErrClosed. It is nil while it is not.
func (c *Client) Err() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.err
}

// reason returns Err if the connection is over, else err. A call fails a moment
// before the connection's end is known, with an error that does not say so.
func (c *Client) reason(err error) error {
	if err == nil {
		return nil
	}
	if errors.Is(err, io.EOF) || errors.Is(err, net.ErrClosed) || errors.Is(err, ErrLost) || errors.Is(err, sftp.ErrSSHFxConnectionLost) {
		t := time.NewTimer(endWait)
		defer t.Stop()
		select {
		case <-c.done:
		case <-t.C:
		}
	}
	if e := c.Err(); e != nil {
		return e
	}
	return err
}

// Close ends the connection at once and returns when no goroutine of it is
// left, except those that read a Command's Stdin. It is idempotent.
func (c *Client) Close() error {
	c.fail(ErrClosed)
	c.work.Wait()
	c.files.mu.Lock()
	defer c.files.mu.Unlock()
	c.files.drop()
	return nil
}

// do runs f, which waits on the connection, until ctx is done. Then abort is
// called, and if f has not returned after the grace, the connection is closed.
// It returns after f.
func (c *Client) do(ctx context.Context, f func() error, abort func()) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	done := make(chan error, 1)
	go func() { done <- f() }()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
	}
	limit := time.AfterFunc(c.opts.Grace, func() {
		c.fail(fmt.Errorf("%w: cancelled command did not end within %s", ErrNoAnswer, c.opts.Grace))
	})
	defer limit.Stop()
	abort()
	<-done
	return ctx.Err()
}
