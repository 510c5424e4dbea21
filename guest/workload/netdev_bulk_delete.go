package workload

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/kbisect/kbisect/guest/proto"
	"github.com/kbisect/kbisect/guest/rtnl"
	"golang.org/x/sys/unix"
)

// netdevBulkDelete is the rtnetlink bulk deletion report: many devices that are
// up with nothing but an IPv6 link-local address, deleted in every way there is,
// with others between them that must stay.
type netdevBulkDelete struct{}

func (netdevBulkDelete) Name() string { return "netdev-bulk-delete" }

func (netdevBulkDelete) Doc() string {
	return "creates network devices in a namespace of their own and deletes them one by one with some threads, " +
		"as a group, or as a list in one request; checks that the others between them stay"
}

func (netdevBulkDelete) Params() []Param {
	return []Param{
		{Name: "count", Default: "400", Unit: "devices", Min: 1, Max: 20_000, Doc: "how many to delete"},
		{Name: "mode", Default: "each", Choices: []string{"each", "group", "list", "move", "updown"},
			Doc: "one by one; as a group; as a list, which needs the case's patch; " +
				"move them to a group and delete that; set them up and down"},
		{Name: "threads", Default: "1", Unit: "threads", Min: 1, Max: 256, Doc: "mode=each: how many delete, each its share on a socket of its own"},
		{Name: "type", Default: "dummy", Choices: []string{"dummy", "veth"}, Doc: "kind of device; the other end of a veth goes with it"},
		{Name: "up", Default: "true", Choices: onOff, Doc: "they are up, and each has an IPv6 link-local address"},
		{Name: "keep", Default: "10", Unit: "devices", Min: 0, Max: 1000, Doc: "how many others lie between them and must stay"},
	}
}

func (netdevBulkDelete) Metrics() []Metric {
	return []Metric{
		{Name: "elapsed", Unit: proto.Nanoseconds, Better: proto.Lower, Doc: "all deletions; mode=move: with the move; mode=updown: up and down together"},
		{Name: "create", Unit: proto.Nanoseconds, Better: proto.Lower, Doc: "creation of all devices, in batches"},
		{Name: "delete", Unit: proto.Nanoseconds, Better: proto.Lower, Dist: true, When: "mode=each", Doc: "one deletion, request to acknowledgement"},
		{Name: "move", Unit: proto.Nanoseconds, Better: proto.Lower, When: "mode=move", Doc: "moving all devices to the group, in batches"},
		{Name: "up", Unit: proto.Nanoseconds, Better: proto.Lower, When: "mode=updown", Doc: "setting all devices up, in batches"},
		{Name: "down", Unit: proto.Nanoseconds, Better: proto.Lower, When: "mode=updown", Doc: "setting all devices down, in batches"},
	}
}

// The groups of the devices, at the start or at the end, and of those that stay:
// not the default group, which a mistake would rather leave alone.
const (
	victimGroup = 77
	keptGroup   = 78
)

// absentIndex is an interface index that no device has.
const absentIndex = 1<<31 - 2

// loopback is the index of a namespace's lo, which nobody can delete.
const loopback = 1

// addressTime is how long the devices may take to have their addresses.
const addressTime = time.Minute

// bulkRun is a netdev-bulk-delete that is set up.
type bulkRun struct {
	env     Env
	ns      *rtnl.Namespace
	conn    *rtnl.Conn
	workers []*rtnl.Conn // mode=each
	mode    string
	up      bool           // they are up from the start
	ends    int            // devices that are made as one: 2 of a veth
	victims []int          // indexes of the devices to delete, ascending
	kept    map[int]string // names of those between them, by index
	procs   int            // GOMAXPROCS as it was, when it was raised
}

func (netdevBulkDelete) Setup(ctx context.Context, env Env) (Instance, error) {
	p := env.Params
	if p.Int("threads") > 1 && p.Text("mode") != "each" {
		return nil, fmt.Errorf("threads=%d needs mode=each: any other mode is one request at a time", p.Int("threads"))
	}
	ns, conn, err := freshNamespace()
	if err != nil {
		return nil, err
	}
	r := &bulkRun{env: env, ns: ns, conn: conn, mode: p.Text("mode"), ends: 1}
	r.up = p.On("up") && r.mode != "updown"
	if p.Text("type") == "veth" {
		r.ends = 2
	}
	r.victims, r.kept = interleave(p.Int("count"), p.Int("keep"))
	if err := r.prepare(ctx); err != nil {
		return nil, errors.Join(err, r.Teardown())
	}
	return r, nil
}

