package series

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"

	"github.com/kbisect/kbisect/internal/gitx"
)

// DamageError says what in a damaged diff cannot be repaired, and where.
type DamageError struct {
	Name string
	Line int // of the user's file, from 1
	Text string
}

func (e *DamageError) Error() string {
	return fmt.Sprintf("repair patch %q: line %d: %s", e.Name, e.Line, e.Text)
}

// Repair reads a diff whose white space was damaged on its way through a mailer
// or a web archive, and repairs it by the files of the tree at commit. firstLine
// is the line of the user's file, from 1, that data begins at.
//
// It returns the patch as Parse does, its Data a diff that git apply takes
// against that commit, forwards or in reverse, and one line for each repair made.
// A diff that fits as it stands is returned as Parse reads it, without a note.
//
// Repair only trusts what the tree says: the lines of one side of each hunk must
// be in the tree, compared without white space, at one place. What is not certain
// is a *DamageError; a path that leaves the tree is a *ParseError. It runs git
// and returns when ctx ends.
func Repair(ctx context.Context, repo gitx.Repo, commit, name string, data []byte, firstLine int) (Patch, []string, error) {
	if len(data) > MaxPatch {
		return Patch{}, nil, &ParseError{Name: name, Err: fmt.Errorf("larger than %d MiB", MaxPatch>>20)}
	}
	p, parseErr := Parse(name, data)
	if parseErr == nil {
		switch ok, err := fitsTree(ctx, repo, commit, p); {
		case err != nil:
			return Patch{}, nil, err
		case ok:
			return p, nil, nil
		}
	}
	var readErr error
	files := func(path string) ([]byte, bool) {
		if readErr != nil {
			return nil, false
		}
		text, err := readTree(ctx, repo, commit, path)
		readErr = err
		return text, text != nil
	}
	text, notes, err := repairText(files, name, data, firstLine)
	if err = cmp.Or(readErr, err); err != nil {
		return Patch{}, nil, err
	}
	p, err = verify(ctx, repo, commit, name, text, firstLine)
	if err != nil {
		return Patch{}, nil, err
	}
	if s := subjectBefore(data); s != "" {
		p.Subject = s
	}
	return p, notes, nil
}

// verify holds what was repaired against Parse and git: a repair that they do not
// take is none.
func verify(ctx context.Context, repo gitx.Repo, commit, name string, text []byte, line int) (Patch, error) {
	p, err := Parse(name, text)
	if err != nil {
		return Patch{}, &DamageError{Name: name, Line: line, Text: fmt.Sprintf("no diff comes out of its repair: %v", errors.Unwrap(err))}
	}
	ok, err := fitsTree(ctx, repo, commit, p)
	if err != nil {
		return Patch{}, err
	}
	if !ok {
		return Patch{}, &DamageError{Name: name, Line: line, Text: "its hunks are in the tree, but git does not apply it: get the patch from its author, or from the list's archive"}
	}
	return p, nil
}

// fitsTree reports whether git applies a patch to a commit, in either direction.
// A patch that git cannot even read does not fit.
func fitsTree(ctx context.Context, repo gitx.Repo, commit string, p Patch) (bool, error) {
	ix, err := newIndex(ctx, repo, commit, []Patch{p})
	if err != nil {
		return false, err
	}
	defer ix.close()
	for _, reverse := range []bool{false, true} {
		ok, err := ix.fits(ctx, p, reverse, 0)
		if e := new(gitx.Error); errors.As(err, &e) && e.ExitCode == 128 && ctx.Err() == nil {
			continue
		}
		if ok || err != nil {
			return ok, err
		}
	}
	return false, nil
}

// readTree returns a file of a commit, nil if it is not there.
func readTree(ctx context.Context, repo gitx.Repo, commit, path string) ([]byte, error) {
	text, err := repo.ReadFile(ctx, commit, path, MaxPatch+1)
	switch {
	case errors.As(err, new(*gitx.UnknownRevisionError)):
		return nil, nil
	case err != nil:
		return nil, err
	case len(text) > MaxPatch:
		return nil, fmt.Errorf("repair patch: %q is larger than %d MiB", path, MaxPatch>>20)
	}
	return append([]byte{}, text...), nil
}

// subjectBefore returns the title in what stands before the first diff.
func subjectBefore(data []byte) string {
	plain, _ := endInLF(data)
	message, _ := cutMessage(plain)
	if s := decodeHeader(mailHeader(bodyHeader(message), "Subject")); s != "" {
		return cleanSubject(s)
	}
	return subject(string(message))
}

