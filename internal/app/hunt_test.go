package app

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/kbisect/kbisect/internal/report"
	"github.com/kbisect/kbisect/vm"
	"github.com/kbisect/kbisect/vm/vmtest"
)

// commit records net/wait.c with this speed and code beside it, and returns its id.
func (w *world) commit(ms int, beside, subject string) string {
	w.t.Helper()
	w.write(filepath.Join(w.tree, "net/wait.c"), fmt.Sprintf("/* %s */\nint wait = %d;\n%s\n", subject, ms, beside))
	w.git("add", "-A")
	w.git("-c", "user.name=t", "-c", "user.email=t@t", "commit", "-qm", subject)
	return w.rev("HEAD")
}

func (w *world) rev(name string) string {
	w.t.Helper()
	cmd := exec.Command("git", "rev-parse", name)
	cmd.Dir = w.tree
	out, err := cmd.Output()
	if err != nil {
		w.t.Fatalf("rev-parse %s: %v", name, err)
	}
	return strings.TrimSpace(string(out))
}

// chain makes n commits, each another image, the first slow one at culprit.
func (w *world) chain(n, culprit int) []string {
	var ids []string
	for i := range n {
		ms := 1
		if i >= culprit {
			ms = 250
		}
		ids = append(ids, w.commit(ms, fmt.Sprintf("int x = %d;", i), fmt.Sprintf("change %d", i)))
	}
	return ids
}

// fast makes the scratch tree's first commit a fast one.
func fast(w *world) *world {
	w.commit(1, "", "start")
	return w
}

func (w *world) search(good, bad string) RunOptions {
	o := w.options()
	o.Patch, o.Good, o.Bad = "", good, bad
	return o
}

// hunts runs a search to its result.
func (w *world) hunts(o RunOptions) (*report.Result, error) {
	w.t.Helper()
	res, err := w.run(w.t.Context(), o)
	if res == nil {
		w.t.Fatalf("no result: %v", err)
	}
	if _, err := report.ReadFile(filepath.Join(res.RunDir, "result.json")); err != nil {
		w.t.Error(err)
	}
	var text strings.Builder
	if err := report.Text(&text, *res); err != nil {
		w.t.Error(err)
	}
	w.t.Logf("\n%s", &text)
	return res, err
}

// names checks that a search ended with a confirmed culprit.
func (w *world) names(o RunOptions, culprit string) *report.Result {
	w.t.Helper()
	res, err := w.hunts(o)
	if err != nil || res.Verdict != report.Found || res.Culprit == nil || res.Culprit.Revision != culprit {
		w.t.Fatalf("%v, %s: culprit %+v, want %s", err, res.Verdict, res.Culprit, culprit)
	}
	if c := res.Culprit; c.EValue < 100 || c.Confidence < 0.99 || c.Share < 0.9 {
		w.t.Errorf("confirmation %+v", c)
	}
	return res
}

func TestHuntChain(t *testing.T) {
	skipWithoutGo(t)
	w := fast(newWorld(t))
	ids := w.chain(16, 6)
	res := w.names(w.search("HEAD~16", "HEAD"), ids[6])
	if n := res.Costs.Builds; n > 9 { // two ends, four steps, the parent, the revert, one to spare
		t.Errorf("%d builds", n)
	}
	if !strings.HasPrefix(res.Culprit.Revert, "conflict") { // all commits change the same lines
		t.Errorf("revert: %s", res.Culprit.Revert)
	}
	// git agrees that the log says so.
	w.git("bisect", "replay", res.BisectLog)
	if got := w.rev("refs/bisect/bad"); got != ids[6] {
		t.Errorf("git bisect replay has %s bad, want %s", got, ids[6])
	}
	if res.Ends.Good.N < 3 || res.Ends.Bad.N < 3 || res.Ends.Bad.Above != res.Ends.Bad.N || res.Ends.Good.Above != 0 {
		t.Errorf("ends %+v", res.Ends)
	}
}

// Every place of the culprit in a short chain, the first and the last one too.
func TestHuntEveryPlace(t *testing.T) {
	skipWithoutGo(t)
	for culprit := range 5 {
		w := fast(newWorld(t))
		ids := w.chain(5, culprit)
		w.names(w.search("HEAD~5", "HEAD"), ids[culprit])
	}
}

func TestHuntSPRT(t *testing.T) {
	skipWithoutGo(t)
	w := fast(newWorld(t))
	ids := w.chain(8, 3)
	o := w.search("HEAD~8", "HEAD")
	o.Strategy = StrategySPRT
	w.names(o, ids[3])
}

