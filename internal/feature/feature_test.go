package feature

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/kbisect/kbisect/kconfigs"
)

// TestMissing has what the tools print: iproute2 6.1, iptables 1.8.9, nft 1.0.6,
// ipset 7.17, wg, procps and bash.
func TestMissing(t *testing.T) {
	tests := []struct {
		name, transcript string
		want             []string // "FRAGMENT LINE WHY"
	}{
		{"a bridge", "+ ip link add br0 type bridge\nError: Unknown device type.\n+ ip link set br0 up\nCannot find device \"br0\"\n", []string{"bridge 2 CONFIG_BRIDGE"}},
		{"two, each once", "+ ip link add v type vrf table 10\nError: Unknown device type.\n+ ip link add w type vrf table 11\nError: Unknown device type.\n+ ip link add x type macsec\nError: Unknown device type.\n",
			[]string{"vrf 2 CONFIG_NET_VRF", "macsec 6 CONFIG_MACSEC"}},
		{"no such kind", "+ ip link add x type zebra\nError: Unknown device type.\n", []string{` 2 a device type "zebra"`}},
		{"a kind without a fragment", "+ ip link add x type rmnet mux_id 1\nError: Unknown device type.\n", []string{" 2 CONFIG_RMNET"}},
		{"a batch", "+ ip -b links\nError: Unknown device type.\nCommand failed links:3\n", []string{" 2 a device type"}},
		{"an old kernel's words", "+ ip link add link eth0 name m type macvlan mode bridge\nRTNETLINK answers: Operation not supported\n", []string{"macvlan 2 CONFIG_MACVLAN"}},
		{"runners", "+ timeout 3 ip netns exec a ip -n b -4 link add v type vxlan id 1\nError: Unknown device type.\n++ sudo -E unshare -n ip li add g type geneve id 1 remote 192.0.2.1\nError: Unknown device type.\n",
			[]string{"vxlan 2 CONFIG_VXLAN", "geneve 4 CONFIG_GENEVE"}},
		{"a shell in a shell", "+ unshare -n bash -c 'ip link set lo up; ip link add b type bond'\nError: Unknown device type.\n", []string{"bonding 2 CONFIG_BONDING"}},
		{"time and pipes", "+ ip link add t type team\n+ grep x\n+ tee log\nError: Unknown device type.\n\nreal\t0m0.019s\n", []string{"team 4 CONFIG_NET_TEAM"}},
		{"a qdisc", "+ tc qdisc add dev lo root handle 1: cake bandwidth 1gbit\nError: Specified qdisc kind is unknown.\n", []string{"tc 2 CONFIG_NET_SCH_CAKE"}},
		{"a device with the name of a qdisc", "+ tc qdisc add dev fq parent 1:1 netem delay 1ms\nError: Specified qdisc kind is unknown.\n", []string{"tc 2 CONFIG_NET_SCH_NETEM"}},
		{"no such qdisc", "+ tc qdisc add dev lo root nosuchq\nError: Specified qdisc kind is unknown.\n", []string{" 2 a queueing discipline"}},
		{"a classifier", "+ tc filter add dev lo ingress matchall action drop\nError: TC classifier not found.\nWe have an error talking to the kernel\n", []string{"tc 2 CONFIG_NET_CLS_MATCHALL"}},
		{"a classifier, old", "+ tc filter add dev lo parent 1: protocol ip prio 1 u32 match ip dst 192.0.2.1 flowid 1:1\nRTNETLINK answers: No such file or directory\nWe have an error talking to the kernel\n", []string{"tc 2 CONFIG_NET_CLS_U32"}},
		{"an action", "+ tc filter add dev lo ingress u32 match u32 0 0 police rate 1mbit burst 10k\nError: Failed to load TC action module.\nWe have an error talking to the kernel\n", []string{"tc 2 CONFIG_NET_ACT_POLICE"}},
		{"an action alone", "+ tc actions add action skbedit mark 1\nError: Failed to load TC action module.\n", []string{"tc 2 CONFIG_NET_ACT_SKBEDIT"}},
		{"a class follows from its qdisc", "+ tc class add dev lo parent 1: classid 1:1 htb rate 1mbit\nRTNETLINK answers: No such file or directory\n", nil},
		{"nothing to delete", "+ tc qdisc del dev lo root\nError: Cannot delete qdisc with handle of zero.\n+ tc qdisc del dev lo ingress\nRTNETLINK answers: No such file or directory\n", nil},
		{"rules", "+ ip rule add from 192.0.2.1 table 100\nRTNETLINK answers: Operation not supported\n", []string{"route 2 CONFIG_IP_MULTIPLE_TABLES"}},
		{"no such rule", "+ ip rule del pref 5\nRTNETLINK answers: No such file or directory\n+ ip -6 rule add table 5\nRTNETLINK answers: Operation not supported\n", nil},
		{"multipath", "+ ip route add 198.51.100.0/24 nexthop via 192.0.2.1 nexthop via 192.0.2.2\nError: Multipath support not enabled in kernel.\n", []string{"route 2 CONFIG_IP_ROUTE_MULTIPATH"}},
		{"encapsulation", "+ ip route add 10.1.0.0/16 encap mpls 100 via 127.0.0.1\nError: lwt encapsulation type not supported.\n+ ip route add 10.2.0.0/16 encap bpf out obj x.o dev lo\nError: CONFIG_LWTUNNEL is not enabled in this kernel.\n",
			[]string{"route 2 CONFIG_MPLS_IPTUNNEL", "bpf 4 CONFIG_LWTUNNEL_BPF"}},
		{"a symbol by name", "+ ./test\ntest: CONFIG_TLS is not enabled, skipping\n", []string{"tls 2 CONFIG_TLS"}},
		{"mpls", "+ ip -f mpls route add 100 dev lo\nRTNETLINK answers: Operation not supported\n", []string{"route 2 CONFIG_MPLS_ROUTING"}},
		{"tunnels", "+ ip tunnel add t0 mode gre remote 192.0.2.1\nadd tunnel \"gre0\" failed: No such device\n+ ip -6 tunnel add t1 mode ip6ip6 remote 2001:db8::1\nadd tunnel \"ip6tnl0\" failed: No such device\n",
			[]string{"gre 2 CONFIG_NET_IPGRE", "tunnel 4 CONFIG_IPV6_TUNNEL"}},
		{"generic netlink", "+ ip fou add port 5555 ipproto 4\nRTNETLINK answers: No such file or directory\nError talking to the kernel\n+ ip l2tp add tunnel tunnel_id 1 peer_tunnel_id 1\nRTNETLINK answers: No such file or directory\n+ ip mptcp limits set subflow 2\nRTNETLINK answers: No such file or directory\nError talking to the kernel\n+ ip ila list\nRTNETLINK answers: No such file or directory\n",
			[]string{"tunnel 2 CONFIG_NET_FOU", "udp-tunnel 5 CONFIG_L2TP", "mptcp 7 CONFIG_MPTCP", " 10 CONFIG_IPV6_ILA"}},
		{"xfrm", "+ ip xfrm state add src 192.0.2.1 dst 192.0.2.2 proto esp spi 1 enc 'cbc(aes)' 0x11\nError: Requested type not found.\n", []string{"xfrm 2 CONFIG_XFRM_USER"}},
		{"xfrm's socket", "+ ip xfrm state\nCannot open netlink socket: Protocol not supported\n", []string{"xfrm 2 CONFIG_XFRM_USER"}},
		{"bridge vlan", "+ bridge vlan add dev lo vid 5\nRTNETLINK answers: Operation not supported\n", []string{"bridge 2 CONFIG_BRIDGE_VLAN_FILTERING"}},
		{"devlink", "+ devlink dev\nFailed to connect to devlink Netlink\n", []string{"netdevsim 2 CONFIG_NET_DEVLINK"}},
		{"a device that cannot do it", "+ ip link set lo type dummy\nRTNETLINK answers: Operation not supported\n+ ip link set dev lo master x\nRTNETLINK answers: Operation not supported\n+ bridge fdb add 00:11:22:33:44:55 dev lo\nRTNETLINK answers: Operation not supported\n", nil},
		{"ethtool", "+ ethtool -A lo rx on\nnetlink error: Operation not supported\n+ ethtool -S lo\nno stats available\nCannot get wake-on-lan settings: Operation not supported\n", nil},
		{"what follows", "+ ip link set br0 up\nCannot find device \"br0\"\n+ ip addr add 192.0.2.1/24 dev br0\nCannot find device \"br0\"\n", nil},
		{"iptables", "+ iptables -t nat -A POSTROUTING -j MASQUERADE\niptables v1.8.9 (legacy): can't initialize iptables table `nat': Table does not exist (do you need to insmod?)\nPerhaps iptables or your kernel needs to be upgraded.\n", []string{"netfilter 2 CONFIG_IP_NF_IPTABLES"}},
		{"ip6tables", "ip6tables v1.8.9 (legacy): can't initialize ip6tables table `filter': Table does not exist (do you need to insmod?)\n", []string{"netfilter 1 CONFIG_IP6_NF_IPTABLES"}},
		{"iptables-nft", "+ iptables -L\niptables/1.8.9 Failed to initialize nft: Protocol not supported\n", []string{"nftables 2 CONFIG_NF_TABLES"}},
		{"a match", "+ iptables -A INPUT -m u32 --u32 0=0\nWarning: Extension u32 revision 0 not supported, missing kernel module?\n", []string{"netfilter 2 CONFIG_IP_NF_IPTABLES"}},
		{"nft", "+ nft add table inet t\nnetlink.c:63: Unable to initialize Netlink socket: Protocol not supported\n", []string{"nftables 2 CONFIG_NF_TABLES"}},
		{"nft rule", "+ nft add rule inet t c fib daddr type local drop\nError: Could not process rule: No such file or directory\nadd rule inet t c fib daddr type local drop\n^^^^\n", []string{"nftables 2 CONFIG_NF_TABLES"}},
		{"nft without a table", "+ nft delete table inet t\nError: Could not process rule: No such file or directory\n", nil},
		{"ipset", "+ ipset create m hash:mac\nipset v7.17: Kernel error received: set type not supported\n", []string{"ipset 2 CONFIG_IP_SET"}},
		{"ipset's element", "+ ipset add m 192.0.2.1\nipset v7.17: Element cannot be added to the set: it's already added\n", nil},
		{"ipvs", "+ ipvsadm -Ln\nCan't initialize ipvs: Protocol not available\nAre you sure that IP Virtual Server is built in the kernel or as module?\n", []string{"ipvs 2 CONFIG_IP_VS"}},
		{"wg", "+ wg set wg0 private-key key\nUnable to modify interface: Protocol not supported\n", []string{"wireguard 2 CONFIG_WIREGUARD"}},
		{"modprobe", "+ modprobe sch_fq\nmodprobe: FATAL: Module sch_fq not found in directory /lib/modules/6.1.192\n+ modprobe br-netfilter\nmodprobe: FATAL: Module br-netfilter not found in directory /lib/modules/6.1.192\n+ modprobe zebra\nmodprobe: FATAL: Module zebra not found in directory /lib/modules/6.1.192\n",
			[]string{"tc 2 CONFIG_NET_SCH_FQ", "netfilter 4 CONFIG_BRIDGE_NETFILTER", ` 6 a module "zebra"`}},
		{"no modprobe", "+ modprobe tls\nscript: line 3: modprobe: command not found\n+ modprobe dummy\nscript: line 4: modprobe: command not found\n", []string{"tls 2 CONFIG_TLS"}},
		{"sysctl", "+ sysctl -w net.ipv4.vs.conntrack=1\nsysctl: cannot stat /proc/sys/net/ipv4/vs/conntrack: No such file or directory\n+ sysctl -w net.nosuch=1\nsysctl: cannot stat /proc/sys/net/nosuch: No such file or directory\n", []string{"ipvs 2 CONFIG_IP_VS"}},
		{"files", "+ echo 1\nscript: line 1: /proc/sys/net/bridge/bridge-nf-call-iptables: No such file or directory\n+ cat /proc/net/nf_conntrack\ncat: /proc/net/nf_conntrack: No such file or directory\n+ ls /proc/net/ip_vs\nls: cannot access '/proc/net/ip_vs': No such file or directory\n+ cat /proc/net/nosuch\ncat: /proc/net/nosuch: No such file or directory\n",
			[]string{"netfilter 2 CONFIG_BRIDGE_NETFILTER", "conntrack 4 CONFIG_NF_CONNTRACK_PROCFS", "ipvs 6 CONFIG_IP_VS"}},
		{"tun", "+ ip tuntap add dev t mode tap\nopen: No such file or directory\n", []string{"tun 2 CONFIG_TUN"}},
		{"another open", "+ ip -force link show\n+ ./prog\nopen: No such file or directory\n", nil},
		{"netdevsim", "+ echo '1 1'\nbash: line 1: /sys/bus/netdevsim/new_device: No such file or directory\n", []string{"netdevsim 2 CONFIG_NETDEVSIM"}},
		{"bpf", "+ tc filter add dev lo ingress bpf obj x.o sec tc\nbpf: Failed to load program: Function not implemented\n", []string{"bpf 2 CONFIG_BPF_SYSCALL"}},
		{"another system call", "+ ./prog\nio_uring_setup: Function not implemented\n", nil},
		{"sockets", "+ conntrack -L\nconntrack v1.4.7 (conntrack-tools): Can't open handler\n+ cansend vcan0 1#1\nsocket: Address family not supported by protocol\n+ python3 -c 'import socket'\nOSError: [Errno 97] Address family not supported by protocol\n+ iperf3 --sctp -c ::1\niperf3: error - unable to create a new stream: Protocol not supported\n",
			[]string{"conntrack 2 CONFIG_NF_CT_NETLINK", "can 4 CONFIG_CAN_RAW", " 8 CONFIG_IP_SCTP"}},
		{"ss", "+ ss -K dst 192.0.2.1\nRTNETLINK answers: Operation not supported\n", []string{"inet-diag 2 CONFIG_INET_DIAG"}},
		{"no trace", "Error: Unknown device type.\nRTNETLINK answers: Operation not supported\n", []string{" 1 a device type"}},
		{"CRLF", "+ ip link add i type ifb\r\nError: Unknown device type.\r\n", []string{"ifb 2 CONFIG_IFB"}},
		{"nothing", "", nil},
	}
	for _, tt := range tests {
		var got []string
		for _, n := range Missing([]byte(tt.transcript)) {
			got = append(got, fmt.Sprintf("%s %d %s", n.Fragment, n.Line, n.Why))
		}
		if diff := cmp.Diff(tt.want, got); diff != "" {
			t.Errorf("%s: (-want +got)\n%s", tt.name, diff)
		}
	}
}

