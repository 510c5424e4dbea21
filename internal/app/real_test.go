package app

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/kbisect/kbisect/internal/report"
	"github.com/kbisect/kbisect/internal/testkernel"
	"github.com/kbisect/kbisect/internal/ui"
)

// The tests below build and boot real kernels: with the usual cache, so that the
// minutes of the first build are spent once on a machine.

// realEnv is kbisect's real environment with a state folder of the test's.
func realEnv(t testing.TB) *Env {
	t.Helper()
	testkernel.Source(t) // skips under -short
	u := ui.New(os.Stderr, ui.Options{Quiet: true})
	t.Cleanup(u.Close)
	return &Env{Cache: testkernel.Cache(t), State: t.TempDir(), UI: u}
}

func realOptions() RunOptions {
	o := DefaultRunOptions()
	o.Kernel, o.Quick, o.Machine.AnyLoad = orDefault(os.Getenv("KBISECT_KERNEL"), "debian:6.1"), true, true
	return o
}

// TestCatalog is the main job: what each fix of the catalog does to a real kernel.
// The factors are what each case must show on 6.1 under TCG; KBISECT_KERNEL takes
// another kernel.
func TestCatalog(t *testing.T) {
	env := realEnv(t)
	least := map[string]float64{"netdev-wait-allrefs": 3, "nexthop-delete": 100, "netns-dismantle": 8, "netdev-bulk-delete": 10}
	o := realOptions()
	o.All = true
	res, err := Run(t.Context(), env, o, os.Stderr)
	if err != nil {
		t.Fatalf("%v\n%s", err, Detail(err))
	}
	var text bytes.Buffer
	if err := report.Text(&text, *res); err != nil {
		t.Fatal(err)
	}
	t.Logf("\n%s", &text)
	if len(res.Comparisons) != 5 {
		t.Errorf("%d rows", len(res.Comparisons))
	}
	for _, c := range res.Comparisons {
		if c.Verdict != report.Faster || float64(c.Ratio) < least[c.Case] {
			t.Errorf("%s: %s, ratio %v, want faster and at least %v", c.Case, c.Verdict, c.Ratio, least[c.Case])
		}
		switch c.Case {
		case "lockless-qdisc":
			if r := c.Rates; r == nil || r.With.Count != 0 || r.Without.Events == 0 || len(c.Also) != 5 {
				t.Errorf("stuck frames %+v, %d rows of pktgen", r, len(c.Also))
			}
		case "netdev-bulk-delete":
			// 1.3 on a quiet host; other tests run beside this one.
			if len(c.Also) != 1 || c.Also[0].Ratio < 1.0/2 || c.Also[0].Ratio > 2 {
				t.Errorf("list against group: %+v", c.Also)
			}
		}
	}
	for _, name := range []string{"console.log", "qemu.argv", "records.jsonl"} {
		if m, _ := filepath.Glob(filepath.Join(res.RunDir, "001-*", name)); len(m) != 1 {
			t.Errorf("no %s in %s", name, res.RunDir)
		}
	}
	text.Reset()
	if err := Show(t.Context(), env, res.ID, true, false, &text); err != nil || !strings.Contains(text.String(), "netdev-wait-allrefs") {
		t.Errorf("show: %v\n%s", err, &text)
	}
}

// patchOf makes a patch that puts text in front of a line of a file, by number.
func patchOf(t *testing.T, file, after, add string) string {
	t.Helper()
	src := testkernel.Source(t)
	text, err := src.Repo().ReadFile(t.Context(), src.Head, file, 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(text, "\n")
	i := slices.Index(lines, after)
	if i < 1 {
		t.Fatalf("%s: no line %q", file, after)
	}
	path := filepath.Join(t.TempDir(), "test.patch")
	diff := fmt.Sprintf("--- a/%[1]s\n+++ b/%[1]s\n@@ -%[2]d,3 +%[2]d,4 @@\n %[3]s\n %[4]s\n+%[5]s\n %[6]s\n",
		file, i, lines[i-1], lines[i], add, lines[i+1])
	if err := os.WriteFile(path, []byte(diff), 0o644); err != nil {
		t.Fatal(err)
	}
	return path
}

// Where a real kernel is broken: behind the first line of a function that runs
// before userspace.
const (
	initFile = "net/core/dev.c"
	initLine = "\tint i, rc = -ENOMEM;" // of net_dev_init()
)

// TestRealBadKernels measures kernels that cannot be measured: none of them is
// slow, none is fast, and each is said to be what it is.
func TestRealBadKernels(t *testing.T) {
	env := realEnv(t)
	tests := []struct{ name, code, want string }{
		{"panics before init", "\tpanic(\"kbisect test\");", "kbisect test"},
		{"hangs silently", "\tsmp_send_stop(); local_irq_disable(); while (1) cpu_relax();", "silent"},
		{"stalls", "\twhile (1) cpu_relax();", "stall|soft-lockup"},
		{"resets", "\t{ extern void emergency_restart(void); emergency_restart(); }", "reset"},
		{"does not compile", "\tno_such_function_of_kbisect;", "no_such_function_of_kbisect"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			o := realOptions()
			o.Patch, o.Workload = patchOf(t, initFile, initLine, tt.code), "nexthop-delete,count=10"
			o.Machine.BootLimit = 33 * time.Second // of which the stall detector takes 21, silence 30
			res, err := Run(t.Context(), env, o, os.Stderr)
			var verdict *VerdictError
			if !errors.As(err, &verdict) || verdict.Outcome != Untestable {
				t.Fatalf("got %v", err)
			}
			c := res.Comparisons[0]
			if c.Verdict != report.Untestable || !regexp.MustCompile(tt.want).MatchString(c.Reason) || c.With.N > 0 {
				t.Errorf("%s: %s, want %q in it", c.Verdict, c.Reason, tt.want)
			}
		})
	}
}

