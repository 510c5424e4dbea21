package app

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/kbisect/kbisect/guest/proto"
	"github.com/kbisect/kbisect/internal/bisect"
	"github.com/kbisect/kbisect/internal/gitx"
	"github.com/kbisect/kbisect/internal/measure"
	"github.com/kbisect/kbisect/internal/report"
	"github.com/kbisect/kbisect/internal/series"
	"github.com/kbisect/kbisect/internal/source"
	"github.com/kbisect/kbisect/patches"
)

// RunOptions is what `kbisect run` was asked. It is stored with the run, so that
// a resume asks the same.
type RunOptions struct {
	Cases        []string       `json:"cases,omitempty"`
	Kernel       string         `json:"kernel,omitempty"`
	Base         string         `json:"base,omitempty"`
	Patch        string         `json:"patch,omitempty"` // a file instead of a case
	Workload     string         `json:"workload,omitempty"`
	Metric       string         `json:"metric,omitempty"`
	Threshold    string         `json:"threshold,omitempty"`
	MinRatio     float64        `json:"min_ratio,omitempty"`
	Limit        time.Duration  `json:"limit,omitempty"`
	TimeoutIsBad bool           `json:"timeout_is_bad,omitempty"`
	MaxRuns      int            `json:"max_runs,omitempty"`
	Budget       time.Duration  `json:"budget,omitempty"`
	Quick        bool           `json:"quick,omitempty"`
	MeasureNoop  bool           `json:"measure_noop,omitempty"`
	Catalog      string         `json:"catalog,omitempty"`
	Config       ConfigOptions  `json:"config"`
	Machine      MachineOptions `json:"machine"`
	DryRun       bool           `json:"-"`
}

// defaultLimit bounds a workload that no case gives a limit.
const defaultLimit = 5 * time.Minute

// question is one comparison to make: a patch, and a workload to show it.
type question struct {
	name, title string
	reported    *report.Reported
	workload    string // canonical, defaults left out
	metric      measure.Metric
	threshold   *measure.Threshold
	limit       time.Duration
	rules       bisect.Rules
	kernels     string // range of versions on which it makes sense
	variants    []series.Patch

	pair series.Pair
	why  string // why it cannot be asked of this kernel, "" if it can
}

// Plan is what a run will do, decided before anything is built.
type Plan struct {
	env       *Env
	opts      RunOptions
	src       *source.Source
	base      string // commit
	questions []*question
	warnings  []string
}

// NewPlan checks everything that can be checked before a build: names,
// expressions, patches. It opens the kernel source, which may have to be
// fetched first. Errors of the user's are *UsageError.
func NewPlan(ctx context.Context, env *Env, o RunOptions) (*Plan, error) {
	if err := absolute(&o); err != nil {
		return nil, err
	}
	if err := o.check(); err != nil {
		return nil, err
	}
	questions, err := ask(o)
	if err != nil {
		return nil, err
	}
	if _, _, err := o.Config.resolve(); err != nil {
		return nil, err
	}
	if err := env.ready(ctx, o.Machine); err != nil {
		return nil, err
	}
	p := &Plan{env: env, opts: o, questions: questions}
	if p.src, err = env.openSource(ctx, o.Kernel); err != nil {
		return nil, err
	}
	if p.base, err = p.src.Resolve(ctx, o.Base); err != nil {
		return nil, unknownBase(err, o)
	}
	return p, p.pairUp(ctx)
}

// absolute makes paths independent of the folder kbisect was started in, since
// a resume may come from another.
func absolute(o *RunOptions) error {
	for _, p := range []*string{&o.Patch, &o.Catalog, &o.Config.File} {
		if *p == "" {
			continue
		}
		abs, err := filepath.Abs(*p)
		if err != nil {
			return err
		}
		*p = abs
	}
	if _, err := os.Stat(o.Kernel); err == nil && o.Kernel != "" {
		abs, err := filepath.Abs(o.Kernel)
		if err != nil {
			return err
		}
		o.Kernel = abs
	}
	return nil
}

// DefaultRunOptions is what the command line starts from.
func DefaultRunOptions() RunOptions {
	return RunOptions{MaxRuns: bisect.MaxRuns, MinRatio: 1.1, Machine: DefaultMachine()}
}

