package thread

import (
	"bytes"
	"regexp"
	"slices"
	"strings"

	"github.com/kbisect/kbisect/internal/series"
)

// page splits text as archives print it into messages. Text in which no head of
// a message is found is one message.
func (t *Thread) page(data []byte) []*message {
	p := pageReader{lines: t.pageLines(data)}
	for i := 0; i < len(p.lines) && len(p.list) <= series.MaxSeries; { // more is an error
		i = p.step(i)
	}
	for _, m := range p.list {
		m.lines = trimBlank(m.lines)
	}
	// A title that stands on top of a page once more, or its menu, is no message.
	const menu = 3 // lines
	if p.heads > 0 && len(p.list) > 0 && !p.list[0].headed && len(p.list[0].lines) <= menu {
		p.list = p.list[1:]
	}
	list := make([]*message, 0, len(p.list))
	for _, m := range p.list {
		list = append(list, m.message)
	}
	return list
}

// pageLines splits the text. Pages that were saved with CRLF have it everywhere.
func (t *Thread) pageLines(data []byte) []line {
	data = bytes.TrimPrefix(data, []byte("\ufeff"))
	crlf := 2*bytes.Count(data, []byte("\r\n")) > bytes.Count(data, []byte("\n"))
	var list []line
	for l := range bytes.Lines(data) {
		if len(list) == MaxLines {
			t.warn("only its first %d lines are read", MaxLines)
			break
		}
		l = bytes.TrimSuffix(l, []byte("\n"))
		if crlf {
			l = bytes.TrimSuffix(l, []byte("\r"))
		}
		list = append(list, line{text: strings.ToValidUTF8(string(l), "?"), raw: l, n: len(list) + 1})
	}
	return list
}

func trimBlank(lines []line) []line {
	for len(lines) > 0 && blank(lines[0]) {
		lines = lines[1:]
	}
	for len(lines) > 0 && blank(lines[len(lines)-1]) {
		lines = lines[:len(lines)-1]
	}
	return lines
}

func blank(l line) bool { return strings.TrimSpace(l.text) == "" }

// pageReader splits a page in one pass.
type pageReader struct {
	lines  []line
	list   []*pageMessage
	open   *pageMessage // nil between messages
	heads  int
	titles map[string]bool // of the messages so far
}

type pageMessage struct {
	*message
	headed bool
}

// head is the head of a message: it begins at some line, and the text at body.
type head struct {
	Message
	body int
}

// step takes line i, or the head that begins there, and returns the next line.
func (p *pageReader) step(i int) int {
	if len(p.lines[i].text) < maxLine {
		for _, read := range []func(int) (head, bool){p.inboxHead, p.fieldsHead, p.bracketHead} {
			if h, ok := read(i); ok {
				p.begin(i, h)
				return h.body
			}
		}
		if strings.HasPrefix(p.lines[i].text, "^ permalink raw reply") {
			p.open = nil
			return i + 1
		}
	}
	if p.open == nil && p.heads == 0 {
		p.open = &pageMessage{message: &message{Message: Message{Line: i + 1}}}
		p.list = append(p.list, p.open)
	}
	if p.open != nil {
		p.open.lines = append(p.open.lines, p.lines[i])
	}
	return i + 1
}

func (p *pageReader) begin(i int, h head) {
	h.Line = i + 1
	p.heads++
	p.open = &pageMessage{message: &message{Message: h.Message}, headed: true}
	p.list = append(p.list, p.open)
	if p.titles == nil {
		p.titles = map[string]bool{}
	}
	p.titles[series.Title(h.Subject)] = true
}

func (p *pageReader) text(i int) string { return at(p.lines, i) }

func (p *pageReader) blankAt(i int) bool {
	return i < 0 || i >= len(p.lines) || blank(p.lines[i])
}

var (
	// inboxFrom is how public-inbox prints a sender in the page of a thread.
	inboxFrom = regexp.MustCompile(`^From: (.{1,200}) @ (\d{4}-\d\d-\d\d +\d{1,2}:\d\d(?: UTC)?)(?:\s|$)`)
	// inboxTree is a line of the tree it prints between a subject and a sender.
	inboxTree = regexp.MustCompile("^\\s*(@ \\d{4}-|\\d{4}-\\d\\d-\\d\\d\\s|`|\\d+ siblings?\\b|\\(\\d+ |\\.\\.\\.|$)")
	inboxTo   = regexp.MustCompile(`^\s*(To|\+? ?Cc):`)
)

