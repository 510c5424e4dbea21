package kbuild

import (
	"context"
	"debug/elf"
	"encoding/binary"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

func TestOutput(t *testing.T) {
	tests := []struct {
		name, text string
		want       string // of the error
		lines      int64
	}{
		{"gcc", "  CC      net/core/dev.o\n../net/core/dev.c: In function 'f':\n../net/core/dev.c:12:9: error: expected ';'\n   12 |  Killed\nmake[3]: *** [x] Error 1\n", "compile kernel: net/core/dev.c:12: expected ';'", 1},
		{"Werror", "net/a.c:1:2: warning: x\nnet/a.c:3:4: error: unused variable 'y' [-Werror=unused-variable]\n", "net/a.c:3: unused variable 'y' [-Werror", 0},
		{"first error", "a.c:1:1: error: one\nb.c:1:1: error: two\n", "a.c:1: one", 0},
		{"kconfig", "net/Kconfig:12: syntax error\n", "net/Kconfig:12: syntax error", 0},
		{"kconfig 2", "net/Kconfig:3:warning: config symbol 'X' uses select, but is not bool\nnet/Kconfig:12: unknown statement \"foo\"\n", "net/Kconfig:12: unknown statement \"foo\"", 0},
		{"kconfig 3", "net/Kconfig.debug:7:error: recursive dependency detected!\nnet/Kconfig.debug:7:\tsymbol A depends on B\n", "net/Kconfig.debug:7: recursive dependency detected!", 0},
		{"kconfig 4", "net/Kconfig:99: 'endmenu' in different file than 'menu'\nnet/Kconfig:5: location of the 'menu'\n", "net/Kconfig:99: 'endmenu' in different", 0},
		{"kconfig 5", "Kconfig:9: can't open file \"net/Kconfig\"\n", "Kconfig:9: can't open file", 0},
		{"a header", "In file included from ../include/net/sock.h:12,\n                 from ../net/core/dev.c:5:\n../include/linux/skbuff.h:33:10: error: unknown type name 'x'\n", "include/linux/skbuff.h:33: unknown type", 0},
		{"a path through", "arch/x86/boot/compressed/../string.c:3:1: error: x\n", "arch/x86/boot/string.c:3: x", 0},
		{"a host tool", "/src/tools/objtool/check.c:3:1: error: x\n", "kernel: tools/objtool/check.c:3: x", 0},
		{"assembler", "../arch/x86/entry/entry_64.S: Assembler messages:\n../arch/x86/entry/entry_64.S:12: Error: no such instruction: `foo'\n", "arch/x86/entry/entry_64.S:12: no such instruction", 0},
		{"inline assembler", "{standard input}: Assembler messages:\n{standard input}:12: Error: junk\n", "{standard input}:12: Error: junk", 0},
		{"a flag", "gcc: error: unrecognized command-line option '-mfoo'\n", "unrecognized command-line option", 0},
		{"parallel", "  CC      a.o\n  CC      b.o\na.c:1:2: warning: w\nb.c:5:6: error: first\n    5 | x\nmake[3]: *** [../scripts/Makefile.build:250: b.o] Error 1\nmake[3]: *** Waiting for unfinished jobs....\na.c:7:8: error: second\nmake[3]: *** [../scripts/Makefile.build:250: a.o] Error 1\n", "compile kernel: b.c:5: first", 2},
		{"makefile", "../net/Makefile:12: *** missing separator.  Stop.\n", "net/Makefile:12: missing separator", 0},
		{"makefile 2", "make[2]: *** [../scripts/Makefile.build:500: net] Error 2\narch/x86/Makefile:33: *** compiler is too old.  Stop.\n", "arch/x86/Makefile:33: compiler is too old", 0},
		{"only make", "make[2]: *** [../scripts/Makefile.build:500: net] Error 2\nmake: *** [Makefile:250: __sub-make] Error 2\n", "Makefile.build:500: net] Error 2", 0},
		{"no rule first", "make[3]: *** No rule to make target 'net/core/x.o', needed by 'net/core/built-in.a'.  Stop.\nmake[2]: *** [net/core] Error 2\n", "compile kernel: No rule to make target 'net/core/x.o', needed by 'net/core/built-in.a'", 0},
		{"ld with a place", "ld: ../net/core/dev.c:12: undefined reference to `g'\n", "net/core/dev.c:12: undefined reference to `g'", 0},
		{"twice", "ld: net/b.o:(.data+0x0): multiple definition of `x'; net/a.o:(.data+0x0): first defined here\ncollect2: error: ld returned 1 exit status\n", "multiple definition of `x'", 0},
		{"no object", "ld: cannot find net/x.o: No such file or directory\n", "cannot find net/x.o", 0},
		{"ld, too large", "ld: section .vvar LMA [01,02] overlaps section .data LMA [00,03]\n", "overlaps section .data", 0},
		{"warnings as errors", "cc1: all warnings being treated as errors\nmake[3]: *** [x: a.o] Error 1\n", "[x: a.o] Error 1", 0},
		{"modpost 2", "WARNING: modpost: vmlinux.o(.text+0x1): Section mismatch in reference\nFATAL: modpost: Section mismatches detected.\n", "FATAL: modpost: Section mismatches", 0},
		{"objtool", "vmlinux.o: error: objtool: f+0x12: unreachable\n", "error: objtool: f+0x12", 0},
		{"ld", "  LD      .tmp_vmlinux.kallsyms1\nld: net/core/dev.o: in function `f':\ndev.c:(.text+0x1): undefined reference to `g'\n", "undefined reference to `g'", 1},
		{"rule", "make[2]: *** No rule to make target 'x.o', needed by 'built-in.a'.  Stop.\n", "No rule to make target", 0},
		{"modpost", "ERROR: modpost: \"x\" undefined!\n", "modpost", 0},
		{"nothing", "hello\n", "make ended with status 2", 0},
		{"no newline", "a.c:1:1: error: x", "make ended with status 2", 0},
		{"long", strings.Repeat("x", 3*maxPart) + "\na.c:1:1: error: y\n", "a.c:1: y", 0},
		{"counts", "  CC [M]  a.o\n  AR      b.a\n  GEN     Makefile\n text\n  lower\n", "status 2", 3},
	}
	exit := exec.Command("sh", "-c", "exit 2").Run()
	for _, tt := range tests {
		for _, step := range []int{1, 7, 1 << 20} {
			o := &output{log: io.Discard, src: "/src"}
			for text := tt.text; text != ""; {
				n := min(step, len(text))
				if m, err := o.Write([]byte(text[:n])); m != n || err != nil {
					t.Fatal(m, err)
				}
				text = text[n:]
			}
			err := o.result(context.Background(), "compile", "", exit)
			if err == nil || !strings.Contains(err.Error(), tt.want) || o.lines != tt.lines {
				t.Errorf("%s, %d bytes a write: got %v, %d lines", tt.name, step, err, o.lines)
			}
			var kernel *KernelError
			if !errors.As(err, &kernel) {
				t.Errorf("%s: %T", tt.name, err)
			}
		}
	}
}

func TestNotFound(t *testing.T) {
	for line, want := range map[string]string{
		"/bin/sh: 1: flex: not found":                  "flex is not installed",
		"sh: 1: sh: 1: bison: not found":               "bison is not installed",
		"/bin/sh: line 1: bc: command not found":       "bc is not installed",
		"../scripts/mkpiggy.sh: 12: perl: not found":   "perl is not installed",
		"make[2]: gawk: No such file or directory":     "gawk is not installed",
		"make: ./scripts/x: No such file or directory": "./scripts/x is not installed",
		"conf: symbol X: not found":                    "",
	} {
		o := &output{log: io.Discard}
		o.line(line)
		got := ""
		if o.infra != nil {
			got = o.infra.Err.Error()
		}
		if got != want {
			t.Errorf("%s: got %q, want %q", line, got, want)
		}
	}
}

type badWriter struct{}

func (badWriter) Write([]byte) (int, error) { return 0, os.ErrPermission }

func TestOutputLogFails(t *testing.T) {
	o := &output{log: badWriter{}}
	if _, err := o.Write([]byte("x\n")); err != nil {
		t.Fatalf("it must not break the pipe: %v", err)
	}
	var host *InfraError
	if err := o.result(context.Background(), "compile", "", nil); !errors.As(err, &host) {
		t.Errorf("got %v", err)
	}
}

func TestConfigures(t *testing.T) {
	for path, want := range map[string]bool{
		"net/core/dev.c": false, "net/Kconfig": true, "lib/Kconfig.debug": true, "Kconfig": true, "Makefile": true, "net/Makefile": false,
		"scripts/gcc-version.sh": true, "arch/x86/configs/tiny.config": true, "kernel/configs/tiny-base.config": true, "include/linux/kconfig.h": false,
	} {
		if got := configures([]string{"README", path}); got != want {
			t.Errorf("%s: %v", path, got)
		}
	}
	if configures([]string{"arch/arm64/Kconfig", "tools/perf/Makefile"}) {
		t.Error("another architecture does not configure ours")
	}
	if !configures(nil) || configures([]string{}) {
		t.Error("nil is everything, an empty list is nothing")
	}
}

func TestNoteIDs(t *testing.T) {
	note := func(kind uint32, name, desc string) []byte {
		b := binary.LittleEndian.AppendUint32(nil, uint32(len(name)))
		b = binary.LittleEndian.AppendUint32(b, uint32(len(desc)))
		b = binary.LittleEndian.AppendUint32(b, kind)
		for _, s := range []string{name, desc} {
			b = append(b, s...)
			for len(b)%4 != 0 {
				b = append(b, 0)
			}
		}
		return b
	}
	data := append(note(18, "Xen\x00", "abcd"), note(ntGNUBuildID, "GNU\x00", "0123456789abcdef0123")...)
	data = append(data, note(ntGNUBuildID, "XXX\x00", "zz")...)
	got := noteIDs(data, 1000, binary.LittleEndian)
	if len(got) != 1 || got[0] != (span{1000 + 20 + 16, 20}) {
		t.Errorf("got %v", got)
	}
	if got := noteIDs(append(data, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0, 0, 0, 0), 0, binary.LittleEndian); len(got) != 1 {
		t.Errorf("a torn note: %v", got)
	}
}

func FuzzNoteIDs(f *testing.F) {
	f.Add([]byte("\x04\x00\x00\x00\x02\x00\x00\x00\x03\x00\x00\x00GNU\x00ab\x00\x00"))
	f.Fuzz(func(t *testing.T, data []byte) {
		for _, s := range noteIDs(data, 0, binary.LittleEndian) {
			if s.off < 0 || s.n < 0 || s.off+s.n > int64(len(data)) {
				t.Fatalf("%v of %d bytes", s, len(data))
			}
		}
	})
}

func FuzzOutput(f *testing.F) {
	f.Add("  CC      a.o\na.c:1:2: error: x\nsh: 1: flex: not found\n")
	f.Fuzz(func(_ *testing.T, text string) {
		o := &output{log: io.Discard}
		_, _ = o.Write([]byte(text))
	})
}

// TestIdentity: what is loaded counts, and nothing else.
func TestIdentity(t *testing.T) {
	needTools(t, "gcc", "ld")
	dir := t.TempDir()
	link := func(name, source string, flags ...string) string {
		t.Helper()
		c, out := filepath.Join(dir, name+".c"), filepath.Join(dir, name)
		if err := os.WriteFile(c, []byte(source), 0o644); err != nil {
			t.Fatal(err)
		}
		args := append([]string{"-nostdlib", "-static", "-fno-pie", "-no-pie", "-ffreestanding", "-o", out, c}, flags...)
		if text, err := exec.Command("gcc", args...).CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, text)
		}
		id, err := Identity(out)
		if err != nil {
			t.Fatal(err)
		}
		return id
	}
	const source = "int x = 1; void _start(void) { x++; }\n"
	one := link("one", source, "-Wl,--build-id=0x11111111111111111111")
	if other := link("two", source, "-Wl,--build-id=0x22222222222222222222"); other != one {
		t.Error("the build ID counts")
	}
	if other := link("three", "int y;"+strings.Replace(source, "x++", "x--", 1), "-Wl,--build-id=0x11111111111111111111"); other == one {
		t.Error("code does not count")
	}
	if other := link("four", strings.Replace(source, "x = 1", "x = 2", 1), "-Wl,--build-id=0x11111111111111111111"); other == one {
		t.Error("data does not count")
	}
	for name, text := range map[string]string{"empty": "", "text": "hello, this is not an ELF file at all", "torn": "\x7fELF\x02\x01\x01"} {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		if id, err := Identity(path); err == nil {
			t.Errorf("%s: %s", name, id)
		}
	}
	full, err := os.ReadFile(filepath.Join(dir, "one"))
	if err != nil {
		t.Fatal(err)
	}
	e, err := elf.Open(filepath.Join(dir, "one"))
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	cut := filepath.Join(dir, "cut")
	if err := os.WriteFile(cut, full[:e.Progs[len(e.Progs)-1].Off], 0o644); err != nil {
		t.Fatal(err)
	}
	if id, err := Identity(cut); err == nil {
		t.Errorf("a file that ends in a segment: %s", id)
	}
}

