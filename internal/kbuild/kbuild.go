// Package kbuild builds kernels from git trees, reproducibly, incrementally, and
// never the same one twice.
//
//	b := kbuild.Builder{Cache: "/home/me/.cache/kbisect"}
//	k, err := b.Build(ctx, kbuild.Request{GitDir: repo, Commit: id, Fragments: frags})
//	if err != nil { ... }              // *KernelError, *ConfigError, *InfraError or ctx.Err()
//	defer k.Release()                  // until then no eviction takes it away
//	boot(k.Image)
//
// Cache holds
//
//	build/KEY/    one source tree and its objects per (repository, configuration, toolchain)
//	kernels/KEY/  vmlinux, .config, build.json and build.log per (tree, configuration, toolchain, recipe)
//	ccache/       the compiler's cache, when ccache is installed
//	logs/         output of builds that failed
//
// The source tree is a plain folder with an index of its own beside it, moved
// from tree to tree by `git read-tree -u`: git touches only files that differ,
// so that make rebuilds only what depends on them, and the repository itself is
// never written to. The objects' folder is a child of the source tree, because
// kbuild then uses relative paths throughout: the image does not depend on where
// the cache is, and ccache hits across trees.
//
// A kernel may also be asked for in another layout (Request.Layout): the same
// objects with gaps between their code, which costs a link, 5 s beside make's
// walk. A tree whose changes nothing was made from is not made at all. And a
// kernel that fails for a known reason with a newer toolchain is tried once more
// with the flags that help (Info.Rescue).
//
// A build tree is locked while it is used, a kernel while it is looked at or
// built; several processes may share a cache. Everything appears by rename when
// it is complete. A build that was killed leaves a note, and the next one
// discards what it was writing.
package kbuild

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"time"

	"github.com/google/renameio/v2"
	"github.com/kbisect/kbisect/internal/gitx"
	"github.com/kbisect/kbisect/internal/kconfig"
)

// recipe is counted up when the way of building changes, so that no kernel of
// an older kbisect is taken for one of this.
const recipe = 1

// DefaultBudget is how many bytes a cache may hold.
const DefaultBudget = 20 << 30

// Target is the image that is asked for.
type Target string

// Targets. A bzImage costs 3 s more and boots slower; its vmlinux is kept too.
const (
	Vmlinux Target = "vmlinux"
	BzImage Target = "bzImage"
)

// Phase is the part of a build that is going on.
type Phase string

// Phases, in order. A phase in which nothing is to do is not reported.
const (
	PhaseWait      Phase = "wait"      // another kbisect builds in this tree
	PhaseCheckout  Phase = "checkout"  // counts files
	PhaseConfigure Phase = "configure" // counts nothing
	PhaseCompile   Phase = "compile"   // counts objects
	PhaseStore     Phase = "store"     // counts nothing
	PhaseEvict     Phase = "evict"     // counts kernels and trees that make room
)

// Builder builds kernels into one cache. It holds no resources, and may be used
// by several goroutines.
type Builder struct {
	Cache    string // absolute path; made when it is not there
	Jobs     int    // 0 is one a processor
	Budget   int64  // bytes; 0 is DefaultBudget; enforced after each build, see Prune
	CC       string // compiler, "" is gcc
	NoCcache bool   // do without ccache even if it is installed
}

// Request says which kernel is wanted.
type Request struct {
	GitDir    string            // absolute path of a git repository that has Commit; it is only read
	Commit    string            // a commit or tree; what counts is its tree
	Base      *kconfig.Config   // the user's .config, instead of tinyconfig
	Fragments []*kconfig.Config // merged over it, the later over the earlier, each symbol checked in the end
	Target    Target            // "" is Vmlinux
	Layout    int               // 0 is as the kernel links it, each other number another placement of the same code

	// Progress is called from one goroutine at a time, often, and must return
	// quickly. A total of 0 is not known; it is an estimate else.
	Progress func(phase Phase, done, total int64)
}

// Info describes a kernel of the cache; it is its build.json.
type Info struct {
	Recipe    int      `json:"recipe"`
	Key       string   `json:"key"`
	Identity  string   `json:"identity"` // see Identity
	Tree      string   `json:"tree"`     // of the source
	Uname     string   `json:"release"`  // as uname -r says
	Target    Target   `json:"target"`
	Config    string   `json:"config"`           // hash of what was asked for
	Final     string   `json:"final"`            // hash of the .config that came of it
	Compiler  string   `json:"compiler"`         // and linker
	Objects   int64    `json:"objects"`          // built for it: 1,600 for a first build, 10 for a one-line change
	Seconds   float64  `json:"seconds"`          // the build took
	Overrides []string `json:"overrides"`        // fragments that changed what an earlier one, or the user's .config, said
	Layout    int      `json:"layout,omitempty"` // as requested
	Rescue    []string `json:"rescue,omitempty"` // flags without which it does not compile with this toolchain
	Size      int64    `json:"size"`             // bytes on disk
	SHA256    string   `json:"sha256"`           // of the image file, checked when it is reused
}

