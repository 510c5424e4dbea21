// Package testkernel gives tests a real kernel to boot: built from kconfigs/ in
// the user's own cache, so that the minutes of a first build are spent once on a
// machine.
//
// Environment: KBISECT_TEST_KERNEL names a vmlinux to use instead of building
// one, KBISECT_TEST_CACHE another cache, KBISECT_KERNEL another source than
// debian:6.1.
package testkernel

import (
	"bytes"
	"cmp"
	"context"
	"os"
	"testing"

	"github.com/kbisect/kbisect/internal/host"
	"github.com/kbisect/kbisect/internal/kbuild"
	"github.com/kbisect/kbisect/internal/kconfig"
	"github.com/kbisect/kbisect/internal/source"
	"github.com/kbisect/kbisect/kconfigs"
)

// Path returns a bootable vmlinux. It skips the test under -short, since the
// first call on a machine fetches a source and builds a kernel (minutes). The
// kernel is held in the cache until the test ends.
func Path(t testing.TB) string {
	t.Helper()
	skipShort(t)
	if p := os.Getenv("KBISECT_TEST_KERNEL"); p != "" {
		return p
	}
	src := Source(t)
	return Build(t, src, src.Head).Image
}

func skipShort(t testing.TB) {
	t.Helper()
	if testing.Short() {
		t.Skip("needs a real kernel (the first time minutes to build); run without -short")
	}
}

// Cache returns the cache folder that tests of real kernels share.
func Cache(t testing.TB) string {
	t.Helper()
	if dir := os.Getenv("KBISECT_TEST_CACHE"); dir != "" {
		return dir
	}
	dir, err := host.CacheDir()
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

// Source opens the kernel source that tests build. It skips under -short.
func Source(t testing.TB) *source.Source {
	t.Helper()
	skipShort(t)
	src, err := source.Open(context.Background(), cmp.Or(os.Getenv(source.Env), "debian:6.1"), source.Options{Cache: Cache(t)})
	if err != nil {
		t.Fatalf("%v\n(kbisect doctor --install installs what is missing)", err)
	}
	return src
}

// Fragments returns the embedded configuration.
func Fragments(t testing.TB) []*kconfig.Config {
	t.Helper()
	var all []*kconfig.Config
	for _, name := range kconfigs.Default() {
		text, err := kconfigs.Get(name)
		if err != nil {
			t.Fatal(err)
		}
		c, err := kconfig.Parse(kconfigs.FileName(name), bytes.NewReader(text))
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, c)
	}
	return all
}

// Build builds a commit of src, or finds it in the cache, and holds the kernel
// until the test ends.
func Build(t testing.TB, src *source.Source, commit string) *kbuild.Kernel {
	t.Helper()
	k, err := kbuild.Builder{Cache: Cache(t)}.Build(context.Background(),
		kbuild.Request{GitDir: src.GitDir, Commit: commit, Fragments: Fragments(t)})
	if err != nil {
		t.Fatalf("%v\n(kbisect doctor --install installs what is missing)", err)
	}
	t.Cleanup(k.Release)
	return k
}
