package gitx

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"strings"
)

// Entry is a commit of a history with what is read of it in one go.
type Entry struct {
	Commit
	Subject string
	Files   []string // changed against the first parent; none for a merge, and none unless asked for
}

// Log returns the commits that are reachable from to and not from from in
// topological order, parents first. With paths, only those that change one of
// them are listed, and parents are rewritten as in RevList. files asks for the
// changed files, which costs a comparison of trees a commit (a millisecond each
// in a kernel).
func (r Repo) Log(ctx context.Context, from, to string, files bool, paths ...string) ([]Entry, error) {
	for _, rev := range []string{from, to} {
		if err := checkRev(rev); err != nil {
			return nil, err
		}
	}
	return r.log(ctx, logArgs(files), append([]string{to, "^" + from, "--"}, paths...))
}

// FirstParents is Log along the first parents only: a chain, in which a merge
// stands for all that it brought.
func (r Repo) FirstParents(ctx context.Context, from, to string, files bool) ([]Entry, error) {
	for _, rev := range []string{from, to} {
		if err := checkRev(rev); err != nil {
			return nil, err
		}
	}
	return r.log(ctx, append(logArgs(files), "--first-parent"), []string{to, "^" + from, "--"})
}

func (r Repo) log(ctx context.Context, args, revs []string) ([]Entry, error) {
	out, err := r.Output(ctx, append(args, revs...)...)
	if err != nil {
		return nil, err
	}
	return parseLog(strings.NewReader(out))
}

// logArgs asks for one line a commit that begins with \x01, and one line a file.
func logArgs(files bool) []string {
	args := []string{"-c", "core.quotePath=false", "log", "--no-show-signature", "--topo-order", "--reverse", "--parents", "--format=%x01%H%x01%P%x01%s"}
	if files {
		args = append(args, "--name-only", "--no-renames", "--full-diff")
	}
	return args
}

func parseLog(rd io.Reader) ([]Entry, error) {
	var list []Entry
	sc := bufio.NewScanner(rd)
	sc.Buffer(nil, 1<<20) // a subject may be a whole message
	for sc.Scan() {
		line := sc.Text()
		if head, ok := strings.CutPrefix(line, "\x01"); ok {
			f := strings.SplitN(head, "\x01", 3)
			if len(f) != 3 {
				return nil, fmt.Errorf("read log: unexpected line %q", line)
			}
			list = append(list, Entry{Commit: Commit{ID: f[0], Parents: strings.Fields(f[1])}, Subject: f[2]})
		} else if line != "" && len(list) > 0 {
			last := &list[len(list)-1]
			last.Files = append(last.Files, line)
		}
	}
	if err := sc.Err(); err != nil {
		return nil, fmt.Errorf("read log: %w", err)
	}
	return list, nil
}
