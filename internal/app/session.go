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
	"github.com/kbisect/kbisect/internal/host"
	"github.com/kbisect/kbisect/internal/kbuild"
	"github.com/kbisect/kbisect/internal/measure"
	"github.com/kbisect/kbisect/internal/report"
	"github.com/kbisect/kbisect/internal/store"
	"github.com/kbisect/kbisect/internal/ui"
)

// session carries out a plan: one run of kbisect, journalled step by step.
type session struct {
	*Plan
	store   *store.Store
	journal *store.Journal
	id, dir string // of the journal
	lab     *lab
	kernels map[string]*kbuild.Kernel // by kernelKey
	broken  map[string]error          // by kernelKey: why it could not be built
	begun   time.Time

	offline []store.Build       // not nil: nothing is built, run or written; these were
	replay  []store.Outcome     // finished runs of before an interruption, still to be used
	trials  int                 // journalled so far, numbers the folders
	env0    *report.Environment // of the first measured run; all others must equal it
	costs   report.Costs
	built   map[string]bool // revisions that an earlier sitting of this run built
	before  time.Duration   // spent in earlier sittings, but for what they spent beside builds and runs
	notices []string        // what the console said, for the result's warnings
}

// pinned is what a run is resumed from: the question, and the commit that a
// moving name meant when it was asked.
type pinned struct {
	Options RunOptions `json:"options"`
	Base    string     `json:"base"`
}

// pin returns the plan's options with names in the place of what they mean now.
func (p *Plan) pin() pinned {
	o := p.opts
	if s := p.span; s != nil {
		if s.mode == report.ModeRange {
			o.Good, o.Bad = s.good.ID, s.bad.ID
		} else {
			for _, r := range s.revisions {
				o.Chain = append(o.Chain, r.ID)
			}
		}
	}
	return pinned{o, p.base}
}

// mode is what the plan asks.
func (p *Plan) mode() report.Mode {
	switch {
	case p.span != nil:
		return p.span.mode
	case p.opts.Each:
		return report.ModeSeries
	}
	return report.ModeCase
}

// Run measures what the options ask for. The result is nil when there is none:
// an error of the user's, the host's or ctx's. A result that is not a difference
// comes with a *VerdictError.
func (p *Plan) Run(ctx context.Context) (*report.Result, error) {
	st, err := store.Open(ctx, p.env.State)
	if err != nil {
		return nil, err
	}
	defer st.Close()
	j, err := st.NewRun(ctx, store.Spec{Mode: string(p.mode()), Name: p.questions[0].name, Args: p.pin()})
	if err != nil {
		return nil, err
	}
	return p.session(st, j, nil).run(ctx)
}

func (p *Plan) session(st *store.Store, j *store.Journal, replay []store.Outcome) *session {
	s := &session{Plan: p, store: st, journal: j, replay: replay, trials: len(replay), begun: time.Now(),
		kernels: map[string]*kbuild.Kernel{}, broken: map[string]error{}}
	if j != nil {
		s.id, s.dir = j.ID(), j.Dir()
	}
	return s
}

// Kinds of events in the journal.
const (
	eventEnvironment = "environment" // of the first measured run
	eventAnswer      = "answer"      // a finished comparison
	eventSweep       = "sweep"       // a finished sweep
)

// run is the whole run, and leaves the journal in the state that it ended in.
func (s *session) run(ctx context.Context) (res *report.Result, err error) {
	defer s.journal.Close()
	defer s.release()
	res, err = s.measureAll(ctx)
	switch {
	case ctx.Err() != nil:
		return nil, withHint(ctx.Err(), "go on with: kbisect resume %s", s.journal.ID())
	case err != nil:
		// Not Failed for good: what was measured stays, and the host may be mended.
		s.env.UI.Info("run %s stopped, its folder is %s", s.journal.ID(), s.journal.Dir())
		return nil, withHint(err, "when that is mended, go on with: kbisect resume %s", s.journal.ID())
	}
	path := s.journal.Path("result.json")
	if err := report.WriteFile(path, *res); err != nil {
		return res, err
	}
	if err := s.journal.Finish(ctx, store.Done, string(res.Verdict), path); err != nil {
		return res, err
	}
	return res, ending(res)
}

