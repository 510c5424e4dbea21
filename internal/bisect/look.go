package bisect

import (
	"encoding/json"
	"fmt"
	"math"
	"slices"
)

// look decides when both sides have reached the next look.
func (d *Duel) look() {
	g, b := d.sides[Good], d.sides[Bad]
	if g.Measured != b.Measured || d.done >= len(d.looks) || g.Measured < d.looks[d.done] {
		return
	}
	d.done++
	n := g.Measured
	last := d.done == len(d.looks)
	if n < firstLook && !d.rules.Rates {
		if dir := d.huge(n); dir != 0 {
			d.end(Decision{
				Verdict: Differ, Direction: dir, Unexpected: d.unexpected(dir), Runs: n, Error: d.earlyError(), P: d.earlyError(),
				Gate: fmt.Sprintf("every run of one side at least %gx every run of the other, %d v %d", earlyFactor, n, n),
			})
		} else if last {
			d.end(Decision{Verdict: Inconclusive, Gate: fmt.Sprintf("fewer than the %d runs a side a decision needs", firstLook)})
		}
		return
	}
	if d.pass(n, last) || d.same(n) || d.hopeless(n) || !last {
		return
	}
	d.exhausted(n)
}

// huge reports the direction of an effect so large that a search may begin at
// once, because its own confirmation follows; 0 otherwise.
func (d *Duel) huge(n int) Direction {
	g, b := d.sides[Good], d.sides[Bad]
	if !d.rules.ConfirmedLater || n < earlyLook || g.Broken+b.Broken > 0 {
		return 0
	}
	for _, dir := range d.directions() {
		low, high := g, b
		if dir == Lower {
			low, high = b, g
		}
		if apart(low, high, earlyFactor) && d.separated(dir) {
			return dir
		}
	}
	return 0
}

// apart reports whether every number of high is at least factor times every one
// of low. A censored low number has no upper end, so it never is.
func apart(low, high *arm, factor float64) bool {
	top, bottom := 0.0, math.Inf(1)
	for _, o := range low.runs {
		if !o.HasNumber || o.Censored || o.Number < 0 {
			return false
		}
		top = max(top, o.Number)
	}
	for _, o := range high.runs {
		if !o.HasNumber {
			return false
		}
		bottom = min(bottom, o.Number)
	}
	return bottom > 0 && bottom >= factor*top
}

// directions are those that may be found, the expected one first.
func (d *Duel) directions() []Direction {
	if d.rules.LookFor != 0 {
		return []Direction{d.rules.LookFor}
	}
	return []Direction{Higher, Lower}
}

func (d *Duel) earlyError() float64 { return errorEarly * float64(len(d.directions())) }

func (d *Duel) unexpected(dir Direction) bool { return d.rules.LookFor != 0 && dir != d.rules.LookFor }

// limit is the p-value that a look must stay below.
func (d *Duel) limit(n int) float64 {
	switch {
	case d.rules.Rates: // its p-value holds from the first look on
		return errorTotal / float64(len(d.looks))
	case d.rules.LookFor != 0:
		return alphaOneSided
	case n == firstLook:
		return alphaFirstLook
	}
	return alphaLaterLooks
}

// p is the p-value of all runs so far, and the direction it is about.
func (d *Duel) p() (float64, Direction) {
	if d.rules.LookFor != 0 {
		return d.pOf(d.rules.LookFor), d.rules.LookFor
	}
	up, down := d.pOf(Higher), d.pOf(Lower)
	if up <= down {
		return min(1, 2*up), Higher
	}
	return min(1, 2*down), Lower
}

// pOf is the one-sided p-value for Bad lying in that direction. Broken runs count
// as the worst for it (Good's furthest that way, Bad's furthest the other), so
// that what passes would have passed whatever they had measured.
func (d *Duel) pOf(dir Direction) float64 {
	far := math.Inf(1)
	if dir == Lower {
		far = math.Inf(-1)
	}
	g, b := d.sides[Good], d.sides[Bad]
	if d.rules.Rates {
		if dir == Lower {
			g, b = b, g
		}
		return d.pRates(b, g)
	}
	if d.rules.Threshold == 0 {
		x, y := d.scores(b, -far), d.scores(g, far)
		if dir == Lower {
			x, y = y, x
		}
		return d.rules.Tests.Greater(x, y)
	}
	if dir == d.rules.Threshold {
		return d.rules.Tests.Fisher(b.Hits, b.Measured+b.Broken, g.Hits+g.Broken, g.Measured+g.Broken)
	}
	return d.rules.Tests.Fisher(g.Hits, g.Measured+g.Broken, b.Hits+b.Broken, b.Measured+b.Broken)
}

// pRates is the one-sided p-value that events are more frequent on hi. A broken
// run of lo counts as an event at once, one of hi as the longest without any.
func (d *Duel) pRates(hi, lo *arm) float64 {
	longest := 0.0
	for _, o := range hi.runs {
		longest = max(longest, o.Exposure)
	}
	return d.rules.Tests.GreaterRate(hi.Hits, hi.Exposure+float64(hi.Broken)*longest, lo.Hits+lo.Broken, lo.Exposure)
}

