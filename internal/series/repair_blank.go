package series

import (
	"fmt"
	"path"
	"regexp"
	"slices"
	"strings"
)

// indent is the white space that a line begins with.
func indent(s string) string { return s[:len(s)-len(trimLeft(s))] }

// indents is what a line began with in the damaged diff and in the tree.
type indents struct{ found, tree string }

// blanks is what the lines that are in the tree tell about the damage, and so
// about the lines that are not. Marks keep off some of it: an archive that removes
// white space at the beginning of lines leaves that behind a "+".
type blanks struct {
	marked, context map[indents]bool
	lostMark        bool // context without its blank
	inner           bool // white space within lines differs
	nbsp            bool // non-breaking spaces stand for blanks
	rule            func(found string) (string, bool)
}

// gather looks at all lines that the tree has.
func gather(all []fixedFile) *blanks {
	b := &blanks{marked: map[indents]bool{}, context: map[indents]bool{}}
	for _, f := range all {
		for k, h := range f.hunks {
			for _, o := range h.ops {
				if o.tree >= 0 && o.from < o.to {
					b.add(&f.file.hunks[k].lines[o.from], o, f.tree.lines[o.tree])
				}
			}
		}
	}
	b.rule = b.findRule()
	return b
}

func (b *blanks) add(l *damagedLine, o op, tree string) {
	if l.kind == kindBlank || l.body == "" {
		return
	}
	found, lost := withoutMark(l.raw, o.mark)
	b.nbsp = b.nbsp || strings.Contains(l.raw, nbsp) && !strings.Contains(tree, nbsp)
	plain := strings.ReplaceAll(found, nbsp, " ")
	p := indents{indent(plain), indent(tree)}
	switch {
	case lost:
		b.lostMark = true
	case o.mark == ' ':
		b.context[p] = true
	default:
		b.marked[p] = true
	}
	if o.to-o.from == 1 && inner(plain) != inner(tree) {
		b.inner = true
	}
}

// inner is a line without the white space at both its ends.
func inner(s string) string { return strings.TrimRight(trimLeft(s), " \t\r\v\f"+nbsp) }

// withoutMark takes the mark off a line. lost says that context has none.
func withoutMark(raw string, mark byte) (text string, lost bool) {
	switch {
	case mark != ' ' || strings.HasPrefix(raw, " "):
		return raw[1:], false
	case strings.HasPrefix(raw, nbsp):
		return raw[len(nbsp):], false
	}
	return raw, true
}

// intact reports whether the lines of a kind show that their indentation was not
// touched; known, whether they show anything.
func intact(pairs map[indents]bool) (ok, known bool) {
	ok = true
	for p := range pairs {
		known = known || p.tree != ""
		ok = ok && p.found == p.tree
	}
	return ok, known
}

// trusted reports whether the indentation of a marked line is as it was.
func (b *blanks) trusted(found string) bool {
	if ok, known := intact(b.marked); known || !ok {
		return ok
	}
	if b.lostMark {
		// White space at the beginning of lines is gone, and this line has a mark
		// there. Nothing turns blanks into tabs.
		return strings.Contains(found, "\t")
	}
	ok, _ := intact(b.context)
	return ok
}

// harmed reports whether white space anywhere at the beginning of lines differs.
func (b *blanks) harmed() bool {
	m, _ := intact(b.marked)
	c, _ := intact(b.context)
	return b.lostMark || b.nbsp || !m || !c
}

// tabSizes are tried in this order: size and where a line begins, as a mark moves
// it by one when a whole diff is expanded. Others are not common enough to be told
// from a few lines.
var tabSizes = []struct{ size, begin int }{{8, 0}, {8, 1}, {4, 0}, {4, 1}, {2, 0}, {3, 0}, {5, 0}, {6, 0}, {7, 0}}

// findRule finds how to turn the indentation that was found into the tree's, from
// the lines of which both are known. It is nil when they do not agree, or when
// there is only one blank or none to tell it from.
func (b *blanks) findRule() func(string) (string, bool) {
	both := map[indents]bool{}
	for p := range b.marked {
		both[p] = true
	}
	for p := range b.context {
		both[p] = true
	}
	for _, pairs := range []map[indents]bool{both, b.marked} {
		// Collapsed blanks are one each, whatever was there: they tell no rule.
		if !slices.ContainsFunc(keys(pairs), func(p indents) bool { return len(p.found) > 1 }) {
			continue
		}
		for _, tab := range tabSizes {
			if fitsAll(pairs, func(s string) (string, bool) { return unexpand(s, tab.size, tab.begin) }) {
				return func(s string) (string, bool) { return unexpand(s, tab.size, tab.begin) }
			}
		}
		// No size of tabs explains it, but each indentation always stood for the same.
		known := map[string]string{}
		for p := range pairs {
			known[p.found] = p.tree
		}
		look := func(s string) (string, bool) { t, ok := known[s]; return t, ok }
		if fitsAll(pairs, look) {
			return look
		}
	}
	return nil
}

func keys(m map[indents]bool) []indents {
	var list []indents
	for p := range m {
		list = append(list, p)
	}
	return list
}

