package app

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/kbisect/kbisect/internal/bisect"
	"github.com/kbisect/kbisect/internal/report"
	"github.com/kbisect/kbisect/internal/series"
	"github.com/kbisect/kbisect/internal/stats"
	"github.com/kbisect/kbisect/internal/store"
)

// The sides of a confirmation in the journal; a repeated one has its number behind it.
const (
	sideParent  = "parent"
	sideCulprit = "culprit"
	sideRevert  = "revert"
)

// layouts is how many code layouts an attempt may use: that of its confirmation,
// as built or another one, and that of the kernels which a refusal builds anew.
const layouts = 3

// maxAttempts is how many confirmations may fail before the search gives up: the
// second one is on kernels of another layout, and the third votes.
const maxAttempts = 3

// layoutRatio is the effect below which the luck of code alignment may have made
// the difference (STATS 3.8): culprit and parent are then confirmed on kernels
// of another layout.
const layoutRatio = 2.0

// conclude acts on what the strategy has found. It returns nil when a confirmation
// failed and the search has to go on.
func (h *hunt) conclude(ctx context.Context, f *bisect.Finding) (*report.Result, error) {
	switch {
	case f == nil:
		return h.result(report.Inconclusive, fmt.Sprintf("the budget of %s is spent", h.opts.Budget)), nil
	case f.Drift != 0:
		return h.result(report.Inconclusive, fmt.Sprintf("the %s end is not what it was before the search: the host has changed, and nothing is known", f.Drift)), nil
	case f.None:
		return h.result(report.EndsAlike, "the ends have stopped to differ: what they showed at first was chance, or the host has changed"), nil
	}
	sus := h.suspect(f)
	if sus.culprit < 0 {
		return h.result(report.Inconclusive, "no revision of the class that holds the culprit can be tested"), nil
	}
	c, err := h.confirm(ctx, sus)
	if err != nil {
		return nil, err
	}
	if c == nil { // the budget
		return h.result(report.Inconclusive, fmt.Sprintf("the budget of %s is spent before %s was confirmed", h.opts.Budget, h.label(sus.culprit))), nil
	}
	if !c.verdict.OK {
		h.demand()
		return h.refuted(ctx, sus, c)
	}
	if err := h.credit(sus, c); err != nil {
		return nil, err
	}
	p := h.mass(sus.class)
	if p < fullStop { // named early, and the confirmation tells too little
		h.demand()
		return nil, nil
	}
	return h.found(ctx, p, sus, c)
}

// demand has the search go on to the full probability.
func (h *hunt) demand() {
	if s, ok := h.find.(*bisect.Search); ok {
		s.Demand(fullStop)
	}
}

// credit gives the confirmation's runs to the search, if they were made on its
// kernels and not in another layout.
func (h *hunt) credit(sus suspected, c *confirmed) error {
	for _, x := range []struct {
		v int
		s *side
	}{{sus.parent, &c.parent}, {sus.culprit, &c.culprit}} {
		if x.s.layout != h.probe(x.v).layout {
			continue
		}
		for i, o := range x.s.obs {
			if err := h.find.Add(x.v, h.categoryOf(o.X, o.Censored, x.s.hits[i])); err != nil {
				return err
			}
		}
	}
	return nil
}

// mass is the probability that the culprit is in a class.
func (h *hunt) mass(class []int) float64 {
	p, _ := h.find.Posterior(false)
	sum := 0.0
	for _, v := range class {
		sum += p[v]
	}
	return sum
}

// suspected is what a confirmation compares.
type suspected struct {
	class   []int
	culprit int // the last revision of the class that can be tested, -1 for none
	parent  int // the last one before the class, or the good end
}

func (h *hunt) suspect(f *bisect.Finding) suspected {
	s := suspected{class: f.Class, culprit: -1, parent: bisect.GoodEnd}
	for _, v := range f.Class {
		if h.probe(v).status != statusUntestable {
			s.culprit = v
		}
	}
	if parents := h.revisions[f.Class[0]].parents; len(parents) > 0 {
		s.parent = parents[0]
	}
	return s
}

// confirmed is a confirmation that has ended.
type confirmed struct {
	verdict         *bisect.Confirmed
	odd             []bisect.Side // whose kernels are not what they were in the search
	parent, culprit side
	layout          int
}

