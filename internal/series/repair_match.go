package series

import (
	"cmp"
	"fmt"
	"slices"
	"sort"
	"strings"
)

// treeFile is a file of the tree, with an index of its lines.
type treeFile struct {
	lines   []string // without LF
	plain   []string // without white space
	order   []int32  // of the lines that are not blank, sorted by plain, then by number
	unended bool     // the last line has no LF
}

func newTreeFile(text string) *treeFile {
	t := &treeFile{unended: text != "" && !strings.HasSuffix(text, "\n")}
	if text == "" {
		return t
	}
	t.lines = strings.Split(strings.TrimSuffix(text, "\n"), "\n")
	t.plain = make([]string, len(t.lines))
	for i, l := range t.lines {
		if t.plain[i] = squeeze(l); t.plain[i] != "" {
			t.order = append(t.order, int32(i))
		}
	}
	slices.SortStableFunc(t.order, func(a, b int32) int { return strings.Compare(t.plain[a], t.plain[b]) })
	return t
}

// find returns the lines that are equal to text without white space, or, with
// longer, those that begin with it.
func (t *treeFile) find(text string, longer bool) []int32 {
	from := sort.Search(len(t.order), func(i int) bool { return t.plain[t.order[i]] >= text })
	end := from
	for end < len(t.order) && (t.plain[t.order[end]] == text || longer && strings.HasPrefix(t.plain[t.order[end]], text)) {
		end++
	}
	return t.order[from:end]
}

// reading is one way to understand a hunk: what each of its lines is, and where
// in the tree they are.
type reading struct {
	start, end int // lines of the tree
	ops        []op
	used       int // lines of the hunk; what follows is text behind the diff
	guesses    int // lines that were lost, or are of the header
	key        string
}

// op is a line of the hunk as it is understood: lines[from:to] of the hunk, more
// than one if it was wrapped, none if it was lost.
type op struct {
	mark     byte // ' ', '+' or '-'
	tree     int  // line of the tree, -1 for one that is not there
	from, to int
	unended  bool // no LF follows it; for lines that the tree does not have
}

// act is what a step does with a line of the hunk.
type act uint8

const (
	actSame    act = iota // context
	actOwn                // a marked line of the side that is in the tree
	actFree               // a marked line of the other side
	actRest               // goes on from the line before, which is in the tree
	actJoin               // goes on from the line before, which is not
	actLost               // a blank line of the tree that the hunk has lost
	actEnd                // "\ No newline at end of file"
	actSection            // goes on from the hunk's header
)

// What came last, which says what may go on.
const (
	lastHeader = iota
	lastTree
	lastFree
	lastLost
)

// state is how far a hunk and the tree were read alongside.
type state struct {
	i, j int32 // next line of the hunk, of the tree
	off  int32 // bytes of plain[j] that a wrapped line has had
	more int32 // lines of the free side less those of its own, so far
	last uint8
}

type edge struct {
	to  int
	act act
}

type node struct {
	state
	next        []edge
	done, alive bool // a reading may end here; one does end here or later
}

// matcher finds the readings of a hunk at one place.
type matcher struct {
	h      *damagedHunk
	t      *treeFile
	s      side
	end    int   // of the place, in the tree
	want   int32 // what more has to be in the end
	quiet  int   // from this line on the hunk has only blank lines
	budget *int
	far    int // the line of the hunk that was reached, and not understood
	near   int // and the tree's, from 1

	nodes []node
	known map[state]int
}

func (m *matcher) visit(s state) int {
	if id, ok := m.known[s]; ok {
		return id
	}
	id := len(m.nodes)
	m.known[s] = id
	m.nodes = append(m.nodes, node{state: s})
	return id
}

// read returns readings of the hunk whose place begins at a line of the tree, no
// two that have the same result, and at most two. ok is false if there were too
// many ways to look at.
func (m *matcher) read(start int) (list []reading, ok bool) {
	own, _ := m.h.counts(m.s)
	m.end = start + own
	m.nodes, m.known = m.nodes[:0], map[state]int{}
	m.visit(state{j: int32(start), last: lastHeader})
	for id := 0; id < len(m.nodes); id++ {
		s := m.nodes[id].state
		if int(s.i) > m.far {
			m.far, m.near = int(s.i), int(s.j)+1
		}
		if *m.budget -= 1 + m.cost(s); *m.budget < 0 {
			return nil, false
		}
		next := m.steps(s)
		m.nodes[id].next = next
		m.nodes[id].done = int(s.j) == m.end && s.off == 0 && s.more == m.want && m.mayEnd(int(s.i))
	}
	m.mark()
	if !m.nodes[0].alive {
		return nil, true
	}
	return m.walk(start)
}

