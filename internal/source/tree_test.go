package source

import (
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/kbisect/kbisect/internal/gitx"
)

// userGit runs git as a user would, in dir.
func userGit(t testing.TB, dir string, args ...string) string {
	t.Helper()
	cmd := exec.Command("git", append([]string{"-C", dir, "-c", "user.name=u", "-c", "user.email=u@x", "-c", "protocol.file.allow=always"}, args...)...)
	cmd.Env = append(gitx.Environ(), "GIT_NO_LAZY_FETCH=0") // to make partial clones
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("git %q: %v: %s", args, err, out)
	}
	return strings.TrimSpace(string(out))
}

// userTree makes a kernel tree of two commits, with tag v6.1 on the first.
func userTree(t testing.TB, dir string, initArgs ...string) string {
	t.Helper()
	write(t, filepath.Join(dir, "Makefile"), []byte(makefile61))
	write(t, filepath.Join(dir, "Kbuild"), []byte("x\n"))
	userGit(t, dir, append([]string{"init", "-q", "-b", "main"}, initArgs...)...)
	userGit(t, dir, "add", "-A")
	userGit(t, dir, "commit", "-qm", "one")
	userGit(t, dir, "tag", "v6.1")
	write(t, filepath.Join(dir, "Kbuild"), []byte("y\n"))
	userGit(t, dir, "commit", "-qam", "two")
	return dir
}

// state is everything in a folder that a writer would change.
func state(t testing.TB, dir string) string {
	t.Helper()
	var b strings.Builder
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		b.WriteString(path + " " + info.Mode().String() + " " + info.ModTime().Format(time.RFC3339Nano) + "\n")
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return b.String()
}

func TestTree(t *testing.T) {
	ctx := t.Context()
	dir := userTree(t, filepath.Join(t.TempDir(), `my: "linux" tree`))
	before := state(t, dir)
	o := testOptions(t, nil)
	src := mustOpen(t, dir, o)
	two, one := userGit(t, dir, "rev-parse", "HEAD"), userGit(t, dir, "rev-parse", "v6.1^{commit}")
	if src.Head != two || src.Version != "6.1.7-rc2" || src.Name != dir {
		t.Errorf("Open = %+v", src)
	}
	for rev, want := range map[string]string{"": two, "HEAD": two, "main": two, "v6.1": one, "main~1": one, one[:10]: one} {
		if id, err := src.Resolve(ctx, rev); err != nil || id != want {
			t.Errorf("Resolve(%q) = %s, %v; want %s", rev, id, err, want)
		}
	}
	if _, err := src.Resolve(ctx, "v9"); !errors.As(err, new(*gitx.UnknownRevisionError)) {
		t.Errorf("Resolve(v9): %v", err)
	}
	// All the work happens in the cache: commits, work trees.
	tree, err := src.Repo().TreeID(ctx, one)
	if err != nil {
		t.Fatal(err)
	}
	made, err := src.Repo().CommitTree(ctx, tree, "made\n", two)
	if err != nil {
		t.Fatal(err)
	}
	if id, err := src.Resolve(ctx, made); err != nil || id != made {
		t.Errorf("Resolve of our own commit = %s, %v", id, err)
	}
	wt := filepath.Join(t.TempDir(), "wt")
	if _, err := src.Repo().AddWorktree(ctx, wt, made); err != nil {
		t.Fatal(err)
	}
	if list, err := src.Repo().RevList(ctx, one, made); err != nil || len(list) != 2 {
		t.Errorf("RevList = %v, %v", list, err)
	}
	if after := state(t, dir); after != before {
		t.Errorf("the user's tree changed:\n%s\nwas\n%s", after, before)
	}
	// A new commit of the user's is there at the next Open, in the same repository.
	write(t, filepath.Join(dir, "Kbuild"), []byte("z\n"))
	userGit(t, dir, "commit", "-qam", "three")
	again := mustOpen(t, dir, o)
	if again.GitDir != src.GitDir || again.Head == src.Head {
		t.Errorf("second Open = %+v", again)
	}
	if _, err := again.Repo().TreeID(ctx, again.Head); err != nil {
		t.Error(err)
	}
}

func TestDirtyTree(t *testing.T) {
	dir := userTree(t, t.TempDir())
	head := userGit(t, dir, "rev-parse", "HEAD")
	write(t, filepath.Join(dir, "Kbuild"), []byte("dirty\n"))
	write(t, filepath.Join(dir, "staged"), []byte("x\n"))
	userGit(t, dir, "add", "staged")
	write(t, filepath.Join(dir, "untracked.o"), []byte("x\n"))
	before := state(t, dir)
	var warns []string
	src := mustOpen(t, dir, testOptions(t, &warns))
	if src.Head != head || len(warns) != 1 || !strings.Contains(warns[0], "2 files") {
		t.Errorf("head %s, warnings %q", src.Head, warns)
	}
	if after := state(t, dir); after != before {
		t.Errorf("the user's tree changed:\n%s\nwas\n%s", after, before)
	}
}