// scores are the numbers that are compared: the runs' own or, under a threshold,
// 1 for a hit; and as many of fill as there were broken runs, unless fill is 0.
func (d *Duel) scores(a *arm, fill float64) []float64 {
	out := make([]float64, 0, len(a.runs)+a.Broken)
	for _, o := range a.runs {
		v := o.Number
		switch {
		case d.rules.Threshold != 0:
			v = 0
			if o.Hit {
				v = 1
			}
		case o.Censored:
			v = math.Inf(1)
		}
		out = append(out, v)
	}
	if fill != 0 {
		out = append(out, slices.Repeat([]float64{fill}, a.Broken)...)
	}
	return out
}

// pass decides that the sides differ. When a search follows and the sides
// overlap, it only notes so and lets the runs go on until the rates are known.
func (d *Duel) pass(n int, last bool) bool {
	if d.passed == nil {
		d.passed = d.gate(n)
	}
	if d.passed == nil {
		return false
	}
	searched := d.rules.ConfirmedLater && d.passed.Verdict == Differ && !d.passed.Unexpected
	if searched && !last && n < d.learn(d.passed.Direction) {
		return true // decided, not yet ended
	}
	d.end(*d.passed)
	return true
}

// gate applies p-value and smallest ratio; nil when they are not passed.
func (d *Duel) gate(n int) *Decision {
	p, dir := d.p()
	limit := d.limit(n)
	if p >= limit && d.rules.LookFor != 0 {
		// Not the way it was looked for; the reverse is worth saying, too.
		if q := d.pOf(dir.other()); q < limit {
			p, dir = q, dir.other()
		}
	}
	if p >= limit {
		return nil
	}
	test := "Mann-Whitney"
	switch {
	case d.rules.Rates:
		test = "rates of events,"
	case d.rules.Threshold != 0:
		test = "Fisher"
	}
	out := &Decision{
		Verdict: Differ, Direction: dir, Unexpected: d.unexpected(dir), P: p, Error: errorTotal, Runs: n,
		Gate: fmt.Sprintf("%s p<%.3g at %d v %d", test, limit, n, n),
	}
	if d.rules.MinRatio <= 1 {
		return out
	}
	r := d.ratio(equalLevel).toward(dir)
	switch {
	case r.Point >= d.rules.MinRatio:
		out.Gate += fmt.Sprintf(", ratio at least %g", d.rules.MinRatio)
		return out
	case r.Hi < d.rules.MinRatio:
		out.Verdict, out.Direction, out.Unexpected = NoDifference, 0, false
		out.Gate = fmt.Sprintf("they differ by less than the %gx asked for, %d v %d", d.rules.MinRatio, n, n)
		return out
	}
	return nil
}

// learn is how many runs a side a search needs before it begins.
func (d *Duel) learn(dir Direction) int {
	if d.separated(dir) {
		return 0
	}
	if d.overlap(dir) < learnGap {
		return learnHard
	}
	return learnRuns
}

// overlap is P(Bad beyond Good) - P(Good beyond Bad): 1 when separated, 0 when
// the same; under a threshold it is the difference of the hit rates.
func (d *Duel) overlap(dir Direction) float64 {
	x, y := d.scores(d.sides[Bad], 0), d.scores(d.sides[Good], 0)
	if d.reverse(dir) {
		x, y = y, x
	}
	sum := 0
	for _, a := range x {
		for _, b := range y {
			switch {
			case a > b:
				sum++
			case a < b:
				sum--
			}
		}
	}
	return float64(sum) / float64(len(x)*len(y))
}

func (d *Duel) separated(dir Direction) bool { return d.overlap(dir) == 1 }

// reverse reports whether Bad's scores are the lower ones when its numbers lie in
// this direction: hits count the other way when they are below the threshold.
func (d *Duel) reverse(dir Direction) bool {
	if d.rules.Threshold != 0 {
		return dir != d.rules.Threshold
	}
	return dir == Lower
}

// same ends the duel when the ratio is known to be within the margin. Under a
// threshold the typical number says nothing about the share beyond it, and with
// zeros or broken runs the ratio means nothing.
func (d *Duel) same(n int) bool {
	if d.rules.Threshold != 0 || d.sides[Good].Broken+d.sides[Bad].Broken > 0 || d.anyZero() {
		return false
	}
	m := max(1+d.rules.Margin, d.rules.MinRatio)
	r := d.ratio(equalLevel)
	if !(r.Level >= equalLevel) {
		return false
	}
	for _, dir := range d.directions() {
		if !(r.toward(dir).Hi <= m) {
			return false
		}
	}
	d.end(Decision{
		Verdict: NoDifference, Error: errorTotal, Runs: n, P: d.current(),
		Gate: fmt.Sprintf("the ratio is within %.3gx, %d v %d", m, n, n),
	})
	return true
}

func (d *Duel) current() float64 {
	p, _ := d.p()
	return p
}

func (d *Duel) anyZero() bool {
	for _, s := range []Side{Good, Bad} {
		for _, o := range d.sides[s].runs {
			if o.Number <= 0 {
				return true
			}
		}
	}
	return false
}

