package qemu_test

import (
	"bufio"
	"bytes"
	"context"
	"debug/elf"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc64"
	"os"
	"os/exec"
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

// TestReal is one guest with everything that is done with one.
func TestReal(t *testing.T) {
	spec := realSpec(t)
	m := start(t, spec)
	if f := m.Facts(); f.Accel != vm.TCG || f.QEMU == "" || f.Boot <= 0 || !strings.Contains(f.Cmdline, "console=ttyS0") {
		t.Errorf("facts %+v", f)
	}
	body := bytes.Repeat([]byte("x"), 2<<20)
	if err := m.Put(t.Context(), bytes.NewReader(body), int64(len(body)), "/tmp/x", 0o700); err != nil {
		t.Fatal(err)
	}
	want := fmt.Sprintf("%016x\n", crc64.Checksum(body, crc64.MakeTable(crc64.ECMA)))
	if got := output(t, m, "@crc64", "/tmp/x"); got != want {
		t.Errorf("crc64 %q, want %q", got, want)
	}
	var exit *vm.ExitError
	if err := m.Exec(t.Context(), vm.Command{Argv: []string{"/tmp/x"}}); !errors.As(err, &exit) {
		t.Errorf("a program that is none: %v", err)
	}
	log, err := os.ReadFile(filepath.Join(spec.Dir, "console.log"))
	if err != nil || !strings.Contains(string(log), "kbisect-init: ready") {
		t.Errorf("console.log: %v\n%s", err, log)
	}
}

// TestRealCrash makes the guest's kernel panic by sysrq.
func TestRealCrash(t *testing.T) {
	m := start(t, realSpec(t))
	err := m.Exec(t.Context(), vm.Command{Argv: []string{"@sysrq", "c"}})
	var crash *vm.CrashError
	if !errors.As(err, &crash) || !crash.Event.Kind.Fatal() {
		t.Errorf("err = %T %v\n%s", err, err, detail(err))
	}
}

// TestRealNoInit boots a kernel whose initramfs has no init: it panics, and the
// panic is the reason.
func TestRealNoInit(t *testing.T) {
	spec := realSpec(t)
	spec.Initrd = filepath.Join(t.TempDir(), "empty")
	if err := os.WriteFile(spec.Initrd, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	_, err := qemu.Start(t.Context(), spec)
	var boot *vm.BootError
	if !errors.As(err, &boot) || !strings.Contains(boot.Reason, "kernel panic: ") || len(boot.Console) < 5 {
		t.Errorf("err = %v\n%s", err, detail(err))
	}
}

// TestRealHang boots a kernel whose init never says a word, and wants to hear
// from the CPUs and the kernel where it stands.
func TestRealHang(t *testing.T) {
	spec := realSpec(t)
	spec.Initrd = filepath.Join(t.TempDir(), "spin")
	var archive bytes.Buffer
	if err := initramfs.Write(&archive, []initramfs.File{{Path: "init", Mode: 0o755, Data: spinner()}}); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(spec.Initrd, archive.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	spec.Silence = 5 * time.Second
	_, err := qemu.Start(t.Context(), spec)
	var boot *vm.BootError
	if !errors.As(err, &boot) || !strings.HasPrefix(boot.Reason, "silent for 5s") {
		t.Fatalf("err = %v\n%s", err, detail(err))
	}
	found := strings.Join(boot.PostMortem, "\n")
	for _, want := range []string{"CPU#1 RIP=", "NMI"} {
		if !strings.Contains(found, want) {
			t.Errorf("no %q in the post-mortem:\n%s", want, found)
		}
	}
}

// spinner is a static program that does nothing for ever: an ELF header, one
// segment, and a jump to itself.
func spinner() []byte {
	const base, head = 0x400000, 64 + 56
	var b bytes.Buffer
	_ = binary.Write(&b, binary.LittleEndian, elf.Header64{
		Ident: [elf.EI_NIDENT]byte{0x7f, 'E', 'L', 'F', byte(elf.ELFCLASS64), byte(elf.ELFDATA2LSB), byte(elf.EV_CURRENT)},
		Type:  uint16(elf.ET_EXEC), Machine: uint16(elf.EM_X86_64), Version: uint32(elf.EV_CURRENT),
		Entry: base + head, Phoff: 64, Ehsize: 64, Phentsize: 56, Phnum: 1,
	})
	_ = binary.Write(&b, binary.LittleEndian, elf.Prog64{
		Type: uint32(elf.PT_LOAD), Flags: uint32(elf.PF_R | elf.PF_X), Vaddr: base, Filesz: head + 2, Memsz: head + 2, Align: 4096,
	})
	b.Write([]byte{0xeb, 0xfe})
	return b.Bytes()
}

// TestRealBoots boots several times and checks that nothing of it is left. With
// KBISECT_SOAK=1 it is 200 times, which takes some minutes.
func TestRealBoots(t *testing.T) {
	n := 5
	if os.Getenv("KBISECT_SOAK") != "" {
		n = 200
	}
	spec := realSpec(t)
	tmp := t.TempDir()
	t.Setenv("TMPDIR", tmp)
	before := openFDs(t)
	var up []time.Duration
	for i := range n {
		m, err := qemu.Start(t.Context(), spec)
		if err != nil {
			t.Fatalf("boot %d: %v\n%s", i, err, detail(err))
		}
		up = append(up, m.Facts().Boot)
		if err := m.Close(); err != nil {
			t.Fatal(err)
		}
		checkNothingLeft(t, before)
	}
	if names, _ := os.ReadDir(tmp); len(names) > 0 {
		t.Errorf("temporary files left: %v", names)
	}
	slices.Sort(up)
	t.Logf("%d boots: SSH up after %s (median), %s (slowest)", n, up[n/2], up[n-1])
}

// TestRealParentKilled kills a process that runs a machine, and sees QEMU go.
func TestRealParentKilled(t *testing.T) {
	spec := realSpec(t)
	// A path of this test's own, by which its QEMU is told from others.
	link := filepath.Join(t.TempDir(), "vmlinux")
	if err := os.Symlink(spec.Kernel, link); err != nil {
		t.Fatal(err)
	}
	spec.Kernel = link
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(self)
	cmd.Env = append(os.Environ(), ownerEnv+"="+strings.Join([]string{spec.Kernel, spec.Initrd, spec.Dir}, ":"))
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil || line != "up\n" {
		t.Fatalf("owner said %q, %v", line, err)
	}
	_ = cmd.Process.Kill()
	_ = cmd.Wait()
	for end := time.Now().Add(10 * time.Second); running(spec.Kernel); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("QEMU outlives its owner")
		}
	}
}

// ownerEnv makes this test binary start the machine "kernel:initrd:dir" and wait.
const ownerEnv = "KBISECT_QEMU_TEST_OWNER"

func ownMachine(spec string) {
	f := strings.Split(spec, ":")
	if _, err := qemu.Start(context.Background(), vm.Spec{Kernel: f[0], Initrd: f[1], Dir: f[2]}); err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	fmt.Println("up")
	select {}
}

// running reports whether a QEMU with that kernel is there.
func running(kernel string) bool {
	dirs, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	for _, d := range dirs {
		b, _ := os.ReadFile(d)
		if strings.Contains(string(b), "qemu-system") && strings.Contains(string(b), "\x00"+kernel+"\x00") {
			return true
		}
	}
	return false
}

// BenchmarkBoot is exec of QEMU to SSH up, and to a 2 MiB agent pushed.
func BenchmarkBoot(b *testing.B) {
	spec := realSpec(b)
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
