package series

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/kbisect/kbisect/internal/gitx"
)

// How says how a pair of commits came about.
type How string

// The ways of DESIGN decision 6.
const (
	Reverted How = "reverted" // the base has the patch: without is the base minus it
	Applied  How = "applied"  // the base lacks the patch: with is the base plus it
)

// Pair is a kernel with and without a patch. One of the two is the base itself.
type Pair struct {
	With, Without string // commit ids
	Patch         Patch  // the variant that fitted
	How           How
	Warnings      []string
}

// Reject is where a patch did not fit in one direction.
type Reject struct {
	File   string
	Line   int64 // of the hunk, as the patch counts
	Reason string
}

func (r Reject) String() string {
	if r.Line == 0 {
		return fmt.Sprintf("%s: %s", r.File, r.Reason)
	}
	return fmt.Sprintf("%s:%d: %s", r.File, r.Line, r.Reason)
}

// Try is one patch that did not fit.
type Try struct {
	Name             string
	Applied, Reverse *Reject // nil when that direction was not tried
}

// PatchError says that no patch fits a commit.
type PatchError struct {
	Base  string
	Tried []Try
}

func (e *PatchError) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "no patch fits commit %.12s", e.Base)
	for _, t := range e.Tried {
		if t.Reverse != nil {
			fmt.Fprintf(&b, "\n  %s is not in the tree: %s", t.Name, t.Reverse)
		}
		if t.Applied != nil {
			fmt.Fprintf(&b, "\n  %s cannot be put in: %s", t.Name, t.Applied)
		}
	}
	b.WriteString("\nchoose another kernel, or write a variant of the patch for this one")
	return b.String()
}

// reducedContext is the number of context lines of the second attempt. git would
// take the first place where it fits; fits demands that there be only one.
const reducedContext = 1

// Apply puts a patch into a commit (or, with reverse, takes it out) and returns
// the commit that results: a child of base, of fixed author and date. It fails
// with a *PatchError if the patch does not fit with its full context.
func Apply(ctx context.Context, repo gitx.Repo, base string, p Patch, reverse bool) (string, error) {
	ix, err := newIndex(ctx, repo, base, []Patch{p})
	if err != nil {
		return "", err
	}
	defer ix.close()
	ok, err := ix.fits(ctx, p, reverse, 0)
	if err != nil {
		return "", err
	}
	if !ok {
		try := Try{Name: p.Name}
		reject, err := ix.reject(ctx, p, reverse)
		if err != nil {
			return "", err
		}
		if reverse {
			try.Reverse = &reject
		} else {
			try.Applied = &reject
		}
		return "", &PatchError{Base: ix.base, Tried: []Try{try}}
	}
	return ix.commit(ctx, p, reverse, 0)
}

// WithWithout makes the two kernels of a comparison from a base and the variants
// of one patch, the preferred one first. If a variant can be taken out of the
// base, the base has the patch; else if one can be put in, the base lacks it.
// Taking out is tried for all of them before any is put in, so that a variant
// for another kernel is not added on top of the fix that is there. Only when
// none fits with its full context are they tried with one line of it, and then
// only where every hunk has a single place.
//
// The error is a *PatchError when none fits.
func WithWithout(ctx context.Context, repo gitx.Repo, base string, variants []Patch) (Pair, error) {
	if len(variants) == 0 {
		return Pair{}, errors.New("no patch given")
	}
	ix, err := newIndex(ctx, repo, base, variants)
	if err != nil {
		return Pair{}, err
	}
	defer ix.close()
	for _, lines := range []int{0, reducedContext} {
		for _, reverse := range []bool{true, false} {
			for _, p := range variants {
				ok, err := ix.fits(ctx, p, reverse, lines)
				if err != nil {
					return Pair{}, err
				}
				if ok {
					return ix.pair(ctx, p, reverse, lines)
				}
			}
		}
	}
	return Pair{}, ix.refuse(ctx, variants)
}

// pair makes the result of a patch that fits.
func (ix *index) pair(ctx context.Context, p Patch, reverse bool, lines int) (Pair, error) {
	pair := Pair{Patch: p, Warnings: slices.Clone(p.Warnings)}
	if lines > 0 {
		pair.Warnings = append(pair.Warnings, fmt.Sprintf("%s fits only with its context cut to %d line: look at the diff of the two kernels", p.Name, lines))
	}
	if reverse {
		both, err := ix.fits(ctx, p, false, lines)
		if err != nil {
			return Pair{}, err
		}
		if both {
			pair.Warnings = append(pair.Warnings, fmt.Sprintf("%s can be taken out of the tree and put in once more: taken to be in it", p.Name))
		}
	}
	made, err := ix.commit(ctx, p, reverse, lines)
	if err != nil {
		return Pair{}, err
	}
	pair.With, pair.Without, pair.How = made, ix.base, Applied
	if reverse {
		pair.With, pair.Without, pair.How = ix.base, made, Reverted
	}
	return pair, nil
}

// refuse explains why none of the variants fits.
func (ix *index) refuse(ctx context.Context, variants []Patch) error {
	e := &PatchError{Base: ix.base}
	for _, p := range variants {
		back, err := ix.reject(ctx, p, true)
		if err != nil {
			return err
		}
		forth, err := ix.reject(ctx, p, false)
		if err != nil {
			return err
		}
		e.Tried = append(e.Tried, Try{Name: p.Name, Reverse: &back, Applied: &forth})
	}
	return e
}

// index is a pair of private index files of a base commit: a small one, with
// the files that the patches touch, to try on, and a whole one, made when it is
// known what to do. Reading and writing 80,000 entries for every attempt would
// be most of the time.
type index struct {
	repo gitx.Repo
	base string // full id
	dir  string
}

// The two index files.
const (
	small = "small"
	whole = "whole"
)