func fitsAll(pairs map[indents]bool, rule func(string) (string, bool)) bool {
	for p := range pairs {
		if got, ok := rule(p.found); !ok || got != p.tree {
			return false
		}
	}
	return true
}

// unexpand makes tabs of blanks that came from tabs of a size.
func unexpand(s string, size, begin int) (string, bool) {
	if strings.Trim(s, " ") != "" {
		return "", false
	}
	tabs := (len(s) + begin) / size
	if tabs == 0 {
		return s, true
	}
	return strings.Repeat("\t", tabs) + s[:len(s)-(tabs*size-begin)], true
}

// freeForm reports whether white space at the beginning of a file's lines has no
// meaning, so that it may be made anew. Assembly is of them: it goes through cpp,
// and the assembler takes blanks and tabs alike. In all other files, Makefile,
// Kconfig, *.py, *.rst, *.yaml, *.sh with its here-documents, it has some, or may
// have.
func freeForm(name string) bool {
	switch path.Ext(name) {
	case ".c", ".h", ".S", ".dts", ".dtsi":
		return true
	}
	return false
}

// rebuilt is a line made whole that the tree does not have.
type rebuilt struct {
	text  string
	notes []string
}

// rebuild gives a line that the tree does not have its white space. ok is false
// when it cannot be known.
func (b *blanks) rebuild(name, text string, s *surround) (r rebuilt, ok bool) {
	clean := text
	if b.nbsp {
		clean = strings.ReplaceAll(text, nbsp, " ")
	}
	rest := trimLeft(clean)
	if rest == "" {
		return rebuilt{text: clean}, true
	}
	known := s.like[squeeze(rest)]
	found := indent(clean)
	if b.trusted(found) && !b.inner && !b.nbsp {
		return rebuilt{text: text}, true
	}
	if !freeForm(name) && (!b.trusted(found) || b.inner && strings.ContainsAny(inner(rest), " \t")) {
		return rebuilt{}, false
	}
	if b.inner && known != "" {
		rest = trimLeft(known)
	}
	lead, how := found, ""
	if !b.trusted(found) {
		lead, how = b.lead(found, rest, known, s)
	}
	r.text = lead + rest
	if clean != text {
		r.notes = append(r.notes, "non-breaking spaces replaced")
	}
	if lead != found {
		r.notes = append(r.notes, fmt.Sprintf("%s %s", leadNote(found, lead), how))
	}
	if rest != trimLeft(clean) {
		r.notes = append(r.notes, "blanks within the line taken from the same line in the tree")
	}
	if known == "" && (b.inner || how == byBraces) && literalBlank(rest) {
		r.notes = append(r.notes, "blanks in its string kept as they stand: there may have been more")
	}
	return r, true
}

// How an indentation came about, for the notes.
const (
	byRule   = "as in the lines around it"
	bySame   = "as in the same line of the tree"
	byOther  = "as in the line it stands for"
	byBraces = "by the braces around it"
)

// lead returns the indentation of a line of C.
func (b *blanks) lead(found, rest, known string, around *surround) (lead, how string) {
	if b.rule != nil {
		if s, ok := b.rule(found); ok {
			return s, byRule
		}
	}
	// The first of some lines is mostly as deep as the first that it is instead of.
	if r := around.replaces; r != "" && !ownIndent(rest) && !ownIndent(trimLeft(r)) {
		return indent(r), byOther
	}
	guess := cIndent(around.before, rest)
	// The same line elsewhere says more than braces do, but not when the line before
	// opens a block that it was put into.
	if known != "" && width(indent(known)) >= width(guess) {
		return indent(known), bySame
	}
	return guess, byBraces
}

func leadNote(found, lead string) string {
	switch {
	case found == "":
		return "indentation restored,"
	case lead == "":
		return fmt.Sprintf("%s taken away,", count(len(found), "leading blank"))
	}
	if len(found) == 1 {
		return fmt.Sprintf("1 leading blank was %s,", describe(lead))
	}
	return fmt.Sprintf("%d leading blanks were %s,", len(found), describe(lead))
}

// describe names white space.
func describe(s string) string {
	tabs, blanks := strings.Count(s, "\t"), strings.Count(s, " ")
	switch {
	case tabs == 0:
		return count(blanks, "blank")
	case blanks == 0:
		return count(tabs, "tab")
	}
	return count(tabs, "tab") + " and " + count(blanks, "blank")
}