// One build is slow by luck, which another layout shows: the effect is below 2x, so
// that the confirmation builds anew, refuses the wrong culprit, and the search
// goes on to the right one.
func TestHuntLuckyBuild(t *testing.T) {
	skipWithoutGo(t)
	w := fast(newWorld(t))
	w.commit(100, "int x = 100;", "start")
	var ids []string
	for i := range 8 {
		ms := 100
		if i >= 6 {
			ms = 150
		}
		ids = append(ids, w.commit(ms, fmt.Sprintf("int x = %d;", i), fmt.Sprintf("change %d", i)))
	}
	lucky := false
	w.lucky = func(code string) string {
		if !strings.Contains(code, "x = 3;") {
			return code
		}
		lucky = true
		return strings.Replace(code, "wait = 100", "wait = 150", 1)
	}
	res := w.names(w.search("HEAD~8", "HEAD"), ids[6])
	if !lucky || res.Culprit.Layout == 0 || !strings.Contains(strings.Join(res.Warnings, "\n"), "was not confirmed") {
		t.Errorf("lucky %v, layout %d, warnings %q", lucky, res.Culprit.Layout, res.Warnings)
	}
}

// An improvement is found when it is asked for, and refused when it is not.
func TestHuntLookForLower(t *testing.T) {
	skipWithoutGo(t)
	w := newWorld(t) // slow
	slow := w.rev("HEAD")
	w.commit(250, "int x = 1;", "a")
	fix := w.commit(1, "int x = 1;", "b")
	w.commit(1, "int x = 3;", "c")
	o := w.search(slow, "HEAD")
	res, err := w.hunts(o)
	if exit := endingOf(err); exit != NoDifference || !strings.Contains(res.Reason, "--look-for lower") {
		t.Errorf("%v: %s", err, res.Reason)
	}
	o.LookFor = "lower"
	w.names(o, fix)
}

func endingOf(err error) Ending {
	var v *VerdictError
	if errors.As(err, &v) {
		return v.Outcome
	}
	return 0
}

// Comment-only commits are the kernels of their parents: they are no suspects.
func TestHuntNoOps(t *testing.T) {
	skipWithoutGo(t)
	w := fast(newWorld(t))
	var ids []string
	for i := range 12 {
		ms := 1
		if i >= 8 {
			ms = 250
		}
		ids = append(ids, w.commit(ms, "", fmt.Sprintf("comment %d", i)))
	}
	res := w.names(w.search("HEAD~12", "HEAD"), ids[8])
	if res.Costs.Runs > 26 {
		t.Errorf("%d runs for two kernels", res.Costs.Runs)
	}
}

func TestHuntAlike(t *testing.T) {
	skipWithoutGo(t)
	w := fast(newWorld(t))
	w.chain(6, 99)
	res, err := w.hunts(w.search("HEAD~6", "HEAD"))
	if endingOf(err) != NoDifference || res.Verdict != report.EndsAlike || res.Culprit != nil {
		t.Errorf("%v: %+v", err, res)
	}
	// The same image at both ends takes no run at all.
	w.commit(1, "int x = 5;", "only words")
	res, err = w.hunts(w.search("HEAD~1", "HEAD"))
	if endingOf(err) != NoDifference || res.Costs.Runs != 0 || !strings.Contains(res.Reason, "same image") {
		t.Errorf("%v: %+v", err, res)
	}
}

// A culprit inside a stretch that does not build comes out as the class.
func TestHuntBrokenStretch(t *testing.T) {
	skipWithoutGo(t)
	w := fast(newWorld(t))
	var ids []string
	for i := range 12 {
		ms, beside := 1, fmt.Sprintf("int x = %d;", i)
		if i >= 6 {
			ms = 250
		}
		if i >= 5 && i < 8 {
			beside = "#error"
		}
		ids = append(ids, w.commit(ms, beside, fmt.Sprintf("change %d", i)))
	}
	res, err := w.hunts(w.search("HEAD~12", "HEAD"))
	if endingOf(err) != Inconclusive || res.Culprit == nil || res.Culprit.Kind != "class" || res.Culprit.Parent != ids[4] {
		t.Fatalf("%v: %+v", err, res.Culprit)
	}
	var named []string
	for _, s := range res.CredibleSet {
		named = append(named, s.Revision)
	}
	for _, want := range ids[5:9] {
		if !strings.Contains(strings.Join(named, " "), want) {
			t.Errorf("%s is not in the set %v", want, named)
		}
	}
}

