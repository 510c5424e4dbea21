package thread

import (
	"regexp"
	"slices"
	"strings"
)

// words makes a set of a list.
func words(list string) map[string]bool {
	set := map[string]bool{}
	for _, w := range strings.Fields(list) {
		set[w] = true
	}
	return set
}

// Programs by how much more a line needs to be shell and no prose. To be left
// out costs the user a look at the mail; prose that runs costs a test its sense.
var (
	// programs are in no dictionary: an argument that no sentence has makes it shell.
	programs = words(`ethtool sysctl unshare modprobe rmmod insmod ping6 iperf iperf3 netperf netserver nft iptables
		ip6tables iptables-restore ebtables ipset conntrack brctl nsenter taskset numactl hping3 tcpdump umount mkdir
		seq dd fio stress-ng bpftool bpftrace netstat arping ifconfig vconfig devlink rdma wg tee awk gawk sed grep xargs
		pkill killall cd chmod rm cp mv ln swapoff swapon losetup dmsetup mdadm cryptsetup ulimit chrt printf socat nc
		ncat curl wget hackbench sysbench cyclictest mausezahn mz trafgen pktgen netsniff-ng ovs-vsctl ovs-ofctl ipvsadm
		teamd teamnl ifenslave dropwatch busybox bash sh dash python python3 perl nproc mknod mkfifo truncate fallocate
		xfs_io mkfs.ext4 mkfs.xfs mkfs.btrfs mke2fs rpc.nfsd exportfs showmount wrk ab memcached redis-benchmark
		lscpu lspci cpupower tuna stdbuf setpriv prlimit cgcreate cgexec systemd-run tshark sockperf qperf ib_write_bw
		declare readonly unset let pushd popd pgrep chown dmesg uname ls turbostat pidof mpstat vmstat iostat dstat`)
	// dictionary are English words too: their first argument must be one for sure.
	dictionary = words(`test make date read set wait return break continue exit source mount kill sleep echo cat find
		head tail sort cut route bridge perf sync touch watch export trap local ping ss ip tc top true false
		shift eval exec time timeout nice env sudo nohup strace ltrace gdb git join split tr wc od stat file chroot`)
	// prefixes run the command behind their options and variables.
	prefixes = words(`time sudo exec nohup env nice timeout eval stdbuf taskset numactl chrt strace ltrace setsid command
		! then do else && ||`)
	builtins = words(`: [ [[ .`)

	ipObjects = words(`link l addr addrlabel address a route r ro rule ru neigh neighbor neighbour n ntable tunnel tuntap maddr
		maddress mroute mrule monitor xfrm netns l2tp fou macsec tcp_metrics token netconf ila vrf sr nexthop mptcp ioam stats`)
	tcObjects = words(`qdisc class filter chain action actions monitor exec`)

	// prose are words that no command has among its arguments.
	prose = words(`the is are was were which this these those takes took it its and we you they has have had but because
		should would could will an does did been being than our your their there here instead so if`)
	// lookers only look, or work on sources: alone they show no regression.
	lookers = words(`perf cat dmesg uname ls top htop less vi vim gdb crash git lspci lscpu grep lsmod objdump addr2line
		bpftrace bpftool pahole make gcc date head tail trace-cmd ps nproc ip ss tc ethtool netstat mpstat vmstat
		iostat dstat turbostat`)
	// interactive ones need a terminal, or show what other tools recorded.
	interactive = words(`top htop less vi vim gdb crash git dmesg man`)
)

