package ui

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/dustin/go-humanize"
)

// Stage is one thing that takes a while. Its methods may be called from several
// goroutines.
type Stage struct {
	u     *UI
	name  string
	begun time.Time

	done, total int64
	bytes       bool // done and total are bytes
	note        string
	said        time.Time // the last plain line
	ended       bool
}

// Line is what Options.JSON prints.
type Line struct {
	Type    string  `json:"type"` // info, debug, warning, hint, start, progress, end
	Stage   string  `json:"stage,omitempty"`
	Text    string  `json:"text,omitempty"` // the message, or the stage's note
	Done    int64   `json:"done,omitempty"`
	Total   int64   `json:"total,omitempty"`
	Seconds float64 `json:"seconds,omitempty"` // since the stage began
	ETA     float64 `json:"eta,omitempty"`     // seconds left, 0 when it cannot be told
	Error   string  `json:"error,omitempty"`
}

// Stage begins a stage. Its owner calls End.
func (u *UI) Stage(name string) *Stage {
	if u == nil {
		return nil
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	now := u.now()
	s := &Stage{u: u, name: Plain(name), begun: now, said: now}
	if u.closed || u.opts.Quiet {
		return s
	}
	u.stages = append(u.stages, s)
	switch {
	case u.opts.JSON:
		u.line(Line{Type: "start", Stage: s.name})
	case u.opts.Terminal:
		u.redraw()
	default:
		u.print("kbisect: " + s.name)
	}
	return s
}

// Set says how far it is; total is 0 when that is not known.
func (s *Stage) Set(done, total int64) {
	if s == nil {
		return
	}
	s.u.mu.Lock()
	defer s.u.mu.Unlock()
	s.done, s.total = done, total
	s.show()
}

// SetBytes is Set of a number of bytes.
func (s *Stage) SetBytes(done, total int64) {
	if s == nil {
		return
	}
	s.u.mu.Lock()
	s.bytes = true
	s.u.mu.Unlock()
	s.Set(done, total)
}

// count prints done or total.
func (s *Stage) count(n int64) string {
	if s.bytes {
		return humanize.IBytes(uint64(max(n, 0)))
	}
	return strconv.FormatInt(n, 10)
}

// Note says what it does at the moment; "" takes the last note back.
func (s *Stage) Note(note string) {
	if s == nil {
		return
	}
	s.u.mu.Lock()
	defer s.u.mu.Unlock()
	s.note = Plain(strings.ReplaceAll(note, "\n", " "))
	if s.u.opts.Verbose && !s.ended && note != "" && s.u.wants("info") && !s.u.opts.JSON {
		s.u.print("kbisect: " + s.name + ": " + s.note)
		return
	}
	s.show()
}

// End ends the stage and says how long it took, or that it failed with err. A
// second End does nothing.
func (s *Stage) End(err error) {
	if s == nil {
		return
	}
	u := s.u
	u.mu.Lock()
	defer u.mu.Unlock()
	if s.ended {
		return
	}
	s.ended = true
	u.stages = slices.DeleteFunc(u.stages, func(o *Stage) bool { return o == s })
	if !u.wants("info") {
		return
	}
	took := u.now().Sub(s.begun)
	l := Line{Type: "end", Stage: s.name, Done: s.done, Total: s.total, Seconds: took.Seconds()}
	text := fmt.Sprintf("kbisect: %s: done in %s", s.name, Span(took))
	if err != nil {
		l.Error = Plain(err.Error())
		// The error itself is printed once, by whoever ends the program.
		ended := "failed"
		if errors.Is(err, context.Canceled) {
			ended = "stopped"
		}
		text = fmt.Sprintf("kbisect: %s: %s after %s", s.name, ended, Span(took))
	}
	if u.opts.JSON {
		u.line(l)
		return
	}
	u.print(text)
}

// show brings a change to the screen when it is time for it.
func (s *Stage) show() {
	if s.ended {
		return
	}
	if s.u.opts.Terminal {
		s.u.draw()
		return
	}
	s.beat()
}

// beat prints a plain line if the last one is ten seconds old.
func (s *Stage) beat() {
	u := s.u
	now := u.now()
	if u.closed || u.opts.Quiet || s.ended || now.Sub(s.said) < heartbeat {
		return
	}
	s.said = now
	if u.opts.JSON {
		u.line(Line{Type: "progress", Stage: s.name, Text: s.note, Done: s.done, Total: s.total,
			Seconds: now.Sub(s.begun).Seconds(), ETA: s.eta().Seconds()})
		return
	}
	u.print("kbisect: " + s.status())
}

// line prints one JSON object. It does not look at Quiet: its callers do.
func (u *UI) line(l Line) {
	b, err := json.Marshal(l)
	if err != nil {
		return // a Line of strings and numbers always encodes
	}
	u.print(string(b))
}

// status is a running stage in one line:
//
//	build 6.1.192: 1200 of 2400 (50 %), 1 min 30 s, 1 min 30 s left: note
func (s *Stage) status() string {
	var parts []string
	if s.total > 0 {
		parts = append(parts, fmt.Sprintf("%s of %s (%d %%)", s.count(s.done), s.count(s.total), 100*min(s.done, s.total)/s.total))
	} else if s.done > 0 {
		parts = append(parts, s.count(s.done))
	}
	parts = append(parts, Span(s.u.now().Sub(s.begun)))
	if left := s.eta(); left > 0 {
		parts = append(parts, Span(left)+" left")
	}
	text := s.name + ": " + strings.Join(parts, ", ")
	if s.note != "" {
		text += ": " + s.note
	}
	return text
}

// eta is the time left at the stage's mean rate, 0 when it cannot be told: with
// less than 2 % done or 2 s gone the guess would only jump about.
func (s *Stage) eta() time.Duration {
	gone := s.u.now().Sub(s.begun)
	if s.total <= 0 || s.done >= s.total || s.done*50 < s.total || gone < 2*time.Second {
		return 0
	}
	return time.Duration(float64(gone) * float64(s.total-s.done) / float64(s.done))
}

// Span prints a time as people say it: "0.4 s", "12 s", "4 min 40 s", "2 h 5 min".
func Span(d time.Duration) string {
	if d < 9950*time.Millisecond {
		return fmt.Sprintf("%.1f s", max(d, 0).Seconds())
	}
	d = d.Round(time.Second)
	h, m, s := int(d.Hours()), int(d.Minutes())%60, int(d.Seconds())%60
	switch {
	case h > 0:
		return fmt.Sprintf("%d h %d min", h, m)
	case m > 0:
		return fmt.Sprintf("%d min %d s", m, s)
	}
	return fmt.Sprintf("%d s", s)
}
