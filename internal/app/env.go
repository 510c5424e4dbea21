// Package app turns what the command line asks for into what is done: it wires
// sources, builds, machines, statistics, the store and the reports together. It
// is the only package that knows all the others.
package app

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"runtime/debug"
	"time"

	"github.com/kbisect/kbisect/internal/host"
	"github.com/kbisect/kbisect/internal/kbuild"
	"github.com/kbisect/kbisect/internal/ui"
	"github.com/kbisect/kbisect/vm"
)

// Env is where kbisect keeps things and whom it talks to.
type Env struct {
	Cache string // kernel sources, build trees, kernels, guest binaries
	State string // database and run folders
	UI    *ui.UI // progress and warnings; nil is silent

	// What tests put in the place of QEMU and the compiler; nil is the real thing.
	boot    func(context.Context, vm.Spec) (vm.Machine, error)
	compile func(context.Context, kbuild.Request) (*kbuild.Kernel, error)
}

// OpenEnv finds and makes kbisect's folders and shows that they can be written
// to. An error names the folder and the variable that moves it.
func OpenEnv(u *ui.UI) (*Env, error) {
	cache, err := host.EnsureCacheDir("")
	if err != nil {
		return nil, err
	}
	state, err := host.EnsureStateDir("")
	if err != nil {
		return nil, err
	}
	return &Env{Cache: cache, State: state, UI: u}, nil
}

// patience is the factor on pauses: 0 with fake machines.
func (env *Env) patience() time.Duration {
	if env.boot != nil {
		return 0
	}
	return 1
}

// Version is the module's version as the Go toolchain recorded it, "devel" in a
// work tree.
func Version() string {
	if bi, ok := debug.ReadBuildInfo(); ok && bi.Main.Version != "" && bi.Main.Version != "(devel)" {
		return bi.Main.Version
	}
	return "devel"
}

// newNonce is what a record stream must end with to be this run's.
func newNonce() string {
	var b [12]byte
	rand.Read(b[:]) //nolint:errcheck // never fails since Go 1.24
	return hex.EncodeToString(b[:])
}
