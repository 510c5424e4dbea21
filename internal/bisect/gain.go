package bisect

import (
	"math"
	"math/rand/v2"
)

// The information of a probe depends on the revision only through q, the
// probability that it is bad. It is tabulated over logit(q): on a linear grid the
// revisions far from one half, which matter when there are many, all look alike.
const (
	gridPoints = 120
	gridSpan   = 14.0 // |logit(q)|: q from 8e-7
	draws      = 100  // Monte-Carlo outcomes a side for more than two categories
)

// batches are the numbers of runs that a fresh build is judged by.
var batches = [...]int{1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48}

// gains tabulates the expected information, in bits, about "bad or not" of a
// batch of runs: the mutual information of Lindley (1956).
type gains [len(batches)][gridPoints]float64

// newGains computes the table for the outcome distributions of a good and a bad
// run. Two categories are exact; more are estimated from fixed draws.
func newGains(good, bad []float64, seed uint64) *gains {
	var t gains
	rng := rand.New(rand.NewPCG(seed, 0x6b62697365637431))
	for b, m := range batches {
		pts := points(good, bad, m, rng)
		for i := range gridPoints {
			q := logistic(gridLogit(i))
			sum := 0.0
			for _, p := range pts {
				// log2 of P1/M and P0/M, M = q P1 + (1-q) P0, from the ratio P1/P0
				sum += q * p.bad * -math.Log2(q+(1-q)*math.Exp(-p.llr))
				sum += (1 - q) * p.good * -math.Log2(q*math.Exp(p.llr)+1-q)
			}
			t[b][i] = max(0, sum)
		}
	}
	return &t
}

// point is one outcome of a batch: its weight on either side and the log ratio.
type point struct{ good, bad, llr float64 }

func points(good, bad []float64, m int, rng *rand.Rand) []point {
	if len(good) == 2 {
		return binomialPoints(good[1], bad[1], m)
	}
	out := make([]point, 0, 2*draws)
	for i := range 2 * draws {
		from, p := good, point{good: 1.0 / draws}
		if i >= draws {
			from, p = bad, point{bad: 1.0 / draws}
		}
		for range m {
			k := pick(from, rng.Float64())
			p.llr += math.Log(bad[k] / good[k])
		}
		out = append(out, p)
	}
	return out
}

func binomialPoints(p0, p1 float64, m int) []point {
	out := make([]point, m+1)
	for k := range out {
		x, y := float64(k), float64(m-k)
		ways := lgamma(float64(m)+1) - lgamma(x+1) - lgamma(y+1)
		l0 := x*math.Log(p0) + y*math.Log1p(-p0)
		l1 := x*math.Log(p1) + y*math.Log1p(-p1)
		out[k] = point{good: math.Exp(ways + l0), bad: math.Exp(ways + l1), llr: l1 - l0}
	}
	return out
}

// pick returns the category in which u, uniform in [0, 1), falls.
func pick(p []float64, u float64) int {
	for k, x := range p {
		if u -= x; u < 0 {
			return k
		}
	}
	return len(p) - 1
}

func gridLogit(i int) float64 { return -gridSpan + 2*gridSpan*float64(i)/(gridPoints-1) }

func logistic(x float64) float64 { return 1 / (1 + math.Exp(-x)) }

// at interpolates the information of batch b at q.
func (t *gains) at(b int, pos float64) float64 {
	i := min(int(pos), gridPoints-2)
	f := pos - float64(i)
	return t[b][i]*(1-f) + t[b][i+1]*f
}

// position is where q lies on the grid, clamped to it; false when q is so near
// to 0 or 1 that nothing is left to learn.
func position(q float64) (float64, bool) {
	if !(q > 0 && q < 1) {
		return 0, false
	}
	l := math.Log(q / (1 - q))
	if math.Abs(l) > gridSpan {
		return 0, false
	}
	return (l + gridSpan) / (2 * gridSpan) * (gridPoints - 1), true
}
