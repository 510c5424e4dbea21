package workload

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"sync/atomic"

	"github.com/kbisect/kbisect/guest/proto"
	"github.com/kbisect/kbisect/guest/rtnl"
	"golang.org/x/sys/unix"
)

// qdiscStress is the lockless qdisc report: a thread queues a frame just while
// another CPU leaves the qdisc, neither sends it, and it stays there until
// something else is sent. So all threads send at once and then stop, and what
// has not arrived a while later is looked for in the qdisc.
type qdiscStress struct{}

func (qdiscStress) Name() string { return "qdisc-stress" }

func (qdiscStress) Doc() string {
	return "sends frames from several threads at once through a lockless qdisc (pfifo_fast), in rounds that leave it idle, " +
		"and accounts for every frame; shows frames that stay behind in the qdisc"
}

// maxBurst is how many frames of a thread in a round can be told apart: a bit each.
const maxBurst = 64

func (qdiscStress) Params() []Param {
	return []Param{
		{Name: "threads", Default: "2", Unit: "threads", Min: 1, Max: 16, Doc: "how many send at once; those beyond the CPUs take turns, and seldom meet in the qdisc"},
		{Name: "dev", Default: "veth", Choices: []string{"veth", "vlan"},
			Doc: "what they send on; vlan is one over veth, a lockless qdisc on each"},
		{Name: "burst", Default: "1", Unit: "frames", Min: 1, Max: maxBurst, Doc: "frames of a thread in a round"},
		{Name: "seconds", Default: "5", Unit: "s", Min: 1, Max: 86_400, Doc: "how long, unless frames says how many"},
		{Name: "frames", Default: "0", Unit: "frames", Min: 0, Max: 1_000_000_000, Doc: "end after that many; 0: by the clock"},
		{Name: "stuck-ms", Default: "50", Unit: "ms", Min: 1, Max: 60_000, Doc: "when a frame that is in the qdisc counts as stuck"},
		{Name: "stop", Default: "false", Choices: onOff, Doc: "end at the first stuck frame"},
	}
}

func (qdiscStress) Metrics() []Metric {
	return []Metric{
		{Name: "delivery", Unit: proto.Nanoseconds, Better: proto.Lower, Dist: true, Doc: "one frame, send to receive"},
		{Name: "stuck", Unit: proto.Count, Better: proto.Lower, Exposure: "exposure", Among: "frames",
			Doc: "frames that stayed in the qdisc while nobody was sending"},
		{Name: "stuck-ppm", Unit: proto.PerMillion, Better: proto.Lower, Doc: "stuck frames per million"},
		{Name: "exposure", Unit: proto.Nanoseconds, Better: proto.Higher, Doc: "stress until the first stuck frame, or all of it"},
		{Name: "frames", Unit: proto.Count, Better: proto.Higher, Doc: "frames sent, all of which were received"},
		{Name: "rate", Unit: proto.PerSecond, Better: proto.Higher, Doc: "frames a second, waiting for stuck ones included"},
		{Name: "late", Unit: proto.Count, Better: proto.Lower,
			Doc: "frames that took as long, but were not in the qdisc: a CPU that did not run"},
	}
}

// Indexes of the pair of devices, and of the pair of vlans over them.
const (
	senderIndex   = firstIndex
	receiverIndex = firstIndex + 1
	vlanOffset    = 10
)

// losePatience is how long a frame is waited for that is not in the qdisc, or
// does not come out of it.
const losePatience = int64(10e9)

// stressRun is a qdisc-stress that is set up.
type stressRun struct {
	env     Env
	ns      *rtnl.Namespace
	conn    *rtnl.Conn
	crew    *crew
	ring    *ring
	senders []sender
	qdiscs  []int // devices with a lockless qdisc
	burst   int
	time    int64 // ns that the stress lasts
	limit   int64 // ns after which a frame is stuck
	procs   int   // GOMAXPROCS before

	random uint64 // state of next
	sweep  int    // turns of spinFor: the longest delay
	round  uint32
	got    []uint64 // by thread: a bit for each frame of the round that arrived
	held   []uint64 // those of them that were found stuck
	absent int      // frames of the round that have not arrived
	kicks  int      // kicks that have not arrived

	sent, received, odd, stuck, late int64
}

