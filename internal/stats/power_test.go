package stats

import (
	"math"
	"testing"
)

func TestPowerLaw(t *testing.T) {
	x := []float64{100, 1000, 4000, 16384}
	y := make([]float64, len(x))
	for i := range x {
		y[i] = 3 * math.Pow(x[i], 2)
	}
	if e, err := PowerLaw(x, y); math.Abs(e-2) > 1e-9 || err > 1e-6 {
		t.Errorf("quadratic: %g ± %g", e, err)
	}
	y[3] *= 1.5
	if e, err := PowerLaw(x, y); e < 2 || e > 2.2 || err < 0.02 || err > 0.2 {
		t.Errorf("with an outlier: %g ± %g", e, err)
	}
	if e, err := PowerLaw(x[:2], y[:2]); math.Abs(e-2) > 1e-9 || !math.IsNaN(err) {
		t.Errorf("two points: %g ± %g", e, err)
	}
	if e, _ := PowerLaw([]float64{5, 5}, []float64{1, 2}); !math.IsNaN(e) {
		t.Errorf("one x: %g", e)
	}
	if e, _ := PowerLaw(nil, nil); !math.IsNaN(e) {
		t.Errorf("nothing: %g", e)
	}
}
