package proto

import (
	"bufio"
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
)

// Errors of a stream. Each comes wrapped with the line it is about.
var (
	// ErrGarbage is a line that is no record, or one that cannot be where it stands.
	ErrGarbage = errors.New("not a record stream")
	// ErrVersion is a record of another protocol version. It is also an ErrGarbage.
	ErrVersion = errors.New("another protocol version")
	// ErrTooMuch is a stream beyond one of the limits. It is also an ErrGarbage.
	ErrTooMuch = errors.New("more than the limit")
	// ErrNoDone is a stream that ended without done or fail: it measured nothing.
	ErrNoDone = errors.New("the record stream ended without its done")
	// ErrNonce is a done with another nonce: it is of another run.
	ErrNonce = errors.New("the record stream is another run's")
)

// GarbageError says which line of a stream was not understood, and why. It is an
// ErrGarbage.
type GarbageError struct {
	Line    int    // from 1
	Excerpt string // its beginning, made safe to print
	Err     error
}

func (e *GarbageError) Error() string {
	return fmt.Sprintf("%v: line %d: %v (%q)", ErrGarbage, e.Line, e.Err, e.Excerpt)
}

// Unwrap lets errors.Is find ErrGarbage and the cause.
func (e *GarbageError) Unwrap() []error { return []error{ErrGarbage, e.Err} }

// Reader reads records from a stream that nobody vouches for. It buffers one
// line, so at most MaxLine bytes, and is for one goroutine.
type Reader struct {
	r    *bufio.Reader
	line int
	text []byte // the current line
	err  error  // what ended it
}

// NewReader returns a Reader on r.
func NewReader(r io.Reader) *Reader { return &Reader{r: bufio.NewReaderSize(r, 64<<10)} }

// Next returns the next record, checked by itself (Record.Validate), or io.EOF
// at the end. After an error it returns the same error again. It blocks as the
// underlying reader does; its owner ends a blocked one by closing that.
func (r *Reader) Next() (Record, error) {
	if r.err != nil {
		return Record{}, r.err
	}
	rec, err := r.next()
	r.err = err
	return rec, err
}

func (r *Reader) next() (Record, error) {
	var rec Record
	if err := r.readLine(); err != nil {
		return rec, err
	}
	dec := json.NewDecoder(bytes.NewReader(r.text))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&rec); err != nil {
		return rec, r.garbage(err)
	}
	if _, err := dec.Token(); err != io.EOF {
		return rec, r.garbage(errors.New("more than one value in the line"))
	}
	if err := rec.Validate(); err != nil {
		return rec, r.garbage(err)
	}
	return rec, nil
}

// readLine reads one line of at most MaxLine bytes. A last line without its
// newline was cut off, and is no record.
func (r *Reader) readLine() error {
	r.line++
	r.text = r.text[:0]
	for {
		part, err := r.r.ReadSlice('\n')
		r.text = append(r.text, part...)
		switch {
		case len(r.text) > MaxLine:
			return r.garbage(fmt.Errorf("%w of %d bytes a line", ErrTooMuch, MaxLine))
		case err == nil:
			if r.line > MaxRecords {
				return r.garbage(fmt.Errorf("%w of %d records", ErrTooMuch, MaxRecords))
			}
			return nil
		case err == bufio.ErrBufferFull:
			continue
		case err == io.EOF && len(r.text) > 0:
			return r.garbage(io.ErrUnexpectedEOF)
		case err == io.EOF:
			return io.EOF
		default:
			return fmt.Errorf("read record stream: %w", err)
		}
	}
}

func (r *Reader) garbage(err error) error {
	excerpt := r.text[:min(len(r.text), 120)]
	return &GarbageError{Line: r.line, Excerpt: CleanText(string(bytes.TrimRight(excerpt, "\n"))), Err: err}
}

// Report is a whole stream. Exactly one of Done and Fail is set in one that
// Collect returned without an error.
type Report struct {
	Hello   *Hello   `json:"hello,omitempty"`
	Metrics []Metric `json:"metrics"`          // by name
	Dists   []Dist   `json:"dists"`            // by name
	Checks  []Check  `json:"checks"`           // by name
	Output  string   `json:"output,omitempty"` // all of it
	Done    *Done    `json:"done,omitempty"`
	Fail    *Fail    `json:"fail,omitempty"`
}

