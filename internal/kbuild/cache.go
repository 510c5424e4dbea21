package kbuild

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sort"
	"strings"
	"syscall"
	"time"

	"github.com/kbisect/kbisect/internal/kconfig"
)

// Files of a kernel in the cache.
const (
	infoName   = "build.json"
	configName = ".config"
	logName    = "build.log"
)

func (j *job) kernelDir() string { return filepath.Join(j.Cache, "kernels", j.key) }

// lookup returns the job's kernel, held, or nil if the cache does not have it.
func (j *job) lookup(ctx context.Context) (*Kernel, error) {
	dir := j.kernelDir()
	if _, err := os.Stat(dir); errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	hold, err := lock(ctx, dir+".lock", shared, nil)
	if err != nil {
		return nil, infra("lock kernel", err)
	}
	info, err := readInfo(dir)
	if err == nil && info.Key == j.key {
		err = verify(filepath.Join(dir, string(info.Target)), info.SHA256)
	}
	if err != nil || info.Key != j.key {
		// It is damaged, or half removed: as good as none. store replaces it.
		hold.unlock()
		return nil, nil
	}
	now := time.Now()
	_ = os.Chtimes(dir, now, now) // last used, for eviction
	k := j.kernel(info, hold)
	k.Cached = true
	return k, nil
}

func (j *job) kernel(info Info, hold *fileLock) *Kernel {
	dir := j.kernelDir()
	return &Kernel{
		Info:   info,
		Commit: j.Commit,
		Dir:    dir,
		Image:  filepath.Join(dir, string(info.Target)),
		Config: filepath.Join(dir, configName),
		Log:    filepath.Join(dir, logName),
		hold:   hold,
	}
}

func readInfo(dir string) (Info, error) {
	var info Info
	data, err := os.ReadFile(filepath.Join(dir, infoName))
	if err == nil {
		err = json.Unmarshal(data, &info)
	}
	return info, err
}

// verify compares a file with its hash: 20 ms for a vmlinux, against hours lost
// to a damaged kernel.
func verify(path, want string) error {
	got, err := hashFile(path)
	if err == nil && got != want {
		err = fmt.Errorf("%s: content has changed", path)
	}
	return err
}

// store puts what the tree built into the cache, and returns it held.
func (j *job) store(ctx context.Context, t *buildTree) (*Kernel, error) {
	j.Progress(PhaseStore, 0, 0)
	dir := j.kernelDir()
	l, err := lock(ctx, dir+".lock", exclusive, nil)
	if err != nil {
		return nil, infra("lock kernel", err)
	}
	defer l.unlock()
	tmp := filepath.Join(j.Cache, "kernels", ".tmp-"+j.key)
	info, err := j.fill(tmp, t)
	if err == nil {
		err = os.RemoveAll(dir) // a damaged one
	}
	if err == nil {
		err = os.Rename(tmp, dir)
	}
	if err != nil {
		os.RemoveAll(tmp)
		var typed *InfraError
		if errors.As(err, &typed) {
			return nil, err
		}
		return nil, infra("write kernel cache", err)
	}
	if t.st.Size == 0 {
		t.st.Size, _ = diskUsage(t.dir)
		if err := t.save(); err != nil {
			return nil, err
		}
	}
	// We still hold the tree, so that nobody else replaces the kernel; but it
	// could be evicted between these two locks, by a prune to a tiny budget.
	l.unlock()
	hold, err := lock(ctx, dir+".lock", shared, nil)
	if err != nil {
		return nil, infra("lock kernel", err)
	}
	if _, err := os.Stat(filepath.Join(dir, infoName)); err != nil {
		hold.unlock()
		return nil, infra("hold kernel", err)
	}
	return j.kernel(info, hold), nil
}

