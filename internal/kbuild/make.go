package kbuild

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path"
	"regexp"
	"strconv"
	"strings"
	"syscall"

	"github.com/kbisect/kbisect/internal/proc"
)

// toolEnv is the environment of every tool that takes part in a build. Nothing
// else of the caller's reaches it: ARCH, CROSS_COMPILE, KCFLAGS, MAKEFLAGS or
// LD_PRELOAD would change the kernel behind the cache's back.
func toolEnv() []string {
	var env []string
	for _, name := range []string{"PATH", "HOME", "TMPDIR"} {
		if v, ok := os.LookupEnv(name); ok {
			env = append(env, name+"="+v)
		}
	}
	return append(env,
		"LC_ALL=C",
		"TZ=UTC",
		"KBUILD_BUILD_TIMESTAMP=Thu Jan 1 00:00:00 UTC 1970",
		"KBUILD_BUILD_USER=kbisect",
		"KBUILD_BUILD_HOST=kbisect",
		"KBUILD_BUILD_VERSION=1",
		"KCONFIG_NOTIMESTAMP=1",
		"PYTHONDONTWRITEBYTECODE=1", // no __pycache__ in the source
		"GIT_DIR=/nonexistent",      // setlocalversion must not find a repository around the cache
	)
}

// output is the Writer that a make prints to: the log, the count of finished
// objects, and the errors, found while they pass so that a log is never read
// again.
type output struct {
	log   io.Writer
	src   string            // absolute path of the source, "" is not known
	count func(lines int64) // called after each line of the form "  CC  path"
	lines int64
	part  []byte // an unfinished line
	tail  []string

	first   *KernelError // the first error that a compiler or linker reported
	last    string       // make's own first complaint, "*** [...] Error 2"
	infra   *InfraError
	rescues map[int]bool // indices of the table's, of which a line was seen
	closed  bool         // a question was asked with no one there to answer
	err     error
}

// Bounds of what is kept of a make's output.
const (
	maxPart = 64 << 10
	maxTail = 30
	maxText = 500
)

// Write implements io.Writer. A log that cannot be written is remembered, and
// does not stop the make by a broken pipe.
func (o *output) Write(p []byte) (int, error) {
	if _, err := o.log.Write(p); err != nil && o.err == nil {
		o.err = err
	}
	o.part = append(o.part, p...)
	for {
		i := bytes.IndexByte(o.part, '\n')
		if i < 0 {
			if len(o.part) > maxPart {
				o.part = o.part[:0]
			}
			return len(p), nil
		}
		o.line(string(o.part[:i]))
		o.part = o.part[i+1:]
	}
}

// progressLine is kbuild's report of one step: "  CC      net/core/dev.o".
var progressLine = regexp.MustCompile(`^  [A-Z][A-Z0-9_]*(?: \[M\])? +\S`)

// placeLine is an error with its place: a compiler's or assembler's. Warnings are
// not errors, also when -Werror turns them into one: gcc then says "error:".
var placeLine = regexp.MustCompile(`^([^\s:]+):(\d+):(?:\d+:)? (?:fatal |internal compiler )?[Ee]rror: (.*)$`)

// kconfigLine is what conf says of a Kconfig file that it gives up on; its forms
// are many, and only warnings and explanations are none.
var kconfigLine = regexp.MustCompile(`^((?:[^\s:]+/)?Kconfig[^\s:/]*):(\d+): ?(?:error: ?)?(.*)$`)

// kconfigNote is such a line that is no error.
var kconfigNote = regexp.MustCompile(`^(?:warning:|ignoring |choice (?:value|default)|location of the|\s|symbol .* (?:depends on|is selected by|is implied by|prompt is visible))`)

// makefileLine is make's own error about a makefile: "net/Makefile:12: *** missing
// separator.  Stop."; those in brackets tell of a recipe that failed.
var makefileLine = regexp.MustCompile(`^([^\s:]+):(\d+): \*\*\* (.*?)\.?(?:  Stop\.)?$`)

// ruleLine is make's word for a file that it cannot make.
var ruleLine = regexp.MustCompile(`^make(?:\[\d+\])?: \*\*\* (No rule to make target .*?)\.?(?:  Stop\.)?$`)

// linkPlace is a linker's error with a place, where there is debug information.
var linkPlace = regexp.MustCompile(`^(?:\S*ld(?:\.\w+)?: )?([^\s:]+\.[chS]):(\d+): ((?:undefined reference to|multiple definition of|warning: relocation|relocation truncated).*)$`)