func TestTrimLogs(t *testing.T) {
	dir := t.TempDir()
	for i := range maxLogs + 5 {
		if err := os.WriteFile(filepath.Join(dir, strings.Repeat("x", i+1)), nil, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	trimLogs(dir)
	if list, _ := os.ReadDir(dir); len(list) != maxLogs {
		t.Errorf("%d logs", len(list))
	}
}

func TestFewerShells(t *testing.T) {
	tree := &buildTree{job: &job{}, dir: t.TempDir()}
	if got := tree.fewerShells(); got != nil {
		t.Errorf("no source: %q", got)
	}
	for text, want := range map[string]string{
		"x = 1\ncmd = @set -e; $(echo-cmd) $($(quiet)redirect) $(delete-on-interrupt) $(cmd_$(1))\ny = 2\n": "cmd=@$(if $(cmd_$(1)),set -e; $(echo-cmd) $($(quiet)redirect) $(delete-on-interrupt) $(cmd_$(1)),:)",
		"cmd = @set -e; $(echo-cmd) $(cmd_$(1))\n":                                                          "cmd=@$(if $(cmd_$(1)),set -e; $(echo-cmd) $(cmd_$(1)),:)",
		"cmd = @$(if $(cmd_$(1)),set -e; $(delete-on-interrupt) $(cmd_$(1)),:)\n":                           "",
		"cmd = @set -e; $(call f,x) $(cmd_$(1))\n":                                                          "", // a comma would end the condition
	} {
		writeTree(t, tree.src(), map[string]string{"scripts/Kbuild.include": text})
		if got := strings.Join(tree.fewerShells(), "|"); got != want {
			t.Errorf("%q: got %q", text, got)
		}
	}
}
