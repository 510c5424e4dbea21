package gitx

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"strings"
)

// ResolveCommit returns the full id of the commit that rev names. A revision
// that is not there is an *UnknownRevisionError.
func (r Repo) ResolveCommit(ctx context.Context, rev string) (string, error) {
	return r.resolve(ctx, rev, "^{commit}")
}

// TreeID returns the id of the tree of rev, which may be a commit, a tag, a tree
// or "COMMIT:path".
func (r Repo) TreeID(ctx context.Context, rev string) (string, error) {
	if strings.Contains(rev, ":") {
		return r.resolve(ctx, rev, "")
	}
	return r.resolve(ctx, rev, "^{tree}")
}

func (r Repo) resolve(ctx context.Context, rev, peel string) (string, error) {
	if err := checkRev(rev); err != nil {
		return "", err
	}
	id, err := r.Output(ctx, "rev-parse", "--quiet", "--verify", rev+peel)
	if exitCode(err) == 1 { // --quiet --verify: 1 is "no such object", 128 a broken repository
		return "", &UnknownRevisionError{Dir: r.Dir, Rev: rev}
	}
	return id, err
}

// checkRev refuses what git would take for an option or for several arguments.
func checkRev(rev string) error {
	if rev == "" || rev[0] == '-' || strings.ContainsAny(rev, "\x00\n") {
		return fmt.Errorf("revision %q: must be a name or an id, not empty, and not begin with \"-\"", rev)
	}
	return nil
}

// The author and date of every commit kbisect makes: fixed, so that equal
// content has an equal id on every machine. The date is 2000-01-01.
const (
	CommitName  = "kbisect"
	CommitEmail = "kbisect@localhost"
	CommitDate  = "946684800 +0000"
)

// CommitTree makes a commit of a tree with the fixed author and date and returns
// its id. Equal arguments give an equal id. No ref is moved.
func (r Repo) CommitTree(ctx context.Context, tree, message string, parents ...string) (string, error) {
	args := []string{"commit-tree"}
	for _, rev := range append([]string{tree}, parents...) {
		if err := checkRev(rev); err != nil {
			return "", err
		}
	}
	for _, p := range parents {
		args = append(args, "-p", p)
	}
	return r.output(ctx, Command{
		Args:  append(args, tree),
		Stdin: strings.NewReader(message),
		Env: []string{
			"GIT_AUTHOR_NAME=" + CommitName, "GIT_AUTHOR_EMAIL=" + CommitEmail, "GIT_AUTHOR_DATE=" + CommitDate,
			"GIT_COMMITTER_NAME=" + CommitName, "GIT_COMMITTER_EMAIL=" + CommitEmail, "GIT_COMMITTER_DATE=" + CommitDate,
		},
	})
}

// SetRef points the full ref name ("refs/kbisect/x") at an object.
func (r Repo) SetRef(ctx context.Context, name, id string) error {
	return r.Run(ctx, "update-ref", name, id)
}

// ReadFile returns the content of a file in a commit, at most max bytes of it.
// A file that is not there is an *UnknownRevisionError.
func (r Repo) ReadFile(ctx context.Context, rev, path string, max int64) (string, error) {
	id, err := r.resolve(ctx, rev+":"+path, "")
	if err != nil {
		return "", err
	}
	out := &limited{max: max}
	if err := r.Do(ctx, Command{Args: []string{"cat-file", "blob", id}, Stdout: out}); err != nil {
		return "", err
	}
	return out.b.String(), nil
}

// limited keeps the first max bytes and takes, but drops, the rest.
type limited struct {
	b   strings.Builder
	max int64
}

func (l *limited) Write(p []byte) (int, error) {
	if room := l.max - int64(l.b.Len()); room > 0 {
		l.b.Write(p[:min(int64(len(p)), room)])
	}
	return len(p), nil
}

// Subject returns the first line of a commit's message.
func (r Repo) Subject(ctx context.Context, rev string) (string, error) {
	if err := checkRev(rev); err != nil {
		return "", err
	}
	return r.Output(ctx, "log", "-1", "--no-show-signature", "--format=%s", rev, "--")
}

// IsAncestor reports whether ancestor is reachable from rev (or is rev).
func (r Repo) IsAncestor(ctx context.Context, ancestor, rev string) (bool, error) {
	return yes(r.twoRevs(ctx, []string{"merge-base", "--is-ancestor"}, ancestor, rev))
}

// yes maps git's exit codes 0 and 1 to true and false.
func yes(_ string, err error) (bool, error) {
	if exitCode(err) == 1 {
		return false, nil
	}
	return err == nil, err
}

// MergeBase returns a best common ancestor, "" when the two have none.
func (r Repo) MergeBase(ctx context.Context, a, b string) (string, error) {
	id, err := r.twoRevs(ctx, []string{"merge-base"}, a, b)
	if exitCode(err) == 1 {
		return "", nil
	}
	return id, err
}

func (r Repo) twoRevs(ctx context.Context, args []string, a, b string) (string, error) {
	for _, rev := range []string{a, b} {
		if err := checkRev(rev); err != nil {
			return "", err
		}
	}
	return r.Output(ctx, append(args, a, b)...)
}

// Commit is a node of the history.
type Commit struct {
	ID      string
	Parents []string // in git's order; those outside a range are named too
}

// RevList returns the commits that are reachable from to and not from from, in
// topological order, children first. With paths, only those that change one of
// them are listed and parents are rewritten to listed ancestors. An empty from
// means the whole history of to.
func (r Repo) RevList(ctx context.Context, from, to string, paths ...string) ([]Commit, error) {
	if err := checkRev(to); err != nil {
		return nil, err
	}
	args := []string{"rev-list", "--topo-order", "--parents", to}
	if from != "" {
		if err := checkRev(from); err != nil {
			return nil, err
		}
		args = append(args, "^"+from)
	}
	out, err := r.Output(ctx, append(append(args, "--"), paths...)...)
	if err != nil {
		return nil, err
	}
	return parseRevList(strings.NewReader(out))
}

func parseRevList(rd io.Reader) ([]Commit, error) {
	var list []Commit
	sc := bufio.NewScanner(rd)
	sc.Buffer(nil, 1<<20) // an octopus merge has many parents
	for sc.Scan() {
		if f := strings.Fields(sc.Text()); len(f) > 0 {
			list = append(list, Commit{ID: f[0], Parents: f[1:]})
		}
	}
	if err := sc.Err(); err != nil {
		return nil, fmt.Errorf("read rev-list: %w", err)
	}
	return list, nil
}
