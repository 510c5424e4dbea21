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
	"encoding/binary"
	"fmt"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Bounds of one send. The kernel queues an acknowledgement of about 800 bytes
// for each request before the send returns; those that do not fit into the
// receive buffer (208 KiB by default) are lost with ENOBUFS.
const (
	batchRequests = 128
	batchBytes    = 64 << 10
	receiveBuffer = 1 << 20
	// One request may be larger than a batch: a list of 20,000 devices has 160 KB,
	// and the kernel counts its own overhead as well.
	sendBuffer = 1 << 20
)

// maxReply is the buffer of one receive. Dumps come in parts of at most 32 KiB.
const maxReply = 64 << 10

// Request is one message to the kernel, made by this package's builders.
type Request struct {
	typ   uint16
	flags uint16
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
//
// The socket is a blocking one outside of Go's poller, which is why this is no
// netlink library: in the poller every acknowledgement wakes a thread on another
// CPU that finds nothing to do, and 32,768 requests of an emulated guest took a
// third longer. What is left of netlink is a header and attributes.
type Conn struct {
	fd       int
	sequence uint32
	out, in  []byte
}

// Dial opens a socket in the calling thread's network namespace. The caller
// closes it.
func Dial() (*Conn, error) {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_ROUTE)
	if err != nil {
		return nil, fmt.Errorf("open route netlink socket: %w", err)
	}
	if err := unix.Bind(fd, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		unix.Close(fd)
		return nil, fmt.Errorf("bind route netlink socket: %w", err)
	}
	// Best effort all: without the first, errors have no text; without the second
	// they repeat the request, however long it was; the others are room for long
	// ones, and only root may have it.
	_ = unix.SetsockoptInt(fd, unix.SOL_NETLINK, unix.NETLINK_EXT_ACK, 1)
	_ = unix.SetsockoptInt(fd, unix.SOL_NETLINK, unix.NETLINK_CAP_ACK, 1)
	_ = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, receiveBuffer)
	_ = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_SNDBUFFORCE, sendBuffer)
	return &Conn{fd: fd, out: make([]byte, 0, batchBytes), in: make([]byte, maxReply)}, nil
}

// Close closes the socket.
func (c *Conn) Close() error { return unix.Close(c.fd) }

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

// batch sends requests at once. The kernel answers each with a message of its
// own, in order.
func (c *Conn) batch(requests []Request, at, of int) (failed *RequestError, err error) {
	first := c.sequence + 1
	c.out = c.out[:0]
	for _, r := range requests {
		c.frame(r.typ, unix.NLM_F_ACK|r.flags, r.data)
	}
	if err := c.send(); err != nil {
		return nil, err
	}
	for done := 0; done < len(requests); {
		replies, err := c.receive()
		if err != nil {
			return nil, err
		}
		for ; len(replies) > 0; done++ {
			var reply message
			if reply, replies, err = cut(replies); err != nil {
				return nil, err
			}
			refused, err := acknowledged(reply, first+uint32(done))
			if err != nil {
				return nil, err
			}
			if refused == nil {
				continue
			}
			if failed == nil {
				refused.Request, refused.Index, refused.Of = requests[done], at+done, of
				failed = refused
			}
			failed.Failed++
		}
	}
	return failed, nil
}

// frame appends one message to what is sent next.
func (c *Conn) frame(typ, flags uint16, data []byte) {
	c.sequence++
	b := builder(c.out)
	b.u32(uint32(unix.NLMSG_HDRLEN + len(data)))
	b.u16(typ)
	b.u16(unix.NLM_F_REQUEST | flags)
	b.u32(c.sequence)
	b.u32(0) // the kernel fills in the port
	b.bytes(data)
	b.pad()
	c.out = b
}

func (c *Conn) send() error {
	if err := unix.Sendto(c.fd, c.out, 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		return fmt.Errorf("send to route netlink: %w", err)
	}
	return nil
}

// receive reads one datagram, valid until the next one. rtnetlink has answered
// when the send returns, so the answer is taken without telling Go's scheduler,
// which would start its monitor thread each time; only when there is none yet
// (a long dump) it waits.
func (c *Conn) receive() ([]byte, error) {
	for {
		n, _, errno := unix.RawSyscall6(unix.SYS_RECVFROM, uintptr(c.fd), uintptr(unsafe.Pointer(&c.in[0])),
			uintptr(len(c.in)), unix.MSG_TRUNC|unix.MSG_DONTWAIT, 0, 0)
		switch {
		case errno == unix.EINTR:
			continue
		case errno == unix.EAGAIN:
			if err := c.wait(); err != nil {
				return nil, err
			}
			continue
		case errno != 0:
			return nil, fmt.Errorf("receive from route netlink: %w", errno)
		case int(n) > len(c.in):
			return nil, fmt.Errorf("receive from route netlink: a message of %d bytes, at most %d fit", n, len(c.in))
		}
		return c.in[:n], nil
	}
}

