package app

import (
	"context"
	"errors"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"

	"golang.org/x/term"

	"github.com/kbisect/kbisect/internal/host"
	"github.com/kbisect/kbisect/internal/initramfs"
	"github.com/kbisect/kbisect/vm"
	"github.com/kbisect/kbisect/vm/qemu"
)

// BootOptions is what `kbisect boot` was asked.
type BootOptions struct {
	Kernel  string   // an image, or what --kernel takes
	Argv    []string // nil for a shell
	Config  ConfigOptions
	Machine MachineOptions

	Stdin          io.Reader
	Stdout, Stderr io.Writer
	Terminal       *os.File // Stdin, if it is a file
}

// Boot boots a kernel and runs a command or a shell in it. A command's non-zero
// end is a *GuestExit.
func Boot(ctx context.Context, env *Env, o BootOptions) error {
	if err := o.Machine.check(); err != nil {
		return err
	}
	need := func() error { return env.require(host.ForBooting()) }
	if !isImage(o.Kernel) || o.Machine.Accel == "kvm" {
		need = func() error { return env.ready(ctx, o.Machine) } // which asks for those, too
	}
	if err := need(); err != nil {
		return err
	}
	o.Machine.configure(&o.Config)
	initrd := ""
	if o.Machine.Image == "" {
		var err error
		if initrd, err = env.initramfs(ctx, initramfs.Options{Userland: true}); err != nil {
			return err
		}
	}
	image, release, err := env.image(ctx, o.Kernel, o.Config)
	if err != nil {
		return err
	}
	defer release()
	accel, reason, err := env.accelerator(ctx, o.Machine.Accel, image)
	if err != nil {
		return err
	}
	env.UI.Debug("accelerator %s: %s", accel, reason)
	dir, remove, err := env.scratch()
	if err != nil {
		return err
	}
	defer remove()
	l := lab{start: env.start(), machine: o.Machine, accel: accel}
	m, err := l.start(ctx, l.spec(image, initrd, dir))
	if err != nil {
		return err
	}
	defer m.Close()
	go drain(m.Events()) // ends with the machine
	return guestExit(o.exec(ctx, env, m))
}

// guestExit makes a command's own end distinct from a failure of kbisect's.
func guestExit(err error) error {
	var exit *vm.ExitError
	if errors.As(err, &exit) {
		return &GuestExit{exit.Status}
	}
	return err
}

// exec runs the command, or a shell on a pseudo-terminal if there is a terminal
// to connect it to.
func (o BootOptions) exec(ctx context.Context, env *Env, m vm.Machine) error {
	c := vm.Command{Argv: o.Argv, Stdin: o.Stdin, Stdout: o.Stdout, Stderr: o.Stderr}
	shell := len(c.Argv) == 0
	if shell {
		c.Argv = []string{"/bin/sh", "-i"}
		if _, err := os.Stat("/bin/bash"); err == nil {
			c.Argv[0] = "/bin/bash"
		}
	}
	f := o.Terminal
	if f == nil || !term.IsTerminal(int(f.Fd())) {
		if shell {
			c.Argv = c.Argv[:1] // commands from a pipe or a file
		}
		return m.Exec(ctx, c)
	}
	if !shell {
		c.Stdin = nil // a command must not swallow what is typed for the next prompt
		return m.Exec(ctx, c)
	}
	resume := env.UI.Suspend()
	defer resume()
	old, err := term.MakeRaw(int(f.Fd()))
	if err != nil {
		return err
	}
	defer term.Restore(int(f.Fd()), old) //nolint:errcheck // nothing more can be done
	tty, stop := terminalOf(f)
	defer stop()
	c.TTY = tty
	return m.Exec(ctx, c)
}

// terminalOf describes the user's terminal and follows its size until stop.
func terminalOf(f *os.File) (*vm.TTY, func()) {
	cols, rows, err := term.GetSize(int(f.Fd()))
	if err != nil {
		cols, rows = 80, 24
	}
	resize := make(chan [2]int, 1)
	winch := make(chan os.Signal, 1)
	signal.Notify(winch, syscall.SIGWINCH)
	done := make(chan struct{})
	go func() {
		for {
			select {
			case <-done:
				return
			case <-winch:
				if c, r, err := term.GetSize(int(f.Fd())); err == nil {
					select {
					case resize <- [2]int{r, c}:
					default: // the last one is not read yet; the next signal comes
					}
				}
			}
		}
	}()
	stop := func() { signal.Stop(winch); close(done) }
	return &vm.TTY{Term: orDefault(os.Getenv("TERM"), "xterm"), Rows: rows, Cols: cols, Resize: resize}, stop
}

// image returns the path of a kernel image: the file itself, or that of a kernel
// built from a source. release lets the cache evict it again.
func (env *Env) image(ctx context.Context, spec string, c ConfigOptions) (path string, release func(), err error) {
	if isImage(spec) {
		if err := qemu.CheckKernel(spec); err != nil {
			return "", nil, Usagef("", "%v", err)
		}
		if c.File != "" || len(c.Extra) > 0 {
			return "", nil, Usagef("give a kernel source instead", "%s is built already: --config and --kconfig mean nothing for it", spec)
		}
		path, err = filepath.Abs(spec)
		return path, func() {}, err
	}
	src, err := env.openSource(ctx, spec)
	if err != nil {
		return "", nil, err
	}
	k, err := env.build(ctx, src, target{commit: src.Head, label: "linux " + src.Version}, c)
	if err != nil {
		return "", nil, err
	}
	return k.Image, k.Release, nil
}

// isImage reports whether a file begins like an ELF vmlinux or a bzImage, whose
// magic "HdrS" lies at 0x202 (Documentation/x86/boot.rst).
func isImage(path string) bool {
	f, err := os.Open(path)
	if err != nil {
		return false
	}
	defer f.Close()
	head := make([]byte, 0x206)
	n, _ := io.ReadFull(f, head)
	return strings.HasPrefix(string(head[:n]), "\x7fELF") || n == len(head) && string(head[0x202:]) == "HdrS"
}
