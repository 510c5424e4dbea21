package feature

// feature is a part of the kernel that a word of a command stands for.
type feature struct {
	fragment string // "" where none has it
	why      string // "CONFIG_BRIDGE", or in words
}

// in makes the rows of a table that have a fragment in common, from pairs of a
// word and its symbol without CONFIG_.
func in(table map[string]feature, fragment string, pairs ...string) {
	for i := 0; i+1 < len(pairs); i += 2 {
		table[pairs[i]] = feature{fragment, "CONFIG_" + pairs[i+1]}
	}
}

// kinds are the words behind `ip link add ... type`, and the modes of tunnels.
var kinds = func() map[string]feature {
	t := make(map[string]feature)
	in(t, "dummy", "dummy", "DUMMY")
	in(t, "veth", "veth", "VETH")
	in(t, "vlan", "vlan", "VLAN_8021Q")
	in(t, "bridge", "bridge", "BRIDGE", "bridge_slave", "BRIDGE")
	in(t, "vrf", "vrf", "NET_VRF")
	in(t, "bonding", "bond", "BONDING", "bond_slave", "BONDING")
	in(t, "team", "team", "NET_TEAM", "team_slave", "NET_TEAM")
	in(t, "macvlan", "macvlan", "MACVLAN", "macvtap", "MACVTAP")
	in(t, "ipvlan", "ipvlan", "IPVLAN", "ipvtap", "IPVTAP")
	in(t, "vxlan", "vxlan", "VXLAN")
	in(t, "geneve", "geneve", "GENEVE")
	in(t, "gre", "gre", "NET_IPGRE", "gretap", "NET_IPGRE", "erspan", "NET_IPGRE", "ip6gre", "IPV6_GRE", "ip6gretap", "IPV6_GRE", "ip6erspan", "IPV6_GRE")
	in(t, "tunnel", "ipip", "NET_IPIP", "sit", "IPV6_SIT", "ip6tnl", "IPV6_TUNNEL")
	in(t, "udp-tunnel", "gtp", "GTP", "bareudp", "BAREUDP", "amt", "AMT")
	in(t, "wireguard", "wireguard", "WIREGUARD")
	in(t, "tun", "tun", "TUN", "tap", "TUN")
	in(t, "xfrm", "xfrm", "XFRM_INTERFACE", "vti", "NET_IPVTI", "vti6", "IPV6_VTI")
	in(t, "ifb", "ifb", "IFB")
	in(t, "nlmon", "nlmon", "NLMON")
	in(t, "netdevsim", "netdevsim", "NETDEVSIM")
	in(t, "netkit", "netkit", "NETKIT")
	in(t, "can", "vcan", "CAN_VCAN", "vxcan", "CAN_VXCAN", "can", "CAN_DEV")
	in(t, "macsec", "macsec", "MACSEC")
	in(t, "hsr", "hsr", "HSR")
	in(t, "", "rmnet", "RMNET", "ipoib", "INFINIBAND_IPOIB", "lowpan", "6LOWPAN", "batadv", "BATMAN_ADV", "virt_wifi", "VIRT_WIFI", "wwan", "WWAN",
		"dsa", "NET_DSA", "ovpn", "OVPN", "ppp", "PPP", "pfcp", "PFCP", "vsockmon", "VSOCKMON")
	return t
}()

// modes are those of `ip tunnel add ... mode` that are called otherwise.
var modes = map[string]string{
	"isatap": "sit", "ip6ip6": "ip6tnl", "ipip6": "ip6tnl", "ip4ip6": "ip6tnl", "ipv6/ipv6": "ip6tnl", "ip/ipv6": "ip6tnl", "any": "ip6tnl",
	"ipv4/ipv4": "ipip", "ip/ip": "ipip", "ipv6/ip": "sit", "gre/ip": "gre", "gre/ipv6": "ip6gre", "vti/ipv6": "vti6",
}

