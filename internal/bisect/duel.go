package bisect

import (
	"errors"
	"fmt"
	"math"
	"slices"
)

// The decision is a group-sequential test: the sides are compared at fixed
// numbers of runs a side ("looks") only. Every look may spend a fifth of the
// total error of 1 %, so that the error over all looks is at most the sum
// whatever the dependence between them (Bonferroni's inequality, the simplest
// alpha-spending rule of Lan and DeMets 1983). Two directions at once: the first
// look can only have p = 2/924 without any overlap, so it gets 0.0022, the others
// 0.00195.
const (
	alphaOneSided   = 0.002
	alphaFirstLook  = 0.0022
	alphaLaterLooks = 0.00195
	// errorTotal is what the looks add up to.
	errorTotal = 0.01
	// errorEarly is the chance that of 6 exchangeable runs the 3 of one side are
	// the 3 largest: 1/C(6,3). It bounds the error of the early gate without any
	// assumption; demanding a factor between them makes it smaller in practice.
	errorEarly = 0.05
)

const (
	earlyLook   = 3   // runs a side at which a huge effect may pass
	earlyFactor = 2.0 // "huge": every run of one side is at least this times every one of the other
	firstLook   = 6   // 6 v 6 without overlap is the first with p < 0.002

	// equalLevel is the confidence of the interval that must lie within the
	// margin to call two kernels equal: 0.2 % on either side at each of 5 looks
	// is again 1 % in all.
	equalLevel    = 0.996
	reportLevel   = 0.95 // of the interval that is reported
	defaultMargin = 0.10

	// futile is the predictive probability of passing at the last look below
	// which going on is pointless. Simulated for equal kernels with 15 % noise:
	// 0.01 takes 91 runs, 0.03 takes 71, 0.06 takes 57; but 0.06 misses 14 points
	// more of a real "15 % of runs against none" than 0.03, which misses 2.
	futile = 0.03

	maxInfra     = 3    // tries in a row
	maxBroken    = 3    // broken runs of a side that was measured too,
	brokenShare  = 0.25 // and their share, from which on the side is called mixed
	minNoBroken  = 2    // broken runs, and none measured: the side is untestable
	learnRuns    = 20   // runs a side before a search when the sides overlap
	learnHard    = 40   // the same when they overlap much
	learnGap     = 0.5  // "much": probability gap below this
	driftLimit   = 0.01
	minDriftRuns = 10
)

// looks returns the runs a side at which a decision can be made.
func looks(maxRuns int) []int {
	out := make([]int, 0, 6)
	for _, n := range []int{earlyLook, firstLook, 10, 20, 40, 80} {
		if n < maxRuns {
			out = append(out, n)
		}
	}
	return append(out, maxRuns)
}

// MaxRuns is the largest number of measured runs a side.
const MaxRuns = 80

// Tests are the statistics a Duel needs; package stats has them. +Inf stands for
// a number larger than all others, -Inf for one smaller. No method may change
// its arguments.
type Tests interface {
	// Fisher is the one-sided exact p-value that the first rate is the higher one.
	Fisher(hits1, runs1, hits0, runs0 int) float64
	// Greater is the one-sided Mann-Whitney p-value that x is larger than y.
	Greater(x, y []float64) float64
	// GreaterRate is the one-sided exact p-value that the first rate of events is
	// the higher one.
	GreaterRate(events1 int, exposure1 float64, events0 int, exposure0 float64) float64
	// RateRatio is the first rate of events over the second with an exact interval.
	RateRatio(events1 int, exposure1 float64, events0 int, exposure0, level float64) (point, lo, hi float64)
	// Ratio is the median pairwise ratio x/y with a distribution-free interval
	// and the confidence it really has.
	Ratio(x, y []float64, level float64) (point, lo, hi, achieved float64)
}

