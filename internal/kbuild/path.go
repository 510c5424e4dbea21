package kbuild

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
)

// safePath reports whether kbuild can work below path: it refuses spaces and
// colons ("source directory cannot contain spaces or colons"), and make and the
// shell give other characters a meaning.
func safePath(path string) bool {
	const others = "/._-+@,="
	return strings.IndexFunc(path, func(r rune) bool {
		return !strings.ContainsRune(others, r) && (r < '0' || r > '9') && (r < 'A' || r > 'Z') && (r < 'a' || r > 'z')
	}) < 0
}

// buildRoot returns the folder of the build trees, made if it is not there:
// build/ in the cache or, where kbuild could not work in that, a private folder
// for this cache.
func buildRoot(cache string) (string, error) {
	root := filepath.Join(cache, "build")
	// make finds out where it really is, so a symbolic link hides nothing; and
	// kbuild compares paths, so it gets the real one from the start.
	actual, err := filepath.EvalSymlinks(root)
	if err != nil {
		return "", infra("find build cache", err)
	}
	if safePath(actual) {
		return actual, nil
	}
	return privateRoot(actual)
}

// privateRoot returns a folder for the build trees of the cache at actual, in
// the first temporary folder with a plain name. Anybody can make things there,
// so it must be a real folder of ours that nobody else can enter.
func privateRoot(actual string) (string, error) {
	name := fmt.Sprintf("kbisect-%d-%s", os.Geteuid(), digest("build root", actual))
	// /var/tmp before $TMPDIR: it outlives a reboot, and is no tmpfs.
	for _, dir := range []string{"/var/tmp", os.TempDir(), "/tmp"} {
		if info, err := os.Stat(dir); err != nil || !info.IsDir() || !safePath(dir) {
			continue
		}
		path := filepath.Join(dir, name)
		if err := os.Mkdir(path, 0o700); err != nil && !errors.Is(err, os.ErrExist) {
			return "", infra("make build folder", err)
		}
		info, err := os.Lstat(path)
		if err != nil {
			return "", infra("make build folder", err)
		}
		if st, ok := info.Sys().(*syscall.Stat_t); !ok || !info.IsDir() || int(st.Uid) != os.Geteuid() || info.Mode().Perm()&0o077 != 0 {
			return "", &InfraError{Op: "make build folder", Err: fmt.Errorf("%s is not a private folder of this user", path), Hint: "remove it"}
		}
		return path, nil
	}
	return "", &InfraError{Op: "make build folder", Err: fmt.Errorf("a kernel cannot be built below %q", actual), Hint: "set XDG_CACHE_HOME to a path without spaces, colons or other special characters"}
}
