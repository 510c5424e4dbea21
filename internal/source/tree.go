package source

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/google/renameio/v2"
	"github.com/kbisect/kbisect/internal/gitx"
)

// openTree opens a git tree of the user by way of a bare repository of our own
// that borrows its objects (objects/info/alternates).
//
// Why borrow: it is instant for a 5 GB history and takes no disk, where a fetch
// copies the pack; hard links need one file system and one owner; a fetch also
// has git check the owner of the tree. The price: objects that the user's own gc
// drops are gone for us as well. gc drops only what no branch, tag or reflog
// reaches, two weeks old; every run names its revisions anew, so that only
// resuming an old run can miss one. Removing the tree removes its name too.
func openTree(ctx context.Context, path string, o Options) (*Source, error) {
	user := gitx.Repo{Dir: path}
	info, err := readTree(ctx, user)
	if err != nil {
		return nil, err
	}
	if err := checkPartial(ctx, user, info, &o); err != nil {
		return nil, err
	}
	version, err := treeVersion(ctx, user, info.head)
	if errors.Is(err, errNoKernel) {
		return nil, &SpecError{Spec: path, Reason: err.Error()}
	}
	if err != nil {
		return nil, err
	}
	key := "tree-" + shortHash(info.objects+"\n"+info.format)
	unlock, err := o.lock(ctx, key)
	if err != nil {
		return nil, err
	}
	defer unlock()
	dir := o.root("trees", key, "repo.git")
	if err := borrow(ctx, dir, info); err != nil {
		return nil, diskFull(err, o.root(), 1<<20)
	}
	src := &Source{GitDir: dir, Head: info.head, Name: path, Version: version, tree: path}
	return src, warnDirty(ctx, user, info, &o)
}

// tree is what has to be known of a user's repository.
type tree struct {
	head    string // commit id
	objects string // object folder
	shallow string // where its shallow file is, if it has one
	format  string // "sha1" or "sha256"
	partial bool   // a partial clone: objects may be missing
	bare    bool
}

func readTree(ctx context.Context, user gitx.Repo) (tree, error) {
	var t tree
	out, err := user.Output(ctx, "rev-parse", "--path-format=absolute", "--git-path", "objects", "--git-path", "shallow",
		"--show-object-format", "--is-bare-repository")
	if errors.Is(err, gitx.ErrNotRepository) {
		return t, &SpecError{Spec: user.Dir, Reason: "a folder, but not the top of a git tree",
			Hint: "name the top of a git tree, or pack the folder (tar -C DIR -caf linux.tar.gz .) and name the tarball"}
	}
	if err != nil {
		return t, err
	}
	// A line each; a newline in the path of a repository is beyond git's own means.
	f := strings.Split(out, "\n")
	if len(f) != 4 {
		return t, fmt.Errorf("read git tree %q: unexpected answer %q", user.Dir, out)
	}
	t.objects, t.shallow, t.format, t.bare = f[0], f[1], f[2], f[3] == "true"
	if t.objects, err = filepath.EvalSymlinks(t.objects); err != nil {
		return t, fmt.Errorf("read git tree: %w", err)
	}
	// Old and new ways to mark one; exit code 1 is "no such setting".
	err = user.Run(ctx, "config", "--get-regexp", `^(extensions\.partialclone|remote\..*\.promisor)$`)
	if e := (*gitx.Error)(nil); err != nil && !(errors.As(err, &e) && e.ExitCode == 1) {
		return t, err
	}
	t.partial = err == nil
	t.head, err = user.ResolveCommit(ctx, "HEAD")
	if errors.As(err, new(*gitx.UnknownRevisionError)) {
		return t, &SpecError{Spec: user.Dir, Reason: "a git tree without a commit"}
	}
	return t, err
}

// borrow makes or refreshes our repository. Every step may be repeated.
func borrow(ctx context.Context, dir string, t tree) error {
	if err := os.MkdirAll(filepath.Dir(dir), 0o755); err != nil {
		return fmt.Errorf("make cache folder: %w", err)
	}
	if _, err := gitx.InitBare(ctx, dir, t.format); err != nil {
		return err
	}
	alternates := filepath.Join(dir, "objects", "info", "alternates")
	if err := os.MkdirAll(filepath.Dir(alternates), 0o755); err != nil {
		return fmt.Errorf("make cache folder: %w", err)
	}
	if err := writeFile(alternates, []byte(alternateLine(t.objects)+"\n")); err != nil {
		return err
	}
	// Where the history was cut is said in a file of its own, which git does not
	// look for in an alternate.
	shallow, err := os.ReadFile(t.shallow)
	if errors.Is(err, os.ErrNotExist) {
		if err = os.Remove(filepath.Join(dir, "shallow")); errors.Is(err, os.ErrNotExist) {
			err = nil
		}
		return err
	}
	if err != nil {
		return fmt.Errorf("read shallow file: %w", err)
	}
	return writeFile(filepath.Join(dir, "shallow"), shallow)
}

// alternateLine quotes a path as objects/info/alternates wants it: a line that
// begins with a quote is C-quoted.
func alternateLine(p string) string {
	if !strings.HasPrefix(p, `"`) && !strings.ContainsAny(p, "\n") {
		return p
	}
	return quotePath(p)
}

// checkPartial refuses a partial clone that lacks files of its HEAD: git would
// fetch them, one by one, and kbisect does not use a user's remotes.
func checkPartial(ctx context.Context, user gitx.Repo, t tree, o *Options) error {
	if !t.partial {
		return nil
	}
	out, err := user.Output(ctx, "rev-list", "--objects", "--no-walk", "--missing=print", t.head)
	if err != nil {
		return err
	}
	if strings.HasPrefix(out, "?") || strings.Contains(out, "\n?") {
		return &SpecError{Spec: user.Dir, Reason: "a partial clone that lacks files of its HEAD",
			Hint: "complete it: git fetch --refetch --no-filter"}
	}
	o.warn("%s is a partial clone: revisions whose files it lacks cannot be built", user.Dir)
	return nil
}

// warnDirty says that uncommitted changes are not seen.
func warnDirty(ctx context.Context, user gitx.Repo, t tree, o *Options) error {
	if t.bare {
		return nil
	}
	// Submodules are none of a kernel's business; untracked files are build output.
	out, err := user.Output(ctx, "status", "--porcelain=v1", "-z", "--untracked-files=no", "--ignore-submodules=all")
	if err != nil {
		return err
	}
	if n := strings.Count(out, "\x00"); n > 0 {
		o.warn("%s has uncommitted changes to %d files: only what is committed is used", user.Dir, n)
	}
	return nil
}

// writeFile replaces a file whole, or not at all, and only if it differs.
func writeFile(path string, content []byte) error {
	if old, err := os.ReadFile(path); err == nil && string(old) == string(content) {
		return nil
	}
	if err := renameio.WriteFile(path, content, 0o644, renameio.WithTempDir(filepath.Dir(path))); err != nil {
		return fmt.Errorf("write %q: %w", path, err)
	}
	return nil
}
