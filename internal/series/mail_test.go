package series

import (
	"bytes"
	"compress/gzip"
	"encoding/base64"
	"errors"
	"fmt"
	"mime/quotedprintable"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/kbisect/kbisect/internal/gitx"
)

// clone is a work tree in which git makes and takes mails: the oracle.
type clone struct {
	t    testing.TB
	repo gitx.Repo
	base string
}

// newClone makes a work tree with one commit of the given files.
func newClone(t testing.TB, files map[string]string) *clone {
	t.Helper()
	c := &clone{t: t, repo: gitx.Repo{Dir: t.TempDir()}}
	cmd := exec.Command("git", "init", "-q", "--template=", c.repo.Dir)
	cmd.Env = gitx.Environ()
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("git init: %v: %s", err, out)
	}
	c.base = c.commit("base", files)
	return c
}

func (c *clone) git(args ...string) string {
	c.t.Helper()
	out, err := c.try(args...)
	if err != nil {
		c.t.Fatal(err)
	}
	return out
}

func (c *clone) try(args ...string) (string, error) {
	var out bytes.Buffer
	err := c.repo.Do(c.t.Context(), gitx.Command{Args: args, Stdout: &out, Env: []string{
		"GIT_AUTHOR_NAME=Zoë Test", "GIT_AUTHOR_EMAIL=z@example.org", "GIT_AUTHOR_DATE=1700000000 +0000",
		"GIT_COMMITTER_NAME=c", "GIT_COMMITTER_EMAIL=c@example.org", "GIT_COMMITTER_DATE=1700000000 +0000"}})
	return strings.TrimSuffix(out.String(), "\n"), err
}

// commit writes files ("" removes one) and commits them.
func (c *clone) commit(message string, files map[string]string) string {
	c.t.Helper()
	for name, text := range files {
		file := filepath.Join(c.repo.Dir, name)
		if text == "" {
			if err := os.Remove(file); err != nil {
				c.t.Fatal(err)
			}
			_ = os.Remove(filepath.Dir(file)) // if it is empty
			continue
		}
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			c.t.Fatal(err)
		}
		writeFile(c.t, file, text)
	}
	c.git("add", "-A")
	c.git("commit", "-q", "-m", message)
	return c.git("rev-parse", "HEAD")
}

// am lets git take a mailbox on the base, and returns the commits it makes.
func (c *clone) am(text string) ([]string, error) {
	c.t.Helper()
	c.git("checkout", "-q", "--force", "--detach", c.base)
	file := filepath.Join(c.t.TempDir(), "am.mbox")
	writeFile(c.t, file, text)
	if _, err := c.try("am", "-q", file); err != nil {
		_, _ = c.try("am", "--abort") // there is nothing to abort if it did not understand the file
		return nil, err
	}
	return strings.Fields(c.git("rev-list", "--reverse", c.base+"..HEAD")), nil
}

func writeFile(t testing.TB, name, text string) {
	t.Helper()
	if err := os.WriteFile(name, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

// mailbox writes text to a file and reads it.
func mailbox(t testing.TB, text string) (Mailbox, error) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "box.mbox")
	writeFile(t, file, text)
	return ReadMailbox(file)
}

func subjects(patches []Patch) []string {
	var list []string
	for _, p := range patches {
		list = append(list, p.Subject)
	}
	return list
}

// sameAsAm compares what Stack makes of patches with what git am made: the tree
// of each commit and its title.
func sameAsAm(t *testing.T, c *clone, patches []Patch, am []string) {
	t.Helper()
	made, err := Stack(t.Context(), c.repo, c.base, patches)
	if err != nil {
		t.Fatal(err)
	}
	if len(made) != len(am) {
		t.Fatalf("%d commits, and git am made %d", len(made), len(am))
	}
	for i := range made {
		sameTree(t, c.repo, made[i], am[i])
		got, want := c.git("log", "-1", "--format=%s", made[i]), c.git("log", "-1", "--format=%s", am[i])
		if got != want {
			t.Errorf("patch %d has the subject %q, and git am's %q", i+1, got, want)
		}
	}
}

// kinds is a history with every kind of change a patch can hold.
func kinds(t testing.TB) *clone {
	c := newClone(t, map[string]string{"net/a.c": numbered(40, nil), "net/b.c": "b\n", "doc/x y.txt": "x\n", "bin": "\x00\x01\x02", "crlf": "1\r\n2\r\n3\r\n4\r\n", "utf8": "é\nx\ny\n"})
	c.commit("net: change a line", map[string]string{"net/a.c": numbered(40, map[int]string{12: "slow();\n"})})
	c.commit("net: naïve Zoë changes a name and the subject is so long that it has to be folded somewhere", map[string]string{"utf8": "é\nx\nÿ\n"})
	c.commit("doc: move a file", map[string]string{"doc/x y.txt": "", "doc/deep/z.txt": "x\n"})
	c.commit("bin: new content", map[string]string{"bin": "\x00\x02\x03" + strings.Repeat("\x00abc", 50)})
	if err := os.Chmod(filepath.Join(c.repo.Dir, "net/b.c"), 0o755); err != nil {
		t.Fatal(err)
	}
	c.commit("net: b.c can be run", nil)
	c.commit("net: two files\n\nFrom here on\n---- before\n@@ -1 +1 @@ is no hunk\n    diff --git a/x b/x\n    --- a/x\n    +++ b/x\n    @@ -1 +1 @@\n", map[string]string{"net/a.c": numbered(40, map[int]string{12: "slow();\n", 30: "fast();"}), "net/new/n.c": "new\n"})
	c.commit("net: remove all of new", map[string]string{"net/new/n.c": ""})
	c.commit("net: new is a file", map[string]string{"net/new": "file\n"})
	return c
}

