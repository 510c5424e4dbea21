package thread

import (
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/kbisect/kbisect/internal/series"
)

// region is a range of a message's lines.
type region struct {
	from, to int
	damaged  bool // a hunk's lines are not what its header says
}

// findDiffs returns where diffs stand that are neither quoted nor indented.
func findDiffs(lines []line) []region {
	var list []region
	for i := 0; i < len(lines); {
		if lines[i].zone == inSignature || !beginsDiff(lines, i) {
			i++
			continue
		}
		r := diffAt(lines, i)
		list = append(list, r)
		i = r.to
	}
	return list
}

func at(lines []line, i int) string {
	if i < len(lines) {
		return lines[i].text
	}
	return ""
}

// beginsDiff reports whether a diff begins at line i: git's, or a plain one.
func beginsDiff(lines []line, i int) bool {
	return strings.HasPrefix(lines[i].text, "diff --git ") || beginsPlain(lines, i) && strings.HasPrefix(at(lines, i+2), "@@ -")
}

func beginsPlain(lines []line, i int) bool {
	s := lines[i].text
	return strings.HasPrefix(s, "--- ") && len(s) > 4 && s[4] != ' ' && strings.HasPrefix(at(lines, i+1), "+++ ")
}

// extended are the other lines a diff has before its hunks.
var extended = regexp.MustCompile(`^(index [0-9a-f]+\.\.|diff -|old mode |new mode |deleted file mode |new file mode |copy (from|to) |rename (from|to|old|new) |(dis)?similarity index |Binary files |\+\+\+ |Index: |={20})`)

// diffAt finds the end of the diff at line i: as long as hunks are as long as
// their headers say this is certain.
func diffAt(lines []line, i int) region {
	r := region{from: i, to: i + 1}
	for i < len(lines) && !stops(lines, i) {
		s := lines[i].text
		switch {
		case strings.HasPrefix(s, "@@ -"):
			var damaged bool
			i, damaged = hunkEnd(lines, i)
			r.damaged = r.damaged || damaged
		case strings.HasPrefix(s, "GIT binary patch"):
			i = binaryEnd(lines, i+1)
		case len(s) < maxLine && extended.MatchString(s) || beginsPlain(lines, i):
			i++
		case strings.TrimSpace(s) == "":
			next := i
			for next < len(lines) && strings.TrimSpace(lines[next].text) == "" {
				next++
			}
			if next == len(lines) || !strings.HasPrefix(lines[next].text, "@@ -") && !beginsDiff(lines, next) {
				return r
			}
			i = next
		default:
			return r
		}
		r.to = i
	}
	return r
}

// stops reports whether a message ends at line i, or quoted text begins.
func stops(lines []line, i int) bool {
	s := lines[i].text
	if strings.HasPrefix(s, ">") || footer(s) {
		return true
	}
	return (s == "-- " || s == "--") && (i+1 == len(lines) || gitVersion(at(lines, i+1)))
}

var hunkHeader = regexp.MustCompile(`^@@ -\d+(?:,(\d+))? \+\d+(?:,(\d+))? @@`)

