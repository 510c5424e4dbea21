package app

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/kbisect/kbisect/guest/workload"
	"github.com/kbisect/kbisect/kconfigs"
	"github.com/kbisect/kbisect/patches"
)

// Listing is what `kbisect list --json` prints; a list that was not asked for is null.
type Listing struct {
	Cases     []ListedCase     `json:"cases"`
	Workloads []ListedWorkload `json:"workloads"`
	Kconfigs  []ListedKconfig  `json:"kconfigs"`
}

// ListedCase is a case of the catalog.
type ListedCase struct {
	Name      string         `json:"name"`
	Title     string         `json:"title"`
	About     string         `json:"about"`
	Workload  string         `json:"workload"`
	Metric    string         `json:"metric"`
	Threshold string         `json:"threshold"`
	Limit     string         `json:"limit"`
	Kernels   string         `json:"kernels"`
	Kconfigs  []string       `json:"kconfigs"`
	Report    patches.Report `json:"report"`
	Patches   []string       `json:"patches"`

	WorkloadWithout string       `json:"workload_without"` // what the kernel without the patch runs, "" for the same
	Also            []ListedAlso `json:"also"`
}

// ListedAlso is a further comparison of a case.
type ListedAlso struct {
	Title    string   `json:"title"`
	Workload string   `json:"workload"`
	Metrics  []string `json:"metrics"`
}

// ListedWorkload is a workload with what can be set and what it reports.
type ListedWorkload struct {
	Name    string         `json:"name"`
	About   string         `json:"about"`
	Params  []ListedParam  `json:"params"`
	Metrics []ListedMetric `json:"metrics"`
}

// ListedParam is a parameter of a workload.
type ListedParam struct {
	Name    string `json:"name"`
	Default string `json:"default"`
	Allowed string `json:"allowed"`
	Unit    string `json:"unit"`
	About   string `json:"about"`
}

// ListedMetric is a number that a workload reports.
type ListedMetric struct {
	Name   string `json:"name"` // with ".STAT" for a distribution
	Unit   string `json:"unit"`
	Better string `json:"better"`
	About  string `json:"about"`
}

// ListedKconfig is a set of kernel options.
type ListedKconfig struct {
	Name  string `json:"name"`
	About string `json:"about"`
	Built string `json:"built"` // into which kernels: one of the three below
}

// The kernels that a set of options is built into.
const (
	builtAlways = "always"  // into every kernel
	builtOwn    = "config"  // over a --config of the user's
	builtAsked  = "kconfig" // where --kconfig names it
)

// List prints cases, workloads and kernel option sets, or one of the three.
func List(out io.Writer, what, catalog string, asJSON bool) error {
	var l Listing
	kinds := []string{"cases", "workloads", "kconfigs"}
	switch what {
	case "", "cases", "workloads", "kconfigs":
	default:
		return Usagef("kbisect list "+strings.Join(kinds, "|"), "nothing to list is called %q%s", what, Nearest(what, kinds))
	}
	if what == "" || what == "cases" {
		cases, err := LoadCatalog(catalog)
		if err != nil {
			return err
		}
		l.Cases = listCases(cases)
	}
	if what == "" || what == "workloads" {
		l.Workloads = listWorkloads()
	}
	if what == "" || what == "kconfigs" {
		var err error
		if l.Kconfigs, err = listKconfigs(); err != nil {
			return err
		}
	}
	if asJSON {
		return writeJSON(out, l)
	}
	return l.write(out)
}

func listCases(cases []*patches.Case) []ListedCase {
	var out []ListedCase
	for _, c := range cases {
		lc := ListedCase{Name: c.Name, Title: c.Title, About: c.About, Workload: c.Workload, Metric: c.Metric,
			Threshold: c.Threshold, Limit: c.Limit, Kernels: c.Kernels, Kconfigs: c.Kconfigs, Report: c.Report,
			WorkloadWithout: c.WorkloadWithout, Also: []ListedAlso{}}
		for _, a := range c.Also {
			lc.Also = append(lc.Also, ListedAlso{a.Title, a.Workload, a.Metrics})
		}
		for _, p := range c.Patches {
			lc.Patches = append(lc.Patches, p.File+" ("+p.Kernels+")")
		}
		out = append(out, lc)
	}
	return out
}

