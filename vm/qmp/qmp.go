// Package qmp speaks the QEMU Machine Protocol over a connection that is
// already open. Its Client is go-qemu's qmp.Monitor, done so that it can be
// trusted:
//
//   - replies are matched by id, so that an event between a command and its
//     reply, or before the capabilities' reply, shifts nothing
//     (digitalocean/go-qemu#210, #226);
//   - a reply may be long (#159), but not longer than MaxLine;
//   - each command has a deadline (#206, #214);
//   - events nobody reads are dropped and counted, and block nothing.
//
// A monitor that missed a deadline or spoke nonsense is broken for good, and
// says so from then on: kill the machine.
package qmp

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"strconv"
	"sync"
	"sync/atomic"
	"time"
)

// Defaults of Options.
const (
	DefaultTimeout = 10 * time.Second
	DefaultMaxLine = 16 << 20
	DefaultEvents  = 64
)

var (
	// ErrTimeout says that QEMU did not answer a command in time.
	ErrTimeout = errors.New("qmp: no answer in time")
	// ErrProtocol says that the other side did not speak QMP.
	ErrProtocol = errors.New("qmp: protocol violated")
	// ErrClosed says that the connection has ended.
	ErrClosed = errors.New("qmp: monitor closed")
)

// Error is QEMU's refusal of one command. The monitor stays usable.
type Error struct {
	Class string `json:"class"` // "GenericError", "CommandNotFound", ...
	Desc  string `json:"desc"`
}

func (e *Error) Error() string { return "qmp: " + e.Desc }

// Options bound a Client. A zero field means its default.
type Options struct {
	Timeout time.Duration // of the greeting and of each command
	MaxLine int           // bytes of one message from QEMU
	Events  int           // events kept for a subscriber that does not read
}

// Client is one monitor. It owns its connection. Its methods may be called from
// several goroutines.
type Client struct {
	conn    net.Conn
	opts    Options
	writing sync.Mutex // one command at a time on the wire

	greeted chan struct{} // closed by the greeting
	done    chan struct{} // closed when the connection is over; err is set then
	dropped atomic.Uint64

	mu      sync.Mutex
	started bool
	version Version
	nextID  uint64
	pending map[string]chan reply
	subs    map[*subscriber]struct{}
	err     error
}

// reply is what waits for a command's sender: the whole message.
type reply struct {
	line []byte
	err  *Error
}

// message is any message of the server's.
type message struct {
	QMP    *struct{ Version Version } `json:"QMP"`
	Event  string                     `json:"event"`
	ID     string                     `json:"id"`
	Return json.RawMessage            `json:"return"`
	Error  *Error                     `json:"error"`
}

// New returns a Client on conn, which it owns from now on. Nothing is read or
// written before Connect.
func New(conn net.Conn, opts Options) *Client {
	if opts.Timeout <= 0 {
		opts.Timeout = DefaultTimeout
	}
	if opts.MaxLine <= 0 {
		opts.MaxLine = DefaultMaxLine
	}
	if opts.Events <= 0 {
		opts.Events = DefaultEvents
	}
	return &Client{
		conn: conn, opts: opts,
		greeted: make(chan struct{}), done: make(chan struct{}),
		pending: map[string]chan reply{}, subs: map[*subscriber]struct{}{},
	}
}

// Connect reads the greeting and negotiates the capabilities, both within the
// timeout. It may be called once; after an error only Disconnect is left.
func (c *Client) Connect() error {
	c.mu.Lock()
	if c.started {
		c.mu.Unlock()
		return errors.New("qmp: connected before")
	}
	c.started = true
	c.mu.Unlock()
	go c.read()

	limit := time.NewTimer(c.opts.Timeout)
	defer limit.Stop()
	select {
	case <-c.greeted:
	case <-c.done:
		return fmt.Errorf("read greeting: %w", c.Err())
	case <-limit.C:
		return fmt.Errorf("read greeting: %w", c.fail(ErrTimeout))
	}
	if err := c.Do(context.Background(), "qmp_capabilities", nil, nil); err != nil {
		return fmt.Errorf("negotiate capabilities: %w", err)
	}
	return nil
}

// Disconnect closes the connection and returns when the reader has ended and
// all event channels are closed. It is idempotent.
func (c *Client) Disconnect() error {
	_ = c.fail(ErrClosed)
	c.mu.Lock()
	started := c.started
	c.started = true
	c.mu.Unlock()
	if started {
		<-c.done
	} else {
		c.finish()
	}
	return nil
}

// Done is closed when the connection is over, by Disconnect, by QEMU's end or
// by a failure; Err then says why.
func (c *Client) Done() <-chan struct{} { return c.done }

// Err returns why the monitor is unusable, or nil.
func (c *Client) Err() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.err
}

// Version returns QEMU's version; it is known once Connect has returned nil.
func (c *Client) Version() Version {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.version
}

// Dropped returns how many events were dropped because a subscriber did not
// read.
func (c *Client) Dropped() uint64 { return c.dropped.Load() }

// Run sends a command, a JSON object with "execute" and perhaps "arguments",
// and returns the whole reply ({"return": ...}). An "id" in it is replaced.
// It blocks for at most the timeout. A refusal is an *Error.
func (c *Client) Run(command []byte) ([]byte, error) {
	return c.run(context.Background(), command)
}

// Do runs one command with args (marshalled, nil for none) and unmarshals what
// it returns into out (nil to ignore). It blocks until the reply, ctx or the
// timeout, whichever is first. Giving up by ctx leaves the monitor usable.
func (c *Client) Do(ctx context.Context, name string, args, out any) error {
	command, err := json.Marshal(Command{Execute: name, Args: args})
	if err != nil {
		return fmt.Errorf("marshal %s: %w", name, err)
	}
	line, err := c.run(ctx, command)
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	if out == nil {
		return nil
	}
	var m message
	if err := json.Unmarshal(line, &m); err != nil {
		return fmt.Errorf("%s: parse reply: %w", name, err)
	}
	if err := json.Unmarshal(m.Return, out); err != nil {
		return fmt.Errorf("%s: parse reply: %w", name, err)
	}
	return nil
}

