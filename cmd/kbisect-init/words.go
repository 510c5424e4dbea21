package main

import (
	"errors"
	"strings"
)

var (
	errUnclosed = errors.New("parse command: a quote is not closed")
	errNoWords  = errors.New("parse command: it is empty")
	errShell    = errors.New("parse command: it needs a shell, and the guest has no /bin/sh")
)

// splitWords splits a command as a POSIX shell would: single quotes, double
// quotes, backslashes. What only a shell can do (variables, pipes, globs) is
// refused when unquoted instead of being passed on as text.
func splitWords(s string) ([]string, error) {
	var words []string
	var word strings.Builder
	inWord := false
	for i := 0; i < len(s); i++ {
		c := s[i]
		switch {
		case c == ' ' || c == '\t' || c == '\n':
			if inWord {
				words = append(words, word.String())
				word.Reset()
				inWord = false
			}
			continue
		case c == '\\':
			if i++; i == len(s) {
				return nil, errUnclosed
			}
			if s[i] == '\n' {
				continue // a continued line
			}
			word.WriteByte(s[i])
		case c == '\'':
			end := strings.IndexByte(s[i+1:], '\'')
			if end < 0 {
				return nil, errUnclosed
			}
			word.WriteString(s[i+1 : i+1+end])
			i += end + 1
		case c == '"':
			n, err := doubleQuoted(&word, s[i+1:])
			if err != nil {
				return nil, err
			}
			i += n
		case strings.IndexByte("|&;<>()$`*?[", c) >= 0, !inWord && (c == '~' || c == '#'):
			return nil, errShell
		default:
			word.WriteByte(c)
		}
		inWord = true
	}
	if inWord {
		words = append(words, word.String())
	}
	if len(words) == 0 {
		return nil, errNoWords
	}
	return words, nil
}

// doubleQuoted appends what stands between double quotes to word. s begins
// behind the opening quote; n counts the bytes up to and with the closing one.
func doubleQuoted(word *strings.Builder, s string) (n int, err error) {
	for i := 0; i < len(s); i++ {
		switch c := s[i]; c {
		case '"':
			return i + 1, nil
		case '$', '`':
			return 0, errShell
		case '\\':
			if i++; i == len(s) {
				return 0, errUnclosed
			}
			// Only these are special inside double quotes.
			switch s[i] {
			case '"', '\\', '$', '`':
			case '\n':
				continue
			default:
				word.WriteByte('\\')
			}
			word.WriteByte(s[i])
		default:
			word.WriteByte(c)
		}
	}
	return 0, errUnclosed
}
