package bisect_test

import (
	"cmp"
	"fmt"
	"hash/fnv"
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/kbisect/kbisect/internal/bisect"
)

// scenario is one cell of the calibration.
type scenario struct {
	name    string
	w       world
	many    int     // trials when asked for; 0: 2000
	cost    float64 // at most, in runs, a build being ten; 0: not looked at
	refuses bool    // it may say "drift" or "none" instead of naming one
	vary    func(*world, *rand.Rand)
}

// withDuel has the ends run as they are before a real search.
func withDuel(w world) world {
	w.duel = true
	return w
}

// learned is a clean or noisy threshold with the ends by the duel's rules.
func learned(g *bisect.Graph, good, bad float64) world { return withDuel(noisy(g, good, bad, 0)) }

// merges draws a new history for each trial.
func merges(t testing.TB, n int) func(*world, *rand.Rand) {
	return func(w *world, rng *rand.Rand) {
		w.graph = history(t, n, rng)
		w.culprit = rng.IntN(n)
	}
}

// latencies are the changes of continuous numbers, in ms.
var latencies = []struct {
	name   string
	number func(isBad bool, _ int, rng *rand.Rand) float64
}{
	{"lognormal 15 %, x1.15", func(isBad bool, _ int, rng *rand.Rand) float64 {
		return 20 * pick(isBad, 1.15, 1) * math.Exp(0.15*rng.NormFloat64())
	}},
	{"+250 ms in 30 %", func(isBad bool, _ int, rng *rand.Rand) float64 {
		return 20*math.Exp(0.15*rng.NormFloat64()) + pick(isBad && rng.Float64() < 0.3, 250, 0)
	}},
	{"the same, Pareto 1.1", func(isBad bool, _ int, rng *rand.Rand) float64 {
		return 20*math.Pow(1-rng.Float64(), -1/1.1) + pick(isBad && rng.Float64() < 0.3, 250, 0)
	}},
	{"two modes, x1.12", func(isBad bool, _ int, rng *rand.Rand) float64 {
		return pick(rng.IntN(2) == 0, 20, 40) * pick(isBad, 1.12, 1) * math.Exp(0.02*rng.NormFloat64())
	}},
	{"spread", func(isBad bool, _ int, rng *rand.Rand) float64 {
		return 20 * math.Exp(pick(isBad, 0.4, 0.1)*rng.NormFloat64())
	}},
	{"two times, Pareto 3", func(isBad bool, _ int, rng *rand.Rand) float64 {
		return 20 * pick(isBad, 2, 1) * math.Pow(1-rng.Float64(), -1.0/3)
	}},
}

func pick(b bool, x, y float64) float64 {
	if b {
		return x
	}
	return y
}

