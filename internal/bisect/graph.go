package bisect

import (
	"errors"
	"fmt"
)

// maxMerged is the most revisions a history with merges may have: the table of
// ancestors takes n*n/8 bytes, 50 MB here. A chain has no such table.
const maxMerged = 20_000

// ErrTooLarge says that a history with merges has too many revisions: search its
// first parents, then inside the guilty merge.
var ErrTooLarge = errors.New("too many revisions with merges")

// Graph is the history between two ends: the revisions that are in the bad end
// and not in the good one, by number. A revision is bad if the culprit is itself
// or one of its ancestors. A Graph does not change and may be shared.
type Graph struct {
	n int
	// anc holds, for each 64 possible ancestors in turn, one word a revision: bit
	// c%64 of anc[c/64*n+v] is set when c is v or an ancestor. nil for a chain,
	// where that is c <= v.
	anc []uint64
}

// Ends as revisions: they are no suspects, but are run and may be the same kernel
// as a suspect.
const (
	GoodEnd = -1
	BadEnd  = -2
)

// NewGraph makes a history of len(parents) revisions. parents[v] are v's parents
// among them, all below v (the order of `git rev-list --topo-order --reverse`);
// the last one is the bad end's own and must descend from all others. parents is
// not kept.
func NewGraph(parents [][]int) (*Graph, error) {
	n := len(parents)
	if n == 0 {
		return nil, errors.New("make history: no revisions between the ends")
	}
	chain := true
	for v, ps := range parents {
		for _, p := range ps {
			if p < 0 || p >= v {
				return nil, fmt.Errorf("make history: revision %d has the parent %d, which does not come before it", v, p)
			}
		}
		chain = chain && (v == 0 && len(ps) == 0 || len(ps) == 1 && ps[0] == v-1)
	}
	g := &Graph{n: n}
	if chain {
		return g, nil
	}
	if n > maxMerged {
		return nil, fmt.Errorf("make history of %d revisions: %w", n, ErrTooLarge)
	}
	g.fill(parents)
	for c := range n {
		if !g.Has(n-1, c) {
			return nil, fmt.Errorf("make history: revision %d is no ancestor of the last one", c)
		}
	}
	return g, nil
}

// Chain is the history of n revisions in a row: a series of patches, or first
// parents.
func Chain(n int) (*Graph, error) {
	if n <= 0 {
		return nil, errors.New("make history: no revisions between the ends")
	}
	return &Graph{n: n}, nil
}

func (g *Graph) fill(parents [][]int) {
	words := (g.n + 63) / 64
	g.anc = make([]uint64, words*g.n)
	for w := range words {
		row := g.anc[w*g.n : (w+1)*g.n]
		for v := w * 64; v < g.n; v++ { // ancestors come first: nothing below is set
			for _, p := range parents[v] {
				row[v] |= row[p]
			}
			if v/64 == w {
				row[v] |= 1 << (v % 64)
			}
		}
	}
}

// Len is the number of revisions.
func (g *Graph) Len() int { return g.n }

// Has reports whether v is bad when c is the culprit: c is v or an ancestor of v.
// v may be an end.
func (g *Graph) Has(v, c int) bool {
	switch {
	case v == GoodEnd:
		return false
	case v == BadEnd:
		return true
	case g.anc == nil:
		return c <= v
	}
	return g.anc[c/64*g.n+v]>>(c%64)&1 == 1
}

// sums returns for every revision the sum of weight over it and its ancestors.
func (g *Graph) sums(weight []float64) []float64 {
	out := make([]float64, g.n)
	if g.anc == nil {
		sum := 0.0
		for v := range out {
			sum += weight[v]
			out[v] = sum
		}
		return out
	}
	// Eight ancestors at a time through a table of their 256 sums: one look-up a
	// byte instead of one addition a bit.
	var table [8][256]float64
	for w := range (g.n + 63) / 64 {
		for b := range table {
			for set := 1; set < 256; set++ {
				low := set & -set
				i := w*64 + b*8 + trailing(low)
				table[b][set] = table[b][set&^low]
				if i < g.n {
					table[b][set] += weight[i]
				}
			}
		}
		row := g.anc[w*g.n : (w+1)*g.n]
		for v := w * 64; v < g.n; v++ {
			word := row[v]
			for b := 0; word != 0; b++ {
				out[v] += table[b][word&255]
				word >>= 8
			}
		}
	}
	return out
}
