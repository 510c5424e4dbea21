package kbuild

import (
	"bytes"
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/kbisect/kbisect/internal/kconfig"
)

func TestMain(m *testing.M) {
	if os.Getenv("KBUILD_TEST_CHILD") != "" {
		childMain()
		return
	}
	goleak.VerifyTestMain(m)
}

// TestBuild follows one tree over a few revisions.
func TestBuild(t *testing.T) {
	repo := newRepo(t)
	b := Builder{Cache: filepath.Join(t.TempDir(), "cache")}
	first := repo.commit(fakeTree())
	changed := repo.commit(with("value.c", "int value(void) { return 2; }\n"))
	comment := repo.commit(with("value.c", "/* a comment */\nint value(void) { return 1; }\n"))
	removed := repo.commit(with("other.c", "", "value.c", "int value(void) { return 2; }\n"))

	k1 := repo.build(b, first)
	if k1.Cached || k1.Objects != 4 || k1.Uname != "6.1.7" {
		t.Errorf("first: %+v", k1)
	}
	k2 := repo.build(b, changed)
	if k2.Cached || k2.Objects != 2 || k2.Identity == k1.Identity {
		t.Errorf("one file changed: %+v", k2)
	}
	// A build of a known tree touches nothing, whatever commit has it.
	again := repo.build(b, repo.commit(fakeTree()))
	if !again.Cached || again.Identity != k1.Identity || again.Image != k1.Image {
		t.Errorf("known tree: %+v", again)
	}
	k3 := repo.build(b, comment)
	if k3.Cached || k3.Key == k1.Key || k3.Identity != k1.Identity {
		t.Errorf("comment: %+v\nfirst: %+v", k3, k1)
	}
	k4 := repo.build(b, removed)
	if k4.Objects != 2 || k4.Identity == k2.Identity {
		t.Errorf("a removed file is still linked: %+v", k4)
	}
	if id, err := Identity(k4.Image); err != nil || id != k4.Identity {
		t.Errorf("identity of the image: %s, %v", id, err)
	}
	final, err := kconfig.ParseFile(k4.Config)
	if err != nil {
		t.Fatal(err)
	}
	if v, _ := final.Get("FOO"); v != "y" {
		t.Errorf("FOO=%s in the final configuration", v)
	}
	if log, err := os.ReadFile(k4.Log); err != nil || !bytes.Contains(log, []byte("  LD      vmlinux")) {
		t.Errorf("log: %v\n%s", err, log)
	}
}

// TestReproducible: another cache, another environment, the same bytes.
func TestReproducible(t *testing.T) {
	repo := newRepo(t)
	commit := repo.commit(fakeTree())
	one := repo.build(Builder{Cache: filepath.Join(t.TempDir(), "a")}, commit)
	for name, value := range map[string]string{
		"KCFLAGS": "-DX -g", "MAKEFLAGS": "-k", "O": "/nonexistent", "CC": "false", "LC_ALL": "de_DE.UTF-8", "GIT_DIR": "/nonexistent",
		"GIT_INDEX_FILE": "/nonexistent", "KBUILD_BUILD_USER": "me", "LDFLAGS": "-x",
	} {
		t.Setenv(name, value)
	}
	two := repo.build(Builder{Cache: filepath.Join(t.TempDir(), "deeper", "b"), NoCcache: true}, commit)
	if one.Key != two.Key || one.SHA256 != two.SHA256 || one.Identity != two.Identity || two.Cached {
		t.Errorf("differ:\n%+v\n%+v", one.Info, two.Info)
	}
}

