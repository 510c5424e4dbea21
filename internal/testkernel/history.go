package testkernel

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/kbisect/kbisect/internal/gitx"
	"github.com/kbisect/kbisect/internal/source"
)

// History is a range of commits made on a source, and what is true of each. All
// of them are real edits of net/ that compile without a warning on 6.1 and 7.2,
// unless Broken says otherwise. A slow commit makes the flush of nexthops wait
// for a normal grace period (the workload nexthop-delete: milliseconds a nexthop
// instead of microseconds).
//
// Ids depend on the source's head and on nothing else. The commits are objects
// of the source's repository that no ref names.
type History struct {
	Good, Bad string   // the ends; Good is the source's head
	Commits   []string // all of Good..Bad: git rev-list --topo-order, oldest first
	Culprit   string   // makes it slow; "" when none does
	Others    []string // may rightly be named as well: slow again after a fix
	Broken    []string // do not build, or do not boot
	Same      []string // build the very kernel that their parent is
	Patches   []string // of a series: the files that WriteSeries wrote
}

// Names of edits that a history is judged by.
const (
	slow         = "slow"
	fast         = "fast"
	slowAgain    = "slow-again"
	compileBreak = "compile-break"
	compileFix   = "compile-fix"
	panicBreak   = "panic-break"
	panicFix     = "panic-fix"
)

// Chain32 is 32 commits in a row: comments, refactorings, Kconfig's help, new
// symbols, and one culprit, the 21st, with innocent edits of the same file around
// it.
func Chain32(t testing.TB, src *source.Source) History {
	t.Helper()
	return build(t, src, line(
		"nh-comment-flush", "dev-mtu-message", "veth-comment", "nh-unused-id", "veth-help", "dummy-numdummies",
		"fibnotifier-net-id", "nh-order", "lw-add-event", "nexthop-stats-symbol", "hwaddr-comment", "arp-pvlan",
		"devinet-order", "eth-addr-change", "nh-fdb-message", "procfs-softnet", "dev-comment-queues", "hash-gen-put",
		"nexthop-objects-symbol", "vlan-hw-message", slow, "nh-comment-tree", "sock-mark", "nh-hw-flags",
		"pktgen-help", "output-send-skb", "fib-const", "netns-by-id", "dummy-comment", "ping-supported",
		"nh-twice-message", "igmp-order"))
}

// Merged is 16 commits with two merged branches, which fork from different
// commits; the culprit is in the middle of the second one.
func Merged(t testing.TB, src *source.Source) History {
	t.Helper()
	var s steps
	first := s.add(base, "dev-mtu-message")
	routes := s.chain(base, "fibrules-pref", "fib-flush", "arp-pvlan", "devinet-onlink")
	trunk := s.chain(s.merge(first, routes, "Merge branch 'routes'"), "veth-ptr-free")
	nexthops := s.chain(first, "nh-unused-id", "nh-fdb-message", slow, "nh-hw-flags", "nh-comment-copy")
	s.chain(s.merge(trunk, nexthops, "Merge branch 'nexthops'"), "sock-mark", "hwaddr-sync-one", "dummy-carrier")
	return build(t, src, s)
}

// DoesNotCompile is 16 commits in a row, of which the 6th to the 10th do not
// compile; the culprit is the 13th.
func DoesNotCompile(t testing.TB, src *source.Source) History {
	t.Helper()
	return build(t, src, line(
		"dev-pack-message", "nh-twice-message", "lw-nextevent", "fibrules-pref", "neigh-timer-message", compileBreak,
		"veth-num-queues", "nh-unused-id", "netns-wq", "hwaddr-sync-one", compileFix, "nh-fdb-message",
		slow, "arp-pvlan", "nh-hw-flags", "fib-flush"))
}

