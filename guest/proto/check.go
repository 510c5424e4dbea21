package proto

import (
	"fmt"
	"math"
	"math/bits"
	"regexp"
	"strings"
)

// Bounds of single fields, beside those of proto.go.
const (
	maxName   = 64
	maxParams = 64
	maxCPUs   = 1 << 16
	maxHZ     = 1_000_000
)

// Validate says what is wrong with a record by itself: the version, the kind,
// a field that does not belong to it, a name, a unit, a number that cannot be.
// It does not know the stream that the record stands in.
func (r *Record) Validate() error {
	if r.V != Version {
		return fmt.Errorf("%w: %d, this side speaks %d", ErrVersion, r.V, Version)
	}
	if r.At < 0 {
		return fmt.Errorf("time %d is negative", r.At)
	}
	if err := r.shape(); err != nil {
		return err
	}
	switch r.Kind {
	case KindHello:
		return r.Hello.validate()
	case KindPhase:
		return validText("phase", r.Phase)
	case KindProgress:
		return r.Progress.validate()
	case KindMetric:
		return r.Metric.validate()
	case KindDist:
		return r.Dist.validate()
	case KindCheck:
		return r.Check.validate()
	case KindOutput:
		return validText("output", r.Output)
	case KindFail:
		return r.Fail.validate()
	}
	return r.Done.validate()
}

// shape checks that exactly the field that belongs to the kind is set.
func (r *Record) shape() error {
	set := map[Kind]bool{
		KindHello: r.Hello != nil, KindPhase: r.Phase != "", KindProgress: r.Progress != nil, KindMetric: r.Metric != nil,
		KindDist: r.Dist != nil, KindCheck: r.Check != nil, KindOutput: r.Output != "", KindFail: r.Fail != nil, KindDone: r.Done != nil,
	}
	has, known := set[r.Kind]
	if !known {
		return fmt.Errorf("kind %q is unknown", short(string(r.Kind)))
	}
	if !has {
		return fmt.Errorf("%s record without its %s", r.Kind, r.Kind)
	}
	n := 0
	for _, is := range set {
		if is {
			n++
		}
	}
	if n != 1 {
		return fmt.Errorf("%s record with the field of another kind", r.Kind)
	}
	return nil
}

func (h *Hello) validate() error {
	if err := validName("workload", h.Workload, "-"); err != nil {
		return err
	}
	if len(h.Params) > maxParams {
		return fmt.Errorf("%d parameters, at most %d are taken", len(h.Params), maxParams)
	}
	for key, value := range h.Params {
		if err := validName("parameter", key, "-_"); err != nil {
			return err
		}
		if err := validText("parameter "+key, value); err != nil {
			return err
		}
	}
	texts := map[string]string{"release": h.Release, "version": h.Version, "cmdline": h.Cmdline, "clocksource": h.Clocksource}
	for name, text := range texts {
		if err := validText(name, text); err != nil {
			return err
		}
	}
	switch {
	case h.CPUs < 1 || h.CPUs > maxCPUs:
		return fmt.Errorf("%d CPUs cannot be", h.CPUs)
	case h.HZ < 0 || h.HZ > maxHZ:
		return fmt.Errorf("HZ of %d cannot be", h.HZ)
	case h.ResolutionNS < 1:
		return fmt.Errorf("clock resolution of %d ns cannot be", h.ResolutionNS)
	case h.BootNS < 0:
		return fmt.Errorf("boot time of %d ns cannot be", h.BootNS)
	}
	return nil
}

func (p *Progress) validate() error {
	if p.Done < 0 || p.Total < 0 || p.Total > 0 && p.Done > p.Total {
		return fmt.Errorf("progress of %d of %d cannot be", p.Done, p.Total)
	}
	return nil
}

func (m *Metric) validate() error {
	if err := validMetric(m.Name, m.Unit, m.Better); err != nil {
		return err
	}
	// No unit of this protocol can be negative.
	if math.IsNaN(m.Value) || math.IsInf(m.Value, 0) || m.Value < 0 {
		return fmt.Errorf("metric %s: %v %s cannot be", m.Name, m.Value, m.Unit)
	}
	return nil
}

func (d *Dist) validate() error {
	if err := validMetric(d.Name, d.Unit, d.Better); err != nil {
		return err
	}
	switch {
	case d.N < 1:
		return fmt.Errorf("dist %s: %d operations", d.Name, d.N)
	case d.Censored < 0 || d.Censored > d.N:
		return fmt.Errorf("dist %s: %d of %d censored", d.Name, d.Censored, d.N)
	case len(d.Samples) > MaxSamples || int64(len(d.Samples)) > d.N:
		return fmt.Errorf("dist %s: %d samples of %d operations", d.Name, len(d.Samples), d.N)
	}
	order := []int64{0, d.Min, d.P50, d.P90, d.P99, d.Max}
	for i := 1; i < len(order); i++ {
		if order[i] < order[i-1] {
			return fmt.Errorf("dist %s: its quantiles are not in order: %v", d.Name, order[1:])
		}
	}
	if !sumPossible(d.Sum, d.N, d.Min, d.Max) {
		return fmt.Errorf("dist %s: sum %d of %d operations between %d and %d cannot be", d.Name, d.Sum, d.N, d.Min, d.Max)
	}
	return d.validateSamples()
}

