package series

import (
	"bytes"
	"compress/gzip"
	"encoding/base64"
	"fmt"
	"html"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/kbisect/kbisect/internal/gitx"
)

// corpus is a repository with one good commit for each kind of change, all of
// them on the same base. The mails of the cases are made of those commits, by git
// format-patch, and must come out as them.
type corpus struct {
	*clone
	made  map[string]string   // what git made, by its arguments
	trees map[string][]string // what Stack made of patches, by their diffs
}

// The text of net/tab.c is what mailers damage: tabs, empty lines, "=", a long
// line, white space at the end, a line that begins with "From ".
const tabC = `#include <linux/kernel.h>

static int a = 1;

static int walk(struct list *l)
{
	int n = 0;

	while (l) {
		if (l->next == l)
			break;
		n += slow(l);
		l = l->next;
	}

	return n;
}
` + "\n/* trailing \t\n" + `From here on: =3D is no escape, = at the end is no soft break =
 * ` + "a line that is longer than any mailer lets through without wrapping it at some blank of its own choice" + `
 */
`

// change is how a good commit is made: the files it writes, and what else it does.
type change struct {
	name    string
	author  string // default Jane Doe
	message string
	files   map[string]string
	also    func(t testing.TB, dir string)
	on      string // the good commit it follows; the base if ""
}

const (
	defaultAuthor = "Jane Doe <jane@example.org>"
	signedOff     = "\n\nIt was slow = bad, because every element was looked at.\n\nSigned-off-by: Jane Doe <jane@example.org>"
)

func tabFix(add string) string {
	return strings.Replace(tabC, "\t\tn += slow(l);\n", add, 1)
}

// changes are the good commits.
var changes = []change{
	{name: "fix", message: "net: walk faster" + signedOff, files: map[string]string{"net/tab.c": tabFix("\t\tif (n == 0)\n\t\t\tcontinue;\n\n\t\tn += fast(l);\n")}},
	{name: "umlaut", author: "Zoë Müller <zoe@example.org>", message: "net: naïve walk costs 5 µs" + signedOff + "\nReviewed-by: Zoë Müller <zoe@example.org>",
		files: map[string]string{"utf8.txt": "é\nx\nÿ €\n"}},
	{name: "ascii umlaut", author: "Zoë Müller <zoe@example.org>", message: "net: naïve walk" + signedOff, files: map[string]string{"net/b.c": "c\n"}},
	{name: "latin", message: "doc: a file in ISO-8859-1" + signedOff, files: map[string]string{"latin.txt": "caf\xe9\n\xfc\n"}},
	{name: "from words", message: "net: words\n\nThe next line begins as an mbox does:\n\nFrom here on it is fast.\n>From there on it was quoted.\nFrom: nobody\n---- dashes are no separator\n@@ -1 +1 @@ is no hunk here", files: map[string]string{"net/b.c": "words\n"}},
	{name: "indented diff", message: "net: shows a diff\n\nDo not do this:\n\n    diff --git a/net/b.c b/net/b.c\n    --- a/net/b.c\n    +++ b/net/b.c\n    @@ -1 +1 @@\n    -b\n    +wrong", files: map[string]string{"net/b.c": "right\n"}},
	{name: "column diff", message: "net: shows a diff at the margin\n\ndiff --git a/net/b.c b/net/b.c\n--- a/net/b.c\n+++ b/net/b.c\n@@ -1 +1 @@\n-never\n+was", files: map[string]string{"net/b.c": "right\n"}},
	{name: "margin", message: "net: shows a diff that fits\n\ndiff --git a/net/b.c b/net/b.c\n--- a/net/b.c\n+++ b/net/b.c\n@@ -1 +1 @@\n-b\n+shown", files: map[string]string{"Makefile": "all: y\n"}},
	{name: "margin taken", message: "net: shows a diff that fits", files: map[string]string{"Makefile": "all: y\n", "net/b.c": "shown\n"}},
	{name: "rename", message: "lib: move" + signedOff, files: map[string]string{"lib/big.c": "", "lib/deep/er/big2.c": numbered(60, map[int]string{30: "moved\n"})}},
	{name: "copy", message: "lib: copy" + signedOff, files: map[string]string{"lib/big.c": numbered(60, map[int]string{5: "five\n"}), "lib/copy.c": numbered(60, map[int]string{30: "copied\n"})}},
	{name: "rewrite", message: "lib: rewrite" + signedOff, files: map[string]string{"lib/big.c": strings.Repeat("all new\n", 30)}},
	{name: "mode", message: "net: b.c can be run", also: func(t testing.TB, dir string) { chmod(t, filepath.Join(dir, "net/b.c"), 0o755) }},
	{name: "mode and text", message: "net: b.c can be run and changes", files: map[string]string{"net/b.c": "#!/bin/sh\n"}, also: func(t testing.TB, dir string) { chmod(t, filepath.Join(dir, "net/b.c"), 0o755) }},
	{name: "new empty", message: "net: an empty file", also: func(t testing.TB, dir string) { writeFile(t, filepath.Join(dir, "net/empty"), "") }},
	{name: "new", message: "net: a new folder", files: map[string]string{"net/new/deep/n.c": "int n;\n"}},
	{name: "delete", message: "net: remove b.c", files: map[string]string{"net/b.c": ""}},
	{name: "to no eol", message: "net: end without a newline", files: map[string]string{"net/b.c": "b\nc"}},
	{name: "from no eol", message: "net: end with a newline", files: map[string]string{"noeol": "1\n2\n3\n4\n"}},
	{name: "literal", message: "bin: all new", files: map[string]string{"bin": "\x00\x02\x03" + strings.Repeat("\x00abc", 50)}},
	{name: "delta", message: "bin: a little of it", files: map[string]string{"bin": binary + "\x00more"}},
	{name: "blank names", message: "doc: names with blanks", files: map[string]string{"doc/x y.txt": "x\ny\n", "doc/p q/r s.txt": "new\n"}},
	{name: "quoted names", message: "doc: names that git quotes", files: map[string]string{"doc/say \"hi\".txt": "hi\n", "doc/größe.txt": "1\n", "doc/a\tb": "tab\n"}},
	{name: "crlf file", message: "doc: a file with CRLF", files: map[string]string{"crlf.txt": "1\r\ntwo\r\n3\r\n4\r\n"}},
	{name: "blanks at the end", message: "net: blanks at the end", files: map[string]string{"net/b.c": "b \t\n\n \n"}},
	{name: "long lines", author: "Zoë Müller <zoe@example.org>", message: "net: long lines\n\n" + strings.Repeat("ö", 600), files: map[string]string{"net/b.c": strings.Repeat("long = ", 300) + "\n"}},
	{name: "link", message: "net: a link inside of the tree", also: func(t testing.TB, dir string) { symlink(t, "../lib/big.c", filepath.Join(dir, "net/link")) }},
	{name: "file to link", message: "net: b.c is a link", files: map[string]string{"net/b.c": ""}, also: func(t testing.TB, dir string) { symlink(t, "tab.c", filepath.Join(dir, "net/b.c")) }},
	{name: "top", message: "build: a file of the top folder", files: map[string]string{"Makefile": "all: x\n"}},
	{name: "fix and delete", message: "net: walk faster", files: map[string]string{"net/tab.c": tabFix("\t\tif (n == 0)\n\t\t\tcontinue;\n\n\t\tn += fast(l);\n"), "net/b.c": ""}},
	{name: "new and delete", message: "net: remove b.c", files: map[string]string{"net/b.c": ""}, on: "new"},
	{name: "nul", message: "net: walk faster", files: map[string]string{"net/tab.c": tabFix("\t\tif (n == 0)\n\t\t\tcontinue;\n\n\t\tn += \x00fast(l);\n")}},
	{name: "blanks stripped", message: "net: blanks at the end", files: map[string]string{"net/b.c": "b\n\n\n"}},
	{name: "part 1", message: "net: part 1" + signedOff, files: map[string]string{"net/b.c": "one\n"}},
	{name: "part 2", message: "net: part 2" + signedOff, files: map[string]string{"net/b.c": "one\ntwo\n"}, on: "part 1"},
	{name: "part 3", message: "net: part 3" + signedOff, files: map[string]string{"net/b.c": "one\ntwo\nthree\n"}, on: "part 2"},
	{name: "other 1", message: "net: another 1" + signedOff, files: map[string]string{"net/b.c": "other\n"}},
	{name: "other 2", message: "net: another 2" + signedOff, files: map[string]string{"net/b.c": "other\ntwo\n"}, on: "other 1"},
}

