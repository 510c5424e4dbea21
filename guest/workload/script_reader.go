package workload

import (
	"errors"
	"fmt"
	"math"
	"regexp"
	"strconv"
	"strings"

	"github.com/kbisect/kbisect/guest/proto"
)

// Bounds of what is read from a script.
const (
	// MaxTimes is how many times of `time` are metrics; later ones are in the
	// transcript only. Three numbers each, of the protocol's 200 names.
	MaxTimes = 50
	// MaxScriptMetrics is how many kbisect-metric lines there may be.
	MaxScriptMetrics = 40
	maxScriptLine    = 4 << 10
	lastWords        = 3 // lines of output in an error
)

// number is one that a script printed.
type number struct {
	name  string
	unit  proto.Unit
	value float64
}

// scriptReader finds numbers in what a script prints: the three lines of bash's
// `time` (also with -p) and of time -p, the line of GNU time, and lines
// "kbisect-metric NAME VALUE UNIT". Lines of the trace begin with "+".
//
// A time that is printed as 0 counts as the smallest that its format can show
// (1 ms, or 10 ms of -p), since a ratio with 0 is none: a ratio to it is then a
// lower bound.
type scriptReader struct {
	metrics []number
	err     error // the first line that says kbisect-metric and cannot be read

	line  []byte // not yet whole
	cut   bool   // the line is longer than what is kept of it
	times int
	part  int        // of a `time`: how many of its lines were read
	spent [3]float64 // ns
	names map[string]bool
	tail  []string
}

// Write takes more output. It returns no error.
func (r *scriptReader) Write(p []byte) (int, error) {
	n := len(p)
	for len(p) > 0 {
		text, rest, whole := cutLine(p)
		p = rest
		if room := maxScriptLine - len(r.line); len(text) > room {
			text, r.cut = text[:room], true
		}
		r.line = append(r.line, text...)
		if whole {
			r.end()
		}
	}
	return n, nil
}

func cutLine(p []byte) (line, rest []byte, whole bool) {
	for i, c := range p {
		if c == '\n' {
			return p[:i], p[i+1:], true
		}
	}
	return p, nil, false
}

// end takes the line that is there, which its newline or the output's end made
// whole.
func (r *scriptReader) end() {
	line := strings.TrimSuffix(string(r.line), "\r")
	if !r.cut && line != "" {
		r.take(line)
	}
	r.line, r.cut = r.line[:0], false
}

func (r *scriptReader) take(line string) {
	if line[0] == '+' {
		return
	}
	if r.tail = append(r.tail, line); len(r.tail) > lastWords {
		r.tail = r.tail[1:]
	}
	if words := strings.Fields(line); len(words) > 0 && words[0] == "kbisect-metric" {
		if err := r.metric(words); err != nil && r.err == nil {
			r.err = fmt.Errorf("%q: %w", line, err)
		}
		return
	}
	r.time(line)
}

// last is what the script printed last.
func (r *scriptReader) last() string { return strings.Join(r.tail, " / ") }

var (
	timeLine = regexp.MustCompile(`^(real|user|sys)[ \t]*(?:(\d+)m)?(\d+)[.,](\d+)s?$`)
	gnuTime  = regexp.MustCompile(`^(\d+\.\d+)user (\d+\.\d+)system (?:(\d+):)?(\d+):(\d+(?:\.\d+)?)elapsed `)
)

// time takes a line of what `time` prints: real, user and sys in turn, or all in
// the one of GNU time.
func (r *scriptReader) time(line string) {
	if m := gnuTime.FindStringSubmatch(line); m != nil {
		real := 3600*parse(m[3]) + 60*parse(m[4]) + parse(m[5])
		r.spent = [3]float64{atLeast(real, 10), atLeast(parse(m[1]), 10), atLeast(parse(m[2]), 10)}
		r.addTime()
		return
	}
	m := timeLine.FindStringSubmatch(line)
	if m == nil {
		r.part = 0
		return
	}
	order := map[string]int{"real": 0, "user": 1, "sys": 2}[m[1]]
	if order != r.part {
		if r.part = 0; order != 0 {
			return
		}
	}
	smallest := math.Pow(10, float64(3-len(m[4]))) // ms
	r.spent[r.part] = atLeast(60*parse(m[2])+parse(m[3]+"."+m[4]), smallest)
	if r.part++; r.part == len(r.spent) {
		r.part = 0
		r.addTime()
	}
}

