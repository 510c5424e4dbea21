package app

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/kbisect/kbisect/internal/bisect"
	"github.com/kbisect/kbisect/internal/gitx"
	"github.com/kbisect/kbisect/internal/report"
	"github.com/kbisect/kbisect/internal/series"
)

// revision is one point of a span: a commit, or a series up to one of its patches.
type revision struct {
	gitx.Entry
	parents []int // in the span, below the revision's own number
}

// short names a revision in progress and tables.
func (r revision) short() string { return fmt.Sprintf("%.12s", r.ID) }

// span is what is searched: the revisions between two ends, the last of which is
// the bad end itself.
type span struct {
	mode      report.Mode
	good, bad revision
	revisions []revision
	graph     *bisect.Graph
	// firstParents is set when merges stand for all that they brought, because the
	// whole history is too large to be weighed.
	firstParents bool
}

// at returns a revision or an end.
func (s *span) at(v int) revision {
	switch v {
	case bisect.GoodEnd:
		return s.good
	case bisect.BadEnd:
		return s.bad
	}
	return s.revisions[v]
}

// kind is what a revision of the span is called.
func (s *span) kind(v int) string {
	switch {
	case s.mode == report.ModeSeries:
		return "patch"
	case len(s.at(v).Parents) > 1:
		return "merge"
	}
	return "commit"
}

// maxNamed is the number of commits up to which the files that each of them
// changed are read: a second a thousand in a kernel.
const maxNamed = 5000

// openSpan finds the revisions of a range or of a series.
func (p *Plan) openSpan(ctx context.Context) (err error) {
	if len(p.opts.Series) > 0 {
		p.span, err = p.openSeries(ctx)
	} else {
		p.span, err = p.openRange(ctx)
	}
	return err
}

// end resolves the revision of a flag.
func (p *Plan) end(ctx context.Context, flag, rev string) (string, error) {
	id, err := p.src.Resolve(ctx, rev)
	if errors.As(err, new(*gitx.UnknownRevisionError)) || err != nil && strings.HasPrefix(rev, "-") {
		return "", Usagef("git log in that tree shows its commits", "--%s %q: no such revision in the kernel source", flag, rev)
	}
	return id, err
}

// openRange makes the span of --good and --bad.
func (p *Plan) openRange(ctx context.Context) (*span, error) {
	good, err := p.end(ctx, "good", p.opts.Good)
	if err != nil {
		return nil, err
	}
	bad, err := p.end(ctx, "bad", p.opts.Bad)
	if err != nil {
		return nil, err
	}
	if good, err = p.ancestor(ctx, good, bad); err != nil {
		return nil, err
	}
	s := &span{mode: report.ModeRange}
	if s.good, err = p.describe(ctx, good); err != nil {
		return nil, err
	}
	if s.bad, err = p.describe(ctx, bad); err != nil {
		return nil, err
	}
	return s, p.readRange(ctx, s)
}

// ancestor returns good if it is an ancestor of bad, else their merge base.
func (p *Plan) ancestor(ctx context.Context, good, bad string) (string, error) {
	repo := p.src.Repo()
	base, err := repo.MergeBase(ctx, good, bad)
	switch {
	case err != nil:
		return "", err
	case good == bad:
		return "", Usagef("", "--good and --bad are the same commit %.12s", good)
	case base == "":
		return "", Usagef("", "--good %s and --bad %s have no history in common", p.opts.Good, p.opts.Bad)
	case base == bad:
		return "", Usagef("swap them; --look-for lower finds what made it faster", "--bad %s is an ancestor of --good %s", p.opts.Bad, p.opts.Good)
	case base != good:
		p.warnings = append(p.warnings, fmt.Sprintf("--good %s is no ancestor of --bad %s: their merge base %.12s is measured as the good end", p.opts.Good, p.opts.Bad, base))
	}
	return base, nil
}

// describe reads what is said of an end.
func (p *Plan) describe(ctx context.Context, commit string) (revision, error) {
	subject, err := p.src.Repo().Subject(ctx, commit)
	return revision{Entry: gitx.Entry{Commit: gitx.Commit{ID: commit}, Subject: subject}}, err
}

// readRange reads the commits of a range and makes their graph. One too large to
// be weighed with its merges is searched along the first parents.
func (p *Plan) readRange(ctx context.Context, s *span) error {
	repo := p.src.Repo()
	list, err := repo.Log(ctx, s.good.ID, s.bad.ID, false, p.opts.Paths...)
	if err == nil && len(list) <= maxNamed {
		list, err = repo.Log(ctx, s.good.ID, s.bad.ID, true, p.opts.Paths...)
	}
	if err != nil {
		return err
	}
	if len(list) == 0 {
		return Usagef("", "no commit between --good and --bad changes %s", strings.Join(p.opts.Paths, ", "))
	}
	err = s.link(list)
	if errors.Is(err, bisect.ErrTooLarge) {
		if list, err = repo.FirstParents(ctx, s.good.ID, s.bad.ID, false); err != nil {
			return err
		}
		s.firstParents = true
		err = s.link(list)
	}
	return err
}

