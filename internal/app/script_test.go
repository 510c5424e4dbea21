package app

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/kbisect/kbisect/guest/proto"
	"github.com/kbisect/kbisect/guest/workload"
	"github.com/kbisect/kbisect/internal/measure"
	"github.com/kbisect/kbisect/internal/report"
	"github.com/kbisect/kbisect/vm"
	"github.com/kbisect/kbisect/vm/vmtest"
)

// scriptWorld is a world whose machines run a script that waits as long as the
// image says.
func scriptWorld(t *testing.T, output string) (*world, *[]string) {
	t.Helper()
	w := newWorld(t)
	var pushed []string
	w.machine = func(image string, boot int, m *vmtest.Machine) (vm.Machine, error) {
		var ms float64
		if _, err := fmt.Sscanf(image, "int wait = %g;", &ms); err != nil {
			return nil, err
		}
		m.ExecFunc = func(_ context.Context, c vm.Command) error {
			pushed = append(pushed, string(m.File(workload.ScriptPath)))
			w := proto.NewWriter(c.Stdout, func() int64 { return 1 })
			ns := func(name string, v float64) error {
				return w.Metric(proto.Metric{Name: name, Unit: proto.Nanoseconds, Better: proto.Lower, Value: v})
			}
			exit := 0.0
			if ms > 100 {
				exit = 1
			}
			return errors.Join(w.Hello(hello(c)), w.Output(output), ns("elapsed", 5e9), ns("time[1].real", ms*1e6+float64(boot)),
				w.Metric(proto.Metric{Name: "exit", Unit: proto.Count, Better: proto.Lower, Value: exit}),
				w.Done(argOf(c, "-nonce"), 1))
		}
		return m, nil
	}
	return w, &pushed
}

func TestRunScript(t *testing.T) {
	skipWithoutGo(t)
	w, pushed := scriptWorld(t, "+ time ip link del x\nreal 0.25\n")
	o := w.options()
	o.Workload, o.Metric = "", "time[1].real"
	o.Script = ScriptOptions{Name: "x.sh", Text: "time ip link del x\n"}
	c := w.must(o, report.Faster)
	if c.Ratio < 200 || !slices.Equal(slices.Compact(*pushed), []string{o.Script.Text}) {
		t.Errorf("ratio %v, scripts %q", c.Ratio, *pushed)
	}
	texts, _ := filepath.Glob(filepath.Join(w.env.State, "runs", "*", "*", transcriptName))
	if len(texts) != 12 {
		t.Errorf("%d transcripts", len(texts))
	}
}

func TestRunExitIsVerdict(t *testing.T) {
	skipWithoutGo(t)
	w, _ := scriptWorld(t, "ok\n")
	o := w.options()
	o.Workload, o.Metric = "", ""
	o.Script = ScriptOptions{Name: "x.sh", Text: "test -f x\n", ExitIsVerdict: true}
	c := w.must(o, report.Faster)
	if c.Metric != "exit" || c.Without.Above != c.Without.N || c.With.Above != 0 {
		t.Errorf("%+v", c)
	}
}

// A range is searched by a script's time, and by its exit status.
func TestHuntScript(t *testing.T) {
	skipWithoutGo(t)
	for name, script := range map[string]ScriptOptions{
		"time": {Name: "x.sh", Text: "time ip link del x\n"},
		"exit": {Name: "x.sh", Text: "test -f x\n", ExitIsVerdict: true},
	} {
		t.Run(name, func(t *testing.T) {
			w, _ := scriptWorld(t, "")
			ids := fast(w).chain(16, 6)
			o := w.search("HEAD~16", "HEAD")
			o.Workload, o.Metric, o.Script = "", "", script
			if name == "time" {
				o.Metric = "time[1].real"
			}
			res := w.names(o, ids[6])
			if !strings.HasPrefix(res.Question.Workload, "script x.sh (sha256 ") {
				t.Errorf("the workload is called %q", res.Question.Workload)
			}
		})
	}
}

