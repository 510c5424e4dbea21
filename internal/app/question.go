package app

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/kbisect/kbisect/guest/proto"
	"github.com/kbisect/kbisect/internal/bisect"
	"github.com/kbisect/kbisect/internal/measure"
	"github.com/kbisect/kbisect/internal/report"
	"github.com/kbisect/kbisect/internal/series"
	"github.com/kbisect/kbisect/kconfigs"
	"github.com/kbisect/kbisect/patches"
)

// defaultLimit bounds a workload that no case gives a limit.
const defaultLimit = 5 * time.Minute

// question is one comparison to make: a patch, and a workload to show it.
type question struct {
	name, title string
	reported    *report.Reported
	workload    string // as it is asked of the agent
	without     string // of the kernel without the patch, which may lack what workload needs
	metric      measure.Metric
	threshold   *measure.Threshold
	limit       time.Duration
	rules       bisect.Rules
	kernels     string // range of versions on which it makes sense
	variants    []series.Patch
	how         series.How // in which direction the patch has to fit, "" for either

	pair series.Pair
	why  string // why it cannot be asked of this kernel, "" if it can

	shown string // the workload in a result, "" for workload itself

	also []*supplement
}

// on returns the workload of a side.
func (q *question) on(side string) string {
	if side == sideName(bisect.Bad) {
		return q.without
	}
	return q.workload
}

// shownWorkload is the workload in a plan and a result.
func (q *question) shownWorkload() string { return orDefault(q.shown, q.workload) }

