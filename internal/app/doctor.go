package app

import (
	"context"
	"io"

	"github.com/kbisect/kbisect/internal/host"
	"github.com/kbisect/kbisect/internal/store"
	"github.com/kbisect/kbisect/internal/ui"
)

// DoctorOptions is what `kbisect doctor` was asked.
type DoctorOptions struct {
	Install bool
	DryRun  bool
	Prove   bool // prove the accelerator anew, building a kernel for it if need be
	JSON    bool
}

// Doctor prints what this machine has and lacks, after installing what is
// missing if that was asked. The error wraps host.ErrMissing when something
// needed is missing in the end.
//
// Folders that cannot be used are rows of the table, so it opens its own Env.
func Doctor(ctx context.Context, u *ui.UI, o DoctorOptions, out, stderr io.Writer) error {
	env := &Env{UI: u}
	if o.DryRun && !o.Install {
		return Usagef("kbisect doctor --install --dry-run", "--dry-run goes with --install")
	}
	ho := host.Options{CacheDir: env.Cache, StateDir: env.State, CheckState: store.Check, Stderr: stderr, DryRun: o.DryRun, Yes: true}
	if o.Install {
		if err := host.Install(ctx, ho); err != nil {
			return err
		}
		extras := ho
		extras.Extras = true
		if err := host.Install(ctx, extras); err != nil {
			if ctx.Err() != nil {
				return err
			}
			u.Warn("what only some jobs need is not installed: %v", err)
		}
	}
	if o.Prove {
		var err error
		if env, err = OpenEnv(u); err != nil {
			return err
		}
		image, release, err := env.proofImage(ctx)
		if err != nil {
			return err
		}
		defer release()
		ho.Prove, ho.Reprove = env.prove(image), true
	}
	rep := host.Examine(ctx, ho)
	if ctx.Err() != nil {
		return ctx.Err()
	}
	write := rep.Text
	if o.JSON {
		write = rep.JSON
	}
	if err := write(out); err != nil {
		return err
	}
	if o.DryRun {
		return nil
	}
	return rep.Err()
}

// proofImage is a kernel to prove KVM with. Without a /dev/kvm that opens none
// is needed, and none is built.
func (env *Env) proofImage(ctx context.Context) (string, func(), error) {
	a, err := host.Accelerator(ctx, host.Options{CacheDir: env.Cache, StateDir: env.State})
	if err != nil {
		return "", nil, err
	}
	if a.State == host.AccelAbsent || a.State == host.AccelDenied {
		return "", func() {}, nil
	}
	return env.image(ctx, "", ConfigOptions{})
}

// InstallMissing installs what `kbisect doctor` would call missing; it says what
// first, and does nothing when nothing is.
func InstallMissing(ctx context.Context, env *Env, stderr io.Writer) error {
	return host.Install(ctx, host.Options{CacheDir: env.Cache, StateDir: env.State, Stderr: stderr, Yes: true})
}
