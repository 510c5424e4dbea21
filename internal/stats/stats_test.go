package stats

import (
	"encoding/json"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
)

func near(t *testing.T, what string, got, want, tol float64) {
	t.Helper()
	if math.IsNaN(got) || math.Abs(got-want) > tol {
		t.Errorf("%s = %.8g, want %.8g", what, got, want)
	}
}

func TestFisher(t *testing.T) {
	for _, c := range []struct {
		k1, n1, k0, n0 int
		want           float64
	}{
		{3, 4, 1, 4, 17.0 / 70},      // Fisher's lady tasting tea
		{4, 4, 0, 4, 1.0 / 70},       // the same, all right
		{6, 6, 0, 6, 1.0 / 924},      // no overlap at the first look
		{3, 3, 0, 3, 1.0 / 20},       //
		{8, 20, 0, 20, 0.0016380016}, // C(20,8)/C(40,8)
		{0, 5, 5, 5, 1},              // the wrong way
		{0, 0, 0, 0, 1},              // nothing known
		{10, 13, 2, 17, 0.00046518},  // R: Convictions in ?fisher.test, 0.0004652
	} {
		near(t, "fisher", Fisher(c.k1, c.n1, c.k0, c.n0), c.want, 1e-7)
	}
}

func TestFisherIsHypergeometric(t *testing.T) {
	// Independent of logs: count by product of binomials in exact integers.
	choose := func(n, k int) float64 {
		v := 1.0
		for i := range k {
			v = v * float64(n-i) / float64(i+1)
		}
		return math.Round(v)
	}
	for n1 := 1; n1 <= 7; n1++ {
		for n0 := 1; n0 <= 7; n0++ {
			for k1 := 0; k1 <= n1; k1++ {
				for k0 := 0; k0 <= n0; k0++ {
					want := 0.0
					for k := k1; k <= n1 && k <= k1+k0; k++ {
						if k1+k0-k <= n0 {
							want += choose(n1, k) * choose(n0, k1+k0-k)
						}
					}
					want /= choose(n1+n0, k1+k0)
					near(t, "fisher", Fisher(k1, n1, k0, n0), want, 1e-12)
				}
			}
		}
	}
}

// bruteRanks deals the pooled values to the two groups in every way.
func bruteRanks(x, y []float64) (less, greater float64) {
	u := func(a, b []float64) float64 {
		s := 0.0
		for _, p := range a {
			for _, q := range b {
				switch {
				case p > q:
					s++
				case p == q:
					s += 0.5
				}
			}
		}
		return s
	}
	all := slices.Concat(x, y)
	seen, lo, hi := 0.0, 0.0, 0.0
	want := u(x, y)
	for mask := range 1 << len(all) {
		var a, b []float64
		for i, v := range all {
			if mask>>i&1 == 1 {
				a = append(a, v)
			} else {
				b = append(b, v)
			}
		}
		if len(a) != len(x) {
			continue
		}
		seen++
		got := u(a, b)
		if got <= want {
			lo++
		}
		if got >= want {
			hi++
		}
	}
	return lo / seen, hi / seen
}

func TestMannWhitneyAgainstBruteForce(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for trial := range 60 {
		n, m := 1+rng.IntN(5), 1+rng.IntN(5)
		x, y := make([]float64, n), make([]float64, m)
		levels := 2 + rng.IntN(30) // few levels make many ties
		for i := range x {
			x[i] = float64(rng.IntN(levels))
		}
		for i := range y {
			y[i] = float64(rng.IntN(levels))
			if rng.IntN(8) == 0 {
				y[i] = math.Inf(1)
			}
		}
		keptX, keptY := slices.Clone(x), slices.Clone(y)
		r := MannWhitney(x, y)
		less, greater := bruteRanks(x, y)
		near(t, "less", r.Less, less, 1e-9)
		near(t, "greater", r.Greater, greater, 1e-9)
		if !r.Exact {
			t.Errorf("trial %d: not exact", trial)
		}
		if !slices.Equal(x, keptX) || !slices.Equal(y, keptY) {
			t.Fatal("the caller's slice was changed")
		}
	}
}