var binary = "\x00\x01\x02" + strings.Repeat("\x00some bytes ", 400)

func chmod(t testing.TB, name string, mode os.FileMode) {
	t.Helper()
	if err := os.Chmod(name, mode); err != nil {
		t.Fatal(err)
	}
}

func symlink(t testing.TB, target, name string) {
	t.Helper()
	if err := os.Symlink(target, name); err != nil {
		t.Fatal(err)
	}
}

func newCorpus(t testing.TB) *corpus {
	t.Helper()
	c := &corpus{made: map[string]string{}, trees: map[string][]string{}, clone: newClone(t, map[string]string{
		"net/tab.c": tabC, "net/b.c": "b\n", "lib/big.c": numbered(60, nil), "doc/x y.txt": "x\n", "bin": binary, "Makefile": "all:\n",
		"crlf.txt": "1\r\n2\r\n3\r\n4\r\n", "utf8.txt": "é\nx\ny\n", "latin.txt": "caf\xe9\nx\n", "noeol": "1\n2\n3",
	})}
	symlink(t, "net", filepath.Join(c.repo.Dir, "way"))
	c.base = c.commit("base with a link", nil)
	c.git("config", "gc.auto", "0")
	c.git("config", "core.fsync", "none")
	for _, ch := range changes {
		c.make(ch)
	}
	return c
}

// make commits a change and tags it.
func (c *corpus) make(ch change) {
	c.t.Helper()
	on, author := c.base, defaultAuthor
	if ch.on != "" {
		on = tagOf(ch.on)
	}
	if ch.author != "" {
		author = ch.author
	}
	c.git("checkout", "-q", "--force", "--detach", on)
	for name, text := range ch.files {
		file := filepath.Join(c.repo.Dir, name)
		if text == "" {
			if err := os.Remove(file); err != nil {
				c.t.Fatal(err)
			}
			continue
		}
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			c.t.Fatal(err)
		}
		writeFile(c.t, file, text)
	}
	if ch.also != nil {
		ch.also(c.t, c.repo.Dir)
	}
	c.git("add", "-A")
	c.git("commit", "-q", "--author="+author, "-m", ch.message)
	c.git("tag", tagOf(ch.name))
}

func tagOf(name string) string { return strings.ReplaceAll(name, " ", "-") }

// format is what git format-patch makes of a good commit.
func (c *corpus) format(name string, args ...string) string {
	c.t.Helper()
	return c.once(slices.Concat([]string{"format-patch", "--stdout", "--binary", "-1"}, args, []string{tagOf(name)})...)
}

// formatRange is what it makes of the commits from the base to a good one.
func (c *corpus) formatRange(name string, args ...string) string {
	c.t.Helper()
	return c.once(slices.Concat([]string{"format-patch", "--stdout", "--binary"}, args, []string{c.base + ".." + tagOf(name)})...)
}

func (c *corpus) once(args ...string) string {
	c.t.Helper()
	key := strings.Join(args, "\x00")
	if _, ok := c.made[key]; !ok {
		c.made[key] = c.git(args...) + "\n\n"
	}
	return c.made[key]
}

// mbox is a commit's mail with other header fields and a body that was changed.
func (c *corpus) mbox(name, header string, body func(string) string) string {
	c.t.Helper()
	head, text, ok := strings.Cut(c.format(name), "\n\n")
	if !ok {
		c.t.Fatalf("the mail of %q has no body", name)
	}
	// What format-patch says of the encoding is no more true.
	head = regexp.MustCompile(`\n(MIME-Version|Content-[A-Za-z-]+):.*`).ReplaceAllString(head, "")
	if body != nil {
		text = body(text)
	}
	return head + "\n" + header + "\n" + text
}

// replaced is a commit's mail in which some text was replaced by other text.
func (c *corpus) replaced(name string, pairs ...string) string {
	c.t.Helper()
	text := c.format(name)
	for i := 0; i < len(pairs); i += 2 {
		if !strings.Contains(text, pairs[i]) {
			c.t.Fatalf("the mail of %q has no %q", name, pairs[i])
		}
		text = strings.ReplaceAll(text, pairs[i], pairs[i+1])
	}
	return text
}

// specimen is one case of the corpus: a mail or a mailbox, made for a condition.
type specimen struct {
	name string
	mail string
	good string // the good commit whose tree must come out; "" if refused
	n    int    // patches in it, 1 if 0
	args []string

	// git says why git am does otherwise; "" means that it must do the same: take it
	// to the same trees, subjects and authors, or refuse it too.
	git string
	// author and subject are what must come out where it is not the good commit's.
	author, subject string
	warn            string   // in a warning of ours; "" for none
	refused         []string // what our error says, all of it
}

