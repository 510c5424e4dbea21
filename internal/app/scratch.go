package app

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/gofrs/flock"
)

// scratch makes a folder for one boot that is not kept. release removes it. What
// a killed kbisect has left is swept here: a folder whose lock nobody holds.
func (env *Env) scratch() (dir string, release func(), err error) {
	root := filepath.Join(env.State, "boots")
	if err := os.MkdirAll(root, 0o700); err != nil {
		return "", nil, fmt.Errorf("make scratch folder: %w", err)
	}
	sweep(root)
	if dir, err = os.MkdirTemp(root, ""); err != nil {
		return "", nil, fmt.Errorf("make scratch folder: %w", err)
	}
	lock := flock.New(filepath.Join(dir, lockName))
	if ok, err := lock.TryLock(); err != nil || !ok {
		os.RemoveAll(dir)
		return "", nil, fmt.Errorf("lock scratch folder %s: %v", dir, err)
	}
	return dir, func() { os.RemoveAll(dir); lock.Close() }, nil
}

// lockName is the file in a scratch folder that its process keeps locked.
const lockName = ".lock"

// sweep removes the folders whose process is dead. One that has no lock file yet
// is being made.
func sweep(root string) {
	dirs, err := os.ReadDir(root)
	if err != nil {
		return
	}
	for _, d := range dirs {
		path := filepath.Join(root, d.Name())
		if _, err := os.Stat(filepath.Join(path, lockName)); err != nil {
			continue
		}
		lock := flock.New(filepath.Join(path, lockName))
		if ok, err := lock.TryLock(); err == nil && ok {
			os.RemoveAll(path)
		}
		lock.Close()
	}
}