// Human runs a command of the human monitor and returns its text.
func (c *Client) Human(ctx context.Context, line string) (string, error) {
	var out string
	err := c.Do(ctx, "human-monitor-command", map[string]string{"command-line": line}, &out)
	return out, err
}

func (c *Client) run(ctx context.Context, command []byte) ([]byte, error) {
	id, wait, err := c.register()
	if err != nil {
		return nil, err
	}
	defer c.forget(id)
	if err := c.send(command, id); err != nil {
		return nil, err
	}
	limit := time.NewTimer(c.opts.Timeout)
	defer limit.Stop()
	select {
	case r := <-wait:
		if r.err != nil {
			return nil, r.err
		}
		return r.line, nil
	case <-c.done:
		return nil, c.Err()
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-limit.C:
		return nil, c.fail(ErrTimeout)
	}
}

// register makes a place for the reply to a new command.
func (c *Client) register() (string, <-chan reply, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err != nil {
		return "", nil, c.err
	}
	if !c.started {
		return "", nil, errors.New("qmp: not connected")
	}
	c.nextID++
	id := strconv.FormatUint(c.nextID, 10)
	wait := make(chan reply, 1)
	c.pending[id] = wait
	return id, wait, nil
}

func (c *Client) forget(id string) {
	c.mu.Lock()
	delete(c.pending, id)
	c.mu.Unlock()
}

// send writes the command with our id within the timeout.
func (c *Client) send(command []byte, id string) error {
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(command, &fields); err != nil {
		return fmt.Errorf("parse command: %w", err)
	}
	if fields["execute"] == nil {
		return errors.New("parse command: no \"execute\"")
	}
	fields["id"] = json.RawMessage(strconv.Quote(id))
	line, err := json.Marshal(fields)
	if err != nil {
		return fmt.Errorf("marshal command: %w", err)
	}
	c.writing.Lock()
	defer c.writing.Unlock()
	_ = c.conn.SetWriteDeadline(time.Now().Add(c.opts.Timeout))
	if _, err := c.conn.Write(append(line, '\n')); err != nil {
		var timeout net.Error
		if errors.As(err, &timeout) && timeout.Timeout() {
			return c.fail(ErrTimeout)
		}
		// What reached QEMU is unknown: nothing after it can be trusted.
		return c.fail(fmt.Errorf("%w: write: %w", ErrClosed, err))
	}
	return nil
}

// fail records the first reason, ends the connection, and returns that reason.
func (c *Client) fail(err error) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err == nil {
		c.err = err
		c.conn.Close()
	}
	return c.err
}

// read is the client's one goroutine: it ends with the connection.
func (c *Client) read() {
	defer c.finish()
	br := bufio.NewReader(c.conn)
	for {
		line, err := readLine(br, c.opts.MaxLine)
		if err != nil {
			if !errors.Is(err, ErrProtocol) {
				err = fmt.Errorf("%w: read: %w", ErrClosed, err)
			}
			_ = c.fail(err)
			return
		}
		if err := c.dispatch(line); err != nil {
			_ = c.fail(err)
			return
		}
	}
}

// finish closes the event channels, and then done.
func (c *Client) finish() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for s := range c.subs {
		s.close()
	}
	clear(c.subs)
	close(c.done)
}

// dispatch hands one message to whom it belongs.
func (c *Client) dispatch(line []byte) error {
	if len(line) == 0 {
		return nil
	}
	var m message
	if err := json.Unmarshal(line, &m); err != nil {
		return fmt.Errorf("%w: %w", ErrProtocol, err)
	}
	switch {
	case m.QMP != nil:
		return c.greeting(m.QMP.Version)
	case m.Event != "":
		var e Event
		if err := json.Unmarshal(line, &e); err != nil {
			return fmt.Errorf("%w: event %q: %w", ErrProtocol, m.Event, err)
		}
		c.publish(e)
		return nil
	case m.ID == "" && m.Error != nil:
		// QEMU answers so what it could not parse: our framing is off.
		return fmt.Errorf("%w: error without id: %s", ErrProtocol, m.Error.Desc)
	case m.ID == "" || m.Return == nil && m.Error == nil:
		return fmt.Errorf("%w: neither greeting, event nor reply", ErrProtocol)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	// An id nobody waits for belongs to a command given up by its ctx.
	if wait, ok := c.pending[m.ID]; ok {
		delete(c.pending, m.ID)
		wait <- reply{line: line, err: m.Error}
	}
	return nil
}

func (c *Client) greeting(v Version) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	select {
	case <-c.greeted:
		return fmt.Errorf("%w: second greeting", ErrProtocol)
	default:
	}
	c.version = v
	close(c.greeted)
	return nil
}

// readLine returns one line without its end, at most limit bytes, in memory of
// its own.
func readLine(br *bufio.Reader, limit int) ([]byte, error) {
	var line []byte
	for {
		part, err := br.ReadSlice('\n')
		if len(line)+len(part) > limit+2 { // + "\r\n"
			return nil, fmt.Errorf("%w: message longer than %d bytes", ErrProtocol, limit)
		}
		line = append(line, part...)
		if err == bufio.ErrBufferFull {
			continue
		}
		if err != nil {
			return nil, err
		}
		line = line[:len(line)-1]
		if n := len(line); n > 0 && line[n-1] == '\r' {
			line = line[:n-1]
		}
		return line, nil
	}
}
