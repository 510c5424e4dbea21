package app

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/kbisect/kbisect/guest/proto"
	"github.com/kbisect/kbisect/internal/kbuild"
	"github.com/kbisect/kbisect/internal/report"
	"github.com/kbisect/kbisect/internal/store"
	"github.com/kbisect/kbisect/vm"
	"github.com/kbisect/kbisect/vm/vmtest"
)

const slowPatch = `Subject: [PATCH] make it fast

--- a/net/wait.c
+++ b/net/wait.c
@@ -1,2 +1,2 @@
 /* wait */
-int wait = 250;
+int wait = 1;
`

// sharedCache spares every test but the first the build of the guest's programs.
var sharedCache string

func TestMain(m *testing.M) {
	dir, err := os.MkdirTemp("", "kbisect-app-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	sharedCache = dir
	code := m.Run()
	os.RemoveAll(dir)
	os.Exit(code)
}

// world is a scratch kernel tree, a patch, and a compiler and machines that are
// fakes: an image is the file net/wait.c, and a machine is as fast as it says.
type world struct {
	t     *testing.T
	env   *Env
	tree  string
	patch string

	mu       sync.Mutex
	compiles int
	lucky    func(code string) string                                            // what a build in the ordinary layout makes of it
	boots    []string                                                            // images booted, in order
	machine  func(image string, boot int, m *vmtest.Machine) (vm.Machine, error) // what each boot is
}

func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{t: t, tree: filepath.Join(t.TempDir(), "linux tree: mine"), patch: filepath.Join(t.TempDir(), "fast.patch")}
	w.write(filepath.Join(w.tree, "Makefile"), "VERSION = 6\nPATCHLEVEL = 1\nSUBLEVEL = 7\nEXTRAVERSION =\n")
	w.write(filepath.Join(w.tree, "Kbuild"), "# Kbuild for the kernel\n")
	w.write(filepath.Join(w.tree, "net/wait.c"), "/* wait */\nint wait = 250;\n")
	w.write(w.patch, slowPatch)
	w.git("init", "-q")
	w.git("add", "-A")
	w.git("-c", "user.name=t", "-c", "user.email=t@t", "commit", "-qm", "linux")
	w.env = &Env{Cache: sharedCache, State: t.TempDir(), boot: w.boot, compile: w.compile}
	w.machine = func(image string, _ int, m *vmtest.Machine) (vm.Machine, error) { return m, nil }
	return w
}

func (w *world) write(path, text string) {
	w.t.Helper()
	if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(text), 0o644)); err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) git(args ...string) {
	w.t.Helper()
	cmd := exec.Command("git", args...)
	cmd.Dir = w.tree
	if out, err := cmd.CombinedOutput(); err != nil {
		w.t.Fatalf("git %v: %v\n%s", args, err, out)
	}
}

// compile "builds" a commit: its identity is the content of net/wait.c without
// comments.
func (w *world) compile(_ context.Context, r kbuild.Request) (*kbuild.Kernel, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.compiles++
	text, err := exec.Command("git", "--git-dir", r.GitDir, "show", r.Commit+":net/wait.c").Output()
	if err != nil {
		return nil, fmt.Errorf("show: %w", err)
	}
	if strings.Contains(string(text), "#error") {
		return nil, &kbuild.KernelError{Step: "compile", File: "net/wait.c", Line: 2, Text: "#error"}
	}
	dir := w.t.TempDir()
	code := strings.TrimSpace(strings.SplitN(string(text), "*/", 2)[1])
	if r.Layout > 0 {
		code += fmt.Sprintf("\nlayout %d", r.Layout)
	} else if w.lucky != nil {
		code = w.lucky(code)
	}
	id := sha256.Sum256([]byte(code))
	k := &kbuild.Kernel{Info: kbuild.Info{Identity: hex.EncodeToString(id[:]), Key: r.Commit, Compiler: "cc"},
		Commit: r.Commit, Image: filepath.Join(dir, "vmlinux"), Config: filepath.Join(dir, ".config")}
	w.write(k.Image, code)
	w.write(k.Config, "CONFIG_SMP=y\n")
	return k, nil
}

