package kbuild

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/kbisect/kbisect/internal/proc"
)

// Toolchain is what compiles the kernels of a Builder.
type Toolchain struct {
	CC      string // as given to make: "gcc", "gcc-11"
	GCC     string // first line of its --version
	LD      string // first line of ld --version
	Make    string // first line of make --version
	Ccache  string // path of ccache, "" without
	Version string // the compiler's version alone: "12.2.0"
}

// ID identifies what the output depends on: compiler and linker. make and
// ccache change how a kernel is built, not what comes out.
func (t Toolchain) ID() string {
	sum := sha256.Sum256([]byte(t.CC + "\n" + t.GCC + "\n" + t.LD + "\n"))
	return hex.EncodeToString(sum[:8])
}

// String is for reports: "gcc (Debian 12.2.0-14) 12.2.0; GNU ld ... 2.40".
func (t Toolchain) String() string { return t.GCC + "; " + t.LD }

// DetectToolchain asks the tools on PATH for their versions. A missing one is an
// *InfraError that names it. cc is the compiler, "" means gcc.
func DetectToolchain(ctx context.Context, cc string) (Toolchain, error) {
	if cc == "" {
		cc = "gcc"
	}
	t := Toolchain{CC: cc}
	if strings.ContainsAny(cc, " \t\n'\"$#") {
		return t, &InfraError{Op: "find compiler", Err: fmt.Errorf("%q is not the name of one program", cc)}
	}
	for _, q := range []struct {
		tool string
		line *string
	}{{cc, &t.GCC}, {"ld", &t.LD}, {"make", &t.Make}} {
		line, err := versionLine(ctx, q.tool)
		if err != nil {
			return t, err
		}
		*q.line = line
	}
	t.Version = t.GCC[strings.LastIndexByte(t.GCC, ' ')+1:]
	// A compiler given by its path is not found through ccache's link.
	if path, err := exec.LookPath("ccache"); err == nil && filepath.Base(cc) == cc {
		t.Ccache = path
	}
	return t, nil
}

// versionLine returns the first line of `tool --version`.
func versionLine(ctx context.Context, tool string) (string, error) {
	c := proc.Command(ctx, tool, "--version")
	c.Env = toolEnv()
	out, err := c.Output()
	switch {
	case ctx.Err() != nil:
		return "", ctx.Err()
	case errors.Is(err, exec.ErrNotFound):
		return "", &InfraError{Op: "find build tools", Err: fmt.Errorf("%s is not installed", tool), Hint: hintInstall}
	case err != nil:
		return "", &InfraError{Op: "find build tools", Err: fmt.Errorf("%s --version: %w", tool, err), Hint: hintInstall}
	}
	line, _, _ := strings.Cut(string(out), "\n")
	if line == "" {
		return "", &InfraError{Op: "find build tools", Err: fmt.Errorf("%s --version printed nothing", tool)}
	}
	return line, nil
}