// inboxHead reads the head of a message in public-inbox's page of a thread:
//
//   - [PATCH] title
//     @ 2024-01-31 12:00 Some Body
//     0 siblings, 1 reply; 2+ messages in thread
//     From: Some Body @ 2024-01-31 12:00 UTC (permalink / raw)
//     To: list; +Cc: others
func (p *pageReader) inboxHead(i int) (head, bool) {
	const longest = 1500 // lines of a tree: one for each mail
	var h head
	if subject, ok := strings.CutPrefix(p.text(i), "* "); ok {
		h.Subject = strings.TrimSpace(subject)
		for i++; i < min(len(p.lines), i+longest) && len(p.text(i)) < maxLine && inboxTree.MatchString(p.text(i)); i++ {
		}
	}
	if !strings.HasPrefix(p.text(i), "From: ") {
		return h, false
	}
	m := inboxFrom.FindStringSubmatch(p.text(i)[:min(len(p.text(i)), maxLine)])
	if m == nil {
		return h, false
	}
	h.Author, h.Date = m[1], m[2]
	for i++; i < len(p.lines); i++ {
		s := p.text(i)
		goesOn := strings.HasSuffix(strings.TrimSpace(p.text(i-1)), ",") || s != "" && (s[0] == ' ' || s[0] == '\t')
		if p.blankAt(i) || !inboxTo.MatchString(s[:min(len(s), maxLine)]) && !goesOn {
			break
		}
	}
	h.body = i
	return h, true
}

var (
	pageField = regexp.MustCompile(`^(?i:(Date|From|To|Cc|Subject|Message-ID|In-Reply-To|References|Reply-To|Sender|Lists?|Organization|Newsgroups))\s*:(\s.*|)$`)
	forwarded = regexp.MustCompile(`(?i)(original|forwarded) (message|mail)`)
)

// fieldsHead reads a few fields of a mail's header with an empty line below:
// the page of one message. In the middle of a page there must be enough of them
// for no quoted mail's "From:" and "Date:" to be taken for it.
func (p *pageReader) fieldsHead(i int) (head, bool) {
	var h head
	if !p.blankAt(i-1) || !pageField.MatchString(p.text(i)) {
		return h, false
	}
	values := map[string]string{}
	key := ""
	for ; i < len(p.lines) && !p.blankAt(i); i++ {
		s := p.text(i)
		if m := pageField.FindStringSubmatch(s[:min(len(s), maxLine)]); m != nil {
			key = strings.ToLower(m[1])
			values[key] = strings.TrimSpace(m[2])
		} else if s[0] == ' ' || s[0] == '\t' {
			if len(values[key]) < maxLine {
				values[key] += " " + strings.TrimSpace(s)
			}
		} else {
			return h, false
		}
	}
	least := 3
	if p.heads == 0 && p.open == nil {
		least = 2
	}
	if len(values) < least || values["subject"] == "" || values["from"] == "" && least == 3 {
		return h, false
	}
	h.Author, h.Date, h.Subject = values["from"], values["date"], strings.Join(strings.Fields(values["subject"]), " ")
	h.ID, h.InReplyTo = pageID(values["message-id"]), pageID(values["in-reply-to"])
	h.body = min(i+1, len(p.lines))
	return h, !p.forwards()
}

// forwards reports whether the last line of the open message says that a mail
// follows which somebody passes on.
func (p *pageReader) forwards() bool {
	if p.open == nil {
		return false
	}
	for _, l := range slices.Backward(p.open.lines) {
		if !blank(l) {
			return len(l.text) < maxLine && forwarded.MatchString(l.text)
		}
	}
	return false
}

// pageID returns the Message-ID in a field; a page may have a link behind it.
func pageID(s string) string {
	s = strings.TrimPrefix(s, "<")
	s, _, _ = strings.Cut(s, ">")
	s, _, _ = strings.Cut(s, " ")
	return s
}

var (
	bracketName = regexp.MustCompile(`^\[([\pL"'(][^\[\]@<>=]{0,80})\]$`)
	cutText     = regexp.MustCompile(`(?i)^\W*(snip|cut|trim|skip|delet|remov|omit|full|attach|log|patch|rfc|resend|same|more|long)`)
)

// bracketHead reads a head of three lines: the subject, an empty one, and the
// sender in brackets. In a message, "[snip]" can stand like that below a short
// line; so the line above must look like a subject of this thread.
func (p *pageReader) bracketHead(i int) (head, bool) {
	var h head
	if !strings.HasPrefix(p.text(i+2), "[") || p.blankAt(i) || !p.blankAt(i-1) || !p.blankAt(i+1) || !p.blankAt(i+3) {
		return h, false
	}
	s := strings.TrimSpace(p.text(i + 2))
	m := bracketName.FindStringSubmatch(s[:min(len(s), maxLine)])
	if m == nil || cutText.MatchString(m[1]) {
		return h, false
	}
	h.Subject, h.Author = strings.Join(strings.Fields(p.text(i)), " "), m[1]
	tag := series.ParseTag(h.Subject)
	h.body = min(i+4, len(p.lines))
	return h, p.heads == 0 && i < 6 || tag.Marked || tag.Reply || p.titles[series.Title(h.Subject)]
}
