package app

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/kbisect/kbisect/guest/workload"
	"github.com/kbisect/kbisect/internal/feature"
	"github.com/kbisect/kbisect/internal/report"
	"github.com/kbisect/kbisect/internal/series"
	"github.com/kbisect/kbisect/internal/source"
	"github.com/kbisect/kbisect/internal/thread"
	"github.com/kbisect/kbisect/patches"
)

// ReproOptions is what `kbisect repro` was asked.
type ReproOptions struct {
	Thread  string    // a file, a maildir, "-" for In, a Message-ID or a URL of one
	In      io.Reader // standard input
	Lore    string    // base of the public-inbox server to fetch from, "" for the URL's or the kernel's
	Version int       // of the series, 0 for the newest
	Out     string    // folder for patches and scripts, "" for one of kbisect's own
	Run     bool      // run the best command
	// RunOptions are those of the command: kernel, machine, rules; and a script,
	// workload or metric in the place of the thread's.
	RunOptions RunOptions
}

// repro is a thread that is being looked at.
type repro struct {
	env    *Env
	opts   ReproOptions
	thread *thread.Thread
	chosen *thread.Series // one of thread's, nil for none
	src    *source.Source // nil without a kernel
	base   string         // commit that the patches are tried on
	clean  map[*thread.Patch]series.Patch
	doc    report.Thread
	metric string      // what the catalog measures a script of this report by, "" for what it times
	best   *RunOptions // of the best command, nil if there is none
}

// Repro reads a thread and says what is in it, and what would test it. Patches
// are tried on the kernel, and repaired by it, if one is given or Run is set. With
// Run the best command is run: show gets the document first, and the result and
// error are that of Run.
func Repro(ctx context.Context, env *Env, o ReproOptions, show func(report.Thread) error) (*report.Result, error) {
	t, err := readThread(ctx, env, o)
	if err != nil {
		return nil, err
	}
	r := &repro{env: env, opts: o, thread: t, clean: map[*thread.Patch]series.Patch{}}
	if err := r.choose(); err != nil {
		return nil, err
	}
	if err := r.openKernel(ctx); err != nil {
		return nil, err
	}
	if err := r.describe(ctx); err != nil {
		return nil, err
	}
	if err := r.save(); err != nil {
		return nil, err
	}
	r.commands()
	if err := show(r.doc); err != nil || !o.Run {
		return nil, err
	}
	if r.best == nil {
		return nil, Usagef("choose one of the lines above, or give what is missing: --script FILE, --file HOST:NAME, -w WORKLOAD", "nothing in %s can be run as it stands", t.Name)
	}
	return Run(ctx, env, *r.best, io.Discard)
}

// readThread reads or fetches the thread.
func readThread(ctx context.Context, env *Env, o ReproOptions) (*thread.Thread, error) {
	if _, err := os.Stat(o.Thread); err == nil || o.Thread == "-" {
		t, err := thread.Read(o.Thread, o.In)
		if err != nil {
			return nil, Usagef("", "%v", err)
		}
		return t, nil
	}
	server, list, id, ok := thread.RefURL(o.Thread)
	if !ok {
		return nil, Usagef("save the thread as an mbox, or give its Message-ID or URL", "%s: no such file, and no Message-ID", o.Thread)
	}
	show := env.UI.Stage("fetch the thread of " + id)
	l := thread.Lore{Base: orDefault(o.Lore, server), Progress: func(done int64) { show.SetBytes(done, 0) }}
	data, err := l.Fetch(ctx, list, id)
	show.End(err)
	if err != nil {
		return nil, err
	}
	return thread.Parse(o.Thread, data)
}