// ending is the error that a result's verdicts stand for; see VerdictError.
func ending(res *report.Result) error {
	of := map[report.Verdict]Ending{
		report.Inconclusive: Inconclusive, report.Untestable: Untestable,
		report.NoDifference: NoDifference, report.NoOp: NoDifference, report.EndsAlike: NoDifference,
	}
	if res.Question != nil {
		if e := of[res.Verdict]; e != 0 {
			return &VerdictError{e}
		}
		return nil
	}
	var worst Ending
	for _, c := range res.Comparisons {
		if e := of[c.Verdict]; e != 0 && (worst == 0 || e < worst) {
			worst = e
		}
	}
	if worst == 0 {
		return nil
	}
	return &VerdictError{worst}
}

func (s *session) release() {
	for _, k := range s.kernels {
		k.Release()
	}
}

// measureAll builds everything first, so that nothing is built between runs.
func (s *session) measureAll(ctx context.Context) (*report.Result, error) {
	if err := s.openLab(ctx); err != nil {
		return nil, err
	}
	if s.span != nil {
		return s.hunt(ctx)
	}
	if err := s.buildAll(ctx); err != nil {
		return nil, err
	}
	res := &report.Result{ID: s.journal.ID(), Mode: s.mode(), Created: s.begun.UTC(), Version: Version(), RunDir: s.journal.Dir()}
	for _, q := range s.questions {
		if err := s.ask(ctx, q, res); err != nil {
			return nil, err
		}
	}
	if s.opts.Sweep == "" {
		res.Verdict = report.Overall(res.Comparisons)
	}
	res.Warnings = append(slices.Clone(s.warnings), s.notices...)
	s.costs.Seconds = s.spent().Seconds()
	res.Costs = s.costs
	res.Environment = s.environment()
	return res, nil
}

// ask answers one question, or sweeps it, into the result.
func (s *session) ask(ctx context.Context, q *question, res *report.Result) error {
	if s.opts.Sweep != "" {
		sweep, err := s.sweep(ctx, q)
		if err != nil {
			return err
		}
		res.Sweeps, res.Verdict = append(res.Sweeps, sweep), report.Swept
		return s.journal.Event(ctx, eventSweep, sweep)
	}
	c, err := s.answer(ctx, q)
	if err != nil {
		return err
	}
	res.Comparisons = append(res.Comparisons, c)
	return s.journal.Event(ctx, eventAnswer, c)
}

// environment is that of the runs; without one, what the builds tell.
func (s *session) environment() report.Environment {
	var e report.Environment
	if s.env0 != nil {
		e = *s.env0
	}
	for _, k := range s.kernels {
		e.Compiler = k.Compiler
	}
	f := host.Identify()
	e.Host = report.Host{CPU: f.CPU, CPUs: f.CPUs, MemoryMiB: f.MemoryMiB, Kernel: f.Kernel, Distribution: f.Distribution}
	return e
}

// buildAll builds every kernel of the plan, or finds it in the cache. One that
// does not build makes its question untestable.
func (s *session) buildAll(ctx context.Context) error {
	for _, commit := range s.commits() {
		if !s.needed(commit) {
			continue
		}
		label := s.label(commit)
		_, err := s.kernel(ctx, target{commit: commit, revision: label, label: label})
		if err != nil && !blamesKernel(err) {
			return err
		}
	}
	return nil
}

// target is a kernel to build.
type target struct {
	commit   string
	revision string // for the journal
	label    string // for people
	layout   int
}

// kernelKey names a kernel of a session.
func kernelKey(commit string, layout int) string {
	if layout == 0 {
		return commit
	}
	return fmt.Sprintf("%s layout %d", commit, layout)
}

