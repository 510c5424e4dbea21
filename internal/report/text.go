package report

import (
	"bufio"
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/kbisect/kbisect/guest/proto"
	"github.com/kbisect/kbisect/internal/measure"
)

// Text writes the result for people: a table of the cases, then how it was
// measured. It fits 100 columns and is the same for the same result.
func Text(w io.Writer, r Result) error {
	b := bufio.NewWriter(w)
	if r.Question != nil {
		bisection(b, r)
	}
	if len(r.Comparisons) > 0 {
		comparisons(b, r.Comparisons)
		fmt.Fprintln(b)
	}
	for _, c := range r.Comparisons {
		supplements(b, c)
	}
	for _, s := range r.Sweeps {
		sweep(b, s)
	}
	fmt.Fprintln(b, "how it was measured")
	f := &fields{w: b, name: nameWidth(r)}
	for _, c := range r.Comparisons {
		how(f, c)
	}
	environment(f, r.Environment)
	costs(f, r.Costs)
	for _, warning := range r.Warnings {
		f.last = ""
		f.put("warning", "%s", warning)
	}
	f.put("run", "%s", r.ID)
	f.put("folder", "%s", r.RunDir)
	return b.Flush()
}

// nameWidth is the widest name of a field: "command line" or a case.
func nameWidth(r Result) int {
	n := len("command line")
	for _, c := range r.Comparisons {
		n = max(n, len(c.Case))
	}
	return min(n, 30)
}

// comparisons prints the table, a case in one line and its report in the next.
func comparisons(w io.Writer, cs []Comparison) {
	t := newTable("case", "kernel", ">without", ">with", ">ratio", "interval", "verdict")
	for _, c := range cs {
		t.add(c.Case, c.Kernel, sideCell(c.Without, c.Unit), sideCell(c.With, c.Unit),
			ratioCell(c), intervalCell(c), string(c.Verdict))
		if p := c.Reported; p != nil {
			t.add("  as reported", p.Kernel, reportedCell(*p, p.Without), reportedCell(*p, p.With), reportedRatio(c.Better, *p), "", "")
		}
	}
	t.write(w)
}

func sideCell(s Side, u proto.Unit) string {
	if s.N == 0 || !s.Median.Known() {
		return "-"
	}
	return measure.Format(measure.Value{Number: float64(s.Median), Unit: u, Censored: s.MedianCensored})
}

func number(n Num, u proto.Unit) string {
	if !n.Known() {
		return "-"
	}
	return measure.FormatNumber(float64(n), u)
}

func ratioCell(c Comparison) string {
	if !c.Ratio.Known() || c.With.N == 0 || c.Without.N == 0 {
		return "-"
	}
	return c.RatioBound + times(c.Ratio)
}

func intervalCell(c Comparison) string {
	if ratioCell(c) == "-" || !c.RatioCI[0].Known() || c.RatioConfidence <= 0 { // one run a side has none
		return ""
	}
	if !c.RatioCI[1].Known() { // no run bounds it
		return fmt.Sprintf("over %s (%s)", times(c.RatioCI[0]), percent(c.RatioConfidence))
	}
	return fmt.Sprintf("%s-%s (%s)", times(c.RatioCI[0]), times(c.RatioCI[1]), percent(c.RatioConfidence))
}

func reportedCell(p Reported, n Num) string {
	if p.Approximate && n.Known() {
		return "~" + number(n, p.Unit)
	}
	return number(n, p.Unit)
}

// reportedRatio is how many times better the report's figures are.
func reportedRatio(better proto.Better, p Reported) string {
	a, b := float64(p.Without), float64(p.With)
	if better == proto.Higher {
		a, b = b, a
	}
	if !p.With.Known() || !p.Without.Known() || b == 0 || p.Approximate {
		return "-"
	}
	return times(Num(a / b))
}

// times prints a factor with three digits: "389x", "4.46x", "1090x".
func times(n Num) string {
	f, err := strconv.ParseFloat(strconv.FormatFloat(float64(n), 'e', 2, 64), 64)
	if err != nil || !n.Known() {
		return "-"
	}
	if f >= 1e6 {
		return strconv.FormatFloat(f, 'g', 3, 64) + "x"
	}
	return strconv.FormatFloat(f, 'f', -1, 64) + "x"
}

func percent(n Num) string {
	return strconv.FormatFloat(math.Floor(float64(n)*1000)/10, 'f', -1, 64) + " %"
}

