package measure

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/kbisect/kbisect/guest/proto"
	"github.com/kbisect/kbisect/vm"
)

func report() *Report {
	return &Report{
		Metrics: []proto.Metric{
			{Name: "elapsed", Unit: proto.Nanoseconds, Better: proto.Lower, Value: 8e9},
			{Name: "stuck", Unit: proto.Count, Better: proto.Lower, Value: 0},
		},
		Dists: []proto.Dist{{
			Name: "delete", Unit: proto.Nanoseconds, Better: proto.Lower,
			N: 100, Min: 1e6, P50: 2e6, P90: 3e6, P99: 9e6, Max: 11e6, Sum: 250e6,
		}},
		Checks: []proto.Check{{Name: "devices gone", Want: 100, Got: 100, OK: true}},
		Done:   &proto.Done{Ops: 100},
	}
}

func TestOf(t *testing.T) {
	edit := func(f func(*Report)) *Report { r := report(); f(r); return r }
	for _, c := range []struct {
		name   string
		rep    *Report
		err    error
		want   Status
		reason string
	}{
		{"complete", report(), nil, OK, ""},
		{"no records", nil, nil, Infra, "no records"},
		{"no end", edit(func(r *Report) { r.Done = nil }), nil, Infra, "without done"},
		{"nothing done", edit(func(r *Report) { r.Done.Ops = 0 }), nil, Untestable, "no operation"},
		{"failed check", edit(func(r *Report) { r.Checks[0].OK, r.Checks[0].Got = false, 3 }), nil, Untestable, `check "devices gone": want 100, got 3`},
		{"lacks a feature", &Report{Fail: &proto.Fail{Reason: proto.FailUnsupported, Text: "no nexthops"}}, nil, Untestable, "unsupported: no nexthops"},
		{"fail outranks done", edit(func(r *Report) { r.Fail = &proto.Fail{Reason: proto.FailClock, Text: "4 ms"} }), nil, Untestable, "clock"},
		{"no boot", nil, fmt.Errorf("run: %w", &vm.BootError{Reason: "silent for 30s"}), Untestable, "silent"},
		{"panic behind a report", report(), &vm.CrashError{Event: vm.Event{Kind: vm.EventPanic, Line: "x"}}, Crash, "panic"},
		{"hang", report(), &vm.TimeoutError{What: "workload", Limit: time.Minute}, Timeout, "1m0s"},
		{"qemu", nil, &vm.InfraError{Op: "start qemu", Err: errors.New("no memory")}, Infra, "no memory"},
		{"infra around a boot error", nil, &vm.InfraError{Op: "boot", Err: &vm.BootError{Reason: "x"}}, Infra, "boot"},
		{"gave up and exited", &Report{Fail: &proto.Fail{Reason: proto.FailCheck, Text: "x"}}, fmt.Errorf("agent: %w", &vm.ExitError{Status: 1}), Untestable, "check: x"},
		{"exited without a word", &Report{}, &vm.ExitError{Status: 2}, Infra, "status 2"},
		{"anything else", nil, errors.New("disk full"), Infra, "disk full"},
	} {
		o := Of(c.rep, c.err)
		if o.Status != c.want || !strings.Contains(o.Reason, c.reason) || c.reason == "" && o.Reason != "" {
			t.Errorf("%s: %+v, want %s %q", c.name, o, c.want, c.reason)
		}
		if (len(o.Values) > 0) != (c.want == OK || c.want == Timeout) {
			t.Errorf("%s: values %v", c.name, o.Values)
		}
	}
	if o := Of(nil, &vm.TimeoutError{Limit: time.Minute}); o.Limit != time.Minute {
		t.Errorf("limit %v", o.Limit)
	}
}

