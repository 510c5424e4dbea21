package testkernel

import (
	"cmp"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/kbisect/kbisect/internal/source"
)

// shape is what a history must look like.
type shape struct {
	make            func(testing.TB, *source.Source) History
	commits, merges int
	culprit         int // its place from 1; 0 is none
	others          []int
	broken          []int
	same            int // how many, at least
}

func shapes() map[string]shape {
	return map[string]shape{
		"chain":            {make: Chain32, commits: 32, culprit: 21, same: 10},
		"does not compile": {make: DoesNotCompile, commits: 16, culprit: 13, broken: []int{6, 7, 8, 9, 10}},
		"panics at boot":   {make: PanicsAtBoot, commits: 16, culprit: 4, broken: []int{7, 8, 9}},
		"comes back":       {make: ComesBack, commits: 16, culprit: 4, others: []int{12}},
		"no regression":    {make: NoRegression, commits: 12, same: 2},
		"range":            {make: Range64, commits: 64, culprit: 41},
		"merged":           {make: Merged, commits: 16, merges: 2, culprit: 10, same: 1},
		"series, first":    {make: seriesOf(1, 6), commits: 6, culprit: 1},
		"series, last":     {make: seriesOf(6, 6), commits: 6, culprit: 6},
		"series, 4th of 6": {make: seriesOf(4, 6), commits: 6, culprit: 4},
	}
}

func seriesOf(culprit, n int) func(testing.TB, *source.Source) History {
	return func(t testing.TB, src *source.Source) History {
		_, h := Series(t, src, culprit, n)
		return h
	}
}

// places returns the ids of commits by their place from 1.
func (h History) places(list []int) []string {
	var ids []string
	for _, i := range list {
		ids = append(ids, h.Commits[i-1])
	}
	return ids
}

func TestHistories(t *testing.T) {
	src := Source(t)
	for name, want := range shapes() {
		t.Run(name, func(t *testing.T) {
			h := want.make(t, src)
			if len(h.Commits) != want.commits || h.Good != src.Head || h.Bad != h.Commits[len(h.Commits)-1] {
				t.Fatalf("%d commits from %.12s to %.12s, want %d", len(h.Commits), h.Good, h.Bad, want.commits)
			}
			t.Logf("%s..%s, culprit %s, broken %v", h.Good, h.Bad, h.Culprit, h.Broken)
			culprit := ""
			if want.culprit > 0 {
				culprit = h.Commits[want.culprit-1]
			}
			if h.Culprit != culprit {
				t.Errorf("the culprit is the %d. commit, want %d", 1+slices.Index(h.Commits, h.Culprit), want.culprit)
			}
			if !slices.Equal(h.Others, h.places(want.others)) || !slices.Equal(h.Broken, h.places(want.broken)) {
				t.Errorf("others %v, broken %v, want %v and %v", h.Others, h.Broken, want.others, want.broken)
			}
			if len(h.Same) < want.same || want.same == 0 && len(h.Same) > 0 {
				t.Errorf("%d commits change nothing, want %d", len(h.Same), want.same)
			}
			checkGraph(t, src, h, want.merges)
			again := want.make(t, src)
			again.Patches = h.Patches // of another folder
			if !reflect.DeepEqual(h, again) {
				t.Errorf("another history the second time: %+v, was %+v", again, h)
			}
		})
	}
}

