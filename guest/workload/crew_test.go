package workload

import (
	"runtime"
	"sync/atomic"
	"testing"

	"golang.org/x/sys/unix"
)

func closeFD(fd int) error { return unix.Close(fd) }

// TestCrew lets crews that spin and crews that sleep do some orders: every thread
// does each once, and nobody begins one before all have done the last.
func TestCrew(t *testing.T) {
	for _, size := range []int{1, 2, 3, 16} {
		procs := runtime.GOMAXPROCS(size + 1)
		done := make(chan error, 1)
		go func() {
			runtime.LockOSThread()
			done <- drill(t, size)
		}()
		if err := <-done; err != nil {
			t.Errorf("%d threads: %v", size, err)
		}
		runtime.GOMAXPROCS(procs)
	}
}

func drill(t *testing.T, size int) error {
	c, err := newCrew(size)
	if err != nil {
		return err
	}
	if err := c.start(); err != nil {
		return err
	}
	defer c.stop()
	var count [16]atomic.Int64
	for order := int64(1); order <= 500; order++ {
		c.do(func(k int) {
			if n := count[k].Add(1); n != order {
				t.Errorf("thread %d of %d does order %d, want %d", k, size, n, order)
			}
		})
		c.join()
		if !c.finished() {
			t.Error("joined, and not finished")
		}
		for k := range size {
			if n := count[k].Load(); n != order {
				t.Errorf("thread %d of %d has done %d orders, want %d", k, size, n, order)
			}
		}
		if order%100 == 0 {
			rest(2e6) // the others fall asleep
		}
	}
	return nil
}

// TestReceive accounts for frames as no kernel would deliver them.
func TestReceive(t *testing.T) {
	n := &notes{metrics: map[string]float64{}, observed: map[string]int{}}
	r := &stressRun{env: Env{Rec: n, Now: func() int64 { return 1000 }}, burst: 3, limit: 500,
		got: make([]uint64, 2), held: make([]uint64, 2), round: 7, absent: 6, kicks: 1}
	at := func(thread, index int, round uint32, sent int64) {
		r.receive(frame{kind: measuredFrame, thread: thread, index: index, round: round, sent: sent})
	}
	at(0, 0, 7, 900)
	at(0, 0, 7, 900) // twice
	at(0, 1, 6, 900) // of another round
	at(2, 0, 7, 900) // of nobody
	at(1, 2, 7, 100) // late
	r.receive(frame{kind: kickFrame})
	if r.received != 2 || r.absent != 4 || r.odd != 3 || r.late != 1 || r.kicks != 0 || n.observed["delivery"] != 2 {
		t.Errorf("received %d, absent %d, odd %d, late %d, kicks %d", r.received, r.absent, r.odd, r.late, r.kicks)
	}
	r.hold()
	if r.held[0] != 0b110 || r.held[1] != 0b011 {
		t.Errorf("held %b", r.held)
	}
	at(0, 1, 7, 100) // stuck, not late
	if r.late != 1 || r.absent != 3 {
		t.Errorf("late %d, absent %d", r.late, r.absent)
	}
}
