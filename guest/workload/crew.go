package workload

import (
	"fmt"
	"runtime"
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"
)

// spins is how often a thread of its own CPU looks for the next order before it
// sleeps: some tenths of a millisecond of an emulated CPU. Orders come more often
// than that, except while a stuck frame is waited for; to wake an emulated CPU
// takes as long.
const spins = 100_000

// crew is some threads, each bound to a CPU, that do the same thing at the same
// time. The first one is the leader: the goroutine that calls start and do.
//
// A crew that has a CPU for each thread spins between two orders, which brings
// its threads together to within a fraction of a microsecond; a larger one sleeps,
// since a thread that spins would keep the one waited for from running.
type crew struct {
	size int
	cpus []int // thread k runs on cpus[k % len]
	spin int

	task   func(thread int) // what the order is; nil sends the threads home
	order  atomic.Uint32    // counts orders
	done   atomic.Uint32    // threads beside the leader that have done this one
	asleep atomic.Int32     // threads that may sleep on order or done
	gone   chan struct{}
}

// newCrew makes a crew; nothing runs before start.
func newCrew(size int) (*crew, error) {
	cpus, err := allowedCPUs()
	if err != nil {
		return nil, err
	}
	c := &crew{size: size, cpus: cpus, gone: make(chan struct{}, size)}
	if size <= len(cpus) {
		c.spin = spins
	}
	return c, nil
}

// allowedCPUs lists the CPUs that the calling thread may run on.
func allowedCPUs() (cpus []int, err error) {
	var set unix.CPUSet
	if err := unix.SchedGetaffinity(0, &set); err != nil {
		return nil, fmt.Errorf("read the allowed CPUs: %w", err)
	}
	for cpu := 0; len(cpus) < set.Count(); cpu++ {
		if set.IsSet(cpu) {
			cpus = append(cpus, cpu)
		}
	}
	return cpus, nil
}

// start makes the calling goroutine the leader. It must be locked to a thread
// that is thrown away afterwards. The owner calls stop when start succeeded.
func (c *crew) start() error {
	errs := make(chan error, c.size)
	for k := 1; k < c.size; k++ {
		go func() {
			// Never unlocked: the thread ends with the goroutine.
			runtime.LockOSThread()
			err := c.bind(k)
			errs <- err
			if err == nil {
				c.follow(k)
			}
			c.gone <- struct{}{}
		}()
	}
	err := c.bind(0)
	for k := 1; k < c.size; k++ {
		if e := <-errs; err == nil {
			err = e
		}
	}
	if err != nil {
		c.stop()
	}
	return err
}

// bind binds the calling thread to the CPU of a thread of the crew.
func (c *crew) bind(k int) error {
	var set unix.CPUSet
	set.Set(c.cpus[k%len(c.cpus)])
	if err := unix.SchedSetaffinity(0, &set); err != nil {
		return fmt.Errorf("bind thread %d to CPU %d: %w", k, c.cpus[k%len(c.cpus)], err)
	}
	return nil
}

// follow does what is ordered until it is sent home.
func (c *crew) follow(k int) {
	for seen := uint32(0); ; seen++ {
		c.await(&c.order, seen)
		if c.task == nil {
			return
		}
		c.task(k)
		if c.done.Add(1) == uint32(c.size-1) {
			c.wake(&c.done)
		}
	}
}

// do lets all threads call task at once. It returns when the leader is done with
// its own; finished says when the others are.
func (c *crew) do(task func(thread int)) {
	c.begin(task)
	task(0)
}

func (c *crew) begin(task func(thread int)) {
	c.task = task
	c.done.Store(0)
	c.order.Add(1)
	c.wake(&c.order)
}

// finished reports whether the other threads are done as well.
func (c *crew) finished() bool { return c.done.Load() == uint32(c.size-1) }

// join waits until the other threads are done.
func (c *crew) join() {
	for {
		n := c.done.Load()
		if n == uint32(c.size-1) {
			return
		}
		c.await(&c.done, n)
	}
}

// stop sends the threads home and waits until they are gone.
func (c *crew) stop() {
	c.begin(nil)
	for k := 1; k < c.size; k++ {
		<-c.gone
	}
}

// await returns when the word is no longer what it was.
func (c *crew) await(word *atomic.Uint32, was uint32) {
	for range c.spin {
		if word.Load() != was {
			return
		}
	}
	c.asleep.Add(1)
	for word.Load() == was {
		// The kernel looks at the word once more: a change in between is no sleep.
		// Interrupted or not, the loop looks again.
		unix.Syscall6(unix.SYS_FUTEX, uintptr(unsafe.Pointer(word)), futexWait, uintptr(was), 0, 0, 0)
	}
	c.asleep.Add(-1)
}

// Operations of futex(2) inside a process.
const (
	futexWait = 0x80
	futexWake = 0x81
)

// wake wakes those who sleep on the word, whose change came before.
func (c *crew) wake(word *atomic.Uint32) {
	if c.asleep.Load() > 0 {
		const all = 1 << 30
		unix.RawSyscall6(unix.SYS_FUTEX, uintptr(unsafe.Pointer(word)), futexWake, all, 0, 0, 0)
	}
}