// PanicsAtBoot is 16 commits in a row, of which the 7th to the 9th panic before
// there is a userspace; the culprit is the 4th.
func PanicsAtBoot(t testing.TB, src *source.Source) History {
	t.Helper()
	return build(t, src, line(
		"nh-hw-flags", "igmp-filter-del", "frag-wq", slow, "nh-reserved-message", "sock-mark",
		panicBreak, "dev-mtu-message", "vlan-filter-info", panicFix, "dev-loop-sk", "hash-gen-put",
		"nh-unused-id", "dummy-validate", "metrics-message", "sysctl-sndbuf"))
}

// ComesBack is 16 commits in a row: slow from the 4th (Culprit), repaired by the
// 8th, slow again from the 12th (Others).
func ComesBack(t testing.TB, src *source.Source) History {
	t.Helper()
	return build(t, src, line(
		"fib-type-message", "nh-unused-id", "veth-ptr-free", slow, "nh-twice-message", "xdp-table",
		"procfs-softnet", fast, "flow-cookie", "nh-fdb-message", "skbuff-eat-message", slowAgain,
		"nh-hw-flags", "udp-sysctl-message", "eth-addr-change", "inet6-message"))
}

// NoRegression is 12 commits in a row that change nothing one could measure.
func NoRegression(t testing.TB, src *source.Source) History {
	t.Helper()
	return build(t, src, line(
		"nh-unused-id", "nh-comment-copy", "dev-mtu-message", "dummy-carrier", "nexthop-stats-symbol", "nh-hw-flags",
		"lw-comment", "netns-nsid-message", "fib-tnode-alloc", "veth-xdp-flush", "devinet-onlink", "nh-fdb-message"))
}

// Range64 is 64 commits in a row, each of which changes the code or the data of
// another place of net/ or drivers/net/: no two of its kernels are equal. The
// culprit is the 41st.
func Range64(t testing.TB, src *source.Source) History {
	t.Helper()
	return build(t, src, line(series(t, 41, 64)...))
}

// Series is n patches in a row, of which the culprit-th (from 1) makes it slow
// and all change the kernel. The patches are written as files, too.
func Series(t testing.TB, src *source.Source, culprit, n int) (base string, h History) {
	t.Helper()
	h = build(t, src, line(series(t, culprit, n)...))
	h.Patches = h.WriteSeries(t, src, t.TempDir())
	return h.Good, h
}

// series names n code-changing edits with the slow one at its place. They are
// taken in strides, so that neighbours touch different files.
func series(t testing.TB, culprit, n int) []string {
	t.Helper()
	code := loadEdits(t).code
	if culprit < 1 || culprit > n || n > len(code)+1 {
		t.Fatalf("a series of %d with culprit %d: at most %d are there", n, culprit, len(code)+1)
	}
	const stride = 31 // a prime that does not divide their number
	if len(code)%stride == 0 {
		t.Fatalf("%d edits are a multiple of %d", len(code), stride)
	}
	names := make([]string, 0, n)
	for i := range n - 1 {
		names = append(names, code[i*stride%len(code)])
	}
	return slices.Insert(names, culprit-1, slow)
}

// Mbox writes the history as `git format-patch --stdout` does, and returns the
// file. It is for histories without merges.
func (h History) Mbox(t testing.TB, src *source.Source) string {
	t.Helper()
	f, err := os.Create(filepath.Join(t.TempDir(), "series.mbox"))
	if err != nil {
		t.Fatal(err)
	}
	err = src.Repo().Do(t.Context(), gitx.Command{Args: []string{"format-patch", "--stdout", h.Good + ".." + h.Bad}, Stdout: f})
	if err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	return f.Name()
}

// WriteSeries writes the history into dir as `git format-patch` does, one file a
// commit, and returns the files in order. It is for histories without merges.
func (h History) WriteSeries(t testing.TB, src *source.Source, dir string) []string {
	t.Helper()
	out, err := src.Repo().Output(t.Context(), "format-patch", "--output-directory="+dir, h.Good+".."+h.Bad)
	if err != nil {
		t.Fatal(err)
	}
	return strings.Split(out, "\n")
}

// base stands for the source's head among the steps.
const base = -1

// step is one commit to make. Of a merge, other is what it merges into parent.
type step struct {
	parent, other int // places among the steps; other is base when it is no merge
	edit          string
	message       string // of a merge
}

