package host

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
)

// TestMain doubles as the process that dies with the host lock in its hands.
func TestMain(m *testing.M) {
	if dir := os.Getenv("KBISECT_HOST_CHILD"); dir != "" {
		if _, err := Lock(context.Background(), dir, "being a child", nil); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		fmt.Println("locked")
		time.Sleep(time.Minute)
	}
	goleak.VerifyTestMain(m)
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// fakeHost is a machine of shell scripts: bin is its PATH, repo what its
// package manager can install, log what was run.
type fakeHost struct {
	t    *testing.T
	dir  string
	opts Options
	err  bytes.Buffer
}

// newFake makes a host with every tool, whose package manager is pm ("" for
// none).
func newFake(t *testing.T, pm string, euid int) *fakeHost {
	t.Helper()
	f := &fakeHost{t: t, dir: t.TempDir()}
	for _, d := range []string{"bin", "repo", "root/dev", "root/etc", "root/var/lib/apt/lists", "root/proc/sys/kernel", "cache", "state", "fw"} {
		must(t, os.MkdirAll(filepath.Join(f.dir, d), 0o755))
	}
	f.file("root/var/lib/apt/lists/x_Packages.lz4", "", 0o644)
	f.file("root/proc/meminfo", "MemTotal: 8388608 kB\nMemAvailable: 4194304 kB\n", 0o644)
	f.file("root/proc/stat", "cpu 100 0 100 1000 0 0 0 0 0 0\n", 0o644)
	f.file("root/proc/loadavg", "0.10 0.1 0.1 1/2 3\n", 0o644)
	f.file("root/proc/cpuinfo", "model name\t: Fake CPU\nflags\t\t: fpu hypervisor\n", 0o644)
	f.file("root/proc/sys/kernel/osrelease", "6.1.0\n", 0o644)
	f.file("root/etc/os-release", "PRETTY_NAME=\"Fake Linux 1\"\n", 0o644)
	for _, name := range []string{"make", "ld", "flex", "bison", "bc", "bash", "awk", "cmp", "find", "git", "tar", "xz", "dpkg-deb", "ccache", "go", "perl", "patch"} {
		f.script(name, "echo "+name+" version 9.1")
	}
	f.script("gcc", `case "$*" in
--version) echo "gcc (Fake 1.2-3) 12.2.0";;
*-lelf*) test -e "$DIR/libelf";;
*) exit 0;;
esac`)
	f.file("libelf", "", 0o644)
	f.script(emulator, `case "$*" in
"-L help") echo "$DIR/fw"; echo /nowhere;;
*) echo "QEMU emulator version 7.2.22 (Fake 1:7.2+dfsg-7)";;
esac`)
	f.file("fw/qboot.rom", "", 0o644)
	if pm != "" {
		// Installs a package by running its script in repo; fails when there is
		// none, or as the file "broken" says.
		f.script(pm, `echo "`+pm+` $*" >>"$DIR/log"
echo "FRONTEND=$DEBIAN_FRONTEND" >>"$DIR/env"
echo "reading lists"
for a; do case "$a" in
update|makecache|refresh|-Sy) touch "$DIR/refreshed"; exit 0;;
-*|install|*=*) ;;
*) if ! test -e "$DIR/repo/$a"; then echo "E: Unable to locate package $a"; exit 100; fi
   . "$DIR/repo/$a";;
esac; done`)
	}
	f.opts = Options{CacheDir: filepath.Join(f.dir, "cache"), StateDir: filepath.Join(f.dir, "state"), Stderr: &f.err,
		sys: &system{path: filepath.Join(f.dir, "bin"), root: filepath.Join(f.dir, "root"), euid: euid}}
	return f
}

func (f *fakeHost) file(name, text string, mode os.FileMode) {
	f.t.Helper()
	must(f.t, os.WriteFile(filepath.Join(f.dir, name), []byte(text), mode))
}

// script makes a program of the fake host.
func (f *fakeHost) script(name, body string) {
	f.t.Helper()
	f.file("bin/"+name, "#!/bin/sh\nPATH=/usr/bin:/bin\nDIR='"+f.dir+"'\n"+body+"\n", 0o755)
}

// offers puts a package into the repository that brings programs.
func (f *fakeHost) offers(pkg, script string) { f.t.Helper(); f.file("repo/"+pkg, script, 0o644) }

func (f *fakeHost) remove(names ...string) {
	f.t.Helper()
	for _, n := range names {
		must(f.t, os.Remove(filepath.Join(f.dir, n)))
	}
}

func (f *fakeHost) log() string {
	b, err := os.ReadFile(filepath.Join(f.dir, "log"))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		f.t.Fatal(err)
	}
	return string(b)
}

