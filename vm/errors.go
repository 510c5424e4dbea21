package vm

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// Failure is what every error of a machine carries, so that a reader can see
// why without opening the run folder.
type Failure struct {
	Console []string // last lines of the console, at most 50
	Stderr  []string // last lines QEMU itself printed, at most 50
	Command string   // shell-quoted QEMU command that reproduces the boot

	// PostMortem is where a guest that hung was found: what its kernel said
	// to sysrq or an NMI, and QEMU about its CPUs.
	PostMortem []string
}

// Detail returns the multi-line explanation for a terminal, "" if there is none.
func (f Failure) Detail() string {
	var b strings.Builder
	section := func(title string, lines []string) {
		if len(lines) == 0 {
			return
		}
		fmt.Fprintf(&b, "%s:\n", title)
		for _, l := range lines {
			fmt.Fprintf(&b, "  %s\n", l)
		}
	}
	section("console", f.Console)
	section("hung at", slices.DeleteFunc(slices.Clone(f.PostMortem), func(l string) bool {
		return slices.Contains(f.Console, l) // the answer to an NMI is on the console, too
	}))
	section("qemu", f.Stderr)
	if f.Command != "" {
		fmt.Fprintf(&b, "command:\n  %s\n", f.Command)
	}
	return b.String()
}

// BootError says that the kernel did not reach userspace: it panicked, fell
// silent, or reset. It can blame a kernel (the revision is untestable).
type BootError struct {
	Failure
	Reason string // "kernel panic: ...", "silent for 30s", "reset before userspace"
}

func (e *BootError) Error() string { return "boot: " + e.Reason }

// CrashError says that the guest died or broke after it had booted. It can
// blame a kernel (the revision is untestable, not slow).
type CrashError struct {
	Failure
	Event Event // what was noticed
}

func (e *CrashError) Error() string {
	return fmt.Sprintf("guest crashed: %s: %s", e.Event.Kind, e.Event.Line)
}

// TimeoutError says that a limit passed while the guest was still alive. What
// ran is not a number: it took longer than Limit.
type TimeoutError struct {
	Failure
	What  string // "workload", "command"
	Limit time.Duration
	Stack []string // the guest's blocked tasks, by sysrq or NMI, when it still answered
}

func (e *TimeoutError) Error() string {
	return fmt.Sprintf("%s did not end within %s", e.What, e.Limit)
}

// InfraError says that the host, QEMU or the control channel failed. It never
// blames a kernel; the run is repeated.
type InfraError struct {
	Failure
	Op  string // "start qemu", "dial guest"
	Err error
}

func (e *InfraError) Error() string { return e.Op + ": " + e.Err.Error() }
func (e *InfraError) Unwrap() error { return e.Err }

// ExitError is a guest command's non-zero end.
type ExitError struct {
	Status int    // exit status, 128+n for signal n
	Signal string // "KILL" when it was killed
}

func (e *ExitError) Error() string {
	if e.Signal != "" {
		return "guest command killed by signal " + e.Signal
	}
	return fmt.Sprintf("guest command exited with status %d", e.Status)
}
