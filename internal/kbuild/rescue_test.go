package kbuild

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// TestRescueOf: each entry of the table by the words of a real build.
func TestRescueOf(t *testing.T) {
	for line, want := range map[string]string{
		"./include/linux/stddef.h:11:9: error: cannot use keyword 'false' as enumeration constant":                           "-std=gnu11",
		"../include/linux/types.h:35:33: error: ‘bool’ cannot be defined via ‘typedef’":                                      "-std=gnu11",
		"a.c:1:1: error: too many arguments to function 'f'; expected 0, have 2":                                             "-std=gnu11",
		"a.c:1:1: error: too many arguments to function 'f'":                                                                 "",
		"subcmd-util.h:56:23: error: pointer may be used after 'realloc' [-Werror=use-after-free]":                           "-Wno-error",
		"../include/linux/types.h:30:1: error: useless type name in empty declaration [-Werror]":                             "-Wno-error",
		"a.c:1:2: error: '=' converts [-Werror=format-truncation=]":                                                          "-Wno-error",
		"a.c:1:2: error: implicit declaration of function 'f' [-Werror=implicit-function-declaration]":                       "",
		"a.c:1:2: error: no return statement in function returning non-void [-Werror=return-type]":                           "",
		"a.c:1:2: warning: unused variable 'x' [-Wunused-variable]":                                                          "",
		"cc1: all warnings being treated as errors":                                                                          "",
		"ld: scripts/dtc/dtc-parser.tab.o:(.bss+0x10): multiple definition of `yylloc'; dtc-lexer.lex.o: first defined here": "-fcommon",
		"ld: net/a.o:(.bss+0x10): multiple definition of `x'; net/b.o: first defined here":                                   "",
		"../include/linux/compiler.h:192:1: error: ‘-mindirect-branch’ and ‘-fcf-protection’ are not compatible":             "-fcf-protection=none",
		"Inconsistent kallsyms data": "KALLSYMS_EXTRA_PASS=1",
		"../net/core/dev.c:12:9: error: 'x' undeclared (first use in this function)": "",
	} {
		got := ""
		if i := rescueOf(strings.NewReplacer("‘", "'", "’", "'").Replace(line)); i >= 0 {
			got = rescues[i].flag
		}
		if got != want {
			t.Errorf("%s: got %q, want %q", line, got, want)
		}
	}
}

// modern is a hook that fails as a new compiler would, unless the flag was given.
// It asks the compiler that make has, so a wrapper that adds no flag is noticed.
func modern(probe, flags, message string) string {
	return "echo '" + probe + "' | gcc " + flags + " -fsyntax-only -x c /dev/stdin 2>/dev/null || { echo '" + message + "' >&2; exit 1; }\n"
}

func TestRescue(t *testing.T) {
	repo := newRepo(t)
	b := Builder{Cache: t.TempDir()}
	plain := repo.build(b, repo.commit(fakeTree()))
	if plain.Rescue != nil {
		t.Errorf("a kernel that compiles: %+v", plain.Info)
	}
	// Without -std=gnu11 the hook's compiler is told to be older than that.
	old := "#if __STDC_VERSION__ != 201112L\n#error new\n#endif"
	std := modern(old, "", "../a.h:3:1: error: cannot use keyword `false` as enumeration constant")
	k := repo.build(b, repo.commit(with("hook.sh", std, "value.c", "int value(void) { return 2; }\n")))
	if !slices.Equal(k.Rescue, []string{"-std=gnu11"}) {
		t.Fatalf("rescue = %q", k.Rescue)
	}
	if log, err := os.ReadFile(k.Log); err != nil || !strings.Contains(string(log), "kbisect: once more with -std=gnu11: gcc 15") {
		t.Errorf("log: %v\n%s", err, log)
	}
	// The tree goes on with it, and adds what else is needed.
	werror := modern("int f(void) { int x; }", "-Wall -Werror", "a.c:1:21: error: unused variable [-Werror=unused-variable]")
	k = repo.build(b, repo.commit(with("hook.sh", std+werror, "value.c", "int value(void) { return 3; }\n")))
	if !slices.Equal(k.Rescue, []string{"-std=gnu11", "-Wno-error"}) {
		t.Errorf("rescue = %q", k.Rescue)
	}
	want := repo.build(Builder{Cache: t.TempDir()}, repo.commit(with("value.c", "int value(void) { return 3; }\n")))
	if k.Identity != want.Identity {
		t.Errorf("a rescue changed the code: %s, %s", k.Identity, want.Identity)
	}
}

// TestRescueInVain: what no flag helps against is the kernel's error, after one
// more try, and leaves no flag behind.
func TestRescueInVain(t *testing.T) {
	repo := newRepo(t)
	b := Builder{Cache: t.TempDir()}
	count := filepath.Join(t.TempDir(), "count")
	bad := repo.commit(with("hook.sh", "case $1 in *value.o) echo x >>"+count+"; echo 'value.c:7:1: error: unused [-Werror=unused-variable]' >&2; exit 1;; esac\n"))
	for tries := 1; tries <= 2; tries++ {
		_, err := b.Build(context.Background(), repo.request(bad))
		var kernel *KernelError
		if !errors.As(err, &kernel) || kernel.File != "value.c" || kernel.Line != 7 {
			t.Fatalf("got %T: %v", err, err)
		}
		if runs, err := os.ReadFile(count); err != nil || len(runs) != 4*tries {
			t.Errorf("%d compilations after %d builds, %v", len(runs)/2, tries, err)
		}
	}
	if k := repo.build(b, repo.commit(fakeTree())); k.Rescue != nil {
		t.Errorf("rescue = %q", k.Rescue)
	}
}

// TestRescueEnvironment: the wrapper, the layout's linker and ccache go together.
func TestRescueEnvironment(t *testing.T) {
	dir := t.TempDir()
	tree := &buildTree{job: &job{Builder: Builder{Cache: dir}, tools: Toolchain{CC: "gcc", Ccache: "/usr/bin/cc ache"}}, dir: dir}
	tree.st.Rescue = []string{"-std=gnu11", "-Wno-error", "KALLSYMS_EXTRA_PASS=1"}
	tree.Layout = 1
	env, err := tree.makeEnv("compile")
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"KALLSYMS_EXTRA_PASS=1", "KBISECT_CCACHE=/usr/bin/cc ache", "PATH=" + dir + "/layout:" + dir + "/bin:" + os.Getenv("PATH")} {
		if !slices.Contains(env, want) {
			t.Errorf("no %s in %q", want, env)
		}
	}
	text, err := os.ReadFile(filepath.Join(dir, "bin", "gcc"))
	if err != nil || !strings.Contains(string(text), `"$cc" -std=gnu11 "$@" -Wno-error`) {
		t.Errorf("%v\n%s", err, text)
	}
	tree.tools.CC = "/opt/gcc"
	if tree.canRescue(rescues[0]) || !tree.canRescue(rescues[len(rescues)-1]) {
		t.Error("a compiler that is named by its path cannot be wrapped")
	}
}
