package console

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"github.com/kbisect/kbisect/vm"
)

// collect returns options that append events to a slice.
func collect(events *[]vm.Event) Options {
	return Options{Notify: func(e vm.Event) { *events = append(*events, e) }}
}

// TestGolden feeds each excerpt in pieces of several sizes. A wanted event is
// its kind and a part of its line.
func TestGolden(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txt")
	if err != nil || len(files) < 9 {
		t.Fatalf("%d files, %v", len(files), err)
	}
	for _, f := range files {
		text, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		input, want, ok := strings.Cut(string(text), "-- events\n")
		if !ok {
			t.Fatalf("%s: no events", f)
		}
		for _, size := range []int{1, 7, 64 << 10} {
			t.Run(fmt.Sprintf("%s/%d", filepath.Base(f), size), func(t *testing.T) {
				var events []vm.Event
				l := New(collect(&events))
				feed(l, strings.ReplaceAll(input, "\n", "\r\n"), size)
				checkEvents(t, events, strings.Split(strings.TrimSpace(want), "\n"))
			})
		}
	}
}

func feed(l *Log, s string, size int) {
	for len(s) > 0 {
		n := min(size, len(s))
		_, _ = l.Write([]byte(s[:n]))
		s = s[n:]
	}
}

func checkEvents(t *testing.T, events []vm.Event, want []string) {
	t.Helper()
	if len(want) == 1 && want[0] == "" {
		want = nil
	}
	for i, w := range want {
		kind, part, _ := strings.Cut(w, ": ")
		if i >= len(events) {
			t.Errorf("no event for %q", w)
			continue
		}
		if e := events[i]; string(e.Kind) != kind || !strings.Contains(e.Line, part) {
			t.Errorf("event %d = %s %q, want %q", i, e.Kind, e.Line, w)
		}
	}
	for _, e := range events[min(len(want), len(events)):] {
		t.Errorf("unwanted event %s %q", e.Kind, e.Line)
	}
}

func TestReady(t *testing.T) {
	for _, line := range []string{Ready + "\r\n", "[    0.800000] " + Ready + "\n"} {
		l := New(Options{})
		feed(l, "booting\n"+strings.TrimSpace(line), 3)
		select {
		case <-l.Ready():
			t.Error("ready before the end of the line")
		default:
		}
		feed(l, "\n", 1)
		feed(l, line, 5) // a second time is no panic
		select {
		case <-l.Ready():
		default:
			t.Errorf("%q: not ready", line)
		}
	}
	l := New(Options{})
	feed(l, "x "+Ready+"\n", 100)
	select {
	case <-l.Ready():
		t.Error("the marker inside a line counted")
	default:
	}
}

