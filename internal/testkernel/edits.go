package testkernel

import (
	"embed"
	"fmt"
	"path"
	"strings"
	"testing"
)

//go:embed edits/*.txt
var editFiles embed.FS

// edit is one commit in the making.
type edit struct {
	name    string
	message string
	plain   bool // the kernel stays the same, byte for byte
	changes []change
}

// change replaces the one place where old stands in a file: whole lines.
type change struct{ file, old, new string }

// subject is the first line of the message.
func (e edit) subject() string {
	first, _, _ := strings.Cut(e.message, "\n")
	return first
}

// edits is everything in edits/: by name, and the code-changing ones in order.
type edits struct {
	named map[string]edit
	code  []string
}

// loadEdits reads the embedded files.
func loadEdits(t testing.TB) edits {
	t.Helper()
	all := edits{named: map[string]edit{}}
	for _, kind := range []string{"code", "config", "plain", "special"} {
		text, err := editFiles.ReadFile(path.Join("edits", kind+".txt"))
		if err != nil {
			t.Fatal(err)
		}
		list, err := parseEdits(string(text))
		if err != nil {
			t.Fatalf("read edits/%s.txt: %v", kind, err)
		}
		for _, e := range list {
			if _, twice := all.named[e.name]; twice {
				t.Fatalf("two edits are named %q", e.name)
			}
			e.plain = kind == "plain"
			all.named[e.name] = e
			if kind == "code" {
				all.code = append(all.code, e.name)
			}
		}
	}
	return all
}

// parseEdits reads the notation that edits/code.txt explains. What stands before
// the first "= NAME" is a comment.
func parseEdits(text string) ([]edit, error) {
	var list []edit
	for _, block := range strings.Split("\n"+text, "\n= ")[1:] {
		e, err := parseEdit(block)
		if err != nil {
			return nil, fmt.Errorf("edit %q: %w", e.name, err)
		}
		list = append(list, e)
	}
	return list, nil
}

// parseEdit reads what follows "= ".
func parseEdit(block string) (edit, error) {
	head, changes, _ := strings.Cut(block, "\n@@ ")
	name, message, _ := strings.Cut(head, "\n")
	e := edit{name: name, message: strings.TrimSpace(message) + "\n"}
	if name == "" || e.message == "\n" || changes == "" {
		return e, fmt.Errorf("it needs a name, a message and a change")
	}
	for _, part := range strings.Split(changes, "\n@@ ") {
		c, err := parseChange(part)
		if err != nil {
			return e, err
		}
		e.changes = append(e.changes, c)
	}
	return e, nil
}

func parseChange(part string) (change, error) {
	file, lines, _ := strings.Cut(strings.TrimRight(part, "\n"), "\n")
	c := change{file: file}
	for _, line := range strings.Split(lines, "\n") {
		if line == "" {
			return c, fmt.Errorf("%s: an empty line inside of a change", file)
		}
		mark, rest := line[0], line[1:]+"\n"
		switch mark {
		case '-':
			c.old += rest
		case '+':
			c.new += rest
		case ' ':
			c.old, c.new = c.old+rest, c.new+rest
		default:
			return c, fmt.Errorf("%s: a line that begins with neither \"-\", \"+\" nor a space: %q", file, line)
		}
	}
	if c.old == "" || c.old == c.new {
		return c, fmt.Errorf("%s: a change that finds or changes nothing", file)
	}
	return c, nil
}

// apply returns text with the change made. It is an error when the place is not
// there, or not the only one.
func (c change) apply(text string) (string, error) {
	text = "\n" + text
	old := "\n" + c.old
	at := strings.Index(text, old)
	if at < 0 {
		return "", fmt.Errorf("%s: not found:\n%s", c.file, c.old)
	}
	// The newline that ends one place may begin the next.
	if strings.Contains(text[at+1:], old) {
		return "", fmt.Errorf("%s: found more than once:\n%s", c.file, c.old)
	}
	return text[1:at+1] + c.new + text[at+len(old):], nil
}
