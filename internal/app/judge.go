package app

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/kbisect/kbisect/guest/proto"
	"github.com/kbisect/kbisect/internal/bisect"
	"github.com/kbisect/kbisect/internal/measure"
	"github.com/kbisect/kbisect/internal/report"
	"github.com/kbisect/kbisect/internal/stats"
)

// judge says what an outcome is for the decision: a number, a kernel that could
// not be measured, or the host's trouble.
func (q *question) judge(o measure.Outcome) bisect.Outcome {
	switch o.Status {
	case measure.OK:
	case measure.Timeout:
		if !q.metric.TimeoutIsBad {
			return bisect.Outcome{Kind: bisect.Broken, Reason: o.Reason}
		}
	case measure.Infra:
		return bisect.Outcome{Kind: bisect.InfraFail, Reason: o.Reason}
	default:
		return bisect.Outcome{Kind: bisect.Broken, Reason: o.Reason}
	}
	v, err := q.metric.Of(o)
	if err != nil {
		return bisect.Outcome{Kind: bisect.Broken, Reason: err.Error()}
	}
	if v.Censored && !q.metric.TimeoutIsBad {
		return bisect.Outcome{Kind: bisect.Broken, Reason: fmt.Sprintf(
			"stopped at the limit of %s (--limit allows more, --timeout-is-bad counts it as slow)", q.limit)}
	}
	out := bisect.Outcome{Kind: bisect.Measured, Number: v.Number, HasNumber: true, Censored: v.Censored}
	if q.rules.Rates {
		t, err := o.Value(q.metric.Exposure)
		if err != nil || t.Number <= 0 {
			return bisect.Outcome{Kind: bisect.Broken, Reason: fmt.Sprintf("no exposure: %v ns, %v", t.Number, err)}
		}
		out.Event, out.Exposure = v.Number > 0, t.Number
	}
	if q.threshold != nil {
		out.Hit, err = q.threshold.Above(o)
		if err != nil && q.rules.Threshold != 0 {
			return bisect.Outcome{Kind: bisect.Broken, Reason: err.Error()}
		}
	}
	return out
}

// side is one kernel of a question with everything measured of it so far.
type side struct {
	name     string // "with", "without"; in a search also "good", "bad", "search", "parent", ...
	tag      string // in folder names
	revision string // in words; the commit in a search
	commit   string // what is built
	layout   int    // see kbuild.Request
	identity string
	obs      []stats.Obs
	hits     []bool  // of each of obs: beyond the threshold?
	above    int     // how many are
	among    float64 // sum of the metric that rare events are counted among
}

// sidesOf returns the two sides of a question, nothing measured.
func sidesOf(q *question) (with, without *side) {
	with = &side{name: sideName(bisect.Good), tag: sideName(bisect.Good), revision: q.describe(true), commit: q.pair.With}
	without = &side{name: sideName(bisect.Bad), tag: sideName(bisect.Bad), revision: q.describe(false), commit: q.pair.Without}
	return with, without
}

// key names the side's kernel among those of the session.
func (s *side) key() string { return kernelKey(s.commit, s.layout) }

// add keeps what the final comparison needs of a measured outcome.
func (s *side) add(q *question, o measure.Outcome, judged bisect.Outcome) {
	if judged.Kind != bisect.Measured {
		return
	}
	s.obs = append(s.obs, stats.Obs{X: judged.Number, Censored: judged.Censored})
	s.hits = append(s.hits, judged.Hit)
	if judged.Hit {
		s.above++
	}
	if v, err := o.Value(q.metric.Among); err == nil {
		s.among += v.Number
	}
}

// ratioLevel is the confidence of every interval that is reported.
const ratioLevel = 0.95

// rateOf is how often a side had its rare event.
func rateOf(s *side, t bisect.Tally) report.Rate {
	r := report.Rate{Events: t.Hits, Exposure: report.Num(t.Exposure), Among: report.Unknown()}
	for _, o := range s.obs {
		r.Count += report.Num(o.X)
	}
	if s.among > 0 {
		r.Among = report.Num(s.among)
	}
	return r
}

