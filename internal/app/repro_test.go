package app

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/kbisect/kbisect/internal/report"
)

// waitThread is a report with a patch and a script, as an mbox.
const waitThread = `From a@example.org Mon Mar  4 10:00:00 2024
From: Ann Author <ann@example.org>
Date: Mon, 4 Mar 2024 10:00:00 +0000
Subject: [PATCH net v2] wait: do not wait that long
Message-ID: <1-ann@example.org>

Deleting a device takes a quarter of a second:

# time -p ip link del x
real 0.25
user 0.00
sys 0.01

With this patch it takes none.

Fixes: 0123456789ab ("wait: wait")
Signed-off-by: Ann Author <ann@example.org>
---
 net/wait.c | 2 +-

diff --git a/net/wait.c b/net/wait.c
--- a/net/wait.c
+++ b/net/wait.c
@@ -1,2 +1,2 @@
 /* wait */
-int wait = 250;
+int wait = 1;
--
2.40.1

From b@example.org Mon Mar  4 11:00:00 2024
From: Bob Reader <bob@example.org>
Subject: Re: [PATCH net v2] wait: do not wait that long
In-Reply-To: <1-ann@example.org>

> -int wait = 250;
> +int wait = 1;

Looks good.
`

// repro runs the command on a thread.
func (w *world) repro(ctx context.Context, thread string, o ReproOptions) (report.Thread, *report.Result, error) {
	w.t.Helper()
	o.Thread = thread
	if o.RunOptions.MaxRuns == 0 {
		o.RunOptions = DefaultRunOptions()
		o.RunOptions.Machine.AnyLoad = true
	}
	var doc report.Thread
	res, err := Repro(w.t.Context(), w.env, o, func(t report.Thread) error { doc = t; return nil })
	return doc, res, err
}

func (w *world) thread(text string) string {
	path := filepath.Join(w.t.TempDir(), "thread.mbox")
	w.write(path, text)
	return path
}

func TestRepro(t *testing.T) {
	w := newWorld(t)
	doc, res, err := w.repro(t.Context(), w.thread(waitThread), ReproOptions{})
	if err != nil || res != nil {
		t.Fatal(res, err)
	}
	var text bytes.Buffer
	if err := report.ThreadText(&text, doc); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"series v2 (chosen): wait: do not wait that long", "Ann Author", "net/wait.c",
		"    time -p ip link del x\n", "     0.250 s  time -p ip link del x", `Fixes: 0123456789ab ("wait: wait")`,
		"/v2-0001-wait-do-not-wait-that-long.patch --script ", "--metric 'time[1].real'", "(what --run does)", "--good '0123456789ab^'",
	} {
		if !strings.Contains(text.String(), want) && !strings.Contains(text.String(), strings.ReplaceAll(want, "'", "")) {
			t.Errorf("no %q in\n%s", want, &text)
		}
	}
	if len(doc.Commands) != 2 || !doc.Commands[0].Best || doc.Commands[1].Best {
		t.Errorf("commands %+v", doc.Commands)
	}
	for _, name := range []string{"v2-0001-wait-do-not-wait-that-long.patch", "script-1.sh"} {
		if _, err := os.Stat(filepath.Join(doc.Folder, name)); err != nil {
			t.Error(err)
		}
	}
}

// What --run does: the thread's patch by the thread's script.
func TestReproRun(t *testing.T) {
	skipWithoutGo(t)
	w, pushed := scriptWorld(t, "+ ip link del x\n")
	o := ReproOptions{Run: true, RunOptions: DefaultRunOptions()}
	o.RunOptions.Kernel, o.RunOptions.Machine.AnyLoad = w.tree, true
	doc, res, err := w.repro(t.Context(), w.thread(waitThread), o)
	if err != nil {
		t.Fatal(err)
	}
	if fit := doc.Series[0].Patches[0].Fit; fit != report.FitApplies {
		t.Errorf("the patch %s", fit)
	}
	if c := res.Comparisons[0]; c.Verdict != report.Faster || c.Metric != "time[1].real" || c.Ratio < 200 {
		t.Errorf("%+v", c)
	}
	if got := slices.Compact(*pushed); len(got) != 1 || got[0] != "time -p ip link del x\n" {
		t.Errorf("scripts %q", got)
	}
}

// A patch that lost its white space is repaired by the tree, and then is one that
// any other tool takes.
func TestReproRepairs(t *testing.T) {
	w := newWorld(t)
	damaged := strings.NewReplacer(" /* wait */", "/* wait */", "-int wait = 250;", "-int  wait =  250;").Replace(waitThread)
	o := ReproOptions{RunOptions: DefaultRunOptions()}
	doc, _, err := w.repro(t.Context(), w.thread(damaged), o)
	if err != nil {
		t.Fatal(err)
	}
	if p := doc.Series[0].Patches[0]; p.State != report.StateDamaged || p.Path != "" || !strings.Contains(p.Reason, "--kernel SRC") {
		t.Errorf("without a kernel: %+v", p)
	}
	o.RunOptions.Kernel = w.tree
	doc, _, err = w.repro(t.Context(), w.thread(damaged), o)
	if err != nil {
		t.Fatal(err)
	}
	p := doc.Series[0].Patches[0]
	if p.State != report.StateRepaired || len(p.Repairs) == 0 || p.Fit != report.FitApplies {
		t.Fatalf("with a kernel: %+v", p)
	}
	w.git("apply", "--check", p.Path)
}

