package bisect

import "math"

// chance is the predictive probability of passing in a direction at the last
// look, end runs a side, given the n made so far: the probability of passing
// averaged over what the rates may be (Spiegelhalter, Freedman and Blackburn
// 1986). The looks in between are ignored; they add little.
func (d *Duel) chance(dir Direction, n, end int) float64 {
	limit := d.limit(end)
	if d.rules.LookFor == 0 {
		limit /= 2 // p() doubles the smaller one
	}
	if d.rules.Rates {
		return d.chanceRates(dir, float64(n)/float64(end), limit)
	}
	if d.rules.Threshold == 0 {
		return chanceNormal(d.z(dir), float64(n)/float64(end), limit)
	}
	hi, lo := d.sides[Bad], d.sides[Good]
	if d.reverse(dir) {
		hi, lo = lo, hi
	}
	return d.chanceHits(hi.Hits, lo.Hits, n, end, limit)
}

// z is the normal score of the evidence so far. Both tails contain the observed
// value, so their mean score has no bias from ties; equal numbers give 0.
func (d *Duel) z(dir Direction) float64 {
	const tiny = 1e-12
	score := func(p float64) float64 {
		p = min(max(p, tiny), 1-tiny)
		return math.Sqrt2 * math.Erfcinv(2*p)
	}
	return (score(d.pOf(dir)) - score(d.pOf(dir.other()))) / 2
}

// chanceNormal: with a flat prior the final score is normal around z/sqrt(t) with
// variance (1-t)/t, where t is the share of the runs that were made.
func chanceNormal(z, t, limit float64) float64 {
	need := math.Sqrt2 * math.Erfcinv(2*limit)
	return phi((z - need*math.Sqrt(t)) / math.Sqrt(1-t))
}

// chanceRates: the logarithm of the ratio of two rates is about normal with the
// variance 1/events on either side; a half is added to each (Haldane 1956,
// Anscombe 1956), so that no event at all leaves the ratio open instead of 1.
func (d *Duel) chanceRates(dir Direction, t, limit float64) float64 {
	hi, lo := d.sides[Bad], d.sides[Good]
	if dir == Lower {
		hi, lo = lo, hi
	}
	k1, k0 := float64(hi.Hits)+0.5, float64(lo.Hits)+0.5
	ratio := math.Log(k1 / hi.Exposure * lo.Exposure / k0)
	return chanceNormal(ratio/math.Sqrt(1/k1+1/k0), t, limit)
}

func phi(z float64) float64 { return math.Erfc(-z/math.Sqrt2) / 2 }

// chanceHits sums over all hits that the runs still to come may bring, each side
// beta-binomial after Jeffreys' prior.
func (d *Duel) chanceHits(hits1, hits0, n, end int, limit float64) float64 {
	rest := end - n
	p1 := betaBinomial(rest, float64(hits1)+0.5, float64(n-hits1)+0.5)
	p0 := betaBinomial(rest, float64(hits0)+0.5, float64(n-hits0)+0.5)
	tail := make([]float64, rest+2) // tail[j] = P(at least j more hits on side 1)
	for j := rest; j >= 0; j-- {
		tail[j] = tail[j+1] + p1[j]
	}
	sum, j := 0.0, 0
	for more, p := range p0 { // the hits needed only grow with those of the other side
		for j <= rest && d.rules.Tests.Fisher(hits1+j, end, hits0+more, end) >= limit {
			j++
		}
		sum += p * tail[j]
	}
	return sum
}

// betaBinomial is the distribution of hits in n runs whose rate is Beta(a, b).
func betaBinomial(n int, a, b float64) []float64 {
	out := make([]float64, n+1)
	for k := range out {
		x, y := float64(k), float64(n-k)
		out[k] = math.Exp(lgamma(x+y+1) - lgamma(x+1) - lgamma(y+1) +
			lgamma(x+a) + lgamma(y+b) - lgamma(x+y+a+b) - lgamma(a) - lgamma(b) + lgamma(a+b))
	}
	return out
}

func lgamma(x float64) float64 {
	v, _ := math.Lgamma(x)
	return v
}