func TestMannWhitneyKnown(t *testing.T) {
	// The examples of R's wilcox.test: Hollander and Wolfe (1973), 69f.
	x := []float64{0.80, 0.83, 1.89, 1.04, 1.45, 1.38, 1.91, 1.64, 0.73, 1.46}
	y := []float64{1.15, 0.88, 0.90, 0.74, 1.21}
	r := MannWhitney(x, y)
	if r.U != 35 || !r.Exact {
		t.Errorf("got %+v, want U 35, exact", r)
	}
	near(t, "greater", r.Greater, 0.1272, 5e-5)
	near(t, "two-sided", r.TwoSided, 0.2544, 5e-5)

	r = MannWhitney([]float64{4, 5, 6, 7, 8, 9}, []float64{1, 1.5, 2, 2.5, 3, 3.5})
	near(t, "6 v 6 without overlap", r.Greater, 1.0/924, 1e-12)
	near(t, "the other way", r.Less, 1, 1e-12)
	if r := MannWhitney(nil, x); r.TwoSided != 1 {
		t.Errorf("empty group: %+v", r)
	}
	same := []float64{3, 3, 3, 3}
	if r := MannWhitney(same, same); r.TwoSided != 1 {
		t.Errorf("all equal: %+v", r)
	}
}

func TestMannWhitneyLarge(t *testing.T) {
	// The approximation must join the exact distribution without a step.
	rng := rand.New(rand.NewPCG(3, 4))
	x, y := make([]float64, 80), make([]float64, 80)
	for i := range x {
		x[i], y[i] = rng.NormFloat64()+0.4, rng.NormFloat64()
	}
	exact := MannWhitney(x, y)
	less, greater := normalTails(exact.U, 80, 80, 0)
	near(t, "less", less, exact.Less, 1e-3)
	near(t, "greater / exact", greater/exact.Greater, 1, 0.2)
	if !exact.Exact {
		t.Error("80 v 80 without ties is not exact")
	}
	for i := range x {
		x[i], y[i] = math.Round(x[i]), math.Round(y[i])
	}
	tied := MannWhitney(x, y)
	if tied.Exact {
		t.Error("80 v 80 with ties claims to be exact")
	}
	if tied.Greater > 0.2 || tied.Greater <= 0 {
		t.Errorf("tied: %+v", tied)
	}
}

func TestRatio(t *testing.T) {
	for _, c := range []struct {
		name   string
		x, y   []Obs
		want   string
		lo, hi float64
		level  float64
	}{
		{"3 v 3 cannot have 95 %", Values(30, 31, 32), Values(10, 10, 10), "3.1x", 3, 3.2, 0.9},
		{"6 v 6", Values(2, 2, 2, 2, 2, 2), Values(1, 1, 1, 1, 1, 1), "2x", 2, 2, 1 - 2*uTail(6, 6, 5)},
		{"equal zeros", Values(0, 0, 0), Values(0, 0, 0), "1x", 1, 1, 0.9},
		{"some against none", Values(5, 6, 7), Values(0, 0, 0), "+Infx", math.Inf(1), math.Inf(1), 0.9},
		{"censored above", []Obs{{60, true}, {60, true}, {60, true}}, Values(20, 20, 20), ">=3x", 3, math.Inf(1), 0.9},
		{"censored below", Values(20, 20, 20), []Obs{{60, true}, {60, true}, {60, true}}, "<=0.333x", 0, 1.0 / 3, 0.9},
		{"one of three censored", []Obs{{60, true}, {50, false}, {55, false}}, Values(20, 20, 20), "2.75x", 2.5, math.Inf(1), 0.9},
		{"both censored", []Obs{{60, true}}, []Obs{{60, true}}, "?", 0, math.Inf(1), 0},
		{"empty", nil, Values(1), "?", 0, math.Inf(1), 1},
	} {
		r := RatioOf(c.x, c.y, 0.95)
		if r.String() != c.want {
			t.Errorf("%s: %s, want %s", c.name, r, c.want)
		}
		if r.Interval.Lo != c.lo || r.Interval.Hi != c.hi || math.Abs(r.Interval.Level-c.level) > 1e-9 {
			t.Errorf("%s: interval %+v, want [%g, %g] at %g", c.name, r.Interval, c.lo, c.hi, c.level)
		}
	}
	if r := RatioOf(Values(-1), Values(2), 0.95); !math.IsNaN(r.Point) {
		t.Errorf("negative value: %+v", r)
	}
}

