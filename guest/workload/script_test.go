package workload

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/kbisect/kbisect/guest/proto"
)

// runScript runs a script with this machine's bash.
func runScript(t *testing.T, text, spec string) (*notes, error) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "script")
	if err := os.WriteFile(path, []byte(text), 0o755); err != nil {
		t.Fatal(err)
	}
	argv, err := interpreter(path)
	if err != nil {
		t.Fatal(err)
	}
	_, p, err := Parse(spec)
	if err != nil {
		t.Fatal(err)
	}
	n := &notes{metrics: map[string]float64{}}
	begin := time.Now()
	run := &scriptRun{env: Env{Params: p, Rec: n, Now: func() int64 { return int64(time.Since(begin)) }}, argv: argv}
	ops, err := run.Run(t.Context())
	if err == nil && ops != 1 {
		t.Errorf("%d operations", ops)
	}
	return n, err
}

func TestScriptMeasures(t *testing.T) {
	n, err := runScript(t, `for i in 1 2; do time sleep 0.05; done
time -p sleep 0.06
echo kbisect-metric latency 2.5 ms
echo "kbisect-metric rate 1000 1/s"
echo to stderr >&2
`, "script")
	if err != nil {
		t.Fatal(err)
	}
	for name, least := range map[string]float64{"elapsed": 160e6, "time[1].real": 50e6, "time[2].real": 50e6, "time[3].real": 60e6} {
		if got := n.metrics[name]; got < least || got > 20*least {
			t.Errorf("%s is %g, want about %g", name, got, least)
		}
	}
	for name, want := range map[string]float64{"exit": 0, "latency": 2.5e6, "rate": 1000} {
		if got := n.metrics[name]; got != want {
			t.Errorf("%s is %g, want %g", name, got, want)
		}
	}
	rate := n.defined[slices.IndexFunc(n.defined, func(m Metric) bool { return m.Name == "rate" })]
	if rate.Unit != proto.PerSecond || rate.Better != proto.Higher || !rate.Printed {
		t.Errorf("rate is %+v", rate)
	}
	for _, line := range []string{"+ sleep 0.06\n", "\nto stderr\n", "real"} {
		if !strings.Contains(n.output.String(), line) {
			t.Errorf("no %q in the transcript:\n%s", line, n.output.String())
		}
	}
}

func TestScriptExit(t *testing.T) {
	for _, c := range []struct {
		text, spec string
		exit       float64
		want       string // of the error, "" for none
	}{
		{"true", "script", 0, ""},
		{"echo what is wrong >&2\nexit 3", "script", 0, "status 3; its last words: what is wrong"},
		{"exit 3", "script,exit-is-verdict=true", 3, ""},
		{"exit 0", "script,exit-is-verdict=true", 0, ""},
		{"exit 125", "script,exit-is-verdict=true", 0, "cannot tell"},
		{"for i in 1 2; do /bin/false; done", "script,exit-ok=1", 1, ""},
		{"true", "script,exit-ok=1", 0, "status 0"},
		{"no-such-program", "script,exit-ok=1", 0, "status 127"},
		{"kill -9 $$", "script", 0, "status 137"},
		{"#!/no/such/interpreter\n", "script", 0, "/no/such/interpreter"},
		{"#!/bin/bash -e\nfalse\ntrue", "script", 0, "status 1"},
		{"echo kbisect-metric x 3 furlongs", "script", 0, `unit "furlongs"`},
		{"echo kbisect-metric x 3 ms; echo kbisect-metric x 4 ms", "script", 0, `a number "x" already`},
	} {
		n, err := runScript(t, c.text, c.spec)
		switch {
		case c.want == "" && err != nil:
			t.Errorf("%q: %v", c.text, err)
		case c.want == "" && n.metrics["exit"] != c.exit:
			t.Errorf("%q: exit %g, want %g", c.text, n.metrics["exit"], c.exit)
		case c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)):
			t.Errorf("%q: got %v, want %q", c.text, err, c.want)
		}
	}
}

// A process that stays in the background, and holds the pipe, is not waited for.
func TestScriptLeavesSomethingBehind(t *testing.T) {
	begin := time.Now()
	n, err := runScript(t, "sleep 5 & echo first; yes > /dev/null & kill $!; echo last", "script")
	if err != nil || !strings.Contains(n.output.String(), "\nlast\n") {
		t.Fatalf("%v\n%s", err, n.output.String())
	}
	if took := time.Since(begin); took > 3*time.Second {
		t.Errorf("it took %s", took)
	}
}

// The trace must not reach what the script itself reads.
func TestScriptTraceStaysOut(t *testing.T) {
	if _, err := runScript(t, `x=$(ls /no/such 2>&1 | wc -l); [ "$x" = 1 ] && f() { echo b; } 2>&1 && [ "$(f 2>&1)" = b ]`, "script"); err != nil {
		t.Error(err)
	}
}

