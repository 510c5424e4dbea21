package app

import (
	"context"
	"fmt"

	"github.com/kbisect/kbisect/internal/bisect"
	"github.com/kbisect/kbisect/internal/measure"
	"github.com/kbisect/kbisect/internal/report"
	"github.com/kbisect/kbisect/internal/stats"
	"github.com/kbisect/kbisect/patches"
)

// supplement is a further comparison of a case: a fixed number of runs, one row
// for each metric, and no part in the verdict.
type supplement struct {
	question
	metrics []measure.Metric
	runs    int
	within  float64 // the ratio that must not be exceeded either way, 0 for none
	same    bool    // both sides run on the kernel with the patch
}

// supplementOf makes the n-th [[also]] of a case.
func supplementOf(q *question, a patches.Also, n int) (*supplement, error) {
	s := &supplement{runs: a.Runs, within: a.Within, same: a.WithoutKernel == sideName(bisect.Good)}
	s.question = question{name: fmt.Sprintf("%s+%d", q.name, n), title: a.Title, limit: q.limit, workload: a.Workload,
		without: orDefault(a.WorkloadWithout, a.Workload)}
	_, defs, err := parseWorkload(a.Workload)
	if err != nil {
		return nil, err
	}
	for _, name := range a.Metrics {
		m, err := measure.ParseMetric(name, defs)
		if err != nil {
			return nil, badExpr("metrics", err)
		}
		s.metric = m
		if err := s.setWithout(s.without); err != nil {
			return nil, err
		}
		s.metrics = append(s.metrics, m)
	}
	return s, nil
}

// supplements measures what a case asks for beside its question.
func (s *session) supplements(ctx context.Context, q *question) (rows []report.Comparison, err error) {
	for _, a := range q.also {
		a.pair = q.pair
		with, without := sidesOf(&a.question)
		if a.same {
			without.commit, without.revision = with.commit, with.revision
		}
		s.identify(with, without)
		runs, err := s.fixed(ctx, &a.question, with, without, a.runs)
		if err != nil {
			return nil, err
		}
		for _, m := range a.metrics {
			rows = append(rows, a.compare(s.src.Version, m, runs))
		}
	}
	return rows, nil
}

// outcomes are the runs of one side in the order they were made.
type outcomes struct {
	*side
	runs []measure.Outcome
}

// of returns the numbers of a metric, and why there are none.
func (o outcomes) of(q question, m measure.Metric) (obs []stats.Obs, reason string) {
	q.metric, q.rules, q.threshold = m, bisect.Rules{}, nil
	for _, run := range o.runs {
		judged := q.judge(run)
		if judged.Kind != bisect.Measured {
			reason = o.name + ": " + judged.Reason
			continue
		}
		obs = append(obs, stats.Obs{X: judged.Number, Censored: judged.Censored})
	}
	if len(obs) > 0 {
		reason = ""
	}
	return obs, reason
}

// fixed makes a number of runs a side, interleaved A B B A, and returns with's
// and without's. It stops when a side's first two runs both failed.
func (s *session) fixed(ctx context.Context, q *question, with, without *side, runs int) ([2]outcomes, error) {
	out := [2]outcomes{{side: with}, {side: without}}
	show := s.env.UI.Stage(q.name + ": measure")
	for i := range 2 * runs {
		x := &out[[4]int{0, 1, 1, 0}[i%4]]
		o, err := s.trial(ctx, q, x.side)
		if err != nil {
			show.End(err)
			return out, err
		}
		x.runs = append(x.runs, o)
		show.Note(x.name)
		show.Set(int64(i+1), int64(2*runs))
		if x.failed() {
			break
		}
	}
	show.End(nil)
	return out, nil
}

// failed reports whether a side's first two runs gave nothing.
func (o outcomes) failed() bool {
	return len(o.runs) == 2 && o.runs[0].Status != measure.OK && o.runs[1].Status != measure.OK
}

// compare makes the row of one metric.
func (a *supplement) compare(version string, m measure.Metric, runs [2]outcomes) report.Comparison {
	q := a.question
	q.metric = m
	with, why1 := runs[0].of(q, m)
	without, why2 := runs[1].of(q, m)
	if len(with) == 0 || len(without) == 0 {
		return q.unmeasured(version, runs[0].side, runs[1].side, report.Untestable, orDefault(why1, why2))
	}
	c := q.row(version, runs[0].side, runs[1].side)
	s := stats.Compare(with, without, better(m), ratioLevel)
	c.SetStats(s, 0, 0)
	c.Error = report.Unknown()
	c.Verdict, c.Gate = a.verdict(s)
	return c
}

// sameWithin is how far from 1 a ratio's interval may reach while two kernels are
// called equal; that of a duel.
const sameWithin = 1.1

// verdict says what the ratio's interval and the rank test show.
func (a *supplement) verdict(s stats.Comparison) (report.Verdict, string) {
	ci, bound := s.Factor.Interval, orDefault(a.within, sameWithin)
	gate := fmt.Sprintf("the interval against %gx", bound)
	switch {
	case ci.Lo >= 1/bound && ci.Hi <= bound && (a.within > 0 || s.Effect == stats.Unclear):
		return report.NoDifference, gate
	case a.within > 0 && ci.Lo > bound:
		return report.Faster, gate
	case a.within > 0 && ci.Hi < 1/bound:
		return report.Slower, gate
	case a.within > 0 || s.Effect == stats.Unclear:
		return report.Inconclusive, gate
	case s.Effect == stats.Improvement:
		return report.Faster, "the rank test, p<0.01"
	}
	return report.Slower, "the rank test, p<0.01"
}