var (
	assignment  = regexp.MustCompile(`^(?:export |local |declare |readonly )?[A-Za-z_][A-Za-z0-9_]*\+?=("[^"]*"|'[^']*'|\$\([^)]*\)|\([^)]*\)|` + "`[^`]*`" + `|[^\s;&|()<>]*)`)
	placeholder = regexp.MustCompile(`<[A-Za-z][A-Za-z0-9_ -]*>`)
	forLoop     = regexp.MustCompile(`^(?:for\s+\w+(?:\s+in\s.*)?|for\s*\(\(.*\)\)|select\s+\w+\s+in\s.*)\s*(;\s*do\b.*|;|\{)?$`)
	whileLoop   = regexp.MustCompile(`^(?:while|until)\s+\S.*$`)
	ifClause    = regexp.MustCompile(`^(?:if|elif)\s+(?:!\s+)?(\[|\[\[|\(\(|\S+)\s?.*$`)
	caseClause  = regexp.MustCompile(`^case\s+\S+\s+in$`)
	function    = regexp.MustCompile(`^(?:function\s+)?[A-Za-z_][\w-]*\s*\(\)\s*(\{.*)?$|^function\s+[\w-]+\s*\{?$`)
	prompt      = regexp.MustCompile(`^\s*(?:(\[[^\]]{1,80}\]\s?[#$]|[\w.-]+@[\w.-]+[:\s][^#$<>]{0,80}[#$]|[\w.-]+:[~/][^#$\s]{0,80}\s?[#$]|(?:ba|da|k|z)?sh-[\d.]+[#$]|~ ?#)|[#$])\s+(\S.*)$`)
	argument    = regexp.MustCompile(`^[-/.$"'{(\d~*!\[]|[=/:@$_*]|\d`)
	sentence    = regexp.MustCompile(`^[A-Z][a-z']*$|^I$|^I'`)
	remark      = regexp.MustCompile(`\s(->|=>|<-+)\s`) // beside a command, it says what that does
	noProgram   = regexp.MustCompile(`^/(sys|proc|dev|etc|run|var)/`)
	programPath = regexp.MustCompile(`^(\.{1,2}/|/(usr/)?s?bin/|/usr/local/|/home/|/root/|~/)`)
	pathWord    = regexp.MustCompile(`^(\.{0,2}/|~/)?[\w.+-]+(/[\w.+-]+)+$`)
	plainWord   = regexp.MustCompile(`^[\w.+-]+$`)
)

// promptOf splits a prompt off a line: "# cmd", "$ cmd", "host:~# cmd". named is
// set if it is more than a "#", with which comments begin too.
func promptOf(s string) (command string, named, ok bool) {
	if len(s) >= maxLine || !strings.ContainsAny(s, "#$") {
		return "", false, false
	}
	m := prompt.FindStringSubmatch(s)
	if m == nil {
		return "", false, false
	}
	return strings.TrimSpace(m[2]), m[1] != "" || strings.HasPrefix(strings.TrimSpace(s), "$"), true
}

// runs reports whether what stands behind a prompt is a command.
func runs(command string, named bool) bool {
	if strings.HasPrefix(command, "#") || placeholder.MatchString(command) || strings.HasSuffix(command, "...") {
		return false
	}
	list := strings.Fields(command)
	if len(list) == 0 {
		return false
	}
	first := list[0]
	switch {
	case isProse(list[1:]) || noProgram.MatchString(first):
		return false
	case opens(command, ""):
		return true
	case first == "CONFIG_" || strings.HasPrefix(first, "CONFIG_"):
		return false
	case assignment.MatchString(command):
		return true
	case programs[first] || pathWord.MatchString(first) || prefixes[first] || builtins[first]:
		return true
	case dictionary[first]:
		return named || len(list) == 1 || isShell(command, "", false)
	}
	return named && plainWord.MatchString(first) && strings.ToLower(first) == first
}

// isProse reports whether there are words among arguments that only sentences have.
func isProse(args []string) bool {
	quote := false
	for _, a := range args {
		if strings.HasPrefix(a, "#") && !quote {
			return false // the rest is a comment
		}
		if !quote && prose[strings.Trim(a, ".,:;")] {
			return true
		}
		if strings.Count(a, `"`)%2+strings.Count(a, `'`)%2 == 1 {
			quote = !quote
		}
	}
	return false
}

// opens reports whether a line begins a loop, a condition or a function; next is
// the line below, which may have its "do" or "then".
func opens(s, next string) bool {
	condition, _, _ := strings.Cut(s, ";")
	if list := strings.Fields(condition); len(list) == 0 || isProse(list[1:]) {
		return false
	}
	next = strings.TrimSpace(next)
	then := func(word string) bool {
		return strings.Contains(s, "; "+word) || strings.Contains(s, ";"+word) || next == word || strings.HasPrefix(next, word+" ")
	}
	switch {
	case strings.HasPrefix(s, "for"), strings.HasPrefix(s, "select "):
		return forLoop.MatchString(s) && then("do")
	case strings.HasPrefix(s, "while "), strings.HasPrefix(s, "until "):
		return whileLoop.MatchString(s) && then("do")
	case strings.HasPrefix(s, "if "):
		return ifClause.MatchString(s) && then("then")
	case strings.HasPrefix(s, "case "):
		return caseClause.MatchString(s)
	case strings.HasSuffix(s, ")") || strings.Contains(s, "{"):
		return function.MatchString(s) && (strings.Contains(s, "{") || strings.HasPrefix(next, "{"))
	}
	return false
}