// Collect reads a stream to its end and returns what it said. on, when not nil,
// is called for each record in order, before the stream is known to be whole.
//
// With an error (ErrGarbage, ErrNoDone, ErrNonce, or of r) the report holds what
// came before it, to show and not to measure by. Collect stops reading at the
// first error: the owner of r then ends whoever writes.
func Collect(r io.Reader, nonce string, on func(Record)) (*Report, error) {
	c := collector{nonce: nonce, names: map[string]bool{}}
	defer c.sort()
	defer func() { c.rep.Output = c.output.String() }()
	records := NewReader(r)
	for {
		rec, err := records.Next()
		if err == io.EOF {
			return &c.rep, c.end()
		}
		if err != nil {
			return &c.rep, err
		}
		if err := c.take(rec); errors.Is(err, ErrNonce) {
			return &c.rep, err
		} else if err != nil {
			return &c.rep, records.garbage(err)
		}
		if on != nil {
			on(rec)
		}
	}
}

// collector holds a stream's state.
type collector struct {
	nonce  string
	rep    Report
	names  map[string]bool
	at     int64
	failed string // name of a check that was not OK
	output bytes.Buffer
}

// take adds one record, or says why it cannot stand here.
func (c *collector) take(r Record) error {
	switch {
	case c.rep.Done != nil || c.rep.Fail != nil:
		return errors.New("a record after the last")
	case r.At < c.at:
		return fmt.Errorf("time went back from %d to %d", c.at, r.At)
	case (c.rep.Hello == nil) && r.Kind != KindHello && r.Kind != KindFail:
		return errors.New("the first record is no hello")
	}
	c.at = r.At
	switch r.Kind {
	case KindHello:
		if c.rep.Hello != nil {
			return errors.New("a second hello")
		}
		c.rep.Hello = r.Hello
	case KindMetric:
		c.rep.Metrics = append(c.rep.Metrics, *r.Metric)
		return c.name("value", r.Metric.Name)
	case KindDist:
		c.rep.Dists = append(c.rep.Dists, *r.Dist)
		return c.name("value", r.Dist.Name)
	case KindCheck:
		c.rep.Checks = append(c.rep.Checks, *r.Check)
		if !r.Check.OK {
			c.failed = r.Check.Name
		}
		return c.name("check", r.Check.Name)
	case KindOutput:
		if c.output.Len()+len(r.Output) > MaxOutput {
			return fmt.Errorf("%w of %d bytes of output", ErrTooMuch, MaxOutput)
		}
		c.output.WriteString(r.Output)
	case KindFail:
		c.rep.Fail = r.Fail
	case KindDone:
		return c.done(r.Done)
	}
	return nil
}

// name counts the names of metrics, dists and checks, each of which comes once.
func (c *collector) name(kind, name string) error {
	key := kind + " " + name
	if c.names[key] {
		return fmt.Errorf("a second %s named %q", kind, short(name))
	}
	c.names[key] = true
	if len(c.names) > MaxNames {
		return fmt.Errorf("%w of %d names", ErrTooMuch, MaxNames)
	}
	return nil
}

func (c *collector) done(d *Done) error {
	if d.Nonce != c.nonce {
		return fmt.Errorf("%w: nonce %q, want %q", ErrNonce, short(d.Nonce), c.nonce)
	}
	if c.failed != "" {
		return fmt.Errorf("done although the check %q failed", c.failed)
	}
	if len(c.rep.Metrics)+len(c.rep.Dists) == 0 {
		return errors.New("done without a metric")
	}
	c.rep.Done = d
	return nil
}

func (c *collector) end() error {
	if c.rep.Done == nil && c.rep.Fail == nil {
		return ErrNoDone
	}
	return nil
}

func (c *collector) sort() {
	slices.SortFunc(c.rep.Metrics, func(a, b Metric) int { return cmp.Compare(a.Name, b.Name) })
	slices.SortFunc(c.rep.Dists, func(a, b Dist) int { return cmp.Compare(a.Name, b.Name) })
	slices.SortFunc(c.rep.Checks, func(a, b Check) int { return cmp.Compare(a.Name, b.Name) })
}
