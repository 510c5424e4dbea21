package main

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// pty is a pseudo-terminal. The session owns it.
type pty struct {
	master *os.File
	slave  string
}

func openPTY() (*pty, error) {
	// Non-blocking, so that the runtime's poller can end a read of it.
	fd, err := unix.Open("/dev/ptmx", unix.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, fmt.Errorf("open terminal (CONFIG_UNIX98_PTYS): %w", err)
	}
	master := os.NewFile(uintptr(fd), "/dev/ptmx")
	if err := unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0); err != nil {
		master.Close()
		return nil, fmt.Errorf("unlock terminal: %w", err)
	}
	n, err := unix.IoctlGetUint32(fd, unix.TIOCGPTN)
	if err != nil {
		master.Close()
		return nil, fmt.Errorf("number terminal: %w", err)
	}
	return &pty{master: master, slave: fmt.Sprintf("/dev/pts/%d", n)}, nil
}

// openSlave opens the side that a command gets. The caller closes it.
func (p *pty) openSlave() (*os.File, error) {
	fd, err := unix.Open(p.slave, unix.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("open terminal: %w", err)
	}
	return os.NewFile(uintptr(fd), p.slave), nil
}

// resize sets the window; the foreground command gets SIGWINCH. Sizes beyond
// what the kernel stores are cut.
func (p *pty) resize(rows, cols uint32) error {
	raw, err := p.master.SyscallConn()
	if err != nil {
		return err
	}
	ws := &unix.Winsize{Row: uint16(min(rows, 0xffff)), Col: uint16(min(cols, 0xffff))}
	var set error
	if err := raw.Control(func(fd uintptr) { set = unix.IoctlSetWinsize(int(fd), unix.TIOCSWINSZ, ws) }); err != nil {
		return err
	}
	return set
}

func (p *pty) close() { p.master.Close() }
