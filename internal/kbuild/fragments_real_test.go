package kbuild_test

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/kbisect/kbisect/internal/gitx"
	"github.com/kbisect/kbisect/internal/kbuild"
	"github.com/kbisect/kbisect/internal/kconfig"
	"github.com/kbisect/kbisect/internal/source"
	"github.com/kbisect/kbisect/internal/testkernel"
	"github.com/kbisect/kbisect/kconfigs"
)

// The tests of the optional fragments use 6.1, or what KBISECT_KERNEL names: the
// other one to try is debian:7.2.

// fragmentsEnv asks for more of them: "each" configures with each fragment alone,
// "build" does that and compiles a kernel with all of them.
const fragmentsEnv = "KBISECT_TEST_FRAGMENTS"

// alone are the fragments that repeat most of others, and are always tried alone.
var alone = []string{"bpf", "ipvs", "nftables", "tc"}

// TestRealFragments configures a real source with optional fragments over the
// shared ones, alone and all of them at once: every symbol that they want survives
// the kernel's own rules. Nothing is compiled, and no build tree is touched. A
// configuration costs 5 s, most of them in asking the compiler what it can do.
func TestRealFragments(t *testing.T) {
	src := testkernel.Source(t)
	ctx := context.Background()
	version, err := kconfig.ParseVersion(src.Version)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	began := time.Now()
	checkOutKconfig(t, src, filepath.Join(dir, "src"))
	tiny, err := kbuild.TinyConfig(ctx, dir)
	if err != nil {
		t.Fatal(err)
	}
	shared := testkernel.Fragments(t)
	plain, err := kbuild.Configure(ctx, dir, version, kbuild.Request{Base: tiny, Fragments: shared})
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%s: the shared configuration after %.1f s", src.Name, time.Since(began).Seconds())
	for _, name := range kconfigs.Optional() {
		t.Run(name, func(t *testing.T) {
			if os.Getenv(fragmentsEnv) == "" && !slices.Contains(alone, name) {
				t.Skip("configures each fragment alone (3 minutes in all); set " + fragmentsEnv + "=each")
			}
			began := time.Now()
			final, err := kbuild.Configure(ctx, dir, version, kbuild.Request{Base: tiny, Fragments: append(shared[:len(shared):len(shared)], optional(t, name)...)})
			if err != nil {
				t.Fatal(err)
			}
			noModules(t, final)
			changes := kconfig.Drift(plain, final)
			if len(changes) == 0 && name != "netkit" { // there is none before 6.7, and BPF is all that it adds
				t.Error("it adds nothing to the shared configuration")
			}
			t.Logf("%d symbols change, %.1f s", len(changes), time.Since(began).Seconds())
		})
	}
	final, err := kbuild.Configure(ctx, dir, version, kbuild.Request{Fragments: append(shared[:len(shared):len(shared)], optional(t, kconfigs.Optional()...)...)})
	if err != nil {
		t.Fatalf("all at once: %v", err)
	}
	noModules(t, final)
	t.Logf("all at once: %d symbols change", len(kconfig.Drift(plain, final)))

	// A fragment that asks for too much would be noticed.
	wrong, err := kconfig.Parse("wrong.config", strings.NewReader("CONFIG_IP_SET=y\nCONFIG_NO_SUCH_SYMBOL=y\n"))
	if err != nil {
		t.Fatal(err)
	}
	var bad *kbuild.ConfigError
	if _, err := kbuild.Configure(ctx, dir, version, kbuild.Request{Base: tiny, Fragments: append(shared[:len(shared):len(shared)], wrong)}); !errors.As(err, &bad) || !strings.Contains(err.Error(), "CONFIG_IP_SET: wanted y, got n") {
		t.Errorf("a fragment without what it depends on: %v", err)
	}
}

// optional reads fragments by name.
func optional(t *testing.T, names ...string) []*kconfig.Config {
	t.Helper()
	var all []*kconfig.Config
	for _, name := range names {
		text, err := kconfigs.Get(name)
		if err != nil {
			t.Fatal(err)
		}
		c, err := kconfig.Parse(kconfigs.FileName(name), bytes.NewReader(text))
		if err != nil {
			t.Fatal(err)
		}
		if len(c.Dups) > 0 {
			t.Errorf("%s: %v", name, c.Dups)
		}
		all = append(all, c)
	}
	return all
}

// noModules checks that nothing became a module, which no guest would load.
func noModules(t *testing.T, c *kconfig.Config) {
	t.Helper()
	for _, s := range c.Symbols {
		if s.Value == "m" {
			t.Errorf("CONFIG_%s is a module", s.Name)
		}
	}
}

// checkOutKconfig writes what a configuration is made from: 2,300 files of 80,000,
// in a second.
func checkOutKconfig(t *testing.T, src *source.Source, dir string) {
	t.Helper()
	var archive bytes.Buffer
	err := src.Repo().Do(context.Background(), gitx.Command{Stdout: &archive, Args: []string{"archive", "--format=tar", src.Head, "--",
		":(glob)**/Kconfig*", "Makefile", "scripts", "kernel/configs", "arch/x86/configs", ":(glob)arch/x86/Makefile*"}})
	if err != nil {
		t.Fatal(err)
	}
	for r := tar.NewReader(&archive); ; {
		h, err := r.Next()
		if err == io.EOF {
			return
		}
		if err == nil {
			err = unpack(r, h, filepath.Join(dir, filepath.FromSlash(h.Name)))
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

func unpack(r io.Reader, h *tar.Header, path string) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	switch h.Typeflag {
	case tar.TypeSymlink:
		return os.Symlink(h.Linkname, path)
	case tar.TypeReg:
		data, err := io.ReadAll(r)
		if err != nil {
			return err
		}
		return os.WriteFile(path, data, fs.FileMode(h.Mode)&0o755)
	}
	return nil
}

// TestRealBuildAllFragments builds one kernel with every optional fragment, checks
// that its configuration has what they want, and boots it. It takes a whole build
// and a tree of its own, so it wants to be asked for.
func TestRealBuildAllFragments(t *testing.T) {
	if os.Getenv(fragmentsEnv) != "build" {
		t.Skip("compiles a kernel of its own (12 minutes, 2 GB); set " + fragmentsEnv + "=build")
	}
	src := testkernel.Source(t)
	version, err := kconfig.ParseVersion(src.Version)
	if err != nil {
		t.Fatal(err)
	}
	fragments := append(testkernel.Fragments(t), optional(t, kconfigs.Optional()...)...)
	k := timedBuild(t, kbuild.Builder{Cache: testkernel.Cache(t)}, kbuild.Request{GitDir: src.GitDir, Commit: src.Head, Fragments: fragments})
	final, err := kconfig.ParseFile(k.Config)
	if err != nil {
		t.Fatal(err)
	}
	for i, f := range fragments {
		fragments[i] = f.For(version)
	}
	wanted, _ := kconfig.Merge(fragments...)
	if err := kconfig.Check(wanted, final, nil); err != nil {
		t.Error(err)
	}
	for _, name := range []string{"BRIDGE", "NET_SCH_HTB", "NF_TABLES", "INET_DIAG", "IPV6_SIT", "BPF_JIT"} {
		if v, _ := final.Get(name); v != "y" {
			t.Errorf("CONFIG_%s is %s", name, v)
		}
	}
	bootOnce(t, k.Image)
}