func TestStackAsGitAm(t *testing.T) {
	c := kinds(t)
	head := c.git("rev-parse", "HEAD")
	fromRange, err := RangePatches(t.Context(), c.repo, c.base, head)
	if err != nil {
		t.Fatal(err)
	}
	want, err := Stack(t.Context(), c.repo, c.base, fromRange)
	if err != nil {
		t.Fatal(err)
	}
	sameTree(t, c.repo, want[len(want)-1], head)

	for name, args := range map[string][]string{
		"plain":    {"--cover-letter"},
		"attached": {"--attach"},
		"inline":   {"--inline"},
		"8bit":     {"--no-encode-email-headers"},
		"bare":     {"-N", "--no-signature"},
		"v3":       {"-v3", "--subject-prefix=PATCH net-next", "--from=Other <o@example.org>", "--thread"},
		"no stat":  {"-p", "--no-renames"},
	} {
		t.Run(name, func(t *testing.T) {
			if testing.Short() && name != "plain" {
				t.Skip("git makes and takes a mailbox once under -short")
			}
			text := c.git(slices.Concat([]string{"format-patch", "--stdout", "--binary"}, args, []string{c.base + ".." + head})...) + "\n"
			box, err := mailbox(t, text)
			if err != nil {
				t.Fatal(err)
			}
			made, err := Stack(t.Context(), c.repo, c.base, box.Patches)
			if err != nil || !slices.Equal(made, want) {
				t.Errorf("Stack of the mbox = %v, %v; of the range %v", made, err, want)
			}
			if name == "plain" { // git am refuses a cover letter
				text = c.git("format-patch", "--stdout", "--binary", c.base+".."+head) + "\n"
			}
			am, err := c.am(text)
			if err != nil {
				t.Fatal(err)
			}
			sameAsAm(t, c, box.Patches, am)
		})
	}
}

// fixDiff is a fix of line 12 of net/a.c as a mail's text.
func fixDiff(line int, what string) string {
	was := numbered(40, nil)
	lines := strings.SplitAfter(was, "\n")
	var b strings.Builder
	fmt.Fprintf(&b, "Why it is so.\n\nSigned-off-by: Somebody <some@body>\n---\n net/a.c | 2 +-\n\ndiff --git a/net/a.c b/net/a.c\n--- a/net/a.c\n+++ b/net/a.c\n@@ -%d,7 +%d,7 @@\n", line-3, line-3)
	for i := line - 3; i <= line+3; i++ {
		if i == line {
			fmt.Fprintf(&b, "-%s+%s", lines[i-1], what)
			continue
		}
		b.WriteString(" " + lines[i-1])
	}
	return b.String() + "-- \n2.39.2\n"
}

// message is a mail of an mbox.
func message(header, body string) string {
	return "From somebody@example.org Thu Jan  1 10:11:12 2026\nFrom: Some Body <some@body>\nDate: Thu, 1 Jan 2026 00:00:00 +0000\n" + header + "\n" + body + "\n"
}

func base64Lines(text string) string {
	var b strings.Builder
	s := base64.StdEncoding.EncodeToString([]byte(text))
	for len(s) > 76 {
		b.WriteString(s[:76] + "\n")
		s = s[76:]
	}
	return b.String() + s + "\n"
}

func qp(text string) string {
	var b strings.Builder
	w := quotedprintable.NewWriter(&b)
	_, _ = w.Write([]byte(text))
	_ = w.Close()
	return strings.ReplaceAll(b.String(), "\r\n", "\n")
}

func crlf(text string) string { return strings.ReplaceAll(text, "\n", "\r\n") }

// stuff sends text as format=flowed the way RFC 3676 wants it.
func stuff(text string) string {
	var b strings.Builder
	for line := range strings.Lines(text) {
		if strings.HasPrefix(line, " ") || strings.HasPrefix(line, "From ") || strings.HasPrefix(line, ">") {
			b.WriteByte(' ')
		}
		b.WriteString(line)
	}
	return b.String()
}