// sender is what one thread sends with. Each has a cache line of its own.
type sender struct {
	fd    int
	frame []byte
	delay int   // turns of spinFor before the first frame of the round
	sent  int   // frames that went out in the last order
	err   error // of the last order
	_     [64]byte
}

func (qdiscStress) Setup(_ context.Context, env Env) (Instance, error) {
	ns, conn, err := freshNamespace()
	if err != nil {
		return nil, err
	}
	threads := env.Params.Int("threads")
	r := &stressRun{
		env: env, ns: ns, conn: conn, random: 0x9e3779b97f4a7c15, burst: env.Params.Int("burst"),
		time: int64(env.Params.Int("seconds")) * 1e9, limit: int64(env.Params.Int("stuck-ms")) * 1e6,
		got: make([]uint64, threads), held: make([]uint64, threads),
		// One more than there are threads: for what else the process does.
		procs: runtime.GOMAXPROCS(threads + 1),
	}
	if err := r.prepare(threads); err != nil {
		return nil, errors.Join(err, r.Teardown())
	}
	return r, nil
}

func (r *stressRun) prepare(threads int) (err error) {
	// Its neighbour and multicast messages would move a stuck frame along.
	// A kernel without IPv6 has none.
	if err := r.ns.Sysctl("net/ipv6/conf/default/disable_ipv6", "1"); err != nil && !errors.Is(err, unix.ENOENT) {
		return err
	}
	from, to, err := r.devices()
	if err != nil {
		return err
	}
	if err := r.lockless(); err != nil {
		return err
	}
	if r.crew, err = newCrew(threads); err != nil {
		return err
	}
	return r.ns.Do(func() error { return r.open(threads, from, to) })
}

// devices makes the devices and returns on which to send and to receive.
func (r *stressRun) devices() (from, to int, err error) {
	err = r.conn.Do(
		rtnl.AddLink(rtnl.Link{Name: "v0", Kind: "veth", Index: senderIndex, Peer: "v1", PeerIndex: receiverIndex, Up: true}),
		rtnl.SetLink(receiverIndex, true),
	)
	if err != nil {
		return 0, 0, unsupported(err, "veth devices", "CONFIG_VETH")
	}
	r.qdiscs = []int{senderIndex}
	if r.env.Params.Text("dev") == "veth" {
		return senderIndex, receiverIndex, nil
	}
	const id = 7
	from, to = senderIndex+vlanOffset, receiverIndex+vlanOffset
	err = r.conn.Do(
		rtnl.AddLink(rtnl.Link{Name: "v0.7", Kind: "vlan", Index: from, Parent: senderIndex, VLAN: id, Up: true}),
		rtnl.AddLink(rtnl.Link{Name: "v1.7", Kind: "vlan", Index: to, Parent: receiverIndex, VLAN: id, Up: true}),
	)
	if err != nil {
		return 0, 0, unsupported(err, "vlan devices", "CONFIG_VLAN_8021Q")
	}
	r.qdiscs = append(r.qdiscs, from)
	return from, to, nil
}

// lockless gives the sending devices pfifo_fast, and checks it: both kinds have
// no queue by default, and nothing would be shown.
func (r *stressRun) lockless() error {
	for _, device := range r.qdiscs {
		if err := setPfifoFast(r.conn, r.env.Rec, device); err != nil {
			return err
		}
	}
	return nil
}

