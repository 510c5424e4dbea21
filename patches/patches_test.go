package patches

import (
	"bytes"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/bluekeyes/go-gitdiff/gitdiff"
)

func TestEmbeddedCatalog(t *testing.T) {
	cases, err := Embedded()
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, c := range cases {
		names = append(names, c.Name)
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
	if got := strings.Join(names, " "); got != "netdev-wait-allrefs nexthop-delete" {
		t.Errorf("cases: %s", got)
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
`

func TestLoadErrors(t *testing.T) {
	tests := []struct{ name, replace, with, want string }{
		{"unknown key", `title = "t"`, "title = \"t\"\ntitel = \"x\"", `x/case.toml: unknown key "titel"`},
		{"missing metric", `metric = "m"`, "", "x/case.toml: metric is missing"},
		{"bad limit", `"1m"`, `"soon"`, `limit: "soon" is not a duration`},
		{"bad figure", `"2s"`, `"-2s"`, "report.without"},
		{"bad range", ">=5.10 <6.0", "5.10", `kernel range "5.10"`},
		{"bad version", ">=5.10 <6.0", ">=5.x", `"5.x" is not a version`},
		{"patch in another folder", `"a.patch"`, `"../a.patch"`, `patch file "../a.patch"`},
		{"patch that is not there", `"a.patch"`, `"c.patch"`, "x/c.patch"},
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
