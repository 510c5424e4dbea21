package ui

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"
)

var update = flag.Bool("update", false, "rewrite the golden files in testdata")

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// clock is a time that tests move by hand.
type clock struct{ t time.Time }

func (c *clock) now() time.Time { return c.t }

// screen is a terminal as far as ui needs one: lines, "cursor up", "clear line".
// Anything else that begins with ESC fails the test.
type screen struct {
	t     *testing.T
	lines []string // the last one is the one with the cursor
	cols  int
}

func (s *screen) Write(p []byte) (int, error) {
	text := string(p)
	for text != "" {
		last := &s.lines[len(s.lines)-1]
		switch {
		case strings.HasPrefix(text, "\x1b[1A\x1b[2K"):
			text = text[len("\x1b[1A\x1b[2K"):]
			if *last != "" || len(s.lines) < 2 {
				s.t.Errorf("cursor up from a line with %q", *last)
			}
			s.lines = s.lines[:len(s.lines)-1]
			if gone := s.lines[len(s.lines)-1]; len([]rune(gone)) >= s.cols {
				s.t.Errorf("%q wraps: clearing its last row leaves the first", gone)
			}
			s.lines[len(s.lines)-1] = ""
		case text[0] == '\x1b':
			s.t.Fatalf("unknown escape sequence %q", text)
		case text[0] == '\n':
			s.lines, text = append(s.lines, ""), text[1:]
		default:
			*last, text = *last+text[:1], text[1:]
		}
	}
	return len(p), nil
}

func (s *screen) String() string { return strings.Join(s.lines, "\n") }

// story is the same for every form of output.
func story(u *UI, c *clock, mark func(string)) {
	wait := func(d time.Duration) {
		for range d / time.Second {
			c.t = c.t.Add(time.Second)
			u.tick()
		}
	}
	u.Info("kernel %s", "6.1.192")
	u.Debug("config has %d lines", 70)
	a := u.Stage("build 6.1.192")
	a.Set(0, 2400)
	wait(time.Second)
	mark("just begun")
	wait(24 * time.Second)
	a.Set(600, 2400)
	a.Note("CC net/core/dev.o\x1b[31m\nsecond line")
	wait(11 * time.Second)
	mark("a quarter")
	b := u.Stage("fetch debian:6.1")
	b.Set(12345, 0)
	u.Warn("disk %q is nearly full: 3 GiB", "/x\a")
	wait(11 * time.Second)
	mark("two stages")
	b.End(errors.New("no network"))
	b.End(nil)
	u.Hint("run `kbisect doctor`")
	a.Set(2400, 2400)
	a.End(nil)
	a.Set(1, 2)
	mark("ended")
	r := u.Stage("run with 1/6")
	w := u.Writer()
	fmt.Fprint(w, "Reading package lists...\rDone\nleft")
	w.Close()
	resume := u.Suspend()
	mark("suspended")
	resume()
	resume()
	wait(time.Second)
	mark("before the interrupt")
	u.Close()
	u.Info("never said")
	r.End(nil)
	u.Close()
	mark("closed")
}

func TestGolden(t *testing.T) {
	for name, o := range map[string]Options{
		"terminal": {Terminal: true},
		"quiet":    {Terminal: true, Quiet: true},
		"plain":    {},
		"verbose":  {Verbose: true},
		"json":     {JSON: true, Terminal: true},
	} {
		t.Run(name, func(t *testing.T) {
			c := &clock{time.Unix(1e9, 0)}
			s := &screen{t: t, lines: []string{""}, cols: 60}
			u := newUI(s, o, c.now)
			u.cols = func() int { return s.cols }
			var got strings.Builder
			story(u, c, func(what string) {
				if o.Terminal && !o.JSON {
					fmt.Fprintf(&got, "== %s\n%s", what, s)
				}
			})
			if got.Len() == 0 {
				got.WriteString(s.String())
			}
			golden(t, "testdata/"+name+".golden", got.String())
		})
	}
}