// TestConfigTree: the same source with another configuration is another kernel
// in another tree; a user's .config replaces tinyconfig.
func TestConfigs(t *testing.T) {
	repo := newRepo(t)
	b := Builder{Cache: t.TempDir()}
	commit := repo.commit(fakeTree())
	k1 := repo.build(b, commit)
	r := repo.request(commit)
	r.Base = fragment(t, "# CONFIG_FOO is not set\n# CONFIG_SIZE is not set\nCONFIG_WHATEVER=m\n")[0]
	k2, err := b.Build(context.Background(), r)
	if err != nil {
		t.Fatal(err)
	}
	defer k2.Release()
	if k1.Key == k2.Key || k1.Final == k2.Final || k2.Cached {
		t.Errorf("%+v\n%+v", k1, k2)
	}
	if len(k2.Overrides) != 1 || !strings.Contains(k2.Overrides[0], "CONFIG_FOO=y overrides n") {
		t.Errorf("overrides = %q", k2.Overrides)
	}
	if len(k1.Overrides) != 0 {
		t.Errorf("overrides of tinyconfig are nobody's business: %q", k1.Overrides)
	}
	trees, _ := filepath.Glob(filepath.Join(b.Cache, "build", "*", "src"))
	if len(trees) != 2 {
		t.Errorf("trees: %v", trees)
	}
}

// TestKconfigChange: a configuration is made again when the kernel's own rules
// changed, also after a build in between failed.
func TestKconfigChange(t *testing.T) {
	repo := newRepo(t)
	b := Builder{Cache: t.TempDir()}
	repo.build(b, repo.commit(fakeTree()))
	_, err := b.Build(context.Background(), repo.request(repo.commit(with("Kconfig", "config SIZE\n\tbool \"s\"\n"))))
	var config *ConfigError
	if !errors.As(err, &config) || len(config.Err.Misses) != 1 {
		t.Fatalf("got %v, want a *ConfigError", err)
	}
	want := "configure kernel 6.1.7: kernel config: test.config:1: CONFIG_FOO: wanted y, got n: this kernel has no such symbol"
	if err.Error() != want {
		t.Errorf("got  %v\nwant %s", err, want)
	}
	k := repo.build(b, repo.commit(with("value.c", "int value(void) { return 3; }\n")))
	if v := finalValue(t, k, "FOO"); v != "y" {
		t.Errorf("FOO=%s afterwards", v)
	}
}

// TestRange goes along a range whose middle changes a Kconfig file, and back:
// each configuration is the one of its own commit, and says what changed.
func TestRange(t *testing.T) {
	repo := newRepo(t)
	b := Builder{Cache: t.TempDir()}
	const kconfigs = "config SIZE\n\tbool \"s\"\nconfig FOO\n\tbool \"f\"\n"
	first := repo.commit(fakeTree())
	second := repo.commit(with("value.c", "int value(void) { return 2; }\n"))
	third := repo.commit(with("value.c", "int value(void) { return 3; }\n", "Kconfig", "config FOO\n\tbool \"f\"\n"))
	fourth := repo.commit(with("value.c", "int value(void) { return 4; }\n", "Kconfig", "config FOO\n\tbool \"f\"\n"))
	fifth := repo.commit(with("value.c", "int value(void) { return 5; }\n", "Kconfig", kconfigs))
	configured := func(k *Kernel) bool {
		t.Helper()
		log, err := os.ReadFile(k.Log)
		if err != nil {
			t.Fatal(err)
		}
		return bytes.Contains(log, []byte("HOSTCC  scripts/kconfig/conf.o"))
	}
	repo.build(b, first)
	for _, step := range []struct {
		commit     string
		configures bool
		size       string
	}{
		{second, false, "y"}, {third, true, "n"}, {fourth, false, "n"}, {fifth, true, "y"},
	} {
		k := repo.build(b, step.commit)
		if v := finalValue(t, k, "SIZE"); v != step.size || configured(k) != step.configures {
			t.Errorf("%.8s: SIZE=%s, want %s; configured again: %v", step.commit, v, step.size, configured(k))
		}
	}
}

func finalValue(t *testing.T, k *Kernel, name string) string {
	t.Helper()
	c, err := kconfig.ParseFile(k.Config)
	if err != nil {
		t.Fatal(err)
	}
	v, _ := c.Get(name)
	return v
}

