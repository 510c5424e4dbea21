package proto

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"unicode/utf8"
)

// Writer writes a stream on the agent's side. It checks every record as the
// host will, so that a mistake shows where it was made. Methods block as the
// underlying writer does; a Writer is for one goroutine.
type Writer struct {
	w   io.Writer
	now func() int64
}

// NewWriter returns a Writer on w. now is the monotonic clock in ns since the
// agent's start.
func NewWriter(w io.Writer, now func() int64) *Writer { return &Writer{w: w, now: now} }

// Hello begins the stream.
func (w *Writer) Hello(h Hello) error { return w.write(Record{Kind: KindHello, Hello: &h}) }

// Phase says that a part of the workload begins.
func (w *Writer) Phase(name string) error {
	return w.write(Record{Kind: KindPhase, Phase: CleanText(name)})
}

// Progress says how far the phase is.
func (w *Writer) Progress(done, total int64) error {
	return w.write(Record{Kind: KindProgress, Progress: &Progress{Done: done, Total: total}})
}

// Metric reports one number.
func (w *Writer) Metric(m Metric) error { return w.write(Record{Kind: KindMetric, Metric: &m}) }

// Dist reports a distribution.
func (w *Writer) Dist(d Dist) error { return w.write(Record{Kind: KindDist, Dist: &d}) }

// Check reports something verified.
func (w *Writer) Check(c Check) error { return w.write(Record{Kind: KindCheck, Check: &c}) }

// Output passes on what a program printed, cleaned and in as many records as it
// takes.
func (w *Writer) Output(text string) error {
	text = strings.ToValidUTF8(text, "?")
	for len(text) > 0 {
		n := min(len(text), MaxText)
		for n < len(text) && !utf8.RuneStart(text[n]) {
			n--
		}
		if err := w.write(Record{Kind: KindOutput, Output: CleanText(text[:n])}); err != nil {
			return err
		}
		text = text[n:]
	}
	return nil
}

// Fail ends a stream that measured nothing.
func (w *Writer) Fail(reason FailReason, text string) error {
	return w.write(Record{Kind: KindFail, Fail: &Fail{Reason: reason, Text: CleanText(text)}})
}

// Done ends a stream that measured.
func (w *Writer) Done(nonce string, ops int64) error {
	return w.write(Record{Kind: KindDone, Done: &Done{Nonce: nonce, Ops: ops}})
}

// write sends one record as one line in one Write, so that a killed agent leaves
// a whole line or the beginning of one, never two mixed.
func (w *Writer) write(r Record) error {
	r.V, r.At = Version, w.now()
	if err := r.Validate(); err != nil {
		return fmt.Errorf("write %s record: %w", r.Kind, err)
	}
	line, err := json.Marshal(r)
	if err != nil {
		return fmt.Errorf("write %s record: %w", r.Kind, err)
	}
	if len(line) >= MaxLine {
		return fmt.Errorf("write %s record: %d bytes, at most %d are taken", r.Kind, len(line), MaxLine)
	}
	if _, err := w.w.Write(append(line, '\n')); err != nil {
		return fmt.Errorf("write %s record: %w", r.Kind, err)
	}
	return nil
}
