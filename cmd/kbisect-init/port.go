package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"
)

// findPort waits until a virtio-serial port of that name exists and returns its
// device node. The ports are announced over a control queue after the driver's
// probe, so they may come some milliseconds after init.
func findPort(ctx context.Context, class, name string, limit time.Duration) (string, error) {
	deadline := time.Now().Add(limit)
	for wait := time.Millisecond; ; wait = min(2*wait, 20*time.Millisecond) {
		dev, seen := lookPort(class, name)
		if dev != "" {
			return dev, nil
		}
		if time.Now().After(deadline) {
			return "", fmt.Errorf("find virtio-serial port %q: not there after %s (ports seen: %q; "+
				"the kernel needs CONFIG_VIRTIO_CONSOLE and CONFIG_VIRTIO_PCI)", name, limit, seen)
		}
		select {
		case <-ctx.Done():
			return "", ctx.Err()
		case <-time.After(wait):
		}
	}
}

func lookPort(class, name string) (dev string, seen []string) {
	entries, err := os.ReadDir(class)
	if err != nil {
		return "", nil // the class appears with its first port
	}
	for _, e := range entries {
		text, err := os.ReadFile(filepath.Join(class, e.Name(), "name"))
		if err != nil {
			continue // a port whose name has not come yet, or that has none
		}
		got := strings.TrimSpace(string(text))
		if got == name {
			return "/dev/" + e.Name(), nil
		}
		seen = append(seen, got)
	}
	return "", seen
}

// recheck is how long a read or write trusts that the kernel wakes it. Lost
// wake-ups of virtio-console are reported for kernels before 6.1
// (cilium/ebpf#1734), and here one would hang a run. Trying again four times a
// second costs less than 0.1 % of one emulated CPU.
const recheck = 250 * time.Millisecond

// errHangUp says that the host closed its end.
var errHangUp = errors.New("the host hung up")

// device is what portConn needs of an *os.File.
type device interface {
	io.ReadWriteCloser
	SetReadDeadline(time.Time) error
	SetWriteDeadline(time.Time) error
}

// portConn is a virtio-serial port as a net.Conn. A read returns io.EOF when the
// host hangs up.
type portConn struct {
	dev    device
	name   string
	before []byte // read by awaitClient, not yet by Read

	// A host that hangs up and connects again at once is not noticed by a read.
	// What gives it away is the new client's hello among the old one's packets:
	// these are encrypted, so it is never there by chance. Read then ends the
	// connection, and next keeps the hello.
	tail []byte // the last bytes read, too few to be a hello
	mu   sync.Mutex
	next []byte
}

func openPort(dev string) (*portConn, error) {
	// os.OpenFile makes the descriptor non-blocking and hands it to the
	// runtime's poller, so that no thread spins or is stuck in a read.
	f, err := os.OpenFile(dev, os.O_RDWR, 0)
	if err != nil {
		return nil, fmt.Errorf("open virtio-serial port: %w", err)
	}
	return &portConn{dev: f, name: dev}, nil
}

// clientHello is how every SSH client begins.
var clientHello = []byte("SSH-2.0-")

// awaitClient blocks until a client says its version. What comes before that is
// the rest of a broken connection and is dropped. While no host is connected a
// read returns at once, so it sleeps between reads; nothing is measured then.
//
// rest is what the connection before this one left of the client's hello.
func (p *portConn) awaitClient(ctx context.Context, rest []byte) error {
	const keep = 4 << 10
	if len(rest) > 0 {
		p.before = rest
		return nil
	}
	var got []byte
	buf := make([]byte, keep)
	for ctx.Err() == nil {
		n, err := p.readPort(buf)
		got = append(got, buf[:n]...)
		if i := bytes.Index(got, clientHello); i >= 0 {
			p.before = bytes.Clone(got[i:])
			return nil
		}
		// Keep what may be the beginning of the hello, no more.
		got = got[max(0, len(got)-len(clientHello)+1):]
		switch {
		case err == io.EOF:
			got = got[:0]
			time.Sleep(5 * time.Millisecond)
		case err != nil:
			return err
		}
	}
	return ctx.Err()
}

// Read implements net.Conn.
func (p *portConn) Read(b []byte) (int, error) {
	if len(p.before) > 0 {
		n := copy(b, p.before)
		p.before = p.before[n:]
		return n, nil
	}
	n, err := p.readPort(b)
	if p.another(b[:n]) {
		return 0, io.EOF
	}
	return n, err
}

// another reports whether b, or the end of what was read before with it, has
// the hello of another client, and keeps that.
func (p *portConn) another(b []byte) bool {
	seen := append(p.tail, b...)
	i := bytes.Index(seen, clientHello)
	if i < 0 {
		p.tail = bytes.Clone(seen[max(0, len(seen)-len(clientHello)+1):])
		return false
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.next = bytes.Clone(seen[i:])
	return true
}

// takeNext returns the hello that ended the connection, if one did.
func (p *portConn) takeNext() []byte {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.next
}

// readPort reads from the device until there is something.
func (p *portConn) readPort(b []byte) (int, error) {
	for {
		if err := p.dev.SetReadDeadline(time.Now().Add(recheck)); err != nil {
			return 0, err
		}
		n, err := p.dev.Read(b)
		if n == 0 && errors.Is(err, os.ErrDeadlineExceeded) {
			continue
		}
		return n, err
	}
}

// Write implements net.Conn. It blocks while the host does not read.
func (p *portConn) Write(b []byte) (int, error) {
	done := 0
	for {
		if err := p.dev.SetWriteDeadline(time.Now().Add(recheck)); err != nil {
			return done, err
		}
		n, err := p.dev.Write(b[done:])
		done += n
		if err != nil && errors.Is(err, os.ErrDeadlineExceeded) {
			continue
		}
		return done, err
	}
}

// Close implements net.Conn. It ends a blocked Read or Write, and the kernel
// discards what was not read.
func (p *portConn) Close() error { return p.dev.Close() }

// portAddr is the port's name as an address.
type portAddr string

func (portAddr) Network() string  { return "virtio-serial" }
func (a portAddr) String() string { return string(a) }

// LocalAddr implements net.Conn.
func (p *portConn) LocalAddr() net.Addr { return portAddr(p.name) }

// RemoteAddr implements net.Conn.
func (p *portConn) RemoteAddr() net.Addr { return portAddr("host") }

// The deadlines belong to recheck; the server ends a connection by closing it.

// SetDeadline implements net.Conn and is refused.
func (p *portConn) SetDeadline(time.Time) error { return os.ErrNoDeadline }

// SetReadDeadline implements net.Conn and is refused.
func (p *portConn) SetReadDeadline(time.Time) error { return os.ErrNoDeadline }

// SetWriteDeadline implements net.Conn and is refused.
func (p *portConn) SetWriteDeadline(time.Time) error { return os.ErrNoDeadline }
