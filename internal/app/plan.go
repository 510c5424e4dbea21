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

	"github.com/kbisect/kbisect/internal/bisect"
	"github.com/kbisect/kbisect/internal/gitx"
	"github.com/kbisect/kbisect/internal/series"
	"github.com/kbisect/kbisect/internal/source"
	"github.com/kbisect/kbisect/patches"
)

// RunOptions is what `kbisect run` was asked. It is stored with the run, so that
// a resume asks the same.
type RunOptions struct {
	Cases        []string      `json:"cases,omitempty"`
	All          bool          `json:"all,omitempty"` // every case of the catalog
	Sweep        string        `json:"sweep,omitempty"`
	Kernel       string        `json:"kernel,omitempty"`
	Base         string        `json:"base,omitempty"`
	Patch        string        `json:"patch,omitempty"`   // a file instead of a case
	With         string        `json:"with,omitempty"`    // such a file, put in for "with"
	Without      string        `json:"without,omitempty"` // such a file, taken out for "without"
	Workload     string        `json:"workload,omitempty"`
	Metric       string        `json:"metric,omitempty"`
	Threshold    string        `json:"threshold,omitempty"`
	MinRatio     float64       `json:"min_ratio,omitempty"`
	Limit        time.Duration `json:"limit,omitempty"`
	TimeoutIsBad bool          `json:"timeout_is_bad,omitempty"`
	MaxRuns      int           `json:"max_runs,omitempty"`
	Budget       time.Duration `json:"budget,omitempty"`
	Quick        bool          `json:"quick,omitempty"`
	MeasureNoop  bool          `json:"measure_noop,omitempty"`
	Catalog      string        `json:"catalog,omitempty"`

	// A search: the ends of a range, or a series, and how to look.
	Good     string   `json:"good,omitempty"`
	Bad      string   `json:"bad,omitempty"`
	Paths    []string `json:"paths,omitempty"`  // only commits that change one of these
	Series   []string `json:"series,omitempty"` // a mailbox, a folder, patch files or A..B
	Each     bool     `json:"each,omitempty"`   // every patch of the series alone instead of a search
	LookFor  string   `json:"look_for,omitempty"`
	Strategy string   `json:"strategy,omitempty"`
	Fixup    []string `json:"fixup,omitempty"`   // patches for every kernel that they fit
	Suspect  []string `json:"suspect,omitempty"` // paths that are three times as likely
	Chain    []string `json:"chain,omitempty"`   // commits that a series became, when it is resumed

	Script ScriptOptions `json:"script,omitzero"`

	Config  ConfigOptions  `json:"config"`
	Machine MachineOptions `json:"machine"`
	DryRun  bool           `json:"-"`
}

// Strategies of a search.
const (
	StrategyBayes = "bayes"
	StrategySPRT  = "sprt"
)

// searches reports whether a search is asked for.
func (o *RunOptions) searches() bool {
	return o.Good != "" || o.Bad != "" || len(o.Series) > 0 && !o.Each
}

// Plan is what a run will do, decided before anything is built.
type Plan struct {
	env       *Env
	opts      RunOptions
	src       *source.Source
	base      string // commit
	questions []*question
	span      *span          // what is searched, nil for cases
	fixups    []series.Patch // for every kernel that they fit
	warnings  []string
}