// repairText is the part of Repair that needs no git. files gives the content of
// a file of the tree. The patch is matched as a whole: either it can be put in,
// and the old lines of all hunks are in the tree, or the tree has it, and all the
// new ones are.
func repairText(files func(path string) ([]byte, bool), name string, data []byte, firstLine int) ([]byte, []string, error) {
	d, err := readDamaged(name, data, firstLine)
	if err != nil {
		return nil, nil, err
	}
	r := &repairer{damaged: d, files: files, trees: map[string]*treeFile{}, budget: maxSteps + 8*len(d.lines)}
	lacks, forth := r.place(oldSide)
	has, back := r.place(newSide)
	switch {
	case absent(forth) && absent(back):
		return nil, nil, r.refuse(forth, back)
	case forth == nil && (absent(back) || r.named(lacks, forth) && !r.named(has, back)):
		return r.write(lacks)
	case back == nil && (absent(forth) || r.named(has, back) && !r.named(lacks, forth)):
		return r.write(has)
	case forth != nil && !absent(forth):
		return nil, nil, forth.damage(name)
	case back != nil && !absent(back):
		return nil, nil, back.damage(name)
	}
	return nil, nil, &DamageError{Name: name, Line: d.list[0].line, Text: "it fits the tree as a patch to be put in, and as one that is in already"}
}

// absent reports whether a side is not in the tree, rather than at several places.
func absent(e *placeError) bool { return e != nil && !e.certain }

// named reports whether a side has places in the functions that the headers of its
// hunks name. A patch that takes lines out often fits in reverse elsewhere too.
func (r *repairer) named(all []fixedFile, e *placeError) bool {
	if e != nil {
		return e.named
	}
	for _, f := range all {
		for k, h := range f.hunks {
			if f.tree == nil || !f.tree.inside(h.start, f.file.hunks[k].section) {
				return false
			}
		}
	}
	return true
}

// maxSteps bounds the steps that all hunks of a patch may take to find their
// places, beside some for each of its lines: about a second.
const maxSteps = 1 << 19

// side is the side of a diff that is looked for in the tree.
type side struct {
	own, free byte // the marks of its own lines, and of those the tree does not have
}

var (
	oldSide = side{own: '-', free: '+'}
	newSide = side{own: '+', free: '-'}
)

// repairer repairs one patch.
type repairer struct {
	*damaged
	files  func(path string) ([]byte, bool)
	trees  map[string]*treeFile
	budget int
}

// placeError says why a hunk has no place.
type placeError struct {
	line    int
	text    string
	side    string // "old" or "new" if its lines are not in the tree; text is the hunk then
	depth   int    // how much of the patch was placed before it, in lines
	certain bool   // it is in the tree, at more than one place
	named   bool   // one of them is in the function that the header names
}

func (e *placeError) damage(name string) error {
	return &DamageError{Name: name, Line: e.line, Text: e.text}
}

// refuse explains why neither side is in the tree, by the one that went further.
func (r *repairer) refuse(forth, back *placeError) error {
	first, second, which := forth, back, "new"
	if back.depth > forth.depth {
		first, second, which = back, forth, "old"
	}
	if first.side == "" {
		return first.damage(r.name)
	}
	text := fmt.Sprintf("the %s lines of %s are not in the tree from here on", first.side, first.text)
	if second.side != "" {
		text += fmt.Sprintf(", and the %s ones not from line %d on", which, second.line)
	}
	return &DamageError{Name: r.name, Line: first.line, Text: text + ": choose the kernel that the patch was made for"}
}

// fixedFile is a file of the patch whose hunks all have their places.
type fixedFile struct {
	file  *damagedFile
	side  side
	tree  *treeFile // nil: the tree does not have the file
	hunks []reading // one for each hunk of file
}

// place finds the places of all hunks by one side.
func (r *repairer) place(s side) ([]fixedFile, *placeError) {
	var all []fixedFile
	depth := 0
	for i := range r.list {
		f := &r.list[i]
		fixed := fixedFile{file: f, side: s}
		if f.verbatim != nil {
			all = append(all, fixed)
			continue
		}
		tree, err := r.treeOf(f, s)
		if err != nil {
			err.depth += depth
			return nil, err
		}
		fixed.tree = tree
		from, shift := 0, 0
		for k := range f.hunks {
			h := &f.hunks[k]
			got, err := r.placeHunk(f, h, tree, s, from, shift)
			if err != nil {
				err.depth += depth
				return nil, err
			}
			fixed.hunks = append(fixed.hunks, got)
			from, shift = got.end, got.start-h.start(s)
			depth += len(h.lines)
		}
		all = append(all, fixed)
	}
	return all, nil
}

// treeOf returns the file that one side of a patch is about. It is nil for a side
// that has no file: before it is made, or after it is deleted.
func (r *repairer) treeOf(f *damagedFile, s side) (*treeFile, *placeError) {
	name, other := f.oldName, f.newName
	if s == newSide {
		name, other = other, name
	}
	if name == "" {
		if r.tree(other) != nil {
			return nil, &placeError{line: f.line, text: fmt.Sprintf("%s is in the tree, and the patch fits neither as one that makes it nor as one that is in already", other)}
		}
		return nil, nil
	}
	t := r.tree(name)
	if t == nil && len(f.hunks) > 0 {
		return nil, &placeError{line: f.line, text: fmt.Sprintf("the tree has no %s: choose the kernel that the patch was made for", name)}
	}
	return t, nil
}

func (r *repairer) tree(path string) *treeFile {
	if t, ok := r.trees[path]; ok {
		return t
	}
	var t *treeFile
	if data, ok := r.files(path); ok && bytes.IndexByte(data, 0) < 0 {
		t = newTreeFile(string(data))
	}
	r.trees[path] = t
	return t
}
