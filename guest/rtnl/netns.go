package rtnl

import (
	"errors"
	"fmt"
	"os"
	"runtime"

	"golang.org/x/sys/unix"
)

var errShort = errors.New("message is too short")

// Namespace is a network namespace without a name. It lives as long as it is
// open, or a socket that was opened in it is. Its owner closes it.
type Namespace struct {
	f *os.File
}

// NewNamespace makes a namespace with only a loopback device, which is down.
func NewNamespace() (*Namespace, error) {
	var n *Namespace
	err := onThread(func() error {
		if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
			return fmt.Errorf("make network namespace: %w", err)
		}
		f, err := os.Open("/proc/thread-self/ns/net")
		if err != nil {
			return fmt.Errorf("open network namespace: %w", err)
		}
		n = &Namespace{f: f}
		return nil
	})
	return n, err
}

// Do runs fn on a thread inside the namespace and waits for it. Sockets that fn
// opens, and paths below /proc/sys/net, are the namespace's. Goroutines that fn
// starts are not inside.
func (n *Namespace) Do(fn func() error) error {
	return onThread(func() error {
		if err := unix.Setns(int(n.f.Fd()), unix.CLONE_NEWNET); err != nil {
			return fmt.Errorf("enter network namespace: %w", err)
		}
		return fn()
	})
}

// Dial opens a Conn inside the namespace. The caller closes it; it does not
// depend on the Namespace staying open.
func (n *Namespace) Dial() (*Conn, error) {
	var c *Conn
	err := n.Do(func() (err error) { c, err = Dial(); return err })
	return c, err
}

// Sysctl sets a parameter in the namespace; name is a path below /proc/sys, as
// "net/ipv6/conf/default/forwarding".
func (n *Namespace) Sysctl(name, value string) error {
	return n.Do(func() error {
		if err := os.WriteFile("/proc/sys/"+name, []byte(value), 0o644); err != nil {
			return fmt.Errorf("set sysctl %s: %w", name, err)
		}
		return nil
	})
}

// Close lets the namespace go. The kernel takes it down later, in a worker.
func (n *Namespace) Close() error { return n.f.Close() }

// onThread runs fn on a thread of its own that is thrown away: the goroutine
// ends without unlocking it, so no other goroutine ever runs in a foreign
// namespace.
func onThread(fn func() error) error {
	done := make(chan error, 1)
	go func() {
		runtime.LockOSThread()
		done <- fn()
	}()
	return <-done
}