// hopeless ends the duel when it can hardly pass any more.
func (d *Duel) hopeless(n int) bool {
	end := d.looks[len(d.looks)-1]
	if n >= end {
		return false
	}
	chance := 0.0
	for _, dir := range d.directions() {
		chance += d.chance(dir, n, end)
	}
	if chance >= futile {
		return false
	}
	out := Decision{
		Verdict: NoDifference, Error: max(chance, math.SmallestNonzeroFloat64), Runs: n, P: d.current(),
		Gate: fmt.Sprintf("more runs will hardly show a difference (chance %.1g), %d v %d", chance, n, n),
	}
	if d.sides[Good].Broken+d.sides[Bad].Broken > 0 {
		out.Verdict, out.Error = Inconclusive, 1
	}
	d.end(out)
	return true
}

// exhausted ends the duel at the last look.
func (d *Duel) exhausted(n int) {
	const tendency = 0.05 // below it, calling it "no difference" would hide something
	out := Decision{Verdict: NoDifference, P: d.current(), Runs: n, Gate: fmt.Sprintf("no difference shown by %d v %d", n, n)}
	if out.P < tendency || d.sides[Good].Broken+d.sides[Bad].Broken > 0 {
		out.Verdict, out.Gate = Inconclusive, fmt.Sprintf("a tendency, not proven by %d v %d", n, n)
	}
	d.end(out)
}

// Ratio is Bad's numbers over Good's with an interval.
type Ratio struct {
	Point float64 `json:"point"` // NaN when nothing can be said
	Lo    float64 `json:"lo"`
	Hi    float64 `json:"hi"`    // +Inf when censored runs leave it open
	Level float64 `json:"level"` // confidence that the interval really has
	// AtLeast and AtMost say that Point is only a bound, because of censored runs.
	AtLeast bool `json:"at_least,omitempty"`
	AtMost  bool `json:"at_most,omitempty"`
}

// MarshalJSON writes what is not a finite number as null.
func (r Ratio) MarshalJSON() ([]byte, error) {
	num := func(f float64) *float64 {
		if math.IsNaN(f) || math.IsInf(f, 0) {
			return nil
		}
		return &f
	}
	return json.Marshal(struct {
		Point   *float64 `json:"point"`
		Lo      *float64 `json:"lo"`
		Hi      *float64 `json:"hi"`
		Level   *float64 `json:"level"`
		AtLeast bool     `json:"at_least,omitempty"`
		AtMost  bool     `json:"at_most,omitempty"`
	}{num(r.Point), num(r.Lo), num(r.Hi), num(r.Level), r.AtLeast, r.AtMost})
}

// toward turns the ratio so that above 1 means "in this direction".
func (r Ratio) toward(dir Direction) Ratio {
	if dir != Lower {
		return r
	}
	return Ratio{Point: 1 / r.Point, Lo: 1 / r.Hi, Hi: 1 / r.Lo, Level: r.Level, AtLeast: r.AtMost, AtMost: r.AtLeast}
}

// ratio takes every censored number at both its extremes: at its limit, and
// without end.
func (d *Duel) ratio(level float64) Ratio {
	if d.rules.Rates {
		return d.rateRatio(level)
	}
	gLow, gHigh, ok1 := extremes(d.sides[Good])
	bLow, bHigh, ok2 := extremes(d.sides[Bad])
	if !ok1 || !ok2 {
		n := math.NaN()
		return Ratio{Point: n, Lo: n, Hi: n, Level: n}
	}
	pLow, lo, _, achieved := d.rules.Tests.Ratio(bLow, gHigh, level)
	pHigh, _, hi, _ := d.rules.Tests.Ratio(bHigh, gLow, level)
	r := Ratio{Point: pLow, Lo: lo, Hi: hi, Level: achieved}
	switch {
	case pLow == pHigh || math.IsNaN(pLow):
	case pLow == 0 && math.IsInf(pHigh, 1):
		r.Point = math.NaN()
	case pLow > 0:
		r.AtLeast = true
	default:
		r.Point, r.AtMost = pHigh, true
	}
	return r
}

// rateRatio is that of the rates of events. Without an event on one side only a
// bound is known, which stands in the point's place.
func (d *Duel) rateRatio(level float64) Ratio {
	g, b := d.sides[Good], d.sides[Bad]
	point, lo, hi := d.rules.Tests.RateRatio(b.Hits, b.Exposure, g.Hits, g.Exposure, level)
	r := Ratio{Point: point, Lo: lo, Hi: hi, Level: level}
	switch {
	case math.IsInf(point, 1):
		r.Point, r.AtLeast = lo, true
	case point == 0:
		r.Point, r.AtMost = hi, true
	}
	return r
}

// extremes returns the least and the most that a side's numbers may be.
func extremes(a *arm) (low, high []float64, ok bool) {
	for _, o := range a.runs {
		if !o.HasNumber {
			return nil, nil, false
		}
		low = append(low, o.Number)
		if o.Censored {
			high = append(high, math.Inf(1))
		} else {
			high = append(high, o.Number)
		}
	}
	return low, high, len(low) > 0
}
