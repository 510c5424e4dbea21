package thread

import (
	"bytes"
	"compress/gzip"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/rogpeppe/go-internal/txtar"
	"go.uber.org/goleak"

	"github.com/kbisect/kbisect/internal/series"
)

var update = flag.Bool("update", false, "write what is found in testdata into it")

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// describe says all that was found in a thread.
func describe(t *Thread) string {
	var b strings.Builder
	p := func(format string, args ...any) { fmt.Fprintf(&b, format+"\n", args...) }
	patch := func(f Patch) {
		p("  patch %d/%d v%d of message %d, line %d: %q by %q, %v, usable %t", f.N, f.Of, f.Version, f.Message, f.Line, f.Subject, f.Author, f.Files, f.Err == nil)
		for l := range strings.Lines(string(f.Raw)) {
			b.WriteString("    |" + l)
		}
	}
	p("form %s", t.Form)
	for _, m := range t.Messages {
		p("message %d, line %d: %s %q by %q, %q, id %q, answers %q", m.Number, m.Line, m.Kind, m.Subject, m.Author, m.Date, m.ID, m.InReplyTo)
	}
	for _, s := range t.Series {
		p("series %s, newest %t, missing %v, cover %t", &s, s.Newest, s.Missing, s.Cover != nil)
		for _, f := range s.Patches {
			patch(f)
		}
	}
	for _, f := range t.FollowUp {
		p("suggestion:")
		patch(f)
	}
	for _, s := range t.Scripts {
		p("script of message %d, line %d, quoted %t, files %v", s.Message, s.Line, s.Quoted, s.Files)
		for l := range strings.Lines(s.Text) {
			b.WriteString("    |" + l)
		}
	}
	for _, x := range t.Timings {
		p("figure of message %d, line %d: %q %g s, of %q", x.Message, x.Line, x.Text, x.Seconds, x.Command)
	}
	for _, x := range t.Trailers {
		p("trailer of message %d: %s: %s", x.Message, x.Key, x.Value)
	}
	for _, w := range t.Warnings {
		p("warning: %s", w)
	}
	return b.String()
}

// TestForms compares what is found with what the files of testdata say.
func TestForms(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txtar")
	if err != nil || len(files) == 0 {
		t.Fatal("no testdata", err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txtar"), func(t *testing.T) {
			a, err := txtar.ParseFile(file)
			if err != nil {
				t.Fatal(err)
			}
			th, err := Parse("thread", a.Files[0].Data)
			if err != nil {
				t.Fatal(err)
			}
			got := describe(th)
			if *update {
				a.Files = append(a.Files[:1], txtar.File{Name: "want", Data: []byte(got)})
				if err := os.WriteFile(file, txtar.Format(a), 0o644); err != nil {
					t.Fatal(err)
				}
				return
			}
			if diff := cmp.Diff(string(a.Files[1].Data), got); diff != "" {
				t.Error(diff)
			}
			for _, s := range th.Series {
				checkLines(t, a.Files[0].Data, s.Patches)
			}
			checkLines(t, a.Files[0].Data, th.FollowUp)
		})
	}
}

// checkLines checks that Raw stands at Line.
func checkLines(t *testing.T, data []byte, list []Patch) {
	t.Helper()
	lines := bytes.SplitAfter(data, []byte("\n"))
	for _, p := range list {
		rest := bytes.Join(lines[p.Line-1:], nil)
		if !bytes.HasPrefix(rest, p.Raw) {
			t.Errorf("patch %q is not what line %d has", p.Subject, p.Line)
		}
	}
}

