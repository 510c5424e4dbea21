package kbuild_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/kbisect/kbisect/internal/gitx"
	"github.com/kbisect/kbisect/internal/kbuild"
	"github.com/kbisect/kbisect/internal/source"
	"github.com/kbisect/kbisect/internal/testkernel"
)

// The tests below build a real kernel, in the user's own cache, so that the
// minutes of a first build are spent once on a machine.

// variedFile is a .c file that every configuration of ours builds, and which one
// object depends on.
const variedFile = "net/core/rtnetlink.c"

// variant commits the source with text appended to one file, and returns the
// commit's id.
func variant(t testing.TB, src *source.Source, text string) string {
	t.Helper()
	ctx := context.Background()
	repo := src.Repo()
	old, err := repo.ReadFile(ctx, src.Head, variedFile, 4<<20)
	if err != nil {
		t.Fatal(err)
	}
	env := []string{"GIT_INDEX_FILE=" + filepath.Join(t.TempDir(), "index")}
	run := func(stdin string, args ...string) string {
		var out strings.Builder
		if err := repo.Do(ctx, gitx.Command{Args: args, Env: env, Stdin: strings.NewReader(stdin), Stdout: &out}); err != nil {
			t.Fatal(err)
		}
		return strings.TrimSpace(out.String())
	}
	run("", "read-tree", src.Head)
	blob := run(old+text, "hash-object", "-w", "--stdin")
	run("", "update-index", "--cacheinfo", "100644,"+blob+","+variedFile)
	commit, err := repo.CommitTree(ctx, run("", "write-tree"), "kbisect test: a variant", src.Head)
	if err != nil {
		t.Fatal(err)
	}
	return commit
}

// build builds a commit of src and logs how.
func build(t testing.TB, b kbuild.Builder, src *source.Source, commit string) (*kbuild.Kernel, error) {
	t.Helper()
	began := time.Now()
	phase, since := kbuild.Phase("plan"), began
	var times []string
	expected := int64(0)
	k, err := b.Build(context.Background(), kbuild.Request{
		GitDir: src.GitDir, Commit: commit, Fragments: testkernel.Fragments(t),
		Progress: func(p kbuild.Phase, done, total int64) {
			if p != phase {
				times = append(times, fmt.Sprintf("%s %.2fs", phase, time.Since(since).Seconds()))
				phase, since = p, time.Now()
			}
			if p == kbuild.PhaseCompile && done == 0 {
				expected = total
			}
		},
	})
	times = append(times, fmt.Sprintf("%s %.2fs", phase, time.Since(since).Seconds()))
	if k != nil {
		t.Logf("%.2fs (%s), %d steps of %d expected, cached %v, identity %.12s", time.Since(began).Seconds(), strings.Join(times, ", "), k.Objects, expected, k.Cached, k.Identity)
		t.Cleanup(k.Release)
	}
	return k, err
}

// TestRealKernel builds a kernel and variants of it: what is equal, what is not,
// what an error looks like.
func TestRealKernel(t *testing.T) {
	src := testkernel.Source(t)
	b := kbuild.Builder{Cache: testkernel.Cache(t)}
	first, err := build(t, b, src, src.Head)
	if err != nil {
		t.Fatal(err)
	}
	if want := strings.SplitN(src.Version, "-", 2)[0]; !strings.HasPrefix(first.Uname, want) {
		t.Errorf("uname -r is %q, want %s...", first.Uname, want)
	}
	again, err := build(t, b, src, src.Head)
	if err != nil || !again.Cached || again.Identity != first.Identity {
		t.Errorf("again: %+v, %v", again, err)
	}
	// Lines that move change no instruction.
	comment, err := build(t, b, src, variant(t, src, "\n/* a comment\n *\n */\n"))
	if err != nil {
		t.Fatal(err)
	}
	if comment.Key == first.Key || comment.Identity != first.Identity {
		t.Errorf("a comment changed the identity: %s, %s", first.Identity, comment.Identity)
	}
	code, err := build(t, b, src, variant(t, src, "\nint kbisect_variant(int x); int kbisect_variant(int x) { return x + 1; }\n"))
	if err != nil {
		t.Fatal(err)
	}
	if code.Identity == first.Identity {
		t.Error("a function more did not change the identity")
	}
	_, err = build(t, b, src, variant(t, src, "\nint kbisect_variant(int x) { return y; }\n"))
	var kernel *kbuild.KernelError
	if !errors.As(err, &kernel) || kernel.File != variedFile || kernel.Line == 0 {
		t.Errorf("compile error: %v", err)
	}
}

// TestRealConfigs configures the kernels that $KBISECT_TEST_KERNELS names with
// the embedded fragments, and stops where the compiler would begin: every symbol
// survives on each of them, or is marked as one that need not.
func TestRealConfigs(t *testing.T) {
	specs := strings.Fields(os.Getenv("KBISECT_TEST_KERNELS"))
	if len(specs) == 0 {
		t.Skip(`fetches and imports several kernels (minutes); set KBISECT_TEST_KERNELS="debian:5.10 debian:6.12 debian:7.2"`)
	}
	for _, spec := range specs {
		t.Run(spec, func(t *testing.T) {
			src, err := source.Open(context.Background(), spec, source.Options{Cache: testkernel.Cache(t)})
			if err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithCancel(context.Background())
			defer cancel()
			k, err := kbuild.Builder{Cache: testkernel.Cache(t)}.Build(ctx, kbuild.Request{
				GitDir: src.GitDir, Commit: src.Head, Fragments: testkernel.Fragments(t),
				Progress: func(p kbuild.Phase, _, _ int64) {
					if p == kbuild.PhaseCompile {
						cancel()
					}
				},
			})
			if k != nil {
				k.Release() // it was there already
			} else if !errors.Is(err, context.Canceled) {
				t.Error(err)
			}
		})
	}
}

