package app

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/kbisect/kbisect/internal/bisect"
	"github.com/kbisect/kbisect/internal/kbuild"
	"github.com/kbisect/kbisect/internal/kconfig"
)

// prior is how likely each revision is held to be before the first run.
type prior struct {
	Weights []float64 `json:"weights"` // nil: all alike
	Used    int       `json:"used"`    // revisions that change a file which the builds of the ends read
}

// weigh finds the prior: that of the journal in a resumed run, since the build
// tree has moved on meanwhile.
func (h *hunt) weigh(ctx context.Context) (*prior, error) {
	events, err := h.store.Events(ctx, h.id)
	if err != nil {
		return nil, err
	}
	for _, e := range events {
		if e.Kind == eventPrior {
			var p prior
			if err := json.Unmarshal(e.Data, &p); err != nil || p.Weights != nil && len(p.Weights) != len(h.revisions) {
				return nil, fmt.Errorf("read prior of run %s: %d weights, %v", h.id, len(p.Weights), err)
			}
			return &p, nil
		}
	}
	p, err := h.newPrior(ctx)
	if err != nil {
		return nil, err
	}
	return p, h.event(ctx, eventPrior, p)
}

// newPrior weighs revisions by the files that the last build used. Without them,
// or in a history too long for reading each commit's files, all are alike.
func (h *hunt) newPrior(ctx context.Context) (*prior, error) {
	inputs, err := h.inputs(ctx)
	if err != nil {
		return nil, err
	}
	changes := func(v int, is func(file string) bool) bool {
		for _, f := range h.revisions[v].Files {
			if is(f) {
				return true
			}
		}
		return false
	}
	p := &prior{}
	known := inputs != nil && len(h.revisions) <= maxNamed
	touched := func(v int) bool {
		return !known || changes(v, func(f string) bool { return kbuild.Used(inputs, f) })
	}
	if !known && len(h.opts.Suspect) == 0 {
		return p, nil
	}
	for v := range h.revisions {
		if touched(v) {
			p.Used++
		}
	}
	suspect := func(v int) bool {
		return changes(v, func(f string) bool { return under(f, h.opts.Suspect) })
	}
	merge := func(v int) bool { return len(h.revisions[v].parents) > 1 }
	p.Weights = bisect.Weights(h.graph, touched, merge, suspect)
	return p, nil
}

// inputs are the files that the build tree's objects were made from, nil when
// that is not known.
func (h *hunt) inputs(ctx context.Context) (map[string]bool, error) {
	if h.env.compile != nil {
		return nil, nil
	}
	base, fragments, err := h.opts.Config.resolve()
	if err != nil {
		return nil, err
	}
	b := kbuild.Builder{Cache: h.env.Cache}
	return b.Inputs(ctx, kbuild.Request{GitDir: h.src.GitDir, Commit: h.bad.ID, Base: base, Fragments: fragments})
}

// under reports whether a file is one of the paths, or below one.
func under(file string, paths []string) bool {
	for _, p := range paths {
		p = strings.TrimSuffix(p, "/")
		if file == p || strings.HasPrefix(file, p+"/") {
			return true
		}
	}
	return false
}

// spent learns what builds cost, to prefer near revisions where they tell as
// much. All of it follows from the journal, so that a resumed search goes on as
// it would have.
type spent struct {
	fixed   float64 // seconds of a build beside its files
	changed []int   // files changed up to and with each revision
	at      int     // the revision that the build tree is at
}

const (
	perFile  = 0.5 // seconds a changed file, measured on two cores
	forget   = 0.5 // weight of the newest build
	maxFixed = 600.0
)

// built learns from the seconds of a build.
func (s *spent) built(h *hunt, p *probe, k *kbuild.Kernel) {
	if p.v >= 0 && k.Seconds > 0 {
		left := min(max(k.Seconds-perFile*float64(s.files(h, p.v)), 1), maxFixed)
		s.fixed = forget*left + (1-forget)*orDefault(s.fixed, left)
	}
	s.at = min(max(p.v, 0), len(h.revisions)-1)
	if p.v == bisect.BadEnd {
		s.at = len(h.revisions) - 1
	}
}

// files is the number of changed files between the tree's place and a revision.
// Of a history with merges it is that of the commits between the two in
// topological order, which is near enough for a price.
func (s *spent) files(h *hunt, v int) int {
	if s.changed == nil {
		sum := 0
		for _, r := range h.revisions {
			sum += max(1, len(r.Files))
			s.changed = append(s.changed, sum)
		}
	}
	d := s.changed[v] - s.changed[s.at]
	return max(d, -d)
}

// costs are the prices that the strategy weighs.
func (s *spent) costs(h *hunt) bisect.Costs {
	run := guessBoot.Seconds()
	if h.costs.Runs > 0 && h.env.boot == nil { // the time of a fake run means nothing
		run = h.costs.RunSeconds / float64(h.costs.Runs)
	}
	fixed := orDefault(s.fixed, guessVariant.Seconds())
	return bisect.Costs{Run: run, Build: func(v int) float64 { return fixed + perFile*float64(s.files(h, v)) }}
}

// configDrift keeps how the final configuration changes along the range.
type configDrift struct {
	first    *kconfig.Config
	seen     map[string]bool
	warnings []string
}

// maxDrift is how many changed symbols a warning names.
const maxDrift = 8

// add compares a kernel's configuration with the first one's.
func (d *configDrift) add(name string, k *kbuild.Kernel) {
	c, err := kconfig.ParseFile(k.Config)
	if err != nil || d.seen[c.Hash()] {
		return // the kernel was built with it: it can be read
	}
	if d.first == nil {
		d.first, d.seen = c, map[string]bool{}
	}
	d.seen[c.Hash()] = true
	var parts []string
	for _, change := range kconfig.Drift(d.first, c) {
		parts = append(parts, change.String())
	}
	if n := len(parts); n > maxDrift {
		parts = append(parts[:maxDrift], fmt.Sprintf("and %d more", n-maxDrift))
	}
	if len(parts) > 0 {
		d.warnings = append(d.warnings, fmt.Sprintf("the configuration changes along the range, at or before %s: %s", name, strings.Join(parts, ", ")))
	}
}