// boot is a machine whose flush takes as many milliseconds as the image says.
func (w *world) boot(_ context.Context, s vm.Spec) (vm.Machine, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	data, err := os.ReadFile(s.Kernel)
	if err != nil {
		return nil, err
	}
	w.boots = append(w.boots, string(data))
	var ms int
	if _, err := fmt.Sscanf(string(data), "int wait = %d;", &ms); err != nil {
		return nil, err
	}
	flush := time.Duration(ms)*time.Millisecond + time.Duration(len(w.boots))*time.Microsecond
	m := &vmtest.Machine{ExecFunc: agentWith(flush), FactsValue: vm.Facts{Accel: vm.TCG, Machine: "q35", CPUs: 2, MemoryMiB: 1024}}
	return w.machine(string(data), len(w.boots), m)
}

func (w *world) options() RunOptions {
	o := DefaultRunOptions()
	o.Kernel, o.Patch, o.Workload, o.Metric = w.tree, w.patch, "nexthop-delete", "flush"
	o.Machine.AnyLoad = true
	return o
}

func (w *world) run(ctx context.Context, o RunOptions) (*report.Result, error) {
	return Run(ctx, w.env, o, os.Stderr)
}

func (w *world) must(o RunOptions, want report.Verdict) report.Comparison {
	w.t.Helper()
	res, err := w.run(w.t.Context(), o)
	if res == nil {
		w.t.Fatalf("no result: %v", err)
	}
	c := res.Comparisons[0]
	if c.Verdict != want {
		w.t.Fatalf("verdict %q (%s), want %q", c.Verdict, c.Reason, want)
	}
	if _, err := report.ReadFile(filepath.Join(res.RunDir, "result.json")); err != nil {
		w.t.Error(err)
	}
	return c
}

func skipWithoutGo(t *testing.T) {
	t.Helper()
	if testing.Short() {
		t.Skip("builds the guest's programs with the Go toolchain; run without -short")
	}
}

func TestRunPatch(t *testing.T) {
	skipWithoutGo(t)
	w := newWorld(t)
	c := w.must(w.options(), report.Faster)
	if c.With.N != 6 || c.Without.N != 6 || c.Ratio < 200 || c.Ratio > 260 {
		t.Errorf("got %d v %d runs, ratio %v", c.With.N, c.Without.N, c.Ratio)
	}
	if c.Error > 0.01 {
		t.Errorf("stated error %v", c.Error)
	}
	// A B B A: no side is always the first of a pair.
	var order string
	for _, b := range w.boots {
		order += map[bool]string{true: "w", false: "o"}[strings.Contains(b, "= 1;")]
	}
	if order != "woowwoowwoow" {
		t.Errorf("order %s", order)
	}
}

func TestRunPatchInTheTree(t *testing.T) {
	skipWithoutGo(t)
	w := newWorld(t)
	w.write(filepath.Join(w.tree, "net/wait.c"), "/* wait */\nint wait = 1;\n")
	w.git("-c", "user.name=t", "-c", "user.email=t@t", "commit", "-qam", "fixed")
	c := w.must(w.options(), report.Faster)
	if !strings.Contains(c.Without.Revision, "minus") {
		t.Errorf("without is %q", c.Without.Revision)
	}
}

func TestRunSlower(t *testing.T) {
	skipWithoutGo(t)
	w := newWorld(t)
	w.write(w.patch, strings.NewReplacer("250", "1", "= 1", "= 250").Replace(slowPatch))
	w.write(filepath.Join(w.tree, "net/wait.c"), "/* wait */\nint wait = 1;\n")
	w.git("-c", "user.name=t", "-c", "user.email=t@t", "commit", "-qam", "fast already")
	w.must(w.options(), report.Slower)
}

