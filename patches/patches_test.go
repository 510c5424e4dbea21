package patches

import (
	"bytes"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/bluekeyes/go-gitdiff/gitdiff"
	"github.com/google/go-cmp/cmp"
)

func TestEmbeddedCatalog(t *testing.T) {
	cases, err := Embedded()
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, c := range cases {
		names = append(names, c.Name)
		for _, w := range workloads(c) {
			if name, _, _ := strings.Cut(w, ","); name == "" {
				t.Errorf("%s: workload %q names none", c.Name, w)
			}
		}
		if c.Report.Author == "" || c.Report.Date.IsZero() || c.Report.What == "" {
			t.Errorf("%s: the report says not who, when or what: %+v", c.Name, c.Report)
		}
		if c.LimitDuration() <= 0 {
			t.Errorf("%s: no limit", c.Name)
		}
		for _, p := range c.Patches {
			files, _, err := gitdiff.Parse(bytes.NewReader(p.Data))
			if err != nil || len(files) == 0 {
				t.Errorf("%s/%s: %d files, %v", c.Name, p.File, len(files), err)
			}
			if !bytes.Contains(p.Data, []byte("GPL-2.0")) {
				t.Errorf("%s/%s: names no licence", c.Name, p.File)
			}
		}
	}
	if got := strings.Join(names, " "); got != "lockless-qdisc netdev-bulk-delete netdev-wait-allrefs netns-dismantle nexthop-delete" {
		t.Errorf("cases: %s", got)
	}
}

// workloads returns every workload string of a case.
func workloads(c *Case) []string {
	out := []string{c.Workload}
	if c.WorkloadWithout != "" {
		out = append(out, c.WorkloadWithout)
	}
	for _, a := range c.Also {
		out = append(out, a.Workload)
		if a.WorkloadWithout != "" {
			out = append(out, a.WorkloadWithout)
		}
	}
	return out
}

// TestPatchesFitTheirRange finds gaps and typing mistakes in the ranges: every
// kernel that a case covers has a variant that is tried first because it was
// written for it.
func TestPatchesFitTheirRange(t *testing.T) {
	cases, err := Embedded()
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range cases {
		for _, version := range []string{"5.10.262", "5.15", "6.1.192", "6.12.117", "7.2.13"} {
			if !InRange(version, c.Kernels) {
				continue
			}
			if p := c.Ordered(version)[0]; !InRange(version, p.Kernels) {
				t.Errorf("%s: no patch was written for %s", c.Name, version)
			}
		}
	}
}

func TestAlso(t *testing.T) {
	cases, err := Load(catalog(goodCase))
	if err != nil {
		t.Fatal(err)
	}
	want := []Also{
		{Title: "list v group", Workload: "v", WithoutKernel: "with", Metrics: []string{"m", "n.p99"}, Runs: 4, Within: 1.3},
		{Title: "also", Workload: "w", WorkloadWithout: "u", Metrics: []string{"m"}, Runs: 6},
	}
	if diff := cmp.Diff(want, cases[0].Also); diff != "" {
		t.Error(diff)
	}
	if got := cases[0].WorkloadWithout; got != "" {
		t.Errorf("workload_without: %q, want none", got)
	}
}

const goodCase = `
title = "t"
workload = "w"
metric = "m"
threshold = "m>1s"
limit = "1m"
[report]
without = "2s"
with = "1s"
[[patch]]
file = "a.patch"
kernels = ">=5.10 <6.0"
[[patch]]
file = "b.patch"
[[also]]
title = "list v group"
workload = "v"
without_kernel = "with"
metrics = ["m", "n.p99"]
runs = 4
within = 1.3
[[also]]
title = "also"
workload = "w"
workload_without = "u"
metrics = ["m"]
`

func TestLoadErrors(t *testing.T) {
	tests := []struct{ name, replace, with, want string }{
		{"unknown key", `title = "t"`, "title = \"t\"\ntitel = \"x\"", `x/case.toml: unknown key "titel"`},
		{"missing metric", "metric = \"m\"\n", "", "x/case.toml: metric is missing"},
		{"bad limit", `"1m"`, `"soon"`, `limit: "soon" is not a duration`},
		{"bad figure", `"2s"`, `"-2s"`, "report.without"},
		{"bad range", ">=5.10 <6.0", "5.10", `kernel range "5.10"`},
		{"bad version", ">=5.10 <6.0", ">=5.x", `"5.x" is not a version`},
		{"patch in another folder", `"a.patch"`, `"../a.patch"`, `patch file "../a.patch"`},
		{"patch that is not there", `"a.patch"`, `"c.patch"`, "x/c.patch"},
		{"comparison without a title", `title = "also"`, "", "x/case.toml: [[also]] 2: title is missing"},
		{"comparison without a workload", `workload = "v"`, "", "[[also]] 1: workload is missing"},
		{"comparison without metrics", `metrics = ["m", "n.p99"]`, "", "[[also]] 1: metrics is missing"},
		{"comparison of an empty metric", `["m", "n.p99"]`, `["m", ""]`, "[[also]] 1: metrics is missing or has an empty one"},
		{"comparison on another kernel", `without_kernel = "with"`, `without_kernel = "without"`, `without_kernel: "without" is not "with"`},
		{"comparison with too many runs", "runs = 4", "runs = 81", "runs: 81 is not 1 to 80"},
		{"comparison with negative runs", "runs = 4", "runs = -1", "runs: -1 is not"},
		{"comparison within less than nothing", "within = 1.3", "within = 0.7", "within: 0.7 is not a factor above 1"},
		{"comparison with an unknown key", "runs = 4", "rums = 4", `unknown key "also.rums"`},
		{"not toml", `title = "t"`, "title", "x/case.toml"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			text := strings.Replace(goodCase, tt.replace, tt.with, 1)
			_, err := Load(catalog(text))
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("got %v, want %q in it", err, tt.want)
			}
		})
	}
	if _, err := Load(fstest.MapFS{}); err == nil {
		t.Error("an empty catalog was taken")
	}
}

func catalog(text string) fstest.MapFS {
	return fstest.MapFS{
		"x/case.toml": {Data: []byte(text)},
		"x/a.patch":   {Data: []byte("a")},
		"x/b.patch":   {Data: []byte("b")},
	}
}

func TestOrdered(t *testing.T) {
	cs, err := Load(catalog(strings.Replace(goodCase, "kernels = \">=5.10 <6.0\"", "kernels = \">=6.0\"", 1)))
	if err != nil {
		t.Fatal(err)
	}
	for version, want := range map[string]string{"6.1.192": "a.patch", "5.10.223": "b.patch"} {
		if got := cs[0].Ordered(version)[0].File; got != want {
			t.Errorf("%s: %s first, want %s", version, got, want)
		}
	}
}

func TestInRange(t *testing.T) {
	tests := []struct {
		version, kernels string
		want             bool
	}{
		{"6.1.192", "", true},
		{"6.1.192", ">=6.1", true},
		{"6.1", ">=6.1 <6.2", true},
		{"6.10.1", "<6.2", false},
		{"7.2.0-rc3", ">=7.2", true},
		{"7.2.13", "=7.2", false},
		{"5.9", ">=5.10", false},
		{"nonsense", ">=5.10", false},
		{"6.1", "nonsense", false},
	}
	for _, tt := range tests {
		if got := InRange(tt.version, tt.kernels); got != tt.want {
			t.Errorf("InRange(%q, %q) = %v", tt.version, tt.kernels, got)
		}
	}
}
