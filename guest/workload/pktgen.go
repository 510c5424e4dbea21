package workload

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path"
	"strconv"
	"strings"

	"github.com/kbisect/kbisect/guest/proto"
	"github.com/kbisect/kbisect/guest/rtnl"
	"golang.org/x/sys/unix"
)

// pktgen is the second table of the lockless qdisc report: what the fix costs in
// packets a second, measured by the kernel's own packet generator.
//
// pktgen has one thread a CPU, bound to it. Of more than that many "threads" of
// ours, each a device entry, a CPU's thread serves its own in turn, a packet each:
// with two CPUs, 16 show what a qdisc costs that two CPUs fight for, not what 16
// would. The report had as many CPUs; so has a guest that is given them.
type pktgen struct{}

func (pktgen) Name() string { return "pktgen" }

func (pktgen) Doc() string {
	return "sends packets with the kernel's generator (xmit_mode queue_xmit) to a dummy with pfifo_fast, from several threads; " +
		"the kernel has one for each CPU, and those beyond share them in turn"
}

// pktgenThreads are the report's.
var pktgenThreads = []string{"1", "2", "4", "8", "16"}

func (pktgen) Params() []Param {
	return []Param{
		{Name: "threads", Default: "1", List: true, Choices: pktgenThreads, Unit: "threads", Doc: "how many, one measurement for each"},
		{Name: "count", Default: "100000", Unit: "packets", Min: 1000, Max: 1_000_000_000, Doc: "packets of a measurement, of all its threads"},
		{Name: "size", Default: "60", Unit: "B", Min: 60, Max: 1514, Doc: "of a packet"},
	}
}

func (pktgen) Metrics() (metrics []Metric) {
	for _, n := range pktgenThreads {
		metrics = append(metrics, Metric{Name: "mpps-" + n, Unit: proto.PerSecond, Better: proto.Higher, When: "threads=" + n,
			Doc: "packets a second that left the device, of threads=" + n + " together"})
	}
	return append(metrics, Metric{Name: "refused", Unit: proto.Count, Better: proto.Lower,
		Doc: "packets that the full qdisc refused, and that were sent again; of all measurements"})
}

// pktgenDir is where the generator of the calling thread's namespace is; plain
// /proc/net is that of the process's first thread.
const pktgenDir = "/proc/thread-self/net/pktgen"

const pktgenDevice = "d0"

// pktgenRun is a pktgen that is set up.
type pktgenRun struct {
	env  Env
	ns   *rtnl.Namespace
	conn *rtnl.Conn
	cpus int // threads that the kernel has
}

func (pktgen) Setup(_ context.Context, env Env) (Instance, error) {
	ns, conn, err := freshNamespace()
	if err != nil {
		return nil, err
	}
	r := &pktgenRun{env: env, ns: ns, conn: conn}
	if err := r.prepare(); err != nil {
		return nil, errors.Join(err, r.Teardown())
	}
	return r, nil
}

func (r *pktgenRun) prepare() error {
	// A packet of the device's own would be counted with ours.
	if err := r.ns.Sysctl("net/ipv6/conf/default/disable_ipv6", "1"); err != nil && !errors.Is(err, unix.ENOENT) {
		return err
	}
	err := r.ns.Do(func() (err error) { r.cpus, err = countPktgen(); return err })
	if err != nil {
		return err
	}
	if err := r.conn.Do(rtnl.AddLink(rtnl.Link{Name: pktgenDevice, Kind: "dummy", Index: firstIndex, Up: true})); err != nil {
		return unsupported(err, "dummy devices", "CONFIG_DUMMY")
	}
	return setPfifoFast(r.conn, r.env.Rec, firstIndex)
}

// countPktgen counts the kernel's generator threads.
func countPktgen() (n int, err error) {
	entries, err := os.ReadDir(pktgenDir)
	if err != nil {
		return 0, unsupported(err, "packet generator", "CONFIG_NET_PKTGEN")
	}
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), "kpktgend_") {
			n++
		}
	}
	if n == 0 {
		return 0, fmt.Errorf("the packet generator has no thread in %s", pktgenDir)
	}
	return n, nil
}