// qdiscs are the words behind `tc qdisc add ... root|parent|handle`.
var qdiscs = func() map[string]feature {
	t := make(map[string]feature)
	in(t, "qdisc", "pfifo", "NET_SCHED", "bfifo", "NET_SCHED", "pfifo_fast", "NET_SCHED", "mq", "NET_SCHED", "noqueue", "NET_SCHED", "prio", "NET_SCH_PRIO")
	in(t, "tc", "htb", "NET_SCH_HTB", "hfsc", "NET_SCH_HFSC", "multiq", "NET_SCH_MULTIQ", "red", "NET_SCH_RED", "gred", "NET_SCH_GRED", "sfb", "NET_SCH_SFB",
		"sfq", "NET_SCH_SFQ", "teql0", "NET_SCH_TEQL", "tbf", "NET_SCH_TBF", "cbs", "NET_SCH_CBS", "etf", "NET_SCH_ETF", "taprio", "NET_SCH_TAPRIO",
		"netem", "NET_SCH_NETEM", "drr", "NET_SCH_DRR", "mqprio", "NET_SCH_MQPRIO", "skbprio", "NET_SCH_SKBPRIO", "choke", "NET_SCH_CHOKE", "qfq", "NET_SCH_QFQ",
		"codel", "NET_SCH_CODEL", "fq_codel", "NET_SCH_FQ_CODEL", "cake", "NET_SCH_CAKE", "fq", "NET_SCH_FQ", "hhf", "NET_SCH_HHF", "pie", "NET_SCH_PIE",
		"fq_pie", "NET_SCH_FQ_PIE", "dualpi2", "NET_SCH_DUALPI2", "plug", "NET_SCH_PLUG", "ets", "NET_SCH_ETS", "ingress", "NET_SCH_INGRESS", "clsact", "NET_SCH_INGRESS")
	in(t, "", "cbq", "NET_SCH_CBQ", "dsmark", "NET_SCH_DSMARK", "atm", "NET_SCH_ATM")
	return t
}()

// classifiers are the kinds of `tc filter add`.
var classifiers = func() map[string]feature {
	t := make(map[string]feature)
	in(t, "tc", "basic", "NET_CLS_BASIC", "bpf", "NET_CLS_BPF", "cgroup", "NET_CLS_CGROUP", "flow", "NET_CLS_FLOW", "flower", "NET_CLS_FLOWER", "fw", "NET_CLS_FW",
		"matchall", "NET_CLS_MATCHALL", "route", "NET_CLS_ROUTE4", "u32", "NET_CLS_U32")
	in(t, "", "rsvp", "NET_CLS_RSVP", "rsvp6", "NET_CLS_RSVP6", "tcindex", "NET_CLS_TCINDEX")
	return t
}()

// actions are those of tc, and the short words for gact.
var actions = func() map[string]feature {
	t := make(map[string]feature)
	in(t, "tc", "gact", "NET_ACT_GACT", "mirred", "NET_ACT_MIRRED", "police", "NET_ACT_POLICE", "pedit", "NET_ACT_PEDIT", "vlan", "NET_ACT_VLAN", "skbedit", "NET_ACT_SKBEDIT",
		"ct", "NET_ACT_CT", "bpf", "NET_ACT_BPF", "connmark", "NET_ACT_CONNMARK", "csum", "NET_ACT_CSUM", "ctinfo", "NET_ACT_CTINFO", "gate", "NET_ACT_GATE", "mpls", "NET_ACT_MPLS",
		"nat", "NET_ACT_NAT", "sample", "NET_ACT_SAMPLE", "simple", "NET_ACT_SIMP", "skbmod", "NET_ACT_SKBMOD", "tunnel_key", "NET_ACT_TUNNEL_KEY",
		"drop", "NET_ACT_GACT", "pass", "NET_ACT_GACT", "ok", "NET_ACT_GACT", "shot", "NET_ACT_GACT", "pipe", "NET_ACT_GACT", "continue", "NET_ACT_GACT", "reclassify", "NET_ACT_GACT",
		"trap", "NET_ACT_GACT", "goto", "NET_ACT_GACT")
	in(t, "", "ife", "NET_ACT_IFE", "xt", "NET_ACT_IPT", "ipt", "NET_ACT_IPT")
	return t
}()

