package rtnl

import (
	"encoding/binary"
	"fmt"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"
)

// LinkInfo is a device that exists.
type LinkInfo struct {
	Index int
	Name  string
	Kind  string // "" for one without link info, as lo
	Up    bool
}

// Links lists the devices of the connection's namespace.
func (c *Conn) Links() ([]LinkInfo, error) {
	var b builder
	b.ifinfo(0, 0, 0)
	replies, err := c.dump("devices", unix.RTM_GETLINK, b)
	if err != nil {
		return nil, err
	}
	links := make([]LinkInfo, 0, len(replies))
	for _, m := range replies {
		if m.Header.Type != unix.RTM_NEWLINK {
			continue
		}
		l, err := parseLink(m.Data)
		if err != nil {
			return nil, fmt.Errorf("parse device: %w", err)
		}
		links = append(links, l)
	}
	return links, nil
}

func parseLink(data []byte) (l LinkInfo, err error) {
	if len(data) < unix.SizeofIfInfomsg {
		return l, errShort
	}
	l.Index = int(int32(binary.NativeEndian.Uint32(data[4:])))
	l.Up = binary.NativeEndian.Uint32(data[8:])&unix.IFF_UP != 0
	ad, err := netlink.NewAttributeDecoder(data[unix.SizeofIfInfomsg:])
	if err != nil {
		return l, err
	}
	for ad.Next() {
		switch ad.Type() {
		case unix.IFLA_IFNAME:
			l.Name = ad.String()
		case unix.IFLA_LINKINFO:
			ad.Nested(func(nad *netlink.AttributeDecoder) error {
				for nad.Next() {
					if nad.Type() == unix.IFLA_INFO_KIND {
						l.Kind = nad.String()
					}
				}
				return nad.Err()
			})
		}
	}
	return l, ad.Err()
}

// Addrs counts the addresses of a family (unix.AF_INET, unix.AF_INET6) on each
// device, by its index, in the connection's namespace.
func (c *Conn) Addrs(family uint8) (map[int]int, error) {
	replies, err := c.dump("addresses", unix.RTM_GETADDR, []byte{family, 0, 0, 0, 0, 0, 0, 0})
	if err != nil {
		return nil, err
	}
	count := map[int]int{}
	for _, m := range replies {
		if m.Header.Type == unix.RTM_NEWADDR && len(m.Data) >= unix.SizeofIfAddrmsg {
			count[int(binary.NativeEndian.Uint32(m.Data[4:]))]++
		}
	}
	return count, nil
}

// NexthopInfo is a nexthop object that exists.
type NexthopInfo struct {
	ID    uint32
	Group bool
}

// sizeofNhmsg is the size of struct nhmsg.
const sizeofNhmsg = 8

// Nexthops lists the nexthop objects and groups of the connection's namespace.
func (c *Conn) Nexthops() ([]NexthopInfo, error) {
	replies, err := c.dump("nexthops", unix.RTM_GETNEXTHOP, make([]byte, sizeofNhmsg))
	if err != nil {
		return nil, err
	}
	list := make([]NexthopInfo, 0, len(replies))
	for _, m := range replies {
		if m.Header.Type != unix.RTM_NEWNEXTHOP {
			continue
		}
		n, err := parseNexthop(m.Data)
		if err != nil {
			return nil, fmt.Errorf("parse nexthop: %w", err)
		}
		list = append(list, n)
	}
	return list, nil
}

func parseNexthop(data []byte) (n NexthopInfo, err error) {
	if len(data) < sizeofNhmsg {
		return n, errShort
	}
	ad, err := netlink.NewAttributeDecoder(data[sizeofNhmsg:])
	if err != nil {
		return n, err
	}
	for ad.Next() {
		switch ad.Type() {
		case unix.NHA_ID:
			n.ID = ad.Uint32()
		case unix.NHA_GROUP:
			n.Group = true
		}
	}
	return n, ad.Err()
}
