package vmtest

import (
	"bufio"
	"encoding/json"
	"fmt"
	"net"
	"sync"
	"testing"
)

// Greeting is what a QMP server says first.
const Greeting = `{"QMP": {"version": {"qemu": {"micro": 9, "minor": 2, "major": 7}, "package": "fake"}, "capabilities": ["oob"]}}`

// QMPCommand is one command as a fake server got it.
type QMPCommand struct {
	Execute   string          `json:"execute"`
	Arguments json.RawMessage `json:"arguments"`
	ID        string          `json:"id"`
}

// QMP is the server's end of a monitor connection.
type QMP struct {
	conn net.Conn
	mu   sync.Mutex
}

// Raw sends a line as it is. A closed connection is not an error: the client
// may have had enough.
func (q *QMP) Raw(line string) {
	q.mu.Lock()
	defer q.mu.Unlock()
	_, _ = q.conn.Write([]byte(line + "\n"))
}

// Return answers a command; value is JSON.
func (q *QMP) Return(c QMPCommand, value string) {
	q.Raw(fmt.Sprintf(`{"return": %s, "id": %q}`, value, c.ID))
}

// Refuse answers a command with a GenericError.
func (q *QMP) Refuse(c QMPCommand, desc string) {
	q.Raw(fmt.Sprintf(`{"id": %q, "error": {"class": "GenericError", "desc": %q}}`, c.ID, desc))
}

// Event sends an event without data.
func (q *QMP) Event(name string) {
	q.Raw(fmt.Sprintf(`{"timestamp": {"seconds": 1700000000, "microseconds": 7}, "event": %q, "data": {}}`, name))
}

// Close ends the connection, as QEMU does at its end.
func (q *QMP) Close() { q.conn.Close() }

// ServeQMP serves conn until it ends: it sends greeting (if not "") and calls
// handle for each command, one after the other. A nil handle returns {} to
// everything.
func ServeQMP(conn net.Conn, greeting string, handle func(*QMP, QMPCommand)) {
	defer conn.Close()
	q := &QMP{conn: conn}
	if handle == nil {
		handle = func(q *QMP, c QMPCommand) { q.Return(c, "{}") }
	}
	if greeting != "" {
		q.Raw(greeting)
	}
	br := bufio.NewReader(conn)
	for {
		line, err := br.ReadBytes('\n')
		if err != nil {
			return
		}
		var c QMPCommand
		if err := json.Unmarshal(line, &c); err != nil {
			q.Raw(`{"error": {"class": "GenericError", "desc": "Invalid JSON syntax"}}`)
			continue
		}
		handle(q, c)
	}
}

// StartQMP runs ServeQMP in a goroutine and returns the client's end of the
// connection. The test's end closes it and waits for the server.
func StartQMP(t testing.TB, greeting string, handle func(*QMP, QMPCommand)) net.Conn {
	t.Helper()
	client, server := net.Pipe()
	done := make(chan struct{})
	go func() {
		defer close(done)
		ServeQMP(server, greeting, handle)
	}()
	t.Cleanup(func() {
		client.Close()
		server.Close()
		<-done
	})
	return client
}