func listWorkloads() []ListedWorkload {
	var out []ListedWorkload
	for _, w := range workload.All() {
		lw := ListedWorkload{Name: w.Name(), About: w.Doc()}
		for _, p := range w.Params() {
			lw.Params = append(lw.Params, ListedParam{p.Name, p.Default, p.Allowed(), p.Unit, p.Doc})
		}
		for _, m := range w.Metrics() {
			name := m.Name
			if m.Dist {
				name += ".STAT"
			}
			lw.Metrics = append(lw.Metrics, ListedMetric{name, string(m.Unit), string(m.Better), m.Doc})
		}
		out = append(out, lw)
	}
	return out
}

func listKconfigs() ([]ListedKconfig, error) {
	var out []ListedKconfig
	for _, name := range kconfigs.List() {
		about, err := kconfigs.Summary(name)
		if err != nil {
			return nil, err
		}
		built := builtAlways
		switch {
		case name == kconfigs.Own:
			built = builtOwn
		case slices.Contains(kconfigs.Optional(), name):
			built = builtAsked
		}
		out = append(out, ListedKconfig{name, about, built})
	}
	return out, nil
}

// reportLine is what a report said, in a line.
func reportLine(r patches.Report) string {
	text := "reported"
	if r.Author != "" {
		text += " by " + r.Author
	}
	about := ""
	if r.Approximate {
		about = "about "
	}
	text += fmt.Sprintf(": %s%s without, %s%s with", about, r.Without, about, r.With)
	if r.What != "" {
		text += " (" + r.What + ")"
	}
	return text
}

// write prints the listing for people.
func (l Listing) write(out io.Writer) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	if l.Cases != nil {
		fmt.Fprintln(w, "cases (kbisect run CASE)")
		for _, c := range l.Cases {
			fmt.Fprintf(w, "  %s\t%s\n", c.Name, c.Title)
			fmt.Fprintf(w, "  \t%s; compares %s\n", c.Workload, c.Metric)
			if c.WorkloadWithout != "" {
				fmt.Fprintf(w, "  \twithout the patch: %s\n", c.WorkloadWithout)
			}
			for _, a := range c.Also {
				fmt.Fprintf(w, "  \talso: %s\n", a.Title)
			}
			fmt.Fprintf(w, "  \t%s\n", reportLine(c.Report))
		}
	}
	if l.Workloads != nil {
		fmt.Fprintln(w, "workloads (-w NAME,key=value,...)")
		for _, lw := range l.Workloads {
			fmt.Fprintf(w, "  %s\t%s\n", lw.Name, lw.About)
			for _, p := range lw.Params {
				fmt.Fprintf(w, "    %s=%s\t%s; %s\n", p.Name, p.Default, p.About, strings.TrimSpace(p.Allowed+" "+p.Unit))
			}
			for _, m := range lw.Metrics {
				fmt.Fprintf(w, "    > %s\t%s [%s, %s is better]\n", m.Name, m.About, m.Unit, m.Better)
			}
		}
		fmt.Fprintln(w, "  STAT is p50, p90, p99, max, min, mean or n")
	}
	if l.Kconfigs != nil {
		l.writeKconfigs(w)
	}
	return w.Flush()
}

// writeKconfigs prints the sets of options, those of every kernel first.
func (l Listing) writeKconfigs(w io.Writer) {
	for _, part := range []struct{ built, title string }{
		{builtAlways, "kconfigs (in every kernel)"},
		{builtOwn, "kconfigs (over a --config FILE of yours)"},
		{builtAsked, "kconfigs (--kconfig NAME adds one; also --kconfig FILE)"},
	} {
		fmt.Fprintln(w, part.title)
		for _, k := range l.Kconfigs {
			if k.Built == part.built {
				fmt.Fprintf(w, "  %s\t%s\n", k.Name, k.About)
			}
		}
	}
}
