package qemu

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kbisect/kbisect/vm"
)

// groups cuts a QEMU command into options with their values, since their order
// means nothing.
func groups(argv []string) []string {
	var gs []string
	for _, a := range argv[1:] {
		if strings.HasPrefix(a, "-") || len(gs) == 0 {
			gs = append(gs, a)
		} else {
			gs[len(gs)-1] += " " + a
		}
	}
	return gs
}

func TestArgv(t *testing.T) {
	spec := vm.Spec{Kernel: "/k/vmlinux", Initrd: "/k/initrd", Cmdline: []string{"rcu_normal=1", "x=a b"}}
	always := []string{"-nodefaults", "-no-user-config", "-display none", "-no-reboot",
		"-sandbox on,obsolete=deny,elevateprivileges=deny,spawn=deny", "-device virtio-rng-pci,rng=rng"}
	for _, tt := range []struct {
		name    string
		change  func(*plan)
		fds     fds
		want    []string
		wantNot []string
	}{
		{"tcg", func(*plan) {}, fds{4, 5, 6, 3}, []string{"-accel tcg,thread=multi", "-smp 2", "-m 1024",
			"-bios /d/qboot.rom", "-initrd /proc/self/fd/3", "-serial chardev:console", "-chardev file,id=console,path=/proc/self/fd/4",
			"-chardev socket,id=qmp,fd=5", "-mon chardev=qmp,mode=control", "-chardev socket,id=ssh,fd=6"}, []string{"-serial stdio"}},
		{"kvm", func(p *plan) { p.Accel, p.CPUs, p.MemoryMiB = vm.KVM, 8, 512 }, fds{4, 5, 6, 3},
			[]string{"-accel kvm", "-cpu host", "-smp 8", "-m 512"}, nil},
		{"by hand", func(*plan) {}, fds{}, []string{"-serial stdio", "-initrd /k/initrd", "-chardev null,id=ssh"}, []string{"-mon chardev=qmp,mode=control"}},
		{"no qboot", func(p *plan) { p.firmware = firmware{name: "default"} }, fds{}, nil, []string{"-bios /d/qboot.rom"}},
		{"disk", func(p *plan) {
			p.Initrd, p.Disk, p.diskFormat, p.forwarded = "", &vm.Disk{Path: "/d/a,b.qcow2", Root: "/dev/vda1"}, "qcow2", 40022
		}, fds{4, 5, 6, 0}, []string{"-drive file=/d/a,,b.qcow2,format=qcow2,if=virtio,snapshot=on",
			"-netdev user,id=net,restrict=on,ipv6=off,hostfwd=tcp:127.0.0.1:40022-10.0.2.15:22",
			"-device virtio-net-pci,netdev=net,romfile="}, []string{"-device virtio-serial-pci", "-initrd "}},
		{"no sandbox", func(p *plan) { p.noSandbox = true }, fds{}, nil, always[4:5]},
	} {
		t.Run(tt.name, func(t *testing.T) {
			p := &plan{Spec: spec, program: "qemu", firmware: firmware{"qboot", "/d/qboot.rom"}}
			p.setDefaults()
			tt.change(p)
			got := groups(p.argv(tt.fds))
			for _, w := range append(slices.Clone(always), tt.want...) {
				if !slices.Contains(got, w) && !slices.Contains(tt.wantNot, w) {
					t.Errorf("no %q in %q", w, got)
				}
			}
			for _, w := range tt.wantNot {
				if slices.Contains(got, w) {
					t.Errorf("unwanted %q", w)
				}
			}
		})
	}
}