// isShell reports whether a line without a prompt is a command, an assignment or
// the beginning of a loop. next is the line below it. inside is set among others
// that are: there, a comment is one of them, and echo may say what it likes.
func isShell(s, next string, inside bool) bool {
	s = strings.TrimSpace(s)
	if s == "" || len(s) >= maxLine || placeholder.MatchString(s) {
		return false
	}
	return shellAt(s, next, inside, 0)
}

// shellAt looks behind a few assignments and prefixes; level is how many.
func shellAt(s, next string, inside bool, level int) bool {
	const most = 8
	if s = strings.TrimSpace(s); s == "" || level > most {
		return false
	}
	if inside && strings.HasPrefix(s, "#") {
		return true
	}
	if opens(s, next) {
		return true
	}
	list := strings.Fields(s)
	first := list[0]
	if m := assignment.FindString(s); m != "" {
		rest := strings.TrimSpace(s[len(m):])
		return rest == "" || strings.HasPrefix(rest, "#") || strings.HasPrefix(rest, ";") && shellAt(rest[1:], next, inside, level+1) ||
			rest[0] != ';' && shellAt(rest, next, inside, level+1)
	}
	if inside && (first == "echo" || first == "printf") && len(list) > 1 {
		return true
	}
	if remark.MatchString(s) {
		return false
	}
	if last := list[len(list)-1]; isProse(list[1:]) || strings.HasSuffix(last, ",") || len(list) > 2 && endsSentence(last) {
		return false
	}
	return command(list, s, next, inside, level)
}

// endsSentence reports whether a word ends one: "thread." but no "file.." or "1.".
func endsSentence(s string) bool {
	n := len(s)
	if n < 2 || s[n-1] != '.' && s[n-1] != ':' && s[n-1] != '?' {
		return false
	}
	c := s[n-2]
	return c >= 'a' && c <= 'z' || c == ')'
}

// command reports whether words are a command with its arguments.
func command(list []string, s, next string, inside bool, level int) bool {
	first := list[0]
	switch {
	case first == "ip" || first == "tc" || first == "bridge":
		return subcommand(first, list[1:])
	case prefixes[first] && (inside || first != "||" && first != "&&"):
		return prefixed(list, s, next, inside, level+1)
	case first == "[" || first == "[[":
		return strings.Contains(s, " ]") && !strings.HasPrefix(s, "[ ]") && !strings.Contains(s, "{") // as in a usage
	case first == ":":
		return len(list) > 1 && (strings.HasPrefix(list[1], ">") || strings.HasPrefix(list[1], "$"))
	case builtins[first]:
		return len(list) == 2 && argument.MatchString(list[1])
	case programPath.MatchString(first) && pathWord.MatchString(first):
		return inside && !endsSentence(first) || len(list) == 1 || argument.MatchString(list[1])
	case len(list) == 1:
		return inside && (first == "wait" || first == "sync" || first == "break" || first == "continue" || first == "exit" || first == "shift" || first == "return")
	case programs[first]:
		return argument.MatchString(list[1]) || len(list) == 2 && plainWord.MatchString(list[1]) || strings.ContainsAny(s, "|;$&<=")
	case dictionary[first]:
		return argument.MatchString(list[1])
	}
	return false
}

// subcommand reports whether the words behind ip, tc or bridge are what they take.
func subcommand(tool string, args []string) bool {
	for len(args) > 0 && strings.HasPrefix(args[0], "-") {
		takes := strings.TrimLeft(args[0], "-")
		args = args[1:]
		switch {
		case takes == "b" || takes == "batch":
			return len(args) > 0
		case takes == "n" || takes == "netns" || takes == "f" || takes == "family" || takes == "l":
			args = args[min(1, len(args)):]
		}
	}
	if len(args) == 0 {
		return false
	}
	switch tool {
	case "ip":
		if !ipObjects[args[0]] {
			return false
		}
	case "tc":
		if !tcObjects[args[0]] {
			return false
		}
	default:
		if !slices.Contains([]string{"link", "fdb", "mdb", "vlan", "monitor", "vni"}, args[0]) {
			return false
		}
	}
	return len(args) > 1 || args[0] == "link" || args[0] == "addr" || args[0] == "a"
}