func TestExamineAllThere(t *testing.T) {
	f := newFake(t, "apt-get", 0)
	r := Examine(t.Context(), f.opts)
	if !r.OK || r.Err() != nil {
		t.Errorf("missing: %v", r.Err())
	}
	for name, want := range map[string]string{
		"gcc":          "12.2.0 (" + f.dir + "/bin/gcc)",
		emulator:       "7.2.22 (" + f.dir + "/bin/" + emulator + ")",
		firmware:       f.dir + "/fw/qboot.rom",
		"libelf":       "found by gcc",
		"free memory":  "4.0 GiB",
		"accelerator":  "tcg: there is no /dev/kvm",
		"cache folder": f.dir + "/cache",
		"load":         "0.10, 0 % of time waiting for a CPU",
	} {
		if row, ok := r.Row(name); !ok || row.Found != want || row.Status == Missing {
			t.Errorf("%s: %+v, want %q", name, row, want)
		}
	}
	if want := (Fingerprint{CPU: "Fake CPU", CPUs: cpus(), MemoryMiB: 8192, Kernel: "6.1.0", Distribution: "Fake Linux 1", Virtual: true}); r.Host != want {
		t.Errorf("host %+v", r.Host)
	}
}

func TestExamineMissing(t *testing.T) {
	for pm, want := range map[string][3]string{
		"apt-get": {"apt-get install qemu-system-x86", "apt-get install libelf-dev", "apt-get install ccache"},
		"dnf":     {"dnf install qemu-system-x86-core", "dnf install elfutils-libelf-devel", "dnf install ccache"},
		"zypper":  {"zypper install qemu-x86", "zypper install libelf-devel", "zypper install ccache"},
		"pacman":  {"pacman -S qemu-system-x86", "pacman -S libelf", "pacman -S ccache"},
		"":        {"install " + emulator + " with your package manager", "install libelf with your package manager", "install ccache with your package manager"},
	} {
		f := newFake(t, pm, 0)
		f.remove("bin/"+emulator, "libelf", "bin/ccache")
		r := Examine(t.Context(), f.opts)
		if err := r.Err(); r.OK || !errors.Is(err, ErrMissing) || !strings.Contains(err.Error(), "libelf, qemu-system-x86_64, qboot.rom") {
			t.Errorf("%s: %v", pm, err)
		}
		for i, name := range []string{emulator, "libelf", "ccache"} {
			row, _ := r.Row(name)
			status := Missing
			if name == "ccache" {
				status = Optional
			}
			if row.Status != status || row.Fix != want[i] {
				t.Errorf("%s: %+v, want %q", pm, row, want[i])
			}
		}
	}
}

// TestWants: extras are brought only when asked for, and Go never is.
func TestWants(t *testing.T) {
	for _, tt := range []struct {
		row    Row
		extras bool
		want   bool
	}{
		{Row{Name: "make", Status: Missing}, false, true},
		{Row{Name: "make", Status: OK}, true, false},
		{Row{Name: "zstd", Status: Optional}, false, false},
		{Row{Name: "zstd", Status: Optional}, true, true},
		{Row{Name: "go", Status: Optional}, true, false},
	} {
		if got := (Options{Extras: tt.extras}).wants(tt.row); got != tt.want {
			t.Errorf("%+v, extras %v: %v", tt.row, tt.extras, got)
		}
	}
}