// linkLine is an error without a place: a linker's, modpost's, objtool's, or that
// of a tool as a whole.
var linkLine = regexp.MustCompile(`undefined reference to|undefined symbol:|multiple definition of|^(?:ERROR|FATAL): modpost: |relocation truncated|section .* overlaps|` +
	`objtool: .*error:|error: objtool: |FAILED unresolved symbol|BTF: .*: Error|will not fit in region|Inconsistent kallsyms data|` +
	`^\S*(?:gcc|clang|cc1|collect2|as)(?:-[\d.]+)?: (?:fatal )?[Ee]rror: |^\{standard input\}:\d+: Error: |^\S*ld(?:\.\w+)?: (?:cannot find |unrecognized |error: |failed to )`)

// consequence is such a line that only follows another error.
var consequence = regexp.MustCompile(`being treated as errors$|ld returned \d+ exit status|final link failed`)

// hostHeader is a header of a host library that a kernel's own tools need.
var hostHeader = regexp.MustCompile(`fatal error: (?:gelf|libelf|elf|elfutils/|openssl/|ncurses|zlib|lzma|dwarf|libdw)\S*: No such file|[Cc]annot find -l(?:elf|crypto|z)\b|Cannot find libelf|libelf-dev|libelf-devel`)

// notFound is a shell's word for a missing program. Of two jobs that miss it at
// once, the shells write their lines in pieces: "sh: 1: sh: 1: flex: not found".
var notFound = regexp.MustCompile(`^(?:\S*sh: (?:line )?\d+: )+([^:]+): (?:command )?not found|make(?:\[\d+\])?: ([^:]+): No such file or directory$`)

// hostTrouble are the words of a host that is out of something. They are looked
// for outside of source excerpts, which gcc indents.
var hostTrouble = []struct {
	word string
	err  error
	hint string
}{
	{"No space left on device", syscall.ENOSPC, hintDisk},
	{"Disk quota exceeded", syscall.EDQUOT, hintDisk},
	{"Read-only file system", syscall.EROFS, hintWritable},
	{"Killed signal terminated program", errors.New("the compiler was killed"), hintMemory},
	{"virtual memory exhausted", syscall.ENOMEM, hintMemory},
	{"Cannot allocate memory", syscall.ENOMEM, hintMemory},
	{"out of memory allocating", syscall.ENOMEM, hintMemory},
	{"Error 137", errors.New("a build step was killed"), hintMemory},
	{"Input/output error", syscall.EIO, "the disk or file system is failing"},
}

func (o *output) line(line string) {
	if progressLine.MatchString(line) {
		o.lines++
		if o.count != nil {
			o.count(o.lines)
		}
	}
	if o.tail = append(o.tail, shortLine(line)); len(o.tail) > maxTail {
		o.tail = o.tail[1:]
	}
	if strings.HasPrefix(line, " ") {
		return
	}
	o.findInfra(line)
	o.findError(line)
	if i := rescueOf(line); i >= 0 {
		if o.rescues == nil {
			o.rescues = make(map[int]bool)
		}
		o.rescues[i] = true
	}
}

func shortLine(s string) string {
	if len(s) > maxText {
		return s[:maxText] + "..."
	}
	return s
}

func (o *output) findInfra(line string) {
	if o.infra != nil {
		return
	}
	for _, t := range hostTrouble {
		if strings.Contains(line, t.word) {
			o.infra = &InfraError{Err: t.err, Hint: t.hint}
			return
		}
	}
	switch {
	case strings.HasSuffix(line, " Killed") || line == "Killed":
		o.infra = &InfraError{Err: errors.New("a build step was killed"), Hint: hintMemory}
	case hostHeader.MatchString(line):
		o.infra = &InfraError{Err: errors.New(shortLine(line)), Hint: hintInstall}
	default:
		if m := notFound.FindStringSubmatch(line); m != nil {
			o.infra = &InfraError{Err: fmt.Errorf("%s is not installed", m[1]+m[2]), Hint: hintInstall}
		}
	}
}

func (o *output) findError(line string) {
	if strings.Contains(line, "Console input/output is redirected") || strings.Contains(line, "configuration requires explicit") {
		o.closed = true
	}
	if o.last == "" && strings.Contains(line, "*** ") {
		o.last = shortLine(line)
	}
	if o.first == nil {
		o.first = o.errorIn(line)
	}
}

