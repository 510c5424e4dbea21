package bisect

import (
	"errors"
	"fmt"
	"math"
	"slices"
)

// accept is the e-value at which a culprit is confirmed. By Ville's inequality
// (1939) a process of e-values passes it with a probability of at most 1 % when
// the two kernels are the same, however often it is looked at.
const accept = 100

const (
	// refute is the Bayes factor, "both alike" over "as the search says", at which
	// the search's answer is given up.
	refute      = 100.0
	betStrength = 4.0 // runs that the search's rates count for in the first bets
	minPairs    = 20  // before giving up
)

// Confirmation runs the culprit (Bad) and its parent (Good) against each other,
// on kernels of their own, and weighs them independently of the search's runs:
// what the search knows only chooses the bets. Each pair of runs multiplies
//
//	E_j = f(y_c; tc)/f(y_c; t0) * f(y_p; tp)/f(y_p; t0),  t0 = (tc+tp)/2,
//
// where tc and tp are rates estimated before the pair. When both kernels have the
// same rates the means of the two factors add up to 2, so that of E_j is at most 1
// (safe two-sample test, Turner, Ly and Grünwald 2024).
type Confirmation struct {
	pairs    int
	maxPairs int
	good     []float64 // pseudo-counts of the parent
	bad      []float64 // of the culprit
	toward   []float64 // log ratio of the search's rates, bad over good
	pending  [3]int    // outcomes of the pair under way, -1 when missing
	logE     float64
	search   [3][]int // outcomes of the search by side
	own      [3][]int // outcomes of the confirmation by side
	evidence *evidence
	lean     float64 // how far the runs lean the way the search says
	verdict  *Confirmed
}

// Confirmed is the end of a confirmation.
type Confirmed struct {
	OK     bool    `json:"ok"`
	E      float64 `json:"e"` // the e-value; 1/E bounds the error when OK
	Pairs  int     `json:"pairs"`
	Reason string  `json:"reason"`
}

// NewConfirmation begins one. good and bad are the search's outcomes by category
// on either side, maxPairs bounds the pairs (below 20 counts as 20; three times
// the runs that the search spent on the two is a good value).
func NewConfirmation(good, bad []int, maxPairs int) (*Confirmation, error) {
	if len(good) != len(bad) || len(good) < 2 {
		return nil, fmt.Errorf("start confirmation: %d and %d categories", len(good), len(bad))
	}
	c := &Confirmation{maxPairs: max(maxPairs, minPairs), pending: [3]int{-1, -1, -1}}
	c.good, c.bad = bets(good), bets(bad)
	c.evidence = newEvidence(len(good))
	c.search = [3][]int{nil, slices.Clone(good), slices.Clone(bad)}
	c.own = [3][]int{nil, make([]int, len(good)), make([]int, len(good))}
	c.toward = make([]float64, len(good))
	for k := range c.toward {
		c.toward[k] = math.Log(c.bad[k] / c.good[k])
	}
	return c, nil
}

// bets scales counts, smoothed, to the strength of the first bets.
func bets(counts []int) []float64 {
	out := make([]float64, len(counts))
	n := alpha*float64(len(counts)) + float64(total(counts))
	for k, x := range counts {
		out[k] = betStrength * (alpha + float64(x)) / n
	}
	return out
}

// Next returns the side to run (A B B A), or the end.
func (c *Confirmation) Next() (Side, *Confirmed) {
	if c.verdict != nil {
		return 0, c.verdict
	}
	first := Good
	if c.pairs%2 == 1 {
		first = Bad
	}
	if c.pending[first] < 0 {
		return first, nil
	}
	return Good + Bad - first, nil
}

// Add records one run of the side that Next asked for.
func (c *Confirmation) Add(s Side, category int) error {
	want, end := c.Next()
	switch {
	case end != nil:
		return errors.New("add run: the confirmation has ended")
	case s != want:
		return fmt.Errorf("add run of %s: want %s", s, want)
	case category < 0 || category >= len(c.good):
		return fmt.Errorf("add run of %s: no category %d", s, category)
	}
	c.pending[s] = category
	if c.pending[Good] >= 0 && c.pending[Bad] >= 0 {
		c.pair(c.pending[Good], c.pending[Bad])
		c.pending = [3]int{-1, -1, -1}
	}
	return nil
}

// pair multiplies the e-value, then learns from the pair.
func (c *Confirmation) pair(p, b int) {
	nGood, nBad := sum(c.good), sum(c.bad)
	tp := func(k int) float64 { return c.good[k] / nGood }
	tc := func(k int) float64 { return c.bad[k] / nBad }
	mean := func(k int) float64 { return (tp(k) + tc(k)) / 2 }
	c.logE += math.Log(tc(b)/mean(b)) + math.Log(tp(p)/mean(p))
	c.lean += c.toward[b] - c.toward[p]
	c.good[p]++
	c.bad[b]++
	c.own[Good][p]++
	c.own[Bad][b]++
	c.pairs++
	e := math.Exp(c.logE)
	end := Confirmed{E: e, Pairs: c.pairs}
	switch {
	case e >= accept && c.lean > 0:
		end.OK, end.Reason = true, "the culprit is bad where its parent is good"
	case e >= accept:
		end.Reason = "the culprit and its parent differ the other way round"
	case c.alike() >= math.Log(refute):
		end.Reason = "the culprit and its parent do not differ as the search says"
	case c.pairs >= c.maxPairs:
		end.Reason = fmt.Sprintf("not confirmed by %d pairs of runs", c.pairs)
	default:
		return
	}
	c.verdict = &end
}

// alike is the log Bayes factor of "culprit and parent have one distribution"
// over "each has that of its side in the search".
func (c *Confirmation) alike() float64 {
	both := slices.Clone(c.own[Good])
	add(both, c.own[Bad])
	out := c.evidence.log(both)
	for _, s := range []Side{Good, Bad} {
		with := slices.Clone(c.search[s])
		add(with, c.own[s])
		out -= c.evidence.log(with) - c.evidence.log(c.search[s])
	}
	return out
}

// E is the e-value so far.
func (c *Confirmation) E() float64 { return math.Exp(c.logE) }

// Odd returns the sides whose rebuilt kernels behave like the other side did in
// the search: either this build or the search's is the odd one, and a third has to
// tell which (see Leaning). Ask after a refusal.
func (c *Confirmation) Odd() []Side {
	var out []Side
	for _, s := range []Side{Good, Bad} {
		if total(c.own[s]) > 0 && (Leaning(c.search[Good], c.search[Bad], c.own[s]) > 0.5) != (s == Bad) {
			out = append(out, s)
		}
	}
	return out
}

// Runs returns the outcomes by category that the confirmation had on a side.
func (c *Confirmation) Runs(s Side) []int {
	if s != Good && s != Bad {
		return nil
	}
	return slices.Clone(c.own[s])
}

// Leaning is the probability, from one half before any, that runs of one kernel
// come from the distribution of the bad runs and not from that of the good ones.
// All three are counts by category, of the same length.
func Leaning(good, bad, runs []int) float64 {
	e := newEvidence(len(runs))
	with := func(counts []int) float64 {
		sum := slices.Clone(counts)
		add(sum, runs)
		return e.log(sum) - e.log(counts)
	}
	return logistic(with(bad) - with(good))
}
