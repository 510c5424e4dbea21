package bisect_test

import (
	"encoding/json"
	"errors"
	"math"
	"math/rand/v2"
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/kbisect/kbisect/internal/bisect"
)

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func chain(t testing.TB, n int) *bisect.Graph {
	t.Helper()
	g, err := bisect.Chain(n)
	must(t, err)
	return g
}

// history makes a random history with merges, all of it below the last revision.
func history(t testing.TB, n int, rng *rand.Rand) *bisect.Graph {
	t.Helper()
	g, err := bisect.NewGraph(randomParents(n, rng))
	must(t, err)
	return g
}

func randomParents(n int, rng *rand.Rand) [][]int {
	parents := make([][]int, n)
	heads := []int{}
	for v := range n - 1 {
		switch {
		case len(heads) > 1 && (rng.IntN(6) == 0 || len(heads) > 6): // merge two branches
			i := rng.IntN(len(heads) - 1)
			parents[v] = []int{heads[i], heads[i+1]}
			heads = slices.Delete(heads, i, i+2)
		case len(heads) > 0 && rng.IntN(8) != 0: // go on with one
			i := rng.IntN(len(heads))
			parents[v] = []int{heads[i]}
			heads = slices.Delete(heads, i, i+1)
		case v > 0 && rng.IntN(2) == 0: // branch off an old one
			parents[v] = []int{rng.IntN(v)}
		}
		heads = append(heads, v)
	}
	parents[n-1] = heads
	return parents
}

func TestSearchBrokenStretch(t *testing.T) {
	w := noisy(chain(t, 64), 0.05, 0.95, 20)
	w.broken = func(v int) bool { return v >= 28 && v < 36 }
	classes := 0
	r := w.tour(t, 100, 3, func(w *world, rng *rand.Rand) {
		if rng.IntN(3) == 0 {
			w.culprit = 28 + rng.IntN(8)
		}
	})
	t.Log(r)
	if r.accuracy() < 0.96 {
		t.Error(r)
	}
	// A culprit inside comes out as the whole stretch and the first testable
	// revision behind it, never as that one alone.
	for seed := range uint64(20) {
		w := w
		w.culprit = 28 + int(seed%8)
		got := w.explore(t, rand.New(rand.NewPCG(seed, 1)))
		if got.found != nil && len(got.found.Class) > 1 {
			classes++
			if !slices.Contains(got.found.Class, 36) || got.found.Class[0] > w.culprit {
				t.Errorf("class %v for culprit %d", got.found.Class, w.culprit)
			}
		}
	}
	if classes < 18 {
		t.Errorf("%d of 20 culprits in a broken stretch give a class", classes)
	}
}

func TestSearchNoneOfThese(t *testing.T) {
	// The ends never differed: 9 of 20 against 1 of 20 was luck, every run hits
	// with 25 %.
	rng := rand.New(rand.NewPCG(6, 6))
	none, guilty := 0, 0
	for range 10 {
		s, err := bisect.NewSearch(chain(t, 64), bisect.Options{})
		must(t, err)
		for i := range 20 {
			must(t, s.Add(bisect.GoodEnd, btoi(i < 1)))
			must(t, s.Add(bisect.BadEnd, btoi(i < 9)))
		}
		for range 1000 {
			step := s.Next(bisect.Costs{Run: 1})
			if step.Found != nil {
				none += btoi(step.Found.None || step.Found.Drift != 0)
				guilty += len(step.Found.Class)
				break
			}
			must(t, s.Add(step.Revision, btoi(rng.Float64() < 0.25)))
		}
	}
	if none < 6 || guilty > 0 {
		t.Errorf("%d of 10 searches find that there is nothing to find; %d blame a revision", none, guilty)
	}
}

func TestSearchEndsStopReproducing(t *testing.T) {
	// The ends differed when they were verified; since then every run is good.
	for _, ends := range []int{3, 6, 20} {
		w := noisy(chain(t, 64), 0, 1, ends)
		w.culprit = -1
		r := w.explore(t, rand.New(rand.NewPCG(1, 1)))
		if r.found == nil || r.found.Drift != bisect.Bad && !r.found.None || len(r.found.Class) > 0 {
			t.Errorf("%d runs an end: %+v", ends, r.found)
		}
	}
	// And a culprit at either end of the range is still found.
	for _, culprit := range []int{0, 63} {
		w := noisy(chain(t, 64), 0, 1, 6)
		w.culprit = culprit
		r := w.explore(t, rand.New(rand.NewPCG(1, 1)))
		if !r.right || r.found.Drift != 0 || r.ends < 4 {
			t.Errorf("culprit %d: %+v", culprit, r)
		}
	}
}

