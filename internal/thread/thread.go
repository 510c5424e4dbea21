// Package thread reads a mail thread in which a regression was reported, and says
// what is in it: patches, the series they make, shell scripts that show the
// problem, timing figures, and trailers.
//
//	t, err := thread.Read("thread.mbox.gz", os.Stdin)
//	s, err := t.Choose(0) // the newest complete series
//	for _, p := range s.Patches { ... p.Patch, or p.Raw if p.Err != nil ... }
//	for _, s := range t.Scripts { ... s.Text ... }
//
// A thread is an mbox, a maildir, one mail, or text as archives of mailing lists
// print it, in which headers, indentation and empty lines may be lost. What is
// missing there stays empty; that text has no structure is no error.
//
// Nothing that is read is run, and all of it is bounded: MaxMailbox bytes and
// MaxSeries mails of package series, and what the constants here say.
package thread

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/kbisect/kbisect/internal/series"
)

// Bounds on what is taken out of a thread.
const (
	MaxScripts  = 100      // more are left out, with a warning
	MaxScript   = 64 << 10 // bytes of one; a longer one is left out
	MaxTimings  = 1000
	MaxTrailers = 1000
	MaxWarnings = 200
	MaxLines    = 2 << 20 // of text; what comes after is left out, with a warning
	maxLine     = 4 << 10 // bytes; a longer line is nothing but text or diff
)

// The forms of a thread.
const (
	FormMbox    = "mbox"
	FormMaildir = "maildir"
	FormMail    = "mail"
	FormText    = "web archive text"
)

// The kinds of a message.
const (
	KindPatch   = "patch"   // it is a patch of a series
	KindCover   = "cover"   // the letter before a series
	KindReply   = "reply"   // it answers another message
	KindMessage = "message" // any other
)

// Thread is what was read. It is a value; nothing changes its slices.
type Thread struct {
	Name     string // what it was read from
	Form     string // FormMbox, ...
	Messages []Message
	Series   []Series // in the order of their first patches
	FollowUp []Patch  // diffs in replies, in the order of the messages
	Scripts  []Script // those of the mails before those in quoted text only
	Timings  []Timing
	Trailers []Trailer
	Warnings []string // what was left out, and what else there was

	lines int  // that were read
	full  bool // there were more
}

// Message is one mail, or one message of an archive's page. What the source does
// not say is empty.
type Message struct {
	Number    int    // from 1
	Line      int    // of the file, where it begins, from 1
	Author    string // as it stands: "Name <addr>", or only one of them
	Date      string // as it stands
	Subject   string // with its tags
	ID        string // without "<" and ">"
	InReplyTo string
	Kind      string // KindPatch, ...
}

// Patch is one patch or suggestion in a thread.
type Patch struct {
	Message  int    // its number
	Author   string // by "From:" in the text if there is one, else the sender
	Date     string
	Subject  string // without tags
	Version  int    // 1 if the subject gives none
	N, Of    int    // 0 without numbers
	Files    []string
	FollowUp bool // a diff in a reply, or beside marked patches: a suggestion

	Patch series.Patch // as git am would take it; empty if Err is set
	Raw   []byte       // the diff as it stands, lines ended by LF
	Line  int          // of the file, where Raw begins; if an encoding moved it, where its mail does
	Err   error        // why Raw is no usable patch as it stands: it is damaged
}

// Script is shell that stands in a message.
type Script struct {
	Message int
	Line    int // of the file, where it begins
	Author  string
	Text    string   // what can be run: without prompts, quoting and output
	Quoted  bool     // it is only in quoted text; its writer is not Author
	Files   []string // that it reads and does not make, by relative names, sorted
}

// Timing is a figure in a message.
type Timing struct {
	Message int
	Line    int
	Text    string // the line as it stands, unquoted and trimmed
	Seconds float64
	Command string // what was timed, if the line stands below it
}

