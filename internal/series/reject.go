package series

import (
	"context"
	"errors"
	"slices"
	"strings"

	"github.com/bluekeyes/go-gitdiff/gitdiff"

	"github.com/kbisect/kbisect/internal/gitx"
)

// reject finds the first hunk of a patch that does not fit the index. git says
// so too, but in English.
func (ix *index) reject(ctx context.Context, p Patch, reverse bool) (Reject, error) {
	for _, f := range p.files {
		name := sourceName(f, reverse)
		creates := f.IsNew && !reverse || f.IsDelete && reverse
		if creates {
			name = targetName(f, reverse)
		}
		content, err := ix.lines(ctx, name)
		missing := errors.As(err, new(*gitx.UnknownRevisionError))
		switch {
		case err != nil && !missing:
			return Reject{}, err
		case creates && !missing:
			return Reject{File: name, Reason: "the file exists already"}, nil
		case creates:
			continue
		case missing:
			return Reject{File: name, Reason: "no such file (paths need one folder before them, as in a/net/core/dev.c)"}, nil
		}
		for _, h := range f.TextFragments {
			if len(places(content, want(h, reverse, 0))) == 0 {
				return Reject{File: name, Line: position(h, reverse), Reason: "the lines are not there"}, nil
			}
		}
	}
	// Each hunk has a place, but not all of them together, or it is not text.
	f := p.files[0]
	r := Reject{File: sourceName(f, reverse), Reason: "git refuses it"}
	if r.File == "" {
		r.File = targetName(f, reverse)
	}
	if len(f.TextFragments) > 0 {
		r.Line = position(f.TextFragments[0], reverse)
	}
	return r, nil
}

// sourceName is the file that a patch reads.
func sourceName(f *gitdiff.File, reverse bool) string {
	if reverse {
		return f.NewName
	}
	return f.OldName
}

// targetName is the file that a patch writes.
func targetName(f *gitdiff.File, reverse bool) string { return sourceName(f, !reverse) }

func position(h *gitdiff.TextFragment, reverse bool) int64 {
	if reverse {
		return h.NewPosition
	}
	return h.OldPosition
}

// lines returns a file of the index, each line with its end.
func (ix *index) lines(ctx context.Context, name string) ([]string, error) {
	if name == "" {
		return nil, nil // made by the patch
	}
	text, err := ix.repo.ReadFile(ctx, ix.base, name, MaxPatch)
	if err != nil {
		return nil, err
	}
	return strings.SplitAfter(text, "\n"), nil
}

// want returns the lines a hunk expects to find: its context and what it takes
// away. keep, unless 0, is the number of context lines left at each end.
func want(h *gitdiff.TextFragment, reverse bool, keep int) []string {
	gone := gitdiff.OpDelete
	if reverse {
		gone = gitdiff.OpAdd
	}
	lines := h.Lines
	if keep > 0 {
		lines = lines[max(0, int(h.LeadingContext)-keep) : len(lines)-max(0, int(h.TrailingContext)-keep)]
	}
	var list []string
	for _, l := range lines {
		if l.Op == gitdiff.OpContext || l.Op == gone {
			list = append(list, l.Line)
		}
	}
	return list
}

// places returns every index at which want stands in content.
func places(content, want []string) []int {
	var at []int
	for i := 0; i+len(want) <= len(content); i++ {
		if slices.Equal(content[i:i+len(want)], want) {
			at = append(at, i)
		}
	}
	return at
}
