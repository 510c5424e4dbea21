package thread

import (
	"regexp"
	"strconv"
	"strings"
)

// How figures of time are printed: by time in its forms, with the tab behind the
// word lost or not; and by people, at the end of a line.
var (
	timeLine  = regexp.MustCompile(`^(real|user|sys)\s*(?:(\d+)h)?(?:(\d+)m)?(\d+(?:[.,]\d+)?)s?$`)
	realAfter = regexp.MustCompile(`^(.{0,200}[\s:=(])real:?\s*(?:(\d+)h)?(?:(\d+)m)?(\d+(?:[.,]\d+)?)s?\)?$`)
	gnuTime   = regexp.MustCompile(`(?:^|\s)(?:(\d+):)?(\d+):(\d+\.\d+)elapsed\b`)
	labelled  = regexp.MustCompile(`^.{0,300}\S\s*[:=]\s*~?(\d{1,12}(?:[.,]\d{1,9})?) ?(ns|us|µs|ms|msecs?|s|secs?|seconds?|mins?|minutes?|hours?|milliseconds?|microseconds?)[.;,]?$`)
	narrated  = regexp.MustCompile(`^.{0,300}\b(?:takes?|took|taking|needs?|needed|lasts?|lasted|spends?|spent|elapsed|down to|up to)\b[^.]{0,60}?\s~?(\d{1,12}(?:\.\d{1,9})?) ?(msecs?|secs?|seconds?|ms|mins?|minutes?|hours?|milliseconds?|microseconds?)[.:;,]?$`)
)

// isTiming reports whether a line is of the output of time.
func isTiming(s string) bool {
	s = strings.TrimSpace(s)
	return len(s) < 80 && (strings.HasPrefix(s, "real") || strings.HasPrefix(s, "user") || strings.HasPrefix(s, "sys")) && timeLine.MatchString(s)
}

// seconds reads the figure in a line, if there is one. What user and sys say is
// no figure of its own.
func seconds(s string) (float64, bool) {
	if s == "" || len(s) > 400 || !strings.ContainsAny(s, "0123456789") {
		return 0, false
	}
	if m := timeLine.FindStringSubmatch(s); m != nil {
		return clock(m[2], m[3], m[4]), m[1] == "real"
	}
	if strings.Contains(s, "real") {
		if m := realAfter.FindStringSubmatch(s); m != nil {
			return clock(m[2], m[3], m[4]), true
		}
	}
	if strings.Contains(s, "elapsed") {
		if m := gnuTime.FindStringSubmatch(s); m != nil {
			return clock(m[1], m[2], m[3]), true
		}
	}
	for _, form := range []*regexp.Regexp{labelled, narrated} {
		if m := form.FindStringSubmatch(s); m != nil {
			return inSeconds(number(m[1]), m[2]), true
		}
	}
	return 0, false
}

func clock(hours, minutes, seconds string) float64 {
	return number(hours)*3600 + number(minutes)*60 + number(seconds)
}

// number reads digits, with the decimal comma of some locales.
func number(s string) float64 {
	f, err := strconv.ParseFloat(strings.Replace(s, ",", ".", 1), 64)
	if err != nil {
		return 0 // it is empty
	}
	return f
}

// inSeconds converts a figure with its unit.
func inSeconds(f float64, unit string) float64 {
	switch {
	case unit == "ns":
		return f / 1e9
	case unit == "us" || unit == "µs" || strings.HasPrefix(unit, "micro"):
		return f / 1e6
	case unit == "ms" || strings.HasPrefix(unit, "msec") || strings.HasPrefix(unit, "milli"):
		return f / 1e3
	case strings.HasPrefix(unit, "min"):
		return f * 60
	case strings.HasPrefix(unit, "hour"):
		return f * 3600
	}
	return f
}

// timings collects the figures of all messages. One that is quoted again is
// left out; where it was quoted from may come later in the file.
func (t *Thread) timings(list []*message) {
	type figure struct {
		Timing
		quoted bool
	}
	var all []figure
	for _, m := range list {
		for i, tm := range m.timings() {
			all = append(all, figure{tm, m.lines[i].depth > 0})
		}
	}
	// By the text, and what was timed if that is known.
	written := map[string]bool{}
	for _, f := range all {
		if !f.quoted {
			written[timingKey(f.Text, "")] = true
			written[timingKey(f.Text, f.Command)] = true
		}
	}
	for _, f := range all {
		k := timingKey(f.Text, f.Command)
		if f.quoted && written[k] {
			continue
		}
		if f.quoted {
			written[timingKey(f.Text, "")], written[k] = true, true
		}
		if len(t.Timings) == MaxTimings {
			t.warn("there are more than %d figures of time; the first are kept", MaxTimings)
			return
		}
		t.Timings = append(t.Timings, f.Timing)
	}
}

func timingKey(text, command string) string {
	return strings.Join(strings.Fields(text), "") + "\x00" + strings.Join(strings.Fields(command), " ")
}

// timings yields the figures of a message, with the index of their line.
func (m *message) timings() func(yield func(int, Timing) bool) {
	return func(yield func(int, Timing) bool) {
		command := ""
		depth := 0
		after := false // a figure
		for i, l := range m.lines {
			text := strings.TrimSpace(l.bare)
			if l.zone != inText || text == "" {
				continue
			}
			if c, ok := m.commands[i]; ok {
				command, depth, after = c, l.depth, false
				continue
			}
			s, ok := seconds(text)
			if !ok && isTiming(text) {
				continue
			}
			if l.depth != depth || !ok && (after || isSentence(text)) {
				command = ""
			}
			if after = ok; !ok {
				continue
			}
			if !yield(i, Timing{Message: m.Number, Line: l.n, Text: text, Seconds: s, Command: command}) {
				return
			}
		}
	}
}