// compare makes the row of the result from a decision.
func (q *question) compare(version string, with, without *side, d bisect.Decision) report.Comparison {
	c := q.row(version, with, without)
	c.SetStats(stats.Compare(with.obs, without.obs, better(q.metric), ratioLevel), with.above, without.above)
	if q.rules.Rates {
		c.Warnings, c.RatioConfidence = nil, ratioLevel // those were about the numbers of single runs
		c.SetRates(rateOf(with, d.Good), rateOf(without, d.Bad), ratioLevel)
		c.Ratio, c.RatioCI, c.P = report.Num(d.Ratio.Point), [2]report.Num{report.Num(d.Ratio.Lo), report.Num(d.Ratio.Hi)}, report.Num(d.P)
		c.RatioBound = ""
		if d.Ratio.AtLeast {
			c.RatioBound = string(stats.AtLeast)
		} else if d.Ratio.AtMost {
			c.RatioBound = string(stats.AtMost)
		}
	}
	c.Gate, c.Error, c.Reason = inWords(d.Gate), report.Num(d.Error), d.Reason
	for _, w := range d.Warnings {
		c.Warnings = append(c.Warnings, inWords(w))
	}
	switch d.Verdict {
	case bisect.Differ:
		c.Verdict = report.Slower
		if d.Direction == worse(q.metric.Better) {
			c.Verdict = report.Faster
		}
	case bisect.NoDifference:
		c.Verdict = report.NoDifference
	case bisect.Untestable:
		c.Verdict = report.Untestable
		c.Reason = sideName(d.Side) + ": " + d.Reason
	default:
		c.Verdict = report.Inconclusive
	}
	if c.Verdict == report.Untestable || c.Verdict == report.Inconclusive {
		c.Error = report.Unknown() // nothing is claimed
	}
	if len(with.obs) == 0 && len(without.obs) == 0 {
		gate, reason, verdict := c.Gate, c.Reason, c.Verdict
		c.Unmeasured()
		c.Gate, c.Reason, c.Verdict = gate, reason, verdict
	}
	return c
}

func better(m measure.Metric) stats.Better {
	if m.Better == proto.Higher {
		return stats.HigherIsBetter
	}
	return stats.LowerIsBetter
}

// row is a comparison without its numbers.
func (q *question) row(version string, with, without *side) report.Comparison {
	c := report.Comparison{
		Case: q.name, Title: q.title, Kernel: version, Workload: q.shownWorkload(),
		Metric: q.metric.Name, Unit: q.metric.Unit, Better: q.metric.Better, Reported: q.reported,
		With:    report.Side{Revision: with.revision, Identity: with.identity},
		Without: report.Side{Revision: without.revision, Identity: without.identity},
	}
	if q.threshold != nil {
		c.Threshold = q.threshold.String()
	}
	c.Cmdline = strings.Join(cmdlineOf(q.workload), " ")
	if q.without != q.workload {
		c.WorkloadWithout = q.without
	}
	return c
}

// unmeasured is the row of a question that no run was made for.
func (q *question) unmeasured(version string, with, without *side, v report.Verdict, reason string) report.Comparison {
	c := q.row(version, with, without)
	c.Unmeasured()
	c.Verdict, c.Reason = v, reason
	return c
}

// sideName is the duel's side in the words of a comparison.
func sideName(s bisect.Side) string {
	if s == bisect.Good {
		return "with"
	}
	return "without"
}

// inWords names the sides in what a duel says, which begins with "good" or "bad".
func inWords(text string) string {
	for _, s := range []bisect.Side{bisect.Good, bisect.Bad} {
		if rest, ok := strings.CutPrefix(text, s.String()); ok && (strings.HasPrefix(rest, ":") || strings.HasPrefix(rest, " ")) {
			return sideName(s) + rest
		}
	}
	return text
}

// sameEnvironment returns what differs between two environments that must be
// equal for their numbers to be compared, "" if nothing does. The compiler and
// the host are those of the whole run.
func sameEnvironment(a, b report.Environment) string {
	pairs := map[string][2]string{
		"disk image":   {a.Image, b.Image},
		"accelerator":  {a.Accel, b.Accel},
		"machine":      {a.Machine, b.Machine},
		"CPUs":         {fmt.Sprint(a.CPUs), fmt.Sprint(b.CPUs)},
		"memory":       {fmt.Sprint(a.MemoryMiB), fmt.Sprint(b.MemoryMiB)},
		"clock source": {a.Clocksource, b.Clocksource},
		"HZ":           {fmt.Sprint(a.HZ), fmt.Sprint(b.HZ)},
		"command line": {a.Cmdline, b.Cmdline},
	}
	for _, name := range slices.Sorted(maps.Keys(pairs)) {
		if p := pairs[name]; p[0] != p[1] {
			return fmt.Sprintf("this boot has %s %q, earlier ones %q: not comparable", name, p[1], p[0])
		}
	}
	return ""
}
