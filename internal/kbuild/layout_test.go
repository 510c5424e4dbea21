package kbuild

import (
	"bytes"
	"context"
	"debug/elf"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// archiveTree links from a thin archive, as the kernel's Makefile does since 6.1.
func archiveTree(changes ...string) map[string]string {
	files := with(changes...)
	files["Makefile"] = strings.Replace(fakeMakefile, "@ld --build-id -o $@ $(objs)",
		"@rm -f $(obj)/vmlinux.a && cd $(obj) && ar cDPrST vmlinux.a $(notdir $(objs)) && ld --build-id -o vmlinux --whole-archive vmlinux.a --no-whole-archive", 1)
	return files
}

// symbols returns the addresses and sizes of a vmlinux's functions.
func symbols(t *testing.T, vmlinux string) (at, size map[string]uint64) {
	t.Helper()
	e, err := elf.Open(vmlinux)
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	list, err := e.Symbols()
	if err != nil {
		t.Fatal(err)
	}
	at, size = make(map[string]uint64), make(map[string]uint64)
	for _, s := range list {
		if elf.ST_TYPE(s.Info) == elf.STT_FUNC {
			at[s.Name], size[s.Name] = s.Value, s.Size
		}
	}
	return at, size
}

// TestLayout: the same functions at other places, another kernel, and a tree
// that builds the ordinary one afterwards.
func TestLayout(t *testing.T) {
	needTools(t, "as", "ar", "awk")
	repo := newRepo(t)
	b := Builder{Cache: t.TempDir()}
	layout := func(commit string, n int) *Kernel {
		t.Helper()
		r := repo.request(commit)
		r.Layout = n
		k, err := b.Build(context.Background(), r)
		if err != nil {
			t.Fatal(err)
		}
		k.Release()
		return k
	}
	first := repo.commit(archiveTree())
	changed := repo.commit(archiveTree("value.c", "int value(void) { return 2; }\n"))
	plain := layout(first, 0)
	was, size := symbols(t, plain.Image)
	ids := map[string]bool{plain.Identity: true}
	for n := 1; n <= 4; n++ {
		k := layout(first, n)
		if k.Objects != 1 || k.Layout != n || k.Key == plain.Key || ids[k.Identity] {
			t.Errorf("layout %d: %+v", n, k.Info)
		}
		ids[k.Identity] = true
		at, sizes := symbols(t, k.Image)
		moved := 0
		for name := range was {
			if size[name] != sizes[name] {
				t.Errorf("layout %d: %s of %d bytes at %#x, was of %d at %#x", n, name, sizes[name], at[name], size[name], was[name])
			}
			if at[name]%64 != was[name]%64 {
				moved++
			}
		}
		if len(at) != len(was) || moved == 0 {
			t.Errorf("layout %d: %d of %d functions moved: %v", n, moved, len(was), at)
		}
		// A layout is of a number, not of a build.
		if err := os.RemoveAll(k.Dir); err != nil {
			t.Fatal(err)
		}
		if again := layout(first, n); again.SHA256 != k.SHA256 {
			t.Errorf("layout %d again: %+v", n, again.Info)
		}
	}
	if other := layout(changed, 3); ids[other.Identity] || other.Objects != 2 {
		t.Errorf("another tree: %+v", other.Info)
	}
	want := repo.build(Builder{Cache: t.TempDir()}, changed)
	if got := layout(changed, 0); got.SHA256 != want.SHA256 || got.Cached {
		t.Errorf("after layouts: %+v\nwant %+v", got.Info, want.Info)
	}
	r := repo.request(first)
	r.Layout = -1
	if _, err := b.Build(context.Background(), r); err == nil || !strings.Contains(err.Error(), "layout -1") {
		t.Errorf("got %v", err)
	}
}

// TestLayoutKilled: a layout that was ended between its link and its note is not
// taken for the ordinary kernel.
func TestLayoutKilled(t *testing.T) {
	needTools(t, "as", "ar", "awk")
	repo := newRepo(t)
	b := Builder{Cache: t.TempDir()}
	commit := repo.commit(archiveTree())
	want := repo.build(b, commit)
	r := repo.request(commit)
	r.Layout = 1
	ctx, cancel := context.WithCancel(context.Background())
	r.Progress = func(p Phase, _, _ int64) {
		if p == PhaseStore {
			cancel()
		}
	}
	k, err := b.Build(ctx, r)
	if err == nil {
		k.Release()
	}
	for _, dir := range []string{want.Dir, filepath.Join(b.Cache, "kernels")} {
		if err := os.RemoveAll(dir); err != nil {
			t.Fatal(err)
		}
	}
	if got := repo.build(b, commit); got.SHA256 != want.SHA256 || got.Cached {
		t.Errorf("got %+v\nwant %+v", got.Info, want.Info)
	}
}

// TestLayoutScript: other links pass as they are, and a broken archive is an error.
func TestLayoutScript(t *testing.T) {
	needTools(t, "as", "ar", "awk", "ld")
	repo := newRepo(t)
	b := Builder{Cache: t.TempDir()}
	r := repo.request(repo.commit(archiveTree("hook.sh", "echo 'int hook;' | gcc -c -x c - -o $1.hook && ld -r -o $1.hooked $1.hook && rm $1.hook $1.hooked || exit 1\n")))
	r.Layout = 2
	k, err := b.Build(context.Background(), r)
	if err != nil {
		t.Fatal(err)
	}
	k.Release()
	left, _ := filepath.Glob(filepath.Join(b.Cache, "build", "*", "src", objName, ".kbisect-layout*"))
	if len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
	log, err := os.ReadFile(k.Log)
	if err != nil || bytes.Contains(log, []byte("awk")) {
		t.Errorf("log: %v\n%s", err, log)
	}
}
