package app

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/kbisect/kbisect/internal/report"
	"github.com/kbisect/kbisect/internal/stats"
	"github.com/kbisect/kbisect/internal/ui"
)

const (
	// sweepRuns is how many runs a side a point of a sweep has, unless one takes
	// longer than sweepSlow: then it is the only one, since a curve over decades
	// shows in single runs.
	sweepRuns = 3
	sweepSlow = 30 * time.Second
	// sweepLimit bounds a run of a sweep: a case's limit is for its own size.
	sweepLimit = 30 * time.Minute
	// maxPoints bounds a sweep.
	maxPoints = 20
)

// sweepRange is what --sweep asks for: a parameter and its values, ascending.
type sweepRange struct {
	parameter string
	values    []int64
}

// parseSweep reads "count=100,1000,4000".
func parseSweep(s string) (sweepRange, error) {
	const hint = "--sweep count=100,1000,4000,16384"
	name, list, ok := strings.Cut(s, "=")
	r := sweepRange{parameter: strings.TrimSpace(name)}
	if !ok || r.parameter == "" {
		return r, Usagef(hint, "--sweep %q: want PARAMETER=VALUE,VALUE...", s)
	}
	for _, v := range strings.Split(list, ",") {
		n, err := strconv.ParseInt(strings.TrimSpace(v), 10, 64)
		if err != nil || n < 1 {
			return r, Usagef(hint, "--sweep %q: %q is not a whole number above 0", s, v)
		}
		r.values = append(r.values, n)
	}
	slices.Sort(r.values)
	if n := len(slices.Compact(slices.Clone(r.values))); n != len(r.values) || n < 2 || n > maxPoints {
		return r, Usagef(hint, "--sweep %q: want 2 to %d different values", s, maxPoints)
	}
	return r, nil
}

// at returns a workload specification with the parameter set to a value.
func (r sweepRange) at(spec string, value int64) string {
	return override(spec, fmt.Sprintf("%s,%s=%d", workloadName(spec), r.parameter, value))
}

// checkSweep refuses a sweep that a question's workloads cannot do.
func checkSweep(o RunOptions, questions []*question) error {
	if o.Sweep == "" {
		return nil
	}
	r, err := parseSweep(o.Sweep)
	if err != nil {
		return err
	}
	for _, q := range questions {
		for _, spec := range []string{q.workload, q.without} {
			for _, v := range r.values {
				if _, _, err := parseWorkload(r.at(spec, v)); err != nil {
					return Usagef("kbisect list workloads shows parameters and bounds", "--sweep %q, %s: %v", o.Sweep, q.name, err)
				}
			}
		}
	}
	return nil
}

// sweep measures a question's metric at every value of the parameter, smallest
// first.
func (s *session) sweep(ctx context.Context, q *question) (report.Sweep, error) {
	r, err := parseSweep(s.opts.Sweep)
	if err != nil {
		return report.Sweep{}, err
	}
	out := report.Sweep{Case: q.name, Kernel: s.src.Version, Workload: q.workload, Metric: q.metric.Name, Unit: q.metric.Unit,
		Better: q.metric.Better, Parameter: r.parameter}
	var curves [2]curve
	for _, v := range r.values {
		p := report.SweepPoint{Value: v, Ratio: report.Unknown(), Reason: s.cannot(q)}
		if p.Reason == "" {
			runs, err := s.point(ctx, q, r, v)
			if err != nil {
				return out, err
			}
			p = pointOf(q, v, runs, &curves)
		}
		out.Points = append(out.Points, p)
	}
	out.With, out.Without = curves[0].exponent(), curves[1].exponent()
	return out, nil
}

// cannot says why a question's kernels cannot be measured, "" if they can.
func (s *session) cannot(q *question) string {
	if q.why != "" {
		return q.why
	}
	for _, commit := range []string{q.pair.With, q.pair.Without} {
		if err := s.broken[commit]; err != nil {
			return err.Error()
		}
	}
	return ""
}

// point measures one value.
func (s *session) point(ctx context.Context, q *question, r sweepRange, value int64) ([2]outcomes, error) {
	at := *q
	at.name = fmt.Sprintf("%s+%s=%d", q.name, r.parameter, value)
	at.workload, at.without = r.at(q.workload, value), r.at(q.without, value)
	at.limit = orDefault(s.opts.Limit, sweepLimit)
	with, without := sidesOf(&at)
	s.identify(with, without)
	begin := time.Now()
	first, err := s.fixed(ctx, &at, with, without, 1)
	if err != nil || time.Since(begin) > sweepSlow {
		return first, err
	}
	rest, err := s.fixed(ctx, &at, with, without, sweepRuns-1)
	for i := range first {
		first[i].runs = append(first[i].runs, rest[i].runs...)
	}
	return first, err
}

// pointOf sums up the runs of one value, and adds them to the curves.
func pointOf(q *question, value int64, runs [2]outcomes, curves *[2]curve) report.SweepPoint {
	p := report.SweepPoint{Value: value}
	var sides [2][]stats.Obs
	for i, o := range runs {
		obs, reason := o.of(*q, q.metric)
		sides[i] = obs
		if reason != "" {
			p.Reason = reason
		}
		for _, x := range obs {
			curves[i].add(value, x.X)
		}
	}
	c := stats.Compare(sides[0], sides[1], better(q.metric), ratioLevel)
	p.With, p.Without, p.Ratio = report.SideOf(c.With, 0), report.SideOf(c.Without, 0), report.Num(c.Factor.Point)
	for i, side := range []*report.Side{&p.With, &p.Without} {
		side.Revision, side.Identity = runs[i].revision, runs[i].identity
	}
	return p
}

// curve is a metric's numbers over a parameter's.
type curve struct{ x, y []float64 }

func (c *curve) add(x int64, y float64) {
	if y > 0 {
		c.x, c.y = append(c.x, float64(x)), append(c.y, y)
	}
}

func (c *curve) exponent() report.Exponent {
	e, err := stats.PowerLaw(c.x, c.y)
	return report.Exponent{Value: report.Num(e), Error: report.Num(err)}
}

// cost says how many runs a sweep makes at least and at most.
func (r sweepRange) cost(questions int) string {
	n := 2 * len(r.values) * questions
	return fmt.Sprintf("%d to %d runs and their workloads, at most %s each", n, sweepRuns*n, ui.Span(sweepLimit))
}