// cost is what comparing a line costs more than a step.
func (m *matcher) cost(s state) int {
	if int(s.i) < len(m.h.lines) {
		return len(m.h.lines[s.i].all) / 256
	}
	return 0
}

// mayEnd reports whether the hunk can end before a line. Behind the last hunk any
// text may stand, but for what looks as if it were of the hunk.
func (m *matcher) mayEnd(i int) bool {
	if i >= m.quiet {
		return true
	}
	l := &m.h.lines[i]
	marked := l.kind == '+' || l.kind == '-' || l.kind == kindNoLine
	return m.h.last && (!marked || l.isSignature())
}

// steps returns what the next line of the hunk, or of the tree, can be.
func (m *matcher) steps(s state) []edge {
	var list []edge
	add := func(a act, to state) { list = append(list, edge{m.visit(to), a}) }
	inTree := int(s.j) < m.end
	// Whatever the hunk has next, the tree's blank line may be one that it lost; the
	// length of the place, which the header gives, bounds how many.
	if s.off == 0 && inTree && m.t.plain[s.j] == "" {
		add(actLost, state{s.i, s.j + 1, 0, s.more, lastLost})
	}
	if int(s.i) == len(m.h.lines) {
		return list
	}
	l := &m.h.lines[s.i]
	// take matches text with the tree from where it is on.
	take := func(a act, text string, more int32) {
		if !inTree {
			return
		}
		switch rest := m.t.plain[s.j][s.off:]; {
		case rest == text:
			add(a, state{s.i + 1, s.j + 1, 0, more, lastTree})
		case text != "" && strings.HasPrefix(rest, text):
			add(a, state{s.i + 1, s.j, s.off + int32(len(text)), more, lastTree})
		}
	}
	switch {
	case l.kind == kindNoLine:
		// Of a line that the tree has, the tree itself says whether an LF ends it.
		if s.off == 0 && (s.last == lastTree || s.last == lastFree) {
			add(actEnd, state{s.i + 1, s.j, 0, s.more, lastTree})
		}
	case l.kind == kindBlank:
		if s.off == 0 {
			take(actSame, "", s.more)
		}
	case s.off > 0:
		take(actRest, l.all, s.more)
	default:
		m.lineSteps(s, l, add, take)
	}
	return list
}

// lineSteps is steps for a line that is not blank, at the beginning of a line of
// the tree.
func (m *matcher) lineSteps(s state, l *damagedLine, add func(act, state), take func(act, string, int32)) {
	marked := l.kind == '+' || l.kind == '-'
	switch l.kind {
	case m.s.free:
		add(actFree, state{s.i + 1, s.j, 0, s.more + 1, lastFree})
	case m.s.own:
		take(actOwn, l.body, s.more-1)
	}
	// Also a line that begins with a mark is context if its white space was lost
	// and the tree has it so, "+ sizeof(x)".
	take(actSame, l.all, s.more)
	switch {
	case marked:
		// One that begins with a mark is not taken to go on from a line before: the
		// counts could not tell the two apart, and there would be n*n ways to read
		// a block of n added lines.
	case s.last == lastFree:
		add(actJoin, state{s.i + 1, s.j, 0, s.more, lastFree})
	case s.last == lastHeader && s.i == 0 && m.h.section != "":
		add(actSection, state{s.i + 1, s.j, 0, s.more, lastTree})
	}
}

// mark finds the nodes from which a reading ends. Every step moves on in the hunk
// or in the tree, so that those furthest on come first.
func (m *matcher) mark() {
	order := make([]int, len(m.nodes))
	for i := range order {
		order[i] = i
	}
	slices.SortFunc(order, func(a, b int) int {
		x, y := m.nodes[a].state, m.nodes[b].state
		return cmp.Or(cmp.Compare(y.i+y.j, x.i+x.j), cmp.Compare(y.off, x.off), cmp.Compare(a, b))
	})
	for _, id := range order {
		n := &m.nodes[id]
		n.alive = n.done
		for _, e := range n.next {
			n.alive = n.alive || m.nodes[e.to].alive
		}
	}
}

