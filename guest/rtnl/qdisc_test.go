package rtnl

import (
	"encoding/hex"
	"errors"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// TestGoldenQdisc compares bodies with what tc(8) sends for
// `tc qdisc add|replace dev D root pfifo_fast`.
func TestGoldenQdisc(t *testing.T) {
	const body = "00000000 07000000 00000000 ffffffff 00000000" + " 0f000100 70666966 6f5f6661 73740000"
	want, err := hex.DecodeString(strings.ReplaceAll(body, " ", ""))
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		req   Request
		flags uint16
	}{
		{AddQdisc(7, "pfifo_fast"), unix.NLM_F_CREATE | unix.NLM_F_EXCL},
		{ReplaceQdisc(7, "pfifo_fast"), unix.NLM_F_CREATE | unix.NLM_F_REPLACE},
	} {
		if c.req.typ != unix.RTM_NEWQDISC || c.req.flags != c.flags || string(c.req.data) != string(want) {
			t.Errorf("%s: type %d, flags %#x, body %x", c.req, c.req.typ, c.req.flags, c.req.data)
		}
	}
}

func TestRealQdiscs(t *testing.T) {
	_, c := inNamespace(t)
	err := c.Do(AddLink(Link{Name: "v0", Kind: "veth", Index: 100, Up: true, Peer: "p0", PeerIndex: 101}), SetLink(101, true))
	if err != nil {
		t.Skipf("this kernel: %v", err)
	}
	if err := c.Do(AddQdisc(100, "pfifo_fast")); err != nil {
		t.Skipf("this kernel: %v", err)
	}
	if err := c.Do(AddQdisc(100, "pfifo_fast")); !errors.Is(err, unix.EEXIST) {
		t.Errorf("a second root: %v, want EEXIST", err)
	}
	if err := c.Do(ReplaceQdisc(100, "pfifo_fast")); err != nil {
		t.Errorf("replace: %v", err)
	}
	if err := c.Do(ReplaceQdisc(100, "no_such_kind")); !errors.Is(err, unix.ENOENT) {
		t.Errorf("an unknown kind: %v, want ENOENT", err)
	}
	list, err := c.Qdiscs()
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for _, q := range list {
		if q.Device == 100 && q.Root && q.Kind == "pfifo_fast" {
			n++
		}
	}
	if n != 1 {
		t.Errorf("%d roots of kind pfifo_fast in %+v", n, list)
	}
}

func TestParseQdisc(t *testing.T) {
	var b builder
	b.tcmsg(7, 0x10000, qdiscRoot)
	b.attr(unix.TCA_KIND, func() { b.text("pfifo_fast") })
	b.attr(unix.TCA_STATS2|unix.NLA_F_NESTED, func() {
		b.attr(1, func() { b.u32(99) }) // TCA_STATS_BASIC
		b.attr(statsQueue, func() {
			for _, v := range []uint32{3, 180, 5, 6, 7} {
				b.u32(v)
			}
		})
	})
	want := QdiscInfo{Device: 7, Root: true, Kind: "pfifo_fast", Queued: 3, Drops: 5}
	if got, err := parseQdisc(b); err != nil || got != want {
		t.Errorf("%+v, %v, want %+v", got, err, want)
	}
	// Cut anywhere, it is an error or less information, never a panic.
	for i := range b {
		if got, err := parseQdisc(b[:i]); err == nil && i < sizeofTcmsg {
			t.Errorf("%d bytes: %+v", i, got)
		}
	}
}

func FuzzParseQdisc(f *testing.F) {
	var b builder
	b.tcmsg(7, 1, qdiscRoot)
	b.attr(unix.TCA_STATS2, func() { b.attr(statsQueue, func() { b.u32(1) }) })
	f.Add([]byte(b))
	f.Fuzz(func(t *testing.T, data []byte) {
		if q, err := parseQdisc(data); err == nil && len(data) < sizeofTcmsg {
			t.Errorf("%x: %+v", data, q)
		}
	})
}
