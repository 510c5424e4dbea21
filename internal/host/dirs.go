package host

import (
	"errors"
	"fmt"
	"os"
	"os/user"
	"path/filepath"
)

// DirError says that a folder kbisect needs cannot be used, and which variable
// puts it elsewhere.
type DirError struct {
	What     string // "cache folder"
	Path     string
	Variable string // "XDG_CACHE_HOME"
	Err      error
}

func (e *DirError) Error() string {
	return fmt.Sprintf("%s %s cannot be used: %v; set %s to a folder that can be written to", e.What, e.Path, e.Err, e.Variable)
}

func (e *DirError) Unwrap() error { return e.Err }

// CacheDir returns where kernels, sources and build trees go: what can be made
// again. It makes nothing.
func CacheDir() (string, error) { return xdg("cache folder", "XDG_CACHE_HOME", ".cache") }

// StateDir returns where the history and the artifacts of runs go. It makes
// nothing.
func StateDir() (string, error) { return xdg("state folder", "XDG_STATE_HOME", ".local/state") }

// xdg resolves a base directory; one that is not absolute is ignored.
func xdg(what, variable, fallback string) (string, error) {
	if d := os.Getenv(variable); filepath.IsAbs(d) {
		return filepath.Join(d, "kbisect"), nil
	}
	home := os.Getenv("HOME")
	if !filepath.IsAbs(home) { // a service without an environment
		u, err := user.Current()
		if err != nil || !filepath.IsAbs(u.HomeDir) {
			return "", &DirError{what, "(none)", variable, errors.Join(errors.New("HOME is not set"), err)}
		}
		home = u.HomeDir
	}
	return filepath.Join(home, fallback, "kbisect"), nil
}

// EnsureCacheDir makes dir (CacheDir() if it is "") and shows that it can be
// written to. The error is a *DirError.
func EnsureCacheDir(dir string) (string, error) {
	return ensure("cache folder", "XDG_CACHE_HOME", dir, CacheDir, 0o755)
}

// EnsureStateDir is EnsureCacheDir for StateDir(). Only its owner may read it:
// console logs and command lines may tell more than meant.
func EnsureStateDir(dir string) (string, error) {
	return ensure("state folder", "XDG_STATE_HOME", dir, StateDir, 0o700)
}

func ensure(what, variable, dir string, fallback func() (string, error), mode os.FileMode) (string, error) {
	if dir == "" {
		d, err := fallback()
		if err != nil {
			return "", err
		}
		dir = d
	}
	dir, err := filepath.Abs(dir)
	if err != nil {
		return "", &DirError{what, dir, variable, err}
	}
	if err := os.MkdirAll(dir, mode); err != nil {
		return "", &DirError{what, dir, variable, err}
	}
	// Trying is the only proof: modes say nothing of read-only mounts, quotas
	// and full disks. A byte is written because an empty file needs no space.
	f, err := os.CreateTemp(dir, ".write-test-*")
	if err != nil {
		return "", &DirError{what, dir, variable, err}
	}
	_, werr := f.Write([]byte{0})
	if err := errors.Join(werr, f.Close(), os.Remove(f.Name())); err != nil {
		return "", &DirError{what, dir, variable, err}
	}
	return dir, nil
}
