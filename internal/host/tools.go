package host

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/kbisect/kbisect/internal/proc"
)

// packages names what provides a thing, by package manager. An empty name means
// that the distribution's base always has it, or that nothing provides it.
type packages struct{ apt, dnf, zypper, pacman string }

func same(name string) packages { return packages{name, name, name, name} }

// tool is one thing that kbisect needs on the host.
type tool struct {
	name     string
	need     string // what it is needed for
	optional bool
	pkg      packages
	// find returns what was found, "" if it is missing, and a warning if what
	// was found may not do.
	find func(ctx context.Context, s *system) (found, warning string)
}

// emulator is QEMU's name for the only architecture there is.
const emulator = "qemu-system-x86_64"

// tools lists everything in the order of the table: what a build needs, what a
// boot needs, what is nice to have.
func tools() []tool {
	return []tool{
		{name: "make", need: "building kernels", pkg: same("make"), find: versioned("make", "--version", [2]int{4, 0}, "kernels since 6.16 want 4.0")},
		{name: "gcc", need: "building kernels", pkg: same("gcc"), find: versioned("gcc", "--version", [2]int{8, 1}, "kernels since 6.16 want 8.1")},
		{name: "ld", need: "building kernels", pkg: same("binutils"), find: versioned("ld", "--version", [2]int{2, 30}, "kernels since 6.16 want 2.30")},
		{name: "flex", need: "building kernels (Kconfig's parser)", pkg: same("flex"), find: program("flex")},
		{name: "bison", need: "building kernels (Kconfig's parser)", pkg: same("bison"), find: program("bison")},
		{name: "bc", need: "building kernels (timeconst.h)", pkg: same("bc"), find: program("bc")},
		{name: "libc headers", need: "building kernels (host programs)", find: header("#include <stdlib.h>\n#include <linux/types.h>\n", ""),
			pkg: packages{"libc6-dev", "glibc-devel", "glibc-devel", "glibc"}},
		{name: "libelf", need: "building kernels (objtool)", find: header("#include <gelf.h>\nint main(void) { return elf_version(EV_CURRENT) == EV_NONE; }\n", "-lelf"),
			pkg: packages{"libelf-dev", "elfutils-libelf-devel", "libelf-devel", "libelf"}},
		{name: "bash", need: "building kernels (some scripts)", pkg: same("bash"), find: program("bash")},
		{name: "awk", need: "building kernels", pkg: packages{"mawk", "gawk", "gawk", "gawk"}, find: program("awk")},
		{name: "cmp", need: "building kernels", pkg: same("diffutils"), find: program("cmp")},
		{name: "find", need: "building kernels", pkg: same("findutils"), find: program("find")},
		{name: "git", need: "sources, worktrees, patches", pkg: packages{"git", "git-core", "git-core", "git"}, find: versioned("git", "--version", [2]int{2, 20}, "2.20 is the oldest that is tested")},
		{name: "tar", need: "unpacking kernel sources", pkg: same("tar"), find: program("tar")},
		{name: "xz", need: "unpacking kernel sources", pkg: packages{"xz-utils", "xz", "xz", "xz"}, find: program("xz")},
		{name: emulator, need: "booting kernels", find: versioned(emulator, "--version", [2]int{5, 2}, "5.2 is the oldest that may work"),
			pkg: packages{"qemu-system-x86", "qemu-system-x86-core", "qemu-x86", "qemu-system-x86"}},
		{name: firmware, need: "booting kernels (fast firmware)", find: findFirmware,
			pkg: packages{"qemu-system-data", "qemu-common", "qemu-microvm", "qemu-system-x86-firmware"}},

		{name: "ip", optional: true, need: "ip, tc and ss in the guest's shell", pkg: packages{"iproute2", "iproute", "iproute2", "iproute2"}, find: program("ip")},
		{name: "sysctl", optional: true, need: "sysctl in the guest's scripts", pkg: packages{"procps", "procps-ng", "procps", "procps-ng"}, find: program("sysctl")},
		{name: "ethtool", optional: true, need: "ethtool in the guest's scripts", pkg: same("ethtool"), find: program("ethtool")},
		{name: "zstd", optional: true, need: "kernel archives packed by it", pkg: same("zstd"), find: program("zstd")},
		{name: "bzip2", optional: true, need: "kernel archives packed by it", pkg: same("bzip2"), find: program("bzip2")},
		{name: "dpkg-deb", optional: true, need: "sources like debian:6.1", pkg: same("dpkg"), find: program("dpkg-deb")},
		{name: "ccache", optional: true, need: "faster rebuilds", pkg: same("ccache"), find: versioned("ccache", "--version", [2]int{}, "")},
		{name: "go", optional: true, need: "guest programs, unless built in", pkg: packages{"golang-go", "golang", "go", "go"},
			find: versioned("go", "version", [2]int{}, "")},
		{name: "perl", optional: true, need: "configurations with crypto assembler", pkg: packages{"perl", "perl-interpreter", "perl", "perl"}, find: program("perl")},
		{name: "libssl", optional: true, need: "configurations with signed modules", find: header("#include <openssl/opensslv.h>\n", ""),
			pkg: packages{"libssl-dev", "openssl-devel", "libopenssl-devel", "openssl"}},
		{name: "patch", optional: true, need: "patches that apply with fuzz only", pkg: same("patch"), find: program("patch")},
	}
}

