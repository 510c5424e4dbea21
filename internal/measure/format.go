package measure

import (
	"math"
	"strconv"
	"strings"

	"github.com/kbisect/kbisect/guest/proto"
)

// scale is one suffix of a unit.
type scale struct {
	suffix string
	factor float64
	show   bool // used to print, not only to read
}

// scales returns a unit's suffixes from the smallest up.
func scales(u proto.Unit) []scale {
	switch u {
	case proto.Nanoseconds:
		return []scale{{"ns", 1, true}, {"us", 1e3, true}, {"ms", 1e6, true}, {"s", 1e9, true}, {"m", 60e9, false}}
	case proto.PerSecond:
		return []scale{{"", 1, false}, {"k", 1e3, false}, {"M", 1e6, false}, {"G", 1e9, false},
			{"/s", 1, true}, {"k/s", 1e3, true}, {"M/s", 1e6, true}, {"G/s", 1e9, true}}
	case proto.PerMillion:
		return []scale{{"", 1, false}, {"ppm", 1, true}}
	case proto.Bytes:
		return []scale{{"", 1, false}, {"B", 1, true}, {"KiB", 1 << 10, true}, {"MiB", 1 << 20, true}, {"GiB", 1 << 30, true}}
	case proto.Count:
		return []scale{{"", 1, true}, {"k", 1e3, true}, {"M", 1e6, true}, {"G", 1e9, true}}
	}
	return []scale{{"", 1, true}}
}

// suffixes returns what may follow a number of this unit, quoted where empty.
func suffixes(u proto.Unit) []string {
	var out []string
	for _, s := range scales(u) {
		if s.suffix != "" {
			out = append(out, s.suffix)
		}
	}
	if len(out) == 0 {
		return []string{"no unit"}
	}
	return out
}

func factor(suffix string, u proto.Unit) (float64, bool) {
	for _, s := range scales(u) {
		if s.suffix == suffix {
			return s.factor, true
		}
	}
	return 0, false
}

// Format prints a value for people: three significant digits at most, a unit in
// reach, ">" when it is censored: "15.6 s", "40 ms", ">60 s", "2.61 M/s", "1321".
func Format(v Value) string {
	s := FormatNumber(v.Number, v.Unit)
	if v.Censored {
		return ">" + s
	}
	return s
}

// FormatNumber is Format for a number that is not censored.
func FormatNumber(n float64, u proto.Unit) string {
	if math.IsNaN(n) || math.IsInf(n, 0) {
		return strconv.FormatFloat(n, 'g', -1, 64)
	}
	if u == proto.Count && math.Abs(n) < 1e5 && n == math.Trunc(n) {
		return strconv.FormatFloat(n, 'f', 0, 64) // a count that fits is shown whole
	}
	n = threeDigits(n) // first: 999.9 us is 1 ms, not 1000 us
	best := scale{factor: 1}
	first := true
	for _, s := range scales(u) {
		if s.show && (first || math.Abs(n) >= s.factor) {
			best, first = s, false
		}
	}
	number := strconv.FormatFloat(n/best.factor, 'g', 3, 64)
	if strings.Contains(number, "e") { // beyond the largest suffix
		number = strconv.FormatFloat(n/best.factor, 'f', -1, 64)
	}
	if best.suffix == "" {
		return number
	}
	return number + " " + best.suffix
}

// PacketRate prints packets a second as network people write them: "2.61 Mpps".
func PacketRate(perSecond float64) string {
	s := FormatNumber(perSecond, proto.PerSecond)
	return strings.TrimSuffix(s, "/s") + "pps"
}

// threeDigits rounds to three significant digits.
func threeDigits(n float64) float64 {
	v, err := strconv.ParseFloat(strconv.FormatFloat(n, 'e', 2, 64), 64)
	if err != nil {
		return n
	}
	return v
}

// exact prints a number so that it can be read back: the largest unit that
// divides it without a remainder.
func exact(n float64, u proto.Unit) string {
	best := scale{factor: 1}
	first := true
	for _, s := range scales(u) {
		if !s.show {
			continue
		}
		if q := n / s.factor; first || q >= 1 && q == math.Trunc(q) && q*s.factor == n {
			best, first = s, false
		}
	}
	return strconv.FormatFloat(n/best.factor, 'f', -1, 64) + best.suffix
}
