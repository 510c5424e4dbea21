package app

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/kbisect/kbisect/internal/guestbin"
	"github.com/kbisect/kbisect/internal/initramfs"
	"github.com/kbisect/kbisect/internal/measure"
	"github.com/kbisect/kbisect/internal/testkernel"
	"github.com/kbisect/kbisect/vm"
)

// The benchmarks print what README.md's section "Benchmarks" has:
//
//	go test -run xxx -bench . -benchtime 15x ./internal/app

// realLab is a lab on a real kernel.
func realLab(b *testing.B) (*lab, string) {
	b.Helper()
	env := realEnv(b)
	image := testkernel.Path(b)
	initrd, err := env.initramfs(b.Context(), initramfs.Options{})
	if err != nil {
		b.Fatal(err)
	}
	agent, err := guestbin.Agent(b.Context(), env.guestDir())
	if err != nil {
		b.Fatal(err)
	}
	accel, reason, err := env.accelerator(b.Context(), "auto", image)
	if err != nil {
		b.Fatal(err)
	}
	return &lab{start: env.start(), initrd: initrd, agent: agent, machine: realOptions().Machine, accel: accel, reason: reason}, image
}

// median reports the middle of seconds under a name.
func median(b *testing.B, name string, xs []time.Duration) {
	slices.Sort(xs)
	b.ReportMetric(xs[len(xs)/2].Seconds(), name)
	b.ReportMetric(xs[len(xs)-1].Seconds(), "max-"+name)
}

// BenchmarkRun measures what a run costs beside its workload: until the agent's
// first record (to reach: 1.3 s), and all that is not workload (1.6 s).
func BenchmarkRun(b *testing.B) {
	l, image := realLab(b)
	var first, rest []time.Duration
	for b.Loop() {
		t, err := l.run(b.Context(), image, job{"nexthop-delete,count=10", time.Minute}, b.TempDir())
		if err != nil || t.outcome.Status != measure.OK {
			b.Fatalf("%v, %+v", err, t.outcome)
		}
		first = append(first, t.boot+t.push+t.first)
		rest = append(rest, t.total-time.Duration(t.outcome.Values["elapsed"].Number))
	}
	median(b, "s-first-record", first)
	median(b, "s-beside-workload", rest)
}

// BenchmarkBootTrue measures `kbisect boot KERNEL -- true` as a whole process
// (to reach: 1.6 s).
func BenchmarkBootTrue(b *testing.B) {
	image := testkernel.Path(b)
	program := filepath.Join(b.TempDir(), "kbisect")
	if out, err := exec.Command("go", "build", "-o", program, "../../cmd/kbisect").CombinedOutput(); err != nil {
		b.Fatalf("%v\n%s", err, out)
	}
	var all []time.Duration
	for b.Loop() {
		begin := time.Now()
		if out, err := exec.Command(program, "boot", image, "--", "true").CombinedOutput(); err != nil {
			b.Fatalf("%v\n%s", err, out)
		}
		all = append(all, time.Since(begin))
	}
	median(b, "s-boot-true", all)
}

// BenchmarkInsert inserts 16,384 nexthops, each with a group, in turn with
// `ip -batch` in the same guest.
func BenchmarkInsert(b *testing.B) {
	l, image := realLab(b)
	env := realEnv(b)
	initrd, err := env.initramfs(b.Context(), initramfs.Options{Userland: true})
	if err != nil {
		b.Fatal(err)
	}
	dir := b.TempDir()
	m, err := l.start(b.Context(), l.spec(image, initrd, dir))
	if err != nil {
		b.Fatal(err)
	}
	defer m.Close()
	if err := pushFile(b.Context(), m, l.agent, agentPath, 0o755); err != nil {
		b.Fatal(err)
	}
	batch := batchOf(16384)
	if err := m.Put(b.Context(), strings.NewReader(batch), int64(len(batch)), "/tmp/batch", 0o644); err != nil {
		b.Fatal(err)
	}
	var ours, theirs []time.Duration
	for b.Loop() {
		rep, err := l.runAgent(b.Context(), m, job{"nexthop-delete,count=16384", 5 * time.Minute}, dir, &trial{})
		if err != nil {
			b.Fatal(err)
		}
		ours = append(ours, time.Duration(measure.Of(rep, nil).Values["insert"].Number))
		theirs = append(theirs, ipBatch(b, m))
	}
	median(b, "s-insert", ours)
	median(b, "s-ip-batch", theirs)
}

func batchOf(n int) string {
	var s strings.Builder
	for i := 1; i <= n; i++ {
		fmt.Fprintf(&s, "nexthop add id %d dev d0\n", i)
	}
	for i := 1; i <= n; i++ {
		fmt.Fprintf(&s, "nexthop add id %d group %d\n", n+i, i)
	}
	return s.String()
}

// ipBatch lets ip insert the batch in a namespace of its own and returns how
// long that took by the guest's clock.
func ipBatch(b *testing.B, m vm.Machine) time.Duration {
	b.Helper()
	const script = `unshare -n sh -c 'ip link add d0 type dummy && ip link set d0 up && TIMEFORMAT=%R &&
		a=$(cat /proc/uptime) && ip -batch /tmp/batch && b=$(cat /proc/uptime) && echo "${a% *} ${b% *}"'`
	var out bytes.Buffer
	if err := m.Exec(context.Background(), vm.Command{Argv: []string{"/bin/bash", "-c", script}, Stdout: &out, Stderr: os.Stderr}); err != nil {
		b.Fatal(err)
	}
	f := strings.Fields(out.String())
	if len(f) != 2 {
		b.Fatalf("uptimes: %q", out.String())
	}
	begin, err1 := strconv.ParseFloat(f[0], 64)
	end, err2 := strconv.ParseFloat(f[1], 64)
	if err1 != nil || err2 != nil {
		b.Fatalf("uptimes: %q", out.String())
	}
	return time.Duration((end - begin) * float64(time.Second))
}

// BenchmarkNetdevCreate creates 100 dummies with addresses (to reach: 0.5 s).
func BenchmarkNetdevCreate(b *testing.B) {
	l, image := realLab(b)
	var create, elapsed []time.Duration
	for b.Loop() {
		t, err := l.run(b.Context(), image, job{"netdev-delete,count=100", time.Minute}, b.TempDir())
		if err != nil || t.outcome.Status != measure.OK {
			b.Fatalf("%v, %+v", err, t.outcome)
		}
		create = append(create, time.Duration(t.outcome.Values["create"].Number))
		elapsed = append(elapsed, time.Duration(t.outcome.Values["elapsed"].Number))
	}
	median(b, "s-create", create)
	median(b, "s-delete-all", elapsed)
}