// maxReadings bounds the readings of one place that are compared, and maxCompared
// the lines in them.
const (
	maxReadings = 64
	maxCompared = 1 << 16
)

// walk collects the readings, along the nodes that lead to an end.
func (m *matcher) walk(start int) ([]reading, bool) {
	var list []reading
	type choice struct{ node, edge int }
	path := []choice{{0, -1}}
	for found := 0; len(path) > 0; {
		top := &path[len(path)-1]
		n := &m.nodes[top.node]
		if top.edge == -1 && n.done {
			if found++; found > maxReadings || found > 2 && found*len(path) > maxCompared {
				return nil, false
			}
			acts := make([]act, len(path)-1)
			for i := range acts {
				acts[i] = m.nodes[path[i].node].next[path[i].edge].act
			}
			r := m.reading(start, acts)
			if !m.wasteful(&r) {
				list = keep(list, r)
			}
			if len(list) == 2 {
				return list, true
			}
		}
		for top.edge++; top.edge < len(n.next) && !m.nodes[n.next[top.edge].to].alive; top.edge++ {
		}
		if top.edge == len(n.next) {
			path = path[:len(path)-1]
			continue
		}
		path = append(path, choice{n.next[top.edge].to, -1})
	}
	return list, true
}

// keep adds a reading to others, or puts it in the place of one with the same
// result that guesses more.
func keep(list []reading, r reading) []reading {
	i := slices.IndexFunc(list, func(o reading) bool { return o.key == r.key })
	switch {
	case i < 0:
		return append(list, r)
	case r.guesses < list[i].guesses:
		list[i] = r
	}
	return list
}

// wasteful reports whether a reading has a lost blank line at its end, and leaves
// one out that follows there. At the end of the file that may be so, because there
// a hunk has no context that would be between them.
func (m *matcher) wasteful(r *reading) bool {
	if r.end == len(m.t.lines) || r.used == len(m.h.lines) || m.h.lines[r.used].kind != kindBlank {
		return false
	}
	for _, o := range slices.Backward(r.ops) {
		switch {
		case o.tree >= 0 && o.from == o.to:
			return true
		case o.tree >= 0 && m.t.plain[o.tree] != "":
			return false
		}
	}
	return false
}

// reading makes the lines of a hunk of the steps that were taken.
func (m *matcher) reading(start int, acts []act) reading {
	r := reading{start: start, end: m.end}
	i, j := 0, start
	for _, a := range acts {
		o := op{mark: ' ', tree: j, from: i, to: i + 1}
		switch a {
		case actOwn:
			o.mark = m.s.own
		case actFree:
			o.mark, o.tree = m.s.free, -1
		case actLost:
			o.to = i
			r.guesses++
		case actSection:
			r.guesses++
		}
		switch a {
		case actSame, actOwn, actFree, actLost:
			r.ops = append(r.ops, o)
			i = o.to
			if a != actFree {
				j++
			}
			continue
		case actRest, actJoin:
			r.ops[len(r.ops)-1].to = i + 1
		case actEnd:
			if last := &r.ops[len(r.ops)-1]; last.tree < 0 {
				last.unended = true
			}
		}
		i++
	}
	r.used = i
	r.key = r.result(m.h, m.t)
	return r
}

// result describes what the reading changes, so that two with the same result
// have the same description: without the lines at both ends that stay as they are.
func (r *reading) result(h *damagedHunk, t *treeFile) string {
	var before, after []string
	for _, o := range r.ops {
		if o.tree >= 0 {
			before = append(before, t.lines[o.tree])
		}
		switch {
		case o.mark == ' ':
			after = append(after, t.lines[o.tree])
		case o.tree < 0:
			text := freeText(h, o)
			if o.unended {
				text += "\n\\"
			}
			after = append(after, text)
		}
	}
	// Of equal lines it is the last ones that count as changed, whichever a reading
	// took: a hunk that takes out one of two blank lines has one result.
	n := 0
	for n < len(before) && n < len(after) && before[n] == after[n] {
		n++
	}
	before, after = before[n:], after[n:]
	for len(before) > 0 && len(after) > 0 && before[len(before)-1] == after[len(after)-1] {
		before, after = before[:len(before)-1], after[:len(after)-1]
	}
	return fmt.Sprintf("%d %d %s", r.start+n, len(before), strings.Join(after, "\n"))
}

