package vm_test

import (
	"errors"
	"fmt"
	"io"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kbisect/kbisect/vm"
)

func TestDetail(t *testing.T) {
	f := vm.Failure{
		Console: []string{"a", "b"}, PostMortem: []string{"CPU#0 RIP=1"},
		Stderr: []string{"c"}, Command: "qemu -x",
	}
	want := "console:\n  a\n  b\nhung at:\n  CPU#0 RIP=1\nqemu:\n  c\ncommand:\n  qemu -x\n"
	if diff := cmp.Diff(want, f.Detail()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if got := (vm.Failure{}).Detail(); got != "" {
		t.Errorf("empty: %q", got)
	}
}

func TestErrors(t *testing.T) {
	for _, tt := range []struct {
		err  error
		want string
	}{
		{&vm.BootError{Reason: "silent for 30s"}, "boot: silent for 30s"},
		{&vm.CrashError{Event: vm.Event{Kind: vm.EventOops, Line: "Oops: 0"}}, "guest crashed: oops: Oops: 0"},
		{&vm.TimeoutError{What: "workload", Limit: time.Minute}, "workload did not end within 1m0s"},
		{&vm.InfraError{Op: "start qemu", Err: io.EOF}, "start qemu: EOF"},
		{&vm.ExitError{Status: 3}, "guest command exited with status 3"},
		{&vm.ExitError{Status: 137, Signal: "KILL"}, "guest command killed by signal KILL"},
	} {
		if got := tt.err.Error(); got != tt.want {
			t.Errorf("%T: %q, want %q", tt.err, got, tt.want)
		}
	}
	if err := fmt.Errorf("run: %w", &vm.InfraError{Err: io.EOF}); !errors.Is(err, io.EOF) {
		t.Error("InfraError does not unwrap")
	}
}

func TestFatal(t *testing.T) {
	for kind, want := range map[vm.EventKind]bool{
		vm.EventPanic: true, vm.EventOops: true, vm.EventBUG: true, vm.EventOOM: true,
		vm.EventWarning: false, vm.EventRCUStall: false, vm.EventHungTask: false, vm.EventNetdevWait: false,
		vm.EventExit: false, vm.EventNoAnswer: false, vm.EventFlood: false, vm.EventSoftLockup: false,
	} {
		if kind.Fatal() != want {
			t.Errorf("%s.Fatal() = %v", kind, !want)
		}
	}
}
