// Package source turns what a person names as a kernel into commits of one bare
// git repository in kbisect's cache, so that a patch is a commit and a work tree
// is cheap.
//
//	src, err := source.Open(ctx, "debian:6.1", source.Options{Cache: dir})
//	// src.GitDir, src.Head, src.Version
//
// A kernel is named by one of
//
//	/path/to/linux          a git tree: a work tree (also a linked one) or a bare repository
//	/path/to/linux.tar.xz   a tarball: plain or packed by gzip, xz, zstd or bzip2
//	debian:6.1              the newest linux-source package of a series (also 6.1.170, 6.1.170-3)
//	""                      $KBISECT_KERNEL, else the linux-source package of this host's own release
//
// A git tree is never written to: no ref, no work tree, no index, no gc. Its
// objects are borrowed (see tree.go for why). Tarballs and packages are imported
// once, as one commit whose id depends on nothing but the files.
//
// Layout of the cache, below Options.Cache/sources:
//
//	imports/KEY/repo.git, source.json   one import; appears complete, by rename
//	trees/KEY/repo.git                  borrows the objects of a user's tree
//	tarballs/KEY.json                   hash of a tarball already seen
//	debian/VERSION.json                 what a debian: name was resolved to, and when
//	apt/KEY/                            a private apt state, one a suite
//	locks/KEY.lock                      held while one of these is made
package source

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/kbisect/kbisect/internal/gitx"
)

// Env is the environment variable that names the default kernel.
const Env = "KBISECT_KERNEL"

// Stages that Options.Progress is called with. Done and total are bytes, or 0
// when there is nothing to count.
const (
	StageWait     = "wait"     // another kbisect makes the same thing
	StageIndex    = "index"    // the distribution's package index is read
	StageDownload = "download" // the package
	StageHash     = "hash"     // the tarball is read to know it
	StageImport   = "import"   // archive to git; counts archive bytes
)

// Options says where and how to open. Only Cache is needed.
type Options struct {
	// Cache is kbisect's cache folder (made when it is not there).
	Cache string
	// Progress, if set, is called from one goroutine at a time, often.
	Progress func(stage string, done, total int64)
	// Warn, if set, receives what the user should know and need not act on.
	Warn func(text string)
	// Offline forbids the network: only what is in the cache is found.
	Offline bool

	// What tests replace.
	now  func() time.Time
	host func(ctx context.Context, codename string) ([]aptEntry, error) // hostEntries
}

func (o *Options) progress(stage string, done, total int64) {
	if o.Progress != nil {
		o.Progress(stage, done, total)
	}
}

func (o *Options) warn(format string, args ...any) {
	if o.Warn != nil {
		o.Warn(fmt.Sprintf(format, args...))
	}
}

func (o *Options) clock() time.Time {
	if o.now != nil {
		return o.now()
	}
	return time.Now()
}

// Source is an opened kernel source. It holds nothing that must be closed.
type Source struct {
	GitDir  string `json:"git_dir"` // bare repository in the cache; work trees may be registered in it
	Head    string `json:"head"`    // commit id: HEAD of a tree, the only commit of an import
	Name    string `json:"name"`    // canonical: "debian:6.1 (6.1.192-3)", or an absolute path
	Version string `json:"version"` // of Head's Makefile: "6.1.192", "7.2.0-rc3"

	tree string // the user's git tree, "" for an import
}

// Repo returns the repository at GitDir.
func (s *Source) Repo() gitx.Repo { return gitx.Repo{Dir: s.GitDir} }

// Resolve returns the commit id of a revision; "" is Head. Branches and tags are
// those of the user's tree, which may have moved since Open.
func (s *Source) Resolve(ctx context.Context, rev string) (string, error) {
	if rev == "" {
		return s.Head, nil
	}
	if s.tree != "" {
		id, err := gitx.Repo{Dir: s.tree}.ResolveCommit(ctx, rev)
		if !errors.As(err, new(*gitx.UnknownRevisionError)) {
			return id, err
		}
		// A commit that kbisect made (tree plus patch) is in its own repository only.
		if own, ownErr := s.Repo().ResolveCommit(ctx, rev); ownErr == nil {
			return own, nil
		}
		return "", err
	}
	return s.Repo().ResolveCommit(ctx, rev)
}

// Open finds, fetches and imports the kernel that spec names. It blocks for as
// long as a download and an import take (a minute the first time, milliseconds
// later) and is killed by ctx without leaving anything half made.
//
// Errors a person can act on are *SpecError, *ToolError, *DiskFullError,
// *NotFoundError and *UnavailableError.
func Open(ctx context.Context, spec string, o Options) (*Source, error) {
	if o.Cache == "" {
		return nil, errors.New("open source: no cache folder given")
	}
	cache, err := filepath.Abs(o.Cache)
	if err != nil {
		return nil, fmt.Errorf("open source: %w", err)
	}
	o.Cache = cache
	if tell := o.Progress; tell != nil {
		var mu sync.Mutex // suites are asked at once, and a download is watched from aside
		o.Progress = func(stage string, done, total int64) {
			mu.Lock()
			defer mu.Unlock()
			tell(stage, done, total)
		}
	}
	if spec == "" {
		spec = os.Getenv(Env)
	}
	if spec == "" {
		return openDebian(ctx, "", o)
	}
	if version, ok := strings.CutPrefix(spec, "debian:"); ok {
		return openDebian(ctx, version, o)
	}
	return openPath(ctx, spec, o)
}

// openPath opens a git tree or a tarball.
func openPath(ctx context.Context, spec string, o Options) (*Source, error) {
	path, err := filepath.Abs(spec)
	if err != nil {
		return nil, fmt.Errorf("open source: %w", err)
	}
	info, err := os.Stat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, &SpecError{Spec: spec, Reason: "no such file or folder", Hint: specForms}
	case err != nil:
		return nil, &SpecError{Spec: spec, Reason: err.Error(), Hint: specForms}
	case info.IsDir():
		return openTree(ctx, path, o)
	case info.Mode().IsRegular():
		return openTarball(ctx, path, o)
	}
	return nil, &SpecError{Spec: spec, Reason: "neither a folder nor a file", Hint: specForms}
}

// root is the folder that holds everything of this package.
func (o *Options) root(elem ...string) string {
	return filepath.Join(append([]string{o.Cache, "sources"}, elem...)...)
}