// Rules say what a duel looks for.
type Rules struct {
	// LookFor is where Bad's numbers are expected, seen from Good's. The zero
	// value accepts both, at the price of a test in two directions.
	LookFor Direction `json:"look_for"`
	// Threshold decides by Outcome.Hit instead of by numbers: Higher when a
	// number above the threshold is a hit, Lower when one below is. Zero: numbers.
	Threshold Direction `json:"threshold"`
	// Rates decides by how often rare events happen, each run giving its first one
	// at most, so that events which come in a cluster count once. Threshold,
	// MinRatio and Margin are not used then.
	Rates bool `json:"rates,omitempty"`
	// MinRatio is the smallest factor between the sides that counts as a
	// difference; up to 1 every factor does. It needs numbers.
	MinRatio float64 `json:"min_ratio,omitempty"`
	// Margin is how far from 1 the ratio may be while the sides are called equal;
	// 0 means 0.10. A MinRatio above 1+Margin takes its place.
	Margin float64 `json:"margin,omitempty"`
	// MaxRuns bounds the measured runs a side; 0 means 80, the most there can be.
	MaxRuns int `json:"max_runs,omitempty"`
	// ConfirmedLater says that a search with its own confirmation follows. A huge
	// effect then passes at 3 v 3, with an error of 5 % instead of 1 %, and sides
	// that overlap are run up to 20 or 40 times to learn their rates.
	ConfirmedLater bool `json:"confirmed_later,omitempty"`

	Tests Tests `json:"-"` // required
}

// Tally counts the runs of one side.
type Tally struct {
	Measured int     `json:"measured"`
	Hits     int     `json:"hits"`
	Censored int     `json:"censored"`
	Exposure float64 `json:"exposure,omitempty"` // of all measured runs, under Rules.Rates; Hits are then events
	Broken   int     `json:"broken"`
	Infra    int     `json:"infra"`
}

// Decision is what a duel knows, at its end or on the way.
type Decision struct {
	Verdict Verdict `json:"verdict"`
	// Direction is where Bad lies, seen from Good, when they differ.
	Direction Direction `json:"direction"`
	// Unexpected is true when that is not the direction looked for.
	Unexpected bool `json:"unexpected,omitempty"`
	// Gate names the rule that decided.
	Gate string `json:"gate"`
	// P is the p-value of the look that decided: one-sided when a direction was
	// looked for, two-sided otherwise.
	P float64 `json:"p"`
	// Error is the stated probability of being wrong. Differ: of saying so over
	// all looks when the kernels are the same. NoDifference within the margin: of
	// saying so when the ratio is outside. NoDifference by futility: that runs up
	// to the last look would still have shown one. Otherwise 1.
	Error float64 `json:"error"`
	Runs  int     `json:"runs"`  // measured runs a side at the look that decided
	Looks int     `json:"looks"` // looks made
	// Ratio is Bad's numbers over Good's, all of it NaN without numbers.
	Ratio    Ratio    `json:"ratio"`
	Good     Tally    `json:"good"`
	Bad      Tally    `json:"bad"`
	Side     Side     `json:"side"`             // the one that is untestable or mixed
	Reason   string   `json:"reason,omitempty"` // what stopped it, when not the runs themselves
	Warnings []string `json:"warnings,omitempty"`
}

// Duel decides sequentially whether two kernels differ. It is not safe for use by
// several goroutines.
type Duel struct {
	rules    Rules
	looks    []int
	done     int // looks made
	sides    [3]*arm
	passed   *Decision // the gate was passed, runs go on to learn the rates
	decision *Decision
}

// arm is one side's runs in the order they were made.
type arm struct {
	Tally
	runs    []Outcome // measured ones
	infra   int       // in a row
	reasons []string  // of broken ones
}