// steps are in topological order.
type steps []step

// line is all edits in a row.
func line(names ...string) steps {
	var s steps
	s.chain(base, names...)
	return s
}

func (s *steps) add(parent int, edit string) int {
	*s = append(*s, step{parent: parent, other: base, edit: edit})
	return len(*s) - 1
}

func (s *steps) chain(parent int, names ...string) int {
	for _, name := range names {
		parent = s.add(parent, name)
	}
	return parent
}

func (s *steps) merge(parent, other int, message string) int {
	*s = append(*s, step{parent: parent, other: other, message: message + "\n"})
	return len(*s) - 1
}

// build makes the commits, and judges them.
func build(t testing.TB, src *source.Source, s steps) History {
	t.Helper()
	all := loadEdits(t)
	stream, err := s.stream(src.Head, all, readFiles(t, src, s, all))
	if err != nil {
		t.Fatalf("%v\n(is %s another kernel than the edits were made for?)", err, src.Name)
	}
	ids := importStream(t, src, stream, len(s))
	h := History{Good: src.Head, Bad: ids[len(ids)-1]}
	commits, err := src.Repo().RevList(t.Context(), h.Good, h.Bad)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range slices.Backward(commits) {
		h.Commits = append(h.Commits, c.ID)
	}
	s.judge(&h, ids, all)
	return h
}

// judge says what is true of the commits, by the edits that made them.
func (s steps) judge(h *History, ids []string, all edits) {
	broken := false
	for i, st := range s {
		switch st.edit {
		case slow:
			h.Culprit = ids[i]
		case slowAgain:
			h.Others = append(h.Others, ids[i])
		case compileBreak, panicBreak:
			broken = true
		case compileFix, panicFix:
			broken = false
		}
		if broken {
			h.Broken = append(h.Broken, ids[i])
		}
		if all.named[st.edit].plain {
			h.Same = append(h.Same, ids[i])
		}
	}
}

// maxFile is larger than any file that is edited, in bytes.
const maxFile = 8 << 20

// readFiles returns the source's text of all files that the steps edit, by one
// git for all.
func readFiles(t testing.TB, src *source.Source, s steps, all edits) map[string]string {
	t.Helper()
	names := map[string]bool{}
	for _, st := range s {
		if st.edit == "" {
			continue
		}
		e, ok := all.named[st.edit]
		if !ok {
			t.Fatalf("no edit is named %q", st.edit)
		}
		for _, c := range e.changes {
			names[c.file] = true
		}
	}
	sorted := slices.Sorted(maps.Keys(names))
	var ask strings.Builder
	for _, name := range sorted {
		fmt.Fprintf(&ask, "%s:%s\n", src.Head, name)
	}
	var out bytes.Buffer
	err := src.Repo().Do(t.Context(), gitx.Command{Args: []string{"cat-file", "--batch"}, Stdin: strings.NewReader(ask.String()), Stdout: &out})
	if err != nil {
		t.Fatal(err)
	}
	files, r := map[string]string{}, bufio.NewReader(&out)
	for _, name := range sorted {
		text, err := readBlob(r)
		if err != nil {
			t.Fatalf("read %s of %s: %v", name, src.Name, err)
		}
		files[name] = text
	}
	return files
}

// readBlob reads one answer of cat-file --batch: "ID blob SIZE", the content, and
// a newline.
func readBlob(r *bufio.Reader) (string, error) {
	head, err := r.ReadString('\n')
	if err != nil {
		return "", err
	}
	f := strings.Fields(head)
	if len(f) != 3 || f[1] != "blob" {
		return "", fmt.Errorf("it is no file there: %s", strings.TrimSpace(head))
	}
	size, err := strconv.Atoi(f[2])
	if err != nil || size > maxFile {
		return "", fmt.Errorf("it has a size of %s", f[2])
	}
	text := make([]byte, size+1)
	if _, err := io.ReadFull(r, text); err != nil {
		return "", err
	}
	return string(text[:size]), nil
}
