package feature

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// message is a kind of error line.
type message struct {
	has   []string // one of them is in every such line: most lines are seen through by this
	re    *regexp.Regexp
	tools []string // whose command is looked for before it; none is any
	trace bool     // it says nothing without that command
	need  func(c command, m []string) (feature, bool)
}

// iproute are the tools that print what the kernel answered over rtnetlink.
var iproute = []string{"ip", "tc", "bridge", "ss", "devlink"}

// messages are tried in order. Errors that a script may well expect are in none:
// what ethtool says of a device, and "Cannot find device", which is what follows
// from a device that was not made.
var messages = []message{
	{has: []string{"nknown device type"}, re: regexp.MustCompile(`^(?:Error: |RTNETLINK answers: )?Unknown device type`), tools: []string{"ip"}, need: unknownKind},
	{has: []string{"Specified qdisc"}, re: regexp.MustCompile(`^Error: Specified qdisc (?:kind is unknown|not found)`), tools: []string{"tc"}, need: unknownQdisc},
	{has: []string{"TC classifier", "filter kind"}, re: regexp.MustCompile(`^Error: (?:TC classifier not found|Specified filter kind (?:is unknown|not found)|Failed to load TC classifier)`), tools: []string{"tc"}, need: unknownClassifier},
	{has: []string{"TC action module"}, re: regexp.MustCompile(`^Error: Failed to load TC action module`), tools: []string{"tc"}, need: unknownAction},
	{has: []string{"ncapsulation type"}, re: regexp.MustCompile(`^Error: (?:Specified )?(?:l|L)wt encapsulation type not supported|^Error: LWT encapsulation type not supported|^Error: Unknown (?:lwt|LWT) encapsulation type`), tools: []string{"ip"}, need: named("route", "LWTUNNEL")},
	{has: []string{"Multipath support"}, re: regexp.MustCompile(`^Error: Multipath support not enabled in kernel`), tools: []string{"ip"}, need: named("route", "IP_ROUTE_MULTIPATH")},
	{has: []string{"Requested "}, re: regexp.MustCompile(`^Error: Requested (?:type|mode) not found`), tools: []string{"ip"}, trace: true, need: only("xfrm")},
	{has: []string{"CONFIG_"}, re: regexp.MustCompile(`\bCONFIG_([A-Z0-9_]{2,60}) (?:is )?(?:not enabled|not set|missing|disabled)`), need: symbolNamed},
	{has: []string{"RTNETLINK answers: "}, re: regexp.MustCompile(`^RTNETLINK answers: (?:Operation not supported|Protocol not supported|No such file or directory)$`), tools: iproute, trace: true, need: answered},
	{has: []string{"netlink socket", "devlink Netlink"}, re: regexp.MustCompile(`^Cannot open netlink socket: Protocol not supported|^Failed to connect to devlink Netlink`), tools: iproute, trace: true, need: words},
	{has: []string{"add tunnel"}, re: regexp.MustCompile(`^add tunnel "[^"]*" failed: (?:No such device|Operation not supported)`), tools: []string{"ip"}, trace: true, need: words},
	{has: []string{"open: No such"}, re: regexp.MustCompile(`^open: No such file or directory$|^open: No such device$`), tools: []string{"ip"}, trace: true, need: only("tun")},
	{has: []string{"Could not process rule"}, re: regexp.MustCompile(`Could not process rule: (?:Operation not supported|Protocol not supported|No such file or directory)`), tools: []string{"nft", "iptables-nft", "ip6tables-nft"}, need: nftRule},
	{has: []string{"not supported"}, re: regexp.MustCompile(`(?:Unable to initialize Netlink socket|cache initialization failed|Failed to initialize nft|\(nf_tables\): [^:]*): (?:Protocol|Operation) not supported`), need: named("nftables", "NF_TABLES")},
	{has: []string{"initialize", "able does not exist", "ebtables extension"}, re: regexp.MustCompile(`(?:can't|unable to) initialize ((?:ip|ip6|eb|arp)tables) table|(?:can't|unable to) initialize table|[Tt]able does not exist \(do you need to insmod|The kernel doesn't support a certain ebtables extension`), need: xtables},
	{has: []string{"kernel"}, re: regexp.MustCompile(`Extension \S+ revision \d+ not supported, missing kernel module|Couldn't load (?:match|target) .*kernel`), need: named("netfilter", "NETFILTER_XTABLES")},
	{has: []string{"ipset "}, re: regexp.MustCompile(`^ipset v?\S+: (?:Kernel error received: (?:set type (?:does )?not supported|Operation not supported|Protocol not supported)|Cannot open session to kernel)`), need: named("ipset", "IP_SET")},
	{has: []string{"initialize ipvs"}, re: regexp.MustCompile(`^Can't initialize ipvs: `), need: named("ipvs", "IP_VS")},
	{has: []string{"interface"}, re: regexp.MustCompile(`^Unable to (?:access|modify) interface(?: \S+)?: Protocol not supported`), need: named("wireguard", "WIREGUARD")},
	{has: []string{"modprobe"}, re: regexp.MustCompile(`modprobe: (?:FATAL: |ERROR: )?(?i:module) '?([\w.-]+)'? not found|modprobe: can't load module ([\w.-]+)`), tools: []string{"modprobe"}, need: moduleNamed},
	{has: []string{"not found"}, re: regexp.MustCompile(`(?:modprobe|insmod): (?:command )?not found$`), tools: []string{"modprobe", "insmod"}, trace: true, need: moduleAsked},
	{has: []string{"sysctl"}, re: regexp.MustCompile(`^sysctl: (?:cannot stat |error: |unknown oid )?['"]?([\w./-]+)['"]?(?:: No such file or directory| is an unknown key)`), tools: []string{"sysctl"}, need: sysctlKey},
	{has: []string{"irectory", "No such device"}, re: regexp.MustCompile(`(/(?:proc|sys|dev)/[^\s:'",]+)['"]?: (?:No such (?:file or directory|device)|Directory nonexistent|nonexistent directory)`), need: missingPath},
	{has: []string{"Function not implemented"}, re: regexp.MustCompile(`^.*Function not implemented`), need: notImplemented},
	{has: []string{"not supported", "not available", "open handler"}, re: regexp.MustCompile(`(?:Address family not supported by protocol|[Pp]rotocol not (?:supported|available)|Can't open handler)`), need: socket},
}

