package source

import (
	"cmp"
	"strings"
)

// compareVersions orders two Debian versions as dpkg does: epoch, upstream
// version, revision; "~" sorts before everything, even the end.
func compareVersions(a, b string) int {
	ea, ua, ra := splitVersion(a)
	eb, ub, rb := splitVersion(b)
	return cmp.Or(comparePart(ea, eb), comparePart(ua, ub), comparePart(ra, rb))
}

// splitVersion splits epoch:upstream-revision; what is missing is "".
func splitVersion(v string) (epoch, upstream, revision string) {
	if e, rest, ok := strings.Cut(v, ":"); ok {
		epoch, v = e, rest
	}
	if i := strings.LastIndexByte(v, '-'); i >= 0 {
		return epoch, v[:i], v[i+1:]
	}
	return epoch, v, ""
}

func comparePart(a, b string) int {
	for a != "" || b != "" {
		var ta, tb string
		ta, a = span(a, false)
		tb, b = span(b, false)
		if c := compareText(ta, tb); c != 0 {
			return c
		}
		ta, a = span(a, true)
		tb, b = span(b, true)
		ta, tb = strings.TrimLeft(ta, "0"), strings.TrimLeft(tb, "0")
		// As text of equal length, so that no number is too long.
		if c := cmp.Or(cmp.Compare(len(ta), len(tb)), strings.Compare(ta, tb)); c != 0 {
			return c
		}
	}
	return 0
}

// span splits off the leading digits (or non-digits) of s.
func span(s string, digits bool) (head, rest string) {
	i := 0
	for i < len(s) && (s[i] >= '0' && s[i] <= '9') == digits {
		i++
	}
	return s[:i], s[i:]
}

// compareText orders non-digits: "~", then the end, then letters, then the rest.
func compareText(a, b string) int {
	order := func(s string, i int) int {
		switch {
		case i >= len(s):
			return 0
		case s[i] == '~':
			return -1
		case s[i] >= 'a' && s[i] <= 'z' || s[i] >= 'A' && s[i] <= 'Z':
			return int(s[i])
		}
		return int(s[i]) + 256
	}
	for i := 0; i < len(a) || i < len(b); i++ {
		if c := cmp.Compare(order(a, i), order(b, i)); c != 0 {
			return c
		}
	}
	return 0
}
