// Package report holds the result of a run as it is stored and handed out
// (schema "kbisect.result/1"), and renders it for people and programs.
//
//	r := report.Result{Mode: report.ModeCase, Comparisons: cs, ...}
//	r.Verdict = report.Overall(r.Comparisons)
//	err := report.Text(os.Stdout, r)  // or report.JSON(os.Stdout, r)
//
// Keys of the JSON form are never renamed and never change their meaning; new
// ones may be added. Numbers are in the unit named beside them, never scaled. A
// number that is not known or not finite is null; a list is never null.
package report

import (
	"encoding/json"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"time"

	"github.com/google/renameio/v2"
	"github.com/kbisect/kbisect/guest/proto"
	"github.com/kbisect/kbisect/internal/stats"
)

// Schema is the version of the JSON form.
const Schema = "kbisect.result/1"

// Mode is what kind of question was asked.
type Mode string

// Modes.
const (
	ModeCase   Mode = "case"   // cases of the catalog, with v without
	ModeRange  Mode = "range"  // a range of commits, bisected
	ModeSeries Mode = "series" // a patch series
)

// Verdict is an answer. For a comparison it speaks of the kernel with the patch
// against the one without.
type Verdict string

// Verdicts of a comparison.
const (
	Faster       Verdict = "faster"        // better with the patch, whichever way the metric improves
	Slower       Verdict = "slower"        // worse with the patch
	NoDifference Verdict = "no difference" // measured, and within what was to be told apart
	NoOp         Verdict = "no-op"         // both build to the same image: nothing to measure
	Untestable   Verdict = "untestable"    // a side could not run the workload; Reason says why
	Inconclusive Verdict = "inconclusive"  // the budget ended before it could be told
)

// Verdicts of a whole run besides those: Mixed for cases that differ, the rest
// for a bisection.
const (
	Mixed     Verdict = "mixed"
	Swept     Verdict = "swept" // a sweep: numbers, no question
	Found     Verdict = "found"
	EndsAlike Verdict = "ends do not differ"
)

// Num is a number that may be unknown: NaN and the infinities are null in JSON,
// and null is NaN.
type Num float64

// MarshalJSON writes null for what JSON has no number for.
func (n Num) MarshalJSON() ([]byte, error) {
	if !n.Known() {
		return []byte("null"), nil
	}
	return json.Marshal(float64(n))
}

// UnmarshalJSON reads null as NaN.
func (n *Num) UnmarshalJSON(b []byte) error {
	var f *float64
	if err := json.Unmarshal(b, &f); err != nil {
		return err
	}
	if *n = Unknown(); f != nil {
		*n = Num(*f)
	}
	return nil
}

// Known reports whether it is a finite number.
func (n Num) Known() bool { return !math.IsNaN(float64(n)) && !math.IsInf(float64(n), 0) }

// Unknown is the number that is null in JSON.
func Unknown() Num { return Num(math.NaN()) }

// Result is everything a run found out.
type Result struct {
	Schema      string       `json:"schema"` // set by JSON and WriteFile
	ID          string       `json:"id"`     // of the run, as in `kbisect show ID`
	Mode        Mode         `json:"mode"`
	Created     time.Time    `json:"created"`
	Version     string       `json:"version"` // of kbisect
	Verdict     Verdict      `json:"verdict"`
	Reason      string       `json:"reason"`       // of a bisection that names no culprit
	Question    *Question    `json:"question"`     // null in mode "case"
	Culprit     *Culprit     `json:"culprit"`      // null unless a bisection found it
	CredibleSet []Suspect    `json:"credible_set"` // what may be the culprit, most likely first
	Ends        *Ends        `json:"ends"`         // null in mode "case"
	Steps       []Step       `json:"steps"`
	BisectLog   string       `json:"bisect_log"` // file for git bisect replay, "" if there is none
	Comparisons []Comparison `json:"comparisons"`
	Sweeps      []Sweep      `json:"sweeps"` // of `run --sweep`, instead of comparisons
	Environment Environment  `json:"environment"`
	Costs       Costs        `json:"costs"`
	Warnings    []string     `json:"warnings"` // what makes the result weaker than it looks
	RunDir      string       `json:"run_dir"`  // console logs, .config, argv, records
}

// Question is what a bisection was asked.
type Question struct {
	Kernel    string       `json:"kernel"` // release
	Source    string       `json:"source"`
	Revisions int          `json:"revisions"` // suspects
	Workload  string       `json:"workload"`
	Metric    string       `json:"metric"`
	Unit      proto.Unit   `json:"unit"`
	Better    proto.Better `json:"better"`
	Threshold string       `json:"threshold"` // the user's, "" if there was none
	Rule      string       `json:"rule"`      // what counted as bad, in words
	Strategy  string       `json:"strategy"`  // "bayes", "sprt"
}

