package series

import (
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/kbisect/kbisect/internal/gitx"
)

// numbered is a file of n lines "line 1" ..., with some replaced.
func numbered(n int, repl map[int]string) string {
	var b strings.Builder
	for i := 1; i <= n; i++ {
		if s, ok := repl[i]; ok {
			b.WriteString(s)
		} else {
			fmt.Fprintf(&b, "line %d\n", i)
		}
	}
	return b.String()
}

// scratch makes a bare repository with one commit of the given files.
func scratch(t testing.TB, files map[string]string) (gitx.Repo, string) {
	t.Helper()
	repo, err := gitx.InitBare(t.Context(), filepath.Join(t.TempDir(), "s p:c.git"), "")
	if err != nil {
		t.Fatal(err)
	}
	return repo, commit(t, repo, files)
}

func commit(t testing.TB, repo gitx.Repo, files map[string]string) string {
	t.Helper()
	var in bytes.Buffer
	fmt.Fprint(&in, "commit refs/heads/x\ncommitter a <b> 1 +0000\ndata 0\n")
	fmt.Fprint(&in, "deleteall\n")
	for _, name := range slices.Sorted(maps.Keys(files)) {
		fmt.Fprintf(&in, "M 100644 inline %s\ndata %d\n%s\n", name, len(files[name]), files[name])
	}
	if err := repo.Do(t.Context(), gitx.Command{Args: []string{"fast-import", "--quiet", "--force"}, Stdin: &in}); err != nil {
		t.Fatal(err)
	}
	id, err := repo.ResolveCommit(t.Context(), "refs/heads/x")
	if err != nil {
		t.Fatal(err)
	}
	return id
}

