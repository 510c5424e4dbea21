package rtnl

import (
	"encoding/hex"
	"errors"
	"net/netip"
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// TestGolden compares bodies with what ip(8) of iproute2 sends for the same
// thing on a little-endian machine (attributes that it adds by habit left out).
func TestGolden(t *testing.T) {
	for name, c := range map[string]struct {
		req  Request
		typ  uint16
		body string
	}{
		"dummy": {AddLink(Link{Name: "d0", Kind: "dummy", Index: 7, Up: true}), unix.RTM_NEWLINK,
			"00000000 07000000 01000000 01000000" + " 07000300 64300000" + " 10001280 0a000100 64756d6d79000000"},
		"group": {AddLink(Link{Name: "d0", Kind: "dummy", Group: 5}), unix.RTM_NEWLINK,
			"00000000 00000000 00000000 00000000" + " 07000300 64300000 08001b00 05000000" + " 10001280 0a000100 64756d6d79000000"},
		"veth": {AddLink(Link{Name: "v0", Kind: "veth", Peer: "p0", PeerIndex: 9}), unix.RTM_NEWLINK,
			"00000000 00000000 00000000 00000000 07000300 76300000" +
				" 30001280 09000100 7665746800000000" +
				" 20000280 1c000180 00000000 09000000 00000000 00000000 07000300 70300000"},
		"vlan": {AddLink(Link{Name: "x", Kind: "vlan", Parent: 3, VLAN: 10}), unix.RTM_NEWLINK,
			"00000000 00000000 00000000 00000000 06000300 78000000 08000500 03000000" +
				" 1c001280 09000100 766c616e00000000 0c000280 06000100 0a000000"},
		"down":      {SetLink(7, false), unix.RTM_NEWLINK, "00000000 07000000 00000000 01000000"},
		"up":        {SetLink(7, true), unix.RTM_NEWLINK, "00000000 07000000 01000000 01000000"},
		"del":       {DelLink(7), unix.RTM_DELLINK, "00000000 07000000 00000000 00000000"},
		"del group": {DelGroup(4), unix.RTM_DELLINK, "00000000 00000000 00000000 00000000 08001b00 04000000"},
		"del list":  {DelLinks(7, 300), unix.RTM_DELLINK, "00000000 00000000 00000000 00000000 08003100 07000000 08003100 2c010000"},
		"set group": {SetGroup(7, 4), unix.RTM_NEWLINK, "00000000 07000000 00000000 00000000 08001b00 04000000"},
		"addr4": {AddAddr(2, netip.MustParsePrefix("10.0.0.1/24")), unix.RTM_NEWADDR,
			"02180000 02000000 08000200 0a000001 08000100 0a000001"},
		"addr6": {AddAddr(2, netip.MustParsePrefix("2021:1::1/120")), unix.RTM_NEWADDR,
			"0a780000 02000000 14000200 20210001000000000000000000000001 14000100 20210001000000000000000000000001"},
		"nexthop":     {AddNexthop(3, 7), unix.RTM_NEWNEXTHOP, "02000000 00000000 08000100 03000000 08000500 07000000"},
		"blackhole":   {AddBlackhole(3), unix.RTM_NEWNEXTHOP, "02000000 00000000 08000100 03000000 04000400"},
		"nhgroup":     {AddGroup(9, 3, 4), unix.RTM_NEWNEXTHOP, "00000000 00000000 08000100 09000000 14000200 0300000000000000 0400000000000000"},
		"del nexthop": {DelNexthop(3), unix.RTM_DELNEXTHOP, "00000000 00000000 08000100 03000000"},
	} {
		t.Run(name, func(t *testing.T) {
			want, err := hex.DecodeString(strings.ReplaceAll(c.body, " ", ""))
			if err != nil {
				t.Fatal(err)
			}
			if c.req.typ != c.typ || string(c.req.data) != string(want) {
				t.Errorf("type %d, body\n%x, want %d,\n%x", c.req.typ, c.req.data, c.typ, want)
			}
		})
	}
}

func TestBatchLen(t *testing.T) {
	small := make([]Request, 1000)
	if n := batchLen(small); n != batchRequests {
		t.Errorf("%d small requests in a batch, want %d", n, batchRequests)
	}
	big := []Request{{data: make([]byte, 2*batchBytes)}, {data: make([]byte, 10)}}
	if n := batchLen(big); n != 1 {
		t.Errorf("%d big requests in a batch, want 1: one that fits nowhere goes alone", n)
	}
	if n := batchLen(small[:3]); n != 3 {
		t.Errorf("%d of 3 requests", n)
	}
}

// inNamespace gives a connection in a fresh namespace, or skips.
func inNamespace(t *testing.T) (*Namespace, *Conn) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root to make a network namespace")
	}
	ns, err := NewNamespace()
	if errors.Is(err, unix.EPERM) {
		t.Skipf("not allowed to make network namespaces here: %v", err)
	}
	if err != nil {
		t.Fatal(err)
	}
	c, err := ns.Dial()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := errors.Join(c.Close(), ns.Close()); err != nil {
			t.Error(err)
		}
	})
	return ns, c
}