// NewPlan checks everything that can be checked before a build: names,
// expressions, patches. It opens the kernel source, which may have to be
// fetched first. Errors of the user's are *UsageError.
func NewPlan(ctx context.Context, env *Env, o RunOptions) (*Plan, error) {
	if err := absolute(&o); err != nil {
		return nil, err
	}
	o.Machine.configure(&o.Config)
	if err := o.Script.set(&o); err != nil {
		return nil, err
	}
	if err := o.check(); err != nil {
		return nil, err
	}
	questions, err := ask(o)
	if err != nil {
		return nil, err
	}
	if err := checkSweep(o, questions); err != nil {
		return nil, err
	}
	if _, _, err := o.Config.resolve(); err != nil {
		return nil, err
	}
	if _, err := o.Script.extra(); err != nil {
		return nil, err
	}
	p := &Plan{env: env, opts: o, questions: questions}
	if err := p.readFixups(); err != nil {
		return nil, err
	}
	if err := env.ready(ctx, o.Machine); err != nil {
		return nil, err
	}
	if p.src, err = env.openSource(ctx, o.Kernel); err != nil {
		return nil, err
	}
	if p.base, err = p.src.Resolve(ctx, o.Base); err != nil {
		return nil, unknownBase(err, o)
	}
	if o.searches() {
		return p, p.openSpan(ctx)
	}
	if o.Each {
		if err := p.askEach(ctx); err != nil {
			return nil, err
		}
	}
	return p, p.pairUp(ctx)
}

// absolute makes paths independent of the folder kbisect was started in, since
// a resume may come from another.
func absolute(o *RunOptions) error {
	o.Fixup, o.Series, o.Script.Files = slices.Clone(o.Fixup), slices.Clone(o.Series), slices.Clone(o.Script.Files)
	o.Script.Tools = slices.Clone(o.Script.Tools)
	all := []*string{&o.Machine.Image, &o.Machine.SSHKey, &o.Patch, &o.With, &o.Without, &o.Catalog, &o.Config.File}
	for i := range o.Fixup {
		all = append(all, &o.Fixup[i])
	}
	maybe := []*string{&o.Kernel} // or another name of what is meant
	for i := range o.Series {
		maybe = append(maybe, &o.Series[i])
	}
	for _, p := range maybe {
		if _, err := os.Stat(*p); err == nil {
			all = append(all, p)
		}
	}
	for i := range o.Script.Tools {
		if strings.Contains(o.Script.Tools[i], "/") { // others are looked for where programs are
			all = append(all, &o.Script.Tools[i])
		}
	}
	for i, f := range o.Script.Files {
		from, to := splitFile(f)
		abs, err := filepath.Abs(from)
		if err != nil {
			return err
		}
		o.Script.Files[i] = abs + ":" + to
	}
	for _, p := range all {
		if *p == "" {
			continue
		}
		abs, err := filepath.Abs(*p)
		if err != nil {
			return err
		}
		*p = abs
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
	case o.All && (len(o.Cases) > 0 || o.Patch+o.With+o.Without != "" || o.Workload != "" || o.Metric != "" || o.Threshold != ""):
		return Usagef("", "--all is every case of the catalog with its own workload and metric: it goes with no CASE, --patch, --with, --without, --workload, --metric or --threshold")
	case o.Sweep != "" && (o.Threshold != "" || o.Quick || o.Budget != 0):
		return Usagef("", "--sweep decides nothing: it goes with no --threshold, --quick or --budget")
	case o.searches() || o.Each:
		if err := o.checkSearch(); err != nil {
			return err
		}
	case len(o.Paths)+len(o.Suspect) > 0 || o.LookFor != "" || o.Strategy != "":
		return Usagef("kbisect run --help", "-- PATH, --suspect, --look-for and --strategy belong to a search: --good and --bad, or --series")
	default:
		if err := o.checkComparison(); err != nil {
			return err
		}
	}
	switch {
	case o.Limit < 0 || o.Budget < 0:
		return Usagef("", "a limit or budget cannot be negative")
	case o.MaxRuns < 1 || o.MaxRuns > bisect.MaxRuns:
		return Usagef("", "--max-runs %d: want 1 to %d", o.MaxRuns, bisect.MaxRuns)
	case !(o.MinRatio >= 1 && o.MinRatio < 1e6):
		return Usagef("", "--min-ratio %g: want a factor such as 1.1", o.MinRatio)
	}
	return o.Machine.check()
}

// ownPatch returns the patch of the user's, and the flag that it came by.
func (o *RunOptions) ownPatch() (file, flag string) {
	switch {
	case o.With != "":
		return o.With, "--with"
	case o.Without != "":
		return o.Without, "--without"
	}
	return o.Patch, "--patch"
}