// A stretch that panics beside the culprit is no obstacle, and not called bad.
func TestHuntPanics(t *testing.T) {
	skipWithoutGo(t)
	w := fast(newWorld(t))
	ids := w.chain(9, 6)
	w.machine = func(image string, _ int, m *vmtest.Machine) (vm.Machine, error) {
		if strings.Contains(image, "x = 3;") || strings.Contains(image, "x = 4;") {
			return nil, &vm.BootError{Reason: "kernel panic: test"}
		}
		return m, nil
	}
	res := w.names(w.search("HEAD~9", "HEAD"), ids[6])
	for _, s := range res.Steps {
		if (s.Revision == ids[3] || s.Revision == ids[4]) && s.Status != "untestable" {
			t.Errorf("%s is %s", s.Subject, s.Status)
		}
	}
}

func TestHuntMerges(t *testing.T) {
	skipWithoutGo(t)
	w := fast(newWorld(t))
	start := w.rev("HEAD")
	w.git("checkout", "-q", "-b", "side")
	w.write(filepath.Join(w.tree, "net/other.c"), "1\n")
	w.commit(1, "int x = 1;", "side 1")
	culprit := w.commit(250, "int x = 1;", "side 2")
	w.commit(250, "int x = 2;", "side 3")
	w.git("checkout", "-q", "-b", "main2", start)
	for i := range 3 {
		w.write(filepath.Join(w.tree, "net/main.c"), fmt.Sprint(i))
		w.git("add", "-A")
		w.git("-c", "user.name=t", "-c", "user.email=t@t", "commit", "-qm", fmt.Sprintf("main %d", i))
	}
	w.git("-c", "user.name=t", "-c", "user.email=t@t", "merge", "-q", "--no-ff", "-m", "merge side", "side")
	w.commit(250, "int x = 7;", "after")
	w.names(w.search(start, "HEAD"), culprit)
	// The good end is on another branch: the merge base stands in.
	w.git("checkout", "-q", "-b", "elsewhere", start)
	elsewhere := w.commit(1, "int x = 99;", "elsewhere")
	res := w.names(w.search(elsewhere, "main2"), culprit)
	if !strings.Contains(strings.Join(res.Warnings, "\n"), "merge base") {
		t.Errorf("warnings %q", res.Warnings)
	}
}

func TestHuntPaths(t *testing.T) {
	skipWithoutGo(t)
	w := fast(newWorld(t))
	start := w.rev("HEAD")
	for i := range 6 {
		w.write(filepath.Join(w.tree, "doc"), fmt.Sprint(i))
		w.git("add", "-A")
		w.git("-c", "user.name=t", "-c", "user.email=t@t", "commit", "-qm", fmt.Sprintf("doc %d", i))
	}
	culprit := w.commit(250, "int x = 1;", "slow")
	w.commit(250, "int x = 2;", "more")
	w.write(filepath.Join(w.tree, "doc"), "last")
	w.git("add", "-A")
	w.git("-c", "user.name=t", "-c", "user.email=t@t", "commit", "-qm", "doc")
	o := w.search(start, "HEAD")
	o.Paths = []string{"net/"}
	res := w.names(o, culprit)
	if res.Question.Revisions != 3 { // two, and the bad end
		t.Errorf("%d revisions", res.Question.Revisions)
	}
	o.Paths = []string{"nothing/"}
	if _, err := w.run(t.Context(), o); !errors.As(err, new(*UsageError)) {
		t.Errorf("no commits: %v", err)
	}
}

func TestHuntBudget(t *testing.T) {
	skipWithoutGo(t)
	w := fast(newWorld(t))
	w.chain(6, 3)
	o := w.search("HEAD~6", "HEAD")
	o.Budget = time.Millisecond
	res, err := w.hunts(o)
	if endingOf(err) != Inconclusive || !strings.Contains(res.Reason, "budget") {
		t.Errorf("%v: %s", err, res.Reason)
	}
}

// A fixup makes a stretch testable that does not build without it.
func TestHuntFixup(t *testing.T) {
	skipWithoutGo(t)
	w := fast(newWorld(t))
	start := w.rev("HEAD")
	w.write(filepath.Join(w.tree, "net/wait.c"), "/* x */\nint wait = 1;\n#error\n")
	w.git("-c", "user.name=t", "-c", "user.email=t@t", "commit", "-qam", "break")
	w.write(filepath.Join(w.tree, "net/wait.c"), "/* x */\nint wait = 250;\n#error\n")
	w.git("-c", "user.name=t", "-c", "user.email=t@t", "commit", "-qam", "slow")
	culprit := w.rev("HEAD")
	w.commit(250, "int x = 2;", "mended")
	fixup := filepath.Join(t.TempDir(), "fix.patch")
	w.write(fixup, "--- a/net/wait.c\n+++ b/net/wait.c\n@@ -3 +3 @@\n-#error\n+int y;\n")
	o := w.search(start, "HEAD")
	o.Fixup = []string{fixup}
	w.names(o, culprit)
}