// TestRealReproducible builds in another cache, without ccache, and compares the
// bytes. It takes minutes, so it wants to be asked for.
func TestRealReproducible(t *testing.T) {
	if os.Getenv("KBISECT_TEST_REPRODUCIBLE") == "" {
		t.Skip("builds a second kernel from nothing (minutes); set KBISECT_TEST_REPRODUCIBLE=1")
	}
	src := testkernel.Source(t)
	one, err := build(t, kbuild.Builder{Cache: testkernel.Cache(t)}, src, src.Head)
	if err != nil {
		t.Fatal(err)
	}
	two, err := build(t, kbuild.Builder{Cache: filepath.Join(t.TempDir(), "somewhere", "else"), NoCcache: true}, src, src.Head)
	if err != nil {
		t.Fatal(err)
	}
	if one.SHA256 != two.SHA256 || two.Cached {
		t.Errorf("differ: %s and %s", one.Image, two.Image)
	}
}

// BenchmarkVariant measures a kernel of which one .c file is new, and the bare
// incremental `make vmlinux` of the same change in the same tree. Wanted: a ratio
// of at most 1.3.
func BenchmarkVariant(b *testing.B) {
	src := testkernel.Source(b)
	builder := kbuild.Builder{Cache: testkernel.Cache(b)}
	if _, err := build(b, builder, src, src.Head); err != nil {
		b.Fatal(err)
	}
	// Variants that no earlier benchmark has built.
	stamp := time.Now().UnixNano()
	next := func(n int64) string {
		return variant(b, src, fmt.Sprintf("\nlong kbisect_variant(void); long kbisect_variant(void) { return %d; }\n", stamp+n))
	}
	first, err := build(b, builder, src, next(0))
	if err != nil {
		b.Fatal(err)
	}
	tree := treeOf(b, builder, first)
	var ours, bare time.Duration
	for n := int64(1); b.Loop(); n++ {
		commit := next(n)
		began := time.Now()
		if _, err := build(b, builder, src, commit); err != nil {
			b.Fatal(err)
		}
		ours += time.Since(began)
		bare += bareMake(b, tree, stamp-n)
	}
	runs := float64(b.N)
	b.ReportMetric(ours.Seconds()/runs, "variant-s")
	b.ReportMetric(bare.Seconds()/runs, "bare-s")
	b.ReportMetric(ours.Seconds()/bare.Seconds(), "ratio")
	b.ReportMetric(0, "ns/op")
}

// treeOf finds the build tree whose objects are k's.
func treeOf(b *testing.B, builder kbuild.Builder, k *kbuild.Kernel) string {
	b.Helper()
	states, _ := filepath.Glob(filepath.Join(builder.Cache, "build", "*", "state.json"))
	for _, s := range states {
		if data, err := os.ReadFile(s); err == nil && strings.Contains(string(data), k.Tree) {
			return filepath.Join(filepath.Dir(s), "src")
		}
	}
	b.Fatalf("no build tree for %s", k.Tree)
	return ""
}

// bareMake changes the file by hand, and runs what a person would.
func bareMake(b *testing.B, tree string, n int64) time.Duration {
	b.Helper()
	path := filepath.Join(tree, variedFile)
	old, err := os.ReadFile(path)
	if err != nil {
		b.Fatal(err)
	}
	text := fmt.Sprintf("%s\nlong kbisect_bare(void); long kbisect_bare(void) { return %d; }\n", old, n)
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		b.Fatal(err)
	}
	began := time.Now()
	c := exec.Command("make", "-C", tree, "O="+filepath.Join(tree, "kbisect-obj"), fmt.Sprintf("-j%d", runtime.NumCPU()), "ARCH=x86_64", "CC=gcc", "LOCALVERSION=", "vmlinux")
	c.Env = append(os.Environ(), "LC_ALL=C", "KBUILD_BUILD_TIMESTAMP=Thu Jan 1 00:00:00 UTC 1970", "KBUILD_BUILD_USER=kbisect", "KBUILD_BUILD_HOST=kbisect", "KBUILD_BUILD_VERSION=1")
	out, err := c.CombinedOutput()
	took := time.Since(began)
	if err != nil {
		b.Fatalf("make: %v\n%s", err, out)
	}
	if err := os.WriteFile(path, old, 0o644); err != nil {
		b.Fatal(err)
	}
	return took
}

// BenchmarkCached measures a build of what the cache already has.
func BenchmarkCached(b *testing.B) {
	src := testkernel.Source(b)
	builder := kbuild.Builder{Cache: testkernel.Cache(b)}
	if _, err := build(b, builder, src, src.Head); err != nil {
		b.Fatal(err)
	}
	request := kbuild.Request{GitDir: src.GitDir, Commit: src.Head, Fragments: testkernel.Fragments(b)}
	for b.Loop() {
		k, err := builder.Build(context.Background(), request)
		if err != nil || !k.Cached {
			b.Fatal(k, err)
		}
		k.Release()
	}
}

// BenchmarkIdentity measures the hash of a real vmlinux.
func BenchmarkIdentity(b *testing.B) {
	src := testkernel.Source(b)
	k, err := build(b, kbuild.Builder{Cache: testkernel.Cache(b)}, src, src.Head)
	if err != nil {
		b.Fatal(err)
	}
	info, err := os.Stat(k.Image)
	if err != nil {
		b.Fatal(err)
	}
	b.SetBytes(info.Size())
	for b.Loop() {
		if _, err := kbuild.Identity(k.Image); err != nil {
			b.Fatal(err)
		}
	}
}