func (r *pktgenRun) Run(ctx context.Context) (ops int64, err error) {
	steps := r.env.Params.Ints("threads")
	var refused int64
	for i, threads := range steps {
		if err := ctx.Err(); err != nil {
			return ops, err
		}
		r.env.Rec.Phase(fmt.Sprintf("threads=%d", threads))
		var s pktgenStep
		err := r.ns.Do(func() (err error) { s, err = r.step(threads); return err })
		if err != nil {
			return ops, err
		}
		if err := r.check(s); err != nil {
			return ops, err
		}
		ops += s.sent
		refused += s.refused
		r.env.Rec.Metric("mpps-"+strconv.Itoa(threads), float64(s.left)/(float64(s.micros)/1e6))
		r.env.Rec.Progress(int64(1+i), int64(len(steps)))
	}
	r.env.Rec.Metric("refused", float64(refused))
	return ops, nil
}

// pktgenStep is one measurement.
type pktgenStep struct {
	threads, count int64
	pktgenResult
	left   int64 // packets that the device has sent
	queued int64 // packets that are in the qdisc, less those that were before
}

// check verifies that what was asked for was sent, by two independent counts. A
// kernel that leaves packets behind in the qdisc is not wrong here, only slower.
func (r *pktgenRun) check(s pktgenStep) error {
	rec, name := r.env.Rec, fmt.Sprintf("threads=%d: ", s.threads)
	return errors.Join(
		rec.Check(name+"packets sent", s.count, s.sent),
		rec.Check(name+"packets that the device sent or the qdisc has", s.sent, s.left+s.queued),
	)
}

// step measures one number of threads, inside the namespace.
func (r *pktgenRun) step(threads int) (s pktgenStep, err error) {
	count := r.env.Params.Int("count") / threads // of a thread
	s.threads, s.count = int64(threads), int64(count*threads)
	if err := r.configure(threads, count); err != nil {
		return s, err
	}
	left, queued, err := r.counts()
	if err != nil {
		return s, err
	}
	if err := tellPktgen("pgctrl", "start"); err != nil { // until all is sent
		return s, err
	}
	if s.pktgenResult, err = collectPktgen(threads); err != nil {
		return s, err
	}
	s.left, s.queued, err = r.counts()
	s.left, s.queued = s.left-left, s.queued-queued
	return s, err
}

// drainTime is how long a qdisc is given to send what it has: a softirq does it
// at once. What is there afterwards was left behind.
const drainTime = int64(20e6)

// counts returns how many packets the device has sent, and how many its qdisc
// has, when nothing moves.
func (r *pktgenRun) counts() (left, queued int64, err error) {
	for begin := r.env.Now(); ; rest(1e6) {
		n, err := queuedIn(r.conn, firstIndex)
		if err != nil {
			return 0, 0, err
		}
		if n == 0 || r.env.Now()-begin > drainTime {
			left, err = transmitted(pktgenDevice)
			return left, int64(n), err
		}
	}
}

// entryName is the file of a thread of ours. What is behind the @ only makes the
// name unique.
func entryName(k int) string { return fmt.Sprintf("%s@%d", pktgenDevice, k) }

// configure makes the entries: the kernel's thread of CPU k mod n serves entry k.
func (r *pktgenRun) configure(threads, count int) error {
	for cpu := range r.cpus {
		if err := tellPktgen(fmt.Sprintf("kpktgend_%d", cpu), "rem_device_all"); err != nil {
			return err
		}
	}
	for k := range threads {
		entry := entryName(k)
		if err := tellPktgen(fmt.Sprintf("kpktgend_%d", k%r.cpus), "add_device "+entry); err != nil {
			return err
		}
		// queue_xmit refuses copies, since a packet in a queue cannot be sent twice.
		for _, line := range []string{
			"clone_skb 0", "xmit_mode queue_xmit", "burst 1", "delay 0",
			fmt.Sprintf("pkt_size %d", r.env.Params.Int("size")),
			fmt.Sprintf("count %d", count),
			"dst 198.18.0.42", "dst_mac 02:00:00:00:00:42", // RFC 2544's network for benchmarks
		} {
			if err := tellPktgen(entry, line); err != nil {
				return err
			}
		}
	}
	return nil
}

