// Command kbisect finds the patch that moved a kernel latency, and proves it.
//
//	kbisect run nexthop-delete          what a fix of the catalog does, in figures
//	kbisect doctor --install            what this machine needs, installed
//	kbisect boot debian:6.1 -- ip link  one command on a fresh kernel
//
// Every command has --help with examples. The environment variables it reads
// are KBISECT_KERNEL (default for --kernel), XDG_CACHE_HOME and XDG_STATE_HOME.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/urfave/cli/v2"
	"golang.org/x/term"

	"github.com/kbisect/kbisect/internal/app"
	"github.com/kbisect/kbisect/internal/ui"
)

func main() {
	ctx, stop := signalContext()
	code := run(ctx, os.Args, os.Stdin, os.Stdout, os.Stderr)
	stop()
	os.Exit(code)
}

// secondSignal is how long after the first signal another one means the same.
const secondSignal = time.Second

// signalContext ends its context at the first Ctrl-C, SIGTERM or SIGHUP, so
// that everything is cleaned up; a second one, a second later, ends the process
// at once, which the guards of package proc survive.
func signalContext() (context.Context, func()) {
	ctx, cancel := context.WithCancel(context.Background())
	ch := make(chan os.Signal, 1)
	signal.Notify(ch, syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
	go func() {
		select {
		case <-ch:
			cancel()
			// One Ctrl-C may come twice: from the terminal, and from who started us.
			time.Sleep(secondSignal)
			signal.Reset(syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
		case <-ctx.Done():
		}
	}()
	return ctx, cancel
}

// Exit codes, as every --help prints them.
const (
	exitOK           = 0
	exitUsage        = 1
	exitInconclusive = 2
	exitNoDifference = 3
	exitInfra        = 4
	exitUntestable   = 5
	exitInterrupted  = 130
)

const exitHelp = `Exit codes: 0 a verdict was reached, 1 wrong usage, 2 inconclusive,
3 with and without, or the ends, do not differ, 4 the host or the tools failed,
5 nothing could be tested, 130 interrupted (kbisect resume goes on).`

// exitCode is the one place where an error becomes an exit code.
func exitCode(err error) int {
	var usage *app.UsageError
	var verdict *app.VerdictError
	var guest *app.GuestExit
	switch {
	case err == nil:
		return exitOK
	case errors.As(err, &guest):
		return guest.Status
	case errors.Is(err, context.Canceled):
		return exitInterrupted
	case errors.As(err, &usage):
		return exitUsage
	case errors.As(err, &verdict):
		switch verdict.Outcome {
		case app.NoDifference:
			return exitNoDifference
		case app.Untestable:
			return exitUntestable
		default:
			return exitInconclusive
		}
	}
	return exitInfra
}

// terminal bundles what a command talks to.
type terminal struct {
	in       io.Reader
	out, err io.Writer
}

// run is main without the process: it returns the exit code.
func run(ctx context.Context, args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	t := &terminal{stdin, stdout, stderr}
	a := newApp(t)
	err := a.RunContext(ctx, flagsFirst(a, args))
	code := exitCode(err)
	if err != nil && ctx.Err() != nil {
		code = exitInterrupted
	}
	t.explain(err, code)
	return code
}

// explain prints an error the way people and scripts can read it: what, then
// what to do next on lines of their own.
func (t *terminal) explain(err error, code int) {
	var verdict *app.VerdictError
	var guest *app.GuestExit
	switch {
	case err == nil, errors.As(err, &verdict), errors.As(err, &guest):
		return // said on stdout, or by the guest's own command
	case code == exitInterrupted:
		fmt.Fprintln(t.err, "kbisect: interrupted")
	default:
		fmt.Fprintf(t.err, "kbisect: %v\n", err)
	}
	for _, line := range app.Hints(err) {
		fmt.Fprintf(t.err, "kbisect: hint: %s\n", line)
	}
	if detail := app.Detail(err); detail != "" && code != exitInterrupted {
		fmt.Fprintf(t.err, "\n%s", detail)
	}
}

func newApp(t *terminal) *cli.App {
	a := &cli.App{
		Name:                 "kbisect",
		Usage:                "find the patch that moved a kernel latency, and prove it",
		Description:          exitHelp,
		Version:              app.Version(),
		Reader:               t.in,
		Writer:               t.out,
		ErrWriter:            t.err,
		EnableBashCompletion: true,
		HideHelpCommand:      true,
		ExitErrHandler:       func(*cli.Context, error) {}, // cli's own calls os.Exit
		OnUsageError:         onUsageError,
		Flags: []cli.Flag{
			&cli.BoolFlag{Name: "quiet", Aliases: []string{"q"}, Usage: "no progress, only warnings and errors"},
			&cli.BoolFlag{Name: "verbose", Aliases: []string{"v"}, Usage: "say more of what is done"},
		},
		Commands: []*cli.Command{
			newRunCommand(t), newReproCommand(t), newListCommand(t), newDoctorCommand(t), newBootCommand(t), newBuildCommand(t),
			newRunsCommand(t), newShowCommand(t), newResumeCommand(t), newRejudgeCommand(t), newCacheCommand(t), newCompletionCommand(t),
		},
		Action: func(c *cli.Context) error {
			name := c.Args().First()
			if name == "help" && c.App.Command(c.Args().Get(1)) != nil {
				return cli.ShowCommandHelp(c, c.Args().Get(1))
			}
			if name == "help" && c.NArg() > 1 {
				name = c.Args().Get(1)
			}
			if name != "" && name != "help" {
				return app.Usagef("kbisect --help lists the commands", "unknown command %q%s", name, app.Nearest(name, commandNames(c.App)))
			}
			return cli.ShowAppHelp(c)
		},
	}
	cli.VersionFlag = &cli.BoolFlag{Name: "version", Usage: "print the version"}
	for _, c := range a.Commands {
		c.OnUsageError = onUsageError
		if c.BashComplete == nil {
			c.BashComplete = completeWords()
		}
	}
	return a
}

func commandNames(a *cli.App) []string {
	var names []string
	for _, c := range a.VisibleCommands() {
		names = append(names, c.Name)
	}
	return names
}

func onUsageError(c *cli.Context, err error, _ bool) error {
	name := "kbisect"
	if c.Command != nil && c.Command.Name != "" && c.Command.Name != "kbisect" {
		name += " " + c.Command.Name
	}
	text := err.Error()
	if flag, ok := strings.CutPrefix(text, "flag provided but not defined: -"); ok {
		text = fmt.Sprintf("unknown flag --%s%s", strings.TrimLeft(flag, "-"), app.Nearest(flag, flagNames(c)))
	} else if m := badValue.FindStringSubmatch(text); m != nil {
		text = fmt.Sprintf("%s %s: want %s", dashed(m[2]), m[1], wanted(c, m[2]))
	}
	return app.Usagef(name+" --help", "%s", text)
}

// badValue is what package flag says of a value that it cannot read.
var badValue = regexp.MustCompile(`^invalid value ("[^"]*") for flag -([a-z-]+): parse error$`)

// wanted says what a flag's value looks like.
func wanted(c *cli.Context, name string) string {
	for _, f := range c.Command.Flags {
		if !slices.Contains(f.Names(), name) {
			continue
		}
		switch f.(type) {
		case *cli.DurationFlag:
			return "a time with its unit, such as 90s, 10m or 2h"
		case *cli.IntFlag:
			return "a whole number"
		case *cli.Float64Flag:
			return "a number"
		case *cli.BoolFlag:
			return "true or false, or no value"
		}
	}
	return "another value"
}

// dashed is a flag as it is typed.
func dashed(name string) string {
	if len(name) == 1 {
		return "-" + name
	}
	return "--" + name
}

// flagNames lists the flags that c's command knows.
func flagNames(c *cli.Context) []string {
	flags := c.App.Flags
	if c.Command != nil {
		flags = append(slices.Clone(flags), c.Command.Flags...)
	}
	var names []string
	for _, f := range flags {
		for _, n := range f.Names() {
			if len(n) > 1 { // one letter is near to everything
				names = append(names, n)
			}
		}
	}
	return names
}

// notNegative refuses a number below 0, which stands for "not given".
func notNegative[T int | float64](flag string) func(*cli.Context, T) error {
	return func(_ *cli.Context, n T) error {
		if n < 0 {
			return app.Usagef("", "--%s %v: it is below 0", flag, n)
		}
		return nil
	}
}

// checkArgs refuses too many arguments.
func checkArgs(c *cli.Context, most int) error {
	if most >= 0 && c.NArg() > most {
		return app.Usagef("kbisect "+c.Command.Name+" --help", "unexpected argument %q", c.Args().Get(most))
	}
	return nil
}

// checkSet refuses a flag that was given an empty value: most often a script's
// unset variable, which must not silently mean the default.
func checkSet(c *cli.Context, flags ...string) error {
	for _, name := range flags {
		if c.IsSet(name) && c.String(name) == "" && !fromEnv(name) {
			return app.Usagef("leave the flag out for the default", "%s is empty", dashed(name))
		}
	}
	return nil
}

// fromEnv reports whether a flag may have come from an empty variable, which
// means that there is none.
func fromEnv(name string) bool {
	v, ok := os.LookupEnv("KBISECT_KERNEL")
	return name == "kernel" && ok && v == ""
}

// newUI makes the progress display for one command.
func (t *terminal) newUI(c *cli.Context) *ui.UI {
	f, ok := t.err.(*os.File)
	return ui.New(t.err, ui.Options{
		Terminal: ok && term.IsTerminal(int(f.Fd())),
		Quiet:    c.Bool("quiet"),
		Verbose:  c.Bool("verbose"),
	})
}
