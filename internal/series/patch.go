// Package series treats patches as data: it reads them, and puts them into or
// takes them out of a commit, without a work tree.
//
//	p, err := series.Read("fix.patch")
//	pair, err := series.WithWithout(ctx, repo, base, []series.Patch{p})
//	// pair.With and pair.Without are commits, ready to be built
//
// A series is read from mails, folders or a git range, and is put on a base:
//
//	patches, err := series.ReadSeries([]string{"thread.mbox.gz"})
//	commits, err := series.Stack(ctx, repo, base, patches)
//	// commits[i] is the base with patches[0] to patches[i]
//
// Mails are read as git am reads them, but for these: cover letters and replies
// are skipped, the numbers in subjects give the order, CRLF inside an encoding is
// no obstacle, and HTML is no text.
//
// All of it happens on git objects, through an index file of its own: nothing
// is checked out, and a commit's id depends only on its base and its patch.
package series

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/textproto"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode"

	"github.com/bluekeyes/go-gitdiff/gitdiff"
)

// MaxPatch is the largest patch that is read, in bytes.
const MaxPatch = 16 << 20

// Patch is one patch that was read and checked. It is a value; nothing changes
// its slices.
type Patch struct {
	Name     string   // where it came from, for messages
	Subject  string   // without "[PATCH ...]"; the file's name when it has none
	Data     []byte   // what git apply is given
	Files    []string // every path it touches, old and new, sorted
	Warnings []string // what had to be repaired to read it

	files []*gitdiff.File
}

// ParseError says why something is no patch that can be used.
type ParseError struct {
	Name string
	Err  error
}

func (e *ParseError) Error() string { return fmt.Sprintf("read patch %q: %v", e.Name, e.Err) }
func (e *ParseError) Unwrap() error { return e.Err }

// Read reads a patch file. Failures to understand it are *ParseError.
func Read(file string) (Patch, error) {
	f, err := os.Open(file)
	if err != nil {
		return Patch{}, fmt.Errorf("read patch: %w", err)
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, MaxPatch+1))
	if err != nil {
		return Patch{}, fmt.Errorf("read patch %q: %w", file, err)
	}
	return Parse(file, data)
}

// Parse reads one patch: a diff, with or without the header of a mail or of
// git format-patch. The error is a *ParseError.
func Parse(name string, data []byte) (Patch, error) {
	p := Patch{Name: name}
	if err := p.parse(data); err != nil {
		return Patch{}, &ParseError{Name: name, Err: err}
	}
	return p, nil
}

func (p *Patch) parse(data []byte) error {
	if len(data) > MaxPatch {
		return fmt.Errorf("larger than %d MiB", MaxPatch>>20)
	}
	if bytes.HasPrefix(data, []byte("\xff\xfe")) || bytes.HasPrefix(data, []byte("\xfe\xff")) {
		return errors.New("it is in UTF-16, as some shells write what goes to a file: make it again as UTF-8 (git diff --output=FILE)")
	}
	data = bytes.TrimPrefix(data, []byte("\ufeff"))
	trimmed := bytes.TrimLeft(data, " \t\r\n")
	if plain, _ := endInLF(trimmed); isMail(plain) {
		m, err := parseMail(1, 1+bytes.Count(data[:len(data)-len(trimmed)], []byte("\n")), trimmed)
		if err != nil {
			return err
		}
		if n := len(mailStart.FindAllIndex(plain, -1)); n > 1 {
			return severalError(n)
		}
		return p.fromMail(m)
	}
	return p.parseDiff(p.normalise(data), place{line: 1, of: "line"})
}

func severalError(n int) error {
	return fmt.Errorf("it holds %d patches and one is wanted: split it (git mailsplit -o. FILE)", n)
}

// place is where in a file a diff begins. of says what is counted.
type place struct {
	line int
	of   string
}

// parseDiff reads the diff itself, with or without something before it, and
// makes it the patch's data.
func (p *Patch) parseDiff(data []byte, at place) error {
	if n := len(mailStart.FindAllIndex(data, -1)); n > 1 {
		return severalError(n)
	}
	if n := len(logStart.FindAllIndex(data, -1)); n > 1 {
		return fmt.Errorf("it is a log of %d commits and one patch is wanted: make it with git format-patch", n)
	}
	if at, ok := combinedDiff(data, at); ok {
		return fmt.Errorf("%s: it is the combined diff of a merge, which cannot be applied: give the merge's commits (git format-patch FIRST..MERGE), or its diff to one parent (git diff MERGE^1 MERGE)", at)
	}
	data, bare, err := addPrefixes(data)
	if err != nil {
		return err
	}
	if bare {
		p.Warnings = append(p.Warnings, p.Name+": its names have no a/ and b/ before them, as diff.noprefix makes them; read as if they had")
	}
	files, preamble, err := gitdiff.Parse(bytes.NewReader(data))
	if err != nil {
		return fmt.Errorf("%s: is it complete, and did no mailer wrap its lines or turn its tabs into spaces?", at.shift(err))
	}
	if len(files) == 0 {
		return ErrNoDiff
	}
	if err := stripPlain(files, len(gitHeader.FindAllIndex(data, -1))); err != nil {
		return err
	}
	p.files, p.Data = files, data
	if p.Subject == "" {
		p.Subject = subject(preamble)
	}
	if p.Subject == "" {
		p.Subject = filepath.Base(p.Name)
	}
	return p.listFiles()
}

