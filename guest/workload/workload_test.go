package workload

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/kbisect/kbisect/guest/proto"
)

func TestParse(t *testing.T) {
	for spec, want := range map[string]string{
		"netdev-delete":                           "netdev-delete,count=100,type=dummy,ipv6=true,up=true,forwarding=true",
		"netdev-delete,type=veth,count=007":       "netdev-delete,count=7,type=veth,ipv6=true,up=true,forwarding=true",
		"nexthop-delete,flush=del":                "nexthop-delete,count=1000,flush=del,groups=true",
		"nexthop-delete,groups=false,count=16384": "nexthop-delete,count=16384,flush=down,groups=false",
	} {
		w, p, err := Parse(spec)
		if err != nil {
			t.Errorf("%s: %v", spec, err)
			continue
		}
		got := Spec(w, p)
		if got != want {
			t.Errorf("%s: got %s, want %s", spec, got, want)
		}
		if w2, p2, err := Parse(got); err != nil || Spec(w2, p2) != got {
			t.Errorf("%s does not parse to itself: %v", got, err)
		}
	}
}

func TestParseErrorsNameTheThing(t *testing.T) {
	for spec, want := range map[string][]string{
		"":                                  {"no name", "netdev-delete"},
		"netdev-delte":                      {`"netdev-delte"`, `did you mean "netdev-delete"`},
		"zzzzzzzz":                          {"there are ", "nexthop-delete"},
		"netdev-delete,cuont=1":             {`"cuont"`, `did you mean "count"`},
		"netdev-delete,count":               {`"count"`, "key=value"},
		"netdev-delete,":                    {`""`, "key=value"},
		"netdev-delete,count=x":             {"count", `"x"`, "from 1 to 4000"},
		"netdev-delete,count=0":             {"count", "from 1 to 4000"},
		"netdev-delete,count=99999":         {"count", "from 1 to 4000"},
		"netdev-delete,type=bridge":         {"type", "one of dummy, veth, vlan"},
		"netdev-delete,up=yes":              {"up", "true, false"},
		"netdev-delete,count=1,count=2":     {"count", "twice"},
		"nexthop-delete,q=1":                {`"q"`, "there are count, flush, groups"},
		"nexthop-delete,flush=":             {"flush", "one of down, del"},
		"nexthop-delete,count=100000000000": {"count", "from 1"},
	} {
		_, _, err := Parse(spec)
		if !errors.Is(err, ErrSpec) {
			t.Errorf("%q: got %v, want an ErrSpec", spec, err)
			continue
		}
		for _, text := range want {
			if !strings.Contains(err.Error(), text) {
				t.Errorf("%q: %q does not say %q", spec, err, text)
			}
		}
	}
}

// TestRegistry checks what each workload says about itself.
var goodName = regexp.MustCompile(`^[a-z][a-z0-9]*(-[a-z0-9]+)*$`)

// TestRegistry says what is wrong with a workload before anything boots.
func TestRegistry(t *testing.T) {
	var names []string
	for _, w := range All() {
		t.Run(w.Name(), func(t *testing.T) {
			if !goodName.MatchString(w.Name()) {
				t.Errorf("Name() is %q: want lower case, words joined by hyphens", w.Name())
			}
			if w.Doc() == "" {
				t.Error("Doc() is empty")
			}
			params := checkParams(t, w)
			checkMetrics(t, w, params)
		})
		names = append(names, w.Name())
	}
	if !slices.IsSorted(names) || len(slices.Compact(slices.Clone(names))) != len(names) {
		t.Errorf("All() in registry.go must list each workload once, by name: %q", names)
	}
}

func checkParams(t *testing.T, w Workload) map[string]Param {
	t.Helper()
	seen := map[string]Param{}
	for _, p := range w.Params() {
		if !goodName.MatchString(p.Name) {
			t.Errorf("parameter %q: want lower case, words joined by hyphens", p.Name)
		}
		if _, twice := seen[p.Name]; twice {
			t.Errorf("parameter %s is there twice", p.Name)
		}
		if p.Doc == "" {
			t.Errorf("parameter %s has no Doc", p.Name)
		}
		if (p.Max == 0) == (len(p.Choices) == 0) {
			t.Errorf("parameter %s: set Max (and Min) or Choices", p.Name)
		} else if v, err := p.canonical(p.Default); err != nil || v != p.Default {
			t.Errorf("parameter %s: its default %q does not fit: %v", p.Name, p.Default, err)
		}
		seen[p.Name] = p
	}
	return seen
}

