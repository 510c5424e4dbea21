// Command kbisect-init is PID 1 of kbisect's guest. It mounts what a workload
// needs, finds the virtio-serial port named "kbisect.ssh", and serves SSH with
// the SFTP subsystem on it, to one client key only. The guest's network stack is
// what is under test, so the control channel does not go through it.
//
// It reads two files that the host appends to the initramfs of every run:
//
//	/kbisect/host_key         ed25519 private key, OpenSSH PEM
//	/kbisect/authorized_key   one authorized_keys line
//
// Commands that begin with '@' are done by init itself, without a fork:
//
//	@crc64 PATH      prints the file's CRC-64 (ECMA-182) in hexadecimal
//	@sysrq LETTER    writes LETTER to /proc/sysrq-trigger
//	@poweroff        ends the machine
//
// It prints "kbisect-init: ready" on the console when it serves. When it cannot
// serve it prints the reason there and powers the machine off: a silent hang
// would cost the host a whole deadline.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime/debug"
	"time"

	"golang.org/x/sys/unix"
)

// Where the host puts the run's keys, and what it calls the port.
const (
	hostKeyPath       = "/kbisect/host_key"
	authorizedKeyPath = "/kbisect/authorized_key"
	portName          = "kbisect.ssh"
)

func main() {
	if os.Getpid() != 1 {
		fmt.Fprintln(os.Stderr, "kbisect-init: this is the guest's PID 1; it does nothing on a running system")
		os.Exit(1)
	}
	err := run(context.Background())
	fmt.Fprintf(os.Stderr, "kbisect-init: fatal: %v\n", err)
	powerOff()
	// Only a kernel without any way to power off comes here. Leaving makes it
	// panic, which the host sees on the console.
	os.Exit(1)
}

// run sets the guest up and serves for ever; it returns only with an error.
func run(ctx context.Context) error {
	// A collection in the middle of a measurement is noise. Init's whole heap
	// is a few MiB, so let it grow to a bound instead.
	debug.SetGCPercent(-1)
	debug.SetMemoryLimit(48 << 20)

	if err := mountEarly(); err != nil {
		return err
	}
	// The port appears while the rest is being done.
	config, err := serverConfig(hostKeyPath, authorizedKeyPath)
	if err != nil {
		return err
	}
	env, warnings := setupSystem()
	for _, w := range warnings {
		fmt.Fprintf(os.Stderr, "kbisect-init: %v\n", w)
	}
	dev, err := findPort(ctx, "/sys/class/virtio-ports", portName, 15*time.Second)
	if err != nil {
		return err
	}
	reap := newReaper()
	go reap.run()
	s := &server{config: config, reap: reap, env: env, dir: home, powerOff: powerOff, sysrq: "/proc/sysrq-trigger"}
	return servePort(ctx, dev, s)
}

// servePort opens the port and serves one client after the other. A port that
// cannot be opened any more is fatal; a broken connection is not.
func servePort(ctx context.Context, dev string, s *server) error {
	ready := false
	var rest []byte
	for {
		p, err := openPort(dev)
		if err != nil {
			return err
		}
		if !ready {
			fmt.Fprintln(os.Stderr, "kbisect-init: ready")
			ready = true
		}
		if err := p.awaitClient(ctx, rest); err != nil {
			p.Close()
			return fmt.Errorf("wait for a client: %w", err)
		}
		if err := s.serve(p); err != nil && !errors.Is(err, errHangUp) {
			fmt.Fprintf(os.Stderr, "kbisect-init: connection: %v\n", err)
		}
		// Opening the port anew ends a write that is stuck, and drops what is
		// queued in both directions.
		rest = p.takeNext()
		p.Close()
	}
}

func powerOff() {
	unix.Sync()
	if err := unix.Reboot(unix.LINUX_REBOOT_CMD_POWER_OFF); err != nil {
		fmt.Fprintf(os.Stderr, "kbisect-init: power off: %v\n", err)
	}
}
