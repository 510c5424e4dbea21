package bisect_test

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/kbisect/kbisect/internal/bisect"
)

func TestHomogeneous(t *testing.T) {
	for _, c := range []struct {
		name   string
		groups [][]int
		lo, hi float64
	}{
		{"nothing", nil, 1, 1},
		{"one group", [][]int{{5, 5}, {0, 0}}, 1, 1},
		{"one category", [][]int{{5, 0}, {9, 0}}, 1, 1},
		{"alike", [][]int{{5, 5}, {10, 10}, {1, 1}}, 0.9, 1},
		{"2 of 2 against 0 of 2: 2 of 6 deals", [][]int{{0, 2}, {2, 0}}, 0.25, 0.42},
		{"5 against 5: 2 of 252 deals", [][]int{{0, 5}, {5, 0}}, 0.004, 0.013},
		{"clear", [][]int{{20, 0}, {20, 0}, {0, 4}}, 0.0001, 0.0005},
		{"three categories", [][]int{{9, 0, 0}, {0, 9, 0}, {0, 0, 9}}, 0.0001, 0.0001},
		{"ragged", [][]int{{9}, {0, 9}}, 0.0001, 0.0005},
	} {
		if p := bisect.Homogeneous(c.groups); p < c.lo || p > c.hi {
			t.Errorf("%s: p = %g, want %g to %g", c.name, p, c.lo, c.hi)
		}
	}
}

// TestHomogeneousKeepsItsLevel: small groups that are alike are rarely called
// unlike.
func TestHomogeneousKeepsItsLevel(t *testing.T) {
	const trials = 1000
	rng := rand.New(rand.NewPCG(1, 7))
	low, lowLevels := 0, 0
	for range trials {
		groups, numbers := make([][]int, 5), make([][]float64, 5)
		for i := range groups {
			groups[i] = make([]int, 2)
			for range 1 + rng.IntN(6) {
				groups[i][btoi(rng.Float64() < 0.15)]++
				numbers[i] = append(numbers[i], math.Pow(rng.Float64(), -1))
			}
		}
		low += btoi(bisect.Homogeneous(groups) <= 0.05)
		lowLevels += btoi(bisect.Levels(numbers) <= 0.05)
	}
	if limit := int(0.05*trials + 3*math.Sqrt(0.05*0.95*trials)); low > limit || lowLevels > limit {
		t.Errorf("p below 0.05 in %d and %d of %d", low, lowLevels, trials)
	}
}

func TestLevels(t *testing.T) {
	inf := math.Inf(1)
	// A threshold of 50 ms sees good and bad; 60 ms is neither.
	partial := [][]float64{{61, 60, 59}, {60, 62, 61, 60, 63}, {100, 101, 99}, {98, 103, 100, 97, inf}}
	if p := bisect.Levels(partial); p > 0.001 {
		t.Errorf("p = %g", p)
	}
	if j := bisect.Jump(partial); j != 2 {
		t.Errorf("jump at %d", j)
	}
	same := [][]float64{{100, 104, 99}, {98, 103, 100}, {101, 102, 99, 100}}
	if p := bisect.Levels(same); p < 0.1 {
		t.Errorf("p = %g of what is alike", p)
	}
	if p := bisect.Levels([][]float64{{1, 1}, {1, 1, 1}}); p != 1 || bisect.Levels(nil) != 1 {
		t.Errorf("p = %g of equal numbers", p)
	}
	if bisect.Jump(nil) != 0 || bisect.Jump([][]float64{{1, 2}}) != 0 || bisect.Jump([][]float64{{}, {1}, {}, {2}}) != 2 {
		t.Error("jumps of what has none")
	}
}

// fill gives every end 20 clean runs, and each revision those of a pattern: the
// share of hits by revision.
func fill(t *testing.T, s strategy, n int, runs int, share func(v int) float64) {
	t.Helper()
	for range 20 {
		must(t, s.Add(bisect.GoodEnd, 0))
		must(t, s.Add(bisect.BadEnd, 1))
	}
	for v := range n {
		for i := range runs {
			must(t, s.Add(v, btoi(float64(i) < share(v)*float64(runs))))
		}
	}
}