// NewDuel checks the rules and returns a duel without runs.
func NewDuel(r Rules) (*Duel, error) {
	if r.Margin == 0 {
		r.Margin = defaultMargin
	}
	if r.MaxRuns == 0 {
		r.MaxRuns = MaxRuns
	}
	if r.Rates { // an event is a hit, for all that only asks which runs had one
		r.Threshold, r.MinRatio = Higher, 0
	}
	switch {
	case r.Tests == nil:
		return nil, errors.New("start duel: no tests given")
	case r.MaxRuns < 1 || r.MaxRuns > MaxRuns:
		return nil, fmt.Errorf("start duel: at most %d runs a side: want 1 to %d", r.MaxRuns, MaxRuns)
	case !(r.Margin > 0 && r.Margin < 10):
		return nil, fmt.Errorf("start duel: margin %g: want a number between 0 and 10", r.Margin)
	case r.MinRatio < 0 || math.IsNaN(r.MinRatio) || math.IsInf(r.MinRatio, 0):
		return nil, fmt.Errorf("start duel: smallest ratio %g: want a factor such as 1.5", r.MinRatio)
	}
	return &Duel{rules: r, looks: looks(r.MaxRuns), sides: [3]*arm{nil, {}, {}}}, nil
}

// Next returns the side to run now, or the decision (and no side). It changes
// nothing: until Add it answers the same.
func (d *Duel) Next() (Side, *Decision) {
	if d.decision != nil {
		return 0, d.decision
	}
	g, b := d.sides[Good], d.sides[Bad]
	// A side that broke at once is tried again first: it may spare all other runs.
	for _, s := range []Side{Good, Bad} {
		if d.sides[s].Broken > 0 && d.sides[s].Measured == 0 {
			return s, nil
		}
	}
	switch {
	case g.Measured < b.Measured:
		return Good, nil
	case b.Measured < g.Measured:
		return Bad, nil
	}
	// G B B G G B B G: both sides have the same mean time, so that a drift of the
	// host that is linear in time cancels.
	if g.Measured%2 == 0 {
		return Good, nil
	}
	return Bad, nil
}

// Add records one run. It fails, and records nothing, when the duel is decided
// or the outcome lacks what the rules need.
func (d *Duel) Add(s Side, o Outcome) error {
	switch {
	case d.decision != nil:
		return errors.New("add run: the duel is decided")
	case s != Good && s != Bad:
		return fmt.Errorf("add run: no side %d", s)
	case o.Kind == Measured && d.rules.Threshold == 0 && !o.HasNumber:
		return fmt.Errorf("add run of %s: it has no number and there is no threshold", s)
	case o.Kind == Measured && d.rules.MinRatio > 1 && !o.HasNumber:
		return fmt.Errorf("add run of %s: it has no number to hold against the smallest ratio", s)
	case o.Kind == Measured && d.rules.Rates && !(o.Exposure > 0):
		return fmt.Errorf("add run of %s: its exposure is %g", s, o.Exposure)
	case o.HasNumber && (math.IsNaN(o.Number) || math.IsInf(o.Number, 0)):
		return fmt.Errorf("add run of %s: number is %g", s, o.Number)
	}
	a := d.sides[s]
	switch o.Kind {
	case Measured:
		if d.rules.Rates {
			o.Hit = o.Event
		}
		a.measured(o)
	case Broken:
		a.infra = 0
		a.Broken++
		a.reasons = append(a.reasons, o.Reason)
		d.broken(s)
	case InfraFail:
		a.Infra++
		if a.infra++; a.infra >= maxInfra {
			d.end(Decision{Verdict: Untestable, Side: s, Reason: o.Reason,
				Gate: fmt.Sprintf("%d tries in a row failed for reasons outside the kernel", a.infra)})
		}
	default:
		return fmt.Errorf("add run of %s: outcome of no kind", s)
	}
	if d.decision == nil && o.Kind == Measured {
		d.look()
	}
	return nil
}

func (a *arm) measured(o Outcome) {
	a.infra = 0
	a.Measured++
	a.Exposure += o.Exposure
	if o.Hit {
		a.Hits++
	}
	if o.Censored {
		a.Censored++
	}
	a.runs = append(a.runs, o)
}

