package rtnl

import (
	"encoding/binary"
	"fmt"
	"net/netip"

	"golang.org/x/sys/unix"
)

// Nested attributes of links that x/sys does not name.
const (
	vethInfoPeer = 1 // VETH_INFO_PEER
	iflaVLANID   = 1 // IFLA_VLAN_ID
)

const create = unix.NLM_F_CREATE | unix.NLM_F_EXCL

// builder appends a message's body. The order of bytes is the machine's, as
// rtnetlink has it.
type builder []byte

func (b *builder) u8(v ...uint8)  { *b = append(*b, v...) }
func (b *builder) u16(v uint16)   { *b = binary.NativeEndian.AppendUint16(*b, v) }
func (b *builder) u32(v uint32)   { *b = binary.NativeEndian.AppendUint32(*b, v) }
func (b *builder) pad()           { *b = append(*b, make([]byte, -len(*b)&3)...) }
func (b *builder) text(s string)  { *b = append(append(*b, s...), 0) }
func (b *builder) bytes(v []byte) { *b = append(*b, v...) }

// attr appends an attribute whose content fill appends.
func (b *builder) attr(typ uint16, fill func()) {
	start := len(*b)
	b.u16(0)
	b.u16(typ)
	fill()
	binary.NativeEndian.PutUint16((*b)[start:], uint16(len(*b)-start))
	b.pad()
}

// attr32 appends an attribute of one number.
func (b *builder) attr32(typ uint16, v uint32) {
	b.u16(8)
	b.u16(typ)
	b.u32(v)
}

// ifinfo appends a struct ifinfomsg.
func (b *builder) ifinfo(index int, flags, change uint32) {
	b.u8(unix.AF_UNSPEC, 0)
	b.u16(0)
	b.u32(uint32(index))
	b.u32(flags)
	b.u32(change)
}

// Link describes a device to add. The zero value of a field leaves it to the
// kernel.
type Link struct {
	Name  string
	Kind  string // "dummy", "veth", "vlan", ...
	Index int    // 0: the kernel chooses
	Up    bool
	Group uint32

	// The other end of a veth, in the same group. It is down whatever Up says:
	// the kernel makes it first, and one without its peer cannot go up (ENOTCONN).
	Peer      string
	PeerIndex int

	Parent int    // vlan: index of the device below
	VLAN   uint16 // vlan: its id, 1 to 4094
}

// AddLink adds a device.
func AddLink(l Link) Request {
	var b builder
	b.link(l.Name, l.Index, l.Up, l.Group)
	if l.Parent != 0 {
		b.attr32(unix.IFLA_LINK, uint32(l.Parent))
	}
	b.attr(unix.IFLA_LINKINFO|unix.NLA_F_NESTED, func() {
		b.attr(unix.IFLA_INFO_KIND, func() { b.text(l.Kind) })
		switch {
		case l.Kind == "veth" && l.Peer != "":
			b.attr(unix.IFLA_INFO_DATA|unix.NLA_F_NESTED, func() {
				b.attr(vethInfoPeer|unix.NLA_F_NESTED, func() { b.link(l.Peer, l.PeerIndex, false, l.Group) })
			})
		case l.Kind == "vlan":
			b.attr(unix.IFLA_INFO_DATA|unix.NLA_F_NESTED, func() {
				b.attr(iflaVLANID, func() { b.u16(l.VLAN) })
			})
		}
	})
	return Request{typ: unix.RTM_NEWLINK, flags: create, data: b, what: "add " + l.Kind + " device", name: l.Name}
}

// link appends what a device and a veth's peer have in common.
func (b *builder) link(name string, index int, up bool, group uint32) {
	var flags uint32
	if up {
		flags = unix.IFF_UP
	}
	b.ifinfo(index, flags, flags)
	b.attr(unix.IFLA_IFNAME, func() { b.text(name) })
	if group != 0 {
		b.attr32(unix.IFLA_GROUP, group)
	}
}

// DelLink deletes a device. The acknowledgement comes when it is gone for good,
// which is where netdev_wait_allrefs waits.
func DelLink(index int) Request {
	var b builder
	b.ifinfo(index, 0, 0)
	return Request{typ: unix.RTM_DELLINK, data: b, what: "delete device", id: uint32(index)}
}

// DelGroup deletes all devices of a group at once.
func DelGroup(group uint32) Request {
	var b builder
	b.ifinfo(0, 0, 0)
	b.attr32(unix.IFLA_GROUP, group)
	return Request{typ: unix.RTM_DELLINK, data: b, what: "delete devices of group", id: group}
}