// checkComparison refuses a comparison that cannot be made.
func (o *RunOptions) checkComparison() error {
	file, flag := o.ownPatch()
	one := o.Patch + o.With + o.Without
	switch {
	case one != file:
		return Usagef("--patch puts a patch in or takes it out, whichever the tree allows", "--patch, --with and --without exclude each other")
	case !o.All && len(o.Cases) == 0 && file == "" && o.Workload != "":
		return Usagef("add a case (kbisect list cases), --patch FILE, or --good REV --bad REV", "which patch is workload %q to show?", o.Workload)
	case !o.All && len(o.Cases) == 0 && file == "":
		return Usagef("kbisect list cases shows them; --all runs them all; kbisect run --help", "which case?")
	case len(o.Cases) > 0 && file != "":
		return Usagef("", "%s and case %q exclude each other", flag, o.Cases[0])
	case file != "" && o.Workload == "":
		return Usagef("add for example -w netdev-delete (kbisect list workloads), or --script FILE", "%s needs a workload", flag)
	}
	return nil
}

// checkSearch refuses a search that cannot be made.
func (o *RunOptions) checkSearch() error {
	series := len(o.Series) > 0
	switch {
	case o.All || len(o.Cases) > 0 || o.Patch+o.With+o.Without != "" || o.Sweep != "" || o.MeasureNoop:
		return Usagef("", "--good, --bad and --series search a history: they go with no CASE, --all, --patch, --with, --without, --sweep or --measure-noop")
	case series && (o.Good != "" || o.Bad != ""):
		return Usagef("", "--series and --good or --bad exclude each other: a series begins at --base")
	case o.Catalog != "":
		return Usagef("", "--catalog has cases: it goes with no --good, --bad or --series")
	case o.Each && !series:
		return Usagef("", "--each needs a --series")
	case !series && (o.Good == "" || o.Bad == ""):
		return Usagef("", "a range needs both --good and --bad")
	case !series && o.Base != "":
		return Usagef("", "--base is the ground of a --series or a patch; a range has --good and --bad")
	case series && len(o.Paths) > 0:
		return Usagef("", "-- PATH picks commits of a range, not patches of a --series")
	case o.Workload == "":
		return Usagef("add for example -w nexthop-delete,count=200; kbisect list workloads", "a search needs a workload")
	case !slices.Contains([]string{"", "higher", "lower"}, o.LookFor):
		return Usagef("", "--look-for %q: want higher or lower", o.LookFor)
	case !slices.Contains([]string{"", StrategyBayes, StrategySPRT}, o.Strategy):
		return Usagef("", "--strategy %q: want %s or %s", o.Strategy, StrategyBayes, StrategySPRT)
	}
	for _, path := range slices.Concat(o.Paths, o.Suspect) {
		if path == "" || strings.HasPrefix(path, "-") || !filepath.IsLocal(path) {
			return Usagef("", "%q is no path of the kernel tree", path)
		}
	}
	return nil
}

func unknownBase(err error, o RunOptions) error {
	if errors.As(err, new(*gitx.UnknownRevisionError)) || strings.HasPrefix(o.Base, "-") {
		return Usagef("git log in that tree shows its commits", "--base %q: no such revision in the kernel source", o.Base)
	}
	return err
}