// TestMailForms has one mail for each way a patch is sent. Where git am reads it,
// it must be read to the same.
func TestMailForms(t *testing.T) {
	c := newClone(t, map[string]string{"net/a.c": numbered(40, nil), "latin": "caf\xe9\nx\n"})
	diff := fixDiff(12, "fast(\"=\");\t \n")
	const subject = "Subject: [PATCH] net: a fix\n"
	parts := func(kind, sub string) string {
		return "Subject: [PATCH] net: a fix\nMIME-Version: 1.0\nContent-Type: multipart/" + kind + ";\n boundary=\"=_b 1\"\n\nfor old mailers\n--=_b 1\n" + sub
	}
	for name, mail := range map[string]struct {
		text  string
		amNot bool   // git am refuses it
		warn  string // one of ours
		title string // default "net: a fix"
	}{
		"plain":              {text: message(subject, diff)},
		"no From line":       {text: strings.SplitN(message(subject, diff), "\n", 2)[1]},
		"blank lines first":  {text: "\n\n" + message(subject, diff)},
		"crlf":               {text: crlf(message(subject, diff)), warn: "CRLF"},
		"base64":             {text: message(subject+"Content-Transfer-Encoding: base64\n", base64Lines(diff))},
		"base64, crlf in it": {text: message(subject+"Content-Transfer-Encoding: base64\n", base64Lines(crlf(diff))), amNot: true, warn: "CRLF"},
		"base64, crlf round": {text: crlf(message(subject+"Content-Transfer-Encoding: base64\n", base64Lines(diff))), warn: "CRLF"},
		"base64 and footer":  {text: message(subject+"Content-Transfer-Encoding: base64\n", base64Lines(diff+"\n")+"\n___________\nthe list\n")},
		"quoted-printable":   {text: message(subject+"Content-Transfer-Encoding: quoted-printable\n", qp(diff))},
		"qp, crlf round":     {text: crlf(message(subject+"Content-Transfer-Encoding: Quoted-Printable\n", qp(diff))), warn: "CRLF"},
		"qp in name only":    {text: message(subject+"Content-Transfer-Encoding: quoted-printable\n", strings.ReplaceAll(diff, "=", "=3d"))},
		"8bit utf-8":         {text: message("Subject: [PATCH] net: naïve\nContent-Type: text/plain; charset=UTF-8\nContent-Transfer-Encoding: 8bit\n", "ö\n"+diff), title: "net: naïve"},
		"8bit latin 1":       {text: message("Subject: [PATCH] net: na\xefve\nContent-Type: text/plain; charset=ISO-8859-1\n", "\xf6\n"+diff), title: "net: naïve"},
		"latin 1 in subject": {text: message("Subject: [PATCH] =?iso-8859-1?q?net=3A_na=EFve?=\n", diff), title: "net: naïve"},
		"two words":          {text: message("Subject: =?UTF-8?B?"+base64.StdEncoding.EncodeToString([]byte("[PATCH] net: na\xc3"))+"?=\n =?UTF-8?B?"+base64.StdEncoding.EncodeToString([]byte("\xafve"))+"?=\n", diff), title: "net: naïve"},
		"latin 1 file":       {text: message(subject+"Content-Type: text/plain; charset=ISO-8859-1\nContent-Transfer-Encoding: 8bit\n", "--- a/latin\n+++ b/latin\n@@ -1,2 +1,2 @@\n caf\xe9\n-x\n+\xfc\n"), warn: "byte for byte"},
		"folded subject":     {text: message("Subject: [PATCH net-next v2]\n net: a\n\tfix\n", diff)},
		"no space":           {text: message("Subject: [PATCH]net: a fix\n", diff)},
		"fwd and list":       {text: message("Subject: [list] [PATCH] net: a fix\n", diff)},
		"From in body":       {text: message(subject, "From: Zoë <z@e>\nDate: Thu, 1 Jan 2026 00:00:00 +0000\n\n"+diff)},
		"Subject in body":    {text: message("Subject: something\n", "\nFrom: Zoë <z@e>\nSubject: [PATCH] net: a\n fix\n\n"+diff)},
		"scissors":           {text: message(subject, "Hello,\n\nhere it is.\n\n-- >8 --\nSubject: other\n\n"+diff)},
		"quoted from":        {text: message(subject, ">From here on\n"+diff)},
		"From in body text":  {text: message(subject, "From here to 10:11 there, 2026\n"+diff)},
		"date in body text":  {text: message(subject, "x\n\nFrom somebody at 10:11:12 2026\nand on\n\n"+diff), amNot: true},
		"index line":         {text: message(subject, strings.ReplaceAll(diff, "diff --git a/net/a.c b/net/a.c\n", "Index: net/a.c\n=======\n"))},
		"attachment":         {text: message(parts("mixed", "Content-Type: text/plain\n\nHello\n--=_b 1\nContent-Type: text/x-patch; name=x.patch\nContent-Disposition: attachment; filename=x.patch\nContent-Transfer-Encoding: base64\n\n"+base64Lines(diff)+"--=_b 1--\n"), "")},
		"inline":             {text: message(parts("mixed", "Content-Type: text/plain; charset=utf-8\n\n"+diff+"\n--=_b 1--\n"), "")},
		"signed": {text: message(parts("signed; micalg=x; protocol=y", "Content-Type: text/plain\nContent-Transfer-Encoding: quoted-printable\n\n"+qp(diff)+
			"\n--=_b 1\nContent-Type: application/pgp-signature\n\n-----BEGIN PGP SIGNATURE-----\n--=_b 1--\n"), "")},
		"octets":   {text: message(parts("mixed", "\nHello\n--=_b 1\nContent-Type: application/octet-stream\nContent-Disposition: attachment; filename=\"A.PATCH\"\nContent-Transfer-Encoding: base64\n\n"+base64Lines(diff)+"--=_b 1--\n"), "")},
		"unclosed": {text: message(parts("mixed", "Content-Type: text/plain\n\n"+diff), "")},
		"nested": {text: message(parts("mixed", "Content-Type: multipart/alternative; boundary=in\n\n--in\nContent-Type: text/plain\n\n"+diff+
			"\n--in--\n--=_b 1--\n"), "")},
		"with html": {text: message(parts("alternative", "Content-Type: text/plain\n\n"+diff+"\n--=_b 1\nContent-Type: text/html\n\n<pre>"+diff+"</pre>\n--=_b 1--\n"), ""), amNot: true},
		"flowed":    {text: message(subject+"Content-Type: text/plain; format=flowed\n", stuff(strings.ReplaceAll(diff, "\t \n", "\n"))), warn: "format=flowed"},
		"flowed in name only": {text: message(subject+"Content-Type: text/plain; format=flowed\n", strings.ReplaceAll(diff, "\t \n", "\n")),
			amNot: true, warn: "format=flowed"},
		"unknown encoding": {text: message(subject+"Content-Transfer-Encoding: 9bit\n", diff), warn: "9bit"},
		"bom":              {text: "\ufeff" + message(subject, diff), amNot: true},
	} {
		t.Run(name, func(t *testing.T) {
			box, err := mailbox(t, mail.text)
			if err != nil {
				t.Fatal(err)
			}
			if len(box.Patches) != 1 {
				t.Fatalf("%d patches, skipped %q", len(box.Patches), box.Skipped)
			}
			if mail.title == "" {
				mail.title = "net: a fix"
			}
			if got := box.Patches[0].Subject; got != mail.title {
				t.Errorf("subject %q", got)
			}
			warnings := strings.Join(append(box.Warnings, box.Patches[0].Warnings...), "\n")
			if (mail.warn == "") != (warnings == "") || !strings.Contains(warnings, mail.warn) {
				t.Errorf("warnings %q, want %q", warnings, mail.warn)
			}
			if testing.Short() {
				return // git am is a thousand processes for the whole table
			}
			am, err := c.am(mail.text)
			if (err != nil) != mail.amNot {
				t.Fatalf("git am: %v", err)
			}
			if !mail.amNot {
				sameAsAm(t, c, box.Patches, am)
			} else if _, err := Stack(t.Context(), c.repo, c.base, box.Patches); err != nil {
				t.Error(err)
			}
			// One mail is read to the same where a single patch is wanted.
			if name == "date in body text" {
				return
			}
			single, err := Parse("p", []byte(mail.text))
			if err != nil || single.Subject != mail.title || !bytes.Equal(single.Data, box.Patches[0].Data) {
				t.Errorf("Parse = %q, %v", single.Subject, err)
			}
		})
	}
}