// prefixed looks at what a command such as time or sudo runs.
func prefixed(list []string, s, next string, inside bool, level int) bool {
	rest := list[1:]
	for len(rest) > 0 && (strings.HasPrefix(rest[0], "-") || argument.MatchString(rest[0]) && !pathWord.MatchString(rest[0]) && !programs[rest[0]] && list[0] != "time") {
		rest = rest[1:]
	}
	if len(rest) == 0 {
		return false
	}
	at := strings.Index(s[len(list[0]):], rest[0])
	if at < 0 {
		return false
	}
	tail := s[len(list[0])+at:]
	return shellAt(tail, next, inside, level) || pathWord.MatchString(rest[0]) || len(rest) > 1 && programs[rest[0]]
}

// nesting returns by how much a line changes how deep loops, conditions and
// braces are nested.
func nesting(s string) int {
	depth := 0
	start := true // of a command
	for _, w := range shellWords(s) {
		switch w {
		case "for", "while", "until", "select", "if", "case", "{":
			if start {
				depth++
			}
			start = w != "for" && w != "case" && w != "select"
		case "done", "fi", "esac", "}":
			if start {
				depth--
			}
		case ";", "&", "|", "(", ")", "do", "then", "else", "elif", "!", "time":
			start = true
		default:
			if !start || !strings.HasPrefix(w, "-") { // "time -p for ..."
				start = false
			}
		}
	}
	return depth
}

// shellWords splits a line into words and operators; what is quoted is one word,
// and a comment is left out.
func shellWords(s string) []string {
	var list []string
	var quote byte
	from := -1
	end := func(i int) {
		if from >= 0 {
			list = append(list, s[from:i])
		}
		from = -1
	}
	for i := 0; i < len(s); i++ {
		c := s[i]
		switch {
		case quote != 0:
			if c == quote {
				quote = 0
			}
		case c == '\\':
			if from < 0 {
				from = i
			}
			i++
		case c == '"' || c == '\'':
			quote = c
			if from < 0 {
				from = i
			}
		case c == '#' && from < 0:
			return list
		case c == ' ' || c == '\t':
			end(i)
		case c == ';' || c == '&' || c == '|' || c == '(' || c == ')':
			end(i)
			list = append(list, string(c))
		default:
			if from < 0 {
				from = i
			}
		}
	}
	end(len(s))
	return list
}

// isSentence reports whether a line is prose for sure: a capital, and words.
func isSentence(s string) bool {
	if len(s) >= maxLine {
		return true
	}
	list := strings.Fields(s)
	const least = 5 // words: what programs print is shorter, or has figures
	if len(list) < 3 || !sentence.MatchString(strings.TrimRight(list[0], ",:")) {
		return false
	}
	if isProse(list) && !strings.ContainsAny(s, "|$`") {
		return true
	}
	plain := 0
	for _, w := range list {
		if strings.Trim(w, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.,:'()") == "" {
			plain++
		}
	}
	return len(list) >= least && plain*4 >= len(list)*3
}

// looks reports whether a command only looks at something.
func looks(command string) bool {
	list := strings.Fields(command)
	for len(list) > 1 && (list[0] == "sudo" || assignment.MatchString(list[0])) {
		list = list[1:]
	}
	switch first := list[0]; {
	case strings.Contains(first, "bcc/tools/") || strings.HasPrefix(first, "./scripts/") || strings.HasPrefix(first, "scripts/"):
		return true
	case !lookers[first]:
		return false
	case first == "ip" || first == "tc":
		return slices.ContainsFunc(list, func(w string) bool { return w == "show" || w == "list" || w == "ls" || w == "monitor" })
	case first == "ethtool":
		return len(list) < 2 || strings.Contains(" -i -S -c -g -k -l -a ", " "+list[1]+" ") || !strings.HasPrefix(list[1], "-")
	}
	return true
}

// needsTerminal reports whether a command is of no use in a script.
func needsTerminal(command string) bool {
	list := strings.Fields(command)
	if list[0] == "sudo" && len(list) > 1 {
		list = list[1:]
	}
	if list[0] == "perf" && len(list) > 1 {
		return slices.Contains([]string{"report", "top", "annotate", "script", "diff"}, list[1])
	}
	return interactive[list[0]]
}
