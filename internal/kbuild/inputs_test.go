package kbuild

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// writeTree fills a build tree's objects' folder.
func writeTree(t testing.TB, obj string, files map[string]string) {
	t.Helper()
	for name, text := range files {
		path := filepath.Join(obj, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

func TestInputs(t *testing.T) {
	repo := newRepo(t)
	b := Builder{Cache: t.TempDir()}
	r := repo.request(repo.commit(fakeTree()))
	ctx := context.Background()
	if in, err := b.Inputs(ctx, r); in != nil || err != nil {
		t.Errorf("no tree: %v, %v", in, err)
	}
	if list, _ := filepath.Glob(filepath.Join(b.Cache, "build", "*")); len(list) != 0 {
		t.Errorf("asking left %v", list)
	}
	repo.build(b, r.Commit)
	if in, err := b.Inputs(ctx, r); in != nil || err != nil {
		t.Errorf("a tree that says nothing: %v, %v", in, err)
	}
	dirs, _ := filepath.Glob(filepath.Join(b.Cache, "build", "*", "src"))
	if len(dirs) != 1 {
		t.Fatal(dirs)
	}
	src := dirs[0]
	writeTree(t, src, map[string]string{"tools/objtool/elf.c": ""})
	writeTree(t, filepath.Join(src, objName), map[string]string{
		"net/core/.dev.o.cmd": "savedcmd_net/core/dev.o := gcc -Wp,-MMD,net/core/.dev.o.d -nostdinc -I../arch/x86/include -I./include -include ../include/linux/kconfig.h -DX=\"a\" -fmacro-prefix-map=../= -c -o net/core/dev.o ../net/core/dev.c ; ./tools/objtool/objtool --orc net/core/dev.o\n\n" +
			"source_net/core/dev.o := ../net/core/dev.c\n\ndeps_net/core/dev.o := \\\n    $(wildcard include/config/RPS) \\\n  ../include/linux/types.h \\\n  arch/x86/include/generated/uapi/asm/types.h \\\n  /usr/lib/gcc/x86_64-linux-gnu/12/include/stdarg.h \\\n\nnet/core/dev.o: $(deps_net/core/dev.o)\n",
		"arch/x86/boot/.string.o.cmd":  "deps_x := \\\n  ../arch/x86/boot/compressed/../string.c\n",
		".vmlinux.cmd":                 "cmd_vmlinux := sh ../scripts/link-vmlinux.sh \"ld\" \"-m elf_x86_64\"; true",
		"tools/objtool/.check.o.cmd":   "cmd_" + src + "/" + objName + "/tools/objtool/check.o := gcc -I" + src + "/tools/include -c check.c\ndeps := " + src + "/tools/objtool/check.c " + src + "/" + objName + "/tools/objtool/gen.h\n",
		"tools/objtool/.elf.o.cmd":     "cmd_x := gcc -I" + src + "/tools/include -c elf.c\n",
		"include/config/auto.conf.cmd": "deps_config := \\\n\tKconfig \\\n\tnet/Kconfig \\\n\tinclude/config/auto.conf\n",
		"net/core/dev.o":               "../not/a/list.c ",
		".empty.cmd":                   "",
		"net/.built-in.a.cmd":          "cmd_net/built-in.a := rm -f net/built-in.a; printf \"net/%s \" core/dev.o | xargs ar cDPrST net/built-in.a\n",
		"net/core/.torn.o.cmd":         "savedcmd_net/core/torn.o := gcc ../net/core/torn.",
		"../../../outside/.a.o.cmd":    "../../../../etc/passwd",
		"lib/.up.o.cmd":                "../../outside.c ../lib/./up.c",
	})
	in, err := b.Inputs(ctx, r)
	if err != nil {
		t.Fatal(err)
	}
	got := slices.Sorted(maps.Keys(in))
	want := []string{"Kconfig", "arch/", "arch/x86/", "arch/x86/boot/", "arch/x86/boot/string.c", "include/linux/kconfig.h", "include/linux/types.h", "lib/", "lib/up.c", "net/", "net/Kconfig",
		"net/core/", "net/core/dev.c", "net/core/torn.", "scripts/link-vmlinux.sh", "tools/", "tools/objtool/", "tools/objtool/check.c", "tools/objtool/elf.c"}
	if !slices.Equal(got, want) {
		t.Errorf("got  %q\nwant %q", got, want)
	}
	for file, used := range map[string]bool{
		"net/core/dev.c": true, "net/core/other.c": false, "net/core/Makefile": true, "net/sched/Makefile": false, "Makefile": true, "Kbuild": true, "net/sched/Kconfig": true,
		"arch/arm/Kconfig": false, "arch/Kconfig": true, "arch/x86/include/asm/new.h": true, "arch/x86/mm/new.c": false, "arch/x86/Makefile": true, "arch/x86/Makefile.um": true,
		"scripts/Makefile.build": true, "scripts/mod/modpost.c": true, "scripts/checkpatch.pl": false, "Documentation/Kconfig": false, "tools/perf/Kconfig": false, "README": false,
		"include/linux/types.h": true, "include/linux/new.h": false,
	} {
		if Used(in, file) != used {
			t.Errorf("%s: used %v", file, !used)
		}
	}
	if !Used(nil, "README") {
		t.Error("of nil, everything is used")
	}
	stop, cancel := context.WithCancel(ctx)
	cancel()
	if _, err := b.Inputs(stop, r); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
}

// TestUnused: a move that changes nothing that was read takes what there is, and
// never what a failed or an interrupted build left.
func TestUnused(t *testing.T) {
	repo := newRepo(t)
	b := Builder{Cache: t.TempDir()}
	first := repo.build(b, repo.commit(fakeTree()))
	dirs, _ := filepath.Glob(filepath.Join(b.Cache, "build", "*", "src"))
	if len(dirs) != 1 {
		t.Fatal(dirs)
	}
	obj := filepath.Join(dirs[0], objName)
	for _, name := range []string{"start", "value", "other"} {
		writeTree(t, obj, map[string]string{"." + name + ".o.cmd": "source_x := ../" + name + ".c\n"})
	}
	const driver = "drivers/net/x.c"
	for _, step := range []struct {
		name    string
		files   map[string]string
		objects int64 // -1: it fails
	}{
		{"a driver", with(driver, "int x;\n", "drivers/net/x.h", "", "Documentation/x.rst", "x\n", "arch/arm64/Kconfig", "x\n"), 0},
		{"the driver gone", with("MAINTAINERS", "x\n"), 0},
		{"a driver that fails elsewhere", with(driver, "no C\n"), 0},
		{"its makefile", with(driver, "no C\n", "drivers/net/Makefile", "x\n"), 0},
		{"used", with(driver, "no C\n", "value.c", "int value(void) { return 2; }\n"), 2},
		{"back", with(driver, "int x;\n"), 2},
		{"broken", with(driver, "int x;\n", "value.c", "no C\n"), -1},
		{"documented", with(driver, "int x;\n", "value.c", "no C\n", "Documentation/x.rst", "x\n"), -1},
		{"repaired", with(driver, "int x;\n", "Documentation/x.rst", "x\n"), 2},
	} {
		k, err := b.Build(context.Background(), repo.request(repo.commit(step.files)))
		if step.objects < 0 {
			var kernel *KernelError
			if !errors.As(err, &kernel) {
				t.Errorf("%s: got %v", step.name, err)
			}
			continue
		}
		if err != nil {
			t.Fatalf("%s: %v", step.name, err)
		}
		k.Release()
		if k.Cached || k.Objects != step.objects || (k.Identity == first.Identity) != (step.name != "used") {
			t.Errorf("%s: %+v", step.name, k.Info)
		}
		if log, err := os.ReadFile(k.Log); err != nil || strings.Contains(string(log), "is used by this configuration") != (step.objects == 0 && step.name != "its makefile") {
			t.Errorf("%s: %v\n%s", step.name, err, log)
		}
	}
	// Somebody else's vmlinux is not ours.
	if err := os.WriteFile(filepath.Join(obj, "vmlinux"), []byte("x"), 0o755); err != nil {
		t.Fatal(err)
	}
	if _, err := b.Build(context.Background(), repo.request(repo.commit(with("Documentation/y", "y")))); err == nil {
		t.Error("a strange vmlinux was taken")
	}
}

func TestCompiled(t *testing.T) {
	for p, want := range map[string][2]bool{
		"net/core/dev.c":        {true, false},
		"include/linux/x.h":     {false, false},
		"arch/arm/mm/x.c":       {true, true},
		"arch/arm/Kconfig":      {false, true},
		"arch/Kconfig":          {false, false},
		"arch/x86/x.txt":        {false, false},
		"Documentation/Kconfig": {false, false},
		"Documentation/x/y.rst": {false, true},
		"tools/objtool/check.c": {false, false},
		"tools/testing/x.c":     {false, true},
		"MAINTAINERS":           {false, true},
		"net/core/Makefile":     {false, false},
		"lib/x.c_shipped":       {false, false},
	} {
		if got := [2]bool{compiled(p), foreign(p)}; got != want {
			t.Errorf("%s: compiled and foreign are %v, want %v", p, got, want)
		}
	}
}

// TestInputsWaits: a build goes on, and is waited for until ctx ends.
func TestInputsWaits(t *testing.T) {
	repo := newRepo(t)
	b := Builder{Cache: t.TempDir()}
	r := repo.request(repo.commit(fakeTree()))
	repo.build(b, r.Commit)
	j, err := b.plan(context.Background(), r)
	if err != nil {
		t.Fatal(err)
	}
	tree, err := j.openTree(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	defer tree.close()
	ctx, cancel := context.WithTimeout(context.Background(), 200*time.Millisecond)
	defer cancel()
	if _, err := b.Inputs(ctx, r); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("got %v", err)
	}
}

func FuzzInputs(f *testing.F) {
	f.Add("deps := ../a/b.c ../../x /s/y.h", "a/b.c")
	f.Fuzz(func(t *testing.T, text, file string) {
		in := inputs{src: []byte("/s/"), files: make(map[string]bool)}
		in.scan([]byte(text), []byte("../"))
		in.scan([]byte(text), in.src)
		in.kconfig([]byte(text))
		for p := range in.files {
			if strings.HasPrefix(p, "/") || strings.HasPrefix(p, "../") || p == "" {
				t.Errorf("%q", p)
			}
		}
		Used(in.files, file)
	})
}

// BenchmarkInputs reads 1,600 command files of 36 kB, as a real tree has.
func BenchmarkInputs(b *testing.B) {
	var text strings.Builder
	for i := range 800 {
		fmt.Fprintf(&text, "    $(wildcard include/config/SYMBOL_%d) \\\n  ../include/linux/header%d.h \\\n", i, i)
	}
	data := []byte(text.String())
	b.SetBytes(int64(1600 * len(data)))
	for b.Loop() {
		in := inputs{src: []byte("/s/"), files: make(map[string]bool)}
		for range 1600 {
			in.scan(data, []byte("../"))
		}
		if len(in.files) != 800 {
			b.Fatal(len(in.files))
		}
	}
}