// hunkEnd finds the end of the hunk at line i. In one that has lost indentation
// or empty lines, or was wrapped, the counts of its header say little: it goes on
// as long as lines look like a diff's.
func hunkEnd(lines []line, i int) (end int, damaged bool) {
	h := hunkHeader.FindStringSubmatch(lines[i].text[:min(len(lines[i].text), maxLine)])
	if h == nil {
		return i + 1, true
	}
	before, after := count(h[1]), count(h[2])
	i++
	for ; i < len(lines) && (before > 0 || after > 0); i++ {
		s := lines[i].text
		if stops(lines, i) || strings.HasPrefix(s, "diff --git ") || strings.HasPrefix(s, "@@ -") || beginsDiff(lines, i) {
			return i, true
		}
		switch op(s) {
		case ' ':
			before, after = before-1, after-1
		case '-':
			before--
		case '+':
			after--
		case 0:
			before, after = before-1, after-1
			damaged = true
		}
	}
	damaged = damaged || before != 0 || after != 0
	for i < len(lines) && strings.HasPrefix(lines[i].text, `\`) {
		i++
	}
	for damaged && i < len(lines) && !stops(lines, i) && !beginsDiff(lines, i) && goesOn(lines, i) {
		i++
	}
	return i, damaged
}

// op is what a line of a hunk is: ' ', '-', '+', '\\', or 0 if it is none.
func op(s string) byte {
	if s == "" {
		return ' '
	}
	switch s[0] {
	case ' ', '-', '+', '\\':
		return s[0]
	}
	return 0
}

// goesOn reports whether a damaged hunk goes on at line i: with a line that looks
// like a diff's, or with the second half of one.
func goesOn(lines []line, i int) bool {
	const reach = 3
	for j := i; j < min(len(lines), i+reach); j++ {
		s := lines[j].text
		if s == "" || stops(lines, j) {
			return false
		}
		if c := op(s); c == '+' || c == '-' || c == ' ' && j == i || s[0] == '\t' {
			return true
		}
	}
	return false
}

func count(s string) int {
	if s == "" {
		return 1
	}
	n, err := strconv.Atoi(s)
	if err != nil {
		return 0 // too large to be one
	}
	return n
}

// binaryEnd finds the end of a binary patch: "literal" or "delta", lines in
// base85, an empty line; twice.
func binaryEnd(lines []line, i int) int {
	for i < len(lines) && (strings.HasPrefix(lines[i].text, "literal ") || strings.HasPrefix(lines[i].text, "delta ")) {
		for i < len(lines) && lines[i].text != "" && !stops(lines, i) {
			i++
		}
		if i < len(lines) && lines[i].text == "" {
			i++
		}
	}
	return i
}

// quotedDiff reports whether a quoted line is of a diff's frame. Its hunks need
// no mark: their lines begin with a sign that no command has.
func quotedDiff(s string) bool {
	return strings.HasPrefix(s, "diff --git ") || strings.HasPrefix(s, "@@ -") || strings.HasPrefix(s, "--- a/") || strings.HasPrefix(s, "+++ b/")
}

// found is a patch with what it takes to put it into a series.
type found struct {
	Patch
	msg *message
}

// patches returns the patches in a message. marked is set if mails of the thread
// have [PATCH] in their subjects: then a diff elsewhere is a suggestion.
func (m *message) patches(name string, marked bool) []*found {
	if len(m.diffs) == 0 {
		return nil
	}
	followUp := m.tag.Reply || m.Kind == KindCover || marked && !m.tag.Marked
	if followUp || m.mail == nil && !m.tag.Marked {
		var list []*found
		for _, r := range m.diffs {
			list = append(list, m.patch(name, r, followUp))
		}
		return list
	}
	all := region{from: m.diffs[0].from, to: m.diffs[len(m.diffs)-1].to}
	return []*found{m.patch(name, all, false)}
}

// patch reads the patch in a range of lines.
func (m *message) patch(name string, r region, followUp bool) *found {
	p := &found{msg: m, Patch: Patch{
		Message: m.Number, Author: m.author(r), Date: m.Date, Subject: series.Title(m.Subject),
		Version: m.tag.Version, N: m.tag.N, Of: m.tag.Of, FollowUp: followUp,
		Raw: m.cut(r), Line: m.lines[r.from].n,
	}}
	if followUp { // its number and version are those of what it answers
		p.Version, p.N, p.Of = 1, 0, 0
	}
	if m.mail != nil && len(m.diffs) == 1 || m.mail != nil && !followUp {
		p.Patch.Patch, p.Err = m.mail.Patch(name)
	}
	if m.mail == nil || p.Err != nil {
		// Text below a diff, which a reply may have, can be in the mail's way.
		cut, err := series.ParseDiff(name, p.Raw, p.Line)
		if err == nil || m.mail == nil {
			p.Patch.Patch, p.Err = cut, err
		}
	}
	if len(p.Patch.Patch.Data) == 0 && p.Err == nil {
		p.Patch.Patch, p.Err = series.ParseDiff(name, p.Raw, p.Line)
	}
	if p.Subject == "" { // a diff alone
		p.Subject = p.Patch.Patch.Subject
	}
	p.Files = p.Patch.Patch.Files
	if p.Err != nil {
		p.Files = touched(p.Raw)
	} else if m.mail == nil {
		p.Patch.Patch.Subject = p.Subject
	}
	return p
}

// cut returns lines as they stand.
func (m *message) cut(r region) []byte {
	var out []byte
	for _, l := range m.lines[r.from:r.to] {
		if l.raw != nil {
			out = append(out, l.raw...)
		} else {
			out = append(out, l.text...)
		}
		out = append(out, '\n')
	}
	return out
}

// author is who wrote the patch below: the text says so in its first line when
// somebody else sent it.
func (m *message) author(r region) string {
	for _, l := range m.lines[:min(r.from, 10)] {
		if v, ok := strings.CutPrefix(l.text, "From: "); ok && !m.tag.Reply {
			return strings.TrimSpace(v)
		}
		if strings.TrimSpace(l.text) != "" && !strings.HasPrefix(l.text, "Subject: ") && !strings.HasPrefix(l.text, "Date: ") {
			break
		}
	}
	return m.Author
}

// touched lists the files a damaged diff says it is about.
func touched(raw []byte) []string {
	var list []string
	for l := range strings.Lines(string(raw)) {
		for _, prefix := range []string{"--- a/", "+++ b/"} {
			if name, ok := strings.CutPrefix(l, prefix); ok {
				name, _, _ = strings.Cut(strings.TrimRight(name, "\n"), "\t")
				list = append(list, strings.TrimRight(name, " "))
			}
		}
	}
	slices.Sort(list)
	return slices.Compact(list)
}
