package thread

import (
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// scripts collects the scripts of all messages, each once.
func (t *Thread) scripts(list []*message) {
	var all []Script
	left := 0
	for _, m := range list {
		s := scanner{m: m, lines: m.lines}
		s.scan()
		for _, found := range s.found {
			if len(found.Text) > MaxScript {
				t.warn("line %d: a script of more than %d KiB is left out", found.Line, MaxScript>>10)
				continue
			}
			all = append(all, found)
		}
	}
	// What somebody wrote comes before what others quote of it.
	slices.SortStableFunc(all, func(a, b Script) int { return btoi(a.Quoted) - btoi(b.Quoted) })
	seen := map[string]bool{}
	for _, s := range all {
		k := squeeze(s.Text)
		if seen[k] {
			continue
		}
		seen[k] = true
		if len(t.Scripts) == MaxScripts {
			left++
			continue
		}
		t.Scripts = append(t.Scripts, s)
	}
	if left > 0 {
		t.warn("%d scripts more than the %d that are kept", left, MaxScripts)
	}
	t.dropParts()
}

// dropParts removes scripts that are a part of another: a thread shows the same
// command before and after.
func (t *Thread) dropParts() {
	texts := make([]string, len(t.Scripts))
	for i, s := range t.Scripts {
		texts[i] = "\n" + squeeze(s.Text) + "\n"
	}
	var kept []Script
	for i, s := range t.Scripts {
		part := false
		for j := range texts {
			part = part || i != j && len(texts[j]) > len(texts[i]) && (s.Quoted || !t.Scripts[j].Quoted) && strings.Contains(texts[j], texts[i])
		}
		if !part {
			kept = append(kept, s)
		}
	}
	t.Scripts = kept
}

func btoi(b bool) int {
	if b {
		return 1
	}
	return 0
}

// squeeze makes texts equal that differ in white space only.
func squeeze(s string) string {
	var list []string
	for l := range strings.Lines(s) {
		if l = strings.Join(strings.Fields(l), " "); l != "" {
			list = append(list, l)
		}
	}
	return strings.Join(list, "\n")
}

// mostFailures is how many beginnings of scripts that do not end a message may
// have: each costs as many lines as a script has.
const mostFailures = 50

// scanner finds the scripts in one message.
type scanner struct {
	m        *message
	lines    []line
	found    []Script
	session  session
	ends     map[string][]int // lines by their text, trimmed: where a here-document may end
	failures int
}

// session is what was typed at a prompt: the commands so far, without what they
// printed.
type session struct {
	commands []string
	from     int // line
	depth    int
	timed    bool // the last line was a figure of "time"
	wasTimed bool // the last command had one
	gap      bool // a line of prose stands below the last command: "Deleting them:"
}

func (s *scanner) usable(i int) bool {
	return i < len(s.lines) && s.lines[i].zone == inText && len(s.lines[i].text) < maxLine
}

func (s *scanner) scan() {
	s.m.commands = map[int]string{}
	for i := 0; i < len(s.lines); {
		if !s.usable(i) {
			s.flush()
			i++
			continue
		}
		i = s.step(i)
	}
	s.flush()
}

// step takes line i, or the lines of a script that begins there.
func (s *scanner) step(i int) int {
	l := s.lines[i]
	text := strings.TrimSpace(l.bare)
	if text != "" && l.depth != s.session.depth {
		s.flush()
	}
	if strings.HasPrefix(text, "#!/") {
		s.flush()
		return s.block(i, true)
	}
	if command, named, ok := promptOf(l.bare); ok && runs(command, named) {
		if next, ok := s.prompt(i, command); ok {
			return next
		}
	}
	if text == "" {
		return i + 1
	}
	if len(s.session.commands) > 0 {
		if s.output(i, text) {
			return i + 1
		}
		s.flush()
	}
	if isShell(text, s.next(i), false) {
		return s.block(i, false)
	}
	return i + 1
}

// next is the line below i, if it is of the same text.
func (s *scanner) next(i int) string {
	if s.usable(i+1) && s.lines[i+1].depth == s.lines[i].depth {
		return s.lines[i+1].bare
	}
	return ""
}

// prompt takes a command that was typed, and the lines it goes on in.
func (s *scanner) prompt(i int, command string) (next int, ok bool) {
	text, next, ok := s.whole(i, command)
	if !ok {
		return i, false
	}
	if needsTerminal(command) {
		s.session.wasTimed = false
		return next, true
	}
	g := &s.session
	// After a remark the same command is another run, with something changed.
	if g.gap && slices.Contains(g.commands, text) {
		s.flush()
	}
	// One that only looks does not belong to a benchmark.
	if len(g.commands) > 0 && g.wasTimed && looks(command) {
		s.flush()
	}
	if len(g.commands) == 0 {
		*g = session{from: i, depth: s.lines[i].depth}
	}
	g.commands = append(g.commands, text)
	g.timed, g.wasTimed, g.gap = false, false, false
	s.m.commands[next-1] = text
	return next, true
}

// output reports whether a line below a command may be what it printed.
func (s *scanner) output(i int, text string) bool {
	g := &s.session
	if isTiming(text) {
		g.timed, g.wasTimed = true, true
		return true
	}
	label := strings.HasSuffix(text, ":")
	switch {
	case label && g.wasTimed && s.alone(i):
		g.gap = true
		return true
	case g.timed, isSentence(text), isTrailer(text):
		return false
	}
	return true
}

// alone reports whether a line is a paragraph of its own.
func (s *scanner) alone(i int) bool {
	empty := func(i int) bool { return i < 0 || i >= len(s.lines) || strings.TrimSpace(s.lines[i].bare) == "" }
	return empty(i-1) && empty(i+1)
}

// flush ends a session.
func (s *scanner) flush() {
	g := s.session
	s.session = session{depth: -1}
	if !slices.ContainsFunc(g.commands, func(c string) bool { return !looks(c) }) {
		return
	}
	s.add(g.from, strings.Join(g.commands, "\n"))
}

func (s *scanner) add(from int, text string) {
	text = strings.TrimRight(text, " \t\n") + "\n"
	s.found = append(s.found, Script{
		Message: s.m.Number, Line: s.lines[from].n, Author: s.m.Author,
		Text: text, Quoted: s.lines[from].depth > 0, Files: filesOf(text),
	})
}

var hereDoc = regexp.MustCompile(`<<-?\s*["'\\]?([A-Za-z_]\w*)`)

// whole completes a command that goes on in the lines below: after a backslash,
// in a here-document, or in a loop, before whose lines "> " may stand. ok is
// false if it does not end.
func (s *scanner) whole(i int, command string) (text string, next int, ok bool) {
	longest := 200 // lines
	if s.failures > mostFailures {
		longest = 5
	}
	defer func() {
		if !ok {
			s.failures++
		}
	}()
	depth := s.lines[i].depth
	lines := []string{command}
	nest := nesting(command)
	next = i + 1
	for goesOn := strings.HasSuffix(command, `\`); goesOn || nest > 0; next++ {
		if next-i > longest || !s.usable(next) || s.lines[next].depth > depth+1 || s.lines[next].depth < depth {
			return "", i, false
		}
		l := s.lines[next].bare
		if typed, _, ok := promptOf(l); ok && nest > 0 && runs(typed, false) || isSentence(l) {
			return "", i, false
		}
		lines = append(lines, l)
		nest += nesting(l)
		goesOn = strings.HasSuffix(l, `\`)
	}
	if m := hereDoc.FindStringSubmatch(command); m != nil {
		end := s.ending(m[1], next)
		if end < 0 || end-next > longest {
			return "", i, false
		}
		for ; next <= end; next++ {
			lines = append(lines, s.lines[next].bare)
		}
	}
	return strings.Join(lines, "\n"), next, nest == 0
}

// ending finds the next line that is word, -1 if there is none.
func (s *scanner) ending(word string, from int) int {
	if s.ends == nil {
		s.ends = map[string][]int{}
		for i, l := range s.lines {
			if t := strings.TrimSpace(l.bare); t != "" && len(t) < 40 && l.zone == inText {
				s.ends[t] = append(s.ends[t], i)
			}
		}
	}
	list := s.ends[word]
	at, _ := slices.BinarySearch(list, from)
	if at == len(list) {
		return -1
	}
	return list[at]
}

// block takes the script at line i, if the lines from there on make one, and
// returns the line to go on with. A file begins with "#!", and may then call what
// it likes.
func (s *scanner) block(i int, file bool) int {
	b := blockReader{scanner: s, from: i, depth: s.lines[i].depth, file: file}
	end := b.read()
	text := b.text(end)
	if b.nest != 0 || !file && !b.commands {
		s.failures++
		if s.failures > mostFailures {
			return max(end, i+1)
		}
		return i + 1
	}
	if one := !strings.Contains(text, "\n"); !file && one && !s.standsOut(i, end) {
		return end
	}
	if file || slices.ContainsFunc(strings.Split(text, "\n"), func(l string) bool {
		l = strings.TrimSpace(l)
		return l != "" && !strings.HasPrefix(l, "#") && !looks(l)
	}) {
		s.add(i, text)
	}
	s.m.commands[end-1] = b.timed
	return end
}

// standsOut reports whether a command without a prompt stands apart from prose.
func (s *scanner) standsOut(from, end int) bool {
	if nest := strings.TrimSpace(s.lines[from].bare); opens(strings.TrimPrefix(nest, "time "), "") {
		return true
	}
	above := from == 0 || s.lines[from-1].depth != s.lines[from].depth || strings.HasSuffix(strings.TrimSpace(s.lines[from-1].bare), ":") || strings.TrimSpace(s.lines[from-1].bare) == ""
	below := end >= len(s.lines) || s.lines[end].depth != s.lines[from].depth || strings.TrimSpace(s.lines[end].bare) == "" || isTiming(s.lines[end].bare)
	return above && below
}

// blockReader reads the lines of one script without prompts.
type blockReader struct {
	*scanner
	from, depth int
	file        bool
	nest        int    // of loops and conditions
	commands    bool   // there is more than assignments
	timed       string // the command that is timed, if there is one
}

// read returns the line behind the block.
func (b *blockReader) read() int {
	const longest = 2000 // lines
	end := b.from
	for i := b.from; i < min(len(b.lines), b.from+longest) && b.usable(i); {
		text := strings.TrimSpace(b.lines[i].bare)
		if text == "" {
			i++
			continue
		}
		if b.lines[i].depth != b.depth || !b.takes(i, text, i > end) {
			break
		}
		i = b.take(i, text)
		end = i
		if b.nest < 0 {
			break
		}
	}
	return end
}

// takes reports whether a line belongs to the block. afterGap is set if empty
// lines stand before it.
func (b *blockReader) takes(i int, text string, afterGap bool) bool {
	if i == b.from {
		return true
	}
	if _, named, ok := promptOf(b.lines[i].bare); ok && named {
		return false
	}
	comment := strings.HasPrefix(text, "#")
	switch {
	case isShell(text, b.next(i), true):
		// "# cmd" below empty lines is a prompt, unless it goes on in shell.
		return !comment || b.nest > 0 || b.file || !afterGap || !runs(strings.TrimSpace(strings.TrimLeft(text, "#")), false)
	case isTrailer(text) || isTiming(text) || text == "---" || isSentence(text):
		return false
	case b.nest > 0:
		return true
	}
	list := strings.Fields(text)
	return b.file && !isProse(list) && !endsSentence(list[len(list)-1])
}

// take reads a line and those it goes on in.
func (b *blockReader) take(i int, text string) int {
	b.nest += nesting(text)
	if m := assignment.FindString(text); m != text && !strings.HasPrefix(text, "#") {
		b.commands = true
	}
	if strings.HasPrefix(text, "time ") {
		b.timed = text
	}
	for strings.HasSuffix(text, `\`) && b.usable(i+1) && b.lines[i+1].depth == b.depth {
		i++
		text = strings.TrimSpace(b.lines[i].bare)
		b.nest += nesting(text)
	}
	if m := hereDoc.FindStringSubmatch(text); m != nil {
		if end := b.ending(m[1], i+1); end >= 0 {
			return end + 1
		}
	}
	return i + 1
}

// text is the block without indentation that all of it has, and without comments
// at its end: they are of what comes next.
func (b *blockReader) text(end int) string {
	var list []string
	indent := -1
	for _, l := range b.lines[b.from:end] {
		s := strings.TrimRight(l.bare, " \t")
		if n := len(s) - len(strings.TrimLeft(s, " \t")); s != "" && (indent < 0 || n < indent) {
			indent = n
		}
		list = append(list, s)
	}
	for n := len(list); n > 0 && !b.file && (list[n-1] == "" || strings.HasPrefix(strings.TrimSpace(list[n-1]), "#")); n-- {
		list = list[:n-1]
	}
	for i := range list {
		list[i] = list[i][min(len(list[i]), max(indent, 0)):]
	}
	return strings.Join(list, "\n")
}

// filesOf lists the files by relative names that a script reads and does not
// make: what a batch mode, a shell or a redirection is given.
func filesOf(text string) []string {
	reads, makes := map[string]bool{}, map[string]bool{}
	for l := range strings.Lines(text) {
		list := strings.FieldsFunc(l, func(r rune) bool { return strings.ContainsRune(" \t\n;|&()", r) })
		first := true // word of a command, as far as it matters here
		for i, w := range list {
			next := ""
			if i+1 < len(list) {
				next = list[i+1]
			}
			w = strings.Trim(w, `"'`)
			switch {
			case strings.HasPrefix(w, "#"):
			case w == "-b" || w == "-batch" || w == "--batch":
				if batches(list[:i]) {
					reads[next] = true
				}
			case w == "-f" && slices.Contains(list[:i], "nft"), first && (w == "source" || w == "."):
				reads[next] = true
			case shells[w] && !strings.HasPrefix(next, "-"):
				reads[next] = true
			case strings.HasPrefix(w, "./"):
				reads[w] = true
			case w == "<":
				reads[next] = true
			case strings.HasPrefix(w, "<") && !strings.HasPrefix(w, "<<"):
				reads[w[1:]] = true
			case w == ">" || w == ">>" || w == "tee":
				makes[next] = true
			case strings.HasPrefix(w, ">"):
				makes[strings.TrimLeft(w, ">")] = true
			}
			if strings.HasPrefix(w, "#") {
				break
			}
			first = prefixes[w] || strings.HasPrefix(w, "-") && first
		}
	}
	var names []string
	for name := range reads {
		name = filepath.Clean(strings.Trim(name, `"'`))
		if made := makes[name] || makes["./"+name]; !made && name != "." && fileName.MatchString(name) && filepath.IsLocal(name) {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

var (
	shells   = words("bash sh dash python python3 perl")
	fileName = regexp.MustCompile(`^[A-Za-z0-9_][\w./+-]*$`)
)

// batches reports whether ip, tc or bridge is among words.
func batches(list []string) bool {
	return slices.ContainsFunc(list, func(w string) bool { w = filepath.Base(w); return w == "ip" || w == "tc" || w == "bridge" })
}
