package series

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"mime"
	"net/mail"
	"net/textproto"
	"path"
	"regexp"
	"slices"
	"strings"
)

// Bounds of one mail. What is beyond them was made to be.
const (
	maxHeader   = 256 << 10 // bytes
	maxParts    = 100
	maxNesting  = 5 // as git mailinfo
	maxBoundary = 200
)

// Mail is one message, with its transfer encodings undone. It is a value;
// nothing changes its slices.
type Mail struct {
	Number int // in its mailbox, from 1
	Line   int // of the file, where it begins, from 1

	head     string   // its own header, lines ended by LF
	parts    []part   // the text in it, in order
	other    []string // the types of the parts that are no text
	warnings []string
}

// part is a piece of text of a mail.
type part struct {
	data    []byte // lines end in LF
	line    int    // of the file, where data begins; 0 if an encoding moved its lines
	charset string
	flowed  bool // format=flowed
	delSp   bool // delsp=yes
}

// parseMail reads a mail. line is where it begins in its file.
func parseMail(number, line int, data []byte) (Mail, error) {
	m := Mail{Number: number, Line: line}
	data = m.normalise(data)
	// The line an mbox has before each mail is no header.
	if first, rest, ok := bytes.Cut(data, []byte("\n")); ok && (bytes.HasPrefix(first, []byte("From ")) || bytes.HasPrefix(first, []byte(">From "))) {
		data, line = rest, line+1
	}
	head, body, n := splitHead(data)
	if len(head) > maxHeader {
		return m, fmt.Errorf("its header is larger than %d KiB", maxHeader>>10)
	}
	m.head = string(head)
	return m, m.walk(m.head, body, line+n, 0)
}

// normalise ends lines in LF if those of the mail's or the diff's frame do not.
func (m *Mail) normalise(data []byte) []byte {
	data, changed := endInLF(data)
	const warning = "its lines end in CRLF; read as if they ended in LF"
	if changed && !slices.Contains(m.warnings, warning) {
		m.warnings = append(m.warnings, warning)
	}
	return data
}

// field is a line that begins a header field, as RFC 2822 has it.
var field = regexp.MustCompile(`^[!-9;-~]+:`)

// splitHead splits a mail, or a part of one, into its header and its body, and
// says how many lines are before the body. As for git mailinfo, the header ends
// at the first line that cannot be in one.
func splitHead(data []byte) (head, body []byte, lines int) {
	rest := data
	for len(rest) > 0 {
		line, after, _ := bytes.Cut(rest, []byte("\n"))
		if len(line) == 0 {
			return data[:len(data)-len(rest)], after, lines + 1
		}
		folded := lines > 0 && (line[0] == ' ' || line[0] == '\t')
		if !folded && !field.Match(line) {
			break
		}
		rest = after
		lines++
	}
	return data[:len(data)-len(rest)], rest, lines
}

// isMail reports whether data begins as a mail does: with the line of an mbox,
// or with header fields that mails have and an empty line.
func isMail(data []byte) bool {
	first, _, _ := bytes.Cut(data, []byte("\n"))
	if isFromLine(first) {
		return true
	}
	head, body, lines := splitHead(data[:min(len(data), maxHeader)])
	if lines == 0 || len(body) == 0 || bytes.HasSuffix(head, []byte("\n")) && data[len(head)] != '\n' {
		return false
	}
	for _, name := range []string{"From", "Subject", "Date", "Message-Id", "Content-Transfer-Encoding", "Content-Type"} {
		if mailHeader(string(head), name) != "" {
			return true
		}
	}
	return false
}

// walk collects the text in a body, which may have parts.
func (m *Mail) walk(head string, body []byte, line, depth int) error {
	media, params := contentType(mailHeader(head, "Content-Type"))
	if boundary := params["boundary"]; strings.HasPrefix(media, "multipart/") && boundary != "" {
		if depth >= maxNesting || len(boundary) > maxBoundary {
			return fmt.Errorf("its parts are nested more than %d deep", maxNesting)
		}
		for _, sub := range splitParts(body, line, boundary) {
			h, b, n := splitHead(sub.data)
			if err := m.walk(string(h), b, sub.line+n, depth+1); err != nil {
				return err
			}
		}
		return nil
	}
	if media == "message/rfc822" && depth < maxNesting {
		h, b, n := splitHead(body)
		return m.walk(string(h), b, line+n, depth+1)
	}
	if !isText(media, head, params) {
		m.other = append(m.other, media)
		return nil
	}
	return m.add(head, body, line, params)
}

