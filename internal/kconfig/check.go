package kconfig

import (
	"fmt"
	"strings"
)

// Miss is one symbol that is not what was asked for.
type Miss struct {
	Want Symbol
	Got  string // No when it is not set
	Hint string // why, where that is known: "depends on BLOCK, which is n"
}

func (m Miss) String() string {
	text := fmt.Sprintf("%s: CONFIG_%s: wanted %s, got %s", m.Want.Pos, m.Want.Name, m.Want.Value, m.Got)
	if m.Hint != "" {
		text += ": " + m.Hint
	}
	return text
}

// CheckError lists what did not survive the kernel's own dependencies.
type CheckError struct {
	Misses []Miss
}

func (e *CheckError) Error() string {
	if len(e.Misses) == 1 {
		return "kernel config: " + e.Misses[0].String()
	}
	var b strings.Builder
	fmt.Fprintf(&b, "kernel config: %d symbols did not survive:", len(e.Misses))
	for _, m := range e.Misses {
		b.WriteString("\n  " + m.String())
	}
	return b.String()
}

// Hinter says why a symbol is not as wanted, "" if it does not know. (*Tree).Hint
// is one; it gets the final configuration.
type Hinter func(want Symbol, final *Config) string

// Check compares each symbol of wanted that is not optional with the final
// .config, and returns a *CheckError when one differs. hint may be nil.
func Check(wanted, final *Config, hint Hinter) error {
	var misses []Miss
	for _, s := range wanted.Symbols {
		got, _ := final.Get(s.Name)
		if s.Optional || sameValue(s.Value, got) {
			continue
		}
		m := Miss{Want: s, Got: got}
		if hint != nil {
			m.Hint = hint(s, final)
		}
		misses = append(misses, m)
	}
	if len(misses) == 0 {
		return nil
	}
	return &CheckError{Misses: misses}
}

// sameValue compares values as the kernel does: an empty string is not written
// by every version, and hexadecimal digits have no case.
func sameValue(want, got string) bool {
	switch {
	case want == got:
		return true
	case want == `""` && got == No:
		return true
	case strings.HasPrefix(strings.ToLower(want), "0x"):
		return strings.EqualFold(want, got)
	}
	return false
}
