package series

import (
	"bytes"
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

const treeMode = "040000"

// forest is a commit's tree in which files are changed again and again. Folders
// are read when something in them changes, and written when it has.
type forest struct {
	repo    gitx.Repo
	root    string                      // tree or commit that folders were not read from yet
	folders map[string]map[string]entry // by path, "" is the root
}

func newForest(repo gitx.Repo, commit string) *forest {
	return &forest{repo: repo, root: commit, folders: map[string]map[string]entry{}}
}

// update changes files (the zero entry removes one) and returns the id of the
// tree that results, which is written with all its folders.
func (f *forest) update(ctx context.Context, changes map[string]entry) (string, error) {
	dirty := map[string]bool{"": true}
	// What goes away goes first: a file may make room for a folder.
	names := slices.SortedFunc(maps.Keys(changes), func(a, b string) int {
		if gone := changes[a] == (entry{}); gone != (changes[b] == entry{}) {
			if gone {
				return -1
			}
			return 1
		}
		return strings.Compare(a, b)
	})
	for _, name := range names {
		if err := f.set(ctx, name, changes[name], dirty); err != nil {
			return "", err
		}
	}
	return f.write(ctx, dirty)
}

// set changes one file and notes the folders above it in dirty.
func (f *forest) set(ctx context.Context, name string, e entry, dirty map[string]bool) error {
	dir, base := parent(name)
	folder, err := f.folder(ctx, dir)
	if err != nil {
		return err
	}
	if e == (entry{}) {
		delete(folder, base)
	} else {
		if folder[base].mode == treeMode {
			return fmt.Errorf("put %q into the tree: it is a folder there", name)
		}
		folder[base] = e
	}
	for ; dir != ""; dir, _ = parent(dir) {
		dirty[dir] = true
		if err := f.enter(ctx, dir); err != nil {
			return err
		}
	}
	if e == (entry{}) {
		return f.prune(ctx, name)
	}
	return nil
}

// enter makes sure that a folder stands in the one above it.
func (f *forest) enter(ctx context.Context, dir string) error {
	up, base := parent(dir)
	folder, err := f.folder(ctx, up)
	if err != nil {
		return err
	}
	if _, ok := folder[base]; !ok {
		folder[base] = entry{mode: treeMode}
	}
	return nil
}

// prune removes the folders above a removed file that are empty now, as git has
// none such.
func (f *forest) prune(ctx context.Context, name string) error {
	for dir, _ := parent(name); dir != ""; dir, _ = parent(dir) {
		folder, err := f.folder(ctx, dir)
		if err != nil {
			return err
		}
		if len(folder) > 0 {
			return nil
		}
		up, base := parent(dir)
		above, err := f.folder(ctx, up)
		if err != nil {
			return err
		}
		delete(above, base)
		delete(f.folders, dir)
	}
	return nil
}

func parent(name string) (dir, base string) {
	dir, base = path.Split(name)
	return strings.TrimSuffix(dir, "/"), base
}

// folder returns what is in a folder, a new one if there is none.
func (f *forest) folder(ctx context.Context, dir string) (map[string]entry, error) {
	if known, ok := f.folders[dir]; ok {
		return known, nil
	}
	id := f.root
	if dir != "" {
		up, base := parent(dir)
		above, err := f.folder(ctx, up)
		if err != nil {
			return nil, err
		}
		e, ok := above[base]
		if ok && e.mode != treeMode {
			return nil, fmt.Errorf("put files into %q: it is a file in the tree", dir)
		}
		id = e.id
	}
	read := map[string]entry{}
	if id != "" {
		var err error
		if read, err = f.read(ctx, id); err != nil {
			return nil, err
		}
	}
	f.folders[dir] = read
	return read, nil
}

func (f *forest) read(ctx context.Context, id string) (map[string]entry, error) {
	out, err := f.repo.Output(ctx, "ls-tree", "-z", "--full-tree", id)
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

// write writes the changed folders, the deepest first, one git for each depth.
func (f *forest) write(ctx context.Context, dirty map[string]bool) (string, error) {
	byDepth := map[int][]string{}
	for dir := range dirty {
		if _, ok := f.folders[dir]; ok { // else it is gone
			byDepth[depth(dir)] = append(byDepth[depth(dir)], dir)
		}
	}
	var id string
	for _, d := range slices.Backward(slices.Sorted(maps.Keys(byDepth))) {
		dirs := byDepth[d]
		slices.Sort(dirs)
		ids, err := f.makeTrees(ctx, dirs)
		if err != nil {
			return "", err
		}
		for i, dir := range dirs {
			id = ids[i]
			if dir != "" {
				up, base := parent(dir)
				f.folders[up][base] = entry{mode: treeMode, id: id}
			}
		}
	}
	return id, nil // the root is the last
}

func depth(dir string) int {
	if dir == "" {
		return 0
	}
	return 1 + strings.Count(dir, "/")
}

// makeTrees writes folders whose sub-folders are written.
func (f *forest) makeTrees(ctx context.Context, dirs []string) ([]string, error) {
	var in, out bytes.Buffer
	for _, dir := range dirs {
		folder := f.folders[dir]
		for _, name := range slices.Sorted(maps.Keys(folder)) {
			e := folder[name]
			fmt.Fprintf(&in, "%s %s %s\t%s\x00", e.mode, kind(e.mode), e.id, name)
		}
		in.WriteByte(0) // ends one tree
	}
	if err := f.repo.Do(ctx, gitx.Command{Args: []string{"mktree", "-z", "--batch"}, Stdin: &in, Stdout: &out}); err != nil {
		return nil, err
	}
	ids := strings.Fields(out.String())
	if len(ids) != len(dirs) {
		return nil, fmt.Errorf("write trees: git wrote %d of %d", len(ids), len(dirs))
	}
	return ids, nil
}

func kind(mode string) string {
	switch mode {
	case treeMode:
		return "tree"
	case "160000":
		return "commit"
	}
	return "blob"
}
