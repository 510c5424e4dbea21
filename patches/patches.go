// Package patches is the catalog: one folder a case, with case.toml, which says
// what is measured and what the report claimed, and the fix as one patch for
// each range of kernels whose source differs there.
//
// A patch always goes from the slow kernel to the fast one. Whether it is
// applied to a tree or taken out of it is decided from the tree (package
// series), never from a version number; the version only says which variant is
// tried first. The patches are GPL-2.0-only.
package patches

import (
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"sort"
	"strconv"
	"strings"
	"time"

	"github.com/BurntSushi/toml"
)

//go:embed */case.toml */*.patch
var embedded embed.FS

// Case is one entry of the catalog.
type Case struct {
	Name     string `toml:"-"`        // the folder's name
	Title    string `toml:"title"`    // one line, in the words of the patch
	About    string `toml:"about"`    // what was slow and why
	Workload string `toml:"workload"` // name[,key=value...] of guest/workload
	// WorkloadWithout is what the kernel without the patch runs, when it lacks what
	// Workload needs; "" for the same.
	WorkloadWithout string `toml:"workload_without"`

	Metric    string   `toml:"metric"`    // metric[.stat] that is compared
	Threshold string   `toml:"threshold"` // expression of internal/measure; a run above it is "slow"
	Limit     string   `toml:"limit"`     // a run that takes longer is stopped and is no number
	Kconfigs  []string `toml:"kconfigs"`  // fragments of kconfigs/ it needs
	Kernels   string   `toml:"kernels"`   // range on which the case makes sense, "" for all
	Report    Report   `toml:"report"`
	Patches   []Patch  `toml:"patch"`
	Also      []Also   `toml:"also"`
}

// Also is a further comparison of a case. It is printed and has no part in the
// verdict.
type Also struct {
	Title           string   `toml:"title"`
	Workload        string   `toml:"workload"`
	WorkloadWithout string   `toml:"workload_without"` // "" for the same
	WithoutKernel   string   `toml:"without_kernel"`   // "with": both sides run on the kernel with the patch
	Metrics         []string `toml:"metrics"`          // metric[.stat], a row each
	Runs            int      `toml:"runs"`             // runs a side; 6 when it is left out
	Within          float64  `toml:"within"`           // the ratio that must not be exceeded either way; 0 for none
}

// defaultRuns a side give the ratio's interval 95 % of confidence.
const defaultRuns = 6

// Report is what the list was told.
type Report struct {
	Author    string    `toml:"author" json:"author"`
	Date      time.Time `toml:"date" json:"date"`
	MessageID string    `toml:"message_id" json:"message_id"`
	Commit    string    `toml:"commit" json:"commit,omitempty"` // mainline commit of the fix, "" when never merged
	// Subjects are those of the patches on the list, without tags; Fixes is the
	// commit that they say they mend. A thread is recognised by either.
	Subjects []string `toml:"subjects" json:"subjects,omitempty"`
	Fixes    string   `toml:"fixes" json:"fixes,omitempty"`
	// ScriptMetric is what the report's own script is measured by, "" for the
	// time that it prints.
	ScriptMetric string `toml:"script_metric" json:"-"`
	Kernel       string `toml:"kernel" json:"kernel,omitempty"`
	What         string `toml:"what" json:"what"`       // the reporter's workload
	Without      string `toml:"without" json:"without"` // duration, "31.522s"
	With         string `toml:"with" json:"with"`
	// Approximate is set when the reporter gave no exact figures.
	Approximate bool `toml:"approximate" json:"approximate,omitempty"`
}

// Patch is the fix for a range of kernels.
type Patch struct {
	File    string `toml:"file"`
	Kernels string `toml:"kernels"` // range this variant was written for
	Data    []byte `toml:"-"`
}

// LimitDuration returns Limit, which Load has checked.
func (c *Case) LimitDuration() time.Duration {
	d, _ := time.ParseDuration(c.Limit)
	return d
}

// Ordered returns the patches with those whose range holds version first, each
// group in the order of the file.
func (c *Case) Ordered(version string) []Patch {
	out := slices.Clone(c.Patches)
	sort.SliceStable(out, func(i, j int) bool {
		return InRange(version, out[i].Kernels) && !InRange(version, out[j].Kernels)
	})
	return out
}

// Embedded returns the catalog this kbisect was built with, sorted by name.
func Embedded() ([]*Case, error) { return Load(embedded) }

// Load reads a catalog: every folder of fsys that has a case.toml. An unknown
// key, a missing field or a patch that is not there is an error that names the
// file.
func Load(fsys fs.FS) ([]*Case, error) {
	names, err := fs.Glob(fsys, "*/case.toml")
	if err != nil {
		return nil, fmt.Errorf("read catalog: %w", err)
	}
	if len(names) == 0 {
		return nil, errors.New("read catalog: no folder with a case.toml in it")
	}
	sort.Strings(names)
	var out []*Case
	for _, name := range names {
		c, err := loadCase(fsys, name)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		out = append(out, c)
	}
	return out, nil
}