// kernel builds a kernel, or finds it in the cache, once a session, and journals
// what came of it. An error that blamesKernel is the kernel's own.
func (s *session) kernel(ctx context.Context, t target) (*kbuild.Kernel, error) {
	key := kernelKey(t.commit, t.layout)
	if k := s.kernels[key]; k != nil {
		return k, nil
	}
	if err := s.broken[key]; err != nil {
		return nil, err
	}
	if s.offline != nil {
		return s.recorded(kernelKey(t.revision, t.layout))
	}
	k, err := s.env.build(ctx, s.src, t, s.opts.Config)
	row := store.Build{Revision: kernelKey(t.revision, t.layout)}
	switch {
	case err == nil:
		s.kernels[key] = k
		row.Key, row.Identity, row.Seconds, row.Cached = k.Key, k.Identity, k.Seconds, k.Cached
		if !s.built[row.Revision] { // that one is counted already
			s.countBuild(k)
		}
		for _, how := range k.Rescue {
			s.warn("%s was built with %s", t.label, how)
		}
		if err := s.keepConfig(k); err != nil {
			return nil, err
		}
	case errors.As(err, new(*kbuild.ConfigError)) && len(s.opts.Config.Extra) > 0 && s.span == nil:
		return nil, Usagef("add what the symbol depends on to the fragment, or take the line out", "%s: %v", t.label, err)
	case blamesKernel(err):
		s.broken[key] = err
		row.Error = err.Error()
		s.env.UI.Warn("%s: %v", t.label, err)
	default:
		return nil, err
	}
	if jerr := s.journal.Build(ctx, row); jerr != nil {
		return nil, jerr
	}
	return k, err
}

// needed is false for a base that no question compares, which happens when a
// patch with reduced context changed both sides; and for untestable questions.
func (s *session) needed(commit string) bool {
	return slices.ContainsFunc(s.questions, func(q *question) bool {
		return q.why == "" && (q.pair.With == commit || q.pair.Without == commit)
	})
}

// label names a kernel for progress: its version, and what was done to the tree.
func (s *session) label(commit string) string {
	name := "linux " + s.src.Version
	if commit == s.base {
		return name
	}
	for _, q := range s.questions {
		switch commit {
		case q.pair.With:
			return name + " with " + q.name
		case q.pair.Without:
			return name + " without " + q.name
		}
	}
	return name
}

// spent is how long the run has taken, with its earlier sittings.
func (s *session) spent() time.Duration { return s.before + time.Since(s.begun) }

// countEarlier counts what earlier sittings of a resumed run built and ran.
func (s *session) countEarlier(builds []store.Build, outcomes []store.Outcome) {
	s.built = map[string]bool{}
	for _, b := range builds {
		if b.Error != "" || s.built[b.Revision] {
			continue
		}
		s.built[b.Revision] = true
		s.countBuild(&kbuild.Kernel{Info: kbuild.Info{Seconds: b.Seconds}, Cached: b.Cached})
		if !b.Cached {
			s.before += time.Duration(b.Seconds * float64(time.Second))
		}
	}
	for _, o := range outcomes {
		s.before += o.Total
	}
}

func (s *session) countBuild(k *kbuild.Kernel) {
	if k.Cached {
		s.costs.BuildsCached++
		return
	}
	s.costs.Builds++
	s.costs.BuildSeconds += k.Seconds
}

// keepConfig copies a kernel's final .config into the run's folder: the cache
// may forget the kernel, the run must not.
func (s *session) keepConfig(k *kbuild.Kernel) error {
	data, err := os.ReadFile(k.Config)
	if err != nil {
		return err
	}
	dir := s.journal.Path("kernels")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, configName(k.Identity)), data, 0o600)
}

// configName is the file in a run's folder that has a kernel's .config.
func configName(identity string) string { return identity[:16] + ".config" }