func TestExamineWarnings(t *testing.T) {
	f := newFake(t, "apt-get", 0)
	f.script("make", "echo GNU Make 3.82")
	f.script("git", "echo crash; exit 3")
	f.file("root/proc/meminfo", "MemAvailable: 1048576 kB\n", 0o644)
	f.file("root/proc/loadavg", "99.0 0.1 0.1 1/2 3\n", 0o644)
	f.file("notadir", "", 0o644)
	f.opts.StateDir = filepath.Join(f.dir, "notadir", "x")
	r := Examine(t.Context(), f.opts)
	for name, want := range map[string]Row{
		"make":         {Status: Warning, Fix: "4.0"},
		"git":          {Status: Warning, Fix: "exit status 3"},
		"free memory":  {Status: Warning, Fix: "end other programs"},
		"load":         {Status: Warning, Fix: "before measuring"},
		"state folder": {Status: Missing, Fix: "set XDG_STATE_HOME"},
	} {
		if row, _ := r.Row(name); row.Status != want.Status || !strings.Contains(row.Fix, want.Fix) {
			t.Errorf("%s: %+v, want %+v", name, row, want)
		}
	}
}

// TestRealHost examines the machine the test runs on.
func TestRealHost(t *testing.T) {
	dir := t.TempDir()
	o := Options{CacheDir: filepath.Join(dir, "c"), StateDir: filepath.Join(dir, "s")}
	start := time.Now()
	r := Examine(t.Context(), o)
	t.Logf("took %v", time.Since(start))
	var text, js bytes.Buffer
	must(t, r.Text(&text))
	must(t, r.JSON(&js))
	t.Logf("\n%s", &text)
	if err := r.Err(); err != nil {
		if testing.Short() {
			t.Skipf("%v", err)
		}
		t.Fatalf("%v", err)
	}
	var back Report
	must(t, json.Unmarshal(js.Bytes(), &back))
	if len(back.Rows) != len(r.Rows) || back.Host.CPU == "" || back.Host.Kernel == "" || back.Accel.Use == "" {
		t.Errorf("report %s", &js)
	}
	if row, _ := r.Row(firmware); !strings.HasSuffix(row.Found, "/qboot.rom") {
		t.Errorf("firmware %+v", row)
	}
}

func TestVersion(t *testing.T) {
	for in, want := range map[string]string{
		"gcc (Debian 12.2.0-14+deb12u1) 12.2.0\nCopyright": "12.2.0",
		"gcc (GCC) 14.2.1 20240801 (Red Hat 14.2.1-1)":     "14.2.1",
		"GNU ld (GNU Binutils for Debian) 2.40":            "2.40",
		"QEMU emulator version 7.2.22 (Debian 1:7.2+dfsg)": "7.2.22",
		"go version go1.26.8 linux/amd64":                  "1.26.8",
		"git version 2.39.5":                               "2.39.5",
		"no number":                                        "",
	} {
		if got := version(in); got != want {
			t.Errorf("%q: %q, want %q", in, got, want)
		}
	}
	for v, want := range map[string]bool{"7.9": true, "8.0.1": true, "8.1": false, "12.0": false, "": false, "x.y": false} {
		if older(v, [2]int{8, 1}) != want {
			t.Errorf("older(%q)", v)
		}
	}
}

