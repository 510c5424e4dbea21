package stats

import (
	"math"
	"slices"
)

// maxRankWork bounds the steps of the exact distribution with ties (about 50 ms).
// Above it, from some 45 runs a side on, the normal approximation is good to the
// third digit.
const maxRankWork = 30_000_000

// maxPairs bounds the pairs for the exact distribution without ties.
const maxPairs = 20_000

// Ranks is the result of a Mann-Whitney test of x against y.
type Ranks struct {
	U        float64 // pairs in which x is above y, a tie counting half
	Greater  float64 // p-value against "x is not larger than y"
	Less     float64 // p-value against "x is not smaller than y"
	TwoSided float64 // twice the smaller one, at most 1
	Exact    bool    // false: normal approximation with tie and continuity correction
}

// MannWhitney is the rank test of Mann and Whitney (1947). It is exact, also
// with ties (the distribution over all ways to deal the observed ranks to the two
// groups), until the groups are too large for it. +Inf stands for a censored
// value; all of them tie. With an empty group nothing is known: all p are 1.
func MannWhitney(x, y []float64) Ranks {
	n, m := len(x), len(y)
	if n == 0 || m == 0 {
		return Ranks{Greater: 1, Less: 1, TwoSided: 1, Exact: true}
	}
	ranks, ties := doubledRanks(x, y)
	sum := 0
	for _, r := range ranks[:n] {
		sum += r
	}
	r := Ranks{U: float64(sum)/2 - float64(n*(n+1))/2}
	switch {
	case ties == 0 && n*m <= maxPairs:
		r.Exact = true
		r.Less = uTail(n, m, int(r.U))
		r.Greater = uTail(n, m, n*m-int(r.U))
	case ties > 0 && rankWork(n, m) <= maxRankWork:
		r.Exact = true
		r.Less, r.Greater = tiedTails(ranks, n, sum)
	default:
		r.Less, r.Greater = normalTails(r.U, n, m, ties)
	}
	r.TwoSided = min(1, 2*min(r.Less, r.Greater))
	return r
}

// doubledRanks returns twice the mid-rank of every value, x's first, which is
// always an integer, and the tie term sum(t^3-t).
func doubledRanks(x, y []float64) (ranks []int, ties float64) {
	all := slices.Concat(x, y)
	order := make([]int, len(all))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int {
		switch {
		case all[a] < all[b]:
			return -1
		case all[a] > all[b]:
			return 1
		}
		return 0
	})
	ranks = make([]int, len(all))
	for i := 0; i < len(order); {
		j := i
		for j < len(order) && all[order[j]] == all[order[i]] {
			j++
		}
		for k := i; k < j; k++ {
			ranks[order[k]] = i + 1 + j // (i+1 + j)/2 doubled
		}
		if t := float64(j - i); t > 1 {
			ties += t*t*t - t
		}
		i = max(j, i+1)
	}
	return ranks, ties
}

// rankWork is the number of steps of tiedTails.
func rankWork(n, m int) int {
	return (n + m) * min(n, m) * (n + m) * (n + m + 1)
}

// uTail returns P(U <= u) without ties.
func uTail(n, m, u int) float64 {
	if u < 0 {
		return 0
	}
	if 2*u >= n*m { // the upper half by symmetry, so that the sums stay small
		return 1 - uTail(n, m, n*m-u-1)
	}
	sum := 0.0
	for _, p := range uProbs(n, m, u) {
		sum += p
	}
	return sum
}

// uProbs returns P(U = 0) to P(U = u) without ties. U's counts are the
// coefficients of the Gaussian binomial prod (1-q^(m+i))/(1-q^i), i=1..n
// (Andrews, The Theory of Partitions, 1976). Each depends on those before it
// only, so the tail keeps full precision however large C(n+m, n) is.
func uProbs(n, m, u int) []float64 {
	c := make([]float64, u+1)
	c[0] = 1
	for i := 1; i <= n; i++ {
		for k := u; k >= m+i; k-- {
			c[k] -= c[k-m-i]
		}
		for k := i; k <= u; k++ {
			c[k] += c[k-i]
		}
	}
	all := math.Exp(logChoose(n+m, n))
	for i := range c {
		c[i] /= all
	}
	return c
}

// tiedTails returns P(R <= sum) and P(R >= sum) where R is the sum of the
// doubled ranks of n of the observations, all choices being equally likely.
func tiedTails(ranks []int, n, sum int) (less, greater float64) {
	if m := len(ranks) - n; m < n { // the smaller group needs fewer steps
		total := 0
		for _, r := range ranks {
			total += r
		}
		greater, less = tiedTails(ranks, m, total-sum)
		return less, greater
	}
	top := 0 // the largest possible sum of n ranks
	sorted := slices.Clone(ranks)
	slices.Sort(sorted)
	for _, r := range sorted[len(sorted)-n:] {
		top += r
	}
	// ways[k][s]: how many choices of k observations have the sum s.
	ways := make([][]float64, n+1)
	for k := range ways {
		ways[k] = make([]float64, top+1)
	}
	ways[0][0] = 1
	for _, r := range ranks {
		for k := n; k >= 1; k-- {
			to, from := ways[k], ways[k-1]
			for s := top; s >= r; s-- {
				to[s] += from[s-r]
			}
		}
	}
	below, above, all := 0.0, 0.0, 0.0
	for s, w := range ways[n] {
		all += w
		if s <= sum {
			below += w
		}
		if s >= sum {
			above += w
		}
	}
	return below / all, above / all
}

// normalTails approximates both tails with tie and continuity correction.
func normalTails(u float64, n, m int, ties float64) (less, greater float64) {
	nn, mm := float64(n), float64(m)
	all := nn + mm
	variance := nn * mm / 12 * (all + 1 - ties/(all*(all-1)))
	if variance <= 0 { // every value is the same
		return 1, 1
	}
	mean, sd := nn*mm/2, math.Sqrt(variance)
	return phi((u + 0.5 - mean) / sd), phi((mean + 0.5 - u) / sd)
}

// phi is the standard normal distribution function.
func phi(z float64) float64 { return math.Erfc(-z/math.Sqrt2) / 2 }
