package testkernel

import (
	"path/filepath"
	"strings"
	"testing"
)

func TestParseEdits(t *testing.T) {
	const head = "a comment\n\n= one\nfirst: a subject\n\nA body.\n"
	list, err := parseEdits(head + "@@ net/a.c\n-old\n+new\n\tkept is no mark\n")
	if err == nil {
		t.Errorf("took a line that begins with a tab: %+v", list)
	}
	list, err = parseEdits(head + "@@ net/a.c\n \tkept\n-old\n+new\n-\n@@ net/b.c\n-x\n\n= two\nsecond: one\n@@ c\n a\n+b\n")
	if err != nil || len(list) != 2 {
		t.Fatalf("got %+v, %v", list, err)
	}
	one := list[0]
	if one.name != "one" || one.subject() != "first: a subject" || one.message != "first: a subject\n\nA body.\n" || len(one.changes) != 2 {
		t.Errorf("got %+v", one)
	}
	if c := one.changes[0]; c.file != "net/a.c" || c.old != "\tkept\nold\n\n" || c.new != "\tkept\nnew\n" {
		t.Errorf("got %+v", c)
	}
	for name, text := range map[string]string{
		"no change":       "= a\nsubject\n",
		"no subject":      "= a\n\n@@ f\n-a\n",
		"nothing changes": "= a\ns\n@@ f\n a\n",
		"nothing found":   "= a\ns\n@@ f\n+a\n",
		"no lines":        "= a\ns\n@@ f\n",
		"empty line":      "= a\ns\n@@ f\n-a\n\n-b\n",
	} {
		if list, err := parseEdits(text); err == nil {
			t.Errorf("%s: got %+v", name, list)
		}
	}
}

func TestApply(t *testing.T) {
	c := change{file: "f", old: "\tone;\n", new: "\ttwo;\n"}
	for _, tt := range []struct{ text, want string }{
		{"\tone;\nrest\n", "\ttwo;\nrest\n"},
		{"a\n\tone;\n", "a\n\ttwo;\n"},
		{"\t\tone;\n", ""},          // a line of its own is meant
		{"\tone;\n\tone;\n", ""},    // twice, also side by side
		{"\tone;\na\n\tone;\n", ""}, // twice
		{"", ""},
	} {
		got, err := c.apply(tt.text)
		if got != tt.want || (err == nil) != (tt.want != "") {
			t.Errorf("%q: got %q, %v", tt.text, got, err)
		}
	}
}

// TestEdits looks at the files of this package as a reviewer would.
func TestEdits(t *testing.T) {
	all := loadEdits(t)
	if len(all.code) < 70 {
		t.Errorf("only %d edits change code", len(all.code))
	}
	subjects := map[string]bool{}
	for name, e := range all.named {
		s := e.subject()
		if len(s) > 72 || subjects[s] || strings.HasSuffix(s, ".") || !strings.Contains(s, ": ") {
			t.Errorf("%s: bad subject %q", name, s)
		}
		subjects[s] = true
		for _, c := range e.changes {
			if strings.Contains(strings.ReplaceAll(c.new, "\t\n", "\x00"), "\x00") || strings.Contains(c.new, " \n") {
				t.Errorf("%s: white space at the end of a line", name)
			}
		}
	}
	for _, name := range all.code {
		for _, c := range all.named[name].changes {
			if c.file != all.named[name].changes[0].file || filepath.Ext(c.file) != ".c" {
				t.Errorf("%s edits %s, and is to edit one .c file", name, c.file)
			}
		}
	}
}

// TestMergeStates refuses a merge of two edits of one file, which would drop one.
func TestMergeStates(t *testing.T) {
	if got, err := mergeStates(state{"a": "1"}, state{"a": "2"}); err == nil {
		t.Errorf("got %v", got)
	}
	got, err := mergeStates(state{"a": "1", "b": "2"}, state{"a": "1", "c": "3"})
	if err != nil || len(got) != 1 || got["c"] != "3" {
		t.Errorf("got %v, %v", got, err)
	}
}