func TestInstall(t *testing.T) {
	for _, tt := range []struct {
		pm    string
		euid  int
		log   string // of the package manager
		shown string
	}{
		{"apt-get", 0, "apt-get -o DPkg::Lock::Timeout=300 install -y --no-install-recommends flex libelf\n",
			"env DEBIAN_FRONTEND=noninteractive apt-get -o DPkg::Lock::Timeout=300 install -y --no-install-recommends flex libelf-dev"},
		{"apt-get", 1000, "", "sudo -n env DEBIAN_FRONTEND=noninteractive apt-get -o"},
		{"dnf", 0, "dnf install -y --setopt=install_weak_deps=False elfutils-libelf-devel flex\n", "dnf install -y"},
		{"dnf", 1000, "", "sudo -n dnf install"},
		{"zypper", 0, "zypper --non-interactive install --no-recommends flex libelf-devel\n", "zypper --non-interactive"},
		{"zypper", 1000, "", "sudo -n zypper"},
		{"pacman", 0, "pacman -S --noconfirm --needed flex libelf\n", "pacman -S"},
		{"pacman", 1000, "", "sudo -n pacman -S"},
	} {
		t.Run(fmt.Sprint(tt.pm, tt.euid), func(t *testing.T) {
			f := newFake(t, tt.pm, tt.euid)
			f.script("sudo", `echo "sudo $1" >>"$DIR/sudo.log"; test "$1" = -n && shift; export PATH; exec "$@"`)
			f.remove("bin/flex", "libelf")
			f.offers("flex", `cp "$DIR/bin/bison" "$DIR/bin/flex"`)
			for _, name := range []string{"libelf-dev", "elfutils-libelf-devel", "libelf-devel", "libelf"} {
				f.offers(name, `touch "$DIR/libelf"`)
			}
			dry := f.opts
			dry.DryRun = true
			must(t, Install(t.Context(), dry))
			if f.log() != "" || !strings.Contains(f.err.String(), tt.shown) || !strings.Contains(f.err.String(), "missing: flex, libelf") {
				t.Errorf("dry run: %q ran, said %q", f.log(), &f.err)
			}
			must(t, Install(t.Context(), f.opts))
			if tt.log != "" && !strings.HasPrefix(f.log(), strings.TrimSuffix(tt.log, "libelf\n")) || strings.Count(f.log(), "\n") != 1 {
				t.Errorf("ran %q, want %q", f.log(), tt.log)
			}
			if _, err := os.Stat(filepath.Join(f.dir, "sudo.log")); (err == nil) != (tt.euid != 0) {
				t.Errorf("sudo: %v", err)
			}
			if b, _ := os.ReadFile(filepath.Join(f.dir, "env")); tt.pm == "apt-get" && string(b) != "FRONTEND=noninteractive\n" {
				t.Errorf("environment %q", b)
			}
			f.err.Reset()
			must(t, Install(t.Context(), f.opts))
			if got := f.err.String(); got != "kbisect: nothing to install\n" {
				t.Errorf("second time: %q", got)
			}
		})
	}
}

func TestInstallRefreshesFirst(t *testing.T) {
	f := newFake(t, "apt-get", 0)
	f.remove("bin/flex", "root/var/lib/apt/lists/x_Packages.lz4")
	f.offers("flex", `test -e "$DIR/refreshed" && cp "$DIR/bin/bison" "$DIR/bin/flex"`)
	must(t, Install(t.Context(), f.opts))
	if got := regexp.MustCompile(`(?m) (update|install)\b`).FindAllString(f.log(), -1); len(got) != 2 || got[0] != " update" {
		t.Errorf("ran %q", f.log())
	}
	// Old lists count as none.
	f = newFake(t, "apt-get", 0)
	old := time.Now().Add(-48 * time.Hour)
	must(t, os.Chtimes(filepath.Join(f.dir, "root/var/lib/apt/lists"), old, old))
	if !aptStale(f.opts.sys) {
		t.Error("lists two days old are taken for fresh")
	}
}

func TestInstallRetriesWithNewLists(t *testing.T) {
	f := newFake(t, "dnf", 0)
	f.remove("bin/flex")
	f.offers("flex", `if test -e "$DIR/refreshed"; then cp "$DIR/bin/bison" "$DIR/bin/flex"; else echo gone; exit 1; fi`)
	must(t, Install(t.Context(), f.opts))
	if got := strings.Count(f.log(), "\n"); got != 3 || !strings.Contains(f.log(), "makecache") {
		t.Errorf("ran %q", f.log())
	}
}