// mailCases are the ways a mail is wrapped up.
func mailCases(c *corpus) []specimen {
	text := "Content-Type: text/plain; charset=UTF-8\nContent-Transfer-Encoding: "
	b64, quoted := text+"base64\n", text+"quoted-printable\n"
	long := func(s string) string { return base64.StdEncoding.EncodeToString([]byte(s)) + "\n" }
	parts := func(kind, sub string) string {
		return c.mbox("fix", "MIME-Version: 1.0\nContent-Type: multipart/"+kind+"; boundary=\"=_part 1\"\n", func(body string) string {
			return "This is a message in MIME format.\n" + strings.ReplaceAll(sub, "BODY", strings.TrimSuffix(body, "\n"))
		})
	}
	const note, end = "--=_part 1\nContent-Type: text/plain; charset=utf-8\n\nHello, it is attached.\n\n--=_part 1\n", "\n--=_part 1--\n"
	_, body, _ := strings.Cut(c.format("fix"), "\n\n")
	attached := func(header string) string {
		return parts("mixed", note+header+"Content-Transfer-Encoding: base64\n\n"+base64Lines(body)+end)
	}
	return []specimen{
		{name: "7bit", mail: c.format("fix"), good: "fix"},
		{name: "crlf", mail: crlf(c.format("fix")), good: "fix", warn: "CRLF"},
		{name: "crlf around a file with crlf", mail: crlf(c.format("crlf file")), good: "crlf file", warn: "CRLF"},
		{name: "base64", mail: c.mbox("umlaut", b64, base64Lines), good: "umlaut"},
		{name: "base64 in crlf", mail: crlf(c.mbox("umlaut", b64, base64Lines)), good: "umlaut", warn: "CRLF"},
		{name: "base64 of crlf", mail: c.mbox("umlaut", b64, func(s string) string { return base64Lines(crlf(s)) }), good: "umlaut", warn: "CRLF", git: "it does not apply: --quoted-cr=strip is not its default"},
		{name: "base64 of a file with crlf", mail: c.mbox("crlf file", b64, base64Lines), good: "crlf file"},
		{name: "base64 on one line", mail: c.mbox("umlaut", b64, long), good: "umlaut"},
		{name: "base64 in odd lines", mail: c.mbox("umlaut", b64, func(s string) string { return chopped(long(s), 75, "\n") }), good: "umlaut", git: "it decodes each line by itself"},
		{name: "base64 with blanks", mail: c.mbox("umlaut", b64, func(s string) string { return chopped(long(s), 64, " \t\n ") }), good: "umlaut"},
		{name: "base64 padded in each line", mail: c.mbox("umlaut", b64, func(s string) string {
			var b strings.Builder
			for line := range slices.Chunk([]byte(s), 50) {
				b.WriteString(long(string(line)))
			}
			return b.String()
		}), good: "umlaut"},
		{name: "base64 without padding", mail: c.mbox("umlaut", b64, func(s string) string {
			return strings.TrimRight(base64Lines(s+strings.Repeat("\n", 2-len(s)%3)), "=\n") + "\n"
		}), good: "umlaut", warn: "padding"},
		{name: "base64 and a footer", mail: c.mbox("umlaut", b64, func(s string) string {
			return base64Lines(s+strings.Repeat("\n", 3-len(s)%3+1)) + "\n_______________\nthe list's footer\n"
		}), good: "umlaut"},
		{name: "base64 cut short", mail: c.mbox("umlaut", b64, func(s string) string { return base64Lines(upTo(s, "\n-y\n")) }), refused: []string{"mail 1", "line"}},
		{name: "base64 that is none", mail: c.mbox("umlaut", b64, func(s string) string { return s }), refused: []string{"mail 1", "line 8: decode mail", "is not in base64"}},
		{name: "quoted-printable", mail: c.mbox("umlaut", quoted, qp), good: "umlaut"},
		{name: "quoted-printable of a fix", mail: c.mbox("fix", quoted, qp), good: "fix"},
		{name: "quoted-printable in crlf", mail: crlf(c.mbox("fix", quoted, qp)), good: "fix", warn: "CRLF"},
		{name: "quoted-printable of crlf", mail: c.mbox("fix", quoted, func(s string) string {
			return regexp.MustCompile(`(?m)(^|[^=])$`).ReplaceAllString(qp(s), "$1=0D")
		}), good: "fix", warn: "CRLF", git: "it does not apply: --quoted-cr=strip is not its default"},
		{name: "quoted-printable in lower case", mail: c.mbox("umlaut", quoted, func(s string) string {
			return regexp.MustCompile(`=[0-9A-F]{2}`).ReplaceAllStringFunc(qp(s), strings.ToLower)
		}), good: "umlaut"},
		{name: "quoted-printable all of it", mail: c.mbox("fix", quoted, func(s string) string {
			var b strings.Builder
			for i, ch := range []byte(s) {
				fmt.Fprintf(&b, "=%02X", ch)
				if i%20 == 19 || ch == '\n' {
					b.WriteString("=\n")
				}
			}
			return b.String() + "\n"
		}), good: "fix"},
		{name: "quoted-printable with blanks at the end", mail: c.mbox("blanks at the end", quoted, func(s string) string { return strings.ReplaceAll(s, "=", "=3D") }), good: "blanks at the end"},
		{name: "quoted-printable with soft breaks", mail: c.mbox("long lines", quoted, qp), good: "long lines"},
		{name: "quoted-printable with blanks behind a soft break", mail: c.mbox("long lines", quoted, func(s string) string { return regexp.MustCompile(`(?m)=$`).ReplaceAllString(qp(s), "=  ") }), good: "long lines", git: "it keeps the blanks and the line break"},
		{name: "8bit", mail: c.format("umlaut"), good: "umlaut"},
		{name: "8bit with long lines", mail: c.mbox("long lines", text+"8bit\n", nil), good: "long lines"},
		{name: "8bit of a file in latin 1", mail: c.mbox("latin", text+"8bit\n", nil), good: "latin"},
		{name: "latin 1", mail: c.mbox("ascii umlaut", "Content-Type: text/plain; charset=ISO-8859-1\nContent-Transfer-Encoding: 8bit\n", latin1), good: "ascii umlaut"},
		{name: "latin 1 in quoted-printable", mail: c.mbox("ascii umlaut", "Content-Type: text/plain; charset=\"iso-8859-1\"\nContent-Transfer-Encoding: quoted-printable\n", func(s string) string { return qp(latin1(s)) }), good: "ascii umlaut"},
		{name: "latin 1 of a file in latin 1", mail: c.mbox("latin", "Content-Type: text/plain; charset=ISO-8859-1\nContent-Transfer-Encoding: 8bit\n", nil), good: "latin", warn: "byte for byte"},
		{name: "windows-1252", mail: c.mbox("ascii umlaut", "Content-Type: text/plain; charset=windows-1252\nContent-Transfer-Encoding: 8bit\n", func(s string) string { return "costs 5 \x80 \x96 \xe4\n" + latin1(s) }), good: "ascii umlaut"},
		{name: "utf-8 said to be latin 1", mail: c.mbox("umlaut", "Content-Type: text/plain; charset=ISO-8859-1\nContent-Transfer-Encoding: 8bit\n", nil), good: "umlaut", warn: "byte for byte"},
		{name: "latin 1 said to be utf-8", mail: c.mbox("ascii umlaut", text+"8bit\n", latin1), good: "ascii umlaut"},
		{name: "a charset of no name", mail: c.mbox("umlaut", "Content-Type: text/plain; charset=x-unknown\n", nil), good: "umlaut", warn: "byte for byte", git: "it cannot convert the message, which is not used here"},
		{name: "attached", mail: attached("Content-Type: text/x-patch; name=\"0001-net.patch\"\nContent-Disposition: attachment; filename=\"0001-net.patch\"\n"), good: "fix"},
		{name: "attached inline", mail: attached("Content-Type: text/x-diff; charset=us-ascii\nContent-Disposition: inline; filename=fix.diff\n"), good: "fix"},
		{name: "attached as octets", mail: attached("Content-Type: application/octet-stream; name=\"fix.patch\"\nContent-Disposition: attachment; filename=\"fix.patch\"\n"), good: "fix"},
		{name: "attached as octets without a file name", mail: attached("Content-Type: application/octet-stream; name=\"fix.patch\"\nContent-Disposition: attachment\n"), good: "fix"},
		{name: "attached as a patch", mail: attached("Content-Type: application/x-patch; name=fix.patch\n"), good: "fix"},
		{name: "attached with a header of its own", mail: parts("mixed", note+"Content-Type: text/x-patch; name=fix.patch\nContent-Transfer-Encoding: base64\n\n"+base64Lines(c.format("fix"))+end), good: "fix"},
		{name: "attached with a header of its own as it is", mail: parts("mixed", note+"Content-Type: text/x-patch; name=fix.patch\n\n"+c.format("fix")+end), good: "fix", git: "the mail splitter cuts it in two, and the first has no diff"},
		{name: "forwarded as an attachment", mail: parts("mixed", note+"Content-Type: message/rfc822\nContent-Disposition: attachment\n\n"+strings.SplitN(c.format("fix"), "\n", 2)[1]+end), good: "fix"},
		{name: "forwarded as an attachment in base64", mail: parts("mixed", note+"Content-Type: message/rfc822\n\nFrom: Other <other@example.org>\nSubject: [PATCH] other\nContent-Transfer-Encoding: base64\n\n"+base64Lines(body)+end), good: "fix", git: "it does not look into the mail in a mail"},
		{name: "one part", mail: parts("mixed", "--=_part 1\nContent-Type: text/plain\n\nBODY"+end), good: "fix"},
		{name: "parts without an end", mail: parts("mixed", "--=_part 1\nContent-Type: text/plain\n\nBODY"), good: "fix"},
		{name: "nested parts", mail: parts("mixed", "--=_part 1\nContent-Type: multipart/alternative; boundary=in\n\n--in\nContent-Type: text/plain\n\nBODY\n--in--\n"+end), good: "fix"},
		{name: "parts with html", mail: parts("alternative", "--=_part 1\nContent-Type: text/plain\n\nBODY\n--=_part 1\nContent-Type: text/html\n\n<html><pre>BODY</pre></html>"+end), good: "fix", git: "it takes HTML for text"},
		{name: "html first", mail: parts("alternative", "--=_part 1\nContent-Type: text/html\n\n<html>Hello</html>\n--=_part 1\nContent-Type: text/plain\n\nBODY"+end), good: "fix"},
		{name: "html only", mail: c.mbox("fix", "Content-Type: text/html; charset=utf-8\n", func(s string) string { return "<html><pre>" + html.EscapeString(s) + "</pre></html>\n" }), refused: []string{"mail 1", "no text but text/html"}},
		{name: "signed", mail: parts("signed; micalg=pgp-sha256; protocol=\"application/pgp-signature\"", "--=_part 1\nContent-Type: text/plain; charset=utf-8\nContent-Transfer-Encoding: quoted-printable\n\n"+qp(body)+
			"\n--=_part 1\nContent-Type: application/pgp-signature; name=signature.asc\n\n-----BEGIN PGP SIGNATURE-----\n\niQ=\n=abcd\n-----END PGP SIGNATURE-----\n"+end), good: "fix"},
		{name: "signed and attached", mail: parts("signed; micalg=pgp-sha256; protocol=\"application/pgp-signature\"", "--=_part 1\nContent-Type: multipart/mixed; boundary=in\n\n--in\n\nHello\n--in\nContent-Type: text/x-patch\n\nBODY\n--in--\n"+
			"\n--=_part 1\nContent-Type: application/pgp-signature; name=signature.asc\n\n-----BEGIN PGP SIGNATURE-----\n-----END PGP SIGNATURE-----\n"+end), good: "fix"},
		{name: "flowed", mail: c.mbox("mode and text", "Content-Type: text/plain; format=flowed\n", stuff), good: "mode and text", warn: "format=flowed"},
		{name: "flowed with delsp", mail: c.mbox("umlaut", "Content-Type: text/plain; charset=utf-8; format=flowed; delsp=yes\n", func(s string) string {
			return strings.Replace(stuff(s), "every element", "every  \nelement", 1)
		}), good: "umlaut", warn: "format=flowed"},
		{name: "flowed in name only", mail: c.mbox("umlaut", "Content-Type: text/plain; charset=utf-8; format=flowed\n", nil), good: "umlaut", warn: "format=flowed", git: "it joins lines that were never broken"},
		{name: "flowed and damaged", mail: c.mbox("fix", "Content-Type: text/plain; format=flowed\n", func(s string) string {
			return strings.Replace(s, "\t\tn += fast(l);", "\t\tn += \nfast(l);", 1)
		}), refused: []string{"mail 1", "line", "format=flowed"}},
		{name: "mime attach", mail: c.format("umlaut", "--attach"), good: "umlaut"},
		{name: "mime inline", mail: c.format("umlaut", "--inline"), good: "umlaut"},
		{name: "unknown encoding", mail: c.mbox("fix", "Content-Transfer-Encoding: x-uuencode\n", nil), good: "fix", warn: "x-uuencode"},
		{name: "bom", mail: "\ufeff" + c.format("fix"), good: "fix", git: "it finds no mail behind a byte order mark"},
	}
}

