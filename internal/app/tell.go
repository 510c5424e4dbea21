package app

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/kbisect/kbisect/internal/bisect"
	"github.com/kbisect/kbisect/internal/measure"
	"github.com/kbisect/kbisect/internal/report"
	"github.com/kbisect/kbisect/internal/stats"
	"github.com/kbisect/kbisect/internal/ui"
)

// What a search tells people: before it, on the way, and in its result.

// confirmRuns is how many runs a confirmation and a revert of a clear effect take.
const confirmRuns = 11

// announce says, once the ends are known, what the rest is expected to take.
func (h *hunt) announce() {
	good, bad := h.probe(bisect.GoodEnd), h.probe(bisect.BadEnd)
	h.env.UI.Info("the ends differ: good %s, bad %s (%s)", h.median(&good.side), h.median(&bad.side), h.decided.Gate)
	h.env.UI.Info("%s", h.rule())
	if h.prior.Weights != nil {
		h.env.UI.Info("%d of %d revisions change files that the build uses: those are suspected first", h.prior.Used, len(h.revisions))
	}
	if h.offline != nil {
		return
	}
	builds, runs, left := h.forecast()
	h.env.UI.Info("about %d builds and %d runs to come, %s, confirmation included", builds, runs, ui.Span(left))
	if rest := h.opts.Budget - time.Since(h.begun); h.opts.Budget > 0 && left > rest {
		h.env.UI.Warn("the budget of %s leaves %s: the search may end before it has named one", h.opts.Budget, ui.Span(max(rest, 0)))
	}
}

// forecast predicts what is left, from what builds and runs have taken so far.
func (h *hunt) forecast() (builds, runs int, left time.Duration) {
	c := h.spent.costs(h)
	builds, runs = h.find.Forecast(c)
	runs += confirmRuns
	mid := len(h.revisions) / 2
	return builds, runs, time.Duration((float64(builds)*c.Build(mid) + float64(runs)*c.Run) * float64(time.Second))
}

// progress shows the time left on the search's line.
func (h *hunt) progress(show *ui.Stage) {
	done := int64(h.costs.BuildSeconds + h.costs.RunSeconds)
	_, _, left := h.forecast()
	show.Set(done, done+int64(left.Seconds()))
}

// rule says what counts as bad.
func (h *hunt) rule() string {
	switch {
	case len(h.cuts) == 0:
		return fmt.Sprintf("a run with %s counts as bad", h.q.threshold)
	case len(h.cuts) == 1:
		return fmt.Sprintf("a run of %s %s above %s counts as one of the slow side: between the ends, which are %.3gx apart (--threshold sets your own)",
			h.q.shownWorkload(), h.q.metric.Name, h.format(h.cuts[0]), h.effect())
	}
	var parts []string
	for _, c := range h.cuts {
		parts = append(parts, h.format(c))
	}
	return fmt.Sprintf("%s is compared in %d bins, cut at %s (--threshold EXPR decides faster)", h.q.metric.Name, len(h.cuts)+1, strings.Join(parts, ", "))
}

// format prints a number of the metric.
func (h *hunt) format(x float64) string {
	return measure.Format(measure.Value{Number: x, Unit: h.q.metric.Unit})
}

// median prints a side's typical run, "-" when there is none.
func (h *hunt) median(s *side) string {
	if len(s.obs) == 0 {
		return "-"
	}
	m := stats.Summarize(s.obs, ratioLevel).Median
	return measure.Format(measure.Value{Number: m.X, Unit: h.q.metric.Unit, Censored: m.Censored})
}

// question is what was asked, for the result.
func (h *hunt) question() *report.Question {
	q := &report.Question{
		Kernel: h.src.Version, Source: h.src.Name, Workload: h.q.shownWorkload(), Metric: h.q.metric.Name, Unit: h.q.metric.Unit, Better: h.q.metric.Better,
		Revisions: len(h.revisions), Strategy: orDefault(h.opts.Strategy, StrategyBayes),
	}
	if h.q.threshold != nil {
		q.Threshold = h.q.threshold.String()
	}
	if h.find != nil {
		q.Rule = h.rule()
	}
	return q
}

// endsReport is what was measured of the two ends.
func (h *hunt) endsReport() *report.Ends {
	good, bad := h.probe(bisect.GoodEnd), h.probe(bisect.BadEnd)
	e := &report.Ends{Good: h.sideOf(&good.side), Bad: h.sideOf(&bad.side), Gate: h.decided.Gate, Error: report.Num(h.decided.Error),
		Ratio: report.Num(h.decided.Ratio.Point), RatioCI: [2]report.Num{report.Num(h.decided.Ratio.Lo), report.Num(h.decided.Ratio.Hi)}}
	if h.decided.Verdict == 0 {
		e.Ratio, e.RatioCI, e.Error = report.Unknown(), [2]report.Num{report.Unknown(), report.Unknown()}, report.Unknown()
	}
	return e
}

