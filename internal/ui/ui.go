// Package ui tells a person on stderr what goes on: stages with their progress,
// warnings, hints. Standard output is never touched: it has the result only.
//
//	u := ui.New(os.Stderr, ui.Options{Terminal: ui.IsTerminal(os.Stderr)})
//	defer u.Close()
//	st := u.Stage("build 6.1.192")
//	st.Set(120, 2400)
//	st.End(nil)
//	u.Warn("disk %s is nearly full", path)
//
// On a terminal the running stages are a few live lines below everything else,
// redrawn in place. Elsewhere each stage has a line at its start, one every ten
// seconds while it moves or waits, and one at its end. With Options.JSON every
// line is one JSON object instead (type Line).
//
// Messages begin with "kbisect: ", are lower case and have no full stop at
// their end. Control characters in them are replaced: some come from a guest.
//
// A nil *UI and a nil *Stage say nothing, so that code need not ask whether
// anybody listens.
package ui

import (
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"time"
	"unicode"

	"golang.org/x/term"
)

// How often things are said.
const (
	redraw    = 100 * time.Millisecond // a terminal's live lines
	heartbeat = 10 * time.Second       // a plain line for a running stage
)

// Options says how to talk.
type Options struct {
	Terminal bool // w is a terminal: live lines, carriage returns
	Quiet    bool // warnings and hints only
	Verbose  bool // also Debug and every Note
	JSON     bool // one JSON object a line; no live lines
}

// UI writes progress. All methods may be called from several goroutines.
type UI struct {
	w    io.Writer
	opts Options
	now  func() time.Time
	cols func() int // the terminal's width

	mu        sync.Mutex
	stages    []*Stage // running ones, oldest first
	live      int      // lines of the live area on the screen
	drawn     time.Time
	suspended int
	closed    bool

	stop chan struct{} // ends the ticker
	done chan struct{} // it has ended
}

// IsTerminal reports whether f is a terminal.
func IsTerminal(f *os.File) bool { return term.IsTerminal(int(f.Fd())) }

// New returns a UI on w. Its owner calls Close, which ends the one goroutine it
// has and cleans the screen.
func New(w io.Writer, o Options) *UI {
	u := newUI(w, o, time.Now)
	u.stop, u.done = make(chan struct{}), make(chan struct{})
	go u.run()
	return u
}

// newUI makes a UI without its ticker.
func newUI(w io.Writer, o Options, now func() time.Time) *UI {
	if o.JSON {
		o.Terminal = false
	}
	return &UI{w: w, opts: o, now: now, cols: func() int { return columns(w) }}
}

// columns asks for the terminal's width, every time: it may have been resized.
func columns(w io.Writer) int {
	if f, ok := w.(*os.File); ok {
		if n, _, err := term.GetSize(int(f.Fd())); err == nil && n > 0 {
			return n
		}
	}
	return 80
}

// run keeps times on the screen moving while nothing else happens.
func (u *UI) run() {
	defer close(u.done)
	period := time.Second
	if u.opts.Terminal {
		period = redraw
	}
	t := time.NewTicker(period)
	defer t.Stop()
	for {
		select {
		case <-u.stop:
			return
		case <-t.C:
			u.tick()
		}
	}
}

// tick does what is due.
func (u *UI) tick() {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.opts.Terminal {
		u.draw()
		return
	}
	for _, s := range u.stages {
		s.beat()
	}
}

// Close removes the live lines and ends the UI; later calls say nothing. It is
// idempotent.
func (u *UI) Close() {
	if u == nil {
		return
	}
	u.mu.Lock()
	if u.closed {
		u.mu.Unlock()
		return
	}
	u.erase()
	u.closed = true
	u.stages = nil
	u.mu.Unlock()
	if u.stop != nil {
		close(u.stop)
		<-u.done
	}
}

