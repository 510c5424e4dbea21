package app

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/kbisect/kbisect/internal/report"
)

// deleteScript is as people write them in reports: addresses, and a device at a
// time. Forwarding gives each device an anycast address, whose release is what
// takes the further grace period.
const deleteScript = `#!/bin/sh
set -e
. ./names
modprobe dummy
sysctl -q net.ipv6.conf.default.forwarding=1
for i in $(seq $COUNT); do
	echo "link add d$i up type dummy"
	echo "addr add 2001:db8:$i::1/64 dev d$i"
done > batch
ip -b batch
time for i in $(seq $COUNT); do
	ip link del d$i
done
echo kbisect-metric devices $COUNT count
`

// deleteOptions runs deleteScript with the file that it reads.
func deleteOptions(t *testing.T) RunOptions {
	t.Helper()
	names := filepath.Join(t.TempDir(), "names")
	if err := os.WriteFile(names, []byte("COUNT=12\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	o := realOptions()
	o.Cases, o.Metric = []string{"netdev-wait-allrefs"}, "time[1].real"
	o.Script = ScriptOptions{Name: "delete.sh", Text: deleteScript, Files: []string{names}}
	return o
}

// TestRealScript runs a script on real kernels: what the fix does shows in the
// script's own time.
func TestRealScript(t *testing.T) {
	env := realEnv(t)
	o := deleteOptions(t)
	res, err := Run(t.Context(), env, o, os.Stderr)
	if err != nil {
		t.Fatalf("%v\n%s", err, Detail(err))
	}
	c := res.Comparisons[0]
	// 0.25 s a device without the fix, of which 12 are deleted; the forks of both
	// sides are the same.
	if c.Verdict != report.Faster || c.Without.Median < 2.5e9 {
		t.Errorf("%s, %v v %v ns", c.Verdict, c.Without.Median, c.With.Median)
	}
	if !strings.HasPrefix(c.Workload, "script delete.sh (sha256 ") {
		t.Errorf("the workload is called %q", c.Workload)
	}
	transcripts, _ := filepath.Glob(filepath.Join(res.RunDir, "001-*", transcriptName))
	if len(transcripts) != 1 {
		t.Fatalf("no transcript in %s", res.RunDir)
	}
	text, err := os.ReadFile(transcripts[0])
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"+ ip link del d12\n", "\nkbisect-metric devices 12 count\n", "modprobe: dummy: nothing to load"} {
		if !strings.Contains(string(text), want) {
			t.Errorf("no %q in the transcript:\n%s", want, text)
		}
	}
}

// TestRealScriptThatCannotRun: a script that fails is untestable, with what it
// said last and what the kernel lacks; it is never fast.
func TestRealScriptThatCannotRun(t *testing.T) {
	env := realEnv(t)
	o := realOptions()
	o.Cases = []string{"netdev-wait-allrefs"}
	o.Script = ScriptOptions{Name: "-e", Text: "set -e\nip link add br0 type bridge\nip link del br0\n"}
	res, err := Run(t.Context(), env, o, os.Stderr)
	if res == nil {
		t.Fatal(err)
	}
	c := res.Comparisons[0]
	for _, want := range []string{"status 2", "Unknown device type", "--kconfig bridge"} {
		if c.Verdict != report.Untestable || !strings.Contains(c.Reason, want) {
			t.Errorf("%s (%s), want untestable and %q", c.Verdict, c.Reason, want)
		}
	}
}

// TestRealScriptSettles: what a script leaves to the kernel's workers counts in
// settled, and a namespace that stays is not waited for.
func TestRealScriptSettles(t *testing.T) {
	env := realEnv(t)
	o := realOptions()
	o.Cases, o.Metric = []string{"netns-dismantle"}, "settled"
	o.Script = ScriptOptions{Name: "-e", ExitOK: 1, Text: `
ip netns add stays
for i in {1..60}; do unshare -n /bin/false; done
`}
	res, err := Run(t.Context(), env, o, os.Stderr)
	if err != nil {
		t.Fatalf("%v\n%s", err, Detail(err))
	}
	// The fix takes a grace period or more, 50 ms, off the end of each namespace.
	c := res.Comparisons[0]
	if c.Verdict != report.Faster || c.Without.Median-c.With.Median < 1e9 {
		t.Errorf("%s, %v v %v ns", c.Verdict, c.Without.Median, c.With.Median)
	}
}

// TestRealExitIsVerdict: the exit status of a script decides as that of git
// bisect run's does.
func TestRealExitIsVerdict(t *testing.T) {
	env := realEnv(t)
	o := realOptions()
	o.Quick = false
	o.Cases = []string{"netdev-wait-allrefs"}
	o.Script = ScriptOptions{Name: "-e", ExitIsVerdict: true, Text: `
sysctl -q net.ipv6.conf.default.forwarding=1
for i in 1 2 3 4; do
	ip link add d$i up type dummy
	ip addr add 2001:db8:$i::1/64 dev d$i
	echo link del d$i >> batch
done
begin=$EPOCHREALTIME
ip -b batch
[ $(( ${EPOCHREALTIME/./} - ${begin/./} )) -lt 700000 ] # without the fix 0.25 s a device
`}
	res, err := Run(t.Context(), env, o, os.Stderr)
	if err != nil {
		t.Fatal(err)
	}
	c := res.Comparisons[0]
	if c.Verdict != report.Faster || c.Metric != "exit" || c.With.Above != 0 || c.Without.Above != c.Without.N {
		t.Errorf("%s by %s: with %+v, without %+v", c.Verdict, c.Metric, c.With, c.Without)
	}
}
