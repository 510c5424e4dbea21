package app

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"github.com/dustin/go-humanize/english"

	"github.com/kbisect/kbisect/internal/measure"
	"github.com/kbisect/kbisect/internal/report"
	"github.com/kbisect/kbisect/internal/store"
)

// RunsOptions is what `kbisect runs` was asked.
type RunsOptions struct {
	Last  int // 0 for all
	Prune int // keep the newest so many; negative for no pruning
	JSON  bool
}

// Runs lists earlier runs, newest first, after pruning if that was asked.
func Runs(ctx context.Context, env *Env, o RunsOptions, out io.Writer) error {
	if o.Last < 0 {
		return Usagef("", "--last %d: it is below 0", o.Last)
	}
	st, err := store.Open(ctx, env.State)
	if err != nil {
		return err
	}
	defer st.Close()
	if o.Prune >= 0 {
		removed, err := st.Prune(ctx, store.Policy{Keep: o.Prune})
		if err != nil {
			return err
		}
		env.UI.Info("forgot %s", english.Plural(len(removed), "run", ""))
	}
	runs, err := st.Runs(ctx, store.Filter{Limit: o.Last})
	if err != nil {
		return err
	}
	var rows []report.RunRow
	for _, r := range runs {
		rows = append(rows, runRow(r))
	}
	if o.JSON {
		return report.RunsJSON(out, rows)
	}
	return report.Runs(out, rows)
}

// RunIDs returns the ids of earlier runs, newest first, for a shell's completion:
// none when they cannot be read.
func RunIDs(ctx context.Context, env *Env, interrupted bool) (ids []string) {
	st, err := store.Open(ctx, env.State)
	if err != nil {
		return nil
	}
	defer st.Close()
	var f store.Filter
	if interrupted {
		f.Status = store.Interrupted
	}
	runs, err := st.Runs(ctx, f)
	if err != nil {
		return nil
	}
	for _, r := range runs {
		ids = append(ids, r.ID)
	}
	return ids
}

func runRow(r store.Run) report.RunRow {
	row := report.RunRow{ID: r.ID, Created: r.Created, Mode: r.Mode, Status: string(r.Status), Verdict: r.Verdict, Dir: r.Dir}
	if !r.Ended.IsZero() {
		row.Seconds = r.Ended.Sub(r.Created).Seconds()
	}
	return row
}

// Show prints an earlier run: its result, and every build and boot if steps are
// wanted.
// id is a unique beginning, "" for the newest run.
func Show(ctx context.Context, env *Env, id string, steps, asJSON bool, out io.Writer) error {
	st, err := store.Open(ctx, env.State)
	if err != nil {
		return err
	}
	defer st.Close()
	r, err := findRun(ctx, st, id)
	if err != nil {
		return err
	}
	var res *report.Result
	if r.Result != "" {
		read, err := report.ReadFile(r.Result)
		if err != nil {
			return err
		}
		res = &read
	}
	var rows report.Steps
	if steps || asJSON || res == nil {
		if rows, err = stepRows(ctx, st, r.ID); err != nil {
			return err
		}
	}
	if asJSON {
		return report.ShowJSON(out, runRow(r), res, rows)
	}
	if err := report.Show(out, runRow(r), res, rows); err != nil {
		return err
	}
	if r.Status == store.Interrupted {
		env.UI.Hint("go on with: kbisect resume %s", r.ID)
	}
	return nil
}

// findRun is (*store.Store).Run with a user's mistakes as such.
func findRun(ctx context.Context, st *store.Store, id string) (store.Run, error) {
	r, err := st.Run(ctx, orDefault(id, "last"))
	if errors.Is(err, store.ErrNotFound) || errors.Is(err, store.ErrAmbiguous) {
		return r, Usagef("kbisect runs lists them", "%v", err)
	}
	return r, err
}

func stepRows(ctx context.Context, st *store.Store, id string) (rows report.Steps, err error) {
	builds, err := st.Builds(ctx, id)
	if err != nil {
		return rows, err
	}
	outcomes, err := st.Outcomes(ctx, id)
	if err != nil {
		return rows, err
	}
	for _, b := range builds {
		rows.Builds = append(rows.Builds, report.BuildRow{Seq: b.Seq, Revision: b.Revision, Kernel: b.Identity, Cached: b.Cached, Seconds: b.Seconds, Error: b.Error})
	}
	for _, o := range outcomes {
		row := report.OutcomeRow{Seq: o.Seq, Case: o.Case, Side: o.Side, Kernel: o.Kernel, Status: o.Status, Reason: o.Reason,
			Values: map[string]string{}, Boot: o.Boot.Seconds(), Push: o.Push.Seconds(), Work: o.Work.Seconds(), Total: o.Total.Seconds()}
		for name, v := range o.Values {
			row.Values[name] = measure.Format(v)
		}
		rows.Outcomes = append(rows.Outcomes, row)
	}
	return rows, nil
}

// Resume goes on with an interrupted run: it asks the same of the same commit,
// takes what the journal has, and measures the rest. id is a unique beginning,
// "" for the newest interrupted run.
func Resume(ctx context.Context, env *Env, id string) (*report.Result, error) {
	st, err := store.Open(ctx, env.State)
	if err != nil {
		return nil, err
	}
	defer st.Close()
	r, err := interrupted(ctx, st, id)
	if err != nil {
		return nil, err
	}
	p, err := planAgain(ctx, env, r, func(*RunOptions) {})
	if err != nil {
		return nil, err
	}
	outcomes, err := st.Outcomes(ctx, r.ID)
	if err != nil {
		return nil, err
	}
	env0, err := firstEnvironment(ctx, st, r.ID)
	if err != nil {
		return nil, err
	}
	builds, err := st.Builds(ctx, r.ID)
	if err != nil {
		return nil, err
	}
	j, err := st.Resume(ctx, r.ID)
	if err != nil {
		return nil, err
	}
	s := p.session(st, j, outcomes)
	s.countEarlier(builds, outcomes)
	finished := len(outcomes)
	for _, o := range outcomes {
		if o.Status == measure.Infra.String() {
			s.costs.Retries++
			finished--
		}
	}
	env.UI.Info("resuming %s, finished runs: %d", r.ID, finished)
	s.env0 = env0
	return s.run(ctx)
}

// interrupted finds the run to resume.
func interrupted(ctx context.Context, st *store.Store, id string) (store.Run, error) {
	if id == "" {
		runs, err := st.Runs(ctx, store.Filter{Status: store.Interrupted, Limit: 1})
		if err != nil {
			return store.Run{}, err
		}
		if len(runs) == 0 {
			return store.Run{}, Usagef("kbisect runs lists all", "no run was interrupted")
		}
		return runs[0], nil
	}
	r, err := findRun(ctx, st, id)
	switch {
	case err != nil:
		return r, err
	case r.Status == store.Done:
		return r, Usagef("kbisect show "+r.ID, "run %s is done", r.ID)
	case r.Status == store.Running:
		return r, Usagef("", "run %s is still going on, in process %d", r.ID, r.PID)
	}
	return r, nil
}

// firstEnvironment is what later runs must equal, nil if nothing was measured.
func firstEnvironment(ctx context.Context, st *store.Store, id string) (*report.Environment, error) {
	events, err := st.Events(ctx, id)
	if err != nil {
		return nil, err
	}
	for _, e := range events {
		if e.Kind != eventEnvironment {
			continue
		}
		var env report.Environment
		if err := json.Unmarshal(e.Data, &env); err != nil {
			return nil, fmt.Errorf("read run %s: %w", id, err)
		}
		return &env, nil
	}
	return nil, nil
}
