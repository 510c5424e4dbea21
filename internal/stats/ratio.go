package stats

import (
	"encoding/json"
	"fmt"
	"math"
	"slices"
)

// Bound says what a number is when observations were censored.
type Bound string

// Bounds. The empty one is an exact number.
const (
	AtLeast Bound = ">=" // the truth is this or larger
	AtMost  Bound = "<=" // the truth is this or smaller
	Unknown Bound = "?"  // nothing can be said
)

// Ratio is how many times larger one group is than another.
type Ratio struct {
	Point    float64  `json:"point"` // NaN when it is not defined
	Bound    Bound    `json:"bound,omitempty"`
	Interval Interval `json:"interval"`
}

// String is "3.1x", ">=3x", or "?" when nothing can be said.
func (r Ratio) String() string {
	if r.Bound == Unknown || math.IsNaN(r.Point) {
		return "?"
	}
	return fmt.Sprintf("%s%.3gx", r.Bound, r.Point)
}

// MarshalJSON writes a point that is not a finite number as null.
func (r Ratio) MarshalJSON() ([]byte, error) {
	return json.Marshal(struct {
		Point    *float64 `json:"point"`
		Bound    Bound    `json:"bound,omitempty"`
		Interval Interval `json:"interval"`
	}{finite(r.Point), r.Bound, r.Interval})
}

// RatioOf estimates x/y: the median of all pairwise ratios, with the interval
// between two of them. It is the estimator of Hodges and Lehmann (1963) and the
// interval that inverts the Mann-Whitney test (Moses 1965), on the logarithmic
// scale. Both need only that the groups differ by a factor.
//
// A censored x makes the ratio a lower bound, a censored y an upper one, when it
// reaches the median. 0/0 counts as 1; a negative value makes the ratio NaN,
// and so does an empty group.
func RatioOf(x, y []Obs, level float64) Ratio {
	if len(x) == 0 || len(y) == 0 {
		return Ratio{Point: math.NaN(), Bound: Unknown, Interval: Interval{Lo: 0, Hi: math.Inf(1), Level: 1}}
	}
	// The truth lies between the two extreme readings of the censored values.
	lowPoint, low := RatioInterval(floors(x), ceilings(y), level)
	highPoint, high := RatioInterval(ceilings(x), floors(y), level)
	r := Ratio{Point: lowPoint, Interval: Interval{Lo: low.Lo, Hi: high.Hi, Level: low.Level}}
	if lowPoint == highPoint || math.IsNaN(lowPoint) {
		return r
	}
	switch {
	case lowPoint == 0 && math.IsInf(highPoint, 1):
		r.Bound, r.Point = Unknown, math.NaN()
	case lowPoint > 0:
		r.Bound = AtLeast
	default:
		r.Bound, r.Point = AtMost, highPoint
	}
	return r
}

// RatioInterval is RatioOf for plain numbers, without the bookkeeping for
// censored ones: the median of the pairwise ratios and their interval.
func RatioInterval(x, y []float64, level float64) (point float64, ci Interval) {
	all := make([]float64, 0, len(x)*len(y))
	for _, a := range x {
		for _, b := range y {
			q := a / b
			if a < 0 || b < 0 {
				return math.NaN(), Interval{Lo: math.NaN(), Hi: math.NaN()}
			}
			if a == 0 && b == 0 {
				q = 1
			}
			all = append(all, q)
		}
	}
	if len(all) == 0 {
		return math.NaN(), Interval{Lo: 0, Hi: math.Inf(1), Level: 1}
	}
	slices.Sort(all)
	k, achieved := cut(len(x), len(y), level)
	n := len(all)
	return middle(all), Interval{Lo: all[k-1], Hi: all[n-k], Level: achieved}
}

// cut returns the k for which the interval from the k-th smallest to the k-th
// largest pairwise ratio is the narrowest with at least the level asked for, and
// the level it has: 1 - 2 P(U <= k-1). When even the widest has less, that one.
func cut(n, m int, level float64) (k int, achieved float64) {
	if n*m > maxPairs {
		nn, mm := float64(n), float64(m)
		half := -quantileNormal((1-level)/2) * math.Sqrt(nn*mm*(nn+mm+1)/12)
		return max(1, int(nn*mm/2-half)), level
	}
	tail := 0.0 // P(U <= k-1)
	for i, p := range uProbs(n, m, n*m/2) {
		if tail += p; i > 0 && 1-2*tail < level {
			break
		}
		k, achieved = i+1, max(0, 1-2*tail)
	}
	return k, achieved
}

// middle is the median of sorted numbers; two +Inf have the median +Inf.
func middle(sorted []float64) float64 {
	n := len(sorted)
	a, b := sorted[(n-1)/2], sorted[n/2]
	if a == b {
		return a
	}
	return a + (b-a)/2
}