func btoi(b bool) int {
	if b {
		return 1
	}
	return 0
}

func TestSearchNoNoiseIsBisection(t *testing.T) {
	// Without noise the answer is the culprit, for every culprit and history.
	for seed := range uint64(10) {
		rng := rand.New(rand.NewPCG(seed, 2))
		n := 2 + rng.IntN(60)
		g := history(t, n, rng)
		for c := range n {
			w := noisy(g, 0, 1, 6)
			w.culprit = c
			r := w.explore(t, rng)
			if r.found == nil || !slices.Equal(r.found.Class, []int{c}) {
				t.Fatalf("seed %d, %d revisions: culprit %d, found %+v", seed, n, c, r.found)
			}
			if limit := 2*int(math.Ceil(math.Log2(float64(n)))) + 3; r.builds > limit {
				t.Errorf("seed %d, %d revisions, culprit %d: %d builds", seed, n, c, r.builds)
			}
		}
	}
}

func TestSearchSame(t *testing.T) {
	// 16 revisions, all but every fourth the same kernel as their parent.
	w := noisy(chain(t, 16), 0, 1, 20)
	for v := range 16 {
		if v%4 != 0 {
			w.merged = append(w.merged, [2]int{v, v - 1})
		}
	}
	w.merged = append(w.merged, [2]int{15, bisect.BadEnd})
	w.culprit = 8
	r := w.explore(t, rand.New(rand.NewPCG(1, 1)))
	if r.found == nil || !slices.Equal(r.found.Class, []int{8}) || r.builds > 2 {
		t.Errorf("%+v, found %+v", r, r.found)
	}

	s, err := bisect.NewSearch(chain(t, 4), bisect.Options{})
	must(t, err)
	must(t, s.Same(0, bisect.GoodEnd)) // 0 changed nothing
	must(t, s.Same(3, 2))
	if p, _ := s.Posterior(false); p[0] != 0 || p[3] != 0 || p[1] == 0 {
		t.Errorf("posterior %v", p)
	}
	if err := s.Same(bisect.GoodEnd, bisect.BadEnd); err == nil {
		t.Error("equal ends leave a suspect")
	}
	if p, _ := s.Posterior(false); p[1] == 0 {
		t.Error("a refused merge changed something")
	}
}

func TestSearchReplays(t *testing.T) {
	// The same observations give the same steps, also when Next was not asked
	// between them.
	rng := rand.New(rand.NewPCG(4, 4))
	g := history(t, 100, rng)
	type event struct{ v, k int }
	var log []event
	make1 := func() *bisect.Search {
		s, err := bisect.NewSearch(g, bisect.Options{Categories: 3, Seed: 9})
		must(t, err)
		return s
	}
	s := make1()
	costs := bisect.Costs{Run: 2, Build: func(v int) float64 { return 20 + float64(v%7) }}
	for range 60 {
		step := s.Next(costs)
		if step.Found != nil {
			break
		}
		e := event{step.Revision, rng.IntN(3)}
		must(t, s.Add(e.v, e.k))
		log = append(log, e)
	}
	again := make1()
	for _, e := range log {
		must(t, again.Add(e.v, e.k))
	}
	a, _ := json.Marshal(s.Next(costs))
	b, _ := json.Marshal(again.Next(costs))
	if string(a) != string(b) {
		t.Errorf("%s\n%s", a, b)
	}
}

func TestSearchDropAndPrior(t *testing.T) {
	s, err := bisect.NewSearch(chain(t, 8), bisect.Options{Weights: []float64{1, 1, 1, 1, 1, 1, 1, 9}})
	must(t, err)
	for range 10 {
		must(t, s.Add(bisect.GoodEnd, 0))
		must(t, s.Add(bisect.BadEnd, 1))
	}
	before, _ := s.Posterior(false)
	if u, none := s.Posterior(true); u[0] != u[7] || none > 0.001 || before[7] < 0.5 {
		t.Errorf("uniform %v, weighted %v", u, before)
	}
	for range 3 {
		must(t, s.Add(6, 1))
	}
	if p, _ := s.Posterior(false); p[7] > 0.1 {
		t.Errorf("posterior %v", p)
	}
	if got := s.Runs(6); !slices.Equal(got, []int{0, 3}) {
		t.Errorf("runs %v", got)
	}
	must(t, s.Drop(6))
	if after, _ := s.Posterior(false); !slices.Equal(before, after) {
		t.Errorf("posterior %v, was %v", after, before)
	}
	if c := s.Credible(0.95); c[0].Revision != 7 || len(c) < 7 {
		t.Errorf("credible set %v", c)
	}
	if got := s.Runs(bisect.BadEnd); !slices.Equal(got, []int{0, 10}) {
		t.Errorf("runs %v", got)
	}
}

