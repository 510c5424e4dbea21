package stats

// Exact has the tests of this package as methods on plain numbers, for a
// decision rule that is written against an interface. +Inf stands for a censored
// number.
type Exact struct{}

// Fisher is the function of that name.
func (Exact) Fisher(hits1, runs1, hits0, runs0 int) float64 {
	return Fisher(hits1, runs1, hits0, runs0)
}

// Greater is MannWhitney's one-sided p-value that x is larger than y.
func (Exact) Greater(x, y []float64) float64 { return MannWhitney(x, y).Greater }

// GreaterRate is the function of that name.
func (Exact) GreaterRate(events1 int, exposure1 float64, events0 int, exposure0 float64) float64 {
	return GreaterRate(events1, exposure1, events0, exposure0)
}

// RateRatio is the function of that name with its result spread out.
func (Exact) RateRatio(events1 int, exposure1 float64, events0 int, exposure0, level float64) (point, lo, hi float64) {
	point, ci := RateRatio(events1, exposure1, events0, exposure0, level)
	return point, ci.Lo, ci.Hi
}

// Ratio is RatioInterval with its result spread out.
func (Exact) Ratio(x, y []float64, level float64) (point, lo, hi, achieved float64) {
	point, ci := RatioInterval(x, y, level)
	return point, ci.Lo, ci.Hi, ci.Level
}