// Trailer is a line such as "Fixes: ..." in a message.
type Trailer struct {
	Message    int
	Key, Value string
}

// Read reads a thread from a file or maildir, or from in if name is "-". A file
// may be in gzip. It fails on what is empty, binary, or beyond the bounds.
func Read(name string, in io.Reader) (*Thread, error) {
	if name == "-" {
		return readFrom("standard input", in)
	}
	info, err := os.Stat(name)
	if err != nil {
		return nil, fmt.Errorf("read thread: %w", err)
	}
	if info.IsDir() {
		return readMaildir(name)
	}
	f, err := os.Open(name)
	if err != nil {
		return nil, fmt.Errorf("read thread: %w", err)
	}
	defer f.Close()
	return readFrom(name, f)
}

func readFrom(name string, r io.Reader) (*Thread, error) {
	data, err := series.ReadAll(r)
	if err != nil {
		return nil, fmt.Errorf("read thread %q: %w", name, err)
	}
	return Parse(name, data)
}

// Parse reads a thread of any form but a maildir. name is for messages; data may
// be in gzip and is not kept.
func Parse(name string, data []byte) (*Thread, error) {
	t := &Thread{Name: name}
	if err := t.parse(data); err != nil {
		return nil, fmt.Errorf("read thread %q: %w", name, err)
	}
	return t, nil
}

func (t *Thread) parse(data []byte) error {
	if bytes.HasPrefix(data, []byte("\x1f\x8b")) || len(data) > series.MaxMailbox {
		var err error
		if data, err = series.ReadAll(bytes.NewReader(data)); err != nil {
			return err
		}
	}
	if err := checkText(data); err != nil {
		return err
	}
	var list []*message
	var err error
	switch {
	case isMailbox(data):
		list, err = t.mailbox(t.Name, data)
	default:
		t.Form = FormText
		list = t.page(data)
	}
	if err != nil {
		return err
	}
	return t.fill(list)
}

// checkText refuses what holds no text.
func checkText(data []byte) error {
	if bytes.HasPrefix(data, []byte("\xff\xfe")) || bytes.HasPrefix(data, []byte("\xfe\xff")) {
		return errors.New("it is in UTF-16: save it as UTF-8")
	}
	if len(bytes.TrimSpace(data)) == 0 {
		return errors.New("it is empty")
	}
	if i := bytes.IndexByte(data, 0); i >= 0 {
		return fmt.Errorf("it is no text: line %d has a zero byte; give an mbox, a maildir, a mail, or a thread saved as text", 1+bytes.Count(data[:i], []byte("\n")))
	}
	return nil
}

// fill says what is in the messages.
func (t *Thread) fill(list []*message) error {
	if len(list) > series.MaxSeries {
		return fmt.Errorf("it holds more than %d messages: split it", series.MaxSeries)
	}
	list = t.dropRepeats(list)
	for i, m := range list {
		m.Number = i + 1
		m.survey()
	}
	marked := slices.ContainsFunc(list, func(m *message) bool { return m.tag.Marked && !m.tag.Reply && len(m.diffs) > 0 })
	var patches []*found
	for _, m := range list {
		patches = append(patches, m.patches(t.Name, marked)...)
		t.Messages = append(t.Messages, m.Message)
	}
	t.group(list, patches)
	t.scripts(list)
	t.timings(list)
	t.trailers(list)
	return nil
}

// dropRepeats removes the mails that came by two lists.
func (t *Thread) dropRepeats(list []*message) []*message {
	seen := map[string]bool{}
	n := len(list)
	list = slices.DeleteFunc(list, func(m *message) bool {
		repeat := m.ID != "" && seen[m.ID]
		seen[m.ID] = true
		return repeat
	})
	if n > len(list) {
		t.warn("%d mails came twice, by their Message-ID; each is read once", n-len(list))
	}
	return list
}

