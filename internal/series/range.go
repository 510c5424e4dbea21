package series

import (
	"bytes"
	"context"
	"fmt"
	"slices"

	"github.com/kbisect/kbisect/internal/gitx"
)

// MergeError says that a range is no series, because a merge is in it.
type MergeError struct {
	From, To string
	Commit   string // full id of the merge
	Subject  string
}

func (e *MergeError) Error() string {
	return fmt.Sprintf("%s..%s is not a series of patches: %.12s (%q) is a merge; bisect it as a range instead (--good %s --bad %s)",
		e.From, e.To, e.Commit, e.Subject, e.From, e.To)
}

// RangePatches returns the commits of from..to as patches, oldest first. A merge
// among them is a *MergeError; commits that change nothing are left out.
func RangePatches(ctx context.Context, repo gitx.Repo, from, to string) ([]Patch, error) {
	a, err := repo.ResolveCommit(ctx, from)
	if err != nil {
		return nil, err
	}
	b, err := repo.ResolveCommit(ctx, to)
	if err != nil {
		return nil, err
	}
	commits, err := repo.RevList(ctx, a, b)
	if err != nil {
		return nil, err
	}
	// Without a merge, what is reachable from one commit is a chain.
	for _, c := range commits {
		if len(c.Parents) > 1 {
			subject, err := repo.Subject(ctx, c.ID)
			if err != nil {
				return nil, err
			}
			return nil, &MergeError{From: from, To: to, Commit: c.ID, Subject: subject}
		}
	}
	if len(commits) > MaxSeries {
		return nil, fmt.Errorf("%s..%s has %d commits, and a series has at most %d: bisect it as a range instead (--good %s --bad %s)", from, to, len(commits), MaxSeries, from, to)
	}
	var patches []Patch
	for _, c := range slices.Backward(commits) {
		p, empty, err := commitPatch(ctx, repo, c.ID)
		if err != nil {
			return nil, err
		}
		if !empty {
			patches = append(patches, p)
		}
	}
	if len(patches) == 0 {
		return nil, fmt.Errorf("%s..%s has no commit that changes anything: is %s older than %s?", from, to, from, to)
	}
	return patches, nil
}

// commitPatch makes a patch of a commit, as git format-patch would: with its
// renames, and with binary files whole.
func commitPatch(ctx context.Context, repo gitx.Repo, id string) (p Patch, empty bool, err error) {
	out := &bounded{max: MaxPatch + 1<<16}
	err = repo.Do(ctx, gitx.Command{Stdout: out, Args: []string{
		"diff-tree", "--root", "-p", "-M", "--binary", "--full-index", "--no-ext-diff", "--no-textconv", "--no-color",
		"--encoding=UTF-8", "--format=%s", "--src-prefix=a/", "--dst-prefix=b/", id}})
	name := fmt.Sprintf("commit %.12s", id)
	if out.over {
		return p, false, &ParseError{Name: name, Err: fmt.Errorf("larger than %d MiB", MaxPatch>>20)}
	}
	if err != nil {
		return p, false, err
	}
	title, diff, _ := bytes.Cut(out.b.Bytes(), []byte("\n"))
	if diff = bytes.TrimPrefix(diff, []byte("\n")); len(diff) == 0 {
		return p, true, nil
	}
	p = Patch{Name: name, Subject: cleanSubject(string(title))}
	if err := p.parseDiff(diff, place{line: 1, of: "line"}); err != nil {
		return p, false, &ParseError{Name: name, Err: err}
	}
	return p, false, nil
}

// bounded keeps what is written up to a bound and then fails, which ends git.
type bounded struct {
	b    bytes.Buffer
	max  int
	over bool
}

func (w *bounded) Write(p []byte) (int, error) {
	if w.b.Len()+len(p) > w.max {
		w.over = true
		return 0, fmt.Errorf("more than %d bytes", w.max)
	}
	return w.b.Write(p)
}