// TestRealNoOp changes a comment only: both kernels are the same, and nothing is
// booted to find that out.
func TestRealNoOp(t *testing.T) {
	env := realEnv(t)
	o := realOptions()
	o.Patch, o.Workload = patchOf(t, initFile, initLine, "\t/* kbisect test */"), "nexthop-delete,count=10"
	res, err := Run(t.Context(), env, o, os.Stderr)
	var verdict *VerdictError
	if !errors.As(err, &verdict) || verdict.Outcome != NoDifference {
		t.Fatalf("got %v", err)
	}
	c := res.Comparisons[0]
	if c.Verdict != report.NoOp || c.With.Identity != c.Without.Identity || res.Costs.Runs != 0 {
		t.Errorf("%s: identities %.12s and %.12s, %d runs", c.Verdict, c.With.Identity, c.Without.Identity, res.Costs.Runs)
	}
}

// TestRealNoOpCatalog runs the catalog with patches that change nothing.
func TestRealNoOpCatalog(t *testing.T) {
	env := realEnv(t)
	patch, err := os.ReadFile(patchOf(t, initFile, initLine, "\t/* kbisect test */"))
	if err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(t.TempDir(), "catalog")
	if err := os.CopyFS(dir, os.DirFS("../../patches")); err != nil {
		t.Fatal(err)
	}
	files, _ := filepath.Glob(filepath.Join(dir, "*/*.patch"))
	for _, f := range files {
		if err := os.WriteFile(f, patch, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	o := realOptions()
	o.All, o.Catalog = true, dir
	res, err := Run(t.Context(), env, o, os.Stderr)
	var verdict *VerdictError
	if !errors.As(err, &verdict) || verdict.Outcome != NoDifference || len(files) < 5 {
		t.Fatalf("got %v with %d patches", err, len(files))
	}
	for _, c := range res.Comparisons {
		if c.Verdict != report.NoOp {
			t.Errorf("%s: %s (%s)", c.Case, c.Verdict, c.Reason)
		}
	}
	if len(res.Comparisons) != 5 || res.Costs.Runs != 0 {
		t.Errorf("%d rows after %d runs", len(res.Comparisons), res.Costs.Runs)
	}
}

// TestRealSameKernelTwice measures a kernel against itself.
func TestRealSameKernelTwice(t *testing.T) {
	env := realEnv(t)
	o := realOptions()
	o.Patch, o.Workload = patchOf(t, initFile, initLine, "\t/* kbisect test */"), "nexthop-delete,count=1000"
	o.MeasureNoop, o.Metric = true, "flush"
	o.MaxRuns = 10
	res, err := Run(t.Context(), env, o, os.Stderr)
	var verdict *VerdictError
	if !errors.As(err, &verdict) {
		t.Fatalf("got %v", err)
	}
	c := res.Comparisons[0]
	t.Logf("%s by %s: ratio %.3f %v after %d runs", c.Verdict, c.Gate, c.Ratio, c.RatioCI, res.Costs.Runs)
	if c.Verdict == report.Faster || c.Verdict == report.Slower {
		t.Errorf("a kernel differs from itself: %s, ratio %v", c.Verdict, c.Ratio)
	}
}

// TestRealBoot runs commands in a guest as kbisect boot does.
func TestRealBoot(t *testing.T) {
	env := realEnv(t)
	image := testkernel.Path(t)
	boot := func(argv ...string) (string, error) {
		var out bytes.Buffer
		err := Boot(t.Context(), env, BootOptions{Kernel: image, Argv: argv, Machine: realOptions().Machine,
			Stdin: strings.NewReader(""), Stdout: &out, Stderr: os.Stderr})
		return out.String(), err
	}
	if out, err := boot("sh", "-c", "echo $((6*7)); ip link show lo"); err != nil || !strings.HasPrefix(out, "42\n") || !strings.Contains(out, "LOOPBACK") {
		t.Errorf("got %q, %v", out, err)
	}
	var exit *GuestExit
	if _, err := boot("sh", "-c", "exit 7"); !errors.As(err, &exit) || exit.Status != 7 {
		t.Errorf("got %v, want exit status 7", err)
	}
	if left, _ := filepath.Glob(filepath.Join(env.State, "boots", "*")); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
}
