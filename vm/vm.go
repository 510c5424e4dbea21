// Package vm is what the rest of kbisect knows of a virtual machine: how one is
// described (Spec), what can be done with a running one (Machine), and the ways
// in which it fails (errors.go). It has no QEMU words; package vm/qemu does the
// work.
package vm

import (
	"context"
	"io"
	"os"
	"time"
)

// Accel is how the guest's instructions are executed.
type Accel string

// The two accelerators. Outcomes of different accelerators are never compared.
const (
	KVM Accel = "kvm"
	TCG Accel = "tcg"
)

// Spec describes one machine. The zero value of an optional field means the
// default named beside it.
type Spec struct {
	Kernel    string   // path of an ELF vmlinux with a PVH note, or of a bzImage
	Initrd    string   // path of the initramfs whose /init is kbisect-init; "" with a Disk
	Disk      *Disk    // a system of the user's instead of the initramfs
	Accel     Accel    // default TCG
	CPUs      int      // default 2; never below 2 for a measurement: CONFIG_SMP without a second CPU hides RCU waits
	MemoryMiB int      // default 1024
	Cmdline   []string // kernel parameters added after kbisect's own

	// Dir is an existing folder that receives console.log, qemu.log (QEMU's own
	// output) and qemu.argv. It belongs to the caller and is not removed.
	Dir string

	Boot    time.Duration // limit from exec to SSH; default 60 s under TCG, 20 s under KVM; with a Disk 5 min, 60 s
	Silence time.Duration // limit without a console byte before SSH is up; default 30 s; with a Disk 2 min
}

// Disk is a disk image with a whole system, whose sshd is the control channel: by
// a network of the machine's own, which leads nowhere else. The image is never
// written; what the guest writes is forgotten with it.
type Disk struct {
	Path string // of a qcow2 or raw image
	Root string // device of its root file system; default /dev/vda1 if it has partitions, else /dev/vda
	User string // that sshd lets in; default root
	Key  string // path of the private key that it lets in, which has no passphrase
}

// Machine is one booted guest with its control channel up. Its owner calls
// Close exactly when done; Close is idempotent, kills the guest without asking
// it, and returns when no process of it is left.
//
// Exec and Put may be called from several goroutines. All calls fail with one
// of the error types of this package once the guest has died.
type Machine interface {
	// Exec runs a command in the guest and blocks until it ends. A non-zero
	// end is an *ExitError; a guest that dies meanwhile is a *CrashError.
	Exec(ctx context.Context, c Command) error
	// Put writes size bytes of r to path in the guest, verified by size and CRC-64 and
	// renamed into place.
	Put(ctx context.Context, r io.Reader, size int64, path string, mode os.FileMode) error
	// Events delivers what the console watch and the supervisor noticed.
	// The channel is bounded (the newest are dropped and counted when nobody
	// reads) and is closed when the machine has ended.
	Events() <-chan Event
	// Facts says what was booted, as recorded beside every outcome.
	Facts() Facts
	// Close ends the machine. See the interface comment.
	Close() error
}

// Command is one command in the guest.
type Command struct {
	Argv   []string // Argv[0] is looked up in the guest's PATH; empty for a login shell
	Env    []string // added to the guest's own, "NAME=value"
	Stdin  io.Reader
	Stdout io.Writer // nil discards
	Stderr io.Writer // nil discards
	TTY    *TTY      // non-nil allocates a pseudo-terminal
}

// TTY is the caller's terminal for an interactive command.
type TTY struct {
	Term       string // the value of TERM
	Rows, Cols int
	Resize     <-chan [2]int // rows, columns; may be nil
}

// Facts is the environment of a run: what a comparison must hold equal, and the
// times it took to get there.
type Facts struct {
	Accel     Accel    `json:"accel"`
	Machine   string   `json:"machine"` // machine type, "q35"
	Firmware  string   `json:"firmware"`
	QEMU      string   `json:"qemu"` // version
	CPUs      int      `json:"cpus"`
	MemoryMiB int      `json:"memory_mib"`
	Cmdline   string   `json:"cmdline"`
	Image     string   `json:"image,omitempty"` // path of the Disk
	Argv      []string `json:"argv"`            // the whole QEMU command

	Boot time.Duration `json:"boot_ns"` // exec of QEMU until SSH is up
}

// EventKind classes an Event.
type EventKind string

// Event kinds. The kernel ones name what the console said.
const (
	EventPanic      EventKind = "panic"
	EventOops       EventKind = "oops"
	EventBUG        EventKind = "bug"
	EventWarning    EventKind = "warning"
	EventRCUStall   EventKind = "rcu-stall"
	EventHungTask   EventKind = "hung-task"
	EventSoftLockup EventKind = "soft-lockup"
	EventNetdevWait EventKind = "unregister-netdevice" // "unregister_netdevice: waiting for"
	EventOOM        EventKind = "oom"
	EventFlood      EventKind = "console-flood" // the console passed its bound; the rest is dropped
	EventExit       EventKind = "exit"          // QEMU ended
	EventNoAnswer   EventKind = "no-answer"     // the guest runs but does not answer any more
)

// Fatal reports whether an event of this kind ends the trust in a run: the
// kernel is broken, whatever the workload still says.
func (k EventKind) Fatal() bool {
	switch k {
	case EventPanic, EventOops, EventBUG, EventOOM:
		return true
	}
	return false
}

// Event is one thing noticed about a machine.
type Event struct {
	Kind EventKind     `json:"kind"`
	At   time.Duration `json:"at_ns"` // since exec of QEMU
	Line string        `json:"line"`  // the console line, shortened to 512 bytes
}
