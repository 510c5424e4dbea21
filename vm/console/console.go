// Package console reads a guest's serial console from its first byte: it writes
// it to a file, keeps the last lines for an error, and notices what the kernel
// says about itself.
//
//	log, err := console.Create(filepath.Join(dir, "console.log"), console.Options{Notify: notify})
//	_, err = io.Copy(log, conn) // until the guest ends
//	err = log.Close()
//
// Nothing the guest prints is trusted: the file, a line and the ring are
// bounded, and lines are made safe for a terminal.
package console

import (
	"bytes"
	"fmt"
	"os"
	"strings"
	"sync"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/kbisect/kbisect/vm"
)

// Bounds.
const (
	DefaultMaxFile = 16 << 20 // bytes of the console in the file
	RingLines      = 50       // lines that Tail returns
	MaxLine        = 512      // bytes of a line in an event or in Tail
)

// Ready is what kbisect-init prints once it serves.
const Ready = "kbisect-init: ready"

// Options of a Log. A zero field means its default.
type Options struct {
	MaxFile int64     // bytes written to the file; what follows is dropped
	Start   time.Time // when QEMU was exec'd; default now

	// Notify is called for every line that means something, from within
	// Write. It must not block and must not call the Log. nil ignores.
	Notify func(vm.Event)
}

// Log is one guest's console. Its owner writes to it from one goroutine; the
// other methods may be called from any.
type Log struct {
	opts  Options
	ready chan struct{}

	mu      sync.Mutex
	file    *os.File
	fileErr error
	total   int64     // bytes seen
	lines   int64     // finished lines seen
	last    time.Time // of the last byte; Start before the first one
	line    []byte    // the unfinished line, at most MaxLine bytes
	ring    []string
	next    int // place of the next line once the ring is full
	isReady bool
	flooded bool
}

// Create makes the file, or empties it, and returns a Log that writes to it.
func Create(path string, opts Options) (*Log, error) {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o644)
	if err != nil {
		return nil, fmt.Errorf("create console log: %w", err)
	}
	l := New(opts)
	l.file = f
	return l, nil
}

// New returns a Log without a file.
func New(opts Options) *Log {
	if opts.MaxFile <= 0 {
		opts.MaxFile = DefaultMaxFile
	}
	if opts.Start.IsZero() {
		opts.Start = time.Now()
	}
	return &Log{opts: opts, ready: make(chan struct{}), last: opts.Start}
}

// Write takes the next bytes of the console. It never fails: a full disk must
// not stop the guest. Close reports such an error.
func (l *Log) Write(p []byte) (int, error) {
	if len(p) == 0 {
		return 0, nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Now()
	l.last = now
	l.store(p, now)
	l.total += int64(len(p))
	for rest := p; len(rest) > 0; {
		i := bytes.IndexByte(rest, '\n')
		if i < 0 {
			l.extend(rest)
			break
		}
		l.extend(rest[:i])
		l.endLine(now)
		rest = rest[i+1:]
	}
	return len(p), nil
}

// store appends to the file up to its bound, and then a note that there was more.
func (l *Log) store(p []byte, now time.Time) {
	if l.flooded {
		return
	}
	if room := l.opts.MaxFile - l.total; int64(len(p)) > room {
		l.flooded = true
		note := fmt.Sprintf("console passed %d bytes; the rest is not kept", l.opts.MaxFile)
		p = append(bytes.Clone(p[:room]), "\n[kbisect: "+note+"]\n"...)
		defer l.notify(vm.EventFlood, note, now)
	}
	if l.file == nil || l.fileErr != nil {
		return
	}
	_, l.fileErr = l.file.Write(p)
}

// extend adds to the unfinished line what fits.
func (l *Log) extend(p []byte) {
	l.line = append(l.line, p[:min(len(p), MaxLine-len(l.line))]...)
}

// endLine keeps the finished line and looks at it.
func (l *Log) endLine(now time.Time) {
	text := safe(l.line)
	l.line = l.line[:0]
	l.lines++
	if len(l.ring) < RingLines {
		l.ring = append(l.ring, text)
	} else {
		l.ring[l.next] = text
		l.next = (l.next + 1) % RingLines
	}
	message := strip(text)
	if !l.isReady && message == Ready {
		l.isReady = true
		close(l.ready)
	}
	if kind, ok := Classify(message); ok {
		l.notify(kind, text, now)
	}
}

func (l *Log) notify(kind vm.EventKind, line string, now time.Time) {
	if l.opts.Notify != nil {
		l.opts.Notify(vm.Event{Kind: kind, At: now.Sub(l.opts.Start), Line: line})
	}
}

// Close writes the file to its end and closes it. It returns the first error
// that writing it met. The Log remains readable.
func (l *Log) Close() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.file == nil {
		return l.fileErr
	}
	err := l.file.Close()
	l.file = nil
	if l.fileErr == nil {
		l.fileErr = err
	}
	if l.fileErr != nil {
		l.fileErr = fmt.Errorf("write console log: %w", l.fileErr)
	}
	return l.fileErr
}

// Ready is closed when the guest's init said that it serves.
func (l *Log) Ready() <-chan struct{} { return l.ready }

// Bytes returns how many bytes the console has had.
func (l *Log) Bytes() int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.total
}

// Lines returns how many finished lines the console has had.
func (l *Log) Lines() int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.lines
}

// Last returns when the last byte came; before the first one, Options.Start.
func (l *Log) Last() time.Time {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.last
}

// Tail returns the last lines, the oldest first, also an unfinished one: a
// kernel may die in the middle of a line.
func (l *Log) Tail() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	lines := make([]string, 0, RingLines+1)
	lines = append(lines, l.ring[l.next:]...)
	lines = append(lines, l.ring[:l.next]...)
	if len(l.line) > 0 {
		lines = append(lines, safe(l.line))
	}
	return lines[max(0, len(lines)-RingLines):]
}

// safe makes a line harmless to a terminal: no control character, no escape
// sequence, valid UTF-8, at most MaxLine bytes.
func safe(line []byte) string {
	line = bytes.TrimRight(line, "\r\n ")
	if plain(line) {
		return string(line)
	}
	var b strings.Builder
	for len(line) > 0 {
		r, n := utf8.DecodeRune(line)
		switch {
		case r == '\t':
			b.WriteByte(' ')
		case r == utf8.RuneError && n <= 1, r < utf8.RuneSelf && !unicode.IsPrint(r):
			fmt.Fprintf(&b, `\x%02x`, line[0])
		case !unicode.IsPrint(r):
			fmt.Fprintf(&b, `\u%04x`, r)
		default:
			b.WriteRune(r)
		}
		line = line[n:]
	}
	s := b.String()
	if len(s) > MaxLine {
		s = strings.ToValidUTF8(s[:MaxLine], "")
	}
	return s
}

// plain reports whether all of line is printable ASCII, as nearly all are.
func plain(line []byte) bool {
	for _, c := range line {
		if c < ' ' || c > '~' {
			return false
		}
	}
	return true
}