// TestHuntResume stops a search after every single boot and goes on: the answer
// is the same, and no run is made twice.
func TestHuntResume(t *testing.T) {
	skipWithoutGo(t)
	w := fast(newWorld(t))
	ids := w.chain(8, 5)
	o := w.search("HEAD~8", "HEAD")
	builds := w.names(o, ids[5]).Costs.Builds
	whole := len(w.boots)
	for stop := 1; stop < whole; stop += 2 {
		ctx, cancel := context.WithCancel(t.Context())
		w.boots = nil
		w.machine = func(_ string, boot int, m *vmtest.Machine) (vm.Machine, error) {
			if boot == stop {
				cancel()
				return nil, ctx.Err()
			}
			return m, nil
		}
		if _, err := w.run(ctx, o); !errors.Is(err, context.Canceled) {
			t.Fatalf("stopped at boot %d: %v", stop, err)
		}
		res, err := Resume(t.Context(), w.env, "")
		if err != nil || res.Culprit == nil || res.Culprit.Revision != ids[5] {
			t.Fatalf("resumed after boot %d: %v, %+v", stop, err, res)
		}
		if n := len(w.boots) - 1; n > whole+1 || res.Costs.Runs != n {
			t.Errorf("stopped at boot %d: %d boots, %d runs in the result, without a stop %d", stop, n, res.Costs.Runs, whole)
		}
		if c := res.Costs; c.Builds != builds || c.Seconds < c.RunSeconds {
			t.Errorf("stopped at boot %d: %d builds in the result, without a stop %d; %g s in all, %g s of runs", stop, c.Builds, builds, c.Seconds, c.RunSeconds)
		}
	}
}

func TestRejudge(t *testing.T) {
	skipWithoutGo(t)
	w := fast(newWorld(t))
	// Two steps: 1 ms to 60 ms at change 2, to 250 ms at change 5.
	var ids []string
	for i, ms := range []int{1, 1, 60, 60, 60, 250, 250, 250} {
		ids = append(ids, w.commit(ms, fmt.Sprintf("int x = %d;", i), fmt.Sprintf("change %d", i)))
	}
	o := w.search("HEAD~8", "HEAD")
	o.Threshold = "flush>100ms"
	res, err := w.hunts(o)
	if err != nil || res.Culprit.Revision != ids[5] {
		t.Fatalf("%v: %+v", err, res.Culprit)
	}
	// The smaller step is seen in the share; whether the runs of the good side
	// tell it, too, depends on which of them were probed.
	if s := res.Culprit.Share; s < 0.7 || s > 0.8 {
		t.Errorf("share %v", s)
	}
	boots := len(w.boots)
	again, err := Rejudge(t.Context(), w.env, RejudgeOptions{Threshold: "flush>200ms"})
	if err != nil || again.Culprit == nil || again.Culprit.Revision != ids[5] {
		t.Errorf("another threshold in the same step: %v, %+v", err, again)
	}
	again, err = Rejudge(t.Context(), w.env, RejudgeOptions{Threshold: "flush>10ms"})
	if endingOf(err) != Inconclusive || again.Culprit != nil || len(again.CredibleSet) == 0 || len(again.CredibleSet) > 4 {
		t.Errorf("a threshold in the other step: %v, %+v", err, again)
	}
	again, err = Rejudge(t.Context(), w.env, RejudgeOptions{Threshold: "flush>10s"})
	if endingOf(err) != NoDifference && endingOf(err) != Inconclusive || again.Culprit != nil {
		t.Errorf("a threshold above all: %v, %+v", err, again)
	}
	if len(w.boots) != boots {
		t.Error("it booted")
	}
	if _, err := Rejudge(t.Context(), w.env, RejudgeOptions{Threshold: "nothing>1"}); !errors.As(err, new(*UsageError)) {
		t.Errorf("unknown metric: %v", err)
	}
}

// mbox makes a mailbox of the newest n commits and takes them out of the tree.
func (w *world) mbox(n int) string {
	w.t.Helper()
	cmd := exec.Command("git", "format-patch", "--stdout", fmt.Sprintf("-%d", n))
	cmd.Dir = w.tree
	out, err := cmd.Output()
	if err != nil {
		w.t.Fatal(err)
	}
	path := filepath.Join(w.t.TempDir(), "thread.mbox")
	w.write(path, string(out))
	w.git("reset", "-q", "--hard", fmt.Sprintf("HEAD~%d", n))
	return path
}