// pairUp decides for each question which commit has the patch and which lacks
// it. A kernel that a case is not for, or that no variant fits, makes that case
// untestable and leaves the others alone, unless it is the only one.
func (p *Plan) pairUp(ctx context.Context) error {
	base, used, err := p.withFixups(ctx, p.base)
	if err != nil {
		return err
	}
	for i, f := range p.fixups {
		if !used[i] {
			p.warnings = append(p.warnings, fmt.Sprintf("--fixup %s does not apply to %.12s, or is there", f.Name, p.base))
		}
	}
	for _, q := range p.questions {
		if !patches.InRange(p.src.Version, q.kernels) {
			q.why = fmt.Sprintf("for kernels %s, this is %s", q.kernels, p.src.Version)
		} else {
			pair, err := q.pairOn(ctx, p.src.Repo(), base)
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
		if q.why != "" && len(p.questions) == 1 && !p.opts.All {
			return Usagef("kbisect run --kernel SRC with another kernel, or --catalog DIR with a variant of the patch",
				"%s on %s: %s", q.name, p.src.Name, q.why)
		}
	}
	return nil
}

// pairOn makes the two kernels of the question from a base.
func (q *question) pairOn(ctx context.Context, repo gitx.Repo, base string) (series.Pair, error) {
	if q.how == "" {
		return series.WithWithout(ctx, repo, base, q.variants)
	}
	pair := series.Pair{With: base, Without: base, Patch: q.variants[0], How: q.how}
	other, err := series.Apply(ctx, repo, base, pair.Patch, q.how == series.Reverted)
	if q.how == series.Reverted {
		pair.Without = other
	} else {
		pair.With = other
	}
	return pair, err
}

// readFixups reads the patches of --fixup.
func (p *Plan) readFixups() error {
	for _, f := range p.opts.Fixup {
		patch, err := series.Read(f)
		if err != nil {
			return Usagef("", "--fixup: %v", err)
		}
		p.fixups = append(p.fixups, patch)
	}
	return nil
}

// withFixups returns a commit with the fixups that apply to it, and which those are.
func (p *Plan) withFixups(ctx context.Context, commit string) (string, []bool, error) {
	used := make([]bool, len(p.fixups))
	for i, f := range p.fixups {
		next, err := series.Apply(ctx, p.src.Repo(), commit, f, false)
		if errors.As(err, new(*series.PatchError)) {
			p.env.UI.Debug("%.12s: %s does not apply, or is there", commit, f.Name)
			continue
		}
		if err != nil {
			return "", nil, err
		}
		commit, used[i] = next, true
	}
	return commit, used, nil
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
		if q.pair.With == p.base || q.pair.Without == p.base {
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
	for _, f := range p.fixups {
		fmt.Fprintf(&b, "fixup %s goes into every kernel that it fits\n", f.Name)
	}
	if p.span != nil {
		p.writeSpan(&b)
		for _, w := range p.warnings {
			fmt.Fprintf(&b, "warning: %s\n", w)
		}
		fmt.Fprintf(&b, "%s\n", p.searchCost())
		_, err := io.WriteString(w, b.String())
		return err
	}
	for _, q := range p.questions {
		if q.why != "" {
			fmt.Fprintf(&b, "%s: untestable: %s\n", q.name, q.why)
			continue
		}
		p.writeWorkloads(&b, q)
		fmt.Fprintf(&b, "%s: with = %s, without = %s\n", q.name, q.describe(true), q.describe(false))
	}
	for _, w := range p.warnings {
		fmt.Fprintf(&b, "warning: %s\n", w)
	}
	fmt.Fprintf(&b, "%d kernels to build or find in the cache, %s\n", len(p.commits()), p.cost())
	_, err := io.WriteString(w, b.String())
	return err
}

// writeWorkloads says what a question runs.
func (p *Plan) writeWorkloads(b *strings.Builder, q *question) {
	if p.opts.Sweep != "" {
		fmt.Fprintf(b, "%s: %s with %s; %s at each value\n", q.name, q.workload, p.opts.Sweep, q.metric.Name)
	} else {
		fmt.Fprintf(b, "%s: %s; compare %s; at most %s a run\n", q.name, q.shownWorkload(), q.metric.Name, q.limit)
	}
	if q.without != q.workload {
		fmt.Fprintf(b, "%s: without the patch %s instead\n", q.name, q.without)
	}
	for _, a := range q.also {
		if p.opts.Sweep == "" {
			fmt.Fprintf(b, "%s: then %s, %d runs a side\n", q.name, a.workload, a.runs)
		}
	}
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

// orDefault returns v, or other if v is the zero value.
func orDefault[T comparable](v, other T) T {
	var zero T
	if v == zero {
		return other
	}
	return v
}