// confirm runs parent and culprit against each other, on fresh boots, and weighs
// those runs alone. nil is the end of the budget.
func (h *hunt) confirm(ctx context.Context, sus suspected) (*confirmed, error) {
	c := &confirmed{layout: h.attempts * layouts}
	if h.effect() < layoutRatio {
		c.layout++
	}
	var err error
	if c.parent, err = h.confirmSide(ctx, sus.parent, sideParent, c.layout); err != nil {
		return nil, err
	}
	if c.culprit, err = h.confirmSide(ctx, sus.culprit, sideCulprit, c.layout); err != nil {
		return nil, err
	}
	good, bad := h.sums(sus.culprit)
	n := total(h.find.Runs(sus.culprit)) + total(h.find.Runs(sus.parent))
	test, err := bisect.NewConfirmation(good, bad, 3*n)
	if err != nil {
		return nil, err
	}
	c.verdict, err = h.against(ctx, "confirm "+h.label(sus.culprit), test, &c.parent, &c.culprit)
	if c.verdict == nil {
		return nil, err
	}
	c.odd = test.Odd()
	return c, err
}

// effect is how many times the ends lie apart, by the estimate of their ratio.
func (h *hunt) effect() float64 {
	r := h.decided.Ratio
	x := r.Point
	if h.decided.Direction == bisect.Lower {
		x = 1 / x
	}
	if math.IsNaN(x) {
		return math.Inf(1) // zeros or cut-off runs: far apart, or not a matter of alignment
	}
	return x
}

// confirmSide is one kernel of a confirmation. One that does not build in another
// layout is taken as it was.
func (h *hunt) confirmSide(ctx context.Context, v int, name string, layout int) (side, error) {
	p := h.probe(v)
	if h.attempts > 0 {
		name = fmt.Sprintf("%s%d", name, h.attempts+1)
	}
	commit, _, err := h.withFixups(ctx, h.at(v).ID)
	if err != nil {
		return side{}, err
	}
	s := side{name: name, tag: name + "-" + h.at(v).short(), revision: p.revision, commit: commit, layout: layout}
	k, err := h.session.kernel(ctx, target{commit: commit, revision: p.revision, label: h.label(v), layout: layout})
	if blamesKernel(err) && layout > 0 {
		h.warn("%s does not build in another layout: confirmed as it is", h.label(v))
		s.layout = 0
		k, err = h.session.kernel(ctx, target{commit: commit, revision: p.revision, label: h.label(v)})
	}
	if err != nil {
		return side{}, err
	}
	s.identity = k.Identity
	return s, nil
}

// sums are the search's runs on either side of a culprit, by category.
func (h *hunt) sums(culprit int) (good, bad []int) {
	good, bad = h.find.Runs(bisect.GoodEnd), h.find.Runs(bisect.BadEnd)
	for v := range h.revisions {
		to := good
		if h.graph.Has(v, culprit) {
			to = bad
		}
		for k, n := range h.find.Runs(v) {
			to[k] += n
		}
	}
	return good, bad
}

func total(counts []int) int {
	n := 0
	for _, c := range counts {
		n += c
	}
	return n
}

// against runs two kernels in turn until their e-value decides. It returns nil
// when the budget ends first.
func (h *hunt) against(ctx context.Context, title string, c *bisect.Confirmation, parent, culprit *side) (*bisect.Confirmed, error) {
	show := h.env.UI.Stage(title)
	for {
		next, end := c.Next()
		if end != nil {
			show.Note(fmt.Sprintf("e-value %.3g after %d pairs", end.E, end.Pairs))
			show.End(nil)
			return end, nil
		}
		if h.late() {
			show.End(nil)
			return nil, nil
		}
		x := parent
		if next == bisect.Bad {
			x = culprit
		}
		o, err := h.trial(ctx, h.q, x)
		if err != nil {
			show.End(err)
			return nil, err
		}
		judged := h.q.judge(o)
		if judged.Kind != bisect.Measured {
			show.End(nil)
			return &bisect.Confirmed{E: c.E(), Reason: fmt.Sprintf("%s could not be measured again: %s", x.name, judged.Reason)}, nil
		}
		x.add(h.q, o, judged)
		if err := c.Add(next, h.categoryOf(judged.Number, judged.Censored, judged.Hit)); err != nil {
			return nil, err
		}
		show.Note(fmt.Sprintf("%s %s, e-value %.3g", x.name, h.format(judged.Number), c.E()))
	}
}

