package series

import (
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
)

// Bounds on what is read as a series.
const (
	MaxMailbox = 64 << 20 // bytes of a file, unpacked
	MaxSeries  = 1000     // mails or patches
)

// MailOptions changes how an mbox is split.
type MailOptions struct {
	// MboxRD takes off the ">" that an mboxrd (public-inbox, some mailers) has
	// before "From " and ">From " at the beginning of a line. No diff has such a line.
	MboxRD bool
}

// Mails reads the mails of an mbox, or the one mail that data is. name is for
// messages. A mail that cannot be read is an error that names it: a *ParseError.
func Mails(name string, data []byte, o MailOptions) ([]Mail, error) {
	raw, err := splitMbox(data)
	if err != nil {
		return nil, &ParseError{Name: name, Err: err}
	}
	list := make([]Mail, 0, len(raw))
	for i, r := range raw {
		if o.MboxRD {
			r.data = unquoteFrom(r.data)
		}
		m, err := parseMail(i+1, r.line, r.data)
		if err != nil {
			return nil, &ParseError{Name: name, Err: fmt.Errorf("%s: %w", m.title(), err)}
		}
		list = append(list, m)
	}
	return list, nil
}

// title names the mail in a message.
func (m Mail) title() string {
	if m.head == "" {
		return fmt.Sprintf("mail %d", m.Number)
	}
	return fmt.Sprintf("mail %d (%.100q)", m.Number, m.Subject())
}

// rawMail is a mail as it stands in an mbox.
type rawMail struct {
	line int // of the file, from 1
	data []byte
}

// splitMbox splits as git mailsplit does: at lines that begin with "From " and
// end in a date. Such a line in the middle of a message is no beginning for us
// unless a header follows. What does not begin with one is a single mail.
func splitMbox(data []byte) ([]rawMail, error) {
	data = bytes.TrimPrefix(data, []byte("\ufeff"))
	trimmed := bytes.TrimLeft(data, " \t\r\n")
	line := 1 + bytes.Count(data[:len(data)-len(trimmed)], []byte("\n"))
	data = trimmed
	first, _, _ := bytes.Cut(data, []byte("\n"))
	if !isFromLine(first) {
		return []rawMail{{line, data}}, nil
	}
	var list []rawMail
	start, begin := 0, line
	for at := 0; at < len(data); line++ {
		text, rest, _ := bytes.Cut(data[at:], []byte("\n"))
		if at > start && isFromLine(text) && beginsHeader(rest) {
			list = append(list, rawMail{begin, data[start:at]})
			start, begin = at, line
		}
		if len(list) >= MaxSeries {
			return nil, fmt.Errorf("it holds more than %d mails: split it", MaxSeries)
		}
		at = min(len(data), at+len(text)+1)
	}
	return append(list, rawMail{begin, data[start:]}), nil
}

// isFromLine reports whether a line is the one an mbox has before each mail:
// "From ", anything, "12:34", ":56", and a year.
func isFromLine(line []byte) bool {
	line = bytes.TrimRight(line, "\r\n")
	if len(line) < 19 || !bytes.HasPrefix(line, []byte("From ")) {
		return false
	}
	colon := bytes.LastIndexByte(line, ':')
	if colon < 9 || colon+3 > len(line) {
		return false
	}
	for _, d := range []int{-4, -2, -1, 1, 2} {
		if c := line[colon+d]; c < '0' || c > '9' {
			return false
		}
	}
	after := strings.TrimSpace(string(line[colon+3:]))
	if end := strings.IndexFunc(after, func(r rune) bool { return r < '0' || r > '9' }); end >= 0 {
		after = after[:end] // a time zone comes after the year, if at all
	}
	year, err := strconv.Atoi(after)
	return err == nil && year > 90
}

func beginsHeader(data []byte) bool {
	line, _, _ := bytes.Cut(data[:min(len(data), 1<<10)], []byte("\n"))
	return field.Match(line) || bytes.HasPrefix(line, []byte(">From "))
}

// unquoteFrom takes one ">" off every line of the form ">+From ".
func unquoteFrom(data []byte) []byte {
	out := make([]byte, 0, len(data))
	for line := range bytes.Lines(data) {
		if bare := bytes.TrimLeft(line, ">"); len(bare) < len(line) && bytes.HasPrefix(bare, []byte("From ")) {
			line = line[1:]
		}
		out = append(out, line...)
	}
	return out
}

// readFile reads a file, unpacked if it is in gzip.
func readFile(name string) ([]byte, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, fmt.Errorf("read series: %w", err)
	}
	defer f.Close()
	data, err := readBounded(f)
	if err == nil && bytes.HasPrefix(data, []byte("\x1f\x8b")) {
		data, err = gunzip(data)
	}
	if err != nil {
		return nil, fmt.Errorf("read series %q: %w", name, err)
	}
	return data, nil
}

func gunzip(data []byte) ([]byte, error) {
	z, err := gzip.NewReader(bytes.NewReader(data))
	if err != nil {
		return nil, err
	}
	out, err := readBounded(z)
	if errors.Is(err, io.ErrUnexpectedEOF) {
		return nil, fmt.Errorf("it is cut short: %w", err)
	}
	return out, err
}

func readBounded(r io.Reader) ([]byte, error) {
	data, err := io.ReadAll(io.LimitReader(r, MaxMailbox+1))
	if err == nil && len(data) > MaxMailbox {
		return nil, fmt.Errorf("larger than %d MiB", MaxMailbox>>20)
	}
	return data, err
}
