package bisect

import "math"

// The information of a probe depends on the revision only through q, the
// probability that it is bad. It is tabulated over logit(q): on a linear grid the
// revisions far from one half, which matter when there are many, all look alike.
const (
	gridPoints = 120
	gridSpan   = 14.0 // |logit(q)|: q from 8e-7

	// Outcomes of a batch over more than two categories are put together by their
	// log likelihood ratio, in cells of a fine grid while runs are added, of a
	// coarse one at the end.
	cellSpan = 24.0
	cells    = 1601
	coarse   = 8 // cells of the fine grid in one of the coarse one
)

// batches are the numbers of runs that a fresh build is judged by.
var batches = [...]int{1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48}

// gains tabulates the expected information, in bits, about "bad or not" of a
// batch of runs: the mutual information of Lindley (1956).
type gains [len(batches)][gridPoints]float64

// newGains computes the table for the outcome distributions of a good and a bad
// run. Two categories are exact; for more it is exactly what a batch tells if its
// outcome is only known to the cell of its likelihood ratio, a little less than
// all. (Estimated from 100 draws a side instead, the gain of unlikely revisions
// came out too large: a search of 64 then built 8 to 24 kernels.)
func newGains(good, bad []float64) *gains {
	var t gains
	if len(good) == 2 {
		for b, m := range batches {
			t.fill(b, binomialPoints(good[1], bad[1], m))
		}
		return &t
	}
	fine := newCells(good, bad)
	runs := 0
	for b, m := range batches {
		for ; runs < m; runs++ {
			fine.run()
		}
		t.fill(b, fine.points())
	}
	return &t
}

// fill computes the information of batch b from its outcomes.
func (t *gains) fill(b int, pts []point) {
	for i := range gridPoints {
		q := logistic(gridLogit(i))
		sum := 0.0
		for _, p := range pts {
			// log2 of P1/M and P0/M, M = q P1 + (1-q) P0, from the ratio P1/P0
			sum += q * p.bad * -math.Log2(q+(1-q)/p.ratio)
			sum += (1 - q) * p.good * -math.Log2(q*p.ratio+1-q)
		}
		t[b][i] = max(0, sum)
	}
}

// point is one outcome of a batch: its probability on either side and the ratio of
// them, bad over good.
type point struct{ good, bad, ratio float64 }

// cellGrid is the distribution of the log likelihood ratio of some runs: the
// probability of each cell when they are good and when they are bad. A cell's own
// ratio is that of the two, so that nothing is lost but what sharing it hides.
type cellGrid struct {
	good, bad     []float64 // of one run by category
	shift         []int     // by category, in cells
	inGood, inBad []float64
}

func newCells(good, bad []float64) *cellGrid {
	g := &cellGrid{good: good, bad: bad, inGood: make([]float64, cells), inBad: make([]float64, cells)}
	for k := range good {
		g.shift = append(g.shift, int(math.Round(math.Log(bad[k]/good[k])/(2*cellSpan)*(cells-1))))
	}
	g.inGood[cells/2], g.inBad[cells/2] = 1, 1
	return g
}

// run adds one run.
func (g *cellGrid) run() {
	good, bad := make([]float64, cells), make([]float64, cells)
	for i, x := range g.inGood {
		y := g.inBad[i]
		if x == 0 && y == 0 {
			continue
		}
		for k, by := range g.shift {
			to := min(max(i+by, 0), cells-1)
			good[to] += x * g.good[k]
			bad[to] += y * g.bad[k]
		}
	}
	g.inGood, g.inBad = good, bad
}

// points are the cells of the coarse grid.
func (g *cellGrid) points() []point {
	var out []point
	for i := 0; i < cells; i += coarse {
		end := min(i+coarse, cells)
		p := point{good: sum(g.inGood[i:end]), bad: sum(g.inBad[i:end])}
		if p.ratio = p.bad / p.good; p.ratio > 0 && !math.IsInf(p.ratio, 0) {
			out = append(out, p)
		}
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
		out[k] = point{good: math.Exp(ways + l0), bad: math.Exp(ways + l1), ratio: math.Exp(l1 - l0)}
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