// freeText is a line that the tree does not have, without its mark and with its
// white space as it was found. A mailer breaks a line at a blank, and drops it or
// leaves it at the end.
func freeText(h *damagedHunk, o op) string {
	text := h.lines[o.from].raw[1:]
	for _, l := range h.lines[o.from+1 : o.to] {
		text = strings.TrimRight(text, " \t") + " " + trimLeft(l.raw)
	}
	return text
}

// trimLeft removes white space at the beginning, non-breaking spaces too.
func trimLeft(s string) string { return strings.TrimLeft(s, " \t\r\v\f"+nbsp) }

// placeHunk finds the one place of a hunk at or behind the line from. shift is how
// far the hunk before was from where its header has it.
func (r *repairer) placeHunk(f *damagedFile, h *damagedHunk, t *treeFile, s side, from, shift int) (reading, *placeError) {
	own, other := h.counts(s)
	if t == nil {
		if t = (&treeFile{}); own != 0 {
			return reading{}, &placeError{line: h.line, text: "the hunk has lines of a file that its header says is not there"}
		}
	} else if own == 0 && len(t.lines) > 0 {
		return reading{}, &placeError{line: h.line, text: fmt.Sprintf("hunk %d of %s has no line that says where it belongs", h.number, f.name())}
	}
	m := &matcher{h: h, t: t, s: s, want: int32(other - own), budget: &r.budget, quiet: len(h.lines)}
	for m.quiet > 0 && h.lines[m.quiet-1].kind == kindBlank {
		m.quiet--
	}
	var found []reading
	for _, start := range m.starts(from, own) {
		list, ok := m.read(start)
		if !ok {
			return reading{}, &placeError{line: h.line, certain: true, named: true, text: fmt.Sprintf("hunk %d of %s can be read in too many ways", h.number, f.name())}
		}
		found = append(found, list...)
	}
	if len(found) == 0 {
		return reading{}, m.lost(f)
	}
	return m.choose(f, found, shift)
}

// starts returns the lines of the tree where the hunk's place can begin, sorted:
// where the first line of the hunk that the tree must have is, and at the blank
// lines before it, which the hunk can have lost.
func (m *matcher) starts(from, own int) []int {
	if own == 0 {
		return []int{0}
	}
	var list []int
	add := func(at []int32) {
		for _, k := range at {
			for p := int(k); p >= from && k-int32(p) < int32(own); p-- {
				if p < int(k) && m.t.plain[p] != "" {
					break
				}
				if p+own <= len(m.t.lines) {
					list = append(list, p)
				}
				if *m.budget--; *m.budget < 0 {
					return
				}
			}
		}
	}
	// mayGoOn: the line can go on from the hunk's header, or from one that the tree
	// need not have.
	mayGoOn := m.h.section != ""
	for i := range m.h.lines {
		l := &m.h.lines[i]
		if l.kind == kindBlank || l.kind == kindNoLine {
			mayGoOn = false
			continue
		}
		add(m.t.find(l.all, m.wrapped(i)))
		if l.kind == m.s.own && l.body != "" {
			add(m.t.find(l.body, m.wrapped(i)))
		}
		// One that the tree need not have is no beginning: the next one is looked at too.
		switch {
		case l.kind == m.s.free:
			mayGoOn = true
		case l.kind == m.s.own && l.body == "":
			mayGoOn = false
		case l.kind == m.s.own || !mayGoOn:
			return slices.Compact(slices.Sorted(slices.Values(list)))
		case i == 0:
			mayGoOn = false // a header is wrapped once
		}
	}
	return slices.Compact(slices.Sorted(slices.Values(list)))
}

