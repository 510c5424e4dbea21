package rtnl

import (
	"encoding/binary"

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
func (c *Conn) Links() (links []LinkInfo, err error) {
	var b builder
	b.ifinfo(0, 0, 0)
	err = c.dump("devices", unix.RTM_GETLINK, unix.RTM_NEWLINK, b, func(data []byte) error {
		l, err := parseLink(data)
		links = append(links, l)
		return err
	})
	return links, err
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
	count := map[int]int{}
	ask := []byte{family, 0, 0, 0, 0, 0, 0, 0}
	err := c.dump("addresses", unix.RTM_GETADDR, unix.RTM_NEWADDR, ask, func(data []byte) error {
		if len(data) < unix.SizeofIfAddrmsg {
			return errShort
		}
		count[int(binary.NativeEndian.Uint32(data[4:]))]++
		return nil
	})
	return count, err
}

// NexthopInfo is a nexthop object that exists.
type NexthopInfo struct {
	ID    uint32
	Group bool
}

// sizeofNhmsg is the size of struct nhmsg.
const sizeofNhmsg = 8

// Nexthops lists the nexthop objects and groups of the connection's namespace.
func (c *Conn) Nexthops() (list []NexthopInfo, err error) {
	ask := make([]byte, sizeofNhmsg)
	err = c.dump("nexthops", unix.RTM_GETNEXTHOP, unix.RTM_NEWNEXTHOP, ask, func(data []byte) error {
		n, err := parseNexthop(data)
		list = append(list, n)
		return err
	})
	return list, err
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
