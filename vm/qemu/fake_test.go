package qemu_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/kbisect/kbisect/vm"
	"github.com/kbisect/kbisect/vm/qemu"
	"github.com/kbisect/kbisect/vm/vmtest"
)

func TestMain(m *testing.M) {
	vmtest.MainFakeQEMU()
	if spec := os.Getenv(ownerEnv); spec != "" {
		ownMachine(spec)
	}
	code := m.Run()
	if built.dir != "" {
		os.RemoveAll(built.dir)
	}
	if code == 0 {
		if err := goleak.Find(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = 1
		}
	}
	os.Exit(code)
}

// fakeSpec describes a machine for a fake QEMU: a file that looks like a
// bzImage, an initramfs of an odd length, and a limit of each kind.
func fakeSpec(t *testing.T) vm.Spec {
	t.Helper()
	dir := t.TempDir()
	kernel := make([]byte, 1024)
	copy(kernel[0x202:], "HdrS")
	spec := vm.Spec{Kernel: filepath.Join(dir, "bzImage"), Initrd: filepath.Join(dir, "initrd"), Dir: filepath.Join(dir, "run")}
	if err := errors.Join(os.WriteFile(spec.Kernel, kernel, 0o600), os.WriteFile(spec.Initrd, make([]byte, 13), 0o600),
		os.Mkdir(spec.Dir, 0o700)); err != nil {
		t.Fatal(err)
	}
	spec.Boot, spec.Silence = 30*time.Second, 30*time.Second
	return spec
}

// checkNothingLeft fails if a child of ours or an inherited file is left.
func checkNothingLeft(t *testing.T, fdsBefore int) {
	t.Helper()
	if left := children(t); len(left) > 0 {
		t.Errorf("processes left: %v", left)
	}
	if n := openFDs(t); n > fdsBefore {
		t.Errorf("%d file descriptors, %d before", n, fdsBefore)
	}
}

// children returns the living children of this process.
func children(t *testing.T) []string {
	t.Helper()
	var found []string
	tasks, _ := filepath.Glob("/proc/self/task/*/children")
	for _, f := range tasks {
		b, _ := os.ReadFile(f)
		found = append(found, strings.Fields(string(b))...)
	}
	return found
}

func openFDs(t *testing.T) int {
	t.Helper()
	names, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(names)
}

func TestFailures(t *testing.T) {
	for _, tt := range []struct {
		mode       vmtest.Mode
		silence    time.Duration
		boot       time.Duration
		as         any // pointer to the error type wanted
		want       string
		postMortem bool
	}{
		{mode: vmtest.BadArgs, as: new(*vm.InfraError), want: `exit status 1 (qemu's last line: "qemu-system-x86_64: -machine q36`},
		{mode: vmtest.Killed, as: new(*vm.InfraError), want: "killed by SIGKILL"},
		{mode: vmtest.Panic, as: new(*vm.BootError), want: "kernel panic: Kernel panic - not syncing: VFS"},
		{mode: vmtest.PanicStuck, as: new(*vm.BootError), want: "kernel panic: Kernel panic - not syncing: stuck", postMortem: true},
		{mode: vmtest.Reset, as: new(*vm.BootError), want: "reset before userspace"},
		{mode: vmtest.GiveUp, as: new(*vm.BootError), want: "init gave up: find virtio-serial port"},
		{mode: vmtest.Silent, silence: 200 * time.Millisecond, as: new(*vm.BootError), want: "silent for 200ms", postMortem: true},
		{mode: vmtest.Slow, boot: 400 * time.Millisecond, as: new(*vm.BootError), want: "not up within 400ms", postMortem: true},
		{mode: vmtest.Flood, boot: 400 * time.Millisecond, as: new(*vm.BootError), want: "not up within 400ms"},
	} {
		t.Run(string(tt.mode), func(t *testing.T) {
			spec := fakeSpec(t)
			if tt.silence > 0 {
				spec.Silence = tt.silence
			}
			if tt.boot > 0 {
				spec.Boot = tt.boot
			}
			m, err := launch(t, tt.mode, spec)
			if err == nil {
				m.Close()
				t.Fatal("it booted")
			}
			if !errors.As(err, tt.as) || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("err = %T %v, want %T with %q", err, err, tt.as, tt.want)
			}
			checkFailure(t, err, spec, tt.postMortem)
		})
	}
}