// check refuses numbers that mean nothing.
func (o *RunOptions) check() error {
	switch {
	case len(o.Cases) == 0 && o.Patch == "" && o.Workload != "":
		return Usagef("add a case (kbisect list cases), or --patch FILE", "which patch is workload %q to show?", o.Workload)
	case len(o.Cases) == 0 && o.Patch == "":
		return Usagef("kbisect list cases shows them; kbisect run --help", "which case?")
	case len(o.Cases) > 0 && o.Patch != "":
		return Usagef("", "--patch and case %q exclude each other", o.Cases[0])
	case o.Patch != "" && o.Workload == "":
		return Usagef("add for example -w netdev-delete; kbisect list workloads", "--patch needs a workload")
	case o.Limit < 0 || o.Budget < 0:
		return Usagef("", "a limit or budget cannot be negative")
	case o.MaxRuns < 1 || o.MaxRuns > bisect.MaxRuns:
		return Usagef("", "--max-runs %d: want 1 to %d", o.MaxRuns, bisect.MaxRuns)
	case !(o.MinRatio >= 1 && o.MinRatio < 1e6):
		return Usagef("", "--min-ratio %g: want a factor such as 1.1", o.MinRatio)
	}
	return o.Machine.check()
}

func unknownBase(err error, o RunOptions) error {
	if errors.As(err, new(*gitx.UnknownRevisionError)) || strings.HasPrefix(o.Base, "-") {
		return Usagef("git log in that tree shows its commits", "--base %q: no such revision in the kernel source", o.Base)
	}
	return err
}

// ask turns the options into questions.
func ask(o RunOptions) ([]*question, error) {
	if o.Patch != "" {
		q, err := askPatch(o)
		if err != nil {
			return nil, err
		}
		return []*question{q}, nil
	}
	catalog, err := LoadCatalog(o.Catalog)
	if err != nil {
		return nil, err
	}
	var out []*question
	for _, name := range o.Cases {
		i := slices.IndexFunc(catalog, func(c *patches.Case) bool { return c.Name == name })
		if i < 0 {
			var names []string
			for _, c := range catalog {
				names = append(names, c.Name)
			}
			return nil, Usagef("kbisect list cases", "unknown case %q%s", name, Nearest(name, names))
		}
		if slices.ContainsFunc(out, func(q *question) bool { return q.name == name }) {
			return nil, Usagef("", "case %q is named twice", name)
		}
		q, err := askCase(catalog[i], o)
		if err != nil {
			return nil, err
		}
		out = append(out, q)
	}
	return out, nil
}

// askCase makes the question of a catalog entry, with what the options replace.
func askCase(c *patches.Case, o RunOptions) (*question, error) {
	q := &question{name: c.Name, title: c.Title, reported: reported(c.Report), kernels: c.Kernels, limit: c.LimitDuration()}
	for _, p := range c.Patches {
		parsed, err := series.Parse(c.Name+"/"+p.File, p.Data)
		if err != nil {
			return nil, err
		}
		q.variants = append(q.variants, parsed)
	}
	own := o.Workload == ""
	spec := orDefault(o.Workload, c.Workload)
	// A workload of another name has other metrics: then nothing is known of it.
	metric, threshold := c.Metric, c.Threshold
	if !own && workloadName(spec) != workloadName(c.Workload) {
		metric, threshold = "", ""
	}
	if err := q.define(spec, orDefault(o.Metric, metric), orDefault(o.Threshold, threshold), o); err != nil {
		return nil, err
	}
	q.rules.LookFor = worse(q.metric.Better) // a fix is expected to help
	return q, nil
}

// askPatch makes the question of a user's own patch.
func askPatch(o RunOptions) (*question, error) {
	p, err := series.Read(o.Patch)
	if err != nil {
		return nil, Usagef("", "--patch: %v", err)
	}
	q := &question{name: strings.TrimSuffix(filepath.Base(o.Patch), ".patch"), title: p.Subject, variants: []series.Patch{p}}
	return q, q.define(o.Workload, o.Metric, o.Threshold, o)
}

// define fills in what is run and compared.
func (q *question) define(spec, metric, threshold string, o RunOptions) (err error) {
	var defs []measure.Def
	if q.workload, defs, err = parseWorkload(spec); err != nil {
		return err
	}
	if threshold != "" {
		t, err := measure.ParseThreshold(threshold, defs)
		if err != nil {
			return badExpr("--threshold", err)
		}
		t.TimeoutIsBad = o.TimeoutIsBad
		q.threshold = &t
		metric = orDefault(metric, t.Name)
	}
	if metric == "" {
		metric = measure.Names(defs)[0]
	}
	if q.metric, err = measure.ParseMetric(metric, defs); err != nil {
		return badExpr("--metric", err)
	}
	q.metric.TimeoutIsBad = o.TimeoutIsBad
	if q.limit = orDefault(o.Limit, q.limit); q.limit == 0 {
		q.limit = defaultLimit
	}
	q.rules = bisect.Rules{MinRatio: o.MinRatio, MaxRuns: o.MaxRuns, ConfirmedLater: o.Quick, Tests: exactTests}
	// A case's threshold was made for its own size and for TCG: it is shown, but
	// numbers decide. One that the user gives is what they call slow.
	if o.Threshold != "" {
		q.rules.Threshold = bisect.Higher
		if q.threshold.Op == measure.Less || q.threshold.Op == measure.LessEqual {
			q.rules.Threshold = bisect.Lower
		}
	}
	return nil
}