func mustParse(t testing.TB, name, text string) Patch {
	t.Helper()
	p, err := Parse(name, []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return p
}

const fixPatch = `From 0123456789012345678901234567890123456789 Mon Sep 17 00:00:00 2001
From: Somebody <some@body>
Date: Thu, 1 Jan 2026 00:00:00 +0000
Subject: [PATCH net v2 1/1] net: a fix
 of two lines

Why it is so.

Signed-off-by: Somebody <some@body>
---
 net/a.c | 1 +
 1 file changed, 1 insertion(+)

diff --git a/net/a.c b/net/a.c
index 1111111..2222222 100644
--- a/net/a.c
+++ b/net/a.c
@@ -9,7 +9,7 @@ func(void)
 line 9
 line 10
 line 11
-slow();
+fast();
 line 13
 line 14
 line 15
-- 
2.39.2
`

var (
	slowTree = map[string]string{"net/a.c": numbered(30, map[int]string{12: "slow();\n"}), "Makefile": "x\n"}
	fastTree = map[string]string{"net/a.c": numbered(30, map[int]string{12: "fast();\n"}), "Makefile": "x\n"}
)

func TestParse(t *testing.T) {
	p := mustParse(t, "dir/fix.patch", fixPatch)
	if p.Subject != "net: a fix of two lines" || !slices.Equal(p.Files, []string{"net/a.c"}) || len(p.Warnings) != 0 {
		t.Errorf("Parse = %q %q %q", p.Subject, p.Files, p.Warnings)
	}
	_, bare, _ := strings.Cut(fixPatch, "\n\ndiff")
	for name, c := range map[string]struct {
		text, subject string
		warn          bool
	}{
		"no header":        {"diff" + bare, "no header", false},
		"crlf":             {strings.ReplaceAll(fixPatch, "\n", "\r\n"), "net: a fix of two lines", true},
		"base64":           {encoded(fixPatch), "net: a fix of two lines", false},
		"base64 crlf":      {encoded(strings.ReplaceAll(fixPatch, "\n", "\r\n")), "net: a fix of two lines", true},
		"encoded subject":  {"Subject: =?UTF-8?q?net:_na=C3=AFve?=\n\nx\n---\ndiff" + bare, "net: naïve", false},
		"quoted-printable": {"Subject: Re: [PATCH] q\nContent-Transfer-Encoding: quoted-printable\n\nsoft=\n break =3D\n---\ndiff" + bare, "q", false},
		"git show":         {"commit 0123456789012345678901234567890123456789\nAuthor: a <b>\nDate:   Thu Jan 1 00:00:00 2026 +0000\n\n    net: shown\n\n    body\n\ndiff" + bare, "net: shown", false},
	} {
		p, err := Parse(name, []byte(c.text))
		if err != nil || p.Subject != c.subject || (len(p.Warnings) > 0) != c.warn || !slices.Equal(p.Files, []string{"net/a.c"}) {
			t.Errorf("%s: %q %q %q, %v", name, p.Subject, p.Files, p.Warnings, err)
		}
	}
}

// encoded is a mail as some mailers send it.
func encoded(text string) string {
	return "Subject: [PATCH] net: a fix\n of two lines\nContent-Type: text/plain\nContent-Transfer-Encoding: base64\n\n" +
		base64.StdEncoding.EncodeToString([]byte(text)) + "\n"
}

func TestParseErrors(t *testing.T) {
	diff := func(name string) string {
		return fmt.Sprintf("--- a/%s\n+++ b/%s\n@@ -1 +1 @@\n-a\n+b\n", name, name)
	}
	for name, text := range map[string]string{
		"empty":                      "",
		"cover":                      "Subject: [PATCH 0/3] a series\n\nIt is good.\n",
		"parent":                     diff("../../etc/passwd"),
		"inner":                      diff("net/../../x"),
		"absolute":                   "--- /etc/passwd\n+++ /etc/passwd\n@@ -1 +1 @@\n-a\n+b\n",
		"no folder":                  "--- passwd\n+++ passwd\n@@ -1 +1 @@\n-a\n+b\n",
		"no name":                    "--- 0\n+++ 0/\n@@ -1 +1 @@\n-a\n+b\n",
		"mixed":                      diff("x") + "diff --git a/x b/x\n" + diff("x"),
		"git folder":                 diff(".git/hooks/post-checkout"),
		"git folder in another case": diff("net/.GIT/config"),
		"submodule":                  "diff --git a/x b/x\nnew file mode 160000\nindex 0000000..1111111\n--- /dev/null\n+++ b/x\n@@ -0,0 +1 @@\n+Subproject commit 0123456789012345678901234567890123456789\n",
		"rename out":                 "diff --git a/x b/../y\nsimilarity index 100%\nrename from x\nrename to ../y\n",
		"cut":                        fixPatch[:len(fixPatch)-60],
		"two":                        fixPatch + "\n" + fixPatch,
		"large":                      strings.Repeat("x", MaxPatch+1),
		"bad base64":                 "Content-Transfer-Encoding: base64\n\n!!!\n",
	} {
		var e *ParseError
		if p, err := Parse(name, []byte(text)); !errors.As(err, &e) || e.Name != name {
			t.Errorf("%s: Parse = %q, %v; want a ParseError", name, p.Files, err)
		}
	}
	if _, err := Read(filepath.Join(t.TempDir(), "none")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("Read of nothing: %v", err)
	}
}

func TestApply(t *testing.T) {
	ctx := t.Context()
	repo, slow := scratch(t, slowTree)
	fast := commit(t, repo, fastTree)
	p := mustParse(t, "fix.patch", fixPatch)

	fixed, err := Apply(ctx, repo, slow, p, false)
	if err != nil {
		t.Fatal(err)
	}
	sameTree(t, repo, fixed, fast)
	again, err := Apply(ctx, repo, slow, p, false)
	if err != nil || again != fixed {
		t.Errorf("applied again: %s, %v; want %s", again, err, fixed)
	}
	back, err := Apply(ctx, repo, fixed, p, true)
	if err != nil {
		t.Fatal(err)
	}
	sameTree(t, repo, back, slow)
	if s, err := repo.Subject(ctx, back); err != nil || s != `Revert "net: a fix of two lines"` {
		t.Errorf("subject %q, %v", s, err)
	}
	var pe *PatchError
	if _, err := Apply(ctx, repo, fast, p, false); !errors.As(err, &pe) || pe.Tried[0].Applied.String() != "net/a.c:9: the lines are not there" {
		t.Errorf("applied twice: %v", err)
	}
	entries, err := os.ReadDir(filepath.Join(repo.Dir, scratchName))
	if err != nil || len(entries) != 0 {
		t.Errorf("left behind: %v, %v", entries, err)
	}
}

func sameTree(t *testing.T, repo gitx.Repo, a, b string) {
	t.Helper()
	ta, err := repo.TreeID(t.Context(), a)
	if err != nil {
		t.Fatal(err)
	}
	if tb, err := repo.TreeID(t.Context(), b); err != nil || ta != tb {
		t.Errorf("trees differ: %s, %s, %v", ta, tb, err)
	}
}

func TestWithWithout(t *testing.T) {
	ctx := t.Context()
	repo, slow := scratch(t, slowTree)
	fast := commit(t, repo, fastTree)
	fix := mustParse(t, "fix.patch", fixPatch)
	// The same fix for a tree in which a neighbouring line differs.
	other := mustParse(t, "other.patch", strings.ReplaceAll(fixPatch, " line 9\n", " line nine\n"))
	stranger := mustParse(t, "stranger.patch", strings.ReplaceAll(fixPatch, "line 11", "line eleven"))
	// The place it was put in and another one like it.
	twice := mustParse(t, "twice.patch", "--- a/f\n+++ b/f\n@@ -3,4 +3,5 @@\n {\n p\n+x\n q\n }\n")
	xx := commit(t, repo, map[string]string{"f": "1\n2\n{\np\nx\nq\n}\n8\n{\np\nq\n}\n13\n"})

	for name, c := range map[string]struct {
		base     string
		variants []Patch
		how      How
		chosen   string
		warn     string
	}{
		"has it":                    {fast, []Patch{fix}, Reverted, "fix.patch", ""},
		"lacks it":                  {slow, []Patch{fix}, Applied, "fix.patch", ""},
		"second variant":            {slow, []Patch{stranger, fix}, Applied, "fix.patch", ""},
		"full context before fuzz":  {fast, []Patch{other, fix}, Reverted, "fix.patch", ""},
		"fuzz":                      {fast, []Patch{other}, Reverted, "other.patch", "context cut"},
		"both ways":                 {xx, []Patch{twice}, Reverted, "twice.patch", "once more"},
		"taking out before putting": {fast, []Patch{mustParse(t, "add.patch", addPatch), fix}, Reverted, "fix.patch", ""},
	} {
		t.Run(name, func(t *testing.T) {
			pair, err := WithWithout(ctx, repo, c.base, c.variants)
			if err != nil {
				t.Fatal(err)
			}
			if pair.How != c.how || pair.Patch.Name != c.chosen || (c.warn == "") != (len(pair.Warnings) == 0) || !strings.Contains(strings.Join(pair.Warnings, ""), c.warn) {
				t.Errorf("got %s %s %q", pair.How, pair.Patch.Name, pair.Warnings)
			}
			if base := map[How]string{Reverted: pair.With, Applied: pair.Without}[c.how]; base != c.base {
				t.Errorf("the base is not an end: %+v", pair)
			}
			if pair.With == pair.Without {
				t.Error("both ends are the same")
			}
		})
	}
}

const addPatch = `--- a/net/a.c
+++ b/net/a.c
@@ -20,3 +20,4 @@
 line 20
 line 21
+added();
 line 22
`

func TestWithWithoutErrors(t *testing.T) {
	ctx := t.Context()
	repo, slow := scratch(t, slowTree)
	missing := mustParse(t, "missing.patch", strings.ReplaceAll(fixPatch, "net/a.c", "net/b.c"))
	stranger := mustParse(t, "stranger.patch", strings.ReplaceAll(fixPatch, "slow()", "crawl()"))
	var pe *PatchError
	_, err := WithWithout(ctx, repo, slow, []Patch{missing, stranger})
	if !errors.As(err, &pe) || len(pe.Tried) != 2 {
		t.Fatalf("error %v", err)
	}
	for _, part := range []string{"missing.patch", "net/b.c: no such file", "stranger.patch", "net/a.c:9: the lines are not there", "another kernel"} {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("%q is not in %v", part, err)
		}
	}
	if _, err := WithWithout(ctx, repo, slow, nil); err == nil {
		t.Error("no patch was taken")
	}
	if _, err := WithWithout(ctx, repo, "nothing", []Patch{missing}); !errors.As(err, new(*gitx.UnknownRevisionError)) {
		t.Errorf("unknown base: %v", err)
	}
	cancelled, cancel := context.WithCancel(ctx)
	cancel()
	if _, err := WithWithout(cancelled, repo, slow, []Patch{missing}); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
}

