package bisect

// Prior weights of suspects, relative to one whose files the build used.
const (
	untouched = 0.02 // none of its files were: 5.6 bits of evidence more are needed
	mergeOnly = 0.2  // a merge has no change of its own, but may combine two badly
	suspected = 3.0  // the user points at it
)

// Weights returns prior weights for Options: low where nothing that was built is
// touched, but never 0, as such a list is never complete. A nil touched means
// every revision, nil for the others none.
func Weights(g *Graph, touched, merge, suspect func(v int) bool) []float64 {
	out := make([]float64, g.n)
	for v := range out {
		switch {
		case merge != nil && merge(v):
			out[v] = mergeOnly
		case touched != nil && !touched(v):
			out[v] = untouched
		default:
			out[v] = 1
		}
		if suspect != nil && suspect(v) {
			out[v] *= suspected
		}
	}
	return out
}
