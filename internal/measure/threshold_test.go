package measure

import (
	"errors"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/kbisect/kbisect/guest/proto"
)

var defs = []Def{
	{Name: "elapsed", Unit: proto.Nanoseconds, Better: proto.Lower},
	{Name: "stuck", Unit: proto.Count, Better: proto.Lower},
	{Name: "rate", Unit: proto.PerSecond, Better: proto.Higher},
	{Name: "loss", Unit: proto.PerMillion, Better: proto.Lower},
	{Name: "memory", Unit: proto.Bytes, Better: proto.Lower},
	{Name: "delete", Unit: proto.Nanoseconds, Better: proto.Lower, Dist: true},
}

func TestParseThreshold(t *testing.T) {
	for _, c := range []struct {
		expr   string
		op     Op
		number float64
		unit   proto.Unit
		text   string // of String
	}{
		{"delete.p99>20ms", Greater, 20e6, proto.Nanoseconds, "delete.p99>20ms"},
		{"elapsed>2s", Greater, 2e9, proto.Nanoseconds, "elapsed>2s"},
		{"stuck>0", Greater, 0, proto.Count, "stuck>0"},
		{"  elapsed  >=  1.5 m ", GreaterEqual, 90e9, proto.Nanoseconds, "elapsed>=90s"},
		{"elapsed<0", Less, 0, proto.Nanoseconds, "elapsed<0ns"},
		{"elapsed<=100us", LessEqual, 1e5, proto.Nanoseconds, "elapsed<=100us"},
		{"rate<2.61M/s", Less, 2.61e6, proto.PerSecond, "rate<2610k/s"},
		{"rate<500k", Less, 5e5, proto.PerSecond, "rate<500k/s"},
		{"loss>10ppm", Greater, 10, proto.PerMillion, "loss>10ppm"},
		{"stuck>16_384", Greater, 16384, proto.Count, "stuck>16384"},
		{"stuck>3k", Greater, 3000, proto.Count, "stuck>3k"},
		{"memory>4MiB", Greater, 4 << 20, proto.Bytes, "memory>4MiB"},
		{"delete.n<100", Less, 100, proto.Count, "delete.n<100"},
		{"elapsed>0.5ns", Greater, 0.5, proto.Nanoseconds, "elapsed>0.5ns"},
	} {
		got, err := ParseThreshold(c.expr, defs)
		if err != nil {
			t.Errorf("%s: %v", c.expr, err)
			continue
		}
		if got.Op != c.op || got.Number != c.number || got.Unit != c.unit || got.String() != c.text {
			t.Errorf("%s: %+v (%s)", c.expr, got, got)
		}
	}
}

func TestParseThresholdErrors(t *testing.T) {
	for _, c := range []struct {
		expr string
		col  int
		want string
	}{
		{"", 1, "want a comparison"},
		{"elapsed", 8, "want a comparison"},
		{"elapsd>2s", 1, `did you mean "elapsed"`},
		{"zzz>2s", 1, "there are elapsed, stuck, rate, loss, memory, delete.p50"},
		{"  zzz>2s", 3, "no metric"},
		{"delete>2s", 7, "delete is a distribution: say which of delete.{p50,"},
		{"delete.p98>2s", 8, `did you mean "p9`},
		{"elapsed.p99>2s", 8, "single number"},
		{"elapsed=2s", 8, "want one of"},
		{"elapsed>2", 10, `unit "" does not fit; want ns, us, ms, s, m`},
		{"elapsed>2 parsec", 11, "parsec"},
		{"elapsed> ms", 10, "want a number"},
		{"elapsed>-2s", 9, "want a number"},
		{"elapsed>1.2.3s", 9, "not a number"},
		{"stuck>2s", 8, "does not fit"},
		{">2s", 1, "no metric"},
		{"elapsed>>2s", 9, "want a number"},
		{"émile>2s", 1, "no metric"},
		{strings.Repeat("a", 300) + ">2s", 1, "too long"},
		{"elapsed>" + strings.Repeat("9", 180) + "." + "s", 189, ""}, // large, but a number
	} {
		_, err := ParseThreshold(c.expr, defs)
		if c.want == "" {
			if err != nil {
				t.Errorf("%s: %v", c.expr, err)
			}
			continue
		}
		var syn *SyntaxError
		if !errors.As(err, &syn) {
			t.Errorf("%s: error %v", c.expr, err)
			continue
		}
		if syn.Column != c.col || !strings.Contains(syn.Text, c.want) {
			t.Errorf("%s: column %d %q, want %d %q", c.expr, syn.Column, syn.Text, c.col, c.want)
		}
		if lines := strings.Split(syn.Caret(), "\n"); len(lines[1]) != c.col {
			t.Errorf("%s: caret %q", c.expr, lines[1])
		}
	}
	if _, err := ParseMetric("delete.p99", defs); err != nil {
		t.Error(err)
	}
	if _, err := ParseMetric("delete.p99>", defs); err == nil {
		t.Error("a threshold was read as a metric")
	}
}