func TestChanges(t *testing.T) {
	step := func(v int) float64 { return float64(btoi(v >= 8)) }
	for _, c := range []struct {
		name  string
		runs  int // of each revision
		share func(v int) float64
		want  []bisect.Change // without P
	}{
		{"one step", 10, step, nil},
		{"a little more, then much", 10, func(v int) float64 { return 0.3*float64(btoi(v >= 3)) + 0.7*float64(btoi(v >= 8)) },
			[]bisect.Change{{Side: bisect.Good, From: 2, To: 3}}},
		{"much, then a little more", 10, func(v int) float64 { return 0.7*float64(btoi(v >= 8)) + 0.3*float64(btoi(v >= 12)) },
			[]bisect.Change{{Side: bisect.Bad, From: 11, To: 12}}},
		{"more at once at the end", 5, func(v int) float64 { return 0.4 * float64(btoi(v >= 8)) },
			[]bisect.Change{{Side: bisect.Bad, From: 14, To: bisect.BadEnd}}},
		{"broken, fixed, broken", 10, func(v int) float64 { return float64(btoi(v == 4 || v >= 8)) },
			[]bisect.Change{{Side: bisect.Good, From: 3, To: 4}, {Fixed: true, From: 4, To: 5}}},
	} {
		for i, start := range []func(*bisect.Graph, bisect.Options) (strategy, error){newSearch, newSPRT} {
			s, err := start(chain(t, 16), bisect.Options{})
			must(t, err)
			fill(t, s, 15, c.runs, c.share) // the last one is the bad end
			got := s.Changes()
			for i := range got {
				if got[i].P <= 0 || got[i].P > 0.01 {
					t.Errorf("%s: p = %g", c.name, got[i].P)
				}
				got[i].P = 0
			}
			if i == 0 && !slices.Equal(got, c.want) {
				t.Errorf("%s: %+v, want %+v", c.name, got, c.want)
			}
			if (len(got) > 0) != (len(c.want) > 0) {
				t.Errorf("%s: strategy %d: %+v", c.name, i, got)
			}
		}
	}
}

// TestChangesBranches: good beside bad is no contradiction.
func TestChangesBranches(t *testing.T) {
	g, err := bisect.NewGraph([][]int{{}, {0}, {0}, {1}, {2}, {3, 4}})
	must(t, err)
	s, err := newSearch(g, bisect.Options{})
	must(t, err)
	fill(t, s, 5, 8, func(v int) float64 { return float64(btoi(v == 1 || v == 3 || v == 5)) })
	if c := s.Changes(); c != nil {
		t.Errorf("%+v", c)
	}
	if c := s.Credible(0.9); len(c) != 1 || c[0].Revision != 1 {
		t.Errorf("%+v", c)
	}
}

// TestChangesFalseAlarms: a search for one culprit hardly ever reports another.
func TestChangesFalseAlarms(t *testing.T) {
	trials := envTrials(100, 1000)
	for _, rate := range []float64{0.02, 0.1, 0.25} {
		alarms, fixed := 0, 0
		w := noisy(chain(t, 64), rate, 1-rate, 20)
		w.after = func(s strategy) {
			for _, c := range s.Changes() {
				alarms++
				fixed += btoi(c.Fixed)
			}
		}
		w.tour(t, trials, 11, nil)
		t.Logf("error of %g: %d alarms, %d of them of a fix, in %d searches", rate, alarms, fixed, trials)
		if alarms > 2+trials/100 {
			t.Errorf("error of %g: %d alarms in %d searches", rate, alarms, trials)
		}
	}
}

func TestWeights(t *testing.T) {
	is := func(set ...int) func(int) bool { return func(v int) bool { return slices.Contains(set, v) } }
	g := chain(t, 5)
	if got := bisect.Weights(g, is(0, 1), is(3), is(1, 2)); !slices.Equal(got, []float64{1, 3, 0.06, 0.2, 0.02}) {
		t.Errorf("%v", got)
	}
	if got := bisect.Weights(g, nil, nil, nil); !slices.Equal(got, []float64{1, 1, 1, 1, 1}) {
		t.Errorf("%v", got)
	}
}

