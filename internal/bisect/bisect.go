// Package bisect decides: which kernel to run next, and when enough runs were
// made to say something. It is pure. It starts nothing, reads no clock and draws
// no random number that it was not given, so the same observations in the same
// order always give the same steps, and a journal of them is all that resuming
// needs.
//
// A Duel compares two kernels run by run:
//
//	d, err := bisect.NewDuel(bisect.Rules{LookFor: bisect.Higher, Tests: stats.Exact{}})
//	for {
//		side, decision := d.Next()
//		if decision != nil {
//			return decision
//		}
//		err := d.Add(side, run(side)) // one boot, one workload
//	}
package bisect

import (
	"encoding"
	"fmt"
	"slices"
)

// Side is one of the two kernels of a duel. The names are those of a range's
// ends; for a patch, with is Good and without is Bad. Neither name assumes a
// result.
type Side int

// Sides.
const (
	Good Side = iota + 1
	Bad
)

// Direction says how numbers lie to one another.
type Direction int

// Directions. The zero value is "either" or "none", as the field says.
const (
	Higher Direction = iota + 1
	Lower
)

// Verdict is what a duel ends with.
type Verdict int

// Verdicts. A duel that still needs runs is Undecided.
const (
	Undecided    Verdict = iota
	Differ               // the two kernels differ
	NoDifference         // no difference as large as asked for was found, or will be
	Untestable           // a side cannot be measured
	Inconclusive         // stopped without an answer
)

var (
	sideNames      = []string{"none", "good", "bad"}
	directionNames = []string{"either", "higher", "lower"}
	verdictNames   = []string{"undecided", "differ", "no difference", "untestable", "inconclusive"}
	kindNames      = []string{"none", "measured", "broken", "infra"}
)

// The text forms are what a result or a journal holds.
var (
	_ encoding.TextMarshaler   = Side(0)
	_ encoding.TextUnmarshaler = (*Verdict)(nil)
)

// String is "good", "bad" or "none".
func (s Side) String() string { return name(sideNames, int(s)) }

// String is "higher", "lower" or "either".
func (d Direction) String() string { return name(directionNames, int(d)) }

// String is the verdict in words.
func (v Verdict) String() string { return name(verdictNames, int(v)) }

// String is the kind in lower case.
func (k Kind) String() string { return name(kindNames, int(k)) }

// MarshalText is String.
func (s Side) MarshalText() ([]byte, error) { return encode(sideNames, int(s)) }

// MarshalText is String.
func (d Direction) MarshalText() ([]byte, error) { return encode(directionNames, int(d)) }

// MarshalText is String.
func (v Verdict) MarshalText() ([]byte, error) { return encode(verdictNames, int(v)) }

// MarshalText is String.
func (k Kind) MarshalText() ([]byte, error) { return encode(kindNames, int(k)) }

// UnmarshalText is the inverse of MarshalText.
func (s *Side) UnmarshalText(b []byte) error { return decode(sideNames, b, (*int)(s)) }

// UnmarshalText is the inverse of MarshalText.
func (d *Direction) UnmarshalText(b []byte) error { return decode(directionNames, b, (*int)(d)) }

// UnmarshalText is the inverse of MarshalText.
func (v *Verdict) UnmarshalText(b []byte) error { return decode(verdictNames, b, (*int)(v)) }

// UnmarshalText is the inverse of MarshalText.
func (k *Kind) UnmarshalText(b []byte) error { return decode(kindNames, b, (*int)(k)) }

func name(names []string, i int) string {
	if i < 0 || i >= len(names) {
		return fmt.Sprintf("%d", i)
	}
	return names[i]
}

func encode(names []string, i int) ([]byte, error) {
	if i < 0 || i >= len(names) {
		return nil, fmt.Errorf("encode %d: not one of %q", i, names)
	}
	return []byte(names[i]), nil
}

func decode(names []string, b []byte, to *int) error {
	i := slices.Index(names, string(b))
	if i < 0 {
		return fmt.Errorf("decode %q: not one of %q", b, names)
	}
	*to = i
	return nil
}

// other is the opposite direction.
func (d Direction) other() Direction {
	if d == 0 {
		return 0
	}
	return Higher + Lower - d
}

// Kind classes the outcome of one run.
type Kind int

// Kinds of outcome.
const (
	Measured  Kind = iota + 1 // there is an answer
	Broken                    // the kernel did not build, boot or run the workload
	InfraFail                 // host trouble: says nothing of the kernel, to be repeated
)

// Outcome is what one run (one boot, one execution of the workload) said.
//
// A run that hit its limit is Measured with Censored when timeouts count as bad,
// and Broken otherwise; that is the caller's rule, as is the case of a run that
// was stopped too early to be placed at the threshold, which is Broken.
type Outcome struct {
	Kind   Kind   `json:"kind"`
	Reason string `json:"reason,omitempty"` // why it is not Measured
	// Hit reports whether the threshold was met; used when Rules.Threshold is set.
	Hit bool `json:"hit,omitempty"`
	// Number is the value, when HasNumber; the truth is larger when Censored.
	Number    float64 `json:"number,omitempty"`
	HasNumber bool    `json:"has_number,omitempty"`
	// Event reports whether a rare event was seen, and Exposure, in any unit, how
	// long it took until the first one, or the whole run; used under Rules.Rates.
	Event    bool    `json:"event,omitempty"`
	Exposure float64 `json:"exposure,omitempty"`
	Censored bool    `json:"censored,omitempty"`
}
