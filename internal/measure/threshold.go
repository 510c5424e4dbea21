package measure

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/xrash/smetrics"

	"github.com/kbisect/kbisect/guest/proto"
)

// Def announces a metric: what a workload will report.
type Def struct {
	Name   string       `json:"name"`
	Unit   proto.Unit   `json:"unit"`
	Better proto.Better `json:"better"`
	Dist   bool         `json:"dist"` // a distribution: used with a stat, "delete.p99"
	About  string       `json:"about"`
	// Exposure and Among name the metrics that belong to a count of rare events:
	// how long they could have happened, in ns, and among how many things.
	Exposure string `json:"exposure,omitempty"`
	Among    string `json:"among,omitempty"`
}

// Names returns the value names that defs give, in their order.
func Names(defs []Def) []string {
	var out []string
	for _, d := range defs {
		if !d.Dist {
			out = append(out, d.Name)
			continue
		}
		for _, s := range Stats() {
			out = append(out, d.Name+"."+s)
		}
	}
	return out
}

// Op is a threshold's comparison.
type Op string

// Comparisons.
const (
	Greater      Op = ">"
	GreaterEqual Op = ">="
	Less         Op = "<"
	LessEqual    Op = "<="
)

// Metric selects one value of a run.
type Metric struct {
	Name   string       `json:"name"` // "elapsed", "delete.p99"
	Unit   proto.Unit   `json:"unit"`
	Better proto.Better `json:"better"`
	// TimeoutIsBad makes a run that hit its limit count as a bad one instead of
	// as one that could not be tested. Parsing leaves it false.
	TimeoutIsBad bool `json:"timeout_is_bad,omitempty"`
	// Exposure and Among are those of Def: set for a count of rare events.
	Exposure string `json:"exposure,omitempty"`
	Among    string `json:"among,omitempty"`
}

// Of reads the value from an outcome; the error is a *NoValueError when there is
// none. With TimeoutIsBad a run that hit its limit has the worst one: a duration
// of the whole run is "longer than the limit"; of a smaller number nothing is
// known but that it is large (censored at 0); a rate is 0.
func (m Metric) Of(o Outcome) (Value, error) {
	if o.Status != Timeout || !m.TimeoutIsBad {
		return o.Value(m.Name)
	}
	if v, ok := o.Values[m.Name]; ok {
		return v, nil
	}
	v := Value{Unit: m.Unit, Better: m.Better, Censored: m.Better != proto.Higher}
	if m.spansRun() {
		v.Number = float64(o.Limit)
	}
	return v, nil
}

// spansRun reports whether a run's limit bounds the value from below: it is a
// duration, and not that of one operation of many.
func (m Metric) spansRun() bool {
	return m.Unit == proto.Nanoseconds && m.Better != proto.Higher && !strings.Contains(m.Name, ".")
}

// Threshold is "bad when the value is above (or below) this number".
type Threshold struct {
	Metric
	Op     Op      `json:"op"`
	Number float64 `json:"number"` // in the unit's base
}

// String is the expression that ParseThreshold reads back to the same threshold.
func (t Threshold) String() string {
	return t.Name + string(t.Op) + exact(t.Number, t.Unit)
}

// ErrCensored says that a run was stopped before it could be told on which side
// of the threshold it is.
var ErrCensored = errors.New("stopped before the threshold: cannot be told")

// Above reports whether the outcome meets the expression, whatever its
// comparison. A value that is censored at a limit meets "> number" when the
// limit is at or above the number, and is unknown (an error that wraps
// ErrCensored) otherwise; with "<" it is false or unknown. An outcome without
// the value is a *NoValueError, except that a timeout with TimeoutIsBad meets a
// threshold on anything that the limit does not bound.
func (t Threshold) Above(o Outcome) (bool, error) {
	v, err := t.Of(o)
	if err != nil {
		return false, err
	}
	if _, reported := o.Values[t.Name]; !reported && !t.spansRun() {
		return true, nil // a timeout stands for a count, a rate or one operation's time
	}
	if v.Unit != t.Unit {
		return false, fmt.Errorf("compare %q: run has unit %q, threshold has %q", t.Name, v.Unit, t.Unit)
	}
	if v.Censored && v.Number < t.Number {
		return false, fmt.Errorf("compare %q, %s, with %s: %w", t.Name, Format(v), FormatNumber(t.Number, t.Unit), ErrCensored)
	}
	switch t.Op {
	case Greater:
		return v.Number > t.Number || v.Censored, nil
	case GreaterEqual:
		return v.Number >= t.Number, nil
	case Less:
		return v.Number < t.Number, nil
	case LessEqual:
		return v.Number <= t.Number && !v.Censored, nil
	}
	return false, fmt.Errorf("compare %q: %q is no comparison", t.Name, t.Op)
}

// SyntaxError says where a threshold expression is wrong.
type SyntaxError struct {
	Expr   string
	Column int    // 1-based, in characters
	Text   string // what is wrong there, and what is allowed
}

func (e *SyntaxError) Error() string {
	return fmt.Sprintf("parse %q: column %d: %s", e.Expr, e.Column, e.Text)
}

// Caret is the expression with a mark below the wrong column, for a terminal.
func (e *SyntaxError) Caret() string {
	return e.Expr + "\n" + strings.Repeat(" ", e.Column-1) + "^"
}

// maxExpr bounds an expression; the longest sensible one has some 60 bytes.
const maxExpr = 200

