package lint

import (
	"bytes"
	"encoding/json"
	"errors"
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

const module = "github.com/kbisect/kbisect"

// root is the module's folder, seen from this package's.
const root = "../.."

// pkg is what `go list -json` says of a package.
type pkg struct {
	ImportPath string
	Imports    []string
}

func packages(t *testing.T) []pkg {
	t.Helper()
	cmd := exec.Command("go", "list", "-json=ImportPath,Imports", "./...")
	cmd.Dir = root
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go list: %v\n%s", err, &stderr)
	}
	var pkgs []pkg
	for dec := json.NewDecoder(bytes.NewReader(out)); ; {
		var p pkg
		if err := dec.Decode(&p); errors.Is(err, io.EOF) {
			return pkgs
		} else if err != nil {
			t.Fatal(err)
		}
		pkgs = append(pkgs, p)
	}
}

// forbidden returns why package from may not import to, "" if it may. Both are
// relative to the module.
func forbidden(from, to string, std, own bool) string {
	in := func(p string, dirs ...string) bool {
		for _, d := range dirs {
			if p == d || strings.HasPrefix(p, d+"/") {
				return true
			}
		}
		return false
	}
	switch {
	case in(from, "internal/bisect", "guest/proto") && !std:
		return "it imports the standard library only"
	case !own:
		return ""
	case in(to, "cmd"):
		return "nothing imports a command"
	case in(to, "internal/app") && !in(from, "cmd"):
		return "only the command line knows the application"
	case in(from, "guest", "cmd/kbisect-init", "cmd/kbisect-agent") && !in(to, "guest"):
		return "the guest's code knows only the guest"
	case in(from, "vm") && !in(to, "vm", "internal/proc"):
		return "a machine knows nothing of the application"
	case in(from, "kconfigs", "patches"):
		return "data packages import nothing of ours"
	case in(from, "internal/proc", "internal/stats", "internal/ui", "internal/kconfig"):
		if !in(to, "kconfigs") {
			return "it is a leaf"
		}
	}
	return ""
}

func TestLayering(t *testing.T) {
	pkgs := packages(t)
	if len(pkgs) < 20 {
		t.Fatalf("only %d packages listed", len(pkgs))
	}
	for _, p := range pkgs {
		from := strings.TrimPrefix(p.ImportPath, module+"/")
		for _, imp := range p.Imports {
			to, own := strings.CutPrefix(imp, module+"/")
			std := !strings.Contains(strings.SplitN(imp, "/", 2)[0], ".")
			if why := forbidden(from, to, std, own); why != "" {
				t.Errorf("%s imports %s: %s", from, to, why)
			}
		}
	}
}

// TestForbidden shows that the rule can fail.
func TestForbidden(t *testing.T) {
	tests := []struct {
		from, to string
		std, own bool
		ok       bool
	}{
		{"internal/bisect", "math", true, false, true},
		{"internal/bisect", "internal/stats", false, true, false},
		{"internal/bisect", "golang.org/x/sys/unix", false, false, false},
		{"internal/store", "internal/app", false, true, false},
		{"cmd/kbisect", "internal/app", false, true, true},
		{"vm/qemu", "internal/proc", false, true, true},
		{"vm/qemu", "internal/host", false, true, false},
		{"guest/agent", "internal/stats", false, true, false},
		{"internal/kconfig", "kconfigs", false, true, true},
	}
	for _, tt := range tests {
		if why := forbidden(tt.from, tt.to, tt.std, tt.own); (why == "") != tt.ok {
			t.Errorf("%s -> %s: %q", tt.from, tt.to, why)
		}
	}
}

func TestTopLevel(t *testing.T) {
	allowed := strings.Fields(`cmd vm guest kconfigs patches internal go.mod go.sum README.md
		.ci .git .gitignore .golangci.yml LICENSE`)
	entries, err := os.ReadDir(root)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if !slices.Contains(allowed, e.Name()) {
			t.Errorf("%s: not one of the fixed top-level names", e.Name())
		}
	}
}

// goFiles calls f for every Go file of the module.
func goFiles(t *testing.T, f func(path string)) {
	t.Helper()
	n := 0
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && (d.Name() == ".git" || d.Name() == "testdata") {
			return filepath.SkipDir
		}
		if strings.HasSuffix(path, ".go") {
			n++
			f(path)
		}
		return nil
	})
	if err != nil || n == 0 {
		t.Fatalf("%d files: %v", n, err)
	}
}

// TestDocumented asks for a comment on every exported function, method and
// type, and for functions that fit on a screen or two.
func TestDocumented(t *testing.T) {
	const maxLines = 80
	fset := token.NewFileSet()
	goFiles(t, func(path string) {
		if strings.HasSuffix(path, "_test.go") {
			return
		}
		file, err := parser.ParseFile(fset, path, nil, parser.ParseComments)
		if err != nil {
			t.Error(err)
			return
		}
		for _, decl := range file.Decls {
			switch d := decl.(type) {
			case *ast.FuncDecl:
				lines := fset.Position(d.End()).Line - fset.Position(d.Pos()).Line
				if lines > maxLines {
					t.Errorf("%s: %s has %d lines", fset.Position(d.Pos()), d.Name.Name, lines)
				}
				if exportedFunc(d) && d.Doc == nil {
					t.Errorf("%s: %s has no comment", fset.Position(d.Pos()), d.Name.Name)
				}
			case *ast.GenDecl:
				for _, s := range d.Specs {
					ts, ok := s.(*ast.TypeSpec)
					if ok && ts.Name.IsExported() && d.Doc == nil && ts.Doc == nil {
						t.Errorf("%s: %s has no comment", fset.Position(ts.Pos()), ts.Name.Name)
					}
				}
			}
		}
	})
}

// exportedFunc reports whether a reader of the package's documentation sees d.
func exportedFunc(d *ast.FuncDecl) bool {
	if !d.Name.IsExported() || d.Recv == nil {
		return d.Name.IsExported()
	}
	typ := d.Recv.List[0].Type
	if s, ok := typ.(*ast.StarExpr); ok {
		typ = s.X
	}
	id, ok := typ.(*ast.Ident)
	// String, Error, Unwrap and the like say by their name what they do.
	obvious := []string{"String", "Error", "Unwrap", "Close", "Read", "Write", "Len", "Less", "Swap"}
	return ok && id.IsExported() && !slices.Contains(obvious, d.Name.Name)
}

func TestGofmt(t *testing.T) {
	cmd := exec.Command("gofmt", "-l", ".")
	cmd.Dir = root
	out, err := cmd.CombinedOutput()
	if err != nil || len(out) > 0 {
		t.Errorf("gofmt -l: %v\n%s", err, out)
	}
}

func TestStatic(t *testing.T) {
	if testing.Short() {
		t.Skip("vet and staticcheck compile everything; run without -short")
	}
	for _, args := range [][]string{{"vet", "./..."}, {"tool", "staticcheck", "./..."}} {
		cmd := exec.Command("go", args...)
		cmd.Dir = root
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("go %s: %v\n%s", strings.Join(args, " "), err, out)
		}
	}
}

func TestModuleFileIsTidy(t *testing.T) {
	if testing.Short() {
		t.Skip("reads the module proxy; run without -short")
	}
	cmd := exec.Command("go", "mod", "tidy", "-diff")
	cmd.Dir = root
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("go mod tidy -diff: %v\n%s", err, out)
	}
}
