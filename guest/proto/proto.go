// Package proto is the language between the agent in the guest and kbisect on
// the host: a stream of JSON records, one a line, from the agent's standard
// output. The host trusts none of it: Read bounds the length of a line, the
// number of records and samples, and checks every name, unit and number.
//
// A stream is: one hello, any number of phase, progress, metric, dist, check
// and output records, and one done (or one fail). A stream without its done did not
// measure anything.
package proto

// Version is the protocol's version. A host refuses any other.
const Version = 1

// Kind is a record's type.
type Kind string

// Record kinds in the order in which they may come.
const (
	KindHello    Kind = "hello"    // first: what machine and clock this is
	KindPhase    Kind = "phase"    // a part of the workload begins
	KindProgress Kind = "progress" // done of total operations in this phase
	KindMetric   Kind = "metric"   // one number for the whole run
	KindDist     Kind = "dist"     // a distribution of per-operation numbers
	KindCheck    Kind = "check"    // something the workload verified about itself
	KindOutput   Kind = "output"   // what a program under the workload printed
	KindFail     Kind = "fail"     // last: it could not run, or did not do what it claims
	KindDone     Kind = "done"     // last: it ran
)

// Record is one line. Exactly the field that belongs to Kind is set.
type Record struct {
	V        int       `json:"v"`
	Kind     Kind      `json:"k"`
	At       int64     `json:"t"` // ns since the agent's start, monotonic
	Hello    *Hello    `json:"hello,omitempty"`
	Phase    string    `json:"phase,omitempty"`
	Progress *Progress `json:"progress,omitempty"`
	Metric   *Metric   `json:"metric,omitempty"`
	Dist     *Dist     `json:"dist,omitempty"`
	Check    *Check    `json:"check,omitempty"`
	Output   string    `json:"output,omitempty"` // any part of it; lines may go on in the next
	Fail     *Fail     `json:"fail,omitempty"`
	Done     *Done     `json:"done,omitempty"`
}

// Hello says where the agent runs.
type Hello struct {
	Workload     string            `json:"workload"`
	Params       map[string]string `json:"params"` // all of them, defaults filled in
	Release      string            `json:"release"`
	Version      string            `json:"version"` // uname -v
	Cmdline      string            `json:"cmdline"`
	CPUs         int               `json:"cpus"`
	HZ           int               `json:"hz"` // the kernel's tick; 0 when it cannot be told
	Clocksource  string            `json:"clocksource"`
	ResolutionNS int64             `json:"resolution_ns"` // smallest step of CLOCK_MONOTONIC seen
	BootNS       int64             `json:"boot_ns"`       // CLOCK_BOOTTIME when the agent began
}

// Progress counts operations inside a phase.
type Progress struct {
	Done  int64 `json:"done"`
	Total int64 `json:"total"` // 0 when unknown
}

// Unit is a metric's unit. Numbers are in exactly these, never scaled.
type Unit string

// Units.
const (
	Nanoseconds Unit = "ns"
	Count       Unit = "count"
	PerSecond   Unit = "1/s"
	PerMillion  Unit = "ppm"
	Bytes       Unit = "B"
)

// Better says which way a metric improves.
type Better string

// Directions.
const (
	Lower  Better = "lower"
	Higher Better = "higher"
)

// Metric is one number of the run.
type Metric struct {
	Name   string  `json:"name"` // [a-z][a-z0-9_-]*, or time[N].real, .user, .sys
	Unit   Unit    `json:"unit"`
	Better Better  `json:"better"`
	Value  float64 `json:"value"`
	// Censored is true when the operation was stopped at Value: the truth is larger.
	Censored bool `json:"censored,omitempty"`
}

// Dist is a distribution of per-operation numbers inside one run. Quantiles
// come from an HDR histogram with three significant digits; Min, Max and Sum
// are exact. Samples holds the raw values in order, up to MaxSamples.
type Dist struct {
	Name     string  `json:"name"`
	Unit     Unit    `json:"unit"`
	Better   Better  `json:"better"`
	N        int64   `json:"n"`
	Min      int64   `json:"min"`
	P50      int64   `json:"p50"`
	P90      int64   `json:"p90"`
	P99      int64   `json:"p99"`
	Max      int64   `json:"max"`
	Sum      int64   `json:"sum"`
	Samples  []int64 `json:"samples,omitempty"`
	Censored int64   `json:"censored,omitempty"` // operations stopped at their limit
}

// Check is a statement that the workload verified.
type Check struct {
	Name string `json:"name"` // "devices created"
	Want int64  `json:"want"`
	Got  int64  `json:"got"`
	OK   bool   `json:"ok"`
}

// FailReason classes a Fail.
type FailReason string

// Fail reasons. None of them is a latency.
const (
	FailUnsupported FailReason = "unsupported" // the kernel lacks a feature it needs
	FailCheck       FailReason = "check"       // it ran but did not do what it claims
	FailClock       FailReason = "clock"       // the clock is coarser than what is measured
	FailError       FailReason = "error"       // anything else went wrong
)

// Fail ends a stream that measured nothing.
type Fail struct {
	Reason FailReason `json:"reason"`
	Text   string     `json:"text"`
}

// Done ends a stream that measured.
type Done struct {
	Nonce string `json:"nonce"` // the one the host passed: an old or forged stream has another
	Ops   int64  `json:"ops"`   // operations done; never 0
}

// Limits of what a host accepts.
const (
	MaxLine    = 4 << 20 // bytes in a line
	MaxRecords = 100_000 // in a stream
	MaxSamples = 20_000  // raw samples in one Dist
	MaxNames   = 200     // different metrics, dists and checks
	MaxText    = 4096    // bytes of any text field
	MaxOutput  = 1 << 20 // bytes of all output records
)