// link numbers the commits of a list, parents first, and makes the graph. The
// bad end is added when the list lacks it, which happens when only some paths
// are looked at: it stands for all other changes.
func (s *span) link(list []gitx.Entry) error {
	s.revisions = nil
	number := map[string]int{}
	head := map[int]bool{}
	for _, e := range list {
		r := revision{Entry: e}
		for i, id := range e.Parents {
			if v, ok := number[id]; ok && (i == 0 || !s.firstParents) {
				r.parents = append(r.parents, v)
				delete(head, v)
			}
		}
		number[e.ID] = len(s.revisions)
		head[len(s.revisions)] = true
		s.revisions = append(s.revisions, r)
	}
	if _, ok := number[s.bad.ID]; !ok {
		last := s.bad
		for v := range head {
			last.parents = append(last.parents, v)
		}
		slices.Sort(last.parents)
		s.revisions = append(s.revisions, last)
	}
	parents := make([][]int, len(s.revisions))
	for v, r := range s.revisions {
		parents[v] = r.parents
	}
	g, err := bisect.NewGraph(parents)
	if err != nil {
		return err
	}
	s.graph, s.bad = g, s.revisions[len(s.revisions)-1]
	return nil
}

// openSeries makes the span of --series: the base, and the base with each prefix
// of the patches. A resumed run has the commits already.
func (p *Plan) openSeries(ctx context.Context) (*span, error) {
	chain := p.opts.Chain
	if chain == nil {
		patches, base, err := p.readSeries(ctx)
		if err != nil {
			return nil, err
		}
		p.base = base
		if chain, err = p.stack(ctx, patches); err != nil {
			return nil, err
		}
	}
	return p.chainSpan(ctx, chain)
}

// chainSpan is the span of commits in a row on the base.
func (p *Plan) chainSpan(ctx context.Context, chain []string) (*span, error) {
	s := &span{mode: report.ModeSeries}
	var err error
	if s.good, err = p.describe(ctx, p.base); err != nil {
		return nil, err
	}
	list, err := p.src.Repo().FirstParents(ctx, p.base, chain[len(chain)-1], true)
	if err != nil {
		return nil, err
	}
	if len(list) != len(chain) {
		return nil, fmt.Errorf("read series: %d commits on %.12s, want %d", len(list), p.base, len(chain))
	}
	s.bad = revision{Entry: list[len(list)-1]}
	return s, s.link(list)
}

// readSeries reads the patches of --series and finds what they are made for.
func (p *Plan) readSeries(ctx context.Context) ([]series.Patch, string, error) {
	from, to, ok := strings.Cut(p.opts.Series[0], "..")
	if _, err := os.Stat(p.opts.Series[0]); err == nil || !ok || len(p.opts.Series) > 1 {
		list, err := series.ReadSeries(p.opts.Series)
		if err != nil {
			return nil, "", Usagef("", "--series: %v", err)
		}
		return list, p.base, nil
	}
	a, err := p.end(ctx, "series", from)
	if err != nil {
		return nil, "", err
	}
	b, err := p.end(ctx, "series", orDefault(to, "HEAD"))
	if err != nil {
		return nil, "", err
	}
	base := p.base
	if p.opts.Base == "" {
		base = a
	}
	list, err := series.RangePatches(ctx, p.src.Repo(), a, b)
	if errors.As(err, new(*series.MergeError)) {
		return nil, "", Usagef("bisect it as a range: --good and --bad", "--series %s: %v", p.opts.Series[0], err)
	}
	if err != nil {
		return nil, "", Usagef("", "--series %s: %v", p.opts.Series[0], err)
	}
	return list, base, nil
}

// stack puts the patches on the base, one on another.
func (p *Plan) stack(ctx context.Context, list []series.Patch) ([]string, error) {
	for _, patch := range list {
		for _, w := range patch.Warnings {
			p.warnings = append(p.warnings, patch.Name+": "+w)
		}
	}
	chain, err := series.Stack(ctx, p.src.Repo(), p.base, list)
	var stack *series.StackError
	if errors.As(err, &stack) {
		return nil, Usagef("--base REV names the commit that the series was made for", "--series: %v", err)
	}
	return chain, err
}

// writeSpan prints what is searched.
func (p *Plan) writeSpan(b *strings.Builder) {
	q, s := p.questions[0], p.span
	what := map[report.Mode]string{report.ModeRange: "commits", report.ModeSeries: "patches"}[s.mode]
	if len(s.revisions) == 1 {
		what = map[report.Mode]string{report.ModeRange: "commit", report.ModeSeries: "patch"}[s.mode]
	}
	fmt.Fprintf(b, "%d %s, good %s %q, bad %s %q\n", len(s.revisions), what, s.good.short(), s.good.Subject, s.bad.short(), s.bad.Subject)
	if s.firstParents {
		fmt.Fprintf(b, "too many to weigh with their merges: searched along the first parents, a merge stands for all it brought\n")
	}
	fmt.Fprintf(b, "%s; compare %s; at most %s a run\n", q.shownWorkload(), q.metric.Name, q.limit)
	if q.threshold != nil {
		fmt.Fprintf(b, "a run with %s counts as bad\n", q.threshold)
	}
}