// libraryLine is how gitdiff says where in what it was given something is wrong.
var libraryLine = regexp.MustCompile(`^gitdiff: line (\d+): `)

// shift says where in the file it is.
func (at place) shift(err error) string {
	text := err.Error()
	m := libraryLine.FindStringSubmatch(text)
	if m == nil {
		return text
	}
	n, err := strconv.Atoi(m[1])
	if err != nil {
		return text
	}
	return fmt.Sprintf("%s %d: %s", at.of, at.line+n-1, text[len(m[0]):])
}

// mergeHeader is how git begins the diff of a merge to all of its parents, and
// mergeHunk a hunk of one: with an "@" more than there are parents.
var (
	mergeHeader = regexp.MustCompile(`(?m)^diff --(?:cc|combined) `)
	mergeHunk   = regexp.MustCompile(`(?m)^@@@+ -[0-9]`)
)

// combinedDiff says where in a file a merge's diff begins. git apply takes it for
// text between diffs, and applies the rest without a word.
func combinedDiff(data []byte, at place) (string, bool) {
	header := mergeHeader.FindIndex(data)
	if header == nil || !mergeHunk.Match(data[header[1]:]) {
		return "", false
	}
	return fmt.Sprintf("%s %d", at.of, at.line+bytes.Count(data[:header[0]], []byte("\n"))), true
}

// gitHeader is the line git begins the diff of each file with.
var gitHeader = regexp.MustCompile(`(?m)^diff --git `)

// stripPlain removes the first part of the names of a plain diff (a/ and b/), as
// git apply -p1 does; gitdiff does so only for git's own diffs. headers is how
// many of those there are.
func stripPlain(files []*gitdiff.File, headers int) error {
	if headers >= len(files) {
		return nil
	}
	if headers > 0 {
		return errors.New("it mixes git's diffs with plain ones: make it again with git diff")
	}
	for _, f := range files {
		for _, name := range []*string{&f.OldName, &f.NewName} {
			if *name == "" {
				continue
			}
			first, rest, ok := strings.Cut(*name, "/")
			if ok && first == "" {
				return fmt.Errorf("refused path %q: it must lie inside the tree", *name)
			}
			if !ok || rest == "" {
				return fmt.Errorf("the name %q has no folder before it: make it with diff -u a/FILE b/FILE at the top of the tree", *name)
			}
			*name = rest
		}
	}
	return nil
}

// mailStart is the line git format-patch begins a patch with.
var mailStart = regexp.MustCompile(`(?m)^From [0-9a-f]{40,64} Mon Sep 17 00:00:00 2001$`)

// logStart is the line git log begins a commit with.
var logStart = regexp.MustCompile(`(?m)^commit [0-9a-f]{40,64}( \(.*\))?\nAuthor: `)

// crlfHeader is a line of the diff's own frame that ends in CR: the file went
// through something that ends lines with CRLF. A patch of a file that has CRLF
// itself has them in its hunks only.
var crlfHeader = regexp.MustCompile(`(?m)^(diff --git |--- |\+\+\+ |@@ -|Subject: |From ).*\r$`)

func (p *Patch) normalise(data []byte) []byte {
	data, changed := endInLF(data)
	if changed {
		p.Warnings = append(p.Warnings, fmt.Sprintf("%s: its lines end in CRLF; read as if they ended in LF", p.Name))
	}
	return data
}

// mailHeader returns a header field, unfolded, "" if it is not there.
func mailHeader(head, name string) string {
	var value strings.Builder
	in := false
	for line := range strings.Lines(head) {
		if line == "\n" {
			break
		}
		if in && (line[0] == ' ' || line[0] == '\t') {
			value.WriteByte(' ')
			value.WriteString(strings.TrimSpace(line))
			continue
		}
		if in {
			break
		}
		field, v, ok := strings.Cut(line, ":")
		if in = ok && textproto.CanonicalMIMEHeaderKey(field) == name; in {
			value.WriteString(strings.TrimSpace(v))
		}
	}
	return value.String()
}

// bracket is what git format-patch and mailers put before a subject.
var bracket = regexp.MustCompile(`(?i)^\s*((re|fwd?)\s*:|\[[^\]]*\])\s*`)

