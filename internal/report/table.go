package report

import (
	"fmt"
	"io"
	"strings"
	"unicode"
	"unicode/utf8"
)

// width is the number of columns that text is made for.
const width = 100

// table aligns cells in columns. The heading of a column of numbers begins with
// ">": such columns are set to the right.
type table struct {
	right []bool
	rows  [][]string
}

func newTable(heads ...string) *table {
	t := &table{}
	row := make([]string, len(heads))
	for i, h := range heads {
		name, right := strings.CutPrefix(h, ">")
		t.right = append(t.right, right)
		row[i] = name
	}
	t.rows = append(t.rows, row)
	return t
}

func (t *table) add(cells ...string) {
	for i := range cells {
		cells[i] = plain(cells[i])
	}
	t.rows = append(t.rows, cells)
}

// widths returns the width of every column.
func (t *table) widths() []int {
	widths := make([]int, len(t.right))
	for _, r := range t.rows {
		for i, c := range r {
			widths[i] = max(widths[i], utf8.RuneCountInString(c))
		}
	}
	return widths
}

// write prints the table, columns two blanks apart, without blanks at line ends.
func (t *table) write(w io.Writer) {
	widths := t.widths()
	for _, r := range t.rows {
		var b strings.Builder
		for i, c := range r {
			pad := strings.Repeat(" ", widths[i]-utf8.RuneCountInString(c))
			if t.right[i] {
				c, pad = pad+c, ""
			}
			b.WriteString(c + pad + "  ")
		}
		fmt.Fprintln(w, strings.TrimRight(b.String(), " "))
	}
}

// fields prints "name  text" paragraphs whose text is wrapped.
type fields struct {
	w    io.Writer
	name int // columns of the name
	last string
}

// put prints one paragraph; a name that repeats is left out.
func (f *fields) put(name, format string, args ...any) {
	text := plain(fmt.Sprintf(format, args...))
	if name == f.last {
		name = ""
	} else {
		f.last = name
	}
	for _, line := range wrap(text, width-f.name-4) {
		fmt.Fprintln(f.w, strings.TrimRight(fmt.Sprintf("  %-*s  %s", f.name, name, line), " "))
		name = ""
	}
}

// wrap breaks text at blanks into lines of at most n columns, but not between a
// number and its unit. A word that is longer stays whole, so that paths can be
// copied.
func wrap(text string, n int) []string {
	var lines []string
	line := ""
	for _, word := range words(text) {
		switch {
		case line == "":
			line = word
		case utf8.RuneCountInString(line)+1+utf8.RuneCountInString(word) > n:
			lines = append(lines, line)
			line = word
		default:
			line += " " + word
		}
	}
	return append(lines, line)
}

// words splits text at blanks and keeps numbers with their units.
func words(text string) []string {
	var out []string
	for _, w := range strings.Fields(text) {
		if n := len(out); n > 0 && isUnit(strings.TrimRight(w, ",;:)")) {
			if last := out[n-1]; last[len(last)-1] >= '0' && last[len(last)-1] <= '9' {
				out[n-1] += " " + w
				continue
			}
		}
		out = append(out, w)
	}
	return out
}

func isUnit(s string) bool {
	switch s {
	case "ns", "us", "ms", "s", "min", "h", "%", "B", "KiB", "MiB", "GiB", "k", "M", "G", "/s", "k/s", "M/s", "G/s", "ppm":
		return true
	}
	return false
}

// plain replaces control characters: some texts come out of a guest.
func plain(s string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsControl(r) {
			if r == '\n' || r == '\t' {
				return ' '
			}
			return '?'
		}
		return r
	}, s)
}
