package app

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"

	"github.com/kbisect/kbisect/internal/kbuild"
	"github.com/kbisect/kbisect/internal/report"
	"github.com/kbisect/kbisect/internal/store"
)

// errNotMeasured ends a judgement that needs a kernel or a run that the journal
// does not have.
var errNotMeasured = errors.New("not measured")

// RejudgeOptions is what `kbisect rejudge` was asked.
type RejudgeOptions struct {
	ID        string // a unique beginning; "" for the newest run
	Threshold string
	Metric    string
	LookFor   string
}

// Rejudge decides a finished or interrupted search again under another threshold
// or metric, from the outcomes in its journal alone: nothing is built, run or
// stored. Where those do not suffice the result is inconclusive.
func Rejudge(ctx context.Context, env *Env, o RejudgeOptions) (*report.Result, error) {
	if o.Threshold == "" && o.Metric == "" {
		return nil, Usagef("for example --threshold 'flush>500ms'", "judge again by what?")
	}
	st, err := store.Open(ctx, env.State)
	if err != nil {
		return nil, err
	}
	defer st.Close()
	r, err := findRun(ctx, st, o.ID)
	if err != nil {
		return nil, err
	}
	if r.Mode == string(report.ModeCase) {
		return nil, Usagef("kbisect run CASE --threshold EXPR", "run %s compares a case: only a search can be judged again", r.ID)
	}
	p, err := planAgain(ctx, env, r, func(opts *RunOptions) {
		opts.Threshold, opts.Metric, opts.Budget = o.Threshold, orDefault(o.Metric, opts.Metric), 0
		opts.LookFor = orDefault(o.LookFor, opts.LookFor)
	})
	if err != nil {
		return nil, err
	}
	if p.span == nil {
		return nil, Usagef("", "run %s compares each patch alone: only a search can be judged again", r.ID)
	}
	s, err := p.recall(ctx, st, r)
	if err != nil {
		return nil, err
	}
	res, err := s.hunt(ctx)
	if err != nil {
		return nil, err
	}
	return res, ending(res)
}

// planAgain makes the plan of an earlier run, changed.
func planAgain(ctx context.Context, env *Env, r store.Run, change func(*RunOptions)) (*Plan, error) {
	var pin pinned
	if err := json.Unmarshal(r.Args, &pin); err != nil {
		return nil, fmt.Errorf("read run %s: %w", r.ID, err)
	}
	if pin.Options.Good == "" {
		pin.Options.Base = pin.Base
	}
	change(&pin.Options)
	return NewPlan(ctx, env, pin.Options)
}

// recall makes a session that has only what the journal of a run has.
func (p *Plan) recall(ctx context.Context, st *store.Store, r store.Run) (*session, error) {
	outcomes, err := st.Outcomes(ctx, r.ID)
	if err != nil {
		return nil, err
	}
	s := p.session(st, nil, outcomes)
	s.id, s.dir, s.begun = r.ID, r.Dir, r.Created
	if s.offline, err = st.Builds(ctx, r.ID); err != nil {
		return nil, err
	}
	if s.offline == nil {
		s.offline = []store.Build{}
	}
	s.env0, err = firstEnvironment(ctx, st, r.ID)
	return s, err
}

// recorded returns what the journal says of a kernel.
func (s *session) recorded(revision string) (*kbuild.Kernel, error) {
	for _, b := range s.offline {
		switch {
		case b.Revision != revision:
		case b.Error != "":
			return nil, &kbuild.KernelError{Step: "compile", Text: b.Error}
		default:
			k := &kbuild.Kernel{Info: kbuild.Info{Key: b.Key, Identity: b.Identity, Seconds: b.Seconds}}
			k.Config = filepath.Join(s.dir, "kernels", configName(b.Identity))
			k.Cached = b.Cached
			s.countBuild(k)
			return k, nil
		}
	}
	return nil, errNotMeasured
}

// event journals a decision, unless nothing is to be written.
func (s *session) event(ctx context.Context, kind string, data any) error {
	if s.offline != nil {
		return nil
	}
	return s.journal.Event(ctx, kind, data)
}
