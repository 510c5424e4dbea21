package bisect_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"slices"
	"testing"

	"github.com/kbisect/kbisect/internal/bisect"
)

// envTrials is how many trials a simulation makes: few in every test run, many
// when KBISECT_CALIBRATION is set.
func envTrials(few, many int) int {
	if os.Getenv("KBISECT_CALIBRATION") != "" {
		return many
	}
	return few
}

// world is a simulated range: what is true, and what it costs.
type world struct {
	graph    *bisect.Graph
	culprit  int
	good     []float64 // distribution of a good run over the categories
	bad      []float64
	flip     float64 // chance that a build behaves like the other side
	broken   func(v int) bool
	endRuns  int
	buildFor float64 // cost of a build in runs
	merged   [][2]int
	start    func(*bisect.Graph, bisect.Options) (strategy, error) // nil: newSearch

	// number draws a run's number instead of good and bad; at is the run's place in
	// time. It is a hit above threshold, or is put in a bin when that is 0.
	number    func(isBad bool, at int, rng *rand.Rand) float64
	threshold float64
	duel      bool // the ends are run as the Duel's rules say, instead of endRuns times
	confirm   bool // confirm on rebuilt kernels, and go on when that fails

	before func(s strategy, step int) // looks at the steps in watch
	watch  []int
	after  func(s strategy) // looks at the end
}

// trip is what a search did.
type trip struct {
	found              *bisect.Finding
	right              bool
	refused            bool // by the duel
	builds, runs, ends int
	verified           int // runs of the ends before the search
	buildsAt12         int // builds in the first 12 steps
	cost               float64
}

func draw(p []float64, rng *rand.Rand) int {
	u := rng.Float64()
	for k, x := range p {
		if u -= x; u < 0 {
			return k
		}
	}
	return len(p) - 1
}

// journey is one trip under way.
type journey struct {
	world
	trip
	t      testing.TB
	rng    *rand.Rand
	search strategy
	cuts   []float64
	odd    map[int]bool // builds that behave like the other side
	at     int
}

// explore runs one search to its end, or gives up after 4000 steps.
func (w world) explore(t testing.TB, rng *rand.Rand) trip {
	t.Helper()
	j := &journey{world: w, t: t, rng: rng, odd: map[int]bool{}}
	if j.start == nil {
		j.start = newSearch
	}
	if j.begin() {
		j.walk()
		if j.after != nil {
			j.after(j.search)
		}
	}
	return j.trip
}

// isBad tells how a build of a revision behaves.
func (j *journey) isBad(v int, odd bool) bool {
	if j.culprit < 0 { // after the ends were measured nothing reproduces
		return j.search == nil && v == bisect.BadEnd
	}
	return j.graph.Has(v, j.culprit) != odd
}

// outcome is one run: its number, 0 or 1 without numbers, and its category.
func (j *journey) outcome(isBad bool) (x float64, category int) {
	j.at++
	switch {
	case j.number == nil && isBad:
		category = draw(j.bad, j.rng)
		return float64(category), category
	case j.number == nil:
		category = draw(j.good, j.rng)
		return float64(category), category
	}
	x = j.number(isBad, j.at, j.rng)
	if j.threshold > 0 {
		return x, btoi(x > j.threshold)
	}
	return x, bisect.Bin(j.cuts, x)
}

