// Package guestbin provides the two static programs that run in the guest:
// kbisect-init (PID 1) and kbisect-agent (the workload runner).
//
//	init, err := guestbin.Init(ctx, cacheDir)
//
// A release build carries them, so that an installed kbisect needs no Go
// toolchain:
//
//	go generate ./internal/guestbin && go build -tags kbisect_release ./cmd/kbisect
//
// Any other build makes them from this module's source on first use, with the
// go command of PATH, and keeps them under a key of the source and the
// toolchain.
package guestbin

//go:generate env CGO_ENABLED=0 GOOS=linux GOARCH=amd64 go build -trimpath -buildvcs=false "-ldflags=-s -w" -o embed/kbisect-init ../../cmd/kbisect-init
//go:generate env CGO_ENABLED=0 GOOS=linux GOARCH=amd64 go build -trimpath -buildvcs=false "-ldflags=-s -w" -o embed/kbisect-agent ../../cmd/kbisect-agent

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"

	"github.com/kbisect/kbisect/internal/proc"
)

// module is the import path of the source that is built.
const module = "github.com/kbisect/kbisect"

// Errors of a build without embedded binaries. Their texts say the way out.
var (
	ErrNoSource    = errors.New("the module's source is not here: run kbisect from its checkout, or build it with -tags kbisect_release")
	ErrNoToolchain = errors.New("no go command in PATH: install Go, or use a kbisect built with -tags kbisect_release")
)

// BuildError is a failed build of a guest program.
type BuildError struct {
	Program string
	Output  string // what the go command printed
	Err     error
}

func (e *BuildError) Error() string {
	return fmt.Sprintf("build %s: %v\n%s", e.Program, e.Err, strings.TrimSpace(e.Output))
}

func (e *BuildError) Unwrap() error { return e.Err }

// program is one of the two.
type program struct {
	name string
	dirs []string // folders of the module that hold its own packages
}

var (
	initProgram  = program{"kbisect-init", []string{"cmd/kbisect-init"}}
	agentProgram = program{"kbisect-agent", []string{"cmd/kbisect-agent", "guest"}}
)

// Init returns the path of kbisect-init in cacheDir, which it makes when it is
// not there. The first use of a source checkout blocks for a build (some
// seconds, and minutes while the modules are fetched); later ones take a
// millisecond. Several processes at once are fine. The file belongs to the cache.
func Init(ctx context.Context, cacheDir string) (string, error) {
	return initProgram.path(ctx, cacheDir)
}

// Agent is Init for kbisect-agent.
func Agent(ctx context.Context, cacheDir string) (string, error) {
	return agentProgram.path(ctx, cacheDir)
}

func (p program) path(ctx context.Context, cacheDir string) (string, error) {
	embedded, ok, err := readEmbedded(p.name)
	if err != nil {
		return "", fmt.Errorf("read embedded %s: %w", p.name, err)
	}
	if ok {
		sum := sha256.Sum256(embedded)
		name := p.cached(cacheDir, sum[:])
		return name, install(ctx, name, func(tmp string) error { return os.WriteFile(tmp, embedded, 0o755) })
	}
	root, err := sourceDir()
	if err != nil {
		return "", fmt.Errorf("build %s: %w", p.name, err)
	}
	goCmd, err := exec.LookPath("go")
	if err != nil {
		return "", fmt.Errorf("build %s: %w", p.name, ErrNoToolchain)
	}
	key, err := p.key(root, goCmd)
	if err != nil {
		return "", fmt.Errorf("build %s: %w", p.name, err)
	}
	name := p.cached(cacheDir, key)
	return name, install(ctx, name, func(tmp string) error { return p.build(ctx, root, goCmd, tmp) })
}

func (p program) cached(cacheDir string, key []byte) string {
	return filepath.Join(cacheDir, p.name+"-"+hex.EncodeToString(key)[:32])
}