// programs are tools that are about one feature whatever their arguments are.
// ip, tc, bridge and modprobe are not: see needOf.
var programs = func() map[string]feature {
	t := make(map[string]feature)
	in(t, "nftables", "nft", "NF_TABLES", "iptables-nft", "NFT_COMPAT", "ip6tables-nft", "NFT_COMPAT", "iptables-nft-restore", "NFT_COMPAT", "ebtables-nft", "NFT_COMPAT", "arptables-nft", "NFT_COMPAT")
	in(t, "netfilter", "iptables", "IP_NF_IPTABLES", "iptables-legacy", "IP_NF_IPTABLES", "iptables-restore", "IP_NF_IPTABLES", "iptables-save", "IP_NF_IPTABLES", "iptables-legacy-restore", "IP_NF_IPTABLES",
		"ip6tables", "IP6_NF_IPTABLES", "ip6tables-legacy", "IP6_NF_IPTABLES", "ip6tables-restore", "IP6_NF_IPTABLES", "ip6tables-save", "IP6_NF_IPTABLES",
		"arptables", "IP_NF_ARPTABLES", "arptables-legacy", "IP_NF_ARPTABLES", "ebtables", "BRIDGE_NF_EBTABLES", "ebtables-legacy", "BRIDGE_NF_EBTABLES")
	in(t, "ipset", "ipset", "IP_SET")
	in(t, "conntrack", "conntrack", "NF_CT_NETLINK")
	in(t, "ipvs", "ipvsadm", "IP_VS")
	in(t, "wireguard", "wg", "WIREGUARD", "wg-quick", "WIREGUARD")
	in(t, "inet-diag", "ss", "INET_DIAG")
	in(t, "bpf", "bpftool", "BPF_SYSCALL", "xdp-loader", "BPF_SYSCALL")
	in(t, "can", "cansend", "CAN_RAW", "candump", "CAN_RAW", "cangen", "CAN_RAW")
	in(t, "team", "teamd", "NET_TEAM", "teamnl", "NET_TEAM", "teamdctl", "NET_TEAM")
	in(t, "bridge", "brctl", "BRIDGE")
	in(t, "bonding", "ifenslave", "BONDING")
	in(t, "mptcp", "mptcpize", "MPTCP")
	in(t, "tun", "tunctl", "TUN", "openvpn", "TUN")
	in(t, "xfrm", "setkey", "NET_KEY", "swanctl", "XFRM_USER")
	in(t, "netdevsim", "devlink", "NET_DEVLINK")
	return t
}()

// tools are the programs that a command is looked for behind a runner.
var tools = func() map[string]bool {
	t := map[string]bool{"ip": true, "tc": true, "bridge": true, "modprobe": true, "insmod": true, "sysctl": true, "echo": true, "cat": true, "ethtool": true}
	for name := range programs {
		t[name] = true
	}
	return t
}()

// ipObjects are the objects of ip that are one feature.
var ipObjects = func() map[string]feature {
	t := make(map[string]feature)
	in(t, "route", "rule", "IP_MULTIPLE_TABLES", "mroute", "IP_MROUTE", "mrule", "IP_MROUTE_MULTIPLE_TABLES", "sr", "IPV6_SEG6_LWTUNNEL")
	in(t, "tun", "tuntap", "TUN")
	in(t, "xfrm", "xfrm", "XFRM_USER")
	in(t, "mptcp", "mptcp", "MPTCP")
	in(t, "macsec", "macsec", "MACSEC")
	in(t, "udp-tunnel", "l2tp", "L2TP")
	in(t, "tunnel", "fou", "NET_FOU", "gue", "NET_FOU")
	in(t, "", "ila", "IPV6_ILA", "ioam", "IPV6_IOAM6_LWTUNNEL")
	return t
}()

// encaps are the words behind `ip route add ... encap`.
var encaps = func() map[string]feature {
	t := make(map[string]feature)
	in(t, "route", "mpls", "MPLS_IPTUNNEL", "seg6", "IPV6_SEG6_LWTUNNEL", "seg6local", "IPV6_SEG6_LWTUNNEL", "rpl", "IPV6_RPL_LWTUNNEL", "ip", "LWTUNNEL", "ip6", "LWTUNNEL")
	in(t, "bpf", "bpf", "LWTUNNEL_BPF")
	in(t, "xfrm", "xfrm", "XFRM_INTERFACE")
	in(t, "", "ila", "IPV6_ILA", "ioam6", "IPV6_IOAM6_LWTUNNEL")
	return t
}()

