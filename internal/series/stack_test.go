package series

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/kbisect/kbisect/internal/gitx"
)

// TestStackIsApply: a series applied at once is its patches applied one by one.
func TestStackIsApply(t *testing.T) {
	c := kinds(t)
	patches, err := RangePatches(t.Context(), c.repo, c.base, "HEAD")
	if err != nil {
		t.Fatal(err)
	}
	var want []string
	at := c.base
	for _, p := range patches {
		if at, err = Apply(t.Context(), c.repo, at, p, false); err != nil {
			t.Fatal(err)
		}
		want = append(want, at)
	}
	for range 2 {
		got, err := Stack(t.Context(), c.repo, c.base, patches)
		if err != nil || !slices.Equal(got, want) {
			t.Errorf("Stack = %v, %v; want %v", got, err, want)
		}
	}
	if none, err := Stack(t.Context(), c.repo, c.base, nil); err != nil || len(none) != 0 {
		t.Errorf("Stack of nothing = %v, %v", none, err)
	}
	entries, err := os.ReadDir(filepath.Join(c.repo.Dir, ".git", scratchName))
	if os.IsNotExist(err) {
		entries, err = os.ReadDir(filepath.Join(c.repo.Dir, scratchName))
	}
	if err != nil || len(entries) != 0 {
		t.Errorf("left behind: %v, %v", entries, err)
	}
}

// TestStackSHA256: the ids of trees and commits are computed here.
func TestStackSHA256(t *testing.T) {
	ctx := t.Context()
	repo, err := gitx.InitBare(ctx, filepath.Join(t.TempDir(), "r.git"), "sha256")
	if err != nil {
		t.Fatal(err)
	}
	slow := commit(t, repo, slowTree)
	fix, add := mustParse(t, "fix.patch", fixPatch), mustParse(t, "add.patch", addPatch)
	made, err := Stack(ctx, repo, slow, []Patch{fix, add})
	if err != nil {
		t.Fatal(err)
	}
	one, err := Apply(ctx, repo, slow, fix, false)
	if err != nil {
		t.Fatal(err)
	}
	two, err := Apply(ctx, repo, one, add, false)
	if err != nil || !slices.Equal(made, []string{one, two}) {
		t.Errorf("Stack = %v; Apply %s, %s, %v", made, one, two, err)
	}
}

func TestStackErrors(t *testing.T) {
	ctx := t.Context()
	repo, slow := scratch(t, slowTree)
	fast := commit(t, repo, fastTree)
	fix := mustParse(t, "fix.patch", fixPatch)
	add := mustParse(t, "add.patch", addPatch)
	stranger := mustParse(t, "stranger.patch", strings.ReplaceAll(addPatch, "line 21", "line x"))
	tabs, tabbed := scratch(t, map[string]string{"net/a.c": "{\n\ta\n\tb\n}\n"})
	spaces := mustParse(t, "spaces.patch", "--- a/net/a.c\n+++ b/net/a.c\n@@ -1,4 +1,4 @@\n {\n         a\n-        b\n+        c\n }\n")
	for name, c := range map[string]struct {
		repo    gitx.Repo
		base    string
		patches []Patch
		index   int
		want    StackError
		text    string
	}{
		"first":     {repo, slow, []Patch{stranger, add}, 0, StackError{}, `patch 1 of 2, "stranger.patch" (stranger.patch), does not fit commit ` + slow[:12] + ": net/a.c:20: the lines are not there"},
		"third":     {repo, slow, []Patch{fix, add, stranger}, 2, StackError{}, "does not fit on the 2 before it: net/a.c:20"},
		"in base":   {repo, fast, []Patch{add, fix}, 1, StackError{InBase: true}, `"net: a fix of two lines" (fix.patch), is in the base already`},
		"twice":     {repo, slow, []Patch{fix, fix}, 1, StackError{InSeries: true}, "in the patches before it already"},
		"no tabs":   {tabs, tabbed, []Patch{spaces}, 0, StackError{Damaged: true}, "turned tabs into spaces"},
		"no file":   {tabs, tabbed, []Patch{mustParse(t, "x", strings.ReplaceAll(fixPatch, "net/a.c", "net/b.c"))}, 0, StackError{}, "net/b.c: no such file"},
		"file made": {tabs, tabbed, []Patch{mustParse(t, "x", "--- /dev/null\n+++ b/net/a.c\n@@ -0,0 +1 @@\n+x\n")}, 0, StackError{}, "net/a.c: the file exists already"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := Stack(ctx, c.repo, c.base, c.patches)
			var e *StackError
			if !errors.As(err, &e) || !errors.As(err, new(*PatchError)) {
				t.Fatalf("error %v", err)
			}
			if e.Index != c.index || e.InBase != c.want.InBase || e.InSeries != c.want.InSeries || e.Damaged != c.want.Damaged || !strings.Contains(err.Error(), c.text) {
				t.Errorf("got %+v: %v", e, err)
			}
		})
	}
	// A folder in the place of a file, and a file in the place of a folder: never a
	// commit without what was there.
	for name, text := range map[string]string{
		"over a folder": "--- /dev/null\n+++ b/net\n@@ -0,0 +1 @@\n+x\n",
		"under a file":  "--- /dev/null\n+++ b/net/a.c/x\n@@ -0,0 +1 @@\n+x\n",
	} {
		if made, err := Stack(ctx, repo, slow, []Patch{mustParse(t, name, text)}); err == nil {
			t.Errorf("%s: made %v", name, made)
		}
	}
	if _, err := Stack(ctx, repo, "nothing", []Patch{fix}); !errors.As(err, new(*gitx.UnknownRevisionError)) {
		t.Errorf("unknown base: %v", err)
	}
	cancelled, cancel := context.WithCancel(ctx)
	cancel()
	if _, err := Stack(cancelled, repo, slow, []Patch{fix}); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
}