func (h *hunt) sideOf(s *side) report.Side {
	above := s.above
	if len(h.cuts) == 1 {
		for _, o := range s.obs {
			above += h.categoryOf(o.X, o.Censored, false)
		}
	}
	out := report.SideOf(stats.Summarize(s.obs, ratioLevel), above)
	out.Revision, out.Identity = s.revision, s.identity
	return out
}

// stepReport is one revision that was built or run.
func (h *hunt) stepReport(p *probe, res *report.Result) report.Step {
	r := h.at(p.v)
	return report.Step{Revision: r.ID, Subject: r.Subject, Side: h.sideOf(&p.side), Status: h.status(p, res), Reason: p.reason, Seconds: p.build}
}

// status is what is held of a revision: by the culprit where there is one, else
// by how likely it is bad.
func (h *hunt) status(p *probe, res *report.Result) string {
	const sure = 0.99
	switch {
	case p.status != "":
		return p.status
	case res.Culprit != nil && res.Verdict == report.Found && h.graph.Has(p.v, h.index[res.Culprit.Revision]):
		return sideBad
	case res.Culprit != nil && res.Verdict == report.Found:
		return sideGood
	case h.find == nil:
		return "unknown"
	}
	post, _ := h.find.Posterior(false)
	bad := 0.0
	for c, x := range post {
		if h.graph.Has(p.v, c) {
			bad += x
		}
	}
	switch {
	case bad >= sure:
		return sideBad
	case bad <= 1-sure:
		return sideGood
	}
	return "unknown"
}

// changes says what the tested revisions tell of more than one change.
func (h *hunt) changes(culprit int) []string {
	var out []string
	for _, c := range h.find.Changes() {
		out = append(out, h.changeText(c))
	}
	if len(out) > 0 {
		return out
	}
	for _, side := range []bisect.Side{bisect.Good, bisect.Bad} {
		if p := h.levels(culprit, side); p < heterogeneous {
			out = append(out, fmt.Sprintf("the %s revisions do not measure alike (p = %.1g): there is another, smaller change among them; a --threshold inside their range finds it", side, p))
		}
	}
	return out
}

// changeText puts a change beside the culprit in words.
func (h *hunt) changeText(c bisect.Change) string {
	from, to := h.label(c.From), h.label(c.To)
	if c.Fixed {
		return fmt.Sprintf("%s is bad and %s, which descends from it, is good: it is not the only culprit; look between the two, and behind them with --good %.12s", from, to, h.at(c.To).ID)
	}
	return fmt.Sprintf("the %s revisions are not alike (p = %.1g): there is another change between %s and %s", c.Side, c.P, from, to)
}

// heterogeneous is the p-value below which one side's revisions are held to
// differ among themselves. At 0.001 a partial regression of 10, 60, 100 ms is
// noticed in a third of the searches, at 0.01 in 96 %, with a false alarm in 1 %
// (simulated).
const heterogeneous = 0.01

// levels compares the numbers of the tested revisions of one side.
func (h *hunt) levels(culprit int, side bisect.Side) float64 {
	var groups [][]float64
	for v := -2; v < len(h.revisions); v++ {
		p := h.probes[v]
		if p == nil || len(p.obs) == 0 || h.graph.Has(v, culprit) != (side == bisect.Bad) {
			continue
		}
		groups = append(groups, numbers(p))
	}
	if len(groups) < 2 {
		return 1
	}
	return bisect.Levels(groups)
}

// writeLog writes what `git bisect replay` reads. A series has commits that only
// kbisect's own repository knows, so it gets none.
func (h *hunt) writeLog(res *report.Result) error {
	if h.mode != report.ModeRange || h.find == nil {
		return nil
	}
	var b strings.Builder
	line := func(word string, r revision) {
		fmt.Fprintf(&b, "# %s: [%s] %s\ngit bisect %s %s\n", word, r.ID, r.Subject, word, r.ID)
	}
	b.WriteString("git bisect start\n")
	line(sideBad, h.bad)
	line(sideGood, h.good)
	for _, s := range res.Steps {
		r := h.revisions[h.index[s.Revision]]
		switch s.Status {
		case sideGood, sideBad:
			line(s.Status, r)
		case statusUntestable:
			line("skip", r)
		}
	}
	if c := res.Culprit; c != nil && res.Verdict == report.Found {
		if p := h.parentLine(res, c); p != nil { // what confirmation alone has tested
			line(sideGood, *p)
		}
		v := h.index[c.Revision]
		line(sideBad, h.revisions[v])
		fmt.Fprintf(&b, "# first bad commit: [%s] %s\n", c.Revision, c.Subject)
	}
	res.BisectLog = filepath.Join(h.dir, "bisect.log")
	return os.WriteFile(res.BisectLog, []byte(b.String()), 0o600)
}

// parentLine returns the culprit's parent when no step says that it is good.
func (h *hunt) parentLine(res *report.Result, c *report.Culprit) *revision {
	v, ok := h.index[c.Parent]
	if !ok {
		return nil // the good end
	}
	for _, s := range res.Steps {
		if s.Revision == c.Parent && s.Status == sideGood {
			return nil
		}
	}
	return &h.revisions[v]
}
