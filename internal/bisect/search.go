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
	graph    *Graph
	opts     Options
	prior    []float64
	evidence *evidence

	counts     [][]int // by revision, nil before its first run
	tested     []int   // revisions with runs, ascending
	ends       [2][]int
	built      []bool
	untestable []bool
	dead       []bool // cannot be the culprit: it is the same kernel as its parent
	group      []int  // union-find over revisions that are the same kernel, the ends last

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
	// Seed fixes the draws that estimate information when there are more than two
	// categories.
	Seed uint64
}

const (
	defaultNone = 0.01
	defaultStop = 0.99
	maxCategory = 64
)

// NewSearch returns a search without runs. opts.Weights is not kept.
func NewSearch(g *Graph, opts Options) (*Search, error) {
	opts.Categories = cmp.Or(opts.Categories, 2)
	opts.None = cmp.Or(opts.None, defaultNone)
	opts.Stop = cmp.Or(opts.Stop, defaultStop)
	switch {
	case opts.Categories < 2 || opts.Categories > maxCategory:
		return nil, fmt.Errorf("start search: %d categories: want 2 to %d", opts.Categories, maxCategory)
	case !(opts.None > 0 && opts.None < 1):
		return nil, fmt.Errorf("start search: prior %g of no culprit: want a probability", opts.None)
	case !(opts.Stop > 0.5 && opts.Stop < 1):
		return nil, fmt.Errorf("start search: stop at %g: want a probability above one half", opts.Stop)
	}
	prior, err := priors(opts.Weights, g.n)
	if err != nil {
		return nil, err
	}
	s := &Search{
		graph: g, opts: opts, prior: prior, evidence: newEvidence(opts.Categories),
		counts: make([][]int, g.n), built: make([]bool, g.n),
		untestable: make([]bool, g.n), dead: make([]bool, g.n), group: make([]int, g.n+2),
		ends: [2][]int{make([]int, opts.Categories), make([]int, opts.Categories)},
	}
	for i := range s.group {
		s.group[i] = i
	}
	s.rate()
	return s, nil
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

// check refuses a revision that is none.
func (s *Search) check(v int) error {
	if v != GoodEnd && v != BadEnd && (v < 0 || v >= s.graph.n) {
		return fmt.Errorf("no revision %d", v)
	}
	return nil
}

// Add records one run of a revision or an end: the category of its outcome.
func (s *Search) Add(v, category int) error {
	if err := s.check(v); err != nil {
		return fmt.Errorf("add run: %w", err)
	}
	if category < 0 || category >= s.opts.Categories {
		return fmt.Errorf("add run of %d: no category %d", v, category)
	}
	if v < 0 {
		s.ends[-v-1][category]++
		if n := total(s.ends[0]) + total(s.ends[1]); 4*n >= 5*s.ratedAt {
			s.rate()
		}
		return nil
	}
	if s.before[0] == nil {
		s.before = [2][]int{slices.Clone(s.ends[0]), slices.Clone(s.ends[1])}
	}
	if s.counts[v] == nil {
		s.counts[v] = make([]int, s.opts.Categories)
		i, _ := slices.BinarySearch(s.tested, v)
		s.tested = slices.Insert(s.tested, i, v)
	}
	s.counts[v][category]++
	s.built[v] = true
	return nil
}

// rate takes the ends' rates of now for the table of information.
func (s *Search) rate() {
	s.ratedAt = total(s.ends[0]) + total(s.ends[1])
	s.rated = [2][]float64{s.rates(s.ends[0]), s.rates(s.ends[1])}
	s.table = nil
}

// gains returns the table of information, making it when it is missing.
func (s *Search) gains() *gains {
	if s.table == nil {
		s.table = newGains(s.rated[0], s.rated[1], s.opts.Seed)
	}
	return s.table
}

// rates are the predictive means of the categories.
func (s *Search) rates(counts []int) []float64 {
	out := make([]float64, len(counts))
	n := alpha*float64(len(counts)) + float64(total(counts))
	for k, c := range counts {
		out[k] = (alpha + float64(c)) / n
	}
	return out
}

func total(counts []int) int {
	n := 0
	for _, c := range counts {
		n += c
	}
	return n
}

// Built says that a revision's kernel is there: running it costs no build.
func (s *Search) Built(v int) error {
	if err := s.check(v); err != nil || v < 0 {
		return err
	}
	s.built[v] = true
	return nil
}

// Untestable says that a revision neither builds nor boots, or cannot run the
// workload. It stays a suspect, and what it was run before stays, too.
func (s *Search) Untestable(v int) error {
	if err := s.check(v); err != nil {
		return err
	}
	if v < 0 {
		return errors.New("an end cannot be untestable")
	}
	s.untestable[v] = true
	return nil
}

// Drop forgets the runs of a revision, as those of a build that confirmation has
// shown to be the odd one, and that it was built.
func (s *Search) Drop(v int) error {
	if err := s.check(v); err != nil {
		return err
	}
	if v < 0 {
		return errors.New("an end cannot be dropped")
	}
	s.counts[v], s.built[v] = nil, false
	if i, ok := slices.BinarySearch(s.tested, v); ok {
		s.tested = slices.Delete(s.tested, i, i+1)
	}
	return nil
}

// Same says that two revisions, or one and an end, are the same kernel: both are
// good or both are bad. So no revision that is in one of them only can be the
// culprit, and a run of one is a run of both. It fails, and changes nothing, if
// that would leave no suspect.
func (s *Search) Same(v, w int) error {
	if err := errors.Join(s.check(v), s.check(w)); err != nil {
		return fmt.Errorf("merge revisions: %w", err)
	}
	dead := slices.Clone(s.dead)
	left := 0
	for c := range dead {
		if s.graph.Has(v, c) != s.graph.Has(w, c) {
			dead[c] = true
		}
		if !dead[c] && s.prior[c] > 0 {
			left++
		}
	}
	if left == 0 {
		return fmt.Errorf("merge revisions %d and %d: no suspect is left", v, w)
	}
	s.dead = dead
	s.group[s.root(v)] = s.root(w)
	return nil
}

// root finds the representative of a revision's kernel; ends follow the suspects.
func (s *Search) root(v int) int {
	if v < 0 {
		v = s.graph.n - v - 1
	}
	for s.group[v] != v {
		s.group[v] = s.group[s.group[v]]
		v = s.group[v]
	}
	return v
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

// Runs returns the outcomes of a revision or end by category.
func (s *Search) Runs(v int) []int {
	switch {
	case s.check(v) != nil:
		return nil
	case v < 0:
		return slices.Clone(s.ends[-v-1])
	case s.counts[v] == nil:
		return make([]int, s.opts.Categories)
	}
	return slices.Clone(s.counts[v])
}
