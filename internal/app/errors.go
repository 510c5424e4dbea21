package app

import (
	"errors"
	"fmt"
	"strings"

	"github.com/xrash/smetrics"

	"github.com/kbisect/kbisect/vm"
)

// UsageError says that the user asked for something that cannot be: a wrong
// flag, name or file. Hint says what to do instead.
type UsageError struct {
	Text string
	Hint string
}

func (e *UsageError) Error() string { return e.Text }

// Usagef returns a *UsageError with a hint.
func Usagef(hint, format string, args ...any) error {
	return &UsageError{Text: fmt.Sprintf(format, args...), Hint: hint}
}

// hinted wraps an error with what to do about it.
type hinted struct {
	error
	hint string
}

func (e *hinted) Unwrap() error { return e.error }

// withHint adds one line of advice to err; nil stays nil.
func withHint(err error, format string, args ...any) error {
	if err == nil {
		return nil
	}
	return &hinted{err, fmt.Sprintf(format, args...)}
}

// Hints returns the advice that err and the errors it wraps carry, outermost first.
func Hints(err error) []string {
	var out []string
	for err != nil {
		switch e := err.(type) {
		case *hinted:
			out = append(out, e.hint)
		case *UsageError:
			if e.Hint != "" {
				out = append(out, e.Hint)
			}
		}
		err = errors.Unwrap(err)
	}
	return out
}

// Detail returns the console's tail, QEMU's own words and the command that
// reproduces a failure of a machine; "" for any other error.
func Detail(err error) string {
	if f := failureOf(err); f != nil {
		return f.Detail()
	}
	return ""
}

func failureOf(err error) *vm.Failure {
	var boot *vm.BootError
	var crash *vm.CrashError
	var timeout *vm.TimeoutError
	var infra *vm.InfraError
	switch {
	case errors.As(err, &boot):
		return &boot.Failure
	case errors.As(err, &crash):
		return &crash.Failure
	case errors.As(err, &timeout):
		return &timeout.Failure
	case errors.As(err, &infra):
		return &infra.Failure
	}
	return nil
}

// Ending is how a run ended when not with a difference.
type Ending int

// Endings, in the order in which several cases of one run are summed up: the
// first that occurs decides the exit code.
const (
	Inconclusive Ending = iota + 1
	Untestable
	NoDifference
)

// VerdictError carries a result that is not "they differ" to the exit code. The
// result itself has been printed.
type VerdictError struct{ Outcome Ending }

func (e *VerdictError) Error() string {
	return map[Ending]string{
		Inconclusive: "inconclusive",
		Untestable:   "nothing could be tested",
		NoDifference: "with and without do not differ",
	}[e.Outcome]
}

// GuestExit is the exit status of a command run by kbisect boot.
type GuestExit struct{ Status int }

func (e *GuestExit) Error() string {
	return fmt.Sprintf("guest command exited with status %d", e.Status)
}

// Nearest returns `; did you mean "x"?` for the known name most like name, ""
// when none is like it (Jaro-Winkler below 0.75).
func Nearest(name string, known []string) string {
	best, score := "", 0.75
	for _, k := range known {
		if s := smetrics.JaroWinkler(strings.ToLower(name), strings.ToLower(k), 0.7, 4); s > score {
			best, score = k, s
		}
	}
	if best == "" {
		return ""
	}
	return fmt.Sprintf("; did you mean %q?", best)
}