func TestSearchRefuses(t *testing.T) {
	g := chain(t, 3)
	for _, o := range []bisect.Options{
		{Categories: 1}, {Categories: 1000}, {None: 2}, {Stop: 0.3}, {Stop: math.NaN()},
		{Weights: []float64{1}}, {Weights: []float64{0, 0, 0}}, {Weights: []float64{1, -1, 1}}, {Weights: []float64{math.NaN(), 1, 1}},
	} {
		if _, err := bisect.NewSearch(g, o); err == nil {
			t.Errorf("accepted %+v", o)
		}
	}
	s, err := bisect.NewSearch(g, bisect.Options{})
	must(t, err)
	for _, err := range []error{
		s.Add(3, 0), s.Add(-3, 0), s.Add(0, 2), s.Add(0, -1), s.Built(9), s.Untestable(9),
		s.Untestable(bisect.GoodEnd), s.Drop(9), s.Drop(bisect.BadEnd), s.Same(0, 9),
	} {
		if err == nil {
			t.Error("accepted a revision or category that is none")
		}
	}
	if s.Runs(9) != nil {
		t.Error("runs of no revision")
	}
}

func TestGraph(t *testing.T) {
	rng := rand.New(rand.NewPCG(8, 8))
	for range 20 {
		n := 1 + rng.IntN(200)
		parents := randomParents(n, rng)
		g, err := bisect.NewGraph(parents)
		must(t, err)
		anc := make([]map[int]bool, n)
		for v, ps := range parents {
			anc[v] = map[int]bool{v: true}
			for _, p := range ps {
				for a := range anc[p] {
					anc[v][a] = true
				}
			}
			for c := range n {
				if g.Has(v, c) != anc[v][c] {
					t.Fatalf("%d in %d: %v", c, v, g.Has(v, c))
				}
			}
		}
	}
	for _, bad := range [][][]int{{}, {{0}}, {{}, {2}, {}}, {{}, {-1}}, {{}, {}}} {
		if _, err := bisect.NewGraph(bad); err == nil {
			t.Errorf("accepted %v", bad)
		}
	}
	big := make([][]int, 30_000)
	for v := range big[1:] {
		big[v+1] = []int{v}
	}
	if _, err := bisect.NewGraph(big); err != nil {
		t.Errorf("a long chain: %v", err)
	}
	big[2] = []int{0}
	if _, err := bisect.NewGraph(big); !errors.Is(err, bisect.ErrTooLarge) {
		t.Errorf("a long history with merges: %v", err)
	}
	if _, err := bisect.Chain(0); err == nil {
		t.Error("an empty chain")
	}
}

func TestBins(t *testing.T) {
	good, bad := make([]float64, 50), make([]float64, 50)
	for i := range good {
		good[i], bad[i] = float64(i), float64(50+i)
	}
	cuts := bisect.Cuts(good, bad)
	if !slices.Equal(cuts, []float64{50, 75, 90, 97}) {
		t.Errorf("cuts %v", cuts)
	}
	for x, want := range map[float64]int{-1: 0, 49.9: 0, 50: 1, 89: 2, 90: 3, 97: 4, math.Inf(1): 4} {
		if got := bisect.Bin(cuts, x); got != want {
			t.Errorf("bin of %g is %d, want %d", x, got, want)
		}
	}
	if got := bisect.Cuts([]float64{1, 1}, []float64{1}); len(got) != 1 {
		t.Errorf("cuts of equal numbers %v", got)
	}
}

// confirm runs a confirmation with the given hit rates.
func confirm(t testing.TB, good, bad []int, parent, culprit float64, rng *rand.Rand) *bisect.Confirmed {
	c, err := bisect.NewConfirmation(good, bad, 60)
	must(t, err)
	for {
		side, end := c.Next()
		if end != nil {
			return end
		}
		p := parent
		if side == bisect.Bad {
			p = culprit
		}
		k := 0
		if rng.Float64() < p {
			k = 1
		}
		must(t, c.Add(side, k))
	}
}

