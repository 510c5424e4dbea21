package kconfigs

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestFragments(t *testing.T) {
	names := List()
	if !slices.IsSorted(names) || !slices.Contains(names, Base) || !slices.Contains(names, Own) {
		t.Errorf("List() = %v", names)
	}
	for _, name := range names {
		text, err := Get(name)
		if err != nil {
			t.Fatal(err)
		}
		// The heading names the file, and Summary is what `kbisect list` shows.
		if !strings.HasPrefix(string(text), "# "+name+".config: ") {
			t.Errorf("%s: heading %.40q", FileName(name), text)
		}
		about, err := Summary(name)
		if err != nil || about == "" || strings.Contains(about, ".config:") || strings.HasSuffix(about, ".") {
			t.Errorf("%s: summary %q, %v", name, about, err)
		}
	}
	if _, err := Get("nothing"); err == nil || !strings.Contains(err.Error(), "there are base, bonding") {
		t.Errorf("Get of an unknown one: %v", err)
	}
	if _, err := Summary("nothing"); err == nil {
		t.Error("Summary of an unknown one")
	}
}

// TestSets pins what is shared: its order and number are part of the key of every
// kernel in a cache. A new fragment is optional.
func TestSets(t *testing.T) {
	def, over, optional := Default(), Over(), Optional()
	if diff := cmp.Diff([]string{"base", "dummy", "mroute", "net", "netns", "pktgen", "qdisc", "veth", "vlan"}, def); diff != "" {
		t.Errorf("Default(): (-want +got)\n%s", diff)
	}
	if diff := cmp.Diff([]string{"own", "dummy", "mroute", "netns", "pktgen", "qdisc", "veth", "vlan"}, over); diff != "" {
		t.Errorf("Over(): (-want +got)\n%s", diff)
	}
	if len(optional)+len(def)+1 != len(List()) || !slices.IsSorted(optional) || slices.Contains(optional, Own) || slices.Contains(optional, "veth") || !slices.Contains(optional, "bridge") {
		t.Errorf("Optional() = %v", optional)
	}
	def[0], over[0] = "x", "x"
	if Default()[0] != Base || Over()[0] != Own {
		t.Error("a caller's change of a list is seen by the next")
	}
}
