package stats

import (
	"fmt"
	"math"
)

// Proportion is the exact interval of Clopper and Pearson (1934) for the rate
// behind k hits in n runs. With k = 0 (or n) it is one-sided: all of the error
// lies on the open side, and the upper bound is near the "rule of three", 3/n at
// 95 %.
func Proportion(k, n int, level float64) Interval {
	if k < 0 || k > n || n < 0 {
		panic(fmt.Sprintf("stats: proportion of %d/%d", k, n))
	}
	out := Interval{Lo: 0, Hi: 1, Level: level}
	if n == 0 {
		out.Level = 1
		return out
	}
	tail := (1 - level) / 2
	if k == 0 || k == n {
		tail = 1 - level
	}
	if k > 0 {
		out.Lo = solve(0, 1, func(p float64) bool { return betaInc(float64(k), float64(n-k+1), p) >= tail })
	}
	if k < n {
		out.Hi = solve(0, 1, func(p float64) bool { return betaInc(float64(k+1), float64(n-k), p) >= 1-tail })
	}
	return out
}

// Rate is the interval for the rate of events of a Poisson process after events
// in exposure (any unit of time): equal tails of the Gamma posterior under
// Jeffreys' prior, Gamma(events+1/2, exposure). Without an event its lower end is
// 0 and the whole error lies above.
func Rate(events int, exposure, level float64) Interval {
	if events < 0 || exposure < 0 {
		panic(fmt.Sprintf("stats: rate of %d in %g", events, exposure))
	}
	out := Interval{Lo: 0, Hi: math.Inf(1), Level: level}
	if exposure == 0 {
		out.Level = 1
		return out
	}
	a, tail := float64(events)+0.5, (1-level)/2
	if events == 0 {
		tail = 1 - level
	}
	top := 10*a + 100 // far above any tail that a float can hold
	if events > 0 {
		out.Lo = solve(0, top, func(x float64) bool { return gammaInc(a, x) >= tail }) / exposure
	}
	out.Hi = solve(0, top, func(x float64) bool { return gammaInc(a, x) >= 1-tail }) / exposure
	return out
}

// QuietTime is how long a revision must run without an event before the chance
// that it nevertheless has the bad end's rate is at most residual, when that rate
// is known only from events in exposure: the Gamma predictive
// exposure * (residual^(-1/(events+1/2)) - 1). It has the unit of exposure.
func QuietTime(events int, exposure, residual float64) float64 {
	return exposure * (math.Pow(residual, -1/(float64(events)+0.5)) - 1)
}

// solve returns the smallest x in [lo, hi] for which the monotone ok holds, to
// the precision of a float64.
func solve(lo, hi float64, ok func(float64) bool) float64 {
	for range 200 {
		mid := lo + (hi-lo)/2
		if mid == lo || mid == hi {
			break
		}
		if ok(mid) {
			hi = mid
		} else {
			lo = mid
		}
	}
	return hi
}

// quantileNormal is the inverse of phi.
func quantileNormal(p float64) float64 { return -math.Sqrt2 * math.Erfcinv(2*p) }

// Steps and precision of the continued fractions.
const (
	fractionSteps = 500
	fractionEps   = 1e-15
	fractionTiny  = 1e-300
)

// lentz evaluates b0 + a1/(b1 + a2/(b2 + ...)) by the modified method of Lentz.
func lentz(b0 float64, term func(i int) (a, b float64)) float64 {
	f := nonzero(b0)
	c, d := f, 0.0
	for i := 1; i <= fractionSteps; i++ {
		a, b := term(i)
		d = 1 / nonzero(b+a*d)
		c = nonzero(b + a/c)
		f *= c * d
		if math.Abs(c*d-1) < fractionEps {
			break
		}
	}
	return f
}

func nonzero(x float64) float64 {
	if math.Abs(x) < fractionTiny {
		return fractionTiny
	}
	return x
}

// betaInc is the regularised incomplete beta function I_x(a, b), which is
// P(K >= a) for K of a+b-1 runs with the rate x (Abramowitz and Stegun 26.5.8).
func betaInc(a, b, x float64) float64 {
	if x <= 0 {
		return 0
	}
	if x >= 1 {
		return 1
	}
	if x > (a+1)/(a+b+2) { // the fraction converges fast only below the mean
		return 1 - betaInc(b, a, 1-x)
	}
	front := math.Exp(lgamma(a+b) - lgamma(a) - lgamma(b) + a*math.Log(x) + b*math.Log1p(-x))
	f := lentz(1, func(i int) (float64, float64) {
		m := float64(i / 2)
		if i%2 == 0 {
			return m * (b - m) * x / ((a + 2*m - 1) * (a + 2*m)), 1
		}
		return -(a + m) * (a + b + m) * x / ((a + 2*m) * (a + 2*m + 1)), 1
	})
	return front / (a * f)
}

// gammaInc is the regularised lower incomplete gamma function P(a, x)
// (Abramowitz and Stegun 6.5.29 and 6.5.31).
func gammaInc(a, x float64) float64 {
	if x <= 0 {
		return 0
	}
	front := math.Exp(a*math.Log(x) - x - lgamma(a))
	if x < a+1 {
		sum, term := 1/a, 1/a
		for i := 1.0; i < 10*fractionSteps && term > sum*fractionEps/10; i++ {
			term *= x / (a + i)
			sum += term
		}
		return front * sum
	}
	f := lentz(x+1-a, func(i int) (float64, float64) {
		n := float64(i)
		return -n * (n - a), x + 2*n + 1 - a
	})
	return 1 - front/f
}