func TestRatioIntervalCovers(t *testing.T) {
	// Heavy tails, true factor 1.5: the interval must keep what it states.
	rng := rand.New(rand.NewPCG(5, 6))
	const trials = 1000
	for _, n := range []int{3, 6, 10, 20} {
		hits, level := 0, 0.0
		for range trials {
			x, y := make([]float64, n), make([]float64, n)
			for i := range x {
				x[i] = 1.5 * math.Pow(rng.Float64(), -1/1.1)
				y[i] = math.Pow(rng.Float64(), -1/1.1)
			}
			_, ci := RatioInterval(x, y, 0.95)
			level = ci.Level
			if ci.Contains(1.5) {
				hits++
			}
		}
		got := float64(hits) / trials
		if slack := 3.5 * math.Sqrt(level*(1-level)/trials); math.Abs(got-level) > slack {
			t.Errorf("n=%d: covers %.3f, states %.3f", n, got, level)
		}
	}
}

func TestProportion(t *testing.T) {
	near(t, "0 of 20", Proportion(0, 20, 0.95).Hi, 1-math.Pow(0.05, 1.0/20), 1e-12) // 13.9 %
	near(t, "rule of three", Proportion(0, 1000, 0.95).Hi, 0.003, 1e-5)
	near(t, "20 of 20", Proportion(20, 20, 0.95).Lo, math.Pow(0.05, 1.0/20), 1e-12)
	ci := Proportion(682, 925, 0.95) // R: binom.test(682, 925)
	near(t, "R lower", ci.Lo, 0.7076683, 1e-6)
	near(t, "R upper", ci.Hi, 0.7654066, 1e-6)
	ci = Proportion(5, 10, 0.95)
	near(t, "5 of 10", ci.Lo, 0.1870860, 1e-6)
	near(t, "5 of 10", ci.Hi, 0.8129140, 1e-6)
	if ci := Proportion(0, 0, 0.95); ci.Lo != 0 || ci.Hi != 1 {
		t.Errorf("0 of 0: %+v", ci)
	}
}

func TestRate(t *testing.T) {
	near(t, "none", Rate(0, 1, 0.95).Hi, 3.841458821/2, 1e-8) // chi-square, 1 degree
	ci := Rate(10, 2, 0.95)                                   // chi-square, 21 degrees
	near(t, "lower", ci.Lo, 10.28289778/4, 1e-7)
	near(t, "upper", ci.Hi, 35.47887591/4, 1e-7)
	for k, want := range map[int]float64{1: 20.5, 3: 8.2, 5: 6.6, 10: 5.5, 30: 4.9} {
		near(t, "quiet time", QuietTime(k, float64(k), 0.01), want, 0.06)
	}
}

func TestQuantile(t *testing.T) {
	up := make([]Obs, 300)
	for i := range up {
		up[i].X = float64(300 - i) // falling, to see that the order does not matter
	}
	for _, c := range []struct {
		name          string
		x             []Obs
		q, level      float64
		want, lo, hi  float64
		least, atMost float64
	}{
		{"median of 6", Values(6, 5, 4, 3, 2, 1), 0.5, 0.95, 3.5, 1, 6, 0.96875, 0.96875},
		{"median of 10", up[290:], 0.5, 0.95, 5.5, 2, 9, 0.978, 0.979},
		{"median of 3", Values(3, 1, 2), 0.5, 0.95, 2, 1, 3, 0.75, 0.75},
		{"median of 1", Values(3), 0.5, 0.95, 3, 3, 3, 0, 0},
		{"p99 of 300", up, 0.99, 0.90, 297, 294, 300, 0.90, 0.96},
		{"p99 of 10", up[290:], 0.99, 0.95, 10, 9, 10, 0.09, 0.1},
	} {
		g := QuantileOf(c.x, c.q, c.level)
		if g.Point.X != c.want || g.Interval.Lo != c.lo || g.Interval.Hi != c.hi {
			t.Errorf("%s: %+v", c.name, g)
		}
		if l := g.Interval.Level; l < c.least-1e-9 || l > c.atMost+1e-9 {
			t.Errorf("%s: level %g", c.name, l)
		}
	}
	g := QuantileOf([]Obs{{60, true}, {1, false}, {70, false}}, 0.5, 0.95)
	if g.Point.X != 70 || g.Point.Censored || !math.IsInf(g.Interval.Hi, 1) {
		t.Errorf("a censored value is the largest: %+v", g)
	}
}

