package workload

import (
	"encoding/binary"
	"fmt"
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"
)

// frameLen is the shortest Ethernet frame, without its checksum.
const frameLen = 60

// frameType is the first of the EtherTypes for local experiments: whatever else
// a device sends by itself is not received as one of ours.
const frameType = 0x88b5

// frameKind says what a frame is for.
type frameKind byte

const (
	measuredFrame frameKind = 'm'
	kickFrame     frameKind = 'k' // moves those that are stuck; nobody waits for it
)

// frame is the stamp that a frame carries.
type frame struct {
	kind   frameKind
	thread int
	index  int    // among those of the thread in the round
	round  uint32 // counts from 1
	sent   int64  // ns of the run's clock, taken just before the send
}

// Offsets in a frame, behind the addresses.
const (
	atType   = 12
	atKind   = 14
	atThread = 15
	atIndex  = 16
	atRound  = 18
	atSent   = 22
)

// put writes the stamp into a frame that newFrame made.
func (f frame) put(b []byte) {
	b[atKind], b[atThread], b[atIndex] = byte(f.kind), byte(f.thread), byte(f.index)
	binary.BigEndian.PutUint32(b[atRound:], f.round)
	binary.BigEndian.PutUint64(b[atSent:], uint64(f.sent))
}

// readFrame reads a stamp; ok is false of a frame that is not ours.
func readFrame(b []byte) (f frame, ok bool) {
	if len(b) < frameLen || binary.BigEndian.Uint16(b[atType:]) != frameType {
		return f, false
	}
	return frame{
		kind: frameKind(b[atKind]), thread: int(b[atThread]), index: int(b[atIndex]),
		round: binary.BigEndian.Uint32(b[atRound:]),
		sent:  int64(binary.BigEndian.Uint64(b[atSent:])),
	}, true
}

// newFrame makes a frame to everybody, from a local address.
func newFrame() []byte {
	b := make([]byte, frameLen)
	for i := range 6 {
		b[i] = 0xff
	}
	b[6] = 0x02
	binary.BigEndian.PutUint16(b[atType:], frameType)
	return b
}

// networkOrder is a 16-bit number as a socket address has it.
func networkOrder(v uint16) uint16 {
	return binary.NativeEndian.Uint16([]byte{byte(v >> 8), byte(v)})
}

// openPacket opens a packet socket on a device of the calling thread's
// namespace. Protocol 0 receives nothing. Its frames go through the device's
// qdisc, since nobody sets PACKET_QDISC_BYPASS.
func openPacket(device int, protocol uint16) (int, error) {
	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return -1, fmt.Errorf("open packet socket: %w", err)
	}
	err = unix.Bind(fd, &unix.SockaddrLinklayer{Protocol: networkOrder(protocol), Ifindex: device})
	if err != nil {
		unix.Close(fd)
		return -1, fmt.Errorf("bind packet socket to device %d: %w", device, err)
	}
	return fd, nil
}

// sendFrame sends a frame without telling Go's scheduler, which would hand the
// thread's processor on and take it back for each one. It does not block.
func sendFrame(fd int, b []byte) error {
	_, _, errno := unix.RawSyscall6(unix.SYS_SENDTO, uintptr(fd), uintptr(unsafe.Pointer(&b[0])), uintptr(len(b)),
		unix.MSG_DONTWAIT, 0, 0)
	if errno != 0 {
		return fmt.Errorf("send frame: %w", errno)
	}
	return nil
}

// Shape of the ring: room for all frames that a round can have, eight times.
const (
	ringFrame  = 256
	ringBlock  = 4096
	ringBlocks = 512
	ringFrames = ringBlock / ringFrame * ringBlocks
)

// ring receives frames into memory that is shared with the kernel: looking for
// one costs no system call. It is for one goroutine; its owner closes it.
type ring struct {
	fd   int
	mem  []byte
	next int // the slot that is filled next
}

// openRing receives our frames on a device of the calling thread's namespace.
func openRing(device int) (r *ring, err error) {
	fd, err := openPacket(device, 0)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			unix.Close(fd)
		}
	}()
	if err := unix.SetsockoptInt(fd, unix.SOL_PACKET, unix.PACKET_VERSION, unix.TPACKET_V2); err != nil {
		return nil, fmt.Errorf("set up packet ring: %w", err)
	}
	req := &unix.TpacketReq{Block_size: ringBlock, Block_nr: ringBlocks, Frame_size: ringFrame, Frame_nr: ringFrames}
	if err := unix.SetsockoptTpacketReq(fd, unix.SOL_PACKET, unix.PACKET_RX_RING, req); err != nil {
		return nil, fmt.Errorf("set up packet ring: %w", err)
	}
	mem, err := unix.Mmap(fd, 0, ringBlock*ringBlocks, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return nil, fmt.Errorf("map packet ring: %w", err)
	}
	// Only now, so that no frame is queued on the socket beside the ring.
	err = unix.Bind(fd, &unix.SockaddrLinklayer{Protocol: networkOrder(frameType), Ifindex: device})
	if err != nil {
		return nil, fmt.Errorf("bind packet ring to device %d: %w", device, err)
	}
	return &ring{fd: fd, mem: mem}, nil
}

// take calls each with every frame of ours that has arrived, and returns how
// many there were.
func (r *ring) take(each func(frame)) (n int) {
	for {
		slot := r.mem[r.next*ringFrame : (r.next+1)*ringFrame]
		status := (*uint32)(unsafe.Pointer(&slot[0]))
		if atomic.LoadUint32(status)&unix.TP_STATUS_USER == 0 {
			return n
		}
		head := (*unix.Tpacket2Hdr)(unsafe.Pointer(&slot[0]))
		start := int(head.Mac)
		end := min(start+int(head.Snaplen), len(slot))
		if f, ok := readFrame(slot[min(start, end):end]); ok {
			each(f)
			n++
		}
		atomic.StoreUint32(status, unix.TP_STATUS_KERNEL)
		r.next = (r.next + 1) % ringFrames
	}
}

// wait blocks until a frame has arrived or the time is over.
func (r *ring) wait(ns int64) error {
	fds := []unix.PollFd{{Fd: int32(r.fd), Events: unix.POLLIN}}
	limit := unix.NsecToTimespec(ns)
	if _, err := unix.Ppoll(fds, &limit, nil); err != nil && err != unix.EINTR {
		return fmt.Errorf("wait for frames: %w", err)
	}
	return nil
}

// dropped returns how many frames found the ring full since the last call.
func (r *ring) dropped() (int64, error) {
	s, err := unix.GetsockoptTpacketStats(r.fd, unix.SOL_PACKET, unix.PACKET_STATISTICS)
	if err != nil {
		return 0, fmt.Errorf("read packet statistics: %w", err)
	}
	return int64(s.Drops), nil
}

func (r *ring) close() error {
	err := unix.Munmap(r.mem)
	if cerr := unix.Close(r.fd); err == nil {
		err = cerr
	}
	return err
}
