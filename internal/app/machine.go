package app

import (
	"context"
	"errors"
	"fmt"

	"github.com/kbisect/kbisect/internal/guestbin"
	"github.com/kbisect/kbisect/internal/host"
	"github.com/kbisect/kbisect/internal/initramfs"
	"github.com/kbisect/kbisect/vm"
	"github.com/kbisect/kbisect/vm/qemu"
)

// guestDir is where guest binaries and initramfs images are cached.
func (env *Env) guestDir() string { return env.Cache + "/guest" }

// initramfs returns the path of an initramfs with kbisect-init, and whatever else
// o wants.
func (env *Env) initramfs(ctx context.Context, o initramfs.Options) (_ string, err error) {
	if o.Init, err = guestbin.Init(ctx, env.guestDir()); err != nil {
		return "", err
	}
	path, err := initramfs.Build(ctx, env.guestDir(), o)
	var tool *initramfs.ToolError
	if errors.As(err, &tool) {
		return "", Usagef("install it on this machine: the guest gets this machine's programs", "--tool %s: %v", tool.Name, tool.Err)
	}
	return path, err
}

// startMachine boots with QEMU. It is a variable of the lab so that tests can
// have another machine.
func startMachine(ctx context.Context, s vm.Spec) (vm.Machine, error) {
	m, err := qemu.Start(ctx, s)
	if err != nil {
		return nil, err
	}
	return m, nil
}

// openLab prepares what every run needs: the guest's programs. It comes before
// the builds, which may take minutes, since it may fail (no Go toolchain).
func (s *session) openLab(ctx context.Context) error {
	files, err := s.opts.Script.extra()
	if err != nil {
		return err
	}
	initrd := ""
	if s.opts.Machine.Image == "" {
		o := initramfs.Options{Userland: s.opts.Script.Text != "", Tools: s.opts.Script.Tools, Extra: files}
		if initrd, err = s.env.initramfs(ctx, o); err != nil {
			return err
		}
		files = nil
	}
	agent, err := guestbin.Agent(ctx, s.env.guestDir())
	if err != nil {
		return err
	}
	s.lab = &lab{start: s.env.start(), initrd: initrd, agent: agent, files: files, script: s.opts.Script.Text, machine: s.opts.Machine}
	return nil
}

// chooseAccel decides on the accelerator, once; image may be booted for that.
func (s *session) chooseAccel(ctx context.Context, image string) (err error) {
	if s.lab.accel != "" {
		return nil
	}
	s.lab.accel, s.lab.reason, err = s.env.accelerator(ctx, s.opts.Machine.Accel, image)
	s.env.UI.Debug("accelerator %s: %s", s.lab.accel, s.lab.reason)
	return err
}

// ready says early what a run or a boot would end in: programs that are missing,
// an accelerator that cannot be used.
func (env *Env) ready(ctx context.Context, m MachineOptions) error {
	if err := env.require(append(host.ForBuilding(), host.ForBooting()...)); err != nil {
		return err
	}
	if m.Accel != "kvm" || env.boot != nil {
		return nil
	}
	a, err := host.Accelerator(ctx, host.Options{CacheDir: env.Cache, StateDir: env.State})
	if err == nil && (a.State == host.AccelAbsent || a.State == host.AccelDenied) {
		err = withHint(fmt.Errorf("--accel kvm: %s", a.Reason), "--accel tcg works everywhere, and auto takes what works")
	}
	return err
}

// accelerator resolves --accel. auto takes KVM only if a kernel has booted with
// it on this host; image is booted once to find out.
func (env *Env) accelerator(ctx context.Context, want, image string) (vm.Accel, string, error) {
	switch want {
	case "kvm", "tcg":
		return vm.Accel(want), "--accel " + want, nil
	}
	a, err := host.Accelerator(ctx, host.Options{CacheDir: env.Cache, StateDir: env.State, Prove: env.prove(image)})
	return vm.Accel(a.Use), a.Reason, err
}

// prove returns the proof that KVM works: image reaches userspace with it.
func (env *Env) prove(image string) func(context.Context) error {
	return func(ctx context.Context) error {
		if image == "" {
			return fmt.Errorf("prove kvm: %w", host.ErrNoKernel)
		}
		initrd, err := env.initramfs(ctx, initramfs.Options{})
		if err != nil {
			return err
		}
		dir, remove, err := env.scratch()
		if err != nil {
			return err
		}
		defer remove()
		m, err := env.start()(ctx, vm.Spec{Kernel: image, Initrd: initrd, Accel: vm.KVM, Dir: dir})
		if err != nil {
			return err
		}
		return m.Close()
	}
}

// start returns the way to boot: QEMU, unless a test has put in another one.
func (env *Env) start() func(context.Context, vm.Spec) (vm.Machine, error) {
	if env.boot != nil {
		return env.boot
	}
	return startMachine
}