func TestRangePatches(t *testing.T) {
	ctx := t.Context()
	c := newClone(t, map[string]string{"a": numbered(40, nil)})
	c.commit("[net] one [x]", map[string]string{"a": numbered(40, map[int]string{3: "x\n"})})
	c.git("commit", "-q", "--allow-empty", "-m", "empty")
	two := c.commit("two", map[string]string{"b": "b\n"})
	// A user's settings must not change a patch.
	for _, kv := range [][2]string{{"diff.noprefix", "true"}, {"diff.mnemonicPrefix", "true"}, {"diff.context", "0"}, {"diff.external", "false"}, {"color.ui", "always"}, {"log.showSignature", "true"}} {
		c.git("config", kv[0], kv[1])
	}
	patches, err := RangePatches(ctx, c.repo, c.base, two)
	if err != nil || !slices.Equal(subjects(patches), []string{"one [x]", "two"}) {
		t.Fatalf("RangePatches = %q, %v", subjects(patches), err)
	}
	made, err := Stack(ctx, c.repo, c.base, patches)
	if err != nil {
		t.Fatal(err)
	}
	sameTree(t, c.repo, made[1], two)

	c.git("checkout", "-q", "--detach", c.base)
	c.commit("side", map[string]string{"s": "s\n"})
	c.git("merge", "-q", "--no-ff", "-m", "the merge", two)
	merge := c.git("rev-parse", "HEAD")
	top := c.commit("top", map[string]string{"t": "t\n"})
	var me *MergeError
	if _, err := RangePatches(ctx, c.repo, c.base, top); !errors.As(err, &me) || me.Commit != merge || !strings.Contains(err.Error(), `("the merge") is a merge`) {
		t.Errorf("merge: %v", err)
	}
	if _, err := RangePatches(ctx, c.repo, two, c.base); err == nil || !strings.Contains(err.Error(), "has no commit that changes") {
		t.Errorf("turned round: %v", err)
	}
	if _, err := RangePatches(ctx, c.repo, "", two); err == nil {
		t.Error("took a range without a beginning")
	}
	if _, err := RangePatches(ctx, c.repo, "none", two); !errors.As(err, new(*gitx.UnknownRevisionError)) {
		t.Errorf("unknown: %v", err)
	}
}

// BenchmarkStack puts 64 patches on a tree of 80,000 files, as a kernel is.
func BenchmarkStack(b *testing.B) {
	files := map[string]string{}
	for i := range 80_000 {
		files[fmt.Sprintf("d%d/e%d/f%d.c", i%50, i%1000, i)] = "x\n"
	}
	maps.Copy(files, slowTree)
	repo, base := scratch(b, files)
	var patches []Patch
	for i := range 64 {
		name := fmt.Sprintf("d%d/e%d/f%d.c", i%50, i%1000, i)
		patches = append(patches, mustParse(b, name, fmt.Sprintf("--- a/%s\n+++ b/%s\n@@ -1 +1 @@\n-x\n+%d\n", name, name, i)))
	}
	for b.Loop() {
		if _, err := Stack(b.Context(), repo, base, patches); err != nil {
			b.Fatal(err)
		}
	}
}