func TestInstallFails(t *testing.T) {
	t.Run("package not there", func(t *testing.T) {
		f := newFake(t, "apt-get", 0)
		f.remove("bin/flex")
		err := Install(t.Context(), f.opts)
		var e *InstallError
		if !errors.As(err, &e) || strings.Join(e.Tools, "") != "flex" || !strings.Contains(e.Command, "install -y --no-install-recommends flex") ||
			!strings.Contains(e.Detail(), "Unable to locate package flex") || !strings.Contains(err.Error(), e.Log) {
			t.Fatalf("%+v", err)
		}
		if b, err := os.ReadFile(e.Log); err != nil || strings.Count(string(b), "Unable to locate") != 2 {
			t.Errorf("log %q %v", b, err)
		}
	})
	t.Run("package without the tool", func(t *testing.T) {
		f := newFake(t, "apt-get", 0)
		f.remove("bin/flex")
		f.offers("flex", "true")
		err := Install(t.Context(), f.opts)
		var e *InstallError
		if !errors.As(err, &e) || !strings.Contains(err.Error(), "install flex: still missing after apt-get succeeded") {
			t.Errorf("%v", err)
		}
	})
	t.Run("no package manager", func(t *testing.T) {
		f := newFake(t, "", 0)
		f.remove("bin/flex")
		if err := Install(t.Context(), f.opts); err == nil || !strings.Contains(err.Error(), "install flex: no package manager found") {
			t.Errorf("%v", err)
		}
	})
	t.Run("neither root nor sudo", func(t *testing.T) {
		f := newFake(t, "apt-get", 1000)
		f.remove("bin/flex")
		if err := Install(t.Context(), f.opts); err == nil || !strings.Contains(err.Error(), "as root run: apt-get") || f.log() != "" {
			t.Errorf("%v", err)
		}
	})
	t.Run("sudo wants a password", func(t *testing.T) {
		f := newFake(t, "apt-get", 1000)
		f.script("sudo", `echo "sudo: a password is required" >&2; exit 1`)
		f.remove("bin/flex")
		err := Install(t.Context(), f.opts)
		var e *InstallError
		if !errors.As(err, &e) || !strings.Contains(e.Detail(), "a password is required") {
			t.Errorf("%v", err)
		}
	})
	t.Run("refused at the terminal", func(t *testing.T) {
		f := newFake(t, "apt-get", 0)
		f.remove("bin/flex")
		f.opts.sys.tty = true
		for answer, refused := range map[string]bool{"n\n": true, "": true, "\n": false, "Yes\n": false} {
			r, w, err := os.Pipe()
			must(t, err)
			w.WriteString(answer)
			w.Close()
			f.opts.Stdin = r
			if err := Install(t.Context(), f.opts); errors.Is(err, ErrRefused) != refused {
				t.Errorf("%q: %v", answer, err)
			}
			r.Close()
		}
	})
}

// TestInstallCancelled ends a package manager that hangs, as root and through
// sudo, whose child we could not signal.
func TestInstallCancelled(t *testing.T) {
	for _, euid := range []int{0, 1000} {
		f := newFake(t, "dnf", euid)
		f.script("sudo", `shift; exec "$@"`) // an interrupt reaches the guard, as from a terminal
		f.script("dnf", `sleep 60 & s=$!; trap 'kill $s; sleep 0.3; exit 1' TERM; echo $$ >"$DIR/pid"; wait`)
		f.remove("bin/flex")
		ctx, cancel := context.WithCancel(t.Context())
		go func() {
			for ctx.Err() == nil {
				if b, err := os.ReadFile(filepath.Join(f.dir, "pid")); err == nil && len(b) > 0 {
					cancel()
				}
				time.Sleep(10 * time.Millisecond)
			}
		}()
		start := time.Now()
		err := Install(ctx, f.opts)
		cancel()
		if !errors.Is(err, context.Canceled) || time.Since(start) > 15*time.Second {
			t.Errorf("euid %d: %v after %v", euid, err, time.Since(start))
		}
		pid, err := os.ReadFile(filepath.Join(f.dir, "pid"))
		must(t, err)
		if _, err := os.Stat("/proc/" + strings.TrimSpace(string(pid))); err == nil {
			t.Errorf("euid %d: the package manager still runs", euid)
		}
	}
}