func TestCompare(t *testing.T) {
	fast := Values(1.0, 1.1, 0.9, 1.05, 1.02, 0.98)
	slow := Values(3.0, 3.1, 2.9, 3.05, 3.02, 2.98)
	for _, c := range []struct {
		name          string
		with, without []Obs
		better        Better
		want          Effect
		above         bool
	}{
		{"fix", fast, slow, LowerIsBetter, Improvement, true},
		{"breakage", slow, fast, LowerIsBetter, Regression, false},
		{"more throughput", slow, fast, HigherIsBetter, Improvement, true},
		{"less throughput", fast, slow, HigherIsBetter, Regression, false},
		{"nothing", fast, fast, LowerIsBetter, Unclear, false},
	} {
		g := Compare(c.with, c.without, c.better, 0.95)
		if g.Effect != c.want || (g.Factor.Point > 1) != c.above {
			t.Errorf("%s: %+v", c.name, g)
		}
		if len(g.Warnings) > 0 {
			t.Errorf("%s: warnings %q", c.name, g.Warnings)
		}
	}
}

func TestCompareWarns(t *testing.T) {
	rising := make([]Obs, 20)
	for i := range rising {
		rising[i].X = float64(1 + i)
	}
	for _, c := range []struct {
		name          string
		with, without []Obs
		want          string
	}{
		{"few runs", Values(1, 2, 3), Values(1, 2, 3), "90 % confidence"},
		{"drift", rising, rising, "drift"},
		{"zeros", Values(0, 0, 0, 0, 0, 0), Values(5, 5, 5, 5, 5, 5), "some against none"},
		{"below zero", Values(-1, 0, 0, 0, 0, 0), Values(5, 5, 5, 5, 5, 5), "below zero"},
		{"stopped", Values(1, 1, 1, 1, 1, 1), []Obs{{9, true}, {9, true}, {9, true}, {9, true}, {9, true}, {9, true}}, "6 of 6 runs without"},
		{"empty", nil, Values(1), "no runs"},
	} {
		got := strings.Join(Compare(c.with, c.without, LowerIsBetter, 0.95).Warnings, "; ")
		if !strings.Contains(got, c.want) {
			t.Errorf("%s: warnings %q, want %q", c.name, got, c.want)
		}
	}
}

func TestDriftKeepsItsLevel(t *testing.T) {
	rng := rand.New(rand.NewPCG(7, 8))
	hits := 0
	for range 1000 {
		x := make([]Obs, 40)
		for i := range x {
			x[i].X = math.Exp(rng.NormFloat64())
		}
		if DriftOf(x).Drifts {
			hits++
		}
	}
	if hits > 25 { // 1 % is 10
		t.Errorf("%d of 1000 steady series are called drifting", hits)
	}
}

func TestCallersOrderIsKept(t *testing.T) {
	x, y := Values(3, 1, 2), Values(6, 5, 4)
	Compare(x, y, LowerIsBetter, 0.95)
	QuantileOf(x, 0.5, 0.95)
	if !slices.Equal(x, Values(3, 1, 2)) || !slices.Equal(y, Values(6, 5, 4)) {
		t.Error("the caller's order was changed")
	}
}

func BenchmarkMannWhitneyTied40(b *testing.B) {
	x, y := make([]float64, 40), make([]float64, 40)
	for i := range x {
		x[i], y[i] = float64(i/2), float64(i/3)
	}
	for b.Loop() {
		MannWhitney(x, y)
	}
}

func BenchmarkRatio80(b *testing.B) {
	x := make([]Obs, 80)
	for i := range x {
		x[i].X = float64(i + 1)
	}
	for b.Loop() {
		RatioOf(x, x, 0.95)
	}
}

func TestJSON(t *testing.T) {
	b, err := json.Marshal(Compare([]Obs{{60, true}}, []Obs{{60, true}}, LowerIsBetter, 0.95))
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(b), `"factor":{"point":null,"bound":"?","interval":{"lo":0,"hi":null,"level":0}}`) {
		t.Errorf("%s", b)
	}
}