func TestFileBound(t *testing.T) {
	path := filepath.Join(t.TempDir(), "console.log")
	var events []vm.Event
	o := collect(&events)
	o.MaxFile = 100
	l, err := Create(path, o)
	if err != nil {
		t.Fatal(err)
	}
	feed(l, strings.Repeat("0123456789abcde\n", 1000), 33)
	feed(l, "Kernel panic - not syncing: seen all the same\n", 33)
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	want := strings.Repeat("0123456789abcde\n", 7)[:100] + "\n[kbisect: console passed 100 bytes; the rest is not kept]\n"
	if diff := cmp.Diff(want, string(got)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	checkEvents(t, events, []string{"console-flood: passed 100 bytes", "panic: seen all the same"})
	if l.Bytes() != 16046 {
		t.Errorf("Bytes = %d", l.Bytes())
	}
}

func TestFileErrors(t *testing.T) {
	if _, err := Create(filepath.Join(t.TempDir(), "no", "console.log"), Options{}); err == nil {
		t.Error("missing folder: no error")
	}
	l, err := Create("/dev/full", Options{})
	if err != nil {
		t.Skip("no /dev/full")
	}
	if n, err := l.Write([]byte("x\n")); n != 2 || err != nil {
		t.Errorf("Write = %d, %v: a full disk must not stop the guest", n, err)
	}
	if err := l.Close(); err == nil {
		t.Error("Close hid that the disk is full")
	}
	if got := l.Tail(); len(got) != 1 || got[0] != "x" {
		t.Errorf("Tail = %q", got)
	}
}

func TestTail(t *testing.T) {
	l := New(Options{})
	if got := l.Tail(); len(got) != 0 {
		t.Errorf("empty: %q", got)
	}
	for i := range 120 {
		feed(l, fmt.Sprintf("line %d\n", i), 100)
	}
	got := l.Tail()
	if len(got) != RingLines || got[0] != "line 70" || got[49] != "line 119" {
		t.Errorf("%d lines, %q ... %q", len(got), got[0], got[len(got)-1])
	}
	feed(l, "cut o", 100)
	got = l.Tail()
	if len(got) != RingLines || got[0] != "line 71" || got[49] != "cut o" {
		t.Errorf("%d lines, %q ... %q", len(got), got[0], got[len(got)-1])
	}
}

func TestSafe(t *testing.T) {
	for _, tt := range []struct{ in, want string }{
		{"plain\r", "plain"},
		{"\x1b[2J\x1b]0;owned\x07", `\x1b[2J\x1b]0;owned\x07`},
		{"a\tb\x00c\x7f", `a b\x00c\x7f`},
		{"\xff\xfe", `\xff\xfe`},
		{"grün", "grün"},
		{"\u202etxt\u009b1m", `\u202etxt\u009b1m`},
	} {
		if got := safe([]byte(tt.in)); got != tt.want {
			t.Errorf("safe(%q) = %q, want %q", tt.in, got, tt.want)
		}
	}
}

func TestLast(t *testing.T) {
	begin := time.Now().Add(-time.Hour)
	var events []vm.Event
	o := collect(&events)
	o.Start = begin
	l := New(o)
	if !l.Last().Equal(begin) {
		t.Errorf("Last before the first byte = %v", l.Last())
	}
	feed(l, "WARNING: x\n", 100)
	if time.Since(l.Last()) > time.Minute || events[0].At < time.Hour {
		t.Errorf("Last = %v, At = %v", l.Last(), events[0].At)
	}
}

// FuzzWrite checks every bound on whatever a guest prints, in two pieces.
func FuzzWrite(f *testing.F) {
	f.Add([]byte("[    0.1"), []byte("23456] WARNING: CPU: 0\r\n\x1b[0m"))
	f.Add(bytes.Repeat([]byte("\x00\xff"), 600), []byte("\n"))
	f.Fuzz(func(t *testing.T, a, b []byte) {
		var events []vm.Event
		o := collect(&events)
		o.MaxFile = 1000
		l := New(o)
		for _, p := range [][]byte{a, b} {
			if n, err := l.Write(p); n != len(p) || err != nil {
				t.Fatalf("Write = %d, %v", n, err)
			}
		}
		if l.Bytes() != int64(len(a)+len(b)) {
			t.Errorf("Bytes = %d", l.Bytes())
		}
		lines := l.Tail()
		for _, e := range events {
			lines = append(lines, e.Line)
		}
		for _, line := range lines {
			if len(line) > MaxLine || !utf8.ValidString(line) || strings.IndexFunc(line, func(r rune) bool { return !unicode.IsPrint(r) }) >= 0 {
				t.Errorf("unsafe line %q", line)
			}
		}
	})
}

// BenchmarkWrite is what a flood costs: bytes a second.
func BenchmarkWrite(b *testing.B) {
	chunk := []byte(strings.Repeat("[    1.234567] eth0: link becomes ready, and a bit more text\r\n", 64))
	l := New(Options{})
	b.SetBytes(int64(len(chunk)))
	for b.Loop() {
		_, _ = l.Write(chunk)
	}
}