// Culprit is the commit or patch that a bisection blames: measured to be bad
// where its parent is good, on fresh boots after the search and apart from it.
// With kind "class" it is the last of several that no kernel separates.
type Culprit struct {
	Revision    string  `json:"revision"`
	Subject     string  `json:"subject"`
	Kind        string  `json:"kind"`               // "commit", "merge", "patch", "class"
	Confidence  float64 `json:"confidence"`         // posterior probability, of the class if it is one
	Uniform     Num     `json:"confidence_uniform"` // the same when all revisions were suspected alike
	Parent      string  `json:"parent"`             // revision
	EValue      Num     `json:"e_value"`            // of the confirmation; its inverse bounds the error
	Pairs       int     `json:"pairs"`              // of runs in the confirmation
	Layout      int     `json:"layout"`             // 0: the kernels of the search; else rebuilt with this code layout
	ParentRuns  Side    `json:"parent_runs"`
	CulpritRuns Side    `json:"culprit_runs"`
	Share       Num     `json:"share"`  // of the gap between the ends, by medians: 1 is all of it
	Revert      string  `json:"revert"` // what taking it out of the bad end does, in words
}

// Suspect is one member of the credible set.
type Suspect struct {
	Revision    string  `json:"revision"`
	Subject     string  `json:"subject"`
	Probability float64 `json:"probability"`
}

// Ends are the two kernels that a bisection began with.
type Ends struct {
	Good    Side   `json:"good"`
	Bad     Side   `json:"bad"`
	Ratio   Num    `json:"ratio"` // bad over good
	RatioCI [2]Num `json:"ratio_ci"`
	Gate    string `json:"gate"` // the rule by which they differ, or do not
	Error   Num    `json:"error_probability"`
}

// Step is one kernel that a bisection probed.
type Step struct {
	Revision string  `json:"revision"`
	Subject  string  `json:"subject"`
	Side     Side    `json:"runs"`
	Status   string  `json:"status"` // "good", "bad", "untestable", "unknown"
	Reason   string  `json:"reason"` // why it is untestable
	Seconds  float64 `json:"build_seconds"`
}

// Comparison is one metric of one case, with the patch against without.
type Comparison struct {
	Case     string `json:"case"`
	Title    string `json:"title"`
	Kernel   string `json:"kernel"`   // release, "6.1.192"
	Workload string `json:"workload"` // with its parameters
	// WorkloadWithout is what the kernel without the patch ran, "" for the same.
	WorkloadWithout string       `json:"workload_without"`
	Cmdline         string       `json:"cmdline"` // kernel parameters that the workload adds to the environment\'s
	Metric          string       `json:"metric"`  // "flush", "delete.p99"
	Unit            proto.Unit   `json:"unit"`
	Better          proto.Better `json:"better"`
	Threshold       string       `json:"threshold"` // "flush>500ms", "" if there is none

	With    Side `json:"with"`
	Without Side `json:"without"`

	// Ratio is how many times better it is with the patch: above 1 is an
	// improvement, whichever way the metric improves.
	Ratio           Num    `json:"ratio"`
	RatioBound      string `json:"ratio_bound"` // ">=" or "<=" when runs were cut off at a limit
	RatioCI         [2]Num `json:"ratio_ci"`
	RatioConfidence Num    `json:"ratio_confidence"` // of the interval, 0.95

	// Rates is set for a count of rare events. Ratio, its interval and P are then
	// those of the rates.
	Rates *Rates `json:"rates"`

	P     Num    `json:"p"`    // of the rank test, two-sided
	Gate  string `json:"gate"` // the rule that ended the measuring
	Error Num    `json:"error_probability"`

	Verdict  Verdict   `json:"verdict"`
	Reason   string    `json:"reason"`   // why it is untestable, inconclusive, ...
	Reported *Reported `json:"reported"` // null if the case has no report
	Warnings []string  `json:"warnings"`

	// Also are further comparisons of the case, which have no part in its verdict.
	Also []Comparison `json:"also"`
}

// Rates says how often a rare event happened. A run counts for its first event at
// most, and its exposure ends there.
type Rates struct {
	With    Rate `json:"with"`
	Without Rate `json:"without"`
	Level   Num  `json:"level"` // confidence of the intervals
}

// Rate is one side of Rates.
type Rate struct {
	Events    int    `json:"events"`      // runs that had one
	Exposure  Num    `json:"exposure_ns"` // of all runs, each until its first event
	PerSecond Num    `json:"per_second"`
	CI        [2]Num `json:"ci"`
	Count     Num    `json:"count"` // all events, also those after the first of a run
	Among     Num    `json:"among"` // what they were counted among, unknown if nothing was
}

