package workload

import (
	"context"
	"errors"
	"fmt"
	"net/netip"

	"github.com/kbisect/kbisect/guest/proto"
	"github.com/kbisect/kbisect/guest/rtnl"
	"golang.org/x/sys/unix"
)

// netdevDelete is the script of the netdev_wait_allrefs report: devices with an
// IPv6 address, deleted one after the other. The address makes an anycast and a
// fib6 entry whose references go only after an RCU grace period.
type netdevDelete struct{}

func (netdevDelete) Name() string { return "netdev-delete" }

func (netdevDelete) Doc() string {
	return "creates network devices in a namespace of their own, each with an IPv6 address, " +
		"and deletes them one by one; shows what the last references to a device wait for"
}

func (netdevDelete) Params() []Param {
	return []Param{
		{Name: "count", Default: "100", Unit: "devices", Min: 1, Max: 4000, Doc: "how many"},
		{Name: "type", Default: "dummy", Choices: []string{"dummy", "veth", "vlan"}, Doc: "kind of device; vlans lie on one dummy"},
		{Name: "ipv6", Default: "true", Choices: onOff, Doc: "give each the address 2021:N::1/120"},
		{Name: "up", Default: "true", Choices: onOff, Doc: "set them up"},
		{Name: "forwarding", Default: "true", Choices: onOff, Doc: "forward IPv6: each device joins anycast addresses"},
	}
}

func (netdevDelete) Metrics() []Metric {
	return []Metric{
		{Name: "elapsed", Unit: proto.Nanoseconds, Better: proto.Lower, Doc: "all deletions together"},
		{Name: "create", Unit: proto.Nanoseconds, Better: proto.Lower, Doc: "creation of all devices with their addresses, in batches"},
		{Name: "delete", Unit: proto.Nanoseconds, Better: proto.Lower, Dist: true, Doc: "one deletion, request to acknowledgement"},
	}
}

// firstIndex is the interface index of the first device. Choosing the indexes
// saves asking for them; a fresh namespace uses only the first few.
const firstIndex = 1000

// netdevRun is a netdev-delete that is set up.
type netdevRun struct {
	env   Env
	ns    *rtnl.Namespace
	conn  *rtnl.Conn
	count int
}

func (w netdevDelete) Setup(_ context.Context, env Env) (Instance, error) {
	ns, conn, err := freshNamespace()
	if err != nil {
		return nil, err
	}
	r := &netdevRun{env: env, ns: ns, conn: conn, count: env.Params.Int("count")}
	if err := r.prepare(); err != nil {
		return nil, errors.Join(err, r.Teardown())
	}
	return r, nil
}

// prepare sets the namespace as the script does, and creates the devices. The
// creation is measured as well: it is not what the report is about, but a kernel
// that moved there would be hidden otherwise.
func (r *netdevRun) prepare() error {
	p := r.env.Params
	if p.On("ipv6") {
		for name, on := range map[string]bool{"disable_ipv6": false, "forwarding": p.On("forwarding")} {
			value := "0"
			if on {
				value = "1"
			}
			if err := r.ns.Sysctl("net/ipv6/conf/default/"+name, value); err != nil {
				return unsupported(err, "IPv6 sysctls", "CONFIG_IPV6 and CONFIG_PROC_SYSCTL")
			}
		}
	}
	r.env.Rec.Phase("create")
	requests := r.requests()
	start := r.env.Now()
	err := r.conn.Do(requests...)
	r.env.Rec.Metric("create", float64(r.env.Now()-start))
	if err != nil {
		return r.explain(err)
	}
	return r.checkCreated()
}

// explain names the option that a kernel lacks for what it refused.
func (r *netdevRun) explain(err error) error {
	var re *rtnl.RequestError
	if errors.As(err, &re) && re.Request.Address() {
		return unsupported(err, "IPv6 addresses", "CONFIG_IPV6")
	}
	kind := r.env.Params.Text("type")
	needs := map[string]string{"dummy": "CONFIG_DUMMY", "veth": "CONFIG_VETH", "vlan": "CONFIG_VLAN_8021Q and CONFIG_DUMMY"}
	return unsupported(err, kind+" devices", needs[kind])
}

