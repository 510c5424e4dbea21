package workload

import (
	"context"
	"errors"

	"github.com/kbisect/kbisect/guest/proto"
	"github.com/kbisect/kbisect/guest/rtnl"
)

// nexthopDelete is the nexthop deletion report: nexthop objects on one device,
// each in a group, all of them flushed when the device goes down. A nexthop in
// no group returns early in remove_nexthop_from_groups(), and shows nothing.
type nexthopDelete struct{}

func (nexthopDelete) Name() string { return "nexthop-delete" }

func (nexthopDelete) Doc() string {
	return "adds nexthop objects on one device, each in a group of its own, and flushes them, " +
		"by setting the device down or by deleting them"
}

func (nexthopDelete) Params() []Param {
	return []Param{
		{Name: "count", Default: "1000", Unit: "nexthops", Min: 1, Max: 100_000, Doc: "how many"},
		{Name: "flush", Default: "down", Choices: []string{"down", "del"}, Doc: "set the device down, or delete them in batches"},
		{Name: "groups", Default: "true", Choices: onOff, Doc: "put each into a group"},
	}
}

func (nexthopDelete) Metrics() []Metric {
	return []Metric{
		{Name: "elapsed", Unit: proto.Nanoseconds, Better: proto.Lower, Doc: "insertion and flush together"},
		{Name: "insert", Unit: proto.Nanoseconds, Better: proto.Lower, Doc: "insertion of nexthops and groups, in batches"},
		{Name: "flush", Unit: proto.Nanoseconds, Better: proto.Lower, Doc: "removal of all of them"},
	}
}

// nexthopRun is a nexthop-delete that is set up.
type nexthopRun struct {
	env    Env
	ns     *rtnl.Namespace
	conn   *rtnl.Conn
	count  int
	groups bool
}

func (nexthopDelete) Setup(_ context.Context, env Env) (Instance, error) {
	ns, conn, err := freshNamespace()
	if err != nil {
		return nil, err
	}
	r := &nexthopRun{env: env, ns: ns, conn: conn, count: env.Params.Int("count"), groups: env.Params.On("groups")}
	err = conn.Do(rtnl.AddLink(rtnl.Link{Name: "dummy10", Kind: "dummy", Index: firstIndex, Up: true}))
	if err != nil {
		err = unsupported(err, "dummy devices", "CONFIG_DUMMY")
		return nil, errors.Join(err, r.Teardown())
	}
	return r, nil
}

func (r *nexthopRun) Run(ctx context.Context) (ops int64, err error) {
	r.env.Rec.Phase("insert")
	requests := r.insertRequests()
	begin := r.env.Now()
	err = r.conn.Do(requests...)
	insert := r.env.Now() - begin
	if err != nil {
		return 0, explainNexthop(err)
	}
	// Now, so that it is known should the flush hang.
	r.env.Rec.Metric("insert", float64(insert))
	if err := r.checkInserted(); err != nil {
		return 0, err
	}
	if err := ctx.Err(); err != nil {
		return 0, err
	}
	r.env.Rec.Phase("flush")
	requests = r.flushRequests()
	begin = r.env.Now()
	err = r.conn.Do(requests...)
	flush := r.env.Now() - begin
	if err != nil {
		return 0, err
	}
	r.env.Rec.Metric("flush", float64(flush))
	r.env.Rec.Metric("elapsed", float64(insert+flush))
	left, err := r.conn.Nexthops()
	if err != nil {
		return 0, err
	}
	return int64(r.count), r.env.Rec.Check("nexthops and groups left", 0, int64(len(left)))
}

// insertRequests adds nexthop i and its group count+i for i from 1.
func (r *nexthopRun) insertRequests() []rtnl.Request {
	requests := make([]rtnl.Request, 0, 2*r.count)
	for i := range r.count {
		id := uint32(1 + i)
		requests = append(requests, rtnl.AddNexthop(id, firstIndex))
		if r.groups {
			requests = append(requests, rtnl.AddGroup(uint32(r.count)+id, id))
		}
	}
	return requests
}

// flushRequests removes all. A group goes with its only member.
func (r *nexthopRun) flushRequests() []rtnl.Request {
	if r.env.Params.Text("flush") == "down" {
		return []rtnl.Request{rtnl.SetLink(firstIndex, false)}
	}
	requests := make([]rtnl.Request, 0, r.count)
	for i := range r.count {
		requests = append(requests, rtnl.DelNexthop(uint32(1+i)))
	}
	return requests
}

func (r *nexthopRun) checkInserted() error {
	list, err := r.conn.Nexthops()
	if err != nil {
		return explainNexthop(err)
	}
	var nexthops, groups int64
	for _, n := range list {
		if n.Group {
			groups++
		} else {
			nexthops++
		}
	}
	if err := r.env.Rec.Check("nexthops inserted", int64(r.count), nexthops); err != nil || !r.groups {
		return err
	}
	return r.env.Rec.Check("groups inserted", int64(r.count), groups)
}

// explainNexthop tells a kernel without nexthop objects: rtnetlink refuses a
// message type that it does not know.
func explainNexthop(err error) error {
	return unsupported(err, "nexthop objects", "Linux 5.3 or newer, CONFIG_INET")
}

func (r *nexthopRun) Teardown() error { return errors.Join(r.conn.Close(), r.ns.Close()) }
