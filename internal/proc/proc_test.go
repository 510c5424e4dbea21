package proc

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"
)

// helperEnv makes the test binary act as a kbisect that starts a family and
// waits for it.
const helperEnv = "KBISECT_PROC_TEST_HELPER"

// family prints the pids of itself, of a child and of a grandchild that ignores
// polite signals, and never ends.
const family = `trap '' HUP INT TERM
sh -c 'trap "" HUP INT TERM; sleep 600 & echo $$ $!; wait' &
echo $$ $!
wait`

func TestMain(m *testing.M) {
	switch os.Getenv(helperEnv) {
	case "family":
		c := Command(context.Background(), "/bin/sh", "-c", family)
		c.Stdout = os.Stdout
		fmt.Fprintln(os.Stderr, c.Run())
		os.Exit(1)
	case "starter":
		startForEver()
	}
	goleak.VerifyTestMain(m)
}

// startForEver starts children as fast as it can, so that a SIGKILL hits it
// between fork and exec with some probability.
func startForEver() {
	fmt.Println("ready")
	for {
		c := Command(context.Background(), "sleep", os.Getenv("KBISECT_PROC_TEST_TAG"))
		if err := c.Start(); err != nil {
			panic(err)
		}
		time.AfterFunc(5*time.Millisecond, func() { _ = c.Kill(); _ = c.Wait() })
	}
}

// alive reports whether pid exists and is not a zombie.
func alive(pid int) bool {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return false
	}
	state, _, _ := parseStat(stat)
	return state != 'Z' && state != 'X'
}

// eventually waits up to ten seconds for ok.
func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(10 * time.Second); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
		if ok() {
			return
		}
	}
	t.Fatalf("%s: not within 10s", what)
}

// readPids reads n lines of pids.
func readPids(t *testing.T, r io.Reader, n int) []int {
	t.Helper()
	var pids []int
	sc := bufio.NewScanner(r)
	for ; n > 0 && sc.Scan(); n-- {
		for _, f := range strings.Fields(sc.Text()) {
			pid, err := strconv.Atoi(f)
			if err != nil {
				t.Fatalf("pid %q: %v", f, err)
			}
			pids = append(pids, pid)
		}
	}
	if n > 0 {
		t.Fatalf("%d lines of pids missing: %v", n, sc.Err())
	}
	return pids
}

func TestParentKilled(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	helper := exec.Command(self)
	helper.Env = append(os.Environ(), helperEnv+"=family")
	out, err := helper.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := helper.Start(); err != nil {
		t.Fatal(err)
	}
	pids := readPids(t, out, 2)
	for _, p := range pids {
		if !alive(p) {
			t.Errorf("pid %d dead before the parent was killed", p)
		}
	}
	_ = helper.Process.Signal(syscall.SIGKILL)
	_ = helper.Wait()
	for _, p := range pids {
		eventually(t, fmt.Sprintf("death of %d", p), func() bool { return !alive(p) })
	}
}

// tagged returns the living processes whose command line has the word tag.
func tagged(tag string) []string {
	var found []string
	dirs, _ := os.ReadDir("/proc")
	for _, d := range dirs {
		b, err := os.ReadFile("/proc/" + d.Name() + "/cmdline")
		if err == nil && strings.Contains(string(b), "\x00"+tag+"\x00") {
			found = append(found, d.Name())
		}
	}
	return found
}

func TestParentKilledWhileStarting(t *testing.T) {
	rounds := 20
	if testing.Short() {
		rounds = 3
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	tag := fmt.Sprintf("60%d", os.Getpid())
	for i := range rounds {
		helper := exec.Command(self)
		helper.Env = append(os.Environ(), helperEnv+"=starter", "KBISECT_PROC_TEST_TAG="+tag)
		out, err := helper.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := helper.Start(); err != nil {
			t.Fatal(err)
		}
		if _, err := io.ReadFull(out, make([]byte, len("ready\n"))); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Duration(7+i*3) * time.Millisecond)
		_ = helper.Process.Signal(syscall.SIGKILL)
		_ = helper.Wait()
		eventually(t, "death of all children", func() bool { return len(tagged(tag)) == 0 })
	}
}