func TestChoose(t *testing.T) {
	a, err := txtar.ParseFile("testdata/mbox.txtar")
	if err != nil {
		t.Fatal(err)
	}
	th, err := Parse("thread", a.Files[0].Data)
	if err != nil {
		t.Fatal(err)
	}
	for version, want := range map[int]int{0: 2, 1: 1, 2: 2} {
		s, err := th.Choose(version)
		if err != nil || s.Version != want {
			t.Errorf("Choose(%d) = %v, %v", version, s, err)
		}
	}
	if _, err := th.Choose(3); !errors.Is(err, ErrNoSeries) || !strings.Contains(err.Error(), "without 1") {
		t.Errorf("Choose(3): %v", err)
	}
	if s, err := th.ChooseSubject(0, "Count FASTER"); err != nil || s.Version != 1 {
		t.Errorf("ChooseSubject: %v, %v", s, err)
	}
	none, err := Parse("x", []byte("nothing in it\n"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := none.Choose(0); !errors.Is(err, ErrNoSeries) {
		t.Errorf("of nothing: %v", err)
	}
}

func zip(t *testing.T, data []byte) []byte {
	t.Helper()
	var b bytes.Buffer
	z, err := gzip.NewWriterLevel(&b, gzip.BestSpeed)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := z.Write(data); err != nil {
		t.Fatal(err)
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

const oneMail = `From: Ada Writer <ada@example.org>
Subject: [PATCH] till: count
Date: Mon, 5 Feb 2024 10:00:00 +0100
Message-ID: <%d@example.org>
MIME-Version: 1.0

The till is slow.

$ unshare -n true
---
diff --git a/till.c b/till.c
--- a/till.c
+++ b/till.c
@@ -1,3 +1,3 @@
 one
-two
+three
 four
`

func TestRead(t *testing.T) {
	dir := t.TempDir()
	write := func(name string, data []byte) string {
		name = filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, data, 0o644); err != nil {
			t.Fatal(err)
		}
		return name
	}
	mail := func(n int) []byte { return fmt.Appendf(nil, oneMail, n) }
	mbox := append([]byte("From x@y Mon Feb  5 10:00:00 2024\n"), mail(1)...)
	write("maildir/cur/2:2,S", mail(2))
	write("maildir/cur/3:2,S", []byte("\x00\x01"))
	write("maildir/new/1", mail(1))
	for _, tc := range []struct {
		name, form string
		in         []byte
		series     int
	}{
		{write("one.eml", mail(1)), FormMail, nil, 1},
		{write("crlf.eml", bytes.ReplaceAll(mail(1), []byte("\n"), []byte("\r\n"))), FormMail, nil, 1},
		{write("t.mbox", mbox), FormMbox, nil, 1},
		{write("t.mbox.gz", zip(t, mbox)), FormMbox, nil, 1},
		{filepath.Join(dir, "maildir"), FormMaildir, nil, 2},
		{"-", FormMail, mail(1), 1},
		{"-", FormText, []byte("a few words"), 0},
		{"-", FormMail, []byte("From: a@b\nSubject: [PATCH] x\nMime-Version: 1.0\nContent-Transfer-Encoding: base64\n\n" +
			"ZGlmZiAtLWdpdCBhL3ggYi94Ci0tLSBhL3gKKysrIGIveApAQCAtMSwyICsxLDIgQEAKIGEKLWIKK2MK\n"), 1},
	} {
		th, err := Read(tc.name, bytes.NewReader(tc.in))
		if err != nil {
			t.Errorf("%s: %v", tc.name, err)
			continue
		}
		if th.Form != tc.form || len(th.Series) != tc.series {
			t.Errorf("%s: form %q, %d series", tc.name, th.Form, len(th.Series))
		}
		if tc.series > 0 && th.Series[0].Patches[0].Err != nil {
			t.Errorf("%s: %v", tc.name, th.Series[0].Patches[0].Err)
		}
		if strings.HasSuffix(tc.name, "maildir") && (th.Messages[0].ID != "1@example.org" || len(th.Warnings) < 1) {
			t.Errorf("maildir: %v, %v", th.Messages, th.Warnings)
		}
	}
}

func TestReadErrors(t *testing.T) {
	dir := t.TempDir()
	many := bytes.Repeat([]byte("From x@y Mon Feb  5 10:00:00 2024\nSubject: x\n\n"), series.MaxSeries+5)
	for _, tc := range []struct {
		name string
		in   []byte
		want string
	}{
		{"-", nil, "empty"},
		{"-", []byte(" \n\t\n"), "empty"},
		{"-", []byte("a\nb\x00c"), "line 2 has a zero byte"},
		{"-", []byte("\xff\xfea\x00"), "UTF-16"},
		{"-", zip(t, []byte("hello, all"))[:20], "cut short"},
		{"-", many, "1000 mails"},
		{dir, nil, "no maildir"},
		{filepath.Join(dir, "none"), nil, "no such file"},
	} {
		_, err := Read(tc.name, bytes.NewReader(tc.in))
		if err == nil || !strings.Contains(err.Error(), tc.want) || !strings.HasPrefix(err.Error(), "read thread") {
			t.Errorf("%s %.20q: %v", tc.name, tc.in, err)
		}
	}
}

// endless yields the same letter for ever.
type endless struct{}

func (endless) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = 'a'
	}
	return len(p), nil
}

func TestReadTooLarge(t *testing.T) {
	if _, err := Read("-", endless{}); err == nil || !strings.Contains(err.Error(), "larger than 64 MiB") {
		t.Errorf("%v", err)
	}
}

// TestUnreadable has a mail that cannot be decoded beside one that can.
func TestUnreadable(t *testing.T) {
	data := "From x@y Mon Feb  5 10:00:00 2024\nSubject: broken\nContent-Transfer-Encoding: base64\n\n***\n" +
		"From x@y Mon Feb  5 10:00:00 2024\n" + fmt.Sprintf(oneMail, 1)
	th, err := Parse("x", []byte(data))
	if err != nil || len(th.Messages) != 1 || len(th.Warnings) != 1 || !strings.Contains(th.Warnings[0], "broken") {
		t.Errorf("%v, %+v", err, th)
	}
}

// TestGroups has several series in one thread, without covers.
func TestGroups(t *testing.T) {
	var b strings.Builder
	mail := func(from, subject, id, answers string) {
		fmt.Fprintf(&b, "From x@y Mon Feb  5 10:00:00 2024\nFrom: %s\nSubject: %s\nMessage-ID: <%s>\nIn-Reply-To: <%s>\n\n---\n", from, subject, id, answers)
		b.WriteString("diff --git a/x b/x\n--- a/x\n+++ b/x\n@@ -1,2 +1,2 @@\n a\n-b\n+c\n\n")
	}
	mail("ada", "[PATCH1/2] a: one", "a1", "")
	mail("bob", "[PATCH 1/2] b: one", "b1", "a1")
	mail("bob", "[PATCH 2/2] b: two", "b2", "b1")
	mail("cy", "[PATCH 2/2] a: two", "a2", "a1")
	mail("ada", "[PATCH 3/2] a: three", "a3", "a1")
	mail("ada", "[RESEND] [PATCH 01/01] a: alone", "c1", "a1")
	th, err := Parse("x", []byte(b.String()))
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, s := range th.Series {
		text := fmt.Sprintf("%s %t:", &s, s.Newest)
		for _, p := range s.Patches {
			text += " " + p.Subject + ";"
		}
		got = append(got, text)
	}
	want := []string{
		`v1 of "a: one" (3 of 3 patches) false: a: one; a: two; a: three;`,
		`v1 of "b: one" (2 of 2 patches) false: b: one; b: two;`,
		`v1 RESEND of "a: alone" (1 of 1 patches) true: a: alone;`,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

// TestLargeThread reads 500 mails, each of which quotes all before it.
func TestLargeThread(t *testing.T) {
	data := largeThread(500)
	start := cpuTime(t)
	th, err := Parse("large", data)
	if err != nil {
		t.Fatal(err)
	}
	if len(th.Messages) != 500 || len(th.Series) != 1 || len(th.Scripts) != 1 || len(th.Timings) != 1 {
		t.Errorf("%d messages, %d series, %d scripts, %d figures", len(th.Messages), len(th.Series), len(th.Scripts), len(th.Timings))
	}
	// It takes 0.3 s; the race detector and a slow machine may need ten times that.
	if took := cpuTime(t) - start; took > 5*time.Second {
		t.Errorf("it took %v", took)
	}
}

// cpuTime is what the tests have used so far: a loaded machine does not change it.
func cpuTime(t *testing.T) time.Duration {
	t.Helper()
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		t.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

func largeThread(mails int) []byte {
	var b bytes.Buffer
	body := strings.Split(strings.TrimSuffix(fmt.Sprintf(oneMail, 0)[strings.Index(oneMail, "\n\n")+2:], "\n"), "\n")
	body[2] = "$ time unshare -n true\nreal 1.25"
	for i := range mails {
		subject := "Re: [PATCH] till: count"
		if i == 0 {
			subject = subject[4:]
		}
		fmt.Fprintf(&b, "From mboxrd@z Thu Jan  1 00:00:00 1970\nFrom: Ada <ada@example.org>\nSubject: %s\nMessage-ID: <%d@example.org>\n\n", subject, i)
		for _, l := range strings.Split(strings.Join(body, "\n"), "\n") {
			b.WriteString(strings.Repeat("> ", min(i, 70)) + l + "\n")
		}
		for range 100 {
			fmt.Fprintf(&b, "%sThis is what somebody has to say of it, with many words.\n", strings.Repeat("> ", i%5))
		}
		b.WriteString("\n")
	}
	return b.Bytes()
}

// TestHostile reads what was made to keep a reader busy.
func TestHostile(t *testing.T) {
	const size = 128 << 10
	for _, unit := range []string{
		"for i in a b; do\n", "# for i in a b; do\n", "cat <<EOF\n", "$ cat <<EOF\n", "* x\n@ 2024-01-01\n", "From: a\n\n",
		"diff --git a/x b/x\n@@ -1,9999999 +1,99999999 @@\n", "--- a\n+++ b\n@@ -1 +1 @@\n", "> ", "a=1 ", "time ", "\n",
		"#!/bin/sh\n", "real 1\n", "if [ x ]; then\n\n", "x\n\n[y]\n\n", "Fixes: 1234567 (\"\n", "ip link add \\\n", "$ ip link add \\\n",
		"a\n", "[PATCH 1/9] x\n\n[Ada]\n\ndiff --git a/x b/x\n", "GIT binary patch\nliteral 1\n", "--\n", "Subject: x\n ", "From: x, @ 2024-01-01 10:00\nTo: a,\n",
	} {
		data := []byte(strings.Repeat(unit, size/len(unit)))
		start := cpuTime(t)
		if _, err := Parse("hostile", data); err != nil {
			t.Logf("%.20q: %v", unit, err)
		}
		if took := cpuTime(t) - start; took > 10*time.Second {
			t.Errorf("%.20q: it took %v", unit, took)
		}
	}
}

func FuzzParse(f *testing.F) {
	files, _ := filepath.Glob("testdata/*.txtar")
	for _, file := range files {
		if a, err := txtar.ParseFile(file); err == nil {
			f.Add(a.Files[0].Data)
		}
	}
	f.Add([]byte("$ for i in 1 2; do\n>  ip link add d$i type dummy\n> done\nreal 1.5\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		th, err := Parse("fuzz", data)
		if err != nil {
			return
		}
		if th.Form == "" || len(th.Messages) == 0 {
			t.Errorf("%+v", th)
		}
		newest := 0
		for _, s := range th.Series {
			if s.Newest {
				newest++
			}
			for _, p := range s.Patches {
				if (p.Err == nil) != (len(p.Patch.Data) > 0) || len(p.Raw) == 0 || p.Line < 1 {
					t.Errorf("%+v", p)
				}
			}
		}
		if newest > 1 {
			t.Errorf("%d are the newest", newest)
		}
		for _, s := range th.Scripts {
			for _, name := range s.Files {
				if !filepath.IsLocal(name) {
					t.Errorf("file %q", name)
				}
			}
			if strings.TrimSpace(s.Text) == "" || s.Line < 1 {
				t.Errorf("%+v", s)
			}
		}
	})
}
