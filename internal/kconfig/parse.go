package kconfig

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
)

// Bounds of what Parse reads: an allmodconfig has 0.3 MB, 15,000 symbols.
const (
	maxLine  = 64 << 10
	maxBytes = 16 << 20
)

// SyntaxError is a line that is no line of a configuration.
type SyntaxError struct {
	Pos
	Reason string
}

func (e *SyntaxError) Error() string { return e.Pos.String() + ": " + e.Reason }

// ParseFile reads the file at path. Errors name path:line.
func ParseFile(path string) (*Config, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("read kernel config: %w", err)
	}
	defer f.Close()
	return Parse(path, f)
}

// Parse reads a .config or a fragment; name is the file in its errors, which are
// *SyntaxError where a line is at fault. A text that sets no symbol is an error,
// since it is hardly what was meant.
func Parse(name string, r io.Reader) (*Config, error) {
	c := &Config{Name: name}
	at := make(map[string]Symbol)
	lr := &io.LimitedReader{R: r, N: maxBytes + 1}
	scan := bufio.NewScanner(lr)
	scan.Buffer(make([]byte, 0, 4096), maxLine)
	pos := Pos{File: name}
	for scan.Scan() && lr.N > 0 {
		pos.Line++
		s, ok, err := parseLine(scan.Bytes(), pos)
		switch {
		case err != nil:
			return nil, err
		case ok:
			key := s.Name + s.Kernels.String()
			if old, dup := at[key]; dup && old.Value != s.Value {
				c.Dups = append(c.Dups, Override{Old: old, New: s})
			}
			at[key] = s
		case c.Version == (Version{}):
			c.Version = headerVersion(scan.Text())
		}
	}
	if err := scan.Err(); errors.Is(err, bufio.ErrTooLong) {
		return nil, &SyntaxError{Pos{name, pos.Line + 1}, fmt.Sprintf("line is longer than %d bytes", maxLine)}
	} else if err != nil {
		return nil, fmt.Errorf("read kernel config %s: %w", name, err)
	}
	if lr.N <= 0 {
		return nil, fmt.Errorf("read kernel config %s: larger than %d MiB, so no .config", name, maxBytes>>20)
	}
	if len(at) == 0 {
		return nil, fmt.Errorf("read kernel config %s: it sets no CONFIG_ symbol", name)
	}
	c.Symbols = sorted(at)
	return c, nil
}

// headerVersion reads the kernel's version from the heading of a .config,
// "# Linux/x86 6.1.192 Kernel Configuration".
func headerVersion(line string) Version {
	f := strings.Fields(line)
	if len(f) != 5 || !strings.HasPrefix(f[1], "Linux/") || f[3] != "Kernel" || f[4] != "Configuration" {
		return Version{}
	}
	v, _ := ParseVersion(f[2]) // not one of ours: not known
	return v
}

// parseLine reads one line; ok is false for one without a symbol.
func parseLine(line []byte, pos Pos) (s Symbol, ok bool, err error) {
	line = bytes.TrimSpace(line)
	if bytes.IndexByte(line, 0) >= 0 {
		return s, false, &SyntaxError{pos, "it has a NUL byte: not a text file"}
	}
	text := string(line)
	if text == "" {
		return s, false, nil
	}
	if body, comment := strings.CutPrefix(text, "#"); comment {
		return parseUnset(strings.TrimSpace(body), pos)
	}
	rest, ok := strings.CutPrefix(text, "CONFIG_")
	if !ok {
		return s, false, &SyntaxError{pos, fmt.Sprintf("%.60q is neither CONFIG_NAME=value nor a comment", text)}
	}
	name, rest, ok := strings.Cut(rest, "=")
	if !ok || !validName(name) {
		return s, false, &SyntaxError{pos, fmt.Sprintf("%.60q is not CONFIG_NAME=value", text)}
	}
	value, note, reason := splitValue(rest)
	if reason != "" {
		return s, false, &SyntaxError{pos, "CONFIG_" + name + ": " + reason}
	}
	s = Symbol{Name: name, Value: value, Pos: pos}
	return s, true, s.annotate(note)
}

// parseUnset reads the comment by which a .config says no:
// "CONFIG_X is not set". Any other comment is none of ours.
func parseUnset(body string, pos Pos) (s Symbol, ok bool, err error) {
	rest, ok := strings.CutPrefix(body, "CONFIG_")
	if !ok {
		return s, false, nil
	}
	name, rest, _ := strings.Cut(rest, " ")
	rest, ok = strings.CutPrefix(rest, "is not set")
	if !ok || !validName(name) {
		return s, false, nil
	}
	s = Symbol{Name: name, Value: No, Pos: pos}
	note, isNote := strings.CutPrefix(strings.TrimSpace(rest), "#")
	if !isNote {
		return s, strings.TrimSpace(rest) == "", nil
	}
	return s, true, s.annotate(note)
}

// splitValue cuts a value from the comment behind it.
func splitValue(text string) (value, note, reason string) {
	text = strings.TrimSpace(text)
	if strings.HasPrefix(text, `"`) {
		end := stringEnd(text)
		if end < 0 {
			return "", "", "its string has no end"
		}
		value, text = text[:end], text[end:]
	} else {
		i := strings.IndexAny(text, " \t#")
		if i < 0 {
			i = len(text)
		}
		value, text = text[:i], text[i:]
	}
	text = strings.TrimSpace(text)
	note, isNote := strings.CutPrefix(text, "#")
	switch {
	case text != "" && !isNote:
		return "", "", fmt.Sprintf("%.40q follows the value", text)
	case value == "":
		return "", "", "it has no value; write n to unset it"
	case !validValue(value):
		return "", "", fmt.Sprintf("value %.40q is not y, m, n, a number or a quoted string", value)
	}
	return value, note, ""
}

// stringEnd returns the index behind the closing quote of text, which begins
// with one; a backslash takes the meaning of what follows.
func stringEnd(text string) int {
	for i := 1; i < len(text); i++ {
		switch text[i] {
		case '\\':
			i++
		case '"':
			return i + 1
		}
	}
	return -1
}

func validValue(v string) bool {
	if v[0] == '"' || v == "y" || v == "m" || v == No {
		return true
	}
	digits := strings.TrimPrefix(v, "-")
	set := "0123456789"
	if hex := strings.TrimPrefix(strings.TrimPrefix(v, "0x"), "0X"); hex != v {
		digits, set = hex, "0123456789abcdefABCDEF"
	}
	return digits != "" && strings.Trim(digits, set) == ""
}

// validName reports whether name can be a symbol: [A-Za-z0-9_]+.
func validName(name string) bool {
	for _, r := range name {
		if r != '_' && (r < '0' || r > '9') && (r < 'A' || r > 'Z') && (r < 'a' || r > 'z') {
			return false
		}
	}
	return name != ""
}

// annotate reads the comment after a value. Only a comment that begins with one
// of the two words is notation, so a misspelt one makes a symbol compulsory,
// which shows.
func (s *Symbol) annotate(note string) error {
	note, _, _ = strings.Cut(note, ";")
	note = strings.TrimSpace(note)
	rest, ok := strings.CutPrefix(note, "optional")
	if ok && (rest == "" || rest[0] == ' ' || rest[0] == ',') {
		s.Optional = true
		note = strings.TrimLeft(rest, " ,")
	}
	if bounds, ok := strings.CutPrefix(note, "kernels:"); ok {
		r, err := ParseRange(bounds)
		if err != nil {
			return &SyntaxError{s.Pos, "CONFIG_" + s.Name + ": " + err.Error()}
		}
		s.Kernels = r
	}
	return nil
}