func badExpr(flag string, err error) error {
	var syntax *measure.SyntaxError
	if errors.As(err, &syntax) {
		return Usagef("", "%s: %v\n%s", flag, err, syntax.Caret())
	}
	return Usagef("", "%s: %v", flag, err)
}

// worse is where numbers lie on the side without a fix.
func worse(b proto.Better) bisect.Direction {
	if b == proto.Higher {
		return bisect.Lower
	}
	return bisect.Higher
}

// pairUp decides for each question which commit has the patch and which lacks
// it. A kernel that a case is not for, or that no variant fits, makes that case
// untestable and leaves the others alone, unless it is the only one.
func (p *Plan) pairUp(ctx context.Context) error {
	for _, q := range p.questions {
		if !patches.InRange(p.src.Version, q.kernels) {
			q.why = fmt.Sprintf("for kernels %s, this is %s", q.kernels, p.src.Version)
		} else {
			pair, err := series.WithWithout(ctx, p.src.Repo(), p.base, q.variants)
			var none *series.PatchError
			if errors.As(err, &none) {
				q.why = none.Error()
			} else if err != nil {
				return err
			}
			q.pair = pair
			for _, w := range pair.Warnings {
				p.warnings = append(p.warnings, q.name+": "+w)
			}
		}
		if q.why != "" && len(p.questions) == 1 {
			return Usagef("kbisect run --kernel SRC with another kernel, or --catalog DIR with a variant of the patch",
				"%s on %s: %s", q.name, p.src.Name, q.why)
		}
	}
	return nil
}

// commits lists the kernels to build, each once, in an order that keeps builds
// incremental: all that are the base itself first.
func (p *Plan) commits() []string {
	out := []string{}
	add := func(id string) {
		if id != "" && !slices.Contains(out, id) {
			out = append(out, id)
		}
	}
	for _, q := range p.questions {
		if q.why == "" {
			add(p.base)
		}
	}
	for _, q := range p.questions {
		add(q.pair.With)
		add(q.pair.Without)
	}
	return out
}

// Write prints the plan, in lines that read well before progress.
func (p *Plan) Write(w io.Writer) error {
	var b strings.Builder
	fmt.Fprintf(&b, "kernel %s, version %s, commit %.12s\n", p.src.Name, p.src.Version, p.base)
	for _, q := range p.questions {
		if q.why != "" {
			fmt.Fprintf(&b, "%s: untestable: %s\n", q.name, q.why)
			continue
		}
		fmt.Fprintf(&b, "%s: %s; compare %s; at most %s a run\n", q.name, q.workload, q.metric.Name, q.limit)
		fmt.Fprintf(&b, "%s: with = %s, without = %s\n", q.name, q.describe(true), q.describe(false))
	}
	fmt.Fprintf(&b, "%d kernels to build or find in the cache, %s\n", len(p.commits()), p.cost())
	_, err := io.WriteString(w, b.String())
	return err
}

// describe names a side's kernel in words.
func (q *question) describe(with bool) string {
	name := filepath.Base(q.pair.Patch.Name)
	switch {
	case q.pair.How == series.Reverted && !with:
		return "the tree minus " + name
	case q.pair.How == series.Applied && with:
		return "the tree plus " + name
	}
	return "the tree as it is"
}

// LoadCatalog reads the catalog in dir, or the built-in one for "".
func LoadCatalog(dir string) ([]*patches.Case, error) {
	if dir == "" {
		return patches.Embedded()
	}
	if st, err := os.Stat(dir); err != nil || !st.IsDir() {
		return nil, Usagef("", "--catalog %q: not a folder", dir)
	}
	cases, err := patches.Load(os.DirFS(dir))
	if err != nil {
		return nil, Usagef("see the built-in catalog's files for examples", "--catalog %q: %v", dir, err)
	}
	return cases, nil
}

// reported converts the catalog's durations to the result's numbers.
func reported(r patches.Report) *report.Reported {
	with, err1 := time.ParseDuration(r.With)
	without, err2 := time.ParseDuration(r.Without)
	if err1 != nil || err2 != nil {
		return nil
	}
	where := "message-id " + r.MessageID
	if r.Commit != "" {
		where = "commit " + r.Commit + ", " + where
	}
	return &report.Reported{Author: r.Author, Where: where, Kernel: r.Kernel, What: r.What,
		With: report.Num(with), Without: report.Num(without), Unit: proto.Nanoseconds}
}

// orDefault returns v, or other if v is the zero value.
func orDefault[T comparable](v, other T) T {
	var zero T
	if v == zero {
		return other
	}
	return v
}
