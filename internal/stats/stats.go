// Package stats has the few comparisons that kbisect makes of two groups of
// runs, each chosen so that it needs no assumption about the distribution of a
// latency: Fisher's exact test for "above the threshold or not", the exact
// Mann-Whitney test for values, the ratio of two groups with an interval made of
// order statistics, and exact bounds for rates and proportions.
//
//	c := stats.Compare(with, without, stats.LowerIsBetter, 0.95)
//	fmt.Println(c.Factor, c.P, c.Effect, c.Warnings)
//
// One observation is one run (one boot). Operations inside one run share its
// luck and must not be passed as if they were independent.
//
// No function changes or keeps the slices it is given. Functions panic only on
// counts that cannot be (more hits than runs), which is a caller's bug.
package stats

import (
	"encoding/json"
	"fmt"
	"math"
	"slices"
)

// Obs is one run's number, in any unit. When Censored, the run was stopped at
// X: the truth is larger. A censored observation ranks above every other one.
type Obs struct {
	X        float64 `json:"x"`
	Censored bool    `json:"censored,omitempty"`
}

// Values returns observations of which none is censored.
func Values(xs ...float64) []Obs {
	out := make([]Obs, len(xs))
	for i, x := range xs {
		out[i].X = x
	}
	return out
}

// String formats an observation for a message, ">60" when censored.
func (o Obs) String() string {
	if o.Censored {
		return fmt.Sprintf(">%.3g", o.X)
	}
	return fmt.Sprintf("%.3g", o.X)
}

// Interval is a confidence interval. Level is the confidence that it really has,
// which is below the one asked for when there are too few runs: the widest
// interval of 3 against 3 runs has 90 %.
type Interval struct {
	Lo    float64 `json:"lo"`
	Hi    float64 `json:"hi"` // +Inf when no observation bounds it
	Level float64 `json:"level"`
}

// Contains reports whether x lies in the closed interval.
func (i Interval) Contains(x float64) bool { return i.Lo <= x && x <= i.Hi }

// MarshalJSON writes an end that is not a finite number as null.
func (i Interval) MarshalJSON() ([]byte, error) {
	return json.Marshal(struct {
		Lo    *float64 `json:"lo"`
		Hi    *float64 `json:"hi"`
		Level *float64 `json:"level"`
	}{finite(i.Lo), finite(i.Hi), finite(i.Level)})
}

// finite is nil for what JSON cannot say.
func finite(x float64) *float64 {
	if math.IsNaN(x) || math.IsInf(x, 0) {
		return nil
	}
	return &x
}

// ceilings returns the largest value that each observation may stand for: +Inf
// for a censored one.
func ceilings(x []Obs) []float64 {
	out := make([]float64, len(x))
	for i, o := range x {
		out[i] = o.X
		if o.Censored {
			out[i] = math.Inf(1)
		}
	}
	return out
}

// floors returns the smallest value that each observation may stand for.
func floors(x []Obs) []float64 {
	out := make([]float64, len(x))
	for i, o := range x {
		out[i] = o.X
	}
	return out
}

// ranked returns a sorted copy, censored observations last.
func ranked(x []Obs) []Obs {
	out := slices.Clone(x)
	slices.SortFunc(out, func(a, b Obs) int {
		switch {
		case a.Censored != b.Censored && b.Censored:
			return -1
		case a.Censored != b.Censored:
			return 1
		case a.X < b.X:
			return -1
		case a.X > b.X:
			return 1
		}
		return 0
	})
	return out
}

// censored counts the censored observations.
func censored(x []Obs) int {
	n := 0
	for _, o := range x {
		if o.Censored {
			n++
		}
	}
	return n
}
