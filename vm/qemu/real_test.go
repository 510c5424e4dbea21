package qemu_test

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/kbisect/kbisect/internal/guestbin"
	"github.com/kbisect/kbisect/internal/initramfs"
	"github.com/kbisect/kbisect/internal/testkernel"
	"github.com/kbisect/kbisect/vm"
	"github.com/kbisect/kbisect/vm/qemu"
)

// built is made once a test binary and removed by TestMain.
var built struct {
	once   sync.Once
	dir    string
	initrd string
	err    error
}

// initrd returns an initramfs with the real kbisect-init.
func initrd(t testing.TB) string {
	t.Helper()
	built.once.Do(func() {
		ctx := context.Background()
		if built.dir, built.err = os.MkdirTemp("", "kbisect-qemu-test-"); built.err != nil {
			return
		}
		var bin string
		if bin, built.err = guestbin.Init(ctx, built.dir); built.err != nil {
			return
		}
		built.initrd, built.err = initramfs.Build(ctx, built.dir, initramfs.Options{Init: bin})
	})
	if built.err != nil {
		t.Fatal(built.err)
	}
	return built.initrd
}

// realSpec describes a machine that really boots.
func realSpec(t testing.TB) vm.Spec {
	t.Helper()
	return vm.Spec{Kernel: testkernel.Path(t), Initrd: initrd(t), Dir: t.TempDir()}
}

func start(t testing.TB, spec vm.Spec) *qemu.Machine {
	t.Helper()
	m, err := qemu.Start(context.Background(), spec)
	if err != nil {
		t.Fatalf("%v\n%s", err, detail(err))
	}
	t.Cleanup(func() {
		if err := m.Close(); err != nil {
			t.Error(err)
		}
	})
	return m
}

func output(t testing.TB, m *qemu.Machine, argv ...string) string {
	t.Helper()
	var out bytes.Buffer
	if err := m.Exec(context.Background(), vm.Command{Argv: argv, Stdout: &out, Stderr: &out}); err != nil {
		t.Errorf("%q: %v\n%s", argv, err, &out)
	}
	return out.String()
}

func TestReal(t *testing.T) {
	spec := realSpec(t)
	m := start(t, spec)
	t.Logf("boot %s, facts %+v", m.Facts().Boot, m.Facts())
	body := bytes.Repeat([]byte("x"), 2<<20)
	begin := time.Now()
	if err := m.Put(t.Context(), bytes.NewReader(body), int64(len(body)), "/tmp/x", 0o700); err != nil {
		t.Fatal(err)
	}
	t.Logf("put %s", time.Since(begin))
	sum := output(t, m, "@sha256", "/tmp/x")
	t.Log(sum)
	log, err := os.ReadFile(filepath.Join(spec.Dir, "console.log"))
	if err != nil || !strings.Contains(string(log), "kbisect-init: ready") {
		t.Errorf("console.log: %v\n%s", err, log)
	}
}

// BenchmarkBoot is exec of QEMU to SSH up, and to a 2 MiB agent pushed.
func BenchmarkBoot(b *testing.B) {
	spec := realSpec(b)
	spec.Cmdline = strings.Fields(os.Getenv("KBISECT_CMDLINE"))
	body := bytes.Repeat([]byte("x"), 2<<20)
	var up, pushed []time.Duration
	for b.Loop() {
		begin := time.Now()
		m, err := qemu.Start(context.Background(), spec)
		if err != nil {
			b.Fatalf("%v\n%s", err, detail(err))
		}
		up = append(up, m.Facts().Boot)
		if err := m.Put(context.Background(), bytes.NewReader(body), int64(len(body)), "/tmp/agent", 0o700); err != nil {
			b.Fatal(err)
		}
		pushed = append(pushed, time.Since(begin))
		if err := m.Close(); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(median(up).Seconds(), "s-up")
	b.ReportMetric(median(pushed).Seconds(), "s-pushed")
}

func median(d []time.Duration) time.Duration {
	slices.Sort(d)
	return d[len(d)/2]
}

// detail returns what an error of vm has to say beside its text.
func detail(err error) string {
	if d, ok := err.(interface{ Detail() string }); ok {
		return d.Detail()
	}
	return fmt.Sprintf("%T", err)
}
