package kconfigs

import (
	"slices"
	"strings"
	"testing"
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
	if _, err := Get("nothing"); err == nil || !strings.Contains(err.Error(), "there are base, dummy") {
		t.Errorf("Get of an unknown one: %v", err)
	}
	if _, err := Summary("nothing"); err == nil {
		t.Error("Summary of an unknown one")
	}
}

func TestSets(t *testing.T) {
	def, over := Default(), Over()
	// Another set or order makes every cached kernel another one.
	if got := strings.Join(def, " "); got != "base dummy mroute net netns pktgen qdisc veth vlan" {
		t.Errorf("Default() = %s", got)
	}
	if over[0] != Own || slices.Contains(over, Base) || slices.Contains(over, net) || !slices.Contains(over, "dummy") {
		t.Errorf("Over() = %v", over)
	}
}
