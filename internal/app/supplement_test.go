package app

import (
	"context"
	"errors"
	"math"
	"path/filepath"
	"strings"
	"testing"

	"github.com/kbisect/kbisect/guest/proto"
	"github.com/kbisect/kbisect/internal/bisect"
	"github.com/kbisect/kbisect/internal/measure"
	"github.com/kbisect/kbisect/internal/report"
	"github.com/kbisect/kbisect/vm"
	"github.com/kbisect/kbisect/vm/vmtest"
)

// caseToml is a case of world's patch; more is added to it.
const caseToml = `title = "t"
workload = "nexthop-delete"
metric = "flush"
threshold = "flush>100ms"
limit = "1m"
[report]
without = "2s"
with = "1s"
[[patch]]
file = "fast.patch"
`

// catalog makes a catalog of one case, "wait", with its patch.
func (w *world) catalog(toml string) RunOptions {
	dir := w.t.TempDir()
	w.write(filepath.Join(dir, "wait/case.toml"), toml)
	w.write(filepath.Join(dir, "wait/fast.patch"), slowPatch)
	o := w.options()
	o.Patch, o.Workload, o.Metric, o.Catalog, o.All = "", "", "", dir, true
	return o
}

// TestSupplements: what a case compares beside its question is measured after it,
// printed in rows of its own, and has no part in the verdict.
func TestSupplements(t *testing.T) {
	skipWithoutGo(t)
	w := newWorld(t)
	o := w.catalog(caseToml + `
[[also]]
title = "ten times as many"
workload = "nexthop-delete,count=10000"
metrics = ["flush"]
runs = 7
[[also]]
title = "half and whole, both with the patch"
workload = "nexthop-delete,count=500"
workload_without = "nexthop-delete,count=1000"
without_kernel = "with"
metrics = ["flush"]
within = 1.3
[[also]]
title = "a metric that no run reports"
workload = "nexthop-delete"
metrics = ["insert"]
`)
	c := w.must(o, report.Faster)
	if len(c.Also) != 3 {
		t.Fatalf("%d rows", len(c.Also))
	}
	big, half, none := c.Also[0], c.Also[1], c.Also[2]
	if big.Verdict != report.Faster || big.With.N != 7 || big.Ratio < 200 || big.Ratio > 260 {
		t.Errorf("ten times as many: %s, %d runs, ratio %v", big.Verdict, big.With.N, big.Ratio)
	}
	if half.With.Identity != half.Without.Identity || half.With.N != 6 || math.Abs(float64(half.Ratio)-2) > 0.2 || half.Verdict != report.Faster {
		t.Errorf("half and whole: %s, ratio %v, kernels %.8s and %.8s", half.Verdict, half.Ratio, half.With.Identity, half.Without.Identity)
	}
	// Nothing reported is nothing measured, and two runs a side are enough to know.
	if none.Verdict != report.Untestable || none.With.N != 0 || none.Reason == "" {
		t.Errorf("a metric that no run reports: %s (%s)", none.Verdict, none.Reason)
	}
}

// TestWorkloadWithout: the kernel without the patch runs what it can.
func TestWorkloadWithout(t *testing.T) {
	skipWithoutGo(t)
	w := newWorld(t)
	c := w.must(w.catalog(strings.Replace(caseToml, "metric =", "workload_without = \"nexthop-delete,count=2000\"\nmetric =", 1)), report.Faster)
	if c.WorkloadWithout != "nexthop-delete,count=2000" || c.Ratio < 400 || c.Ratio > 520 {
		t.Errorf("without ran %q, ratio %v", c.WorkloadWithout, c.Ratio)
	}
}