// launch starts a fake QEMU.
func launch(t *testing.T, mode vmtest.Mode, spec vm.Spec) (*qemu.Machine, error) {
	t.Helper()
	return qemu.Launcher{QEMU: vmtest.FakeQEMU(t, mode)}.Start(t.Context(), spec)
}

// checkFailure checks what every error carries.
func checkFailure(t *testing.T, err error, spec vm.Spec, postMortem bool) {
	t.Helper()
	var f vm.Failure
	var infra *vm.InfraError
	var boot *vm.BootError
	switch {
	case errors.As(err, &infra):
		f = infra.Failure
	case errors.As(err, &boot):
		f = boot.Failure
	}
	if !strings.Contains(f.Command, "-serial stdio") || strings.Contains(f.Command, "fd=") || strings.Contains(f.Command, "/proc/self") {
		t.Errorf("command cannot be run by hand: %s", f.Command)
	}
	if argv, _ := os.ReadFile(filepath.Join(spec.Dir, "qemu.argv")); string(argv) != f.Command+"\n" {
		t.Errorf("qemu.argv = %s", argv)
	}
	if infra != nil && len(f.Stderr)+len(f.Console) == 0 {
		t.Error("neither QEMU's words nor the console's")
	}
	text := strings.Join(f.PostMortem, "\n")
	if postMortem && (!strings.Contains(text, "CPU#0 RIP=ffffffff81000000") || !strings.Contains(text, "NMI: trace")) {
		t.Errorf("post-mortem %q", text)
	}
}

// TestMonitorDead: without a monitor the machine cannot be judged.
func TestMonitorDead(t *testing.T) {
	if testing.Short() {
		t.Skip("waits for the monitor's limit of 10 s")
	}
	_, err := launch(t, vmtest.Deaf, fakeSpec(t))
	var infra *vm.InfraError
	if !errors.As(err, &infra) || !strings.Contains(err.Error(), "connect monitor") {
		t.Errorf("err = %v", err)
	}
}

func TestCancelBoot(t *testing.T) {
	before := openFDs(t)
	ctx, cancel := context.WithTimeout(t.Context(), 150*time.Millisecond)
	defer cancel()
	_, err := qemu.Launcher{QEMU: vmtest.FakeQEMU(t, vmtest.Slow)}.Start(ctx, fakeSpec(t))
	if !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("err = %v", err)
	}
	checkNothingLeft(t, before)
}

func TestUp(t *testing.T) {
	before := openFDs(t)
	spec := fakeSpec(t)
	m, err := launch(t, vmtest.Up, spec)
	if err != nil {
		t.Fatalf("%v\n%s", err, detail(err))
	}
	f := m.Facts()
	if f.QEMU != "7.2.9" || f.Machine != "q35" || f.Firmware != "default" || f.CPUs != 2 || f.Boot <= 0 {
		t.Errorf("facts %+v", f)
	}
	var out bytes.Buffer
	if err := m.Exec(t.Context(), vm.Command{Argv: []string{"echo", "a  b"}, Stdout: &out}); err != nil || out.String() != "a  b\n" {
		t.Errorf("Exec = %q, %v", &out, err)
	}
	var exit *vm.ExitError
	if err := m.Exec(t.Context(), vm.Command{Argv: []string{"false"}}); !errors.As(err, &exit) || exit.Status != 1 {
		t.Errorf("false: %v", err)
	}
	name := filepath.Join(spec.Dir, "put")
	if err := m.Put(t.Context(), strings.NewReader("body"), 4, name, 0o600); err != nil {
		t.Error(err)
	}
	if err := m.Exec(t.Context(), vm.Command{Argv: []string{vmtest.FakeWarn}}); err != nil {
		t.Error(err)
	}
	if e := <-m.Events(); e.Kind != vm.EventWarning {
		t.Errorf("event %+v", e)
	}
	for range 2 {
		if err := m.Close(); err != nil {
			t.Error(err)
		}
	}
	if e, open := <-m.Events(); open {
		t.Errorf("event %+v after Close", e)
	}
	var infra *vm.InfraError
	if err := m.Exec(t.Context(), vm.Command{Argv: []string{"true"}}); !errors.As(err, &infra) {
		t.Errorf("Exec after Close: %v", err)
	}
	checkNothingLeft(t, before)
}

