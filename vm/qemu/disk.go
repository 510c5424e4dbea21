package qemu

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strconv"
	"strings"

	"github.com/kbisect/kbisect/vm"
	"github.com/kbisect/kbisect/vm/sshx"
)

// disk is an image of the user's. QEMU keeps what the guest writes in an overlay
// that nobody else sees, and opens the image itself only to read, so that any
// number of machines can have it.
type disk struct {
	vm.Disk
	format string
}

func (d disk) Args() []string {
	path := strings.ReplaceAll(d.Path, ",", ",,") // as QEMU's options are quoted
	return []string{"-drive", "file=" + path + ",format=" + d.format + ",if=virtio,snapshot=on"}
}

func (d disk) KernelArgs() []string { return []string{"root=" + d.Root, "rw", "rootwait"} }

// network is the way to the image's sshd: a port of the host's loopback device.
// restrict=on keeps the guest from everything else, the host included. The
// address is the one that QEMU's forward leads to.
type network struct{ port int }

func (n network) Args() []string {
	return []string{
		"-netdev", fmt.Sprintf("user,id=net,restrict=on,ipv6=off,hostfwd=tcp:127.0.0.1:%d-10.0.2.15:22", n.port),
		"-device", "virtio-net-pci,netdev=net,romfile=",
	}
}

func (network) KernelArgs() []string {
	return []string{"net.ifnames=0", "ip=10.0.2.15::10.0.2.2:255.255.255.0::eth0:off"}
}

// checkDisk fills in what a disk leaves out, and reads its key.
func (p *plan) checkDisk() error {
	fail := func(err error) error { return &vm.InfraError{Op: "check disk image", Err: err} }
	d := *p.Disk
	format, parts, err := inspect(d.Path)
	if err != nil {
		return fail(err)
	}
	if d.User == "" {
		d.User = "root"
	}
	if d.Root == "" {
		d.Root = "/dev/vda"
		if parts {
			d.Root = "/dev/vda1"
		}
	}
	if strings.ContainsAny(d.Root, " \t\n") {
		return fail(fmt.Errorf("root device %q: it has a blank", d.Root))
	}
	if p.login, err = sshx.ReadLogin(d.User, d.Key); err != nil {
		return fail(err)
	}
	p.Disk, p.diskFormat = &d, format
	return nil
}

// inspect reads what kind of image a file is. Of a qcow2 nothing more is read: it
// is taken to have partitions, as the images of distributions do.
func inspect(path string) (format string, partitions bool, err error) {
	f, err := os.Open(path)
	if err != nil {
		return "", false, err
	}
	defer f.Close()
	fi, err := f.Stat()
	if err != nil {
		return "", false, err
	}
	if !fi.Mode().IsRegular() {
		return "", false, fmt.Errorf("%s is no file", path)
	}
	head := make([]byte, 512)
	if _, err := io.ReadFull(f, head); err != nil {
		return "", false, fmt.Errorf("%s is too short for a disk image", path)
	}
	if string(head[:4]) == "QFI\xfb" {
		return "qcow2", true, nil
	}
	// The boot record's signature; a file system alone has none, but FAT, which is
	// no root.
	return "raw", binary.LittleEndian.Uint16(head[510:]) == 0xaa55, nil
}

// launches is how often a machine is launched when its port is taken by another
// program between its choice and QEMU's use of it.
const launches = 3

// bootDisk starts a machine with a disk of the user's, and waits for its sshd.
func (p *plan) bootDisk(ctx context.Context) (*Machine, error) {
	for try := 1; ; try++ {
		port, err := freePort()
		if err != nil {
			return nil, &vm.InfraError{Op: "find a port", Err: err}
		}
		p.forwarded = port
		i, err := p.launch(nil)
		if err != nil {
			return nil, err
		}
		m, err := i.up(ctx, func(ctx context.Context) (*sshx.Client, error) {
			return sshx.DialUp(ctx, net.JoinHostPort("127.0.0.1", strconv.Itoa(port)), p.login, sshx.Options{})
		})
		var boot *vm.BootError
		switch {
		case err == nil:
			return m, nil
		case try < launches && strings.Contains(strings.Join(i.output.Tail(), "\n"), "Could not set up host forwarding"):
			continue
		case errors.As(err, &boot):
			boot.Reason += diskHint(i.console.Tail(), p.Disk.Root)
		}
		return nil, err
	}
}

// diskHint says what is most often wrong with an image that does not come up.
func diskHint(console []string, root string) string {
	text := strings.Join(console, "\n")
	switch {
	case strings.Contains(text, "Unable to mount root fs"), strings.Contains(text, "Waiting for root device"):
		return fmt.Sprintf("; its root file system is not on %s (--image-root), or is of a kind that needs a --kconfig", root)
	case strings.Contains(text, "No working init found"):
		return fmt.Sprintf("; %s has no /sbin/init (--image-root)", root)
	}
	return "; does its sshd start, and listen on all addresses?"
}

// freePort returns a port of the loopback device that nobody has at the moment.
func freePort() (int, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return 0, err
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port, nil
}