// broken ends the duel when a side cannot be measured, or only sometimes.
func (d *Duel) broken(s Side) {
	a := d.sides[s]
	last := a.reasons[len(a.reasons)-1]
	switch {
	case a.Measured == 0 && a.Broken >= minNoBroken:
		d.end(Decision{Verdict: Untestable, Side: s, Reason: last,
			Gate: fmt.Sprintf("%s is untestable: the first %d runs broke", s, a.Broken)})
	case a.Measured > 0 && a.Broken >= maxBroken && float64(a.Broken) >= brokenShare*float64(a.Broken+a.Measured):
		d.end(Decision{Verdict: Inconclusive, Side: s, Reason: last,
			Gate: fmt.Sprintf("%s is mixed: %d runs broke, %d did not", s, a.Broken, a.Measured)})
	}
}

// Stop ends the duel early, for a budget or by the user's wish, and returns what
// is known. A decision that was made before stands.
func (d *Duel) Stop(reason string) *Decision {
	if d.decision == nil {
		if d.passed != nil { // what was left was only learning
			d.end(*d.passed)
		} else {
			d.end(Decision{Verdict: Inconclusive, Gate: "stopped", Reason: reason})
		}
	}
	return d.decision
}

// Standing returns what is known at any time, Undecided until there is a
// decision. Its P is not corrected for looking often: show it, do not act on it.
func (d *Duel) Standing() Decision {
	if d.decision != nil {
		return *d.decision
	}
	out := Decision{Error: 1, Runs: min(d.sides[Good].Measured, d.sides[Bad].Measured)}
	out.P, out.Direction = 1, 0
	if out.Runs > 0 {
		out.P, out.Direction = d.p()
	}
	d.describe(&out)
	return out
}

// end fixes the decision.
func (d *Duel) end(out Decision) {
	if out.Error == 0 {
		out.Error = 1
	}
	if out.P == 0 {
		out.P = 1
	}
	if out.Runs == 0 {
		out.Runs = min(d.sides[Good].Measured, d.sides[Bad].Measured)
	}
	d.describe(&out)
	d.decision = &out
}

// describe adds what every decision has: tallies, ratio and warnings.
func (d *Duel) describe(out *Decision) {
	out.Good, out.Bad, out.Looks = d.sides[Good].Tally, d.sides[Bad].Tally, d.done
	out.Ratio = d.ratio(reportLevel)
	for _, s := range []Side{Good, Bad} {
		a := d.sides[s]
		if a.Broken > 0 {
			out.Warnings = append(out.Warnings, fmt.Sprintf("%s: %d runs of %d were not measured: %s",
				s, a.Broken, a.Broken+a.Measured, a.reasons[len(a.reasons)-1]))
		}
		if a.Censored > 0 {
			out.Warnings = append(out.Warnings, fmt.Sprintf("%s: %d runs of %d were stopped at their limit", s, a.Censored, a.Measured))
		}
		if p := d.drift(a); p < driftLimit {
			out.Warnings = append(out.Warnings, fmt.Sprintf("%s: drift: first and second half of its runs differ (p=%.2g)", s, p))
		}
	}
	slices.Sort(out.Warnings)
}

// drift compares the halves of a side's runs in time, in both directions.
func (d *Duel) drift(a *arm) float64 {
	if a.Measured < minDriftRuns {
		return 1
	}
	v, h := d.scores(a, 0), a.Measured/2
	first, second := v[:h], v[len(v)-h:]
	if d.rules.Threshold != 0 {
		x, y := int(sum(first)), int(sum(second))
		return min(1, 2*min(d.rules.Tests.Fisher(x, h, y, h), d.rules.Tests.Fisher(y, h, x, h)))
	}
	return min(1, 2*min(d.rules.Tests.Greater(first, second), d.rules.Tests.Greater(second, first)))
}

func sum(x []float64) float64 {
	total := 0.0
	for _, v := range x {
		total += v
	}
	return total
}
