package series

import (
	"bytes"
	"fmt"
	"regexp"
	"strconv"
	"strings"
)

// damaged is a diff as it was found, cut into its files and hunks.
type damaged struct {
	name  string
	lines []damagedLine
	list  []damagedFile
	crlf  bool // its lines ended in CRLF
	notes []note
}

// damagedFile is what a diff says about one file.
type damagedFile struct {
	line             int      // of the user's file
	head             []string // the lines before the first hunk, made clean
	verbatim         []string // all of it, for a binary patch
	oldName, newName string   // "" if that side has no file
	hunks            []damagedHunk
}

// damagedHunk is one hunk. lines goes on to whatever comes next: where the hunk
// ends, only its counts and the tree can say.
type damagedHunk struct {
	line         int
	number       int // in its file, from 1
	oldPos, oldN int
	newPos, newN int
	section      string // what follows the second @@
	lines        []damagedLine
	last         bool // of the diff: any text may follow
}

// start is the index of the first line of a side, as the hunk's header has it.
func (h *damagedHunk) start(s side) int {
	if s == newSide {
		return max(0, h.newPos-1)
	}
	return max(0, h.oldPos-1)
}

// counts returns how many lines a side and the other one have.
func (h *damagedHunk) counts(s side) (own, other int) {
	if s == newSide {
		return h.newN, h.oldN
	}
	return h.oldN, h.newN
}

// The kinds of a line, beside '+' and '-'.
const (
	kindSpace  = ' '  // it begins with white space, which may be its mark
	kindBlank  = 'b'  // nothing but white space
	kindPlain  = 'p'  // no mark: white space at its beginning was lost, or it goes on from the line before
	kindNoLine = '\\' // "\ No newline at end of file"
)

// damagedLine is a line of a hunk.
type damagedLine struct {
	num  int    // of the user's file
	raw  string // without its end
	kind byte
	all  string // without white space
	body string // the same, without the mark
}

