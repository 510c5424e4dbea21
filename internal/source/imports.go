package source

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/gofrs/flock"

	"github.com/kbisect/kbisect/internal/gitx"
)

// record is source.json, written into an import before it appears.
type record struct {
	Head    string `json:"head"`
	Version string `json:"version"`
}

// archive is something that can be imported.
type archive struct {
	key  string // folder name of the import; equal content may have several
	name string // for errors: a path or a package
	size int64  // packed bytes, for the estimate of the room it needs
	// read calls use with the packed archive, decompressed or not.
	read func(ctx context.Context, use func(io.Reader) error) error
}

// imported returns an import that is already there.
func (o *Options) imported(key string) (*Source, bool) {
	dir := o.root("imports", key)
	var rec record
	if err := readJSON(filepath.Join(dir, "source.json"), &rec); err != nil || rec.Head == "" {
		return nil, false
	}
	return &Source{GitDir: filepath.Join(dir, "repo.git"), Head: rec.Head, Version: rec.Version}, true
}

// importOnce imports an archive unless that was done; of several processes that
// want the same one, one works and the others wait.
func importOnce(ctx context.Context, a archive, o *Options) (*Source, error) {
	if src, ok := o.imported(a.key); ok {
		return src, nil
	}
	unlock, err := o.lock(ctx, a.key)
	if err != nil {
		return nil, err
	}
	defer unlock()
	if src, ok := o.imported(a.key); ok {
		return src, nil
	}
	if err := importArchive(ctx, a, o); err != nil {
		return nil, err
	}
	src, ok := o.imported(a.key)
	if !ok {
		return nil, fmt.Errorf("import %s: it vanished from %q", a.name, o.root("imports"))
	}
	return src, nil
}

// tmpPrefix begins the name of an import that is being made.
const tmpPrefix = ".tmp-"

// importArchive makes imports/KEY by way of a temporary folder beside it. The
// caller holds the lock of the key.
func importArchive(ctx context.Context, a archive, o *Options) (err error) {
	imports := o.root("imports")
	if err := os.MkdirAll(imports, 0o755); err != nil {
		return fmt.Errorf("make cache folder: %w", err)
	}
	// Left by an import that was killed: nobody else works on this key now.
	tmp := filepath.Join(imports, tmpPrefix+a.key)
	if err := os.RemoveAll(tmp); err != nil {
		return fmt.Errorf("clear old import: %w", err)
	}
	o.sweepImports()
	// Measured: a 138 MB .tar.xz becomes a 330 MB pack.
	need := 3*a.size + 4<<20
	if err := needRoom(imports, need); err != nil {
		return err
	}
	defer func() {
		if err != nil {
			err = diskFull(err, imports, need)
			err = errors.Join(err, os.RemoveAll(tmp))
		}
	}()
	if err := os.Mkdir(tmp, 0o755); err != nil {
		return fmt.Errorf("make cache folder: %w", err)
	}
	repo, err := gitx.InitBare(ctx, filepath.Join(tmp, "repo.git"), "")
	if err != nil {
		return err
	}
	err = a.read(ctx, func(r io.Reader) error {
		return withUnpacked(ctx, r, func(r io.Reader) error { return importTar(ctx, repo, r) })
	})
	if err != nil {
		if errors.Is(err, errNoArchive) {
			return &SpecError{Spec: a.name, Reason: errNoArchive.Error(), Hint: specForms}
		}
		return fmt.Errorf("import %s: %w", a.name, err)
	}
	rec, err := seal(ctx, repo, a.name)
	if err != nil {
		return err
	}
	if err := writeJSON(filepath.Join(tmp, "source.json"), rec); err != nil {
		return err
	}
	if err := os.Rename(tmp, filepath.Join(imports, a.key)); err != nil {
		return fmt.Errorf("finish import: %w", err)
	}
	return nil
}

// sweepImports removes what killed imports of other keys left, which may be
// hundreds of megabytes that nobody would ask for again.
func (o *Options) sweepImports() {
	entries, _ := os.ReadDir(o.root("imports"))
	for _, e := range entries {
		key, ok := strings.CutPrefix(e.Name(), tmpPrefix)
		if !ok {
			continue
		}
		l := flock.New(o.root("locks", key+".lock"))
		if free, err := l.TryLock(); err == nil && free {
			_ = os.RemoveAll(o.root("imports", e.Name()))
			_ = l.Close()
		}
	}
}

// seal turns what fast-import left into the one commit of the import: the tree
// at the top of the archive, or in its only folder.
func seal(ctx context.Context, repo gitx.Repo, name string) (record, error) {
	tree, err := repo.TreeID(ctx, importRef)
	if err != nil {
		return record{}, err
	}
	version, err := treeVersion(ctx, repo, tree)
	if errors.Is(err, errNoKernel) {
		top, topErr := repo.Output(ctx, "ls-tree", "-z", tree)
		if topErr != nil {
			return record{}, topErr
		}
		if id := onlyFolder(top); id != "" {
			tree = id
			version, err = treeVersion(ctx, repo, tree)
		}
	}
	if errors.Is(err, errNoKernel) {
		return record{}, &SpecError{Spec: name, Reason: err.Error()}
	}
	if err != nil {
		return record{}, err
	}
	// The message has the version and not the archive's name, so that equal
	// content is an equal commit whatever it came in.
	head, err := repo.CommitTree(ctx, tree, "Linux "+version+"\n")
	if err != nil {
		return record{}, err
	}
	if err := repo.SetRef(ctx, "HEAD", head); err != nil {
		return record{}, err
	}
	return record{Head: head, Version: version}, repo.Run(ctx, "update-ref", "-d", importRef)
}

// onlyFolder returns the tree id in the output of ls-tree -z when it is one
// single folder. (pax_global_header is written as a file by old unpackers.)
func onlyFolder(lsTree string) string {
	id := ""
	for _, line := range strings.Split(strings.TrimSuffix(lsTree, "\x00"), "\x00") {
		meta, name, _ := strings.Cut(line, "\t")
		f := strings.Fields(meta)
		if name == "pax_global_header" {
			continue
		}
		if len(f) != 3 || f[1] != "tree" || id != "" {
			return ""
		}
		id = f[2]
	}
	return id
}

// lock takes the lock of a key, waiting for whoever holds it, and returns its
// release. The kernel releases the lock of a process that dies.
func (o *Options) lock(ctx context.Context, key string) (func(), error) {
	dir := o.root("locks")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, fmt.Errorf("make cache folder: %w", err)
	}
	l := flock.New(filepath.Join(dir, key+".lock"))
	ok, err := l.TryLock()
	if err == nil && !ok {
		o.progress(StageWait, 0, 0)
		_, err = l.TryLockContext(ctx, 100*time.Millisecond)
	}
	if err != nil {
		return nil, fmt.Errorf("lock %q: %w", l.Path(), err)
	}
	return func() { _ = l.Close() }, nil
}

// readJSON reads a small file of ours.
func readJSON(path string, v any) error {
	b, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(b, v); err != nil {
		return fmt.Errorf("read %q: %w", path, err)
	}
	return nil
}

// writeJSON writes a small file whole or not at all.
func writeJSON(path string, v any) error {
	b, err := json.MarshalIndent(v, "", "\t")
	if err != nil {
		return fmt.Errorf("write %q: %w", path, err)
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return fmt.Errorf("write %q: %w", path, err)
	}
	return writeFile(path, append(b, '\n'))
}
