package kconfig

import (
	"fmt"
	"strconv"
	"strings"
)

// Version is a kernel version: 6.1.192 is {6, 1, 192}. The zero value means
// that it is not known.
type Version [3]int

// ParseVersion reads "6.1", "6.1.192", "7.2-rc3" or "6.1.0-13-amd64"; what
// follows the numbers is ignored.
func ParseVersion(s string) (Version, error) {
	var v Version
	rest := s
	for i := range v {
		digits := rest[:len(rest)-len(strings.TrimLeft(rest, "0123456789"))]
		n, err := strconv.Atoi(digits)
		if err != nil || n > 65535 {
			return Version{}, fmt.Errorf("parse kernel version %q: want MAJOR.MINOR, as in 6.1", s)
		}
		v[i] = n
		rest = rest[len(digits):]
		next, more := strings.CutPrefix(rest, ".")
		if !more || i == len(v)-1 {
			if i == 0 {
				return Version{}, fmt.Errorf("parse kernel version %q: want MAJOR.MINOR, as in 6.1", s)
			}
			break
		}
		// "6.1.y" and "6.1." are 6.1.
		if i > 0 && (next == "" || next[0] < '0' || next[0] > '9') {
			break
		}
		rest = next
	}
	return v, nil
}

// Less reports whether v is older than o.
func (v Version) Less(o Version) bool {
	for i := range v {
		if v[i] != o[i] {
			return v[i] < o[i]
		}
	}
	return false
}

func (v Version) String() string {
	if v[2] == 0 {
		return fmt.Sprintf("%d.%d", v[0], v[1])
	}
	return fmt.Sprintf("%d.%d.%d", v[0], v[1], v[2])
}

// Range is a span of kernel versions: From is in it, Before is not. A zero end
// is open.
type Range struct {
	From, Before Version
}

// Contains reports whether v is in the range. An unknown version is only in the
// range without bounds.
func (r Range) Contains(v Version) bool {
	if r == (Range{}) {
		return true
	}
	if v == (Version{}) || v.Less(r.From) {
		return false
	}
	return r.Before == (Version{}) || v.Less(r.Before)
}

// String returns the notation that ParseRange reads.
func (r Range) String() string {
	var parts []string
	if r.From != (Version{}) {
		parts = append(parts, ">="+r.From.String())
	}
	if r.Before != (Version{}) {
		parts = append(parts, "<"+r.Before.String())
	}
	return strings.Join(parts, " ")
}

// ParseRange reads ">=5.11", "<7.0" or both, separated by blanks.
func ParseRange(s string) (Range, error) {
	var r Range
	bounds := strings.Fields(s)
	if len(bounds) == 0 {
		return r, fmt.Errorf("parse kernel range %q: want >=5.11, <7.0 or both", s)
	}
	for _, b := range bounds {
		end, text := &r.From, strings.TrimPrefix(b, ">=")
		if text == b {
			end, text = &r.Before, strings.TrimPrefix(b, "<")
		}
		if text == b || *end != (Version{}) {
			return Range{}, fmt.Errorf("parse kernel range %q: %q is not one >=VERSION or one <VERSION", s, b)
		}
		v, err := ParseVersion(text)
		if err != nil {
			return Range{}, fmt.Errorf("parse kernel range %q: %w", s, err)
		}
		if v == (Version{}) {
			return Range{}, fmt.Errorf("parse kernel range %q: there is no kernel 0.0", s)
		}
		*end = v
	}
	if r.Before != (Version{}) && !r.From.Less(r.Before) {
		return Range{}, fmt.Errorf("parse kernel range %q: it is empty", s)
	}
	return r, nil
}
