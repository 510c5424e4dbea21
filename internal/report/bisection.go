package report

import (
	"fmt"
	"io"
	"strings"
)

// bisection prints what a search found, and from what.
func bisection(w io.Writer, r Result) {
	f := &fields{w: w, name: len("credible set")}
	fmt.Fprintf(w, "%s\n", cut(headline(r), width))
	if r.Reason != "" {
		f.put("because", "%s", r.Reason)
	}
	if c := r.Culprit; c != nil {
		culprit(f, *c, *r.Question)
	} else {
		suspects(f, r)
	}
	if e := r.Ends; e != nil {
		ends(f, *e, *r.Question)
	}
	fmt.Fprintln(w)
	if len(r.Steps) > 0 {
		steps(w, r)
		fmt.Fprintln(w)
	}
	if r.BisectLog != "" {
		f.put("bisect log", "%s (git bisect replay reads it)", r.BisectLog)
		fmt.Fprintln(w)
	}
}

// headline is the answer in one line.
func headline(r Result) string {
	q := r.Question
	c := r.Culprit
	switch {
	case r.Verdict == Found && c != nil:
		return fmt.Sprintf("found: %s %s moved %s of %s", c.Kind, name12(c.Revision), q.Metric, q.Workload)
	case c != nil:
		return fmt.Sprintf("%s: one of several revisions up to %s moved %s of %s", r.Verdict, name12(c.Revision), q.Metric, q.Workload)
	}
	return fmt.Sprintf("%s: %s of %s, %d revisions", r.Verdict, q.Metric, q.Workload, q.Revisions)
}

func name12(rev string) string { return rev[:min(len(rev), 12)] }

func culprit(f *fields, c Culprit, q Question) {
	f.put("culprit", "%s %s", c.Kind, c.Revision)
	f.put("culprit", "%s", plain(c.Subject))
	f.put("posterior", "%s (%s if all were suspected alike)", percent(Num(c.Confidence)), percent(c.Uniform))
	layout := "fresh boots of the same kernels"
	if c.Layout > 0 {
		layout = "kernels built with another code layout"
	}
	f.put("confirmed", "parent %s %s v %s, %d pairs on %s, e-value %.3g: error probability at most %s",
		name12(c.Parent), sideCell(c.ParentRuns, q.Unit), sideCell(c.CulpritRuns, q.Unit), c.Pairs, layout, float64(c.EValue), small(min(1, 1/c.EValue)))
	if c.Share.Known() {
		f.put("explains", "%.0f %% of the step from good to bad", 100*float64(c.Share))
	}
	if c.Revert != "" {
		f.put("revert", "%s", c.Revert)
	}
}

// suspects prints the credible set of a search that named nothing.
func suspects(f *fields, r Result) {
	const most = 10
	for i, s := range r.CredibleSet {
		if i == most {
			f.put("credible set", "and %d more", len(r.CredibleSet)-most)
			break
		}
		f.put("credible set", "%s %s (%s)", name12(s.Revision), plain(s.Subject), percent(Num(s.Probability)))
	}
}

func ends(f *fields, e Ends, q Question) {
	for _, s := range []struct {
		name string
		side Side
	}{{"good end", e.Good}, {"bad end", e.Bad}} {
		f.put(s.name, "%s", endLine(s.side, q))
	}
	var parts []string
	if e.Ratio.Known() {
		parts = append(parts, times(e.Ratio)+" between them when verified")
	}
	if e.Gate != "" {
		parts = append(parts, "decided by "+e.Gate)
	}
	if len(parts) > 0 {
		f.put("ends", "%s", strings.Join(parts, ", "))
	}
	if q.Rule != "" {
		f.put("rule", "%s", q.Rule)
	}
}

func endLine(s Side, q Question) string {
	if s.N == 0 {
		return name12(s.Revision) + ", not measured"
	}
	c := Comparison{Unit: q.Unit, Threshold: q.Threshold}
	return fmt.Sprintf("%s, median %s, %s", name12(s.Revision), sideCell(s, q.Unit), runs(s, c))
}

// steps prints the probed revisions in the order of the history.
func steps(w io.Writer, r Result) {
	t := newTable("probed", "is", ">runs", ">median", "subject")
	for _, s := range r.Steps {
		text := s.Subject
		if s.Reason != "" {
			text = s.Reason
		}
		t.add(name12(s.Revision), s.Status, fmt.Sprint(s.Side.N), sideCell(s.Side, r.Question.Unit), cut(plain(text), 60))
	}
	t.write(w)
}
