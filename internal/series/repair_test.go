package series

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/bluekeyes/go-gitdiff/gitdiff"
)

// edit is a line of two versions of a file: in both (' '), or in one.
type edit struct {
	mark byte
	text string
}

// versions returns the file before and after.
func versions(edits []edit) (before, after []string) {
	for _, e := range edits {
		if e.mark != '+' {
			before = append(before, e.text)
		}
		if e.mark != '-' {
			after = append(after, e.text)
		}
	}
	return before, after
}

func joined(lines []string) string {
	if len(lines) == 0 {
		return ""
	}
	return strings.Join(lines, "\n") + "\n"
}

// diffOf makes the diff of a file as git does, with three lines of context.
func diffOf(name string, edits []edit) string {
	keep := make([]bool, len(edits))
	for i, e := range edits {
		if e.mark != ' ' {
			for k := max(0, i-3); k < min(len(edits), i+4); k++ {
				keep[k] = true
			}
		}
	}
	var b strings.Builder
	fmt.Fprintf(&b, "diff --git a/%s b/%s\nindex 0123456789ab..ba9876543210 100644\n--- a/%s\n+++ b/%s\n", name, name, name, name)
	oldAt, newAt, section, next := 1, 1, "", ""
	for i := 0; i < len(edits); {
		if !keep[i] {
			if edits[i].text != "" && isLetter(edits[i].text[0]) && !strings.HasSuffix(edits[i].text, ":") {
				next = edits[i].text
			}
			oldAt, newAt, i = oldAt+1, newAt+1, i+1
			continue
		}
		section = next
		from, o, n := i, 0, 0
		for ; i < len(edits) && keep[i]; i++ {
			if edits[i].mark != '+' {
				o++
			}
			if edits[i].mark != '-' {
				n++
			}
			if t := edits[i].text; edits[i].mark != '+' && t != "" && isLetter(t[0]) && !strings.HasSuffix(t, ":") {
				next = t
			}
		}
		fmt.Fprintf(&b, "@@ -%d,%d +%d,%d @@", oldAt, o, newAt, n)
		if section != "" {
			b.WriteString(" " + section)
		}
		b.WriteString("\n")
		for _, e := range edits[from:i] {
			fmt.Fprintf(&b, "%c%s\n", e.mark, e.text)
		}
		oldAt, newAt = oldAt+o, newAt+n
	}
	return b.String()
}

// applyExactly applies a patch of one file at the lines its hunks name.
func applyExactly(t testing.TB, p Patch, file []string, reverse bool) []string {
	t.Helper()
	var out []string
	at := 0
	for _, h := range p.files[0].TextFragments {
		from := int(position(h, reverse))
		if n := h.OldLines; !reverse && n > 0 || reverse && h.NewLines > 0 {
			from--
		}
		if from < at || from > len(file) {
			t.Fatalf("hunk at %d, of a file of %d lines, after line %d", from, len(file), at)
		}
		out = append(out, file[at:from]...)
		at = from
		for _, l := range h.Lines {
			text := strings.TrimSuffix(l.Line, "\n")
			gone := l.Op == gitdiff.OpDelete && !reverse || l.Op == gitdiff.OpAdd && reverse
			if l.Op == gitdiff.OpContext || gone {
				if at >= len(file) || file[at] != text {
					t.Fatalf("line %d is not %q", at+1, text)
				}
				at++
			}
			if !gone {
				out = append(out, text)
			}
		}
	}
	return append(out, file[at:]...)
}

// The ways in which a diff is damaged. Each gets a diff and gives the damaged one.
var damages = []struct {
	name string
	do   func(r *rand.Rand, diff string) string
}{
	{"tabs to blanks", func(r *rand.Rand, d string) string {
		return eachLine(d, func(s string) string { return strings.ReplaceAll(s, "\t", strings.Repeat(" ", 1+len(d)%8)) })
	}},
	{"tabs expanded with the mark", func(_ *rand.Rand, d string) string { return eachLine(d, expandTabs) }},
	{"indentation of lines lost", func(_ *rand.Rand, d string) string {
		return eachLine(d, func(s string) string { return strings.TrimLeft(s, " \t") })
	}},
	{"indentation lost behind marks too", func(_ *rand.Rand, d string) string {
		return eachLine(d, func(s string) string {
			if s != "" && (s[0] == '+' || s[0] == '-') {
				return s[:1] + strings.TrimLeft(s[1:], " \t")
			}
			return strings.TrimLeft(s, " \t")
		})
	}},
	{"runs of blanks collapsed", func(_ *rand.Rand, d string) string {
		return eachLine(d, func(s string) string { return blankRun.ReplaceAllString(s, " ") })
	}},
	{"trailing blanks lost", func(_ *rand.Rand, d string) string {
		return eachLine(d, func(s string) string { return strings.TrimRight(s, " \t") })
	}},
	{"blank lines lost", func(_ *rand.Rand, d string) string { return blankLines.ReplaceAllString(d, "") }},
	{"wrapped", func(r *rand.Rand, d string) string { return wrap(d, 50, "") }},
	{"flowed", func(r *rand.Rand, d string) string { return wrap(d, 60, " ") }},
	{"non-breaking", func(_ *rand.Rand, d string) string {
		return eachLine(d, func(s string) string { return strings.ReplaceAll(s, "\t", nbsp+" "+nbsp) })
	}},
	{"CRLF", func(_ *rand.Rand, d string) string { return strings.ReplaceAll(d, "\n", "\r\n") }},
	{"signature", func(_ *rand.Rand, d string) string { return d + "-- \n2.28.0* some text of the archive\n" }},
	{"index", func(_ *rand.Rand, d string) string { return strings.Replace(d, "\nindex ", "\nindex  zz ", 1) }},
	{"header", func(_ *rand.Rand, d string) string { return strings.ReplaceAll(d, "--- a", "---  "+nbsp+"a") }},
}

