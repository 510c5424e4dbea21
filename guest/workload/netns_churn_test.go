package workload

import (
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"slices"
	"syscall"
	"testing"
	"time"
)

// churnInside says to TestRealChurn that it runs in a user namespace of its own.
const churnInside = "KBISECT_TEST_CHURN_INSIDE"

// TestRealChurn runs in a user namespace of its own, with a limit of its own: this
// machine's other namespaces, those of other tests among them, are not refused.
func TestRealChurn(t *testing.T) {
	if os.Getenv(churnInside) != "" {
		t.Run("burst", func(t *testing.T) { churn(t, "netns-churn,mroute=false,count=20", 0) })
		t.Run("serial", func(t *testing.T) { churn(t, "netns-churn,mroute=false,count=5,mode=serial", 5) })
		return
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), self, "-test.run=^TestRealChurn$", "-test.v")
	cmd.Env = append(os.Environ(), churnInside+"=1")
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags:  syscall.CLONE_NEWUSER | syscall.CLONE_NEWNET,
		UidMappings: []syscall.SysProcIDMap{{HostID: os.Geteuid(), Size: 1}},
		GidMappings: []syscall.SysProcIDMap{{HostID: os.Getegid(), Size: 1}},
	}
	out, err := cmd.CombinedOutput()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Skipf("this machine refuses user namespaces: %v", err)
	}
	t.Logf("%s", out)
	if err != nil {
		t.Fatal(err)
	}
}

// churn runs a specification and expects that many observations.
func churn(t *testing.T, spec string, dismantled int) {
	w, p, err := Parse(spec)
	if err != nil {
		t.Fatal(err)
	}
	before, err := readLimit()
	if err != nil {
		t.Fatal(err)
	}
	n := &notes{metrics: map[string]float64{}, observed: map[string]int{}}
	begin := time.Now()
	inst, err := w.Setup(t.Context(), Env{Params: p, Rec: n, Now: func() int64 { return int64(time.Since(begin)) }})
	if err != nil {
		t.Fatal(err)
	}
	ops, err := inst.Run(t.Context())
	if err := errors.Join(err, inst.Teardown()); err != nil {
		t.Fatal(err)
	}
	if ops != int64(p.Int("count")) || n.observed["dismantle"] != dismantled {
		t.Errorf("%d operations, observed %v", ops, n.observed)
	}
	for _, name := range []string{"create", "gone", "elapsed"} {
		if n.metrics[name] <= 0 {
			t.Errorf("%s is %v", name, n.metrics[name])
		}
	}
	if n.metrics["elapsed"] != n.metrics["create"]+n.metrics["gone"] {
		t.Errorf("elapsed is not the sum: %v", n.metrics)
	}
	for _, name := range []string{"namespaces of others that ended meanwhile", "limit restored"} {
		if !slices.Contains(n.checks, name) {
			t.Errorf("no check %q among %q", name, n.checks)
		}
	}
	if after, err := readLimit(); err != nil || after != before {
		t.Errorf("the limit was %s and is %s, %v", before, after, err)
	}
	t.Logf("%s: %v", spec, n.metrics)
}

// TestChurnWithoutRights: one who may not set the limit is told so, and nothing
// has changed.
func TestChurnWithoutRights(t *testing.T) {
	if os.Geteuid() == 0 {
		t.Skip("root may set the limit")
	}
	w, p, err := Parse("netns-churn")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.Setup(t.Context(), Env{Params: p}); !errors.Is(err, fs.ErrPermission) {
		t.Errorf("got %v, want a refusal", err)
	}
}
