package host

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/kbisect/kbisect/internal/proc"
)

// InstallError says what could not be installed. It wraps the cause.
type InstallError struct {
	Tools    []string // what is missing, as in the table
	Packages []string // what was to be installed
	Command  string   // that failed, quoted for a shell; "" if none was run
	Log      string   // file with the package manager's whole output, "" if there is none
	Tail     []string // its last lines
	Err      error
}

func (e *InstallError) Error() string {
	msg := fmt.Sprintf("install %s: %v", strings.Join(e.Tools, ", "), e.Err)
	if e.Command != "" {
		msg += "; the command was: " + e.Command
	}
	if e.Log != "" {
		msg += "; its output is in " + e.Log
	}
	return msg
}

// Unwrap returns the cause.
func (e *InstallError) Unwrap() error { return e.Err }

// Detail returns the last lines of the package manager, for a terminal.
func (e *InstallError) Detail() string { return strings.Join(e.Tail, "\n") }

// ErrRefused says that a person did not want the packages.
var ErrRefused = errors.New("not installed, as you said")

// installWithin bounds one command of a package manager.
const installWithin = 30 * time.Minute

// Install installs what is missing with the distribution's package manager, as
// root or through sudo, after saying which command it runs. On a terminal it
// asks first, unless Options.Yes. Afterwards it looks again. Errors are
// *InstallError, or that of ctx in one; when nothing is missing it does nothing.
//
// It blocks for as long as the package manager takes, at most half an hour a
// command. When ctx is done the package manager is told to stop, and given time
// to leave its database in order.
func Install(ctx context.Context, o Options) error {
	s := o.system()
	var missing, names, pkgs []string
	for _, row := range s.tools(ctx) {
		if !o.wants(row) {
			continue
		}
		missing = append(missing, row.Name)
		if row.Package != "" {
			names, pkgs = append(names, row.Name), append(pkgs, row.Package)
		}
	}
	slices.Sort(pkgs)
	pkgs = slices.Compact(pkgs)
	if len(missing) == 0 {
		fmt.Fprintln(o.stderr(), "kbisect: nothing to install")
		return nil
	}
	fail := func(err error) error { return &InstallError{Tools: missing, Packages: pkgs, Err: err} }
	m := s.manager()
	if m.name == "" {
		return fail(errors.New("no package manager found (apt-get, dnf, zypper or pacman); install them by hand"))
	}
	if len(pkgs) == 0 {
		return fail(fmt.Errorf("%s has no package for them; install them by hand", m.name))
	}
	if s.euid != 0 && s.lookPath("sudo") == "" {
		return fail(fmt.Errorf("neither root nor sudo; as root run: %s", proc.Quote(m.command(pkgs))))
	}
	i := &installer{o: o, s: s, m: m}
	fmt.Fprintf(o.stderr(), "kbisect: missing: %s\nkbisect: to install with: %s\n", strings.Join(names, ", "), i.shown(m.command(pkgs)))
	if o.DryRun {
		return nil
	}
	if err := i.agree(); err != nil {
		return fail(err)
	}
	if err := i.install(ctx, pkgs); err != nil {
		err.Tools, err.Packages = names, pkgs
		return err
	}
	return i.verify(ctx, pkgs)
}

// installer is one Install that really installs.
type installer struct {
	o   Options
	s   *system
	m   manager
	log *os.File // nil when the state folder cannot be used
}

// sudoArgs are the words before a command. Without a terminal sudo must not
// wait for a password that nobody can type.
func (i *installer) sudoArgs() []string {
	if i.s.euid == 0 {
		return nil
	}
	if i.s.tty {
		return []string{"sudo"}
	}
	return []string{"sudo", "-n"}
}

// shown is the command as a person would type it.
func (i *installer) shown(argv []string) string {
	words := i.sudoArgs()
	if len(i.m.env) > 0 {
		// sudo gives its own environment to the command, so env sets it.
		words = append(append(words, "env"), i.m.env...)
	}
	return proc.Quote(append(words, argv...))
}

// agree asks the person at the terminal, if there is one.
func (i *installer) agree() error {
	if i.o.Yes || !i.s.tty {
		return nil
	}
	fmt.Fprint(i.o.stderr(), "kbisect: go on? [Y/n] ")
	line, err := bufio.NewReader(i.o.stdin()).ReadString('\n')
	if err != nil {
		return fmt.Errorf("%w (%v)", ErrRefused, err)
	}
	switch strings.ToLower(strings.TrimSpace(line)) {
	case "", "y", "yes":
		return nil
	}
	return ErrRefused
}

// install refreshes the lists if need be and installs, once more with new lists
// if that fails: a list a few hours old may name a package that is gone.
func (i *installer) install(ctx context.Context, pkgs []string) *InstallError {
	i.openLog()
	if i.log != nil {
		defer i.log.Close()
	}
	fresh := false
	if i.m.stale != nil && i.m.stale(i.s) {
		if err := i.run(ctx, append([]string{i.m.name}, i.m.refresh...)); err != nil {
			return err
		}
		fresh = true
	}
	err := i.run(ctx, i.m.command(pkgs))
	if err == nil || fresh || ctx.Err() != nil {
		return err
	}
	if err := i.run(ctx, append([]string{i.m.name}, i.m.refresh...)); err != nil {
		return err
	}
	return i.run(ctx, i.m.command(pkgs))
}