// checkGraph compares with what git says of the same range: ancestors, merges,
// different trees, and no ref left behind.
func checkGraph(t *testing.T, src *source.Source, h History, merges int) {
	t.Helper()
	ctx, repo := t.Context(), src.Repo()
	list, err := repo.RevList(ctx, h.Good, h.Bad)
	if err != nil {
		t.Fatal(err)
	}
	slices.Reverse(list)
	seen, trees := map[string]bool{h.Good: true}, map[string]bool{}
	for i, c := range list {
		if c.ID != h.Commits[i] {
			t.Errorf("commit %d is %.12s, git says %.12s", i+1, h.Commits[i], c.ID)
		}
		if len(c.Parents) == 2 {
			merges--
		}
		for _, p := range c.Parents {
			if !seen[p] {
				t.Errorf("commit %d comes before its parent", i+1)
			}
		}
		tree, err := repo.TreeID(ctx, c.ID)
		if err != nil {
			t.Fatal(err)
		}
		if trees[tree] {
			t.Errorf("commit %d has the tree of an earlier one", i+1)
		}
		seen[c.ID], trees[tree] = true, true
	}
	if merges != 0 {
		t.Errorf("%d merges are missing", merges)
	}
	if refs, err := repo.Output(ctx, "for-each-ref", "refs/kbisect/test-*"); err != nil || refs != "" {
		t.Errorf("refs left behind: %q, %v", refs, err)
	}
}

// TestMergedShape fails when the culprit is on the first parents' line, where a
// search by first parent would find it without looking into a merge.
func TestMergedShape(t *testing.T) {
	src := Source(t)
	h := Merged(t, src)
	out, err := src.Repo().Output(t.Context(), "rev-list", "--first-parent", h.Good+".."+h.Bad)
	if err != nil {
		t.Fatal(err)
	}
	trunk := strings.Fields(out)
	if len(trunk) != 7 || slices.Contains(trunk, h.Culprit) {
		t.Errorf("%d commits on the first parents' line, culprit among them: %v", len(trunk), slices.Contains(trunk, h.Culprit))
	}
	// A merge has what both sides changed: against each parent, only the other's.
	out, err = src.Repo().Output(t.Context(), "diff", "--name-only", h.Good, h.Bad)
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range []string{"net/core/dev.c", "net/ipv4/arp.c", "net/ipv4/nexthop.c", "drivers/net/veth.c", "net/core/sock.c"} {
		if !slices.Contains(strings.Fields(out), file) {
			t.Errorf("the last commit lacks the change of %s: %s", file, out)
		}
	}
}

// TestPatches applies what Series and Mbox write: git must come to the same tree.
func TestPatches(t *testing.T) {
	src := Source(t)
	base, h := Series(t, src, 4, 6)
	mbox, err := os.ReadFile(h.Mbox(t, src))
	if err != nil {
		t.Fatal(err)
	}
	if n := strings.Count("\n"+string(mbox), "\nFrom "); n != 6 || len(h.Patches) != 6 || base != h.Good {
		t.Fatalf("%d mails, %d files", n, len(h.Patches))
	}
	fourth, err := os.ReadFile(h.Patches[3])
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(mbox), string(fourth)[:200]) || !strings.Contains(string(fourth), "+\tsynchronize_rcu();") {
		t.Errorf("the fourth patch is not the culprit:\n%s", fourth)
	}
	if m, _ := filepath.Match("0004-nexthop-*.patch", filepath.Base(h.Patches[3])); !m {
		t.Errorf("it is called %s", h.Patches[3])
	}
}

// TestRangeTouches fails when a commit of Range64 edits more than one file, or
// few files are edited at all: the prior by files would then decide the search.
func TestRangeTouches(t *testing.T) {
	src := Source(t)
	h := Range64(t, src)
	count := map[string]int{}
	for _, id := range h.Commits {
		out, err := src.Repo().Output(t.Context(), "diff-tree", "-r", "--name-only", "--no-commit-id", id)
		if err != nil {
			t.Fatal(err)
		}
		files := strings.Fields(out)
		if len(files) != 1 || filepath.Ext(files[0]) != ".c" {
			t.Errorf("%.12s changes %q", id, files)
		}
		count[cmp.Or(files...)]++
	}
	if len(count) < 30 || count["net/ipv4/nexthop.c"] < 3 {
		t.Errorf("%d files, %d commits to nexthop.c", len(count), count["net/ipv4/nexthop.c"])
	}
}