func TestDeaths(t *testing.T) {
	for _, tt := range []struct {
		command string
		as      any
		want    string
		events  []vm.EventKind
	}{
		{vmtest.FakePanic, new(*vm.CrashError), "bug: BUG: kernel NULL pointer", []vm.EventKind{vm.EventBUG, vm.EventPanic, vm.EventExit}},
		{vmtest.FakePowerOff, new(*vm.CrashError), "exit: guest powered itself off", []vm.EventKind{vm.EventExit}},
		{vmtest.FakeKilled, new(*vm.InfraError), "killed by SIGKILL", []vm.EventKind{vm.EventExit}},
	} {
		t.Run(tt.command, func(t *testing.T) {
			m, err := launch(t, vmtest.Up, fakeSpec(t))
			if err != nil {
				t.Fatalf("%v\n%s", err, detail(err))
			}
			defer m.Close()
			for range 2 { // and it stays so
				err = m.Exec(t.Context(), vm.Command{Argv: []string{tt.command}})
				if !errors.As(err, tt.as) || !strings.Contains(err.Error(), tt.want) {
					t.Errorf("err = %T %v, want %T with %q", err, err, tt.as, tt.want)
				}
			}
			var kinds []vm.EventKind
			for e := range m.Events() {
				kinds = append(kinds, e.Kind)
			}
			if fmt.Sprint(kinds) != fmt.Sprint(tt.events) {
				t.Errorf("events %v, want %v", kinds, tt.events)
			}
		})
	}
}

// TestTimeout: a late command says where the guest stands, and the machine can
// still be used.
func TestTimeout(t *testing.T) {
	m, err := launch(t, vmtest.Up, fakeSpec(t))
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	err = m.Exec(ctx, vm.Command{Argv: []string{vmtest.FakeHang}})
	var late *vm.TimeoutError
	if !errors.As(err, &late) || late.What != "command "+vmtest.FakeHang || late.Limit < 100*time.Millisecond ||
		!strings.Contains(strings.Join(late.Stack, "\n"), "task:ip state:D") {
		t.Errorf("err = %+v", err)
	}
	if err := m.Exec(t.Context(), vm.Command{Argv: []string{"true"}}); err != nil {
		t.Errorf("the next command: %v", err)
	}
	cancelled, stop := context.WithCancel(t.Context())
	time.AfterFunc(50*time.Millisecond, stop)
	if err := m.Exec(cancelled, vm.Command{Argv: []string{"sleep", "600"}}); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
}

func TestBadSpecs(t *testing.T) {
	good := fakeSpec(t)
	text := filepath.Join(good.Dir, "text")
	if err := os.WriteFile(text, bytes.Repeat([]byte("no kernel "), 100), 0o600); err != nil {
		t.Fatal(err)
	}
	self, err := os.Executable() // an ELF without a PVH entry
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		change func(*vm.Spec)
		qemu   string
		want   string
	}{
		{func(s *vm.Spec) { s.Kernel = text }, self, "neither an ELF vmlinux nor a bzImage"},
		{func(s *vm.Spec) { s.Kernel = "/no/vmlinux" }, self, "no such file"},
		{func(s *vm.Spec) { s.Kernel = self }, self, "CONFIG_PVH=y"},
		{func(s *vm.Spec) { s.Initrd = "" }, self, "check initramfs"},
		{func(s *vm.Spec) { s.Initrd = "/no/initrd" }, self, "check initramfs"},
		{func(s *vm.Spec) { s.Dir = "/no/dir" }, self, "run folder"},
		{func(*vm.Spec) {}, "kbisect-no-such-qemu", "kbisect doctor --install"},
	} {
		spec := good
		tt.change(&spec)
		_, err := qemu.Launcher{QEMU: tt.qemu}.Start(t.Context(), spec)
		var infra *vm.InfraError
		if !errors.As(err, &infra) || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("err = %v, want %q", err, tt.want)
		}
	}
}