func TestNamespaceIsFreshAndOurThreadsAreNot(t *testing.T) {
	_, c := inNamespace(t)
	links, err := c.Links()
	if err != nil {
		t.Fatal(err)
	}
	for _, l := range links {
		// Some kernels make fallback tunnels in every namespace; no real device is here.
		if strings.HasPrefix(l.Name, "eth") || l.Up {
			t.Errorf("a fresh namespace has %+v", l)
		}
	}
	if links[0].Name != "lo" || links[0].Index != 1 {
		t.Errorf("first device %+v, want lo", links[0])
	}
}

func TestRealNexthops(t *testing.T) {
	_, c := inNamespace(t)
	if err := c.Do(SetLink(1, true)); err != nil { // a blackhole leads into lo
		t.Fatal(err)
	}
	const n = 1000
	var add []Request
	for i := range uint32(n) {
		add = append(add, AddBlackhole(1+i), AddGroup(n+1+i, 1+i))
	}
	err := c.Do(add...)
	if errors.Is(err, unix.EOPNOTSUPP) {
		t.Skipf("this kernel has no nexthop objects: %v", err)
	}
	if err != nil {
		t.Fatal(err)
	}
	list, err := c.Nexthops()
	if err != nil || len(list) != 2*n {
		t.Fatalf("%d nexthops and groups, %v, want %d", len(list), err, 2*n)
	}
	for i, h := range list {
		if h.ID != uint32(1+i) || h.Group != (i >= n) {
			t.Fatalf("nexthop %d is %+v", i, h)
		}
	}
	var del []Request
	for i := range uint32(n) {
		del = append(del, DelNexthop(1+i))
	}
	if err := c.Do(del...); err != nil {
		t.Fatal(err)
	}
	if list, err = c.Nexthops(); err != nil || len(list) != 0 {
		t.Errorf("left: %d, %v", len(list), err)
	}
}

// TestEveryAnswerIsRead: a refusal in the middle of a batch is told with its
// number, those around it are done, and the next call does not see its answer.
func TestEveryAnswerIsRead(t *testing.T) {
	_, c := inNamespace(t)
	if err := c.Do(SetLink(1, true), AddBlackhole(1)); errors.Is(err, unix.EOPNOTSUPP) {
		t.Skipf("this kernel has no nexthop objects: %v", err)
	}
	err := c.Do(AddBlackhole(2), AddBlackhole(1), AddBlackhole(3), DelNexthop(99), AddBlackhole(4))
	var re *RequestError
	if !errors.As(err, &re) || re.Index != 1 || re.Failed != 2 || re.Of != 5 || !errors.Is(err, unix.EEXIST) {
		t.Fatalf("got %+v (%v), want request 1 of 5 refused with EEXIST, and 2 failed", re, err)
	}
	if !strings.Contains(err.Error(), "add blackhole nexthop 1") {
		t.Errorf("%q does not name the request", err)
	}
	list, err := c.Nexthops()
	if err != nil || len(list) != 4 {
		t.Errorf("%d nexthops, %v, want 4", len(list), err)
	}
}

// TestLongList: a list of 20,000 devices leaves in one message and its refusal
// comes back, whether this kernel knows lists (ENODEV) or not (EINVAL).
func TestLongList(t *testing.T) {
	_, c := inNamespace(t)
	indexes := make([]int, 20_000)
	for i := range indexes {
		indexes[i] = 1_000_000 + i
	}
	err := c.Do(DelLinks(indexes...))
	var re *RequestError
	if !errors.As(err, &re) || !(errors.Is(err, unix.EINVAL) || errors.Is(err, unix.ENODEV)) {
		t.Fatalf("got %v, want a refusal of the list", err)
	}
	if want := "delete list of 20000 devices"; !strings.Contains(err.Error(), want) {
		t.Errorf("%q does not say %q", err, want)
	}
	if _, err := c.Links(); err != nil {
		t.Errorf("the connection is of no use any more: %v", err)
	}
}

