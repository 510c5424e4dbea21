package bisect_test

import (
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/kbisect/kbisect/internal/bisect"
	"github.com/kbisect/kbisect/internal/stats"
)

// runner makes the outcome of run i of a side.
type runner func(side bisect.Side, i int) bisect.Outcome

func number(x float64) bisect.Outcome {
	return bisect.Outcome{Kind: bisect.Measured, Number: x, HasNumber: true}
}

func hit(h bool) bisect.Outcome { return bisect.Outcome{Kind: bisect.Measured, Hit: h} }

func broken(why string) bisect.Outcome { return bisect.Outcome{Kind: bisect.Broken, Reason: why} }

func infra(why string) bisect.Outcome { return bisect.Outcome{Kind: bisect.InfraFail, Reason: why} }

// fight runs a duel to its end and returns the decision, the order of the sides
// ("GBBG") and the number of runs.
func fight(t testing.TB, r bisect.Rules, run runner) (*bisect.Decision, string) {
	t.Helper()
	r.Tests = stats.Exact{}
	d, err := bisect.NewDuel(r)
	if err != nil {
		t.Fatal(err)
	}
	var order strings.Builder
	n := map[bisect.Side]int{}
	for range 1000 {
		side, decision := d.Next()
		if decision != nil {
			return decision, order.String()
		}
		order.WriteByte("?GB"[side])
		if err := d.Add(side, run(side, n[side])); err != nil {
			t.Fatal(err)
		}
		n[side]++
	}
	t.Fatal("no decision after 1000 runs")
	return nil, ""
}

// steady gives the same number each time, with a small ripple.
func steady(good, bad float64) runner {
	return func(s bisect.Side, i int) bisect.Outcome {
		ripple := 1 + 0.01*float64(i*7%5)
		if s == bisect.Good {
			return number(good * ripple)
		}
		return number(bad * ripple)
	}
}