// series makes the mails of a series that changes one line each.
func series(tags ...string) []string {
	var mails []string
	for i, tag := range tags {
		mails = append(mails, message(fmt.Sprintf("Message-Id: <%d@%s>\nSubject: [%s] part %s\n", i, strings.ReplaceAll(tag, " ", "."), tag, tag), fixDiff(4+8*(i%4), fmt.Sprintf("part(%d);\n", i))))
	}
	return mails
}

func TestMailboxOrder(t *testing.T) {
	cover := message("Subject: [PATCH 0/3] parts\n", "All of it.\n\n"+fixDiff(36, "interdiff\n"))
	quote := message("Subject: Re: [PATCH 2/3] part\nIn-Reply-To: <x>\n", "> "+strings.ReplaceAll(fixDiff(4, "x\n"), "\n", "\n> ")+"\nLooks good.\n")
	suggestion := message("Subject: Re: [PATCH 2/3] part\n", "Rather so:\n\n"+fixDiff(4, "x\n"))
	three := series("PATCH 1/3", "PATCH 2/3", "PATCH 3/3")
	const in3 = "PATCH 1/3,PATCH 2/3,PATCH 3/3"
	for name, c := range map[string]struct {
		mails   []string
		want    string // the tags, in order
		skipped int
		warn    string
		err     string
	}{
		"in order":            {mails: three, want: in3},
		"out of order":        {mails: []string{three[2], three[0], three[1]}, want: in3},
		"cover and replies":   {mails: []string{three[2], cover, quote, three[0], suggestion, three[1]}, want: in3, skipped: 3},
		"only suggestion":     {mails: []string{suggestion, quote}, want: "part", skipped: 1, warn: "is a reply"},
		"no spaces":           {mails: series("PATCH2/2", "PATCHv1 1/2"), want: "PATCHv1 1/2,PATCH2/2"},
		"of":                  {mails: series("PATCH 2 of 2", "PATCH 1 of 2"), want: "PATCH 1 of 2,PATCH 2 of 2"},
		"ten":                 {mails: series("PATCH 10/11", "PATCH 2/11", "PATCH 1/11", "PATCH 3/11", "PATCH 4/11", "PATCH 5/11", "PATCH 6/11", "PATCH 7/11", "PATCH 8/11", "PATCH 9/11", "PATCH 11/11")[:11], want: "PATCH 1/11,PATCH 2/11,PATCH 3/11,PATCH 4/11,PATCH 5/11,PATCH 6/11,PATCH 7/11,PATCH 8/11,PATCH 9/11,PATCH 10/11,PATCH 11/11"},
		"newest":              {mails: append(slices.Clone(three), series("PATCH v2 net 1/2", "PATCH v2 net 2/2")...), want: "PATCH v2 net 1/2,PATCH v2 net 2/2", warn: "v1 of the series is not used; v2 is newer"},
		"newest incomplete":   {mails: append(slices.Clone(three), series("PATCH v2 1/3", "PATCH v2 3/3")...), want: in3, warn: "v2 of the series is not complete; v1 is used"},
		"resend":              {mails: series("PATCH RESEND 2/2", "RESEND] [PATCH 1/2"), want: "RESEND] [PATCH 1/2,PATCH RESEND 2/2"},
		"resend beside":       {mails: append(slices.Clone(three), series("RESEND PATCH 1/3", "RESEND PATCH 2/3", "RESEND PATCH 3/3")...), want: "RESEND PATCH 1/3,RESEND PATCH 2/3,RESEND PATCH 3/3", warn: "v1 of the series is not used; v1 RESEND"},
		"one more":            {mails: append(slices.Clone(three), series("PATCH 4/3")...), want: in3 + ",PATCH 4/3"},
		"by two lists":        {mails: append(slices.Clone(three), three[1]), want: in3, skipped: 1},
		"no numbers":          {mails: series("PATCH", "PATCH net", "RFC"), want: "PATCH,PATCH net,RFC"},
		"one of five":         {mails: series("PATCH 3/5"), want: "PATCH 3/5", warn: "patch 3 of 5, and the only one"},
		"newer title":         {mails: []string{message("Subject: [PATCH] same\n", fixDiff(4, "1\n")), message("Subject: [PATCH v2] same\n", fixDiff(4, "2\n"))}, want: "same", warn: "v2 of it is newer"},
		"missing":             {mails: []string{three[0], quote}, err: "2, 3 of 3 missing"},
		"missing in two":      {mails: append(series("PATCH v2 1/4", "PATCH v2 4/4"), three[0]), err: "(v2) is not complete: 2, 3 of 4 missing"},
		"missing by no diff":  {mails: []string{three[0], three[2], message("Subject: [PATCH 2/3] lost\n", "see the link\n")}, err: `2 of 3 missing; mail 3 ("[PATCH 2/3] lost"): no diff in it`},
		"twice":               {mails: append(slices.Clone(three), series("PATCH x 2/3")...), err: `mail 2 ("[PATCH 2/3] part PATCH 2/3") and mail 4 ("[PATCH x 2/3] part PATCH x 2/3") are both 2 of 3`},
		"two series":          {mails: append(slices.Clone(three), series("PATCH 1/2", "PATCH 2/2")...), err: "of two series, of 3 and of 2"},
		"some without number": {mails: append(slices.Clone(three), series("PATCH")...), err: "one has a number and one has none"},
		"report with a diff":  {mails: append([]string{message("Subject: net: it is slow\n", fixDiff(4, "x\n"))}, three...), want: in3, skipped: 1, warn: "no [PATCH] in its subject"},
		"no tags at all":      {mails: []string{message("Subject: a\n", fixDiff(4, "x\n")), message("Subject: b\n", fixDiff(12, "x\n"))}, want: "a,b"},
		"same id, other text": {mails: []string{three[0], strings.Replace(three[1], "<1@", "<0@", 1), three[2]}, want: in3},
		"unclear versions":    {mails: series("PATCH", "PATCH v2"), err: "are they one patch?"},
		"nothing":             {mails: []string{cover, quote}, err: "none of its 2 mails has a patch"},
		"too many":            {mails: []string{three[0], strings.Repeat("From a 10:11:12 2026\nSubject: x\n\n", MaxSeries+1)}, err: "more than 1000 mails"},
		"huge number":         {mails: series("PATCH 1/99999", "PATCH 2/99999"), err: "a series of 99999 patches"},
	} {
		t.Run(name, func(t *testing.T) {
			box, err := mailbox(t, strings.Join(c.mails, ""))
			if c.err != "" {
				var pe *ParseError
				if !errors.As(err, &pe) || !strings.Contains(err.Error(), c.err) {
					t.Errorf("error %v, want %q", err, c.err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if got := strings.Join(subjects(box.Patches), ","); c.want != "" && strings.ReplaceAll(got, "part ", "") != c.want {
				t.Errorf("got %q, want %q", got, c.want)
			}
			if len(box.Skipped) != c.skipped {
				t.Errorf("skipped %q", box.Skipped)
			}
			if warnings := strings.Join(box.Warnings, "\n"); (c.warn == "") != (warnings == "") || !strings.Contains(warnings, c.warn) {
				t.Errorf("warnings %q, want %q", warnings, c.warn)
			}
		})
	}
}

func TestParseTag(t *testing.T) {
	for subject, want := range map[string]Tag{
		"net: a fix":                              {Version: 1},
		"[PATCH] net: a fix":                      {Version: 1},
		"[PATCH net-next v12 03/12] x":            {Version: 12, N: 3, Of: 12},
		"[PATCHv2 1/3] x":                         {Version: 2, N: 1, Of: 3},
		"[PATCH1/8] x":                            {Version: 1, N: 1, Of: 8},
		"[RFC v2 0/3] x":                          {Version: 2, N: 0, Of: 3},
		"[RFC PATCH 1/3 net-next] x":              {Version: 1, N: 1, Of: 3},
		"[PATCH,v3,2/4] x":                        {Version: 3, N: 2, Of: 4},
		"[PATCH v2.1 2/4] x":                      {Version: 2, N: 2, Of: 4},
		"[RESEND][PATCH 2/4] x":                   {Version: 1, N: 2, Of: 4, Resend: true},
		"[PATCH RESEND v2] x":                     {Version: 2, Resend: true},
		"Re: [PATCH v2 2/4] x":                    {Version: 2, N: 2, Of: 4, Reply: true},
		"AW: Re: [PATCH] x":                       {Version: 1, Reply: true},
		"Fwd: [PATCH 2/4] x":                      {Version: 1, N: 2, Of: 4},
		"[list] [PATCH 6.1 012/345] x: [v9] 1/2":  {Version: 1, N: 12, Of: 345},
		"[PATCH 5.10.1/2] x":                      {Version: 1},
		"[PATCH] x [v2 1/2]":                      {Version: 1},
		"[PATCH 1 of 4] x":                        {Version: 1, N: 1, Of: 4},
		"Recover: it [1/2]":                       {Version: 1},
		"[" + strings.Repeat("a ", 9) + "1/2] y":  {Version: 1, N: 1, Of: 2},
		"[PATCH 99999999999999999999/3] overflow": {Version: 1},
	} {
		want.Marked = strings.Contains(subject, "[PATCH") || strings.Contains(subject, "[R") || want.Of > 0
		if got := ParseTag(subject); got != want {
			t.Errorf("ParseTag(%q) = %+v, want %+v", subject, got, want)
		}
	}
}

// TestMailErrors looks for the mail and the line in errors.
func TestMailErrors(t *testing.T) {
	good := message("Subject: [PATCH 1/2] good\n", fixDiff(4, "x\n"))
	bad := func(header, body string) string { return good + message("Subject: [PATCH 2/2] bad\n"+header, body) }
	wrapped := strings.Replace(fixDiff(12, "x\n"), " line 13\n", " line\n13\n", 1)
	lines := strings.Count(good, "\n")
	for name, c := range map[string]struct{ text, want string }{
		// The header is 5 lines, the one of the mbox included; 6 with one more field.
		"wrapped":      {bad("", wrapped), fmt.Sprintf(`mail 2 ("[PATCH 2/2] bad"): line %d: `, lines+5+slices.Index(strings.Split(wrapped, "\n"), "13")+1)},
		"wrapped part": {bad("Content-Type: multipart/mixed; boundary=b\n", "old\n--b\n\nhello\n--b\nContent-Type: text/x-patch\n\n"+wrapped+"--b--\n"), fmt.Sprintf(`mail 2 ("[PATCH 2/2] bad"): line %d: `, lines+6+7+slices.Index(strings.Split(wrapped, "\n"), "13")+1)},
		"wrapped qp":   {bad("Content-Transfer-Encoding: quoted-printable\n", qp(wrapped)), fmt.Sprintf(`mail 2 ("[PATCH 2/2] bad"): line of its decoded text %d: `, slices.Index(strings.Split(wrapped, "\n"), "13")+1)},
		"cut":          {bad("", wrapped[:strings.Index(wrapped, " line\n13")]), `mail 2 ("[PATCH 2/2] bad"): line `},
		"path":         {bad("", strings.ReplaceAll(fixDiff(4, "x\n"), "net/a.c", "../a.c")), `mail 2 ("[PATCH 2/2] bad"): refused path "../a.c"`},
		"bad base64":   {bad("Content-Transfer-Encoding: base64\n", "YWJj\n!!!\n"), fmt.Sprintf(`mail 2 ("[PATCH 2/2] bad"): line %d: decode mail: '!' is not in base64`, lines+8)},
		"short base64": {bad("Content-Transfer-Encoding: base64\n", "YWJjY\n"), `mail 2 ("[PATCH 2/2] bad"): line`},
		"flowed":       {bad("Content-Type: text/plain; format=flowed\n", strings.Replace(wrapped, "line\n13", "line \n13", 1)), "format=flowed, which breaks patches"},
		"nested": {bad("Content-Type: multipart/mixed; boundary=a\n", func() string {
			s := ""
			for range 7 {
				s += "--a\nContent-Type: multipart/mixed; boundary=a\n\n"
			}
			return s
		}()), `none`},
		"header": {bad("X: "+strings.Repeat("x", maxHeader)+"\n", ""), "its header is larger"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := mailbox(t, c.text)
			if c.want == "none" {
				if err == nil {
					t.Error("no error")
				}
				return
			}
			if !errors.As(err, new(*ParseError)) || !strings.Contains(err.Error(), c.want) {
				t.Errorf("error %v\nwant %s", err, c.want)
			}
		})
	}
}

func TestReadSeries(t *testing.T) {
	dir := t.TempDir()
	put := func(name, text string) string {
		file := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		writeFile(t, file, text)
		return file
	}
	three := series("PATCH 1/3", "PATCH 2/3", "PATCH 3/3")
	plainDiff := "--- a/net/a.c\n+++ b/net/a.c\n@@ -1,2 +1,2 @@\n-line 1\n+one\n line 2\n"
	for i, m := range three {
		put(fmt.Sprintf("list/%04d-p.patch", i+1), m)
		put(fmt.Sprintf("both/%04d-p.patch", i+1), m)
		put(fmt.Sprintf("quilt/patches/sub/p%d", i+1), m)
		put(fmt.Sprintf("maildir/new/%d.host:2,", 17-i), m)
	}
	put("list/0000-cover-letter.patch", message("Subject: [PATCH 0/3] all\n", "words\n"))
	put("list/.hidden.patch", "junk")
	put("list/notes.txt", "junk")
	put("maildir/cur/1", message("Subject: hello\n", "words\n"))
	for i, m := range series("PATCH v2 1/2", "PATCH v2 2/2") {
		put(fmt.Sprintf("both/v2-%04d-p.patch", i+1), m)
	}
	put("quilt/patches/series", "# comment\n\nsub/p2 -p1 # after\nsub/p1\n")
	for _, n := range []string{"1", "2", "10"} {
		put("numbers/"+n+"-x.diff", strings.ReplaceAll(plainDiff, "one", n))
	}
	put("one.diff", plainDiff)
	put("badquilt/series", "ok\n../evil\n")
	put("p0/series", "x -p0\n")
	put("reversed/series", "x -R\n")
	put("nofile/series", "x\n")
	put("emptyquilt/series", "# nothing\n")
	put("empty/x", "")
	put("two/a.patch", three[0]+three[1])
	put("junk", "hello\n")
	mbox := put("box", strings.Join(three, ""))
	var z bytes.Buffer
	w := gzip.NewWriter(&z)
	_, _ = w.Write([]byte(strings.Join(three, "")))
	_ = w.Close()
	put("box.gz", z.String())
	put("cut.gz", z.String()[:z.Len()/2])
	var bomb bytes.Buffer
	w = gzip.NewWriter(&bomb)
	for range MaxMailbox>>20 + 1 {
		_, _ = w.Write(make([]byte, 1<<20))
	}
	_ = w.Close()
	put("bomb.gz", bomb.String())
	put("utf16", "\xff\xfed\x00i\x00")
	put("log", "commit "+strings.Repeat("a", 40)+"\nAuthor: a\n\n    x\n\n"+plainDiff+"\ncommit "+strings.Repeat("b", 40)+" (HEAD)\nAuthor: a\n\n    y\n\n"+plainDiff)

	const in3 = "part PATCH 1/3,part PATCH 2/3,part PATCH 3/3"
	for _, c := range []struct {
		args, want string
		warn, err  string
	}{
		{args: "list", want: in3},
		{args: "both", want: "part PATCH v2 1/2,part PATCH v2 2/2", warn: "v1 of the series is not used"},
		{args: "quilt", want: "part PATCH 2/3,part PATCH 1/3", warn: "2 of the 3 patches"},
		{args: "quilt/patches", want: "part PATCH 2/3,part PATCH 1/3", warn: "it is 1 of 3 by its subject and comes after 2"},
		{args: "maildir", want: in3},
		{args: "numbers", want: "1-x.diff,2-x.diff,10-x.diff"},
		{args: "box", want: in3},
		{args: "box.gz", want: in3},
		{args: "one.diff", want: "one.diff"},
		{args: "list/0003-p.patch", want: "part PATCH 3/3", warn: "patch 3 of 3, and the only"},
		{args: "list/0000-cover-letter.patch list/0001-p.patch list/0002-p.patch list/0003-p.patch", want: in3},
		{args: "list/0003-p.patch one.diff list/0001-p.patch", want: "part PATCH 3/3,one.diff,part PATCH 1/3", warn: "the order of the files is kept"},
		{args: "two/a.patch list/0003-p.patch", want: in3},
		{args: "two/a.patch one.diff", err: "without a mail's header"},
		{args: "badquilt", err: `line 2: the patch "../evil" is not in the folder`},
		{args: "p0", err: "refresh it with `quilt refresh -p1`"},
		{args: "reversed", err: `line 1: "x" has the options "-R"`},
		{args: "nofile", err: "nofile/x"},
		{args: "emptyquilt", err: "it lists no patch"},
		{args: "empty", err: "no *.patch, no *.diff"},
		{args: "two", err: "holds 2 mails, and a file of a folder is one patch"},
		{args: "junk", err: "it has no diff"},
		{args: "none", err: "no such file"},
		{args: "cut.gz", err: "cut short"},
		{args: "bomb.gz", err: "larger than 64 MiB"},
		{args: "utf16", err: "UTF-16"},
		{args: "log", err: "a log of 2 commits"},
		{args: "", err: "no file given"},
		{args: "list/0000-cover-letter.patch", err: "none of its 1 mails has a patch"},
	} {
		t.Run(c.args, func(t *testing.T) {
			var args []string
			for _, a := range strings.Fields(c.args) {
				args = append(args, filepath.Join(dir, a))
			}
			patches, err := ReadSeries(args)
			if c.err != "" {
				if err == nil || !strings.Contains(err.Error(), c.err) {
					t.Errorf("error %v, want %q", err, c.err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if got := strings.Join(subjects(patches), ","); got != c.want {
				t.Errorf("got %q, want %q", got, c.want)
			}
			if warnings := strings.Join(patches[0].Warnings, "\n"); (c.warn == "") != (warnings == "") || !strings.Contains(warnings, c.warn) {
				t.Errorf("warnings %q, want %q", warnings, c.warn)
			}
		})
	}
	if box, err := ReadMailbox(mbox); err != nil || box.Patches[1].Name != mbox+" mail 2" {
		t.Errorf("ReadMailbox = %v, %v", box.Patches, err)
	}
}

// TestMailText has what a reader of threads is given.
func TestMailText(t *testing.T) {
	text := message("Subject: =?utf-8?q?gr=C3=BC=C3=9Fe?=\nContent-Type: text/plain; charset=windows-1252; format=flowed; delsp=yes\n", "it costs 5\x80 \n a day\n>From here\n>>From there\n")
	mails, err := Mails("x", []byte(text+text), MailOptions{MboxRD: true})
	if err != nil || len(mails) != 2 {
		t.Fatalf("%d mails, %v", len(mails), err)
	}
	m := mails[1]
	if m.Text() != "it costs 5€a day\nFrom here\n>From there\n\n" || m.Subject() != "grüße" || m.Number != 2 || m.Line != 1+strings.Count(text, "\n") || m.HasDiff() {
		t.Errorf("%+v: %q", m, m.Text())
	}
	if _, err := m.Patch("x"); !errors.Is(err, ErrNoDiff) {
		t.Errorf("Patch: %v", err)
	}
	for charset, want := range map[string]string{"iso-8859-15": "€", "iso-8859-1": "¤", "": "¤", "utf-8": "?", "koi8-r": "?"} {
		if got, ok := toUTF8(charset, []byte("\xa4")); got != want || ok != (charset != "koi8-r") {
			t.Errorf("toUTF8(%q) = %q, %v", charset, got, ok)
		}
	}
}

func FuzzMailbox(f *testing.F) {
	diff := fixDiff(12, "x\n")
	f.Add([]byte(strings.Join(series("PATCH v2 2/2", "PATCH v2 1/2", "RESEND PATCH"), "")))
	f.Add([]byte(crlf(message("Subject: [PATCH] a\nContent-Transfer-Encoding: base64\n", base64Lines(diff)))))
	f.Add([]byte(message("Subject: =?iso-8859-1?q?=EF?=\nContent-Type: multipart/mixed; boundary=b\n", "--b\nContent-Transfer-Encoding: quoted-printable\n\n"+qp(diff)+"--b\nContent-Type: text/plain; format=flowed\n\n"+stuff(diff)+"--b--\n")))
	f.Fuzz(func(t *testing.T, data []byte) {
		mails, err := Mails("f", data, MailOptions{MboxRD: len(data)%2 == 0})
		if err != nil {
			return
		}
		for _, m := range mails {
			_ = m.Text()
		}
		box, err := choose("f", mails)
		if err == nil && len(box.Patches) == 0 {
			t.Error("neither patch nor error")
		}
		for _, p := range box.Patches {
			if len(p.Files) == 0 || p.Subject == "" || strings.Contains(p.Subject, "\n") {
				t.Errorf("accepted %q", p)
			}
			for _, name := range p.Files {
				if !filepath.IsLocal(name) || strings.HasPrefix(strings.ToLower(name), ".git/") {
					t.Errorf("accepted path %q", name)
				}
			}
		}
	})
}

func FuzzQuilt(f *testing.F) {
	f.Add([]byte("# c\na.patch -p1 # x\nsub/b.patch\n"))
	f.Add([]byte("a\r\n../b\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		names, _ := parseQuilt(data)
		for _, name := range names {
			if !filepath.IsLocal(name) || strings.ContainsAny(name, " \n#") && strings.HasPrefix(name, "#") {
				t.Errorf("accepted %q", name)
			}
		}
	})
}

// TestMailboxHostile reads what was made to take long: each is a second at most
// when every step is linear, and minutes when one is not.
func TestMailboxHostile(t *testing.T) {
	diff := fixDiff(4, "x\n")
	long := func(s string, n int) string { return strings.Repeat(s, n/len(s)) }
	for name, text := range map[string]string{
		"one id":       strings.Repeat("From a 10:11:12 2026\nMessage-Id: <x>\nSubject: [PATCH] a\n\n"+long("text\n", 4<<10)+diff, MaxSeries),
		"subject":      message("Subject: [PATCH "+long(" ,", maxHeader-1000)+"1/1] x\n", diff),
		"brackets":     message("Subject: "+long("[]", maxHeader-1000)+"x\n", diff),
		"folded":       message("Subject: x\n"+long(" y\n", maxHeader-1000), diff),
		"encoded":      message("Subject: "+long("=?utf-8?q?a?= ", maxHeader-1000)+"\n", diff),
		"soft breaks":  message("Subject: x\nContent-Type: text/plain; format=flowed\n", long("a \n", 2<<20)+diff),
		"boundaries":   message("Subject: x\nContent-Type: multipart/mixed; boundary=b\n", long("--b\n", 2<<20)+diff),
		"from lines":   message("Subject: x\n", long("From a 10:11:12 2026\n", 2<<20)+diff),
		"dashes":       message("Subject: x\n", long("---\n", 2<<20)+diff),
		"equals signs": message("Subject: x\nContent-Transfer-Encoding: quoted-printable\n", long("=", 2<<20)+"\n"+diff),
	} {
		t.Run(name, func(t *testing.T) {
			start := time.Now()
			box, err := mailbox(t, text)
			if took := time.Since(start); took > time.Minute {
				t.Errorf("took %v: %d patches, %v", took, len(box.Patches), err)
			}
		})
	}
}