// wait blocks until there is something to receive.
func (c *Conn) wait() error {
	fds := []unix.PollFd{{Fd: int32(c.fd), Events: unix.POLLIN}}
	if _, err := unix.Poll(fds, -1); err != nil && err != unix.EINTR {
		return fmt.Errorf("wait for route netlink: %w", err)
	}
	return nil
}

// message is one answer. Its data is the receive buffer's.
type message struct {
	typ, flags uint16
	sequence   uint32
	data       []byte
}

// cut takes the first message off a datagram.
func cut(b []byte) (m message, rest []byte, err error) {
	if len(b) < unix.NLMSG_HDRLEN {
		return m, nil, errShort
	}
	n := int(binary.NativeEndian.Uint32(b))
	if n < unix.NLMSG_HDRLEN || n > len(b) {
		return m, nil, errShort
	}
	m = message{
		typ:      binary.NativeEndian.Uint16(b[4:]),
		flags:    binary.NativeEndian.Uint16(b[6:]),
		sequence: binary.NativeEndian.Uint32(b[8:]),
		data:     b[unix.NLMSG_HDRLEN:n],
	}
	return m, b[min(len(b), (n+3)&^3):], nil
}

// acknowledged reads the answer to the request of that sequence number. It
// returns the kernel's refusal, if it is one.
func acknowledged(m message, sequence uint32) (*RequestError, error) {
	if m.sequence != sequence || m.typ != unix.NLMSG_ERROR {
		return nil, fmt.Errorf("read acknowledgement: message %d of type %d, want the answer to %d",
			m.sequence, m.typ, sequence)
	}
	return refusal(m)
}

// refusal parses a struct nlmsgerr, and the text that may follow it. It returns
// nil for an acknowledgement.
func refusal(m message) (*RequestError, error) {
	if len(m.data) < 4 {
		return nil, errShort
	}
	errno := -int32(binary.NativeEndian.Uint32(m.data))
	if errno == 0 {
		return nil, nil
	}
	e := &RequestError{Err: unix.Errno(errno)}
	// Behind the number come the request, whole unless it was capped, and the
	// attributes. A final message of a dump has no request.
	skip := 4
	if m.typ == unix.NLMSG_ERROR && len(m.data) >= 4+unix.NLMSG_HDRLEN {
		skip += unix.NLMSG_HDRLEN
		if m.flags&unix.NLM_F_CAPPED == 0 {
			skip = 4 + (int(binary.NativeEndian.Uint32(m.data[4:]))+3)&^3
		}
	}
	if m.flags&unix.NLM_F_ACK_TLVS == 0 || skip > len(m.data) {
		return e, nil
	}
	// A broken attribute only costs the text; the number is what counts.
	_ = attrs(m.data[skip:], func(typ uint16, data []byte) error {
		if typ == unix.NLMSGERR_ATTR_MSG {
			e.Message = unix.ByteSliceToString(data)
		}
		return nil
	})
	return e, nil
}

// dump asks for all objects of a kind and calls each with the body of every
// message of type reply. The body is valid during the call only.
func (c *Conn) dump(what string, ask, reply uint16, data []byte, each func([]byte) error) error {
	c.out = c.out[:0]
	c.frame(ask, unix.NLM_F_DUMP, data)
	err := c.send()
	for done := false; err == nil && !done; {
		var replies []byte
		if replies, err = c.receive(); err == nil {
			done, err = part(replies, reply, each)
		}
	}
	if err != nil {
		return fmt.Errorf("dump %s: %w", what, err)
	}
	return nil
}

// part handles one datagram of a dump and reports whether it was the last.
func part(replies []byte, reply uint16, each func([]byte) error) (done bool, err error) {
	for len(replies) > 0 {
		var m message
		if m, replies, err = cut(replies); err != nil {
			return false, err
		}
		switch m.typ {
		case unix.NLMSG_DONE, unix.NLMSG_ERROR:
			// Before Linux 4.20 the last message has no error number.
			if len(m.data) < 4 {
				return true, nil
			}
			refused, err := refusal(m)
			if err == nil && refused != nil {
				err = refused.Err
			}
			return true, err
		case reply:
			if err := each(m.data); err != nil {
				return false, err
			}
		}
	}
	return false, nil
}
