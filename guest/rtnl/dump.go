package rtnl

import (
	"encoding/binary"

	"golang.org/x/sys/unix"
)

// LinkInfo is a device that exists.
type LinkInfo struct {
	Index int
	Name  string
	Kind  string // "" for one without link info, as lo
	Up    bool
	Group uint32
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
	err = attrs(data[unix.SizeofIfInfomsg:], func(typ uint16, data []byte) error {
		switch typ {
		case unix.IFLA_IFNAME:
			l.Name = unix.ByteSliceToString(data)
		case unix.IFLA_GROUP:
			if len(data) != 4 {
				return errShort
			}
			l.Group = binary.NativeEndian.Uint32(data)
		case unix.IFLA_LINKINFO:
			return attrs(data, func(typ uint16, data []byte) error {
				if typ == unix.IFLA_INFO_KIND {
					l.Kind = unix.ByteSliceToString(data)
				}
				return nil
			})
		}
		return nil
	})
	return l, err
}

// Addrs counts the addresses of a family (unix.AF_INET, unix.AF_INET6) on each
// device, by its index, in the connection's namespace.
func (c *Conn) Addrs(family uint8) (map[int]int, error) {
	count := map[int]int{}
	err := c.addrs(family, func(index int, _ uint8) { count[index]++ })
	return count, err
}

// UsableAddrs is Addrs without the addresses that the kernel still checks for a
// duplicate on the link.
func (c *Conn) UsableAddrs(family uint8) (map[int]int, error) {
	count := map[int]int{}
	err := c.addrs(family, func(index int, flags uint8) {
		if flags&unix.IFA_F_TENTATIVE == 0 {
			count[index]++
		}
	})
	return count, err
}

// addrs calls each with the device and the flags of every address.
func (c *Conn) addrs(family uint8, each func(index int, flags uint8)) error {
	ask := []byte{family, 0, 0, 0, 0, 0, 0, 0}
	return c.dump("addresses", unix.RTM_GETADDR, unix.RTM_NEWADDR, ask, func(data []byte) error {
		if len(data) < unix.SizeofIfAddrmsg {
			return errShort
		}
		each(int(binary.NativeEndian.Uint32(data[4:])), data[2])
		return nil
	})
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
	err = attrs(data[sizeofNhmsg:], func(typ uint16, data []byte) error {
		switch typ {
		case unix.NHA_ID:
			if len(data) != 4 {
				return errShort
			}
			n.ID = binary.NativeEndian.Uint32(data)
		case unix.NHA_GROUP:
			n.Group = true
		}
		return nil
	})
	return n, err
}

// attrs calls each with the type, without its flags, and the content of every
// attribute in b.
func attrs(b []byte, each func(typ uint16, data []byte) error) error {
	for len(b) >= unix.SizeofNlAttr {
		n := int(binary.NativeEndian.Uint16(b))
		if n < unix.SizeofNlAttr || n > len(b) {
			return errShort
		}
		const flags = unix.NLA_F_NESTED | unix.NLA_F_NET_BYTEORDER
		if err := each(binary.NativeEndian.Uint16(b[2:])&^flags, b[unix.SizeofNlAttr:n]); err != nil {
			return err
		}
		b = b[min(len(b), (n+3)&^3):]
	}
	return nil
}