func count(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

// literalBlank reports whether a string literal of a line has a blank in it.
func literalBlank(s string) bool {
	var quote byte
	for i := 0; i < len(s); i++ {
		switch c := s[i]; {
		case c == '\\':
			i++
		case quote == 0 && (c == '"' || c == '\''):
			quote = c
		case c == quote:
			quote = 0
		case quote == '"' && (c == ' ' || c == '\t'):
			return true
		}
	}
	return false
}

// tabWidth is the kernel's.
const tabWidth = 8

// width is the column behind an indentation, or behind any text.
func width(s string) int {
	n := 0
	for _, c := range s {
		if c == '\t' {
			n += tabWidth - n%tabWidth
		} else {
			n++
		}
	}
	return n
}

// tabsTo is the indentation up to a column.
func tabsTo(column int) string {
	column = max(0, column)
	return strings.Repeat("\t", column/tabWidth) + strings.Repeat(" ", column%tabWidth)
}

var (
	labelLine   = regexp.MustCompile(`^[A-Za-z_]\w*:(?:[^:]|$)`)
	caseLine    = regexp.MustCompile(`^(?:case\b.*|default\s*):`)
	controlLine = regexp.MustCompile(`^(?:\}\s*)?(?:else\s+)?(?:(?:if|while|for|switch|\w*for_each\w*)\s*\(.*\)|else|do)$`)
)

// ownIndent reports whether a line of C is not indented as others at its place.
func ownIndent(line string) bool {
	return line[0] == '}' || line[0] == '#' || line[0] == '*' || labelLine.MatchString(line)
}

// cIndent returns the indentation of a line of C that has lost its own, by the
// lines before it, in the style of the kernel. It need not be right, as it has no
// meaning; it is to be readable.
func cIndent(before []string, line string) string {
	if line[0] == '#' || labelLine.MatchString(line) && !caseLine.MatchString(line) {
		return ""
	}
	if len(before) == 0 {
		return ""
	}
	const most = 12 // as many lines as a statement has
	before = before[max(0, len(before)-most):]
	last := before[len(before)-1]
	code := inner(last)
	base := indent(last)
	if s, ok := commentIndent(code, base, line); ok {
		return s
	}
	if strings.HasPrefix(code, "/*") && strings.HasSuffix(code, "*/") && line[0] != '}' && !caseLine.MatchString(line) {
		return base // the comment is of this line
	}
	if column, open := openParen(last); open {
		return tabsTo(column)
	}
	code = withoutComment(code)
	opens := strings.HasSuffix(code, "{")
	first := statement(before)
	if !opens && !controlLine.MatchString(code) {
		base = indent(before[first])
		code = withoutComment(strings.Join(trimAll(before[first:]), " "))
	}
	// From here on by how the statement before ends: it opens a block, it is an if
	// that waits for its statement, it was that statement, or it goes on.
	step := width(base)
	switch control := controlLine.MatchString(code); {
	case opens || caseLine.MatchString(code) && strings.HasSuffix(code, ":"):
		step += tabWidth
	case control && line[0] == '{':
	case control:
		step += tabWidth
	case strings.HasSuffix(code, ";") && endsSingle(before[:first], base) && !strings.HasPrefix(line, "else"):
		step -= tabWidth
	case code != "" && !strings.ContainsAny(code[len(code)-1:], ";{},:") && code[0] != '#' && step > 0:
		step += tabWidth // it goes on
	}
	if line[0] == '}' || caseLine.MatchString(line) && !(opens && strings.HasPrefix(code, "switch")) && !caseLine.MatchString(code) {
		step -= tabWidth
	}
	return tabsTo(step)
}

// commentIndent is cIndent within a comment of several lines.
func commentIndent(code, base, line string) (string, bool) {
	switch inside := strings.HasPrefix(code, "*") && !strings.HasPrefix(code, "*("); {
	case strings.HasPrefix(code, "/*") && !strings.Contains(code, "*/") && line[0] == '*':
		return base + " ", true
	case inside && line[0] == '*' && !strings.HasSuffix(code, "*/"):
		return base, true
	case inside && strings.HasSuffix(code, "*/"):
		return strings.TrimSuffix(base, " "), true
	}
	return "", false
}

// withoutComment takes a comment off the end of a line.
func withoutComment(code string) string {
	if i := strings.Index(code, "/*"); i > 0 && strings.HasSuffix(code, "*/") {
		code = code[:i]
	}
	return strings.TrimSpace(code)
}

func trimAll(lines []string) []string {
	var list []string
	for _, l := range lines {
		list = append(list, inner(l))
	}
	return list
}

// openParen returns the column behind the last parenthesis that a line opens and
// does not close.
func openParen(line string) (column int, open bool) {
	var stack []int
	for i := 0; i < len(line); i++ {
		switch line[i] {
		case '(':
			stack = append(stack, i)
		case ')':
			if len(stack) > 0 {
				stack = stack[:len(stack)-1]
			}
		}
	}
	if len(stack) == 0 {
		return 0, false
	}
	return width(line[:stack[len(stack)-1]+1]), true
}

// statement returns where the statement that the last line ends began: further up
// if it closes more parentheses than it opens.
func statement(before []string) int {
	depth := 0
	for i := len(before) - 1; i > 0; i-- {
		depth += strings.Count(before[i], ")") - strings.Count(before[i], "(")
		if depth <= 0 {
			return i
		}
	}
	return 0
}

// endsSingle reports whether the line before a statement is an if or a loop
// without a brace, of which it is the only one.
func endsSingle(before []string, base string) bool {
	if len(before) == 0 {
		return false
	}
	first := statement(before)
	code := withoutComment(strings.Join(trimAll(before[first:]), " "))
	return controlLine.MatchString(code) && width(indent(before[first])) < width(base)
}