// fill makes the folder tmp of the job's kernel.
func (j *job) fill(tmp string, t *buildTree) (Info, error) {
	info := Info{
		Recipe: recipe, Key: j.key, Tree: j.tree, Target: j.Target, Config: j.config,
		Compiler: j.tools.String(), Objects: t.objects, Overrides: t.st.Overrides,
		Layout: j.Layout, Rescue: t.st.Rescue, Seconds: time.Since(j.begin).Seconds(),
	}
	if err := os.RemoveAll(tmp); err != nil {
		return info, err
	}
	if err := os.Mkdir(tmp, 0o755); err != nil {
		return info, err
	}
	files := map[string]string{
		t.vmlinux():   string(Vmlinux),
		t.image:       string(j.Target),
		t.dotConfig(): configName,
		t.logPath():   logName,
	}
	for from, name := range files {
		if err := copyFile(from, filepath.Join(tmp, name)); err != nil {
			return info, err
		}
	}
	if err := describe(tmp, t, &info); err != nil {
		return info, err
	}
	data, err := json.MarshalIndent(info, "", "  ")
	if err != nil {
		return info, err
	}
	return info, writeFile(filepath.Join(tmp, infoName), append(data, '\n'))
}

// describe fills in what is read from the copied files.
func describe(tmp string, t *buildTree, info *Info) error {
	final, err := kconfig.ParseFile(filepath.Join(tmp, configName))
	if err != nil {
		return err
	}
	info.Final = final.Hash()
	if info.Identity, err = Identity(filepath.Join(tmp, string(Vmlinux))); err != nil {
		return err
	}
	if info.SHA256, err = hashFile(filepath.Join(tmp, string(info.Target))); err != nil {
		return err
	}
	release, err := os.ReadFile(filepath.Join(t.obj(), "include/config/kernel.release"))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	info.Uname = strings.TrimSpace(string(release))
	info.Size, err = diskUsage(tmp)
	return err
}

// diskUsage returns the bytes that path takes on disk.
func diskUsage(path string) (int64, error) {
	var n int64
	err := filepath.WalkDir(path, func(_ string, d fs.DirEntry, err error) error {
		if err != nil {
			if errors.Is(err, fs.ErrNotExist) {
				return nil // somebody else's build goes on
			}
			return err
		}
		info, err := d.Info()
		if err != nil {
			return nil
		}
		if st, ok := info.Sys().(*syscall.Stat_t); ok {
			n += st.Blocks * 512
		}
		return nil
	})
	return n, err
}

// Kind is what an Entry of the cache is.
type Kind string

// Kinds. Only the first two are evicted.
const (
	KindKernel Kind = "kernel" // a built kernel
	KindTree   Kind = "tree"   // a source tree with its objects
	KindOther  Kind = "other"  // anything else below Cache: sources, ccache, logs
)

// Entry is one thing that the cache holds.
type Entry struct {
	Kind  Kind      `json:"kind"`
	Name  string    `json:"name"` // its key, or the name of the folder
	Path  string    `json:"path"`
	Bytes int64     `json:"bytes"`
	About string    `json:"about"` // of a kernel: its release; "" otherwise
	Used  time.Time `json:"used"`  // last time that it was used; zero for KindOther
	Held  bool      `json:"held"`  // a run or a build uses it now
}

// Usage is what a cache holds.
type Usage struct {
	Entries []Entry `json:"entries"` // kernels, trees, others; each by last use, the oldest first
	Bytes   int64   `json:"bytes"`   // of all of them
	Budget  int64   `json:"budget"`
}

// Usage measures the cache: 0.5 s for each build tree.
func (b Builder) Usage(ctx context.Context) (Usage, error) {
	u := Usage{Budget: b.budget()}
	entries, err := b.entries(ctx, true)
	if err != nil {
		return u, err
	}
	others, err := b.others(ctx)
	if err != nil {
		return u, err
	}
	u.Entries = append(entries, others...)
	for _, e := range u.Entries {
		u.Bytes += e.Bytes
	}
	return u, nil
}

