package bisect

import (
	"math"
	"slices"
)

// SPRT is the plain strategy that Search is measured against: bisection as git
// does it, each midpoint run until Wald's sequential probability ratio test
// (1945) calls it good or bad. It takes a good and a bad run to be distributed as
// the ends' runs were; the stated error is true only as far as that is, so the
// ends need many runs. A verdict is never taken back, save by Drop.
//
// It is not safe for use by several goroutines.
type SPRT struct {
	*ledger
	stop  float64
	limit float64 // of the log likelihood ratio, on both sides
	order []int   // revisions with runs, first tested first
}

// NewSPRT returns a search without runs. Of opts.Weights it uses only which are
// zero, None and Seed not at all. 1-opts.Stop is the error in total: each of the
// ceil(log2 n) steps may spend its share. opts.Weights is not kept.
func NewSPRT(g *Graph, opts Options) (*SPRT, error) {
	opts, l, err := begin(g, opts)
	if err != nil {
		return nil, err
	}
	share := (1 - opts.Stop) / max(1, math.Ceil(math.Log2(float64(g.n))))
	return &SPRT{ledger: l, stop: opts.Stop, limit: math.Log((1 - share) / share)}, nil
}

// Add records one run of a revision or an end: the category of its outcome.
func (s *SPRT) Add(v, category int) error {
	if err := s.ledger.Add(v, category); err != nil {
		return err
	}
	if v >= 0 && !slices.Contains(s.order, v) {
		s.order = append(s.order, v)
	}
	return nil
}

// Drop forgets the runs of a revision, as those of a build that confirmation has
// shown to be the odd one, and that it was built.
func (s *SPRT) Drop(v int) error {
	if err := s.ledger.Drop(v); err != nil {
		return err
	}
	s.order = slices.DeleteFunc(s.order, func(w int) bool { return w == v })
	return nil
}

// Next returns what to run now. Asking changes nothing, and costs do not matter.
func (s *SPRT) Next(Costs) Step {
	weigh := s.weights()
	if end := s.badlyKnown(); end != 0 {
		return Step{Revision: end, Runs: 1}
	}
	alive, n := s.suspects(weigh)
	v, below := s.midpoint(alive, n)
	if v < 0 {
		f := &Finding{P: s.stop}
		for c, a := range alive {
			if a > 0 {
				f.Class = append(f.Class, c)
			}
		}
		return Step{Found: f}
	}
	share := below / n
	return Step{
		Revision: v, Build: !s.builtGroups()[s.root(v)], Runs: s.runsLeft(s.ratio(v, weigh), weigh),
		Bits: -share*math.Log2(share) - (1-share)*math.Log2(1-share),
	}
}

// weights returns what an outcome of each category adds to the log likelihood
// ratio, bad over good.
func (s *SPRT) weights() []float64 {
	good, bad := predictive(s.ends[0]), predictive(s.ends[1])
	for k := range bad {
		bad[k] = math.Log(bad[k] / good[k])
	}
	return bad
}

// badlyKnown returns an end to run when the ends do not differ in anything yet, 0
// otherwise: no number of other runs would decide then.
func (s *SPRT) badlyKnown() int {
	good, bad := total(s.ends[0]), total(s.ends[1])
	switch {
	case good > 0 && bad > 0 && !slices.Equal(predictive(s.ends[0]), predictive(s.ends[1])):
		return 0
	case bad < good:
		return BadEnd
	}
	return GoodEnd
}

// suspects weighs with 1 who may be the culprit after all verdicts, and counts
// them. A verdict that would leave no one, as those of odd builds may, is passed
// over.
func (s *SPRT) suspects(weigh []float64) (alive []float64, n float64) {
	alive = make([]float64, s.graph.n)
	for c := range alive {
		if !s.dead[c] && s.prior[c] > 0 {
			alive[c] = 1
			n++
		}
	}
	for _, v := range s.order {
		llr := s.ratio(v, weigh)
		if math.Abs(llr) < s.limit {
			continue
		}
		left, m := make([]float64, s.graph.n), 0.0
		for c, a := range alive {
			if a > 0 && s.graph.Has(v, c) == (llr > 0) {
				left[c] = 1
				m++
			}
		}
		if m > 0 {
			alive, n = left, m
		}
	}
	return alive, n
}

// ratio is the log likelihood ratio, bad over good, of the runs of v's kernel.
func (s *SPRT) ratio(v int, weigh []float64) float64 {
	sum, r := 0.0, s.root(v)
	for _, w := range s.tested {
		if s.root(w) == r {
			for k, x := range s.counts[w] {
				sum += float64(x) * weigh[k]
			}
		}
	}
	return sum
}

// midpoint returns the testable revision with the number of suspects at or below
// it nearest to half of them, and that number; -1 when none separates any two.
// Among equals it is a built one, then the first.
func (s *SPRT) midpoint(alive []float64, n float64) (v int, below float64) {
	built := s.builtGroups()
	v = -1
	top, topBuilt := 0.0, false
	for w, a := range s.graph.sums(alive) {
		half := min(a, n-a)
		if half < 1 || s.untestable[w] {
			continue
		}
		if b := built[s.root(w)]; half > top || half == top && b && !topBuilt {
			v, below, top, topBuilt = w, a, half, b
		}
	}
	return v, below
}

// runsLeft is Wald's approximation of the runs until a revision is decided whose
// runs so far have this log likelihood ratio.
func (s *SPRT) runsLeft(llr float64, weigh []float64) int {
	towardBad, towardGood := 0.0, 0.0 // information a run, were it bad or good
	good, bad := predictive(s.ends[0]), predictive(s.ends[1])
	for k, w := range weigh {
		towardBad += bad[k] * w
		towardGood -= good[k] * w
	}
	runs := (max(0, s.limit-llr)/towardBad + max(0, s.limit+llr)/towardGood) / 2
	return int(max(1, min(math.Ceil(runs), 1e6)))
}

// Forecast returns how many builds and runs are expected until a suspect is
// named.
func (s *SPRT) Forecast(c Costs) (builds, runs int) {
	step := s.Next(c)
	if step.Found != nil {
		return 0, 0
	}
	if step.Revision < 0 {
		return 0, step.Runs
	}
	weigh := s.weights()
	_, n := s.suspects(weigh)
	steps := int(math.Ceil(math.Log2(n)))
	builds, runs = steps, step.Runs
	if !step.Build {
		builds--
	}
	return builds, runs + (steps-1)*s.runsLeft(0, weigh)
}

// Posterior shares the probability evenly among the suspects that are left: the
// verdicts say no more about them, and prior weights have no part in it. None of
// them is never the answer.
func (s *SPRT) Posterior(bool) (p []float64, none float64) {
	p, n := s.suspects(s.weights())
	for c := range p {
		p[c] /= n
	}
	return p, 0
}

// Credible returns the fewest of the suspects that are left that together have at
// least this share, in ascending order.
func (s *SPRT) Credible(mass float64) []Suspect {
	p, _ := s.Posterior(false)
	return credible(p, mass)
}