func TestAccelerator(t *testing.T) {
	proofs := 0
	answer := error(nil)
	f := newFake(t, "", 0)
	ask := func(o Options) Accel {
		t.Helper()
		o.Prove = func(context.Context) error { proofs++; return answer }
		a, err := Accelerator(t.Context(), o)
		must(t, err)
		return a
	}
	check := func(a Accel, use string, state AccelState, cached bool, wantProofs int) {
		t.Helper()
		if a.Use != use || a.State != state || a.Cached != cached || proofs != wantProofs || a.Reason == "" {
			t.Errorf("%+v after %d proofs, want %s %s %v %d", a, proofs, use, state, cached, wantProofs)
		}
	}
	check(ask(f.opts), "tcg", AccelAbsent, false, 0)
	f.file("root/dev/kvm", "", 0o644)
	if a, err := Accelerator(t.Context(), f.opts); err != nil || a.State != AccelUnproved || a.Use != "tcg" {
		t.Errorf("without a proof: %+v %v", a, err)
	}
	answer = fmt.Errorf("find kernel: %w", ErrNoKernel)
	check(ask(f.opts), "tcg", AccelUnproved, false, 1)
	check(ask(f.opts), "tcg", AccelUnproved, false, 2) // not remembered
	answer = errors.New("silent for 30s\nconsole:")
	check(ask(f.opts), "tcg", AccelRefuted, false, 3)
	answer = nil
	check(ask(f.opts), "tcg", AccelRefuted, true, 3)
	again := f.opts
	again.Reprove = true
	check(ask(again), "kvm", AccelProved, false, 4)
	check(ask(f.opts), "kvm", AccelProved, true, 4)
	// Another kernel, QEMU or CPU is another question.
	f.file("root/proc/sys/kernel/osrelease", "6.2.0\n", 0o644)
	check(ask(f.opts), "kvm", AccelProved, false, 5)
	f.script(emulator, "echo QEMU emulator version 9.0.0")
	check(ask(f.opts), "kvm", AccelProved, false, 6)
	f.file("root/proc/cpuinfo", "model name : Other\n", 0o644)
	check(ask(f.opts), "kvm", AccelProved, false, 7)
	check(ask(f.opts), "kvm", AccelProved, true, 7)
	// A damaged answer is none.
	files, err := filepath.Glob(filepath.Join(f.dir, "cache/accel/*.json"))
	must(t, err)
	if len(files) != 4 {
		t.Errorf("files %v", files)
	}
	for _, p := range files {
		must(t, os.WriteFile(p, []byte(`{"use":"kvm"}`), 0o644))
	}
	check(ask(f.opts), "kvm", AccelProved, false, 8)
}

func TestAcceleratorInterrupted(t *testing.T) {
	f := newFake(t, "", 0)
	f.file("root/dev/kvm", "", 0o644)
	ctx, cancel := context.WithCancel(t.Context())
	f.opts.Prove = func(ctx context.Context) error { cancel(); <-ctx.Done(); return ctx.Err() }
	a, err := Accelerator(ctx, f.opts)
	if !errors.Is(err, context.Canceled) || a.Use != "tcg" || a.State != AccelUnproved {
		t.Errorf("%+v %v", a, err)
	}
	f.opts.Prove = func(context.Context) error { return nil }
	if a, err := Accelerator(t.Context(), f.opts); err != nil || a.Cached || a.Use != "kvm" {
		t.Errorf("the interruption was remembered: %+v %v", a, err)
	}
}

