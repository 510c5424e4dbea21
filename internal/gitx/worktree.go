package gitx

import (
	"context"
	"strings"
)

// Worktree is one work tree registered in a repository.
type Worktree struct {
	Dir  string
	Head string // commit id; "" for the bare repository itself
}

// AddWorktree checks a commit out into dir, which must not exist (an empty
// folder is fine), as a linked work tree with a detached HEAD.
func (r Repo) AddWorktree(ctx context.Context, dir, commit string) (Repo, error) {
	if err := checkRev(commit); err != nil {
		return Repo{}, err
	}
	// --force: dir may be registered from a run that was killed before it was made.
	if err := r.Run(ctx, "worktree", "add", "--quiet", "--detach", "--force", dir, commit); err != nil {
		return Repo{}, err
	}
	return Repo{Dir: dir}, nil
}

// RemoveWorktree deletes a linked work tree with everything in it. One that is
// already gone is only unregistered.
func (r Repo) RemoveWorktree(ctx context.Context, dir string) error {
	// --force twice: also when locked or changed.
	if err := r.Run(ctx, "worktree", "remove", "--force", "--force", dir); err != nil {
		list, lerr := r.Worktrees(ctx)
		if lerr != nil {
			return err
		}
		for _, w := range list {
			if w.Dir == dir {
				return err
			}
		}
	}
	return r.PruneWorktrees(ctx)
}

// PruneWorktrees forgets the work trees whose folders are gone.
func (r Repo) PruneWorktrees(ctx context.Context) error {
	return r.Run(ctx, "worktree", "prune", "--expire=now")
}

// Worktrees lists the registered work trees, the repository itself included.
func (r Repo) Worktrees(ctx context.Context) ([]Worktree, error) {
	out, err := r.Output(ctx, "worktree", "list", "--porcelain")
	if err != nil {
		return nil, err
	}
	var list []Worktree
	for _, line := range strings.Split(out, "\n") {
		if dir, ok := strings.CutPrefix(line, "worktree "); ok {
			list = append(list, Worktree{Dir: dir})
		} else if id, ok := strings.CutPrefix(line, "HEAD "); ok && len(list) > 0 {
			list[len(list)-1].Head = id
		}
	}
	return list, nil
}

// Checkout moves a work tree to a commit, rewriting only the files that differ,
// so that make rebuilds only those. Local changes to tracked files are dropped.
func (r Repo) Checkout(ctx context.Context, commit string) error {
	if err := checkRev(commit); err != nil {
		return err
	}
	return r.Run(ctx, "checkout", "--quiet", "--detach", "--force", commit, "--")
}