// interleave deals count+keep indexes out: those to delete, and the names of the
// others, spread evenly between them.
func interleave(count, keep int) (victims []int, kept map[int]string) {
	total := count + keep
	kept = make(map[int]string, keep)
	for i := range total {
		// The line from 0 to keep, rounded, takes a step here.
		if (i*keep+total/2)/total != ((i+1)*keep+total/2)/total {
			kept[firstIndex+i] = fmt.Sprintf("keep%d", i)
		} else {
			victims = append(victims, firstIndex+i)
		}
	}
	return victims, kept
}

// total is how many devices there are at first, other ends of veths not counted.
func (r *bulkRun) total() int { return len(r.victims) + len(r.kept) }

// prepare creates the devices, and all that must not be part of what is timed.
func (r *bulkRun) prepare(ctx context.Context) error {
	if r.mode == "list" {
		if err := r.knowsLists(); err != nil {
			return err
		}
	}
	if err := r.sysctls(); err != nil {
		return err
	}
	if err := r.create(); err != nil {
		return err
	}
	if err := r.dialWorkers(); err != nil {
		return err
	}
	if r.up {
		if err := r.awaitAddresses(ctx, "devices with a link-local address", r.total()); err != nil {
			return err
		}
	}
	if r.mode == "list" {
		return r.checkBadLists()
	}
	return nil
}

// knowsLists tells a kernel without the patch, which refuses a request that names
// no device. One with it looks for the device that does not exist; neither
// deletes anything.
func (r *bulkRun) knowsLists() error {
	err := r.conn.Do(rtnl.DelLinks(absentIndex))
	switch {
	case errors.Is(err, unix.ENODEV):
		return nil
	case errors.Is(err, unix.EINVAL):
		return &UnsupportedError{Feature: "deletion of a list of devices", Needs: "the patch of patches/netdev-bulk-delete", Err: err}
	case err == nil:
		return errors.New("the kernel claims to have deleted a device that does not exist")
	}
	return err
}

// sysctls lets an address be usable at once, and nobody ask for a router: neither
// is what is measured, and both would happen while it is.
func (r *bulkRun) sysctls() error {
	if !r.up && r.mode != "updown" {
		return nil
	}
	for _, s := range []struct{ name, value string }{{"disable_ipv6", "0"}, {"accept_dad", "0"}, {"router_solicitations", "0"}} {
		if err := r.ns.Sysctl("net/ipv6/conf/default/"+s.name, s.value); err != nil {
			return unsupported(err, "IPv6 sysctls", "CONFIG_IPV6 and CONFIG_PROC_SYSCTL")
		}
	}
	return nil
}

// create makes all devices.
func (r *bulkRun) create() error {
	kind := r.env.Params.Text("type")
	var requests []rtnl.Request
	for i := range r.total() {
		index := firstIndex + i
		l := rtnl.Link{Name: r.kept[index], Kind: kind, Index: index, Up: r.up, Group: keptGroup}
		if l.Name == "" {
			l.Name, l.Group = fmt.Sprintf("eth%d", i), 0
			if r.mode != "move" {
				l.Group = victimGroup
			}
		}
		if r.ends == 2 {
			l.Peer, l.PeerIndex = fmt.Sprintf("peer%d", i), index+r.total()
		}
		requests = append(requests, rtnl.AddLink(l))
		if l.Up && l.PeerIndex != 0 {
			requests = append(requests, rtnl.SetLink(l.PeerIndex, true))
		}
	}
	took, err := r.timed("create", requests)
	if err != nil {
		return unsupported(err, kind+" devices", map[string]string{"dummy": "CONFIG_DUMMY", "veth": "CONFIG_VETH"}[kind])
	}
	r.env.Rec.Metric("create", float64(took))
	return r.checkDevices("devices created", true)
}

// timed does requests as a phase and returns how long they took.
func (r *bulkRun) timed(phase string, requests []rtnl.Request) (took int64, err error) {
	r.env.Rec.Phase(phase)
	begin := r.env.Now()
	err = r.conn.Do(requests...)
	return r.env.Now() - begin, err
}