// A patch that changes only a comment builds the same image: nothing is booted,
// unless that is asked for.
func TestNoOp(t *testing.T) {
	skipWithoutGo(t)
	w := newWorld(t)
	w.write(w.patch, "--- a/net/wait.c\n+++ b/net/wait.c\n@@ -1,2 +1,2 @@\n-/* wait */\n+/* wait a little */\n int wait = 250;\n")
	o := w.options()
	c := w.must(o, report.NoOp)
	if len(w.boots) > 0 || c.With.Identity != c.Without.Identity || c.Ratio.Known() {
		t.Errorf("%d boots, ratio %v", len(w.boots), c.Ratio)
	}
	o.MeasureNoop = true
	c = w.must(o, report.NoDifference)
	if c.With.N < 3 || c.With.N > 20 {
		t.Errorf("%d runs to see that equal kernels are equal", c.With.N)
	}
}

func TestBuildErrorIsUntestable(t *testing.T) {
	skipWithoutGo(t)
	w := newWorld(t)
	w.write(w.patch, strings.Replace(slowPatch, "+int wait = 1;", "+#error", 1))
	c := w.must(w.options(), report.Untestable)
	if !strings.Contains(c.Reason, "#error") {
		t.Errorf("reason %q", c.Reason)
	}
}

func TestKernelThatPanicsIsUntestable(t *testing.T) {
	skipWithoutGo(t)
	w := newWorld(t)
	w.machine = func(image string, _ int, m *vmtest.Machine) (vm.Machine, error) {
		if strings.Contains(image, "= 1;") {
			return nil, &vm.BootError{Reason: "kernel panic: no init"}
		}
		return m, nil
	}
	c := w.must(w.options(), report.Untestable)
	if !strings.HasPrefix(c.Reason, "with: ") || !strings.Contains(c.Reason, "no init") {
		t.Errorf("reason %q", c.Reason)
	}
	if len(w.boots) > 4 {
		t.Errorf("%d boots of a kernel that panics", len(w.boots))
	}
}

// What the host does wrong is repeated and blames no kernel.
func TestInfraIsRepeated(t *testing.T) {
	skipWithoutGo(t)
	w := newWorld(t)
	w.machine = func(_ string, boot int, m *vmtest.Machine) (vm.Machine, error) {
		if boot%5 == 2 {
			return nil, &vm.InfraError{Op: "start qemu", Err: errors.New("killed")}
		}
		return m, nil
	}
	c := w.must(w.options(), report.Faster)
	if c.With.N != 6 || c.Without.N != 6 {
		t.Errorf("%d v %d measured", c.With.N, c.Without.N)
	}
}

// Trouble that does not pass ends the run with an error, which is no verdict, and
// leaves it resumable.
func TestInfraThatStays(t *testing.T) {
	skipWithoutGo(t)
	w := newWorld(t)
	broken := true
	w.machine = func(_ string, boot int, m *vmtest.Machine) (vm.Machine, error) {
		if broken && boot > 4 {
			return nil, &vm.InfraError{Op: "start qemu", Err: errors.New("no such machine")}
		}
		return m, nil
	}
	res, err := w.run(t.Context(), w.options())
	var infra *vm.InfraError
	if res != nil || !errors.As(err, &infra) || len(w.boots) != 4+len(hostPatience) {
		t.Fatalf("got %v, %v after %d boots", res, err, len(w.boots))
	}
	broken = false
	res, err = Resume(t.Context(), w.env, "")
	if err != nil {
		t.Fatal(err)
	}
	if c := res.Comparisons[0]; c.Verdict != report.Faster || res.Costs.Runs != 12 || res.Costs.Retries != len(hostPatience) {
		t.Errorf("%s, costs %+v", c.Verdict, res.Costs)
	}
}

// Boots that differ in what must be equal are not compared.
func TestOtherClocksourceIsNotCompared(t *testing.T) {
	skipWithoutGo(t)
	w := newWorld(t)
	w.machine = func(_ string, boot int, m *vmtest.Machine) (vm.Machine, error) {
		if boot == 3 {
			m.FactsValue.Machine = "microvm"
		}
		return m, nil
	}
	c := w.must(w.options(), report.Faster)
	if len(w.boots) != 13 || c.With.N+c.Without.N != 12 {
		t.Errorf("%d boots for %d runs", len(w.boots), c.With.N+c.Without.N)
	}
}

