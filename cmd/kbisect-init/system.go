package main

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// home is root's, and where commands begin. The initramfs has it.
const home = "/root"

// mount is one line of the guest's mount table.
type mount struct {
	fstype, target string
	flags          uintptr
	data           string
}

// mountEarly mounts what is needed to find the port. Without any of these there
// is no control channel, so each is fatal.
func mountEarly() error {
	return firstError(mountAll([]mount{
		{"proc", "/proc", unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOEXEC, ""},
		{"sysfs", "/sys", unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOEXEC, ""},
		{"devtmpfs", "/dev", unix.MS_NOSUID, "mode=0755"},
	}))
}

// setupSystem does what commands may rely on: the remaining mounts, the
// loopback device, a host name. It returns the environment of commands, and
// what it could not do, which a lean kernel is allowed to lack.
func setupSystem() (env []string, warnings []error) {
	warnings = mountAll([]mount{
		{"devpts", "/dev/pts", unix.MS_NOSUID | unix.MS_NOEXEC, "gid=5,mode=0620,ptmxmode=0666"},
		{"tmpfs", "/dev/shm", unix.MS_NOSUID | unix.MS_NODEV, "mode=1777"},
		{"tmpfs", "/tmp", unix.MS_NOSUID | unix.MS_NODEV, "mode=1777"},
		{"tmpfs", "/run", unix.MS_NOSUID | unix.MS_NODEV, "mode=0755"},
	})
	// `ip netns` keeps its names here and does not make the parent.
	for _, dir := range []string{home, "/run/netns", "/var/run"} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			warnings = append(warnings, err)
		}
	}
	if err := unix.Sethostname([]byte("kbisect")); err != nil {
		warnings = append(warnings, fmt.Errorf("set host name: %w", err))
	}
	if err := linkUp("lo"); err != nil {
		warnings = append(warnings, err)
	}
	env = []string{
		"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
		"HOME=" + home,
		"USER=root",
		"LOGNAME=root",
		"SHELL=/bin/sh",
		"LANG=C.UTF-8",
	}
	for _, kv := range env {
		name, value, _ := cutEnv(kv)
		if err := os.Setenv(name, value); err != nil {
			warnings = append(warnings, err)
		}
	}
	if err := os.Chdir(home); err != nil {
		warnings = append(warnings, err)
	}
	return env, warnings
}

// mountAll mounts all of ms and returns the errors of those that failed. A
// target that the kernel has mounted already (CONFIG_DEVTMPFS_MOUNT) is fine.
func mountAll(ms []mount) (errs []error) {
	for _, m := range ms {
		if err := os.MkdirAll(m.target, 0o755); err != nil {
			errs = append(errs, err)
			continue
		}
		err := unix.Mount(m.fstype, m.target, m.fstype, m.flags, m.data)
		if err != nil && err != unix.EBUSY {
			errs = append(errs, fmt.Errorf("mount %s on %s: %w", m.fstype, m.target, err))
		}
	}
	return errs
}

func firstError(errs []error) error {
	if len(errs) == 0 {
		return nil
	}
	return errs[0]
}

// linkUp sets the IFF_UP flag of a device by ioctl: one socket and two calls,
// where a netlink library would cost init more start-up time than this whole file.
func linkUp(name string) error {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("set %s up: %w", name, err)
	}
	defer unix.Close(fd)
	req, err := unix.NewIfreq(name)
	if err != nil {
		return fmt.Errorf("set %s up: %w", name, err)
	}
	if err := unix.IoctlIfreq(fd, unix.SIOCGIFFLAGS, req); err != nil {
		return fmt.Errorf("set %s up: %w", name, err)
	}
	req.SetUint16(req.Uint16() | unix.IFF_UP)
	if err := unix.IoctlIfreq(fd, unix.SIOCSIFFLAGS, req); err != nil {
		return fmt.Errorf("set %s up: %w", name, err)
	}
	return nil
}