func latin1(s string) string {
	var b []byte
	for _, r := range s {
		b = append(b, byte(r))
	}
	return string(b)
}

// chopped breaks text into lines of n characters.
func chopped(s string, n int, end string) string {
	var b strings.Builder
	for line := range slices.Chunk([]byte(strings.TrimSpace(s)), n) {
		b.Write(line)
		b.WriteString(end)
	}
	return b.String()
}

// headerCases are what can stand in a header and above the diff.
func headerCases(c *corpus) []specimen {
	subject := func(s string) string { return c.replaced("fix", "Subject: [PATCH] net: walk faster", "Subject: "+s) }
	from := func(s string) string { return c.replaced("fix", "From: "+defaultAuthor, s) }
	top := func(s string) string { return c.mbox("fix", "", func(body string) string { return s + body }) }
	b := func(s string) string { return "=?UTF-8?B?" + base64.StdEncoding.EncodeToString([]byte(s)) + "?=" }
	return []specimen{
		{name: "2047 as git writes it", mail: c.format("umlaut"), good: "umlaut"},
		{name: "2047 in q of latin 1", mail: c.replaced("fix", "Subject: [PATCH] net: walk faster", "Subject: =?ISO-8859-1?Q?[PATCH]_net=3A_na=EFve?=", "From: Jane Doe", "From: =?iso-8859-1?q?Zo=EB_M=FCller?="), good: "fix", subject: "net: naïve", author: "Zoë Müller <jane@example.org>"},
		{name: "2047 in b", mail: c.replaced("fix", "Subject: [PATCH] net: walk faster", "Subject: "+b("[PATCH] net: naïve"), "From: Jane Doe", "From: "+b("Zoë Müller")), good: "fix", subject: "net: naïve", author: "Zoë Müller <jane@example.org>"},
		{name: "2047 split in a character", mail: subject(b("[PATCH] net: na\xc3") + "\n " + b("\xafve walk") + "\n\t=?utf-8?q?_of?=\n plain text"), good: "fix", subject: "net: naïve walk of plain text"},
		{name: "2047 of windows-1252", mail: subject("[PATCH] =?windows-1252?Q?costs_5=80_=96_more?="), good: "fix", subject: "costs 5€ – more"},
		{name: "2047 with a comma in a name", mail: from("From: =?utf-8?q?Doe=2C_Jan=C3=A9?= <jane@example.org>"), good: "fix", author: "Doe, Jané <jane@example.org>"},
		{name: "2047 in quotes", mail: from(`From: "=?utf-8?q?Jan=C3=A9?=" <jane@example.org>`), good: "fix", author: "Jané <jane@example.org>"},
		{name: "raw utf-8 in the header", mail: c.format("umlaut", "--no-encode-email-headers"), good: "umlaut"},
		{name: "raw latin 1 in the header", mail: c.replaced("fix", "Subject: [PATCH] net: walk faster", "Subject: [PATCH] net: na\xefve", "From: Jane Doe", "From: Zo\xeb M\xfcller"), good: "fix", subject: "net: naïve", author: "Zoë Müller <jane@example.org>"},
		{name: "a header that goes on", mail: subject("[PATCH net-next v3\n 01/10] net: walk\n\tfaster\n  than before"), good: "fix", subject: "net: walk faster than before", warn: "patch 1 of 10"},
		{name: "a subject on the next line", mail: subject("\n [PATCH] net: walk faster"), good: "fix"},
		{name: "an address alone", mail: from("From: jane@example.org"), good: "fix", author: "jane@example.org <jane@example.org>"},
		{name: "a name in a comment", mail: from("From: jane@example.org (Jane Doe)"), good: "fix"},
		{name: "a name in quotes", mail: from(`From: "Doe, Jane \"J.\" (x)" <jane@example.org>`), good: "fix", author: `Doe, Jane "J." (x) <jane@example.org>`},
		{name: "a name with a dot", mail: from("From: Jane D. Doe Jr. <jane@example.org>"), good: "fix", author: "Jane D. Doe Jr. <jane@example.org>", git: "git commit takes dots off the end of a name"},
		{name: "a name via a list", mail: from("From: \"Jane Doe via B4 Relay\" <devnull+jane@example.org>"), good: "fix", author: "Jane Doe via B4 Relay <devnull+jane@example.org>"},
		{name: "a folded From", mail: from("From: Jane\n Doe\n <jane@example.org>"), good: "fix"},
		{name: "no From", mail: from("X-From: nobody"), good: "fix", author: "none", git: "it makes no commit without an author"},
		{name: "a mail that begins with its header", mail: strings.SplitN(c.format("fix"), "\n", 2)[1], good: "fix"},
		{name: "many header fields", mail: from("Received: from a by b;\n\tThu, 1 Jan 2026 10:11:12 +0000\nReturn-Path: <x@y>\nDKIM-Signature: v=1; a=rsa;\n\tb=abc\n def\nList-Id: <a.list>\nX-Mailer: none\nFrom: " + defaultAuthor), good: "fix"},
		{name: "field names in lower case", mail: c.replaced("fix", "From: Jane", "from: Jane", "Subject: ", "subject: "), good: "fix"},
		{name: "from in the body", mail: top("From: Other Author <other@example.org>\n\n"), good: "fix", author: "Other Author <other@example.org>"},
		{name: "from in the body by 2047", mail: top("From: =?UTF-8?q?Zo=C3=AB_M=C3=BCller?= <zoe@example.org>\n\n"), good: "fix", author: "Zoë Müller <zoe@example.org>"},
		{name: "from in the body by format-patch", mail: c.format("umlaut", "--from=Sender <sender@example.org>"), good: "umlaut"},
		{name: "all three in the body", mail: top("\n\nFrom: Other Author <other@example.org>\nDate: Fri, 2 Jan 2026 10:11:12 +0100\nSubject: [PATCH v7] net: another\n title\n\n"), good: "fix", author: "Other Author <other@example.org>", subject: "net: another title"},
		{name: "from in the body twice", mail: top("From: Other Author <other@example.org>\nFrom: Third <third@example.org>\n\n"), good: "fix", author: "Other Author <other@example.org>"},
		{name: "a patch line in the body", mail: top("[PATCH] net: another title\n\n"), good: "fix", subject: "net: another title"},
		{name: "a format-patch line in the body", mail: top(">From 0123456789012345678901234567890123456789 Mon Sep 17 00:00:00 2001\nFrom: Other Author <other@example.org>\n\n"), good: "fix", author: "Other Author <other@example.org>"},
		{name: "from in the body below words", mail: top("Hello,\n\nFrom: Other Author <other@example.org>\n\n"), good: "fix"},
		{name: "mboxo", mail: strings.ReplaceAll(c.format("from words"), "\nFrom here", "\n>From here"), good: "from words"},
		{name: "mboxrd", mail: c.format("from words", "--pretty=mboxrd"), good: "from words", args: []string{"--patch-format=mboxrd"}},
		{name: "From in the message as it is", mail: c.format("from words"), good: "from words"},
		{name: "From with a date in the message", mail: top("The log has:\n\nFrom someone at Thu Jan  1 10:11:12 2026\nand it is long\n\n"), good: "fix", git: "it splits the mail there"},
		{name: "scissors", mail: top("Hello,\n\nhere it is.\n\n-- >8 --\nSubject: net: below the scissors\n\n"), good: "fix"},
		{name: "scissors and a quote", mail: top("On Monday somebody wrote:\n> diff --git a/x b/x\n\n 8< ------ >8 \n\n"), good: "fix"},
		{name: "PATCH1/8", mail: subject("[PATCH1/8] net: walk faster"), good: "fix", warn: "patch 1 of 8"},
		{name: "PATCHv2", mail: subject("[PATCHv2] net: walk faster"), good: "fix"},
		{name: "no space behind", mail: subject("[PATCH net-next v3 01/10]net: walk faster"), good: "fix", warn: "patch 1 of 10"},
		{name: "RESEND", mail: subject("[RESEND PATCH v2] net: walk faster"), good: "fix"},
		{name: "RFC", mail: subject("[RFC][PATCH] net: walk faster"), good: "fix"},
		{name: "net-next", mail: subject("[net-next] net: walk faster"), good: "fix"},
		{name: "a list's tag", mail: subject("[list-name] [PATCH] [BUGFIX] net: walk faster"), good: "fix"},
		{name: "forwarded", mail: subject("Fwd: [PATCH] net: walk faster"), good: "fix", git: "it keeps Fwd: in the subject"},
		{name: "answered", mail: subject("Re: [PATCH] net: walk faster"), good: "fix", warn: "is a reply"},
		{name: "brackets in the title", mail: subject("[PATCH] net: walk [faster] now"), good: "fix", subject: "net: walk [faster] now"},
		{name: "no subject", mail: c.replaced("fix", "Subject: [PATCH] net: walk faster", "X-Subject: none"), good: "fix", subject: "It was slow = bad, because every element was looked at."},
		{name: "an empty body", mail: "From a Thu Jan  1 10:11:12 2026\nFrom: " + defaultAuthor + "\nSubject: [PATCH] nothing\n\n", refused: []string{"mail 1", "nothing", "no diff"}},
		{name: "header only", mail: "From a Thu Jan  1 10:11:12 2026\nFrom: " + defaultAuthor + "\nSubject: [PATCH] nothing\n", refused: []string{"no diff"}},
		{name: "nothing at all", mail: "", refused: []string{"no diff"}},
	}
}

