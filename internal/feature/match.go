package feature

import (
	"regexp"
	"slices"
	"strings"
	"sync"

	"github.com/kbisect/kbisect/kconfigs"
)

// needOf returns what a command needs of the kernel, by its words.
func needOf(c command) (feature, bool) {
	switch c.tool() {
	case "ip":
		return needOfIP(c)
	case "tc":
		return needOfTC(c)
	case "bridge":
		// Entries of a table are for devices of other kinds as well.
		if len(c.words) > 1 && (strings.HasPrefix(c.words[1], "v") || c.words[1] == "mdb" || c.words[1] == "mst") {
			return feature{"bridge", "CONFIG_BRIDGE_VLAN_FILTERING"}, true
		}
		return feature{}, false
	case "ss":
		if slices.ContainsFunc(c.words[1:], func(w string) bool { return w == "--mptcp" || shortOption(w, "M") }) {
			return feature{"mptcp", "CONFIG_INET_MPTCP_DIAG"}, true
		}
	case "modprobe", "insmod":
		for _, w := range c.words[1:] {
			if f, ok := module(w); ok {
				return f, true
			}
		}
		return feature{}, false
	case "sysctl":
		for _, w := range c.words[1:] {
			key, _, _ := strings.Cut(w, "=")
			if f, ok := pathIn("/proc/sys/" + strings.ReplaceAll(key, ".", "/")); ok {
				return f, true
			}
		}
		return feature{}, false
	}
	f, ok := programs[c.tool()]
	return f, ok
}

// shortOption reports whether w is a cluster of short options with one of set.
func shortOption(w, set string) bool {
	return len(w) > 1 && w[0] == '-' && w[1] != '-' && strings.ContainsAny(w[1:], set)
}

// module returns what a module of that name, or file, is part of.
func module(name string) (feature, bool) {
	name = name[strings.LastIndexByte(name, '/')+1:]
	name, _, _ = strings.Cut(name, ".ko")
	name = strings.ReplaceAll(name, "-", "_")
	for _, t := range []map[string]feature{modules, kinds} {
		if f, ok := t[name]; ok {
			return f, true
		}
	}
	for prefix, t := range map[string]map[string]feature{"sch_": qdiscs, "cls_": classifiers, "act_": actions} {
		if kind, ok := strings.CutPrefix(name, prefix); ok {
			f, ok := t[kind]
			return f, ok
		}
	}
	switch {
	case strings.HasPrefix(name, "xt_"), strings.HasPrefix(name, "ipt_"), strings.HasPrefix(name, "ip6t_"), strings.HasPrefix(name, "ebt_"):
		return feature{"netfilter", "CONFIG_NETFILTER_XTABLES"}, true
	case strings.HasPrefix(name, "ip_set_"):
		return feature{"ipset", "CONFIG_IP_SET"}, true
	case strings.HasPrefix(name, "ip_vs_"):
		return feature{"ipvs", "CONFIG_IP_VS"}, true
	case strings.HasPrefix(name, "nft_"):
		return feature{"nftables", "CONFIG_NF_TABLES"}, true
	}
	return feature{}, false
}

func needOfIP(c command) (feature, bool) {
	if len(c.words) < 2 {
		return feature{}, false
	}
	if c.after("-f") == "mpls" {
		return feature{"route", "CONFIG_MPLS_ROUTING"}, true
	}
	switch c.words[1] {
	case "link":
		if kind := c.after("type"); kind != "" && (c.has("add") || c.has("a") || c.has("set") || c.has("change") || c.has("replace")) {
			return kindNamed(kind)
		}
		for _, w := range []string{"xdp", "xdpgeneric", "xdpdrv", "xdpoffload"} {
			if c.has(w) {
				return feature{"bpf", "CONFIG_BPF_SYSCALL"}, true
			}
		}
		return feature{}, false
	case "tunnel":
		mode := c.after("mode")
		if kind, ok := modes[mode]; ok {
			mode = kind
		}
		return kindNamed(mode)
	case "route", "nexthop":
		if f, ok := encaps[c.after("encap")]; ok {
			return f, true
		}
		if c.words[1] == "route" && c.has("nexthop") && c.after("-f") != "inet6" {
			return feature{"route", "CONFIG_IP_ROUTE_MULTIPATH"}, true
		}
		return feature{}, false
	case "rule", "mroute":
		if c.after("-f") == "inet6" { // in every kernel
			return feature{}, false
		}
	}
	f, ok := ipObjects[c.words[1]]
	return f, ok
}