// program finds one by its name.
func program(name string) func(context.Context, *system) (string, string) {
	return func(_ context.Context, s *system) (string, string) { return s.lookPath(name), "" }
}

// versioned finds a program and its version; one below least is a warning.
func versioned(name, arg string, least [2]int, why string) func(context.Context, *system) (string, string) {
	return func(ctx context.Context, s *system) (string, string) {
		path := s.lookPath(name)
		if path == "" {
			return "", ""
		}
		out, err := s.ask(ctx, nil, path, arg)
		v := version(out)
		switch {
		case err != nil:
			return path, fmt.Sprintf("%s %s: %v", name, arg, err)
		case v == "":
			return path, ""
		case older(v, least):
			return v + " (" + path + ")", why
		}
		return v + " (" + path + ")", ""
	}
}

// askWithin bounds a question to a program. Compilers on a cold disk take a while.
const askWithin = 20 * time.Second

// ask runs a program and returns the beginning of what it says on both outputs.
func (s *system) ask(ctx context.Context, stdin io.Reader, path string, args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, askWithin)
	defer cancel()
	c := proc.Command(ctx, path, args...)
	c.Env = s.env()
	c.Stdin = stdin
	var out bytes.Buffer
	w := &capped{w: &out, left: 64 << 10}
	c.Stdout, c.Stderr = w, w
	err := c.Run()
	return out.String(), err
}

// capped passes on the first bytes and swallows the rest.
type capped struct {
	w    io.Writer
	left int
}

func (c *capped) Write(p []byte) (int, error) {
	n := min(len(p), c.left)
	c.left -= n
	if n > 0 {
		if _, err := c.w.Write(p[:n]); err != nil {
			return 0, err
		}
	}
	return len(p), nil
}

// version takes the first thing that looks like one out of a program's answer:
// "gcc (Debian 12.2.0-14) 12.2.0", "QEMU emulator version 7.2.22 (...)",
// "go version go1.26.8 linux/amd64". What is in brackets names the packager's.
func version(text string) string {
	line := regexp.MustCompile(`\([^()]*\)`).ReplaceAllString(firstLine(text), "")
	return regexp.MustCompile(`\d+\.\d+(\.\d+)*`).FindString(line)
}

// older reports whether version v is below major.minor.
func older(v string, least [2]int) bool {
	major, rest, _ := strings.Cut(v, ".")
	minor, _, _ := strings.Cut(rest, ".")
	a, err1 := strconv.Atoi(major)
	b, err2 := strconv.Atoi(minor)
	if err1 != nil || err2 != nil {
		return false // it cannot be told
	}
	return a < least[0] || a == least[0] && b < least[1]
}

// header asks the compiler, as the kernel's own makefiles do: where a header or
// library is differs between distributions. With lib it also links.
func header(source, lib string) func(context.Context, *system) (string, string) {
	return func(ctx context.Context, s *system) (string, string) {
		gcc := s.lookPath("gcc")
		if gcc == "" {
			return "", "" // it is missing too, as far as can be told
		}
		args := []string{"-xc", "-fsyntax-only", "-"}
		if lib != "" {
			dir, err := os.MkdirTemp("", "kbisect-doctor-*")
			if err != nil {
				return "", err.Error()
			}
			defer os.RemoveAll(dir)
			args = []string{"-xc", "-o", filepath.Join(dir, "probe"), "-", lib}
		}
		if _, err := s.ask(ctx, strings.NewReader(source), gcc, args...); err != nil {
			return "", ""
		}
		return "found by gcc", ""
	}
}

// firmware is the file that QEMU is started with.
const firmware = "qboot.rom"

// findFirmware looks in the folders that QEMU itself says it looks in.
func findFirmware(ctx context.Context, s *system) (string, string) {
	qemu := s.lookPath(emulator)
	if qemu == "" {
		return "", ""
	}
	out, err := s.ask(ctx, nil, qemu, "-L", "help")
	if err != nil {
		return "", ""
	}
	for dir := range strings.Lines(out) {
		p := filepath.Join(strings.TrimSpace(dir), firmware)
		if info, err := os.Stat(p); err == nil && info.Mode().IsRegular() && filepath.IsAbs(p) {
			return p, ""
		}
	}
	return "", ""
}

// qemuVersion is QEMU's version, "" if it cannot be told.
func (s *system) qemuVersion(ctx context.Context) string {
	qemu := s.lookPath(emulator)
	if qemu == "" {
		return ""
	}
	out, err := s.ask(ctx, nil, qemu, "--version")
	if err != nil {
		return ""
	}
	return firstLine(out)
}
