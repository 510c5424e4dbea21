package stats

import (
	"fmt"
	"math"
)

// Fisher is the exact one-sided test of R. A. Fisher (1935) for a 2x2 table: the
// probability of k1 or more hits among the n1 runs of the first group, given the
// total of hits and that both groups have the same rate. Small means that the
// first group's rate is higher than that of the second (k0 of n0).
//
// Conditioning makes it conservative: the true error is below the stated one,
// most of all when hits are rare.
func Fisher(k1, n1, k0, n0 int) float64 {
	if k1 < 0 || k0 < 0 || k1 > n1 || k0 > n0 {
		panic(fmt.Sprintf("stats: fisher of %d/%d and %d/%d", k1, n1, k0, n0))
	}
	hits := k1 + k0
	all := logChoose(n1+n0, hits)
	p := 0.0
	for k := k1; k <= min(hits, n1); k++ {
		if hits-k > n0 {
			continue
		}
		p += math.Exp(logChoose(n1, k) + logChoose(n0, hits-k) - all)
	}
	return min(p, 1)
}

// logChoose returns ln C(n, k).
func logChoose(n, k int) float64 {
	return lgamma(float64(n)+1) - lgamma(float64(k)+1) - lgamma(float64(n-k)+1)
}

// lgamma is ln |Gamma(x)|; every argument here is positive.
func lgamma(x float64) float64 {
	v, _ := math.Lgamma(x)
	return v
}