// TestErrors: each failure is of the type that says whose fault it is.
func TestErrors(t *testing.T) {
	repo := newRepo(t)
	b := Builder{Cache: t.TempDir()}
	tests := []struct {
		name   string
		files  map[string]string
		kernel string // text of a KernelError
		infra  string // text of an InfraError
	}{
		{"compile", with("value.c", "int value(void)\n{\n\treturn x;\n}\n"), "compile kernel: value.c:3: ‘x’ undeclared|'x' undeclared", ""},
		{"header", with("value.c", "#include \"gone.h\"\n"), "compile kernel: value.c:1: gone.h: No such file", ""},
		{"link", with("value.c", "int nothing;\n"), "undefined reference to `value'", ""},
		{"not a kernel", map[string]string{"Makefile": "all:\n"}, "is no kernel source", ""},
		{"no version", with("Makefile", "vmlinux:\n"), "its Makefile names no VERSION", ""},
		{"disk", with("hook.sh", "echo 'cc1: error: writing x.o: No space left on device' >&2; exit 1\n"), "", "no space left on device: free some space"},
		{"oom", with("hook.sh", "echo 'gcc: fatal error: Killed signal terminated program cc1' >&2; exit 1\n"), "", "the compiler was killed"},
		{"killed", with("hook.sh", "kill -9 $$\n"), "", "a build step was killed"},
		{"tool", with("hook.sh", "exec sh -c flexxx\n"), "", "flexxx is not installed: run `kbisect doctor --install`"},
		{"library", with("hook.sh", "echo 'x.h:1:10: fatal error: gelf.h: No such file or directory' >&2; exit 1\n"), "", "gelf.h: No such file or directory: run `kbisect doctor"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			_, err := b.Build(context.Background(), repo.request(repo.commit(tt.files)))
			var kernel *KernelError
			var host *InfraError
			switch {
			case tt.kernel != "" && !errors.As(err, &kernel), tt.infra != "" && !errors.As(err, &host):
				t.Fatalf("wrong type: %T: %v", err, err)
			case !containsAny(err.Error(), tt.kernel+tt.infra):
				t.Errorf("got %v, want %s", err, tt.kernel+tt.infra)
			}
			log := ""
			if kernel != nil {
				log = kernel.Log
			} else {
				log = host.Log
			}
			if log == "" {
				return
			}
			if data, err := os.ReadFile(log); err != nil || len(data) == 0 || filepath.Base(filepath.Dir(log)) != "logs" {
				t.Errorf("log %s: %d bytes, %v", log, len(data), err)
			}
		})
	}
	// After all that, a good one builds, and nothing is left of the bad ones.
	if k := repo.build(b, repo.commit(fakeTree())); k.Cached {
		t.Errorf("%+v", k)
	}
	if list, _ := filepath.Glob(filepath.Join(b.Cache, "kernels", "*", "vmlinux")); len(list) != 1 {
		t.Errorf("kernels: %v", list)
	}
	requestErrors(t, repo, b)
}

// containsAny reports whether text has one of the alternatives.
func containsAny(text, alternatives string) bool {
	for _, a := range strings.Split(alternatives, "|") {
		if strings.Contains(text, a) {
			return true
		}
	}
	return false
}

func requestErrors(t *testing.T, repo *fakeRepo, b Builder) {
	t.Helper()
	commit := repo.commit(fakeTree())
	for name, change := range map[string]func(*Builder, *Request){
		"must be absolute":         func(b *Builder, _ *Request) { b.Cache = "cache" },
		"is neither vmlinux":       func(_ *Builder, r *Request) { r.Target = "zImage" },
		"no configuration":         func(_ *Builder, r *Request) { r.Fragments = nil },
		"find commit v9.9":         func(_ *Builder, r *Request) { r.Commit = "v9.9" },
		"find commit --help":       func(_ *Builder, r *Request) { r.Commit = "--help" },
		"not a git repository":     func(_ *Builder, r *Request) { r.GitDir = "/nonexistent" },
		"gcc-0.1 is not installed": func(b *Builder, _ *Request) { b.CC = "gcc-0.1" },
		"name of one program":      func(b *Builder, _ *Request) { b.CC = "ccache gcc" },
	} {
		b, r := b, repo.request(commit)
		change(&b, &r)
		if _, err := b.Build(context.Background(), r); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("got %v, want %q", err, name)
		}
	}
}

