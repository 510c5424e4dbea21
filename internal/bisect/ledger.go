package bisect

import (
	"errors"
	"fmt"
	"slices"
)

// ledger is what a search was told, whatever its strategy.
type ledger struct {
	graph      *Graph
	prior      []float64
	counts     [][]int // by revision, nil before its first run
	tested     []int   // revisions with runs, ascending
	ends       [2][]int
	built      []bool
	untestable []bool
	dead       []bool // cannot be the culprit: it is the same kernel as its parent
	group      []int  // union-find over revisions that are the same kernel, the ends last
}

func newLedger(g *Graph, prior []float64, categories int) *ledger {
	l := &ledger{
		graph: g, prior: prior, counts: make([][]int, g.n), built: make([]bool, g.n),
		untestable: make([]bool, g.n), dead: make([]bool, g.n), group: make([]int, g.n+2),
		ends: [2][]int{make([]int, categories), make([]int, categories)},
	}
	for i := range l.group {
		l.group[i] = i
	}
	return l
}

func (l *ledger) categories() int { return len(l.ends[0]) }

// Add records one run of a revision or an end: the category of its outcome.
func (l *ledger) Add(v, category int) error {
	if err := l.check(v); err != nil {
		return fmt.Errorf("add run: %w", err)
	}
	if category < 0 || category >= l.categories() {
		return fmt.Errorf("add run of %d: no category %d", v, category)
	}
	if v < 0 {
		l.ends[-v-1][category]++
		return nil
	}
	if l.counts[v] == nil {
		l.counts[v] = make([]int, l.categories())
		i, _ := slices.BinarySearch(l.tested, v)
		l.tested = slices.Insert(l.tested, i, v)
	}
	l.counts[v][category]++
	l.built[v] = true
	return nil
}

// check refuses a revision that is none.
func (l *ledger) check(v int) error {
	if v != GoodEnd && v != BadEnd && (v < 0 || v >= l.graph.n) {
		return fmt.Errorf("no revision %d", v)
	}
	return nil
}

func total(counts []int) int {
	n := 0
	for _, c := range counts {
		n += c
	}
	return n
}

// Built says that a revision's kernel is there: running it costs no build.
func (l *ledger) Built(v int) error {
	if err := l.check(v); err != nil || v < 0 {
		return err
	}
	l.built[v] = true
	return nil
}

// Untestable says that a revision neither builds nor boots, or cannot run the
// workload. It stays a suspect, and what it was run before stays, too.
func (l *ledger) Untestable(v int) error {
	if err := l.check(v); err != nil {
		return err
	}
	if v < 0 {
		return errors.New("an end cannot be untestable")
	}
	l.untestable[v] = true
	return nil
}

// Drop forgets the runs of a revision, as those of a build that confirmation has
// shown to be the odd one, and that it was built.
func (l *ledger) Drop(v int) error {
	if err := l.check(v); err != nil {
		return err
	}
	if v < 0 {
		return errors.New("an end cannot be dropped")
	}
	l.counts[v], l.built[v] = nil, false
	if i, ok := slices.BinarySearch(l.tested, v); ok {
		l.tested = slices.Delete(l.tested, i, i+1)
	}
	return nil
}

// Same says that two revisions, or one and an end, are the same kernel: both are
// good or both are bad. So no revision that is in one of them only can be the
// culprit, and a run of one is a run of both. It fails, and changes nothing, if
// that would leave no suspect.
func (l *ledger) Same(v, w int) error {
	if err := errors.Join(l.check(v), l.check(w)); err != nil {
		return fmt.Errorf("merge revisions: %w", err)
	}
	dead := slices.Clone(l.dead)
	left := 0
	for c := range dead {
		if l.graph.Has(v, c) != l.graph.Has(w, c) {
			dead[c] = true
		}
		if !dead[c] && l.prior[c] > 0 {
			left++
		}
	}
	if left == 0 {
		return fmt.Errorf("merge revisions %d and %d: no suspect is left", v, w)
	}
	l.dead = dead
	l.group[l.root(v)] = l.root(w)
	return nil
}

// root finds the representative of a revision's kernel; ends follow the suspects.
func (l *ledger) root(v int) int {
	if v < 0 {
		v = l.graph.n - v - 1
	}
	for l.group[v] != v {
		l.group[v] = l.group[l.group[v]]
		v = l.group[v]
	}
	return v
}

// Runs returns the outcomes of a revision or end by category.
func (l *ledger) Runs(v int) []int {
	switch {
	case l.check(v) != nil:
		return nil
	case v < 0:
		return slices.Clone(l.ends[-v-1])
	case l.counts[v] == nil:
		return make([]int, l.categories())
	}
	return slices.Clone(l.counts[v])
}

// builtGroups marks the kernels that are there, under any of their revisions.
func (l *ledger) builtGroups() []bool {
	out := make([]bool, len(l.group))
	for v, b := range l.built {
		if b {
			out[l.root(v)] = true
		}
	}
	out[l.root(GoodEnd)], out[l.root(BadEnd)] = true, true
	return out
}

// runsOf counts the runs of a revision's kernel, under any of its revisions.
func (l *ledger) runsOf(v int) int {
	n, r := 0, l.root(v)
	for _, w := range l.tested {
		if l.root(w) == r {
			n += total(l.counts[w])
		}
	}
	return n
}
