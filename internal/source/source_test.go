package source

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/kbisect/kbisect/internal/gitx"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const makefile61 = "# SPDX-License-Identifier: GPL-2.0\nVERSION = 6\nPATCHLEVEL = 1\nSUBLEVEL = 7\nEXTRAVERSION = -rc2\nNAME = x\n\nVERSION = 9\n"

// kernelMembers is a small tree with every kind of entry.
func kernelMembers(prefix string) []tar.Header {
	return []tar.Header{
		{Typeflag: tar.TypeXGlobalHeader, PAXRecords: map[string]string{"comment": "0123"}},
		{Typeflag: tar.TypeDir, Name: prefix, Mode: 0o755},
		{Typeflag: tar.TypeReg, Name: prefix + "Makefile", Mode: 0o644, Linkname: makefile61},
		{Typeflag: tar.TypeReg, Name: prefix + "Kbuild", Mode: 0o644, Linkname: "obj-y += x\n"},
		{Typeflag: tar.TypeReg, Name: prefix + ".gitignore", Mode: 0o644, Linkname: "*\n"},
		{Typeflag: tar.TypeDir, Name: prefix + "scripts/", Mode: 0o755},
		{Typeflag: tar.TypeReg, Name: prefix + "scripts/run me.sh", Mode: 0o755, Linkname: "#!/bin/sh\n"},
		{Typeflag: tar.TypeReg, Name: prefix + `scripts/"q\` + "\n", Mode: 0o644, Linkname: ""},
		{Typeflag: tar.TypeSymlink, Name: prefix + "scripts/link", Linkname: "../Makefile"},
		{Typeflag: tar.TypeLink, Name: prefix + "hard", Linkname: prefix + "scripts/run me.sh"},
	}
}

// pack writes members; the content of a file is in its Linkname.
func pack(t testing.TB, members []tar.Header) []byte {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, h := range members {
		body := ""
		if h.Typeflag == tar.TypeReg {
			body, h.Linkname, h.Size = h.Linkname, "", int64(len(h.Linkname))
		}
		h.ModTime = time.Now()
		if h.Typeflag == tar.TypeXGlobalHeader {
			h.ModTime = time.Time{}
		}
		if err := w.WriteHeader(&h); err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write([]byte(body)); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// compress runs a packer; gzip is done here.
func compress(t testing.TB, tool string, data []byte) []byte {
	t.Helper()
	var b bytes.Buffer
	if tool == "gzip" {
		w := gzip.NewWriter(&b)
		if _, err := w.Write(data); err != nil {
			t.Fatal(err)
		}
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
		return b.Bytes()
	}
	needTool(t, tool)
	cmd := exec.Command(tool, "-cq")
	cmd.Stdin, cmd.Stdout = bytes.NewReader(data), &b
	if err := cmd.Run(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func needTool(t testing.TB, tool string) {
	t.Helper()
	if _, err := exec.LookPath(tool); err == nil {
		return
	}
	if testing.Short() {
		t.Skipf("%s is not installed", tool)
	}
	t.Fatalf("%s is not installed: run kbisect doctor --install, or test with -short", tool)
}

func write(t testing.TB, path string, data []byte) string {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, data, 0o644); err != nil {
		t.Fatal(err)
	}
	return path
}

// testOptions has a cache whose path has what breaks naive quoting, and fails the
// test at a warning unless warns is given.
func testOptions(t testing.TB, warns *[]string) Options {
	t.Helper()
	return Options{Cache: filepath.Join(t.TempDir(), "ca che"), Warn: func(s string) {
		if warns == nil {
			t.Errorf("unexpected warning: %s", s)
		} else {
			*warns = append(*warns, s)
		}
	}}
}

func mustOpen(t testing.TB, spec string, o Options) *Source {
	t.Helper()
	src, err := Open(t.Context(), spec, o)
	if err != nil {
		t.Fatal(err)
	}
	return src
}

// leftovers lists what an import left unfinished.
func leftovers(t testing.TB, o Options) []string {
	t.Helper()
	entries, err := os.ReadDir(o.root("imports"))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		t.Fatal(err)
	}
	var list []string
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), tmpPrefix) {
			list = append(list, e.Name())
		}
	}
	return list
}

func TestTarballs(t *testing.T) {
	plain := pack(t, kernelMembers("linux-6.1/"))
	o := testOptions(t, nil)
	dir := t.TempDir()
	var head string
	for name, data := range map[string][]byte{
		"a.tar":     plain,
		"no prefix": pack(t, kernelMembers("./")),
		"other":     pack(t, kernelMembers("./some dir/")),
		"a.tar.gz":  compress(t, "gzip", plain),
		"a.tar.xz":  compress(t, "xz", plain),
		"a.tar.zst": compress(t, "zstd", plain),
		"a.bz2":     compress(t, "bzip2", plain),
	} {
		src := mustOpen(t, write(t, filepath.Join(dir, "with: colon", name), data), o)
		if src.Version != "6.1.7-rc2" || src.Name != filepath.Join(dir, "with: colon", name) {
			t.Errorf("%s: %+v", name, src)
		}
		if head == "" {
			head = src.Head
		} else if src.Head != head {
			t.Errorf("%s: equal content is commit %s, not %s", name, src.Head, head)
		}
		checkTree(t, src)
	}
	// The time, the user and the machine must not be in it.
	if want := "781a2e8b85"; !strings.HasPrefix(head, want) {
		t.Errorf("commit is %s, was %s...: every cached result changes its name", head, want)
	}
	if l := leftovers(t, o); l != nil {
		t.Errorf("left behind: %v", l)
	}
}

func checkTree(t *testing.T, src *Source) {
	t.Helper()
	out, err := src.Repo().Output(t.Context(), "ls-tree", "-r", "-z", "HEAD")
	if err != nil {
		t.Fatal(err)
	}
	out = regexp.MustCompile(` blob [0-9a-f]+\t`).ReplaceAllString(out, " ")
	const want = "100644 .gitignore\x00100644 Kbuild\x00100644 Makefile\x00100755 hard\x00" +
		"100644 scripts/\"q\\\n\x00120000 scripts/link\x00100755 scripts/run me.sh\x00"
	if out != want {
		t.Errorf("tree is %q; want %q", out, want)
	}
	dir := filepath.Join(t.TempDir(), "wt")
	if _, err := src.Repo().AddWorktree(t.Context(), dir, src.Head); err != nil {
		t.Fatal(err)
	}
	if b, err := os.ReadFile(filepath.Join(dir, "scripts", "link")); err != nil || string(b) != makefile61 {
		t.Errorf("checked out: %q, %v", b, err)
	}
	if err := src.Repo().RemoveWorktree(t.Context(), dir); err != nil {
		t.Error(err)
	}
}

// TestTarballOnce opens twice: the second time nothing is read, also under
// another path, until the content changes.
func TestTarballOnce(t *testing.T) {
	var stages []string
	o := testOptions(t, nil)
	o.Progress = func(stage string, _, _ int64) { stages = append(stages, stage) }
	path := write(t, filepath.Join(t.TempDir(), "a.tar"), pack(t, kernelMembers("x/")))
	first := mustOpen(t, path, o)
	if len(stages) == 0 || stages[0] != StageHash || stages[len(stages)-1] != StageImport {
		t.Errorf("stages %q", stages)
	}
	stages = nil
	second := mustOpen(t, path, o)
	if *second != *first || stages != nil {
		t.Errorf("second open: %+v, stages %q", second, stages)
	}
	if id, err := second.Resolve(t.Context(), ""); err != nil || id != first.Head {
		t.Errorf("Resolve = %s, %v", id, err)
	}
	if _, err := second.Resolve(t.Context(), "v6.1"); !errors.As(err, new(*gitx.UnknownRevisionError)) {
		t.Errorf("Resolve of a tag that is not there: %v", err)
	}
	more := append(kernelMembers("x/"), tar.Header{Typeflag: tar.TypeReg, Name: "x/new", Linkname: "x"})
	write(t, path, pack(t, more))
	if third := mustOpen(t, path, o); third.Head == first.Head {
		t.Error("a changed tarball is the old commit")
	}
}

func TestBadTarballs(t *testing.T) {
	with := func(h ...tar.Header) []byte { return pack(t, append(kernelMembers("x/"), h...)) }
	plain := with()
	xz := compress(t, "xz", bytes.Repeat(plain, 1))
	gz := compress(t, "gzip", plain)
	var specErr *SpecError
	for name, c := range map[string]struct {
		data []byte
		part string
		spec bool
	}{
		"traversal":           {with(tar.Header{Typeflag: tar.TypeReg, Name: "x/../../y"}), `refused member name "x/../../y"`, false},
		"absolute":            {with(tar.Header{Typeflag: tar.TypeReg, Name: "/etc/x"}), "refused member name", false},
		"git folder":          {with(tar.Header{Typeflag: tar.TypeReg, Name: "x/.GIT/config"}), "refused member name", false},
		"hardlink away":       {with(tar.Header{Typeflag: tar.TypeLink, Name: "x/h", Linkname: "../h"}), "refused member name", false},
		"hardlink to nothing": {with(tar.Header{Typeflag: tar.TypeLink, Name: "x/h", Linkname: "x/none"}), "fast-import", false},
		"device":              {with(tar.Header{Typeflag: tar.TypeChar, Name: "x/null"}), "neither a file", false},
		"cut tar":             {plain[:len(plain)-3000], "read archive", false},
		"cut between":         {plain[:len(plain)-1024], "no end", false},
		"cut xz":              {xz[:len(xz)-30], "xz", false},
		"cut gzip":            {gz[:len(gz)-30], "unexpected EOF", false},
		"bad gzip sum":        {append(append([]byte{}, gz[:len(gz)-8]...), 1, 2, 3, 4, 5, 6, 7, 8), "checksum", false},
		"no kernel":           {pack(t, []tar.Header{{Typeflag: tar.TypeReg, Name: "x/Makefile", Linkname: makefile61}}), "not a kernel source", true},
		"two folders":         {pack(t, append(kernelMembers("x/"), tar.Header{Typeflag: tar.TypeReg, Name: "y/f"})), "not a kernel source", true},
		"no files":            {pack(t, []tar.Header{{Typeflag: tar.TypeDir, Name: "x/"}}), "no files", false},
		"no archive":          {[]byte("hello"), "not an archive", true},
		"empty":               {nil, "not an archive", true},
	} {
		t.Run(name, func(t *testing.T) {
			o := testOptions(t, nil)
			path := write(t, filepath.Join(t.TempDir(), "bad.tar"), c.data)
			src, err := Open(t.Context(), path, o)
			if err == nil || !strings.Contains(err.Error(), c.part) || !strings.Contains(err.Error(), path) || errors.As(err, &specErr) != c.spec {
				t.Errorf("Open = %+v, %v (%T); want %q", src, err, err, c.part)
			}
			if l := leftovers(t, o); l != nil {
				t.Errorf("left behind: %v", l)
			}
		})
	}
}

func TestBadSpecs(t *testing.T) {
	dir := t.TempDir()
	plain := filepath.Dir(write(t, filepath.Join(dir, "plain", "Makefile"), []byte(makefile61)))
	fifo := filepath.Join(dir, "fifo")
	if err := syscall.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	for spec, part := range map[string]string{
		filepath.Join(dir, "none"): "debian:6.1",
		plain:                      "not the top of a git tree",
		fifo:                       "neither a folder nor a file",
		"debian:six":               "not a version",
		"debian:6":                 "not a version",
		"debian:6.1/../x":          "not a version",
	} {
		var e *SpecError
		if _, err := Open(t.Context(), spec, testOptions(t, nil)); !errors.As(err, &e) || !strings.Contains(err.Error(), part) {
			t.Errorf("Open(%q): %v; want %q", spec, err, part)
		}
	}
	if _, err := Open(t.Context(), plain, Options{}); err == nil {
		t.Error("opened without a cache")
	}
}

func TestMissingTool(t *testing.T) {
	xz := compress(t, "xz", pack(t, kernelMembers("x/")))
	git, err := exec.LookPath("git")
	if err != nil {
		t.Fatal(err)
	}
	bin := t.TempDir()
	if err := os.Symlink(git, filepath.Join(bin, "git")); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", bin)
	var e *ToolError
	o := testOptions(t, nil)
	if _, err := Open(t.Context(), write(t, filepath.Join(t.TempDir(), "a"), xz), o); !errors.As(err, &e) || e.Tool != "xz" {
		t.Errorf("Open: %v; want a ToolError", err)
	}
	if l := leftovers(t, o); l != nil {
		t.Errorf("left behind: %v", l)
	}
}

// TestCancelImport stops an import in the middle.
func TestCancelImport(t *testing.T) {
	o := testOptions(t, nil)
	ctx, cancel := context.WithCancel(t.Context())
	big := append(kernelMembers("x/"), tar.Header{Typeflag: tar.TypeReg, Name: "x/big", Linkname: strings.Repeat("0123456789abcdef", 1<<20)})
	path := write(t, filepath.Join(t.TempDir(), "a.tar"), pack(t, big))
	o.Progress = func(stage string, _, _ int64) {
		if stage == StageImport {
			cancel()
		}
	}
	if _, err := Open(ctx, path, o); !errors.Is(err, context.Canceled) {
		t.Errorf("Open: %v; want the context's error", err)
	}
	if l := leftovers(t, o); l != nil {
		t.Errorf("left behind: %v", l)
	}
	// What a killed import left is cleared by the next.
	o.Progress = nil
	sum, _, err := tarballHash(t.Context(), path, &o)
	if err != nil {
		t.Fatal(err)
	}
	write(t, o.root("imports", tmpPrefix+"tar-"+sum[:24], "repo.git", "objects", "junk"), []byte("x"))
	write(t, o.root("imports", tmpPrefix+"debian-6.1.0-1-01234567", "deb", "junk"), []byte("x"))
	// One that is being made stays.
	unlock, err := o.lock(t.Context(), "busy")
	if err != nil {
		t.Fatal(err)
	}
	defer unlock()
	write(t, o.root("imports", tmpPrefix+"busy", "junk"), []byte("x"))
	mustOpen(t, path, o)
	if l := leftovers(t, o); len(l) != 1 || l[0] != tmpPrefix+"busy" {
		t.Errorf("left behind: %v", l)
	}
}

// TestImportShared opens one tarball from several sides at once.
func TestImportShared(t *testing.T) {
	o := testOptions(t, nil)
	path := write(t, filepath.Join(t.TempDir(), "a.tar"), pack(t, kernelMembers("x/")))
	var mu sync.Mutex
	imports := map[int]bool{}
	var wg sync.WaitGroup
	for i := range 5 {
		mine := o
		mine.Progress = func(stage string, _, _ int64) {
			mu.Lock()
			defer mu.Unlock()
			if stage == StageImport {
				imports[i] = true
			}
		}
		wg.Go(func() {
			if _, err := Open(t.Context(), path, mine); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if len(imports) != 1 {
		t.Errorf("%d of 5 imported; want 1", len(imports))
	}
}

// TestDiskFull imports into a file system that is too small.
func TestDiskFull(t *testing.T) {
	dir := t.TempDir()
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, "size=16m"); err != nil {
		t.Skipf("cannot mount a small file system: %v", err)
	}
	defer func() {
		if err := syscall.Unmount(dir, 0); err != nil {
			t.Error(err)
		}
	}()
	o := Options{Cache: filepath.Join(dir, "cache")}
	noise := make([]byte, 24<<20)
	_, _ = rand.NewChaCha8([32]byte{}).Read(noise) // does not compress; never fails
	data := pack(t, append(kernelMembers("x/"), tar.Header{Typeflag: tar.TypeReg, Name: "x/noise", Linkname: string(noise)}))
	path := write(t, filepath.Join(t.TempDir(), "a.tar"), data)
	// Seen before anything is written.
	var e *DiskFullError
	if _, err := Open(t.Context(), path, o); !errors.As(err, &e) || e.Free >= e.Need {
		t.Errorf("Open: %v; want a DiskFullError", err)
	}
	// Met on the way, by git.
	err := importArchive(t.Context(), archive{key: "k", name: path, read: fileReader(path)}, &o)
	if e = nil; !errors.As(err, &e) {
		t.Errorf("import: %v; want a DiskFullError", err)
	}
	if l := leftovers(t, o); l != nil {
		t.Errorf("left behind: %v", l)
	}
}

func FuzzMemberPath(f *testing.F) {
	for _, s := range []string{"a/b", "./a", "../a", "/a", "a//b", "a/./b", "a/.git/x", ""} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, name string) {
		p, err := memberPath(name)
		if err != nil {
			return
		}
		if !filepath.IsLocal(p) || p == "." || strings.Contains("/"+strings.ToLower(p)+"/", "/.git/") {
			t.Errorf("memberPath(%q) = %q", name, p)
		}
	})
}

func TestMakefileVersion(t *testing.T) {
	for text, want := range map[string]string{
		makefile61:                    "6.1.7-rc2",
		"VERSION = 7\nPATCHLEVEL=2\n": "7.2",
		"VERSION=5\nPATCHLEVEL = 10\nSUBLEVEL = 0\nEXTRAVERSION =\n": "5.10.0",
		"VERSION = 6\n": "",
		"all:\n":        "",
		"":              "",
	} {
		if got := makefileVersion(text); got != want {
			t.Errorf("makefileVersion(%q) = %q; want %q", text, got, want)
		}
	}
}

// BenchmarkImport reports the time to import a tree of 20,000 small files.
func BenchmarkImport(b *testing.B) {
	members := kernelMembers("x/")
	for i := range 20_000 {
		members = append(members, tar.Header{Typeflag: tar.TypeReg, Name: fmt.Sprintf("x/d%d/f%d.c", i%200, i), Linkname: strings.Repeat(fmt.Sprintf("int f%d(void);\n", i), 300)})
	}
	data := pack(b, members)
	path := write(b, filepath.Join(b.TempDir(), "a.tar"), data)
	b.SetBytes(int64(len(data)))
	for b.Loop() {
		o := testOptions(b, nil)
		mustOpen(b, path, o)
	}
}