// setPfifoFast makes pfifo_fast, the one lockless qdisc of the kernel, a device's
// root, and checks that it is.
func setPfifoFast(conn *rtnl.Conn, rec Recorder, device int) error {
	const kind = "pfifo_fast"
	if err := conn.Do(rtnl.ReplaceQdisc(device, kind)); err != nil {
		return unsupported(err, "queueing disciplines", "CONFIG_NET_SCHED")
	}
	list, err := conn.Qdiscs()
	if err != nil {
		return err
	}
	var is int64
	for _, q := range list {
		if q.Device == device && q.Root && q.Kind == kind {
			is++
		}
	}
	return rec.Check(fmt.Sprintf("device %d has the root qdisc pfifo_fast", device), 1, is)
}

// open opens the sockets, inside the namespace.
func (r *stressRun) open(threads, from, to int) (err error) {
	if r.ring, err = openRing(to); err != nil {
		return unsupported(err, "packet sockets", "CONFIG_PACKET")
	}
	for range threads {
		fd, err := openPacket(from, 0)
		if err != nil {
			return err
		}
		r.senders = append(r.senders, sender{fd: fd, frame: newFrame()})
	}
	return nil
}

func (r *stressRun) Run(ctx context.Context) (ops int64, err error) {
	r.env.Rec.Phase("stress")
	// On a thread that is thrown away: it is bound to a CPU.
	done := make(chan error, 1)
	go func() {
		runtime.LockOSThread()
		done <- r.lead(ctx)
	}()
	if err := <-done; err != nil {
		return r.received, err
	}
	return r.received, nil
}

// progressRounds is how often progress is looked at: some dozen times a second.
const progressRounds = 1000

// lead is the stress, on the crew's first thread.
func (r *stressRun) lead(ctx context.Context) error {
	if err := r.crew.start(); err != nil {
		return err
	}
	defer r.crew.stop()
	if err := r.calibrate(); err != nil {
		return err
	}
	frames := int64(r.env.Params.Int("frames"))
	begin := r.env.Now()
	exposure := int64(-1)
	// The clock is the one of the rounds: an emulated one takes a microsecond to
	// read, a tenth of what a frame takes.
	for at := begin; !r.over(at-begin, frames); {
		if err := ctx.Err(); err != nil {
			return err
		}
		before, err := r.stuck, error(nil)
		if at, err = r.oneRound(); err != nil {
			return errors.Join(err, r.account())
		}
		if r.stuck > before && exposure < 0 {
			exposure = at - begin
		}
		if r.round%progressRounds == 0 || r.stuck > before {
			// Without a total: the last round may go beyond it.
			r.env.Rec.Progress(r.received, 0)
		}
	}
	elapsed := r.env.Now() - begin
	if exposure < 0 {
		exposure = elapsed
	}
	r.report(elapsed, exposure)
	return r.account()
}

// over reports whether the stress has been long enough.
func (r *stressRun) over(elapsed, frames int64) bool {
	switch {
	case r.stuck > 0 && r.env.Params.On("stop"):
		return true
	case frames > 0:
		return r.received >= frames
	}
	return elapsed >= r.time
}

func (r *stressRun) report(elapsed, exposure int64) {
	rec := r.env.Rec
	rec.Metric("stuck", float64(r.stuck))
	rec.Metric("stuck-ppm", 1e6*float64(r.stuck)/float64(r.received))
	rec.Metric("exposure", float64(exposure))
	rec.Metric("frames", float64(r.received))
	rec.Metric("rate", float64(r.received)/(float64(elapsed)/1e9))
	rec.Metric("late", float64(r.late))
}

// account checks that every frame arrived once.
func (r *stressRun) account() error {
	dropped, err := r.ring.dropped()
	if err != nil {
		return err
	}
	rec := r.env.Rec
	return errors.Join(
		rec.Check("frames dropped by the receiver", 0, dropped),
		rec.Check("frames received", r.sent, r.received),
		rec.Check("frames that were not expected", 0, r.odd),
	)
}