// diffCases are the kinds of change, and the ways a diff is written.
func diffCases(c *corpus) []specimen {
	var list []specimen
	for _, ch := range changes {
		if ch.on == "" && !slices.Contains([]string{"column diff", "margin", "nul"}, ch.name) {
			list = append(list, specimen{name: "kind " + ch.name, mail: c.format(ch.name, "-M", "-C", "-B"), good: ch.name, git: map[string]string{"crlf file": "it takes the CR off every line without --keep-cr"}[ch.name]})
		}
	}
	diff := func(name string, args ...string) string {
		return c.git(slices.Concat([]string{"diff", "--binary"}, args, []string{tagOf(name) + "^", tagOf(name)})...) + "\n"
	}
	mail := func(diff string) string {
		return c.mbox("fix", "", func(body string) string { return upTo(body, "\n---\n") + "\n---\n\n" + diff })
	}
	plain := func(diff string) string {
		return regexp.MustCompile(`(?m)^(diff --git|index|new file|deleted file).*\n`).ReplaceAllString(diff, "")
	}
	stamped := func(diff string) string {
		diff = strings.ReplaceAll(plain(diff), "--- /dev/null\n", "--- a/net/new/deep/n.c\t1970-01-01 00:00:00.000000000 +0000\n")
		return regexp.MustCompile(`(?m)^(---|\+\+\+) ([ab]/\S+)$`).ReplaceAllString(diff, "$1 $2\t2026-01-01 10:11:12.123456789 +0100")
	}
	b := func(body string) string { return "diff --git a/net/b.c b/net/b.c\n" + body }
	return append(list, []specimen{
		{name: "no index line", mail: c.mbox("fix", "", func(s string) string { return regexp.MustCompile(`(?m)^index .*\n`).ReplaceAllString(s, "") }), good: "fix"},
		{name: "full index", mail: c.format("fix", "--full-index"), good: "fix"},
		{name: "no prefix", mail: c.format("fix", "--no-prefix"), good: "fix", warn: "no a/ and b/", git: "-p0 is not its default"},
		{name: "no prefix in the top folder", mail: c.format("top", "--no-prefix"), good: "top", warn: "no a/ and b/", git: "-p0 is not its default"},
		{name: "no prefix of a rename", mail: c.format("rename", "--no-prefix", "-M"), good: "rename", warn: "no a/ and b/", git: "-p0 is not its default"},
		{name: "no prefix of all kinds", mail: c.formatRange("part 3", "--no-prefix"), good: "part 3", n: 3, warn: "no a/ and b/", git: "-p0 is not its default"},
		{name: "prefixes i and w", mail: c.format("fix", "--src-prefix=i/", "--dst-prefix=w/"), good: "fix"},
		{name: "prefixes c and i of a new file", mail: c.format("new", "--src-prefix=c/", "--dst-prefix=i/"), good: "new"},
		{name: "plain diff", mail: mail(plain(diff("fix"))), good: "fix", subject: "net: walk faster"},
		{name: "plain diff with time stamps", mail: mail(stamped(diff("fix"))), good: "fix"},
		{name: "plain diff of a new file", mail: mail(stamped(diff("new"))), good: "new", subject: "net: walk faster"},
		{name: "plain diff with .orig", mail: mail(strings.NewReplacer("--- a/net/tab.c", "--- linux.orig/net/tab.c.orig", "+++ b/", "+++ linux/").Replace(stamped(diff("fix")))), good: "fix"},
		{name: "plain diff of folders", mail: mail("Only in b: .config\ndiff -urN a/net/tab.c b/net/tab.c\n" + stamped(diff("fix"))), good: "fix"},
		{name: "plain diff without a folder", mail: mail("--- Makefile\n+++ Makefile\n@@ -1 +1 @@\n-all:\n+all: x\n"), refused: []string{"mail 1", `"Makefile" has no folder before it`}, git: "it reads all names of a patch as -p0 when the first has no folder"},
		{name: "plain diff at -p0", mail: mail(strings.NewReplacer("--- a/", "--- ", "+++ b/", "+++ ").Replace(plain(diff("fix")))), refused: []string{"tab.c: no such file"}},
		{name: "svn's diff", mail: mail("Index: net/tab.c\n===================================================================\n" + plain(diff("fix"))), good: "fix"},
		{name: "no separator", mail: c.mbox("fix", "", func(s string) string {
			return regexp.MustCompile(`(?s)\n---\n.*?\ndiff`).ReplaceAllString(s, "\n\ndiff")
		}), good: "fix"},
		{name: "notes below the separator", mail: c.mbox("fix", "", func(s string) string {
			return strings.Replace(s, "\n---\n", "\n---\nv2: faster\n--\n - changed a\n + added b\n  diff --git a/x b/x\n\n> quoted --- a/x\n", 1)
		}), good: "fix"},
		{name: "no context lines", mail: c.format("fix", "-U0"), refused: []string{"mail 1", "net/tab.c:12"}},
		{name: "no signature", mail: c.format("fix", "--no-signature"), good: "fix"},
		{name: "a list's footer", mail: c.format("fix") + "_______________________________________________\nlist mailing list\n--\nhttps://lists.example.org/\n", good: "fix"},
		{name: "a footer without a signature", mail: c.format("fix", "--no-signature") + "_______________________________________________\nlist mailing list\n-- \nYou got this because\n---\nof the list\n", good: "fix"},
		{name: "base and notes", mail: c.format("fix", "--base="+c.base, "--signature=x\n- y\n+ z"), good: "fix"},
		{name: "two diffs in one mail", mail: c.format("fix") + "And the other one:\n\n" + diff("delete"), good: "fix and delete"},
		{name: "two attachments", mail: c.mbox("fix", "Content-Type: multipart/mixed; boundary=b\n", func(s string) string {
			return "--b\nContent-Type: text/x-patch\n\n" + s + "--b\nContent-Type: text/x-patch; name=2.diff\nContent-Transfer-Encoding: base64\n\n" + base64Lines(diff("delete")) + "--b--\n"
		}), good: "fix and delete"},
		{name: "a diff at the margin of the message", mail: c.format("column diff"), refused: []string{"mail", "net/b.c:1"}},
		{name: "a diff at the margin that fits", mail: c.format("margin"), good: "margin taken"},
		{name: "cut in a hunk", mail: c.mbox("fix", "", func(s string) string { return upTo(s, "\t\tl = l->next;") }), refused: []string{"mail 1", "line 18"}},
		{name: "cut behind the header of a hunk", mail: c.mbox("fix", "", func(s string) string {
			return upTo(s, "\n \twhile (l)") + "\n"
		}), refused: []string{"mail 1", "line"}},
		{name: "cut in a binary", mail: c.mbox("literal", "", func(s string) string { return s[:len(upTo(s, "literal "))+16] }), refused: []string{"mail 1", "line"}},
		{name: "tabs to spaces", mail: c.mbox("fix", "", func(s string) string { return strings.ReplaceAll(s, "\t", "        ") }), refused: []string{"mail 1", "net/tab.c:", "turned tabs into spaces"}},
		{name: "a wrapped line", mail: c.mbox("fix", "", func(s string) string { return strings.Replace(s, "if (l->next == l)", "if (l->next\n== l)", 1) }), refused: []string{"mail 1", "line"}},
		{name: "blank context lines stripped", mail: c.mbox("fix", "", func(s string) string { return strings.ReplaceAll(s, "\n \n", "\n\n") }), good: "fix"},
		{name: "blanks at the end stripped", mail: c.mbox("blanks at the end", "", func(s string) string {
			return regexp.MustCompile(`(?m)^([+].*?)[ \t]+$`).ReplaceAllString(s, "$1")
		}), good: "blanks stripped"},
		{name: "a merge", mail: mail("diff --cc net/b.c\nindex 1111111,2222222..3333333\n--- a/net/b.c\n+++ b/net/b.c\n@@@ -1,1 -1,1 +1,2 @@@\n- b\n -c\n++d\n++e\n"), refused: []string{"mail 1", "merge"}},
		{name: "a merge beside a diff", mail: c.format("fix") + "diff --cc net/b.c\nindex 1111111,2222222..3333333\n--- a/net/b.c\n+++ b/net/b.c\n@@@ -1,1 -1,1 +1,2 @@@\n- b\n -c\n++d\n++e\n", refused: []string{"mail 1", "line", "merge"}, git: "it leaves out what is combined"},
		{name: "utf-16", mail: utf16(c.format("fix")), refused: []string{"UTF-16"}},
		{name: "utf-16 in base64", mail: c.mbox("fix", "Content-Type: text/plain; charset=utf-16\nContent-Transfer-Encoding: base64\n", func(s string) string { return base64Lines(utf16(s)) }), refused: []string{"mail 1", "UTF-16"}},
		{name: "nul in the message", mail: c.mbox("fix", "", func(s string) string { return "a\x00b\n\n" + s }), good: "fix", git: "a commit cannot have it in its message, which is not used here"},
		{name: "nul in the diff", mail: c.mbox("fix", "", func(s string) string { return strings.Replace(s, "+\t\tn += fast(l);", "+\t\tn += \x00fast(l);", 1) }), good: "nul"},
		{name: "nul in the subject", mail: c.replaced("fix", "net: walk", "net: w\x00alk"), good: "fix", subject: "net: w?alk faster", git: "a commit cannot have it in its message"},
		{name: "out of the tree", mail: c.replaced("fix", "net/tab.c", "../tab.c"), refused: []string{"mail 1", `refused path "../tab.c"`}},
		{name: "out of the tree from within", mail: c.replaced("fix", "net/tab.c", "net/../../tab.c"), refused: []string{"mail 1", "refused path"}},
		{name: "an absolute path", mail: mail("--- /etc/passwd\n+++ /etc/passwd\n@@ -1 +1 @@\n-a\n+b\n"), refused: []string{"mail 1", "refused path"}},
		{name: "an absolute path of git", mail: c.replaced("fix", "a/net/tab.c", "a//etc/tab.c", "b/net/tab.c", "b//etc/tab.c"), refused: []string{"mail 1", "etc/tab.c: no such file"}},
		{name: "git's config", mail: c.replaced("new", "net/new/deep/n.c", ".git/config"), refused: []string{"mail 1", `refused path ".git/config"`}},
		{name: "git's config in another case", mail: c.replaced("new", "net/new/deep/n.c", "net/.GiT/config"), refused: []string{"mail 1", "refused path"}},
		{name: "git's config by its short name", mail: c.replaced("new", "net/new/deep/n.c", "GIT~1/config"), refused: []string{"mail 1", "refused path"}},
		{name: "a link and a file behind it", mail: mail("diff --git a/l b/l\nnew file mode 120000\n--- /dev/null\n+++ b/l\n@@ -0,0 +1 @@\n+net\n\\ No newline at end of file\ndiff --git a/l/x b/l/x\nnew file mode 100644\n--- /dev/null\n+++ b/l/x\n@@ -0,0 +1 @@\n+x\n"), refused: []string{"mail 1", `refused path "l/x"`, "link"}},
		{name: "a link out of the tree", mail: mail("diff --git a/l b/l\nnew file mode 120000\n--- /dev/null\n+++ b/l\n@@ -0,0 +1 @@\n+../../etc/passwd\n\\ No newline at end of file\n"), refused: []string{"mail 1", `"l"`, "link"}, git: "it only looks at names"},
		{name: "a link to an absolute path", mail: mail("diff --git a/net/l b/net/l\nnew file mode 120000\n--- /dev/null\n+++ b/net/l\n@@ -0,0 +1 @@\n+/etc/passwd\n\\ No newline at end of file\n"), refused: []string{"mail 1", `"net/l"`, "link"}, git: "it only looks at names"},
		{name: "through a link of the tree", mail: mail("diff --git a/way/x b/way/x\nnew file mode 100644\n--- /dev/null\n+++ b/way/x\n@@ -0,0 +1 @@\n+x\n"), refused: []string{"way"}},
		{name: "through a link of the series", mail: mail("diff --git a/l b/l\nnew file mode 120000\n--- /dev/null\n+++ b/l\n@@ -0,0 +1 @@\n+net\n\\ No newline at end of file\n") + mail("diff --git a/l/b.c b/l/b.c\n--- a/l/b.c\n+++ b/l/b.c\n@@ -1 +1 @@\n-b\n+x\n"), refused: []string{"mail 2", "l/b.c"}},
		{name: "a path that is too long", mail: c.replaced("new", "net/new/deep/n.c", "net/"+strings.Repeat("a/", 2100)+"n.c"), refused: []string{"mail 1", "bytes long"}},
		{name: "a link that is a binary", mail: mail("diff --git a/l b/l\nnew file mode 120000\nindex 0000000000000000000000000000000000000000..1111111111111111111111111111111111111111\nGIT binary patch\nliteral 2\nJcmYdfU|;|M00IC2\n\nliteral 0\nHcmV?d00001\n\n"), refused: []string{"mail 1", "symbolic link"}},
		{name: "a submodule", mail: mail("diff --git a/sub b/sub\nnew file mode 160000\nindex 0000000..1111111\n--- /dev/null\n+++ b/sub\n@@ -0,0 +1 @@\n+Subproject commit 0123456789012345678901234567890123456789\n"), refused: []string{"mail 1", "submodule"}, git: "it takes a submodule for a file; a kernel has none"},
		{name: "a new file that is there", mail: mail(b("new file mode 100644\n--- /dev/null\n+++ b/net/b.c\n@@ -0,0 +1 @@\n+x\n")), refused: []string{"net/b.c: the file exists already"}},
		{name: "a hunk in the wrong place", mail: c.mbox("fix", "", func(s string) string {
			return regexp.MustCompile(`@@ -\d+,`).ReplaceAllString(s, "@@ -2,")
		}), good: "fix"},
		{name: "a hunk for another tree", mail: c.replaced("fix", "l = l->next;", "l = after(l);"), refused: []string{"mail 1", "net/tab.c:", "the lines are not there"}},
		{name: "a rename of nothing", mail: c.replaced("rename", "lib/big.c", "lib/none.c"), refused: []string{"lib/none.c: no such file"}},
	}...)
}

