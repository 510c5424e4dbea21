package bisect_test

import (
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/kbisect/kbisect/internal/bisect"
	"github.com/kbisect/kbisect/internal/stats"
)

// poisson gives each run its first event at an exponential time, if that is
// before the run's end of 5 s.
func poisson(rng *rand.Rand, good, bad float64) runner {
	return func(s bisect.Side, _ int) bisect.Outcome {
		rate := good
		if s == bisect.Bad {
			rate = bad
		}
		at := rng.ExpFloat64() / rate
		return bisect.Outcome{Kind: bisect.Measured, Event: at < 5, Exposure: min(at, 5)}
	}
}

// TestRatesAgainstNone: what happens within a second on one kernel and never on
// the other is told at the first look.
func TestRatesAgainstNone(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	d, _ := fight(t, bisect.Rules{Rates: true, LookFor: bisect.Higher}, poisson(rng, 0, 3))
	if d.Verdict != bisect.Differ || d.Direction != bisect.Higher || d.Runs != 3 || !strings.HasPrefix(d.Gate, "rates of events, p<0.00167") {
		t.Errorf("%+v", d)
	}
	if r := d.Ratio; !r.AtLeast || r.Point != r.Lo || !math.IsInf(r.Hi, 1) || r.Lo < 3 {
		t.Errorf("ratio %+v", r)
	}
	if d.Good.Exposure != 15 || d.Bad.Hits != 3 {
		t.Errorf("tallies %+v %+v", d.Good, d.Bad)
	}
}

// TestRatesNeedExposure: a run that could not have seen anything says nothing.
func TestRatesNeedExposure(t *testing.T) {
	d, err := bisect.NewDuel(bisect.Rules{Rates: true, Tests: stats.Exact{}})
	if err != nil {
		t.Fatal(err)
	}
	if err := d.Add(bisect.Good, bisect.Outcome{Kind: bisect.Measured}); err == nil {
		t.Error("a run without exposure was taken")
	}
}

// TestRatesCalibration: with equal rates no more than 1 % of all duels may find a
// difference; with a tenfold one nearly all must.
func TestRatesCalibration(t *testing.T) {
	const duels = 2000
	rng := rand.New(rand.NewPCG(3, 4))
	share := func(r bisect.Rules, good, bad float64) (differ, runs float64) {
		for range duels {
			d, order := fight(t, r, poisson(rng, good, bad))
			if d.Verdict == bisect.Differ {
				differ++
			}
			runs += float64(len(order))
		}
		return differ / duels, runs / duels
	}
	for _, lookFor := range []bisect.Direction{0, bisect.Higher} {
		r := bisect.Rules{Rates: true, LookFor: lookFor}
		for _, rate := range []float64{0.02, 0.2, 2} {
			// 1 % and two standard errors of 2,000 duels
			if wrong, runs := share(r, rate, rate); wrong > 0.0145 {
				t.Errorf("%s: equal rates of %g/s are told apart by %.2f %% of %d duels (%.0f runs)", lookFor, rate, 100*wrong, duels, runs)
			}
		}
		if found, runs := share(r, 0.02, 0.2); found < 0.97 {
			t.Errorf("%s: a tenfold rate is found by %.1f %% of %d duels (%.0f runs)", lookFor, 100*found, duels, runs)
		}
	}
}