// entries lists kernels and trees. Without measure it takes sizes from the notes
// beside them.
func (b Builder) entries(ctx context.Context, measure bool) ([]Entry, error) {
	var entries []Entry
	add := func(root string, kind Kind, size func(dir string) int64) error {
		list, err := os.ReadDir(root)
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err != nil {
			return infra("read build cache", err)
		}
		for _, d := range list {
			if err := ctx.Err(); err != nil {
				return err
			}
			if !d.IsDir() || strings.HasPrefix(d.Name(), ".") {
				continue
			}
			e := Entry{Kind: kind, Name: d.Name(), Path: filepath.Join(root, d.Name())}
			e.fill(measure, size)
			entries = append(entries, e)
		}
		return nil
	}
	if err := add(filepath.Join(b.Cache, "kernels"), KindKernel, kernelSize); err != nil {
		return nil, err
	}
	if root, err := buildRoot(b.Cache); err == nil {
		if err := add(root, KindTree, treeSize); err != nil {
			return nil, err
		}
	}
	sort.SliceStable(entries, func(i, j int) bool {
		if entries[i].Kind != entries[j].Kind {
			return entries[i].Kind < entries[j].Kind
		}
		return entries[i].Used.Before(entries[j].Used)
	})
	return entries, nil
}

func (e *Entry) fill(measure bool, size func(dir string) int64) {
	stamp := e.Path
	if e.Kind == KindTree {
		stamp = filepath.Join(e.Path, "state.json")
	}
	if info, err := os.Stat(stamp); err == nil {
		e.Used = info.ModTime()
	}
	if e.Kind == KindKernel {
		if info, err := readInfo(e.Path); err == nil {
			e.About = info.Uname
		}
	}
	if measure {
		e.Bytes, _ = diskUsage(e.Path) // what could be read of it
	} else {
		e.Bytes = size(e.Path)
	}
	l, err := tryLock(e.Path+".lock", exclusive)
	e.Held = err != nil
	l.unlock()
}

func kernelSize(dir string) int64 {
	info, err := readInfo(dir)
	if err != nil {
		n, _ := diskUsage(dir)
		return n
	}
	return info.Size
}

// unbuiltTree is taken for the size of a tree whose first build did not end, with
// some or all of its objects. Measuring takes 0.7 s each, after every build.
const unbuiltTree = 3 << 29 // 1.5 GiB

// treeSize returns the size of a build tree after its first build.
func treeSize(dir string) int64 {
	var st state
	data, err := os.ReadFile(filepath.Join(dir, "state.json"))
	if err == nil {
		err = json.Unmarshal(data, &st)
	}
	if err != nil || st.Size == 0 {
		return unbuiltTree
	}
	return st.Size
}

// others measures the rest of the cache folder.
func (b Builder) others(ctx context.Context) ([]Entry, error) {
	list, err := os.ReadDir(b.Cache)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, infra("read build cache", err)
	}
	var entries []Entry
	for _, d := range list {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		if d.Name() == "kernels" || d.Name() == "build" {
			continue
		}
		e := Entry{Kind: KindOther, Name: d.Name(), Path: filepath.Join(b.Cache, d.Name())}
		e.Bytes, _ = diskUsage(e.Path)
		entries = append(entries, e)
	}
	return entries, nil
}

// Prune evicts the least recently used kernels and build trees until all that
// the cache holds, sources included, is within budget bytes, and returns what it
// evicted. What is held stays, so the cache may be larger afterwards. Sources
// and ccache are not evicted here; the latter keeps its own limit.
func (b Builder) Prune(ctx context.Context, budget int64) ([]Entry, error) {
	return b.prune(ctx, budget, true, func(int64) {})
}

// Clear evicts every kernel and build tree that is not held, the logs and the
// compiler's cache, and returns what it evicted.
func (b Builder) Clear(ctx context.Context) ([]Entry, error) {
	gone, err := b.prune(ctx, 0, true, func(int64) {})
	if err != nil {
		return gone, err
	}
	others, err := b.others(ctx)
	if err != nil {
		return gone, err
	}
	for _, e := range others {
		if e.Name != "logs" && e.Name != "ccache" {
			continue
		}
		if err := os.RemoveAll(e.Path); err != nil {
			return gone, infra("clear build cache", err)
		}
		gone = append(gone, e)
	}
	return gone, nil
}