func utf16(s string) string {
	b := []byte("\xff\xfe")
	for _, r := range s {
		b = append(b, byte(r), byte(r>>8))
	}
	return string(b)
}

// boxCases are mailboxes of several mails.
func boxCases(c *corpus) []specimen {
	three := splitBox(c.formatRange("part 3"))
	covered := c.formatRange("part 3", "--cover-letter", "--base="+c.base, "--thread")
	reply := func(subject, body string) string {
		return "From b Thu Jan  1 10:11:12 2026\nFrom: Reviewer <r@example.org>\nSubject: Re: " + subject + "\n\n" + body + "\n"
	}
	quoted := reply("[PATCH 1/3] net: part 1", "On Monday Jane wrote:\n> "+strings.ReplaceAll(three[0], "\n", "\n> ")+"\nReviewed-by: Reviewer <r@example.org>")
	follow := reply("[PATCH 2/3] net: part 2", "This should help:\n\n"+c.git("diff", c.base, "delete")+"\n")
	return []specimen{
		{name: "a series", mail: strings.Join(three, ""), good: "part 3", n: 3},
		{name: "a series in disorder", mail: three[2] + three[0] + three[1], good: "part 3", n: 3, git: "it takes mails as they come"},
		{name: "a cover letter", mail: covered, good: "part 3", n: 3, git: "it stops at the cover letter"},
		{name: "a cover letter with an interdiff", mail: c.formatRange("part 3", "--cover-letter", "-v2", "--interdiff=other-2"), good: "part 3", n: 3, git: "it stops at the cover letter"},
		{name: "a cover letter with a range diff", mail: c.formatRange("part 3", "--cover-letter", "-v2", "--range-diff="+c.base+"..other-2"), good: "part 3", n: 3, git: "it stops at the cover letter"},
		{name: "an interdiff below the separator", mail: c.format("part 1", "-v2", "--interdiff=other-1"), good: "part 1"},
		{name: "a cover letter alone", mail: splitBox(covered)[0], refused: []string{"mail 1", "a cover letter"}},
		{name: "a thread with quotes", mail: three[0] + quoted + three[1] + three[2], good: "part 3", n: 3, git: "it stops at the reply"},
		{name: "a thread with a follow-up", mail: strings.Join(three, "") + follow, good: "part 3", n: 3, git: "it takes the diff in the reply too"},
		{name: "a follow-up alone", mail: follow, good: "delete", warn: "is a reply", subject: "net: part 2", author: "Reviewer <r@example.org>"},
		{name: "a quote alone", mail: quoted, refused: []string{"mail 1", "a reply"}},
		{name: "v1 and v2", mail: c.formatRange("other 2") + c.formatRange("part 3", "-v2"), good: "part 3", n: 3, warn: "v2 is newer", git: "it takes both"},
		{name: "v2 and RESEND", mail: c.formatRange("other 2", "-v2") + c.formatRange("part 3", "--subject-prefix=RESEND PATCH v2"), good: "part 3", n: 3, warn: "is newer", git: "it takes both"},
		{name: "two series", mail: c.formatRange("part 3") + c.formatRange("other 2"), refused: []string{"mail 1", "mail 4", "two series"}},
		{name: "two series that follow", mail: c.format("new") + c.format("delete"), good: "new and delete", n: 2},
		{name: "a mail twice", mail: covered + splitBox(covered)[2], good: "part 3", n: 3, git: "it stops at the cover letter, and does not apply a patch twice"},
		{name: "a mail twice without an id", mail: strings.Join(three, "") + three[1], refused: []string{"mail 2", "mail 4", "both 2 of 3"}},
		{name: "a duplicate id", mail: strings.ReplaceAll(strings.Join(three, ""), "\nSubject:", "\nMessage-Id: <same@example.org>\nSubject:"), good: "part 3", n: 3},
		{name: "a patch is missing", mail: three[0] + three[2], refused: []string{"2 of 3 missing"}},
		{name: "the last is cut", mail: three[0] + three[1] + upTo(three[2], "\n+three"), refused: []string{"mail 3", "[PATCH 3/3] net: part 3", "line"}},
		{name: "crlf in one of them", mail: three[0] + crlf(three[1]) + three[2], good: "part 3", n: 3, warn: "CRLF"},
		{name: "mboxrd of a thread", mail: c.formatRange("part 3", "--pretty=mboxrd"), good: "part 3", n: 3},
	}
}