// tellPktgen writes one line to a file of the generator.
func tellPktgen(file, line string) error {
	f, err := os.OpenFile(path.Join(pktgenDir, file), os.O_WRONLY, 0)
	if err != nil {
		return fmt.Errorf("open the packet generator's %s: %w", file, err)
	}
	_, err = f.WriteString(line + "\n")
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	if err != nil {
		return fmt.Errorf("tell the packet generator's %s %q: %w", file, line, err)
	}
	return nil
}

// pktgenResult is what the generator says of entries.
type pktgenResult struct {
	sent, refused    int64
	micros           int64 // from the first one's start to the last one's end
	started, stopped int64 // microseconds of CLOCK_MONOTONIC
}

// collectPktgen adds the results of all entries up. The time is the generator's
// own: the start by pgctrl waits for an eighth of a second by itself.
func collectPktgen(threads int) (sum pktgenResult, err error) {
	for k := range threads {
		text, err := os.ReadFile(path.Join(pktgenDir, entryName(k)))
		if err != nil {
			return sum, fmt.Errorf("read the packet generator's result: %w", err)
		}
		one, err := parsePktgen(string(text))
		if err != nil {
			return sum, fmt.Errorf("read the packet generator's %s: %w", entryName(k), err)
		}
		if k == 0 {
			sum.started = one.started
		}
		sum.started, sum.stopped = min(sum.started, one.started), max(sum.stopped, one.stopped)
		sum.sent, sum.refused = sum.sent+one.sent, sum.refused+one.refused
	}
	if sum.micros = sum.stopped - sum.started; sum.micros <= 0 {
		return sum, fmt.Errorf("the packet generator sent %d packets in %d us: measure more of them", sum.sent, sum.micros)
	}
	return sum, nil
}

// parsePktgen reads the file of an entry that has run:
//
//	Current:
//	     pkts-sofar: 100000  errors: 0
//	     started: 11724583us  stopped: 12019321us idle: 61us
//	...
//	Result: OK: 294738(c294677+d61) usec, 100000 (60byte,0frags)
func parsePktgen(text string) (r pktgenResult, err error) {
	_, rest, found := strings.Cut(text, "Current:")
	_, result, ended := strings.Cut(rest, "Result: ")
	if !found || !ended {
		return r, errors.New("it has no result")
	}
	if !strings.HasPrefix(result, "OK:") {
		line, _, _ := strings.Cut(result, "\n")
		return r, fmt.Errorf("its result is %q", line)
	}
	f := strings.Fields(rest)
	for i := 0; i+1 < len(f) && f[i] != "Result:"; i++ {
		into := map[string]*int64{"pkts-sofar:": &r.sent, "errors:": &r.refused, "started:": &r.started, "stopped:": &r.stopped}[f[i]]
		if into == nil {
			continue
		}
		if *into, err = strconv.ParseInt(strings.TrimSuffix(f[i+1], "us"), 10, 64); err != nil {
			return r, fmt.Errorf("%s %w", f[i], err)
		}
	}
	if r.stopped == 0 {
		return r, errors.New("it says no time")
	}
	return r, nil
}

// transmitted reads how many packets a device of the calling thread's namespace
// has sent.
func transmitted(device string) (int64, error) {
	text, err := os.ReadFile("/proc/thread-self/net/dev")
	if err != nil {
		return 0, fmt.Errorf("read device counters: %w", err)
	}
	return parseTransmitted(string(text), device)
}

// parseTransmitted reads a table of /proc/net/dev: behind the name eight columns
// of what was received, then bytes and packets sent.
func parseTransmitted(text, device string) (int64, error) {
	for line := range strings.Lines(text) {
		name, counters, _ := strings.Cut(strings.TrimSpace(line), ":")
		if f := strings.Fields(counters); name == device && len(f) > 9 {
			n, err := strconv.ParseInt(f[9], 10, 64)
			if err != nil {
				return 0, fmt.Errorf("read device counters of %s: %w", device, err)
			}
			return n, nil
		}
	}
	return 0, fmt.Errorf("read device counters: no device %s", device)
}

func (r *pktgenRun) Teardown() error {
	// What is left of the generator's entries goes with the device.
	return errors.Join(r.conn.Close(), r.ns.Close())
}
