package agent

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"

	"github.com/HdrHistogram/hdrhistogram-go"
	"github.com/kbisect/kbisect/guest/proto"
	"github.com/kbisect/kbisect/guest/workload"
)

// The histograms' range: 1 ns to an hour, in three digits: 270 KiB each.
const (
	histogramMax    = int64(3600e9)
	histogramDigits = 3
)

// progressEvery is the least time between two progress records.
const progressEvery = int64(1e9)

// recorder is the workload's Recorder. It holds everything until the run is over,
// so that no write falls into a measurement. It has a lock because a run that
// passes its limit is reported while its thread goes on.
type recorder struct {
	w   *proto.Writer
	now func() int64

	mu      sync.Mutex
	values  map[string]*value
	order   []string // of values, sorted
	checks  []proto.Check
	sealed  bool  // the run is over for us: what its thread still says is dropped
	err     error // the workload's first mistake
	phaseAt int64
	toldAt  int64
	opsDone int64
	output  transcript
}

// value is one metric or distribution.
type value struct {
	def      workload.Metric
	set      bool
	number   float64
	censored bool

	hist    *hdrhistogram.Histogram
	dist    proto.Dist
	samples []int64
}

func newRecorder(w *proto.Writer, now func() int64, metrics []workload.Metric) (*recorder, error) {
	r := &recorder{w: w, now: now, values: map[string]*value{}}
	for _, m := range metrics {
		v := &value{def: m}
		if m.Dist {
			v.hist = hdrhistogram.New(1, histogramMax, histogramDigits)
			// All of it now: growing it later would happen between two operations.
			v.samples = make([]int64, 0, proto.MaxSamples)
		}
		if r.values[m.Name] != nil {
			return nil, fmt.Errorf("metric %q is declared twice", m.Name)
		}
		r.values[m.Name] = v
		r.order = append(r.order, m.Name)
	}
	slices.Sort(r.order)
	return r, nil
}

// Phase implements workload.Recorder.
func (r *recorder) Phase(name string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.sealed {
		return
	}
	r.mistake(r.w.Phase(name))
	r.phaseAt = r.now()
	r.opsDone = 0
}

// Progress implements workload.Recorder.
func (r *recorder) Progress(done, total int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.opsDone = done
	if at := r.now(); !r.sealed && at-r.toldAt >= progressEvery {
		r.toldAt = at
		r.mistake(r.w.Progress(done, total))
	}
}

// Metric implements workload.Recorder.
func (r *recorder) Metric(name string, number float64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	v := r.values[name]
	switch {
	case r.sealed:
	case v == nil || v.def.Dist:
		r.mistake(fmt.Errorf("the workload reported %q, which is no metric of it", name))
	case v.set:
		r.mistake(fmt.Errorf("the workload reported %q twice", name))
	default:
		v.set, v.number = true, number
	}
}

// Observe implements workload.Recorder.
func (r *recorder) Observe(name string, number int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	v := r.values[name]
	if r.sealed {
		return
	}
	switch {
	case v == nil || !v.def.Dist:
		r.mistake(fmt.Errorf("the workload reported %q, which is no distribution of it", name))
	case number < 0:
		r.mistake(fmt.Errorf("the workload reported %d for %q, which cannot be", number, name))
	default:
		v.observe(number)
	}
}

func (v *value) observe(number int64) {
	d := &v.dist
	if !v.set || number < d.Min {
		d.Min = number
	}
	v.set = true
	d.Max = max(d.Max, number)
	d.N++
	d.Sum += number
	if len(v.samples) < proto.MaxSamples {
		v.samples = append(v.samples, number)
	}
	// Beyond the range the quantiles say the range; Max stays exact.
	_ = v.hist.RecordValue(min(number, histogramMax))
}