// Suspend removes the live lines until the returned function is called, for a
// program that talks to the terminal itself.
func (u *UI) Suspend() (resume func()) {
	if u == nil {
		return func() {}
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	u.erase()
	u.suspended++
	return sync.OnceFunc(func() {
		u.mu.Lock()
		defer u.mu.Unlock()
		u.suspended--
		u.redraw()
	})
}

// Info says something worth a line.
func (u *UI) Info(format string, args ...any) { u.say("info", format, args...) }

// Debug says something that only Options.Verbose wants.
func (u *UI) Debug(format string, args ...any) { u.say("debug", format, args...) }

// Warn says what makes the result weaker, or may go wrong.
func (u *UI) Warn(format string, args ...any) { u.say("warning", format, args...) }

// Hint says what a person can do next.
func (u *UI) Hint(format string, args ...any) { u.say("hint", format, args...) }

// say prints one message above the live lines.
func (u *UI) say(kind, format string, args ...any) {
	if u == nil {
		return
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	if !u.wants(kind) {
		return
	}
	text := Plain(fmt.Sprintf(format, args...))
	if u.opts.JSON {
		u.line(Line{Type: kind, Text: text})
		return
	}
	prefix := "kbisect: "
	if kind == "warning" || kind == "hint" {
		prefix += kind + ": "
	}
	u.print(prefix + text)
}

func (u *UI) wants(kind string) bool {
	switch {
	case u.closed:
		return false
	case kind == "debug":
		return u.opts.Verbose
	case kind == "warning" || kind == "hint":
		return true
	}
	return !u.opts.Quiet
}

// print writes a finished line. One Write a line keeps two kbisects on one
// terminal apart.
func (u *UI) print(text string) {
	if u.closed {
		return
	}
	u.erase()
	io.WriteString(u.w, strings.TrimRight(text, "\n")+"\n") //nolint:errcheck // nobody to tell when stderr is gone
	u.redraw()
}

// erase removes the live lines: up and clear, once a line.
func (u *UI) erase() {
	if u.live == 0 {
		return
	}
	io.WriteString(u.w, strings.Repeat("\x1b[1A\x1b[2K", u.live)) //nolint:errcheck // as above
	u.live = 0
}

// draw redraws the live lines if the last time is long enough ago.
func (u *UI) draw() {
	if u.now().Sub(u.drawn) >= redraw {
		u.redraw()
	}
}

// redraw writes the live lines, in one Write so that they do not flicker.
func (u *UI) redraw() {
	if !u.opts.Terminal || u.opts.Quiet || u.closed || u.suspended > 0 {
		return
	}
	var b strings.Builder
	b.WriteString(strings.Repeat("\x1b[1A\x1b[2K", u.live))
	cols := u.cols()
	for _, s := range u.stages {
		b.WriteString(clip(s.status(), cols-1) + "\n")
	}
	u.live = len(u.stages)
	u.drawn = u.now()
	if b.Len() > 0 {
		io.WriteString(u.w, b.String()) //nolint:errcheck // as above
	}
}

// clip cuts text to n columns: a line that wraps could not be erased.
func clip(text string, n int) string {
	r := []rune(text)
	if len(r) <= n {
		return text
	}
	return string(r[:max(n, 0)])
}

// Plain replaces control characters, so that no text can move the cursor or
// change the terminal's state. Newlines and tabs stay.
func Plain(s string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsControl(r) && r != '\n' && r != '\t' {
			return '?'
		}
		return r
	}, s)
}

// Writer returns a writer for the output of another program: whole lines of it
// go above the live lines, as they are but for control characters. Close it to
// print what is left of a line. It does nothing in quiet mode and in JSON mode.
func (u *UI) Writer() io.WriteCloser { return &lineWriter{u: u} }

// maxPart bounds a line without an end.
const maxPart = 4096

type lineWriter struct {
	u    *UI
	mu   sync.Mutex
	part []byte
}

func (l *lineWriter) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, c := range p {
		if c == '\n' || c == '\r' || len(l.part) >= maxPart {
			l.flush()
		}
		if c != '\n' && c != '\r' {
			l.part = append(l.part, c)
		}
	}
	return len(p), nil
}

func (l *lineWriter) Close() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.flush()
	return nil
}

func (l *lineWriter) flush() {
	if len(l.part) == 0 || l.u == nil {
		l.part = nil
		return
	}
	l.u.mu.Lock()
	defer l.u.mu.Unlock()
	if !l.u.opts.JSON && !l.u.opts.Quiet {
		l.u.print(Plain(string(l.part)))
	}
	l.part = l.part[:0]
}
