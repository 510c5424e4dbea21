package bisect_test

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/kbisect/kbisect/internal/bisect"
)

// strategy is what a caller needs of either search.
type strategy interface {
	Next(bisect.Costs) bisect.Step
	Add(v, category int) error
	Built(v int) error
	Untestable(v int) error
	Same(v, w int) error
	Drop(v int) error
	Runs(v int) []int
	Posterior(uniform bool) ([]float64, float64)
	Credible(mass float64) []bisect.Suspect
	Forecast(bisect.Costs) (builds, runs int)
	Changes() []bisect.Change
}

var (
	_ strategy = (*bisect.Search)(nil)
	_ strategy = (*bisect.SPRT)(nil)
)

func newSPRT(g *bisect.Graph, o bisect.Options) (strategy, error) { return bisect.NewSPRT(g, o) }

func newSearch(g *bisect.Graph, o bisect.Options) (strategy, error) { return bisect.NewSearch(g, o) }

func TestSPRTNoNoiseIsBisection(t *testing.T) {
	for seed := range uint64(10) {
		rng := rand.New(rand.NewPCG(seed, 3))
		n := 1 + rng.IntN(60)
		w := noisy(history(t, n, rng), 0, 1, 40)
		w.start = newSPRT
		for c := range n {
			w.culprit = c
			r := w.explore(t, rng)
			if r.found == nil || !slices.Equal(r.found.Class, []int{c}) || r.found.P != 0.99 {
				t.Fatalf("seed %d, %d revisions: culprit %d, found %+v", seed, n, c, r.found)
			}
			if r.ends > 0 || r.runs > 4*r.builds {
				t.Errorf("seed %d, culprit %d: %+v", seed, c, r)
			}
		}
	}
}

// TestSPRTKnownRates: with well known ends it keeps its error, at the cost of the
// design's table (accuracy / builds / runs: 99.2 / 6.0 / 22 at 10 % error).
func TestSPRTKnownRates(t *testing.T) {
	for _, c := range []struct {
		name      string
		good, bad float64
		cost      float64
	}{{"10 %", 0.1, 0.9, 90}, {"25 %", 0.25, 0.75, 145}, {"rare 30 %", 0.001, 0.3, 137}} {
		w := noisy(chain(t, 64), c.good, c.bad, 2000)
		w.start = newSPRT
		r := w.tour(t, 300, 9, nil)
		t.Log(c.name, r)
		if r.accuracy() < 0.97 || r.cost() > c.cost || r.builds != 6*300 {
			t.Errorf("%s: %s", c.name, r)
		}
	}
}

func TestSPRTSkipsAndMerges(t *testing.T) {
	w := noisy(chain(t, 32), 0, 1, 20)
	w.start = newSPRT
	w.broken = func(v int) bool { return v >= 12 && v < 18 }
	for c := range 32 {
		w.culprit = c
		r := w.explore(t, rand.New(rand.NewPCG(1, uint64(c))))
		want := []int{c}
		if c >= 12 && c <= 18 { // the stretch and the first testable one behind it
			want = []int{12, 13, 14, 15, 16, 17, 18}
		}
		if r.found == nil || !slices.Equal(r.found.Class, want) {
			t.Errorf("culprit %d: found %+v", c, r.found)
		}
	}

	w = noisy(chain(t, 16), 0, 1, 20)
	w.start = newSPRT
	for v := range 16 {
		if v%4 != 0 {
			w.merged = append(w.merged, [2]int{v, v - 1})
		}
	}
	w.culprit = 8
	if r := w.explore(t, rand.New(rand.NewPCG(1, 1))); !r.right || len(r.found.Class) != 1 || r.builds > 2 {
		t.Errorf("%+v, found %+v", r, r.found)
	}
}

func TestSPRTIsHonest(t *testing.T) {
	s, err := bisect.NewSPRT(chain(t, 8), bisect.Options{Weights: []float64{1, 1, 1, 1, 1, 1, 0, 5}})
	must(t, err)
	if step := s.Next(bisect.Costs{}); step.Revision != bisect.GoodEnd {
		t.Errorf("without any run of the ends: %+v", step)
	}
	if builds, runs := s.Forecast(bisect.Costs{}); builds != 0 || runs != 1 {
		t.Errorf("forecast of %d builds, %d runs", builds, runs)
	}
	for range 20 {
		must(t, s.Add(bisect.GoodEnd, 0))
		must(t, s.Add(bisect.BadEnd, 1))
	}
	builds, runs := s.Forecast(bisect.Costs{})
	if builds != 3 || runs < 6 || runs > 9 {
		t.Errorf("forecast of %d builds, %d runs", builds, runs)
	}
	step := s.Next(bisect.Costs{})
	if step.Revision != 2 || !step.Build || step.Runs < 2 || step.Bits < 0.98 {
		t.Errorf("first step %+v", step)
	}
	for range 4 {
		must(t, s.Add(2, 1))
	}
	if p, none := s.Posterior(false); none != 0 || p[0] != 1.0/3 || p[3] != 0 {
		t.Errorf("posterior %v, none %g", p, none)
	}
	if c := s.Credible(0.5); len(c) != 2 || c[0].Revision != 0 {
		t.Errorf("credible %v", c)
	}
	must(t, s.Drop(2))
	if p, _ := s.Posterior(true); p[0] != 1.0/7 || p[6] != 0 || p[7] != 1.0/7 {
		t.Errorf("posterior %v after the drop", p)
	}
	// Verdicts that contradict one another: the first one stands.
	for range 4 {
		must(t, s.Add(2, 1))
		must(t, s.Add(3, 0))
	}
	if p, _ := s.Posterior(false); p[0] != 1.0/3 {
		t.Errorf("posterior %v", p)
	}
	if s.Drop(bisect.BadEnd) == nil || s.Add(9, 0) == nil || s.Untestable(bisect.GoodEnd) == nil {
		t.Error("accepted what is none")
	}
	if _, err := bisect.NewSPRT(chain(t, 3), bisect.Options{Stop: 2}); err == nil {
		t.Error("accepted a probability of 2")
	}
}