// validateSamples checks that the raw samples agree with the summary: exactly
// when they are all there.
func (d *Dist) validateSamples() error {
	if len(d.Samples) == 0 {
		return nil
	}
	low, high := d.Samples[0], d.Samples[0]
	var sum int64
	for _, v := range d.Samples {
		low, high = min(low, v), max(high, v)
		sum += v // wraps only beyond three centuries of latency
	}
	if low < d.Min || high > d.Max {
		return fmt.Errorf("dist %s: a sample is outside of %d..%d", d.Name, d.Min, d.Max)
	}
	if int64(len(d.Samples)) == d.N && (low != d.Min || high != d.Max || sum != d.Sum) {
		return fmt.Errorf("dist %s: the samples give min %d, max %d, sum %d, the record says %d, %d, %d",
			d.Name, low, high, sum, d.Min, d.Max, d.Sum)
	}
	return nil
}

// sumPossible reports whether n values between low and high can add up to sum.
// The products may need 128 bits.
func sumPossible(sum, n, low, high int64) bool {
	if sum < 0 {
		return false
	}
	least, lo := bits.Mul64(uint64(n), uint64(low))
	if least > 0 || lo > uint64(sum) {
		return false
	}
	most, hi := bits.Mul64(uint64(n), uint64(high))
	return most > 0 || hi >= uint64(sum)
}

func (c *Check) validate() error {
	if c.Name == "" {
		return fmt.Errorf("check without a name")
	}
	return validText("check", c.Name)
}

func (f *Fail) validate() error {
	switch f.Reason {
	case FailUnsupported, FailCheck, FailClock, FailError:
		return validText("fail", f.Text)
	}
	return fmt.Errorf("fail reason %q is unknown", short(string(f.Reason)))
}

func (d *Done) validate() error {
	if d.Ops < 1 {
		return fmt.Errorf("done with %d operations", d.Ops)
	}
	return validText("nonce", d.Nonce)
}

// timeName is a metric that a script's nth `time` printed.
var timeName = regexp.MustCompile(`^time\[[1-9][0-9]{0,2}\]\.(real|user|sys)$`)

func validMetric(name string, u Unit, b Better) error {
	if err := validName("metric", name, "-_"); err != nil && !timeName.MatchString(name) {
		return err
	}
	switch u {
	case Nanoseconds, Count, PerSecond, PerMillion, Bytes:
	default:
		return fmt.Errorf("metric %s: unit %q is unknown", name, short(string(u)))
	}
	if b != Lower && b != Higher {
		return fmt.Errorf("metric %s: direction %q is unknown", name, short(string(b)))
	}
	return nil
}

// validName accepts [a-z][a-z0-9]* with the bytes of extra inside.
func validName(what, name, extra string) error {
	ok := name != "" && len(name) <= maxName && name[0] >= 'a' && name[0] <= 'z'
	for i := 0; ok && i < len(name); i++ {
		c := name[i]
		ok = c >= 'a' && c <= 'z' || c >= '0' && c <= '9' || strings.IndexByte(extra, c) >= 0
	}
	if !ok {
		return fmt.Errorf("%s name %q is not one", what, short(name))
	}
	return nil
}

// validText bounds a text and keeps out what would act on the terminal that it
// is printed on.
func validText(what, text string) error {
	if len(text) > MaxText {
		return fmt.Errorf("%s: %d bytes of text, at most %d are taken", what, len(text), MaxText)
	}
	if strings.ContainsFunc(text, isControl) {
		return fmt.Errorf("%s: control characters in %q", what, short(text))
	}
	return nil
}

func isControl(r rune) bool {
	return r < ' ' && r != '\n' && r != '\t' || r >= 0x7f && r < 0xa0
}

// CleanText makes text fit for a record: bounded, and without control characters.
func CleanText(text string) string {
	text = strings.ToValidUTF8(text, "?")
	text = strings.Map(func(r rune) rune {
		if isControl(r) {
			return '?'
		}
		return r
	}, text)
	if len(text) > MaxText {
		text = strings.ToValidUTF8(text[:MaxText-3], "") + "..."
	}
	return text
}

// short bounds what an error repeats of foreign text.
func short(s string) string {
	const most = 80
	if len(s) > most {
		return s[:most] + "..."
	}
	return s
}
