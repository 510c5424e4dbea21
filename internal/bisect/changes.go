package bisect

import (
	"math"
	"slices"
)

const (
	// uneven is the p-value below which revisions of one side are not alike: 0.5 %
	// in each of two tests. Of 3,000 simulated searches with one culprit 3 are then
	// suspected; of searches over steps of 2, 50 and 98 % of hits it is 44 % (33 %
	// at a fifth of it, without any false one).
	uneven = 0.01
	// oddError is the error, shared by all tested revisions, at which one is held
	// to be good above a bad one.
	oddError = 0.01
)

// Change is a sign that the range has more than one change point.
type Change struct {
	// Side is where the tested revisions, the end included, are not alike; 0 when
	// Fixed.
	Side Side `json:"side,omitempty"`
	// P is the p-value of that, or a bound of the error of Fixed.
	P float64 `json:"p"`
	// Fixed says that From is bad and To, which descends from it, is good: what was
	// found is not the only culprit, or a build was an odd one.
	Fixed bool `json:"fixed,omitempty"`
	// The other change, the largest inside the side, lies above From and at or
	// below To; both were run. Either may be an end.
	From int `json:"from"`
	To   int `json:"to"`
}

// Changes returns the signs that the range has more than one change point, given
// that the likeliest suspect is the culprit. Ask when it has been named.
func (s *Search) Changes() []Change {
	p, none := s.Posterior(false)
	return s.changes(p, none)
}

// Changes returns the signs that the range has more than one change point, given
// that the first suspect that is left is the culprit. Ask when it has been named.
func (s *SPRT) Changes() []Change {
	p, none := s.Posterior(false)
	return s.changes(p, none)
}

func (l *ledger) changes(p []float64, none float64) []Change {
	culprit := 0
	for c, x := range p {
		if x > p[culprit] {
			culprit = c
		}
	}
	if none > p[culprit] {
		return nil
	}
	var out []Change
	for _, side := range []Side{Good, Bad} {
		revs, counts := l.sideOf(culprit, side)
		if x, c := l.unlike(revs, counts); x < uneven {
			from, to := l.around(revs, c)
			out = append(out, Change{Side: side, P: x, From: from, To: to})
		}
	}
	if from, to, ok := l.fixed(); ok {
		out = append(out, Change{Fixed: true, P: oddError, From: from, To: to})
	}
	return out
}

// sideOf returns what was run on a side of the culprit, ascending, the end in its
// place.
func (l *ledger) sideOf(culprit int, side Side) (revs []int, counts [][]int) {
	if side == Good {
		revs, counts = append(revs, GoodEnd), append(counts, l.ends[0])
	}
	for _, v := range l.tested {
		if l.graph.Has(v, culprit) == (side == Bad) {
			revs, counts = append(revs, v), append(counts, l.counts[v])
		}
	}
	if side == Bad {
		revs, counts = append(revs, BadEnd), append(counts, l.ends[1])
	}
	return revs, counts
}

// unlike is the p-value that what was run on a side is alike, and the second
// culprit, so to say: the suspect that splits it best. It takes the better of a
// test against any difference and of one against a single further step, which
// sees one of 30 % in half as many runs.
func (l *ledger) unlike(revs []int, counts [][]int) (p float64, culprit int) {
	suspects, above := l.splits(revs)
	if len(suspects) == 0 {
		return 1, 0
	}
	parts, categories := spread(counts)
	margin := tally(make([]float64, categories), slices.Concat(parts...))
	cells := [2][]float64{make([]float64, categories), make([]float64, categories)}
	best := func(parts [][]float64) (at int, height float64) {
		for i, up := range above {
			clear(cells[0])
			clear(cells[1])
			for j, part := range parts {
				tally(cells[up[j]], part)
			}
			if x := squares(cells[0], margin) + squares(cells[1], margin); x > height {
				at, height = i, x
			}
		}
		return at, height
	}
	one := dealt(parts, func(parts [][]float64) float64 {
		_, height := best(parts)
		return height
	})
	at, _ := best(parts)
	return min(1, 2*min(one, Homogeneous(counts))), suspects[at]
}

// splits returns the ways in which a suspect can part revisions in two, each with
// the first suspect that does it: above is 1 for those that contain it.
func (l *ledger) splits(revs []int) (suspects []int, above [][]int) {
	known := map[string]bool{}
	for c := range l.graph.n {
		up, key := make([]int, len(revs)), make([]byte, len(revs))
		for i, v := range revs {
			if l.graph.Has(v, c) {
				up[i], key[i] = 1, 1
			}
		}
		if n := total(up); n > 0 && n < len(revs) && !known[string(key)] {
			known[string(key)] = true
			suspects, above = append(suspects, c), append(above, up)
		}
	}
	return suspects, above
}

// around returns the first of the revisions that contains c, and the last one
// below it that does not.
func (l *ledger) around(revs []int, c int) (from, to int) {
	from, to = GoodEnd, BadEnd
	if i := slices.IndexFunc(revs, func(v int) bool { return l.graph.Has(v, c) }); i >= 0 {
		to = revs[i]
	}
	for _, v := range revs {
		if v >= 0 && !l.graph.Has(v, c) && l.graph.Has(to, v) {
			from = v
		}
	}
	return from, to
}

// fixed returns the nearest two revisions of which the lower one is bad and the
// upper one, which contains it, good, each beyond doubt.
func (l *ledger) fixed() (bad, good int, ok bool) {
	p0, p1 := predictive(l.ends[0]), predictive(l.ends[1])
	limit := math.Log(float64(len(l.tested)) / oddError)
	llr := map[int]float64{}
	for _, v := range l.tested {
		for k, n := range l.counts[v] {
			llr[v] += float64(n) * math.Log(p1[k]/p0[k])
		}
	}
	for _, v := range l.tested {
		for _, u := range l.tested {
			if u < v && llr[v] < -limit && llr[u] > limit && l.graph.Has(v, u) && (!ok || v-u < good-bad) {
				bad, good, ok = u, v, true
			}
		}
	}
	return bad, good, ok
}
