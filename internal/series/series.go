package series

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// ReadSeries reads an ordered series of patches. args are the files that were
// given for it:
//
//   - one file: an mbox (also .gz), one mail, or one patch; see ReadMailbox;
//   - one folder: a quilt series if it has a "series" file, or patches/series; a
//     maildir; else its *.patch and *.diff files, in the order of their names, the
//     numbers in which count as numbers;
//   - several files, in the order given; if one of them holds several mails, all
//     are one mailbox.
//
// Warnings about the whole are in the first patch's. What was read and cannot be
// used is a *ParseError.
func ReadSeries(args []string) ([]Patch, error) {
	box, err := readArgs(args)
	if err != nil {
		return nil, err
	}
	if len(box.Patches) == 0 {
		return nil, fmt.Errorf("read series: no patch in %s", strings.Join(args, ", "))
	}
	if len(box.Patches) > MaxSeries {
		return nil, fmt.Errorf("read series: %d patches, and at most %d are read", len(box.Patches), MaxSeries)
	}
	first := &box.Patches[0]
	first.Warnings = slices.Concat(box.Warnings, first.Warnings)
	return box.Patches, nil
}

// ReadMailbox reads the series in an mbox, a mail or a patch file, which may be
// in gzip, and says what else was in it. Cover letters, replies and mails without
// a diff are skipped; the rest is put in the order of the numbers in its
// subjects; of several versions the newest complete one is taken. Gaps and
// doubles are errors.
func ReadMailbox(file string) (Mailbox, error) {
	data, err := readFile(file)
	if err != nil {
		return Mailbox{}, err
	}
	mails, err := readMails(file, data)
	if err != nil {
		return Mailbox{}, err
	}
	if mails == nil {
		return plain(file, data)
	}
	return choose(file, mails)
}

// readMails returns nil for what is no mail.
func readMails(file string, data []byte) ([]Mail, error) {
	head, _ := endInLF(data[:min(len(data), maxHeader)])
	if !isMail([]byte(strings.TrimLeft(strings.TrimPrefix(string(head), "\ufeff"), " \t\r\n"))) {
		return nil, nil
	}
	return Mails(file, data, MailOptions{})
}

func plain(file string, data []byte) (Mailbox, error) {
	p, err := Parse(file, data)
	if err != nil {
		return Mailbox{}, err
	}
	return Mailbox{Patches: []Patch{p}}, nil
}

func readArgs(args []string) (Mailbox, error) {
	switch len(args) {
	case 0:
		return Mailbox{}, errors.New("read series: no file given")
	case 1:
		info, err := os.Stat(args[0])
		if err != nil {
			return Mailbox{}, fmt.Errorf("read series: %w", err)
		}
		if info.IsDir() {
			return readFolder(args[0])
		}
		return ReadMailbox(args[0])
	}
	files, err := readFiles(args)
	if err != nil {
		return Mailbox{}, err
	}
	if slices.ContainsFunc(files, func(f content) bool { return len(f.mails) > 1 }) {
		return pool(args[0]+" and others", files)
	}
	return inOrder(files)
}

// content is a file that was read: its mails, or its one plain patch.
type content struct {
	name  string
	mails []Mail
	plain Mailbox
}

// readFiles reads files of which each is a patch, a mail or an mbox.
func readFiles(names []string) ([]content, error) {
	if len(names) > MaxSeries {
		return nil, fmt.Errorf("read series: %d files, and at most %d are read", len(names), MaxSeries)
	}
	var files []content
	total := 0
	for _, name := range names {
		data, err := readFile(name)
		if err != nil {
			return nil, err
		}
		if total += len(data); total > MaxMailbox {
			return nil, fmt.Errorf("read series: its files are larger than %d MiB together", MaxMailbox>>20)
		}
		f := content{name: name}
		if f.mails, err = readMails(name, data); err != nil {
			return nil, err
		}
		if f.mails == nil {
			if f.plain, err = plain(name, data); err != nil {
				return nil, err
			}
		}
		files = append(files, f)
	}
	return files, nil
}

// inOrder takes one patch of each file, in their order, and none of a cover
// letter. That the numbers in the subjects say something else is a warning: the
// order was chosen by whoever named the files.
func inOrder(files []content) (Mailbox, error) {
	var box Mailbox
	var last Tag
	given := map[int]bool{}
	for _, f := range files {
		if f.mails == nil {
			box.Patches = append(box.Patches, f.plain.Patches...)
			continue
		}
		m := f.mails[0]
		m.Number = 0
		tag := ParseTag(m.Subject())
		if tag.Of > 0 && tag.N == 0 || !m.HasDiff() {
			box.Skipped = append(box.Skipped, f.name+": a cover letter, or no patch")
			continue
		}
		p, err := m.Patch(f.name)
		if err != nil {
			return box, err
		}
		if tag.Of > 0 && tag.Of == last.Of && tag.N <= last.N {
			box.Warnings = append(box.Warnings, fmt.Sprintf("%s: it is %d of %d by its subject and comes after %d; the order of the files is kept", f.name, tag.N, tag.Of, last.N))
		}
		last, given[tag.N] = tag, true
		box.Patches = append(box.Patches, p)
	}
	// As many as there are files: else they are of several series, or of none.
	if n := len(box.Patches); len(given) == n && n < last.Of && last.Of <= MaxSeries {
		box.Warnings = append(box.Warnings, fmt.Sprintf("%s: %d of the %d patches of its series are given", files[0].name, n, last.Of))
	}
	return box, nil
}