// modules are those that scripts load and whose name is no kind, qdisc or
// classifier of the tables above; "-" is written as "_".
var modules = func() map[string]feature {
	t := make(map[string]feature)
	in(t, "bonding", "bonding", "BONDING")
	in(t, "vlan", "8021q", "VLAN_8021Q")
	in(t, "pktgen", "pktgen", "NET_PKTGEN")
	in(t, "netfilter", "br_netfilter", "BRIDGE_NETFILTER", "ip_tables", "IP_NF_IPTABLES", "iptable_filter", "IP_NF_FILTER", "iptable_nat", "IP_NF_NAT", "iptable_mangle", "IP_NF_MANGLE", "iptable_raw", "IP_NF_RAW",
		"ip6_tables", "IP6_NF_IPTABLES", "ip6table_filter", "IP6_NF_FILTER", "ip6table_nat", "IP6_NF_NAT", "ip6table_mangle", "IP6_NF_MANGLE", "ip6table_raw", "IP6_NF_RAW",
		"x_tables", "NETFILTER_XTABLES", "arp_tables", "IP_NF_ARPTABLES", "ebtables", "BRIDGE_NF_EBTABLES")
	in(t, "nftables", "nf_tables", "NF_TABLES", "nft_compat", "NFT_COMPAT", "nft_ct", "NFT_CT", "nft_nat", "NFT_NAT", "nft_masq", "NFT_MASQ", "nf_flow_table", "NF_FLOW_TABLE", "nft_flow_offload", "NFT_FLOW_OFFLOAD")
	in(t, "ipset", "ip_set", "IP_SET", "ip_set_hash_ip", "IP_SET_HASH_IP", "ip_set_hash_net", "IP_SET_HASH_NET", "xt_set", "NETFILTER_XT_SET")
	in(t, "conntrack", "nf_conntrack", "NF_CONNTRACK", "nf_conntrack_netlink", "NF_CT_NETLINK", "nf_conntrack_ftp", "NF_CONNTRACK_FTP", "nf_conntrack_tftp", "NF_CONNTRACK_TFTP", "nf_nat", "NF_NAT")
	in(t, "ipvs", "ip_vs", "IP_VS", "ip_vs_rr", "IP_VS_RR", "ip_vs_wrr", "IP_VS_WRR", "ip_vs_lc", "IP_VS_LC", "ip_vs_sh", "IP_VS_SH", "ip_vs_mh", "IP_VS_MH")
	in(t, "gre", "ip_gre", "NET_IPGRE", "ip6_gre", "IPV6_GRE")
	in(t, "tunnel", "fou", "NET_FOU", "fou6", "IPV6_FOU", "ip6_tunnel", "IPV6_TUNNEL", "tunnel4", "NET_IPIP")
	in(t, "udp-tunnel", "l2tp_core", "L2TP", "l2tp_eth", "L2TP_ETH", "l2tp_ip", "L2TP_IP", "l2tp_netlink", "L2TP_V3")
	in(t, "tun", "vhost_net", "VHOST_NET", "vhost", "VHOST_NET")
	in(t, "tls", "tls", "TLS")
	in(t, "xfrm", "esp4", "INET_ESP", "esp6", "INET6_ESP", "ah4", "INET_AH", "ah6", "INET6_AH", "af_key", "NET_KEY", "xfrm_user", "XFRM_USER", "xfrm_interface", "XFRM_INTERFACE", "ip_vti", "NET_IPVTI", "ip6_vti", "IPV6_VTI")
	in(t, "mptcp", "mptcp_diag", "INET_MPTCP_DIAG")
	in(t, "inet-diag", "inet_diag", "INET_DIAG", "tcp_diag", "INET_TCP_DIAG", "udp_diag", "INET_UDP_DIAG", "unix_diag", "UNIX_DIAG", "raw_diag", "INET_RAW_DIAG")
	in(t, "route", "mpls_router", "MPLS_ROUTING", "mpls_iptunnel", "MPLS_IPTUNNEL", "mpls_gso", "NET_MPLS_GSO")
	in(t, "can", "can", "CAN", "can_raw", "CAN_RAW", "can_bcm", "CAN_BCM", "can_gw", "CAN_GW")
	in(t, "", "sctp", "IP_SCTP", "tipc", "TIPC", "openvswitch", "OPENVSWITCH", "rds", "RDS", "batman_adv", "BATMAN_ADV", "tcp_bbr", "TCP_CONG_BBR", "smc", "SMC", "vsock", "VSOCKETS")
	return t
}()