func loadCase(fsys fs.FS, name string) (*Case, error) {
	data, err := fs.ReadFile(fsys, name)
	if err != nil {
		return nil, err
	}
	c := &Case{Name: path.Dir(name)}
	md, err := toml.Decode(string(data), c)
	if err != nil {
		return nil, err
	}
	if extra := md.Undecoded(); len(extra) > 0 {
		return nil, fmt.Errorf("unknown key %q", extra[0].String())
	}
	c.About = strings.TrimSpace(c.About)
	if err := c.check(); err != nil {
		return nil, err
	}
	for i := range c.Patches {
		p := &c.Patches[i]
		if p.Data, err = fs.ReadFile(fsys, path.Join(c.Name, p.File)); err != nil {
			return nil, err
		}
	}
	return c, nil
}

// check refuses a case that could not be run, so that a typing mistake is found
// when the catalog is read and not after a build.
func (c *Case) check() error {
	for field, v := range map[string]string{
		"title": c.Title, "workload": c.Workload, "metric": c.Metric, "threshold": c.Threshold,
	} {
		if v == "" {
			return fmt.Errorf("%s is missing", field)
		}
	}
	for field, v := range map[string]string{
		"limit": c.Limit, "report.without": c.Report.Without, "report.with": c.Report.With,
	} {
		if d, err := time.ParseDuration(v); err != nil || d <= 0 {
			return fmt.Errorf("%s: %q is not a duration like \"120s\"", field, v)
		}
	}
	for i := range c.Also {
		if err := c.Also[i].check(); err != nil {
			return fmt.Errorf("[[also]] %d: %w", i+1, err)
		}
	}
	if len(c.Patches) == 0 {
		return errors.New("no [[patch]]")
	}
	ranges := []string{c.Kernels}
	for _, p := range c.Patches {
		if p.File == "" || strings.Contains(p.File, "/") {
			return fmt.Errorf("patch file %q: want a name in the case's own folder", p.File)
		}
		ranges = append(ranges, p.Kernels)
	}
	for _, r := range ranges {
		if _, err := parseRange(r); err != nil {
			return err
		}
	}
	return nil
}

// check refuses an incomplete entry and fills in the number of runs.
func (a *Also) check() error {
	if a.Runs == 0 {
		a.Runs = defaultRuns
	}
	switch {
	case a.Title == "":
		return errors.New("title is missing")
	case a.Workload == "":
		return errors.New("workload is missing")
	case len(a.Metrics) == 0 || slices.Contains(a.Metrics, ""):
		return errors.New("metrics is missing or has an empty one")
	case a.WithoutKernel != "" && a.WithoutKernel != "with":
		return fmt.Errorf("without_kernel: %q is not \"with\"", a.WithoutKernel)
	case a.Runs < 1 || a.Runs > 80:
		return fmt.Errorf("runs: %d is not 1 to 80", a.Runs)
	case a.Within != 0 && !(a.Within > 1):
		return fmt.Errorf("within: %g is not a factor above 1", a.Within)
	}
	return nil
}

// bound is one comparison of a range.
type bound struct {
	op string
	v  [3]int
}

// parseRange reads space-separated bounds, ">=5.10 <5.18".
func parseRange(s string) ([]bound, error) {
	var out []bound
	for _, f := range strings.Fields(s) {
		i := strings.IndexFunc(f, func(r rune) bool { return r >= '0' && r <= '9' })
		if i <= 0 || !slices.Contains([]string{">=", "<=", ">", "<", "="}, f[:i]) {
			return nil, fmt.Errorf("kernel range %q: want bounds like %q", s, ">=5.10 <5.18")
		}
		v, ok := parseVersion(f[i:])
		if !ok {
			return nil, fmt.Errorf("kernel range %q: %q is not a version", s, f[i:])
		}
		out = append(out, bound{f[:i], v})
	}
	return out, nil
}

// parseVersion reads "6.1.192", "6.1" or "7.2.0-rc3" (the suffix is ignored).
func parseVersion(s string) (v [3]int, ok bool) {
	s, _, _ = strings.Cut(s, "-")
	for i, part := range strings.SplitN(s, ".", 3) {
		n, err := strconv.Atoi(part)
		if err != nil || n < 0 {
			return v, false
		}
		v[i] = n
	}
	return v, true
}

// InRange reports whether a kernel version lies in a range such as
// ">=5.10 <5.18". The empty range holds every version; a version or range that
// cannot be read holds nothing.
func InRange(version, kernels string) bool {
	bounds, err := parseRange(kernels)
	if err != nil {
		return false
	}
	if len(bounds) == 0 {
		return true
	}
	v, ok := parseVersion(version)
	if !ok {
		return false
	}
	for _, b := range bounds {
		c := slices.Compare(v[:], b.v[:])
		if !map[string]bool{">=": c >= 0, "<=": c <= 0, ">": c > 0, "<": c < 0, "=": c == 0}[b.op] {
			return false
		}
	}
	return true
}
