package gitx

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// scratch makes a bare repository with a small history and returns it with the
// ids of its commits: 0 -> 1 -> 3 (merge of 1 and 2), 0 -> 2, and 4 unrelated.
func scratch(t *testing.T) (Repo, []string) {
	t.Helper()
	ctx := t.Context()
	r, err := InitBare(ctx, filepath.Join(t.TempDir(), "a b:c.git"), "")
	if err != nil {
		t.Fatal(err)
	}
	tree := func(body string) string {
		t.Helper()
		id, err := r.output(ctx, Command{Args: []string{"hash-object", "-w", "--stdin"}, Stdin: strings.NewReader(body)})
		if err != nil {
			t.Fatal(err)
		}
		id, err = r.output(ctx, Command{Args: []string{"mktree"}, Stdin: strings.NewReader("100644 blob " + id + "\tfile\n")})
		if err != nil {
			t.Fatal(err)
		}
		return id
	}
	var ids []string
	for i, parents := range [][]int{{}, {0}, {0}, {1, 2}, {}} {
		var ps []string
		for _, p := range parents {
			ps = append(ps, ids[p])
		}
		id, err := r.CommitTree(ctx, tree(strings.Repeat("x\n", i+1)), "subject "+string(rune('0'+i))+"\n\nbody\n", ps...)
		if err != nil {
			t.Fatal(err)
		}
		ids = append(ids, id)
	}
	if err := r.SetRef(ctx, "refs/heads/main", ids[3]); err != nil {
		t.Fatal(err)
	}
	return r, ids
}

func TestResolve(t *testing.T) {
	r, ids := scratch(t)
	for _, rev := range []string{"main", "HEAD^{/subject 3}", ids[3], ids[3][:12], "main^{tree}^{commit}"} {
		got, err := r.ResolveCommit(t.Context(), rev)
		if rev == "main^{tree}^{commit}" || rev == "HEAD^{/subject 3}" {
			if err == nil {
				t.Errorf("ResolveCommit(%q) = %s; want an error", rev, got)
			}
			continue
		}
		if err != nil || got != ids[3] {
			t.Errorf("ResolveCommit(%q) = %s, %v; want %s", rev, got, err, ids[3])
		}
	}
	for _, rev := range []string{"nothing", strings.Repeat("a", 40), "v6.1..v6.2"} {
		var unknown *UnknownRevisionError
		if _, err := r.ResolveCommit(t.Context(), rev); !errors.As(err, &unknown) {
			t.Errorf("ResolveCommit(%q): %v; want an UnknownRevisionError", rev, err)
		}
	}
	for _, rev := range []string{"", "-h", "--all", "a\nb"} {
		if id, err := r.ResolveCommit(t.Context(), rev); err == nil {
			t.Errorf("ResolveCommit(%q) = %s; want an error", rev, id)
		}
	}
}

func TestHistory(t *testing.T) {
	ctx := t.Context()
	r, ids := scratch(t)
	if s, err := r.Subject(ctx, "main"); err != nil || s != "subject 3" {
		t.Errorf("Subject = %q, %v", s, err)
	}
	for _, c := range []struct {
		a, b int
		anc  bool
		base string
	}{{0, 3, true, ids[0]}, {1, 2, false, ids[0]}, {3, 0, false, ids[0]}, {0, 4, false, ""}, {1, 1, true, ids[1]}} {
		if got, err := r.IsAncestor(ctx, ids[c.a], ids[c.b]); err != nil || got != c.anc {
			t.Errorf("IsAncestor(%d, %d) = %v, %v", c.a, c.b, got, err)
		}
		if got, err := r.MergeBase(ctx, ids[c.a], ids[c.b]); err != nil || got != c.base {
			t.Errorf("MergeBase(%d, %d) = %s, %v; want %s", c.a, c.b, got, err, c.base)
		}
	}
	if _, err := r.IsAncestor(ctx, "nothing", "main"); exitCode(err) != 128 {
		t.Errorf("IsAncestor of an unknown revision: %v", err)
	}
	list, err := r.RevList(ctx, ids[0], "main")
	if err != nil || len(list) != 3 || list[0].ID != ids[3] || !slices.Equal(list[0].Parents, []string{ids[1], ids[2]}) {
		t.Errorf("RevList = %v, %v", list, err)
	}
	if list, err = r.RevList(ctx, "", "main", "file"); err != nil || len(list) != 4 {
		t.Errorf("RevList of file = %v, %v", list, err)
	}
	if list, err = r.RevList(ctx, "main", "main"); err != nil || len(list) != 0 {
		t.Errorf("empty RevList = %v, %v", list, err)
	}
	if body, err := r.ReadFile(ctx, "main", "file", 3); err != nil || body != "x\nx" {
		t.Errorf("ReadFile = %q, %v", body, err)
	}
	if _, err := r.ReadFile(ctx, "main", "none", 3); !errors.As(err, new(*UnknownRevisionError)) {
		t.Errorf("ReadFile of nothing: %v", err)
	}
}