func TestAbove(t *testing.T) {
	elapsed := func(n float64, cens bool) Outcome {
		return Outcome{Status: OK, Values: map[string]Value{
			"elapsed": {Number: n, Unit: proto.Nanoseconds, Censored: cens},
		}}
	}
	hang := Outcome{Status: Timeout, Reason: "hang", Limit: time.Minute}
	crash := Outcome{Status: Crash, Reason: "panic", Values: map[string]Value{"elapsed": {Number: 1, Unit: proto.Nanoseconds}}}
	for _, c := range []struct {
		name string
		expr string
		o    Outcome
		bad  bool // TimeoutIsBad
		want string
	}{
		{"above", "elapsed>2s", elapsed(3e9, false), false, "true"},
		{"below", "elapsed>2s", elapsed(1e9, false), false, "false"},
		{"equal", "elapsed>2s", elapsed(2e9, false), false, "false"},
		{"equal or above", "elapsed>=2s", elapsed(2e9, false), false, "true"},
		{"less", "elapsed<2s", elapsed(1e9, false), false, "true"},
		{"equal or less", "elapsed<=2s", elapsed(2e9, false), false, "true"},
		{"stopped above", "elapsed>2s", elapsed(5e9, true), false, "true"},
		{"stopped at it", "elapsed>2s", elapsed(2e9, true), false, "true"},
		{"stopped below", "elapsed>2s", elapsed(1e9, true), false, "unknown"},
		{"stopped above, less wanted", "elapsed<2s", elapsed(5e9, true), false, "false"},
		{"stopped at it, less wanted", "elapsed<=2s", elapsed(2e9, true), false, "false"},
		{"stopped below, less wanted", "elapsed<2s", elapsed(1e9, true), false, "unknown"},
		{"hang is untestable", "elapsed>2s", hang, false, "none"},
		{"hang is bad", "elapsed>2s", hang, true, "true"},
		{"hang below the threshold", "elapsed>5m", hang, true, "unknown"},
		{"hang for a count", "stuck>0", hang, true, "true"},
		{"hang for a rate", "rate<1k/s", hang, true, "true"},
		{"hang for one operation", "delete.p99>2m", hang, true, "true"},
		{"crash is never slow", "elapsed>0", crash, true, "none"},
		{"not reported", "stuck>0", elapsed(1, false), true, "none"},
	} {
		th, err := ParseThreshold(c.expr, defs)
		if err != nil {
			t.Fatal(err)
		}
		th.TimeoutIsBad = c.bad
		above, err := th.Above(c.o)
		got := map[bool]string{true: "true", false: "false"}[above]
		var no *NoValueError
		switch {
		case errors.Is(err, ErrCensored):
			got = "unknown"
		case errors.As(err, &no):
			got = "none"
		case err != nil:
			got = err.Error()
		}
		if got != c.want {
			t.Errorf("%s: %s, want %s", c.name, got, c.want)
		}
	}
	th := Threshold{Metric: Metric{Name: "elapsed", Unit: proto.Count}, Op: Greater}
	if _, err := th.Above(elapsed(1, false)); err == nil {
		t.Error("different units were compared")
	}
}

func TestMetricOfTimeout(t *testing.T) {
	hang := Outcome{Status: Timeout, Limit: time.Minute, Values: map[string]Value{"insert": {Number: 7}}}
	for _, c := range []struct {
		m    Metric
		want Value
	}{
		{Metric{Name: "elapsed", Unit: proto.Nanoseconds, Better: proto.Lower}, Value{Number: 60e9, Unit: proto.Nanoseconds, Better: proto.Lower, Censored: true}},
		{Metric{Name: "delete.p99", Unit: proto.Nanoseconds, Better: proto.Lower}, Value{Unit: proto.Nanoseconds, Better: proto.Lower, Censored: true}},
		{Metric{Name: "rate", Unit: proto.PerSecond, Better: proto.Higher}, Value{Unit: proto.PerSecond, Better: proto.Higher}},
		{Metric{Name: "insert"}, Value{Number: 7}},
	} {
		if _, err := c.m.Of(hang); err == nil {
			t.Errorf("%s: a hang has a value", c.m.Name)
		}
		c.m.TimeoutIsBad = true
		if got, err := c.m.Of(hang); err != nil || got != c.want {
			t.Errorf("%s: %+v, %v", c.m.Name, got, err)
		}
	}
}

func FuzzParseThreshold(f *testing.F) {
	for _, s := range []string{"delete.p99>20ms", "elapsed>=2s", "stuck>0", "rate<1.5M/s", "x", ">", "elapsed>1e9s", "elapsed>é", " \t<=="} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, expr string) {
		th, err := ParseThreshold(expr, defs)
		if err != nil {
			var syn *SyntaxError
			if !errors.As(err, &syn) {
				t.Fatalf("%q: %T", expr, err)
			}
			if syn.Column < 1 || syn.Column > len(expr)+1 {
				t.Fatalf("%q: column %d", expr, syn.Column)
			}
			return
		}
		if th.Number < 0 || math.IsNaN(th.Number) || math.IsInf(th.Number, 0) {
			t.Fatalf("%q: number %g", expr, th.Number)
		}
		again, err := ParseThreshold(th.String(), defs)
		if err != nil && len(th.String()) <= maxExpr {
			t.Fatalf("%q -> %q: %v", expr, th, err)
		}
		if err == nil && (math.Abs(again.Number-th.Number) > 1e-12*th.Number || again.Metric != th.Metric || again.Op != th.Op) {
			t.Fatalf("%q -> %q: %+v, was %+v", expr, th, again, th)
		}
	})
}
