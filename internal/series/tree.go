package series

import (
	"context"
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"

	"github.com/kbisect/kbisect/internal/gitx"
)

// entry is one name in a tree; the zero entry is none.
type entry struct{ mode, id string }

// forest is a commit's tree in which files are changed again and again. Folders
// are read once; what changes is collected in a pack, and its ids are computed
// here, so that no git runs for a change.
type forest struct {
	repo    gitx.Repo
	pack    *gitx.Pack
	root    string                      // id of the tree it began with
	folders map[string]map[string]entry // by path, "" is the root
}

// newForest reads, of a commit, the folders that the named files are in.
func newForest(ctx context.Context, repo gitx.Repo, commit string, names []string) (*forest, error) {
	root, err := repo.TreeID(ctx, commit)
	if err != nil {
		return nil, err
	}
	f := &forest{repo: repo, pack: gitx.NewPack(root), root: root, folders: map[string]map[string]entry{}}
	wanted := map[string]bool{}
	for _, name := range names {
		for dir, _ := parent(name); dir != ""; dir, _ = parent(dir) {
			wanted[dir] = true
		}
	}
	if f.folders[""], err = f.list(ctx, root); err != nil {
		return nil, err
	}
	for dirs := range slices.Chunk(slices.Sorted(maps.Keys(wanted)), maxNames) {
		if err := f.load(ctx, dirs); err != nil {
			return nil, err
		}
	}
	return f, f.check()
}

// list reads one tree.
func (f *forest) list(ctx context.Context, id string, args ...string) (map[string]entry, error) {
	out, err := f.repo.Output(ctx, append([]string{"--literal-pathspecs", "ls-tree", "-z", "--full-tree", id}, args...)...)
	if err != nil {
		return nil, err
	}
	all := map[string]entry{}
	for line := range strings.SplitSeq(strings.TrimSuffix(out, "\x00"), "\x00") {
		if line == "" {
			continue
		}
		// "100644 blob ID\tNAME"
		about, name, _ := strings.Cut(line, "\t")
		w := strings.Fields(about)
		if len(w) != 3 || name == "" {
			return nil, fmt.Errorf("read tree %s: %q is no entry", id, line)
		}
		all[name] = entry{mode: w[0], id: w[2]}
	}
	return all, nil
}

// load reads folders, those that are there, with one git.
func (f *forest) load(ctx context.Context, dirs []string) error {
	args := []string{"-t", "--"}
	for _, dir := range dirs {
		args = append(args, dir+"/")
	}
	all, err := f.list(ctx, f.root, args...)
	if err != nil {
		return err
	}
	for name, e := range all {
		// The folders on the way to those that were asked for are listed in part.
		dir, base := parent(name)
		if _, asked := slices.BinarySearch(dirs, dir); !asked {
			continue
		}
		if f.folders[dir] == nil {
			f.folders[dir] = map[string]entry{}
		}
		f.folders[dir][base] = e
	}
	return nil
}

// check makes sure that folders were read to the last name, by their ids: a name
// that is lost here would be a file that a commit removes.
func (f *forest) check() error {
	for dir, folder := range f.folders {
		want := f.root
		if dir != "" {
			up, base := parent(dir)
			want = f.folders[up][base].id
		}
		data, err := encode(folder)
		if err != nil {
			return err
		}
		if got := f.pack.ID("tree", data); got != want {
			return fmt.Errorf("read tree: %q was read as %s and is %q", dir, got, want)
		}
	}
	return nil
}

func encode(folder map[string]entry) ([]byte, error) {
	entries := make([]gitx.TreeEntry, 0, len(folder))
	for name, e := range folder {
		entries = append(entries, gitx.TreeEntry{Mode: e.mode, Name: name, ID: e.id})
	}
	slices.SortFunc(entries, gitx.CompareTreeNames)
	return gitx.EncodeTree(entries)
}

// update changes files (the zero entry removes one) and returns the id of the
// tree that results, which is in the pack with all its new folders.
func (f *forest) update(changes map[string]entry) (string, error) {
	dirty := map[string]bool{"": true}
	// What goes away goes first: a file may make room for a folder.
	var gone, here []string
	for _, name := range slices.Sorted(maps.Keys(changes)) {
		if changes[name] == (entry{}) {
			gone = append(gone, name)
		} else {
			here = append(here, name)
		}
	}
	for _, name := range gone {
		f.remove(name, dirty)
	}
	for _, name := range here {
		if err := f.put(name, changes[name], dirty); err != nil {
			return "", err
		}
	}
	return f.write(dirty)
}

// remove takes a file out, and the folders above it that are empty then, as git
// has none such.
func (f *forest) remove(name string, dirty map[string]bool) {
	dir, base := parent(name)
	delete(f.folders[dir], base)
	for dir != "" {
		dirty[dir] = true
		up, base := parent(dir)
		if len(f.folders[dir]) == 0 {
			delete(f.folders[up], base)
			delete(f.folders, dir)
		}
		dir = up
	}
}

// put sets a file and makes the folders above it that are not there.
func (f *forest) put(name string, e entry, dirty map[string]bool) error {
	dir, base := parent(name)
	if err := f.enter(dir, dirty); err != nil {
		return err
	}
	if f.folders[dir][base].mode == gitx.TreeFolder {
		return fmt.Errorf("put %q into the tree: it is a folder there", name)
	}
	f.folders[dir][base] = e
	return nil
}

func (f *forest) enter(dir string, dirty map[string]bool) error {
	if dir == "" {
		return nil
	}
	up, base := parent(dir)
	if err := f.enter(up, dirty); err != nil {
		return err
	}
	dirty[dir] = true
	switch e, ok := f.folders[up][base]; {
	case !ok:
		f.folders[up][base] = entry{mode: gitx.TreeFolder}
		f.folders[dir] = map[string]entry{}
	case e.mode != gitx.TreeFolder:
		return fmt.Errorf("put files into %q: it is a file in the tree", dir)
	}
	return nil
}

func parent(name string) (dir, base string) {
	dir, base = path.Split(name)
	return strings.TrimSuffix(dir, "/"), base
}

// write makes trees of the changed folders, the deepest first.
func (f *forest) write(dirty map[string]bool) (string, error) {
	dirs := slices.SortedFunc(maps.Keys(dirty), func(a, b string) int {
		if d := depth(b) - depth(a); d != 0 {
			return d
		}
		return strings.Compare(a, b)
	})
	var id string
	for _, dir := range dirs {
		folder, ok := f.folders[dir]
		if !ok { // it is gone
			continue
		}
		data, err := encode(folder)
		if err != nil {
			return "", err
		}
		id = f.pack.Add("tree", data)
		if dir != "" {
			up, base := parent(dir)
			f.folders[up][base] = entry{mode: gitx.TreeFolder, id: id}
		}
	}
	return id, nil // of the root, which is the last
}

func depth(dir string) int {
	if dir == "" {
		return 0
	}
	return 1 + strings.Count(dir, "/")
}