// choose picks the series that is tested.
func (r *repro) choose() (err error) {
	if len(r.thread.Series) == 0 {
		if r.opts.Version != 0 {
			return Usagef("", "--series-version %d: there is no series in %s", r.opts.Version, r.thread.Name)
		}
		return nil
	}
	r.chosen, err = r.thread.Choose(r.opts.Version)
	if err != nil && r.opts.Version != 0 {
		return Usagef("", "--series-version %d: %v", r.opts.Version, err)
	}
	if err != nil { // none is complete: it is shown, and nothing of it is tested
		r.doc.Warnings = append(r.doc.Warnings, err.Error())
	}
	return nil
}

// openKernel opens the source that the patches are tried on. Without --run it has
// to be asked for, since it may have to be downloaded.
func (r *repro) openKernel(ctx context.Context) (err error) {
	o := r.opts.RunOptions
	if o.Kernel == "" && !r.opts.Run {
		return nil
	}
	if r.src, err = r.env.openSource(ctx, o.Kernel); err != nil {
		return err
	}
	r.doc.Kernel = r.src.Name
	if r.base, err = r.src.Resolve(ctx, o.Base); err != nil {
		return unknownBase(err, o)
	}
	return nil
}

// describe fills in the document.
func (r *repro) describe(ctx context.Context) error {
	t := r.thread
	r.doc.Thread, r.doc.Form, r.doc.Messages = t.Name, t.Form, len(t.Messages)
	r.doc.Warnings = append(r.doc.Warnings, t.Warnings...)
	for i := range t.Series {
		s := &t.Series[i]
		row := report.ThreadSeries{Subject: s.Subject, Version: s.Version, Resend: s.Resend, Of: s.Of, Missing: s.Missing,
			Chosen: s == r.chosen}
		at := r.base
		for j := range s.Patches {
			p := &s.Patches[j]
			done, err := r.patch(ctx, p, at)
			if err != nil {
				return err
			}
			if done.next != "" {
				at = done.next
			}
			row.Patches = append(row.Patches, done.row)
		}
		r.doc.Series = append(r.doc.Series, row)
	}
	for i := range t.FollowUp {
		done, err := r.patch(ctx, &t.FollowUp[i], r.base)
		if err != nil {
			return err
		}
		r.doc.FollowUps = append(r.doc.FollowUps, done.row)
	}
	r.describeText()
	return r.matchCatalog()
}

// tried is a patch that was looked at.
type tried struct {
	row  report.ThreadPatch
	next string // the commit that the next patch of the series goes onto, "" for the same
}

// patch describes a patch, and tries it on a commit if there is a kernel.
func (r *repro) patch(ctx context.Context, p *thread.Patch, at string) (tried, error) {
	t := tried{row: report.ThreadPatch{Message: p.Message, Line: p.Line, Subject: p.Subject, Author: p.Author, Date: p.Date, N: p.N,
		Files: p.Files, State: report.StateClean}}
	if p.Err != nil {
		t.row.State, t.row.Reason = report.StateDamaged, reasonOf(p.Err)
	} else {
		r.clean[p] = p.Patch
	}
	if r.src == nil {
		if p.Err != nil {
			t.row.Reason += " (--kernel SRC: it may be repaired by that tree)"
		}
		return t, nil
	}
	none := p.Err
	if p.Err == nil {
		pair, err := series.WithWithout(ctx, r.src.Repo(), at, []series.Patch{p.Patch})
		if err == nil {
			t.fits(pair)
			return t, nil
		}
		if !errors.As(err, new(*series.PatchError)) {
			return t, err
		}
		none = err
		t.row.Fit, t.row.Reason = report.FitNot, err.Error()
	}
	fixed, repairs, err := series.Repair(ctx, r.src.Repo(), at, p.Subject, p.Raw, p.Line)
	var damage *series.DamageError
	switch {
	case errors.As(err, &damage):
		if p.Err != nil {
			t.row.State, t.row.Reason = report.StateRefused, fmt.Sprintf("line %d: %s", damage.Line, damage.Text)
		}
		return t, nil
	case err != nil && ctx.Err() == nil && (errors.As(err, new(*series.ParseError)) || errors.As(err, new(*series.PatchError))):
		t.row.Reason = none.Error()
		return t, nil
	case err != nil:
		return t, err
	}
	pair, err := series.WithWithout(ctx, r.src.Repo(), at, []series.Patch{fixed})
	if err != nil {
		return t, err
	}
	t.row.State, t.row.Repairs, t.row.Reason, t.row.Files = report.StateRepaired, repairs, "", fixed.Files
	r.clean[p] = fixed
	t.fits(pair)
	return t, nil
}