// TestSweep: the fake's flush grows with count, on both kernels.
func TestSweep(t *testing.T) {
	skipWithoutGo(t)
	w := newWorld(t)
	o := w.options()
	o.Sweep = "count=10000,1000,100"
	res, err := w.run(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	if res.Verdict != report.Swept || len(res.Comparisons) != 0 || len(res.Sweeps) != 1 {
		t.Fatalf("%s, %d comparisons, %d sweeps", res.Verdict, len(res.Comparisons), len(res.Sweeps))
	}
	s := res.Sweeps[0]
	if len(s.Points) != 3 || s.Points[0].Value != 100 || s.Points[2].With.N != sweepRuns || len(w.boots) != 18 {
		t.Errorf("points %+v after %d boots", s.Points, len(w.boots))
	}
	if math.Abs(float64(s.Without.Value)-1) > 0.02 || math.Abs(float64(s.With.Value)-1) > 0.05 {
		t.Errorf("exponents %+v and %+v of a linear cost", s.With, s.Without)
	}
	if back, err := report.ReadFile(filepath.Join(res.RunDir, "result.json")); err != nil || len(back.Sweeps) != 1 {
		t.Errorf("read back: %v", err)
	}
}

func TestSweepErrors(t *testing.T) {
	w := newWorld(t)
	for text, want := range map[string]string{
		"count":            `--sweep "count"`,
		"=1,2":             `--sweep "=1,2"`,
		"count=1":          "2 to 20 different values",
		"count=1,1":        "2 to 20 different values",
		"count=1,many":     `"many"`,
		"count=0,5":        `"0"`,
		"cuont=1,2":        `did you mean "count"`,
		"count=1,99999999": `"99999999" is not a number from 1 to 100000`,
	} {
		o := w.options()
		o.Sweep = text
		var usage *UsageError
		if _, err := NewPlan(t.Context(), w.env, o); !errors.As(err, &usage) || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want a usage error with %q", text, err, want)
		}
	}
}

// TestRates: a count of rare events is judged by how long it took to the first.
func TestRates(t *testing.T) {
	q := &question{metric: measure.Metric{Name: "stuck", Unit: proto.Count, Better: proto.Lower, Exposure: "exposure", Among: "frames"},
		rules: bisect.Rules{Rates: true}}
	outcome := func(stuck, exposure float64) measure.Outcome {
		return measure.Outcome{Status: measure.OK, Values: map[string]measure.Value{"stuck": {Number: stuck},
			"exposure": {Number: exposure, Unit: proto.Nanoseconds}, "frames": {Number: 1000}}}
	}
	if o := q.judge(outcome(7, 2e8)); o.Kind != bisect.Measured || !o.Event || o.Exposure != 2e8 {
		t.Errorf("seven events: %+v", o)
	}
	if o := q.judge(outcome(0, 5e9)); o.Kind != bisect.Measured || o.Event || o.Exposure != 5e9 {
		t.Errorf("no event: %+v", o)
	}
	if o := q.judge(outcome(0, 0)); o.Kind != bisect.Broken {
		t.Errorf("no exposure: %+v", o)
	}
	var s side
	for range 3 {
		o := outcome(7, 2e8)
		s.add(q, o, q.judge(o))
	}
	if r := rateOf(&s, bisect.Tally{Hits: 3, Exposure: 6e8}); r.Events != 3 || r.Count != 21 || r.Among != 3000 || r.Exposure != 6e8 {
		t.Errorf("rate %+v", r)
	}
}