func TestMissingSays(t *testing.T) {
	got := Missing([]byte("+ ip netns exec a ip link add br0 type bridge\nError: Unknown device type.\n"))
	want := []Need{{Fragment: "bridge", Line: 2, Text: "Error: Unknown device type.", Command: "ip netns exec a ip link add br0 type bridge", Why: "CONFIG_BRIDGE"}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}

// TestMissingIsBounded: many errors, long lines, and a time that grows with the
// size only.
func TestMissingIsBounded(t *testing.T) {
	var b strings.Builder
	for i := range 1000 {
		b.WriteString("+ ip link add x type kind" + strings.Repeat("i", i%200) + "\nError: Unknown device type.\n")
	}
	if n := len(Missing([]byte(b.String()))); n != maxNeeds {
		t.Errorf("%d needs", n)
	}
	for _, n := range Missing([]byte("+ ip link add x type bridge " + strings.Repeat("é", 5000) + "\nError: Unknown device type." + strings.Repeat("é", 5000))) {
		if len(n.Text) > maxText+3 || len(n.Command) > maxText+3 {
			t.Errorf("%d and %d bytes", len(n.Text), len(n.Command))
		}
	}
	for _, text := range []string{"+ sh -c 'sh -c \"sh -c ip\"' ", "Cannot /proc/ No such file or directory\n", "$($($((", "+ $(\n", "unknown\n", "\"'\\"} {
		text = strings.Repeat(text, maxTranscript/len(text)+1)
		began := time.Now()
		Missing([]byte(text))
		InScript(text)
		if took := time.Since(began); took > 30*time.Second { // 1 s on an idle machine
			t.Errorf("%.10q: %s", text, took)
		}
	}
}

func TestInScript(t *testing.T) {
	tests := []struct{ script, want string }{
		{"#!/bin/bash\nip link add br0 type bridge\n", "bridge"},
		{"for i in $(seq 10); do ip link add v$i type vrf table $((i+10)) || exit 1; done", "vrf"},
		{"ip netns exec a tc qdisc add dev veth0 root handle 1: \\\n  htb default 1", "tc"},
		{"tc qdisc add dev eth0 root prio\nip link add d type dummy\nip link add v type veth\n", ""},
		{"# ip link add br0 type bridge\necho hello # nft list ruleset\n", ""},
		{"if ! iptables -t nat -L >/dev/null 2>&1; then nft list ruleset; fi", "netfilter nftables"},
		{"ipset create s hash:ip && wg show; ss -tn | wc -l; ss -nM", "inet-diag ipset mptcp wireguard"},
		{"echo 1 > /proc/sys/net/netfilter/nf_conntrack_max", "conntrack"},
		{"sysctl -qw net.ipv4.vs.conntrack=1", "ipvs"},
		{"modprobe -a tls nlmon", "tls"},
		{"cat > b <<EOF\nlink add dev g type geneve id 1 remote 192.0.2.1\nEOF\nip -b b", "geneve"},
		{"for i in 1 2; do echo \"link add m$i link lo type macvlan\"; done > b", "macvlan"},
		{"unshare -n bash -c 'ip link add b type bond; ip rule add table 5'", "bonding route"},
		{"x=$(ip tuntap add t mode tap)", "tun"},
		{"ip link add $KIND0 type $KIND", ""},
		{"time for i in {1..1000}; do unshare -n /bin/false; done", ""},
		{"time -p ip -b nexthop.batch; ip link set dev dummy10 down", ""},
		{"ip link set dev lo xdp obj x.o", "bpf"},
		{"ethtool -K lo gro off; ip -6 rule add table 5; ip route add default via 192.0.2.1", ""},
	}
	for _, tt := range tests {
		if got := strings.Join(InScript(tt.script), " "); got != tt.want {
			t.Errorf("%q: %q, want %q", tt.script, got, tt.want)
		}
	}
}

// TestTables holds the tables to the fragments: every name is one, each symbol is
// in the fragment that it is said to be in, and every optional fragment is reached
// by a command or a file.
func TestTables(t *testing.T) {
	reached := make(map[string]bool)
	all := kconfigs.List()
	check := func(word string, f feature) {
		reached[f.fragment] = true
		if f.fragment == "" {
			if name := strings.TrimPrefix(f.why, "CONFIG_"); symbolFragment(name) != "" {
				t.Errorf("%s: no fragment, but %s has %s", word, symbolFragment(name), f.why)
			}
			return
		}
		if !slices.Contains(all, f.fragment) {
			t.Errorf("%s: there is no fragment %s", word, f.fragment)
			return
		}
		text, err := kconfigs.Get(f.fragment)
		if err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(string(text), "\n"+f.why+"=y") && !selected[f.why] {
			t.Errorf("%s: %s does not set %s", word, f.fragment, f.why)
		}
	}
	for _, table := range []map[string]feature{kinds, qdiscs, classifiers, actions, programs, ipObjects, encaps, modules} {
		for word, f := range table {
			check(word, f)
		}
	}
	for i, p := range paths {
		check(p.prefix, p.feature)
		for _, before := range paths[:i] {
			if strings.HasPrefix(p.prefix, before.prefix) {
				t.Errorf("%s is never reached: %s stands before it", p.prefix, before.prefix)
			}
		}
	}
	for mode, kind := range modes {
		if _, ok := kinds[kind]; !ok {
			t.Errorf("mode %s: there is no kind %s", mode, kind)
		}
	}
	for _, name := range kconfigs.Optional() {
		if name == kconfigs.Image {
			continue // a flag needs it, no script
		}
		if !reached[name] {
			t.Errorf("fragment %s: no command needs it", name)
		}
	}
}

// selected are symbols that cannot be set: another one in the fragment brings
// them.
var selected = map[string]bool{
	"CONFIG_NET_DEVLINK":  true, // netdevsim
	"CONFIG_NET_MPLS_GSO": true,
	"CONFIG_IPV6_FOU":     true,
}

func FuzzMissing(f *testing.F) {
	f.Add([]byte("+ ip netns exec a ip -n b link add v type vxlan id 1\nError: Unknown device type.\n++ sh -c 'tc qdisc add dev \"lo\" root fq'\nError: Specified qdisc kind is unknown.\n"))
	f.Add([]byte("+ x=$(ip rule add)\nRTNETLINK answers: Operation not supported\nmodprobe: FATAL: Module tls not found\ncat: /proc/net/ip_vs: No such file or directory\n"))
	all := kconfigs.List()
	f.Fuzz(func(t *testing.T, transcript []byte) {
		lines := 1 + strings.Count(string(transcript), "\n")
		seen := make(map[string]bool)
		last := 0
		for _, n := range Missing(transcript) {
			key := n.Fragment
			if key == "" {
				key = " " + n.Why
			}
			switch {
			case n.Line <= last || n.Line > lines:
				t.Errorf("line %d after %d of %d", n.Line, last, lines)
			case n.Fragment != "" && !slices.Contains(all, n.Fragment):
				t.Errorf("fragment %q", n.Fragment)
			case n.Why == "" || n.Text == "" || seen[key]:
				t.Errorf("%+v", n)
			}
			seen[key], last = true, n.Line
		}
		for _, name := range InScript(string(transcript)) {
			if !optional(name) {
				t.Errorf("InScript: %q", name)
			}
		}
	})
}