// refuted forgets what the search knew of the kernels that the confirmation saw
// behave otherwise, of both if it saw no difference, and has them built in another
// layout: a build may have been lucky.
func (h *hunt) refuted(ctx context.Context, sus suspected, c *confirmed) (*report.Result, error) {
	h.warn("%s was not confirmed: %s; its kernels are built anew", h.label(sus.culprit), c.verdict.Reason)
	d := dropped{Layout: h.attempts*layouts + 2}
	for _, x := range []struct {
		side bisect.Side
		v    int
	}{{bisect.Good, sus.parent}, {bisect.Bad, sus.culprit}} {
		if x.v >= 0 && (len(c.odd) == 0 || slices.Contains(c.odd, x.side)) {
			d.Revisions = append(d.Revisions, h.at(x.v).ID)
		}
	}
	if err := h.event(ctx, eventDrop, d); err != nil {
		return nil, err
	}
	if err := h.drop(d); err != nil {
		return nil, err
	}
	if h.attempts < maxAttempts {
		return nil, nil
	}
	return h.result(report.Inconclusive, fmt.Sprintf("%d confirmations failed, the last with: %s", h.attempts, c.verdict.Reason)), nil
}

// dropped is the event of a confirmation that failed.
type dropped struct {
	Revisions []string `json:"revisions"`
	Layout    int      `json:"layout"` // that they are built in from then on
}

func (h *hunt) recallDrop(e store.Event) error {
	var d dropped
	if err := json.Unmarshal(e.Data, &d); err != nil {
		return fmt.Errorf("read event %d of the journal: %w", e.Seq, err)
	}
	return h.drop(d)
}

func (h *hunt) drop(d dropped) error {
	h.attempts++
	for _, id := range d.Revisions {
		v, ok := h.index[id]
		if !ok {
			continue
		}
		p := h.probe(v)
		p.layout, p.obs, p.hits, p.above = d.Layout, nil, nil, 0
		if err := h.find.Drop(v); err != nil {
			return err
		}
	}
	return nil
}

// found makes the result of a confirmed culprit or class.
func (h *hunt) found(ctx context.Context, p float64, sus suspected, c *confirmed) (*report.Result, error) {
	res := h.result(report.Found, "")
	uniform, _ := h.find.Posterior(true)
	r := h.at(sus.culprit)
	cul := &report.Culprit{
		Revision: r.ID, Subject: r.Subject, Kind: h.kind(sus.culprit), Confidence: p,
		Parent: h.at(sus.parent).ID, EValue: report.Num(c.verdict.E), Pairs: c.verdict.Pairs, Layout: c.layout,
		ParentRuns: h.sideOf(&c.parent), CulpritRuns: h.sideOf(&c.culprit), Share: h.share(c),
	}
	for _, v := range sus.class {
		cul.Uniform += report.Num(uniform[v])
	}
	if len(sus.class) > 1 {
		res.Verdict = report.Inconclusive
		res.Reason = fmt.Sprintf("the culprit is one of %d revisions that no kernel which can be tested separates; %s and %s differ, confirmed",
			len(sus.class), h.label(sus.parent), h.label(sus.culprit))
		cul.Kind = "class"
	} else {
		h.advise(res, cul, sus)
		var err error
		if cul.Revert, err = h.revert(ctx, sus, c); err != nil {
			return nil, err
		}
	}
	res.Culprit = cul
	return res, nil
}

// advise warns of what weakens "the" culprit.
func (h *hunt) advise(res *report.Result, c *report.Culprit, sus suspected) {
	if c.Kind == "merge" {
		res.Warnings = append(res.Warnings, fmt.Sprintf("the culprit is a merge: none of what it brings is slow alone, or its side was not searched; look inside with --good %.12s --bad %.12s^2", c.Parent, c.Revision))
	}
	if s := float64(c.Share); c.Share.Known() && s < 0.5 {
		res.Warnings = append(res.Warnings, fmt.Sprintf("it explains %.0f %% of the step from good to bad: there is more than one culprit; look on with --good %.12s", 100*s, c.Revision))
	}
	res.Warnings = append(res.Warnings, h.changes(sus.culprit)...)
}

// share is how much of the ends' gap lies between parent and culprit, by medians.
// It is not known when one of the two had to keep its layout: the other's numbers
// may be shifted as a whole.
func (h *hunt) share(c *confirmed) report.Num {
	if c.parent.layout != c.culprit.layout {
		return report.Unknown()
	}
	m := func(s *side) float64 { return stats.Summarize(s.obs, ratioLevel).Median.X }
	good, bad := &h.probe(bisect.GoodEnd).side, &h.probe(bisect.BadEnd).side
	gap := m(bad) - m(good)
	if gap == 0 {
		return report.Unknown()
	}
	return report.Num((m(&c.culprit) - m(&c.parent)) / gap)
}

