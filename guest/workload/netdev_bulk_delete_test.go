package workload

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/kbisect/kbisect/guest/rtnl"
	"golang.org/x/sys/unix"
)

func TestInterleave(t *testing.T) {
	for _, c := range []struct{ count, keep int }{{1, 0}, {400, 10}, {1, 1}, {1, 10}, {1, 1000}, {10, 1}, {3, 2}, {20_000, 1000}} {
		victims, kept := interleave(c.count, c.keep)
		if len(victims) != c.count || len(kept) != c.keep {
			t.Errorf("%+v: %d to delete, %d to keep", c, len(victims), len(kept))
		}
		all := slices.Sorted(slices.Values(append(slices.Collect(maps.Keys(kept)), victims...)))
		for i, index := range all {
			if index != firstIndex+i {
				t.Fatalf("%+v: index %d is %d", c, i, index)
			}
		}
		// With more to delete than to keep, those to keep lie between.
		if c.count > c.keep && (kept[all[0]] != "" || kept[all[len(all)-1]] != "") {
			t.Errorf("%+v: an end is kept: %v", c, kept)
		}
	}
}

func TestBulkThreadsAreForEach(t *testing.T) {
	w, p, err := Parse("netdev-bulk-delete,mode=group,threads=2")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.Setup(t.Context(), Env{Params: p}); err == nil || !strings.Contains(err.Error(), "mode=each") {
		t.Errorf("got %v, want it to say that threads need mode=each", err)
	}
}

// setUpBulk sets a run up, or skips where this machine has no such devices.
func setUpBulk(t *testing.T, spec string) (Instance, *notes) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root to make a network namespace")
	}
	_, _, inst, n := setUp(t, "netdev-bulk-delete,type="+anyKind(t)+","+spec)
	return inst, n
}

// anyKind returns a kind of device that this machine has.
func anyKind(t *testing.T) string {
	t.Helper()
	ns, c, err := freshNamespace()
	if err != nil {
		t.Skipf("not allowed to make network namespaces here: %v", err)
	}
	defer func() {
		if err := errors.Join(c.Close(), ns.Close()); err != nil {
			t.Error(err)
		}
	}()
	for _, kind := range []string{"dummy", "veth"} {
		if err := c.Do(rtnl.AddLink(rtnl.Link{Name: "x", Kind: kind, Peer: "y"})); !errors.Is(err, unix.EOPNOTSUPP) {
			return kind
		}
	}
	t.Skip("this kernel has neither dummy nor veth devices")
	return ""
}

// TestBulkSeesTheWrongDeviceGo takes a device that must stay, or leaves one that
// must go: the run must not pass.
func TestBulkSeesTheWrongDeviceGo(t *testing.T) {
	for name, mischief := range map[string]func(r *bulkRun) error{
		"a kept device is gone":        func(r *bulkRun) error { return r.conn.Do(rtnl.DelLink(anyOf(r.kept))) },
		"a kept device is down":        func(r *bulkRun) error { return r.conn.Do(rtnl.SetLink(anyOf(r.kept), false)) },
		"a kept device changed group":  func(r *bulkRun) error { return r.conn.Do(rtnl.SetGroup(anyOf(r.kept), 5)) },
		"a device is in another group": func(r *bulkRun) error { return r.conn.Do(rtnl.SetGroup(r.victims[1], 5)) },
	} {
		t.Run(name, func(t *testing.T) {
			inst, _ := setUpBulk(t, "count=6,keep=2,mode=group")
			r := inst.(*bulkRun)
			if r.ends == 2 && name == "a device is in another group" {
				t.Skip("the other end of a veth takes it along")
			}
			if err := mischief(r); err != nil {
				t.Fatal(err)
			}
			_, err := inst.Run(t.Context())
			var check *CheckError
			if !errors.As(err, &check) {
				t.Errorf("got %v, want a failed check", err)
			}
			if err := inst.Teardown(); err != nil {
				t.Error(err)
			}
		})
	}
}

func anyOf(kept map[int]string) int { return slices.Min(slices.Collect(maps.Keys(kept))) }

// TestRealBulk runs every mode on whatever devices this machine has.
func TestRealBulk(t *testing.T) {
	for _, spec := range []string{
		"mode=each,count=6,keep=2", "mode=each,count=7,keep=2,threads=3", "mode=each,count=2,keep=0,threads=50",
		"mode=group,count=6,keep=2", "mode=group,count=3,up=false", "mode=move,count=6,keep=2",
		"mode=updown,count=6,keep=2", "mode=list,count=6,keep=2",
	} {
		t.Run(spec, func(t *testing.T) {
			inst, n := setUpBulk(t, spec)
			ops, err := inst.Run(t.Context())
			if err := errors.Join(err, inst.Teardown()); err != nil {
				t.Fatal(err)
			}
			r := inst.(*bulkRun)
			if ops != int64(len(r.victims)) {
				t.Errorf("%d operations of %d", ops, len(r.victims))
			}
			for _, m := range MetricsFor(netdevBulkDelete{}, r.env.Params) {
				if m.Dist && n.observed[m.Name] != len(r.victims) || !m.Dist && n.metrics[m.Name] <= 0 {
					t.Errorf("metric %s: %v, %d", m.Name, n.metrics[m.Name], n.observed[m.Name])
				}
			}
			t.Log(fmt.Sprint(n.metrics), n.checks)
		})
	}
}
