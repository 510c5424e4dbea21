// Package host knows the machine that kbisect runs on: which tools it has and
// how to install the others, where caches and state go, whether KVM really
// works, how busy it is, and whose turn it is to measure.
//
//	rep := host.Examine(ctx, host.Options{Prove: bootUnderKVM})
//	if err := rep.Err(); errors.Is(err, host.ErrMissing) {
//		err = host.Install(ctx, host.Options{Stderr: os.Stderr})
//	}
//	release, err := host.Lock(ctx, stateDir, "measuring nexthop-delete", say)
//
// Environment: XDG_CACHE_HOME, XDG_STATE_HOME and HOME decide where files go
// (a relative one is ignored, as the XDG specification asks), PATH which tools
// are used.
package host

import (
	"context"
	"errors"
	"io"
	"os"
	"strings"

	"golang.org/x/sys/unix"
	"golang.org/x/term"
)

// ErrMissing says that something is missing without which kbisect cannot do its
// main job.
var ErrMissing = errors.New("something is missing")

// Options says how to examine the host or to install on it. The zero value is
// good.
type Options struct {
	CacheDir string // default: CacheDir()
	StateDir string // default: StateDir()
	// CheckState tries what the state folder holds; its error says what to do. May be nil.
	CheckState func(ctx context.Context, stateDir string) error

	// Prove boots a kernel to userspace under KVM and returns nil when it got
	// there. An error that wraps ErrNoKernel means that there is nothing to
	// boot yet. It must end soon after its context, which has a deadline. Nil:
	// only an answer that was remembered is used.
	Prove func(ctx context.Context) error
	// Reprove forgets the remembered answer first.
	Reprove bool

	Stdin  *os.File  // asked by Install when it is a terminal; default os.Stdin
	Stderr io.Writer // what Install says, and the package manager's output; default os.Stderr
	DryRun bool      // Install only says what it would do
	Extras bool      // Install installs what only some jobs need, too
	Yes    bool      // Install does not ask

	sys *system // nil: the real one
}

// system is the seam between this package and the machine, so that tests can
// have another one.
type system struct {
	path string // PATH
	root string // prefix of /proc, /dev, /etc, /sys and /var; "" is the real one
	euid int
	tty  bool // stdin is a terminal
}

func (o Options) system() *system {
	if o.sys != nil {
		return o.sys
	}
	return &system{path: os.Getenv("PATH"), euid: os.Geteuid(), tty: term.IsTerminal(int(o.stdin().Fd()))}
}

func (o Options) stdin() *os.File {
	if o.Stdin != nil {
		return o.Stdin
	}
	return os.Stdin
}

func (o Options) stderr() io.Writer {
	if o.Stderr != nil {
		return o.Stderr
	}
	return os.Stderr
}

// lookPath finds a program in the system's PATH; "" if there is none. A
// relative entry of PATH is passed over: what it finds depends on the folder.
func (s *system) lookPath(name string) string {
	for _, dir := range strings.Split(s.path, ":") {
		if !strings.HasPrefix(dir, "/") {
			continue
		}
		p := dir + "/" + name
		if info, err := os.Stat(p); err == nil && info.Mode().IsRegular() && unix.Access(p, unix.X_OK) == nil {
			return p
		}
	}
	return ""
}

// env is the environment of programs that are asked something: the language is
// fixed, because their answers are read.
func (s *system) env() []string {
	var env []string
	for _, kv := range os.Environ() {
		switch name, _, _ := strings.Cut(kv, "="); name {
		case "PATH", "LANGUAGE", "LC_ALL":
		default:
			env = append(env, kv)
		}
	}
	return append(env, "PATH="+s.path, "LC_ALL=C")
}

// readMax bounds what is read of a file in /proc or /etc.
const readMax = 1 << 20

// read returns a system file's text, "" if it cannot be read.
func (s *system) read(path string) string {
	f, err := os.Open(s.root + path)
	if err != nil {
		return ""
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, readMax))
	if err != nil {
		return ""
	}
	return string(b)
}

// field returns the text after "name<sep>" at the beginning of a line, "" if
// there is none.
func field(text, name, sep string) string {
	for line := range strings.Lines(text) {
		if k, v, ok := strings.Cut(line, sep); ok && strings.TrimSpace(k) == name {
			return strings.TrimSpace(v)
		}
	}
	return ""
}
