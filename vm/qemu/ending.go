package qemu

import (
	"errors"
	"fmt"
	"os/exec"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/kbisect/kbisect/vm"
)

// ending is all that is known when QEMU has ended by itself.
type ending struct {
	booted   bool          // SSH was up
	wait     error         // of waiting for QEMU: nil or *exec.ExitError
	shutdown string        // the reason QMP gave, "" when it gave none
	fatal    *vm.Event     // the first fatal event on the console
	console  []string      // its tail
	output   []string      // the tail of what QEMU said itself
	at       time.Duration // since exec
}

// Reasons of QMP's SHUTDOWN event that matter here.
const (
	guestReset    = "guest-reset"    // what panic=-1 and -no-reboot make of a panic
	guestShutdown = "guest-shutdown" // powered off
	hostSignal    = "host-signal"
)

// err decides whose fault an end is: the host's, or else the kernel's, before
// or after it had booted.
func (e ending) err(f vm.Failure) error {
	if why := e.hostFault(); why != nil {
		return &vm.InfraError{Failure: f, Op: "run qemu", Err: why}
	}
	if e.booted {
		return &vm.CrashError{Failure: f, Event: e.crash()}
	}
	return &vm.BootError{Failure: f, Reason: e.reason()}
}

// hostFault returns why the end says nothing about the kernel, or nil.
func (e ending) hostFault() error {
	var exit *exec.ExitError
	switch {
	case errors.As(e.wait, &exit):
		ws, _ := exit.Sys().(syscall.WaitStatus)
		if ws.Signaled() {
			return fmt.Errorf("killed by %s, not by kbisect; was the host out of memory?", unix.SignalName(ws.Signal()))
		}
		return fmt.Errorf("exit status %d%s", ws.ExitStatus(), hint("qemu", e.output))
	case e.wait != nil:
		return e.wait
	case e.shutdown == hostSignal:
		return errors.New("terminated by a signal, not by kbisect")
	case e.shutdown == "" && len(e.console) == 0:
		return errors.New("ended before the guest said anything")
	}
	return nil
}

// hint is the last line of who, as an addition to a message.
func hint(who string, lines []string) string {
	if len(lines) == 0 {
		return ""
	}
	return fmt.Sprintf(" (%s's last line: %q)", who, lines[len(lines)-1])
}

// reason says why a kernel did not boot.
func (e ending) reason() string {
	if e.fatal != nil {
		return "kernel " + string(e.fatal.Kind) + ": " + e.fatal.Line
	}
	// kbisect-init says on the console what it lacks before it gives up.
	for _, line := range e.console {
		if _, why, ok := strings.Cut(line, "kbisect-init: fatal: "); ok {
			return "init gave up: " + why
		}
	}
	if e.shutdown == guestShutdown {
		return "powered off before userspace served" + hint("the console", e.console)
	}
	return "reset before userspace" + hint("the console", e.console)
}

// crash is the event that stands for the end of a booted guest.
func (e ending) crash() vm.Event {
	if e.fatal != nil {
		return *e.fatal
	}
	line := "guest reset itself"
	if e.shutdown == guestShutdown {
		line = "guest powered itself off"
	}
	return vm.Event{Kind: vm.EventExit, At: e.at, Line: line}
}
