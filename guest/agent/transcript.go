package agent

import (
	"bytes"
	"fmt"
	"sync"

	"github.com/kbisect/kbisect/guest/proto"
)

// What is kept of a transcript: its beginning, where things are set up and go
// wrong first, and its end. Together they are below proto.MaxOutput, with room
// for what cleaning adds.
const (
	keepHead = 384 << 10
	keepTail = 384 << 10
)

// transcript keeps what a program prints, in bounded memory. It has a lock of its
// own, since the program goes on printing while the run is reported.
type transcript struct {
	mu   sync.Mutex
	head []byte
	tail []byte // at most 2*keepTail, the last keepTail of which count
	lost int64  // bytes between them
}

// Write implements io.Writer and never fails.
func (t *transcript) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	n := len(p)
	room := min(keepHead-len(t.head), len(p))
	t.head = append(t.head, p[:room]...)
	t.tail = append(t.tail, p[room:]...)
	if len(t.tail) > 2*keepTail {
		cut := len(t.tail) - keepTail
		t.lost += int64(cut)
		t.tail = t.tail[:copy(t.tail, t.tail[cut:])]
	}
	return n, nil
}

// flush writes what was kept as records.
func (t *transcript) flush(w *proto.Writer) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	tail := t.tail
	if cut := len(tail) - keepTail; cut > 0 {
		t.lost += int64(cut)
		tail = tail[cut:]
	}
	if t.lost > 0 {
		if at := bytes.IndexByte(tail, '\n'); at >= 0 { // a line that was cut says nothing
			t.lost += int64(at + 1)
			tail = tail[at+1:]
		}
	}
	text := string(t.head)
	if t.lost > 0 {
		text += fmt.Sprintf("\n[%d bytes left out]\n", t.lost)
	}
	return w.Output(text + string(tail))
}