// TestFuzzIsUnambiguous has two places for a hunk with one line of context: git
// would take the first.
func TestFuzzIsUnambiguous(t *testing.T) {
	twin := numbered(30, map[int]string{12: "slow();\n", 11: "}\n", 13: "{\n", 21: "}\n", 22: "slow();\n", 23: "{\n", 9: "changed\n"})
	repo, base := scratch(t, map[string]string{"net/a.c": twin})
	p := mustParse(t, "p", strings.NewReplacer(" line 11\n", " }\n", " line 13\n", " {\n").Replace(fixPatch))
	if pair, err := WithWithout(t.Context(), repo, base, []Patch{p}); !errors.As(err, new(*PatchError)) {
		t.Errorf("WithWithout = %+v, %v; want a PatchError", pair, err)
	}
}

// TestApplyKinds takes each kind of change there and back.
func TestApplyKinds(t *testing.T) {
	ctx := t.Context()
	repo, base := scratch(t, map[string]string{"a": numbered(9, nil), "b": "b\n", "crlf": "1\r\n2\r\n3\r\n"})
	for name, text := range map[string]string{
		"new":     "diff --git a/n b/n\nnew file mode 100755\nindex 0000000..1111111\n--- /dev/null\n+++ b/n\n@@ -0,0 +1 @@\n+new\n",
		"delete":  "diff --git a/b b/b\ndeleted file mode 100644\nindex 6178079..0000000\n--- a/b\n+++ /dev/null\n@@ -1 +0,0 @@\n-b\n",
		"rename":  "diff --git a/b b/c\nsimilarity index 100%\nrename from b\nrename to c\n",
		"mode":    "diff --git a/b b/b\nold mode 100644\nnew mode 100755\n",
		"no eol":  "--- a/b\n+++ b/b\n@@ -1 +1 @@\n-b\n+c\n\\ No newline at end of file\n",
		"crlf":    "--- a/crlf\n+++ b/crlf\n@@ -1,3 +1,3 @@\n 1\r\n-2\r\n+two\r\n 3\r\n",
		"several": "--- a/a\n+++ b/a\n@@ -1,3 +1,3 @@\n-line 1\n+one\n line 2\n line 3\n@@ -7,3 +7,2 @@\n line 7\n line 8\n-line 9\n--- a/b\n+++ b/b\n@@ -1 +1 @@\n-b\n+c\n",
	} {
		t.Run(name, func(t *testing.T) {
			p := mustParse(t, name, text)
			there, err := Apply(ctx, repo, base, p, false)
			if err != nil {
				t.Fatal(err)
			}
			back, err := Apply(ctx, repo, there, p, true)
			if err != nil {
				t.Fatal(err)
			}
			sameTree(t, repo, back, base)
			if _, err := Apply(ctx, repo, there, p, false); !errors.As(err, new(*PatchError)) && name != "mode" {
				t.Errorf("applied twice: %v", err)
			}
		})
	}
}

