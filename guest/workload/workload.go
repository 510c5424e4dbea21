// Package workload is what the agent can run: each file one workload, registered
// by one line in registry.go. A workload creates what it needs in a network
// namespace of its own, does the operations that are measured, and checks that
// it really did what it claims.
//
//	w, params, err := workload.Parse("netdev-delete,count=100,type=veth")
//
// The host uses this package too, to parse a specification and to know the
// metrics of a workload; only Setup and what it returns need a guest and root.
package workload

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/kbisect/kbisect/guest/proto"
	"golang.org/x/sys/unix"
)

// Workload describes one workload. Its methods but Setup do nothing but return
// constants, on any machine.
type Workload interface {
	// Name is how it is asked for: lower case, words joined by hyphens.
	Name() string
	// Doc is one or two sentences for a user.
	Doc() string
	// Params are what can be set, in the order in which help shows them.
	Params() []Param
	// Metrics are all that it may report; a report has no others. It is a new
	// slice at each call.
	Metrics() []Metric
	// Setup makes what Run needs, as root in the guest. What it made before an
	// error is gone when it returns.
	Setup(ctx context.Context, env Env) (Instance, error)
}

// Booter is a workload that needs kernel parameters of its own, on every kernel
// that it is compared on.
type Booter interface {
	// Cmdline returns the parameters, each without blanks.
	Cmdline() []string
}

// Cmdline returns the kernel parameters that a workload needs, if any.
func Cmdline(w Workload) []string {
	if b, ok := w.(Booter); ok {
		return b.Cmdline()
	}
	return nil
}

// Instance is a workload that is set up. Its owner calls Run once and then
// Teardown once, also when Run failed.
type Instance interface {
	// Run does the operations that are measured, reports the metrics to the
	// recorder and returns how many operations it did.
	Run(ctx context.Context) (ops int64, err error)
	// Teardown releases what Setup made.
	Teardown() error
}

// Env is what the agent gives to a workload.
type Env struct {
	Params Params
	Rec    Recorder
	// Now is the one clock of the run: CLOCK_MONOTONIC in ns.
	Now func() int64
}

// Recorder takes what a workload has to report. Its methods do not allocate or
// write while operations are timed, except Progress and Phase, which may write.
// Any goroutine may call them.
// Names must be those of Metrics; another one is an error of the agent at the end.
type Recorder interface {
	// Phase says that a part begins.
	Phase(name string)
	// Progress says how many operations of the phase are done. It costs a
	// comparison, and at most once a second a write.
	Progress(done, total int64)
	// Metric reports one number in the metric's unit.
	Metric(name string, value float64)
	// Observe adds one operation's number to a distribution.
	Observe(name string, value int64)
	// Check reports something verified. It returns a *CheckError, for the
	// workload to return, when got is not want.
	Check(name string, want, got int64) error
	// Define adds a metric that only the run could name.
	Define(m Metric)
	// Output takes what a program under the workload prints, for the run's
	// transcript. It keeps the beginning and the end, and never fails or blocks.
	Output() io.Writer
}

// Metric is a number that a workload reports.
type Metric struct {
	Name   string
	Unit   proto.Unit
	Better proto.Better
	Dist   bool // a distribution of per-operation numbers
	// When is set of a metric that only some runs have: "mode=each" is the value
	// that a parameter must have, or must have in its list.
	When string
	// Exposure is set of a metric that counts rare events: it names the metric,
	// in ns, of how long they could have happened, which ends at the first one.
	Exposure string
	// Among is set of such a metric, too: what the events are counted among.
	Among string
	// Printed is set of a number that some program printed: how well this clock
	// resolves it says nothing.
	Printed bool
	Doc     string
}

// MetricsFor returns the metrics that a run with these parameters reports: every
// one of them, and no other.
func MetricsFor(w Workload, p Params) []Metric {
	return slices.DeleteFunc(w.Metrics(), func(m Metric) bool {
		name, value, conditional := strings.Cut(m.When, "=")
		return conditional && !slices.Contains(strings.Split(p.Text(name), listSeparator), value)
	})
}

// CheckError says that a workload did not do what it claims.
type CheckError struct {
	Name      string
	Want, Got int64
}

func (e *CheckError) Error() string {
	return fmt.Sprintf("check %s: want %d, got %d", e.Name, e.Want, e.Got)
}

// UnsupportedError says that the kernel lacks what a workload needs.
type UnsupportedError struct {
	Feature string // "nexthop objects"
	Needs   string // what provides it: "CONFIG_DUMMY", "Linux 5.3 or newer"
	Err     error
}

func (e *UnsupportedError) Error() string {
	return fmt.Sprintf("the kernel has no %s (needs %s): %v", e.Feature, e.Needs, e.Err)
}

func (e *UnsupportedError) Unwrap() error { return e.Err }

// unsupported turns the errnos by which a kernel says that it does not know
// something into an UnsupportedError, and returns any other error as it is.
func unsupported(err error, feature, needs string) error {
	for _, errno := range []unix.Errno{unix.EOPNOTSUPP, unix.EAFNOSUPPORT, unix.EPROTONOSUPPORT, unix.ENOSYS, unix.ENOENT} {
		if errors.Is(err, errno) {
			return &UnsupportedError{Feature: feature, Needs: needs, Err: err}
		}
	}
	return err
}
