package kbuild

import (
	"fmt"
	"strings"

	"github.com/kbisect/kbisect/internal/kconfig"
)

// KernelError says that the source cannot be built: it blames the revision
// (which is then untestable), not the host.
type KernelError struct {
	Step string   // "source", "configure" or "compile"
	File string   // relative to the source; "" when the error has no place
	Line int      // 0 when it has none
	Text string   // the first error, as the tool printed it, without its place
	Log  string   // path of the whole output; "" if nothing ran
	Tail []string // last lines of the output, at most 30
}

func (e *KernelError) Error() string {
	var b strings.Builder
	b.WriteString(e.Step + " kernel: ")
	if e.File != "" {
		fmt.Fprintf(&b, "%s:%d: ", e.File, e.Line)
	}
	b.WriteString(e.Text)
	if e.Log != "" {
		b.WriteString(" (log: " + e.Log + ")")
	}
	return b.String()
}

// ConfigError says that wanted symbols did not survive the dependencies of this
// kernel. The way out is to change the fragment, or to mark a symbol optional.
type ConfigError struct {
	Version kconfig.Version
	Err     *kconfig.CheckError
}

func (e *ConfigError) Error() string {
	return fmt.Sprintf("configure kernel %s: %v", e.Version, e.Err)
}

func (e *ConfigError) Unwrap() error { return e.Err }

// InfraError says that the host is at fault: it never blames a revision.
type InfraError struct {
	Op   string // "compile kernel", "write build cache"
	Err  error
	Hint string // what to do next, "" if there is nothing to say
	Log  string // path of the output, "" if there is none
}

func (e *InfraError) Error() string {
	text := e.Op + ": " + e.Err.Error()
	if e.Hint != "" {
		text += ": " + e.Hint
	}
	if e.Log != "" {
		text += " (log: " + e.Log + ")"
	}
	return text
}

func (e *InfraError) Unwrap() error { return e.Err }

// Ways out, as InfraError hints.
const (
	hintInstall  = "run `kbisect doctor --install`"
	hintDisk     = "free some space, or `kbisect cache` to see and prune what kbisect keeps"
	hintMemory   = "the kernel's out-of-memory killer ended the compiler: use fewer jobs"
	hintWritable = "the cache folder must be writable: set XDG_CACHE_HOME to one that is"
)