// pool takes the mails of all files as one mailbox.
func pool(name string, files []content) (Mailbox, error) {
	var all []Mail
	for _, f := range files {
		if f.mails == nil {
			return Mailbox{}, fmt.Errorf("read series: %q is a patch without a mail's header, among files that hold several mails: give them apart", f.name)
		}
		for _, m := range f.mails {
			m.Number = len(all) + 1
			all = append(all, m)
		}
	}
	if len(all) > MaxSeries {
		return Mailbox{}, fmt.Errorf("read series: it holds more than %d mails", MaxSeries)
	}
	return choose(name, all)
}

// readFolder reads what a folder is: a quilt series, a maildir, or patch files.
func readFolder(dir string) (Mailbox, error) {
	for _, sub := range []string{"", "patches"} {
		list := filepath.Join(dir, sub, "series")
		if info, err := os.Stat(list); err == nil && info.Mode().IsRegular() {
			return readQuilt(list)
		}
	}
	if isFolder(filepath.Join(dir, "cur")) && isFolder(filepath.Join(dir, "new")) {
		return readMaildir(dir)
	}
	names, err := listFolder(dir, func(name string) bool {
		return strings.HasSuffix(name, ".patch") || strings.HasSuffix(name, ".diff")
	})
	if err != nil {
		return Mailbox{}, err
	}
	if len(names) == 0 {
		return Mailbox{}, fmt.Errorf("read series: no *.patch, no *.diff and no quilt series in %q: name its files, or an mbox", dir)
	}
	files, err := readFiles(names)
	if err != nil {
		return Mailbox{}, err
	}
	return folderOrder(dir, files)
}

// folderOrder puts patch files in order. git format-patch -v2 writes its files
// beside those of v1: then they are sorted out as mails are.
func folderOrder(dir string, files []content) (Mailbox, error) {
	releases := map[release]bool{}
	for _, f := range files {
		if len(f.mails) > 1 {
			return Mailbox{}, fmt.Errorf("read series: %q holds %d mails, and a file of a folder is one patch: give it alone", f.name, len(f.mails))
		}
		if f.mails == nil {
			return inOrder(files)
		}
		releases[ParseTag(f.mails[0].Subject()).release()] = true
	}
	if len(releases) > 1 {
		return pool(dir, files)
	}
	return inOrder(files)
}

func isFolder(name string) bool {
	info, err := os.Stat(name)
	return err == nil && info.IsDir()
}

// listFolder returns the paths of the files in a folder that are wanted, in the
// order of their names.
func listFolder(dir string, wanted func(name string) bool) ([]string, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, fmt.Errorf("read series: %w", err)
	}
	var names []string
	for _, e := range entries {
		if name := e.Name(); !e.IsDir() && !strings.HasPrefix(name, ".") && wanted(name) {
			names = append(names, filepath.Join(dir, name))
		}
	}
	slices.SortFunc(names, compareNames)
	return names, nil
}

// readMaildir reads each file of cur and new as one mail.
func readMaildir(dir string) (Mailbox, error) {
	names, _, err := MaildirFiles(dir)
	if err != nil {
		return Mailbox{}, err
	}
	if len(names) == 0 {
		return Mailbox{}, fmt.Errorf("read series: the maildir %q is empty", dir)
	}
	files, err := readFiles(names)
	if err != nil {
		return Mailbox{}, err
	}
	return pool(dir, files)
}

// compareNames orders names as people number them: 2-x before 10-x.
func compareNames(a, b string) int {
	for a != "" && b != "" {
		x, y := leadingDigits(a), leadingDigits(b)
		if x == 0 || y == 0 {
			if a[0] != b[0] {
				return cmp.Compare(a[0], b[0])
			}
			a, b = a[1:], b[1:]
			continue
		}
		m, n := strings.TrimLeft(a[:x], "0"), strings.TrimLeft(b[:y], "0")
		// As numbers of any length; then 1 before 01, so that the order is total.
		if c := cmp.Or(cmp.Compare(len(m), len(n)), strings.Compare(m, n), cmp.Compare(x, y)); c != 0 {
			return c
		}
		a, b = a[x:], b[y:]
	}
	return cmp.Compare(len(a), len(b))
}

func leadingDigits(s string) int {
	return len(s) - len(strings.TrimLeft(s, "0123456789"))
}