// openLog starts a new log; without one the output is only shown.
func (i *installer) openLog() {
	dir, err := EnsureStateDir(i.o.StateDir)
	if err != nil {
		return
	}
	if f, err := os.Create(filepath.Join(dir, "install.log")); err == nil {
		i.log = f
	}
}

// tailLines is how much of the output an error carries.
const tailLines = 20

// run runs one command of the package manager, with its output to the person,
// to the log and to the error.
func (i *installer) run(ctx context.Context, argv []string) *InstallError {
	ctx, cancel := context.WithTimeout(ctx, installWithin)
	defer cancel()
	t := &tail{max: tailLines}
	out := io.MultiWriter(i.o.stderr(), t)
	if i.log != nil {
		out = io.MultiWriter(out, i.log)
	}
	fmt.Fprintf(out, "kbisect: running: %s\n", i.shown(argv))
	full := append([]string{i.m.path}, argv[1:]...)
	if len(i.m.env) > 0 {
		full = append(append([]string{"/usr/bin/env"}, i.m.env...), full...)
	}
	var err error
	if i.s.euid == 0 {
		err = i.asRoot(ctx, full, out)
	} else {
		err = i.throughSudo(ctx, full, out)
	}
	if err == nil {
		return nil
	}
	e := &InstallError{Command: i.shown(argv), Tail: t.lines(), Err: err}
	if cause := ctx.Err(); cause != nil {
		e.Err = cause
	}
	if i.log != nil {
		e.Log = i.log.Name()
	}
	return e
}

// stopWithin is what a package manager gets to finish what it is writing.
const stopWithin = 20 * time.Second

func (i *installer) asRoot(ctx context.Context, argv []string, out io.Writer) error {
	c := proc.Command(ctx, argv[0], argv[1:]...)
	c.Env, c.Stdout, c.Stderr, c.WaitDelay = i.s.env(), out, out, stopWithin
	return c.Run()
}

// rootGuard runs "$@" until standard input ends; then it stops it. A user may
// not signal what sudo runs as root, nor can package proc, but a pipe that
// closes reaches it, also when we are killed. It outlives a Ctrl-C itself (its
// background jobs ignore one anyway), so that sudo ends after "$@" and not
// before.
const rootGuard = `trap : INT HUP TERM
exec 3<&0 0</dev/null
"$@" 3<&- &
p=$!
(trap - INT HUP TERM; read _ <&3; kill -TERM $p; sleep 20; kill -KILL $p) >/dev/null 2>&1 &
g=$!
exec 3<&-
while :; do
	wait $p
	s=$?
	kill -0 $p 2>/dev/null || break
done
kill $g 2>/dev/null
exit $s`

// throughSudo is started with os/exec, not proc: sudo must stay in the
// foreground of the terminal to ask for a password. It asks the terminal
// itself, not standard input, which is the guard's pipe.
func (i *installer) throughSudo(ctx context.Context, argv []string, out io.Writer) error {
	guard, hold, err := os.Pipe()
	if err != nil {
		return err
	}
	defer hold.Close()
	words := append(i.sudoArgs()[1:], "/bin/sh", "-c", rootGuard, "kbisect")
	c := exec.Command(i.s.lookPath("sudo"), append(words, argv...)...)
	c.Env, c.Stdin, c.Stdout, c.Stderr, c.WaitDelay = i.s.env(), guard, out, out, stopWithin
	err = c.Start()
	guard.Close()
	if err != nil {
		return err
	}
	stop := context.AfterFunc(ctx, func() {
		hold.Close()
		// sudo itself may still wait for a password; that one is ours to end.
		c.Process.Signal(os.Interrupt) //nolint:errcheck // it may have ended
	})
	defer stop()
	return c.Wait()
}

// wants reports whether Install is to bring a tool. A Go toolchain is not: that of
// a distribution is often older than this module wants, and one built kbisect.
func (o Options) wants(row Row) bool {
	return row.Status == Missing || o.Extras && row.Status == Optional && row.Name != "go"
}

// verify looks again: a package manager may succeed and not have brought the
// tool.
func (i *installer) verify(ctx context.Context, pkgs []string) error {
	var still []string
	for _, row := range i.s.tools(ctx) {
		if row.Status == Missing {
			still = append(still, row.Name)
		}
	}
	if len(still) == 0 {
		return nil
	}
	e := &InstallError{Tools: still, Packages: pkgs, Err: fmt.Errorf("still missing after %s succeeded; install them by hand", i.m.name)}
	if ctx.Err() != nil {
		e.Err = ctx.Err()
	}
	if i.log != nil {
		e.Log = i.log.Name()
	}
	return e
}

// tail keeps the last lines of what is written to it.
type tail struct {
	max  int
	done []string
	part []byte
}

func (t *tail) Write(p []byte) (int, error) {
	for _, c := range p {
		if c == '\n' || c == '\r' || len(t.part) == 512 {
			t.push()
		}
		if c != '\n' && c != '\r' {
			t.part = append(t.part, c)
		}
	}
	return len(p), nil
}

func (t *tail) push() {
	if len(t.part) == 0 {
		return
	}
	t.done = append(t.done, string(t.part))
	t.part = t.part[:0]
	if len(t.done) > t.max {
		t.done = slices.Clone(t.done[1:])
	}
}

func (t *tail) lines() []string {
	t.push()
	return t.done
}
