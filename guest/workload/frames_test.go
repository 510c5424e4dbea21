package workload

import (
	"errors"
	"os"
	"testing"

	"github.com/kbisect/kbisect/guest/rtnl"
)

func TestFrame(t *testing.T) {
	b := newFrame()
	want := frame{kind: measuredFrame, thread: 15, index: 63, round: 1 << 31, sent: 1 << 62}
	want.put(b)
	if got, ok := readFrame(b); !ok || got != want {
		t.Errorf("%+v, %v, want %+v", got, ok, want)
	}
	if _, ok := readFrame(b[:frameLen-1]); ok {
		t.Error("a frame that was cut is taken")
	}
	b[atType]++
	if _, ok := readFrame(b); ok {
		t.Error("a frame of another type is taken")
	}
}

func FuzzReadFrame(f *testing.F) {
	f.Add(newFrame())
	f.Fuzz(func(t *testing.T, b []byte) {
		if _, ok := readFrame(b); ok && len(b) < frameLen {
			t.Errorf("%x is taken", b)
		}
	})
}

// TestRealRing sends more frames than the ring has slots, so that it goes round,
// and then more at once than fit: those are counted as dropped.
func TestRealRing(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root to make network namespaces")
	}
	ns, conn, err := freshNamespace()
	if err != nil {
		t.Skipf("this kernel: %v", err)
	}
	defer func() { _ = errors.Join(conn.Close(), ns.Close()) }()
	err = conn.Do(rtnl.AddLink(rtnl.Link{Name: "v0", Kind: "veth", Index: 100, Peer: "v1", PeerIndex: 101, Up: true}), rtnl.SetLink(101, true))
	if err != nil {
		t.Skipf("this kernel: %v", err)
	}
	var r *ring
	fd := -1
	err = ns.Do(func() (err error) {
		if r, err = openRing(101); err != nil {
			return err
		}
		fd, err = openPacket(100, 0)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := errors.Join(r.close(), closeFD(fd)); err != nil {
			t.Error(err)
		}
	}()
	b := newFrame()
	var next uint32
	for round := range uint32(ringFrames + 100) {
		frame{kind: measuredFrame, round: round}.put(b)
		if err := sendFrame(fd, b); err != nil {
			t.Fatal(err)
		}
		for next == round {
			r.take(func(f frame) {
				if f.round != next {
					t.Fatalf("frame %d, want %d", f.round, next)
				}
				next++
			})
		}
	}
	if n, err := r.dropped(); n != 0 || err != nil {
		t.Errorf("%d dropped, %v", n, err)
	}
	const more = 50
	for range ringFrames + more {
		if err := sendFrame(fd, b); err != nil {
			t.Fatal(err)
		}
	}
	got := r.take(func(frame) {})
	if n, err := r.dropped(); n != more || got != ringFrames || err != nil {
		t.Errorf("%d taken, %d dropped, %v, want %d and %d", got, n, err, ringFrames, more)
	}
	if err := r.wait(1e6); err != nil {
		t.Error(err)
	}
}