// named returns the need of a message that says what it is about. The command may
// say it more exactly, and an encapsulation be of another fragment.
func named(fragment, symbol string) func(command, []string) (feature, bool) {
	return func(c command, _ []string) (feature, bool) {
		if f, ok := needOf(c); ok && (f.fragment == fragment || c.tool() == "ip") {
			return f, true
		}
		return feature{fragment, "CONFIG_" + symbol}, true
	}
}

// words returns what the command needs, whatever the message says.
func words(c command, _ []string) (feature, bool) { return needOf(c) }

// only returns what the command needs if it is that fragment.
func only(fragment string) func(command, []string) (feature, bool) {
	return func(c command, _ []string) (feature, bool) {
		f, ok := needOf(c)
		return f, ok && f.fragment == fragment
	}
}

// unknownKind is "Unknown device type". A batch does not show which line it was.
func unknownKind(c command, _ []string) (feature, bool) {
	if f, ok := needOf(c); ok {
		return f, true
	}
	if kind := c.after("type"); kind != "" {
		return unnamed("a device type %q", shorten(kind))
	}
	return unnamed("a device type")
}

func unknownQdisc(c command, _ []string) (feature, bool) {
	if f, ok := needOf(c); ok {
		return f, true
	}
	return unnamed("a queueing discipline")
}

func unknownClassifier(c command, _ []string) (feature, bool) {
	if f, ok := needOf(c); ok {
		return f, true
	}
	return feature{"tc", "CONFIG_NET_CLS"}, true
}

func unknownAction(c command, _ []string) (feature, bool) {
	if f, ok := actionOf(c); ok {
		return f, true
	}
	return feature{"tc", "CONFIG_NET_CLS_ACT"}, true
}

// symbolNamed is a message that names a symbol of the configuration. Several
// fragments may set it; the command's words say which is meant.
func symbolNamed(c command, m []string) (feature, bool) {
	if f, ok := needOf(c); ok {
		return f, true
	}
	return feature{symbolFragment(m[1]), "CONFIG_" + m[1]}, true
}

