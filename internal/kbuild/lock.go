package kbuild

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/google/renameio/v2"
	"golang.org/x/sys/unix"
)

// lockPoll is how often a lock that somebody holds is tried again. A build takes
// seconds, so this is never felt.
const lockPoll = 50 * time.Millisecond

// fileLock is a flock(2) on a file beside what it guards. The kernel drops it
// with the process, however that ends.
type fileLock struct {
	f *os.File
}

// lockMode is shared (a user) or exclusive (a builder, an evicter).
type lockMode int

const (
	shared    lockMode = unix.LOCK_SH
	exclusive lockMode = unix.LOCK_EX
)

// errBusy says that somebody else holds the lock.
var errBusy = errors.New("in use by another kbisect")

// tryLock takes the lock or returns errBusy at once. The file is made if it is
// not there, and may have been removed by the last holder between our open and
// our flock: then what we hold is a lock on nothing, and we begin again.
func tryLock(path string, mode lockMode) (*fileLock, error) {
	for {
		f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o644)
		if err != nil {
			return nil, err
		}
		for {
			err = unix.Flock(int(f.Fd()), int(mode)|unix.LOCK_NB)
			if err != unix.EINTR {
				break
			}
		}
		if err != nil {
			f.Close()
			if err == unix.EWOULDBLOCK {
				return nil, errBusy
			}
			return nil, fmt.Errorf("lock %s: %w", path, err)
		}
		if sameFile(f, path) {
			return &fileLock{f: f}, nil
		}
		f.Close()
	}
}

func sameFile(f *os.File, path string) bool {
	a, err1 := f.Stat()
	b, err2 := os.Stat(path)
	return err1 == nil && err2 == nil && os.SameFile(a, b)
}

// lock waits for the lock until ctx is done; waiting is called once before the
// first wait, if it is not nil.
func lock(ctx context.Context, path string, mode lockMode, waiting func()) (*fileLock, error) {
	for {
		l, err := tryLock(path, mode)
		if !errors.Is(err, errBusy) {
			return l, err
		}
		if waiting != nil {
			waiting()
			waiting = nil
		}
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-time.After(lockPoll):
		}
	}
}

// unlock gives the lock back. It may be called more than once, and on nil.
func (l *fileLock) unlock() {
	if l != nil {
		l.f.Close()
	}
}

// remove deletes the lock's file and gives the lock back; the lock must be
// exclusive.
func (l *fileLock) remove() {
	_ = os.Remove(l.f.Name())
	l.unlock()
}

// writeFile puts data at path, whole or not at all. It is on the disk when
// writeFile returns.
func writeFile(path string, data []byte) error {
	return renameio.WriteFile(path, data, 0o644, renameio.WithTempDir(filepath.Dir(path)))
}