// oneRound lets every thread send, waits until all has arrived, and returns when
// the last thread had sent.
func (r *stressRun) oneRound() (sentAt int64, err error) {
	r.round++
	clear(r.got)
	clear(r.held)
	r.absent = r.burst * len(r.senders)
	r.shift()
	r.crew.do(r.sendBurst)
	for i := 0; i < r.crew.spin && !r.crew.finished(); i++ {
		r.take() // what has arrived is delivered now, not when all have sent
	}
	r.crew.join()
	sentAt = r.env.Now()
	for i := range r.senders {
		s := &r.senders[i]
		r.sent += int64(s.sent)
		if s.err != nil && err == nil {
			err = s.err
		}
	}
	if err != nil {
		return sentAt, err
	}
	for i := 0; r.absent > 0; i++ {
		if r.take() > 0 || i < r.crew.spin {
			continue
		}
		if now := r.env.Now(); now-sentAt > r.limit {
			return sentAt, r.search()
		}
		if err := r.ring.wait(1e6); err != nil {
			return sentAt, err
		}
	}
	return sentAt, nil
}

// Shape of the calibration.
const (
	calibrationTries = 8
	calibrationSends = 8
	calibrationTurns = 10_000
)

// calibrate measures what a frame takes to send, in turns of spinFor, and lets
// the threads be up to one and a half of that apart: what is queued at the very
// end of another one's send stays behind (five times as many frames of a million
// do, under emulation, as when all begin at once).
func (r *stressRun) calibrate() error {
	send, spin := losePatience, losePatience
	for range calibrationTries { // the best: the host may be busy
		begin := r.env.Now()
		r.kick(0, calibrationSends)
		sent := r.env.Now()
		spinFor(calibrationTurns)
		send, spin = min(send, sent-begin), min(spin, r.env.Now()-sent)
		r.kicks += r.senders[0].sent
		if err := r.flush(); err != nil {
			return err
		}
	}
	r.sweep = int(send / calibrationSends * calibrationTurns * 3 / 2 / max(1, spin))
	return nil
}

// shift makes the threads begin the next round apart: one, by turns of chance,
// at once, each other one after a random delay. Threads that begin together
// always meet at the same place; this way they meet everywhere.
func (r *stressRun) shift() {
	for i := range r.senders {
		r.senders[i].delay = int(r.next() % uint64(r.sweep+1))
	}
	r.senders[r.next()%uint64(len(r.senders))].delay = 0
}

// next is xorshift64: the same numbers in every run.
func (r *stressRun) next() uint64 {
	r.random ^= r.random << 13
	r.random ^= r.random >> 7
	r.random ^= r.random << 17
	return r.random
}

// spinFor passes a time that only the processor's speed decides. It reads no
// clock, since an emulated one makes those who read it wait for each other.
func spinFor(turns int) {
	var n atomic.Int32 // which no compiler leaves out
	for range turns {
		n.Add(1)
	}
}

// sendBurst sends one thread's frames of the round.
func (r *stressRun) sendBurst(k int) {
	s := &r.senders[k]
	s.sent, s.err = 0, nil
	spinFor(s.delay)
	f := frame{kind: measuredFrame, thread: k, round: r.round}
	for f.index = range r.burst {
		f.sent = r.env.Now()
		f.put(s.frame)
		if s.err = sendFrame(s.fd, s.frame); s.err != nil {
			return
		}
		s.sent++
	}
}

// take receives what has arrived, and returns how many frames that was.
func (r *stressRun) take() int { return r.ring.take(r.receive) }

func (r *stressRun) receive(f frame) {
	if f.kind == kickFrame {
		r.kicks--
		return
	}
	bit := uint64(1) << (f.index % maxBurst)
	if f.round != r.round || f.thread >= len(r.got) || r.got[f.thread]&bit != 0 {
		r.odd++
		return
	}
	took := r.env.Now() - f.sent
	r.env.Rec.Observe("delivery", took)
	r.got[f.thread] |= bit
	r.received++
	r.absent--
	if took > r.limit && r.held[f.thread]&bit == 0 {
		r.late++
	}
}

