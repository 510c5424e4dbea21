package series

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"strings"

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
	slices.Reverse(commits)
	patches, err := commitPatches(ctx, repo, commits)
	if err == nil && len(patches) == 0 {
		err = fmt.Errorf("%s..%s has no commit that changes anything: is %s older than %s?", from, to, from, to)
	}
	return patches, err
}

// commitPatches makes patches of commits, as git format-patch would: with their
// renames, and with binary files whole. One git makes all of them.
func commitPatches(ctx context.Context, repo gitx.Repo, commits []gitx.Commit) ([]Patch, error) {
	var ids strings.Builder
	for _, c := range commits {
		ids.WriteString(c.ID + "\n")
	}
	out := &bounded{max: MaxMailbox}
	err := repo.Do(ctx, gitx.Command{Stdin: strings.NewReader(ids.String()), Stdout: out, Args: []string{
		"diff-tree", "--stdin", "--root", "-p", "-M", "--binary", "--full-index", "--no-ext-diff", "--no-textconv", "--no-color",
		"--encoding=UTF-8", "--format=#%H %s", "--src-prefix=a/", "--dst-prefix=b/"}})
	if out.over {
		return nil, fmt.Errorf("the diffs of %d commits are larger than %d MiB: choose fewer", len(commits), MaxMailbox>>20)
	}
	if err != nil {
		return nil, err
	}
	var patches []Patch
	rest := out.b.Bytes()
	for _, c := range commits {
		// No line of a diff begins with "#". A commit without a diff is not printed.
		after, ok := bytes.CutPrefix(rest, []byte("#"+c.ID+" "))
		if !ok {
			continue
		}
		diff := after
		if end := bytes.Index(after, []byte("\n#")); end >= 0 {
			diff, rest = after[:end+1], after[end+1:]
		} else {
			rest = nil
		}
		p, err := commitPatch(c.ID, diff)
		if err != nil {
			return nil, err
		}
		patches = append(patches, p)
	}
	if len(rest) > 0 {
		return nil, fmt.Errorf("read the diffs of %d commits: %.80q was not expected", len(commits), rest)
	}
	return patches, nil
}

// commitPatch reads what git printed of one commit: the subject, an empty line
// and the diff.
func commitPatch(id string, text []byte) (Patch, error) {
	p := Patch{Name: fmt.Sprintf("commit %.12s", id)}
	title, diff, _ := bytes.Cut(text, []byte("\n"))
	p.Subject = cleanSubject(string(title))
	err := fmt.Errorf("larger than %d MiB", MaxPatch>>20)
	if len(diff) <= MaxPatch {
		err = p.parseDiff(bytes.TrimPrefix(diff, []byte("\n")), place{line: 1, of: "line"})
	}
	if err != nil {
		return Patch{}, &ParseError{Name: p.Name, Err: err}
	}
	return p, nil
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
