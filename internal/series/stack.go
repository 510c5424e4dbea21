package series

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/kbisect/kbisect/internal/gitx"
)

// StackError says which patch of a series does not fit on those before it.
type StackError struct {
	Index, Of int    // from 0
	Patch     string // its Name
	Subject   string
	InBase    bool // it can be taken out of the base: the base has it
	InSeries  bool // it is not in the base, but the patches before it bring it
	Damaged   bool // it would fit if white space did not count
	Err       *PatchError
}

func (e *StackError) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "patch %d of %d, %q (%s), ", e.Index+1, e.Of, e.Subject, e.Patch)
	switch {
	case e.InBase:
		b.WriteString("is in the base already")
	case e.InSeries:
		b.WriteString("is in the patches before it already")
	case e.Index == 0:
		fmt.Fprintf(&b, "does not fit commit %.12s", e.Err.Base)
	default:
		fmt.Fprintf(&b, "does not fit on the %d before it", e.Index)
	}
	for _, t := range e.Err.Tried {
		if t.Applied != nil {
			fmt.Fprintf(&b, ": %s", t.Applied)
		}
	}
	switch {
	case e.InBase:
		b.WriteString("\nleave it out, or choose the base the series was made for")
	case e.InSeries:
		b.WriteString("\nis it given twice?")
	case e.Damaged:
		b.WriteString("\nit would fit if white space did not count: its mailer turned tabs into spaces; get it from the list's archive")
	default:
		b.WriteString("\nchoose the base the series was made for")
	}
	return b.String()
}

func (e *StackError) Unwrap() error {
	if e.Err == nil {
		return nil
	}
	return e.Err
}

// Stack puts patches one on another into base and returns the commit of each
// prefix, in order: the one of patches[i] is a child of that of patches[i-1], with
// the subject as its message and the fixed author and date, so that it is what
// Apply makes of one patch after another. Nothing is checked out and no ref is
// moved. A patch that does not fit with its full context is a *StackError; the
// commits made until then stay as objects that nothing names.
func Stack(ctx context.Context, repo gitx.Repo, base string, patches []Patch) ([]string, error) {
	ix, err := newIndex(ctx, repo, base, patches)
	if err != nil {
		return nil, err
	}
	defer ix.close()
	s := &stack{ix: ix}
	if s.trees, err = newForest(ctx, repo, ix.base, allFiles(patches)); err != nil {
		return nil, err
	}
	if s.entries, err = ix.entries(ctx); err != nil {
		return nil, err
	}
	return s.pushAll(ctx, patches)
}

// stack is the state between two patches. Only the touched files are in the
// index: with all 80,000 of a kernel in it, git would read and write 8 MB three
// times a patch. The trees are put together from the base's and those files.
type stack struct {
	ix      *index
	trees   *forest
	entries map[string]entry // of the index
}

// maxPack is how much is collected before it is written, in bytes.
const maxPack = 32 << 20

func (s *stack) pushAll(ctx context.Context, patches []Patch) ([]string, error) {
	var commits []string
	at := s.ix.base
	for i, p := range patches {
		next, fits, err := s.push(ctx, at, p)
		if err != nil {
			return nil, fmt.Errorf("patch %d of %d (%s): %w", i+1, len(patches), p.Subject, err)
		}
		if !fits || s.trees.pack.Len() > maxPack || i == len(patches)-1 {
			if err := s.ix.repo.WritePack(ctx, s.trees.pack); err != nil {
				return nil, err
			}
		}
		if !fits {
			return nil, s.explain(ctx, at, i, patches)
		}
		commits, at = append(commits, next), next
	}
	return commits, nil
}

// push applies one patch and commits the result on parent.
func (s *stack) push(ctx context.Context, parent string, p Patch) (id string, fits bool, err error) {
	err = s.ix.git(ctx, small, p.Data, nil, append(applyArgs(false, 0), "-")...)
	var e *gitx.Error
	if errors.As(err, &e) && e.ExitCode == 1 {
		return "", false, nil
	}
	if err != nil {
		return "", false, err
	}
	now, err := s.ix.entries(ctx)
	if err != nil {
		return "", false, err
	}
	changes, err := changed(s.entries, now, p)
	if err != nil {
		return "", false, err
	}
	s.entries = now
	tree, err := s.trees.update(changes)
	if err != nil {
		return "", false, err
	}
	return s.trees.pack.AddCommit(tree, p.Subject+"\n", parent), true, nil
}

// changed compares two states of the index. It makes sure that git changed what
// the patch was read to change, and something.
func changed(before, now map[string]entry, p Patch) (map[string]entry, error) {
	changes := map[string]entry{}
	for name, e := range now {
		if before[name] != e {
			changes[name] = e
		}
	}
	for name := range before {
		if _, ok := now[name]; !ok {
			changes[name] = entry{}
		}
	}
	if len(changes) == 0 {
		return nil, &ParseError{Name: p.Name, Err: errors.New("it changes nothing")}
	}
	for name := range changes {
		if _, ok := slices.BinarySearch(p.Files, name); !ok {
			return nil, &ParseError{Name: p.Name, Err: fmt.Errorf("git changes %q, which was not seen in it", name)}
		}
	}
	return changes, nil
}

// explain says why a patch does not fit a commit.
func (s *stack) explain(ctx context.Context, at string, i int, patches []Patch) error {
	p := patches[i]
	ix, err := newIndex(ctx, s.ix.repo, at, []Patch{p})
	if err != nil {
		return err
	}
	defer ix.close()
	reject, err := ix.reject(ctx, p, false)
	if err != nil {
		return err
	}
	e := &StackError{Index: i, Of: len(patches), Patch: p.Name, Subject: p.Subject}
	e.Err = &PatchError{Base: at, Tried: []Try{{Name: p.Name, Applied: &reject}}}
	if e.InSeries, err = ix.fits(ctx, p, true, 0); err != nil {
		return err
	}
	if e.InSeries {
		if e.InBase, err = s.inBase(ctx, p); err != nil {
			return err
		}
		e.InSeries = !e.InBase
		return e
	}
	args := append(applyArgs(false, 0), "--ignore-whitespace", "--check", "-")
	e.Damaged = ix.git(ctx, small, p.Data, nil, args...) == nil
	return e
}

// inBase reports whether a patch can be taken out of the base of the stack.
func (s *stack) inBase(ctx context.Context, p Patch) (bool, error) {
	ix, err := newIndex(ctx, s.ix.repo, s.ix.base, []Patch{p})
	if err != nil {
		return false, err
	}
	defer ix.close()
	return ix.fits(ctx, p, true, 0)
}

// entries reads the index of touched files.
func (ix *index) entries(ctx context.Context) (map[string]entry, error) {
	var out bytes.Buffer
	if err := ix.git(ctx, small, nil, &out, "ls-files", "--stage", "-z"); err != nil {
		return nil, err
	}
	all := map[string]entry{}
	for line := range strings.SplitSeq(strings.TrimSuffix(out.String(), "\x00"), "\x00") {
		if line == "" {
			continue
		}
		// "100644 ID 0\tNAME"
		about, name, _ := strings.Cut(line, "\t")
		f := strings.Fields(about)
		if len(f) != 3 || name == "" {
			return nil, fmt.Errorf("read index: %q is no entry", line)
		}
		all[name] = entry{mode: f[0], id: f[1]}
	}
	return all, nil
}