// prune is Prune. Without measure it goes by noted sizes and looks at kernels
// and trees only, which takes milliseconds. It calls evicting before each entry
// that goes, with how many went before it.
func (b Builder) prune(ctx context.Context, budget int64, measure bool, evicting func(done int64)) ([]Entry, error) {
	if err := b.sweep(ctx); err != nil {
		return nil, err
	}
	entries, err := b.entries(ctx, measure)
	if err != nil {
		return nil, err
	}
	total := int64(0)
	for _, e := range entries {
		total += e.Bytes
	}
	if measure {
		others, err := b.others(ctx)
		if err != nil {
			return nil, err
		}
		for _, e := range others {
			total += e.Bytes
		}
	}
	sort.SliceStable(entries, func(i, j int) bool { return entries[i].Used.Before(entries[j].Used) })
	var gone []Entry
	for _, e := range entries {
		if total <= budget || ctx.Err() != nil {
			break
		}
		evicting(int64(len(gone)))
		ok, err := evict(ctx, e)
		if err != nil {
			return gone, err
		}
		if ok {
			total -= e.Bytes
			gone = append(gone, e)
		}
	}
	return gone, ctx.Err()
}

// trash is the prefix of what is being removed: it has no meaning any more.
const trash = ".trash-"

// evict removes an entry, unless it is held. When ctx ends, what is left of it
// is trash that the next sweep clears.
func evict(ctx context.Context, e Entry) (bool, error) {
	l, err := tryLock(e.Path+".lock", exclusive)
	if errors.Is(err, errBusy) {
		return false, nil
	}
	if err != nil {
		return false, infra("lock build cache", err)
	}
	gone := filepath.Join(filepath.Dir(e.Path), trash+e.Name)
	// By rename, so that a removal that is killed leaves nothing that looks whole.
	err = os.RemoveAll(gone)
	if err == nil {
		err = os.Rename(e.Path, gone)
	}
	l.remove()
	if err == nil {
		err = removeAll(ctx, gone)
	}
	if err != nil {
		return false, infra("evict from build cache", err)
	}
	return true, nil
}

// removeAll is os.RemoveAll that ends early, without an error, when ctx does: a
// build tree of 60,000 files takes up to minutes on a slow disk.
func removeAll(ctx context.Context, dir string) error {
	list, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	for _, d := range list {
		if ctx.Err() != nil {
			return nil
		}
		if !d.IsDir() {
			continue
		}
		if err := removeAll(ctx, filepath.Join(dir, d.Name())); err != nil {
			return err
		}
	}
	if ctx.Err() != nil {
		return nil
	}
	return os.RemoveAll(dir)
}

// sweep removes what killed processes left: half removed entries, and half
// written kernels that nobody is writing.
func (b Builder) sweep(ctx context.Context) error {
	roots := []string{filepath.Join(b.Cache, "kernels")}
	if root, err := buildRoot(b.Cache); err == nil {
		roots = append(roots, root)
	}
	for _, root := range roots {
		list, err := os.ReadDir(root)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return infra("read build cache", err)
		}
		for _, d := range list {
			if err := sweepOne(ctx, root, d.Name()); err != nil {
				return err
			}
		}
	}
	return nil
}

func sweepOne(ctx context.Context, root, name string) error {
	path := filepath.Join(root, name)
	if strings.HasPrefix(name, trash) {
		if err := removeAll(ctx, path); err != nil {
			return infra("clean build cache", err)
		}
		return nil
	}
	key, ok := strings.CutPrefix(name, ".tmp-")
	if !ok {
		return nil
	}
	l, err := tryLock(filepath.Join(root, key)+".lock", exclusive)
	if err != nil {
		return nil // its writer is alive
	}
	defer l.remove()
	if err := removeAll(ctx, path); err != nil {
		return infra("clean build cache", err)
	}
	return nil
}
