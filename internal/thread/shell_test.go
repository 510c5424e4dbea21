package thread

import (
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestShellLines has lines that are shell where they stand among text, and lines
// that are not.
func TestShellLines(t *testing.T) {
	for _, tc := range []struct {
		line, next string
		want       bool
	}{
		{"ip link add dummy0 type dummy", "", true},
		{"ip -6 addr add 2001:db8::1/64 dev dummy0", "", true},
		{"ip -b lamps.batch", "", true},
		{"ip netns exec $ns sysctl net.ipv4.ip_forward=1", "", true},
		{"tc qdisc add dev eth0 root fq", "", true},
		{"tc -b filters", "", true},
		{"bridge vlan add vid 2 dev eth0", "", true},
		{"ethtool -K eth0 gro off", "", true},
		{"modprobe dummy numdummies=100", "", true},
		{"modprobe veth", "", true},
		{"sysctl -w net.core.somaxconn=1024", "", true},
		{"unshare -n true", "", true},
		{"time unshare -n /bin/true", "", true},
		{"time -p ip link set dev dummy10 down", "", true},
		{"time for i in {1..1000}; do unshare -n /bin/false;done", "", true},
		{"while :; do unshare -n true; done &", "", true},
		{"for i in $(seq 10)", "do", true},
		{"for ((i=0; i<10; i++)); do", "", true},
		{"if [ -e x ]; then", "", true},
		{"if ip link show dummy0; then", "", true},
		{"ns=test-ns", "", true},
		{"N=10 # of them", "", true},
		{"LANG=C ping -c 3 192.0.2.1", "", true},
		{"a=1; b=2", "", true},
		{"echo 1 > /proc/sys/net/ipv4/ip_forward", "", true},
		{"sudo ip link del dummy0", "", true},
		{"taskset -c 1 iperf3 -c 192.0.2.1", "", true},
		{"./lamps.sh -n 10", "", true},
		{"ping -f 192.0.2.1", "", true},
		{"setup() {", "", true},
		{"setup()", "{", true},
		{": > log", "", true},

		{"", "", false},
		{"for each device the list is walked", "", false},
		{"for a device in the list,", "", false},
		{"for that reason we do not", "do it twice", false},
		{"if the device is down; then nothing happens", "", false},
		{"while this is slow; it does no harm", "", false},
		{"time is what it takes", "", false},
		{"time spent in the loop", "", false},
		{"ip link deletion takes long", "", false},
		{"ip addresses of all hosts", "", false},
		{"ip", "", false},
		{"route cache entries", "", false},
		{"test results below", "", false},
		{"make sure that it works", "", false},
		{"ping the maintainers", "", false},
		{"sleep states of the machine", "", false},
		{"modprobe is not needed", "", false},
		{"ethtool shows nothing.", "", false},
		{"ip link add is slow, and", "", false},
		{"perf report <kworker>", "", false},
		{"cat and dog", "", false},
		{"kill the process", "", false},
		{"10: dummy1: <BROADCAST,NOARP> mtu 1500", "", false},
		{"- ip (277)", "", false},
		{"b'synchronize_rcu'", "", false},
		{"x = y + z;", "", false},
		{"ret = -EINVAL;", "", false},
		{"int main()", "{", false},
		{"synchronize_rcu()", "", false},
		{"[   12.345678] lamp_wait+0x12/0x34", "", false},
		{"real 0.29", "", false},
		{"+	ip link add x", "", false},
		{"set the flag", "", false},
		{"read the file", "", false},
		{"done", "", false},
		{"::", "", false},
		{":       :      :", "", false},
		{"|| / _--=> preempt-depth", "", false},
		{"[ loopback { on | off } ]", "", false},
		{"ip link set lo up -> it is up", "", false},
		{"do", "", false},
	} {
		if got := isShell(tc.line, tc.next, false); got != tc.want {
			t.Errorf("%q is shell: %t", tc.line, got)
		}
	}
}

// TestPrompts has what a prompt is, and what it is not.
func TestPrompts(t *testing.T) {
	for line, want := range map[string]string{
		"# ip link show":                       "ip link show",
		"    $ while :; do true; done &":       "while :; do true; done &",
		"box:~# time ./x":                      "time ./x",
		"root@x:~# ls /":                       "ls /",
		"root@x:/tmp/a b# unshare -n true":     "unshare -n true",
		"[root@box ~]# modprobe veth":          "modprobe veth",
		"bash-5.1# ip l":                       "ip l",
		"$ lamptool --all":                     "lamptool --all",
		"# ./run.sh":                           "./run.sh",
		"# tools/testing/run.sh":               "tools/testing/run.sh",
		"# A=1 ./run.sh":                       "A=1 ./run.sh",
		"# create the devices":                 "",
		"# Title":                              "",
		"## ip link":                           "",
		"# CONFIG_NET is not set":              "",
		"# test results":                       "",
		"# sleep for a while":                  "",
		"$ perf report <kworker>":              "",
		"$ The price is low":                   "",
		"$5 is the price":                      "",
		"# time is short, as this is known":    "",
		"#define X 1":                          "",
		"# ip link add the device":             "",
		"$ for i in 1 2; do true; done":        "for i in 1 2; do true; done",
		"# time (for i in 1 2; do true; done)": "time (for i in 1 2; do true; done)",
	} {
		got, named, ok := promptOf(line)
		if !ok || !runs(got, named) {
			got = ""
		}
		if got != want {
			t.Errorf("%q: %q, want %q", line, got, want)
		}
	}
}

// scriptsOf parses text and returns its scripts.
func scriptsOf(t *testing.T, text string) []string {
	t.Helper()
	th, err := Parse("x", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	var list []string
	for _, s := range th.Scripts {
		list = append(list, s.Text)
	}
	return list
}

func TestScripts(t *testing.T) {
	for _, tc := range []struct {
		name, text string
		want       []string
	}{
		{"prose", "We saw that\nip link add works, but ip link del does not.\nThe time is\nsleep 5\nminutes away.\n", nil},
		{"block", "Try this:\n\n  N=3\n  for i in $(seq $N); do\n    ip link add d$i type dummy\n    own_tool $i\n  done\n\n  # all of them\n  ip link del d1\n\nIt is slow.\n",
			[]string{"N=3\nfor i in $(seq $N); do\n  ip link add d$i type dummy\n  own_tool $i\ndone\n\n# all of them\nip link del d1\n"}},
		{"only assignments", "size=3\ncount=4\n", nil},
		{"not closed", "for i in 1 2 3; do\n  ip link add d$i type dummy\n\nThe rest of it was lost somewhere.\n", nil},
		{"here-document", "$ cat > b <<EOF\nlink set lo up\nEOF\n$ ip -b b\n", []string{"cat > b <<EOF\nlink set lo up\nEOF\nip -b b\n"}},
		{"backslash", "# ip link add d0 \\\n    type dummy\n", []string{"ip link add d0 \\\n    type dummy\n"}},
		{"second prompt", "$ for i in 1 2; do\n> ip link add d$i type dummy\n> done\nreal 1.5\n", []string{"for i in 1 2; do\nip link add d$i type dummy\ndone\n"}},
		{"output", "# modprobe dummy\n# ip link add d0 type dummy\nRTNETLINK answers: File exists\n# ip link del d0\n", []string{"modprobe dummy\nip link add d0 type dummy\nip link del d0\n"}},
		{"only looks", "# ip link show\n1: lo\n# uname -r\n6.1\n# dmesg | tail\n", nil},
		{"quoted and not", "> $ unshare -n true\n\n$ unshare -n  true\n", []string{"unshare -n  true\n"}},
		{"only quoted", "> > $ unshare -n true\n", []string{"unshare -n true\n"}},
		{"diff", "diff --git a/x b/x\n--- a/x\n+++ b/x\n@@ -1,2 +1,2 @@\n ip link add d0 type dummy\n-a\n+modprobe dummy\n", nil},
		{"signature", "words\n-- \nip link add d0 type dummy\n", nil},
		{"trailers", "ip link add d0 type dummy\nReported-by: x <x@y>\nCc: y\n", nil},
		{"call trace", "[   1.2] Call Trace:\n[   1.2]  ip_rcv+0x1/0x2\n <TASK>\n test_it+0x1/0x2\n", nil},
		{"after and before", "# time ./a.sh\nreal 5.0\n\nWith the patch:\n\n# time ./a.sh\nreal 1.0\n", []string{"time ./a.sh\n"}},
		{"if", "run:\n\nif ! modprobe dummy; then\n  exit 1\nfi\nip link add d0 type dummy\n", []string{"if ! modprobe dummy; then\n  exit 1\nfi\nip link add d0 type dummy\n"}},
		{"empty comment", "N=1\n\n#\n\nmodprobe veth\n", []string{"N=1\n\n#\n\nmodprobe veth\n"}},
		{"paths", "/sys/class/net\n\n/dev/null 1\n\n# /proc/x\n", nil},
		{"file", "#!/bin/sh\nset -e\nmy_tool a b\n\nmy_tool c\n\nThis is the whole of what is needed.\n", []string{"#!/bin/sh\nset -e\nmy_tool a b\n\nmy_tool c\n"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if diff := cmp.Diff(tc.want, scriptsOf(t, tc.text)); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestFilesOf(t *testing.T) {
	for script, want := range map[string]string{
		"time -p ip -b nexthop.batch":             "nexthop.batch",
		"ip -force -batch a/b":                    "a/b",
		"tc -b F; tc -b ./F":                      "F",
		"ip -b -":                                 "",
		"ip -b /etc/x; ip -b $x; ip -b ../x":      "",
		"source lib.sh\n. ./lib2.sh":              "lib.sh lib2.sh",
		"bash x.sh && sh -c y":                    "x.sh",
		"cat < in > out; wc -l <out":              "in",
		"seq 3 | tee b; ip -b b":                  "",
		"sudo ./run.sh 1":                         "run.sh",
		"nft -f rules.nft":                        "rules.nft",
		"dd -b x":                                 "",
		"cat > b <<EOF\nlink\nEOF\nip -b b # <no": "",
	} {
		if got := strings.Join(filesOf(script), " "); got != want {
			t.Errorf("%q: %q, want %q", script, got, want)
		}
	}
}

func TestSeconds(t *testing.T) {
	for text, want := range map[string]float64{
		"real 0.29":             0.29,
		"real\t0m7.704s":        7.704,
		"real0m31.522s":         31.522,
		"real 1h2m3.5s":         3723.5,
		"real 0m1,25s":          1.25,
		"Before : real 7m18.5s": 438.5,
		"1. one by one using 1 thread : 243 seconds": 243,
		"with 10 hands: 700 ms":                      0.7,
		"delay = 20us":                               20e-6,
		"deletion takes about 130 seconds:":          130,
		"it took 2 minutes.":                         120,
		"0.00user 0.01system 1:02.50elapsed 99%CPU":  62.5,

		"user 0.01":          -1,
		"sys\t0m1.2s":        -1,
		"realloc 12":         -1,
		"real":               -1,
		"at least 72 hours":  -1,
		"10 items":           -1,
		"version: 12":        -1,
		"see: figure 3 ms x": -1,
		"":                   -1,
	} {
		got, ok := seconds(text)
		if !ok {
			got = -1
		}
		if math.Abs(got-want) > 1e-9 {
			t.Errorf("%q: %v, want %v", text, got, want)
		}
	}
}

// TestTimingRepeats has figures that are quoted again, before and after.
func TestTimingRepeats(t *testing.T) {
	text := "> $ time ./a\n> real  0m1.5s\n> real 0m2.5s\n\n$ time ./a\nreal\t0m1.5s\n\n>> real 0m2.5s\n"
	th, err := Parse("x", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	var got []float64
	for _, x := range th.Timings {
		got = append(got, x.Seconds)
	}
	if !slices.Equal(got, []float64{2.5, 1.5}) {
		t.Errorf("%v", th.Timings)
	}
}
