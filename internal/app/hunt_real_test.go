package app

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/kbisect/kbisect/internal/report"
	"github.com/kbisect/kbisect/internal/source"
	"github.com/kbisect/kbisect/internal/store"
	"github.com/kbisect/kbisect/internal/testkernel"
)

// The tests below search histories of real kernels, made of real edits on a
// distribution's source (package testkernel). All of them take half an hour the
// first time, so some run only with KBISECT_TEST_HISTORIES=all; with =3 all are
// searched three times.

// histories is how often each history is searched, 0 for not at all.
func histories(t *testing.T, always bool) int {
	t.Helper()
	switch v := os.Getenv("KBISECT_TEST_HISTORIES"); {
	case v == "3":
		return 3
	case v == "" && !always:
		t.Skip("takes minutes; run with KBISECT_TEST_HISTORIES=all")
	}
	return 1
}

func searchOptions(h testkernel.History) RunOptions {
	o := realOptions()
	o.Quick = false
	o.Good, o.Bad, o.Workload = h.Good, h.Bad, "nexthop-delete,count=200"
	return o
}

// hunt searches and shows the result.
func realHunt(t *testing.T, env *Env, o RunOptions) (*report.Result, error) {
	t.Helper()
	begin := time.Now()
	res, err := Run(t.Context(), env, o, os.Stderr)
	if res == nil {
		t.Fatalf("no result: %v\n%s", err, Detail(err))
	}
	var text bytes.Buffer
	if err := report.Text(&text, *res); err != nil {
		t.Fatal(err)
	}
	t.Logf("%s\n%s", time.Since(begin).Round(time.Second), &text)
	return res, err
}

// findsCulprit searches a history as often as asked, and fails unless each
// answer is right and confirmed.
func findsCulprit(t *testing.T, always bool, make func(testing.TB) testkernel.History) *report.Result {
	t.Helper()
	n := histories(t, always)
	env := realEnv(t)
	h := make(t)
	right := append([]string{h.Culprit}, h.Others...)
	var res *report.Result
	for range n {
		var err error
		if res, err = realHunt(t, env, searchOptions(h)); err != nil {
			t.Fatal(err)
		}
		if res.Verdict != report.Found || res.Culprit == nil || !slices.Contains(right, res.Culprit.Revision) {
			t.Fatalf("%s: %+v, want %v", res.Verdict, res.Culprit, right)
		}
		for _, s := range res.Steps {
			if slices.Contains(h.Broken, s.Revision) && s.Status != statusUntestable {
				t.Errorf("%s does not build or boot, and is called %s", s.Revision, s.Status)
			}
		}
	}
	return res
}

func on(make func(testing.TB, *source.Source) testkernel.History) func(testing.TB) testkernel.History {
	return func(t testing.TB) testkernel.History { return make(t, testkernel.Source(t)) }
}

func TestRealChain32(t *testing.T) {
	res := findsCulprit(t, true, on(testkernel.Chain32))
	if c := res.Culprit; c.EValue < 100 || !strings.HasPrefix(c.Revert, "fixes the bad end") {
		t.Errorf("%+v", c)
	}
	// git takes the log as its own.
	src := testkernel.Source(t)
	clone := filepath.Join(t.TempDir(), "clone")
	git := func(dir string, args ...string) string {
		cmd := exec.Command("git", args...)
		cmd.Dir = dir
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("git %v: %v\n%s", args, err, out)
		}
		return strings.TrimSpace(string(out))
	}
	git(".", "clone", "-q", "--shared", "--no-checkout", "--bare", src.GitDir, clone)
	git(clone, "bisect", "start", "--no-checkout")
	git(clone, "bisect", "replay", res.BisectLog)
	if got := git(clone, "rev-parse", "refs/bisect/bad"); got != res.Culprit.Revision {
		t.Errorf("git bisect replay: bad is %s, want %s", got, res.Culprit.Revision)
	}
}

func TestRealDoesNotCompile(t *testing.T) { findsCulprit(t, false, on(testkernel.DoesNotCompile)) }
func TestRealPanicsAtBoot(t *testing.T)   { findsCulprit(t, false, on(testkernel.PanicsAtBoot)) }
func TestRealMerged(t *testing.T)         { findsCulprit(t, false, on(testkernel.Merged)) }
func TestRealComesBack(t *testing.T)      { findsCulprit(t, false, on(testkernel.ComesBack)) }

func TestRealNoRegression(t *testing.T) {
	n := histories(t, true)
	env := realEnv(t)
	h := testkernel.NoRegression(t, testkernel.Source(t))
	for range n {
		res, err := realHunt(t, env, searchOptions(h))
		if endingOf(err) != NoDifference || res.Verdict != report.EndsAlike || res.Culprit != nil {
			t.Errorf("%v: %s %+v", err, res.Verdict, res.Culprit)
		}
	}
}

