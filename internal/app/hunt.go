package app

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/kbisect/kbisect/internal/bisect"
	"github.com/kbisect/kbisect/internal/measure"
	"github.com/kbisect/kbisect/internal/report"
	"github.com/kbisect/kbisect/internal/store"
)

// strategy decides what to run next: bisect.Search, or the plain sequential test
// that it is compared with.
type strategy interface {
	Next(bisect.Costs) bisect.Step
	Add(v, category int) error
	Built(v int) error
	Untestable(v int) error
	Same(v, w int) error
	Drop(v int) error
	Runs(v int) []int
	Posterior(uniform bool) (p []float64, none float64)
	Credible(mass float64) []bisect.Suspect
	Forecast(bisect.Costs) (builds, runs int)
	Changes() []bisect.Change
}

// The sides of a search in the journal: what an outcome was measured for.
const (
	sideGood   = "good"
	sideBad    = "bad"
	sideSearch = "search"
)

// Kinds of events of a search in the journal.
const (
	eventPrior = "prior" // weights of the revisions
	eventDrop  = "drop"  // a confirmation failed: the runs of these revisions are forgotten
)

// hunt is the search of a span: its kernels, its runs and what decides.
type hunt struct {
	*session
	*span
	q        *question
	find     strategy
	cuts     []float64      // bounds of the categories, nil when the threshold decides
	probes   map[int]*probe // by revision or end
	index    map[string]int // number of a commit
	same     map[string]int // the first revision of each identity
	prior    *prior
	spent    spent
	decided  bisect.Decision // of the ends
	attempts int             // confirmations that failed
	drift    *configDrift
}

// probe is one revision's kernel and what was measured of it.
type probe struct {
	side
	v      int
	build  float64 // seconds that its build took, now or when the cache got it
	status string  // "untestable" or ""
	reason string  // why
}

// hunt carries out a plan with a span.
func (s *session) hunt(ctx context.Context) (*report.Result, error) {
	h := &hunt{session: s, span: s.span, q: s.questions[0], probes: map[int]*probe{}, index: map[string]int{}, same: map[string]int{},
		drift: &configDrift{}}
	for v, r := range h.revisions {
		h.index[r.ID] = v
	}
	res, err := h.run(ctx)
	if errors.Is(err, errNotMeasured) {
		res, err = h.result(report.Inconclusive, "it takes runs that were not made to tell: ask anew with kbisect run"), nil
	}
	if err != nil {
		return nil, err
	}
	h.summarize(res)
	if h.offline != nil {
		return res, nil
	}
	return res, h.writeLog(res)
}

// run is the whole search; its result lacks what summarize adds.
func (h *hunt) run(ctx context.Context) (*report.Result, error) {
	if res, err := h.ends(ctx); res != nil || err != nil {
		return res, err
	}
	if err := h.begin(ctx); err != nil {
		return nil, err
	}
	h.announce()
	for {
		f, err := h.search(ctx)
		if err != nil {
			return nil, err
		}
		res, err := h.conclude(ctx, f)
		if res != nil || err != nil {
			return res, err
		}
	}
}

// probe returns the record of a revision or end.
func (h *hunt) probe(v int) *probe {
	if p := h.probes[v]; p != nil {
		return p
	}
	r := h.at(v)
	p := &probe{v: v, side: side{name: sideSearch, tag: sideSearch + "-" + r.short(), revision: r.ID, commit: r.ID}}
	switch v {
	case bisect.GoodEnd:
		p.name, p.tag = sideGood, sideGood
	case bisect.BadEnd:
		p.name, p.tag = sideBad, sideBad
	}
	h.probes[v] = p
	return p
}

// kernel builds a revision, with the fixups that fit it, or finds it in the
// cache. A revision that does not build is marked so, and is no error.
func (h *hunt) kernel(ctx context.Context, p *probe) (ok bool, err error) {
	r := h.at(p.v)
	if p.commit, _, err = h.withFixups(ctx, r.ID); err != nil {
		return false, err
	}
	k, err := h.session.kernel(ctx, target{commit: p.commit, revision: r.ID, label: h.label(p.v), layout: p.layout})
	if blamesKernel(err) {
		p.status, p.reason = statusUntestable, shorten(err.Error())
		return false, nil
	}
	if err != nil {
		return false, err
	}
	p.identity = k.Identity
	p.build = k.Seconds
	h.spent.built(h, p, k)
	h.drift.add(r.short(), k)
	return true, nil
}

const statusUntestable = "untestable"

// label names a revision in progress.
func (h *hunt) label(v int) string {
	r := h.at(v)
	switch {
	case v == bisect.GoodEnd:
		return "good end " + r.short()
	case v == bisect.BadEnd:
		return "bad end " + r.short()
	case h.mode == report.ModeSeries:
		return fmt.Sprintf("patch %d of %d", v+1, len(h.revisions))
	}
	return r.short()
}