// Check implements workload.Recorder.
func (r *recorder) Check(name string, want, got int64) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.sealed {
		r.checks = append(r.checks, proto.Check{Name: name, Want: want, Got: got, OK: want == got})
	}
	if want != got {
		return &workload.CheckError{Name: name, Want: want, Got: got}
	}
	return nil
}

// Define implements workload.Recorder.
func (r *recorder) Define(m workload.Metric) {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case r.sealed:
	case m.Dist || r.values[m.Name] != nil:
		r.mistake(fmt.Errorf("the workload defined %q, which is a distribution or there already", m.Name))
	default:
		r.values[m.Name] = &value{def: m}
		r.order = append(r.order, m.Name)
		slices.Sort(r.order)
	}
}

// Output implements workload.Recorder.
func (r *recorder) Output() io.Writer { return &r.output }

// mistake keeps the first error; the lock is held.
func (r *recorder) mistake(err error) {
	if r.err == nil {
		r.err = err
	}
}

// begun seals the recorder and returns how many operations were begun.
func (r *recorder) begun() int64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.sealed = true
	return r.opsDone + 1
}

// censor completes what the limit cut off. Every number that is still missing is
// at least as large as the time since the last phase began.
func (r *recorder) censor() {
	r.mu.Lock()
	defer r.mu.Unlock()
	atLeast := r.now() - r.phaseAt
	for _, v := range r.values {
		if v.def.Unit != proto.Nanoseconds {
			continue
		}
		switch {
		case v.def.Dist:
			// The operation that hangs began when those before it had ended.
			v.observe(max(0, atLeast-v.dist.Sum))
			v.dist.Censored++
		case !v.set:
			v.set, v.number, v.censored = true, float64(atLeast), true
		}
	}
}

// complete says what the workload did wrong in reporting.
func (r *recorder) complete() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.err != nil {
		return r.err
	}
	for _, name := range r.order {
		if !r.values[name].set {
			return fmt.Errorf("the workload did not report %q", name)
		}
	}
	return nil
}

// How many steps of the clock a reported time must have: a single number is off
// by up to one of them, a median of many by the same part of one each time.
const (
	coarse     = 20
	coarseMany = 5
	many       = 100
)

// tooShort returns the first time that is too short for a clock of such steps:
// of a distribution its median, as a single short operation is no reason to
// distrust the clock.
func (r *recorder) tooShort(step int64) (name string, ns int64, found bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, n := range r.order {
		v := r.values[n]
		if v.def.Unit != proto.Nanoseconds || v.def.Printed {
			continue
		}
		got, need := int64(v.number), int64(coarse)
		if v.def.Dist {
			got = v.hist.ValueAtQuantile(50)
		}
		if v.dist.N >= many {
			need = coarseMany
		}
		if got < need*step {
			return n, got, true
		}
	}
	return "", 0, false
}

// flushChecks writes the transcript and the checks: what helps to see why a run
// failed, and what it measured by.
func (r *recorder) flushChecks() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.sealed = true
	errs := []error{r.output.flush(r.w)}
	for _, c := range r.checks {
		errs = append(errs, r.w.Check(c))
	}
	return errors.Join(errs...)
}

// flush writes all numbers, by name.
func (r *recorder) flush() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, name := range r.order {
		if err := r.values[name].write(r.w); err != nil {
			return err
		}
	}
	return nil
}

func (v *value) write(w *proto.Writer) error {
	if !v.def.Dist {
		return w.Metric(proto.Metric{Name: v.def.Name, Unit: v.def.Unit, Better: v.def.Better, Value: v.number, Censored: v.censored})
	}
	d := v.dist
	d.Name, d.Unit, d.Better, d.Samples = v.def.Name, v.def.Unit, v.def.Better, v.samples
	// A histogram answers with the top of a bucket, which can lie beyond what was seen.
	at := func(q float64) int64 { return min(max(v.hist.ValueAtQuantile(q), d.Min), d.Max) }
	d.P50, d.P90, d.P99 = at(50), at(90), at(99)
	return w.Dist(d)
}