var (
	blankRun   = regexp.MustCompile(`[ \t]+`)
	blankLines = regexp.MustCompile(`(?m)^[ \t]?\n`)
)

func eachLine(text string, f func(string) string) string {
	lines := strings.Split(strings.TrimSuffix(text, "\n"), "\n")
	for i := range lines {
		lines[i] = f(lines[i])
	}
	return strings.Join(lines, "\n") + "\n"
}

func expandTabs(s string) string {
	var b strings.Builder
	for _, c := range s {
		if c == '\t' {
			b.WriteString(strings.Repeat(" ", 8-b.Len()%8))
			continue
		}
		b.WriteRune(c)
	}
	return b.String()
}

// wrap breaks lines of hunks at blanks, as mailers do.
func wrap(diff string, most int, end string) string {
	return eachLine(diff, func(s string) string {
		if len(s) <= most || strings.HasPrefix(s, "diff") || strings.HasPrefix(s, "index") || strings.HasPrefix(s, "---") || strings.HasPrefix(s, "+++") {
			return s
		}
		if i := strings.LastIndexByte(s[:most], ' '); i > 0 && strings.TrimSpace(s[1:i]) != "" {
			return s[:i] + end + "\n" + s[i+1:]
		}
		return s
	})
}

// randomC is a C file of n functions that looks like one of the kernel's.
func randomC(r *rand.Rand, n int) []string {
	most := 1 + r.IntN(100) // of the numbers in it: few make it repeat itself
	lines := []string{"// SPDX-License-Identifier: GPL-2.0", "#include <linux/list.h>", ""}
	pick := func(list ...string) string { return list[r.IntN(len(list))] }
	for f := range n {
		name := fmt.Sprintf("part%d_%s", f, pick("open", "close", "read", "flush"))
		if r.IntN(2) == 0 {
			lines = append(lines, "/*", " * "+name+" - does its part of the work", " */")
		}
		lines = append(lines, fmt.Sprintf("static int %s(struct part *part, unsigned int flags, struct list_head *queue)", name), "{", "\tint err = 0;", "")
		for range 2 + r.IntN(6) {
			switch r.IntN(8) {
			case 0:
				lines = append(lines, fmt.Sprintf("\tif (part->state == %d) {", r.IntN(most)), "\t\terr = -EINVAL;", "\t\tgoto out;", "\t}", "")
			case 1:
				lines = append(lines, fmt.Sprintf("\tpr_debug(\"part %%d of  the queue:\tstate %%d\\n\", part->id, %d);", r.IntN(most)))
			case 2:
				lines = append(lines, "\tlist_for_each_entry(p, queue, list)", "\t\tp->seen++;")
			case 3:
				lines = append(lines, fmt.Sprintf("\tpart->size = sizeof(*part)\t/* all of it */"), fmt.Sprintf("\t\t     + %d;", r.IntN(most)))
			case 4:
				lines = append(lines, "\tmutex_lock(&part->lock);", fmt.Sprintf("\tpart->flags |= 0x%x;", r.IntN(most)), "\tmutex_unlock(&part->lock);")
			case 5:
				lines = append(lines, "")
			case 6:
				lines = append(lines, fmt.Sprintf("\terr = part_queue_something_that_is_long(part, queue, flags | %d, &part->first);", r.IntN(most)))
			case 7:
				lines = append(lines, fmt.Sprintf("\tpart->a%d = flags;", r.IntN(most)))
			}
		}
		lines = append(lines, "out:", "\treturn err;", "}", "")
	}
	return lines
}

// randomEdits changes a few places of a file.
func randomEdits(r *rand.Rand, lines []string) []edit {
	var edits []edit
	change := map[int]bool{}
	for range 1 + r.IntN(3) {
		change[r.IntN(len(lines))] = true
	}
	for i, l := range lines {
		if !change[i] {
			edits = append(edits, edit{' ', l})
			continue
		}
		what := r.IntN(4)
		if what != 0 {
			edits = append(edits, edit{'-', l})
		}
		if what != 1 {
			for range 1 + r.IntN(4) {
				edits = append(edits, edit{'+', newLine(r, lines)})
			}
		}
		if what == 0 {
			edits = append(edits, edit{' ', l})
		}
	}
	return edits
}

