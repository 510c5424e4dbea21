package stats

import "math"

// PowerLaw fits y = a * x^e by least squares to the logarithms and returns the
// exponent with its standard error: 1 is linear, 2 quadratic. x and y are
// positive and of equal length. Without two different x the exponent is NaN, and
// with fewer than three points its error is.
func PowerLaw(x, y []float64) (exponent, stderr float64) {
	n := float64(len(x))
	var mx, my float64
	for i := range x {
		mx += math.Log(x[i]) / n
		my += math.Log(y[i]) / n
	}
	var sxx, sxy, syy float64
	for i := range x {
		dx, dy := math.Log(x[i])-mx, math.Log(y[i])-my
		sxx, sxy, syy = sxx+dx*dx, sxy+dx*dy, syy+dy*dy
	}
	if sxx == 0 || n < 2 {
		return math.NaN(), math.NaN()
	}
	exponent = sxy / sxx
	if n < 3 {
		return exponent, math.NaN()
	}
	return exponent, math.Sqrt(max(0, syy-exponent*sxy) / (n - 2) / sxx)
}
