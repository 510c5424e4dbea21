package qemu

import (
	"fmt"
	"net"
	"os"

	"golang.org/x/sys/unix"
)

// firstExtraFD is the number that exec gives to ExtraFiles[0].
const firstExtraFD = 3

// pipes are the connections to one QEMU: our ends, and the files it inherits.
type pipes struct {
	console      *os.File // the read end of a pipe
	monitor, ssh net.Conn
	theirs       []*os.File // ExtraFiles, closed once QEMU has them
}

// openPipes makes the console's pipe and the two socket pairs, and takes over
// initrd, which may be nil.
func openPipes(initrd *os.File) (p *pipes, n fds, err error) {
	p = &pipes{}
	if initrd != nil {
		p.theirs = append(p.theirs, initrd)
		n.initrd = firstExtraFD
	}
	defer func() {
		if err != nil {
			p.closeTheirs()
			p.closeOurs()
		}
	}()
	ours, theirs, err := os.Pipe()
	if err != nil {
		return nil, fds{}, fmt.Errorf("pipe: %w", err)
	}
	n.console = firstExtraFD + len(p.theirs)
	p.console, p.theirs = ours, append(p.theirs, theirs)
	for _, c := range []struct {
		name string
		conn *net.Conn
		fd   *int
	}{{"monitor", &p.monitor, &n.monitor}, {"ssh", &p.ssh, &n.ssh}} {
		ours, theirs, err := socketPair(c.name)
		if err != nil {
			return nil, fds{}, err
		}
		*c.conn = ours
		*c.fd = firstExtraFD + len(p.theirs)
		p.theirs = append(p.theirs, theirs)
	}
	return p, n, nil
}

func (p *pipes) closeTheirs() {
	for _, f := range p.theirs {
		f.Close()
	}
	p.theirs = nil
}

func (p *pipes) closeOurs() {
	if p.console != nil {
		p.console.Close()
	}
	for _, c := range []net.Conn{p.monitor, p.ssh} {
		if c != nil {
			c.Close()
		}
	}
}

// socketPair returns a connection and the file of its other end.
func socketPair(name string) (net.Conn, *os.File, error) {
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, nil, fmt.Errorf("socketpair: %w", err)
	}
	ours, theirs := os.NewFile(uintptr(pair[0]), name), os.NewFile(uintptr(pair[1]), name)
	defer ours.Close() // FileConn has a copy
	conn, err := net.FileConn(ours)
	if err != nil {
		theirs.Close()
		return nil, nil, fmt.Errorf("socketpair: %w", err)
	}
	return conn, theirs, nil
}