func TestInterpreter(t *testing.T) {
	for head, want := range map[string]string{
		"ip link\n":                        "bash -x S",
		"#!/bin/sh\n":                      "bash -x S",
		"#!/bin/bash -eu\nfoo":             "bash -x -eu S",
		"#! /usr/bin/env bash\n":           "bash -x S",
		"#!/usr/bin/env python3\n":         "/usr/bin/env python3 S",
		"#!/usr/bin/awk -f\n":              "/usr/bin/awk -f S",
		"#!\n":                             "bash -x S",
		"# not an interpreter\n#!/bin/x\n": "bash -x S",
	} {
		if got := strings.Join(interpreterOf(head, "S"), " "); got != want {
			t.Errorf("%q: got %q, want %q", head, got, want)
		}
	}
}

func TestScriptReader(t *testing.T) {
	for _, c := range []struct {
		name, text string
		want       string // of real, user, sys in ms
		others     int    // metrics beside those of time
	}{
		{"bash", "\nreal\t0m7.704s\nuser\t0m0.385s\nsys\t0m1.230s\n", "7704 385 1230", 0},
		{"minutes", "real\t7m18.911s\nuser\t0m0.185s\nsys\t0m2.314s\n", "438911 185 2314", 0},
		{"posix", "real 131.03\nuser 0.06\nsys 0.52\n", "131030 60 520", 0},
		{"comma", "real 131,03\nuser 0,06\nsys 0,52\n", "131030 60 520", 0},
		{"zero", "real 0.00\nuser 0.00\nsys 0.00\n", "10 10 10", 0},
		{"bash zero", "real\t0m0.012s\nuser\t0m0.000s\nsys\t0m0.009s\n", "12 1 9", 0},
		{"gnu", "0.10user 0.20system 1:02.50elapsed 0%CPU (0avgtext+0avgdata 1920maxresident)k\n", "62500 100 200", 0},
		{"gnu hours", "0.10user 0.20system 1:00:02elapsed 0%CPU\n", "3602000 100 200", 0},
		{"carriage returns", "real 1.00\r\nuser 2.00\r\nsys 3.00\r\n", "1000 2000 3000", 0},
		{"cut short", "real 1.00\nuser 2.00\n", "", 0},
		{"another order", "user 1.00\nreal 2.00\nsys 2.00\n", "", 0},
		{"two reals", "real 9.00\nreal 1.00\nuser 2.00\nsys 3.00\n", "1000 2000 3000", 0},
		{"something between", "real 1.00\nfoo\nuser 2.00\nsys 3.00\n", "", 0},
		{"trace", "+ real 1.00\n++ user 2.00\n+ echo kbisect-metric x 1 s\n", "", 0},
		{"metric", "kbisect-metric x 1 s\n  kbisect-metric y 2\nkbisect-metricz 1\n", "", 2},
	} {
		t.Run(c.name, func(t *testing.T) {
			for _, size := range []int{1, 3, len(c.text)} { // however the pipe cuts it
				r := &scriptReader{}
				for rest := c.text; rest != ""; {
					n := min(size, len(rest))
					_, _ = r.Write([]byte(rest[:n]))
					rest = rest[n:]
				}
				r.end()
				var times []string
				others := 0
				for _, m := range r.metrics {
					if strings.HasPrefix(m.name, "time[") {
						times = append(times, fmt.Sprintf("%.0f", m.value/1e6))
					} else {
						others++
					}
				}
				if got := strings.Join(times, " "); got != c.want || others != c.others || r.err != nil {
					t.Errorf("got %q and %d more, %v; want %q and %d", got, others, r.err, c.want, c.others)
				}
			}
		})
	}
}

// However much a script prints, and however badly: what is kept is bounded, and
// every metric is one that the protocol takes.
func FuzzScriptReader(f *testing.F) {
	f.Add([]byte("real 1.00\nuser 2.00\nsys 3.00\nkbisect-metric a 1 ms\n"))
	f.Add([]byte("real\t0m1.00s\n\x00kbisect-metric"))
	f.Fuzz(func(t *testing.T, data []byte) {
		r := &scriptReader{}
		for range 3 {
			_, _ = r.Write(data)
		}
		r.end()
		if len(r.line) > maxScriptLine || len(r.metrics) > 3*MaxTimes+MaxScriptMetrics || len(r.tail) > lastWords {
			t.Fatalf("%d bytes of line, %d metrics", len(r.line), len(r.metrics))
		}
		for _, m := range r.metrics {
			rec := proto.Record{V: proto.Version, Kind: proto.KindMetric,
				Metric: &proto.Metric{Name: m.name, Unit: m.unit, Better: BetterOf(m.unit), Value: m.value}}
			if err := rec.Validate(); err != nil {
				t.Fatal(err)
			}
		}
	})
}
