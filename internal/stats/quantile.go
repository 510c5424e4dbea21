package stats

import (
	"math"
)

// Quantile is one quantile of a group of runs with a distribution-free interval.
type Quantile struct {
	Q        float64  `json:"q"`
	Point    Obs      `json:"point"`
	Interval Interval `json:"interval"`
}

// QuantileOf estimates the quantile q (0.5 is the median) of x. The point is the
// smallest observation with at least that share of all at or below it, for the
// median of an even number the middle of the two. The interval is made of two
// order statistics, whose ranks follow the binomial distribution (Thompson 1936);
// where even the extreme ones do not reach the level (a 95 % upper bound of p99
// needs 299 runs), the extreme ones are taken and Level says what they are worth.
// The upper end is +Inf when it is a censored observation. x must not be empty.
func QuantileOf(x []Obs, q, level float64) Quantile {
	s := ranked(x)
	n := len(s)
	lo, hi, achieved := quantileRanks(n, q, level)
	out := Quantile{Q: q, Point: point(s, q)}
	out.Interval = Interval{Lo: s[lo-1].X, Hi: s[hi-1].X, Level: achieved}
	if s[hi-1].Censored {
		out.Interval.Hi = math.Inf(1)
	}
	return out
}

// point picks the sample quantile of sorted observations.
func point(s []Obs, q float64) Obs {
	n := len(s)
	if q == 0.5 && n%2 == 0 {
		a, b := s[n/2-1], s[n/2]
		return Obs{X: a.X + (b.X-a.X)/2, Censored: a.Censored || b.Censored}
	}
	i := int(math.Ceil(q * float64(n)))
	return s[min(max(i, 1), n)-1]
}

// quantileRanks returns the 1-based ranks of the interval and its confidence
// P(lo <= K < hi), K ~ Binomial(n, q): K is the number of observations at or
// below the true quantile.
func quantileRanks(n int, q, level float64) (lo, hi int, achieved float64) {
	tail := (1 - level) / 2
	lo, hi = 1, n
	below := func(r int) float64 { // P(K < r)
		if r <= 0 {
			return 0
		}
		return 1 - betaInc(float64(r), float64(n-r+1), q)
	}
	for lo < n && below(lo+1) <= tail {
		lo++
	}
	for hi > lo+1 && 1-below(hi-1) <= tail {
		hi--
	}
	return lo, hi, max(0, below(hi)-below(lo))
}
