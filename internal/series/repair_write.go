package series

import (
	"bytes"
	"cmp"
	"fmt"
	"path"
	"slices"
	"strings"
)

// note is one repair that was made.
type note struct {
	line int // of the user's file
	text string
}

func (d *damaged) note(line int, format string, args ...any) {
	d.notes = append(d.notes, note{line, fmt.Sprintf(format, args...)})
}

// list returns the notes in the order of the file.
func noteList(notes []note) []string {
	slices.SortStableFunc(notes, func(a, b note) int { return cmp.Compare(a.line, b.line) })
	var list []string
	for _, n := range notes {
		list = append(list, fmt.Sprintf("line %d: %s", n.line, n.text))
	}
	return list
}

// writer makes the clean diff.
type writer struct {
	*repairer
	blanks *blanks
	out    bytes.Buffer
}

// write makes the diff of hunks that have their places.
func (r *repairer) write(all []fixedFile) ([]byte, []string, error) {
	w := &writer{repairer: r, blanks: gather(all)}
	if r.crlf {
		w.note(r.lines[0].num, "lines end in CRLF; read as if they ended in LF")
	}
	for i := range all {
		if err := w.file(&all[i]); err != nil {
			return nil, nil, err
		}
	}
	return w.out.Bytes(), noteList(r.notes), nil
}

func (w *writer) file(f *fixedFile) error {
	for _, l := range slices.Concat(f.file.head, f.file.verbatim) {
		w.out.WriteString(l + "\n")
	}
	if f.tree == nil && len(f.hunks) > 0 {
		if err := w.checkNew(f); err != nil {
			return err
		}
	}
	// Hunks are numbered by where they are now, so that git finds each at once, and
	// not a place that is like it on the way.
	delta := 0 // between a line's number on the other side and on this one
	for k := range f.hunks {
		h, got := &f.file.hunks[k], &f.hunks[k]
		own, other := h.counts(f.side)
		w.header(f, h, got.start, delta)
		delta += other - own
		if err := w.hunk(f, h, got); err != nil {
			return err
		}
	}
	return nil
}

// header writes the line that begins a hunk, with the numbers of its place.
func (w *writer) header(f *fixedFile, h *damagedHunk, start, delta int) {
	own, other := h.counts(f.side)
	if moved := start - h.start(f.side); moved != 0 && own > 0 {
		how := "by " + count(moved, "line")
		if moved < 0 {
			how = "back by " + count(-moved, "line")
		}
		w.note(h.line, "hunk %d of %s moved %s", h.number, f.file.name(), how)
	}
	mine, theirs := span(start, own), span(start+delta, other)
	if f.side == newSide {
		mine, theirs = theirs, mine
	}
	line := fmt.Sprintf("@@ -%s +%s @@", mine, theirs)
	if h.section != "" {
		line += " " + h.section
	}
	w.out.WriteString(line + "\n")
}

// span is a place in a hunk's header. One without lines is named by the line
// before it.
func span(start, n int) string {
	if n == 0 {
		return fmt.Sprintf("%d,0", start)
	}
	return fmt.Sprintf("%d,%d", start+1, n)
}

// hunk writes the lines of a hunk.
func (w *writer) hunk(f *fixedFile, h *damagedHunk, got *reading) error {
	side := w.around(f, got)
	for k, o := range got.ops {
		if o.tree >= 0 {
			text := f.tree.lines[o.tree]
			w.line(o.mark, text, f.tree.unended && o.tree == len(f.tree.lines)-1)
			w.treeNotes(h, o, text)
			if o.mark == ' ' && trimLeft(text) != "" {
				side.before = append(side.before, text)
			}
			continue
		}
		side.replaces = f.replaced(got.ops, k)
		text, err := w.free(f, h, o, side)
		if err != nil {
			return err
		}
		w.line(o.mark, text, o.unended)
		if trimLeft(text) != "" {
			side.before = append(side.before, text)
		}
	}
	if rest := h.lines[got.used:]; len(rest) > 0 && rest[0].kind != kindBlank && !rest[0].isSignature() {
		w.note(rest[0].num, "text behind the diff left out")
	}
	return nil
}

func (w *writer) line(mark byte, text string, unended bool) {
	// Also an empty line of context gets its blank: the next mailer may drop it else.
	w.out.WriteByte(mark)
	w.out.WriteString(text)
	if w.out.WriteByte('\n'); unended {
		w.out.WriteString("\\ No newline at end of file\n")
	}
}

// surround is what a line that the tree does not have is made whole by.
type surround struct {
	before   []string          // the lines of its side before it that are not blank
	replaces string            // the line of the tree that it stands for, if that is known
	like     map[string]string // lines around, by what they are without white space; "" for different ones
	crlf     bool              // the file's lines end in CRLF
}

// replaced returns the line of the tree that ops[k] stands for: for the first of a
// block of lines, the first of the block that it is instead of.
func (f *fixedFile) replaced(ops []op, k int) string {
	if k > 0 && ops[k-1].mark == f.side.free {
		return ""
	}
	first := k
	for first > 0 && ops[first-1].mark == f.side.own {
		first--
	}
	if first == k {
		for first < len(ops) && ops[first].mark == f.side.free {
			first++
		}
	}
	if first == len(ops) || ops[first].mark != f.side.own || f.tree.plain[ops[first].tree] == "" {
		return ""
	}
	return f.tree.lines[ops[first].tree]
}

