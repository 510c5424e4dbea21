package qemu

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/kbisect/kbisect/internal/proc"
	"github.com/kbisect/kbisect/vm"
)

// device is one part of the machine: what QEMU must be told of it, and what the
// kernel.
type device interface {
	Args() []string
	KernelArgs() []string
}

// PortName is the virtio-serial port on which kbisect-init serves SSH.
const PortName = "kbisect.ssh"

// board is the machine itself.
type board struct {
	accel     vm.Accel
	cpus      int
	memoryMiB int
}

// Args turns off what the guest would probe for in vain.
func (b board) Args() []string {
	args := []string{
		"-nodefaults", "-no-user-config", "-display", "none",
		// A guest that resets itself has ended; it must not come back
		// with half of what it was.
		"-no-reboot",
		"-machine", "q35,sata=off,smbus=off,usb=off,vmport=off,smm=off,i8042=off",
		"-smp", strconv.Itoa(b.cpus), "-m", strconv.Itoa(b.memoryMiB),
	}
	if b.accel == vm.KVM {
		return append(args, "-accel", "kvm", "-cpu", "host")
	}
	return append(args, "-accel", "tcg,thread=multi", "-cpu", tcgCPU)
}

// tcgCPU is the emulated processor. Of an Intel of that age the kernel believes
// that its time stamp counter is constant, and does not calibrate the second
// CPU's delay loop: a fifth of the boot's time against QEMU's default, qemu64.
// It has SSSE3 and SSE4 for the SSH of the guest; a newer one gains nothing more.
const tcgCPU = "Nehalem,+rdrand"

// KernelArgs makes the kernel end where it fails, and keeps its clocks from
// depending on how busy the host is.
func (b board) KernelArgs() []string {
	args := []string{
		"panic=-1",          // reset at once, which ends QEMU
		"oops=panic",        // what went on after an oops would not be measured, only waited for
		"reboot=t",          // triple fault: the one way that works in every state
		"unknown_nmi_panic", // the post-mortem of a hang is an NMI, which shall print a trace
		// On a busy host the test of the timer interrupt failed once in
		// some hundred boots ("IO-APIC + timer doesn't work").
		"no_timer_check",
		// Programs lie at the same addresses in every run. TCG translates code
		// anew at another address, so that a script's exec of /bin/true took
		// 31 ms with randomisation and takes 4 ms without; on KVM it is one
		// difference less between two runs.
		"norandmaps",
	}
	if b.accel == vm.KVM {
		return args
	}
	return append(args,
		// All emulated counters are the host's one: no need to compare them.
		"tsc=reliable",
		// tsc-early turns into tsc a second or two after the boot, in the
		// middle of a run; runs of different clocks are not compared.
		"clocksource=hpet",
	)
}

// sandbox is QEMU's seccomp filter. Its resourcecontrol=deny is left out: newer
// glib kills QEMU with it, as its thread pools ask for scheduler attributes.
type sandbox struct{}

func (sandbox) Args() []string {
	return []string{"-sandbox", "on,obsolete=deny,elevateprivileges=deny,spawn=deny"}
}

func (sandbox) KernelArgs() []string { return nil }

// boot is what is started.
type boot struct {
	firmware firmware
	kernel   string
	initrd   string
}

func (b boot) Args() []string {
	var args []string
	if b.firmware.path != "" {
		args = append(args, "-bios", b.firmware.path)
	}
	args = append(args, "-kernel", b.kernel)
	if b.initrd == "" { // the system is on a disk
		return args
	}
	return append(args, "-initrd", b.initrd)
}

func (boot) KernelArgs() []string { return nil }

// serial is the console. fd 0 is the standard output of who runs QEMU by hand.
type serial struct{ fd int }

func (s serial) Args() []string {
	if s.fd == 0 {
		return []string{"-serial", "stdio"}
	}
	// The UART writes byte by byte. A pipe joins them; a socket would keep each
	// as a message of its own, and wake its reader 20,000 times a boot.
	return []string{"-chardev", fmt.Sprintf("file,id=console,path=/proc/self/fd/%d", s.fd), "-serial", "chardev:console"}
}

func (serial) KernelArgs() []string { return []string{"console=ttyS0"} }

// monitor is the QMP connection; fd 0 is none.
type monitor struct{ fd int }

func (m monitor) Args() []string {
	if m.fd == 0 {
		return nil
	}
	return []string{"-chardev", socket("qmp", m.fd), "-mon", "chardev=qmp,mode=control"}
}

func (monitor) KernelArgs() []string { return nil }

// port is the control channel; fd 0 leads nowhere.
type port struct{ fd int }

func (p port) Args() []string {
	backend := "null,id=ssh"
	if p.fd != 0 {
		backend = socket("ssh", p.fd)
	}
	return []string{
		"-chardev", backend, "-device", "virtio-serial-pci",
		"-device", "virtserialport,chardev=ssh,name=" + PortName,
	}
}

func (port) KernelArgs() []string { return nil }

// rng seeds the kernel's random numbers; without it the Go runtime waits a
// second for them.
type rng struct{}

func (rng) Args() []string {
	return []string{"-object", "rng-builtin,id=rng", "-device", "virtio-rng-pci,rng=rng"}
}

func (rng) KernelArgs() []string { return []string{"random.trust_cpu=on"} }

// socket is a character device on an inherited connection.
func socket(id string, fd int) string { return fmt.Sprintf("socket,id=%s,fd=%d", id, fd) }

// fds are the numbers that QEMU's ends have in QEMU. The zero value is a machine
// run by hand.
type fds struct{ console, monitor, ssh, initrd int }

// manualPort is where a machine with a disk that is run by hand has its sshd.
const manualPort = 2222

// devices returns the machine's parts in the order of its command line.
func (p *plan) devices(n fds) []device {
	initrd := p.Initrd
	if n.initrd != 0 {
		initrd = fmt.Sprintf("/proc/self/fd/%d", n.initrd)
	}
	list := []device{
		board{p.Accel, p.CPUs, p.MemoryMiB},
		boot{p.firmware, p.Kernel, initrd},
		serial{n.console}, monitor{n.monitor},
	}
	if p.Disk != nil {
		forwarded := manualPort
		if n.console != 0 {
			forwarded = p.forwarded
		}
		list = append(list, disk{*p.Disk, p.diskFormat}, network{forwarded})
	} else {
		list = append(list, port{n.ssh})
	}
	list = append(list, rng{})
	if !p.noSandbox {
		list = slices.Insert(list, 1, device(sandbox{}))
	}
	return list
}

// cmdline is the kernel's command line: ours, and then the user's, which wins.
func (p *plan) cmdline() string {
	var words []string
	for _, d := range p.devices(fds{}) {
		words = append(words, d.KernelArgs()...)
	}
	return strings.Join(append(words, p.Cmdline...), " ")
}

// argv is the whole command.
func (p *plan) argv(n fds) []string {
	argv := []string{p.program}
	for _, d := range p.devices(n) {
		argv = append(argv, d.Args()...)
	}
	return append(argv, "-append", p.cmdline())
}

// manual is the command as a person can run it: the console on the terminal,
// no monitor, and the initramfs without the keys, so that init stops where it
// would serve.
func (p *plan) manual() string { return proc.Quote(p.argv(fds{})) }