// A script that goes on after a command that is not there has done less than it
// seems: its numbers come with a warning.
func TestScriptWarnsOfWhatIsMissing(t *testing.T) {
	skipWithoutGo(t)
	w, _ := scriptWorld(t, "+ frobnicate eth0\n/tmp/kbisect-script: line 3: frobnicate: command not found\n")
	o := w.options()
	o.Workload, o.Metric = "", "time[1].real"
	o.Script = ScriptOptions{Name: "x.sh", Text: "frobnicate eth0\ntime true\n"}
	res, err := w.run(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	if !slices.ContainsFunc(res.Warnings, func(s string) bool { return strings.Contains(s, "add --tool frobnicate") }) {
		t.Errorf("warnings %q", res.Warnings)
	}
}

func TestScriptMetrics(t *testing.T) {
	_, defs, err := parseWorkload(workload.Script)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ text, asked, want string }{
		{"true", "", "elapsed ns, exit count"},
		{"time sleep 1", "", "elapsed ns, exit count, time[1].real ns"},
		{"for i in 1 2; do time x; done", "time[2].user>1s", "elapsed ns, exit count, time[2].user ns"},
		{"echo kbisect-metric lat $(( x * 2 )) ms", "", "elapsed ns, exit count, lat ns"},
		{`echo "kbisect-metric rate $r 1/s"`, "", "elapsed ns, exit count, rate 1/s"},
		{`m() { echo kbisect-metric $1 $2 ns; }; m foo 3`, "foo>3ms", "elapsed ns, exit count, foo ns"},
		{`m() { echo kbisect-metric $1 $2; }; m foo 3`, "foo", "elapsed ns, exit count, foo count"},
		{"true", "time[51].real", "elapsed ns, exit count"}, // beyond what is reported
	} {
		s := ScriptOptions{Text: c.text}
		var got []string
		for _, d := range s.metrics(defs, c.asked) {
			got = append(got, fmt.Sprintf("%s %s", d.Name, d.Unit))
		}
		if strings.Join(got, ", ") != c.want {
			t.Errorf("%q asked for %q: got %q, want %q", c.text, c.asked, got, c.want)
		}
	}
	s := ScriptOptions{Text: "time sleep 1"}
	m, err := measure.ParseThreshold("time[1].real>2s", s.metrics(defs, "time[1].real>2s"))
	if err != nil || m.Number != 2e9 {
		t.Errorf("%+v, %v", m, err)
	}
}

func TestSplitFile(t *testing.T) {
	for arg, want := range map[string]string{
		"a/b.txt":          "a/b.txt -> /root/b.txt",
		"a/b.txt:c.txt":    "a/b.txt -> /root/c.txt",
		"a/b.txt:/etc/c":   "a/b.txt -> /etc/c",
		"a:b/c:/etc/../c":  "a:b/c -> /c",
		"/x/y.batch:":      "/x/y.batch -> /root/y.batch",
		"dir:sub/../other": "dir -> /root/other",
	} {
		from, to := splitFile(arg)
		if got := from + " -> " + to; got != want {
			t.Errorf("%q: got %q, want %q", arg, got, want)
		}
	}
}

func TestPackFile(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{"lib/a.sh": "a", "lib/sub/b.sh": "bb"} {
		path := filepath.Join(dir, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(text), 0o755)); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink("a.sh", filepath.Join(dir, "lib/link.sh")); err != nil {
		t.Fatal(err)
	}
	s := ScriptOptions{Files: []string{filepath.Join(dir, "lib") + ":/opt/lib"}}
	files, err := s.extra()
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, f := range files {
		got = append(got, f.Path)
	}
	if want := "/opt/lib /opt/lib/a.sh /opt/lib/link.sh /opt/lib/sub /opt/lib/sub/b.sh"; strings.Join(got, " ") != want {
		t.Errorf("got %q, want %q", got, want)
	}
	for _, f := range []string{"/no/such:x", dir + ":/", dir + ":/proc/x", dir + ":/root/../init", "/dev/null:x"} {
		s := ScriptOptions{Files: []string{f}}
		if _, err := s.extra(); !errors.As(err, new(*UsageError)) || !strings.HasPrefix(err.Error(), "--file ") {
			t.Errorf("%s: %v", f, err)
		}
	}
}
