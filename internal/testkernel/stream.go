package testkernel

import (
	"bytes"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/kbisect/kbisect/internal/gitx"
	"github.com/kbisect/kbisect/internal/source"
)

// state is the files that a commit has otherwise than the source, by name.
type state map[string]string

// stream writes all commits for git fast-import: one git for a whole history,
// where hash-object, update-index and commit-tree would be four for each commit.
// It asks for the id of each.
func (s steps) stream(head string, all edits, source map[string]string) ([]byte, error) {
	var out bytes.Buffer
	out.WriteString("feature done\nfeature get-mark\n")
	ref := tempRef()
	states := make([]state, len(s))
	at := func(i int) (string, state) {
		if i == base {
			return head, state{}
		}
		return ":" + strconv.Itoa(i+1), states[i]
	}
	for i, st := range s {
		from, before := at(st.parent)
		message, changed, err := st.apply(before, all, source)
		if err != nil {
			return nil, err
		}
		// An hour between two, so that no order is left to chance.
		fmt.Fprintf(&out, "commit %s\nmark :%d\ncommitter %s <%s> %s\ndata %d\n%s\nfrom %s\n",
			ref, i+1, gitx.CommitName, gitx.CommitEmail, dateOf(i+1), len(message), message, from)
		if st.edit == "" {
			other, theirs := at(st.other)
			fmt.Fprintf(&out, "merge %s\n", other)
			if changed, err = mergeStates(before, theirs); err != nil {
				return nil, err
			}
		}
		for _, name := range slices.Sorted(maps.Keys(changed)) {
			fmt.Fprintf(&out, "M 100644 inline %s\ndata %d\n%s\n", name, len(changed[name]), changed[name])
		}
		fmt.Fprintf(&out, "\nget-mark :%d\n", i+1)
		states[i] = maps.Clone(before)
		maps.Copy(states[i], changed)
	}
	// The ref is needed by fast-import only: written from nothing, it is deleted.
	fmt.Fprintf(&out, "reset %s\nfrom %s\n\ndone\n", ref, strings.Repeat("0", len(head)))
	return out.Bytes(), nil
}

// mergeStates returns what merging theirs changes in ours.
func mergeStates(ours, theirs state) (state, error) {
	changed := state{}
	for name, text := range theirs {
		have, both := ours[name]
		if both && have != text {
			return nil, fmt.Errorf("merge: both sides edit %s", name)
		}
		if !both {
			changed[name] = text
		}
	}
	return changed, nil
}

// tempRef is a name that nobody else uses meanwhile. No id depends on it.
func tempRef() string { return fmt.Sprintf("refs/kbisect/test-%016x", rand.Uint64()) }

// dateOf is n hours after the date of an import.
func dateOf(n int) string {
	seconds, zone, _ := strings.Cut(gitx.CommitDate, " ")
	begin, _ := strconv.Atoi(seconds) // a constant
	return fmt.Sprintf("%d %s", begin+3600*n, zone)
}

// apply makes a step's edit on what its parent has, and returns the message and
// the files that it changed. A merge edits nothing.
func (st step) apply(before state, all edits, source map[string]string) (string, state, error) {
	if st.edit == "" {
		return st.message, nil, nil
	}
	e := all.named[st.edit]
	changed := state{}
	for _, c := range e.changes {
		text, ok := changed[c.file]
		if !ok {
			if text, ok = before[c.file]; !ok {
				text = source[c.file]
			}
		}
		text, err := c.apply(text)
		if err != nil {
			return "", nil, fmt.Errorf("edit %q: %w", e.name, err)
		}
		changed[c.file] = text
	}
	return e.message, changed, nil
}

// importStream runs git fast-import and returns the ids it answers, n of them.
func importStream(t testing.TB, src *source.Source, stream []byte, n int) []string {
	t.Helper()
	var out bytes.Buffer
	err := src.Repo().Do(t.Context(), gitx.Command{
		Args:  []string{"fast-import", "--quiet", "--force", "--done", "--date-format=raw"},
		Stdin: bytes.NewReader(stream), Stdout: &out,
	})
	if err != nil {
		t.Fatal(err)
	}
	ids := strings.Fields(out.String())
	if len(ids) != n {
		t.Fatalf("git fast-import made %d commits of %d", len(ids), n)
	}
	return ids
}