// requests lists what creates the devices: each, then its address, in the
// script's order.
func (r *netdevRun) requests() (requests []rtnl.Request) {
	p := r.env.Params
	kind, up := p.Text("type"), p.On("up")
	parent := firstIndex - 1
	if kind == "vlan" {
		requests = append(requests, rtnl.AddLink(rtnl.Link{Name: "base", Kind: "dummy", Index: parent, Up: true}))
	}
	for i := range r.count {
		l := rtnl.Link{Name: fmt.Sprintf("eth%d", i), Kind: kind, Index: firstIndex + i, Up: up}
		switch kind {
		case "veth":
			l.Peer, l.PeerIndex = fmt.Sprintf("peer%d", i), firstIndex+r.count+i
		case "vlan":
			l.Parent, l.VLAN = parent, uint16(1+i)
		}
		requests = append(requests, rtnl.AddLink(l))
		if up && l.PeerIndex != 0 {
			requests = append(requests, rtnl.SetLink(l.PeerIndex, true))
		}
		if p.On("ipv6") {
			requests = append(requests, rtnl.AddAddr(l.Index, netip.PrefixFrom(testAddress(i), 120)))
		}
	}
	return requests
}

// testAddress is 2021:i::1.
func testAddress(i int) netip.Addr {
	return netip.AddrFrom16([16]byte{0: 0x20, 1: 0x21, 2: byte(i >> 8), 3: byte(i), 15: 1})
}

// checkCreated counts the devices that are there, and those with an address of
// ours (beside the link-local one of a device that is up).
func (r *netdevRun) checkCreated() error {
	links, err := r.links()
	if err != nil {
		return err
	}
	if err := r.env.Rec.Check("devices created", int64(r.count), links); err != nil {
		return err
	}
	if !r.env.Params.On("ipv6") {
		return nil
	}
	addrs, err := r.conn.Addrs(unix.AF_INET6)
	if err != nil {
		return err
	}
	var with int64
	for i := range r.count {
		if addrs[firstIndex+i] > 0 {
			with++
		}
	}
	return r.env.Rec.Check("devices with an address", int64(r.count), with)
}

// links counts the devices that are to be deleted and exist.
func (r *netdevRun) links() (n int64, err error) {
	links, err := r.conn.Links()
	if err != nil {
		return 0, err
	}
	for _, l := range links {
		if l.Index >= firstIndex && l.Index < firstIndex+r.count {
			n++
		}
	}
	return n, nil
}

func (r *netdevRun) Run(ctx context.Context) (ops int64, err error) {
	r.env.Rec.Phase("delete")
	begin := r.env.Now()
	start := begin
	for i := range r.count {
		if err := ctx.Err(); err != nil {
			return ops, err
		}
		if err := r.conn.Do(rtnl.DelLink(firstIndex + i)); err != nil {
			return ops, err
		}
		end := r.env.Now()
		r.env.Rec.Observe("delete", end-start)
		start = end
		ops++
		r.env.Rec.Progress(ops, int64(r.count))
	}
	r.env.Rec.Metric("elapsed", float64(start-begin))
	left, err := r.links()
	if err != nil {
		return ops, err
	}
	return ops, r.env.Rec.Check("devices left", 0, left)
}

func (r *netdevRun) Teardown() error { return errors.Join(r.conn.Close(), r.ns.Close()) }

// freshNamespace makes a namespace with lo up, and a socket in it.
func freshNamespace() (*rtnl.Namespace, *rtnl.Conn, error) {
	ns, err := rtnl.NewNamespace()
	if errors.Is(err, unix.EINVAL) {
		// unshare(2) knows the flag only when the feature is built in.
		return nil, nil, &UnsupportedError{Feature: "network namespaces", Needs: "CONFIG_NET_NS", Err: err}
	}
	if err != nil {
		return nil, nil, unsupported(err, "network namespaces", "CONFIG_NET_NS")
	}
	conn, err := ns.Dial()
	if err != nil {
		return nil, nil, errors.Join(err, ns.Close())
	}
	const lo = 1
	if err := conn.Do(rtnl.SetLink(lo, true)); err != nil {
		return nil, nil, errors.Join(err, conn.Close(), ns.Close())
	}
	return ns, conn, nil
}