func TestDirs(t *testing.T) {
	for _, tt := range []struct{ xdg, home, want string }{
		{"/x/cache", "/home/u", "/x/cache/kbisect"},
		{"relative", "/home/u", "/home/u/.cache/kbisect"},
		{"", "/home/u", "/home/u/.cache/kbisect"},
	} {
		t.Setenv("XDG_CACHE_HOME", tt.xdg)
		t.Setenv("HOME", tt.home)
		if got, err := CacheDir(); err != nil || got != tt.want {
			t.Errorf("%+v: %q %v", tt, got, err)
		}
	}
	t.Setenv("HOME", "")
	if got, err := CacheDir(); err == nil && !filepath.IsAbs(got) {
		t.Errorf("without HOME: %q", got)
	}
	base := t.TempDir()
	t.Setenv("XDG_STATE_HOME", base)
	dir, err := EnsureStateDir("")
	must(t, err)
	info, err := os.Stat(dir)
	must(t, err)
	if dir != filepath.Join(base, "kbisect") || info.Mode().Perm() != 0o700 {
		t.Errorf("%s %v", dir, info.Mode())
	}
	if left, _ := os.ReadDir(dir); len(left) != 0 {
		t.Errorf("left behind: %v", left)
	}
	must(t, os.WriteFile(filepath.Join(base, "file"), nil, 0o644))
	_, err = EnsureCacheDir(filepath.Join(base, "file", "x"))
	var de *DirError
	if !errors.As(err, &de) || !strings.Contains(err.Error(), base) || !strings.Contains(err.Error(), "XDG_CACHE_HOME") {
		t.Errorf("%v", err)
	}
	if _, err := EnsureCacheDir("/proc/kbisect"); err == nil {
		t.Error("/proc was taken")
	}
}

func TestCheckDisk(t *testing.T) {
	missing := filepath.Join(t.TempDir(), "a", "b") // not made yet: its disk is known all the same
	if err := CheckDisk(missing, 1); err != nil {
		t.Error(err)
	}
	if err := CheckDisk(missing, 1<<40); err == nil || !strings.Contains(err.Error(), missing) || !strings.Contains(err.Error(), "XDG_CACHE_HOME") {
		t.Errorf("%v", err)
	}
}

func TestLock(t *testing.T) {
	dir := t.TempDir()
	release, err := Lock(t.Context(), dir, "measuring x", nil)
	must(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	var owners []string
	_, err = Lock(ctx, dir, "building", func(o string) { owners = append(owners, o) })
	if !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "measuring x") {
		t.Errorf("%v", err)
	}
	if len(owners) != 1 || !strings.HasPrefix(owners[0], fmt.Sprintf("kbisect %d, measuring x since ", os.Getpid())) {
		t.Errorf("owners %q", owners)
	}
	got := make(chan error, 1)
	go func() {
		second, err := Lock(t.Context(), dir, "next", nil)
		if err == nil {
			second()
		}
		got <- err
	}()
	time.Sleep(100 * time.Millisecond)
	select {
	case err := <-got:
		t.Fatalf("two have the lock: %v", err)
	default:
	}
	release()
	release()
	must(t, <-got)
	if _, err := Lock(t.Context(), filepath.Join(dir, "none"), "", nil); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("no folder: %v", err)
	}
}

func TestLockEndsWithProcess(t *testing.T) {
	dir := t.TempDir()
	exe, err := os.Executable()
	must(t, err)
	c := exec.CommandContext(t.Context(), exe)
	c.Env = append(os.Environ(), "KBISECT_HOST_CHILD="+dir)
	out, err := c.StdoutPipe()
	must(t, err)
	must(t, c.Start())
	if _, err := out.Read(make([]byte, 7)); err != nil {
		t.Fatal(err)
	}
	release, err := Lock(t.Context(), dir, "after it", func(owner string) {
		if !strings.Contains(owner, fmt.Sprintf("kbisect %d, being a child", c.Process.Pid)) {
			t.Errorf("owner %q", owner)
		}
		c.Process.Kill() //nolint:errcheck // it is waited for below
	})
	must(t, err)
	release()
	c.Wait() //nolint:errcheck // it was killed
}