// reasonOf leaves out the name of the thread, which stands above.
func reasonOf(err error) string {
	var parse *series.ParseError
	if errors.As(err, &parse) {
		return parse.Err.Error()
	}
	return err.Error()
}

// fits says how a patch fits, and where the next one of its series is tried.
func (t *tried) fits(pair series.Pair) {
	t.row.Fit = report.FitInTree
	if pair.How == series.Applied {
		t.row.Fit, t.next = report.FitApplies, pair.With
	}
}

// describeText fills in what stands in the text.
func (r *repro) describeText() {
	for _, s := range r.thread.Scripts {
		row := report.ThreadScript{Message: s.Message, Line: s.Line, Author: s.Author, Text: s.Text, Files: s.Files,
			Kconfigs: feature.InScript(s.Text), Metric: metricOf(s.Text, r.thread.Timings)}
		r.doc.Scripts = append(r.doc.Scripts, row)
	}
	for _, x := range r.thread.Timings {
		r.doc.Timings = append(r.doc.Timings, report.ThreadTiming{Message: x.Message, Line: x.Line, Seconds: x.Seconds, Command: x.Command, Text: x.Text})
	}
	for _, x := range r.thread.Trailers {
		r.doc.Trailers = append(r.doc.Trailers, report.ThreadTrailer{Key: x.Key, Value: x.Value})
	}
}

// metricOf returns the time in a script that the thread gives the largest figure
// for: what the report is about. "" is the whole script.
func metricOf(script string, timings []thread.Timing) string {
	best, name, n := -1.0, "", 0
	for line := range strings.Lines(script) {
		command, ok := timed(line)
		if !ok {
			continue
		}
		n++
		for _, t := range timings {
			if c, _ := timed(t.Command); c == command && t.Seconds > best {
				best, name = t.Seconds, workload.TimeMetric(n, "real")
			}
		}
	}
	if name == "" && n > 0 {
		name = workload.TimeMetric(n, "real")
	}
	return name
}

// timed returns the command that a line times.
func timed(line string) (string, bool) {
	words := strings.Fields(line)
	if len(words) < 2 || words[0] != "time" {
		return "", false
	}
	words = words[1:]
	if words[0] == "-p" {
		words = words[1:]
	}
	return strings.Join(words, " "), true
}

// matchCatalog finds the cases that are about this thread: by its patches'
// subjects, by what they fix, or by the report's Message-ID.
func (r *repro) matchCatalog() error {
	catalog, err := LoadCatalog(r.opts.RunOptions.Catalog)
	if err != nil {
		return err
	}
	for _, c := range catalog {
		if r.isCase(c) {
			r.doc.Cases = append(r.doc.Cases, c.Name)
			r.metric = orDefault(r.metric, c.Report.ScriptMetric)
		}
	}
	return nil
}

func (r *repro) isCase(c *patches.Case) bool {
	for _, m := range r.thread.Messages {
		subject := strings.ToLower(strings.Join(strings.Fields(m.Subject), " "))
		about := func(s string) bool { return strings.Contains(subject, strings.ToLower(s)) }
		if m.ID != "" && m.ID == c.Report.MessageID || slices.ContainsFunc(c.Report.Subjects, about) {
			return true
		}
	}
	return c.Report.Fixes != "" && slices.ContainsFunc(r.thread.Trailers, func(t thread.Trailer) bool {
		return t.Key == "Fixes" && strings.HasPrefix(t.Value, c.Report.Fixes)
	})
}
