package store

import (
	"context"
	"database/sql"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"
)

// Policy says which runs Prune removes: those that are beyond Keep or older
// than Before. A zero field removes nothing by itself. Runs that go on are
// always kept.
type Policy struct {
	Keep   int       // keep the newest so many
	Before time.Time // remove what was created earlier
	DryRun bool      // only say what would go
}

// Removed is one run that Prune removed or would remove.
type Removed struct {
	ID    string `json:"id"`
	Bytes int64  `json:"bytes"` // size of its folder
}

// Delete removes a run: its rows and its folder. It fails with ErrRunning while
// the run goes on. id is exact; see Run for finding it.
func (s *Store) Delete(ctx context.Context, id string) error {
	if id == "" || id != filepath.Base(id) || id == "." || id == ".." {
		return &Error{Op: "delete run", Path: id, Kind: ErrNotFound, Err: ErrNotFound}
	}
	// The lock keeps anybody from resuming it meanwhile.
	l, err := s.seize(id)
	if err != nil {
		return err
	}
	defer l.Close()
	// First the row: a folder without one is an orphan that Prune clears, while
	// a row without its folder would be listed and could not be shown.
	err = s.tx(ctx, "delete run", func(t *sql.Tx) error {
		_, err := t.ExecContext(ctx, `DELETE FROM runs WHERE id=?`, id)
		return err
	})
	if err != nil {
		return err
	}
	return wrap("delete run folder", s.runDir(id), os.RemoveAll(s.runDir(id)))
}

// Prune removes old runs and the folders that no run owns, and says which,
// newest first.
func (s *Store) Prune(ctx context.Context, p Policy) ([]Removed, error) {
	runs, err := s.Runs(ctx, Filter{})
	if err != nil {
		return nil, err
	}
	var gone []Removed
	for i, r := range runs {
		old := p.Keep > 0 && i >= p.Keep || !p.Before.IsZero() && r.Created.Before(p.Before)
		if !old || r.Status == Running {
			continue
		}
		size := folderSize(r.Dir)
		if !p.DryRun {
			err := s.Delete(ctx, r.ID)
			if errors.Is(err, ErrRunning) { // resumed since it was listed
				continue
			}
			if err != nil {
				return gone, err
			}
		}
		gone = append(gone, Removed{r.ID, size})
	}
	orphans, err := s.orphans(ctx, runs)
	for _, id := range orphans {
		size := folderSize(s.runDir(id))
		if !p.DryRun {
			if err := s.Delete(ctx, id); err != nil {
				return gone, err
			}
		}
		gone = append(gone, Removed{id, size})
	}
	return gone, err
}

// orphans lists folders in runs/ that no row and no process owns: what a
// process leaves that is killed between the two steps of NewRun or of Delete.
func (s *Store) orphans(ctx context.Context, known []Run) ([]string, error) {
	entries, err := os.ReadDir(s.runDir(""))
	if err != nil {
		return nil, wrap("list run folders", s.runDir(""), err)
	}
	var out []string
	for _, e := range entries {
		if !e.IsDir() || slices.ContainsFunc(known, func(r Run) bool { return r.ID == e.Name() }) {
			continue
		}
		if s.alive(e.Name()) {
			continue
		}
		// Look again: it may have been started after known was read, and its
		// row comes a moment after its folder.
		_, err := s.Run(ctx, e.Name())
		info, ierr := e.Info()
		if errors.Is(err, ErrNotFound) && ierr == nil && time.Since(info.ModTime()) > time.Minute {
			out = append(out, e.Name())
		}
	}
	return out, nil
}

// folderSize adds up the files under dir; what cannot be read counts nothing.
func folderSize(dir string) int64 {
	var n int64
	filepath.WalkDir(dir, func(_ string, d fs.DirEntry, err error) error { //nolint:errcheck // the func returns nil
		if err != nil || d.IsDir() {
			return nil
		}
		if info, err := d.Info(); err == nil {
			n += info.Size()
		}
		return nil
	})
	return n
}

func sortedSet(s []string) []string {
	slices.Sort(s)
	return slices.Compact(s)
}