func TestMissingTools(t *testing.T) {
	repo := newRepo(t)
	r := repo.request(repo.commit(fakeTree()))
	bin := t.TempDir()
	for _, tool := range []string{"git", "gcc", "ld", "sh"} { // but no make
		path, err := exec.LookPath(tool)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink(path, filepath.Join(bin, tool)); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv("PATH", bin)
	_, err := Builder{Cache: t.TempDir()}.Build(context.Background(), r)
	var host *InfraError
	if !errors.As(err, &host) || err.Error() != "find build tools: make is not installed: run `kbisect doctor --install`" {
		t.Errorf("got %T: %v", err, err)
	}
}

func TestCacheNotWritable(t *testing.T) {
	repo := newRepo(t)
	r := repo.request(repo.commit(fakeTree()))
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	// A file in the way stops root, too.
	_, err := Builder{Cache: filepath.Join(file, "cache")}.Build(context.Background(), r)
	var host *InfraError
	if !errors.As(err, &host) || !strings.Contains(err.Error(), "XDG_CACHE_HOME") {
		t.Errorf("got %T: %v", err, err)
	}
}

// TestCancel: a build that is stopped ends soon with the context's error, leaves
// no process, and the next one goes on.
func TestCancel(t *testing.T) {
	repo := newRepo(t)
	b := Builder{Cache: t.TempDir(), Jobs: 1}
	slow := repo.commit(with("hook.sh", "case $1 in *value.o) echo torn >$1; sleep 60;; esac\n"))
	ctx, cancel := context.WithCancel(context.Background())
	r := repo.request(slow)
	r.Progress = func(p Phase, done, _ int64) {
		if p == PhaseCompile && done == 3 { // other, start, value
			cancel()
		}
	}
	begin := time.Now()
	if _, err := b.Build(ctx, r); !errors.Is(err, context.Canceled) {
		t.Fatalf("got %v", err)
	}
	if d := time.Since(begin); d > 20*time.Second {
		t.Errorf("it took %s to stop", d)
	}
	if k := repo.build(b, repo.commit(fakeTree())); k.Objects == 0 {
		t.Errorf("%+v", k)
	}
	early, stop := context.WithCancel(context.Background())
	stop()
	if _, err := b.Build(early, repo.request(slow)); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled before it began: %v", err)
	}
}

// childMain is a kbisect that gets killed: it builds what its environment says.
func childMain() {
	c, err := kconfig.Parse("test.config", strings.NewReader("CONFIG_FOO=y\n"))
	if err != nil {
		panic(err)
	}
	b := Builder{Cache: os.Getenv("KBUILD_TEST_CACHE"), Jobs: 1}
	_, err = b.Build(context.Background(), Request{GitDir: os.Getenv("KBUILD_TEST_REPO"), Commit: os.Getenv("KBUILD_TEST_CHILD"), Fragments: []*kconfig.Config{c}})
	if err != nil {
		panic(err)
	}
}

