package series

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

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
				lines = append(lines, "\tpart->size = sizeof(*part)\t/* all of it */", fmt.Sprintf("\t\t     + %d;", r.IntN(most)))
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
func checkRepair(t *testing.T, edits []edit, damaged string, reverse bool, shift int) error {
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
	for range shift { // the tree has grown above
		tree, want, ours = slices.Insert(tree, 0, "/* new */"), slices.Insert(want, 0, "/* new */"), slices.Insert(ours, 0, false)
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
				if err := checkRepair(t, edits, d.do(r, diffOf("a.c", edits)), seed%2 == 1, int(seed)%3*5); err != nil {
					refused, why = refused+1, err.Error()
				}
			}
			t.Logf("%d of %d refused, the last: %s", refused, n, why)
			// Where blank lines are lost beside a change, or a line goes on that could
			// be the next one, it cannot be known.
			most := 2 // the file repeats itself
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
			if checkRepair(t, edits, diff, r.IntN(2) == 0, r.IntN(3)*r.IntN(20)) != nil {
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

// partFile is a file of some functions that are alike.
const partFile = `// SPDX-License-Identifier: GPL-2.0
#include <linux/list.h>

#define PART_MAX	16

static int part_open(struct part *part)
{
	if (!part->ready)
		return -EAGAIN;

	part->users++;
	list_add(&part->list,
		 &parts);
	pr_debug("part  %d: opened\n", part->id);

	return 0;
}

static int part_close(struct part *part)
{
	if (!part->ready)
		return -EAGAIN;

	part->users--;

	return 0;
}

static int part_reset(struct part *part)
{
	if (!part->ready)
		return -EAGAIN;

	part->users = 0;

	return 0;
}
`

// editOf is partFile with an edit, as a good diff.
func editOf(t *testing.T, name, from string, edits ...string) (before, after, diff string) {
	t.Helper()
	var list []edit
	old := strings.Split(strings.TrimSuffix(from, "\n"), "\n")
	for i, l := range old {
		done := false
		for k := 0; k < len(edits); k += 2 {
			if edits[k] == fmt.Sprint(i+1) {
				for m := range strings.SplitSeq(edits[k+1], "\n") {
					list = append(list, edit{m[0], m[1:]})
				}
				done = true
			}
		}
		if !done {
			list = append(list, edit{' ', l})
		}
	}
	b, a := versions(list)
	return joined(b), joined(a), diffOf(name, list)
}

// TestRepair holds repairs against git: what is repaired gives the tree that the
// good diff gives.
func TestRepair(t *testing.T) {
	_, _, opened := editOf(t, "a.c", partFile, "11", "-\tpart->users++;\n+\tif (part->users++) {\n+\t\tpart->seen = true;\n+\t\treturn 0;\n+\t}")
	_, _, two := editOf(t, "a.c", partFile, "4", "-#define PART_MAX\t16\n+#define PART_MAX\t32", "34", "-\tpart->users = 0;\n+\tpart->users = part->first;")
	tree := map[string]string{"a.c": partFile, "sub/b.h": "int\ta;\nint\tb;\nint\tc;\n", "old.c": "int x;\nint y;\n"}
	several := opened + "diff --git a/sub/b.h b/sub/b.h\n--- a/sub/b.h\n+++ b/sub/b.h\n@@ -1,3 +1,3 @@\n int\ta;\n-int\tb;\n+long\tb;\n int\tc;\n"
	renamed := opened + "diff --git a/old.c b/new.c\nsimilarity index 100%\nrename from old.c\nrename to new.c\ndiff --git a/sub/b.h b/sub/b.h\nold mode 100644\nnew mode 100755\n"
	lost := func(s string) string { return damages[3].do(nil, s) }
	repo, base := scratch(t, tree)
	for name, c := range map[string]struct {
		good, bad string
		exact     bool // the tree is the same to the last blank
		notes     []string
	}{
		"nothing":       {opened, opened, true, nil},
		"expanded":      {opened, strings.ReplaceAll(opened, "\t", "        "), true, []string{"line 6: 8 leading blanks were 1 tab", "line 10: 8 leading blanks were 1 tab, as in the lines around it"}},
		"four":          {opened, strings.ReplaceAll(opened, "\t", "    "), true, []string{"line 11: 8 leading blanks were 2 tabs, as in the lines around it"}},
		"lost":          {opened, lost(opened), true, []string{"line 6: indentation restored", "line 10: indentation restored, as in the line it stands for", "line 11: indentation restored, by the braces around it"}},
		"collapsed":     {opened, blankRun.ReplaceAllString(opened, " "), true, []string{"line 11: 1 leading blank was 2 tabs, by the braces around it"}},
		"two hunks":     {two, lost(two), false, nil},
		"signature":     {two, lost(two) + "-- \n2.28.0* more text\n+1\n", false, nil},
		"no signature":  {two, lost(two) + "^ permalink\n", false, []string{"text behind the diff left out"}},
		"several":       {several, lost(several), false, nil},
		"rename, mode":  {renamed, lost(renamed), true, nil},
		"wrapped frame": {several, lost(strings.Replace(several, " b/sub", "\nb/sub", 1)), false, []string{"wrapped line joined"}},
		"moved":         {opened, lost(strings.Replace(opened, "@@ -8,7 +8,10 @@", "@@ -138,7 +138,10 @@", 1)), true, []string{"line 5: hunk 1 of a.c moved back by 130 lines"}},
		"plain diff":    {opened, lost(opened[strings.Index(opened, "---"):]), true, nil},
		"crlf":          {several, strings.ReplaceAll(lost(several), "\n", "\r\n"), false, []string{"line 1: lines end in CRLF; read as if they ended in LF"}},
	} {
		t.Run(name, func(t *testing.T) {
			want, err := Apply(t.Context(), repo, base, mustParse(t, "good", c.good), false)
			if err != nil {
				t.Fatal(err)
			}
			for _, reverse := range []bool{false, true} {
				commit, result := base, want
				if reverse {
					commit, result = want, base
				}
				p, notes, err := Repair(t.Context(), repo, commit, "bad.patch", []byte(c.bad), 1)
				if err != nil {
					t.Fatal(err)
				}
				if name == "nothing" && (len(notes) != 0 || string(p.Data) != c.bad) {
					t.Errorf("a good patch was changed: %q\n%s", notes, p.Data)
				}
				got, err := Apply(t.Context(), repo, commit, p, reverse)
				if err != nil {
					t.Fatalf("reverse %v: %v\n%s", reverse, err, p.Data)
				}
				args := []string{"diff", "--exit-code", got, result}
				if !c.exact {
					args = append(args, "-w")
				}
				if out, err := repo.Output(t.Context(), args...); err != nil {
					t.Errorf("reverse %v: another tree: %v\n%s\n%s", reverse, err, out, p.Data)
				}
				for _, n := range c.notes {
					if !reverse && !strings.Contains(strings.Join(notes, "\n"), n) {
						t.Errorf("notes %q, want %q", notes, n)
					}
				}
			}
		})
	}
}

// TestRepairRefused names the line of what cannot be repaired.
func TestRepairRefused(t *testing.T) {
	lost := func(s string) string { return damages[3].do(nil, s) }
	_, _, opened := editOf(t, "a.c", partFile, "11", "-\tpart->users++;\n+\tpart->users += 2;")
	// The same lines are in three functions.
	same := "--- a/a.c\n+++ b/a.c\n@@ -%d,4 +%d,4 @@%s\n {\n if (!part->ready)\n-return -EAGAIN;\n+return -EBUSY;\n \n"
	lib := "diff --git a/lib/%s b/lib/%s\n--- a/lib/%s\n+++ b/lib/%s\n@@ -1,3 +1,4 @@\n one:\n        two\n+        three\n        four\n"
	tree := map[string]string{"a.c": partFile}
	for _, name := range []string{"Makefile", "Kconfig.debug", "x.py", "x.rst", "x.yaml", "x.sh"} {
		tree["lib/"+name] = "one:\n\ttwo\n\tfour\n"
	}
	in := func(name string) string { return strings.ReplaceAll(lib, "%s", name) }
	repo, base := scratch(t, tree)
	for name, c := range map[string]struct {
		bad  string
		line int
		text string
	}{
		"several places":  {fmt.Sprintf(same, 100, 100, ""), 12, "at lines 7, 20, 30"},
		"other function":  {fmt.Sprintf(same, 20, 20, " static int part_reset(struct part *part)"), 12, "at lines 7, 20, 30"},
		"not in the tree": {strings.Replace(lost(opened), "return -EAGAIN", "return -EPERM", 1), 16, "old lines of hunk 1 of a.c"},
		"no such file":    {strings.ReplaceAll(lost(opened), "a.c", "b.c"), 10, "no b.c"},
		"Makefile":        {in("Makefile"), 16, "has a meaning"},
		"Kconfig":         {in("Kconfig.debug"), 16, "has a meaning"},
		"python":          {in("x.py"), 16, "has a meaning"},
		"rst":             {in("x.rst"), 16, "has a meaning"},
		"yaml":            {in("x.yaml"), 16, "has a meaning"},
		"shell":           {in("x.sh"), 16, "has a meaning"},
		"new file":        {lost(opened) + "diff --git a/n.c b/n.c\nnew file mode 100644\n--- /dev/null\n+++ b/n.c\n@@ -0,0 +1 @@\n+int x;\n", 27, "n.c is not in the tree"},
		"count":           {strings.Replace(lost(opened), "+8,7", "+8,8", 1), 22, "old lines of hunk 1"},
		"empty hunk":      {"--- a/a.c\n+++ b/a.c\n@@ -1,3 +1,4 @@", 12, "no lines"},
		"many lines":      {"--- a/a.c\n+++ b/a.c\n@@ -1,999999999 +1,4 @@", 12, "is to have 999999999 lines"},
		"no context":      {"--- a/a.c\n+++ b/a.c\n@@ -1,0 +1,1 @@\n+int x;\n", 12, "says where it belongs"},
	} {
		t.Run(name, func(t *testing.T) {
			p, notes, err := Repair(t.Context(), repo, base, "bad.patch", []byte(c.bad), 10)
			d := new(DamageError)
			if !errors.As(err, &d) {
				t.Fatalf("Repair = %q %q, %v, want a DamageError\n%s", p.Data, notes, err, c.bad)
			}
			if d.Line != c.line || !strings.Contains(d.Text, c.text) {
				t.Errorf("error %v, want line %d and %q", err, c.line, c.text)
			}
		})
	}
}

// TestRepairText has the cases that need no git.
func TestRepairText(t *testing.T) {
	const frame = "diff --git a/%[1]s b/%[1]s\n--- a/%[1]s\n+++ b/%[1]s\n"
	const text = "{\n\tone(first);\n\n\ttwo(second, third);\n\tthree(fourth);\n}\n"
	for name, c := range map[string]struct {
		file, hunk string
		want       string // in the diff that comes out, "" if it is refused
		note       string // or what the error says
	}{
		"string": {"a.c", "@@ -1,6 +1,7 @@\n{\none(first);\n\ntwo(second, third);\n-three(fourth);\n+three(\"a b\");\n+four();\n}\n",
			"+\tthree(\"a b\");\n+\tfour();\n", ""},
		"string collapsed": {"a.c", "@@ -1,6 +1,6 @@\n{\n one(first);\n\n two(second, third);\n-three( fourth);\n+ three(\"a b\");\n }\n",
			"+\tthree(\"a b\");\n", "blanks in its string kept as they stand"},
		"string wrapped": {"a.c", "@@ -1,6 +1,6 @@\n {\n \tone(first);\n \n \ttwo(second, third);\n-\tthree(fourth);\n+\tthree(\"a\nb\");\n }\n",
			"+\tthree(\"a b\");\n", "wrapped line joined with one blank"},
		"joined as the tree has it": {"a.c", "@@ -1,6 +1,5 @@\n {\n \tone(first);\n \n \ttwo(second,\nthird);\n-\tthree(fourth);\n }\n",
			" \ttwo(second, third);\n-\tthree(fourth);\n", "line 9: wrapped line joined"},
		"two ways to join": {"a.c", "@@ -4,3 +4,5 @@\n \ttwo(second, third);\n+\ta(b,\nthree(fourth);\n+\tc(d,\nthree(fourth);\n }\n",
			"", "can be read in more than one way"},
		"blank line lost beside a change": {"a.c", "@@ -1,6 +1,7 @@\n {\n \tone(first);\n+\tmore();\n \ttwo(second, third);\n \tthree(fourth);\n }\n",
			"", "can be read in more than one way"},
		"blank line lost elsewhere": {"a.c", "@@ -1,6 +1,6 @@\n {\n \tone(first);\n \ttwo(second, third);\n-\tthree(fourth);\n+\tthree();\n }\n",
			" \tone(first);\n \n \ttwo", "blank context line restored"},
		"context that begins with a mark": {"plus.c", "@@ -1,3 +1,3 @@\na\n+ b\n-c\n+d\n", " a\n \t+ b\n-c\n+d\n", "line 5: "},
		"marks keep the indentation":      {"Makefile", "@@ -1,3 +1,4 @@\nall:\n-\ta\n+\tb\n+\tc\nd\n", "-\ta\n+\tb\n+\tc\n \td\n", ""},
		"CRLF in the tree":                {"dos.c", "@@ -1,2 +1,2 @@\n a\n-b  c\n+d\n", " a\r\n-b c\r\n+d\r\n", ""},
		"new file":                        {"new.c", "@@ -0,0 +1,4 @@\n+int f(void)\n+{\n+    return 0;\n+}\n", "", "new.c is not in the tree"},
		"the header is wrapped":           {"a.c", "@@ -4,3 +4,3 @@ int f(int a,\nint b)\n-  two(second, third);\n+  two();\n  three(fourth);\n }\n", "-\ttwo(second, third);\n+\ttwo();\n", ""},
	} {
		t.Run(name, func(t *testing.T) {
			tree := map[string]string{"a.c": text, "plus.c": "a\n\t+ b\nc\n", "Makefile": "all:\n\ta\n\td\n", "dos.c": "a\r\nb c\r\n"}
			head := fmt.Sprintf(frame, c.file)
			if tree[c.file] == "" {
				head = strings.Replace(head, "--- a/"+c.file, "new file mode 100644\n--- /dev/null", 1)
			}
			files := func(path string) ([]byte, bool) { s, ok := tree[path]; return []byte(s), ok }
			out, notes, err := repairText(files, "p", []byte(head+c.hunk), 1)
			said := strings.Join(notes, "\n")
			if err != nil {
				said = err.Error()
			}
			if (err == nil) != (c.want != "") || !strings.Contains(string(out), c.want) || !strings.Contains(said, c.note) {
				t.Errorf("said %q, want %q\n%s\nwant\n%s", said, c.note, out, c.want)
			}
		})
	}
}

// TestRepairPaths: what leaves the tree is refused before anything is read.
func TestRepairPaths(t *testing.T) {
	for _, name := range []string{"../a.c", "/etc/passwd", "x/.git/config", "a//b", "./a.c"} {
		read := func(string) ([]byte, bool) { t.Fatal("a file was read"); return nil, false }
		_, _, err := repairText(read, "p", []byte("diff --git a/a.c b/a.c\n--- a/"+name+"\n+++ b/a.c\n@@ -1 +1 @@\n-a\n+b\n"), 1)
		if e := new(ParseError); !errors.As(err, &e) || !strings.Contains(err.Error(), "refused path") {
			t.Errorf("%s: %v, want a ParseError", name, err)
		}
	}
	if _, _, err := repairText(nil, "p", []byte("some text\n"), 1); !errors.Is(err, ErrNoDiff) {
		t.Errorf("no diff: %v", err)
	}
}

// TestRepairNamedPlace: of places that are alike, the one is taken that the header
// names by its line and its function.
func TestRepairNamedPlace(t *testing.T) {
	bad := "--- a/a.c\n+++ b/a.c\n@@ -22,4 +22,4 @@ static int part_close(struct part *part)\n {\n if (!part->ready)\n-return -EAGAIN;\n+return -EBUSY;\n \n"
	text, _, err := repairText(func(string) ([]byte, bool) { return []byte(partFile), true }, "p", []byte(bad), 1)
	if err != nil {
		t.Fatal(err)
	}
	if want := "@@ -20,4 +20,4 @@"; !strings.Contains(string(text), want) {
		t.Errorf("%s\nwant %s", text, want)
	}
}

// TestRepairUnended keeps a last line without LF.
func TestRepairUnended(t *testing.T) {
	bad := "--- a/a.c\n+++ b/a.c\n@@ -1,2 +1,2 @@\n  {\n-    a;\n\\ No newline at end of file\n+    b;\n\\ No newline at end of file\n"
	text, _, err := repairText(func(string) ([]byte, bool) { return []byte("{\n\ta;"), true }, "p", []byte(bad), 1)
	want := "--- a/a.c\n+++ b/a.c\n@@ -1,2 +1,2 @@\n {\n-\ta;\n\\ No newline at end of file\n+\tb;\n\\ No newline at end of file\n"
	if err != nil || string(text) != want {
		t.Errorf("%v\n%s\nwant\n%s", err, text, want)
	}
}

// TestRepairLarge: large and hostile input takes linear time, or is refused.
func TestRepairLarge(t *testing.T) {
	const n = 48 << 10
	for name, line := range map[string]func(i int) string{
		"different": func(i int) string { return fmt.Sprintf("\tcall(%d);", i) },
		"same":      func(int) string { return "\t}" },
		"blank":     func(i int) string { return strings.Repeat("\tx;", i%1000/999) },
		"plus":      func(i int) string { return "\t+ 1" },
	} {
		var edits []edit
		for i := range n {
			edits = append(edits, edit{' ', line(i)})
		}
		for i := n / 4; i < n/2; i++ {
			edits[i] = edit{'+', line(i + n)}
		}
		before, _ := versions(edits)
		start := time.Now()
		_, _, err := repairText(func(string) ([]byte, bool) { return []byte(joined(before)), true }, "p", []byte(damages[2].do(nil, diffOf("a.c", edits))), 1)
		if took := time.Since(start); took > time.Minute {
			t.Errorf("%s: %v", name, took)
		} else {
			t.Logf("%s: %v, %v", name, took, err)
		}
		if name == "different" && err != nil {
			t.Error(err)
		}
	}
}

func FuzzRepairText(f *testing.F) {
	for seed := range uint64(20) {
		r := rand.New(rand.NewPCG(seed, 3))
		edits := randomEdits(r, strings.Split(partFile, "\n"))
		f.Add([]byte(damages[r.IntN(len(damages))].do(r, diffOf("a.c", edits))))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		files := func(path string) ([]byte, bool) { return []byte(partFile), path == "a.c" }
		text, _, err := repairText(files, "p", data, 1)
		if err != nil {
			if !errors.As(err, new(*DamageError)) && !errors.As(err, new(*ParseError)) {
				t.Errorf("error of another type: %v", err)
			}
			return
		}
		p, err := Parse("p", text)
		if err != nil || len(p.files) != 1 || p.files[0].OldName != "a.c" || p.files[0].NewName != "a.c" {
			return // Repair checks what it made
		}
		// What is not changed is as the tree has it.
		lines := strings.Split(strings.TrimSuffix(partFile, "\n"), "\n")
		fits := func(reverse bool) bool {
			for _, h := range p.files[0].TextFragments {
				if len(places(lines, trimEnds(want(h, reverse, 0)))) == 0 {
					return false
				}
			}
			return true
		}
		if !fits(false) && !fits(true) {
			t.Errorf("not of the tree:\n%s", text)
		}
	})
}

func trimEnds(lines []string) []string {
	for i := range lines {
		lines[i] = strings.TrimSuffix(lines[i], "\n")
	}
	return lines
}