func scenarios(t testing.TB) []scenario {
	c16, c64, c1024 := chain(t, 16), chain(t, 64), chain(t, 1024)
	var out []scenario
	// Rates known, the costs of the design's table 3.9a and a tenth more.
	for i, g := range []*bisect.Graph{c16, c64, c1024} {
		n := []string{"16", "64", "1024"}[i]
		out = append(out,
			scenario{name: "known/" + n + "/1_%", w: noisy(g, 0.01, 0.99, 2000), cost: []float64{47, 70, 117}[i]},
			scenario{name: "known/" + n + "/10_%", w: noisy(g, 0.1, 0.9, 2000), cost: []float64{54, 80, 133}[i]},
			scenario{name: "known/" + n + "/25_%", w: noisy(g, 0.25, 0.75, 2000), cost: []float64{78, 115, 188}[i]},
			scenario{name: "known/" + n + "/rare", w: noisy(g, 0, 0.3, 2000), cost: []float64{73, 111, 185}[i]},
			scenario{name: "duel/" + n + "/0_%", w: learned(g, 0, 1)},
			scenario{name: "duel/" + n + "/1_%", w: learned(g, 0.01, 0.99)},
			scenario{name: "duel/" + n + "/10_%", w: learned(g, 0.1, 0.9)},
			scenario{name: "duel/" + n + "/25_%", w: learned(g, 0.25, 0.75)},
			scenario{name: "duel/" + n + "/rare_30_0", w: learned(g, 0, 0.3)},
			scenario{name: "duel/" + n + "/rare_30_5", w: learned(g, 0.05, 0.3)},
		)
	}
	// Rates learned from a fixed number of runs, table 3.9c.
	for i, ends := range []int{3, 6, 20, 40} {
		n := []string{"3", "6", "20", "40"}[i]
		out = append(out,
			scenario{name: "ends_" + n + "/0_%", w: noisy(c64, 0, 1, ends)},
			scenario{name: "ends_" + n + "/10_%", w: noisy(c64, 0.1, 0.9, ends), cost: []float64{0, 0, 85, 82}[i]},
			scenario{name: "ends_" + n + "/25_%", w: noisy(c64, 0.25, 0.75, ends), cost: []float64{0, 0, 147, 130}[i]},
			scenario{name: "ends_" + n + "/rare_30_0", w: noisy(c64, 0, 0.3, ends), cost: []float64{0, 0, 147, 128}[i]},
			scenario{name: "ends_" + n + "/rare_30_5", w: noisy(c64, 0.05, 0.3, ends), cost: []float64{0, 0, 282, 240}[i]},
		)
	}
	for _, e := range []float64{0.01, 0.1, 0.25} {
		out = append(out, scenario{name: "merges/65/" + percent(e), w: learned(c64, e, 1-e), vary: merges(t, 65)},
			scenario{name: "merges/257/" + percent(e), w: learned(c64, e, 1-e), vary: merges(t, 257)})
	}
	for _, f := range []float64{0.02, 0.05} {
		w := noisy(c64, 0.1, 0.9, 20)
		w.flip, w.confirm = f, true
		out = append(out, scenario{name: "luck/" + percent(f), w: w, cost: pick(f < 0.03, 134, 155)})
	}
	for _, l := range latencies {
		w := world{graph: c64, number: l.number, buildFor: 10, endRuns: 20}
		out = append(out, scenario{name: "bins/20/" + l.name, w: w, many: 400})
		w.endRuns = 40
		out = append(out, scenario{name: "bins/40/" + l.name, w: w, many: 400})
		// The rank test of the gate hardly sees a change of the spread: the ends that
		// pass are odd ones, of which 4 % of the plain searches name a wrong revision.
		if w.duel = true; l.name != "spread" {
			out = append(out, scenario{name: "bins/duel/" + l.name, w: w, many: 400, refuses: true})
		}
		w.confirm = true
		out = append(out, scenario{name: "bins/confirmed/" + l.name, w: w, many: 400, refuses: true})
	}
	for i, l := range latencies[1:3] {
		w := withDuel(world{graph: c64, number: l.number, threshold: 200, buildFor: 10})
		out = append(out, scenario{name: "threshold/" + latencies[i+1].name, w: w})
	}
	w := learned(c64, 0.05, 0.95)
	out = append(out, scenario{name: "untestable", w: w, vary: func(w *world, rng *rand.Rand) {
		at, long := rng.IntN(60), 2+rng.IntN(12)
		w.broken = func(v int) bool { return v >= at && v < at+long && v < 63 }
		if rng.IntN(2) == 0 {
			w.culprit = min(63, at+rng.IntN(long+1))
		}
	}})
	for _, slope := range []float64{0.001, 0.005} { // of the latency, a run
		w := withDuel(world{graph: c64, buildFor: 10, threshold: 50, number: func(isBad bool, at int, rng *rand.Rand) float64 {
			return pick(isBad, 90, 28) * (1 + slope*float64(at)) * math.Exp(0.3*rng.NormFloat64())
		}})
		out = append(out, scenario{name: "drift/" + percent(slope) + "_a_run", w: w, refuses: true})
	}
	return out
}

func percent(x float64) string {
	switch x {
	case 0.001:
		return "0.1_%"
	case 0.005:
		return "0.5_%"
	case 0.01:
		return "1_%"
	case 0.02:
		return "2_%"
	case 0.05:
		return "5_%"
	case 0.1:
		return "10_%"
	}
	return "25_%"
}

// TestCalibration: the share of right answers is at least the stated 99 % minus
// one point, at no more than a tenth above the costs that the design states. With
// KBISECT_CALIBRATION set it makes thousands of searches, in some minutes.
func TestCalibration(t *testing.T) {
	if testing.Short() {
		t.Skip("simulates 600 searches")
	}
	var all tour
	for _, c := range scenarios(t) {
		t.Run(c.name, func(t *testing.T) {
			few, many := 8, cmp.Or(c.many, 2000)
			if c.w.graph.Len() > 500 {
				few, many = 3, 400
			}
			h := fnv.New64()
			h.Write([]byte(c.name))
			r := c.w.tour(t, envTrials(few, many), h.Sum64(), c.vary)
			t.Log(r)
			cost, share := r.cost(), float64(r.named)/float64(r.trials)
			if c.refuses {
				r.trials = r.named
			}
			if !r.enough() || share < 0.8 {
				t.Errorf("right in %.1f %% of %d, which are %.1f %% of the searches", 100*r.accuracy(), r.trials, 100*share)
			}
			if limit := 1.1 + 0.6/math.Sqrt(float64(r.trials)); c.cost > 0 && cost > limit*c.cost {
				t.Errorf("cost %.1f, want %.1f and a tenth more at most", cost, c.cost)
			}
			all.trials += r.trials
			all.right += r.right
		})
	}
	t.Logf("right in %.2f %% of %d", 100*all.accuracy(), all.trials)
	if !all.enough() {
		t.Errorf("right in %.2f %% of %d", 100*all.accuracy(), all.trials)
	}
}