func FuzzParse(f *testing.F) {
	f.Add([]byte(fixPatch))
	f.Add([]byte(encoded(fixPatch)))
	f.Add([]byte(strings.ReplaceAll(fixPatch, "\n", "\r\n")))
	f.Add([]byte("diff --git a/x b/y\nsimilarity index 100%\nrename from x\nrename to y\n"))
	f.Add([]byte("diff --git a/x b/x\nGIT binary patch\nliteral 1\nIcmZPo000310RR91\n\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		p, err := Parse("f", data)
		if err != nil {
			return
		}
		if len(p.Files) == 0 || p.Subject == "" || strings.Contains(p.Subject, "\n") {
			t.Errorf("accepted %q", p)
		}
		for _, name := range p.Files {
			if !filepath.IsLocal(name) || strings.HasPrefix(strings.ToLower(name), ".git/") {
				t.Errorf("accepted path %q", name)
			}
		}
		for _, h := range p.files {
			for _, fr := range h.TextFragments {
				want(fr, false, reducedContext)
				want(fr, true, reducedContext)
			}
		}
	})
}

// BenchmarkWithWithout resolves a patch in a tree of 80,000 files, as a kernel is.
func BenchmarkWithWithout(b *testing.B) {
	files := map[string]string{}
	for i := range 80_000 {
		files[fmt.Sprintf("d%d/f%d.c", i%1000, i)] = "x\n"
	}
	maps.Copy(files, slowTree)
	repo, base := scratch(b, files)
	p := mustParse(b, "fix.patch", fixPatch)
	for b.Loop() {
		if _, err := WithWithout(b.Context(), repo, base, []Patch{p}); err != nil {
			b.Fatal(err)
		}
	}
}

// TestNoContext: git apply would put lines without context at the end of a file.
func TestNoContext(t *testing.T) {
	add := "--- a/f.c\n+++ b/f.c\n@@ -3,0 +4,1 @@\n+int x;\n"
	_, err := Parse("x.patch", []byte(add))
	if err == nil || !strings.Contains(err.Error(), "hunk 1 of f.c has no context") {
		t.Errorf("got %v", err)
	}
	for _, good := range []string{
		"--- a/f.c\n+++ b/f.c\n@@ -3,1 +3,2 @@\n int y;\n+int x;\n",
		"--- a/f.c\n+++ b/f.c\n@@ -3,1 +3,1 @@\n-int y;\n+int x;\n",
		"--- /dev/null\n+++ b/f.c\n@@ -0,0 +1,1 @@\n+int x;\n",
	} {
		if _, err := Parse("x.patch", []byte(good)); err != nil {
			t.Errorf("%s: %v", good, err)
		}
	}
}