// revert takes the culprit out of the bad end, if that can be done, and says
// whether the result is good.
func (h *hunt) revert(ctx context.Context, sus suspected, c *confirmed) (string, error) {
	r := h.at(sus.culprit)
	switch {
	case len(r.Parents) != 1:
		return "not tried: a merge", nil
	case sus.culprit == len(h.revisions)-1:
		return "it is the last one: the bad end without it is its parent", nil
	}
	list, err := series.RangePatches(ctx, h.src.Repo(), r.Parents[0], r.ID)
	if err != nil {
		return "not tried: " + shorten(err.Error()), ctx.Err()
	}
	base, _, err := h.withFixups(ctx, h.bad.ID)
	if err != nil {
		return "", err
	}
	commit, err := series.Apply(ctx, h.src.Repo(), base, list[0], true)
	if errors.As(err, new(*series.PatchError)) {
		return "conflict: it cannot be taken out of the bad end as it is", nil
	}
	if err != nil {
		return "", err
	}
	label := "bad end without " + r.short()
	k, err := h.session.kernel(ctx, target{commit: commit, revision: commit, label: label})
	if blamesKernel(err) {
		return "the bad end without it does not build: " + shorten(err.Error()), nil
	}
	if err != nil {
		return "", err
	}
	x := side{name: sideRevert, tag: sideRevert, revision: commit, commit: commit, identity: k.Identity}
	good, bad := h.sums(sus.culprit)
	h.tally(good, &c.parent)
	h.tally(bad, &c.culprit)
	return h.leans(ctx, "revert "+r.short()+" on the bad end", good, bad, &x)
}

// maxRevert bounds the runs of a revert that is neither good nor bad.
const maxRevert = 20

// leans runs one kernel until its runs look like the good or like the bad ones
// with 99 %. The confirmation has just run both, so that one side is enough.
func (h *hunt) leans(ctx context.Context, title string, good, bad []int, x *side) (string, error) {
	show := h.env.UI.Stage(title)
	defer func() { show.End(nil) }()
	own := make([]int, h.categories())
	p := 0.5
	for n := 0; n < maxRevert && p > 0.01 && p < 0.99; n++ {
		if h.late() {
			return "not decided: the budget is spent", nil
		}
		o, err := h.trial(ctx, h.q, x)
		if err != nil {
			return "", err
		}
		judged := h.q.judge(o)
		if judged.Kind != bisect.Measured {
			return "the bad end without it cannot be measured: " + shorten(judged.Reason), nil
		}
		x.add(h.q, o, judged)
		own[h.categoryOf(judged.Number, judged.Censored, judged.Hit)]++
		p = bisect.Leaning(good, bad, own)
		show.Note(fmt.Sprintf("%s, like the bad ones with %.3g", h.format(judged.Number), p))
	}
	is := fmt.Sprintf("%s in %d boots, bad end %s", h.median(x), len(x.obs), h.median(&h.probe(bisect.BadEnd).side))
	switch {
	case p <= 0.01:
		return "fixes the bad end: " + is, nil
	case p >= 0.99:
		return "does not fix the bad end (" + is + "): something behind it is slow as well", nil
	}
	return "not decided: the bad end without it is neither good nor bad (" + is + ")", nil
}

// tally adds a side's runs to counts by category.
func (h *hunt) tally(to []int, s *side) {
	for i, o := range s.obs {
		to[h.categoryOf(o.X, o.Censored, s.hits[i])]++
	}
}

// result is one without the numbers, which summarize adds.
func (h *hunt) result(v report.Verdict, reason string) *report.Result {
	return &report.Result{ID: h.id, Mode: h.mode, Created: h.begun.UTC(), Version: Version(), RunDir: h.dir, Verdict: v, Reason: reason}
}

// summarize adds what was measured.
func (h *hunt) summarize(res *report.Result) {
	res.Question = h.question()
	res.Ends = h.endsReport()
	for v := range h.revisions {
		if p := h.probes[v]; p != nil && v != len(h.revisions)-1 {
			res.Steps = append(res.Steps, h.stepReport(p, res))
		}
	}
	if h.find != nil {
		for _, s := range h.find.Credible(0.99) {
			if len(res.CredibleSet) < maxSuspects {
				r := h.at(s.Revision)
				res.CredibleSet = append(res.CredibleSet, report.Suspect{Revision: r.ID, Subject: r.Subject, Probability: s.P})
			}
		}
	}
	res.Warnings = slices.Concat(h.warnings, res.Warnings, h.drift.warnings, h.notices)
	h.costs.Seconds = h.session.spent().Seconds()
	res.Costs = h.costs
	res.Environment = h.environment()
}

// maxSuspects bounds the credible set that is reported: 15,000 revisions of which
// nothing is known help nobody.
const maxSuspects = 50