// TestRealSeries gives a series as a mailbox; patch 4 of 6 by default, and the
// first and the last one with all histories.
func TestRealSeries(t *testing.T) {
	for _, tt := range []struct{ culprit, n int }{{4, 6}, {1, 5}, {5, 5}} {
		t.Run(fmt.Sprintf("patch %d of %d", tt.culprit, tt.n), func(t *testing.T) {
			runs := histories(t, tt.culprit == 4)
			env := realEnv(t)
			src := testkernel.Source(t)
			_, h := testkernel.Series(t, src, tt.culprit, tt.n)
			o := searchOptions(h)
			o.Good, o.Bad, o.Series = "", "", []string{h.Mbox(t, src)}
			want, err := src.Repo().Subject(t.Context(), h.Culprit)
			if err != nil {
				t.Fatal(err)
			}
			for range runs {
				res, err := realHunt(t, env, o)
				if err != nil || res.Culprit == nil || res.Culprit.Subject != want || res.Culprit.Kind != "patch" {
					t.Fatalf("%v: %+v, want %q", err, res.Culprit, want)
				}
			}
		})
	}
}

// TestRealRange64 is the speed that is promised for a clean large effect: at most
// 8 builds beside the ends and the confirmation, 30 runs in all, and 1.6 s a run
// and 10 s beside builds and workloads.
func TestRealRange64(t *testing.T) {
	res := findsCulprit(t, false, on(testkernel.Range64))
	if n := len(res.Steps); n > 8 {
		t.Errorf("%d revisions probed", n)
	}
	if res.Costs.Runs > 30 {
		t.Errorf("%d runs", res.Costs.Runs)
	}
}

// TestRealKill kills the real program at random moments of a search, with all its
// children, and goes on with it: the culprit stays, and nothing that was finished
// is done again.
func TestRealKill(t *testing.T) {
	histories(t, false)
	env := realEnv(t)
	env.State = filepath.Join(env.State, "kbisect") // as the program names it
	h := testkernel.Chain32(t, testkernel.Source(t))
	program := filepath.Join(t.TempDir(), "kbisect")
	if out, err := exec.Command("go", "build", "-o", program, "../../cmd/kbisect").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	const seed = 1
	rng := rand.New(rand.NewPCG(seed, 2))
	start := func(args ...string) *exec.Cmd {
		cmd := exec.Command(program, append([]string{"--quiet"}, args...)...)
		cmd.Env = append(os.Environ(), "XDG_STATE_HOME="+filepath.Dir(env.State), "XDG_CACHE_HOME="+filepath.Dir(env.Cache))
		cmd.Stderr = os.Stderr
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		return cmd
	}
	args := []string{"run", "--kernel", realOptions().Kernel, "--good", h.Good, "--bad", h.Bad, "-w", "nexthop-delete,count=200", "--any-load"}
	for kill := range 10 {
		cmd := start(args...)
		wait := time.Duration(3+rng.IntN(22)) * time.Second
		done := make(chan error, 1)
		go func() { done <- cmd.Wait() }()
		select {
		case <-time.After(wait):
			_ = cmd.Process.Signal(syscall.SIGKILL)
			<-done
			t.Logf("kill %d after %s", kill+1, wait)
		case err := <-done:
			t.Logf("done before kill %d: %v", kill+1, err)
		}
		args = []string{"resume"}
		if !interruptedIn(t, env.State) {
			break
		}
	}
	st, err := store.Open(t.Context(), env.State)
	if err != nil {
		t.Fatal(err)
	}
	defer st.Close()
	if interruptedIn(t, env.State) {
		if err := start("resume").Wait(); err != nil {
			t.Fatal(err)
		}
	}
	runs, err := st.Runs(t.Context(), store.Filter{})
	if err != nil || len(runs) != 1 {
		t.Fatalf("%d runs, %v", len(runs), err)
	}
	res, err := report.ReadFile(runs[0].Result)
	if err != nil || res.Culprit == nil || res.Culprit.Revision != h.Culprit {
		t.Errorf("%v: %+v", err, res.Culprit)
	}
	builtOnce(t.Context(), t, st, runs[0].ID)
}

func interruptedIn(t *testing.T, state string) bool {
	t.Helper()
	st, err := store.Open(t.Context(), state)
	if err != nil {
		t.Fatal(err)
	}
	defer st.Close()
	runs, err := st.Runs(t.Context(), store.Filter{Status: store.Interrupted})
	if err != nil {
		t.Fatal(err)
	}
	return len(runs) > 0
}

// builtOnce fails if a kernel was compiled twice in one run.
func builtOnce(ctx context.Context, t *testing.T, st *store.Store, id string) {
	t.Helper()
	builds, err := st.Builds(ctx, id)
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]bool{}
	for _, b := range builds {
		if !b.Cached && seen[b.Key] {
			t.Errorf("%s was built twice", b.Revision)
		}
		seen[b.Key] = true
	}
}

// What stands on a range that is none is said before anything is built.
func TestRealUsage(t *testing.T) {
	env := realEnv(t)
	o := realOptions()
	o.Good, o.Bad, o.Workload = "v0.1", "HEAD", "nexthop-delete"
	if _, err := Run(t.Context(), env, o, os.Stderr); !errors.As(err, new(*UsageError)) {
		t.Errorf("got %v", err)
	}
}
