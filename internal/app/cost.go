package app

import (
	"fmt"
	"time"

	"github.com/kbisect/kbisect/internal/ui"
)

// What things cost where nothing is known yet, measured on two cores under TCG.
const (
	guessFullBuild = 4 * time.Minute
	guessVariant   = 10 * time.Second
	guessBoot      = 2 * time.Second // and push, and all else but the workload
	leastRuns      = 6               // a side, if they do not overlap
)

// cost predicts what a plan takes if no kernel is in the cache and the sides do
// not overlap: the report's figures stand for the workload where there is one.
func (p *Plan) cost() string {
	var builds, runs time.Duration
	n := 0
	for i := range p.commits() {
		if i == 0 {
			builds += guessFullBuild
		} else {
			builds += guessVariant
		}
	}
	for _, q := range p.questions {
		if q.why != "" {
			continue
		}
		n += 2 * leastRuns
		runs += 2 * leastRuns * guessBoot
		if q.reported != nil {
			runs += leastRuns * time.Duration(q.reported.With+q.reported.Without)
		}
	}
	return fmt.Sprintf("at least %d runs; about %s to build if nothing is cached, %s to measure if clear at once",
		n, ui.Span(builds), ui.Span(runs))
}
