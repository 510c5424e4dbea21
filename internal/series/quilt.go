package series

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
)

// maxSeriesFile is the size of a quilt series file, in bytes.
const maxSeriesFile = 1 << 20

// readQuilt reads the patches that a quilt series file lists.
func readQuilt(list string) (Mailbox, error) {
	data, err := readFile(list)
	if err != nil {
		return Mailbox{}, err
	}
	names, err := parseQuilt(data)
	if err != nil {
		return Mailbox{}, &ParseError{Name: list, Err: err}
	}
	for i, name := range names {
		names[i] = filepath.Join(filepath.Dir(list), name)
	}
	if len(names) == 0 {
		return Mailbox{}, &ParseError{Name: list, Err: fmt.Errorf("it lists no patch")}
	}
	files, err := readFiles(names)
	if err != nil {
		return Mailbox{}, err
	}
	for _, f := range files {
		if len(f.mails) > 1 {
			return Mailbox{}, &ParseError{Name: f.name, Err: fmt.Errorf("it holds %d mails, and a file of a quilt series is one patch", len(f.mails))}
		}
	}
	return inOrder(files)
}

// parseQuilt returns the names in a series file, in order: one a line, with
// options after it and comments. Names stay inside the folder.
func parseQuilt(data []byte) ([]string, error) {
	if len(data) > maxSeriesFile {
		return nil, fmt.Errorf("a series file larger than %d MiB", maxSeriesFile>>20)
	}
	var names []string
	number := 0
	for line := range strings.Lines(string(data)) {
		number++
		words := strings.Fields(line)
		if i := slices.IndexFunc(words, func(w string) bool { return w[0] == '#' }); i >= 0 {
			words = words[:i]
		}
		if len(words) == 0 {
			continue
		}
		name := words[0]
		if !filepath.IsLocal(name) || strings.ContainsRune(name, 0) {
			return nil, fmt.Errorf("line %d: the patch %q is not in the folder of the series", number, name)
		}
		switch options := strings.Join(words[1:], " "); options {
		case "", "-p1", "-p 1", "-pab", "-p ab":
		default:
			return nil, fmt.Errorf("line %d: %q has the options %q, and patches are read as -p1: refresh it with `quilt refresh -p1`", number, name, options)
		}
		names = append(names, name)
		if len(names) > MaxSeries {
			return nil, fmt.Errorf("line %d: more than %d patches", number, MaxSeries)
		}
	}
	return names, nil
}
