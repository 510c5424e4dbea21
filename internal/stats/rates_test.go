package stats

import (
	"math"
	"testing"
)

func TestGreaterRate(t *testing.T) {
	tests := []struct {
		k1   int
		t1   float64
		k0   int
		t0   float64
		want float64
	}{
		{6, 1.8, 0, 30, math.Pow(1.8/31.8, 6)},
		{3, 1, 0, 1, 1.0 / 8},
		{1, 1, 1, 1, 3.0 / 4},
		{2, 1, 1, 3, 3*0.0625*0.75 + 0.015625}, // 2 or 3 of 3 in a quarter of the exposure
		{0, 5, 4, 5, 1},
		{0, 0, 0, 0, 1},
	}
	for _, tt := range tests {
		if got := GreaterRate(tt.k1, tt.t1, tt.k0, tt.t0); math.Abs(got-tt.want) > 1e-12 {
			t.Errorf("GreaterRate(%d, %g, %d, %g) = %g, want %g", tt.k1, tt.t1, tt.k0, tt.t0, got, tt.want)
		}
	}
}

func TestRateRatio(t *testing.T) {
	point, ci := RateRatio(8, 2, 4, 4, 0.95)
	if math.Abs(point-4) > 1e-12 || ci.Lo < 1 || ci.Lo > 1.2 || ci.Hi < 15 || ci.Hi > 20 {
		t.Errorf("8 in 2 against 4 in 4: %g, %v", point, ci)
	}
	// The interval and the test agree: where the one-sided p is 2.5 %, 1 is its end.
	if p := GreaterRate(8, 2, 4, 4); p > 0.025 {
		t.Errorf("p = %g, but 1 is outside of %v", p, ci)
	}
	point, ci = RateRatio(6, 1.8, 0, 30, 0.95)
	if !math.IsInf(point, 1) || !math.IsInf(ci.Hi, 1) || math.Abs(ci.Lo-25.7) > 0.1 {
		t.Errorf("6 against none: %g, %v", point, ci)
	}
	if point, ci = RateRatio(0, 1, 0, 1, 0.95); !math.IsNaN(point) || ci.Lo != 0 || !math.IsInf(ci.Hi, 1) {
		t.Errorf("none against none: %g, %v", point, ci)
	}
}
