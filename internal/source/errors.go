package source

import (
	"errors"
	"fmt"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// specForms is the hint of every name that could not be understood.
const specForms = "name a git tree, a tarball (.tar, .tar.gz, .tar.xz, .tar.zst, .tar.bz2) or debian:VERSION, as in debian:6.1"

// SpecError says that a name is not, or does not lead to, a kernel source.
type SpecError struct {
	Spec   string // as it was given, or the path it led to
	Reason string
	Hint   string // what to do; may be ""
}

func (e *SpecError) Error() string {
	s := fmt.Sprintf("kernel source %q: %s", e.Spec, e.Reason)
	if e.Hint != "" {
		s += ": " + e.Hint
	}
	return s
}

// ToolError says that a program is missing on this host.
type ToolError struct {
	Tool string
	Need string // what it is needed for
	Hint string // the way round; "" says to install it
}

func (e *ToolError) Error() string {
	hint := e.Hint
	if hint == "" {
		hint = "install it, or let `kbisect doctor --install` do so"
	}
	return fmt.Sprintf("%s is not installed and is needed to %s: %s", e.Tool, e.Need, hint)
}

// DiskFullError says that the cache's file system has no room for a kernel.
type DiskFullError struct {
	Dir  string
	Need int64 // bytes, an estimate
	Free int64 // bytes
}

func (e *DiskFullError) Error() string {
	return fmt.Sprintf("no room for the kernel source in %q: %d MiB needed, %d MiB free: free some, or name another cache folder with XDG_CACHE_HOME",
		e.Dir, e.Need>>20, e.Free>>20)
}

// Attempt is one place that was asked, and what came of it.
type Attempt struct {
	Where string // "http://.../debian bookworm"
	Err   string // "" when it answered
}

// UnavailableError says that no package index could be reached.
type UnavailableError struct {
	Spec    string
	Offline bool
	Tried   []Attempt
}

func (e *UnavailableError) Error() string {
	if e.Offline {
		return fmt.Sprintf("%s is not in the cache and the network may not be used: run once without --offline, or give --kernel a git tree or a tarball", e.Spec)
	}
	return fmt.Sprintf("%s: no package index can be read: check the network, or give --kernel a git tree or a tarball%s", e.Spec, attempts(e.Tried))
}

// NotFoundError says that the package indexes were read and have no such kernel.
type NotFoundError struct {
	Spec  string
	Have  []string // versions that are served, newest first
	Tried []Attempt
}

func (e *NotFoundError) Error() string {
	have := "no linux-source package"
	if len(e.Have) > 0 {
		have = strings.Join(e.Have, ", ")
	}
	return fmt.Sprintf("%s is not served (have: %s): name one of these, or give --kernel a git tree or a tarball%s", e.Spec, have, attempts(e.Tried))
}

// attempts lists the places that did not answer.
func attempts(tried []Attempt) string {
	var b strings.Builder
	for _, a := range tried {
		if a.Err != "" {
			fmt.Fprintf(&b, "\n  %s: %s", a.Where, a.Err)
		}
	}
	return b.String()
}

// freeBytes returns what an unprivileged user may still write below dir, which
// exists; -1 when it cannot be told.
func freeBytes(dir string) int64 {
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil {
		return -1
	}
	return int64(st.Bavail) * st.Bsize
}

// diskMargin is the room below which a failed write is put down to a full disk.
const diskMargin = 8 << 20

// needRoom fails when dir has less than need bytes.
func needRoom(dir string, need int64) error {
	if free := freeBytes(dir); free >= 0 && free < need {
		return &DiskFullError{Dir: dir, Need: need, Free: free}
	}
	return nil
}

// diskFull turns err into a *DiskFullError if it is one: by its errno, or, for a
// child whose words are not read, because dir has no room left. It must be
// called before what was written is removed.
func diskFull(err error, dir string, need int64) error {
	free := freeBytes(dir)
	if errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) || (free >= 0 && free < diskMargin) {
		return &DiskFullError{Dir: dir, Need: need, Free: free}
	}
	return err
}