func TestDuel(t *testing.T) {
	up, down := bisect.Higher, bisect.Lower
	at := func(side bisect.Side, o bisect.Outcome, which ...int) runner {
		return func(s bisect.Side, i int) bisect.Outcome {
			for _, w := range which {
				if s == side && (i == w || w < 0) {
					return o
				}
			}
			return steady(1, 5)(s, i)
		}
	}
	share := func(good, bad int) runner { // hits in every 20 runs
		return func(s bisect.Side, i int) bisect.Outcome {
			if s == bisect.Good {
				return hit(i*7%20 < good)
			}
			return hit(i*7%20 < bad)
		}
	}
	for _, c := range []struct {
		name    string
		rules   bisect.Rules
		run     runner
		verdict bisect.Verdict
		dir     bisect.Direction
		runs    int // measured a side
		gate    string
	}{
		{"clear fix", bisect.Rules{LookFor: up}, steady(1, 5), bisect.Differ, up, 6, "Mann-Whitney p<0.002 at 6 v 6"},
		{"either way", bisect.Rules{}, steady(1, 5), bisect.Differ, up, 6, "p<0.0022 at 6 v 6"},
		{"either way, down", bisect.Rules{}, steady(5, 1), bisect.Differ, down, 6, "p<0.0022 at 6 v 6"},
		{"improvement", bisect.Rules{LookFor: down}, steady(5, 1), bisect.Differ, down, 6, "6 v 6"},
		{"wrong way", bisect.Rules{LookFor: up}, steady(5, 1), bisect.Differ, down, 6, "6 v 6"},
		{"before a search, huge", bisect.Rules{LookFor: up, ConfirmedLater: true}, steady(1, 5), bisect.Differ, up, 3, "at least 2x"},
		{"before a search, large", bisect.Rules{LookFor: up, ConfirmedLater: true}, steady(1, 1.5), bisect.Differ, up, 6, "6 v 6"},
		{"before a search, huge the wrong way", bisect.Rules{LookFor: up, ConfirmedLater: true}, steady(5, 1), bisect.Differ, down, 6, "6 v 6"},
		{"equal", bisect.Rules{LookFor: up}, steady(1, 1), bisect.NoDifference, 0, 6, "within 1.1x"},
		{"equal, either way", bisect.Rules{}, steady(1, 1), bisect.NoDifference, 0, 6, "within 1.1x"},
		{"5 % is not asked for", bisect.Rules{LookFor: up, MinRatio: 1.5}, steady(1, 1.2), bisect.NoDifference, 0, 6, "less than the 1.5x"},
		{"factor asked for", bisect.Rules{LookFor: up, MinRatio: 1.5}, steady(1, 1.6), bisect.Differ, up, 6, "ratio at least 1.5"},
		{"factor asked for, down", bisect.Rules{LookFor: down, MinRatio: 1.5}, steady(1.6, 1), bisect.Differ, down, 6, "ratio at least 1.5"},
		{"hits 40 % v none", bisect.Rules{LookFor: up, Threshold: up}, share(0, 8), bisect.Differ, up, 20, "Fisher p<0.002 at 20 v 20"},
		{"hits 40 % v none, to be learned", bisect.Rules{LookFor: up, Threshold: up, ConfirmedLater: true}, share(0, 8), bisect.Differ, up, 20, "at 20 v 20"},
		{"hits below a threshold", bisect.Rules{LookFor: down, Threshold: down}, share(0, 20), bisect.Differ, down, 6, "Fisher"},
		{"hits vanish", bisect.Rules{LookFor: down, Threshold: up}, share(20, 0), bisect.Differ, down, 6, "Fisher"},
		{"no hits at all", bisect.Rules{LookFor: up, Threshold: up}, share(0, 0), bisect.NoDifference, 0, 20, "hardly"},
		{"all hits", bisect.Rules{LookFor: up, Threshold: up}, share(20, 20), bisect.NoDifference, 0, 20, "hardly"},
		{"hits 50 % each", bisect.Rules{LookFor: up, Threshold: up}, share(10, 10), bisect.NoDifference, 0, 40, "hardly"},
		{"too few allowed", bisect.Rules{LookFor: up, MaxRuns: 4}, steady(1, 5), bisect.Inconclusive, 0, 4, "fewer than the 6"},
		{"cut short", bisect.Rules{LookFor: up, Threshold: up, MaxRuns: 15}, share(0, 8), bisect.Inconclusive, 0, 15, "tendency"},
		{"bad never boots", bisect.Rules{LookFor: up}, at(bisect.Bad, broken("panic"), -1), bisect.Untestable, 0, 0, "the first 2 runs"},
		{"good never boots", bisect.Rules{LookFor: up}, at(bisect.Good, broken("panic"), -1), bisect.Untestable, 0, 0, "the first 2 runs"},
		{"one crash of seven", bisect.Rules{LookFor: up}, at(bisect.Bad, broken("panic"), 3), bisect.Differ, up, 10, "10 v 10"},
		{"every other run crashes", bisect.Rules{LookFor: up}, at(bisect.Bad, broken("panic"), 1, 3, 5, 7, 9), bisect.Inconclusive, 0, 3, "mixed"},
		{"host trouble now and then", bisect.Rules{LookFor: up}, at(bisect.Good, infra("steal"), 0, 1, 4, 5), bisect.Differ, up, 6, "6 v 6"},
		{"host trouble only", bisect.Rules{LookFor: up}, at(bisect.Good, infra("no memory"), -1), bisect.Untestable, 0, 0, "outside the kernel"},
	} {
		got, order := fight(t, c.rules, c.run)
		if got.Verdict != c.verdict || got.Direction != c.dir || got.Runs != c.runs || !strings.Contains(got.Gate, c.gate) {
			t.Errorf("%s: %s %s at %d (%s) after %s", c.name, got.Verdict, got.Direction, got.Runs, got.Gate, order)
		}
		if want := c.rules.LookFor != 0 && c.dir != 0 && c.dir != c.rules.LookFor; got.Unexpected != want {
			t.Errorf("%s: unexpected %v", c.name, got.Unexpected)
		}
		if got.Error <= 0 || got.Error > 1 || got.P <= 0 || got.P > 1 {
			t.Errorf("%s: error %g, p %g", c.name, got.Error, got.P)
		}
		if broke := got.Good.Broken + got.Bad.Broken; (broke > 0) != strings.Contains(strings.Join(got.Warnings, " "), "were not measured") {
			t.Errorf("%s: %d broke, warnings %q", c.name, broke, got.Warnings)
		}
		if _, err := json.Marshal(got); err != nil {
			t.Errorf("%s: %v", c.name, err)
		}
	}
}

func TestDuelOrder(t *testing.T) {
	_, order := fight(t, bisect.Rules{LookFor: bisect.Higher}, steady(1, 5))
	if order != "GBBGGBBGGBBG" {
		t.Errorf("order %s", order)
	}
	// A run that failed is repeated at once, on the same side.
	_, order = fight(t, bisect.Rules{LookFor: bisect.Higher}, func(s bisect.Side, i int) bisect.Outcome {
		if s == bisect.Bad && i == 0 {
			return infra("x")
		}
		return steady(1, 5)(s, i)
	})
	if order != "GBBBGGBBGGBBG" {
		t.Errorf("order %s", order)
	}
}

