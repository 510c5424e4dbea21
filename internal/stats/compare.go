package stats

import (
	"fmt"
	"math"
)

// Better says which way a number improves.
type Better string

// Directions, spelled as in the records of a run.
const (
	LowerIsBetter  Better = "lower"
	HigherIsBetter Better = "higher"
)

// Effect says what a change did.
type Effect string

// Effects. Unclear is the zero value's meaning too: nothing is known.
const (
	Unclear     Effect = "unclear"     // the groups may well be the same
	Improvement Effect = "improvement" // better with the change
	Regression  Effect = "regression"  // worse with the change
)

// significant is the two-sided p-value below which Compare names an effect. It
// is for one comparison that was planned; a verdict that is looked at again and
// again while runs come in is package bisect's.
const significant = 0.01

// driftLimit is the p-value below which the two halves of a group differ too
// much for the same kernel on the same machine.
const driftLimit = 0.01

// Summary describes one group of runs.
type Summary struct {
	N        int      `json:"n"`
	Censored int      `json:"censored,omitempty"`
	Min      Obs      `json:"min"`
	Median   Obs      `json:"median"`
	P99      Obs      `json:"p99"` // of the runs; the maximum below 100 runs
	Max      Obs      `json:"max"`
	CI       Interval `json:"ci"` // of the median
}

// Summarize describes a group; the zero Summary when it is empty.
func Summarize(x []Obs, level float64) Summary {
	if len(x) == 0 {
		return Summary{}
	}
	s := ranked(x)
	median := QuantileOf(s, 0.5, level)
	return Summary{
		N: len(s), Censored: censored(s), Min: s[0], Max: s[len(s)-1],
		Median: median.Point, CI: median.Interval, P99: point(s, 0.99),
	}
}

// Comparison is what one change did to one number.
type Comparison struct {
	With    Summary `json:"with"`
	Without Summary `json:"without"`
	// Factor is how many times better it is with the change, above 1 for an
	// improvement whichever way the number improves.
	Factor Ratio `json:"factor"`
	// P is the two-sided Mann-Whitney p-value.
	P        float64  `json:"p"`
	Effect   Effect   `json:"effect"`
	Warnings []string `json:"warnings,omitempty"`
}

// Compare sums up runs with and without a change, each in the order in which
// they were made. level is the confidence wanted for intervals, such as 0.95.
// What makes the result weaker than it looks is in Warnings.
func Compare(with, without []Obs, better Better, level float64) Comparison {
	c := Comparison{With: Summarize(with, level), Without: Summarize(without, level), Effect: Unclear}
	worse, good := without, with
	if better == HigherIsBetter {
		worse, good = with, without
	}
	c.Factor = RatioOf(worse, good, level)
	ranks := MannWhitney(ceilings(worse), ceilings(good))
	c.P = ranks.TwoSided
	switch {
	case c.P >= significant:
	case ranks.Greater < ranks.Less:
		c.Effect = Improvement
	default:
		c.Effect = Regression
	}
	c.Warnings = warnings(c, with, without, level)
	return c
}

func warnings(c Comparison, with, without []Obs, level float64) []string {
	var out []string
	if len(with) == 0 || len(without) == 0 {
		return []string{"no runs on one side: nothing to compare"}
	}
	if got := c.Factor.Interval.Level; got < level {
		out = append(out, fmt.Sprintf("%d against %d runs give the ratio's interval only %.0f %% confidence, not %.0f %%",
			len(with), len(without), 100*got, 100*level))
	}
	if math.IsNaN(c.Factor.Point) && c.Factor.Bound != Unknown {
		out = append(out, "values below zero: the ratio means nothing")
	}
	if math.IsInf(c.Factor.Point, 1) || c.Factor.Point == 0 {
		out = append(out, "values of zero: the ratio is only \"some against none\"")
	}
	for _, side := range []struct {
		name string
		runs []Obs
	}{{"with", with}, {"without", without}} {
		if n := censored(side.runs); n > 0 {
			out = append(out, fmt.Sprintf("%d of %d runs %s the change were stopped at their limit", n, len(side.runs), side.name))
		}
		if d := DriftOf(side.runs); d.Drifts {
			out = append(out, fmt.Sprintf("runs %s the change drift: their first and second half differ (p=%.2g)", side.name, d.P))
		}
	}
	return out
}

// Drift is the answer to "did the same kernel stay the same while we measured".
type Drift struct {
	P      float64 `json:"p"`      // two-sided, first half against second half in time
	Drifts bool    `json:"drifts"` // P < 0.01
}

// DriftOf compares the two halves of runs in the order they were made; a middle
// one is left out. Fewer than 10 runs cannot show a drift (5 against 5 is the
// first with p below 0.01).
func DriftOf(inOrder []Obs) Drift {
	h := len(inOrder) / 2
	v := ceilings(inOrder)
	p := MannWhitney(v[:h], v[len(v)-h:]).TwoSided
	return Drift{P: p, Drifts: p < driftLimit}
}