// begin runs the ends and starts the search; false when the ends do not differ.
func (j *journey) begin() bool {
	var x [3][]float64
	var category [3][]int
	run := func(s bisect.Side) bisect.Outcome {
		n, k := j.outcome(j.isBad(map[bisect.Side]int{bisect.Good: bisect.GoodEnd, bisect.Bad: bisect.BadEnd}[s], false))
		x[s], category[s] = append(x[s], n), append(category[s], k)
		return bisect.Outcome{Kind: bisect.Measured, Number: n, HasNumber: j.number != nil, Hit: k > 0}
	}
	if j.duel {
		rules := bisect.Rules{LookFor: bisect.Higher, ConfirmedLater: true}
		if j.number == nil || j.threshold > 0 {
			rules.Threshold = bisect.Higher
		}
		d, _ := fight(j.t, rules, func(s bisect.Side, _ int) bisect.Outcome { return run(s) })
		if j.refused = d.Verdict != bisect.Differ || d.Unexpected; j.refused {
			return false
		}
	} else {
		for range j.endRuns {
			run(bisect.Good)
			run(bisect.Bad)
		}
	}
	j.verified = len(x[bisect.Good]) + len(x[bisect.Bad])
	categories := max(2, len(j.good))
	if j.number != nil && j.threshold == 0 {
		j.cuts = bisect.Cuts(x[bisect.Good], x[bisect.Bad])
		categories = len(j.cuts) + 1
		for s := range x {
			for i, n := range x[s] {
				category[s][i] = bisect.Bin(j.cuts, n)
			}
		}
	}
	s, err := j.start(j.graph, bisect.Options{Categories: categories, Seed: 1})
	must(j.t, err)
	for _, k := range category[bisect.Good] {
		must(j.t, s.Add(bisect.GoodEnd, k))
	}
	for _, k := range category[bisect.Bad] {
		must(j.t, s.Add(bisect.BadEnd, k))
	}
	for _, m := range j.merged {
		must(j.t, s.Same(m[0], m[1]))
	}
	j.search = s
	return true
}

func (j *journey) walk() {
	costs := bisect.Costs{Run: 1, Build: func(int) float64 { return j.buildFor }}
	for i := range 4000 {
		if slices.Contains(j.watch, i) {
			j.before(j.search, i)
		}
		step := j.search.Next(costs)
		if step.Found != nil {
			if j.confirm && len(step.Found.Class) == 1 && !j.confirmed(step.Found.Class[0]) {
				continue
			}
			j.found = step.Found
			j.right = slices.Contains(step.Found.Class, j.culprit) || j.culprit < 0 && step.Found.None
			return
		}
		v := step.Revision
		if step.Build {
			j.buildsAt12 += btoi(i < 12)
			if !j.build(v) {
				continue
			}
		}
		_, k := j.outcome(j.isBad(v, j.odd[v]))
		must(j.t, j.search.Add(v, k))
		j.count(v)
	}
}

func (j *journey) build(v int) bool {
	j.builds++
	j.cost += j.buildFor
	if j.broken != nil && j.broken(v) {
		must(j.t, j.search.Untestable(v))
		return false
	}
	j.odd[v] = j.rng.Float64() < j.flip
	return true
}

func (j *journey) count(v int) {
	j.cost++
	if v < 0 {
		j.ends++
	} else {
		j.runs++
	}
}

// confirmed runs the culprit and its parent, both built anew, until the e-value
// decides. When it refuses, further builds of the odd side vote: a build that is
// outvoted is forgotten. It is false when the search goes on. For a history in a
// row only.
func (j *journey) confirmed(culprit int) bool {
	revs := [3]int{0, culprit - 1, culprit} // by side; -1 is GoodEnd
	sides := j.sides(culprit)
	var luck [3]bool
	for s := bisect.Good; s <= bisect.Bad; s++ {
		luck[s] = j.rebuild(revs[s])
	}
	for range 4 {
		spent := total(j.search.Runs(revs[bisect.Good])) + total(j.search.Runs(revs[bisect.Bad]))
		c, err := bisect.NewConfirmation(sides[bisect.Good], sides[bisect.Bad], 3*spent)
		must(j.t, err)
		var end *bisect.Confirmed
		for side := bisect.Side(0); ; {
			if side, end = c.Next(); end != nil {
				break
			}
			_, k := j.outcome(j.isBad(revs[side], luck[side]))
			must(j.t, c.Add(side, k))
			j.count(revs[side])
		}
		if end.OK {
			return true
		}
		dropped := false
		for _, s := range c.Odd() {
			as, votes, last := j.vote(revs[s], s, sides)
			if as {
				luck[s] = last // the build of the confirmation was the odd one
				continue
			}
			if revs[s] < 0 {
				continue // an end cannot be dropped
			}
			dropped = true
			must(j.t, j.search.Drop(revs[s]))
			j.odd[revs[s]] = last
			add(votes, c.Runs(s))
			for k, n := range votes {
				for range n {
					must(j.t, j.search.Add(revs[s], k))
				}
			}
		}
		if dropped {
			return false
		}
	}
	return true // unconfirmed: it is still the answer
}