func TestValues(t *testing.T) {
	o := Of(report(), nil)
	for name, want := range map[string]float64{
		"elapsed": 8e9, "stuck": 0, "delete.p50": 2e6, "delete.p90": 3e6, "delete.p99": 9e6,
		"delete.max": 11e6, "delete.min": 1e6, "delete.mean": 2.5e6, "delete.n": 100,
	} {
		v, err := o.Value(name)
		if err != nil || v.Number != want || v.Censored {
			t.Errorf("%s = %+v, %v; want %g", name, v, err, want)
		}
	}
	if len(o.Values) != 9 {
		t.Errorf("%d values", len(o.Values))
	}
	if v := o.Values["delete.n"]; v.Unit != proto.Count {
		t.Errorf("delete.n has unit %s", v.Unit)
	}
	_, err := o.Value("delete.p98")
	var no *NoValueError
	if !errors.As(err, &no) || no.Nearest == "" {
		t.Errorf("error %v", err)
	}
}

func TestCensoredDist(t *testing.T) {
	for censored, want := range map[int64]string{
		0:   "",
		1:   "max mean",
		2:   "p99 max mean",
		11:  "p90 p99 max mean",
		51:  "p50 p90 p99 max mean",
		100: "p50 p90 p99 max min mean",
	} {
		r := report()
		r.Dists[0].Censored = censored
		o := Of(r, nil)
		var got []string
		for _, s := range Stats() {
			if o.Values["delete."+s].Censored {
				got = append(got, s)
			}
		}
		if s := strings.Join(got, " "); s != want {
			t.Errorf("%d censored: %q, want %q", censored, s, want)
		}
	}
}

func TestOutcomeJSON(t *testing.T) {
	in := Of(report(), nil)
	b, err := json.Marshal(in)
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(b), `"status":"ok"`) {
		t.Errorf("%s", b)
	}
	var out Outcome
	if err := json.Unmarshal(b, &out); err != nil {
		t.Fatal(err)
	}
	if out.Status != OK || out.Values["delete.p99"] != in.Values["delete.p99"] {
		t.Errorf("%+v", out)
	}
	if err := json.Unmarshal([]byte(`{"status":"fine"}`), &out); err == nil {
		t.Error("an unknown status was read")
	}
	if _, err := json.Marshal(Status(99)); err == nil {
		t.Error("an unknown status was written")
	}
}

func TestFormat(t *testing.T) {
	for _, c := range []struct {
		n    float64
		unit proto.Unit
		cens bool
		want string
	}{
		{15.6e9, proto.Nanoseconds, false, "15.6 s"},
		{40e6, proto.Nanoseconds, false, "40 ms"},
		{60e9, proto.Nanoseconds, true, ">60 s"},
		{999.9e3, proto.Nanoseconds, false, "1 ms"},
		{131.03e9, proto.Nanoseconds, false, "131 s"},
		{1234567e9, proto.Nanoseconds, false, "1230000 s"},
		{0, proto.Nanoseconds, false, "0 ns"},
		{3.14159, proto.Nanoseconds, false, "3.14 ns"},
		{2.613e6, proto.PerSecond, false, "2.61 M/s"},
		{12, proto.PerSecond, false, "12 /s"},
		{1321, proto.Count, false, "1321"},
		{16384, proto.Count, false, "16384"},
		{1234567, proto.Count, false, "1.23 M"},
		{250, proto.PerMillion, false, "250 ppm"},
		{1 << 20, proto.Bytes, false, "1 MiB"},
		{512, proto.Bytes, false, "512 B"},
		{-40e6, proto.Nanoseconds, false, "-40 ms"},
		{7, "parsec", false, "7"},
	} {
		if got := Format(Value{Number: c.n, Unit: c.unit, Censored: c.cens}); got != c.want {
			t.Errorf("%g %s: %q, want %q", c.n, c.unit, got, c.want)
		}
	}
	if got := PacketRate(2.613e6); got != "2.61 Mpps" {
		t.Errorf("packet rate %q", got)
	}
	if got := PacketRate(12); got != "12 pps" {
		t.Errorf("packet rate %q", got)
	}
}