// answered is a bare error number from the kernel. It means a missing feature only
// for commands that need an optional one: a device may not support what it was
// asked for, and what is deleted may not exist.
func answered(c command, m []string) (feature, bool) {
	f, ok := needOf(c)
	if !ok || !optional(f.fragment) && f.fragment != "" {
		return feature{}, false
	}
	if !strings.HasSuffix(m[0], "No such file or directory") {
		return f, true
	}
	switch {
	case c.tool() == "ss":
		return f, true
	case c.tool() == "tc":
		return f, c.words[1] != "class" // its qdisc is missing, and the reason stands above
	case len(c.words) < 2:
		return feature{}, false
	}
	// A family of generic netlink that nobody has registered. Of these, only what
	// is deleted or changed can be missing as such.
	switch c.words[1] {
	case "mptcp", "macsec", "l2tp", "fou", "gue", "ila", "sr":
		return f, !slices.ContainsFunc(c.words[2:], func(w string) bool { return strings.HasPrefix(w, "del") })
	case "rule":
		return f, !c.has("del") && !c.has("delete") && !c.has("flush")
	}
	return feature{}, false
}

// nftRule is nft's general error. For what refers to a table, a set or a chain,
// ENOENT says that this is not there.
func nftRule(c command, m []string) (feature, bool) {
	if strings.HasSuffix(m[0], "No such file or directory") && c.tool() == "nft" &&
		slices.ContainsFunc(c.words, func(w string) bool { return w == "delete" || w == "flush" || w == "list" || w == "reset" || w == "get" }) {
		return feature{}, false
	}
	return feature{"nftables", "CONFIG_NF_TABLES"}, true
}

func xtables(c command, m []string) (feature, bool) {
	if f, ok := programs[c.tool()]; ok && f.fragment == "netfilter" {
		return f, true
	}
	if f, ok := programs[m[1]]; ok {
		return f, true
	}
	return feature{"netfilter", "CONFIG_IP_NF_IPTABLES"}, true
}

func moduleNamed(_ command, m []string) (feature, bool) {
	name := m[1] + m[2]
	f, ok := module(name)
	if !ok {
		return unnamed("a module %q", shorten(name))
	}
	return f, optional(f.fragment) || f.fragment == ""
}

// moduleAsked is a guest without modprobe. What is in every kernel is not missing.
func moduleAsked(c command, _ []string) (feature, bool) {
	f, ok := needOf(c)
	return f, ok && (optional(f.fragment) || f.fragment == "")
}

func sysctlKey(_ command, m []string) (feature, bool) {
	key := m[1]
	if !strings.HasPrefix(key, "/") {
		key = "/proc/sys/" + strings.ReplaceAll(key, ".", "/")
	}
	return pathIn(key)
}

// missingPath is a file that is not there. Of a device's own files no table has
// any: the device is what is missing.
func missingPath(_ command, m []string) (feature, bool) { return pathIn(m[1]) }

// notImplemented is a system call that is not there; of those that scripts meet,
// bpf is the only one that a fragment has.
func notImplemented(c command, m []string) (feature, bool) {
	f, _ := needOf(c)
	bpf := f.fragment == "bpf" || (c.tool() == "tc" || c.tool() == "ip") && c.has("bpf") || strings.Contains(strings.ToLower(m[0]), "bpf")
	return feature{"bpf", "CONFIG_BPF_SYSCALL"}, bpf
}

// socket is a family or protocol that is not there; only the program says which.
func socket(c command, _ []string) (feature, bool) {
	if c.tool() == "ethtool" {
		return feature{}, false
	}
	if c.has("--sctp") || strings.HasPrefix(c.tool(), "sctp") {
		return feature{"", "CONFIG_IP_SCTP"}, true
	}
	f, ok := needOf(c)
	return f, ok && (optional(f.fragment) || f.fragment == "")
}

// unnamed is a need that a message shows and no table explains.
func unnamed(format string, args ...any) (feature, bool) {
	return feature{why: fmt.Sprintf(format, args...)}, true
}