// TestResumeSupplements: what was measured before an interruption is not measured
// again, in any part of a case.
func TestResumeSupplements(t *testing.T) {
	skipWithoutGo(t)
	w := newWorld(t)
	ctx, cancel := context.WithCancel(t.Context())
	w.machine = func(_ string, boot int, m *vmtest.Machine) (vm.Machine, error) {
		if boot == 16 {
			cancel()
		}
		return m, nil
	}
	o := w.catalog(caseToml + "[[also]]\ntitle = \"again\"\nworkload = \"nexthop-delete,count=500\"\nmetrics = [\"flush\"]\n")
	if _, err := w.run(ctx, o); err == nil {
		t.Fatal("it was not interrupted")
	}
	before := len(w.boots)
	w.machine = func(_ string, _ int, m *vmtest.Machine) (vm.Machine, error) { return m, nil }
	res, err := Resume(t.Context(), w.env, "")
	if err != nil {
		t.Fatal(err)
	}
	if n := len(w.boots) - before; n < 8 || n > 9 {
		t.Errorf("%d boots after %d of 24", n, before)
	}
	if len(res.Comparisons[0].Also) != 1 || res.Comparisons[0].Also[0].With.N != 6 {
		t.Errorf("rows %+v", res.Comparisons[0].Also)
	}
}

// TestCaseWorkload: parameters given for a case's workload replace the case's on
// both sides; another workload is another question, of which nothing was reported.
func TestCaseWorkload(t *testing.T) {
	w := newWorld(t)
	o := w.catalog(strings.Replace(caseToml, "metric =", "workload_without = \"nexthop-delete,flush=del\"\nmetric =", 1))
	o.All, o.Cases = false, []string{"wait"}
	tests := []struct{ workload, with, without string }{
		{"", "nexthop-delete", "nexthop-delete,flush=del"},
		{"nexthop-delete,count=7", "nexthop-delete,count=7", "nexthop-delete,flush=del,count=7"},
		{"nexthop-delete,flush=down", "nexthop-delete,flush=down", "nexthop-delete,flush=down"},
		{"netdev-delete,count=7", "netdev-delete,count=7", "netdev-delete,count=7"},
	}
	for _, tt := range tests {
		o.Workload = tt.workload
		p, err := NewPlan(t.Context(), w.env, o)
		if err != nil {
			t.Fatalf("%s: %v", tt.workload, err)
		}
		q := p.questions[0]
		if q.workload != tt.with || q.without != tt.without {
			t.Errorf("%s: with %s, without %s", tt.workload, q.workload, q.without)
		}
		if (q.reported == nil) != strings.HasPrefix(tt.workload, "netdev") {
			t.Errorf("%s: report %+v", tt.workload, q.reported)
		}
	}
}

// TestCaseErrors: a mistake in a case is blamed on the case.
func TestCaseErrors(t *testing.T) {
	w := newWorld(t)
	for _, tt := range []struct{ old, new, want string }{
		{`metric = "flush"`, `metric = "flsh"`, "case wait: metric: "},
		{"flush>100ms", "flush>fast", "case wait: threshold: "},
		{`workload = "nexthop-delete"`, `workload = "nexthop-delte"`, "case wait: "},
		{`limit = "1m"`, "limit = \"1m\"\nkconfigs = [\"base\", \"dumy\"]", `case wait: kconfigs: kconfig fragment "dumy"`},
		{`limit = "1m"`, "limit = \"1m\"\nworkload_without = \"pktgen\"", "case wait: metric of pktgen: "},
		{`file = "fast.patch"`, "file = \"fast.patch\"\n[[also]]\ntitle = \"t\"\nworkload = \"nexthop-delete\"\nmetrics = [\"no\"]", "case wait: [[also]] 1: metrics: "},
	} {
		_, err := NewPlan(t.Context(), w.env, w.catalog(strings.Replace(caseToml, tt.old, tt.new, 1)))
		var usage *UsageError
		if !errors.As(err, &usage) || !strings.HasPrefix(err.Error(), tt.want) {
			t.Errorf("%s: got %v, want a usage error that begins with %q", tt.new, err, tt.want)
		}
	}
	o := w.catalog(caseToml)
	w.write(filepath.Join(o.Catalog, "wait/fast.patch"), "")
	if _, err := NewPlan(t.Context(), w.env, o); !errors.As(err, new(*UsageError)) || !strings.HasPrefix(err.Error(), "case wait: ") {
		t.Errorf("empty patch: %v", err)
	}
}