// how says from what a row of the table was made.
func how(f *fields, c Comparison) {
	f.last = ""
	if c.Title != "" {
		f.put(c.Case, "%s", c.Title)
	}
	if c.Metric != "" {
		f.put(c.Case, "median %s of %s, a fresh boot each, %s is better", c.Metric, c.Workload, c.Better)
	}
	if c.Cmdline != "" {
		f.put(c.Case, "booted with %s, too", c.Cmdline)
	}
	if c.WorkloadWithout != "" {
		f.put(c.Case, "without the patch the workload is %s", c.WorkloadWithout)
	}
	if c.With.N > 0 || c.Without.N > 0 {
		f.put(c.Case, "without: %s", runs(c.Without, c))
		f.put(c.Case, "with:    %s", runs(c.With, c))
	}
	if c.Rates != nil {
		f.put(c.Case, "without: %s", rate(c.Rates.Without, c.Rates.Level))
		f.put(c.Case, "with:    %s", rate(c.Rates.With, c.Rates.Level))
	}
	if s := decision(c); s != "" {
		f.put(c.Case, "%s", s)
	}
	if c.Reason != "" {
		f.put(c.Case, "%s: %s", c.Verdict, c.Reason)
	}
	if p := c.Reported; p != nil {
		if s := joined(", ", p.What, p.Author, p.Where); s != "" {
			f.put(c.Case, "report: %s", s)
		}
	}
	for _, w := range c.Warnings {
		f.put(c.Case, "warning: %s", w)
	}
}

// runs is "6 boots, 14.9 s to 16.2 s, 6 of them flush>500ms".
func runs(s Side, c Comparison) string {
	if s.N == 0 {
		return "not measured"
	}
	text := fmt.Sprintf("%s, %s to %s", plural(s.N, "boot"), number(s.Min, c.Unit), number(s.Max, c.Unit))
	if c.Threshold != "" {
		text += fmt.Sprintf(", %d of them %s", s.Above, c.Threshold)
	}
	if s.Censored > 0 {
		text += fmt.Sprintf(", %d cut off at the limit", s.Censored)
	}
	return text
}

// decision is the rule that decided, and what is known of its errors.
func decision(c Comparison) string {
	var parts []string
	if c.Gate != "" {
		parts = append(parts, "decided by "+c.Gate)
	}
	if c.P.Known() && c.With.N > 0 && c.Without.N > 0 {
		parts = append(parts, "p = "+small(c.P))
	}
	if c.Error.Known() && c.Error > 0 {
		parts = append(parts, "error probability at most "+small(c.Error))
	}
	return strings.Join(parts, "; ")
}

func small(n Num) string { return strconv.FormatFloat(float64(n), 'g', 2, 64) }

// joined joins what is not empty.
func joined(sep string, parts ...string) string {
	var out []string
	for _, p := range parts {
		if p != "" {
			out = append(out, p)
		}
	}
	return strings.Join(out, sep)
}

// is returns format with v, or "" if v is the zero value.
func is[T comparable](format string, v T) string {
	var zero T
	if v == zero {
		return ""
	}
	return fmt.Sprintf(format, v)
}

func environment(f *fields, e Environment) {
	accel := strings.ToUpper(e.Accel)
	if e.AccelReason != "" {
		accel += " (" + e.AccelReason + ")"
	}
	if s := joined(", ", accel, e.Machine, e.Firmware, is("QEMU %s", e.QEMU), is("%d CPUs", e.CPUs), is("%d MiB", e.MemoryMiB)); s != "" {
		f.put("guest", "%s", s)
	}
	if s := joined(", ", is("HZ %d", e.HZ), is("clocksource %s", e.Clocksource), is("built by %s", e.Compiler)); s != "" {
		f.put("kernel", "%s", s)
	}
	if e.Cmdline != "" {
		f.put("command line", "%s", e.Cmdline)
	}
	h := e.Host
	if s := joined(", ", h.CPU, is("%d CPUs", h.CPUs), is("%d MiB", h.MemoryMiB), is("Linux %s", h.Kernel), h.Distribution); s != "" {
		f.put("host", "%s", s)
	}
}

func costs(f *fields, c Costs) {
	f.put("costs", "%s", joined(", ",
		plural(c.Builds, "build")+in(c.BuildSeconds),
		is("%d from the cache", c.BuildsCached),
		plural(c.Runs, "run")+in(c.RunSeconds),
		repeated(c.Retries),
		span(c.Seconds)+" in all"))
}

func plural(n int, word string) string {
	if n == 1 {
		return "1 " + word
	}
	return fmt.Sprintf("%d %ss", n, word)
}

func repeated(n int) string {
	if n == 0 {
		return ""
	}
	return plural(n, "boot") + " repeated"
}

func in(seconds float64) string {
	if seconds <= 0 {
		return ""
	}
	return " in " + span(seconds)
}

// span prints a time that people wait for: "0.4 s", "12 s", "4 min 40 s", "2 h 5 min".
func span(seconds float64) string {
	if seconds < 9.95 {
		return strconv.FormatFloat(max(seconds, 0), 'f', 1, 64) + " s"
	}
	d := time.Duration(seconds * float64(time.Second)).Round(time.Second)
	h, m, s := int(d.Hours()), int(d.Minutes())%60, int(d.Seconds())%60
	switch {
	case h > 0:
		return fmt.Sprintf("%d h %d min", h, m)
	case m > 0:
		return fmt.Sprintf("%d min %d s", m, s)
	}
	return fmt.Sprintf("%d s", s)
}