// DelLinks deletes the listed devices at once, and no other: one message with an
// IFLA_NEW_IFINDEX for each. It needs the kernel patch of this project's case
// netdev-bulk-delete; a kernel without it answers EINVAL, one with it ENODEV when
// a device is missing and EINVAL when one is listed twice, having deleted none.
func DelLinks(indexes ...int) Request {
	b := make(builder, 0, unix.SizeofIfInfomsg+8*len(indexes))
	b.ifinfo(0, 0, 0)
	for _, index := range indexes {
		b.attr32(unix.IFLA_NEW_IFINDEX, uint32(index))
	}
	return Request{typ: unix.RTM_DELLINK, data: b, what: "delete list of", name: fmt.Sprintf("%d devices", len(indexes))}
}

// SetGroup moves a device to a group; group 0 is where devices are by default.
func SetGroup(index int, group uint32) Request {
	b := make(builder, 0, unix.SizeofIfInfomsg+8)
	b.ifinfo(index, 0, 0)
	b.attr32(unix.IFLA_GROUP, group)
	return Request{typ: unix.RTM_NEWLINK, data: b, what: "set group of device", id: uint32(index)}
}

// SetLink sets a device up or down.
func SetLink(index int, up bool) Request {
	var b builder
	what, flags := "set down device", uint32(0)
	if up {
		what, flags = "set up device", unix.IFF_UP
	}
	b.ifinfo(index, flags, unix.IFF_UP)
	return Request{typ: unix.RTM_NEWLINK, data: b, what: what, id: uint32(index)}
}

// AddAddr adds an address with its prefix to a device.
func AddAddr(index int, p netip.Prefix) Request {
	var b builder
	family := uint8(unix.AF_INET6)
	if p.Addr().Is4() {
		family = unix.AF_INET
	}
	b.u8(family, uint8(p.Bits()), 0, unix.RT_SCOPE_UNIVERSE)
	b.u32(uint32(index))
	address := p.Addr().AsSlice()
	b.attr(unix.IFA_LOCAL, func() { b.bytes(address) })
	b.attr(unix.IFA_ADDRESS, func() { b.bytes(address) })
	return Request{typ: unix.RTM_NEWADDR, flags: create, data: b, what: "add address to device", id: uint32(index)}
}

// nexthop begins a struct nhmsg and its id.
func (b *builder) nexthop(family uint8, id uint32) {
	b.u8(family, unix.RT_SCOPE_UNIVERSE, unix.RTPROT_UNSPEC, 0)
	b.u32(0)
	if id != 0 {
		b.attr32(unix.NHA_ID, id)
	}
}

// AddNexthop adds an IPv4 nexthop object that leads out of a device, which must
// be up.
func AddNexthop(id uint32, device int) Request {
	b := make(builder, 0, 24)
	b.nexthop(unix.AF_INET, id)
	b.attr32(unix.NHA_OIF, uint32(device))
	return Request{typ: unix.RTM_NEWNEXTHOP, flags: create, data: b, what: "add nexthop", id: id}
}

// AddBlackhole adds an IPv4 nexthop object that drops. The loopback device must
// be up.
func AddBlackhole(id uint32) Request {
	b := make(builder, 0, 20)
	b.nexthop(unix.AF_INET, id)
	b.attr(unix.NHA_BLACKHOLE, func() {})
	return Request{typ: unix.RTM_NEWNEXTHOP, flags: create, data: b, what: "add blackhole nexthop", id: id}
}

// AddGroup adds a nexthop group of equal weights.
func AddGroup(id uint32, members ...uint32) Request {
	b := make(builder, 0, 20+8*len(members))
	b.nexthop(unix.AF_UNSPEC, id)
	b.attr(unix.NHA_GROUP, func() {
		for _, m := range members {
			b.u32(m) // struct nexthop_grp: id, weight - 1, two reserved fields
			b.u32(0)
		}
	})
	return Request{typ: unix.RTM_NEWNEXTHOP, flags: create, data: b, what: "add nexthop group", id: id}
}

// DelNexthop deletes a nexthop object or group. Deleting the last member of a
// group deletes the group.
func DelNexthop(id uint32) Request {
	b := make(builder, 0, 16)
	b.nexthop(unix.AF_UNSPEC, id)
	return Request{typ: unix.RTM_DELNEXTHOP, data: b, what: "delete nexthop", id: id}
}

// Address reports whether the request is about an address, for a caller that
// explains a refusal.
func (r Request) Address() bool { return r.typ == unix.RTM_NEWADDR }
