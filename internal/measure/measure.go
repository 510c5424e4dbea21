// Package measure turns what one run reported into an outcome: named values with
// units, or the reason why there are none. It also has the threshold expressions
// that make an outcome good or bad, and prints values for people.
//
//	o := measure.Of(report, err)
//	t, err := measure.ParseThreshold("delete.p99>20ms", defs)
//	bad, err := t.Above(o)
//
// A value's name is the metric's, or metric.stat for a distribution:
// "elapsed", "delete.p99".
package measure

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"time"

	"github.com/kbisect/kbisect/guest/proto"
	"github.com/kbisect/kbisect/vm"
)

// Status says whether a run measured anything, and if not, whom that blames.
type Status int

// Statuses. The zero value is no outcome at all.
const (
	Unknown    Status = iota
	OK                // it measured
	Untestable        // the kernel cannot run the workload, or does not reach userspace
	Timeout           // still running at Limit: not a number, but longer than that
	Crash             // the kernel broke after it had booted
	Infra             // host, QEMU or channel: repeat it, it says nothing of the kernel
)

var statusNames = [...]string{"unknown", "ok", "untestable", "timeout", "crash", "infra"}

// String is the status in lower case, as stored.
func (s Status) String() string {
	if s < 0 || int(s) >= len(statusNames) {
		return fmt.Sprintf("status %d", int(s))
	}
	return statusNames[s]
}

// MarshalText is String, so that stored outcomes do not depend on the order above.
func (s Status) MarshalText() ([]byte, error) {
	if s < 0 || int(s) >= len(statusNames) {
		return nil, fmt.Errorf("encode status %d: no such status", int(s))
	}
	return []byte(statusNames[s]), nil
}

// UnmarshalText is the inverse of MarshalText.
func (s *Status) UnmarshalText(b []byte) error {
	i := slices.Index(statusNames[:], string(b))
	if i < 0 {
		return fmt.Errorf("decode status %q: no such status", b)
	}
	*s = Status(i)
	return nil
}

// Value is one number of a run in the unit's base: ns, a count, 1/s, ppm or B.
type Value struct {
	Number float64      `json:"number"`
	Unit   proto.Unit   `json:"unit"`
	Better proto.Better `json:"better"`
	// Censored is true when it was stopped at Number: the truth is larger.
	Censored bool `json:"censored,omitempty"`
}

// Outcome is what one run says of one kernel.
type Outcome struct {
	Status Status           `json:"status"`
	Reason string           `json:"reason,omitempty"` // why it is not OK
	Limit  time.Duration    `json:"limit_ns,omitempty"`
	Values map[string]Value `json:"values,omitempty"`
}

// Report is what the records of one run add up to.
type Report = proto.Report

// Of makes the outcome of a run from its records and the error that ended it,
// either of which may be nil. An error outranks the records: a kernel that
// panicked behind a complete report is not measured. An error that is none of
// package vm's is infra, and so are records without an end: they blame nobody;
// but an agent that said why it gave up is believed, however it then exited.
func Of(rep *Report, err error) Outcome {
	if err != nil {
		o := ofError(err)
		var exit *vm.ExitError
		if errors.As(err, &exit) && o.Status == Infra && rep != nil && rep.Fail != nil {
			return failed(rep.Fail)
		}
		if o.Status == Timeout && rep != nil {
			o.Values = values(rep) // what was finished before the limit is still true
		}
		return o
	}
	switch {
	case rep == nil:
		return Outcome{Status: Infra, Reason: "the agent sent no records"}
	case rep.Fail != nil:
		return failed(rep.Fail)
	case rep.Done == nil:
		return Outcome{Status: Infra, Reason: "the records end without done: nothing was measured"}
	case rep.Done.Ops <= 0:
		return Outcome{Status: Untestable, Reason: "the workload did no operation"}
	}
	for _, c := range rep.Checks {
		if !c.OK {
			return Outcome{Status: Untestable, Reason: fmt.Sprintf("check %q: want %d, got %d", c.Name, c.Want, c.Got)}
		}
	}
	return Outcome{Status: OK, Values: values(rep)}
}

func failed(f *proto.Fail) Outcome {
	return Outcome{Status: Untestable, Reason: fmt.Sprintf("workload %s: %s", f.Reason, f.Text)}
}

// ofError classes the error of a run.
func ofError(err error) Outcome {
	o := Outcome{Status: Infra, Reason: err.Error()}
	var boot *vm.BootError
	var crash *vm.CrashError
	var timeout *vm.TimeoutError
	var infra *vm.InfraError
	switch {
	case errors.As(err, &infra): // first: it may wrap one of the others
	case errors.As(err, &boot):
		o.Status = Untestable
	case errors.As(err, &crash):
		o.Status = Crash
	case errors.As(err, &timeout):
		o.Status, o.Limit = Timeout, timeout.Limit
	}
	return o
}

// values names every number of a report.
func values(rep *Report) map[string]Value {
	out := map[string]Value{}
	for _, m := range rep.Metrics {
		out[m.Name] = Value{Number: m.Value, Unit: m.Unit, Better: m.Better, Censored: m.Censored}
	}
	for _, d := range rep.Dists {
		addDist(out, d)
	}
	return out
}

// Stats are the names after the dot for a distribution, in the order shown.
func Stats() []string { return []string{"p50", "p90", "p99", "max", "min", "mean", "n"} }

// addDist names the statistics of a distribution. A quantile is censored when it
// falls among the operations that were stopped, which are the largest.
func addDist(out map[string]Value, d proto.Dist) {
	if d.N <= 0 {
		return
	}
	cut := func(q float64) bool {
		return d.Censored > 0 && int64(math.Ceil(q*float64(d.N))) > d.N-d.Censored
	}
	put := func(stat string, v float64, censored bool) {
		out[d.Name+"."+stat] = Value{Number: v, Unit: d.Unit, Better: d.Better, Censored: censored}
	}
	put("p50", float64(d.P50), cut(0.5))
	put("p90", float64(d.P90), cut(0.9))
	put("p99", float64(d.P99), cut(0.99))
	put("max", float64(d.Max), d.Censored > 0)
	put("min", float64(d.Min), d.Censored >= d.N)
	put("mean", float64(d.Sum)/float64(d.N), d.Censored > 0)
	out[d.Name+".n"] = Value{Number: float64(d.N), Unit: proto.Count, Better: proto.Higher}
}

// NoValueError says that an outcome has no such value.
type NoValueError struct {
	Name    string
	Status  Status
	Reason  string   // of the status
	Has     []string // sorted names of the values that there are
	Nearest string   // the one most like Name, "" if none is
}

func (e *NoValueError) Error() string {
	switch {
	case e.Status != OK:
		return fmt.Sprintf("read %q: run is %s: %s", e.Name, e.Status, e.Reason)
	case e.Nearest != "":
		return fmt.Sprintf("read %q: no such value; did you mean %q?", e.Name, e.Nearest)
	}
	return fmt.Sprintf("read %q: no such value; there are %s", e.Name, list(e.Has))
}

// Value reads one value as it was reported. The error is a *NoValueError; a run
// that is not OK has no values, whatever it reported before it ended.
func (o Outcome) Value(name string) (Value, error) {
	if v, ok := o.Values[name]; ok && o.Status == OK {
		return v, nil
	}
	has := slices.Sorted(maps.Keys(o.Values))
	return Value{}, &NoValueError{Name: name, Status: o.Status, Reason: o.Reason, Has: has, Nearest: nearest(name, has)}
}