// Sweep is a metric as a parameter of the workload grows.
type Sweep struct {
	Case      string       `json:"case"`
	Kernel    string       `json:"kernel"`
	Workload  string       `json:"workload"`
	Metric    string       `json:"metric"`
	Unit      proto.Unit   `json:"unit"`
	Better    proto.Better `json:"better"`
	Parameter string       `json:"parameter"`
	Points    []SweepPoint `json:"points"`
	// The exponents e of metric = a * parameter^e, fitted by least squares to the
	// logarithms of all runs: 1 is linear, 2 quadratic.
	With    Exponent `json:"with"`
	Without Exponent `json:"without"`
}

// SweepPoint is one value of the parameter.
type SweepPoint struct {
	Value   int64  `json:"value"`
	With    Side   `json:"with"`
	Without Side   `json:"without"`
	Ratio   Num    `json:"ratio"`
	Reason  string `json:"reason"` // why a side has no numbers
}

// Exponent is a fitted power with its standard error.
type Exponent struct {
	Value Num `json:"value"`
	Error Num `json:"error"`
}

// Side is what was measured of one kernel. With N = 0 all numbers are unknown.
type Side struct {
	Revision string `json:"revision"` // in words: "6.1.192 minus 6.1.patch"
	Identity string `json:"identity"` // hash of the built image
	N        int    `json:"n"`        // runs, each on a fresh boot
	Median   Num    `json:"median"`
	P99      Num    `json:"p99"` // of the runs; the maximum below 100 of them
	Min      Num    `json:"min"`
	Max      Num    `json:"max"`
	CI       [2]Num `json:"ci"`       // of the median
	CILevel  Num    `json:"ci_level"` // its confidence
	Above    int    `json:"above"`    // runs beyond the threshold
	Censored int    `json:"censored"` // runs cut off at their limit: the truth is larger
	// MedianCensored is true when the median itself is such a run.
	MedianCensored bool `json:"median_censored"`
}

// SideOf makes a Side of a summary; above is the number of runs beyond the
// threshold.
func SideOf(s stats.Summary, above int) Side {
	if s.N == 0 {
		u := Unknown()
		return Side{Median: u, P99: u, Min: u, Max: u, CI: [2]Num{u, u}, CILevel: u}
	}
	return Side{
		N: s.N, Median: Num(s.Median.X), P99: Num(s.P99.X), Min: Num(s.Min.X), Max: Num(s.Max.X),
		CI: [2]Num{Num(s.CI.Lo), Num(s.CI.Hi)}, CILevel: Num(s.CI.Level),
		Above: above, Censored: s.Censored, MedianCensored: s.Median.Censored,
	}
}

// SetStats fills in the sides' numbers, the ratio and p, and adds the warnings.
// Revisions and identities stay as they are.
func (c *Comparison) SetStats(s stats.Comparison, aboveWith, aboveWithout int) {
	keep := func(side *Side, n Side) {
		n.Revision, n.Identity = side.Revision, side.Identity
		*side = n
	}
	keep(&c.With, SideOf(s.With, aboveWith))
	keep(&c.Without, SideOf(s.Without, aboveWithout))
	c.Ratio, c.RatioBound = Num(s.Factor.Point), string(s.Factor.Bound)
	c.RatioCI = [2]Num{Num(s.Factor.Interval.Lo), Num(s.Factor.Interval.Hi)}
	c.RatioConfidence, c.P = Num(s.Factor.Interval.Level), Num(s.P)
	c.Warnings = append(c.Warnings, s.Warnings...)
}

// SetRates fills in how often a rare event happened, with intervals of level for
// both rates.
func (c *Comparison) SetRates(with, without Rate, level float64) {
	for _, r := range []*Rate{&with, &without} {
		seconds := float64(r.Exposure) / 1e9
		r.PerSecond, r.CI = Unknown(), [2]Num{Unknown(), Unknown()}
		if seconds > 0 {
			ci := stats.Rate(r.Events, seconds, level)
			r.PerSecond, r.CI = Num(float64(r.Events)/seconds), [2]Num{Num(ci.Lo), Num(ci.Hi)}
		}
	}
	c.Rates = &Rates{With: with, Without: without, Level: Num(level)}
}

// Unmeasured sets every number to unknown: for a case that was not run.
func (c *Comparison) Unmeasured() {
	c.SetStats(stats.Comparison{}, 0, 0)
	u := Unknown()
	c.Ratio, c.RatioCI, c.RatioConfidence, c.P, c.Error = u, [2]Num{u, u}, u, u, u
}

// Reported is what the report that a case comes from said.
type Reported struct {
	Author  string     `json:"author"`
	Where   string     `json:"where"`  // a commit, a message-id
	Kernel  string     `json:"kernel"` // "5.9"
	What    string     `json:"what"`   // "16,384 nexthops on one dummy"
	With    Num        `json:"with"`
	Without Num        `json:"without"`
	Unit    proto.Unit `json:"unit"`
	// Approximate: the reporter gave no exact figures, so their ratio means nothing.
	Approximate bool `json:"approximate"`
}