func newDamagedLine(num int, raw string) damagedLine {
	l := damagedLine{num: num, raw: raw, all: squeeze(raw)}
	l.body = l.all
	switch {
	case l.all == "":
		l.kind = kindBlank
	case raw[0] == '+' || raw[0] == '-':
		l.kind, l.body = raw[0], l.all[1:]
	case strings.HasPrefix(raw, `\`) && strings.EqualFold(l.all, `\Nonewlineatendoffile`):
		l.kind = kindNoLine
	case l.all[0] != raw[0] || strings.HasPrefix(raw, nbsp):
		l.kind = kindSpace
	default:
		l.kind = kindPlain
	}
	return l
}

// isSignature reports whether a line is the "-- " before a mailer's or git's
// signature.
func (l *damagedLine) isSignature() bool { return l.all == "--" }

// nbsp is U+00A0, which web pages and mailers put where a blank was.
const nbsp = "\u00a0"

// squeeze removes white space. Other bytes, also those that are no UTF-8, stay.
func squeeze(s string) string {
	i := strings.IndexAny(s, " \t\r\v\f"+nbsp)
	if i < 0 {
		return s
	}
	b := make([]byte, i, len(s))
	copy(b, s[:i])
	for ; i < len(s); i++ {
		switch c := s[i]; {
		case c == ' ' || c == '\t' || c == '\r' || c == '\v' || c == '\f':
		case strings.HasPrefix(s[i:], nbsp):
			i += len(nbsp) - 1
		default:
			b = append(b, c)
		}
	}
	return string(b)
}

// words splits at white space, as squeeze sees it.
func words(s string) []string { return strings.Fields(strings.ReplaceAll(s, nbsp, " ")) }

var (
	// gitFrame is how git begins a file, with or without its blanks damaged.
	gitFrame = regexp.MustCompile(`^(?:\s|\x{a0})*diff(?:\s|\x{a0})+--git(?:\s|\x{a0})`)
	// hunkFrame is the header of a hunk.
	hunkFrame = regexp.MustCompile(`^(?:\s|\x{a0})*@@(?:\s|\x{a0})*-(\d{1,9})(?:,(\d{1,9}))?(?:\s|\x{a0})*\+(\d{1,9})(?:,(\d{1,9}))?(?:\s|\x{a0})*@@(.*)$`)
	indexLine = regexp.MustCompile(`^index [0-9a-f]{4,64}\.\.[0-9a-f]{4,64}( [0-7]{6})?$`)
)

// headWords are the beginnings of the lines that git puts between "diff --git"
// and the first hunk.
var headWords = []string{
	"index", "old mode", "new mode", "deleted file mode", "new file mode",
	"similarity index", "dissimilarity index", "rename from", "rename to", "copy from", "copy to", "---", "+++",
}

// readDamaged cuts a diff into files and hunks. What stands before it is skipped.
func readDamaged(name string, data []byte, firstLine int) (*damaged, error) {
	d := &damaged{name: name}
	d.crlf = bytes.Contains(data, []byte("\r\n"))
	num := firstLine
	// Lines are looked at without CR, whether or not all of them have one: of those
	// that the tree has, its own end counts.
	text := strings.TrimSuffix(strings.TrimPrefix(string(data), "\ufeff"), "\n")
	for raw := range strings.SplitSeq(text, "\n") {
		d.lines = append(d.lines, newDamagedLine(num, strings.TrimSuffix(raw, "\r")))
		num++
	}
	// A patch of both kinds is one that Parse refuses.
	git := false
	for i := 0; i < len(d.lines) && !git; i++ {
		git = gitFrame.MatchString(d.lines[i].raw)
	}
	for i := 0; i < len(d.lines); {
		if !d.beginsFile(i, git) {
			i++
			continue
		}
		end := i + 1
		for end < len(d.lines) && !d.beginsFile(end, git) {
			end++
		}
		if err := d.readFile(i, end, git); err != nil {
			return nil, err
		}
		i = end
	}
	if len(d.list) == 0 {
		return nil, &ParseError{Name: name, Err: ErrNoDiff}
	}
	if f := d.list[len(d.list)-1]; len(f.hunks) > 0 {
		f.hunks[len(f.hunks)-1].last = true
	}
	return d, nil
}

// beginsFile reports whether the diff of a file begins at a line: in git's diffs
// only with "diff --git", because "--- x" may be a line that is taken out.
func (d *damaged) beginsFile(i int, git bool) bool {
	l := &d.lines[i]
	if git {
		return strings.HasPrefix(l.all, "diff--git") && gitFrame.MatchString(l.raw)
	}
	return strings.HasPrefix(l.all, "---") && i+2 < len(d.lines) && strings.HasPrefix(d.lines[i+1].all, "+++") && hunkFrame.MatchString(d.lines[i+2].raw)
}

func (d *damaged) errorAt(i int, format string, args ...any) error {
	return &DamageError{Name: d.name, Line: d.lines[i].num, Text: fmt.Sprintf(format, args...)}
}

// readFile reads lines[i:end], which begin the diff of a file.
func (d *damaged) readFile(i, end int, git bool) error {
	f := damagedFile{line: d.lines[i].num}
	if git {
		w := words(d.lines[i].raw)
		// A long path makes this line longer than mailers let it be. They
		// break it before the second name.
		if next := i + 1; len(w) == 3 && next < end && len(words(d.lines[next].raw)) == 1 {
			w = append(w, words(d.lines[next].raw)...)
			d.note(d.lines[next].num, "wrapped line joined")
			i++
		}
		if len(w) != 4 {
			return d.errorAt(i, "the names in this line cannot be told apart: write it as diff --git a/FILE b/FILE")
		}
		d.head(&f, i, strings.Join(w, " "))
		f.oldName, f.newName = stripFirst(w[2]), stripFirst(w[3])
		i++
	}
	i, err := d.readHead(&f, i, end)
	if err != nil {
		return err
	}
	if f.verbatim == nil {
		if err := d.readHunks(&f, i, end); err != nil {
			return err
		}
	}
	for _, name := range []string{f.oldName, f.newName} {
		if name == "" {
			continue
		}
		if err := checkPath(name); err != nil {
			return &ParseError{Name: d.name, Err: err}
		}
	}
	d.list = append(d.list, f)
	return nil
}

// head adds a clean line of the frame, and a note if it was another.
func (d *damaged) head(f *damagedFile, i int, clean string) {
	f.head = append(f.head, clean)
	if clean != d.lines[i].raw && squeeze(clean) == d.lines[i].all {
		d.note(d.lines[i].num, "blanks of the diff's header restored")
	}
}

// stripFirst takes the first folder off a name of a diff, as git apply -p1 does.
func stripFirst(name string) string {
	if name == "/dev/null" {
		return ""
	}
	if _, rest, ok := strings.Cut(name, "/"); ok {
		return rest
	}
	return name
}

// readHead reads what is between a file's first line and its first hunk.
func (d *damaged) readHead(f *damagedFile, i, end int) (int, error) {
	first := d.firstHunk(i, end)
	for ; i < first; i++ {
		l := &d.lines[i]
		clean := strings.Join(words(l.raw), " ")
		if clean == "GIT binary patch" {
			// Blanks have no part in it: it is as it should be, or git refuses it.
			for ; i < end; i++ {
				f.verbatim = append(f.verbatim, d.lines[i].raw)
			}
			return end, nil
		}
		word := headWord(clean)
		switch {
		case word == "" && (l.kind == kindBlank || first == end):
			continue // text behind a diff that has no hunks
		case word == "":
			return 0, d.errorAt(i, "%q is no line of a diff's header", cut(l.raw))
		case word == "index" && !indexLine.MatchString(clean):
			// git needs it for binary files only.
			d.note(l.num, "unreadable index line left out")
			continue
		}
		if err := d.headName(f, i, word, clean); err != nil {
			return 0, err
		}
	}
	return i, nil
}

// firstHunk returns where the first hunk in lines[i:end] begins, end if none does.
func (d *damaged) firstHunk(i, end int) int {
	for i < end && !d.beginsHunk(i) {
		i++
	}
	return i
}

func (d *damaged) beginsHunk(i int) bool {
	return strings.HasPrefix(d.lines[i].all, "@@-") && hunkFrame.MatchString(d.lines[i].raw)
}

func headWord(clean string) string {
	for _, w := range headWords {
		if rest, ok := strings.CutPrefix(clean, w); ok && strings.HasPrefix(rest, " ") {
			return w
		}
	}
	return ""
}

// headName takes the names out of a line of the header and adds it, clean.
func (d *damaged) headName(f *damagedFile, i int, word, clean string) error {
	rest := clean[len(word)+1:]
	name, more, _ := strings.Cut(rest, " ")
	if strings.HasPrefix(name, `"`) {
		return d.errorAt(i, "the name %s is quoted, and such a diff is not repaired", cut(name))
	}
	switch word {
	case "---":
		f.oldName, clean = stripFirst(name), word+" "+name // what follows is a date
	case "+++":
		f.newName, clean = stripFirst(name), word+" "+name
	case "rename from", "copy from":
		f.oldName = name
	case "rename to", "copy to":
		f.newName = name
	case "new file mode":
		f.oldName = ""
	case "deleted file mode":
		f.newName = ""
	}
	if more != "" && (strings.HasPrefix(word, "rename") || strings.HasPrefix(word, "copy")) {
		return d.errorAt(i, "the name %q has a blank, and such a diff is not repaired", cut(rest))
	}
	d.head(f, i, clean)
	return nil
}

// readHunks reads the hunks in lines[i:end].
func (d *damaged) readHunks(f *damagedFile, i, end int) error {
	for i < end {
		m := hunkFrame.FindStringSubmatch(d.lines[i].raw)
		h := damagedHunk{line: d.lines[i].num, number: len(f.hunks) + 1, oldN: 1, newN: 1}
		for k, n := range []*int{&h.oldPos, &h.oldN, &h.newPos, &h.newN} {
			if m[k+1] != "" {
				*n, _ = strconv.Atoi(m[k+1]) // nine digits at most
			}
		}
		h.section = strings.Join(words(m[5]), " ")
		from := i + 1
		i = d.firstHunk(from, end)
		h.lines = d.lines[from:i]
		if h.oldN > len(d.lines)+maxLost || h.newN > len(d.lines)+maxLost {
			return d.errorAt(from-1, "the hunk is to have %d lines, and the patch has %d", max(h.oldN, h.newN), len(d.lines))
		}
		f.hunks = append(f.hunks, h)
	}
	return nil
}

// maxLost is how many blank lines of a hunk can have been lost.
const maxLost = 1 << 16

// cut shortens what a message quotes.
func cut(s string) string {
	const most = 60
	if s = strings.ToValidUTF8(s, "?"); len(s) > most {
		return strings.ToValidUTF8(s[:most], "") + "..."
	}
	return s
}