// sides sums up the search's runs on both sides of a culprit.
func (j *journey) sides(culprit int) [3][]int {
	out := [3][]int{nil, j.search.Runs(bisect.GoodEnd), j.search.Runs(bisect.BadEnd)}
	for v := range j.graph.Len() {
		if j.graph.Has(v, culprit) {
			add(out[bisect.Bad], j.search.Runs(v))
		} else {
			add(out[bisect.Good], j.search.Runs(v))
		}
	}
	return out
}

func (j *journey) rebuild(v int) (odd bool) {
	j.builds++
	j.cost += j.buildFor
	return j.rng.Float64() < j.flip && v >= 0
}

// vote builds a revision until its builds lead by two votes for being what the
// search said (as) or for the other side; they stand at one against one. It
// returns the runs of those that agree, and the last of those. (With a lead of one
// a search is right in 96.9 % instead of 97.8 % when 5 % of the builds are odd, at
// a cost of 148 instead of 155 runs.)
func (j *journey) vote(v int, s bisect.Side, sides [3][]int) (as bool, agreed []int, last bool) {
	var ballots [2][]int
	var build [2]bool
	for i := range ballots {
		ballots[i] = make([]int, len(sides[bisect.Good]))
	}
	for lead := 0; lead > -2 && lead < 2; {
		odd := j.rebuild(v)
		own := make([]int, len(sides[bisect.Good]))
		p := 0.5
		for range 60 {
			_, k := j.outcome(j.isBad(v, odd))
			own[k]++
			j.count(v)
			if p = bisect.Leaning(sides[bisect.Good], sides[bisect.Bad], own); p < 0.01 || p > 0.99 {
				break
			}
		}
		agrees := btoi((p > 0.5) == (s == bisect.Bad))
		lead += 2*agrees - 1
		add(ballots[agrees], own)
		build[agrees] = odd
		as = agrees == 1
	}
	return as, ballots[btoi(as)], build[btoi(as)]
}

func total(counts []int) int {
	n := 0
	for _, c := range counts {
		n += c
	}
	return n
}

func add(to, from []int) {
	for k, n := range from {
		to[k] += n
	}
}

// tour sums up many searches.
type tour struct {
	trials, right, found, named   int
	refused                       int
	builds, runs, ends, sum, gate float64
}

func (w world) tour(t testing.TB, trials int, seed uint64, vary func(*world, *rand.Rand)) tour {
	rng := rand.New(rand.NewPCG(seed, 5))
	var out tour
	for tries := 0; out.trials < trials && tries < 50*trials; tries++ {
		w := w
		w.culprit = rng.IntN(w.graph.Len())
		if vary != nil {
			vary(&w, rng)
		}
		r := w.explore(t, rng)
		if r.refused { // no search, no answer
			out.refused++
			continue
		}
		out.count(r)
	}
	return out
}

func (r *tour) count(x trip) {
	r.trials++
	if x.found != nil {
		r.found++
		r.named += btoi(len(x.found.Class) > 0)
	}
	r.right += btoi(x.right)
	r.builds += float64(x.builds)
	r.runs += float64(x.runs)
	r.ends += float64(x.ends)
	r.gate += float64(x.verified)
	r.sum += x.cost
}

func (r tour) accuracy() float64 { return float64(r.right) / float64(r.trials) }
func (r tour) cost() float64     { return r.sum / float64(r.trials) }

// enough reports whether the share of right answers may be what is stated minus
// one point: 98 %, and three standard errors for the number of trials.
func (r tour) enough() bool {
	return r.accuracy() >= 0.98-3*math.Sqrt(0.98*0.02/float64(r.trials))
}

func (r tour) String() string {
	n := float64(r.trials)
	return fmt.Sprintf("right %5.1f %% (finished %5.1f %%, named %5.1f %%), %4.1f builds, %5.1f runs, %5.1f of the ends (%4.1f before), cost %5.1f",
		100*r.accuracy(), 100*float64(r.found)/n, 100*float64(r.named)/n, r.builds/n, r.runs/n, r.ends/n, r.gate/n, r.cost())
}

func noisy(g *bisect.Graph, good, bad float64, ends int) world {
	return world{graph: g, good: []float64{1 - good, good}, bad: []float64{1 - bad, bad}, endRuns: ends, buildFor: 10}
}