// TestTreeKinds opens every shape a repository comes in.
func TestTreeKinds(t *testing.T) {
	base := userTree(t, filepath.Join(t.TempDir(), "base"))
	tmp := t.TempDir()
	userGit(t, base, "clone", "-q", "--bare", base, filepath.Join(tmp, "bare.git"))
	userGit(t, base, "worktree", "add", "-q", "--detach", filepath.Join(tmp, "linked"), "v6.1")
	userGit(t, base, "clone", "-q", "--depth=1", "file://"+base, filepath.Join(tmp, "shallow"))
	userGit(t, base, "clone", "-q", "--shared", base, filepath.Join(tmp, "shared"))
	userGit(t, base, "clone", "-q", "--separate-git-dir", filepath.Join(tmp, "elsewhere"), base, filepath.Join(tmp, "gitfile"))
	userTree(t, filepath.Join(tmp, "sha256"), "--object-format=sha256")
	if err := os.Symlink(base, filepath.Join(tmp, "symlink")); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"bare.git", "linked", "shallow", "shared", "gitfile", "sha256", "symlink"} {
		t.Run(name, func(t *testing.T) {
			dir := filepath.Join(tmp, name)
			src := mustOpen(t, dir, testOptions(t, nil))
			if want := userGit(t, dir, "rev-parse", "HEAD"); src.Head != want {
				t.Errorf("head %s; want %s", src.Head, want)
			}
			wt, err := src.Repo().AddWorktree(t.Context(), filepath.Join(t.TempDir(), "wt"), src.Head)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := os.Stat(filepath.Join(wt.Dir, "Makefile")); err != nil {
				t.Error(err)
			}
			want := map[string]int{"shallow": 1, "linked": 1}[name]
			if want == 0 {
				want = 2
			}
			if list, err := src.Repo().RevList(t.Context(), "", src.Head); err != nil || len(list) != want {
				t.Errorf("history of %d, %v; want %d", len(list), err, want)
			}
		})
	}
}

func TestUnshallow(t *testing.T) {
	base := userTree(t, filepath.Join(t.TempDir(), "base"))
	dir := filepath.Join(t.TempDir(), "shallow")
	userGit(t, base, "clone", "-q", "--depth=1", "file://"+base, dir)
	o := testOptions(t, nil)
	mustOpen(t, dir, o)
	userGit(t, dir, "fetch", "-q", "--unshallow")
	src := mustOpen(t, dir, o)
	if list, err := src.Repo().RevList(t.Context(), "", src.Head); err != nil || len(list) != 2 {
		t.Errorf("history of %d, %v; want 2", len(list), err)
	}
}

func TestPartialClone(t *testing.T) {
	base := userTree(t, filepath.Join(t.TempDir(), "base"))
	userGit(t, base, "config", "uploadpack.allowFilter", "true")
	userGit(t, base, "config", "uploadpack.allowAnySHA1InWant", "true")
	dir := filepath.Join(t.TempDir(), "partial")
	userGit(t, base, "clone", "-q", "--filter=blob:none", "file://"+base, dir)
	var warns []string
	o := testOptions(t, &warns)
	if src := mustOpen(t, dir, o); len(warns) != 1 || !strings.Contains(warns[0], "partial clone") {
		t.Errorf("%+v, warnings %q", src, warns)
	}
	bare := filepath.Join(t.TempDir(), "bare.git")
	userGit(t, base, "clone", "-q", "--bare", "--filter=blob:none", "file://"+base, bare)
	var e *SpecError
	if _, err := Open(t.Context(), bare, o); !errors.As(err, &e) {
		t.Errorf("a clone without files: %v; want a SpecError", err)
	}
}

func TestBadTrees(t *testing.T) {
	noKernel := filepath.Join(t.TempDir(), "other")
	write(t, filepath.Join(noKernel, "Makefile"), []byte("all:\n"))
	userGit(t, noKernel, "init", "-q")
	userGit(t, noKernel, "add", "-A")
	userGit(t, noKernel, "commit", "-qm", "x")
	empty := t.TempDir()
	userGit(t, empty, "init", "-q")
	below := filepath.Join(userTree(t, t.TempDir()), "net")
	write(t, filepath.Join(below, "Kbuild"), nil)
	for dir, part := range map[string]string{
		noKernel:    "not a kernel source",
		empty:       "without a commit",
		below:       "not the top of a git tree",
		t.TempDir(): "not the top of a git tree",
	} {
		var e *SpecError
		if _, err := Open(t.Context(), dir, testOptions(t, nil)); !errors.As(err, &e) || !strings.Contains(err.Error(), part) || !strings.Contains(err.Error(), dir) {
			t.Errorf("Open: %v; want %q", err, part)
		}
	}
}

// TestAlternateLine writes the path of an object folder as git reads it.
func TestAlternateLine(t *testing.T) {
	dir := userTree(t, filepath.Join(t.TempDir(), "a\\b\n\"c"))
	// git itself prints such a path in several lines; refused, not misread.
	if _, err := Open(t.Context(), dir, testOptions(t, nil)); err == nil {
		t.Error("a newline in a path was taken")
	}
	dir = userTree(t, filepath.Join(t.TempDir(), "#a\\b \"c\""))
	mustOpen(t, dir, testOptions(t, nil))
}