// policy is a way to search: with the ends' rates, or best of k runs a midpoint.
type policy struct {
	name  string
	start func(*bisect.Graph, bisect.Options) (strategy, error)
	k     int
}

var policies = []policy{
	{"best of 1", nil, 1}, {"best of 3", nil, 3}, {"best of 5", nil, 5}, {"best of 9", nil, 9}, {"best of 15", nil, 15},
	{"SPRT", newSPRT, 0}, {"Bayes, cost-aware", newSearch, 0},
}

// naive bisects a row with k runs at each midpoint, fewer when the majority is
// decided; when good runs never hit, the first hit decides.
func (w world) naive(k int, rng *rand.Rand) trip {
	var out trip
	lo, hi := 0, w.graph.Len()-1 // the culprit is one of lo to hi
	for lo < hi {
		mid := (lo + hi) / 2
		need := (k + 1) / 2
		if w.good[1] == 0 {
			need = 1
		}
		hits, misses := 0, 0
		for hits < need && misses <= k-need {
			hit := draw(w.good, rng)
			if w.graph.Has(mid, w.culprit) {
				hit = draw(w.bad, rng)
			}
			hits += hit
			misses += 1 - hit
		}
		out.builds++
		out.runs += hits + misses
		if hits >= need {
			hi = mid
		} else {
			lo = mid + 1
		}
	}
	out.right = lo == w.culprit
	out.cost = float64(out.builds)*w.buildFor + float64(out.runs)
	return out
}

// BenchmarkCalibration prints the share of right answers and the cost of the
// search, of SPRT and of best-of-k at git's midpoints: a build costs ten runs. The
// ends' runs before, which the first two need to know the rates, are not in the
// cost; the table has them beside it. KBISECT_CALIBRATION makes more trials.
func BenchmarkCalibration(b *testing.B) {
	var table strings.Builder
	fmt.Fprintf(&table, "right %% / builds / runs / cost (a build = 10 runs)\n%-10s %-18s %-26s %-26s %-26s\n",
		"error", "policy", "16 revisions", "64 revisions", "1024 revisions")
	for _, c := range []struct {
		name      string
		good, bad float64
	}{{"0 %", 0, 1}, {"1 %", 0.01, 0.99}, {"10 %", 0.1, 0.9}, {"25 %", 0.25, 0.75}, {"30 % v 0", 0, 0.3}, {"30 % v 5", 0.05, 0.3}} {
		for _, p := range policies {
			if p.k > 0 && c.bad < 0.5 && c.good > 0 {
				continue // a majority is never reached
			}
			fmt.Fprintf(&table, "%-10s %-18s", c.name, p.name)
			gate := 0.0
			for _, n := range []int{16, 64, 1024} {
				var r *tour
				b.Run(strings.ReplaceAll(fmt.Sprintf("%s/%s/%d", c.name, p.name, n), " ", "_"), func(b *testing.B) {
					if r == nil { // once, whatever b.N
						r = measure(b, learned(chain(b, n), c.good, c.bad), p)
					}
					b.ReportMetric(100*r.accuracy(), "right-%")
					b.ReportMetric(r.builds/float64(r.trials), "builds")
					b.ReportMetric(r.runs/float64(r.trials), "runs")
					b.ReportMetric(r.cost(), "cost")
					b.ReportMetric(0, "ns/op")
				})
				if r == nil {
					return // not asked for
				}
				m := float64(r.trials)
				cell := fmt.Sprintf("%.1f / %.1f / %.0f / %.0f", 100*r.accuracy(), r.builds/m, (r.runs+r.ends)/m, r.cost())
				fmt.Fprintf(&table, " %-26s", cell)
				gate = r.gate / m
			}
			if gate > 0 {
				fmt.Fprintf(&table, " (%.0f runs of the ends before)", gate)
			}
			table.WriteByte('\n')
		}
	}
	fmt.Println(table.String())
}

// measure makes the trials of one cell of the table.
func measure(t testing.TB, w world, p policy) *tour {
	trials := envTrials(100, 1000)
	if w.graph.Len() > 500 && p.k == 0 {
		trials /= 5
	}
	if w.start = p.start; p.k == 0 {
		r := w.tour(t, trials, 7, nil)
		return &r
	}
	var r tour
	rng := rand.New(rand.NewPCG(7, 7))
	for range trials {
		w.culprit = rng.IntN(w.graph.Len())
		r.count(w.naive(p.k, rng))
	}
	return &r
}