// answer decides one question.
func (s *session) answer(ctx context.Context, q *question) (report.Comparison, error) {
	with, without := sidesOf(q)
	if q.why != "" {
		with.revision, without.revision = "", ""
		return q.unmeasured(s.src.Version, with, without, report.Untestable, q.why), nil
	}
	for _, x := range []*side{with, without} {
		if err := s.broken[x.commit]; err != nil {
			return q.unmeasured(s.src.Version, with, without, report.Untestable, x.revision+": "+err.Error()), nil
		}
	}
	s.identify(with, without)
	if with.identity == without.identity && !s.opts.MeasureNoop {
		return q.unmeasured(s.src.Version, with, without, report.NoOp, "both build to the same image"), nil
	}
	d, err := s.duel(ctx, q, with, without)
	if err != nil {
		return report.Comparison{}, err
	}
	c := q.compare(s.src.Version, with, without, *d)
	if c.Verdict == report.Untestable {
		return c, nil
	}
	c.Also, err = s.supplements(ctx, q)
	return c, err
}

// identify says which kernels the sides run, all of which were built.
func (s *session) identify(sides ...*side) {
	for _, x := range sides {
		x.identity = s.kernels[x.key()].Identity
	}
}

// duel runs with and without in turn until the rules decide or the budget ends.
func (s *session) duel(ctx context.Context, q *question, with, without *side) (*bisect.Decision, error) {
	d, err := bisect.NewDuel(q.rules)
	if err != nil {
		return nil, err
	}
	doing := "measure"
	if s.offline != nil {
		doing = "judge again"
	}
	show := s.env.UI.Stage(q.name + ": " + doing)
	for {
		next, decision := d.Next()
		if decision != nil {
			show.Note(string(decision.Gate))
			show.End(nil)
			return decision, nil
		}
		if s.opts.Budget > 0 && time.Since(s.begun) > s.opts.Budget {
			d.Stop(fmt.Sprintf("the budget of %s is spent", s.opts.Budget))
			continue
		}
		x := with
		if next == bisect.Bad {
			x = without
		}
		o, err := s.trial(ctx, q, x)
		if err != nil {
			show.End(err)
			return nil, err
		}
		judged := q.judge(o)
		x.add(q, o, judged)
		if err := d.Add(next, judged); err != nil {
			return nil, err
		}
		showStanding(show, q, d, x.name, o)
	}
}

// showStanding says after each run what it gave and how many there will be.
func showStanding(show *ui.Stage, q *question, d *bisect.Duel, name string, o measure.Outcome) {
	at := d.Standing()
	n := at.Good.Measured + at.Bad.Measured
	next := orDefault(q.rules.MaxRuns, bisect.MaxRuns)
	for _, look := range []int{40, 20, 10, 6, 3} {
		if n < 2*look && look < next && (look > 3 || q.rules.ConfirmedLater) {
			next = look
		}
	}
	text := o.Reason
	if v, err := q.metric.Of(o); err == nil {
		text = q.metric.Name + " " + measure.Format(v)
	}
	show.Note(fmt.Sprintf("%s: %s", name, shorten(text)))
	show.Set(int64(n), int64(2*next))
}

// hostPatience is how long a run waits before each repetition after the host's
// trouble: long enough in all (80 s) for a compiler or a backup to end.
var hostPatience = []time.Duration{0, 5 * time.Second, 15 * time.Second, 60 * time.Second}

// trial returns the next outcome of a side: a replayed one as long as there are
// some, else that of a fresh boot. What the host did wrong is repeated, and ends
// the whole run if it does not pass: it must never look like a verdict.
func (s *session) trial(ctx context.Context, q *question, x *side) (measure.Outcome, error) {
	if o, ok := s.takeReplay(q, x); ok {
		return o, nil
	}
	if s.offline != nil {
		return measure.Outcome{}, errNotMeasured
	}
	var t trial
	for i, pause := range hostPatience {
		if i > 0 {
			s.env.UI.Warn("%s: %s; repeating", q.name, shorten(t.outcome.Reason))
		}
		if err := sleep(ctx, pause*s.env.patience()); err != nil {
			return measure.Outcome{}, err
		}
		var err error
		if t, err = s.boot(ctx, q, x); err != nil {
			return measure.Outcome{}, err
		}
		if t.outcome.Status != measure.Infra {
			return t.outcome, nil
		}
	}
	return measure.Outcome{}, fmt.Errorf("measure %s %s: %d boots failed for reasons outside the kernel: %w",
		q.name, x.name, len(hostPatience), orReason(t))
}

