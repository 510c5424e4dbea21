// Package qemu boots a vm.Spec in QEMU and supervises it.
//
//	m, err := qemu.Start(ctx, vm.Spec{Kernel: "vmlinux", Initrd: "initramfs", Dir: dir})
//	defer m.Close()
//	err = m.Exec(ctx, vm.Command{Argv: []string{"uname", "-r"}, Stdout: os.Stdout})
//
// The guest is a q35 with a serial console and one virtio-serial port, over
// which kbisect-init serves SSH: no network card, no disk, no port and no socket
// file. With a vm.Disk it has that and a network card instead, see disk.go. Console, monitor and SSH are socket pairs, and the initramfs with the
// run's keys is memory, all inherited by QEMU: whatever kills us, nothing stays.
//
// Needs: qemu-system-x86_64 7.0 or newer; a kernel with CONFIG_PVH,
// CONFIG_SERIAL_8250_CONSOLE, CONFIG_VIRTIO_PCI and CONFIG_VIRTIO_CONSOLE.
package qemu

import (
	"context"
	"debug/elf"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"github.com/kbisect/kbisect/vm"
	"github.com/kbisect/kbisect/vm/sshx"
)

// DefaultQEMU is the program that is looked up in PATH.
const DefaultQEMU = "qemu-system-x86_64"

// Defaults of vm.Spec.
const (
	defaultCPUs      = 2
	defaultMemoryMiB = 1024
	defaultBootTCG   = 60 * time.Second
	defaultBootKVM   = 20 * time.Second
	defaultSilence   = 30 * time.Second
	diskSlower       = 5 // the boot of a Disk
	diskSilence      = 2 * time.Minute
)

// Launcher starts machines. Its zero value is ready for use.
type Launcher struct {
	QEMU      string // program; default DefaultQEMU
	NoSandbox bool   // for a QEMU that was built without seccomp
}

// Start is Launcher{}.Start.
func Start(ctx context.Context, spec vm.Spec) (*Machine, error) {
	return Launcher{}.Start(ctx, spec)
}

// Start boots a machine and returns when its SSH is up. ctx bounds the boot
// only: the machine lives until Close. A failure is a *vm.BootError that blames
// the kernel, a *vm.InfraError that does not, or ctx.Err(). Nothing is tried
// again here: 200 boots of q35 in a row did not hang once.
func (l Launcher) Start(ctx context.Context, spec vm.Spec) (*Machine, error) {
	p, err := l.plan(spec)
	if err != nil {
		return nil, err
	}
	return p.boot(ctx)
}

// plan is a Spec that was checked, its defaults filled in.
type plan struct {
	vm.Spec
	program   string // path of QEMU
	firmware  firmware
	noSandbox bool

	// Of a machine with a disk.
	diskFormat string
	login      *sshx.Login
	forwarded  int // port of the loopback device that leads to its sshd
}

func (p *plan) file(name string) string { return filepath.Join(p.Dir, name) }

// plan checks everything that can be checked before anything is started.
func (l Launcher) plan(spec vm.Spec) (*plan, error) {
	p := &plan{Spec: spec, noSandbox: l.NoSandbox}
	p.setDefaults()
	program, err := lookQEMU(l.QEMU)
	if err != nil {
		return nil, err
	}
	p.program = program
	kind, err := kernelKind(spec.Kernel)
	if err != nil {
		return nil, &vm.InfraError{Op: "check kernel", Err: err}
	}
	if err := p.checkSystem(); err != nil {
		return nil, err
	}
	if fi, err := os.Stat(spec.Dir); err != nil || !fi.IsDir() {
		return nil, &vm.InfraError{Op: "check run folder", Err: fmt.Errorf("%q is not a folder", spec.Dir)}
	}
	p.firmware = findFirmware(program, kind)
	return p, nil
}

// checkSystem checks what the guest boots into: a disk or an initramfs.
func (p *plan) checkSystem() error {
	if p.Disk != nil {
		return p.checkDisk()
	}
	if p.Initrd == "" {
		return &vm.InfraError{Op: "check initramfs", Err: errors.New("none given")}
	}
	if _, err := os.Stat(p.Initrd); err != nil {
		return &vm.InfraError{Op: "check initramfs", Err: err}
	}
	return nil
}

func (p *plan) setDefaults() {
	if p.Accel == "" {
		p.Accel = vm.TCG
	}
	if p.CPUs <= 0 {
		p.CPUs = defaultCPUs
	}
	if p.MemoryMiB <= 0 {
		p.MemoryMiB = defaultMemoryMiB
	}
	boot, silence := defaultBootTCG, defaultSilence
	if p.Accel == vm.KVM {
		boot = defaultBootKVM
	}
	if p.Disk != nil { // an init of a distribution has more to do, and says less
		boot, silence = diskSlower*boot, diskSilence
	}
	if p.Silence <= 0 {
		p.Silence = silence
	}
	if p.Boot <= 0 {
		p.Boot = boot
	}
}

// lookQEMU finds the program.
func lookQEMU(name string) (string, error) {
	if name == "" {
		name = DefaultQEMU
	}
	path, err := exec.LookPath(name)
	if err != nil {
		return "", &vm.InfraError{Op: "find qemu", Err: fmt.Errorf("%w; run `kbisect doctor --install`", err)}
	}
	return path, nil
}

// image is the format of a kernel file.
type image string

const (
	imagePVH     image = "vmlinux" // ELF with a PVH entry
	imageBzImage image = "bzImage"
)

// CheckKernel says what is wrong with a file as a kernel image, nil if it is one
// that QEMU can start here.
func CheckKernel(path string) error {
	_, err := kernelKind(path)
	return err
}

// kernelKind tells the formats apart, because QEMU's own message about a kernel
// without a PVH entry does not say what to do.
func kernelKind(path string) (image, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	head := make([]byte, 0x206)
	if _, err := f.ReadAt(head, 0); err != nil {
		return "", fmt.Errorf("%s: neither an ELF vmlinux nor a bzImage: %w", path, err)
	}
	if string(head[0x202:0x206]) == "HdrS" {
		return imageBzImage, nil
	}
	e, err := elf.NewFile(f)
	if err != nil {
		return "", fmt.Errorf("%s: neither an ELF vmlinux nor a bzImage: %w", path, err)
	}
	if e.Machine != elf.EM_X86_64 {
		return "", fmt.Errorf("%s: built for %s, want x86-64", path, e.Machine)
	}
	for _, prog := range e.Progs {
		if prog.Type == elf.PT_NOTE && hasPVHNote(prog) {
			return imagePVH, nil
		}
	}
	return "", fmt.Errorf("%s: no PVH entry; build it with CONFIG_PVH=y", path)
}

// hasPVHNote looks for XEN_ELFNOTE_PHYS32_ENTRY, by which QEMU starts an ELF.
func hasPVHNote(prog *elf.Prog) bool {
	const maxNotes, physEntry = 1 << 20, 18
	notes := make([]byte, min(prog.Filesz, maxNotes))
	if _, err := prog.ReadAt(notes, 0); err != nil {
		return false
	}
	for len(notes) >= 12 {
		name := uint64(binary.LittleEndian.Uint32(notes))
		desc := uint64(binary.LittleEndian.Uint32(notes[4:]))
		kind := binary.LittleEndian.Uint32(notes[8:])
		notes = notes[12:]
		if kind == physEntry && name == 4 && len(notes) >= 4 && string(notes[:4]) == "Xen\x00" {
			return true
		}
		size := (name+3)&^3 + (desc+3)&^3
		if size > uint64(len(notes)) {
			return false
		}
		notes = notes[size:]
	}
	return false
}