func TestInspect(t *testing.T) {
	file := func(head, tail string) string {
		path := filepath.Join(t.TempDir(), "disk")
		data := make([]byte, 1024)
		copy(data, head)
		copy(data[510:], tail)
		if err := os.WriteFile(path, data, 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	for _, c := range []struct {
		path, format string
		parts        bool
	}{
		{file("QFI\xfb\x00\x00\x00\x03", ""), "qcow2", true},
		{file("", "\x55\xaa"), "raw", true},
		{file("", ""), "raw", false},
	} {
		if format, parts, err := inspect(c.path); format != c.format || parts != c.parts || err != nil {
			t.Errorf("got %s, %v, %v; want %+v", format, parts, err, c)
		}
	}
	short := filepath.Join(t.TempDir(), "short")
	if err := os.WriteFile(short, []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{short, t.TempDir(), "/no/such/disk", "/dev/null"} {
		if _, _, err := inspect(path); err == nil || !strings.Contains(err.Error(), path) {
			t.Errorf("%s: %v", path, err)
		}
	}
}

func TestCmdline(t *testing.T) {
	p := &plan{Spec: vm.Spec{Cmdline: []string{"panic=30", "x"}}}
	p.setDefaults()
	words := strings.Fields(p.cmdline())
	for _, w := range []string{"console=ttyS0", "panic=-1", "oops=panic", "norandmaps", "random.trust_cpu=on"} {
		if !slices.Contains(words, w) {
			t.Errorf("no %q in %q", w, words)
		}
	}
	// The kernel takes the last of a repeated parameter.
	if got := words[len(words)-2:]; !slices.Equal(got, p.Cmdline) {
		t.Errorf("the user's parameters are not last: %q", words)
	}
}

// exitWith returns the error of a process that ended by a shell's line.
func exitWith(t *testing.T, line string) error {
	t.Helper()
	return exec.Command("/bin/sh", "-c", line).Run()
}

func TestEnding(t *testing.T) {
	fatal := &vm.Event{Kind: vm.EventOops, Line: "Oops: 0000 [#1]"}
	said := []string{"Linux version 6.1", "last words"}
	for _, tt := range []struct {
		name string
		e    ending
		as   any
		want string
	}{
		{"bad argv", ending{wait: exitWith(t, "exit 1")}, new(*vm.InfraError), "exit status 1"},
		{"killed", ending{wait: exitWith(t, "kill -KILL $$"), booted: true, fatal: fatal}, new(*vm.InfraError), "out of memory"},
		{"aborted", ending{wait: exitWith(t, "kill -ABRT $$"), console: said}, new(*vm.InfraError), "SIGABRT"},
		{"terminated", ending{shutdown: hostSignal, console: said}, new(*vm.InfraError), "terminated by a signal"},
		{"nothing", ending{}, new(*vm.InfraError), "before the guest said anything"},
		{"wait failed", ending{wait: errors.New("copy"), console: said}, new(*vm.InfraError), "copy"},
		{"oops at boot", ending{shutdown: guestReset, fatal: fatal, console: said}, new(*vm.BootError), "kernel oops: Oops"},
		{"reset", ending{shutdown: guestReset, console: said}, new(*vm.BootError), `reset before userspace (the console's last line: "last words")`},
		{"mute reset", ending{shutdown: guestReset}, new(*vm.BootError), "reset before userspace"},
		{"poweroff", ending{shutdown: guestShutdown, console: said}, new(*vm.BootError), "powered off before"},
		{"init gave up", ending{shutdown: guestShutdown, console: []string{"kbisect-init: fatal: no port", "reboot: Power down"}}, new(*vm.BootError), "init gave up: no port"},
		{"crash", ending{booted: true, shutdown: guestReset, fatal: fatal, console: said}, new(*vm.CrashError), "oops: Oops"},
		{"guest reset", ending{booted: true, shutdown: guestReset, console: said}, new(*vm.CrashError), "exit: guest reset itself"},
		{"guest off", ending{booted: true, shutdown: guestShutdown, console: said}, new(*vm.CrashError), "exit: guest powered"},
	} {
		err := tt.e.err(vm.Failure{Command: "qemu"})
		if !errors.As(err, tt.as) || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: %T %v, want %T with %q", tt.name, err, err, tt.as, tt.want)
		}
	}
}

func TestEventQueue(t *testing.T) {
	q := newEventQueue()
	for range maxEvents + 5 {
		q.push(vm.Event{Kind: vm.EventWarning})
	}
	q.close()
	q.close()
	q.push(vm.Event{})
	n := 0
	for range q.ch {
		n++
	}
	if n != maxEvents || q.lost() != 5 {
		t.Errorf("%d kept, %d lost", n, q.lost())
	}
}

func TestInstructionPointers(t *testing.T) {
	text := "\r\nCPU#0\r\nRAX=0000000000000000 RBX=1\r\nRIP=ffffffff81000010 RFL=00000246 [---Z-P-] CPL=0\r\n" +
		"\r\nCPU#1\r\nRIP=ffffffff81000020 RFL=00000246\r\n"
	want := []string{"CPU#0 RIP=ffffffff81000010 RFL=00000246 [---Z-P-] CPL=0", "CPU#1 RIP=ffffffff81000020 RFL=00000246"}
	if diff := cmp.Diff(want, instructionPointers(text)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestFirmware(t *testing.T) {
	dir := t.TempDir()
	program := filepath.Join(dir, "bin", "qemu-system-x86_64")
	rom := filepath.Join(dir, "share/qemu", qbootROM)
	if err := os.MkdirAll(filepath.Dir(rom), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(rom, []byte("rom"), 0o600); err != nil {
		t.Fatal(err)
	}
	if got := findFirmware(program, imagePVH); got != (firmware{"qboot", rom}) {
		t.Errorf("vmlinux: %+v", got)
	}
	if got := findFirmware(program, imageBzImage); got != (firmware{name: "default"}) {
		t.Errorf("bzImage: %+v", got)
	}
}

// TestProveKVM checks the shape of a refusal wherever it runs; where KVM works
// it is proved by the machine tests.
func TestProveKVMRefusal(t *testing.T) {
	if f, err := os.OpenFile("/dev/kvm", os.O_RDWR, 0); err == nil {
		f.Close()
		t.Skip("/dev/kvm opens here")
	}
	err := ProveKVM(context.Background(), "vmlinux", "initrd", time.Second)
	var infra *vm.InfraError
	if !errors.As(err, &infra) || infra.Op != "prove kvm" || !strings.Contains(err.Error(), "/dev/kvm") {
		t.Errorf("err = %v", err)
	}
}
