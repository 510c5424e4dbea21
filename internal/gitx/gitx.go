// Package gitx runs git for kbisect: always as a child process, never with the
// caller's git environment or configuration, and never reading git's English.
//
//	r := gitx.Repo{Dir: "/cache/linux.git"}
//	id, err := r.ResolveCommit(ctx, "v6.1")
//	subject, err := r.Subject(ctx, id)
//
// A Repo names exactly one repository: Dir is a bare repository or the top of a
// work tree, and git is told so (GIT_DIR, GIT_WORK_TREE) instead of being left to
// search upwards, where it could find somebody else's. Naming it also means that
// git's ownership check (safe.directory), made for repositories found by
// accident, does not apply.
//
// It needs git 2.31 or newer on PATH.
package gitx

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// Repo is one repository. It holds no resources; copies are equal.
type Repo struct {
	// Dir is the absolute path of a bare repository or of the top of a work tree
	// (also a linked one, or one whose .git is a file).
	Dir string
}

// Command is one git command. Only Args is needed.
type Command struct {
	Args   []string  // without "git"
	Env    []string  // added last: "GIT_INDEX_FILE=/tmp/x"
	Stdin  io.Reader // nil is /dev/null
	Stdout io.Writer // nil is collected and returned by Do's callers, or discarded
}

// Error is a git command that could not be run or ended non-zero.
type Error struct {
	Dir      string   // the repository
	Argv     []string // what was run, "git" first
	ExitCode int      // -1 when it did not run, or was killed
	Stderr   string   // its last lines, at most 4 KiB
	Err      error    // the cause: *exec.ExitError, exec.ErrNotFound, the context's error
}

func (e *Error) Error() string {
	verb := "git"
	if len(e.Argv) > 1 {
		verb = "git " + e.Argv[1]
	}
	if errors.Is(e.Err, exec.ErrNotFound) {
		return verb + ": git is not installed: install it, or let `kbisect doctor --install` do so"
	}
	if e.Stderr == "" {
		return fmt.Sprintf("%s in %q: %v", verb, e.Dir, e.Err)
	}
	return fmt.Sprintf("%s in %q: %v: %s", verb, e.Dir, e.Err, strings.ReplaceAll(e.Stderr, "\n", "; "))
}

func (e *Error) Unwrap() error { return e.Err }

// UnknownRevisionError says that a repository has no such commit.
type UnknownRevisionError struct {
	Dir, Rev string
}

func (e *UnknownRevisionError) Error() string {
	return fmt.Sprintf("no commit %q in %q: name a branch, a tag or a commit id that it has", e.Rev, e.Dir)
}

// Run runs git and discards its output.
func (r Repo) Run(ctx context.Context, args ...string) error {
	return r.Do(ctx, Command{Args: args, Stdout: io.Discard})
}

// Output runs git and returns its output without the final newline.
func (r Repo) Output(ctx context.Context, args ...string) (string, error) {
	return r.output(ctx, Command{Args: args})
}

func (r Repo) output(ctx context.Context, c Command) (string, error) {
	var out bytes.Buffer
	c.Stdout = &out
	if err := r.Do(ctx, c); err != nil {
		return "", err
	}
	return strings.TrimSuffix(out.String(), "\n"), nil
}

// Do runs git and blocks until it and its children have ended. Every failure is
// an *Error; when ctx ended it, errors.Is(err, ctx.Err()) holds.
func (r Repo) Do(ctx context.Context, c Command) error {
	env, err := r.env()
	if err != nil {
		return &Error{Dir: r.Dir, Argv: argv(c.Args), ExitCode: -1, Err: err}
	}
	var stderr tail
	cmd := command(ctx, "git", c.Args...)
	cmd.Dir = r.Dir
	cmd.Env = append(env, c.Env...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = c.Stdin, c.Stdout, &stderr
	return r.wrap(ctx, c.Args, cmd.Run(), stderr.String())
}

// wrap makes the *Error of a finished command; nil stays nil.
func (r Repo) wrap(ctx context.Context, args []string, err error, stderr string) error {
	if err == nil {
		return nil
	}
	e := &Error{Dir: r.Dir, Argv: argv(args), ExitCode: -1, Stderr: stderr, Err: err}
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) {
		e.ExitCode = exit.ExitCode()
	}
	// The context's end is the cause; "signal: killed" is only how it looked.
	if cause := ctx.Err(); cause != nil {
		e.ExitCode, e.Err = -1, cause
	}
	return e
}

func argv(args []string) []string { return append([]string{"git"}, args...) }

// exitCode returns the exit code inside err, -1 if there is none.
func exitCode(err error) int {
	if e := (*Error)(nil); errors.As(err, &e) {
		return e.ExitCode
	}
	return -1
}

