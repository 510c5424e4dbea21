// Package rtnl speaks rtnetlink in batches: many requests in one send, every
// acknowledgement read and checked. Creating 100 devices by running ip(8) three
// times each costs 17 s in an emulated guest; here it is two system calls and a
// read per request.
//
//	ns, err := rtnl.NewNamespace()
//	c, err := ns.Dial()
//	err = c.Do(rtnl.AddLink(rtnl.Link{Name: "d0", Kind: "dummy", Up: true}), ...)
//
// It needs root (CAP_NET_ADMIN) to change anything.
package rtnl

import (
	"errors"
	"fmt"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"
)

// Bounds of one send. The kernel queues an acknowledgement of about 800 bytes
// for each request before the send returns; those that do not fit into the
// receive buffer (208 KiB by default) are lost with ENOBUFS.
const (
	batchRequests = 128
	batchBytes    = 64 << 10
	receiveBuffer = 1 << 20
)

// maxReply is the buffer of one receive. Dumps come in parts of at most 32 KiB.
const maxReply = 64 << 10

// Request is one message to the kernel, made by this package's builders.
type Request struct {
	typ   netlink.HeaderType
	flags netlink.HeaderFlags
	data  []byte
	what  string // "add link"
	name  string // of the object, or "" when it has an id
	id    uint32
}

// String says what the request does, for errors.
func (r Request) String() string {
	if r.name != "" {
		return r.what + " " + r.name
	}
	return fmt.Sprintf("%s %d", r.what, r.id)
}

func (r Request) message() netlink.Message {
	return netlink.Message{
		Header: netlink.Header{Type: r.typ, Flags: netlink.Request | netlink.Acknowledge | r.flags},
		Data:   r.data,
	}
}

// RequestError is the kernel's refusal of a request. It unwraps to the errno.
type RequestError struct {
	Request Request
	Index   int    // of the request among those of the call
	Failed  int    // how many of the call were refused, this being the first
	Of      int    // how many there were
	Message string // the kernel's own words, when it had any
	Err     error  // a syscall.Errno
}

func (e *RequestError) Error() string {
	s := fmt.Sprintf("%s: %v", e.Request, e.Err)
	if e.Message != "" {
		s += " (" + e.Message + ")"
	}
	if e.Of > 1 {
		s += fmt.Sprintf(", request %d of %d, %d failed", e.Index+1, e.Of, e.Failed)
	}
	return s
}

func (e *RequestError) Unwrap() error { return e.Err }

// Conn is a route netlink socket. It belongs to the network namespace that it
// was opened in, whichever thread uses it. It is for one goroutine.
type Conn struct {
	c *netlink.Conn
}

// Dial opens a socket in the calling thread's network namespace. The caller
// closes it.
func Dial() (*Conn, error) {
	c, err := netlink.Dial(unix.NETLINK_ROUTE, &netlink.Config{MessageBufferSize: maxReply})
	if err != nil {
		return nil, fmt.Errorf("open route netlink socket: %w", err)
	}
	// Best effort both: without the first, errors have no text; the second is
	// room for long ones, and only root may have it.
	_ = c.SetOption(netlink.ExtendedAcknowledge, true)
	_ = c.SetReadBuffer(receiveBuffer)
	return &Conn{c: c}, nil
}

// Close closes the socket.
func (c *Conn) Close() error { return c.c.Close() }

// Do sends requests in batches, in order, and reads the acknowledgement of each.
// A refused one does not stop those after it; the first refusal is returned as a
// *RequestError. It blocks until the kernel has done all of it.
func (c *Conn) Do(requests ...Request) error {
	var first *RequestError
	for i := 0; i < len(requests); {
		n := batchLen(requests[i:])
		failed, err := c.batch(requests[i:i+n], i, len(requests))
		if err != nil {
			return fmt.Errorf("%s: %w", requests[i], err)
		}
		if failed != nil && first == nil {
			first = failed
		} else if failed != nil {
			first.Failed += failed.Failed
		}
		i += n
	}
	if first != nil {
		return first
	}
	return nil
}

// batchLen returns how many of the requests go into the next send.
func batchLen(requests []Request) int {
	bytes := 0
	for i, r := range requests {
		bytes += unix.NLMSG_HDRLEN + len(r.data)
		if i > 0 && (i == batchRequests || bytes > batchBytes) {
			return i
		}
	}
	return len(requests)
}

// batch sends requests at once. The kernel answers each with a datagram of its
// own, in order, so the n-th receive belongs to the n-th request.
func (c *Conn) batch(requests []Request, at, of int) (failed *RequestError, err error) {
	messages := make([]netlink.Message, len(requests))
	for i, r := range requests {
		messages[i] = r.message()
	}
	sent, err := c.c.SendMessages(messages)
	if err != nil {
		return nil, err
	}
	for i := range sent {
		replies, err := c.c.Receive()
		if err == nil {
			if err := netlink.Validate(sent[i], replies); err != nil {
				return nil, fmt.Errorf("read acknowledgement: %w", err)
			}
			continue
		}
		refused := refusal(err, sent[i].Header.Sequence)
		if refused == nil {
			return nil, err
		}
		if failed == nil {
			refused.Request, refused.Index, refused.Of = requests[i], at+i, of
			failed = refused
		}
		failed.Failed++
	}
	return failed, nil
}

// refusal tells what the kernel answered to a request from what went wrong with
// the socket; it returns nil for the latter.
func refusal(err error, sequence uint32) *RequestError {
	var op *netlink.OpError
	var errno unix.Errno
	if !errors.As(err, &op) || op.Sequence != sequence || !errors.As(err, &errno) {
		return nil
	}
	return &RequestError{Message: op.Message, Err: errno}
}

// dump asks for all objects of a kind.
func (c *Conn) dump(what string, typ netlink.HeaderType, data []byte) ([]netlink.Message, error) {
	replies, err := c.c.Execute(netlink.Message{
		Header: netlink.Header{Type: typ, Flags: netlink.Request | netlink.Dump},
		Data:   data,
	})
	if err != nil {
		return nil, fmt.Errorf("dump %s: %w", what, err)
	}
	return replies, nil
}
