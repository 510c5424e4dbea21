package workload

import (
	"os"
	"slices"
	"testing"
)

// stress runs a specification on this machine's kernel, in a namespace.
func stress(t *testing.T, spec string) (*notes, int64) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root to make network namespaces")
	}
	w, p, inst, n := setUp(t, spec)
	ops, err := inst.Run(t.Context())
	if terr := inst.Teardown(); terr != nil {
		t.Error(terr)
	}
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range MetricsFor(w, p) {
		if _, set := n.metrics[m.Name]; set == m.Dist {
			t.Errorf("metric %s: reported %v", m.Name, set)
		}
	}
	return n, ops
}

func TestRealQdiscStress(t *testing.T) {
	for spec, least := range map[string]int64{
		"qdisc-stress,frames=2000":                      2000,
		"qdisc-stress,frames=2000,dev=vlan,burst=3":     2000,
		"qdisc-stress,frames=500,threads=1":             500,
		"qdisc-stress,frames=640,threads=5,burst=64":    640,
		"qdisc-stress,frames=320,threads=16,stuck-ms=9": 320,
		"qdisc-stress,seconds=1":                        2,
	} {
		t.Run(spec, func(t *testing.T) {
			n, ops := stress(t, spec)
			t.Logf("%d frames: %v", ops, n.metrics)
			if ops < least || n.observed["delivery"] != int(ops) || n.metrics["frames"] != float64(ops) {
				t.Errorf("%d frames, %d deliveries, want at least %d", ops, n.observed["delivery"], least)
			}
			for _, check := range []string{"frames received", "frames dropped by the receiver", "frames that were not expected"} {
				if !slices.Contains(n.checks, check) {
					t.Errorf("it did not check %q, only %q", check, n.checks)
				}
			}
		})
	}
}