func TestBudget(t *testing.T) {
	skipWithoutGo(t)
	w := newWorld(t)
	o := w.options()
	o.Budget = time.Nanosecond
	c := w.must(o, report.Inconclusive)
	if !strings.Contains(c.Reason, "budget") {
		t.Errorf("reason %q", c.Reason)
	}
}

// TestResume interrupts a run in its middle; the resumed one repeats no finished
// run and answers the same.
func TestResume(t *testing.T) {
	skipWithoutGo(t)
	w := newWorld(t)
	ctx, cancel := context.WithCancel(t.Context())
	w.machine = func(_ string, boot int, m *vmtest.Machine) (vm.Machine, error) {
		if boot == 8 {
			cancel()
		}
		return m, nil
	}
	if _, err := w.run(ctx, w.options()); !errors.Is(err, context.Canceled) {
		t.Fatalf("got %v", err)
	}
	w.git("-c", "user.name=t", "-c", "user.email=t@t", "commit", "-q", "--allow-empty", "-m", "the tree moves on")
	res, err := Resume(t.Context(), w.env, "")
	if err != nil {
		t.Fatal(err)
	}
	c := res.Comparisons[0]
	if c.Verdict != report.Faster || c.With.N+c.Without.N != 12 {
		t.Errorf("%s after %d runs", c.Verdict, c.With.N+c.Without.N)
	}
	if len(w.boots) != 13 { // 7 finished, 1 interrupted, 5 to go
		t.Errorf("%d boots in all", len(w.boots))
	}
	if res.Environment.Machine != "q35" {
		t.Errorf("environment %+v", res.Environment)
	}
	if _, err := Resume(t.Context(), w.env, res.ID); err == nil {
		t.Error("a finished run was resumed")
	}
	st, err := store.Open(t.Context(), w.env.State)
	if err != nil {
		t.Fatal(err)
	}
	defer st.Close()
	outcomes, err := st.Outcomes(t.Context(), res.ID)
	if err != nil || len(outcomes) != 12 {
		t.Errorf("%d outcomes journalled, %v", len(outcomes), err)
	}
}

// A run that the workload's own limit stopped is no number, unless the user says
// that it counts as slow.
func TestLimitIsNoNumber(t *testing.T) {
	skipWithoutGo(t)
	w := newWorld(t)
	w.machine = func(image string, _ int, m *vmtest.Machine) (vm.Machine, error) {
		if strings.Contains(image, "= 250;") {
			m.ExecFunc = func(_ context.Context, c vm.Command) error {
				pw := proto.NewWriter(c.Stdout, func() int64 { return 1 })
				return errors.Join(pw.Hello(hello(c)),
					pw.Metric(proto.Metric{Name: "flush", Unit: proto.Nanoseconds, Better: proto.Lower, Value: 6e10, Censored: true}),
					pw.Done(argOf(c, "-nonce"), 7))
			}
		}
		return m, nil
	}
	o := w.options()
	c := w.must(o, report.Untestable)
	if !strings.Contains(c.Reason, "limit") {
		t.Errorf("reason %q", c.Reason)
	}
	o.TimeoutIsBad = true
	c = w.must(o, report.Faster)
	if c.Without.Censored != 6 || c.RatioBound != ">=" {
		t.Errorf("%d censored, bound %q", c.Without.Censored, c.RatioBound)
	}
}

