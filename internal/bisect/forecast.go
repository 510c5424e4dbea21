package bisect

import (
	"math"
	"math/rand/v2"
	"slices"
)

const (
	// rollouts are the searches that a forecast plays through, and forecastSteps
	// bounds each: 8 of 128 suspects take some 20 ms.
	rollouts      = 8
	forecastSteps = 600
	// forecastSize is the most suspects they tell apart; more are put together.
	forecastSize = 128
	negligible   = 1e-6 // posterior mass
)

// Forecast returns how many builds, and runs of suspects and ends, are expected
// until a suspect is named. It plays through searches of a simpler history, a row
// of suspects with the probabilities of now, and takes the mean; so it is of the
// size that is to be expected, not a bound. Asking changes nothing and gives the
// same answer each time.
func (s *Search) Forecast(c Costs) (builds, runs int) {
	if s.Next(c).Found != nil {
		return 0, 0
	}
	p := s.posterior(s.prior)[:s.graph.n]
	m := s.outline(p)
	if len(m.weights) < 2 {
		return 0, 1
	}
	if c.Build != nil {
		build := c.Build
		c.Build = func(j int) float64 { return build(m.last[j]) }
	}
	b, r := 0, 0
	for i := range rollouts {
		x, y := s.rollout(m, c, i)
		b, r = b+x, r+y
	}
	// Suspects that were put together take the rest of the bits at the same price.
	scale := max(1, entropy(p)/entropy(m.weights)) / rollouts
	return int(math.Round(float64(b) * scale)), int(max(1, math.Round(float64(r)*scale)))
}

// model is a history in a row that is about as hard to search as the real one.
type model struct {
	weights []float64 // probability of each place in the row
	last    []int     // the last revision that it stands for
	built   []bool
}

// outline puts suspects together until there are few, but parts them behind
// kernels that are built: where these stand in the row is the probability that
// they are bad.
func (s *Search) outline(p []float64) model {
	var m model
	marks := s.builtAt(p)
	sum, all := 0.0, 0.0
	for v, x := range p {
		sum += x
		all += x
		atMark := len(marks) > 0 && all >= marks[0]-negligible
		full := sum >= 1.0/forecastSize && !s.untestable[v]
		if sum <= negligible || !atMark && !full && v < len(p)-1 {
			continue
		}
		m.weights, m.last, m.built = append(m.weights, sum), append(m.last, v), append(m.built, atMark)
		sum = 0
		for len(marks) > 0 && all >= marks[0]-negligible {
			marks = marks[1:]
		}
	}
	return m
}

// builtAt returns the probabilities of being bad of the kernels that are there,
// ascending, where they are not certain.
func (s *Search) builtAt(p []float64) []float64 {
	built := s.builtGroups()
	var out []float64
	for v, q := range s.graph.sums(p) {
		if built[s.root(v)] && !s.untestable[v] && q > negligible && q < 1-negligible {
			out = append(out, q)
		}
	}
	slices.Sort(out)
	return out
}

// rollout plays one search of the row through and counts what it took.
func (s *Search) rollout(m model, c Costs, i int) (builds, runs int) {
	g := &Graph{n: len(m.weights)}
	prior, _ := priors(m.weights, g.n) // not all zero, so it cannot fail
	share := [2][]float64{shares(s.ends[0]), shares(s.ends[1])}
	sim := &Search{
		ledger: newLedger(g, prior, s.categories()), opts: s.opts, evidence: s.evidence,
		rated: s.rated, ratedAt: math.MaxInt / 8, table: s.gains(), // the table stays as it is
	}
	copy(sim.built, m.built)
	for e := range sim.ends {
		sim.ends[e], sim.before[e] = slices.Clone(s.ends[e]), slices.Clone(s.before[e])
	}
	culprit := pick(prior, (float64(i)+0.5)/rollouts)
	rng := rand.New(rand.NewPCG(s.opts.Seed, uint64(i)))
	for range forecastSteps {
		step := sim.Next(c)
		if step.Found != nil {
			break
		}
		if step.Build {
			builds++
		}
		side := 0
		if g.Has(step.Revision, culprit) {
			side = 1
		}
		runs++
		if sim.Add(step.Revision, pick(share[side], rng.Float64())) != nil {
			break // cannot be: Next names revisions that are there
		}
	}
	return builds, runs
}

// shares are the categories' shares as they were seen: a rate of 0 in 20 runs is
// taken for 0, not for the 2 % that it may be, which would double the runs.
func shares(counts []int) []float64 {
	n := float64(total(counts))
	if n == 0 {
		return predictive(counts)
	}
	out := make([]float64, len(counts))
	for k, x := range counts {
		out[k] = float64(x) / n
	}
	return out
}

// entropy is that of weights, normalised, in bits.
func entropy(weights []float64) float64 {
	total, sum := 0.0, 0.0
	for _, w := range weights {
		if w > 0 {
			total += w
			sum += w * math.Log2(w)
		}
	}
	return math.Log2(total) - sum/total
}