func TestDuelCensored(t *testing.T) {
	got, _ := fight(t, bisect.Rules{LookFor: bisect.Higher, MinRatio: 2}, func(s bisect.Side, i int) bisect.Outcome {
		o := number(20)
		if s == bisect.Bad {
			o = number(60)
			o.Censored = true
		}
		return o
	})
	if got.Verdict != bisect.Differ || !got.Ratio.AtLeast || got.Ratio.Point != 3 || !math.IsInf(got.Ratio.Hi, 1) {
		t.Errorf("%+v", got)
	}
	if !strings.Contains(strings.Join(got.Warnings, " "), "stopped at their limit") {
		t.Errorf("warnings %q", got.Warnings)
	}
	// Both stopped: nothing is known, and "equal" would be a lie.
	got, _ = fight(t, bisect.Rules{LookFor: bisect.Higher}, func(bisect.Side, int) bisect.Outcome {
		return bisect.Outcome{Kind: bisect.Measured, Number: 60, HasNumber: true, Censored: true}
	})
	if got.Verdict != bisect.NoDifference || !strings.Contains(got.Gate, "hardly") || !math.IsNaN(got.Ratio.Point) {
		t.Errorf("%+v", got)
	}
}

func TestDuelWarnsOfDrift(t *testing.T) {
	got, _ := fight(t, bisect.Rules{LookFor: bisect.Higher}, func(s bisect.Side, i int) bisect.Outcome {
		x := 1 + 0.2*float64(i) // the host gets slower
		if s == bisect.Bad {
			x *= 1.02
		}
		return number(x)
	})
	if !strings.Contains(strings.Join(got.Warnings, " "), "drift") {
		t.Errorf("%+v", got)
	}
}

func TestDuelStanding(t *testing.T) {
	d, err := bisect.NewDuel(bisect.Rules{LookFor: bisect.Higher, Tests: stats.Exact{}})
	if err != nil {
		t.Fatal(err)
	}
	if s := d.Standing(); s.Verdict != bisect.Undecided || s.P != 1 || s.Runs != 0 {
		t.Errorf("before any run: %+v", s)
	}
	for i := range 3 {
		for _, side := range []bisect.Side{bisect.Good, bisect.Bad} {
			if err := d.Add(side, steady(1, 5)(side, i)); err != nil {
				t.Fatal(err)
			}
		}
	}
	s := d.Standing()
	if s.Verdict != bisect.Undecided || math.Abs(s.P-0.05) > 1e-9 || s.Runs != 3 || math.Abs(s.Ratio.Point-5) > 0.2 || s.Looks != 1 {
		t.Errorf("at 3 v 3: %+v", s)
	}
	end := d.Stop("budget")
	if end.Verdict != bisect.Inconclusive || end.Reason != "budget" {
		t.Errorf("stopped: %+v", end)
	}
	if _, again := d.Next(); again != end {
		t.Error("a stopped duel goes on")
	}
	if err := d.Add(bisect.Good, number(1)); err == nil {
		t.Error("a run was added after the decision")
	}
}

func TestDuelStopWhileLearning(t *testing.T) {
	d, err := bisect.NewDuel(bisect.Rules{LookFor: bisect.Higher, Threshold: bisect.Higher, ConfirmedLater: true, Tests: stats.Exact{}})
	if err != nil {
		t.Fatal(err)
	}
	for i := range 15 { // 10 v 10 passes with 9 of 10, and overlaps
		if i == 10 {
			break
		}
		for side, h := range map[bisect.Side]bool{bisect.Good: false, bisect.Bad: i != 4} {
			if err := d.Add(side, hit(h)); err != nil {
				t.Fatal(err)
			}
		}
	}
	if side, end := d.Next(); end != nil || side == 0 {
		t.Fatalf("ended before the rates are known: %+v", end)
	}
	if end := d.Stop("budget"); end.Verdict != bisect.Differ || end.Runs != 10 {
		t.Errorf("%+v", end)
	}
}

func TestDuelRefuses(t *testing.T) {
	for _, r := range []bisect.Rules{
		{},
		{Tests: stats.Exact{}, MaxRuns: 81},
		{Tests: stats.Exact{}, MaxRuns: -1},
		{Tests: stats.Exact{}, Margin: -1},
		{Tests: stats.Exact{}, Margin: math.NaN()},
		{Tests: stats.Exact{}, MinRatio: math.Inf(1)},
	} {
		if _, err := bisect.NewDuel(r); err == nil {
			t.Errorf("accepted %+v", r)
		}
	}
	d, _ := bisect.NewDuel(bisect.Rules{Tests: stats.Exact{}})
	for _, o := range []bisect.Outcome{{}, hit(true), number(math.NaN()), {Kind: 9}} {
		if err := d.Add(bisect.Good, o); err == nil {
			t.Errorf("accepted %+v", o)
		}
	}
	if err := d.Add(3, number(1)); err == nil {
		t.Error("accepted a third side")
	}
	if s := d.Standing(); s.Good != (bisect.Tally{}) {
		t.Errorf("a refused run was counted: %+v", s)
	}
}

