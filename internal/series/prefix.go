package series

import (
	"bytes"
	"errors"
	"slices"
)

// addPrefixes puts a/ and b/ before the names of git's diffs that have none, as
// diff.noprefix and --no-prefix make them. Read as they are, their first folder
// would be taken for the prefix. changed is false where there was nothing to do.
// No line is added or removed, so that the line numbers of errors stay right.
func addPrefixes(data []byte) (out []byte, changed bool, err error) {
	bare, all := 0, 0
	for rest := data; ; all++ {
		at := gitHeader.FindIndex(rest)
		if at == nil {
			break
		}
		rest = rest[at[1]:]
		if _, _, ok := bareNames(rest); ok {
			bare++
		}
	}
	if bare == 0 {
		return data, false, nil
	}
	if bare != all {
		return nil, false, errors.New("some of its files have a/ and b/ before their names and some have not: make it again with git diff")
	}
	return prefixLines(data), true, nil
}

// prefixLines is data with prefixes in the header of each file, and only there:
// in a hunk "--- x" is a line that is removed.
func prefixLines(data []byte) []byte {
	out := make([]byte, 0, len(data)+1<<10)
	header := false
	for at := 0; at < len(data); {
		line := data[at:]
		if end := bytes.IndexByte(line, '\n'); end >= 0 {
			line = line[:end+1]
		}
		at += len(line)
		switch {
		case bytes.HasPrefix(line, []byte("diff --git ")):
			header = true
			if a, b, ok := bareNames(data[at-len(line)+len("diff --git "):]); ok {
				out = append(out, slices.Concat([]byte("diff --git "), prefixed("a/", a), []byte(" "), prefixed("b/", b), line[len(bytes.TrimSuffix(line, []byte("\n"))):])...)
				continue
			}
		case bytes.HasPrefix(line, []byte("@@ -")):
			header = false
		case header && bytes.HasPrefix(line, []byte("--- ")) && !bytes.HasPrefix(line, []byte("--- /dev/null")):
			line = append([]byte("--- "), prefixed("a/", line[4:])...)
		case header && bytes.HasPrefix(line, []byte("+++ ")) && !bytes.HasPrefix(line, []byte("+++ /dev/null")):
			line = append([]byte("+++ "), prefixed("b/", line[4:])...)
		}
		out = append(out, line...)
	}
	return out
}

// prefixed puts a prefix before a name, inside of the quotes if it has them.
func prefixed(prefix string, name []byte) []byte {
	if rest, ok := bytes.CutPrefix(name, []byte(`"`)); ok {
		return slices.Concat([]byte(`"`+prefix), rest)
	}
	return slices.Concat([]byte(prefix), name)
}

// bareNames returns the two names of a "diff --git" line, of which text is what
// comes after it, if they have no prefix: then both are the same, or are those of
// the rename or copy that is said below. With a prefix they always differ.
func bareNames(text []byte) (a, b []byte, ok bool) {
	line, rest, _ := bytes.Cut(text, []byte("\n"))
	if n := len(line) / 2; len(line) > 2 && line[n] == ' ' && bytes.Equal(line[:n], line[n+1:]) {
		return line[:n], line[n+1:], true
	}
	// The lines of a header that can stand before these are three.
	for range 5 {
		var extra []byte
		extra, rest, _ = bytes.Cut(rest, []byte("\n"))
		for _, kind := range []string{"rename", "copy"} {
			from, isFrom := bytes.CutPrefix(extra, []byte(kind+" from "))
			if !isFrom {
				continue
			}
			next, _, _ := bytes.Cut(rest, []byte("\n"))
			to, isTo := bytes.CutPrefix(next, []byte(kind+" to "))
			return from, to, isTo && bytes.Equal(line, slices.Concat(from, []byte(" "), to))
		}
	}
	return nil, nil, false
}