// subject returns the title in what stands before the diff: a mail's subject,
// the title of `git show`, or nothing.
func subject(preamble string) string {
	// A bound, because what follows looks at it again for every bracket it takes off.
	preamble = preamble[:min(len(preamble), 16<<10)]
	s := mailHeader(preamble, "Subject")
	if s == "" {
		if h, err := gitdiff.ParsePatchHeader(preamble); err == nil && h.SHA != "" {
			s = h.Title
		}
	}
	return cleanSubject(decodeHeader(s))
}

// cleanSubject takes off what mailers and git format-patch put before a title.
func cleanSubject(s string) string {
	for {
		at := bracket.FindStringIndex(s)
		if at == nil {
			break
		}
		s = s[at[1]:]
	}
	return oneLine(s)
}

// oneLine is s in valid UTF-8 and without what a commit's title cannot have, or
// what would do something to a terminal.
func oneLine(s string) string {
	s = strings.ToValidUTF8(strings.Join(strings.Fields(s), " "), "?")
	return strings.Map(func(r rune) rune {
		if unicode.IsControl(r) {
			return '?'
		}
		return r
	}, s)
}

// listFiles fills Files and refuses paths that are none of a kernel tree's.
func (p *Patch) listFiles() error {
	links := p.newLinks()
	for _, f := range p.files {
		if f.OldName == "" && f.NewName == "" {
			return errors.New("it changes a file that it does not name")
		}
		for _, name := range []string{f.OldName, f.NewName} {
			if name == "" {
				continue
			}
			if err := checkPath(name); err != nil {
				return err
			}
			for dir, _ := parent(name); dir != ""; dir, _ = parent(dir) {
				if links[dir] {
					return fmt.Errorf("refused path %q: the patch makes %q a symbolic link", name, dir)
				}
			}
			p.Files = append(p.Files, name)
		}
		if err := checkContext(f); err != nil {
			return err
		}
		if err := checkLink(f); err != nil {
			return err
		}
		const gitlink = 0o160000
		if f.OldMode&0o170000 == gitlink || f.NewMode&0o170000 == gitlink {
			return fmt.Errorf("%q is a submodule", f.NewName)
		}
	}
	slices.Sort(p.Files)
	p.Files = slices.Compact(p.Files)
	return nil
}

// checkContext refuses a hunk without a line of context or of the old file. git
// apply takes one that only adds lines, and puts them at the end of the file.
func checkContext(f *gitdiff.File) error {
	if f.IsNew || f.IsDelete || f.IsBinary {
		return nil
	}
	for i, h := range f.TextFragments {
		if h.LeadingContext+h.TrailingContext == 0 && h.LinesDeleted == 0 {
			return fmt.Errorf("hunk %d of %s has no context, so it could go anywhere: make the patch with at least one line (diff -U3)", i+1, f.NewName)
		}
	}
	return nil
}

// newLinks returns the names that are symbolic links after the patch.
func (p *Patch) newLinks() map[string]bool {
	links := map[string]bool{}
	for _, f := range p.files {
		if isNewLink(f) {
			links[f.NewName] = true
		}
	}
	return links
}

func isNewLink(f *gitdiff.File) bool {
	const kind, link = 0o170000, 0o120000
	mode := f.NewMode
	if mode == 0 { // it has not changed
		mode = f.OldMode
	}
	return !f.IsDelete && mode&kind == link
}

// checkLink refuses to make a symbolic link that leads out of the tree: what
// writes to the name then, a build for one, would write there. git looks at names
// only.
func checkLink(f *gitdiff.File) error {
	if !isNewLink(f) {
		return nil
	}
	if f.IsBinary {
		return fmt.Errorf("the symbolic link %q is written as a binary file: make the patch again with git diff", f.NewName)
	}
	var target strings.Builder
	for _, h := range f.TextFragments {
		for _, l := range h.Lines {
			if l.Op != gitdiff.OpDelete {
				target.WriteString(l.Line)
			}
		}
	}
	to := target.String()
	if end := path.Join(path.Dir(f.NewName), to); path.IsAbs(to) || end == ".." || strings.HasPrefix(end, "../") {
		return fmt.Errorf("refused symbolic link %q to %q: it must lie inside the tree", f.NewName, to)
	}
	return nil
}

// gitFolder is a name that is .git, on any file system git knows.
var gitFolder = regexp.MustCompile(`(?i)^(\.git|git~[0-9]+)([. ]*$|[:\\])`)

// maxPath is the longest name of a file that Linux takes, in bytes.
const maxPath = 4095

// checkPath refuses a path that leaves the tree or reaches into a .git folder.
// git apply refuses them as well; here the error comes before anything runs.
func checkPath(name string) error {
	if len(name) > maxPath {
		return fmt.Errorf("refused path %.100q...: it is %d bytes long", name, len(name))
	}
	bad := path.IsAbs(name) || strings.ContainsAny(name, "\x00\n")
	for _, part := range strings.Split(name, "/") {
		bad = bad || part == "" || part == "." || part == ".." || gitFolder.MatchString(part)
	}
	if bad {
		return fmt.Errorf("refused path %q: it must lie inside the tree", name)
	}
	return nil
}
