package rtnl

import (
	"encoding/binary"

	"golang.org/x/sys/unix"
)

// What x/sys does not name of linux/pkt_sched.h and linux/gen_stats.h.
const (
	qdiscRoot   = 0xffffffff // TC_H_ROOT
	statsQueue  = 3          // TCA_STATS_QUEUE
	sizeofTcmsg = 20
)

// tcmsg appends a struct tcmsg.
func (b *builder) tcmsg(device int, handle, parent uint32) {
	b.u8(unix.AF_UNSPEC, 0)
	b.u16(0)
	b.u32(uint32(device))
	b.u32(handle)
	b.u32(parent)
	b.u32(0)
}

// AddQdisc sets a device's root qdisc, with the kernel's default options. It is
// refused (EEXIST) when one was set before; the one that a device begins with
// does not count.
func AddQdisc(device int, kind string) Request {
	return rootQdisc(device, kind, create, "add qdisc "+kind+" to device")
}

// ReplaceQdisc sets a device's root qdisc, whatever it has.
func ReplaceQdisc(device int, kind string) Request {
	return rootQdisc(device, kind, unix.NLM_F_CREATE|unix.NLM_F_REPLACE, "replace qdisc by "+kind+" on device")
}

func rootQdisc(device int, kind string, flags uint16, what string) Request {
	var b builder
	b.tcmsg(device, 0, qdiscRoot)
	b.attr(unix.TCA_KIND, func() { b.text(kind) })
	return Request{typ: unix.RTM_NEWQDISC, flags: flags, data: b, what: what, id: uint32(device)}
}

// QdiscInfo is a qdisc that exists.
type QdiscInfo struct {
	Device int
	Root   bool
	Kind   string
	Queued int    // packets that wait in it
	Drops  uint32 // packets that it has dropped
}

// Qdiscs lists the qdiscs of the connection's namespace. Those inside of a
// multi-queue device's default root are not shown by the kernel.
func (c *Conn) Qdiscs() (list []QdiscInfo, err error) {
	var b builder
	b.tcmsg(0, 0, 0)
	err = c.dump("qdiscs", unix.RTM_GETQDISC, unix.RTM_NEWQDISC, b, func(data []byte) error {
		q, err := parseQdisc(data)
		list = append(list, q)
		return err
	})
	return list, err
}

func parseQdisc(data []byte) (q QdiscInfo, err error) {
	if len(data) < sizeofTcmsg {
		return q, errShort
	}
	q.Device = int(int32(binary.NativeEndian.Uint32(data[4:])))
	q.Root = binary.NativeEndian.Uint32(data[12:]) == qdiscRoot
	err = attrs(data[sizeofTcmsg:], func(typ uint16, data []byte) error {
		switch typ {
		case unix.TCA_KIND:
			q.Kind = unix.ByteSliceToString(data)
		case unix.TCA_STATS2:
			return attrs(data, q.stats)
		}
		return nil
	})
	return q, err
}

// stats reads a struct gnet_stats_queue: qlen, backlog, drops, requeues,
// overlimits. The kernel sums it up over the CPUs for a lockless qdisc.
func (q *QdiscInfo) stats(typ uint16, data []byte) error {
	if typ != statsQueue {
		return nil
	}
	if len(data) < 12 {
		return errShort
	}
	q.Queued = int(binary.NativeEndian.Uint32(data))
	q.Drops = binary.NativeEndian.Uint32(data[8:])
	return nil
}