// paths are files that a feature brings, the longest prefix first where one
// begins another.
var paths = []struct {
	prefix string
	feature
}{
	{"/proc/sys/net/netfilter/nf_log", feature{"netfilter", "CONFIG_NF_LOG_IPV4"}},
	{"/proc/sys/net/netfilter/nf_flowtable", feature{"nftables", "CONFIG_NF_FLOW_TABLE"}},
	{"/proc/sys/net/netfilter/", feature{"conntrack", "CONFIG_NF_CONNTRACK"}},
	{"/proc/sys/net/nf_conntrack_max", feature{"conntrack", "CONFIG_NF_CONNTRACK"}},
	{"/proc/net/nf_conntrack", feature{"conntrack", "CONFIG_NF_CONNTRACK_PROCFS"}},
	{"/proc/net/stat/nf_conntrack", feature{"conntrack", "CONFIG_NF_CONNTRACK_PROCFS"}},
	{"/sys/module/nf_conntrack/", feature{"conntrack", "CONFIG_NF_CONNTRACK"}},
	{"/proc/sys/net/bridge/", feature{"netfilter", "CONFIG_BRIDGE_NETFILTER"}},
	{"/proc/net/ip_tables_", feature{"netfilter", "CONFIG_IP_NF_IPTABLES"}},
	{"/proc/net/ip6_tables_", feature{"netfilter", "CONFIG_IP6_NF_IPTABLES"}},
	{"/proc/sys/net/ipv4/vs/", feature{"ipvs", "CONFIG_IP_VS"}},
	{"/proc/net/ip_vs", feature{"ipvs", "CONFIG_IP_VS"}},
	{"/proc/sys/net/mptcp/", feature{"mptcp", "CONFIG_MPTCP"}},
	{"/proc/sys/net/mpls/", feature{"route", "CONFIG_MPLS_ROUTING"}},
	{"/proc/sys/net/ipv4/fib_multipath_", feature{"route", "CONFIG_IP_ROUTE_MULTIPATH"}},
	{"/proc/net/ip_mr_", feature{"route", "CONFIG_IP_MROUTE"}},
	{"/proc/sys/net/core/bpf_jit_", feature{"bpf", "CONFIG_BPF_JIT"}},
	{"/proc/sys/kernel/unprivileged_bpf_disabled", feature{"bpf", "CONFIG_BPF_SYSCALL"}},
	{"/proc/sys/kernel/bpf_stats_enabled", feature{"bpf", "CONFIG_BPF_SYSCALL"}},
	{"/sys/fs/bpf", feature{"bpf", "CONFIG_BPF_SYSCALL"}},
	{"/proc/sys/net/core/xfrm_", feature{"xfrm", "CONFIG_XFRM"}},
	{"/proc/sys/net/ipv4/xfrm4_", feature{"xfrm", "CONFIG_XFRM"}},
	{"/proc/net/xfrm_stat", feature{"xfrm", "CONFIG_XFRM_STATISTICS"}},
	{"/proc/net/tls_stat", feature{"tls", "CONFIG_TLS"}},
	{"/proc/net/can", feature{"can", "CONFIG_CAN"}},
	{"/proc/net/bonding", feature{"bonding", "CONFIG_BONDING"}},
	{"/sys/class/net/bonding_masters", feature{"bonding", "CONFIG_BONDING"}},
	{"/sys/bus/netdevsim", feature{"netdevsim", "CONFIG_NETDEVSIM"}},
	{"/sys/kernel/debug/netdevsim", feature{"netdevsim", "CONFIG_NETDEVSIM"}},
	{"/dev/net/tun", feature{"tun", "CONFIG_TUN"}},
	{"/dev/vhost-net", feature{"tun", "CONFIG_VHOST_NET"}},
	{"/dev/tap", feature{"macvlan", "CONFIG_MACVTAP"}},
	{"/proc/net/pktgen", feature{"pktgen", "CONFIG_NET_PKTGEN"}},
	{"/proc/net/vlan", feature{"vlan", "CONFIG_VLAN_8021Q"}},
	{"/proc/sys/net/sctp", feature{"", "CONFIG_IP_SCTP"}},
	{"/proc/sys/net/smc", feature{"", "CONFIG_SMC"}},
}