// orReason is the error of a trial that was refused for the host's sake.
func orReason(t trial) error {
	if t.err != nil {
		return t.err
	}
	return errors.New(t.outcome.Reason)
}

// sleep waits, or until ctx is done.
func sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}

// boot makes one run and journals it before it is used.
func (s *session) boot(ctx context.Context, q *question, x *side) (trial, error) {
	release, err := s.env.lockHost(ctx, "measuring "+q.name)
	if err != nil {
		return trial{}, err
	}
	defer release()
	if err := s.chooseAccel(ctx, s.kernels[x.key()].Image); err != nil {
		return trial{}, err
	}
	s.trials++
	dir := s.journal.Path(fmt.Sprintf("%03d-%s-%s", s.trials, q.name, x.tag))
	started := time.Now()
	before, _ := host.Load(ctx)
	t, err := s.lab.run(ctx, s.kernels[x.key()].Image, job{workload: q.on(x.name), limit: q.limit}, dir)
	if err != nil {
		return trial{}, err
	}
	after, _ := host.Load(ctx)
	if err := s.admit(ctx, q, x, &t, before, after); err != nil {
		return trial{}, err
	}
	if err := s.transcribe(dir, x.name, &t); err != nil {
		return trial{}, err
	}
	s.count(t)
	s.notice(x.name, t)
	return t, s.journal.Outcome(ctx, store.Outcome{
		Case: q.name, Side: x.name, Revision: x.revision, Kernel: x.identity,
		Status: t.outcome.Status.String(), Reason: t.outcome.Reason, Values: t.outcome.Values, Limit: t.outcome.Limit,
		Started: started, Boot: t.boot, Push: t.push, Work: t.work, Total: t.total,
		HostLoad: host.Between(before, after).Map(after), Dir: dir,
	})
}

// takeReplay returns the next finished run of a side that the journal has. The
// runs of a side are taken in the order they were made, so that a resume decides
// as the first process would have.
func (s *session) takeReplay(q *question, x *side) (measure.Outcome, bool) {
	i := slices.IndexFunc(s.replay, func(o store.Outcome) bool {
		return o.Case == q.name && o.Side == x.name && o.Kernel == x.identity && o.Status != measure.Infra.String()
	})
	if i < 0 {
		return measure.Outcome{}, false
	}
	old := s.replay[i]
	s.replay = slices.Delete(s.replay, i, i+1)
	o, err := s.replayed(old)
	return o, err == nil
}

// replayed counts a finished run of the journal and returns what it gave.
func (s *session) replayed(old store.Outcome) (measure.Outcome, error) {
	o := measure.Outcome{Reason: old.Reason, Limit: old.Limit, Values: old.Values}
	if err := o.Status.UnmarshalText([]byte(old.Status)); err != nil {
		return o, fmt.Errorf("read outcome %d of the journal: %w", old.Seq, err)
	}
	s.costs.Runs++
	s.costs.RunSeconds += old.Total.Seconds()
	return o, nil
}