func checkMetrics(t *testing.T, w Workload, params map[string]Param) {
	t.Helper()
	if len(w.Metrics()) == 0 {
		t.Error("Metrics() is empty")
	}
	seen := map[string]bool{"": true}
	for _, m := range w.Metrics() {
		r := proto.Record{V: proto.Version, Kind: proto.KindMetric, Metric: &proto.Metric{Name: m.Name, Unit: m.Unit, Better: m.Better}}
		if err := r.Validate(); err != nil {
			t.Errorf("metric %q: %v", m.Name, err)
		}
		if m.Doc == "" {
			t.Errorf("metric %s has no Doc", m.Name)
		}
		if seen[m.Name] {
			t.Errorf("metric %s is there twice", m.Name)
		}
		seen[m.Name] = true
		if key, value, when := strings.Cut(m.When, "="); m.When != "" {
			p, ok := params[key]
			if _, err := p.canonical(value); !ok || !when || err != nil {
				t.Errorf("metric %s: When is %q: want a parameter and one of its values", m.Name, m.When)
			}
		}
	}
	for _, m := range w.Metrics() {
		if !seen[m.Exposure] || !seen[m.Among] {
			t.Errorf("metric %s: Exposure %q and Among %q must be metrics of this workload", m.Name, m.Exposure, m.Among)
		}
	}
}

// notes is a Recorder that keeps what it is told.
type notes struct {
	mu       sync.Mutex
	metrics  map[string]float64
	observed map[string]int
	checks   []string
	defined  []Metric
	output   bytes.Buffer
}

func (n *notes) Define(m Metric)       { n.defined = append(n.defined, m) }
func (n *notes) Output() io.Writer     { return &n.output }
func (n *notes) Phase(string)          {}
func (n *notes) Progress(int64, int64) {}
func (n *notes) Metric(name string, v float64) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.metrics[name] = v
}
func (n *notes) Observe(name string, _ int64) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.observed[name]++
}
func (n *notes) Check(name string, want, got int64) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.checks = append(n.checks, name)
	if want != got {
		return &CheckError{name, want, got}
	}
	return nil
}

// setUp sets a specification up on this machine's kernel, or skips where that
// lacks what it needs.
func setUp(t *testing.T, spec string) (Workload, Params, Instance, *notes) {
	t.Helper()
	w, p, err := Parse(spec)
	if err != nil {
		t.Fatal(err)
	}
	n := &notes{metrics: map[string]float64{}, observed: map[string]int{}}
	begin := time.Now()
	inst, err := w.Setup(t.Context(), Env{Params: p, Rec: n, Now: func() int64 { return int64(time.Since(begin)) }})
	var u *UnsupportedError
	if errors.As(err, &u) {
		t.Skipf("this kernel: %v", err)
	}
	if err != nil {
		t.Fatal(err)
	}
	return w, p, inst, n
}

// TestRealWorkloads runs each workload on this machine's kernel, in namespaces
// of their own.
func TestRealWorkloads(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root to make network namespaces")
	}
	for spec, ops := range map[string]int64{
		"netdev-delete,count=5": 5, "netdev-delete,count=5,type=veth": 5, "netdev-delete,count=5,type=vlan": 5,
		"netdev-delete,count=3,ipv6=false,up=false": 3,
		"nexthop-delete,count=20":                   20, "nexthop-delete,count=20,flush=del": 20, "nexthop-delete,count=20,groups=false": 20,
	} {
		t.Run(spec, func(t *testing.T) {
			w, p, inst, n := setUp(t, spec)
			got, err := inst.Run(t.Context())
			if terr := inst.Teardown(); terr != nil {
				t.Error(terr)
			}
			var u *UnsupportedError
			if errors.As(err, &u) {
				t.Skipf("this kernel: %v", err)
			}
			if err != nil || got != ops {
				t.Fatalf("%d operations, %v", got, err)
			}
			for _, m := range MetricsFor(w, p) {
				if _, set := n.metrics[m.Name]; set == m.Dist {
					t.Errorf("metric %s: reported %v", m.Name, set)
				}
				if m.Dist && n.observed[m.Name] != int(ops) {
					t.Errorf("dist %s: %d operations", m.Name, n.observed[m.Name])
				}
			}
			if len(n.checks) == 0 {
				t.Error("it checked nothing")
			}
		})
	}
}

func TestUnsupportedNamesTheOption(t *testing.T) {
	if os.Geteuid() == 0 {
		t.Skip("root may make namespaces")
	}
	w, p, err := Parse("nexthop-delete")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.Setup(context.Background(), Env{Params: p}); err == nil {
		t.Error("a namespace was made without root")
	}
}

func FuzzParse(f *testing.F) {
	for _, s := range []string{"netdev-delete,count=3", "nexthop-delete,flush=del,", "x", ",,=,"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, spec string) {
		w, p, err := Parse(spec)
		if err != nil {
			if !errors.Is(err, ErrSpec) {
				t.Fatalf("%q: %v", spec, err)
			}
			return
		}
		if again := Spec(w, p); fmt.Sprint(Parse(again)) != fmt.Sprint(w, p, nil) {
			t.Fatalf("%q: %q parses to something else", spec, again)
		}
	})
}
