package stats

import (
	"fmt"
	"math"
)

// GreaterRate is the one-sided exact p-value that the first of two Poisson
// processes has the higher rate: given all events, those of the first are
// binomial with its share of the exposure when the rates are equal (Przyborowski
// and Wilenski 1940). Exposures may have any common unit. Without an event, or
// without exposure, it is 1.
func GreaterRate(events1 int, exposure1 float64, events0 int, exposure0 float64) float64 {
	checkRate(events1, exposure1)
	checkRate(events0, exposure0)
	if events1 == 0 || exposure1+exposure0 == 0 {
		return 1
	}
	return betaInc(float64(events1), float64(events0+1), exposure1/(exposure1+exposure0))
}

// RateRatio estimates the first rate over the second, with the exact interval
// that inverts GreaterRate. Without an event on the second side point and upper
// end are +Inf; without any event nothing is known: NaN, and 0 to +Inf.
func RateRatio(events1 int, exposure1 float64, events0 int, exposure0, level float64) (float64, Interval) {
	checkRate(events1, exposure1)
	checkRate(events0, exposure0)
	none := Interval{Lo: 0, Hi: math.Inf(1), Level: level}
	if events1+events0 == 0 || exposure1 == 0 || exposure0 == 0 {
		return math.NaN(), none
	}
	q := Proportion(events1, events1+events0, level)
	odds := func(p float64) float64 { return p / (1 - p) * exposure0 / exposure1 }
	point := odds(float64(events1) / float64(events1+events0))
	return point, Interval{Lo: odds(q.Lo), Hi: odds(q.Hi), Level: level}
}

func checkRate(events int, exposure float64) {
	if events < 0 || !(exposure >= 0) {
		panic(fmt.Sprintf("stats: %d events in %g", events, exposure))
	}
}