// search finds out where the frames are that have not arrived in time.
//
// An emulated CPU can be off its processor for longer than the limit, with the
// softirq pending that would send the frame, and that is late, not stuck. So all
// threads sleep first, each on its CPU: when they are back, every CPU that sent
// has run, and has been idle, which ksoftirqd needs. A frame that is in the qdisc
// even then, and after a second such sleep, has nobody who would send it: it is
// stuck.
func (r *stressRun) search() error {
	looks := 0
	for begin := r.env.Now(); ; {
		r.crew.do(func(int) { rest(1e6) })
		r.crew.join()
		r.take()
		queued, err := queuedIn(r.conn, r.qdiscs...)
		if err != nil {
			return err
		}
		// It may have left the qdisc between the two looks.
		r.take()
		if looks++; queued == 0 {
			looks = 0
		}
		switch {
		case r.absent == 0:
			return nil
		case looks > 1:
			r.stuck += int64(min(queued, r.absent))
			r.hold()
			return r.flush()
		case r.env.Now()-begin > losePatience:
			return fmt.Errorf("round %d: %d frames are neither received nor in the qdisc", r.round, r.absent)
		}
		if err := r.ring.wait(1e6); err != nil {
			return err
		}
	}
}

// queuedIn counts the packets in the root qdiscs of devices.
func queuedIn(conn *rtnl.Conn, devices ...int) (n int, err error) {
	list, err := conn.Qdiscs()
	for _, q := range list {
		if q.Root && slices.Contains(devices, q.Device) {
			n += q.Queued
		}
	}
	return n, err
}

// hold remembers which frames of the round are stuck.
func (r *stressRun) hold() {
	all := ^uint64(0) >> (maxBurst - r.burst)
	for k, got := range r.got {
		r.held[k] = all &^ got
	}
}

// kickBurst is how many kicks each thread sends at once.
const kickBurst = 8

// flush gets stuck frames out of the qdisc, and the kicks that it takes. One
// frame does it in a kernel whose senders look into the queue. Where they pass
// an idle qdisc by (TCQ_F_CAN_BYPASS, Linux 5.14 and newer), only one who finds
// the qdisc busy and then free looks into it, so that all threads kick at once,
// until nothing is left behind.
func (r *stressRun) flush() error {
	count := 1
	for begin := r.env.Now(); r.absent > 0 || r.kicks > 0; count = kickBurst {
		if r.env.Now()-begin > losePatience {
			return fmt.Errorf("round %d: %d frames stay in the qdisc whatever is sent after them", r.round, r.absent)
		}
		r.crew.do(func(k int) { r.kick(k, count) })
		r.crew.join()
		for i := range r.senders {
			r.kicks += r.senders[i].sent
		}
		r.take()
		if r.absent > 0 || r.kicks > 0 {
			if err := r.ring.wait(1e5); err != nil {
				return err
			}
			r.take()
		}
	}
	return nil
}

// kick sends one thread's kicks; a single one is the leader's. One that the full
// queue refuses is none.
func (r *stressRun) kick(k, count int) {
	s := &r.senders[k]
	s.sent = 0
	if count == 1 && k > 0 {
		return
	}
	frame{kind: kickFrame, thread: k, round: r.round}.put(s.frame)
	for range count {
		if sendFrame(s.fd, s.frame) == nil {
			s.sent++
		}
	}
}

// rest sleeps without the Go scheduler, on the thread's own CPU.
func rest(ns int64) {
	t := unix.NsecToTimespec(ns)
	_ = unix.Nanosleep(&t, nil) // cut short, it was long enough to run
}

func (r *stressRun) Teardown() error {
	runtime.GOMAXPROCS(r.procs)
	errs := []error{r.conn.Close(), r.ns.Close()}
	for _, s := range r.senders {
		errs = append(errs, unix.Close(s.fd))
	}
	if r.ring != nil {
		errs = append(errs, r.ring.close())
	}
	return errors.Join(errs...)
}
