package initramfs

import (
	"bytes"
	"context"
	"debug/elf"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

// record is one entry read back.
type record struct {
	name                              string
	mode, uid, mtime, nlink, maj, min uint64
	ino                               uint64
	data                              string
}

// read parses a newc archive, strictly.
func read(t testing.TB, b []byte) (records []record) {
	t.Helper()
	align := func(n int) int { return (n + 3) &^ 3 }
	for at := 0; ; {
		if len(b) < at+110 || string(b[at:at+6]) != "070701" {
			t.Fatalf("no header at %d", at)
		}
		var field [13]uint64
		for i := range field {
			v, err := strconv.ParseUint(string(b[at+6+8*i:at+14+8*i]), 16, 32)
			if err != nil {
				t.Fatal(err)
			}
			field[i] = v
		}
		size, nameLen := int(field[6]), int(field[11])
		name := string(b[at+110 : at+110+nameLen-1])
		body := align(at + 110 + nameLen)
		if name == "TRAILER!!!" {
			if len(b)%block != 0 || len(b)-body >= block || strings.Trim(string(b[body:]), "\x00") != "" {
				t.Errorf("%d bytes after the trailer, %d in all", len(b)-body, len(b))
			}
			return records
		}
		records = append(records, record{name: name, ino: field[0], mode: field[1], uid: field[2] + field[3], nlink: field[4],
			mtime: field[5], maj: field[9], min: field[10], data: string(b[body : body+size])})
		at = align(body + size)
	}
}

func TestWrite(t *testing.T) {
	src := filepath.Join(t.TempDir(), "src")
	if err := os.WriteFile(src, []byte("from the host"), 0o600); err != nil {
		t.Fatal(err)
	}
	files := []File{
		{Path: "usr/lib/deep/f", Mode: 0o644, Data: []byte("x")},
		{Path: "/init", Mode: 0o755, Source: src},
		{Path: "bin/sh", Mode: fs.ModeSymlink | 0o777, Target: "bash"},
		{Path: "dev/console", Mode: fs.ModeDevice | fs.ModeCharDevice | 0o600, Major: 5, Minor: 1},
		{Path: "tmp", Mode: fs.ModeDir | fs.ModeSticky | 0o777},
	}
	var a, b bytes.Buffer
	if err := Write(&a, files); err != nil {
		t.Fatal(err)
	}
	slices.Reverse(files)
	if err := Write(&b, files); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(a.Bytes(), b.Bytes()) {
		t.Error("the order of the input changes the bytes")
	}
	var names []string
	inodes := map[uint64]bool{}
	for _, r := range read(t, a.Bytes()) {
		names = append(names, r.name)
		if r.uid != 0 || r.mtime != 0 || inodes[r.ino] {
			t.Errorf("%+v: owner, time, or an inode twice", r)
		}
		inodes[r.ino] = true
		want := map[string]record{
			"init": {mode: 0o100755, data: "from the host"}, "bin/sh": {mode: 0o120777, data: "bash"}, "bin": {mode: 0o040755},
			"dev/console": {mode: 0o020600, maj: 5, min: 1}, "tmp": {mode: 0o041777}, "usr/lib/deep/f": {mode: 0o100644, data: "x"},
		}
		if w, ok := want[r.name]; ok && (w.mode != r.mode || w.data != r.data || w.maj != r.maj || w.min != r.min) {
			t.Errorf("got %+v, want %+v", r, w)
		}
	}
	if got := strings.Join(names, " "); got != "bin bin/sh dev dev/console init tmp usr usr/lib usr/lib/deep usr/lib/deep/f" {
		t.Errorf("entries: %s", got)
	}
}

func TestWriteRefuses(t *testing.T) {
	for name, files := range map[string][]File{
		"empty":             {{Path: "/"}},
		"outside":           {{Path: "../x"}},
		"inside and out":    {{Path: "a/../../x"}},
		"NUL":               {{Path: "a\x00b"}},
		"twice":             {{Path: "a/b"}, {Path: "/a//b"}},
		"below a file":      {{Path: "a"}, {Path: "a/b"}},
		"below a link":      {{Path: "a", Mode: fs.ModeSymlink, Target: "/x"}, {Path: "a/b/c"}},
		"below, far":        {{Path: "a/b"}, {Path: "a/b/c/d"}},
		"dot":               {{Path: "."}},
		"dot dot in middle": {{Path: "a/../b"}},
	} {
		if err := Write(&bytes.Buffer{}, files); !errors.Is(err, ErrPath) {
			t.Errorf("%s: got %v, want ErrPath", name, err)
		}
	}
	if err := Write(&bytes.Buffer{}, []File{{Path: "s", Mode: fs.ModeSocket}}); err == nil || errors.Is(err, ErrPath) {
		t.Errorf("a socket: %v", err)
	}
	if err := Write(&bytes.Buffer{}, []File{{Path: "d", Source: t.TempDir()}}); err == nil {
		t.Error("a folder was packed as a file")
	}
}

// failing refuses what comes after n bytes.
type failing struct{ n int }

var errFull = errors.New("disk full")

func (f *failing) Write(b []byte) (int, error) {
	if f.n -= len(b); f.n < 0 {
		return 0, errFull
	}
	return len(b), nil
}

func TestWriteErrorIsNotSwallowed(t *testing.T) {
	for _, n := range []int{0, 100, 300_000} {
		err := Write(&failing{n}, []File{{Path: "big", Data: make([]byte, 1<<20)}, {Path: "x"}})
		if !errors.Is(err, errFull) {
			t.Errorf("after %d bytes: %v", n, err)
		}
	}
}

func initFile(t testing.TB, content string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "init")
	if err := os.WriteFile(path, []byte(content), 0o755); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestBuild(t *testing.T) {
	cache := filepath.Join(t.TempDir(), "a", "b")
	one, err := Build(t.Context(), cache, Options{Init: initFile(t, "one")})
	if err != nil {
		t.Fatal(err)
	}
	again, err := Build(t.Context(), cache, Options{Init: initFile(t, "one")})
	if err != nil {
		t.Fatal(err)
	}
	two, err := Build(t.Context(), cache, Options{Init: initFile(t, "two")})
	if err != nil {
		t.Fatal(err)
	}
	extra, err := Build(t.Context(), cache, Options{Init: initFile(t, "one"), Extra: []File{{Path: "x", Data: []byte("y")}}})
	if err != nil {
		t.Fatal(err)
	}
	if two == one || extra == one || extra == two {
		t.Error("different content, one path")
	}
	entries, err := os.ReadDir(cache)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), ".") {
			t.Errorf("left behind: %s", e.Name())
		}
	}
	if again != one {
		t.Errorf("the same content is built twice: %s, %s", one, again)
	}
	b, err := os.ReadFile(again)
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range read(t, b) {
		if r.name == "init" && (r.data != "one" || r.mode != 0o100755) {
			t.Errorf("init is %+v", r)
		}
	}
}