// TestCommitTreeDeterministic fails when the machine, the time or the user gets
// into a commit.
func TestCommitTreeDeterministic(t *testing.T) {
	t.Setenv("GIT_AUTHOR_DATE", "1234567890 +0100")
	_, a := scratch(t)
	t.Setenv("GIT_AUTHOR_NAME", "somebody")
	t.Setenv("TZ", "Asia/Tokyo")
	_, b := scratch(t)
	if !slices.Equal(a, b) {
		t.Errorf("commits differ: %v, %v", a, b)
	}
	if want := "3cc65361ea"; !strings.HasPrefix(a[3], want) {
		t.Errorf("commit is %s, was %s...: every kernel's name changes with it", a[3], want)
	}
}

// TestEnvironment runs git as a hook of another repository would: nothing of it
// may reach ours.
func TestEnvironment(t *testing.T) {
	ctx := t.Context()
	r, ids := scratch(t)
	bad := filepath.Join(t.TempDir(), "gitconfig")
	marker := filepath.Join(t.TempDir(), "ran")
	if err := os.WriteFile(bad, []byte("[core]\n\tpager = touch '"+marker+"'\n[log]\n\tshowSignature = true\n[alias]\n\trev-list = !false\nbroken"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_OBJECT_DIRECTORY", "GIT_CONFIG_GLOBAL", "GIT_CONFIG_SYSTEM",
		"GIT_CONFIG", "GIT_TRACE", "GIT_ALTERNATE_OBJECT_DIRECTORIES", "GIT_CEILING_DIRECTORIES", "GIT_NAMESPACE"} {
		t.Setenv(name, bad)
	}
	t.Setenv("GIT_CONFIG_COUNT", "1")
	t.Setenv("GIT_CONFIG_KEY_0", "core.bare")
	t.Setenv("GIT_CONFIG_VALUE_0", "maybe")
	t.Setenv("LANG", "de_DE.UTF-8")
	if id, err := r.ResolveCommit(ctx, "main"); err != nil || id != ids[3] {
		t.Errorf("ResolveCommit = %s, %v", id, err)
	}
	if s, err := r.Subject(ctx, "main"); err != nil || s != "subject 3" {
		t.Errorf("Subject = %q, %v", s, err)
	}
	if _, err := os.Stat(marker); err == nil {
		t.Error("a configured program ran")
	}
	for _, kv := range Environ() {
		if strings.Contains(kv, bad) {
			t.Errorf("leaked %q", kv)
		}
	}
}

func TestWorktree(t *testing.T) {
	ctx := t.Context()
	r, ids := scratch(t)
	// A hook of the repository must not run.
	hook := filepath.Join(r.Dir, "hooks", "post-checkout")
	if err := os.MkdirAll(filepath.Dir(hook), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(hook, []byte("#!/bin/sh\nexit 1\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(t.TempDir(), "w t:1")
	w, err := r.AddWorktree(ctx, dir, ids[0])
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "file"), []byte("changed"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := w.Checkout(ctx, ids[3]); err != nil {
		t.Fatal(err)
	}
	if b, err := os.ReadFile(filepath.Join(dir, "file")); err != nil || string(b) != "x\nx\nx\nx\n" {
		t.Errorf("file = %q, %v", b, err)
	}
	if id, err := w.ResolveCommit(ctx, "HEAD"); err != nil || id != ids[3] {
		t.Errorf("HEAD = %s, %v", id, err)
	}
	list, err := r.Worktrees(ctx)
	if err != nil || len(list) != 2 || list[1] != (Worktree{dir, ids[3]}) {
		t.Errorf("Worktrees = %v, %v", list, err)
	}
	if err := r.RemoveWorktree(ctx, dir); err != nil {
		t.Error(err)
	}
	if err := r.RemoveWorktree(ctx, dir); err != nil {
		t.Errorf("second removal: %v", err)
	}
	// One whose folder was deleted by hand can be made again at once.
	if _, err := r.AddWorktree(ctx, dir, ids[0]); err != nil {
		t.Fatal(err)
	}
	if err := os.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
	if _, err := r.AddWorktree(ctx, dir, ids[0]); err != nil {
		t.Error(err)
	}
}

func TestErrors(t *testing.T) {
	r, _ := scratch(t)
	err := r.Run(t.Context(), "cat-file", "blob", "nothing")
	var e *Error
	if !errors.As(err, &e) || e.ExitCode != 128 || e.Stderr == "" || e.Argv[1] != "cat-file" {
		t.Errorf("Run = %#v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := r.Run(ctx, "version"); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
	// A folder below somebody's repository is not that repository.
	sub := filepath.Join(r.Dir, "refs")
	if err := (Repo{Dir: sub}).Run(t.Context(), "rev-parse", "HEAD"); !errors.Is(err, ErrNotRepository) {
		t.Errorf("below a repository: %v", err)
	}
	if err := (Repo{Dir: "relative"}).Run(t.Context(), "version"); err == nil {
		t.Error("a relative path was taken")
	}
	t.Setenv("PATH", t.TempDir())
	if err := r.Run(t.Context(), "version"); !errors.Is(err, exec.ErrNotFound) || !strings.Contains(err.Error(), "not installed") {
		t.Errorf("no git: %v", err)
	}
}

func TestTail(t *testing.T) {
	var tl tail
	for range 1000 {
		if n, err := tl.Write([]byte("0123456789")); n != 10 || err != nil {
			t.Fatal(n, err)
		}
	}
	if s := tl.String(); len(s) != tailMax || !strings.HasSuffix(s, "789") {
		t.Errorf("tail of %d bytes", len(s))
	}
}