// TestKilled: kbisect is killed by SIGKILL while an object is half written, which
// is newer than its source and would be taken for good by make.
func TestKilled(t *testing.T) {
	repo := newRepo(t)
	b := Builder{Cache: t.TempDir(), Jobs: 1}
	mark := filepath.Join(t.TempDir(), "mark")
	// A whole object of another content: it links, and would not be noticed.
	hook := "case $1 in *value.o) echo 'int value(void) { return 99; }' | gcc -x c -c -o $1 -; touch " + mark + "; sleep 60;; esac\n"
	slow := repo.commit(with("hook.sh", hook))
	want := repo.build(Builder{Cache: t.TempDir()}, repo.commit(fakeTree())).Identity

	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	child := exec.Command(exe)
	child.Env = append(os.Environ(), "KBUILD_TEST_CHILD="+slow, "KBUILD_TEST_CACHE="+b.Cache, "KBUILD_TEST_REPO="+repo.dir)
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	for i := 0; ; i++ {
		if _, err := os.Stat(mark); err == nil {
			break
		}
		if i > 3000 {
			t.Fatal("the child does not build")
		}
		time.Sleep(10 * time.Millisecond)
	}
	_ = child.Process.Signal(syscall.SIGKILL)
	_ = child.Wait()
	// The lock is free only when make is gone, since nobody else closes it.
	k := repo.build(b, repo.commit(fakeTree()))
	if k.Identity != want {
		t.Errorf("the torn object was linked: %+v", k)
	}
}