func TestHuntSeries(t *testing.T) {
	skipWithoutGo(t)
	for _, culprit := range []int{0, 3, 5} {
		w := fast(newWorld(t))
		w.chain(6, culprit)
		o := w.search("", "")
		o.Series = []string{w.mbox(6)}
		res, err := w.hunts(o)
		if err != nil || res.Mode != report.ModeSeries || res.Culprit == nil || res.Culprit.Subject != fmt.Sprintf("change %d", culprit) {
			t.Errorf("culprit %d: %v, %+v", culprit, err, res.Culprit)
		}
	}
}

// A resumed series does not need its files any more.
func TestHuntSeriesResume(t *testing.T) {
	skipWithoutGo(t)
	w := fast(newWorld(t))
	w.chain(4, 2)
	o := w.search("", "")
	o.Series = []string{w.mbox(4)}
	ctx, cancel := context.WithCancel(t.Context())
	w.machine = func(_ string, boot int, m *vmtest.Machine) (vm.Machine, error) {
		if boot == 8 {
			cancel()
			return nil, ctx.Err()
		}
		return m, nil
	}
	if _, err := w.run(ctx, o); !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	if err := os.Remove(o.Series[0]); err != nil {
		t.Fatal(err)
	}
	res, err := Resume(t.Context(), w.env, "")
	if err != nil || res.Culprit == nil || res.Culprit.Subject != "change 2" {
		t.Errorf("%v: %+v", err, res)
	}
}

func TestHuntEach(t *testing.T) {
	skipWithoutGo(t)
	w := fast(newWorld(t))
	w.write(filepath.Join(w.tree, "net/other.c"), "1\n2\n3\n")
	w.commit(1, "int x = 0;", "base")
	w.write(filepath.Join(w.tree, "net/other.c"), "1\n2\n4\n")
	w.git("-c", "user.name=t", "-c", "user.email=t@t", "commit", "-qam", "harmless")
	w.commit(250, "int x = 0;", "slow")
	o := w.search("", "")
	o.Series, o.Each = []string{w.rev("HEAD~2") + ".." + w.rev("HEAD")}, true
	res, err := w.run(t.Context(), o)
	if res == nil || len(res.Comparisons) != 2 {
		t.Fatalf("%v: %+v", err, res)
	}
	if a, b := res.Comparisons[0], res.Comparisons[1]; a.Verdict != report.NoOp || b.Verdict != report.Slower || b.Title != "slow" {
		t.Errorf("%s %s, %s %s", a.Title, a.Verdict, b.Title, b.Verdict)
	}
}

func TestHuntUsage(t *testing.T) {
	w := fast(newWorld(t))
	w.chain(3, 1)
	for _, tt := range []struct {
		change func(*RunOptions)
		want   string
	}{
		{func(o *RunOptions) { o.Bad = "" }, "--bad"},
		{func(o *RunOptions) { o.Good = "nothing" }, "--good"},
		{func(o *RunOptions) { o.Good, o.Bad = "HEAD", "HEAD~2" }, "swap"},
		{func(o *RunOptions) { o.Good = "HEAD" }, "same commit"},
		{func(o *RunOptions) { o.Workload = "" }, "workload"},
		{func(o *RunOptions) { o.LookFor = "up" }, "higher or lower"},
		{func(o *RunOptions) { o.Strategy = "guess" }, "bayes or sprt"},
		{func(o *RunOptions) { o.Series = []string{"x"} }, "exclude each other"},
		{func(o *RunOptions) { o.Each = true }, "--series"},
		{func(o *RunOptions) { o.Cases = []string{"nexthop-delete"} }, "CASE"},
		{func(o *RunOptions) {
			o.Good, o.Bad, o.Series = "", "", []string{filepath.Join(t.TempDir(), "none.mbox")}
		}, "none.mbox"},
		{func(o *RunOptions) { o.Fixup = []string{"/nonexistent.patch"} }, "nonexistent.patch"},
	} {
		o := w.search("HEAD~3", "HEAD")
		tt.change(&o)
		_, err := w.run(t.Context(), o)
		var usage *UsageError
		if !errors.As(err, &usage) || !strings.Contains(usage.Text+usage.Hint, tt.want) {
			t.Errorf("got %v, want a usage error with %q", err, tt.want)
		}
	}
	if len(w.boots) > 0 || w.compiles > 0 {
		t.Error("something was built or booted")
	}
}