// config is what every command is told, whatever the user's files say. Each
// line keeps a user's or a repository's setting from changing a result, from
// running a program, or from starting work in the background.
var config = [...][2]string{
	{"safe.directory", "*"}, // the caller named the repository; see the package comment
	{"core.hooksPath", "/dev/null"},
	{"core.fsmonitor", "false"},
	{"core.autocrlf", "false"},
	{"core.quotePath", "false"},
	{"core.attributesFile", "/dev/null"},
	{"core.excludesFile", "/dev/null"},
	{"commit.gpgSign", "false"},
	{"apply.whitespace", "nowarn"},
	{"apply.ignoreWhitespace", "no"},
	{"gc.auto", "0"},
	{"maintenance.auto", "false"},
	{"submodule.recurse", "false"},
	{"checkout.workers", "2"},
}

// Environ returns the process environment for a git that must see none of the
// caller's git settings. It names no repository; see Repo.Do for that.
func Environ() []string {
	env := make([]string, 0, 64)
	for _, kv := range os.Environ() {
		name, _, _ := strings.Cut(kv, "=")
		// All of GIT_*: GIT_DIR, GIT_INDEX_FILE, GIT_CONFIG*, GIT_TRACE, ... A hook or
		// an editor that starts kbisect sets them.
		if strings.HasPrefix(name, "GIT_") || strings.HasPrefix(name, "LC_") || name == "LANG" || name == "LANGUAGE" || name == "SSH_ASKPASS" {
			continue
		}
		env = append(env, kv)
	}
	env = append(env,
		"LC_ALL=C",
		"GIT_CONFIG_NOSYSTEM=1",
		"GIT_CONFIG_GLOBAL=/dev/null",
		"GIT_ATTR_NOSYSTEM=1",
		"GIT_TERMINAL_PROMPT=0",
		"GIT_ASKPASS=false",
		"GIT_PAGER=cat",
		"GIT_EDITOR=false",
		"GIT_OPTIONAL_LOCKS=0",     // `status` must not write the user's index
		"GIT_NO_REPLACE_OBJECTS=1", // a replaced commit is another kernel in another clone
		"GIT_DEFAULT_HASH=sha1",    // deterministic ids
		"GIT_NO_LAZY_FETCH=1",      // a partial clone must not start a download
		"GIT_ALLOW_PROTOCOL=file",  // kbisect never talks to a remote by itself
		fmt.Sprintf("GIT_CONFIG_COUNT=%d", len(config)),
	)
	for i, kv := range config {
		env = append(env, fmt.Sprintf("GIT_CONFIG_KEY_%d=%s", i, kv[0]), fmt.Sprintf("GIT_CONFIG_VALUE_%d=%s", i, kv[1]))
	}
	return env
}

// ErrNotRepository says that a folder is no git repository.
var ErrNotRepository = errors.New("not a git repository")

// env is Environ plus the names of the repository.
func (r Repo) env() ([]string, error) {
	if !filepath.IsAbs(r.Dir) {
		return nil, fmt.Errorf("repository path %q is not absolute", r.Dir)
	}
	env := Environ()
	dotGit := filepath.Join(r.Dir, ".git")
	if _, err := os.Lstat(dotGit); err == nil {
		return append(env, "GIT_DIR="+dotGit, "GIT_WORK_TREE="+r.Dir), nil
	}
	// What git itself calls a repository: HEAD, objects and refs.
	for _, name := range []string{"HEAD", "objects", "refs"} {
		if _, err := os.Lstat(filepath.Join(r.Dir, name)); err != nil {
			return nil, fmt.Errorf("%w: %w", ErrNotRepository, err)
		}
	}
	return append(env, "GIT_DIR="+r.Dir), nil
}

// InitBare makes an empty bare repository of the given object format ("" is
// sha1) in dir, whose parent exists. Making it again is harmless.
func InitBare(ctx context.Context, dir, format string) (Repo, error) {
	r := Repo{Dir: dir}
	if format == "" {
		format = "sha1"
	}
	// --template= leaves out sample hooks and info/exclude.
	args := []string{"init", "--quiet", "--bare", "--template=", "--object-format=" + format, "--initial-branch=kbisect", dir}
	var stderr tail
	cmd := command(ctx, "git", args...)
	cmd.Env, cmd.Stderr = Environ(), &stderr
	if err := r.wrap(ctx, args, cmd.Run(), stderr.String()); err != nil {
		return Repo{}, err
	}
	return r, nil
}

// tail keeps the last bytes written to it.
type tail struct{ buf []byte }

const tailMax = 4 << 10

func (t *tail) Write(p []byte) (int, error) {
	n := len(p)
	if len(p) > tailMax {
		p = p[len(p)-tailMax:]
	}
	t.buf = append(t.buf, p...)
	if over := len(t.buf) - tailMax; over > 0 {
		t.buf = append(t.buf[:0], t.buf[over:]...)
	}
	return n, nil
}

func (t *tail) String() string { return strings.TrimSpace(string(t.buf)) }