// ends builds and measures the two ends. A result is returned when there is
// nothing to search.
func (h *hunt) ends(ctx context.Context) (*report.Result, error) {
	good, bad := h.probe(bisect.GoodEnd), h.probe(bisect.BadEnd)
	for _, p := range []*probe{good, bad} {
		ok, err := h.kernel(ctx, p)
		if err != nil {
			return nil, err
		}
		if !ok {
			return h.result(report.Untestable, fmt.Sprintf("the %s end %s: %s", p.name, h.at(p.v).short(), p.reason)), nil
		}
	}
	if good.identity == bad.identity {
		return h.result(report.EndsAlike, "both ends build to the same image: nothing in this range reaches the kernel that is measured"), nil
	}
	d, err := h.duel(ctx, h.q, &good.side, &bad.side)
	if err != nil {
		return nil, err
	}
	h.decided = *d
	switch {
	case d.Verdict == bisect.Untestable:
		return h.result(report.Untestable, fmt.Sprintf("the %s end: %s", d.Side, d.Reason)), nil
	case d.Verdict == bisect.NoDifference:
		return h.result(report.EndsAlike, d.Gate), nil
	case d.Verdict != bisect.Differ:
		return h.result(report.Inconclusive, "the ends: "+orDefault(d.Reason, d.Gate)), nil
	case d.Unexpected:
		return h.result(report.EndsAlike, fmt.Sprintf("the bad end's %s is %s, the other way round: --look-for %s finds what did that",
			h.q.metric.Name, d.Direction, d.Direction)), nil
	}
	return nil, nil
}

// After the gate for huge effects, 3 runs an end, a suspect is named at 0.9
// already: its confirmation tells as much as the runs that are saved (13.4 instead
// of 16.7 for 64 revisions, simulated), and its runs count in the final posterior.
const (
	fewRuns   = 6
	earlyStop = 0.9
	fullStop  = 0.99
)

// begin sets the search up with what is known of the ends, and takes from the
// journal what an interrupted run has done.
func (h *hunt) begin(ctx context.Context) (err error) {
	good, bad := h.probe(bisect.GoodEnd), h.probe(bisect.BadEnd)
	h.choose(good, bad)
	if h.prior, err = h.weigh(ctx); err != nil {
		return err
	}
	o := bisect.Options{Categories: h.categories(), Weights: h.prior.Weights, Seed: 1}
	if h.decided.Runs < fewRuns {
		o.Stop = earlyStop
	}
	if h.opts.Strategy == StrategySPRT {
		h.find, err = bisect.NewSPRT(h.graph, o)
	} else {
		h.find, err = bisect.NewSearch(h.graph, o)
	}
	if err != nil {
		return err
	}
	for _, p := range []*probe{good, bad} {
		h.same[p.identity] = p.v
		for i, o := range p.obs {
			if err := h.find.Add(p.v, h.categoryOf(o.X, o.Censored, p.hits[i])); err != nil {
				return err
			}
		}
	}
	// The last revision is the bad end.
	last := len(h.revisions) - 1
	if err := h.find.Same(last, bisect.BadEnd); err != nil {
		return err
	}
	p := h.probe(last)
	p.identity, p.commit = bad.identity, bad.commit
	return h.recall(ctx)
}

// choose fixes the categories of outcomes: the user's threshold; a threshold of
// our own when the ends lie so far apart that any in between does; else bins.
func (h *hunt) choose(good, bad *probe) {
	if h.q.rules.Threshold != 0 {
		return
	}
	lo, hi := rangeOf(good), rangeOf(bad)
	if h.decided.Direction == bisect.Lower {
		lo, hi = hi, lo
	}
	if lo[1] > 0 && hi[0] >= 2*lo[1] {
		h.cuts = []float64{math.Sqrt(lo[1] * hi[0])}
		return
	}
	h.cuts = bisect.Cuts(numbers(good), numbers(bad))
}

// rangeOf is the least and the largest number of a probe.
func rangeOf(p *probe) [2]float64 {
	x := numbers(p)
	return [2]float64{slices.Min(x), slices.Max(x)}
}

func numbers(p *probe) []float64 {
	var out []float64
	for _, o := range p.obs {
		out = append(out, o.X)
	}
	return out
}

// categories is the number of kinds of outcome.
func (h *hunt) categories() int { return max(2, len(h.cuts)+1) }

// categoryOf places one outcome.
func (h *hunt) categoryOf(x float64, censored, hit bool) int {
	switch {
	case len(h.cuts) == 0 && hit:
		return 1
	case len(h.cuts) == 0:
		return 0
	case censored:
		return len(h.cuts)
	}
	return bisect.Bin(h.cuts, x)
}

// search runs probes until the strategy names something or the budget ends.
func (h *hunt) search(ctx context.Context) (*bisect.Finding, error) {
	show := h.env.UI.Stage("search")
	for {
		step := h.find.Next(h.spent.costs(h))
		if step.Found != nil {
			show.Note(h.standing())
			show.End(nil)
			return step.Found, nil
		}
		if h.late() {
			show.End(nil)
			return nil, nil
		}
		if err := h.step(ctx, h.probe(step.Revision)); err != nil {
			show.End(err)
			return nil, err
		}
		show.Note(h.standing())
		h.progress(show)
	}
}