func TestReproRefuses(t *testing.T) {
	w := newWorld(t)
	o := ReproOptions{RunOptions: DefaultRunOptions()}
	o.RunOptions.Kernel = w.tree
	doc, _, err := w.repro(t.Context(), w.thread(strings.Replace(waitThread, " /* wait */", "/* something else */", 1)), o)
	if err != nil {
		t.Fatal(err)
	}
	if p := doc.Series[0].Patches[0]; p.State != report.StateRefused || !strings.Contains(p.Reason, "line ") || p.Path != "" {
		t.Errorf("%+v", p)
	}
	for name, c := range map[string]struct {
		thread, want string
		change       func(*ReproOptions)
	}{
		"no such file":       {"/no/such/thread", "no such file, and no Message-ID", nil},
		"empty":              {w.thread(""), "empty", nil},
		"binary":             {w.thread("\x7fELF\x00\x00\x01"), "thread.mbox", nil},
		"no such version":    {w.thread(waitThread), "--series-version 7: ", func(o *ReproOptions) { o.Version = 7 }},
		"no such base":       {w.thread(waitThread), "--base", func(o *ReproOptions) { o.RunOptions.Kernel, o.RunOptions.Base = w.tree, "nonesuch" }},
		"nothing to be run":  {w.thread("From: a@b\nSubject: hello\n\nhello\n"), "nothing in", func(o *ReproOptions) { o.Run, o.RunOptions.Kernel = true, w.tree }},
		"folder is taken":    {w.thread(waitThread), "is there already", func(o *ReproOptions) { o.Out = w.taken() }},
		"folder cannot be":   {w.thread(waitThread), "--out", func(o *ReproOptions) { o.Out = w.patch }},
		"a script is nobody": {w.thread(waitThread), `no workload "nonesuch"`, func(o *ReproOptions) { o.Run, o.RunOptions.Kernel, o.RunOptions.Workload = true, w.tree, "nonesuch" }},
	} {
		o := ReproOptions{RunOptions: DefaultRunOptions()}
		if c.change != nil {
			c.change(&o)
		}
		_, _, err := w.repro(t.Context(), c.thread, o)
		if !errors.As(err, new(*UsageError)) || !strings.Contains(err.Error()+strings.Join(Hints(err), " "), c.want) {
			t.Errorf("%s: got %v, want %q", name, err, c.want)
		}
	}
}

// taken is a folder that has a script of that name already.
func (w *world) taken() string {
	dir := w.t.TempDir()
	w.write(filepath.Join(dir, "script-1.sh"), "echo mine\n")
	return dir
}

// A Message-ID is fetched from a public-inbox server.
func TestReproFetches(t *testing.T) {
	w := newWorld(t)
	server := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/all/1-ann@example.org/t.mbox.gz" {
			http.NotFound(rw, r)
			return
		}
		z := gzip.NewWriter(rw)
		fmt.Fprint(z, waitThread)
		z.Close()
	}))
	defer server.Close()
	doc, _, err := w.repro(t.Context(), "<1-ann@example.org>", ReproOptions{Lore: server.URL})
	if err != nil {
		t.Fatal(err)
	}
	if doc.Messages != 2 || len(doc.Series) != 1 {
		t.Errorf("%+v", doc)
	}
	_, _, err = w.repro(t.Context(), "2-none@example.org", ReproOptions{Lore: server.URL})
	if err == nil || !strings.Contains(err.Error(), server.URL) || !strings.Contains(err.Error(), "404") {
		t.Errorf("got %v", err)
	}
}

// A script whose last command is there to fail has done its work, and a report
// that the catalog knows is measured as the catalog says.
func TestReproOfFailingCommand(t *testing.T) {
	w := newWorld(t)
	text := strings.NewReplacer("wait: do not wait that long", "ip6mr: remove synchronize_rcu() in favor of SOCK_RCU_FREE",
		"time -p ip link del x", "time for i in {1..1000}; do unshare -n /bin/false;done").Replace(waitThread)
	doc, _, err := w.repro(t.Context(), w.thread(text), ReproOptions{})
	if err != nil {
		t.Fatal(err)
	}
	const want = "script-1.sh --exit-ok 1 --metric settled"
	if len(doc.Commands) == 0 || !strings.Contains(doc.Commands[0].Line, want) {
		t.Errorf("no %q in %+v", want, doc.Commands)
	}
	for script, want := range map[string]bool{"false": true, "x; false": true, "x\nfalse\n": true, "x || false": false, "x && /bin/false": false, "unshare -n /bin/false": true, "x || false || y": false, "do_false": false} {
		if got := endsInFalse.MatchString(script); got != want {
			t.Errorf("%q ends in false: %t", script, got)
		}
	}
}

func TestCommandLine(t *testing.T) {
	o := RunOptions{Kernel: "/a b/linux", Patch: "it's.patch", Metric: "time[1].real", Quick: true,
		Script: ScriptOptions{Name: "s.sh", Text: "true", Tools: []string{"nft"}, Files: []string{"x:y"}}}
	const want = `kbisect run --kernel '/a b/linux' --patch 'it'\''s.patch' --script s.sh --tool nft --file x:y --metric 'time[1].real' --quick`
	if got := commandLine(o); got != want {
		t.Errorf("got %s\nwant %s", got, want)
	}
}