// errorIn returns the error that a line reports, nil for none. With several jobs
// the first such line is the first error: a tool writes its lines at once, and
// make reports failures after them.
func (o *output) errorIn(line string) *KernelError {
	if m := placeLine.FindStringSubmatch(line); m != nil {
		return o.placed(m[1], m[2], m[3])
	}
	if m := kconfigLine.FindStringSubmatch(line); m != nil && !kconfigNote.MatchString(m[3]) {
		return o.placed(m[1], m[2], m[3])
	}
	if m := makefileLine.FindStringSubmatch(line); m != nil && !strings.HasPrefix(m[3], "[") {
		return o.placed(m[1], m[2], m[3])
	}
	if m := linkPlace.FindStringSubmatch(line); m != nil {
		return o.placed(m[1], m[2], m[3])
	}
	if m := ruleLine.FindStringSubmatch(line); m != nil {
		return &KernelError{Text: shortLine(m[1])}
	}
	if linkLine.MatchString(line) && !consequence.MatchString(line) {
		return &KernelError{Text: shortLine(line)}
	}
	return nil
}

func (o *output) placed(file, line, text string) *KernelError {
	n, _ := strconv.Atoi(line)
	if text == "" {
		text = "syntax error"
	}
	return &KernelError{File: o.sourcePath(file), Line: n, Text: shortLine(text)}
}

// sourcePath returns a path as it is in the source: the objects' folder is a
// child of it, so a compiler prints "../net/core/dev.c"; tools of the host are
// built with absolute paths.
func (o *output) sourcePath(p string) string {
	if rel, ok := strings.CutPrefix(p, o.src+"/"); ok && o.src != "" {
		p = rel
	}
	return path.Clean(strings.TrimPrefix(p, "../"))
}

// result is the typed error of a make that ended with err; nil for nil.
func (o *output) result(ctx context.Context, step string, log string, err error) error {
	op := step + " kernel"
	switch {
	case ctx.Err() != nil && err != nil:
		return ctx.Err()
	case o.err != nil:
		return infra("write build log", o.err)
	case err == nil:
		return nil
	case errors.Is(err, exec.ErrNotFound):
		return &InfraError{Op: op, Err: errors.New("make is not installed"), Hint: hintInstall}
	case o.infra != nil:
		o.infra.Op, o.infra.Log = op, log
		return o.infra
	}
	var exit *exec.ExitError
	if !errors.As(err, &exit) || !exit.Exited() {
		return &InfraError{Op: op, Err: err, Log: log}
	}
	e := o.first
	if e == nil {
		e = &KernelError{Text: o.last}
	}
	if e.Text == "" {
		e.Text = fmt.Sprintf("make ended with status %d", exit.ExitCode())
	}
	e.Step, e.Log, e.Tail = step, log, o.tail
	return e
}

// infra wraps an error of the file system with the way out.
func infra(op string, err error) error {
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	e := &InfraError{Op: op, Err: err}
	switch {
	case errors.Is(err, syscall.ENOSPC), errors.Is(err, syscall.EDQUOT):
		e.Hint = hintDisk
	case errors.Is(err, syscall.EACCES), errors.Is(err, syscall.EPERM), errors.Is(err, syscall.EROFS), errors.Is(err, syscall.ENOTDIR):
		e.Hint = hintWritable
	}
	return e
}

// makeRun is one invocation of make.
type makeRun struct {
	step string // of a KernelError
	args []string
	env  []string // added to toolEnv
	out  *output
	log  string
	hard bool // set when it was ended by SIGKILL: what it was writing is torn
}

// run runs make and returns its typed error.
func (m *makeRun) run(ctx context.Context) error {
	c := proc.Command(ctx, "make", m.args...)
	c.Env = append(toolEnv(), m.env...)
	c.Dir = "/"
	// The standard input is /dev/null: a Kconfig that asks gets no answer, and
	// the make fails instead of hanging.
	c.Stdout, c.Stderr = m.out, m.out
	err := c.Run()
	if c.ProcessState != nil {
		// make answers SIGTERM by deleting the targets in flight.
		ws, ok := c.ProcessState.Sys().(syscall.WaitStatus)
		m.hard = ok && ws.Signaled() && ws.Signal() == syscall.SIGKILL
	}
	return m.out.result(ctx, m.step, m.log, err)
}