func TestPlanErrors(t *testing.T) {
	w := newWorld(t)
	tests := []struct {
		name   string
		change func(*RunOptions)
		want   string
	}{
		{"no case", func(o *RunOptions) { o.Patch, o.Workload = "", "" }, "which case?"},
		{"unknown case", func(o *RunOptions) { o.Patch, o.Cases = "", []string{"nexthop-delet"} }, `did you mean "nexthop-delete"?`},
		{"case twice", func(o *RunOptions) { o.Patch, o.Cases = "", []string{"nexthop-delete", "nexthop-delete"} }, "twice"},
		{"case and patch", func(o *RunOptions) { o.Cases = []string{"nexthop-delete"} }, "exclude each other"},
		{"patch without workload", func(o *RunOptions) { o.Workload = "" }, "needs a workload"},
		{"no such patch", func(o *RunOptions) { o.Patch = filepath.Join(w.tree, "none.patch") }, "none.patch"},
		{"patch that is none", func(o *RunOptions) { o.Patch = filepath.Join(w.tree, "Makefile") }, "Makefile"},
		{"unknown workload", func(o *RunOptions) { o.Workload = "nexthop-delte" }, "nexthop-delete"},
		{"unknown parameter", func(o *RunOptions) { o.Workload = "nexthop-delete,cuont=3" }, "count"},
		{"bad threshold", func(o *RunOptions) { o.Threshold = "flush>fast" }, "--threshold"},
		{"unknown metric", func(o *RunOptions) { o.Metric = "flsh" }, "flush"},
		{"no such kernel", func(o *RunOptions) { o.Kernel = filepath.Join(w.tree, "nowhere") }, "nowhere"},
		{"not a kernel", func(o *RunOptions) { o.Kernel = filepath.Dir(w.patch) }, filepath.Dir(w.patch)},
		{"unknown base", func(o *RunOptions) { o.Base = "v9.9" }, `--base "v9.9"`},
		{"bad accelerator", func(o *RunOptions) { o.Machine.Accel = "xen" }, `--accel "xen"`},
		{"too many runs", func(o *RunOptions) { o.MaxRuns = 1000 }, "--max-runs 1000"},
		{"no such catalog", func(o *RunOptions) { o.Patch, o.Cases, o.Catalog = "", []string{"x"}, w.patch }, "--catalog"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			o := w.options()
			tt.change(&o)
			_, err := NewPlan(t.Context(), w.env, o)
			var usage *UsageError
			if !errors.As(err, &usage) || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("got %v, want a usage error with %q", err, tt.want)
			}
		})
	}
}

func TestPatchThatFitsNowhere(t *testing.T) {
	w := newWorld(t)
	w.write(w.patch, strings.Replace(slowPatch, "250", "99", 1))
	_, err := NewPlan(t.Context(), w.env, w.options())
	var usage *UsageError
	if !errors.As(err, &usage) || !strings.Contains(err.Error(), "net/wait.c:1") || len(Hints(err)) == 0 {
		t.Errorf("got %v with hints %q", err, Hints(err))
	}
}

// A catalog in which no case fits leaves a row that says so, and the case that
// fits is measured.
func TestSeveralCasesOneUntestable(t *testing.T) {
	skipWithoutGo(t)
	w := newWorld(t)
	dir := t.TempDir()
	toml := "title = \"t\"\nworkload = \"nexthop-delete\"\nmetric = \"flush\"\nthreshold = \"flush>100ms\"\nlimit = \"1m\"\n" +
		"[report]\nwithout = \"2s\"\nwith = \"1s\"\n[[patch]]\nfile = \"a.patch\"\n"
	for name, patch := range map[string]string{"fits": slowPatch, "not": strings.Replace(slowPatch, "250", "99", 1)} {
		w.write(filepath.Join(dir, name, "case.toml"), toml)
		w.write(filepath.Join(dir, name, "a.patch"), patch)
	}
	o := w.options()
	o.Patch, o.Workload, o.Metric, o.Catalog, o.Cases = "", "", "", dir, []string{"not", "fits"}
	res, err := w.run(t.Context(), o)
	var verdict *VerdictError
	if !errors.As(err, &verdict) || verdict.Outcome != Untestable {
		t.Fatalf("got %v", err)
	}
	got := []report.Verdict{res.Comparisons[0].Verdict, res.Comparisons[1].Verdict}
	if got[0] != report.Untestable || got[1] != report.Faster || res.Verdict != report.Mixed {
		t.Errorf("verdicts %q, overall %q", got, res.Verdict)
	}
	if _, err := json.Marshal(res); err != nil {
		t.Error(err)
	}
}
