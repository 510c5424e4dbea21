package bisect

import (
	"cmp"
	"math"
	"slices"
)

// Costs say what a step costs, in seconds or any other unit.
type Costs struct {
	Run float64 // of one run; at or below 0 counts as 1
	// Build predicts the cost of building a revision that is not built yet; nil
	// is ten runs. It must not depend on the time or on chance.
	Build func(revision int) float64
}

// Step is what a search wants next: one run, unless Found is set.
type Step struct {
	Revision int  `json:"revision"` // or GoodEnd, BadEnd
	Build    bool `json:"build"`    // it must be built first
	// Runs is how many runs the build was judged by. Ask again after each.
	Runs int `json:"runs"`
	// Bits is what they are expected to tell about the culprit.
	Bits  float64  `json:"bits"`
	Found *Finding `json:"found,omitempty"`
}

// Finding is the end of a search.
type Finding struct {
	// Class holds the culprit: one revision, or several that no testable revision
	// separates, ascending. It is empty when None.
	Class []int   `json:"class"`
	P     float64 `json:"p"` // that the culprit is in Class, or that there is none
	// None says that the ends do not differ after all: all runs look alike.
	None bool `json:"none,omitempty"`
	// Drift names the end whose runs are no longer what they were before the
	// search began. Nothing is known then.
	Drift Side `json:"drift,omitempty"`
}

const (
	// controls are the runs that an end must have had since the search began when
	// it is the only witness for its side: a host that has changed since the ends
	// were verified would otherwise make the first or the last revision look guilty.
	controls = 4
	// drifted is the Bayes factor from which on an end has changed. One that has
	// not passes it with a probability of 1 % at most.
	drifted = 100.0
	// alike is the Bayes factor from which on the ends are held to be the same. It
	// grows with the root of the runs only, and the ends were verified: waiting
	// for the probability of "none" in the posterior would cost thousands of runs.
	// With more than two categories the factor leans to "one" while runs are few
	// (92 instead of 97 % right, simulated), so there the posterior decides alone.
	alike = 10.0
)

// alike is the Bayes factor of "both ends have one distribution" over "two".
func (s *Search) alike() float64 {
	both := slices.Clone(s.ends[0])
	add(both, s.ends[1])
	return math.Exp(s.evidence.log(both) - s.evidence.log(s.ends[0]) - s.evidence.log(s.ends[1]))
}

// drift compares each end's runs from before and after the begin of the search:
// one distribution, or two?
func (s *Search) drift() Side {
	for i, side := range []Side{Good, Bad} {
		if s.before[i] == nil {
			return 0
		}
		after := s.since(i)
		odds := s.evidence.log(s.before[i]) + s.evidence.log(after) - s.evidence.log(s.ends[i])
		if odds >= math.Log(drifted) {
			return side
		}
	}
	return 0
}

// since returns an end's outcomes after the first run of a suspect.
func (s *Search) since(end int) []int {
	out := slices.Clone(s.ends[end])
	if s.before[end] == nil {
		return make([]int, len(out))
	}
	for k, n := range s.before[end] {
		out[k] -= n
	}
	return out
}

// control returns the end to run before a finding is believed: that of a side on
// which no suspect was run.
func (s *Search) control(f *Finding) (int, bool) {
	if f.None || len(f.Class) == 0 {
		return 0, false
	}
	var seen [2]bool
	for _, v := range s.tested {
		i := 0
		if s.graph.Has(v, f.Class[0]) {
			i = 1
		}
		seen[i] = true
	}
	for i, v := range []int{GoodEnd, BadEnd} {
		if !seen[i] && (seen[0] || seen[1]) && total(s.since(i)) < controls {
			return v, true
		}
	}
	return 0, false
}

// Next returns what to run now. Asking changes nothing.
func (s *Search) Next(c Costs) Step {
	if side := s.drift(); side != 0 {
		return Step{Found: &Finding{Drift: side, P: 1 - 1/drifted}}
	}
	if odds := s.alike(); odds >= alike && s.opts.Categories == 2 {
		return Step{Found: &Finding{None: true, P: odds / (1 + odds)}}
	}
	post := s.posterior(s.prior)
	if f := s.stop(post); f != nil {
		if v, ok := s.control(f); ok {
			return Step{Revision: v, Runs: 1}
		}
		return Step{Found: f}
	}
	if c.Run <= 0 {
		c.Run = 1
	}
	best := s.best(s.graph.sums(post[:s.graph.n]), c)
	// A suspect is compared with the ends: it must not be known better than they
	// are. Without this, two ends that are badly known stall the search.
	good, bad := total(s.ends[0]), total(s.ends[1])
	runs := math.MaxInt
	if best.Revision >= 0 {
		runs = s.runsOf(best.Revision)
	}
	if runs >= min(good, bad) {
		if bad < good {
			return Step{Revision: BadEnd, Runs: 1}
		}
		return Step{Revision: GoodEnd, Runs: 1}
	}
	return best
}

