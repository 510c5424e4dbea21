package workload

import (
	"strings"
	"testing"
)

// pktgenText is what Linux 6.1 shows of an entry that has run.
const pktgenText = `Params: count 50000  min_pkt_size: 60  max_pkt_size: 60
     frags: 0  delay: 0  clone_skb: 0  ifname: d0@1
     flows: 0 flowlen: 0
     queue_map_min: 0  queue_map_max: 0
     dst_min: 198.18.0.42  dst_max: 
     src_min:   src_max: 
     src_mac: 36:0c:11:c1:4d:6d dst_mac: 02:00:00:00:00:42
     udp_src_min: 9  udp_src_max: 9  udp_dst_min: 9  udp_dst_max: 9
     src_mac_count: 0  dst_mac_count: 0
     xmit_mode: xmit_queue
     Flags: 
Current:
     pkts-sofar: 50000  errors: 976
     started: 1914667us  stopped: 2079017us idle: 61us
     seq_num: 50001  cur_dst_mac_offset: 0  cur_src_mac_offset: 0
     cur_saddr: 0.0.0.0  cur_daddr: 198.18.0.42
     cur_udp_dst: 9  cur_udp_src: 9
     cur_queue_map: 0
     flows: 0
Result: OK: 164350(c164289+d61) usec, 50000 (60byte,0frags)
  304228pps 146Mb/sec (146029440bps) errors: 976
`

func TestParsePktgen(t *testing.T) {
	want := pktgenResult{sent: 50000, refused: 976, started: 1914667, stopped: 2079017}
	if got, err := parsePktgen(pktgenText); err != nil || got != want {
		t.Errorf("%+v, %v, want %+v", got, err, want)
	}
	for name, c := range map[string]struct{ from, to, says string }{
		"idle":      {"Result: OK: 164350(c164289+d61) usec", "Result: Idle", `"Idle, 50000`},
		"no result": {"Result: ", "Res: ", "no result"},
		"nothing":   {pktgenText, "", "no result"},
		"no number": {"pkts-sofar: 50000", "pkts-sofar: x", "pkts-sofar:"},
		"no time":   {"stopped:", "ended:", "no time"},
	} {
		_, err := parsePktgen(strings.ReplaceAll(pktgenText, c.from, c.to))
		if err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v, want it to say %q", name, err, c.says)
		}
	}
}

func FuzzParsePktgen(f *testing.F) {
	f.Add(pktgenText)
	f.Fuzz(func(t *testing.T, text string) {
		if r, err := parsePktgen(text); err == nil && r.stopped == 0 {
			t.Errorf("%q: %+v", text, r)
		}
	})
}

func TestParseTransmitted(t *testing.T) {
	const text = `Inter-|   Receive                                                |  Transmit
 face |bytes    packets errs drop fifo frame compressed multicast|bytes    packets errs drop fifo colls carrier compressed
    lo:       1       2    0    0    0     0          0         0        3       4    0    0    0     0       0          0
   d00: 5 6 0 0 0 0 0 0 7 8 0 0 0 0 0 0
    d0: 0 0 0 0 0 0 0 0 6000000 100000 0 0 0 0 0 0
`
	if n, err := parseTransmitted(text, "d0"); n != 100000 || err != nil {
		t.Errorf("%d, %v", n, err)
	}
	for _, bad := range []string{"", "d0: 1 2 3\n", "d0: 0 0 0 0 0 0 0 0 1 x 0\n"} {
		if n, err := parseTransmitted(bad, "d0"); err == nil {
			t.Errorf("%q: %d", bad, n)
		}
	}
}

// TestRealPktgen needs a kernel with the generator, which most machines have as
// a module that is not loaded; a guest always has it.
func TestRealPktgen(t *testing.T) {
	n, ops := stress(t, "pktgen,threads=1+4,count=10000")
	if ops != 20_000 || n.metrics["mpps-1"] <= 0 || n.metrics["mpps-4"] <= 0 {
		t.Errorf("%d packets, %v", ops, n.metrics)
	}
}

func TestLists(t *testing.T) {
	w, p, err := Parse("pktgen,threads=16+1")
	if err != nil {
		t.Fatal(err)
	}
	if got := p.Ints("threads"); len(got) != 2 || got[0] != 16 || got[1] != 1 {
		t.Errorf("threads %v", got)
	}
	var names []string
	for _, m := range MetricsFor(w, p) {
		names = append(names, m.Name)
	}
	if got := strings.Join(names, " "); got != "mpps-1 mpps-16 refused" {
		t.Errorf("metrics %s", got)
	}
	for spec, says := range map[string]string{
		"pktgen,threads=3":     "one or more, joined by +, of 1, 2, 4, 8, 16",
		"pktgen,threads=1+":    `"1+" is not`,
		"pktgen,threads=":      `"" is not`,
		"pktgen,threads=2+4+2": "2 twice",
	} {
		if _, _, err := Parse(spec); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v, want it to say %q", spec, err, says)
		}
	}
}
