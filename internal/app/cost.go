package app

import (
	"fmt"
	"math/bits"
	"time"

	"github.com/kbisect/kbisect/internal/ui"
)

// What things cost where nothing is known yet, measured on two cores under TCG.
const (
	guessFullBuild = 8 * time.Minute
	guessVariant   = 15 * time.Second
	guessBoot      = 2 * time.Second // and push, and all else but the workload
)

// leastRuns is how many runs a side decide when the sides do not overlap.
func (o RunOptions) leastRuns() int {
	if o.Quick {
		return min(3, o.MaxRuns)
	}
	return min(6, o.MaxRuns)
}

// cost predicts what a plan takes: builds if no kernel is in the cache, and what
// the runs take beside their workload, which nobody knows yet.
func (p *Plan) cost() string {
	var builds time.Duration
	for i := range p.commits() {
		if i == 0 {
			builds += guessFullBuild
		} else {
			builds += guessVariant
		}
	}
	if r, err := parseSweep(p.opts.Sweep); err == nil {
		return fmt.Sprintf("about %s if none is there\n%s", ui.Span(builds), r.cost(len(p.questions)))
	}
	n := 0
	for _, q := range p.questions {
		if q.why != "" {
			continue
		}
		n += 2 * p.opts.leastRuns()
		for _, a := range q.also {
			n += 2 * a.runs
		}
	}
	return fmt.Sprintf("about %s if none is there\nat least %d runs, about %s and their workloads",
		ui.Span(builds), n, ui.Span(time.Duration(n)*guessBoot))
}

// searchCost predicts what a search takes before anything is known but its
// length: one build halves the suspects, and two runs judge it.
func (p *Plan) searchCost() string {
	n := bits.Len(uint(len(p.span.revisions) - 1))
	builds := guessFullBuild + time.Duration(n+1)*guessVariant
	runs := 2*p.opts.leastRuns() + 2*n + confirmRuns
	return fmt.Sprintf("about %d kernels to build or find in the cache, %s if none is there\nabout %d runs, %s and their workloads; a closer prediction follows when the ends are measured",
		n+2, ui.Span(builds), runs, ui.Span(time.Duration(runs)*guessBoot))
}