// best is the probe with the most bits a cost, or the good end when no probe
// tells anything.
func (s *Search) best(q []float64, c Costs) Step {
	built, damp, info := s.builtGroups(), s.damping(), s.gains()
	out := Step{Revision: GoodEnd, Runs: 1}
	top, tie := 0.0, 0.0
	for v, p := range q {
		pos, ok := position(p)
		if !ok || s.untestable[v] {
			continue
		}
		step := Step{Revision: v, Runs: 1}
		var u float64
		if built[s.root(v)] {
			step.Bits = info.at(0, pos)
			u = step.Bits / c.Run
		} else {
			step.Build = true
			u = batch(info, &step, pos, c)
		}
		u *= damp[v]
		if near := math.Abs(p - 0.5); u > top || u == top && u > 0 && near < tie {
			out, top, tie = step, u, near
		}
	}
	return out
}

// batch finds the number of runs that makes a build worth most, and that worth.
func batch(info *gains, step *Step, pos float64, c Costs) float64 {
	build := 10 * c.Run
	if c.Build != nil {
		build = max(0, c.Build(step.Revision))
	}
	top := 0.0
	for b, m := range batches {
		bits := info.at(b, pos)
		if u := bits / (build + float64(m)*c.Run); u > top {
			top, step.Runs, step.Bits = u, m, bits
		}
	}
	return top
}

// damping lowers the worth of revisions near untestable ones, which are likely
// to be broken in the same way.
func (s *Search) damping() []float64 {
	n := float64(s.graph.n)
	reach := int(math.Sqrt(n))
	out := make([]float64, s.graph.n)
	for v := range out {
		out[v] = 1
	}
	for v, bad := range s.untestable {
		if !bad {
			continue
		}
		for w := max(0, v-reach); w <= min(len(out)-1, v+reach); w++ {
			d := float64(w - v)
			out[w] *= 1 - 0.9*math.Exp(-math.Pi*d*d/n)
		}
	}
	return out
}

// stop returns the finding when one class, or "none", has the probability asked
// for.
func (s *Search) stop(post []float64) *Finding {
	n := s.graph.n
	if none := post[n]; none >= s.opts.Stop {
		return &Finding{P: none, None: true}
	}
	mass := map[int]float64{}
	class := s.classes()
	for c, p := range post[:n] {
		mass[class(c)] += p
	}
	best, top := -1, 0.0
	for id, m := range mass {
		if m > top || m == top && id < best {
			best, top = id, m
		}
	}
	if top < s.opts.Stop {
		return nil
	}
	f := &Finding{P: top}
	for c := range n {
		if class(c) == best && post[c] > 0 {
			f.Class = append(f.Class, c)
		}
	}
	return f
}

// classes returns the number of the class of a suspect: those that are in the
// same testable revisions cannot be told apart. Two testable suspects always can
// be: each is in itself, and at most one of them is in the other. So only an
// untestable one shares a class: with others that are in the same testable
// revisions, and with the first of those, if that one is in the same, too.
func (s *Search) classes() func(c int) int {
	ids := map[int]int{}
	bySig := map[uint64]int{}
	assign := func(c int) {
		if _, ok := ids[c]; ok {
			return
		}
		sig := s.signature(c)
		if _, ok := bySig[sig]; !ok {
			bySig[sig] = c
		}
		ids[c] = bySig[sig]
	}
	for u, bad := range s.untestable {
		if !bad {
			continue
		}
		assign(u)
		for v := u; v < s.graph.n; v++ {
			if !s.untestable[v] && s.graph.Has(v, u) {
				assign(v)
				break
			}
		}
	}
	return func(c int) int {
		if id, ok := ids[c]; ok {
			return id
		}
		return c
	}
}

// signature hashes the set of testable revisions that contain a suspect.
func (s *Search) signature(c int) uint64 {
	var sum uint64
	for v := c; v < s.graph.n; v++ {
		if !s.untestable[v] && s.graph.Has(v, c) {
			sum += mix(uint64(v))
		}
	}
	return sum
}

// mix is the finaliser of SplitMix64 (Steele, Lea and Flood 2014).
func mix(x uint64) uint64 {
	x += 0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

// Cuts returns the bounds of 5 bins for numbers when no threshold is known: the
// 50, 75, 90 and 97 % quantiles of the ends' runs together. They weigh the tail,
// where latencies differ. Equal bounds are merged. The slices are not changed.
func Cuts(good, bad []float64) []float64 {
	all := slices.Concat(good, bad)
	slices.Sort(all)
	var out []float64
	if len(all) == 0 {
		return out
	}
	for _, q := range []float64{0.50, 0.75, 0.90, 0.97} {
		i := min(int(q*float64(len(all))), len(all)-1)
		if x := all[i]; len(out) == 0 || x > out[len(out)-1] {
			out = append(out, x)
		}
	}
	return out
}

// Bin is the category of a number: how many cuts it has reached. A censored one
// belongs to the last, which the caller chooses by passing +Inf.
func Bin(cuts []float64, x float64) int {
	i, found := slices.BinarySearchFunc(cuts, x, cmp.Compare)
	if found {
		i++
	}
	return i
}