// install calls make with a name beside the wanted one and renames what it made.
// A file that is there already is kept.
func install(ctx context.Context, name string, make func(tmp string) error) (err error) {
	if fi, err := os.Stat(name); err == nil && fi.Mode().IsRegular() && fi.Mode()&0o111 != 0 {
		return nil
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		return fmt.Errorf("make cache of guest programs: %w", err)
	}
	// A folder of our own: the go command writes more than one file.
	dir, err := os.MkdirTemp(filepath.Dir(name), ".build-*")
	if err != nil {
		return fmt.Errorf("make cache of guest programs: %w", err)
	}
	defer os.RemoveAll(dir)
	tmp := filepath.Join(dir, filepath.Base(name))
	if err := make(tmp); err != nil {
		return err
	}
	if err := os.Chmod(tmp, 0o755); err != nil {
		return fmt.Errorf("make guest program executable: %w", err)
	}
	if err := syncFile(tmp); err != nil {
		return fmt.Errorf("write guest program: %w", err)
	}
	if err := os.Rename(tmp, name); err != nil {
		return fmt.Errorf("rename guest program: %w", err)
	}
	return nil
}

// syncFile flushes a file: a crash must not leave an empty one under a valid key.
func syncFile(name string) error {
	f, err := os.Open(name)
	if err != nil {
		return err
	}
	defer f.Close()
	return f.Sync()
}

// build runs the go command. What could make the result differ from host to host
// is set here, and so wins over the caller's environment.
func (p program) build(ctx context.Context, root, goCmd, out string) error {
	c := proc.Command(ctx, goCmd, "build", "-trimpath", "-buildvcs=false", "-ldflags=-s -w", "-o", out, "./cmd/"+p.name)
	c.Dir = root
	c.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS=linux", "GOARCH=amd64", "GOAMD64=v1",
		"GOFLAGS=-mod=readonly", "GOWORK=off", "GOEXPERIMENT=")
	output, err := c.CombinedOutput()
	if err == nil {
		return nil
	}
	if ctx.Err() != nil {
		return fmt.Errorf("build %s: %w", p.name, ctx.Err())
	}
	return &BuildError{Program: p.name, Output: string(output), Err: err}
}

// key hashes the module's requirements, the program's own source and the
// toolchain. The go command is known by its file: asking it for its version
// costs more than all the rest.
func (p program) key(root, goCmd string) ([]byte, error) {
	h := sha256.New()
	fi, err := os.Stat(goCmd)
	if err != nil {
		return nil, err
	}
	fmt.Fprintf(h, "%s %d %d %s\n", goCmd, fi.Size(), fi.ModTime().UnixNano(), os.Getenv("GOTOOLCHAIN"))
	names := []string{"go.mod", "go.sum"}
	for _, dir := range p.dirs {
		err := fs.WalkDir(os.DirFS(root), dir, func(name string, d fs.DirEntry, err error) error {
			if err == nil && d.Type().IsRegular() && isSource(name) {
				names = append(names, name)
			}
			return err
		})
		if err != nil {
			return nil, err
		}
	}
	for _, name := range names {
		if err := hashFile(h, root, name); err != nil {
			return nil, err
		}
	}
	return h.Sum(nil), nil
}

// isSource reports whether a file can be part of a program: all that is not a
// test's.
func isSource(name string) bool {
	return !strings.HasSuffix(name, "_test.go") && !strings.Contains(name, "/testdata/")
}

func hashFile(w io.Writer, root, name string) error {
	b, err := os.ReadFile(filepath.Join(root, name))
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(w, "%q %d\n%s", name, len(b), b)
	return err
}

// sourceDir finds the module: where this file was compiled, or, for a binary
// built with -trimpath, the checkout that contains the working directory.
func sourceDir() (string, error) {
	if _, file, _, ok := runtime.Caller(0); ok && filepath.IsAbs(file) {
		if dir := filepath.Dir(filepath.Dir(filepath.Dir(file))); isModule(dir) {
			return dir, nil
		}
	}
	dir, err := os.Getwd()
	if err != nil {
		return "", fmt.Errorf("find source: %w", err)
	}
	for {
		if isModule(dir) {
			return dir, nil
		}
		parent := filepath.Dir(dir)
		if parent == dir {
			return "", ErrNoSource
		}
		dir = parent
	}
}

func isModule(dir string) bool {
	b, err := os.ReadFile(filepath.Join(dir, "go.mod"))
	return err == nil && bytes.HasPrefix(b, []byte("module "+module+"\n"))
}