// splitBox splits what format-patch writes.
func splitBox(text string) []string {
	parts := regexp.MustCompile(`(?m)^From [0-9a-f]{40} `).FindAllStringIndex(text, -1)
	var list []string
	for i, p := range parts {
		end := len(text)
		if i+1 < len(parts) {
			end = parts[i+1][0]
		}
		list = append(list, text[p[0]:end])
	}
	return list
}

// outcome is what a reader makes of a mailbox: for each patch its tree, subject
// and author.
type outcome struct {
	trees, subjects, authors []string
}

// stack returns the trees that patches make. Most mails hold one of a few diffs.
func (c *corpus) stack(t *testing.T, patches []Patch) ([]string, error) {
	var key strings.Builder
	for _, p := range patches {
		fmt.Fprintf(&key, "%d %s", len(p.Data), p.Data)
	}
	if trees, ok := c.trees[key.String()]; ok {
		return trees, nil
	}
	made, err := Stack(t.Context(), c.repo, c.base, patches)
	if err != nil {
		return nil, err
	}
	trees := strings.Fields(c.git(append([]string{"show", "-s", "--format=%T"}, made...)...))
	c.trees[key.String()] = trees
	return trees, nil
}

// ours reads a mailbox with this package.
func (c *corpus) ours(t *testing.T, s specimen, file string) (outcome, string, error) {
	var o outcome
	box, err := ReadMailbox(file)
	if err != nil {
		return o, "", err
	}
	if o.trees, err = c.stack(t, box.Patches); err != nil {
		return o, "", err
	}
	mails, err := Mails(file, []byte(s.mail), MailOptions{MboxRD: len(s.args) > 0})
	if err != nil {
		t.Fatal(err)
	}
	warnings := box.Warnings
	for _, p := range box.Patches {
		o.subjects = append(o.subjects, p.Subject)
		warnings = append(warnings, p.Warnings...)
		m := mails[slices.IndexFunc(mails, func(m Mail) bool { return strings.HasSuffix(p.Name, fmt.Sprintf(" mail %d", m.Number)) })]
		o.authors = append(o.authors, m.Author())
		if single, err := m.Patch(p.Name); err != nil || single.Subject != p.Subject || !bytes.Equal(single.Data, p.Data) {
			t.Errorf("Mail.Patch is %q, %v, and ReadMailbox has %q", single.Subject, err, p.Subject)
		}
	}
	if len(mails) == 1 {
		if p, err := Parse("p", []byte(s.mail)); err != nil || p.Subject != o.subjects[0] || !bytes.Equal(p.Data, box.Patches[0].Data) {
			t.Errorf("Parse is %q, %v, and ReadMailbox has %q", p.Subject, err, o.subjects[0])
		}
	}
	return o, strings.Join(warnings, "\n"), nil
}

// theirs lets git am take it.
func (c *corpus) theirs(s specimen, file string) (outcome, error) {
	var o outcome
	c.git("checkout", "-q", "--force", "--detach", c.base)
	if _, err := c.try(slices.Concat([]string{"am", "-q"}, s.args, []string{file})...); err != nil {
		_, _ = c.try("am", "--abort")
		return o, err
	}
	out := c.git("log", "--reverse", "--format=%T%x00%s%x00%an <%ae>", c.base+"..HEAD")
	for line := range strings.Lines(out) {
		f := strings.Split(strings.TrimSpace(line), "\x00")
		o.trees, o.subjects, o.authors = append(o.trees, f[0]), append(o.subjects, f[1]), append(o.authors, f[2])
	}
	return o, nil
}

// sameInfo compares the subject and the author of one mail with what git
// mailinfo reads.
func (c *corpus) sameInfo(t *testing.T, file string, got outcome) {
	t.Helper()
	dir := t.TempDir()
	if _, err := c.try("mailsplit", "-o"+dir, file); err != nil {
		return // it is no mailbox for git
	}
	mail, err := os.ReadFile(filepath.Join(dir, "0001"))
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	err = c.repo.Do(t.Context(), gitx.Command{Args: []string{"mailinfo", filepath.Join(dir, "msg"), filepath.Join(dir, "patch")}, Stdin: bytes.NewReader(mail), Stdout: &out})
	if err != nil {
		return // git cannot read it
	}
	name, address, _ := strings.Cut(strings.TrimSuffix(got.authors[0], ">"), " <")
	want := fmt.Sprintf("Author: %s\nEmail: %s\nSubject: %s\n", name, address, got.subjects[0])
	if name == "" {
		want = fmt.Sprintf("Subject: %s\n", got.subjects[0])
	}
	if !strings.HasPrefix(out.String(), want) {
		t.Errorf("git mailinfo has %q, want %q", out.String(), want)
	}
}

// wanted is what must come out of a specimen.
func (c *corpus) wanted(s specimen) outcome {
	out := c.once("log", "--reverse", fmt.Sprintf("-%d", max(1, s.n)), "--format=%T%x00%s%x00%an <%ae>", tagOf(s.good))
	var o outcome
	for line := range strings.Lines(strings.TrimSpace(out)) {
		f := strings.Split(strings.TrimSpace(line), "\x00")
		if s.subject != "" {
			f[1] = s.subject
		}
		if s.author != "" {
			f[2] = strings.TrimPrefix(s.author, "none")
		}
		o.trees, o.subjects, o.authors = append(o.trees, f[0]), append(o.subjects, f[1]), append(o.authors, f[2])
	}
	return o
}

