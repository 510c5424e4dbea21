package kbuild_test

import (
	"context"
	"debug/elf"
	"os"
	"testing"
	"time"

	"github.com/kbisect/kbisect/internal/guestbin"
	"github.com/kbisect/kbisect/internal/initramfs"
	"github.com/kbisect/kbisect/internal/kbuild"
	"github.com/kbisect/kbisect/internal/testkernel"
	"github.com/kbisect/kbisect/vm"
	"github.com/kbisect/kbisect/vm/qemu"
)

// TestRealLayout perturbs a real kernel: the same functions stand elsewhere, it
// boots, and the tree builds the ordinary kernel afterwards.
func TestRealLayout(t *testing.T) {
	src := testkernel.Source(t)
	b := kbuild.Builder{Cache: testkernel.Cache(t)}
	r := kbuild.Request{GitDir: src.GitDir, Commit: src.Head, Fragments: testkernel.Fragments(t)}
	plain := timedBuild(t, b, r)
	r.Layout = 1
	// What an earlier test left would hide the time, and whether it still works.
	forget(t, b, r)
	one := timedBuild(t, b, r)
	r.Layout = 2
	forget(t, b, r)
	two := timedBuild(t, b, r)
	if one.Identity == plain.Identity || one.Identity == two.Identity || one.Key == plain.Key || one.Layout != 1 || plain.Layout != 0 {
		t.Errorf("layouts are not told apart:\n%+v\n%+v\n%+v", plain.Info, one.Info, two.Info)
	}
	moved(t, plain, one)
	moved(t, one, two)
	bootOnce(t, one.Image)

	// The ordinary kernel itself must stay: other packages' tests boot it meanwhile.
	// A bzImage has a place of its own in the cache, and the same vmlinux in it.
	r.Layout, r.Target = 0, kbuild.BzImage
	forget(t, b, r)
	if again := timedBuild(t, b, r); again.Cached || again.Identity != plain.Identity {
		t.Errorf("the tree did not come back from a layout: cached %v, identity %s, was %s", again.Cached, again.Identity, plain.Identity)
	}
}

func timedBuild(t *testing.T, b kbuild.Builder, r kbuild.Request) *kbuild.Kernel {
	t.Helper()
	began := time.Now()
	k, err := b.Build(context.Background(), r)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(k.Release)
	t.Logf("layout %d: %.1f s, %d steps, cached %v", r.Layout, time.Since(began).Seconds(), k.Objects, k.Cached)
	return k
}

// forget removes the request's kernel from the cache; its tree stays.
func forget(t *testing.T, b kbuild.Builder, r kbuild.Request) {
	t.Helper()
	k, err := b.Lookup(context.Background(), r)
	if err != nil {
		t.Fatal(err)
	}
	if k != nil {
		defer k.Release()
		if err := os.RemoveAll(k.Dir); err != nil {
			t.Fatal(err)
		}
	}
}

// function is what of a function must not depend on where it is.
type function struct {
	name string
	size uint64
}

// functions returns the addresses of a kernel's functions; one name may stand
// for several.
func functions(t *testing.T, vmlinux string) map[function][]uint64 {
	t.Helper()
	e, err := elf.Open(vmlinux)
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	symbols, err := e.Symbols()
	if err != nil {
		t.Fatal(err)
	}
	at := make(map[function][]uint64)
	for _, s := range symbols {
		if elf.ST_TYPE(s.Info) == elf.STT_FUNC && s.Size > 0 {
			f := function{s.Name, s.Size}
			at[f] = append(at[f], s.Value)
		}
	}
	return at
}

// moved checks that b has the functions of a, most of them elsewhere in their
// cache lines and pages.
func moved(t *testing.T, a, b *kbuild.Kernel) {
	t.Helper()
	was, is := functions(t, a.Image), functions(t, b.Image)
	all, line, page := 0, 0, 0
	for f, at := range was {
		if len(is[f]) != len(at) {
			t.Errorf("%s of %d bytes: %d times in layout %d, %d times in layout %d", f.name, f.size, len(at), a.Layout, len(is[f]), b.Layout)
		}
		if len(at) != 1 || len(is[f]) != 1 {
			continue
		}
		all++
		if at[0]%64 != is[f][0]%64 {
			line++
		}
		if at[0]%4096 != is[f][0]%4096 {
			page++
		}
	}
	t.Logf("layout %d to %d: of %d functions, %.0f %% moved in their cache lines, %.0f %% in their pages", a.Layout, b.Layout, all, 100*float64(line)/float64(all), 100*float64(page)/float64(all))
	if len(is) != len(was) || all < 5000 || line < all/2 || page < all*3/4 {
		t.Errorf("layout %d: %d and %d functions, %d compared, %d moved in their cache lines, %d in their pages", b.Layout, len(was), len(is), all, line, page)
	}
}

// bootOnce boots a kernel to its userspace.
func bootOnce(t *testing.T, image string) {
	t.Helper()
	ctx := context.Background()
	bin, err := guestbin.Init(ctx, t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	initrd, err := initramfs.Build(ctx, t.TempDir(), initramfs.Options{Init: bin})
	if err != nil {
		t.Fatal(err)
	}
	m, err := qemu.Start(ctx, vm.Spec{Kernel: image, Initrd: initrd, Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	if err := m.Close(); err != nil {
		t.Error(err)
	}
}

// TestRealInputs asks what the kernel of the tests was built from.
func TestRealInputs(t *testing.T) {
	src := testkernel.Source(t)
	b := kbuild.Builder{Cache: testkernel.Cache(t)}
	if _, err := build(t, b, src, src.Head); err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	in, err := b.Inputs(context.Background(), kbuild.Request{GitDir: src.GitDir, Commit: src.Head, Fragments: testkernel.Fragments(t)})
	if err != nil {
		t.Fatal(err)
	}
	took := time.Since(began)
	t.Logf("%d inputs in %.2f s", len(in), took.Seconds())
	if len(in) < 2000 || took > 10*time.Second {
		t.Errorf("%d inputs in %s", len(in), took)
	}
	for file, want := range map[string]bool{
		"net/core/dev.c": true, "net/sched/sch_generic.c": true, "include/linux/skbuff.h": true, "include/net/sock.h": true, "arch/x86/kernel/vmlinux.lds.S": true,
		"net/core/Makefile": true, "Makefile": true, "drivers/net/ethernet/intel/ice/Makefile": false, "drivers/gpu/drm/Kconfig": true,
		"arch/x86/entry/syscalls/syscall_64.tbl": true, "drivers/net/ethernet/intel/ice/ice_main.c": false, "net/mac80211/main.c": false,
		"Documentation/networking/index.rst": false, "tools/testing/selftests/net/Makefile": false, "arch/arm64/Kconfig": false, "fs/btrfs/inode.c": false,
		"tools/objtool/check.c": true, "scripts/link-vmlinux.sh": true, "MAINTAINERS": false,
	} {
		if kbuild.Used(in, file) != want {
			t.Errorf("%s: used %v", file, !want)
		}
	}
}