func TestNames(t *testing.T) {
	in := bisect.Decision{Verdict: bisect.NoDifference, Direction: bisect.Lower, Side: bisect.Bad}
	b, err := json.Marshal(in)
	if err != nil {
		t.Fatal(err)
	}
	var out bisect.Decision
	if err := json.Unmarshal(b, &out); err != nil || out.Verdict != in.Verdict || out.Direction != in.Direction || out.Side != in.Side {
		t.Errorf("%s -> %+v, %v", b, out, err)
	}
	if _, err := json.Marshal(bisect.Verdict(9)); err == nil {
		t.Error("an unknown verdict was written")
	}
	if bisect.Verdict(9).String() != "9" || bisect.Broken.String() != "broken" {
		t.Error("names")
	}
}

// shape draws one number of a noisy metric.
type shape struct {
	name string
	draw func(*rand.Rand) float64
}

var shapes = []shape{
	{"lognormal 2 %", func(r *rand.Rand) float64 { return math.Exp(0.02 * r.NormFloat64()) }},
	{"lognormal 15 %", func(r *rand.Rand) float64 { return math.Exp(0.15 * r.NormFloat64()) }},
	{"Pareto 1.1", func(r *rand.Rand) float64 { return math.Pow(r.Float64(), -1/1.1) }},
	{"two modes", func(r *rand.Rand) float64 {
		return 20*float64(1+r.IntN(2)) + 0.1*r.NormFloat64()
	}},
}

// bout sums up many duels.
type bout struct {
	verdicts map[bisect.Verdict]int
	runs     int
	trials   int
}

func (b bout) rate(v bisect.Verdict) float64 { return float64(b.verdicts[v]) / float64(b.trials) }

func (b bout) String() string {
	return fmt.Sprintf("differ %5.1f %%, no difference %5.1f %%, inconclusive %5.1f %%, %5.1f runs",
		100*b.rate(bisect.Differ), 100*b.rate(bisect.NoDifference), 100*b.rate(bisect.Inconclusive), float64(b.runs)/float64(b.trials))
}

func many(t testing.TB, seed uint64, trials int, r bisect.Rules, good, bad func(*rand.Rand) bisect.Outcome) bout {
	rng := rand.New(rand.NewPCG(seed, 17))
	out := bout{verdicts: map[bisect.Verdict]int{}, trials: trials}
	for range trials {
		d, order := fight(t, r, func(s bisect.Side, _ int) bisect.Outcome {
			if s == bisect.Good {
				return good(rng)
			}
			return bad(rng)
		})
		out.verdicts[d.Verdict]++
		out.runs += len(order)
	}
	return out
}

func numbers(s shape, factor float64) func(*rand.Rand) bisect.Outcome {
	return func(r *rand.Rand) bisect.Outcome { return number(factor * s.draw(r)) }
}

func hits(p float64) func(*rand.Rand) bisect.Outcome {
	return func(r *rand.Rand) bisect.Outcome { return hit(r.Float64() < p) }
}

// TestDuelErrorOfDiffer: two equal kernels are called different in at most 1 % of
// duels, over all looks together, whatever the noise; 5 % with the early gate.
func TestDuelErrorOfDiffer(t *testing.T) {
	if testing.Short() {
		t.Skip("simulates 2,000 duels")
	}
	trials := envTrials(120, 300) // BenchmarkDuelError makes 5000
	check := func(name string, b bout, stated float64) {
		t.Helper()
		t.Logf("%-34s %s", name, b)
		slack := 3.3 * math.Sqrt(stated*(1-stated)/float64(b.trials))
		if got := b.rate(bisect.Differ); got > stated+slack {
			t.Errorf("%s: %.2f %% of equal pairs differ, stated %.0f %%", name, 100*got, 100*stated)
		}
	}
	for i, s := range shapes {
		n := numbers(s, 1)
		check(s.name+", one way", many(t, uint64(i), trials, bisect.Rules{LookFor: bisect.Higher}, n, n), 0.02)
		check(s.name+", either way", many(t, uint64(i), trials, bisect.Rules{}, n, n), 0.01)
		early := bisect.Rules{LookFor: bisect.Higher, ConfirmedLater: true}
		check(s.name+", early gate", many(t, uint64(i), trials, early, n, n), 0.05+0.02)
	}
	for i, p := range []float64{0.05, 0.3, 0.5} {
		r := bisect.Rules{Threshold: bisect.Higher}
		check(fmt.Sprintf("%.0f %% hits", 100*p), many(t, uint64(i), trials, r, hits(p), hits(p)), 0.01)
	}
}

