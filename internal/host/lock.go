package host

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// lockFile is the file in the folder given to Lock.
const lockFile = "host.lock"

// lockPoll is how often a waiter looks. flock(2) can block, but not with a
// context.
const lockPoll = 50 * time.Millisecond

// holder is what the lock file says of its owner. It is only for people: the
// lock itself is the kernel's, and ends with the process.
type holder struct {
	PID     int       `json:"pid"`
	Purpose string    `json:"purpose"`
	Since   time.Time `json:"since"`
}

func (h holder) String() string {
	if h.PID == 0 {
		return "another kbisect"
	}
	return fmt.Sprintf("kbisect %d, %s since %s", h.PID, h.Purpose, h.Since.Local().Format("15:04:05"))
}

// Lock takes the host's turn: nothing is built while something is measured, and
// two kbisects measure one after the other. It blocks until the lock is free or
// ctx is done. While it waits, waiting (which may be nil) is called with the
// owner, once for each. release gives the lock back; it is idempotent. The lock
// ends with the process, however that ends.
//
// Calls with the same folder exclude each other also inside one process.
func Lock(ctx context.Context, dir, purpose string, waiting func(owner string)) (release func(), err error) {
	path := filepath.Join(dir, lockFile)
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o644)
	if err != nil {
		return nil, fmt.Errorf("open host lock: %w", err)
	}
	if err := acquire(ctx, f, waiting); err != nil {
		f.Close()
		return nil, fmt.Errorf("lock %s: %w", path, err)
	}
	// Whoever waits reads this; that it cannot be written takes nothing from
	// the lock.
	if b, err := json.Marshal(holder{os.Getpid(), purpose, time.Now().UTC()}); err == nil {
		describe(f, b)
	}
	return sync.OnceFunc(func() {
		describe(f, nil)
		f.Close() // closing gives the lock back
	}), nil
}

// describe replaces the file's text in place: a new file would be another lock.
func describe(f *os.File, b []byte) {
	if f.Truncate(0) == nil {
		f.WriteAt(b, 0) //nolint:errcheck // only a description
	}
}

// acquire waits for the lock.
func acquire(ctx context.Context, f *os.File, waiting func(string)) error {
	var last string
	t := time.NewTicker(lockPoll)
	defer t.Stop()
	for {
		err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		if err == nil {
			return nil
		}
		if !errors.Is(err, unix.EWOULDBLOCK) && !errors.Is(err, unix.EINTR) {
			return err
		}
		if owner := readHolder(f).String(); waiting != nil && owner != last {
			waiting(owner)
			last = owner
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("waiting for %s: %w", readHolder(f), ctx.Err())
		case <-t.C:
		}
	}
}

// readHolder reads who has the lock; the zero holder while it is being written.
func readHolder(f *os.File) holder {
	var h holder
	b := make([]byte, 4096)
	n, _ := f.ReadAt(b, 0) // EOF is the normal end
	if json.Unmarshal(b[:n], &h) != nil {
		return holder{}
	}
	return h
}
