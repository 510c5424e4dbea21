package qemu

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/kbisect/kbisect/vm"
)

// ProveKVM is Launcher{}.ProveKVM.
func ProveKVM(ctx context.Context, kernel, initrd string, deadline time.Duration) error {
	return Launcher{}.ProveKVM(ctx, kernel, initrd, deadline)
}

// ProveKVM boots a kernel to userspace under KVM within deadline. Nothing less
// proves it: there are hosts where /dev/kvm opens and makes a machine, whose
// guest then never prints a line. nil is the proof; any other end is a
// *vm.InfraError that says why not, or ctx.Err(). The kernel must be known to
// boot under TCG, or the answer means nothing.
func (l Launcher) ProveKVM(ctx context.Context, kernel, initrd string, deadline time.Duration) (err error) {
	const op = "prove kvm"
	// The cheap reasons first, in words a person can act on.
	f, err := os.OpenFile("/dev/kvm", os.O_RDWR, 0)
	switch {
	case errors.Is(err, os.ErrNotExist):
		return &vm.InfraError{Op: op, Err: errors.New("no /dev/kvm: the CPU's virtualisation is off, or the kvm module is not loaded")}
	case errors.Is(err, os.ErrPermission):
		return &vm.InfraError{Op: op, Err: errors.New("/dev/kvm may not be opened: add the user to the group kvm")}
	case err != nil:
		return &vm.InfraError{Op: op, Err: err}
	}
	f.Close()
	return l.prove(ctx, vm.Spec{
		Kernel: kernel, Initrd: initrd, Accel: vm.KVM, Boot: deadline, Silence: deadline,
	})
}

// prove boots spec once, in a folder of its own, and takes it down again.
func (l Launcher) prove(ctx context.Context, spec vm.Spec) (err error) {
	dir, err := os.MkdirTemp("", "kbisect-kvm-")
	if err != nil {
		return &vm.InfraError{Op: "prove kvm", Err: err}
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	spec.Dir = dir
	m, err := l.Start(ctx, spec)
	if err == nil {
		return m.Close()
	}
	// The same kernel boots under TCG: a failure is the host's.
	var boot *vm.BootError
	if errors.As(err, &boot) {
		return &vm.InfraError{Failure: boot.Failure, Op: "prove kvm", Err: fmt.Errorf("the guest %s", boot.Reason)}
	}
	return err
}
