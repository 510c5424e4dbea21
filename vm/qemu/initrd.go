package qemu

import (
	"fmt"
	"io"
	"os"

	"golang.org/x/sys/unix"

	"github.com/kbisect/kbisect/vm/sshx"
)

// Where kbisect-init reads the run's keys.
const (
	hostKeyPath       = "kbisect/host_key"
	authorizedKeyPath = "kbisect/authorized_key"
)

// runInitrd returns the base initramfs followed by an archive with the run's
// keys: the kernel unpacks one after the other. It is memory without a name, so
// that private keys are in no folder. The caller closes it.
func runInitrd(base string, keys *sshx.Keys) (f *os.File, err error) {
	src, err := os.Open(base)
	if err != nil {
		return nil, err
	}
	defer src.Close()
	fd, err := unix.MemfdCreate("kbisect-initrd", unix.MFD_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("memfd_create: %w", err)
	}
	f = os.NewFile(uintptr(fd), "initrd")
	defer func() {
		if err != nil {
			f.Close()
		}
	}()
	n, err := io.Copy(f, src)
	if err != nil {
		return nil, fmt.Errorf("copy %s: %w", base, err)
	}
	archive := appendNewc(nil, 1, "kbisect", unix.S_IFDIR|0o700, nil)
	archive = appendNewc(archive, 2, hostKeyPath, unix.S_IFREG|0o600, keys.HostPEM)
	archive = appendNewc(archive, 3, authorizedKeyPath, unix.S_IFREG|0o600, keys.AuthorizedKey)
	archive = appendNewc(archive, 0, "TRAILER!!!", 0, nil)
	// The kernel looks for the next archive on a multiple of four.
	if _, err := f.WriteAt(archive, (n+3)&^3); err != nil {
		return nil, fmt.Errorf("append keys: %w", err)
	}
	return f, nil
}

// appendNewc appends one entry of a newc archive, whose parts are padded to four
// bytes. b's length is a multiple of four.
func appendNewc(b []byte, inode int, name string, mode uint32, data []byte) []byte {
	pad := func() {
		for len(b)%4 != 0 {
			b = append(b, 0)
		}
	}
	// magic, inode, mode, uid, gid, links, mtime, size, 4 device numbers,
	// length of the name, check sum (none in newc)
	b = fmt.Appendf(b, "070701%08X%08X%08X%08X%08X%08X%08X%08X%08X%08X%08X%08X%08X",
		inode, mode, 0, 0, 1, 0, len(data), 0, 0, 0, 0, len(name)+1, 0)
	b = append(b, name...)
	b = append(b, 0)
	pad()
	b = append(b, data...)
	pad()
	return b
}