// wrapped reports whether a line can be the first part of one that was wrapped.
func (m *matcher) wrapped(i int) bool {
	if i+1 >= len(m.h.lines) {
		return false
	}
	kind := m.h.lines[i+1].kind
	return kind != kindBlank && kind != kindNoLine
}

// lost says from where on the hunk is not as the tree is.
func (m *matcher) lost(f *damagedFile) *placeError {
	e := &placeError{line: m.h.line, depth: m.far}
	if len(m.h.lines) == 0 {
		e.text = fmt.Sprintf("hunk %d of %s has no lines", m.h.number, f.name())
		return e
	}
	at := min(m.far, len(m.h.lines)-1)
	for m.far == 0 && at < len(m.h.lines)-1 && (m.h.lines[at].kind == kindBlank || m.h.lines[at].kind == m.s.free) {
		at++
	}
	e.line, e.side = m.h.lines[at].num, "old"
	if m.s == newSide {
		e.side = "new"
	}
	e.text = fmt.Sprintf("hunk %d of %s", m.h.number, f.name())
	if m.near > 0 {
		e.text += fmt.Sprintf(" (it comes nearest at line %d there)", m.near)
	}
	return e
}

// choose takes the one reading, or the one at the place that the header names.
func (m *matcher) choose(f *damagedFile, found []reading, shift int) (reading, *placeError) {
	expect := m.h.start(m.s)
	// The nearest of those that say the same gives the better numbers in the header.
	slices.SortStableFunc(found, func(a, b reading) int {
		return cmp.Compare(distance(a.start, expect+shift), distance(b.start, expect+shift))
	})
	var places []reading
	for _, r := range found {
		if places = keep(places, r); len(places) > maxReadings {
			break
		}
	}
	if len(places) == 1 {
		return places[0], nil
	}
	best, second := places[0], places[1]
	// Nearest as git counts, which starts from the header, and nearest after what the
	// hunk before has moved by: when the two differ, the header is of another kernel.
	near := distance(best.start, expect+shift) < distance(second.start, expect+shift)
	for _, r := range places[1:] {
		// With the same lines in it, it is the same place read in another way.
		near = near && distance(best.start, expect) < distance(r.start, expect) && (r.start >= best.end || r.end <= best.start)
	}
	if near && m.t.inside(best.start, m.h.section) {
		return best, nil
	}
	return reading{}, m.ambiguous(f, places)
}

func (m *matcher) ambiguous(f *damagedFile, places []reading) *placeError {
	slices.SortFunc(places, func(a, b reading) int { return cmp.Compare(a.start, b.start) })
	var lines []string
	for _, r := range places {
		if s := fmt.Sprint(r.start + 1); !slices.Contains(lines, s) {
			lines = append(lines, s)
		}
	}
	const most = 8
	if len(lines) > most {
		lines = append(lines[:most], "more")
	}
	text := fmt.Sprintf("hunk %d of %s fits at several places, at lines %s: its white space must be repaired by hand", m.h.number, f.name(), strings.Join(lines, ", "))
	if overlap := places[0].end > places[len(places)-1].start; overlap {
		text = fmt.Sprintf("hunk %d of %s at line %s can be read in more than one way: a line was wrapped, or a blank line lost, beside what it changes", m.h.number, f.name(), lines[0])
	}
	named := slices.ContainsFunc(places, func(r reading) bool { return m.t.inside(r.start, m.h.section) })
	return &placeError{line: m.h.line, certain: true, named: named, text: text, depth: m.far}
}

func distance(a, b int) int { return max(a-b, b-a) }

// inside reports whether a hunk that begins at a line is in the function that its
// header names: the last line before it that begins with a letter, as git has it,
// and is no label. git cuts the name after 80 bytes.
func (t *treeFile) inside(start int, section string) bool {
	want := squeeze(section)
	for k := min(start, len(t.lines)) - 1; k >= 0 && want != ""; k-- {
		l := t.lines[k]
		if l == "" || !isLetter(l[0]) || strings.HasSuffix(t.plain[k], ":") {
			continue
		}
		return strings.HasPrefix(t.plain[k], want)
	}
	return false
}

func isLetter(c byte) bool {
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c == '_' || c == '$'
}

// name is the file's name for messages.
func (f *damagedFile) name() string {
	if f.newName != "" {
		return f.newName
	}
	return f.oldName
}
