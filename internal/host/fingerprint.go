package host

import (
	"strconv"
	"strings"
)

// Fingerprint says on what a result was measured. It has nothing that tells
// one machine of a kind from another.
type Fingerprint struct {
	CPU          string `json:"cpu"`  // model name
	CPUs         int    `json:"cpus"` // that this process may use
	MemoryMiB    int    `json:"memory_mib"`
	Kernel       string `json:"kernel"`       // release
	Distribution string `json:"distribution"` // "Debian GNU/Linux 12 (bookworm)"
	Virtual      bool   `json:"virtual"`      // it is a virtual machine itself
}

// Identify reads the host's fingerprint. What cannot be told is left empty.
func Identify() Fingerprint { return (Options{}).system().fingerprint() }

func (s *system) fingerprint() Fingerprint {
	cpu := s.read("/proc/cpuinfo")
	return Fingerprint{
		CPU:          field(cpu, "model name", ":"),
		CPUs:         cpus(),
		MemoryMiB:    s.memory("MemTotal"),
		Kernel:       strings.TrimSpace(s.read("/proc/sys/kernel/osrelease")),
		Distribution: strings.Trim(field(s.read("/etc/os-release"), "PRETTY_NAME", "="), `"`),
		Virtual:      strings.Contains(field(cpu, "flags", ":")+" ", " hypervisor "),
	}
}

// memory reads one line of /proc/meminfo, in MiB.
func (s *system) memory(name string) int {
	kb, _, _ := strings.Cut(field(s.read("/proc/meminfo"), name, ":"), " ")
	n, err := strconv.Atoi(kb)
	if err != nil {
		return 0
	}
	return n / 1024
}
