package bisect

import (
	"math"
	"math/bits"
)

func trailing(x int) int { return bits.TrailingZeros(uint(x)) }

// alpha is the Dirichlet parameter a category, Jeffreys' prior.
const alpha = 0.5

// evidence is the log probability of outcomes under an unknown distribution over
// k categories, the distribution integrated out (Dirichlet-multinomial; for two
// categories the Beta-binomial rule of git_bayesect):
//
//	D(n) = sum_k lgamma(alpha+n_k) - lgamma(k*alpha + sum_k n_k)
//
// It is exact up to a constant that all hypotheses share, save that "nothing
// changed" has one distribution where the others have two; empty is that
// constant. The gammas of half-integers are kept, as a search asks for few of
// them very often.
type evidence struct {
	k     int
	one   []float64 // lgamma(alpha+i)
	all   []float64 // lgamma(k*alpha+i)
	empty float64   // D of no outcomes
}

func newEvidence(k int) *evidence {
	e := &evidence{k: k}
	e.grow(64)
	e.empty = float64(k)*e.one[0] - e.all[0]
	return e
}

func (e *evidence) grow(n int) {
	for i := len(e.one); i <= n; i++ {
		e.one = append(e.one, lgamma(alpha+float64(i)))
		e.all = append(e.all, lgamma(float64(e.k)*alpha+float64(i)))
	}
}

// log returns the normalised D: 0 for no outcomes.
func (e *evidence) log(counts []int) float64 {
	n, sum := 0, -e.empty
	for _, c := range counts {
		n += c
	}
	if n >= len(e.one) {
		e.grow(2 * n)
	}
	for _, c := range counts {
		sum += e.one[c]
	}
	return sum - e.all[n]
}

// posterior returns the probability of each suspect, and of none of them last.
func (s *Search) posterior(prior []float64) []float64 {
	n := s.graph.n
	out := make([]float64, n+1)
	good, bad := make([]int, s.opts.Categories), make([]int, s.opts.Categories)
	for c := range n {
		if s.dead[c] || prior[c] == 0 {
			out[c] = math.Inf(-1)
			continue
		}
		copy(good, s.ends[0])
		copy(bad, s.ends[1])
		for _, v := range s.tested {
			side := good
			if s.graph.Has(v, c) {
				side = bad
			}
			for k, x := range s.counts[v] {
				side[k] += x
			}
		}
		out[c] = math.Log(prior[c]) + s.evidence.log(good) + s.evidence.log(bad)
	}
	copy(good, s.ends[0])
	add(good, s.ends[1])
	for _, v := range s.tested {
		add(good, s.counts[v])
	}
	out[n] = math.Log(s.opts.None) + s.evidence.log(good)
	normalise(out)
	return out
}

func add(to, from []int) {
	for k, x := range from {
		to[k] += x
	}
}

// normalise turns log weights into probabilities.
func normalise(x []float64) {
	top := math.Inf(-1)
	for _, v := range x {
		top = max(top, v)
	}
	total := 0.0
	for i, v := range x {
		x[i] = math.Exp(v - top)
		total += x[i]
	}
	for i := range x {
		x[i] /= total
	}
}
