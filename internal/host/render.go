package host

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"unicode/utf8"
)

// Text writes the table for people, within 100 columns where names allow it.
func (r Report) Text(w io.Writer) error {
	const indent = 22 + 10
	b := bufio.NewWriter(w)
	for _, row := range r.Rows {
		found := row.Found
		if found == "" {
			found = "-"
		}
		line := fmt.Sprintf("%-20s  %-8s  %s", row.Name, row.Status, found)
		// What it is for goes into its column, or behind a longer value, or below.
		switch n := utf8.RuneCountInString(line); {
		case n <= 60 && utf8.RuneCountInString(row.Need) <= 38:
			line = fmt.Sprintf("%-60s  %s", line, row.Need)
		case n+2+utf8.RuneCountInString(row.Need) <= 100:
			line += "  " + row.Need
		default:
			line += "\n" + strings.Repeat(" ", indent) + row.Need
		}
		fmt.Fprintln(b, line)
		if row.Fix != "" {
			fmt.Fprintf(b, "%sfix: %s\n", strings.Repeat(" ", indent), row.Fix)
		}
	}
	h := r.Host
	fmt.Fprintf(b, "\nhost: %s, %d CPUs, %s, Linux %s, %s\n", h.CPU, h.CPUs, gib(h.MemoryMiB), h.Kernel, h.Distribution)
	if r.OK {
		fmt.Fprintln(b, "kbisect can run here")
	} else {
		fmt.Fprintf(b, "missing: %s\n", strings.Join(r.missing(), ", "))
	}
	return b.Flush()
}

// JSON writes the report as one document.
func (r Report) JSON(w io.Writer) error {
	e := json.NewEncoder(w)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	if err := e.Encode(r); err != nil {
		return fmt.Errorf("write json: %w", err)
	}
	return nil
}