func TestRealGroups(t *testing.T) {
	_, c := inNamespace(t)
	kind := "dummy"
	add := func() error {
		return c.Do(AddLink(Link{Name: "a", Kind: kind, Index: 100, Up: true, Group: 5, Peer: "pa"}),
			AddLink(Link{Name: "b", Kind: kind, Index: 101, Peer: "pb"}),
			AddLink(Link{Name: "c", Kind: kind, Index: 102, Peer: "pc"}))
	}
	err := add()
	if errors.Is(err, unix.EOPNOTSUPP) {
		kind = "veth"
		err = add()
	}
	if errors.Is(err, unix.EOPNOTSUPP) {
		t.Skipf("this kernel has neither dummy nor veth devices: %v", err)
	}
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Do(SetGroup(101, 5)); err != nil {
		t.Fatal(err)
	}
	links, err := c.Links()
	if err != nil {
		t.Fatal(err)
	}
	want := map[int]LinkInfo{
		100: {Index: 100, Name: "a", Kind: kind, Up: true, Group: 5},
		101: {Index: 101, Name: "b", Kind: kind, Group: 5},
		102: {Index: 102, Name: "c", Kind: kind},
	}
	for _, l := range links {
		if w, ours := want[l.Index]; ours && l != w {
			t.Errorf("got %+v, want %+v", l, w)
		}
		delete(want, l.Index)
	}
	if len(want) > 0 {
		t.Errorf("missing: %v", want)
	}
	if err := c.Do(DelGroup(5)); err != nil {
		t.Fatal(err)
	}
	for _, index := range []int{100, 101} {
		if err := c.Do(SetLink(index, false)); !errors.Is(err, unix.ENODEV) {
			t.Errorf("device %d: %v, want it gone", index, err)
		}
	}
	if err := c.Do(SetLink(102, true)); err != nil {
		t.Errorf("a device of another group: %v", err)
	}
}

func TestKernelsOwnWords(t *testing.T) {
	_, c := inNamespace(t)
	err := c.Do(AddLink(Link{Name: "x", Kind: "nosuchkind"}))
	var re *RequestError
	if !errors.As(err, &re) || re.Message == "" {
		t.Errorf("got %v, want the kernel's text in it", err)
	}
}

func TestSysctlIsTheNamespaces(t *testing.T) {
	ns, _ := inNamespace(t)
	name := "net/ipv4/conf/default/forwarding"
	before, err := os.ReadFile("/proc/sys/" + name)
	if err != nil {
		t.Skip(err)
	}
	value := "1"
	if strings.TrimSpace(string(before)) == "1" {
		value = "0"
	}
	if err := ns.Sysctl(name, value); err != nil {
		t.Fatal(err)
	}
	if after, err := os.ReadFile("/proc/sys/" + name); err != nil || string(after) != string(before) {
		t.Errorf("the host's %s changed from %q to %q, %v", name, before, after, err)
	}
}

// TestAnswers reads messages that a kernel would not send.
func TestAnswers(t *testing.T) {
	for name, b := range map[string]string{
		"short header":    "100000",
		"length too big":  "ff00000002000000" + "0100000000000000",
		"length too less": "0400000002000000" + "0100000000000000",
	} {
		raw, err := hex.DecodeString(b)
		if err != nil {
			t.Fatal(err)
		}
		if _, _, err := cut(raw); err == nil {
			t.Errorf("%s: taken", name)
		}
	}
	m := message{typ: unix.NLMSG_ERROR, sequence: 4, data: make([]byte, 20)}
	if _, err := acknowledged(m, 5); err == nil {
		t.Error("the answer to another request was taken")
	}
	if refused, err := acknowledged(m, 4); err != nil || refused != nil {
		t.Errorf("an acknowledgement: %v, %v", refused, err)
	}
}

func FuzzAnswer(f *testing.F) {
	f.Add([]byte("\x24\x00\x00\x00\x02\x00\x00\x00\x01\x00\x00\x00\x00\x00\x00\x00\xff\xff\xff\xff\x14\x00\x00\x00\x10\x00\x05\x06\x01\x00\x00\x00\x00\x00\x00\x00"))
	f.Fuzz(func(t *testing.T, b []byte) {
		for len(b) > 0 {
			m, rest, err := cut(b)
			if err != nil {
				return
			}
			if len(rest) >= len(b) {
				t.Fatal("no progress")
			}
			_, _ = refusal(m)
			_, _ = parseLink(m.data)
			_, _ = parseNexthop(m.data)
			b = rest
		}
	})
}

func BenchmarkNexthops(b *testing.B) {
	if os.Geteuid() != 0 {
		b.Skip("needs root")
	}
	ns, err := NewNamespace()
	if err != nil {
		b.Skip(err)
	}
	defer ns.Close()
	c, err := ns.Dial()
	if err != nil {
		b.Fatal(err)
	}
	defer c.Close()
	var add, del []Request
	for i := range uint32(1000) {
		add, del = append(add, AddBlackhole(1+i)), append(del, DelNexthop(1+i))
	}
	if err := c.Do(SetLink(1, true)); err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		if err := errors.Join(c.Do(add...), c.Do(del...)); err != nil {
			b.Skip(err)
		}
	}
}