// TestDuelFindsDifferences: what a user would call a clear difference is found
// nearly always, with the runs that the table of the benchmark prints.
func TestDuelFindsDifferences(t *testing.T) {
	const trials = 200
	r := bisect.Rules{LookFor: bisect.Higher}
	h := bisect.Rules{LookFor: bisect.Higher, Threshold: bisect.Higher}
	for _, c := range []struct {
		name string
		b    bout
		want float64
		runs float64
	}{
		{"2x, 15 % noise", many(t, 1, trials, r, numbers(shapes[1], 1), numbers(shapes[1], 2)), 0.99, 13},
		{"1.3x, 15 % noise", many(t, 2, trials, r, numbers(shapes[1], 1), numbers(shapes[1], 1.3)), 0.99, 40},
		{"3x, Pareto", many(t, 3, trials, r, numbers(shapes[2], 1), numbers(shapes[2], 3)), 0.97, 70},
		{"30 % v none", many(t, 4, trials, h, hits(0), hits(0.3)), 0.97, 90},
		{"60 % v 5 %", many(t, 5, trials, h, hits(0.05), hits(0.6)), 0.99, 45},
	} {
		t.Logf("%-18s %s", c.name, c.b)
		if got := c.b.rate(bisect.Differ); got < c.want {
			t.Errorf("%s: found %.1f %%", c.name, 100*got)
		}
		if got := float64(c.b.runs) / trials; got > c.runs {
			t.Errorf("%s: %.1f runs", c.name, got)
		}
	}
}

// TestDuelErrorOfNoDifference: kernels that differ by more than the margin are
// not called equal within it.
func TestDuelErrorOfNoDifference(t *testing.T) {
	const trials = 200
	for i, s := range shapes[:2] {
		b := many(t, uint64(i), trials, bisect.Rules{LookFor: bisect.Higher}, numbers(s, 1), numbers(s, 1.11))
		t.Logf("%-18s %s", s.name, b)
		if s.name == "lognormal 2 %" && b.rate(bisect.NoDifference) > 0.02 {
			t.Errorf("%s: %.1f %% called equal", s.name, 100*b.rate(bisect.NoDifference))
		}
	}
}

// BenchmarkDuel prints verdicts and runs for pairs from equal to very different.
func BenchmarkDuel(b *testing.B) {
	for _, s := range shapes {
		for _, f := range []float64{1, 1.05, 1.1, 1.15, 1.3, 2, 5} {
			b.Run(fmt.Sprintf("%s/x%g", strings.ReplaceAll(s.name, " ", "_"), f), func(b *testing.B) {
				o := many(b, 1, 100, bisect.Rules{LookFor: bisect.Higher}, numbers(s, 1), numbers(s, f))
				report(b, o)
			})
		}
	}
	for _, p := range [][2]float64{{0, 0}, {0.3, 0.3}, {0, 0.1}, {0, 0.15}, {0, 0.3}, {0.05, 0.3}, {0.1, 0.6}} {
		b.Run(fmt.Sprintf("hits/%g_v_%g", p[0], p[1]), func(b *testing.B) {
			r := bisect.Rules{LookFor: bisect.Higher, Threshold: bisect.Higher}
			report(b, many(b, 1, 100, r, hits(p[0]), hits(p[1])))
		})
	}
}

// BenchmarkDuelError prints how often equal pairs are called different.
func BenchmarkDuelError(b *testing.B) {
	for _, s := range shapes {
		for name, r := range map[string]bisect.Rules{
			"one_way": {LookFor: bisect.Higher}, "either": {},
			"early": {LookFor: bisect.Higher, ConfirmedLater: true},
		} {
			b.Run(strings.ReplaceAll(s.name, " ", "_")+"/"+name, func(b *testing.B) {
				report(b, many(b, 99, 5000, r, numbers(s, 1), numbers(s, 1)))
			})
		}
	}
}

func report(b *testing.B, o bout) {
	b.ReportMetric(100*o.rate(bisect.Differ), "differ-%")
	b.ReportMetric(100*o.rate(bisect.NoDifference), "same-%")
	b.ReportMetric(float64(o.runs)/float64(o.trials), "runs")
	b.ReportMetric(0, "ns/op")
}