func TestWaitLeavesNothing(t *testing.T) {
	c := Command(context.Background(), "/bin/sh", "-c",
		`sh -c 'trap "" TERM; sleep 600 & echo $$ $!; wait' & read line; echo $$; exit 3`)
	stdin, err := c.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := c.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	pids := readPids(t, out, 1)
	pgid := c.guard.Process.Pid
	fmt.Fprintln(stdin, "go")
	// Reading to the end must not hang although sleep holds the pipe.
	if _, err := io.ReadAll(out); err != nil {
		t.Fatal(err)
	}
	var exit *exec.ExitError
	if err := c.Wait(); !errors.As(err, &exit) || exit.ExitCode() != 3 {
		t.Errorf("Wait = %v, want exit status 3", err)
	}
	if err := c.Kill(); !errors.Is(err, os.ErrProcessDone) {
		t.Errorf("Kill after Wait = %v, want ErrProcessDone", err)
	}
	for _, p := range append(pids, pgid) {
		if alive(p) {
			t.Errorf("pid %d still alive after Wait", p)
		}
	}
}

func TestCancel(t *testing.T) {
	for _, tt := range []struct {
		name, script string
		signal       syscall.Signal
		delay        time.Duration
		want         error
		output       string
	}{
		{"graceful", `trap 'echo bye; exit 0' TERM; echo up; while :; do sleep 0.01; done`, syscall.SIGTERM, 30 * time.Second, nil, "up\nbye\n"},
		{"other signal", `trap 'echo int; exit 4' INT; echo up; while :; do sleep 0.01; done`, syscall.SIGINT, 30 * time.Second, nil, "up\nint\n"},
		{"stubborn", `trap '' TERM; echo up; sleep 600`, syscall.SIGTERM, 50 * time.Millisecond, context.Canceled, "up\n"},
		{"at once", `trap '' TERM; echo up; sleep 600`, syscall.SIGKILL, 30 * time.Second, context.Canceled, "up\n"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			ctx, cancel := context.WithCancel(context.Background())
			defer cancel()
			c := Command(ctx, "/bin/sh", "-c", tt.script)
			c.Signal, c.WaitDelay = tt.signal, tt.delay
			out, err := c.StdoutPipe()
			if err != nil {
				t.Fatal(err)
			}
			if err := c.Start(); err != nil {
				t.Fatal(err)
			}
			br := bufio.NewReader(out)
			first, _ := br.ReadString('\n')
			cancel()
			rest, _ := io.ReadAll(br)
			err = c.Wait()
			if tt.want != nil && err == nil {
				t.Errorf("Wait = nil, want an error")
			}
			if diff := cmp.Diff(tt.output, first+string(rest)); diff != "" {
				t.Errorf("output (-want +got):\n%s", diff)
			}
		})
	}
}

func TestStartErrors(t *testing.T) {
	if err := Command(context.Background(), "kbisect-no-such-program").Run(); !errors.Is(err, exec.ErrNotFound) {
		t.Errorf("missing program: %v, want ErrNotFound", err)
	}
	if err := Command(context.Background(), "/etc/passwd").Run(); !errors.Is(err, os.ErrPermission) {
		t.Errorf("not executable: %v, want ErrPermission", err)
	}
	c := Command(context.Background(), "true")
	c.Dir = "/kbisect-no-such-folder"
	if err := c.Run(); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("missing folder: %v, want ErrNotExist", err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if err := Command(ctx, "true").Run(); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v, want Canceled", err)
	}
	if err := Command(context.Background(), "true").Wait(); err == nil {
		t.Error("Wait before Start: no error")
	}
}