func (t *Thread) warn(format string, args ...any) {
	switch len(t.Warnings) {
	case MaxWarnings:
		t.Warnings = append(t.Warnings, t.Name+": there are more warnings than are kept")
	default:
		if len(t.Warnings) < MaxWarnings {
			t.Warnings = append(t.Warnings, t.Name+": "+fmt.Sprintf(format, args...))
		}
	}
}

// message is a Message with its text.
type message struct {
	Message
	tag      series.Tag
	mail     *series.Mail // nil in an archive's page
	lines    []line
	diffs    []region
	commands map[int]string // what was run, by the index of its last line
}

// line is one line of a message.
type line struct {
	text  string // as it stands, without its end
	raw   []byte // before its charset was decoded; nil if that is text
	n     int    // of the file
	bare  string // without the marks of quoting
	depth int    // of quoting
	zone  zone
}

// zone says what else a line belongs to; such a line is no shell and no figure.
type zone uint8

const (
	inText zone = iota
	inDiff
	inSignature
)

// survey finds out what the message's lines are.
func (m *message) survey() {
	m.tag = series.ParseTag(m.Subject)
	for i := range m.lines {
		l := &m.lines[i]
		l.bare, l.depth = unquote(l.text)
	}
	m.markSignatures()
	m.diffs = findDiffs(m.lines)
	for _, r := range m.diffs {
		for i := r.from; i < r.to; i++ {
			m.lines[i].zone = inDiff
		}
	}
	for i := range m.lines {
		if l := &m.lines[i]; l.depth > 0 && l.zone == inText && quotedDiff(l.bare) {
			l.zone = inDiff
		}
	}
	m.Kind = m.kind()
}

func (m *message) kind() string {
	t := m.tag
	switch {
	case t.Reply || m.InReplyTo != "" && !t.Marked:
		return KindReply
	case t.Of > 0 && t.N == 0:
		return KindCover
	case t.Marked && len(m.diffs) > 0:
		return KindPatch
	}
	return KindMessage
}

// unquote takes the marks of quoting off a line and counts them. A blank may
// stand before each: "> > text", " > text".
func unquote(s string) (bare string, depth int) {
	for {
		rest := strings.TrimPrefix(s, " ")
		if !strings.HasPrefix(rest, ">") {
			break
		}
		s = rest[1:]
		depth++
	}
	if depth > 0 {
		s = strings.TrimPrefix(s, " ")
	}
	return s, depth
}

// markSignatures marks what stands below "-- ": a few lines, or what a list's
// software adds. It ends where text is quoted: the answer stood on top then.
func (m *message) markSignatures() {
	const longest = 15 // lines
	left := 0
	depth := 0
	for i := range m.lines {
		l := &m.lines[i]
		switch {
		case signs(m.lines, i):
			left, depth = longest, l.depth
		case l.depth != depth:
			left = 0
		}
		if left > 0 {
			l.zone = inSignature
			left--
		}
	}
}

// signs reports whether a signature begins at line i. A page has lost the blank
// of "-- " and often has git's version below it.
func signs(lines []line, i int) bool {
	switch lines[i].bare {
	case "-- ":
		return true
	case "--":
		return i+1 == len(lines) || gitVersion(lines[i+1].bare)
	}
	return footer(lines[i].bare)
}

// gitVersion reports whether a line is what git format-patch signs with.
func gitVersion(s string) bool {
	s = strings.TrimSpace(s)
	return len(s) > 2 && len(s) < 40 && s[0] >= '1' && s[0] <= '9' && strings.Contains(s, ".") && strings.Trim(s, "0123456789.abcdefghijklmnopqrstuvwxyz-() ") == ""
}

// footer reports whether a line is what archives and lists put below a message.
func footer(s string) bool {
	return strings.HasPrefix(s, "Powered by blists") || strings.HasPrefix(s, "^ permalink raw reply") || strings.HasPrefix(s, "____________________")
}
