package bisect_test

import (
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/kbisect/kbisect/internal/bisect"
)

// repo is a bare scratch repository.
type repo struct {
	t   *testing.T
	dir string
}

func newRepo(t *testing.T) repo {
	t.Helper()
	if _, err := exec.LookPath("git"); err != nil {
		if testing.Short() {
			t.Skip("needs git")
		}
		t.Fatal("needs git: kbisect doctor --install")
	}
	r := repo{t, t.TempDir()}
	r.git("", "init", "--quiet", "--bare", "--initial-branch=main")
	return r
}

// git runs git in the repository, with nobody's configuration, and returns what
// it prints.
func (r repo) git(stdin string, args ...string) string {
	r.t.Helper()
	cmd := exec.Command("git", args...)
	cmd.Dir = r.dir
	for _, v := range os.Environ() {
		if !strings.HasPrefix(v, "GIT_") {
			cmd.Env = append(cmd.Env, v)
		}
	}
	cmd.Env = append(cmd.Env, "GIT_CONFIG_NOSYSTEM=1", "GIT_CONFIG_GLOBAL=/dev/null", "HOME="+r.dir)
	cmd.Stdin = strings.NewReader(stdin)
	out, err := cmd.CombinedOutput()
	if err != nil {
		r.t.Fatalf("git %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return strings.TrimSpace(string(out))
}

// fill writes a good commit and above it a history with the given parents, and
// returns the range's ends.
func (r repo) fill(parents [][]int) (good, bad string) {
	var in strings.Builder
	commit := func(mark int, from []int) {
		fmt.Fprintf(&in, "commit refs/heads/main\nmark :%d\ncommitter t <t@example.org> %d +0000\ndata 2\n%d\n", mark, 1e9+mark, mark%10)
		for i, p := range from {
			fmt.Fprintf(&in, "%s :%d\n", []string{"from", "merge"}[min(i, 1)], p)
		}
		in.WriteString("\n")
	}
	commit(1, nil)
	for v, ps := range parents {
		from := []int{1}
		if len(ps) > 0 {
			from = nil
		}
		for _, p := range ps {
			from = append(from, p+2)
		}
		commit(v+2, from)
	}
	in.WriteString("done\n")
	r.git(in.String(), "fast-import", "--quiet", "--done", "--export-marks=marks")
	marks, err := os.ReadFile(filepath.Join(r.dir, "marks"))
	must(r.t, err)
	for line := range strings.Lines(string(marks)) {
		if hash, ok := strings.CutPrefix(line, ":1 "); ok {
			good = strings.TrimSpace(hash)
		}
	}
	return good, r.git("", "rev-parse", "refs/heads/main")
}

// graph reads the range back as a search gets it.
func (r repo) graph(good, bad string) (*bisect.Graph, []string) {
	var parents [][]int
	var hashes []string
	number := map[string]int{}
	for line := range strings.Lines(r.git("", "rev-list", "--topo-order", "--reverse", "--parents", good+".."+bad)) {
		f := strings.Fields(line)
		var ps []int
		for _, p := range f[1:] {
			if i, ok := number[p]; ok {
				ps = append(ps, i)
			}
		}
		number[f[0]] = len(hashes)
		hashes, parents = append(hashes, f[0]), append(parents, ps)
	}
	g, err := bisect.NewGraph(parents)
	must(r.t, err)
	return g, hashes
}

// bisected is git's own answer.
func (r repo) bisected(good, bad string, goods []string) string {
	list := filepath.Join(r.dir, "goods")
	must(r.t, os.WriteFile(list, []byte(strings.Join(goods, "\n")+"\n"), 0o644))
	r.git("", "bisect", "start", "--no-checkout", bad, good)
	// Without a child process: this is most of the test's time.
	r.git("", "bisect", "run", "sh", "-c", `read h <BISECT_HEAD; while read g; do [ "$g" = "$h" ] && exit 0; done <goods; exit 1`)
	return r.git("", "rev-parse", "refs/bisect/bad")
}

// TestAsGitBisect: without noise the answer is that of git bisect, on random
// histories with merges in real repositories.
func TestAsGitBisect(t *testing.T) {
	for i := range uint64(20) {
		t.Run(fmt.Sprint(i), func(t *testing.T) {
			t.Parallel() // it mostly waits for git
			asGitBisect(t, rand.New(rand.NewPCG(i, 20)))
		})
	}
}

func asGitBisect(t *testing.T, rng *rand.Rand) {
	r := newRepo(t)
	good, bad := r.fill(randomParents(2+rng.IntN(60), rng))
	g, hashes := r.graph(good, bad)
	culprit := rng.IntN(g.Len())
	var goods []string
	for v, h := range hashes {
		if !g.Has(v, culprit) {
			goods = append(goods, h)
		}
	}
	want := r.bisected(good, bad, goods)
	if want != hashes[culprit] {
		t.Fatalf("git bisect finds %s, the culprit is %s", want, hashes[culprit])
	}
	for name, start := range map[string]func(*bisect.Graph, bisect.Options) (strategy, error){"search": newSearch, "sprt": newSPRT} {
		w := noisy(g, 0, 1, 10)
		w.culprit, w.start = culprit, start
		got := w.explore(t, rng)
		if got.found == nil || len(got.found.Class) != 1 || hashes[got.found.Class[0]] != want {
			t.Errorf("%s of %d: found %+v, git bisect %d", name, g.Len(), got.found, culprit)
		}
	}
}