func TestOutput(t *testing.T) {
	out, err := Command(context.Background(), "/bin/sh", "-c", "echo out; echo err >&2; exit 2").Output()
	var exit *exec.ExitError
	if !errors.As(err, &exit) || string(exit.Stderr) != "err\n" || string(out) != "out\n" {
		t.Errorf("Output = %q, %v", out, err)
	}
	out, err = Command(context.Background(), "/bin/sh", "-c", "echo a; echo b >&2").CombinedOutput()
	if err != nil || string(out) != "a\nb\n" {
		t.Errorf("CombinedOutput = %q, %v", out, err)
	}
}

func TestExtraFiles(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	c := Command(context.Background(), "/bin/sh", "-c", "echo through >&3")
	c.ExtraFiles = []*os.File{w}
	err = c.Run()
	w.Close()
	got, _ := io.ReadAll(r) // ends only if neither guard nor child kept w
	if err != nil || string(got) != "through\n" {
		t.Errorf("got %q, %v", got, err)
	}
}

func TestEnds(t *testing.T) {
	e := &ends{limit: 4}
	for _, s := range []string{"ab", "cdef", "ghij", "k"} {
		if n, err := e.Write([]byte(s)); n != len(s) || err != nil {
			t.Fatalf("Write = %d, %v", n, err)
		}
	}
	want := "abcd\n... 3 bytes left out ...\nhijk"
	if diff := cmp.Diff(want, string(e.Bytes())); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestParseStat(t *testing.T) {
	for _, tt := range []struct {
		in    string
		state byte
		pgrp  int
		ok    bool
	}{
		{"12 (sh) S 1 34 34 0", 'S', 34, true},
		{"12 (a) Z 9) b) Z 1 77 34 0", 'Z', 77, true},
		{"12 sh S 1 34", 0, 0, false},
		{"12 (sh) S", 0, 0, false},
		{"", 0, 0, false},
	} {
		state, pgrp, ok := parseStat([]byte(tt.in))
		if ok != tt.ok || ok && (state != tt.state || pgrp != tt.pgrp) {
			t.Errorf("parseStat(%q) = %c %d %v", tt.in, state, pgrp, ok)
		}
	}
}

func TestQuote(t *testing.T) {
	for _, tt := range []struct {
		argv []string
		want string
	}{
		{nil, ""},
		{[]string{"ls", "-l", "/a/b.c"}, "ls -l /a/b.c"},
		{[]string{"a b", "", "it's"}, `'a b' '' 'it'\''s'`},
		{[]string{"console=ttyS0 quiet", "$x", "~"}, `'console=ttyS0 quiet' '$x' '~'`},
	} {
		if got := Quote(tt.argv); got != tt.want {
			t.Errorf("Quote(%q) = %s, want %s", tt.argv, got, tt.want)
		}
	}
}

// FuzzQuote lets a real shell read the line back.
func FuzzQuote(f *testing.F) {
	f.Add("plain", "a b'c\"$(x)`y`\n\\")
	f.Add("", "*?[~#=")
	f.Fuzz(func(t *testing.T, a, b string) {
		if strings.Contains(a+b, "\x00") {
			t.Skip("no argument holds a NUL")
		}
		line := Quote([]string{"printf", `%s\0`, a, b})
		out, err := exec.Command("/bin/sh", "-c", line).Output()
		if want := a + "\x00" + b + "\x00"; err != nil || string(out) != want {
			t.Errorf("%s printed %q, %v; want %q", line, out, err, want)
		}
	})
}

// BenchmarkRun shows what the guard adds: compare with BenchmarkExec.
func BenchmarkRun(b *testing.B) {
	for b.Loop() {
		if err := Command(context.Background(), "/bin/true").Run(); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkExec is os/exec alone.
func BenchmarkExec(b *testing.B) {
	for b.Loop() {
		if err := exec.Command("/bin/true").Run(); err != nil {
			b.Fatal(err)
		}
	}
}