// nearby is how far around a hunk the same line is looked for.
const nearby = 64

// around collects what a hunk's place has for its own lines.
func (w *writer) around(f *fixedFile, got *reading) *surround {
	a := &surround{like: map[string]string{}}
	if f.tree == nil {
		return a
	}
	lines := f.tree.lines
	from, end := max(0, got.start-nearby), min(len(lines), got.end+nearby)
	for k := from; k < end; k++ {
		text := strings.TrimSuffix(lines[k], "\r")
		key := f.tree.plain[k]
		if old, ok := a.like[key]; ok && old != text {
			text = "" // in two ways: no help
		}
		a.like[key] = text
	}
	for k := max(0, got.start-nearby); k < got.start; k++ {
		if f.tree.plain[k] != "" {
			a.before = append(a.before, lines[k])
		}
	}
	a.crlf = got.start < got.end
	for _, l := range lines[got.start:got.end] {
		a.crlf = a.crlf && strings.HasSuffix(l, "\r")
	}
	return a
}

// free returns a line that the tree does not have, made whole.
func (w *writer) free(f *fixedFile, h *damagedHunk, o op, side *surround) (string, error) {
	l := &h.lines[o.from]
	text := freeText(h, o)
	r := rebuilt{text: text}
	if f.tree != nil { // else checkNew has looked at all of them
		var ok bool
		if r, ok = w.blanks.rebuild(f.file.name(), text, side); !ok {
			return "", &DamageError{Name: w.name, Line: l.num, Text: fmt.Sprintf("the white space of %q was damaged, and in %s it has a meaning: repair this line by hand", cut(l.raw), f.file.name())}
		}
	}
	for k := o.from + 1; k < o.to; k++ {
		w.note(h.lines[k].num, "wrapped line joined with one blank")
	}
	for _, n := range r.notes {
		w.note(l.num, "%s", n)
	}
	if side.crlf {
		r.text += "\r"
	}
	return r.text, nil
}

// treeNotes says what was wrong with a line that the tree has.
func (w *writer) treeNotes(h *damagedHunk, o op, tree string) {
	if o.from == o.to {
		w.note(h.lines[min(o.from, len(h.lines)-1)].num, "blank context line restored")
		return
	}
	for k := o.from + 1; k < o.to; k++ {
		w.note(h.lines[k].num, "wrapped line joined")
	}
	l := &h.lines[o.from]
	tree = strings.TrimSuffix(tree, "\r")
	found, lost := withoutMark(l.raw, o.mark)
	plain := strings.ReplaceAll(found, nbsp, " ")
	switch {
	case found == tree && !lost:
	case l.kind == kindBlank && lost:
		w.note(l.num, "mark of a blank context line restored")
	case plain != found:
		w.note(l.num, "non-breaking spaces replaced")
	case lost && indent(plain) == indent(tree):
		w.note(l.num, "mark of a context line restored")
	case indent(plain) != indent(tree):
		w.note(l.num, "%s", strings.TrimSuffix(leadNote(indent(plain), indent(tree)), ","))
	case inner(plain) != inner(tree) && o.to-o.from == 1:
		w.note(l.num, "blanks within the line restored")
	case o.to-o.from == 1:
		w.note(l.num, "blanks at the end of the line restored")
	}
}

// checkNew refuses a file that the tree does not have if its lines, or those of
// the rest of the patch, look as if they had lost white space.
func (w *writer) checkNew(f *fixedFile) error {
	for k := range f.hunks {
		h := &f.file.hunks[k]
		var lines []string
		for _, o := range f.hunks[k].ops {
			text := freeText(h, o)
			if o.to-o.from > 1 || strings.Contains(text, nbsp) {
				return &DamageError{Name: w.name, Line: h.lines[o.from].num, Text: fmt.Sprintf("%s is not in the tree, so nothing says what white space this line had", f.file.name())}
			}
			lines = append(lines, text)
		}
		if w.blanks.harmed() || w.blanks.inner || looksHarmed(f.file.name(), lines) {
			return &DamageError{Name: w.name, Line: h.line, Text: fmt.Sprintf("%s is not in the tree, so nothing says what white space its lines had, and it was damaged", f.file.name())}
		}
	}
	return nil
}

// looksHarmed reports whether a whole file looks as if its tabs were lost: within
// braces, or in a Makefile or Kconfig where a line is indented, there is none.
func looksHarmed(name string, lines []string) bool {
	base := path.Base(name)
	tabs := strings.HasPrefix(base, "Makefile") || strings.HasPrefix(base, "Kconfig") || strings.HasPrefix(base, "Kbuild")
	if !tabs && !freeForm(name) {
		return false
	}
	depth, inside := 0, false
	for _, l := range lines {
		if strings.HasPrefix(l, "\t") {
			return false
		}
		code := trimLeft(l)
		if tabs {
			inside = inside || code != l
			continue
		}
		inside = inside || depth > 0 && code != "" && code[0] != '#' && code[0] != '}' && !labelLine.MatchString(code)
		depth += strings.Count(l, "{") - strings.Count(l, "}")
	}
	return inside
}