func golden(t *testing.T, path, got string) {
	t.Helper()
	if *update {
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(string(want), got); d != "" {
		t.Errorf("%s (rewrite with -update):\n%s", path, d)
	}
}

func TestNil(t *testing.T) {
	var u *UI
	u.Info("x")
	u.Warn("x")
	u.Hint("x")
	u.Debug("x")
	s := u.Stage("x")
	s.Set(1, 2)
	s.Note("x")
	s.End(nil)
	u.Suspend()()
	if n, err := u.Writer().Write([]byte("x\n")); n != 2 || err != nil {
		t.Error(n, err)
	}
	u.Close()
}

// lockedBuffer stands for stderr, which several goroutines may write to.
type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func TestConcurrent(t *testing.T) {
	var b lockedBuffer
	u := New(&b, Options{JSON: true, Verbose: true})
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Add(1)
		go func() {
			defer wg.Done()
			s := u.Stage(fmt.Sprint("stage ", i))
			for n := range int64(200) {
				s.Set(n, 200)
				s.Note("note")
				u.Info("message %d", n)
			}
			s.End(nil)
		}()
	}
	wg.Wait()
	u.Close()
	n := 0
	for line := range strings.Lines(b.b.String()) {
		n++
		var l Line
		if err := json.Unmarshal([]byte(line), &l); err != nil || l.Type == "" {
			t.Fatalf("%q: %v", line, err)
		}
	}
	if n != 8*(200+2) {
		t.Errorf("%d lines", n)
	}
}

// TestTicker sees the live line move by itself, on the real clock.
func TestTicker(t *testing.T) {
	var b lockedBuffer
	u := New(&b, Options{Terminal: true})
	u.Stage("boot")
	deadline := time.Now().Add(10 * time.Second)
	for {
		b.mu.Lock()
		n := strings.Count(b.b.String(), "boot: ")
		b.mu.Unlock()
		if n >= 3 {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal("the live line stands still")
		}
		time.Sleep(20 * time.Millisecond)
	}
	u.Close()
	if !strings.HasSuffix(b.b.String(), "\x1b[2K") {
		t.Errorf("the line was left: %q", b.b.String())
	}
}

func TestETA(t *testing.T) {
	c := &clock{time.Unix(1e9, 0)}
	u := newUI(&bytes.Buffer{}, Options{}, c.now)
	s := u.Stage("x")
	for _, tt := range []struct {
		after       time.Duration
		done, total int64
		want        time.Duration
	}{
		{time.Second, 50, 100, 0}, // too early
		{10 * time.Second, 1, 100, 0},
		{10 * time.Second, 50, 100, 10 * time.Second},
		{30 * time.Second, 75, 100, 10 * time.Second},
		{30 * time.Second, 100, 100, 0},
		{30 * time.Second, 120, 100, 0},
		{30 * time.Second, 5, 0, 0},
		{30 * time.Second, -5, 100, 0},
	} {
		c.t = s.begun.Add(tt.after)
		s.Set(tt.done, tt.total)
		if got := s.eta(); got != tt.want {
			t.Errorf("%v %d/%d: %v, want %v", tt.after, tt.done, tt.total, got, tt.want)
		}
	}
}

func FuzzPlain(f *testing.F) {
	f.Add("\x1b[31mred\x9b2J")
	f.Fuzz(func(t *testing.T, s string) {
		if strings.ContainsAny(Plain(s), "\x1b\r\b\a\x7f\u009b") {
			t.Errorf("%q", Plain(s))
		}
	})
}

func BenchmarkSet(b *testing.B) {
	u := New(&bytes.Buffer{}, Options{Terminal: true})
	defer u.Close()
	s := u.Stage("build")
	for i := 0; b.Loop(); i++ {
		s.Set(int64(i), 1<<40)
	}
}

// TestBytes: bytes are shown as people count them.
func TestBytes(t *testing.T) {
	s := &Stage{u: &UI{now: time.Now}, begun: time.Now()}
	s.done, s.total, s.bytes = 39856128, 137961112, true
	if got := s.status(); !strings.Contains(got, "38 MiB of 132 MiB (28 %)") {
		t.Errorf("got %q", got)
	}
}