// Kernel is a built kernel that is held in the cache until Release.
type Kernel struct {
	Info
	Commit string // as requested
	Dir    string // its folder in the cache; it belongs to the cache
	Image  string // path of the requested target
	Config string // path of the final .config
	Log    string // path of make's output
	Cached bool   // nothing was built
	hold   *fileLock
}

// Release lets the cache evict the kernel. It may be called more than once.
func (k *Kernel) Release() {
	k.hold.unlock()
	k.hold = nil
}

// job is a request with all that follows from it.
type job struct {
	Builder
	Request
	tools   Toolchain
	tree    string // id of the source
	version kconfig.Version
	config  string // hash of the wanted configuration
	key     string // of the kernel
	treeKey string // of the build tree
	begin   time.Time
}

// Lookup returns the kernel of the request if the cache has it, nil if it must be
// built. It builds nothing and waits for nobody.
func (b Builder) Lookup(ctx context.Context, r Request) (*Kernel, error) {
	j, err := b.plan(ctx, r)
	if err != nil {
		return nil, err
	}
	return j.lookup(ctx)
}

// Build returns the kernel of the request, from the cache if it has it. It
// blocks for seconds (a few changed files) to minutes (a first build), and while
// another process builds in the same tree. When ctx ends, so does the build, and
// the error is ctx.Err(); the next one goes on where it was.
func (b Builder) Build(ctx context.Context, r Request) (*Kernel, error) {
	j, err := b.plan(ctx, r)
	if err != nil {
		return nil, err
	}
	if k, err := j.lookup(ctx); k != nil || err != nil {
		return k, err
	}
	t, err := j.openTree(ctx)
	if err != nil {
		return nil, err
	}
	defer t.close()
	// Whoever held the tree may have built just this one.
	if k, err := j.lookup(ctx); k != nil || err != nil {
		return k, err
	}
	if err := t.build(ctx); err != nil {
		return nil, j.keepLog(t, err)
	}
	k, err := j.store(ctx, t)
	if err != nil {
		return nil, err
	}
	t.close()
	evicting := func(done int64) { j.Progress(PhaseEvict, done, 0) }
	if _, err := b.prune(ctx, b.budget(), false, evicting); err != nil {
		k.Release()
		return nil, err
	}
	return k, nil
}

func (b Builder) budget() int64 {
	if b.Budget > 0 {
		return b.Budget
	}
	return DefaultBudget
}

// plan checks the request and derives its keys.
func (b Builder) plan(ctx context.Context, r Request) (*job, error) {
	if b.Jobs <= 0 {
		b.Jobs = runtime.NumCPU()
	}
	if r.Target == "" {
		r.Target = Vmlinux
	}
	if r.Progress == nil {
		r.Progress = func(Phase, int64, int64) {}
	}
	switch {
	case !filepath.IsAbs(b.Cache) || !filepath.IsAbs(r.GitDir):
		return nil, fmt.Errorf("build kernel: cache %q and repository %q must be absolute paths", b.Cache, r.GitDir)
	case r.Layout < 0:
		return nil, fmt.Errorf("build kernel: layout %d is below 0", r.Layout)
	case r.Target != Vmlinux && r.Target != BzImage:
		return nil, fmt.Errorf("build kernel: target %q is neither %s nor %s", r.Target, Vmlinux, BzImage)
	case r.Base == nil && len(r.Fragments) == 0:
		return nil, errors.New("build kernel: no configuration given")
	}
	for _, dir := range []string{"build", "kernels", "logs"} {
		if err := os.MkdirAll(filepath.Join(b.Cache, dir), 0o755); err != nil {
			return nil, infra("make build cache", err)
		}
	}
	j := &job{Builder: b, Request: r, begin: time.Now()}
	var err error
	if j.tools, err = DetectToolchain(ctx, b.CC); err != nil {
		return nil, err
	}
	if j.tree, j.version, err = resolveTree(ctx, r.GitDir, r.Commit); err != nil {
		return nil, err
	}
	// What a fragment says of other kernels is not asked of this one. A range
	// that crosses a bound gets another tree there.
	j.Fragments = forVersion(r.Fragments, j.version)
	j.config = configHash(j.Request)
	parts := []string{"kernel", j.tree, j.config, j.tools.ID(), string(r.Target), fmt.Sprint(recipe)}
	if r.Layout != 0 {
		parts = append(parts, "layout", fmt.Sprint(r.Layout))
	}
	j.key = digest(parts...)
	j.treeKey = digest("tree", r.GitDir, j.config, j.tools.ID(), fmt.Sprint(recipe))
	return j, nil
}

