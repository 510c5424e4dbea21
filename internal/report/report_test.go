package report

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	"github.com/rogpeppe/go-internal/txtar"

	"github.com/kbisect/kbisect/guest/proto"
	"github.com/kbisect/kbisect/internal/stats"
)

var update = flag.Bool("update", false, "rewrite the golden sections in testdata")

// TestGolden renders result.json of every testdata/*.txt (and outcomes.json, if
// it has one) and compares with the sections "text" and "json".
func TestGolden(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txt")
	if err != nil || len(files) < 3 {
		t.Fatalf("%d files: %v", len(files), err)
	}
	for _, path := range files {
		t.Run(strings.TrimSuffix(filepath.Base(path), ".txt"), func(t *testing.T) { golden(t, path) })
	}
}

func golden(t *testing.T, path string) {
	a, err := txtar.ParseFile(path)
	if err != nil {
		t.Fatal(err)
	}
	in := map[string][]byte{}
	for _, f := range a.Files {
		in[f.Name] = f.Data
	}
	out := &txtar.Archive{Comment: a.Comment}
	render := func(name string, f func(w *bytes.Buffer) error) {
		t.Helper()
		var b bytes.Buffer
		if err := f(&b); err != nil {
			t.Fatal(err)
		}
		out.Files = append(out.Files, txtar.File{Name: name, Data: b.Bytes()})
		if !*update && !bytes.Equal(b.Bytes(), in[name]) {
			t.Errorf("%s (rewrite with -update):\n%s", name, cmp.Diff(string(in[name]), b.String()))
		}
	}
	for _, name := range []string{"result.json", "row.json", "builds.json", "outcomes.json", "runs.json"} {
		if in[name] != nil {
			out.Files = append(out.Files, txtar.File{Name: name, Data: in[name]})
		}
	}
	var res *Result
	if in["result.json"] != nil {
		r, err := Read(bytes.NewReader(in["result.json"]))
		if err != nil {
			t.Fatal(err)
		}
		res = &r
		render("text", func(w *bytes.Buffer) error { return Text(w, r) })
		render("json", func(w *bytes.Buffer) error { return JSON(w, r) })
	}
	if in["row.json"] != nil {
		var row RunRow
		var steps Steps
		unmarshal(t, in["row.json"], &row)
		if in["outcomes.json"] != nil {
			unmarshal(t, in["outcomes.json"], &steps.Outcomes)
		}
		if in["builds.json"] != nil {
			unmarshal(t, in["builds.json"], &steps.Builds)
		}
		render("show", func(w *bytes.Buffer) error { return Show(w, row, res, steps) })
		render("show.json", func(w *bytes.Buffer) error { return ShowJSON(w, row, nil, steps) })
	}
	if in["runs.json"] != nil {
		var rows []RunRow
		unmarshal(t, in["runs.json"], &rows)
		render("runs", func(w *bytes.Buffer) error { return Runs(w, rows) })
		render("runs.out.json", func(w *bytes.Buffer) error { return RunsJSON(w, rows) })
	}
	check(t, out)
	if *update {
		if err := os.WriteFile(path, txtar.Format(out), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// check holds for all text: it fits the width (paths may not), has no blanks at
// line ends and no control characters.
func check(t *testing.T, a *txtar.Archive) {
	t.Helper()
	for _, f := range a.Files {
		if strings.Contains(f.Name, "json") {
			continue
		}
		for line := range strings.Lines(string(f.Data)) {
			line = strings.TrimSuffix(line, "\n")
			if utf8.RuneCountInString(line) > width && !strings.Contains(line, "/") {
				t.Errorf("%s: %d columns: %q", f.Name, utf8.RuneCountInString(line), line)
			}
			if strings.TrimRight(line, " ") != line || plain(line) != line {
				t.Errorf("%s: %q", f.Name, line)
			}
		}
	}
}

func unmarshal(t *testing.T, b []byte, v any) {
	t.Helper()
	if err := json.Unmarshal(b, v); err != nil {
		t.Fatal(err)
	}
}

func TestRoundTrip(t *testing.T) {
	obs := func(xs ...float64) []stats.Obs { return stats.Values(xs...) }
	c := Comparison{Case: "x", Unit: proto.Nanoseconds, Better: proto.Lower, With: Side{Identity: "w", Revision: "tree"}}
	c.SetStats(stats.Compare(obs(1, 2, 3), obs(10, 20, 30), stats.LowerIsBetter, 0.95), 0, 3)
	c.Error = 0.01
	if c.Ratio < 5 || c.Without.Above != 3 || c.With.Identity != "w" || c.With.Median != 2 || c.With.Revision != "tree" {
		t.Errorf("comparison %+v", c)
	}
	var none Comparison
	none.Unmeasured()
	r := Result{ID: "id", Mode: ModeCase, Created: time.Unix(1, 0).UTC(), Comparisons: []Comparison{c, none}}
	path := filepath.Join(t.TempDir(), "result.json")
	if err := WriteFile(path, r); err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if r.Schema != "" || r.Comparisons[0].Warnings == nil && c.Warnings != nil {
		t.Error("the caller's result was changed")
	}
	if !bytes.Contains(b, []byte(`"median": null`)) || bytes.Contains(b, []byte(`"warnings": null`)) ||
		!bytes.Contains(b, []byte(`"credible_set": []`)) || !bytes.Contains(b, []byte(`"culprit": null`)) {
		t.Errorf("%s", b)
	}
	got, err := ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	eq := cmp.Comparer(func(a, b Num) bool { return a == b || !a.Known() && !b.Known() })
	if d := cmp.Diff(r.normal(), got, eq); d != "" {
		t.Error(d)
	}
	if left, _ := filepath.Glob(filepath.Join(filepath.Dir(path), ".*")); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
}

func TestWriteFileFails(t *testing.T) {
	dir := t.TempDir()
	target := filepath.Join(dir, "result.json")
	if err := os.MkdirAll(filepath.Join(target, "x"), 0o755); err != nil { // a folder in its place
		t.Fatal(err)
	}
	if err := WriteFile(target, Result{}); err == nil {
		t.Error("a folder was overwritten")
	}
	if err := WriteFile(filepath.Join(dir, "no", "x"), Result{}); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("no folder: %v", err)
	}
	if left, _ := filepath.Glob(filepath.Join(dir, ".result*")); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
}

func TestReadRefuses(t *testing.T) {
	for _, in := range []string{"", "[]", `{"schema":"kbisect.result/2"}`, `{}`} {
		if _, err := Read(strings.NewReader(in)); err == nil {
			t.Errorf("%q was taken", in)
		}
	}
}

func TestOverall(t *testing.T) {
	c := func(vs ...Verdict) (out []Comparison) {
		for _, v := range vs {
			out = append(out, Comparison{Verdict: v})
		}
		return out
	}
	for _, tt := range []struct {
		in   []Comparison
		want Verdict
	}{
		{nil, Untestable},
		{c(Faster), Faster},
		{c(NoOp, NoOp), NoOp},
		{c(Faster, Faster, NoDifference), Mixed},
	} {
		if got := Overall(tt.in); got != tt.want {
			t.Errorf("%v: %s, want %s", tt.in, got, tt.want)
		}
	}
}

func TestNumbers(t *testing.T) {
	for n, want := range map[float64]string{389.4: "389x", 4.4567: "4.46x", 1092: "1090x", 0.25: "0.25x", 1: "1x", 3e7: "3e+07x",
		math.Inf(1): "-"} {
		if got := times(Num(n)); got != want {
			t.Errorf("times(%v) = %q, want %q", n, got, want)
		}
	}
	for s, want := range map[float64]string{0: "0.0 s", -1: "0.0 s", 0.44: "0.4 s", 9.94: "9.9 s", 9.96: "10 s", 59.7: "1 min 0 s",
		280: "4 min 40 s", 7500: "2 h 5 min"} {
		if got := span(s); got != want {
			t.Errorf("span(%v) = %q, want %q", s, got, want)
		}
	}
}

func TestWrap(t *testing.T) {
	got := wrap("aa bb  cccccccc d", 5)
	if d := cmp.Diff([]string{"aa bb", "cccccccc", "d"}, got); d != "" {
		t.Error(d)
	}
	got = wrap("it took 10 min, 5 s (1 %)", 10)
	if d := cmp.Diff([]string{"it took", "10 min,", "5 s (1 %)"}, got); d != "" {
		t.Error(d)
	}
}