func newLine(r *rand.Rand, lines []string) string {
	switch r.IntN(10) {
	case 9:
		return lines[r.IntN(len(lines))]
	case 0:
		return ""
	case 1:
		return "\t\treturn -ENOMEM;"
	case 2:
		return "\tpr_info(\"a new line,  with two blanks, that is long enough for a mailer to break it\\n\");"
	case 3:
		return "\t}"
	case 4:
		return fmt.Sprintf("\tif (part->new%d && some_condition_of_the_part(part, flags) && another(part))", r.IntN(9))
	case 5:
		return "\t\t  + sizeof(*part);"
	}
	return fmt.Sprintf("\tpart->added%d = flags;", r.IntN(99))
}

// sameButAdded compares a file with the one wanted: lines for which ours is false
// must be the same, others but for their white space.
func sameButAdded(got, want []string, ours []bool) error {
	if len(got) != len(want) {
		return fmt.Errorf("%d lines, want %d", len(got), len(want))
	}
	for i := range got {
		if got[i] != want[i] && (!ours[i] || squeeze(got[i]) != squeeze(want[i])) {
			return fmt.Errorf("line %d is %q, want %q", i+1, got[i], want[i])
		}
	}
	return nil
}

// checkRepair repairs a damaged diff by the file it was made for, or by the one
// that has it, and compares the result. It returns the error of a refusal.
func checkRepair(t *testing.T, edits []edit, damaged string, reverse bool) error {
	t.Helper()
	before, after := versions(edits)
	var ours []bool
	for _, e := range edits {
		switch {
		case e.mark == ' ':
			ours = append(ours, false)
		case e.mark == '+' && !reverse || e.mark == '-' && reverse:
			ours = append(ours, true)
		}
	}
	tree, want := before, after
	if reverse {
		tree, want = after, before
	}
	files := func(string) ([]byte, bool) { return []byte(joined(tree)), true }
	text, notes, err := repairText(files, "a.patch", []byte(damaged), 1)
	if err != nil {
		if d := new(DamageError); !errors.As(err, &d) || d.Line < 1 {
			t.Fatalf("error %v, want a DamageError with a line", err)
		}
		return err
	}
	p, err := Parse("a.patch", text)
	if err != nil {
		t.Fatalf("%v\n%s\nfrom\n%s", err, text, damaged)
	}
	// The text may fit either way, so that it is put in where it was taken out:
	// repairText says nothing of that. What is changed must be at its place.
	got := applyExactly(t, p, tree, reverse)
	if err := sameButAdded(got, want, ours); err != nil {
		t.Fatalf("another file: %v\n%s\nfrom\n%s\nnotes %q", err, text, damaged, notes)
	}
	return nil
}

// TestRepairDamages damages random diffs in each way alone.
func TestRepairDamages(t *testing.T) {
	for _, d := range damages {
		t.Run(d.name, func(t *testing.T) {
			refused, why := 0, ""
			const n = 40
			for seed := range uint64(n) {
				r := rand.New(rand.NewPCG(seed, 1))
				edits := randomEdits(r, randomC(r, 6))
				if err := checkRepair(t, edits, d.do(r, diffOf("a.c", edits)), seed%2 == 1); err != nil {
					refused, why = refused+1, err.Error()
				}
			}
			t.Logf("%d of %d refused, the last: %s", refused, n, why)
			// Where blank lines are lost beside a change, or a line goes on that could
			// be the next one, it cannot be known.
			most := 0
			switch d.name {
			case "blank lines lost":
				most = n / 2
			case "wrapped", "flowed":
				most = n / 4
			}
			if refused > most {
				t.Errorf("%d of %d refused, the last: %s", refused, n, why)
			}
		})
	}
}

// TestRepairNeverAnother damages random diffs in several ways at once. They are
// repaired to the same file or refused. KBISECT_REPAIR_SEEDS tries more of them.
func TestRepairNeverAnother(t *testing.T) {
	seeds := 150
	if n, err := strconv.Atoi(os.Getenv("KBISECT_REPAIR_SEEDS")); err == nil {
		seeds = n
	}
	refused := 0
	for seed := range uint64(seeds) {
		r := rand.New(rand.NewPCG(seed, 2))
		edits := randomEdits(r, randomC(r, 1+r.IntN(12)))
		diff := diffOf("a.c", edits)
		var names []string
		for range 1 + r.IntN(3) {
			d := damages[r.IntN(len(damages))]
			diff = d.do(r, diff)
			names = append(names, d.name)
		}
		if !t.Run(fmt.Sprintf("%d %s", seed, strings.Join(names, " ")), func(t *testing.T) {
			if checkRepair(t, edits, diff, r.IntN(2) == 0) != nil {
				refused++
			}
		}) {
			return
		}
	}
	t.Logf("%d of %d refused", refused, seeds)
	if refused > seeds*2/3 {
		t.Errorf("%d of %d refused", refused, seeds)
	}
}