// add decodes one piece of text.
func (m *Mail) add(head string, body []byte, line int, params map[string]string) error {
	if len(m.parts) >= maxParts {
		return fmt.Errorf("it has more than %d parts", maxParts)
	}
	p := part{line: line, charset: params["charset"], flowed: strings.EqualFold(params["format"], "flowed"), delSp: strings.EqualFold(params["delsp"], "yes")}
	var err error
	switch encoding := strings.ToLower(mailHeader(head, "Content-Transfer-Encoding")); encoding {
	case "base64":
		p.line = 0
		var unpadded bool
		if body, unpadded, err = decodeBase64(body, line); unpadded {
			m.warnings = append(m.warnings, "its base64 has no padding at the end: it may be cut short")
		}
	case "quoted-printable":
		p.line = 0
		body = decodeQP(body)
	case "", "7bit", "8bit", "binary":
	default:
		m.warnings = append(m.warnings, fmt.Sprintf("its encoding %q is not known; read as it is", encoding))
	}
	if err != nil {
		return err
	}
	p.data = m.normalise(body) // inside the encoding, as mailers that send base64 do
	m.parts = append(m.parts, p)
	return nil
}

// contentType reads a Content-Type, also one that is not quite right.
func contentType(value string) (media string, params map[string]string) {
	media, params, err := mime.ParseMediaType(value)
	if err == nil {
		return media, params
	}
	params = map[string]string{}
	pieces := strings.Split(value, ";")
	for _, p := range pieces[1:] {
		name, v, _ := strings.Cut(p, "=")
		params[strings.ToLower(strings.TrimSpace(name))] = strings.Trim(strings.TrimSpace(v), `"`)
	}
	return strings.ToLower(strings.TrimSpace(pieces[0])), params
}

// isText reports whether a part can hold a message or a patch. git mailinfo takes
// every part, HTML and signatures too.
func isText(media, head string, ofType map[string]string) bool {
	switch media {
	case "text/html", "text/calendar", "text/css", "text/rtf":
		return false
	case "", "application/x-patch", "application/x-diff":
		return true
	case "application/octet-stream":
		_, params := contentType(mailHeader(head, "Content-Disposition"))
		name := strings.ToLower(cmp.Or(params["filename"], ofType["name"]))
		return name == "" || slices.Contains([]string{".patch", ".diff", ".txt"}, path.Ext(name))
	}
	return strings.HasPrefix(media, "text/")
}

// splitParts splits the body of a multipart mail at its boundary. What is before
// the first and after the last is for mailers that know no parts.
func splitParts(body []byte, line int, boundary string) []part {
	var list []part
	start := -1 // of the open part
	at := 0
	for at < len(body) {
		text, _, _ := bytes.Cut(body[at:], []byte("\n"))
		next := min(len(body), at+len(text)+1)
		mark := string(bytes.TrimRight(text, " \t\r"))
		last := mark == "--"+boundary+"--"
		if last || mark == "--"+boundary {
			if start >= 0 {
				list[len(list)-1].data = body[start:at]
			}
			if last || len(list) == maxParts {
				return list
			}
			start = next
			list = append(list, part{line: line + 1})
		}
		at, line = next, line+1
	}
	if start >= 0 { // cut short: git takes it too
		list[len(list)-1].data = body[start:]
	}
	return list
}

// Header returns a field of the mail's header, decoded to UTF-8 and unfolded; ""
// if it is not there. The name is in its usual form, "Message-Id".
func (m Mail) Header(name string) string { return decodeHeader(mailHeader(m.head, name)) }

// Subject is the mail's subject with its tags, "[PATCH v2 1/3] net: fix".
func (m Mail) Subject() string {
	return strings.Join(strings.Fields(m.Header("Subject")), " ")
}

// Text is the mail's text in UTF-8, its parts one after another. Lines that a
// mailer broke by format=flowed are whole.
func (m Mail) Text() string {
	var b strings.Builder
	for _, p := range m.parts {
		data := p.data
		if p.flowed {
			data = unflow(data, p.delSp)
		}
		text, _ := toUTF8(p.charset, data)
		b.WriteString(text)
		if !strings.HasSuffix(text, "\n") {
			b.WriteByte('\n')
		}
	}
	return b.String()
}

// HasDiff reports whether a patch stands in the mail; one that is quoted
// ("> diff") or indented does not.
func (m Mail) HasDiff() bool {
	return slices.ContainsFunc(m.parts, func(p part) bool { return diffStart.Match(p.data) })
}