// forVictims makes a request for each device to delete.
func (r *bulkRun) forVictims(request func(index int) rtnl.Request) []rtnl.Request {
	requests := make([]rtnl.Request, 0, len(r.victims))
	for _, index := range r.victims {
		requests = append(requests, request(index))
	}
	return requests
}

// dialWorkers opens the workers' sockets and gives each a processor, see the
// agent's quiet.
func (r *bulkRun) dialWorkers() error {
	threads := min(r.env.Params.Int("threads"), len(r.victims))
	if threads < 2 {
		return nil
	}
	for range threads {
		c, err := r.ns.Dial()
		if err != nil {
			return err
		}
		r.workers = append(r.workers, c)
	}
	r.procs = runtime.GOMAXPROCS(threads)
	return nil
}

// awaitAddresses waits until so many devices have a link-local address that the
// kernel does not check any more.
func (r *bulkRun) awaitAddresses(ctx context.Context, name string, devices int) error {
	want := int64(devices * r.ends)
	deadline := time.Now().Add(addressTime)
	for {
		with, err := r.addressed()
		if err != nil {
			return err
		}
		if with == want || time.Now().After(deadline) {
			return r.env.Rec.Check(name, want, with)
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// addressed counts the devices with a usable address.
func (r *bulkRun) addressed() (n int64, err error) {
	addrs, err := r.conn.UsableAddrs(unix.AF_INET6)
	if err != nil {
		return 0, err
	}
	for i := range r.total() * r.ends {
		if addrs[firstIndex+i] > 0 {
			n++
		}
	}
	return n, nil
}

// checkBadLists asks for what must be refused as a whole, with devices in it that
// exist, and checks that none is gone.
func (r *bulkRun) checkBadLists() error {
	first, last := r.victims[0], r.victims[len(r.victims)-1]
	for _, bad := range []struct {
		name string
		list []int
		want unix.Errno
	}{
		{"errno of a list with a device twice", []int{first, last, first}, unix.EINVAL},
		{"errno of a list with a device that is not there", []int{first, absentIndex, last}, unix.ENODEV},
		{"errno of a list with the loopback device", []int{first, last, loopback}, unix.EOPNOTSUPP},
	} {
		var got unix.Errno
		if err := r.conn.Do(rtnl.DelLinks(bad.list...)); err != nil && !errors.As(err, &got) {
			return err
		}
		if err := r.env.Rec.Check(bad.name, int64(bad.want), int64(got)); err != nil {
			return err
		}
	}
	return r.checkDevices("devices after refused lists", true)
}

// checkDevices lists the devices and compares them with those that must be there:
// the kept ones, as they were made, and those to delete or none of them.
func (r *bulkRun) checkDevices(name string, all bool) error {
	links, err := r.conn.Links()
	if err != nil {
		return err
	}
	want := int64(len(r.kept) * r.ends)
	if all {
		want = int64(r.total() * r.ends)
	}
	var there, kept int64
	for _, l := range links {
		if l.Index >= firstIndex && l.Index < firstIndex+r.total()*r.ends {
			there++
		}
		if n, ok := r.kept[l.Index]; ok && l.Name == n && l.Group == keptGroup && l.Up == r.up {
			kept++
		}
	}
	if err := r.env.Rec.Check(name, want, there); err != nil {
		return err
	}
	return r.env.Rec.Check("kept "+name, int64(len(r.kept)), kept)
}

func (r *bulkRun) Run(ctx context.Context) (ops int64, err error) {
	switch r.mode {
	case "each":
		err = r.each(ctx)
	case "group":
		err = r.atOnce(rtnl.DelGroup(victimGroup))
	case "list":
		err = r.atOnce(rtnl.DelLinks(r.victims...))
	case "move":
		err = r.moveAndDelete()
	case "updown":
		err = r.upAndDown(ctx)
	}
	if err != nil {
		return 0, err
	}
	if err := r.checkDevices("devices left", false); err != nil {
		return 0, err
	}
	return int64(len(r.victims)), r.checkKeptAddresses()
}

// checkKeptAddresses checks that the devices that stayed still have theirs.
func (r *bulkRun) checkKeptAddresses() error {
	if !r.up {
		return nil
	}
	with, err := r.addressed()
	if err != nil {
		return err
	}
	return r.env.Rec.Check("kept devices with an address", int64(len(r.kept)*r.ends), with)
}

// atOnce deletes all devices with one request.
func (r *bulkRun) atOnce(request rtnl.Request) error {
	took, err := r.timed("delete", []rtnl.Request{request})
	if err != nil {
		return err
	}
	r.env.Rec.Metric("elapsed", float64(took))
	return nil
}

// moveAndDelete makes a group of the devices and deletes it: what a program must
// do that did not know at their creation which ones would go together.
func (r *bulkRun) moveAndDelete() error {
	move, err := r.timed("move", r.forVictims(func(index int) rtnl.Request { return rtnl.SetGroup(index, victimGroup) }))
	if err != nil {
		return err
	}
	r.env.Rec.Metric("move", float64(move))
	took, err := r.timed("delete", []rtnl.Request{rtnl.DelGroup(victimGroup)})
	if err != nil {
		return err
	}
	r.env.Rec.Metric("elapsed", float64(move+took))
	return nil
}

// upAndDown sets the devices up, waits for their addresses outside of what is
// measured, and sets them down. They are deleted afterwards, unmeasured.
func (r *bulkRun) upAndDown(ctx context.Context) error {
	up, err := r.timed("up", r.setAll(true))
	if err != nil {
		return err
	}
	r.env.Rec.Metric("up", float64(up))
	if err := r.awaitAddresses(ctx, "devices up with a link-local address", len(r.victims)); err != nil {
		return err
	}
	down, err := r.timed("down", r.setAll(false))
	if err != nil {
		return err
	}
	r.env.Rec.Metric("down", float64(down))
	r.env.Rec.Metric("elapsed", float64(up+down))
	with, err := r.addressed()
	if err != nil {
		return err
	}
	if err := r.env.Rec.Check("devices down with an address", 0, with); err != nil {
		return err
	}
	return r.conn.Do(rtnl.DelGroup(victimGroup))
}

// setAll sets the devices to delete up or down, both ends of a veth.
func (r *bulkRun) setAll(up bool) (requests []rtnl.Request) {
	for _, index := range r.victims {
		for end := range r.ends {
			requests = append(requests, rtnl.SetLink(index+end*r.total(), up))
		}
	}
	return requests
}

// each deletes the devices one by one, in as many threads as there are workers.
func (r *bulkRun) each(ctx context.Context) error {
	r.env.Rec.Phase("delete")
	var done atomic.Int64
	if len(r.workers) == 0 {
		begin := r.env.Now()
		err := r.share(ctx, r.conn, 0, 1, &done)
		if err == nil {
			r.env.Rec.Metric("elapsed", float64(r.env.Now()-begin))
		}
		return err
	}
	elapsed, err := together(len(r.workers), r.env.Now, func(i int) error {
		return r.share(ctx, r.workers[i], i, len(r.workers), &done)
	})
	if err == nil {
		r.env.Rec.Metric("elapsed", float64(elapsed))
	}
	return err
}

// together runs fn(0) to fn(n-1), each on a thread of its own, as from one signal,
// and returns how long it took until the last was through.
func together(n int, now func() int64, fn func(i int) error) (took int64, err error) {
	errs := make([]error, n)
	start := make(chan struct{})
	var ready, done sync.WaitGroup
	ready.Add(n)
	for i := range n {
		done.Go(func() {
			runtime.LockOSThread()
			defer runtime.UnlockOSThread()
			ready.Done()
			<-start
			errs[i] = fn(i)
		})
	}
	ready.Wait()
	begin := now()
	close(start)
	done.Wait()
	return now() - begin, errors.Join(errs...)
}

// share deletes every nth device from the first on.
func (r *bulkRun) share(ctx context.Context, conn *rtnl.Conn, first, n int, done *atomic.Int64) error {
	for i := first; i < len(r.victims); i += n {
		if err := ctx.Err(); err != nil {
			return err
		}
		begin := r.env.Now()
		if err := conn.Do(rtnl.DelLink(r.victims[i])); err != nil {
			return err
		}
		r.env.Rec.Observe("delete", r.env.Now()-begin)
		r.env.Rec.Progress(done.Add(1), int64(len(r.victims)))
	}
	return nil
}

func (r *bulkRun) Teardown() error {
	if r.procs > 0 {
		runtime.GOMAXPROCS(r.procs)
	}
	var errs []error
	for _, c := range append(r.workers, r.conn) {
		errs = append(errs, c.Close())
	}
	return errors.Join(append(errs, r.ns.Close())...)
}
