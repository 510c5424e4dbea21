// Package kconfig reads, merges, checks and compares kernel configurations:
// kbisect's fragments (package kconfigs) and .config files.
//
//	base, err := kconfig.Parse("kconfigs/base.config", r)
//	wanted, overrides := kconfig.Merge(base, net, user)
//	...                                    // make olddefconfig
//	err = kconfig.Check(wanted.For(final.Version), final, hint)
//
// The kernel's own merge_config.sh and olddefconfig drop a symbol they cannot
// satisfy without an error; Check is what notices.
//
// A fragment is a .config with two additions, both in a comment after the value:
//
//	CONFIG_A=y # optional              it may be dropped
//	CONFIG_B=y # kernels: >=5.11 <7.0  it is wanted on those only
//
// A ";" ends the notation; what follows is free text, as is any comment that
// begins with neither word.
package kconfig

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"sort"
	"strings"
)

// No is the value of a symbol that is not set. A .config that does not mention
// a symbol says the same.
const No = "n"

// Pos is where a symbol was read.
type Pos struct {
	File string
	Line int // from 1
}

func (p Pos) String() string { return fmt.Sprintf("%s:%d", p.File, p.Line) }

// Symbol is one line of a configuration.
type Symbol struct {
	Name     string // without CONFIG_
	Value    string // as in a .config: y, m, n, 250, 0x1000, "text" (with its quotes)
	Optional bool   // the kernel may drop it
	Kernels  Range  // where it is wanted
	Pos      Pos
}

// line returns the symbol as a line of a .config.
func (s Symbol) line() string {
	if s.Value == No {
		return "# CONFIG_" + s.Name + " is not set"
	}
	return "CONFIG_" + s.Name + "=" + s.Value
}

// Config is a set of symbols. It is not changed after it was made.
type Config struct {
	Name    string     // the file, or what Merge made of several
	Symbols []Symbol   // sorted by name, each name once
	Version Version    // of the kernel whose .config this is; zero for a fragment
	Dups    []Override // names that the file itself sets more than once; the last one counts
}

// Override is a symbol whose earlier value lost to a later, different one.
type Override struct {
	Old, New Symbol
}

func (o Override) String() string {
	return fmt.Sprintf("%s: CONFIG_%s=%s overrides %s of %s", o.New.Pos, o.New.Name, o.New.Value, o.Old.Value, o.Old.Pos)
}

// Get returns the value of name, No if it is not set, and whether the
// configuration mentions it.
func (c *Config) Get(name string) (value string, mentioned bool) {
	if s := c.find(name); s != nil {
		return s.Value, true
	}
	return No, false
}

func (c *Config) find(name string) *Symbol {
	i := sort.Search(len(c.Symbols), func(i int) bool { return c.Symbols[i].Name >= name })
	if i < len(c.Symbols) && c.Symbols[i].Name == name {
		return &c.Symbols[i]
	}
	return nil
}

// Merge puts configurations over each other, the later over the earlier, and
// returns the overrides in the order in which they happened. Call For on each
// first: a symbol that another kernel wants must not override one of this.
func Merge(configs ...*Config) (*Config, []Override) {
	var names []string
	var overrides []Override
	at := make(map[string]Symbol)
	for _, c := range configs {
		names = append(names, c.Name)
		for _, s := range c.Symbols {
			if old, ok := at[s.Name]; ok {
				if old.Value != s.Value {
					overrides = append(overrides, Override{Old: old, New: s})
				} else {
					// Whoever needs it for sure wins over who could do without.
					s.Optional = s.Optional && old.Optional
				}
			}
			at[s.Name] = s
		}
	}
	return &Config{Name: strings.Join(names, " + "), Symbols: sorted(at)}, overrides
}

// sorted returns the symbols of m by name.
func sorted(m map[string]Symbol) []Symbol {
	list := make([]Symbol, 0, len(m))
	for _, s := range m {
		list = append(list, s)
	}
	sort.Slice(list, func(i, j int) bool {
		if list[i].Name != list[j].Name {
			return list[i].Name < list[j].Name
		}
		return list[i].Pos.Line < list[j].Pos.Line
	})
	return list
}

// For returns the symbols that are wanted on kernel v. The zero Version (not
// known) keeps those without bounds only. Where ranges overlap, the later line
// wins. The bounds are dropped, so that a line for other kernels changes neither
// the result nor its Hash.
func (c *Config) For(v Version) *Config {
	at := make(map[string]Symbol)
	for _, s := range c.Symbols {
		if s.Kernels.Contains(v) {
			s.Kernels = Range{}
			at[s.Name] = s // those of one name are in the order of the file
		}
	}
	return &Config{Name: c.Name, Version: c.Version, Dups: c.Dups, Symbols: sorted(at)}
}

// Without returns the symbols that other does not mention.
func (c *Config) Without(other *Config) *Config {
	out := &Config{Name: c.Name, Version: c.Version, Dups: c.Dups}
	for _, s := range c.Symbols {
		if other.find(s.Name) == nil {
			out.Symbols = append(out.Symbols, s)
		}
	}
	return out
}

// WriteTo writes the configuration as the kernel reads it, sorted, without
// comments.
func (c *Config) WriteTo(w io.Writer) (int64, error) {
	var b strings.Builder
	for _, s := range c.Symbols {
		b.WriteString(s.line())
		b.WriteByte('\n')
	}
	n, err := io.WriteString(w, b.String())
	return int64(n), err
}

// volatile reports whether a symbol describes the compiler that wrote a .config
// (its version text, and what it was found to be able to do), not a choice.
func volatile(name string) bool {
	switch name {
	case "CC_VERSION_TEXT", "GCC_VERSION", "CLANG_VERSION", "AS_VERSION", "LD_VERSION", "LLD_VERSION",
		"RUSTC_VERSION", "RUSTC_VERSION_TEXT", "RUSTC_LLVM_VERSION", "BINDGEN_VERSION_TEXT", "PAHOLE_VERSION":
		return true
	}
	return false
}

// Hash identifies what the configuration asks for: every name, value, bound and
// option, whatever the order, the comments, the file names and the compiler.
func (c *Config) Hash() string {
	h := sha256.New()
	for _, s := range c.Symbols {
		if !volatile(s.Name) {
			fmt.Fprintf(h, "%s=%s %t %s\n", s.Name, s.Value, s.Optional, s.Kernels)
		}
	}
	return hex.EncodeToString(h.Sum(nil))
}

// Change is one symbol that differs between two configurations.
type Change struct {
	Name     string
	Old, New string // No where it is not set
}

func (c Change) String() string { return fmt.Sprintf("CONFIG_%s: %s -> %s", c.Name, c.Old, c.New) }

// Drift returns what changed from a to b, sorted by name. A symbol that one of
// them does not mention is No there, so one that came into being unset is no
// change; neither is another compiler.
func Drift(a, b *Config) []Change {
	var changes []Change
	add := func(name, was, is string) {
		if was != is && !volatile(name) {
			changes = append(changes, Change{Name: name, Old: was, New: is})
		}
	}
	for _, s := range a.Symbols {
		is, _ := b.Get(s.Name)
		add(s.Name, s.Value, is)
	}
	for _, s := range b.Symbols {
		if _, mentioned := a.Get(s.Name); !mentioned {
			add(s.Name, No, s.Value)
		}
	}
	sort.Slice(changes, func(i, j int) bool { return changes[i].Name < changes[j].Name })
	return changes
}