// TestTornCheckout: a checkout that was killed leaves files of another tree and
// a locked index.
func TestTornCheckout(t *testing.T) {
	repo := newRepo(t)
	b := Builder{Cache: t.TempDir()}
	first := repo.commit(fakeTree())
	want := repo.build(b, first)
	dirs, _ := filepath.Glob(filepath.Join(b.Cache, "build", "*", "src"))
	if len(dirs) != 1 {
		t.Fatal(dirs)
	}
	dir := filepath.Dir(dirs[0])
	for name, text := range map[string]string{
		"src/value.c": "int value(void) { return 5; }\n",
		"src/stray.c": "int stray(void) { return 1; }\n",
		"index.lock":  "",
		"state.json":  `{"git_dir": "` + repo.dir + `", "tree": "` + want.Tree + `", "step": "checkout"}`,
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.RemoveAll(want.Dir); err != nil {
		t.Fatal(err)
	}
	if got := repo.build(b, first); got.SHA256 != want.SHA256 || got.Cached {
		t.Errorf("got %+v\nwant %+v", got.Info, want.Info)
	}
}

// TestReboot: after a loss of power an object may be there, empty and new.
func TestReboot(t *testing.T) {
	repo := newRepo(t)
	b := Builder{Cache: t.TempDir()}
	commit := repo.commit(fakeTree())
	want := repo.build(b, commit)
	dirs, _ := filepath.Glob(filepath.Join(b.Cache, "build", "*", "src"))
	if len(dirs) != 1 {
		t.Fatal(dirs)
	}
	state := filepath.Join(filepath.Dir(dirs[0]), "state.json")
	text, err := os.ReadFile(state)
	if err != nil {
		t.Fatal(err)
	}
	for path, text := range map[string]string{
		state: strings.Replace(string(text), bootID(), "another-boot", 1),
		filepath.Join(dirs[0], objName, "value.o"): "",
		filepath.Join(dirs[0], "other.c"):          "",
	} {
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.RemoveAll(want.Dir); err != nil {
		t.Fatal(err)
	}
	if got := repo.build(b, commit); got.SHA256 != want.SHA256 {
		t.Errorf("got %+v\nwant %+v", got.Info, want.Info)
	}
}

// TestDamagedKernel: a kernel whose image changed is not a kernel.
func TestDamagedKernel(t *testing.T) {
	repo := newRepo(t)
	b := Builder{Cache: t.TempDir()}
	commit := repo.commit(fakeTree())
	want := repo.build(b, commit)
	if err := os.Truncate(want.Image, 100); err != nil {
		t.Fatal(err)
	}
	got := repo.build(b, commit)
	if got.Cached || got.SHA256 != want.SHA256 {
		t.Errorf("%+v", got)
	}
	if again := repo.build(b, commit); !again.Cached {
		t.Errorf("%+v", again)
	}
}

// TestConcurrent: several builders on one cache, as several processes would be,
// since each opens its own locks.
func TestConcurrent(t *testing.T) {
	repo := newRepo(t)
	cache := t.TempDir()
	commits := []string{repo.commit(fakeTree()), repo.commit(with("value.c", "int value(void) { return 2; }\n"))}
	var wg sync.WaitGroup
	ids := make([]string, 8)
	for i := range ids {
		r := repo.request(commits[i%2])
		wg.Go(func() {
			k, err := Builder{Cache: cache}.Build(context.Background(), r)
			if err != nil {
				t.Error(err)
				return
			}
			ids[i] = k.Identity
			k.Release()
		})
	}
	wg.Wait()
	for i, id := range ids {
		if id != ids[i%2] || id == "" {
			t.Errorf("builder %d got %q", i, id)
		}
	}
	if ids[0] == ids[1] {
		t.Error("two trees gave one kernel")
	}
}

// TestWaitForTree: who waits for another's build says so, and can be stopped.
func TestWaitForTree(t *testing.T) {
	repo := newRepo(t)
	b := Builder{Cache: t.TempDir()}
	r := repo.request(repo.commit(fakeTree()))
	j, err := b.plan(context.Background(), r)
	if err != nil {
		t.Fatal(err)
	}
	tree, err := j.openTree(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	defer tree.close()
	ctx, cancel := context.WithCancel(context.Background())
	r.Progress = func(p Phase, _, _ int64) {
		if p == PhaseWait {
			cancel()
		}
	}
	if _, err := b.Build(ctx, r); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
}

// TestAwkwardPath: kbuild cannot work below a path with a space or a colon.
func TestAwkwardPath(t *testing.T) {
	repo := newRepo(t)
	for _, name := range []string{"my cache", "a:b", "it's"} {
		cache := filepath.Join(t.TempDir(), name)
		b := Builder{Cache: cache}
		k := repo.build(b, repo.commit(fakeTree()))
		if !strings.HasPrefix(k.Image, cache) {
			t.Errorf("image %s is not in the cache", k.Image)
		}
		root, err := buildRoot(cache)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { os.RemoveAll(root) })
		if !safePath(root) {
			t.Errorf("root = %s", root)
		}
		if info, err := os.Stat(root); err != nil || info.Mode().Perm() != 0o700 {
			t.Errorf("root %s: %v %v", root, info, err)
		}
		if err := os.Chmod(root, 0o777); err != nil {
			t.Fatal(err)
		}
		if _, err := buildRoot(cache); err == nil || !strings.Contains(err.Error(), "not a private folder") {
			t.Errorf("a folder that anybody can write to: %v", err)
		}
		os.RemoveAll(root)
	}
}

// TestDiskFull fills a real file system in the middle of a build, then makes
// room.
func TestDiskFull(t *testing.T) {
	repo := newRepo(t)
	cache := t.TempDir()
	if err := syscall.Mount("tmpfs", cache, "tmpfs", 0, "size=3m"); err != nil {
		t.Skipf("a small file system needs the right to mount: %v", err)
	}
	defer func() { _ = syscall.Unmount(cache, syscall.MNT_DETACH) }()
	b := Builder{Cache: cache, NoCcache: true}
	big := repo.commit(with("other.c", "char big[2000000] = {1};\n"))
	_, err := b.Build(context.Background(), repo.request(big))
	if !errors.Is(err, syscall.ENOSPC) || !strings.Contains(err.Error(), "kbisect cache") {
		t.Fatalf("got %T: %v", err, err)
	}
	if list, _ := filepath.Glob(filepath.Join(cache, "kernels", "*", "*")); len(list) != 0 {
		t.Errorf("left behind: %v", list)
	}
	if err := syscall.Mount("tmpfs", cache, "tmpfs", syscall.MS_REMOUNT, "size=60m"); err != nil {
		t.Fatal(err)
	}
	got := repo.build(b, big)
	want := repo.build(Builder{Cache: t.TempDir(), NoCcache: true}, big)
	if got.SHA256 != want.SHA256 {
		t.Errorf("after the disk was full:\n%+v\n%+v", got.Info, want.Info)
	}
}

// TestEviction: least recently used first, never what is held.
func TestEviction(t *testing.T) {
	repo := newRepo(t)
	b := Builder{Cache: t.TempDir()}
	ctx := context.Background()
	var kernels []*Kernel
	for _, n := range []string{"1", "2", "3"} {
		k, err := b.Build(ctx, repo.request(repo.commit(with("value.c", "int value(void) { return "+n+"; }\n"))))
		if err != nil {
			t.Fatal(err)
		}
		kernels = append(kernels, k)
	}
	kernels[0].Release()
	kernels[0].Release()
	kernels[1].Release()
	defer kernels[2].Release()
	age := time.Now().Add(-time.Hour)
	if err := os.Chtimes(kernels[1].Dir, age, age); err != nil {
		t.Fatal(err)
	}
	for _, junk := range []string{".tmp-dead", ".trash-dead"} {
		if err := os.MkdirAll(filepath.Join(b.Cache, "kernels", junk, "x"), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	u, err := b.Usage(ctx)
	if err != nil {
		t.Fatal(err)
	}
	held := 0
	for _, e := range u.Entries {
		if e.Held {
			held++
		}
	}
	if len(u.Entries) < 5 || held != 1 || u.Bytes <= 0 || u.Budget != DefaultBudget {
		t.Errorf("usage: %+v", u)
	}
	gone, err := b.Prune(ctx, u.Bytes-1)
	if err != nil || len(gone) != 1 || gone[0].Path != kernels[1].Dir {
		t.Errorf("pruned %+v, %v", gone, err)
	}
	gone, err = b.Clear(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(kernels[2].Image); err != nil {
		t.Errorf("a held kernel is gone: %v; evicted %+v", err, gone)
	}
	kernels[2].Release()
	if _, err := b.Clear(ctx); err != nil {
		t.Fatal(err)
	}
	for _, dir := range []string{"kernels", "build"} {
		list, err := filepath.Glob(filepath.Join(b.Cache, dir, "*"))
		for _, p := range list {
			if !strings.Contains(p, "steps-") {
				t.Errorf("left: %s (%v)", p, err)
			}
		}
	}
	if k := repo.build(b, repo.commit(fakeTree())); k.Cached {
		t.Error("cached after clear")
	}
}

// TestEvictionInterrupted: what goes is out of the cache at once; its files may
// wait for the next sweep.
func TestEvictionInterrupted(t *testing.T) {
	b := Builder{Cache: t.TempDir()}
	tree := filepath.Join(b.Cache, "kernels", "0123", "deep")
	if err := os.MkdirAll(tree, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(tree, "file"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	ended, cancel := context.WithCancel(context.Background())
	cancel()
	e := Entry{Name: "0123", Path: filepath.Dir(tree)}
	if ok, err := evict(ended, e); !ok || err != nil {
		t.Fatal(ok, err)
	}
	if _, err := os.Stat(e.Path); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("still there: %v", err)
	}
	left := filepath.Join(b.Cache, "kernels", trash+"0123", "deep", "file")
	if _, err := os.Stat(left); err != nil {
		t.Errorf("an interrupted eviction went on: %v", err)
	}
	if err := b.sweep(context.Background()); err != nil {
		t.Fatal(err)
	}
	if list, _ := os.ReadDir(filepath.Join(b.Cache, "kernels")); len(list) != 0 {
		t.Errorf("left: %v", list)
	}
}

// TestBudget: a build keeps the cache within its budget by itself.
func TestBudget(t *testing.T) {
	repo := newRepo(t)
	b := Builder{Cache: t.TempDir(), Budget: 1}
	k, err := b.Build(context.Background(), repo.request(repo.commit(fakeTree())))
	if err != nil {
		t.Fatal(err)
	}
	defer k.Release()
	if _, err := os.Stat(k.Image); err != nil {
		t.Errorf("the kernel just built is gone: %v", err)
	}
	if trees, _ := filepath.Glob(filepath.Join(b.Cache, "build", "*", "src")); len(trees) != 0 {
		t.Errorf("over budget: %v", trees)
	}
}