// parse reads digits that a regular expression has checked; "" is 0.
func parse(digits string) float64 {
	v, err := strconv.ParseFloat(digits, 64)
	if err != nil {
		return 0
	}
	return v
}

// atLeast turns seconds into ns, and 0 into the smallest number that was possible.
func atLeast(seconds, smallestMS float64) float64 {
	return math.Max(seconds*1e9, smallestMS*1e6)
}

func (r *scriptReader) addTime() {
	if r.times++; r.times > MaxTimes {
		return
	}
	for i, part := range []string{"real", "user", "sys"} {
		r.metrics = append(r.metrics, number{TimeMetric(r.times, part), proto.Nanoseconds, r.spent[i]})
	}
}

// TimeMetric is the name of what the nth `time` of a script printed, from 1:
// "time[1].real". part is real, user or sys.
func TimeMetric(n int, part string) string { return fmt.Sprintf("time[%d].%s", n, part) }

// scriptUnits are the units of kbisect-metric, each with the one that its numbers
// are converted to and the factor.
var scriptUnits = map[string]struct {
	unit   proto.Unit
	factor float64
}{
	"ns": {proto.Nanoseconds, 1}, "us": {proto.Nanoseconds, 1e3}, "µs": {proto.Nanoseconds, 1e3}, "ms": {proto.Nanoseconds, 1e6},
	"s": {proto.Nanoseconds, 1e9}, "m": {proto.Nanoseconds, 60e9}, "min": {proto.Nanoseconds, 60e9},
	"count": {proto.Count, 1}, "": {proto.Count, 1},
	"1/s": {proto.PerSecond, 1}, "/s": {proto.PerSecond, 1}, "ppm": {proto.PerMillion, 1},
	"B": {proto.Bytes, 1}, "KiB": {proto.Bytes, 1 << 10}, "MiB": {proto.Bytes, 1 << 20}, "GiB": {proto.Bytes, 1 << 30},
}

// ScriptUnit returns the unit that numbers in the given one are kept in, and how
// many of those it is; "" is a count. ok is false for a unit that is not known.
func ScriptUnit(name string) (unit proto.Unit, factor float64, ok bool) {
	u, ok := scriptUnits[name]
	return u.unit, u.factor, ok
}

// metricName is that of a metric of the protocol, short enough for it.
var metricName = regexp.MustCompile(`^[a-z][a-z0-9_-]{0,63}$`)

// metric takes a line "kbisect-metric NAME VALUE [UNIT]".
func (r *scriptReader) metric(words []string) error {
	if len(words) != 3 && len(words) != 4 {
		return errors.New("want kbisect-metric NAME VALUE UNIT")
	}
	name, unit := words[1], ""
	if len(words) == 4 {
		unit = words[3]
	}
	value, err := strconv.ParseFloat(words[2], 64)
	u, factor, known := ScriptUnit(unit)
	switch {
	case !metricName.MatchString(name):
		return fmt.Errorf("%q is no name: want lower-case letters, digits, - and _", name)
	case name == "elapsed" || name == "exit" || r.names[name]:
		return fmt.Errorf("there is a number %q already: a name is reported once a run", name)
	case err != nil || math.IsNaN(value) || math.IsInf(value*factor, 0) || value < 0:
		return fmt.Errorf("%q is no number of 0 or more", words[2])
	case !known:
		return fmt.Errorf("unit %q is not known: want ns, us, ms, s, count, 1/s, ppm, B, KiB or MiB", unit)
	case len(r.names) >= MaxScriptMetrics:
		return fmt.Errorf("more than %d numbers", MaxScriptMetrics)
	}
	if r.names == nil {
		r.names = map[string]bool{}
	}
	r.names[name] = true
	r.metrics = append(r.metrics, number{name, u, value * factor})
	return nil
}
