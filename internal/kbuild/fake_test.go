package kbuild

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/kbisect/kbisect/internal/gitx"
	"github.com/kbisect/kbisect/internal/kconfig"
)

// fakeMakefile is a kernel in 30 lines: it understands O=, the two configuration
// targets and vmlinux, prints as kbuild does, and links an ELF file from its .c
// files. hook.sh, where a tree has one, runs before each compilation.
const fakeMakefile = `VERSION = 6
PATCHLEVEL = 1
SUBLEVEL = 7

obj := $(O)
objs := $(patsubst %.c,$(obj)/%.o,$(wildcard *.c))

tinyconfig:
	@echo '  HOSTCC  scripts/kconfig/conf.o'
	@printf '# Linux/x86 6.1.7 Kernel Configuration\nCONFIG_SIZE=y\n# CONFIG_FOO is not set\n' > $(obj)/.config

olddefconfig:
	@sh scripts/conf.sh $(obj)/.config

vmlinux: $(obj)/vmlinux

$(obj)/%.o: %.c $(obj)/.config
	@echo '  CC      $*.o'
	@if [ -f hook.sh ]; then sh hook.sh $@; fi
	@cd $(obj) && $(CC) $(KCFLAGS) -ffreestanding -fno-pie -c -o $*.o ../$<

$(obj)/vmlinux: $(objs)
	@echo '  LD      vmlinux'
	@mkdir -p $(obj)/include/config && echo 6.1.7 > $(obj)/include/config/kernel.release
	@ld --build-id -o $@ $(objs)
`

// fakeConf drops the symbols that Kconfig does not define, silently, as the
// real one does.
const fakeConf = `for s in $(sed -n 's/^CONFIG_\([A-Z0-9_]*\)=.*/\1/p; s/^# CONFIG_\([A-Z0-9_]*\) is not set.*/\1/p' "$1"); do
	grep -q "^config $s\$" Kconfig || sed -i "/CONFIG_$s[= ]/d" "$1"
done
`

// fakeTree is the first tree; tests change it.
func fakeTree() map[string]string {
	return map[string]string{
		"Makefile":         fakeMakefile,
		"Kconfig":          "config SIZE\n\tbool \"s\"\nconfig FOO\n\tbool \"f\"\n",
		"scripts/conf.sh":  fakeConf,
		"arch/x86/Kconfig": "",
		"start.c":          "int value(void); void _start(void) { value(); }\n",
		"value.c":          "int value(void) { return 1; }\n",
		"other.c":          "int other(void) { return 7; }\n",
	}
}

// fakeRepo is a bare repository of fake kernels.
type fakeRepo struct {
	t   testing.TB
	dir string
}

func newRepo(t testing.TB) *fakeRepo {
	t.Helper()
	needTools(t, "git", "gcc", "ld", "make")
	dir := filepath.Join(t.TempDir(), "k.git")
	if _, err := gitx.InitBare(context.Background(), dir, ""); err != nil {
		t.Fatal(err)
	}
	return &fakeRepo{t: t, dir: dir}
}

// needTools fails without the tools: a machine that runs these tests was set up
// for them. Under -short it skips.
func needTools(t testing.TB, tools ...string) {
	t.Helper()
	for _, tool := range tools {
		if _, err := exec.LookPath(tool); err != nil {
			if testing.Short() {
				t.Skipf("no %s, and -short", tool)
			}
			t.Fatalf("no %s: run `kbisect doctor --install`", tool)
		}
	}
}

// commit stores files as a tree and returns the commit's id.
func (r *fakeRepo) commit(files map[string]string) string {
	r.t.Helper()
	work := r.t.TempDir()
	for name, text := range files {
		path := filepath.Join(work, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			r.t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			r.t.Fatal(err)
		}
	}
	env := append(gitx.Environ(), "GIT_DIR="+r.dir, "GIT_WORK_TREE="+work, "GIT_INDEX_FILE="+filepath.Join(work, ".index"),
		"GIT_AUTHOR_NAME=x", "GIT_AUTHOR_EMAIL=x@x", "GIT_COMMITTER_NAME=x", "GIT_COMMITTER_EMAIL=x@x")
	git := func(args ...string) string {
		c := exec.Command("git", args...)
		c.Env, c.Dir = env, work
		out, err := c.CombinedOutput()
		if err != nil {
			r.t.Fatalf("git %v: %v\n%s", args, err, out)
		}
		return strings.TrimSpace(string(out))
	}
	if len(files) > 0 {
		git("add", "-f", "--", ".", ":!.index", ":!.index.lock")
	}
	return git("commit-tree", "-m", "x", git("write-tree"))
}

// with returns the first tree with some files changed; "" removes one.
func with(changes ...string) map[string]string {
	files := fakeTree()
	for i := 0; i < len(changes); i += 2 {
		if changes[i+1] == "" {
			delete(files, changes[i])
			continue
		}
		files[changes[i]] = changes[i+1]
	}
	return files
}

func fragment(t testing.TB, text string) []*kconfig.Config {
	t.Helper()
	c, err := kconfig.Parse("test.config", strings.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	return []*kconfig.Config{c}
}

// request is the usual one.
func (r *fakeRepo) request(commit string) Request {
	return Request{GitDir: r.dir, Commit: commit, Fragments: fragment(r.t, "CONFIG_FOO=y\n")}
}

// build builds and releases.
func (r *fakeRepo) build(b Builder, commit string) *Kernel {
	r.t.Helper()
	k, err := b.Build(context.Background(), r.request(commit))
	if err != nil {
		r.t.Fatal(err)
	}
	k.Release()
	return k
}
