package report

import (
	"bufio"
	"fmt"
	"io"
	"sort"
	"strings"
	"time"
)

// RunRow is one run in the list of `kbisect runs`.
type RunRow struct {
	ID      string    `json:"id"`
	Created time.Time `json:"created"`
	Mode    string    `json:"mode"`
	Status  string    `json:"status"` // running, done, interrupted, failed
	Verdict string    `json:"verdict"`
	Seconds float64   `json:"seconds"` // 0 when it has not ended
	Dir     string    `json:"dir"`
}

// OutcomeRow is one boot in `kbisect show`.
type OutcomeRow struct {
	Seq    int64             `json:"seq"`
	Case   string            `json:"case"`
	Side   string            `json:"side"`
	Kernel string            `json:"kernel"` // identity
	Status string            `json:"status"`
	Reason string            `json:"reason"`
	Values map[string]string `json:"values"` // metric -> value with its unit, "40.1 ms"
	Boot   float64           `json:"boot_seconds"`
	Push   float64           `json:"push_seconds"`
	Work   float64           `json:"work_seconds"`
	Total  float64           `json:"total_seconds"`
}

// BuildRow is one kernel that was built, or found in the cache, in `kbisect show`.
type BuildRow struct {
	Seq      int64   `json:"seq"`
	Revision string  `json:"revision"`
	Kernel   string  `json:"kernel"` // identity, "" when it was not built
	Cached   bool    `json:"cached"`
	Seconds  float64 `json:"seconds"`
	Error    string  `json:"error"` // "" when it was built
}

// Steps is what a run did: its builds and its boots, each in order.
type Steps struct {
	Builds   []BuildRow
	Outcomes []OutcomeRow
}

// Runs lists runs in the order given. When one began is the beginning of its id.
func Runs(w io.Writer, rows []RunRow) error {
	b := bufio.NewWriter(w)
	t := newTable("run", "mode", "status", "verdict", ">took")
	for _, r := range rows {
		took := "-"
		if r.Seconds > 0 {
			took = span(r.Seconds)
		}
		t.add(r.ID, r.Mode, r.Status, r.Verdict, took)
	}
	t.write(b)
	return b.Flush()
}

// RunsJSON is Runs for programs: {"runs": [...]}.
func RunsJSON(w io.Writer, rows []RunRow) error {
	return encode(w, struct {
		Runs []RunRow `json:"runs"`
	}{full(rows)})
}

// Show writes a run with its steps. result is nil for a run that has none:
// it was interrupted, failed or still goes on.
func Show(w io.Writer, row RunRow, result *Result, steps Steps) error {
	b := bufio.NewWriter(w)
	if result != nil {
		if err := Text(b, *result); err != nil {
			return err
		}
	} else {
		fmt.Fprintf(b, "%s: %s\n", row.ID, row.Status)
		fmt.Fprintf(b, "folder: %s\n", row.Dir)
	}
	if len(steps.Builds) > 0 {
		fmt.Fprintln(b)
		builds(b, steps.Builds)
	}
	if len(steps.Outcomes) > 0 {
		fmt.Fprintln(b)
		boots(b, steps.Outcomes)
	}
	return b.Flush()
}

// ShowJSON is Show for programs: {"run": ..., "result": ... or null,
// "builds": [...], "outcomes": [...]}.
func ShowJSON(w io.Writer, row RunRow, result *Result, steps Steps) error {
	if result != nil {
		n := result.normal()
		result = &n
	}
	return encode(w, struct {
		Run      RunRow       `json:"run"`
		Result   *Result      `json:"result"`
		Builds   []BuildRow   `json:"builds"`
		Outcomes []OutcomeRow `json:"outcomes"`
	}{row, result, full(steps.Builds), full(steps.Outcomes)})
}

// builds prints one line a kernel.
func builds(w io.Writer, rows []BuildRow) {
	t := newTable(">#", "built", "kernel", ">took", "error")
	for _, r := range rows {
		took := secs(r.Seconds)
		if r.Cached {
			took = "cached"
		}
		t.add(fmt.Sprint(r.Seq), cut(plain(r.Revision), 40), short(r.Kernel), took, cut(plain(r.Error), 60))
	}
	t.write(w)
}

// boots prints one line a boot. The values get what is left of the width.
func boots(w io.Writer, rows []OutcomeRow) {
	heads := []string{">#", "case", "side", "kernel", "status", ">boot", ">push", ">work", ">total"}
	t := newTable(append(heads, "values")...)
	for _, o := range rows {
		t.add(fmt.Sprint(o.Seq), o.Case, o.Side, short(o.Kernel), o.Status,
			secs(o.Boot), secs(o.Push), secs(o.Work), secs(o.Total), "")
	}
	left := width
	for _, n := range t.widths()[:len(heads)] {
		left -= n + 2
	}
	for i, o := range rows {
		t.rows[i+1][len(heads)] = cut(plain(valuesCell(o)), max(left, 20))
	}
	t.write(w)
}

// cut shortens text to n columns.
func cut(text string, n int) string {
	if r := []rune(text); len(r) > n {
		return string(r[:n-3]) + "..."
	}
	return text
}

// short abbreviates an identity as git does a commit.
func short(id string) string { return id[:min(len(id), 8)] }

func secs(s float64) string { return fmt.Sprintf("%.2fs", s) }

// valuesCell is "flush 40.1 ms, insert 66 ms", or why there are none.
func valuesCell(o OutcomeRow) string {
	names := make([]string, 0, len(o.Values))
	for n := range o.Values {
		names = append(names, n)
	}
	sort.Strings(names)
	for i, n := range names {
		names[i] = n + " " + o.Values[n]
	}
	return joined(", ", strings.Join(names, ", "), o.Reason)
}
