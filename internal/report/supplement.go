package report

import (
	"fmt"
	"io"
	"math"
	"strconv"

	"github.com/kbisect/kbisect/guest/proto"
	"github.com/kbisect/kbisect/internal/measure"
)

// supplements prints what was measured beside a case's question, one table for
// each title.
func supplements(w io.Writer, c Comparison) {
	for rows := c.Also; len(rows) > 0; {
		n := 1
		for n < len(rows) && rows[n].Title == rows[0].Title {
			n++
		}
		fmt.Fprintf(w, "%s: %s\n", c.Case, rows[0].Title)
		supplement(w, rows[:n])
		fmt.Fprintln(w)
		rows = rows[n:]
	}
}

func supplement(w io.Writer, rows []Comparison) {
	t := newTable("metric", ">without", ">with", ">delta", "interval", "verdict")
	for _, c := range rows {
		t.add(c.Metric, sideCell(c.Without, c.Unit), sideCell(c.With, c.Unit), deltaCell(c), deltaInterval(c), joined(", ", string(c.Verdict), c.Reason))
	}
	t.write(w)
	c := rows[0]
	if c.WorkloadWithout != "" && c.With.Identity == c.Without.Identity {
		fmt.Fprintf(w, "with: %s\nwithout: %s\nboth on %s, %s each\n", c.Workload, c.WorkloadWithout, c.With.Revision, plural(c.With.N, "boot"))
		return
	}
	fmt.Fprintf(w, "%s, %s each\n", c.Workload, plural(c.With.N, "boot"))
}

// deltaCell is how much more the number is with the patch, in percent.
func deltaCell(c Comparison) string {
	a, b := float64(c.Without.Median), float64(c.With.Median)
	if math.IsNaN(a) || math.IsNaN(b) || a == 0 {
		return "-"
	}
	return signed(100 * (b/a - 1))
}

// deltaInterval turns the interval of the improvement factor into percent.
func deltaInterval(c Comparison) string {
	lo, hi := c.RatioCI[0], c.RatioCI[1]
	if !lo.Known() || !hi.Known() || lo <= 0 {
		return ""
	}
	a, b := 100*(1/float64(hi)-1), 100*(1/float64(lo)-1)
	if c.Better == proto.Higher {
		a, b = 100*(float64(lo)-1), 100*(float64(hi)-1)
	}
	return fmt.Sprintf("%s to %s (%s)", signed(a), signed(b), percent(c.RatioConfidence))
}

// signed prints a change in percent with three digits: "-3.75 %", "4 %".
func signed(x float64) string {
	if math.Abs(x) >= 1000 {
		return fmt.Sprintf("%+.0f %%", x)
	}
	return strconv.FormatFloat(round3(x), 'f', -1, 64) + " %"
}

// round3 rounds to three digits, at most two behind the point.
func round3(x float64) float64 {
	digits := 2
	if x != 0 {
		digits = min(2, 2-int(math.Floor(math.Log10(math.Abs(x)))))
	}
	scale := math.Pow(10, float64(digits))
	return math.Round(x*scale) / scale
}

// rate is "1321 of 30000; 6 runs with one, in 1.82 s of exposure: 3.3 a second
// (1.4 to 6.6, 95 %)", or without an event the bound that the time supports.
func rate(r Rate, level Num) string {
	seen := strconv.FormatFloat(float64(r.Count), 'f', -1, 64)
	if r.Among.Known() {
		seen += " of " + strconv.FormatFloat(float64(r.Among), 'f', -1, 64)
	}
	exposure := measure.FormatNumber(float64(r.Exposure), proto.Nanoseconds)
	if r.Events == 0 {
		return fmt.Sprintf("%s in %s: at most %s a second (%s)", seen, exposure, perSecond(r.CI[1]), percent(level))
	}
	return fmt.Sprintf("%s; %s with one, in %s of exposure: %s a second (%s to %s, %s)", seen, plural(r.Events, "run"),
		exposure, perSecond(r.PerSecond), perSecond(r.CI[0]), perSecond(r.CI[1]), percent(level))
}

// perSecond prints a rate with three digits.
func perSecond(n Num) string {
	if n != 0 && math.Abs(float64(n)) < 0.01 {
		return small(n)
	}
	return strconv.FormatFloat(round3(float64(n)), 'f', -1, 64)
}

// sweep prints a metric's growth with a parameter.
func sweep(w io.Writer, s Sweep) {
	fmt.Fprintf(w, "%s: %s of %s on %s as %s grows\n", s.Case, s.Metric, s.Workload, s.Kernel, s.Parameter)
	t := newTable(">"+s.Parameter, ">without", ">with", ">ratio", ">boots", "")
	for _, p := range s.Points {
		t.add(strconv.FormatInt(p.Value, 10), sideCell(p.Without, s.Unit), sideCell(p.With, s.Unit), times(p.Ratio),
			fmt.Sprintf("%d, %d", p.Without.N, p.With.N), p.Reason)
	}
	t.add("exponent", exponent(s.Without), exponent(s.With), "", "", "")
	t.write(w)
	fmt.Fprintf(w, "exponent: %s grows as %s to this power; 1 is linear, 2 quadratic\n\n", s.Metric, s.Parameter)
}

func exponent(e Exponent) string {
	switch {
	case !e.Value.Known():
		return "-"
	case !e.Error.Known():
		return fmt.Sprintf("%.2f", float64(e.Value))
	}
	return fmt.Sprintf("%.2f ± %.2f", float64(e.Value), float64(e.Error))
}
