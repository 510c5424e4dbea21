package host

import (
	"os"
	"path/filepath"
	"time"

	"github.com/kbisect/kbisect/internal/proc"
)

// manager is a distribution's package manager. The zero one is none.
type manager struct {
	name    string // "apt-get"
	path    string
	install []string // arguments before the packages
	refresh []string // arguments that fetch the lists
	env     []string // "NAME=value" for both
	pick    func(packages) string
	stale   func(*system) bool // the lists are to be fetched first
}

// managers lists the known ones in the order in which they are looked for: a
// Debian may have a dnf installed, hardly the reverse.
func managers() []manager {
	return []manager{
		{
			name: "apt-get",
			// Another apt, or unattended-upgrades, may hold dpkg's lock.
			install: []string{"-o", "DPkg::Lock::Timeout=300", "install", "-y", "--no-install-recommends"},
			refresh: []string{"-o", "DPkg::Lock::Timeout=300", "update"},
			env:     []string{"DEBIAN_FRONTEND=noninteractive"},
			pick:    func(p packages) string { return p.apt },
			stale:   aptStale,
		},
		{
			name:    "dnf",
			install: []string{"install", "-y", "--setopt=install_weak_deps=False"},
			refresh: []string{"makecache", "--refresh"},
			pick:    func(p packages) string { return p.dnf },
		},
		{
			name:    "zypper",
			install: []string{"--non-interactive", "install", "--no-recommends"},
			refresh: []string{"--non-interactive", "refresh"},
			pick:    func(p packages) string { return p.zypper },
		},
		{
			name:    "pacman",
			install: []string{"-S", "--noconfirm", "--needed"},
			refresh: []string{"-Sy", "--noconfirm"},
			pick:    func(p packages) string { return p.pacman },
		},
	}
}

// manager finds the host's package manager.
func (s *system) manager() manager {
	for _, m := range managers() {
		if m.path = s.lookPath(m.name); m.path != "" {
			return m
		}
	}
	return manager{}
}

// listAge is how old apt's lists may be: packages named in older ones are often
// gone from the server.
const listAge = 24 * time.Hour

// aptStale reports whether apt has no lists, as in a container image, or old
// ones. List files keep the server's date, so the age is that of the folder,
// which every update changes.
func aptStale(s *system) bool {
	dir := s.root + "/var/lib/apt/lists"
	lists, err := filepath.Glob(dir + "/*_Packages*")
	if err != nil || len(lists) == 0 {
		return true
	}
	info, err := os.Stat(dir)
	return err != nil || time.Since(info.ModTime()) > listAge
}

// provides names the package for this manager, "" if it has none.
func (m manager) provides(p packages) string {
	if m.pick == nil {
		return ""
	}
	return m.pick(p)
}

// command is the whole installation command without sudo.
func (m manager) command(pkgs []string) []string {
	return append(append([]string{m.name}, m.install...), pkgs...)
}

// fix says how to get a thing.
func (m manager) fix(name, pkg string) string {
	switch {
	case m.name == "":
		return "install " + name + " with your package manager"
	case pkg == "":
		return "install " + name
	case m.name == "pacman":
		return "pacman -S " + pkg
	}
	return proc.Quote([]string{m.name, "install", pkg})
}