func TestLoad(t *testing.T) {
	before, err := Load(t.Context())
	must(t, err)
	after := before
	for start := time.Now(); after.Own-before.Own < 50*time.Millisecond; { // burn our own time
		if time.Since(start) > 30*time.Second {
			t.Fatal("30 s did not give us 50 ms of CPU time")
		}
		after, err = Load(t.Context())
		must(t, err)
	}
	if after.Busy < before.Busy || before.CPUs < 1 {
		t.Errorf("before %+v\nafter  %+v", before, after)
	}
	u := Between(before, after)
	if u.Others < 0 || u.Others > 1 {
		t.Errorf("usage %+v", u)
	}
	if m := u.Map(after); len(m) != 4 {
		t.Errorf("map %v", m)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := Load(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
}

func TestLimits(t *testing.T) {
	at := time.Unix(0, 0)
	sample := func(s, busy, own, steal time.Duration) Sample {
		return Sample{At: at.Add(s), CPUs: 2, Busy: busy, Own: own, Steal: steal}
	}
	sec := time.Second
	a := sample(0, 100*sec, 10*sec, 0)
	for _, tt := range []struct {
		b    Sample
		want string
	}{
		{sample(10*sec, 115*sec, 25*sec, 0), ""}, // all ours
		{sample(10*sec, 118*sec, 12*sec, 0), "other programs took 80 % of the CPU time, the limit is 50 %"},
		{sample(10*sec, 110*sec, 20*sec, 4*sec), "the hypervisor took 20 %"},
		{sample(10*sec, 101*sec, 30*sec, 0), ""}, // a child's earlier time
		{sample(0, 200*sec, 10*sec, 9*sec), ""},  // no time has passed
	} {
		err := DefaultLimits().Check(a, tt.b)
		var be *BusyError
		if tt.want == "" && err != nil || tt.want != "" && (!errors.As(err, &be) || !strings.Contains(err.Error(), tt.want)) {
			t.Errorf("%+v: %v, want %q", tt.b, err, tt.want)
		}
		if err := (Limits{}).Check(a, tt.b); err != nil {
			t.Errorf("no limits: %v", err)
		}
	}
}

func FuzzParseStat(f *testing.F) {
	f.Add("cpu  69316 0 39438 42110 586 0 662 0 0 0\ncpu0 1")
	f.Add("cpu 1 2 3 4")
	f.Add("cpu -1 99999999999999999999 x")
	f.Fuzz(func(t *testing.T, text string) {
		var s Sample
		if err := s.parseStat(text); err == nil && (s.Steal < 0) {
			t.Errorf("%q: %+v", text, s)
		}
		if p := parsePressure(text); p < 0 || p > 1 {
			t.Errorf("%q: pressure %v", text, p)
		}
	})
}

func BenchmarkLoad(b *testing.B) {
	for b.Loop() {
		if _, err := Load(b.Context()); err != nil {
			b.Fatal(err)
		}
	}
}

func TestText(t *testing.T) {
	f := newFake(t, "apt-get", 0)
	f.remove("bin/flex", "libelf", "bin/ccache")
	r := Examine(t.Context(), f.opts)
	var b bytes.Buffer
	must(t, r.Text(&b))
	text := strings.ReplaceAll(b.String(), f.dir, "/h")
	for _, want := range []string{
		"flex                  missing   -                             building kernels (Kconfig's parser)\n" +
			"                                fix: apt-get install flex\n",
		"ccache                optional  -                             faster rebuilds\n",
		"qboot.rom             ok        /h/fw/qboot.rom",
		"host: Fake CPU, ",
		"missing: flex, libelf\n",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in\n%s", want, text)
		}
	}
	var js bytes.Buffer
	must(t, r.JSON(&js))
	var keys struct {
		OK   *bool
		Rows []map[string]any
	}
	must(t, json.Unmarshal(js.Bytes(), &keys))
	if keys.OK == nil || *keys.OK || len(keys.Rows) != len(r.Rows) {
		t.Fatalf("%s", &js)
	}
	for _, k := range []string{"name", "status", "found", "need", "fix", "package"} {
		if _, ok := keys.Rows[0][k]; !ok {
			t.Errorf("no key %q", k)
		}
	}
}

func TestRequire(t *testing.T) {
	if err := Require("sh"); err != nil {
		t.Errorf("sh: %v", err)
	}
	err := Require("sh", "kbisect-no-such-program")
	if !errors.Is(err, ErrMissing) || !strings.Contains(err.Error(), "kbisect-no-such-program; install with: kbisect doctor --install") {
		t.Errorf("got %v", err)
	}
}
