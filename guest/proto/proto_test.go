package proto

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"testing/iotest"
)

// stream writes a whole valid stream.
func stream(t testing.TB) string {
	t.Helper()
	var b bytes.Buffer
	var at int64
	w := NewWriter(&b, func() int64 { at++; return at })
	for _, err := range []error{
		w.Hello(Hello{Workload: "netdev-delete", Params: map[string]string{"count": "3"}, Release: "6.1.192", CPUs: 2, HZ: 250, ResolutionNS: 20}),
		w.Phase("delete"),
		w.Progress(2, 3),
		w.Metric(Metric{Name: "elapsed", Unit: Nanoseconds, Better: Lower, Value: 60}),
		w.Metric(Metric{Name: "create", Unit: Nanoseconds, Better: Lower, Value: 5, Censored: true}),
		w.Dist(Dist{Name: "delete", Unit: Nanoseconds, Better: Lower, N: 3, Min: 10, P50: 20, P90: 30, P99: 30, Max: 30, Sum: 60, Samples: []int64{10, 20, 30}}),
		w.Check(Check{Name: "devices left", OK: true}),
		w.Done("n1", 3),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	return b.String()
}

func TestCollectWholeStream(t *testing.T) {
	kinds := []Kind{}
	rep, err := Collect(iotest.OneByteReader(strings.NewReader(stream(t))), "n1", func(r Record) { kinds = append(kinds, r.Kind) })
	if err != nil {
		t.Fatal(err)
	}
	if rep.Hello.Workload != "netdev-delete" || rep.Done == nil || rep.Done.Ops != 3 || rep.Fail != nil {
		t.Errorf("report %+v", rep)
	}
	if len(rep.Metrics) != 2 || rep.Metrics[0].Name != "create" || !rep.Metrics[0].Censored {
		t.Errorf("metrics are not sorted by name: %+v", rep.Metrics)
	}
	if len(rep.Dists) != 1 || rep.Dists[0].P90 != 30 || len(rep.Checks) != 1 {
		t.Errorf("report %+v", rep)
	}
	if got := fmt.Sprint(kinds); got != "[hello phase progress metric metric dist check done]" {
		t.Errorf("on was called with %s", got)
	}
}

func TestCollectFail(t *testing.T) {
	var b bytes.Buffer
	if err := NewWriter(&b, func() int64 { return 0 }).Fail(FailUnsupported, "no \x1b[31mdummy\x00"); err != nil {
		t.Fatal(err)
	}
	rep, err := Collect(&b, "n1", nil)
	if err != nil || rep.Fail == nil || rep.Fail.Reason != FailUnsupported {
		t.Fatalf("report %+v, %v", rep, err)
	}
	if strings.ContainsAny(rep.Fail.Text, "\x1b\x00") {
		t.Errorf("control characters came through: %q", rep.Fail.Text)
	}
}

const (
	hello  = `{"v":1,"k":"hello","t":1,"hello":{"workload":"w","params":{},"cpus":2,"resolution_ns":1}}` + "\n"
	metric = `{"v":1,"k":"metric","t":1,"metric":{"name":"m","unit":"ns","better":"lower","value":1}}` + "\n"
	done   = `{"v":1,"k":"done","t":1,"done":{"nonce":"n1","ops":1}}` + "\n"
)

func dist(fields string) string {
	return `{"v":1,"k":"dist","t":1,"dist":{"name":"d","unit":"ns","better":"lower",` + fields + `}}` + "\n"
}

func TestCollectRefuses(t *testing.T) {
	for name, c := range map[string]struct {
		stream string
		want   error
	}{
		"nothing":               {"", ErrNoDone},
		"no done":               {hello + metric, ErrNoDone},
		"cut done":              {hello + metric + strings.TrimSuffix(done, "\n"), ErrGarbage},
		"another nonce":         {hello + metric + strings.Replace(done, "n1", "n2", 1), ErrNonce},
		"no hello":              {metric + done, ErrGarbage},
		"two hellos":            {hello + hello + metric + done, ErrGarbage},
		"after done":            {hello + metric + done + metric, ErrGarbage},
		"text":                  {"Kernel panic - not syncing\n", ErrGarbage},
		"empty line":            {hello + "\n" + metric + done, ErrGarbage},
		"two values":            {hello + strings.TrimSuffix(metric, "\n") + metric + done, ErrGarbage},
		"version":               {strings.Replace(hello, `"v":1`, `"v":2`, 1), ErrVersion},
		"kind":                  {hello + `{"v":1,"k":"reboot","t":1}` + "\n", ErrGarbage},
		"field":                 {hello + `{"v":1,"k":"phase","t":1,"phase":"a","x":1}` + "\n", ErrGarbage},
		"field of another kind": {hello + `{"v":1,"k":"phase","t":1,"phase":"a","progress":{"done":1,"total":1}}` + "\n", ErrGarbage},
		"field missing":         {hello + `{"v":1,"k":"metric","t":1}` + "\n", ErrGarbage},
		"time went back":        {strings.Replace(hello, `"t":1`, `"t":2`, 1) + metric + done, ErrGarbage},
		"negative metric":       {hello + strings.Replace(metric, `"value":1`, `"value":-1`, 1), ErrGarbage},
		"infinite metric":       {hello + strings.Replace(metric, `"value":1`, `"value":1e999`, 1), ErrGarbage},
		"NaN metric":            {hello + strings.Replace(metric, `"value":1`, `"value":NaN`, 1), ErrGarbage},
		"unit":                  {hello + strings.Replace(metric, `"ns"`, `"ms"`, 1), ErrGarbage},
		"direction":             {hello + strings.Replace(metric, `lower`, `left`, 1), ErrGarbage},
		"metric name":           {hello + strings.Replace(metric, `"m"`, `"M\u001b"`, 1), ErrGarbage},
		"same metric twice":     {hello + metric + metric + done, ErrGarbage},
		"no metric":             {hello + done, ErrGarbage},
		"no operations":         {hello + metric + strings.Replace(done, `"ops":1`, `"ops":0`, 1), ErrGarbage},
		"progress over total":   {hello + `{"v":1,"k":"progress","t":1,"progress":{"done":2,"total":1}}` + "\n", ErrGarbage},
		"done after bad check":  {hello + metric + `{"v":1,"k":"check","t":1,"check":{"name":"c","want":1,"got":0,"ok":false}}` + "\n" + done, ErrGarbage},
		"dist order":            {hello + dist(`"n":2,"min":1,"p50":5,"p90":4,"p99":6,"max":6,"sum":7`), ErrGarbage},
		"dist above max":        {hello + dist(`"n":2,"min":1,"p50":5,"p90":5,"p99":7,"max":6,"sum":7`), ErrGarbage},
		"dist empty":            {hello + dist(`"n":0,"min":0,"p50":0,"p90":0,"p99":0,"max":0,"sum":0`), ErrGarbage},
		"dist sum":              {hello + dist(`"n":2,"min":5,"p50":5,"p90":5,"p99":5,"max":5,"sum":9`), ErrGarbage},
		"dist sum overflow":     {hello + dist(`"n":9000000000000000000,"min":9000000000000000000,"p50":9000000000000000000,"p90":9000000000000000000,"p99":9000000000000000000,"max":9000000000000000000,"sum":1`), ErrGarbage},
		"dist samples":          {hello + dist(`"n":2,"min":1,"p50":2,"p90":2,"p99":2,"max":2,"sum":3,"samples":[1,1]`), ErrGarbage},
		"dist many samples":     {hello + dist(`"n":1,"min":1,"p50":1,"p90":1,"p99":1,"max":1,"sum":1,"samples":[1,1]`), ErrGarbage},
		"fail reason":           {`{"v":1,"k":"fail","t":1,"fail":{"reason":"mood","text":""}}` + "\n", ErrGarbage},
		"long line":             {hello + strings.Repeat("x", MaxLine+1), ErrTooMuch},
		"endless line":          {strings.Repeat(" ", 3*MaxLine), ErrTooMuch},
		"names":                 {hello + manyMetrics(MaxNames+1), ErrTooMuch},
		"records":               {hello + strings.Repeat(`{"v":1,"k":"phase","t":1,"phase":"a"}`+"\n", MaxRecords), ErrTooMuch},
		"text too long":         {hello + `{"v":1,"k":"phase","t":1,"phase":"` + strings.Repeat("a", MaxText+1) + `"}` + "\n", ErrGarbage},
		"CPUs":                  {strings.Replace(hello, `"cpus":2`, `"cpus":0`, 1), ErrGarbage},
	} {
		t.Run(name, func(t *testing.T) {
			rep, err := Collect(strings.NewReader(c.stream), "n1", nil)
			if !errors.Is(err, c.want) {
				t.Fatalf("got %v, want %v", err, c.want)
			}
			if rep == nil || rep.Done != nil && name != "after done" {
				t.Errorf("report %+v", rep)
			}
			if len(err.Error()) > 1000 {
				t.Errorf("the error is %d bytes long", len(err.Error()))
			}
		})
	}
}

func manyMetrics(n int) string {
	var b strings.Builder
	for i := range n {
		b.WriteString(strings.Replace(metric, `"m"`, fmt.Sprintf(`"m%d"`, i), 1))
	}
	return b.String()
}

func TestGarbageErrorNamesTheLine(t *testing.T) {
	_, err := Collect(strings.NewReader(hello+"\x1b[2Jhello\n"), "n1", nil)
	var ge *GarbageError
	if !errors.As(err, &ge) || ge.Line != 2 || strings.Contains(err.Error(), "\x1b") {
		t.Errorf("got %q", err)
	}
}

func TestReaderError(t *testing.T) {
	boom := errors.New("boom")
	if _, err := Collect(iotest.ErrReader(boom), "n1", nil); !errors.Is(err, boom) || errors.Is(err, ErrGarbage) {
		t.Errorf("got %v, want the reader's own error", err)
	}
}

func TestWriterRefusesWhatAHostWould(t *testing.T) {
	w := NewWriter(io.Discard, func() int64 { return 1 })
	if err := w.Metric(Metric{Name: "elapsed", Unit: "ms", Better: Lower, Value: 1}); err == nil {
		t.Error("a metric in ms was written")
	}
	if err := w.Done("n", 0); err == nil {
		t.Error("a done without operations was written")
	}
}

func TestCleanText(t *testing.T) {
	long := CleanText(strings.Repeat("é", MaxText))
	if len(long) > MaxText || !strings.HasSuffix(long, "...") || validText("x", long) != nil {
		t.Errorf("long text became %d bytes", len(long))
	}
	if got := CleanText("a\x1bb\xffc\nd"); got != "a?b?c\nd" {
		t.Errorf("got %q", got)
	}
}

func FuzzCollect(f *testing.F) {
	f.Add([]byte(stream(f)))
	f.Add([]byte(hello + metric + done))
	f.Add([]byte(hello + dist(`"n":2,"min":1,"p50":1,"p90":2,"p99":2,"max":2,"sum":3,"samples":[1,2]`) + done))
	f.Fuzz(func(t *testing.T, b []byte) {
		rep, err := Collect(bytes.NewReader(b), "n1", nil)
		if rep == nil {
			t.Fatal("no report")
		}
		if err != nil {
			return
		}
		// Whatever was accepted can be written again, and says the same.
		if (rep.Done == nil) == (rep.Fail == nil) {
			t.Fatal("neither or both of done and fail")
		}
		if _, err := json.Marshal(rep); err != nil {
			t.Fatal(err)
		}
	})
}