// configHash identifies what is asked of the configuration, in order.
func configHash(r Request) string {
	parts := []string{"config"}
	if r.Base != nil {
		parts = append(parts, "base", r.Base.Hash())
	}
	for _, f := range r.Fragments {
		parts = append(parts, f.Hash())
	}
	return digest(parts...)
}

// digest returns 24 hexadecimal digits for a list of strings.
func digest(parts ...string) string {
	h := sha256.New()
	for _, p := range parts {
		fmt.Fprintf(h, "%d %s\n", len(p), p)
	}
	return hex.EncodeToString(h.Sum(nil)[:12])
}

// resolveTree returns the id of a commit's tree and the version in its Makefile,
// and checks that a kernel is in it.
func resolveTree(ctx context.Context, gitDir, commit string) (string, kconfig.Version, error) {
	repo := gitx.Repo{Dir: gitDir}
	var none kconfig.Version
	ask := func(op string, args ...string) (string, error) {
		out, err := repo.Output(ctx, args...)
		switch {
		case ctx.Err() != nil:
			return "", ctx.Err()
		case err != nil:
			return "", &InfraError{Op: op + " " + commit, Err: fmt.Errorf("repository %s: %w", gitDir, err)}
		}
		return out, nil
	}
	tree, err := ask("find commit", "rev-parse", "--verify", "--quiet", "--end-of-options", commit+"^{tree}")
	if err != nil {
		return "", none, err
	}
	names, err := ask("read tree of", "ls-tree", "--name-only", tree, "Kconfig", "Makefile", "arch")
	if err != nil {
		return "", none, err
	}
	if len(strings.Fields(names)) != 3 {
		return "", none, &KernelError{Step: "source", Text: fmt.Sprintf("%s is no kernel source: Makefile, Kconfig or arch is missing", commit)}
	}
	makefile, err := ask("read Makefile of", "cat-file", "blob", tree+":Makefile")
	if err != nil {
		return "", none, err
	}
	v, err := sourceVersion(makefile)
	return tree, v, err
}

var makefileVersion = regexp.MustCompile(`(?m)^(VERSION|PATCHLEVEL|SUBLEVEL)\s*=\s*(\d+)\s*$`)

// sourceVersion reads the version from the text of a kernel's Makefile.
func sourceVersion(makefile string) (kconfig.Version, error) {
	var v kconfig.Version
	for _, m := range makefileVersion.FindAllStringSubmatch(makefile, -1) {
		n, err := strconv.Atoi(m[2])
		if err == nil {
			v[map[string]int{"VERSION": 0, "PATCHLEVEL": 1, "SUBLEVEL": 2}[m[1]]] = n
		}
	}
	if v == (kconfig.Version{}) {
		return v, &KernelError{Step: "source", Text: "its Makefile names no VERSION and PATCHLEVEL"}
	}
	return v, nil
}

// keepLog moves the output of a failed build to where the next build in the
// tree does not overwrite it, and names it in the error.
func (j *job) keepLog(t *buildTree, err error) error {
	path := filepath.Join(j.Cache, "logs", j.key+".log")
	var kernel *KernelError
	var host *InfraError
	switch {
	case errors.As(err, &kernel) && kernel.Log != "":
		kernel.Log = path
	case errors.As(err, &host) && host.Log != "":
		host.Log = path
	default:
		return err
	}
	if copyErr := copyFile(t.logPath(), path); copyErr != nil {
		if kernel != nil {
			kernel.Log = t.logPath()
		} else {
			host.Log = t.logPath()
		}
	}
	trimLogs(filepath.Join(j.Cache, "logs"))
	return err
}

// maxLogs is how many logs of failed builds are kept.
const maxLogs = 50

// trimLogs removes the oldest logs over the limit. A log more or less is no
// reason to fail.
func trimLogs(dir string) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return
	}
	for len(entries) > maxLogs {
		oldest, at := -1, time.Time{}
		for i, e := range entries {
			if info, err := e.Info(); err == nil && (oldest < 0 || info.ModTime().Before(at)) {
				oldest, at = i, info.ModTime()
			}
		}
		if oldest < 0 {
			return
		}
		_ = os.Remove(filepath.Join(dir, entries[oldest].Name()))
		entries = append(entries[:oldest], entries[oldest+1:]...)
	}
}

// copyFile makes path a copy of from, whole or not at all, on the disk.
func copyFile(from, path string) error {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := renameio.NewPendingFile(path, renameio.WithTempDir(filepath.Dir(path)), renameio.WithPermissions(0o644))
	if err != nil {
		return err
	}
	defer out.Cleanup()
	if _, err := io.Copy(out.File, in); err != nil {
		return err
	}
	return out.CloseAtomicallyReplace()
}