func TestConfirmation(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 1))
	clean := func(n int) ([]int, []int) { return []int{n, 0}, []int{0, n} }
	good, bad := clean(20)
	if c := confirm(t, good, bad, 0, 1, rng); !c.OK || c.Pairs > 4 || c.E < 100 {
		t.Errorf("clean: %+v", c)
	}
	if c := confirm(t, good, bad, 0, 0, rng); c.OK || c.Pairs > 5 {
		t.Errorf("both good: %+v", c)
	}
	if c := confirm(t, good, bad, 1, 0, rng); c.OK {
		t.Errorf("the wrong way round: %+v", c)
	}
	// Bets from a search that was wrong: the error stays below 1 % all the same.
	const trials = 3000
	for _, p := range []float64{0.1, 0.5, 0.9} {
		wrong := 0
		for range trials {
			if confirm(t, []int{16, 4}, []int{5, 15}, p, p, rng).OK {
				wrong++
			}
		}
		if wrong > trials/100+20 {
			t.Errorf("rate %g: %d of %d equal pairs are confirmed", p, wrong, trials)
		}
	}
	right, pairs := 0, 0
	for range 500 {
		c := confirm(t, []int{16, 4}, []int{5, 15}, 0.2, 0.75, rng)
		pairs += c.Pairs
		if c.OK {
			right++
		}
	}
	t.Logf("20 %% v 75 %%: %d of 500 confirmed, %.1f pairs", right, float64(pairs)/500)
	if right < 450 {
		t.Errorf("%d of 500 real culprits are confirmed", right)
	}
}

func TestConfirmationRefuses(t *testing.T) {
	if _, err := bisect.NewConfirmation([]int{1}, []int{1}, 9); err == nil {
		t.Error("one category")
	}
	c, err := bisect.NewConfirmation([]int{5, 0}, []int{0, 5}, 9)
	must(t, err)
	if c.Add(bisect.Bad, 1) == nil || c.Add(bisect.Good, 2) == nil {
		t.Error("accepted the wrong side or category")
	}
	if c.E() != 1 {
		t.Errorf("e-value %g before any run", c.E())
	}
}

// TestSearchScale: the next probe of the largest histories comes in time, and
// takes no more memory than it may.
func TestSearchScale(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds and 100 MB")
	}
	rng := rand.New(rand.NewPCG(1, 1))
	for _, c := range []struct {
		name  string
		make  func() *bisect.Graph
		limit time.Duration
		bytes uint64
	}{
		{"15,000 with merges", func() *bisect.Graph { return history(t, 15_000, rng) }, time.Second, 500e6},
		{"100,000 in a row", func() *bisect.Graph { return chain(t, 100_000) }, 2 * time.Second, 500e6},
	} {
		for name, start := range map[string]func(*bisect.Graph, bisect.Options) (strategy, error){"search": newSearch, "sprt": newSPRT} {
			g := c.make()
			culprit := g.Len() / 3
			s, err := start(g, bisect.Options{})
			must(t, err)
			for range 20 {
				must(t, s.Add(bisect.GoodEnd, 0))
				must(t, s.Add(bisect.BadEnd, 1))
			}
			var worst time.Duration
			steps := 0
			for ; ; steps++ {
				begin := time.Now()
				step := s.Next(bisect.Costs{Run: 1})
				worst = max(worst, time.Since(begin))
				if step.Found != nil {
					if !slices.Equal(step.Found.Class, []int{culprit}) {
						t.Errorf("%s, %s: found %+v", c.name, name, step.Found)
					}
					break
				}
				must(t, s.Add(step.Revision, btoi(g.Has(step.Revision, culprit))))
			}
			took := memory()
			t.Logf("%s, %s: %d steps, the slowest %v, %d MB of heap", c.name, name, steps, worst, took>>20)
			if worst > 5*c.limit { // room for a busy machine; the benchmark has the figure
				t.Errorf("%s, %s: a step takes %v", c.name, name, worst)
			}
			if took > c.bytes {
				t.Errorf("%s, %s: %d bytes of heap", c.name, name, took)
			}
		}
	}
}

// memory is what the heap has ever had from the system.
func memory() uint64 {
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapSys
}

func BenchmarkNext(b *testing.B) {
	rng := rand.New(rand.NewPCG(1, 1))
	for name, g := range map[string]*bisect.Graph{
		"merges_15000": history(b, 15_000, rng), "chain_100000": chain(b, 100_000), "chain_64": chain(b, 64),
	} {
		s, err := bisect.NewSearch(g, bisect.Options{})
		must(b, err)
		for range 20 {
			must(b, s.Add(bisect.GoodEnd, 0))
			must(b, s.Add(bisect.BadEnd, 1))
		}
		for range 30 {
			must(b, s.Add(rng.IntN(g.Len()), rng.IntN(2)))
		}
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				s.Next(bisect.Costs{Run: 1})
			}
		})
	}
}
