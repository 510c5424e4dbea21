package guestbin

import (
	"context"
	"debug/elf"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
)

func TestBothProgramsAreStatic(t *testing.T) {
	if testing.Short() {
		t.Skip("builds two programs")
	}
	dir := t.TempDir()
	for name, get := range map[string]func(context.Context, string) (string, error){"init": Init, "agent": Agent} {
		t.Run(name, func(t *testing.T) {
			path, err := get(t.Context(), dir)
			if err != nil {
				t.Fatal(err)
			}
			f, err := elf.Open(path)
			if err != nil {
				t.Fatal(err)
			}
			defer f.Close()
			if f.Machine != elf.EM_X86_64 {
				t.Errorf("machine %v, want x86-64", f.Machine)
			}
			for _, p := range f.Progs {
				if p.Type == elf.PT_INTERP || p.Type == elf.PT_DYNAMIC {
					t.Errorf("has a %v segment: it needs a dynamic loader", p.Type)
				}
			}
		})
	}
	left, err := filepath.Glob(filepath.Join(dir, ".build-*"))
	if err != nil || len(left) > 0 {
		t.Errorf("left behind: %q, %v", left, err)
	}
}

func TestTwoAtOnceAgree(t *testing.T) {
	if testing.Short() {
		t.Skip("builds a program")
	}
	dir := t.TempDir()
	var paths [2]string
	var wg sync.WaitGroup
	for i := range paths {
		wg.Go(func() {
			p, err := Init(t.Context(), dir)
			if err != nil {
				t.Error(err)
			}
			paths[i] = p
		})
	}
	wg.Wait()
	if paths[0] != paths[1] || paths[0] == "" {
		t.Errorf("two paths: %q", paths)
	}
}

// TestKeyCoversItsPackages fails when a program imports a folder of this module
// that its key does not hash: an edit there would not rebuild it.
func TestKeyCoversItsPackages(t *testing.T) {
	if testing.Short() {
		t.Skip("runs go list")
	}
	for _, p := range []program{initProgram, agentProgram} {
		cmd := exec.Command("go", "list", "-deps", "./cmd/"+p.name)
		cmd.Dir = "../.."
		out, err := cmd.Output()
		if err != nil {
			t.Fatal(err)
		}
		for pkg := range strings.FieldsSeq(string(out)) {
			rel, ours := strings.CutPrefix(pkg, module+"/")
			if ours && !slices.ContainsFunc(p.dirs, func(dir string) bool { return rel == dir || strings.HasPrefix(rel, dir+"/") }) {
				t.Errorf("%s imports %s, which is not in its key", p.name, pkg)
			}
		}
	}
}

// scratch makes a module of the right name with one program.
func scratch(t *testing.T, source string) string {
	t.Helper()
	root := t.TempDir()
	for name, text := range map[string]string{
		"go.mod": "module " + module + "\n\ngo 1.24\n", "go.sum": "",
		"cmd/kbisect-init/main.go": source, "cmd/kbisect-init/main_test.go": "package main\n",
	} {
		path := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return root
}

func TestKeyChangesWithTheSource(t *testing.T) {
	goCmd, err := exec.LookPath("go")
	if err != nil {
		t.Fatal(err)
	}
	root := scratch(t, "package main\nfunc main() {}\n")
	key := func() string {
		k, err := initProgram.key(root, goCmd)
		if err != nil {
			t.Fatal(err)
		}
		return string(k)
	}
	first := key()
	if key() != first {
		t.Error("the key of the same source differs")
	}
	test := filepath.Join(root, "cmd/kbisect-init/main_test.go")
	if err := os.WriteFile(test, []byte("package main // changed\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	if key() != first {
		t.Error("a test file is in the key")
	}
	for _, name := range []string{"go.sum", "cmd/kbisect-init/main.go"} {
		before := key()
		f, err := os.OpenFile(filepath.Join(root, name), os.O_APPEND|os.O_WRONLY, 0)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := f.WriteString("\n"); err != nil {
			t.Fatal(err)
		}
		f.Close()
		if key() == before {
			t.Errorf("%s is not in the key", name)
		}
	}
}

func TestCompileErrorIsShownAndLeavesNothing(t *testing.T) {
	root := scratch(t, "package main\nfunc main() { undefinedThing() }\n")
	goCmd, err := exec.LookPath("go")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	err = install(t.Context(), filepath.Join(dir, "x"), func(tmp string) error {
		return initProgram.build(t.Context(), root, goCmd, tmp)
	})
	var be *BuildError
	if !errors.As(err, &be) || !strings.Contains(err.Error(), "undefinedThing") {
		t.Errorf("got %v, want a BuildError naming undefinedThing", err)
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) != 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
}

func TestNoToolchain(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	if _, err := Init(t.Context(), t.TempDir()); !errors.Is(err, ErrNoToolchain) {
		t.Errorf("got %v, want ErrNoToolchain", err)
	}
}

func TestCancelled(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := Init(ctx, t.TempDir()); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want context.Canceled", err)
	}
}