// ask turns the options into questions.
func ask(o RunOptions) ([]*question, error) {
	if o.searches() {
		return askSearch(o)
	}
	if o.Each {
		return nil, checkEach(o) // asked when the series has been read
	}
	if file, _ := o.ownPatch(); file != "" {
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
	if o.All {
		for _, c := range catalog {
			o.Cases = append(o.Cases, c.Name)
		}
	}
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
// Mistakes in the entry are errors that name it.
func askCase(c *patches.Case, o RunOptions) (*question, error) {
	q := &question{name: c.Name, title: c.Title, reported: reported(c.Report), kernels: c.Kernels, limit: c.LimitDuration()}
	for _, p := range c.Patches {
		parsed, err := series.Parse(c.Name+"/"+p.File, p.Data)
		if err != nil {
			return nil, Usagef("", "case %s: %v", c.Name, err)
		}
		q.variants = append(q.variants, parsed)
	}
	for _, name := range c.Kconfigs {
		if _, err := kconfigs.Get(name); err != nil {
			return nil, Usagef("", "case %s: kconfigs: %v", c.Name, err)
		}
	}
	spec, without := c.Workload, orDefault(c.WorkloadWithout, c.Workload)
	metric, threshold := c.Metric, c.Threshold
	switch {
	case o.Workload == "":
	case workloadName(o.Workload) == workloadName(spec): // another size of the same
		spec, without = override(spec, o.Workload), override(without, o.Workload)
	default: // it has other metrics, and nothing was reported of it
		spec, without = o.Workload, o.Workload
		metric, threshold, q.reported = "", "", nil
	}
	if o.Metric != "" && o.Metric != c.Metric {
		q.reported = nil
	}
	if err := q.define(spec, orDefault(o.Metric, metric), orDefault(o.Threshold, threshold), o); err != nil {
		if o.Metric+o.Threshold+o.Workload != "" {
			return nil, err // the user's own mistake
		}
		return nil, inCase(c.Name, err)
	}
	q.rules.LookFor = worse(q.metric.Better) // a fix is expected to help
	if err := q.setWithout(without); err != nil {
		return nil, inCase(c.Name, err)
	}
	if o.Workload != "" {
		return q, nil
	}
	for i, a := range c.Also {
		s, err := supplementOf(q, a, i+1)
		if err != nil {
			return nil, inCase(fmt.Sprintf("%s: [[also]] %d", c.Name, i+1), err)
		}
		q.also = append(q.also, s)
	}
	return q, nil
}

// inCase says whose mistake an error is.
func inCase(name string, err error) error {
	var usage *UsageError
	if errors.As(err, &usage) {
		return Usagef(usage.Hint, "case %s: %s", name, usage.Text)
	}
	return fmt.Errorf("case %s: %w", name, err)
}

// override returns a workload's specification with the parameters of another one
// of the same name in place of its own.
func override(spec, with string) string {
	parts := strings.Split(spec, ",")
	for _, p := range strings.Split(with, ",")[1:] {
		key, _, _ := strings.Cut(p, "=")
		parts = slices.DeleteFunc(parts, func(old string) bool { return strings.HasPrefix(old, key+"=") })
		parts = append(parts, p)
	}
	return strings.Join(parts, ",")
}

// setWithout sets what the kernel without the patch runs, which must have the
// metric as well.
func (q *question) setWithout(spec string) error {
	q.without = spec
	if spec == q.workload {
		return nil
	}
	_, defs, err := parseWorkload(spec)
	if err != nil {
		return err
	}
	if _, err := measure.ParseMetric(q.metric.Name, defs); err != nil {
		return badExpr("metric of "+spec, err)
	}
	return nil
}

// askPatch makes the question of a user's own patch.
func askPatch(o RunOptions) (*question, error) {
	file, flag := o.ownPatch()
	p, err := series.Read(file)
	if err != nil {
		return nil, Usagef("kbisect repro reads damaged mails, and repairs what the tree allows", "%s: %v", flag, err)
	}
	how := map[string]series.How{"--with": series.Applied, "--without": series.Reverted}[flag]
	q := &question{name: patchName(file), title: p.Subject, variants: []series.Patch{p}, how: how}
	return q, q.define(o.Workload, o.Metric, o.Threshold, o)
}

// patchName names a question by its patch's file: short, for it is a column.
func patchName(file string) string {
	const most = 32
	name := strings.TrimSuffix(filepath.Base(file), ".patch")
	if len(name) > most {
		name = strings.TrimRight(strings.ToValidUTF8(name[:most], ""), "-_. ")
	}
	return name
}

// askSearch makes the one question of a search: its ends are measured as a duel
// that a confirmation follows.
func askSearch(o RunOptions) ([]*question, error) {
	q := &question{name: workloadName(o.Workload)}
	if err := q.define(o.Workload, o.Metric, o.Threshold, o); err != nil {
		return nil, err
	}
	if q.rules.Rates { // a run with an event is bad: every run has the same length
		if err := q.define(o.Workload, o.Metric, q.metric.Name+">0", o); err != nil {
			return nil, err
		}
		q.rules.Rates, q.rules.Threshold = false, bisect.Higher
	}
	q.rules.ConfirmedLater = true
	q.rules.LookFor = worse(q.metric.Better)
	switch o.LookFor {
	case "higher":
		q.rules.LookFor = bisect.Higher
	case "lower":
		q.rules.LookFor = bisect.Lower
	}
	return []*question{q}, nil
}

// checkEach finds mistakes in the options before the series is read.
func checkEach(o RunOptions) error {
	return new(question).define(o.Workload, o.Metric, o.Threshold, o)
}

// askEach makes a question of each patch of the series, alone on the base.
func (p *Plan) askEach(ctx context.Context) error {
	list, base, err := p.readSeries(ctx)
	if err != nil {
		return err
	}
	p.base = base
	for i, patch := range list {
		q := &question{name: fmt.Sprintf("patch-%d", i+1), title: patch.Subject, variants: []series.Patch{patch}}
		if err := q.define(p.opts.Workload, p.opts.Metric, p.opts.Threshold, p.opts); err != nil {
			return err
		}
		p.questions = append(p.questions, q)
	}
	return nil
}

// define fills in what is run and compared.
func (q *question) define(spec, metric, threshold string, o RunOptions) (err error) {
	var defs []measure.Def
	if q.workload, defs, err = parseWorkload(spec); err != nil {
		return err
	}
	if o.Script.Text != "" {
		q.shown = o.Script.title()
		defs = o.Script.metrics(defs, metric, threshold)
	}
	q.without = q.workload
	if threshold != "" {
		t, err := measure.ParseThreshold(threshold, defs)
		if err != nil {
			return badExpr(flagOr(o.Threshold, "threshold"), err)
		}
		t.TimeoutIsBad = o.TimeoutIsBad
		q.threshold = &t
		metric = orDefault(metric, t.Name)
	}
	if metric == "" {
		metric = measure.Names(defs)[0]
	}
	if q.metric, err = measure.ParseMetric(metric, defs); err != nil {
		return badExpr(flagOr(o.Metric, "metric"), err)
	}
	q.metric.TimeoutIsBad = o.TimeoutIsBad
	if q.limit = orDefault(o.Limit, q.limit); q.limit == 0 {
		q.limit = defaultLimit
	}
	q.rules = bisect.Rules{MinRatio: o.MinRatio, MaxRuns: o.MaxRuns, ConfirmedLater: o.Quick, Tests: exactTests}
	if q.metric.Exposure != "" && o.Threshold == "" {
		q.rules.Rates = true
		return nil
	}
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

// flagOr names an expression: the flag that gave it, or the case's key.
func flagOr(given, key string) string {
	if given != "" {
		return "--" + key
	}
	return key
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

// reported converts the catalog's durations to the result's numbers.
func reported(r patches.Report) *report.Reported {
	with, err1 := time.ParseDuration(r.With)
	without, err2 := time.ParseDuration(r.Without)
	if err1 != nil || err2 != nil {
		return nil
	}
	var parts []string
	if r.Commit != "" {
		parts = append(parts, "commit "+r.Commit)
	}
	if r.MessageID != "" {
		parts = append(parts, "message-id "+r.MessageID)
	}
	where := strings.Join(parts, ", ")
	return &report.Reported{Author: r.Author, Where: where, Kernel: r.Kernel, What: r.What,
		With: report.Num(with), Without: report.Num(without), Unit: proto.Nanoseconds, Approximate: r.Approximate}
}