// TestForecast: what is foretold at the begin and half-way is what it takes, on
// average.
func TestForecast(t *testing.T) {
	for _, c := range []struct {
		name   string
		w      world
		trials int
	}{
		{"16, no error", noisy(chain(t, 16), 0, 1, 20), 30},
		{"64, 10 %", noisy(chain(t, 64), 0.1, 0.9, 20), 30},
		{"64, 25 %", noisy(chain(t, 64), 0.25, 0.75, 40), 20},
		{"64, rare 30 %", noisy(chain(t, 64), 0, 0.3, 40), 30},
		{"300 with merges, 10 %", noisy(history(t, 300, rand.New(rand.NewPCG(1, 1))), 0.1, 0.9, 20), 10},
		{"1024, 10 %", noisy(chain(t, 1024), 0.1, 0.9, 20), 4},
	} {
		var told, told2, took, took2 [2]float64
		w := c.w
		w.before = func(s strategy, step int) {
			b, r := s.Forecast(bisect.Costs{Run: 1})
			switch step {
			case 0:
				told[0] += float64(b)
				told[1] += float64(r)
			case 12:
				told2[0] += float64(b)
				told2[1] += float64(r)
			}
		}
		w.watch = []int{0, 12}
		rng := rand.New(rand.NewPCG(3, 3))
		for range c.trials {
			w.culprit = rng.IntN(w.graph.Len())
			r := w.explore(t, rng)
			took[0] += float64(r.builds)
			took[1] += float64(r.runs + r.ends)
			took2[0] += float64(r.builds - r.buildsAt12)
			took2[1] += max(0, float64(r.runs+r.ends-12))
		}
		n := float64(c.trials)
		t.Logf("%-22s told %.1f builds %.1f runs, took %.1f and %.1f; after 12 runs told %.1f and %.1f, took %.1f and %.1f", c.name,
			told[0]/n, told[1]/n, took[0]/n, took[1]/n, told2[0]/n, told2[1]/n, took2[0]/n, took2[1]/n)
		for i, unit := range []string{"builds", "runs"} {
			if math.Abs(told[i]-took[i]) > 0.25*took[i]+0.5*n || math.Abs(told2[i]-took2[i]) > 0.35*took2[i]+1.5*n {
				t.Errorf("%s: told %.1f %s, took %.1f; after 12 runs told %.1f, took %.1f", c.name, told[i]/n, unit, took[i]/n, told2[i]/n, took2[i]/n)
			}
		}
	}
}

func TestForecastIsQuickAndPure(t *testing.T) {
	for _, c := range []struct {
		n     int
		limit time.Duration
	}{{1024, 50 * time.Millisecond}, {15_000, 300 * time.Millisecond}} {
		s, err := bisect.NewSearch(history(t, c.n, rand.New(rand.NewPCG(1, 1))), bisect.Options{})
		must(t, err)
		for i := range 20 {
			must(t, s.Add(bisect.GoodEnd, btoi(i < 2)))
			must(t, s.Add(bisect.BadEnd, btoi(i > 1)))
		}
		begin := time.Now()
		builds, runs := s.Forecast(bisect.Costs{Run: 1})
		took := time.Since(begin)
		t.Logf("%d revisions: %d builds, %d runs, in %v", c.n, builds, runs, took)
		if b, r := s.Forecast(bisect.Costs{Run: 1}); b != builds || r != runs || b < 9 {
			t.Errorf("%d revisions: again %d builds, %d runs", c.n, b, r)
		}
		if took > 5*c.limit { // room for a busy machine
			t.Errorf("%d revisions: took %v", c.n, took)
		}
	}
}

// TestPartialRegression: two steps, both beyond the threshold of the first. The
// search finds the first; the numbers of its few runs show the second.
func TestPartialRegression(t *testing.T) {
	const trials = 100
	rng := rand.New(rand.NewPCG(2, 2))
	noticed, placed, alarms := 0, 0, 0
	for range trials {
		first := rng.IntN(30)
		second := first + 5 + rng.IntN(20)
		for _, two := range []bool{true, false} {
			runs := map[int][]float64{}
			s, err := newSearch(chain(t, 64), bisect.Options{})
			must(t, err)
			run := func(v int) {
				level := 10.0
				switch {
				case v == bisect.BadEnd || v >= second:
					level = 100
				case v >= first && two:
					level = 60
				case v >= first:
					level = 100
				}
				x := level * math.Exp(0.05*rng.NormFloat64())
				runs[v] = append(runs[v], x)
				must(t, s.Add(v, btoi(x > 50)))
			}
			for range 6 {
				run(bisect.GoodEnd)
				run(bisect.BadEnd)
			}
			step := s.Next(bisect.Costs{})
			for ; step.Found == nil; step = s.Next(bisect.Costs{}) {
				run(step.Revision)
			}
			if !slices.Equal(step.Found.Class, []int{first}) {
				t.Fatalf("found %+v, not %d", step.Found, first)
			}
			var revs []int
			var groups [][]float64
			for v := first; v < 64; v++ {
				if runs[v] != nil {
					revs, groups = append(revs, v), append(groups, runs[v])
				}
			}
			revs, groups = append(revs, 63), append(groups, runs[bisect.BadEnd])
			low := bisect.Levels(groups) < 0.01
			if !two {
				alarms += btoi(low)
				continue
			}
			noticed += btoi(low)
			j := bisect.Jump(groups)
			placed += btoi(low && revs[j-1] < second && second <= revs[j])
		}
	}
	t.Logf("noticed in %d of %d, %d placed right, %d false alarms", noticed, trials, placed, alarms)
	if noticed < 70 || placed < noticed*9/10 || alarms > 2 {
		t.Errorf("noticed in %d of %d, %d placed right, %d false alarms", noticed, trials, placed, alarms)
	}
}
