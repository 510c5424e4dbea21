package series

import (
	"bytes"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strings"
)

// This file is what package thread builds on: it wants every mail of a thread,
// replies too, where ReadSeries wants the patches of one series.

// ReadAll reads all of r, unpacked if it is in gzip: MaxMailbox bytes at most.
func ReadAll(r io.Reader) ([]byte, error) {
	data, err := readBounded(r)
	if err == nil && bytes.HasPrefix(data, []byte("\x1f\x8b")) {
		data, err = gunzip(data)
	}
	return data, err
}

// MaildirFiles returns the paths of the mails in a maildir, in the order of
// their names. ok is false if dir is not one.
func MaildirFiles(dir string) (names []string, ok bool, err error) {
	if !isFolder(filepath.Join(dir, "cur")) || !isFolder(filepath.Join(dir, "new")) {
		return nil, false, nil
	}
	for _, sub := range []string{"cur", "new"} {
		list, err := listFolder(filepath.Join(dir, sub), func(string) bool { return true })
		if err != nil {
			return nil, true, err
		}
		names = append(names, list...)
	}
	slices.SortStableFunc(names, func(a, b string) int { return compareNames(filepath.Base(a), filepath.Base(b)) })
	return names, true, nil
}

// IsMail reports whether data begins as a mail or an mbox does.
func IsMail(data []byte) bool {
	head, _ := endInLF(data[:min(len(data), maxHeader)])
	return isMail(bytes.TrimLeft(bytes.TrimPrefix(head, []byte("\ufeff")), " \t\r\n"))
}

// EachMail is Mails for a mailbox in which some mails are of no interest: those
// that cannot be read are in unread, each a *ParseError, and the others are
// returned all the same. err is about the mailbox as a whole.
func EachMail(name string, data []byte, o MailOptions) (mails []Mail, unread []error, err error) {
	raw, err := splitMbox(data)
	if err != nil {
		return nil, nil, &ParseError{Name: name, Err: err}
	}
	for i, r := range raw {
		if o.MboxRD {
			r.data = unquoteFrom(r.data)
		}
		m, err := parseMail(i+1, r.line, r.data)
		if err != nil {
			unread = append(unread, &ParseError{Name: name, Err: fmt.Errorf("%s: %w", m.title(), err)})
			continue
		}
		mails = append(mails, m)
	}
	return mails, unread, nil
}

// TextLine is a line of a mail's text.
type TextLine struct {
	Text string // in UTF-8, without its end
	Raw  []byte // the same before its charset was decoded; the mail's, not to be changed
	Line int    // of the file, from 1; 0 where an encoding moved the lines
}

// Lines returns what Text does, line by line, and at most limit lines.
func (m Mail) Lines(limit int) []TextLine {
	var list []TextLine
	for _, p := range m.parts {
		data, at := p.data, p.line
		if p.flowed {
			data, at = unflow(data, p.delSp), 0
		}
		for raw := range bytes.Lines(data) {
			if len(list) >= limit {
				return list
			}
			raw = bytes.TrimSuffix(raw, []byte("\n"))
			text, _ := toUTF8(p.charset, raw)
			list = append(list, TextLine{Text: text, Raw: raw, Line: at})
			if at > 0 {
				at++
			}
		}
	}
	return list
}

// ParseDiff reads a diff that was cut out of the file name, where it begins at
// line. The error is a *ParseError that counts lines as the file does.
func ParseDiff(name string, diff []byte, line int) (Patch, error) {
	p := Patch{Name: name}
	err := fmt.Errorf("larger than %d MiB", MaxPatch>>20)
	if len(diff) <= MaxPatch {
		err = p.parseDiff(diff, place{line: max(line, 1), of: "line"})
	}
	if err != nil {
		return Patch{}, &ParseError{Name: name, Err: err}
	}
	return p, nil
}

// CompareTags orders patches of one title by age: by their versions, where a
// RESEND is newer than what it repeats.
func CompareTags(a, b Tag) int { return compareReleases(a.release(), b.release()) }

// Title is a subject without what mailers and git format-patch put before it.
func Title(subject string) string { return cleanSubject(strings.TrimSpace(subject)) }
