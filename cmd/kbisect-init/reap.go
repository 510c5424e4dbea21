package main

import (
	"errors"
	"sync"
	"syscall"
)

// reaper starts children and waits for every process that ends, as PID 1 must:
// its own children, whose status goes to who started them, and orphans, whose
// status nobody wants. os/exec would race with that for the statuses.
type reaper struct {
	mu      sync.Mutex
	waiting map[int]*child
	started chan struct{}
}

// child is a process that the reaper started.
type child struct {
	r      *reaper
	pid    int
	done   chan struct{} // closed when status is set
	status syscall.WaitStatus
}

func newReaper() *reaper {
	return &reaper{waiting: map[int]*child{}, started: make(chan struct{}, 1)}
}

// start forks and execs. The child leads its own session, and so its own
// process group, which signal reaches as a whole.
func (r *reaper) start(path string, argv []string, attr *syscall.ProcAttr) (*child, error) {
	// Held across the fork: a child that ends at once must find its entry.
	r.mu.Lock()
	defer r.mu.Unlock()
	pid, err := syscall.ForkExec(path, argv, attr)
	if err != nil {
		return nil, err
	}
	c := &child{r: r, pid: pid, done: make(chan struct{})}
	r.waiting[pid] = c
	select {
	case r.started <- struct{}{}:
	default:
	}
	return c, nil
}

// run reaps for ever. It blocks in one thread without a signal handler or a
// timer while there are children, and on a channel while there are none (PID 1
// inherits orphans only from children that it started).
func (r *reaper) run() {
	for range r.started {
		for {
			// Only look: the status is collected under the lock, so that signal
			// never meets a process number that the kernel has given away.
			err := waitForAny()
			if errors.Is(err, syscall.EINTR) {
				continue
			}
			if err != nil {
				break // ECHILD: none left
			}
			r.collect()
		}
	}
}

func (r *reaper) collect() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for {
		var status syscall.WaitStatus
		pid, err := syscall.Wait4(-1, &status, syscall.WNOHANG, nil)
		if errors.Is(err, syscall.EINTR) {
			continue
		}
		if err != nil || pid <= 0 {
			return
		}
		if c := r.waiting[pid]; c != nil {
			delete(r.waiting, pid)
			c.status = status
			close(c.done)
		}
	}
}

// signal signals the child's process group; nothing when the child has ended.
func (c *child) signal(sig syscall.Signal) {
	c.r.mu.Lock()
	defer c.r.mu.Unlock()
	if c.r.waiting[c.pid] == c {
		// The only error is that the group is gone, which is as good.
		_ = syscall.Kill(-c.pid, sig)
	}
}