// kindNamed returns what a device of a kind needs. A word that no table has may
// be a slip of the pen, a variable, or of a newer iproute2: false.
func kindNamed(kind string) (feature, bool) {
	f, ok := kinds[kind]
	return f, ok
}

// changes are the verbs of tc that make something.
var changes = []string{"add", "replace", "change", "a", "ad", "append", "link"}

func needOfTC(c command) (feature, bool) {
	if len(c.words) < 3 || !slices.Contains(changes, c.words[2]) {
		return feature{}, false
	}
	switch c.words[1] {
	case "qdisc":
		// Its kind is the first word that is one and no argument of another word.
		return firstOf(qdiscs, c.words[3:])
	case "filter":
		return firstOf(classifiers, c.words[3:])
	case "actions":
		return actionOf(c)
	case "class":
		return firstOf(qdiscs, c.words[3:])
	}
	return feature{}, false
}

// valued are words before the kind that an argument follows.
var valued = []string{"dev", "handle", "parent", "classid", "flowid", "protocol", "proto", "pref", "prio", "preference", "priority", "block", "chain", "estimator", "est",
	"ingress_block", "egress_block"}

// firstOf returns the row of the first word that is a kind; the names and numbers
// of devices, handles and priorities before it are passed over.
func firstOf(table map[string]feature, words []string) (feature, bool) {
	for i := 0; i < len(words); i++ {
		if slices.Contains(valued, words[i]) {
			i++
			continue
		}
		if f, ok := table[words[i]]; ok {
			return f, true
		}
	}
	return feature{}, false
}

// actionOf returns the feature of the first action of a filter or of
// `tc actions add`.
func actionOf(c command) (feature, bool) {
	for i, w := range c.words {
		switch w {
		case "action":
			if i+1 < len(c.words) {
				if f, ok := actions[c.words[i+1]]; ok {
					return f, true
				}
			}
		case "police", "mirred", "pedit", "gact", "ct", "tunnel_key", "csum", "skbedit":
			return actions[w], true
		}
	}
	return feature{}, false
}

// pathIn returns the feature of the first path in a line that the table has.
func pathIn(line string) (feature, bool) {
	for at := 0; ; {
		i := strings.IndexByte(line[at:], '/')
		if i < 0 {
			return feature{}, false
		}
		at += i
		// Other slashes, of which a line can be full, cost one comparison.
		if !strings.HasPrefix(line[at:], "/proc/") && !strings.HasPrefix(line[at:], "/sys/") && !strings.HasPrefix(line[at:], "/dev/") {
			at++
			continue
		}
		for _, p := range paths {
			if strings.HasPrefix(line[at:], p.prefix) {
				return p.feature, true
			}
		}
		at++
	}
}

// symbolFragment returns the optional fragment that sets a symbol: the one with
// the least of other things in it.
func symbolFragment(name string) string {
	return symbols()[name]
}

// symbols is the index of the optional fragments by what they set.
var symbols = sync.OnceValue(func() map[string]string {
	out, size := make(map[string]string), make(map[string]int)
	line := regexp.MustCompile(`(?m)^CONFIG_([A-Z0-9_]+)=y`)
	for _, fragment := range kconfigs.Optional() {
		text, err := kconfigs.Get(fragment)
		if err != nil {
			continue // it is in the list, so it is there
		}
		set := line.FindAllSubmatch(text, -1)
		for _, m := range set {
			name := string(m[1])
			if n, ok := size[name]; !ok || len(set) < n {
				out[name], size[name] = fragment, len(set)
			}
		}
	}
	return out
})