// late reports whether the budget is spent.
func (h *hunt) late() bool { return h.opts.Budget > 0 && time.Since(h.begun) > h.opts.Budget }

// step builds a revision if need be, runs it once and says what that gave.
func (h *hunt) step(ctx context.Context, p *probe) error {
	if h.kernels[p.key()] == nil {
		ok, err := h.kernel(ctx, p)
		if err != nil {
			return err
		}
		if !ok {
			return h.find.Untestable(p.v)
		}
		if known, err := h.built(p); known || err != nil {
			return err // the search may want something else now
		}
	}
	o, err := h.trial(ctx, h.q, &p.side)
	if err != nil {
		return err
	}
	return h.learn(p, o)
}

// built says what a new kernel is: perhaps one that is known from another revision.
func (h *hunt) built(p *probe) (known bool, err error) {
	if first, ok := h.same[p.identity]; ok && first != p.v {
		if err := h.find.Same(p.v, first); err != nil {
			// It would leave no suspect: the history goes back and forth.
			h.warn("%s is the same kernel as %s, though the ends differ: more than one change", h.label(p.v), h.label(first))
		}
		known = true
	} else {
		h.same[p.identity] = p.v
	}
	return known, h.find.Built(p.v)
}

// learn gives an outcome to the strategy. One that is no measurement makes the
// revision untestable; an end that was measured before is not lost by that.
func (h *hunt) learn(p *probe, o measure.Outcome) error {
	judged := h.q.judge(o)
	p.add(h.q, o, judged)
	switch {
	case judged.Kind == bisect.Measured:
		return h.find.Add(p.v, h.categoryOf(judged.Number, judged.Censored, judged.Hit))
	case p.v < 0:
		return fmt.Errorf("the %s end, which was measured before, failed: %s", p.name, judged.Reason)
	}
	p.status, p.reason = statusUntestable, judged.Reason
	h.env.UI.Warn("%s is untestable: %s", h.label(p.v), shorten(judged.Reason))
	return h.find.Untestable(p.v)
}

// recall gives the strategy what the journal has of an interrupted search, in
// the order in which it was done.
func (h *hunt) recall(ctx context.Context) error {
	builds, err := h.store.Builds(ctx, h.id)
	if err != nil {
		return err
	}
	for _, b := range builds {
		if v, ok := h.index[b.Revision]; ok {
			if err := h.recallBuild(h.probe(v), b); err != nil {
				return err
			}
		}
	}
	events, err := h.store.Events(ctx, h.id)
	if err != nil {
		return err
	}
	for _, e := range events {
		if e.Kind == eventDrop && h.offline == nil { // another threshold refutes others
			if err := h.recallRuns(e.At); err != nil {
				return err
			}
			if err := h.recallDrop(e); err != nil {
				return err
			}
		}
	}
	return h.recallRuns(time.Time{})
}

func (h *hunt) recallBuild(p *probe, b store.Build) error {
	if b.Error != "" {
		p.status, p.reason = statusUntestable, shorten(b.Error)
		return h.find.Untestable(p.v)
	}
	p.identity, p.build = b.Identity, b.Seconds
	_, err := h.built(p)
	return err
}

// recallRuns takes the finished runs of the search before a time, zero for all.
func (h *hunt) recallRuns(before time.Time) error {
	rest := h.replay[:0:0]
	for _, old := range h.replay {
		v, ok := h.endOrRevision(old)
		if old.Status == measure.Infra.String() {
			continue
		}
		if !ok || !before.IsZero() && old.Started.After(before) {
			rest = append(rest, old)
			continue
		}
		o, err := h.replayed(old)
		if err != nil {
			return err
		}
		if err := h.learn(h.probe(v), o); err != nil {
			return err
		}
	}
	h.replay = rest
	return nil
}

// endOrRevision says what an outcome of the search was measured on.
func (h *hunt) endOrRevision(o store.Outcome) (int, bool) {
	switch o.Side {
	case sideGood:
		return bisect.GoodEnd, true
	case sideBad:
		return bisect.BadEnd, true
	case sideSearch:
		v, ok := h.index[o.Revision]
		return v, ok
	}
	return 0, false
}

// standing says in one line how far the search is.
func (h *hunt) standing() string {
	set := h.find.Credible(0.99)
	text := fmt.Sprintf("%d suspects left", len(set))
	if len(set) > 0 {
		text = fmt.Sprintf("%d suspects left, %s %.1f %%", len(set), h.at(set[0].Revision).short(), 100*set[0].P)
	}
	return fmt.Sprintf("%s; %d builds, %d runs", text, h.costs.Builds+h.costs.BuildsCached, h.costs.Runs)
}
