package vmtest

import (
	"context"
	"errors"
	"io"
	"os"
	"sync"

	"github.com/kbisect/kbisect/vm"
)

// Machine is a fake vm.Machine. Its zero value accepts everything and does
// nothing; the fields before the blank line change that and are set before use.
type Machine struct {
	// ExecFunc is what Exec does; nil succeeds without output.
	ExecFunc func(ctx context.Context, c vm.Command) error
	// PutErr is what Put returns after it has read its source.
	PutErr error
	// FactsValue is what Facts returns.
	FactsValue vm.Facts
	// EventsSent are on Events from the start.
	EventsSent []vm.Event

	mu     sync.Mutex
	files  map[string][]byte
	execs  []vm.Command
	events chan vm.Event
	closed bool
}

var _ vm.Machine = (*Machine)(nil)

// errClosed is what calls after Close return.
var errClosed = &vm.InfraError{Op: "use machine", Err: errors.New("machine closed")}

// Exec implements vm.Machine.
func (m *Machine) Exec(ctx context.Context, c vm.Command) error {
	m.mu.Lock()
	m.execs = append(m.execs, c)
	closed := m.closed
	m.mu.Unlock()
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case closed:
		return errClosed
	case m.ExecFunc != nil:
		return m.ExecFunc(ctx, c)
	}
	return nil
}

// Put implements vm.Machine and keeps the file for File.
func (m *Machine) Put(ctx context.Context, r io.Reader, size int64, path string, _ os.FileMode) error {
	body, err := io.ReadAll(r)
	if err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case m.closed:
		return errClosed
	case m.PutErr != nil:
		return m.PutErr
	case int64(len(body)) != size:
		return &vm.InfraError{Op: "put file", Err: io.ErrUnexpectedEOF}
	}
	if m.files == nil {
		m.files = map[string][]byte{}
	}
	m.files[path] = body
	return nil
}

// File returns what was put at path, nil if nothing was.
func (m *Machine) File(path string) []byte {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.files[path]
}

// Execs returns the commands that Exec was given, in order.
func (m *Machine) Execs() []vm.Command {
	m.mu.Lock()
	defer m.mu.Unlock()
	return append([]vm.Command(nil), m.execs...)
}

// Events implements vm.Machine.
func (m *Machine) Events() <-chan vm.Event {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.channel()
}

// channel makes the channel on first use. mu is held.
func (m *Machine) channel() chan vm.Event {
	if m.events == nil {
		m.events = make(chan vm.Event, len(m.EventsSent))
		for _, e := range m.EventsSent {
			m.events <- e
		}
	}
	return m.events
}

// Facts implements vm.Machine.
func (m *Machine) Facts() vm.Facts { return m.FactsValue }

// Close implements vm.Machine.
func (m *Machine) Close() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if !m.closed {
		m.closed = true
		close(m.channel())
	}
	return nil
}

// Closed reports whether Close was called.
func (m *Machine) Closed() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.closed
}