// Environment is what every run of the result had in common.
type Environment struct {
	Image       string `json:"image"`        // disk image that the guest ran from, "" for kbisect's own system
	Accel       string `json:"accel"`        // "kvm", "tcg"
	AccelReason string `json:"accel_reason"` // "there is no /dev/kvm"
	Machine     string `json:"machine"`
	Firmware    string `json:"firmware"`
	QEMU        string `json:"qemu"`
	CPUs        int    `json:"cpus"`
	MemoryMiB   int    `json:"memory_mib"`
	Clocksource string `json:"clocksource"`
	HZ          int    `json:"hz"`
	Cmdline     string `json:"cmdline"`
	Compiler    string `json:"compiler"`
	Host        Host   `json:"host"`
}

// Host is the machine that measured.
type Host struct {
	CPU          string `json:"cpu"`
	CPUs         int    `json:"cpus"`
	MemoryMiB    int    `json:"memory_mib"`
	Kernel       string `json:"kernel"`
	Distribution string `json:"distribution"`
}

// Costs says what the result took.
type Costs struct {
	Builds       int     `json:"builds"`        // compiled
	BuildsCached int     `json:"builds_cached"` // found in the cache
	BuildSeconds float64 `json:"build_seconds"`
	Runs         int     `json:"runs"` // boots that gave an outcome
	RunSeconds   float64 `json:"run_seconds"`
	Retries      int     `json:"retries"` // runs that the host spoiled, and that were repeated
	Seconds      float64 `json:"seconds"` // in all
}

// Overall is the verdict of a run of cases: theirs if they agree.
func Overall(cs []Comparison) Verdict {
	if len(cs) == 0 {
		return Untestable
	}
	for _, c := range cs[1:] {
		if c.Verdict != cs[0].Verdict {
			return Mixed
		}
	}
	return cs[0].Verdict
}

// normal returns r with its schema set and no list null.
func (r Result) normal() Result {
	r.Schema = Schema
	r.CredibleSet = full(r.CredibleSet)
	r.Steps = full(r.Steps)
	r.Warnings = full(r.Warnings)
	r.Sweeps = full(r.Sweeps)
	r.Comparisons = normalAll(r.Comparisons)
	return r
}

// normalAll returns a copy without null lists: the caller's stay as they are.
func normalAll(in []Comparison) []Comparison {
	out := make([]Comparison, len(in))
	for i, c := range in {
		c.Warnings, c.Also = full(c.Warnings), normalAll(c.Also)
		out[i] = c
	}
	return out
}

func full[T any](s []T) []T {
	if s == nil {
		return []T{}
	}
	return s
}

// JSON writes one document, indented, with a newline.
func JSON(w io.Writer, r Result) error { return encode(w, r.normal()) }

func encode(w io.Writer, v any) error {
	e := json.NewEncoder(w)
	e.SetEscapeHTML(false) // thresholds have a ">"
	e.SetIndent("", "  ")
	if err := e.Encode(v); err != nil {
		return fmt.Errorf("write json: %w", err)
	}
	return nil
}

// maxFile bounds a result file that is read back; real ones have some KiB.
const maxFile = 64 << 20

// Read reads a result and refuses any other schema.
func Read(r io.Reader) (Result, error) {
	var res Result
	if err := json.NewDecoder(io.LimitReader(r, maxFile)).Decode(&res); err != nil {
		return Result{}, fmt.Errorf("read result: %w", err)
	}
	if res.Schema != Schema {
		return Result{}, fmt.Errorf("read result: schema %q, this program knows %q", res.Schema, Schema)
	}
	return res, nil
}

// ReadFile is Read of a file.
func ReadFile(path string) (Result, error) {
	f, err := os.Open(path)
	if err != nil {
		return Result{}, fmt.Errorf("read result: %w", err)
	}
	defer f.Close()
	res, err := Read(f)
	if err != nil {
		return Result{}, fmt.Errorf("%s: %w", path, err)
	}
	return res, nil
}

// WriteFile writes the JSON form to path: whole, on the disk, or not at all.
func WriteFile(path string, r Result) error {
	f, err := renameio.NewPendingFile(path, renameio.WithTempDir(filepath.Dir(path)), renameio.WithPermissions(0o644))
	if err != nil {
		return fmt.Errorf("write result: %w", err)
	}
	defer f.Cleanup()
	if err := JSON(f, r); err != nil {
		return fmt.Errorf("write result %s: %w", path, err)
	}
	if err := f.CloseAtomicallyReplace(); err != nil {
		return fmt.Errorf("write result: %w", err)
	}
	return nil
}