func TestBuildErrorsLeaveNothing(t *testing.T) {
	cache := t.TempDir()
	cancelled, cancel := context.WithCancel(t.Context())
	cancel()
	init := initFile(t, "x")
	for name, c := range map[string]struct {
		ctx context.Context
		o   Options
	}{
		"no init":      {t.Context(), Options{}},
		"missing init": {t.Context(), Options{Init: filepath.Join(cache, "none")}},
		"cancelled":    {cancelled, Options{Init: init}},
		"twice":        {t.Context(), Options{Init: init, Extra: []File{{Path: "init"}}}},
	} {
		if path, err := Build(c.ctx, cache, c.o); err == nil {
			t.Errorf("%s: built %s", name, path)
		}
	}
	if entries, err := os.ReadDir(cache); err != nil || len(entries) != 0 {
		t.Errorf("left behind: %v, %v", entries, err)
	}
}

// TestUserlandIsClosed: every program's loader and libraries are in the archive,
// where the loader looks without a cache.
func TestUserlandIsClosed(t *testing.T) {
	files, err := Userland("/")
	if errors.Is(err, ErrNoUserland) {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	there := map[string]bool{}
	libs := map[string]bool{}
	for _, f := range files {
		if there[f.Path] {
			t.Errorf("%s is there twice", f.Path)
		}
		there[f.Path] = true
		if strings.Contains(f.Path, ".so") {
			libs[filepath.Base(f.Path)] = true
		}
	}
	for _, f := range files {
		if f.Mode&fs.ModeSymlink != 0 && !strings.HasPrefix(f.Target, "/") && !there[filepath.Join(filepath.Dir(f.Path), f.Target)] {
			t.Errorf("%s leads to %s, which is not there", f.Path, f.Target)
		}
		ef, err := elf.Open(f.Source)
		if err != nil {
			continue // a terminal description
		}
		needed, err := ef.DynString(elf.DT_NEEDED)
		ef.Close()
		if err != nil {
			continue // static
		}
		for _, n := range needed {
			if !libs[n] {
				t.Errorf("%s needs %s, which is not there", f.Path, n)
			}
		}
	}
	for _, name := range []string{"bin/bash", "bin/sh", "bin/ls", "bin/true"} {
		if !there[name] {
			t.Errorf("no %s", name)
		}
	}
	if err := Write(&bytes.Buffer{}, files); err != nil {
		t.Error(err)
	}
}

func TestNoBash(t *testing.T) {
	if _, err := Userland(t.TempDir()); !errors.Is(err, ErrNoUserland) {
		t.Errorf("got %v, want ErrNoUserland", err)
	}
}

// tree writes files ("->x" is a link) below a new root.
func tree(t *testing.T, files map[string]string) string {
	t.Helper()
	root := t.TempDir()
	for name, text := range files {
		path := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		var err error
		if target, ok := strings.CutPrefix(text, "->"); ok {
			err = os.Symlink(target, path)
		} else {
			err = os.WriteFile(path, []byte(text), 0o755)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	return root
}

func TestLoaderDirs(t *testing.T) {
	root := tree(t, map[string]string{
		"etc/ld.so.conf":             "# comment\ninclude ld.so.conf.d/*.conf\n/opt/x/lib # more\n",
		"etc/ld.so.conf.d/b.conf":    "/b/lib\n",
		"etc/ld.so.conf.d/a.conf":    "/a/lib\n\n",
		"etc/ld.so.conf.d/loop.conf": "include /etc/ld.so.conf\n",
		"usr/lib64/libc.so.6":        "->libc-2.so",
		"usr/lib64/libc-2.so":        "x",
	})
	l := newLoader(root)
	if got := strings.Join(l.dirs[:2], " "); got != "/a/lib /b/lib" {
		t.Errorf("dirs begin with %s", got)
	}
	if !slices.Contains(l.dirs, "/opt/x/lib") || l.libDir != "usr/lib64" {
		t.Errorf("dirs %q, libraries go to %q", l.dirs, l.libDir)
	}
}

func TestResolve(t *testing.T) {
	root := tree(t, map[string]string{
		"usr/bin/real": "x", "bin": "->usr/bin", "abs": "->/bin/real", "up": "->../../../usr/bin/real", "loop": "->loop", "dead": "->nowhere",
	})
	for name, ok := range map[string]bool{"/bin/real": true, "abs": true, "up": true, "/usr/../bin/./real": true, "loop": false, "dead": false, "none": false} {
		got, err := resolve(root, name)
		if (err == nil) != ok || ok && got != filepath.Join(root, "usr/bin/real") {
			t.Errorf("%s: %q, %v", name, got, err)
		}
	}
}

func TestScripts(t *testing.T) {
	root := tree(t, map[string]string{"bin/tool": "#!/bin/interp -x\n", "bin/bad": "#!\n", "bin/loop": "#!/bin/tool\n", "bin/text": "hello"})
	for name, ok := range map[string]bool{"bad": false, "loop": false, "text": false, "tool": false} {
		if _, err := newLoader(root).closure(filepath.Join(root, "bin", name)); (err == nil) != ok {
			t.Errorf("%s: %v", name, err)
		}
	}
	host, err := resolve("/", "/bin/true")
	if err != nil {
		t.Skip(err)
	}
	if err := os.Symlink(host, filepath.Join(root, "bin/interp")); err != nil {
		t.Fatal(err)
	}
	if got, err := shebang(filepath.Join(root, "bin/tool")); err != nil || got != "/bin/interp" {
		t.Errorf("interpreter %q, %v", got, err)
	}
}

func FuzzWrite(f *testing.F) {
	f.Add("a/b", "c", []byte("data"))
	f.Add("/x/../y", "", []byte{})
	f.Fuzz(func(t *testing.T, a, b string, data []byte) {
		var out bytes.Buffer
		err := Write(&out, []File{{Path: a, Data: data}, {Path: b, Mode: fs.ModeSymlink, Target: a}})
		if err == nil {
			read(t, out.Bytes())
		}
	})
}

func BenchmarkBuildUserland(b *testing.B) {
	o := Options{Init: initFile(b, "x"), Userland: true}
	cache := b.TempDir()
	if _, err := Build(b.Context(), cache, o); err != nil {
		b.Skip(err)
	}
	for b.Loop() { // what a boot pays when nothing has changed
		if _, err := Build(b.Context(), cache, o); err != nil {
			b.Fatal(err)
		}
	}
}

// A tool that was asked for by name or path is there, with what it needs; one
// that the host lacks is an error that names it.
func TestFurtherTools(t *testing.T) {
	own := filepath.Join(t.TempDir(), "mytool")
	if err := os.WriteFile(own, []byte("#!/bin/sh\necho mine\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	files, err := Userland("/", "git", own)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"bin/git", "bin/mytool", "bin/modprobe"} {
		if !slices.ContainsFunc(files, func(f File) bool { return f.Path == want }) {
			t.Errorf("no %s", want)
		}
	}
	for _, name := range []string{"no-such-program", "/no/such/program"} {
		var tool *ToolError
		if _, err := Userland("/", name); !errors.As(err, &tool) || tool.Name != name {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// The cache forgets the archives that were not used for longest.
func TestBuildForgets(t *testing.T) {
	cache := t.TempDir()
	build := func(n int) string {
		name, err := Build(t.Context(), cache, Options{Init: initFile(t, "x"), Extra: []File{{Path: "n", Data: []byte{byte(n)}}}})
		if err != nil {
			t.Fatal(err)
		}
		old := time.Now().Add(time.Duration(n-1000) * time.Second)
		if err := os.Chtimes(name, old, old); err != nil {
			t.Fatal(err)
		}
		return name
	}
	first, second := build(0), build(1)
	for n := range kept {
		build(0) // in use
		if _, err := os.Stat(first); err != nil {
			t.Fatal(err)
		}
		if err := os.Chtimes(first, time.Now(), time.Now()); err != nil {
			t.Fatal(err)
		}
		build(2 + n)
	}
	if _, err := os.Stat(second); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the oldest is still there: %v", err)
	}
	if names, _ := filepath.Glob(filepath.Join(cache, "*.cpio")); len(names) != kept {
		t.Errorf("%d archives are kept, want %d", len(names), kept)
	}
}