// scratchName is the folder, in the repository, that private indexes are in.
const scratchName = "kbisect-index"

func newIndex(ctx context.Context, repo gitx.Repo, base string, patches []Patch) (*index, error) {
	id, err := repo.ResolveCommit(ctx, base)
	if err != nil {
		return nil, err
	}
	parent := filepath.Join(repo.Dir, scratchName)
	if err := os.MkdirAll(parent, 0o755); err != nil {
		return nil, fmt.Errorf("make index: %w", err)
	}
	sweep(parent)
	dir, err := os.MkdirTemp(parent, "")
	if err != nil {
		return nil, fmt.Errorf("make index: %w", err)
	}
	ix := &index{repo: repo, base: id, dir: dir}
	if err := ix.fillSmall(ctx, patches); err != nil {
		ix.close()
		return nil, err
	}
	return ix, nil
}

// fillSmall enters the touched files that the base has.
func (ix *index) fillSmall(ctx context.Context, patches []Patch) error {
	var entries strings.Builder
	for chunk := range slices.Chunk(allFiles(patches), maxNames) {
		out, err := ix.repo.Output(ctx, append([]string{"--literal-pathspecs", "ls-tree", "-z", "--full-tree", ix.base, "--"}, chunk...)...)
		if err != nil {
			return err
		}
		// The form of ls-tree is one that update-index reads. A folder where a patch
		// has a file is no entry.
		for e := range strings.SplitAfterSeq(out, "\x00") {
			if strings.HasPrefix(e, "1") {
				entries.WriteString(e)
			}
		}
	}
	return ix.git(ctx, small, []byte(entries.String()), nil, "update-index", "-z", "--index-info")
}

// allFiles returns the files that patches touch, sorted.
func allFiles(patches []Patch) []string {
	var names []string
	for _, p := range patches {
		names = append(names, p.Files...)
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// maxNames is how many paths one git command is given: at 4 KiB each they are
// less than the 2 MiB a command line has room for.
const maxNames = 400

// sweep removes what a process that was killed left. A patch takes a second.
func sweep(parent string) {
	entries, _ := os.ReadDir(parent)
	for _, e := range entries {
		if info, err := e.Info(); err == nil && time.Since(info.ModTime()) > time.Hour {
			_ = os.RemoveAll(filepath.Join(parent, e.Name()))
		}
	}
}

func (ix *index) close() { _ = os.RemoveAll(ix.dir) }

// git runs git on one of the private index files.
func (ix *index) git(ctx context.Context, file string, stdin []byte, out *bytes.Buffer, args ...string) error {
	c := gitx.Command{Args: args, Env: []string{"GIT_INDEX_FILE=" + filepath.Join(ix.dir, file)}, Stdin: bytes.NewReader(stdin)}
	if out != nil {
		c.Stdout = out
	}
	return ix.repo.Do(ctx, c)
}

func applyArgs(reverse bool, lines int) []string {
	// --unidiff-zero is not given: a patch without context could land anywhere.
	args := []string{"apply", "--cached", "-p1", "--whitespace=nowarn"}
	if reverse {
		args = append(args, "--reverse")
	}
	if lines > 0 {
		args = append(args, fmt.Sprintf("-C%d", lines))
	}
	return args
}

// fits reports whether a patch fits the base. lines is the context that must
// match, 0 for all of it. Nothing is changed.
func (ix *index) fits(ctx context.Context, p Patch, reverse bool, lines int) (bool, error) {
	err := ix.git(ctx, small, p.Data, nil, append(applyArgs(reverse, lines), "--check", "-")...)
	var e *gitx.Error
	if errors.As(err, &e) && e.ExitCode == 1 {
		return false, nil // 1 is "does not apply"; 128 is a patch git cannot read
	}
	if err != nil || lines == 0 {
		return err == nil, err
	}
	for _, f := range p.files {
		content, err := ix.lines(ctx, sourceName(f, reverse))
		if err != nil {
			return false, err
		}
		for _, h := range f.TextFragments {
			if len(places(content, want(h, reverse, lines))) != 1 {
				return false, nil
			}
		}
	}
	return true, nil
}

// commit applies a patch that fits and commits the result.
func (ix *index) commit(ctx context.Context, p Patch, reverse bool, lines int) (string, error) {
	if err := ix.git(ctx, whole, nil, nil, "read-tree", ix.base); err != nil {
		return "", err
	}
	if err := ix.git(ctx, whole, p.Data, nil, append(applyArgs(reverse, lines), "-")...); err != nil {
		return "", err
	}
	var out bytes.Buffer
	if err := ix.git(ctx, whole, nil, &out, "write-tree"); err != nil {
		return "", err
	}
	tree := strings.TrimSpace(out.String())
	if err := ix.checkChange(ctx, p, tree); err != nil {
		return "", err
	}
	message := p.Subject + "\n"
	if reverse {
		message = fmt.Sprintf("Revert %q\n", p.Subject)
	}
	return ix.repo.CommitTree(ctx, tree, message, ix.base)
}

// checkChange makes sure that git changed what the patch was read to change, and
// something.
func (ix *index) checkChange(ctx context.Context, p Patch, tree string) error {
	out, err := ix.repo.Output(ctx, "diff-tree", "-r", "-z", "--name-only", "--no-renames", ix.base, tree)
	if err != nil {
		return err
	}
	if out == "" {
		return &ParseError{Name: p.Name, Err: errors.New("it changes nothing")}
	}
	for _, name := range strings.Split(strings.TrimSuffix(out, "\x00"), "\x00") {
		if !slices.Contains(p.Files, name) {
			return &ParseError{Name: p.Name, Err: fmt.Errorf("git changes %q, which was not seen in it", name)}
		}
	}
	return nil
}