func (o outcome) equal(p outcome) bool {
	return slices.Equal(o.trees, p.trees) && slices.Equal(o.subjects, p.subjects) && slices.Equal(o.authors, p.authors)
}

// TestCorpus reads every specimen with this package and with git am.
func TestCorpus(t *testing.T) {
	c := newCorpus(t)
	for _, s := range slices.Concat(mailCases(c), headerCases(c), diffCases(c), boxCases(c)) {
		t.Run(s.name, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "box")
			writeFile(t, file, s.mail)
			got, warnings, err := c.ours(t, s, file)
			switch {
			case s.refused != nil && err == nil:
				t.Errorf("taken: %+v", got)
			case s.refused != nil:
				for _, part := range s.refused {
					if !strings.Contains(err.Error(), part) {
						t.Errorf("%q is not in the error %v", part, err)
					}
				}
				if !strings.Contains(err.Error(), file) && !strings.Contains(err.Error(), "patch 1 of ") {
					t.Errorf("neither file nor patch is named in %v", err)
				}
			case err != nil:
				t.Error(err)
			default:
				if want := c.wanted(s); !got.equal(want) {
					t.Errorf("got  %+q\nwant %+q", got, want)
				}
				if (s.warn == "") != (warnings == "") || !strings.Contains(warnings, s.warn) {
					t.Errorf("warnings %q, want %q", warnings, s.warn)
				}
			}
			if testing.Short() {
				return // git am is a dozen processes for each
			}
			am, amErr := c.theirs(s, file)
			same := (err != nil) == (amErr != nil) && got.equal(am)
			if err == nil && amErr != nil && len(got.authors) == 1 {
				c.sameInfo(t, file, got)
			}
			if same != (s.git == "") {
				t.Errorf("git am: %+q, %v\nours:   %+q, %v\nwhy not the same: %q", am, amErr, got, err, s.git)
			}
		})
	}
}

// upTo is what is before the first place of a text, which must be there.
func upTo(s, end string) string {
	before, _, ok := strings.Cut(s, end)
	if !ok {
		panic(fmt.Sprintf("%q is not in %q", end, s))
	}
	return before
}

// TestCorpusFiles has what a mailbox is kept in: git am is given the same mails.
func TestCorpusFiles(t *testing.T) {
	c := newClone(t, map[string]string{"net/a.c": numbered(40, nil)})
	mails := series("PATCH 1/3", "PATCH 2/3", "PATCH 3/3")
	var z bytes.Buffer
	for _, m := range mails { // a member for each, as `cat *.gz` makes
		w := gzip.NewWriter(&z)
		_, _ = w.Write([]byte(m))
		_ = w.Close()
	}
	dir := t.TempDir()
	for name, text := range map[string]string{
		"box.gz": z.String(), "box": strings.Join(mails, ""), "cut.gz": z.String()[:z.Len()-4], "changed.gz": strings.Replace(z.String(), z.String()[40:44], "\x00\x01\x02\x03", 1),
		"maildir/tmp/x": mails[0], "maildir/new/10.x": withoutFrom(mails[2]), "maildir/cur/9.x:2,S": withoutFrom(mails[1]), "maildir/cur/1.x:2,": withoutFrom(mails[0]),
		"gone/cur/1": "", "gone/new/1": mails[0], "utf16": utf16(strings.Join(mails, "")),
	} {
		file := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		writeFile(t, file, text)
	}
	for name, s := range map[string]struct{ git, refused string }{
		"box":        {git: "box"},
		"box.gz":     {git: "box"}, // unpacked
		"maildir":    {git: "maildir"},
		"cut.gz":     {refused: "it is cut short"},
		"changed.gz": {refused: "changed.gz"},
		"gone":       {refused: "gone/cur/1"},
		"utf16":      {refused: "UTF-16"},
	} {
		t.Run(name, func(t *testing.T) {
			patches, err := ReadSeries([]string{filepath.Join(dir, name)})
			if s.refused != "" {
				if err == nil || !strings.Contains(err.Error(), s.refused) {
					t.Errorf("error %v, want %q", err, s.refused)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			c.git("checkout", "-q", "--force", "--detach", c.base)
			c.git("am", "-q", filepath.Join(dir, s.git))
			sameAsAm(t, c, patches, strings.Fields(c.git("rev-list", "--reverse", c.base+"..HEAD")))
		})
	}
}

// withoutFrom is a mail as a maildir has it.
func withoutFrom(mail string) string {
	_, rest, _ := strings.Cut(mail, "\n")
	return rest
}

// FuzzMail reads one mail and all that can be asked of it.
func FuzzMail(f *testing.F) {
	diff := fixDiff(12, "x\n")
	for _, from := range []string{"Jane Doe <j@e>", `"Doe, \"J\"" <j@e> (x)`, "=?utf-8?q?Z=C3=AB?= <z@e>, other", "nobody", "<>", "a@b@c <d@e> f@g", "\xeb (x) y@z"} {
		f.Add("From: "+from+"\nSubject: [PATCH] x\n", "From: "+from+"\nSubject: a\n b\n\n"+diff)
	}
	f.Add("Content-Type: message/rfc822\n", "Content-Type: multipart/mixed; boundary=b\n\n--b\nContent-Type: application/octet-stream\nContent-Transfer-Encoding: base64\n\n"+base64Lines(diff)+"YQ==\nYQ==\n--b--\n")
	f.Add("Content-Transfer-Encoding: quoted-printable\n", "[PATCH] x\n>From "+strings.Repeat("0", 40)+" Mon Sep 17 00:00:00 2001\n"+strings.ReplaceAll(qp(diff), "=\n", "= \t\n"))
	f.Add("Content-Type: text/html\n", "diff --cc x\n@@@ -1,1 -1,1 +1,1 @@@\n")
	f.Add("Subject: x\n", strings.NewReplacer("a/net", "net", "b/net", "net").Replace(diff))
	f.Fuzz(func(t *testing.T, head, body string) {
		m, err := parseMail(1, 1, []byte(head+"\n"+body))
		if err != nil {
			return
		}
		if a := m.Author(); strings.ContainsAny(a, "\n\x00") || !utf8.ValidString(a) || a != "" && !strings.HasSuffix(a, ">") {
			t.Errorf("author %q", a)
		}
		if !utf8.ValidString(m.Subject()) || !utf8.ValidString(m.Text()) {
			t.Errorf("not UTF-8: %q, %q", m.Subject(), m.Text())
		}
		if !m.HasDiff() && !strings.HasPrefix(m.noDiff(), "no diff in it") {
			t.Errorf("no diff: %q", m.noDiff())
		}
		p, err := m.Patch("f")
		if err != nil {
			return
		}
		for _, name := range p.Files {
			if !filepath.IsLocal(name) {
				t.Errorf("accepted path %q", name)
			}
		}
	})
}

// FuzzDecode has the decoders: what was encoded comes back, and the lines of what
// is prefixed stay where they are.
func FuzzDecode(f *testing.F) {
	f.Add([]byte("a = b\t\n\xff\r\n="))
	f.Add([]byte("diff --git x y z\nrename from x\nrename to y z\n--- x\n+++ y z\n@@ -1 +1 @@\n--- a\n+++ b\n"))
	f.Add([]byte("diff --git \"a\\t\" \"a\\t\"\n--- \"a\\t\"\n+++ \"a\\t\"\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		if got, unpadded, err := decodeBase64([]byte(base64Lines(string(data))), 1); err != nil || unpadded || !bytes.Equal(got, data) {
			t.Errorf("base64 of %q is %q, %v", data, got, err)
		}
		text := bytes.ReplaceAll(data, []byte("\r"), nil)
		if got := decodeQP([]byte(qp(string(text)))); !bytes.Equal(got, text) {
			t.Errorf("quoted-printable of %q is %q", text, got)
		}
		if got := decodeQP(data); len(got) > len(data) {
			t.Errorf("decodeQP(%q) = %q", data, got)
		}
		out, changed, err := addPrefixes(data)
		if err == nil && (bytes.Count(out, []byte("\n")) != bytes.Count(data, []byte("\n")) || !changed && !bytes.Equal(out, data)) {
			t.Errorf("addPrefixes(%q) = %q", data, out)
		}
		ParseTag(string(data))
		if s := cleanSubject(string(data)); !utf8.ValidString(s) || strings.ContainsAny(s, "\n\x00\x1b") {
			t.Errorf("subject %q", s)
		}
	})
}