// admit turns a measured run into the host's trouble when it must not be
// compared: the machine was busy, or differs from the earlier ones. That is
// decided before anyone looks at the number.
func (s *session) admit(ctx context.Context, q *question, x *side, t *trial, before, after host.Sample) error {
	if t.outcome.Status != measure.OK {
		return nil
	}
	env := environmentOf(t, s.lab.reason)
	for _, p := range cmdlineOf(q.on(x.name)) { // those differ between cases, by design
		env.Cmdline = strings.ReplaceAll(env.Cmdline, " "+p, "")
	}
	if s.env0 == nil {
		s.env0 = &env
		if err := s.journal.Event(ctx, eventEnvironment, env); err != nil {
			return err
		}
	}
	if why := sameEnvironment(*s.env0, env); why != "" {
		t.outcome = measure.Outcome{Status: measure.Infra, Reason: why}
		return nil
	}
	err := host.DefaultLimits().Check(before, after)
	switch {
	case err != nil && s.opts.Machine.AnyLoad:
		s.warn("runs made while the host was busy were kept (--any-load)")
	case err != nil:
		t.outcome = measure.Outcome{Status: measure.Infra, Reason: err.Error()}
		t.err = withHint(err, "stop the other programs, or keep such runs with --any-load")
	}
	return nil
}

// environmentOf is what a run was made in.
func environmentOf(t *trial, reason string) report.Environment {
	e := report.Environment{
		Image: t.facts.Image, Accel: string(t.facts.Accel), AccelReason: reason, Machine: t.facts.Machine, Firmware: t.facts.Firmware, QEMU: t.facts.QEMU,
		CPUs: t.facts.CPUs, MemoryMiB: t.facts.MemoryMiB, Cmdline: t.facts.Cmdline,
	}
	if t.hello != nil {
		e.Clocksource, e.HZ, e.Cmdline = t.hello.Clocksource, t.hello.HZ, t.hello.Cmdline
	}
	return e
}

// transcribe keeps what a script printed, and says what the guest lacked. A
// script that goes on after an error ends well: that is a warning, since its
// numbers may be those of half the work.
func (s *session) transcribe(dir, name string, t *trial) error {
	if t.output == "" {
		return nil
	}
	if err := os.WriteFile(filepath.Join(dir, transcriptName), []byte(t.output), 0o600); err != nil {
		return err
	}
	for _, text := range missing(t.output, s.opts.Config.Extra) {
		if t.outcome.Status == measure.Untestable {
			t.outcome.Reason += "; " + text
		} else {
			s.warn("%s: %s, %s", name, transcriptName, text)
		}
	}
	return nil
}

// transcriptName is the file of a run's folder with what a script printed.
const transcriptName = "transcript.txt"

func (s *session) count(t trial) {
	s.costs.RunSeconds += t.total.Seconds()
	if t.outcome.Status == measure.Infra {
		s.costs.Retries++
		return
	}
	s.costs.Runs++
}

// notice keeps what the console said once a side and kind: a stall or a warning
// does not end a run, and weakens its number.
func (s *session) notice(name string, t trial) {
	for _, e := range t.events {
		text := fmt.Sprintf("%s: the console said (%s): %s", name, e.Kind, shorten(e.Line))
		prefix := fmt.Sprintf("%s: the console said (%s)", name, e.Kind)
		if !slices.ContainsFunc(s.notices, func(n string) bool { return len(n) >= len(prefix) && n[:len(prefix)] == prefix }) {
			s.notices = append(s.notices, text)
		}
	}
}

// warn says something once, now and in the result.
func (s *session) warn(format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	if !slices.Contains(s.notices, text) {
		s.notices = append(s.notices, text)
		s.env.UI.Warn("%s", text)
	}
}

// Run plans and measures what the options ask for; see NewPlan and (*Plan).Run.
// With DryRun the plan is all, and goes to out.
func Run(ctx context.Context, env *Env, o RunOptions, out io.Writer) (*report.Result, error) {
	p, err := NewPlan(ctx, env, o)
	if err != nil {
		return nil, err
	}
	if o.DryRun {
		return nil, p.Write(out)
	}
	w := env.UI.Writer()
	err = errors.Join(p.Write(w), w.Close())
	if err != nil {
		return nil, err
	}
	return p.Run(ctx)
}