// ParseThreshold reads metric[.stat]OPvalue[unit]: OP is > >= < or <=, the unit
// must fit the metric's (ns us ms s m for durations, k M G for counts and rates,
// /s, ppm, KiB MiB GiB), and a duration other than 0 needs one. Blanks around the parts
// are allowed. defs are the metrics that the workload reports. Errors are
// *SyntaxError.
func ParseThreshold(expr string, defs []Def) (Threshold, error) {
	p := parser{expr: expr}
	if len(expr) > maxExpr || !utf8.ValidString(expr) {
		return Threshold{}, p.errorf(0, "too long, or not text")
	}
	at := strings.IndexAny(expr, "<>=")
	if at < 0 {
		return Threshold{}, p.errorf(len(expr), "want a comparison (> >= < <=) and a number")
	}
	m, err := p.metric(expr[:at], defs)
	if err != nil {
		return Threshold{}, err
	}
	op, rest, err := p.op(at)
	if err != nil {
		return Threshold{}, err
	}
	n, err := p.number(rest, m.Unit)
	if err != nil {
		return Threshold{}, err
	}
	return Threshold{Metric: m, Op: op, Number: n}, nil
}

// ParseMetric reads metric[.stat] alone. Errors are *SyntaxError.
func ParseMetric(name string, defs []Def) (Metric, error) {
	p := parser{expr: name}
	if len(name) > maxExpr || !utf8.ValidString(name) {
		return Metric{}, p.errorf(0, "too long, or not text")
	}
	return p.metric(name, defs)
}

type parser struct{ expr string }

// errorf makes an error at a byte offset.
func (p parser) errorf(offset int, format string, args ...any) error {
	col := 1 + utf8.RuneCountInString(p.expr[:offset])
	return &SyntaxError{Expr: p.expr, Column: col, Text: fmt.Sprintf(format, args...)}
}

// metric reads name[.stat] from the beginning of the expression.
func (p parser) metric(name string, defs []Def) (Metric, error) {
	at := len(name) - len(strings.TrimLeft(name, " \t"))
	name = strings.TrimSpace(name)
	base, stat, dotted := strings.Cut(name, ".")
	if i := slices.IndexFunc(defs, func(d Def) bool { return d.Name == name && !d.Dist }); i >= 0 {
		base, dotted = name, false // a name with a dot of its own: time[1].real
	}
	i := slices.IndexFunc(defs, func(d Def) bool { return d.Name == base })
	if i < 0 {
		return Metric{}, p.errorf(at, "no metric %q%s; there are %s", base, hint(base, bases(defs)), list(Names(defs)))
	}
	d, at := defs[i], at+len(base)
	m := Metric{Name: name, Unit: d.Unit, Better: d.Better, Exposure: d.Exposure, Among: d.Among}
	switch {
	case d.Dist && !dotted:
		return Metric{}, p.errorf(at, "%s is a distribution: say which of %s.{%s}", base, base, strings.Join(Stats(), ","))
	case !d.Dist && dotted:
		return Metric{}, p.errorf(at, "%s is a single number: write it without .%s", base, stat)
	case d.Dist && !slices.Contains(Stats(), stat):
		return Metric{}, p.errorf(at+1, "no statistic %q%s; there are %s", stat, hint(stat, Stats()), list(Stats()))
	case d.Dist && stat == "n":
		m.Unit, m.Better = proto.Count, proto.Higher
	}
	return m, nil
}

// op reads the comparison at a byte offset and returns the offset behind it.
func (p parser) op(at int) (Op, int, error) {
	for _, o := range []Op{GreaterEqual, LessEqual, Greater, Less} {
		if strings.HasPrefix(p.expr[at:], string(o)) {
			return o, at + len(o), nil
		}
	}
	return "", 0, p.errorf(at, "want one of > >= < <=")
}

// number reads value and unit from a byte offset to the end.
func (p parser) number(at int, unit proto.Unit) (float64, error) {
	rest := p.expr[at:]
	at += len(rest) - len(strings.TrimLeft(rest, " \t"))
	rest = strings.TrimSpace(rest)
	end := strings.IndexFunc(rest, func(r rune) bool { return (r < '0' || r > '9') && r != '.' && r != '_' })
	if end < 0 {
		end = len(rest)
	}
	if end == 0 {
		return 0, p.errorf(at, "want a number")
	}
	v, err := strconv.ParseFloat(strings.ReplaceAll(rest[:end], "_", ""), 64)
	if err != nil || math.IsInf(v, 0) {
		return 0, p.errorf(at, "%q is not a number", rest[:end])
	}
	suffix := strings.TrimSpace(rest[end:])
	at += end + strings.Index(rest[end:], suffix)
	if unit == proto.Nanoseconds && suffix == "" && v == 0 {
		return 0, nil
	}
	f, ok := factor(suffix, unit)
	if !ok {
		return 0, p.errorf(at, "unit %q does not fit; want %s", suffix, list(suffixes(unit)))
	}
	if v *= f; math.IsInf(v, 0) {
		return 0, p.errorf(at, "number too large")
	}
	return v, nil
}

// bases returns the metric names of defs.
func bases(defs []Def) []string {
	out := make([]string, len(defs))
	for i, d := range defs {
		out[i] = d.Name
	}
	return out
}

func list(names []string) string {
	if len(names) == 0 {
		return "none"
	}
	return strings.Join(names, ", ")
}

func hint(name string, known []string) string {
	if n := nearest(name, known); n != "" {
		return fmt.Sprintf(" (did you mean %q?)", n)
	}
	return ""
}

// nearest returns the known name most like name, "" when none is like it.
func nearest(name string, known []string) string {
	const likeness = 0.75 // Jaro-Winkler; below it a suggestion is more often wrong than right
	best, score := "", likeness
	for _, k := range known {
		if s := smetrics.JaroWinkler(strings.ToLower(name), k, 0.7, 4); s > score {
			best, score = k, s
		}
	}
	return best
}
