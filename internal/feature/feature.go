// Package feature recognises what a script lacks of the kernel it ran on, and
// names the configuration fragment (package kconfigs) that adds it.
//
//	for _, n := range feature.Missing(transcript) {
//		fmt.Printf("line %d: %s\n  %s\nadd --kconfig %s\n", n.Line, n.Command, n.Text, n.Fragment)
//	}
//	fragments := feature.InScript(text) // before anything is built
//
// A transcript is what `bash -x` prints, with the output of the commands in
// between: a line that begins with "+ " is a command that is about to run. The
// errors of iproute2 do not say what they are about ("Error: Unknown device
// type."), so the words of the command decide wherever there is one; tables say
// which of them need which fragment.
//
// Both functions take any input, in time linear in its length.
package feature

import (
	"bytes"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/kbisect/kbisect/kconfigs"
)

// Need is a feature of the kernel that a script missed.
type Need struct {
	Fragment string // to be added, as kconfigs.Get takes it; "" where no fragment has it
	Line     int    // of the error in the transcript, from 1
	Text     string // the error, shortened to 300 bytes
	Command  string // what failed, from the trace before it; "" is not known
	Why      string // what is missing: "CONFIG_BRIDGE", or in words
}

// Bounds of what is read and kept. The transcript of a loop may have thousands of
// errors, all of them about one thing.
const (
	maxTranscript = 4 << 20
	maxLine       = 2 << 10
	maxText       = 300
	maxNeeds      = 64
	// An error may come late: of `a | b` and `a & b` both are traced first.
	maxBack = 8
)

// Missing returns what a transcript shows to be missing, each fragment once, in
// the order of the errors; what no fragment has is there once a reason. At most
// 64 are returned, from the first 4 MiB.
func Missing(transcript []byte) []Need {
	transcript = transcript[:min(len(transcript), maxTranscript)]
	var recent []command // the last commands, newest last
	var needs []Need
	for n := 1; len(transcript) > 0 && len(needs) < maxNeeds; n++ {
		raw, rest, _ := bytes.Cut(transcript, []byte("\n"))
		transcript = rest
		line := strings.TrimRight(string(raw[:min(len(raw), maxLine)]), " \t\r")
		if text, ok := traced(line); ok {
			recent = append(recent, commands(text, 0)...)
			if old := len(recent) - maxBack; old > 0 {
				recent = slices.Delete(recent, 0, old)
			}
			continue
		}
		f, ok := failure(line, recent)
		if !ok {
			continue
		}
		f.Line, f.Text, f.Command = n, shorten(line), shorten(f.Command)
		if !slices.ContainsFunc(needs, func(o Need) bool {
			return o.Fragment == f.Fragment && (f.Fragment != "" || o.Why == f.Why)
		}) {
			needs = append(needs, f)
		}
	}
	return needs
}

// traced returns the command of a line of `set -x`, one "+" a level of shells.
func traced(line string) (string, bool) {
	rest := strings.TrimLeft(line, "+")
	if rest == line || !strings.HasPrefix(rest, " ") {
		return "", false
	}
	return rest[1:], true
}

// failure returns the need that an error line tells of.
func failure(line string, recent []command) (Need, bool) {
	for _, e := range messages {
		if !slices.ContainsFunc(e.has, func(word string) bool { return strings.Contains(line, word) }) {
			continue
		}
		m := e.re.FindStringSubmatch(line)
		if m == nil {
			continue
		}
		c, found := blame(recent, e.tools)
		if !found && e.trace {
			continue
		}
		if f, ok := e.need(c, m); ok {
			return Need{Fragment: f.fragment, Why: f.why, Command: c.text}, true
		}
	}
	return Need{}, false
}

// blame returns the newest command that one of the tools ran; with no tools, the
// newest of all.
func blame(recent []command, tools []string) (command, bool) {
	for i := len(recent) - 1; i >= 0; i-- {
		if len(tools) == 0 || slices.Contains(tools, recent[i].tool()) {
			return recent[i], true
		}
	}
	return command{}, false
}

// InScript returns the optional fragments that the commands of a shell script
// need, sorted. It is a hint: it names what the script says in so many words, and
// nothing for what stands in variables or in other files.
func InScript(script string) []string {
	var out []string
	for _, line := range scriptLines(script[:min(len(script), maxTranscript)]) {
		for _, c := range commands(line, 0) {
			f, ok := needOf(c)
			if !ok {
				f, ok = pathIn(c.text)
			}
			if ok && optional(f.fragment) && !slices.Contains(out, f.fragment) {
				out = append(out, f.fragment)
			}
		}
	}
	slices.Sort(out)
	return out
}

// optional reports whether a fragment has to be asked for: the shared ones are in
// every kernel.
func optional(name string) bool { return name != "" && slices.Contains(kconfigs.Optional(), name) }

// shorten keeps a line readable, and valid UTF-8.
func shorten(s string) string {
	s = strings.ToValidUTF8(s, "?")
	if len(s) <= maxText {
		return s
	}
	end := maxText
	for end > 0 && !utf8.RuneStart(s[end]) {
		end--
	}
	return s[:end] + "..."
}