// noDiff says why HasDiff is false, as far as can be told.
func (m Mail) noDiff() string {
	text := m.plainText()
	switch {
	case mergeHeader.Match(text) && mergeHunk.Match(text):
		return "no diff in it, but the combined one of a merge, which cannot be applied: give the merge's commits (git format-patch FIRST..MERGE)"
	case bytes.HasPrefix(text, []byte("\xff\xfe")) || bytes.HasPrefix(text, []byte("\xfe\xff")):
		return "no diff in it: its text is in UTF-16"
	case quotedDiff.Match(text):
		return "no diff in it: the one there is quoted or indented"
	case len(m.parts) == 0 && len(m.other) > 0:
		return "no diff in it: it has no text but " + m.other[0]
	case len(bytes.TrimSpace(text)) == 0:
		return "no diff in it: it is empty"
	}
	return "no diff in it"
}

// quotedDiff is a diff in a reply, or in a message that shows one.
var quotedDiff = regexp.MustCompile(`(?m)^[ \t>|]+(diff --git |--- [^ \n].*\n[ \t>|]+\+\+\+ )`)

// diffStart is how a diff begins: git's and a plain one.
var diffStart = regexp.MustCompile(`(?m)^(diff --git |--- [^ \n].*\n\+\+\+ [^ \n].*\n@@ -)`)

// Patch reads the patch in the mail, as git am would. name is for messages. The
// error is a *ParseError; when the mail has no patch, it wraps ErrNoDiff.
func (m Mail) Patch(name string) (Patch, error) {
	p := Patch{Name: name}
	if err := p.fromMail(m); err != nil {
		return Patch{}, &ParseError{Name: name, Err: err}
	}
	return p, nil
}

// ErrNoDiff says that what was read has no diff in it.
var ErrNoDiff = errors.New("it has no diff: a cover letter, or not a patch")

// fromMail fills the patch in from a mail. A diff that is said to be
// format=flowed is tried as RFC 3676 says and as it stands. Both cannot be right:
// read as flowed, every line loses a leading space, so one that was not stuffed
// has no context lines left, and one that was has the hunks' counts to meet.
func (p *Patch) fromMail(m Mail) error {
	for _, w := range m.warnings {
		p.Warnings = append(p.Warnings, p.Name+": "+w)
	}
	flowed := slices.ContainsFunc(m.parts, func(p part) bool { return p.flowed })
	err := p.fromText(m, flowed)
	if !flowed {
		return err
	}
	if err != nil && !errors.Is(err, ErrNoDiff) {
		if p.fromText(m, false) != nil {
			return fmt.Errorf("%w; it was sent as format=flowed, which breaks patches: get it from the list's archive, or from its author", err)
		}
		err = nil
	}
	p.Warnings = append(p.Warnings, p.Name+": it was sent as format=flowed, which can break patches: look at its diff")
	return err
}

// fromText reads the patch out of the mail's parts, put one after another.
func (p *Patch) fromText(m Mail, flowed bool) error {
	var text []byte
	var lines lineMap
	charset := ""
	for _, part := range m.parts {
		data := part.data
		if flowed && part.flowed {
			data, part.line = unflow(data, part.delSp), 0
		}
		if n := len(text); n > 0 && text[n-1] != '\n' {
			text = append(text, '\n')
		}
		lines.add(bytes.Count(text, []byte("\n")), part.line)
		text = append(text, data...)
		charset = part.charset
	}
	message, diff := cutMessage(text)
	title := m.Subject()
	if s := decodeHeader(mailHeader(bodyHeader(message), "Subject")); s != "" {
		title = s
	}
	// The library's preamble is of no use any more: it is the diffstat.
	if p.Subject = cleanSubject(title); p.Subject == "" {
		p.Subject = cleanSubject(firstLine(message))
	}
	if _, ok := toUTF8(charset, diff); !ok || !isUTF8Charset(charset) && hasHighBytes(diff) {
		// As git am: the charset is the message's; a file's bytes are its own.
		p.Warnings = append(p.Warnings, fmt.Sprintf("%s: its diff is in the charset %q and not in ASCII; taken byte for byte, as git am does", p.Name, charset))
	}
	return p.parseDiff(diff, lines.at(bytes.Count(message, []byte("\n"))))
}

// lineMap tells where in a file the lines of a mail's text are.
type lineMap []struct{ text, file int }

