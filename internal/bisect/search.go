package bisect

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"slices"
)

// Search finds the culprit among the revisions of a Graph by noisy runs. It is a
// Bayesian search over "which revision": all runs are weighed at once, good and
// bad runs each follow one unknown distribution, and the next run is the one that
// is expected to tell most a second. What it was told is all it depends on: the
// same calls in the same order give the same steps.
//
// It is not safe for use by several goroutines.
type Search struct {
	*ledger
	opts     Options
	evidence *evidence

	// The ends' rates that the table of information is made from, kept until the
	// ends' runs have grown by a quarter, and the table once it was needed.
	rated   [2][]float64
	ratedAt int
	table   *gains

	before [2][]int // the ends' outcomes before the first run of a suspect
}

// Options of a search. The zero value of a field means the default named there.
type Options struct {
	// Categories is the number of kinds of outcome: 2 for hit or not (the
	// default), more for bins of a number.
	Categories int
	// Weights are prior weights of the revisions, not normalised; nil is uniform.
	Weights []float64
	// None is the prior probability that no revision is the culprit; default 0.01.
	None float64
	// Stop is the probability at which a suspect is named; default 0.99.
	Stop float64
	// Seed fixes the draws of Forecast.
	Seed uint64
}

const (
	defaultNone = 0.01
	defaultStop = 0.99
	maxCategory = 64
)

// NewSearch returns a search without runs. opts.Weights is not kept.
func NewSearch(g *Graph, opts Options) (*Search, error) {
	opts, l, err := begin(g, opts)
	if err != nil {
		return nil, err
	}
	s := &Search{ledger: l, opts: opts, evidence: newEvidence(opts.Categories)}
	s.rate()
	return s, nil
}

// begin checks the options, fills in the defaults and makes an empty ledger.
func begin(g *Graph, opts Options) (Options, *ledger, error) {
	opts.Categories = cmp.Or(opts.Categories, 2)
	opts.None = cmp.Or(opts.None, defaultNone)
	opts.Stop = cmp.Or(opts.Stop, defaultStop)
	switch {
	case opts.Categories < 2 || opts.Categories > maxCategory:
		return opts, nil, fmt.Errorf("start search: %d categories: want 2 to %d", opts.Categories, maxCategory)
	case !(opts.None > 0 && opts.None < 1):
		return opts, nil, fmt.Errorf("start search: prior %g of no culprit: want a probability", opts.None)
	case !(opts.Stop > 0.5 && opts.Stop < 1):
		return opts, nil, fmt.Errorf("start search: stop at %g: want a probability above one half", opts.Stop)
	}
	prior, err := priors(opts.Weights, g.n)
	if err != nil {
		return opts, nil, err
	}
	return opts, newLedger(g, prior, opts.Categories), nil
}

// priors normalises weights to 1.
func priors(weights []float64, n int) ([]float64, error) {
	out := make([]float64, n)
	if weights == nil {
		for i := range out {
			out[i] = 1 / float64(n)
		}
		return out, nil
	}
	if len(weights) != n {
		return nil, fmt.Errorf("start search: %d weights for %d revisions", len(weights), n)
	}
	sum := 0.0
	for _, w := range weights {
		if !(w >= 0) || math.IsInf(w, 0) {
			return nil, fmt.Errorf("start search: weight %g", w)
		}
		sum += w
	}
	if sum == 0 || math.IsInf(sum, 0) {
		return nil, errors.New("start search: the weights do not add up")
	}
	for i, w := range weights {
		out[i] = w / sum
	}
	return out, nil
}

// Add records one run of a revision or an end: the category of its outcome.
func (s *Search) Add(v, category int) error {
	ends := [2][]int{slices.Clone(s.ends[0]), slices.Clone(s.ends[1])}
	if err := s.ledger.Add(v, category); err != nil {
		return err
	}
	switch {
	case v >= 0 && s.before[0] == nil:
		s.before = ends
	case v < 0 && 4*(total(s.ends[0])+total(s.ends[1])) >= 5*s.ratedAt:
		s.rate()
	}
	return nil
}

// rate takes the ends' rates of now for the table of information.
func (s *Search) rate() {
	s.ratedAt = total(s.ends[0]) + total(s.ends[1])
	s.rated = [2][]float64{predictive(s.ends[0]), predictive(s.ends[1])}
	s.table = nil
}

// gains returns the table of information, making it when it is missing.
func (s *Search) gains() *gains {
	if s.table == nil {
		s.table = newGains(s.rated[0], s.rated[1])
	}
	return s.table
}

// predictive are the predictive means of the categories.
func predictive(counts []int) []float64 {
	out := make([]float64, len(counts))
	n := alpha*float64(len(counts)) + float64(total(counts))
	for k, c := range counts {
		out[k] = (alpha + float64(c)) / n
	}
	return out
}

// Demand sets the probability at which a suspect is named, in the place of
// Options.Stop. A value outside (1/2, 1) is ignored.
func (s *Search) Demand(p float64) {
	if p > 0.5 && p < 1 {
		s.opts.Stop = p
	}
}

// Suspect is a revision and the probability that it is the culprit.
type Suspect struct {
	Revision int     `json:"revision"`
	P        float64 `json:"p"`
}

// Posterior returns the probability of each revision, and that none of them is
// the culprit. uniform ignores the prior weights, to show how much they did.
func (s *Search) Posterior(uniform bool) (p []float64, none float64) {
	prior := s.prior
	if uniform {
		prior, _ = priors(nil, s.graph.n)
	}
	out := s.posterior(prior)
	return out[:s.graph.n], out[s.graph.n]
}

// Credible returns the fewest revisions that together have at least this
// probability, most likely first; fewer when "none" has too much of it.
func (s *Search) Credible(mass float64) []Suspect {
	p, _ := s.Posterior(false)
	return credible(p, mass)
}

func credible(p []float64, mass float64) []Suspect {
	out := make([]Suspect, 0, len(p))
	for v, x := range p {
		if x > 0 {
			out = append(out, Suspect{v, x})
		}
	}
	slices.SortFunc(out, func(a, b Suspect) int {
		return cmp.Or(cmp.Compare(b.P, a.P), cmp.Compare(a.Revision, b.Revision))
	})
	sum := 0.0
	for i, x := range out {
		if sum += x.P; sum >= mass {
			return out[:i+1]
		}
	}
	return out
}