func (l *lineMap) add(text, file int) { *l = append(*l, struct{ text, file int }{text, file}) }

// at returns the place of a line of the text, counted from 0.
func (l lineMap) at(line int) place {
	for _, e := range slices.Backward(l) {
		if e.text <= line {
			if e.file > 0 {
				return place{line: e.file + line - e.text, of: "line"}
			}
			return place{line: line - e.text + 1, of: "line of its decoded text"}
		}
	}
	return place{line: line + 1, of: "line"}
}

// cutMessage splits a mail's text where git mailinfo does: the message, then all
// from the first line that can begin a patch.
func cutMessage(text []byte) (message, diff []byte) {
	at := 0
	for at < len(text) {
		line, _, _ := bytes.Cut(text[at:], []byte("\n"))
		if beginsPatch(line) {
			return text[:at], text[at:]
		}
		at = min(len(text), at+len(line)+1)
	}
	return text, nil
}

func beginsPatch(line []byte) bool {
	if bytes.HasPrefix(line, []byte("diff -")) || bytes.HasPrefix(line, []byte("Index: ")) {
		return true
	}
	rest, ok := bytes.CutPrefix(line, []byte("---"))
	if !ok {
		return false
	}
	// "--- a/file", or the line of dashes that ends a message.
	return len(bytes.TrimSpace(rest)) == 0 || len(rest) > 1 && rest[0] == ' ' && rest[1] != ' ' && rest[1] != '\t'
}

// bodyHeader returns the header fields that a mail's text begins with, of those
// git takes there: "From:" of the author, "Subject:" and "Date:", each once.
func bodyHeader(message []byte) string {
	var head strings.Builder
	seen := map[string]bool{}
	for line := range strings.Lines(string(message[:min(len(message), maxHeader)])) {
		name, _, _ := strings.Cut(line, ":")
		name = textproto.CanonicalMIMEHeaderKey(name)
		switch {
		case head.Len() == 0 && strings.TrimSpace(line) == "", mailStart.MatchString(strings.TrimPrefix(strings.TrimSpace(line), ">")):
			continue
		case head.Len() > 0 && (line[0] == ' ' || line[0] == '\t'):
		case !seen[name] && (name == "From" || name == "Subject" || name == "Date"):
			seen[name] = true
		case !seen["Subject"] && (strings.HasPrefix(line, "[PATCH] ") || strings.HasPrefix(line, "[PATCH]\t")):
			seen["Subject"] = true
			line = "Subject: " + line
		default:
			return head.String()
		}
		head.WriteString(line)
	}
	return head.String()
}

func firstLine(message []byte) string {
	line, _, _ := bytes.Cut(bytes.TrimSpace(message), []byte("\n"))
	return string(line)
}

// Author is who wrote the mail's patch, "Name <address>" in UTF-8, as git am has
// it: the "From:" that the text of a patch begins with, or else the sender. It is
// "" if neither is there.
func (m Mail) Author() string {
	if text := m.plainText(); diffStart.Match(text) {
		message, _ := cutMessage(text)
		if from := mailHeader(bodyHeader(message), "From"); from != "" {
			return oneLine(author(from))
		}
	}
	return oneLine(author(mailHeader(m.head, "From")))
}

// plainText is the text of the mail's parts as it was sent, byte for byte.
func (m Mail) plainText() []byte {
	var text []byte
	for _, p := range m.parts {
		if n := len(text); n > 0 && text[n-1] != '\n' {
			text = append(text, '\n')
		}
		text = append(text, p.data...)
	}
	return text
}

// author brings the value of a From into one form.
func author(from string) string {
	if from == "" {
		return ""
	}
	raw, _ := toUTF8("", []byte(from))
	parser := mail.AddressParser{WordDecoder: wordDecoder()}
	if a, err := parser.Parse(raw); err == nil {
		name := strings.Join(strings.Fields(decodeHeader(a.Name)), " ")
		return fmt.Sprintf("%s <%s>", cmp.Or(name, a.Address), a.Address)
	}
	// What is in no form: the word with the "@" is the address, the rest the name.
	var name []string
	address := ""
	for _, word := range strings.Fields(decodeHeader(from)) {
		if bare := strings.Trim(word, "<>,"); address == "" && strings.Contains(bare, "@") {
			address = bare
			continue
		}
		name = append(name, word)
	}
	who := strings.Trim(strings.Join(name, " "), "\"()")
	return fmt.Sprintf("%s <%s>", cmp.Or(who, address), cmp.Or(address, who))
}
