package app

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/kbisect/kbisect/guest/workload"
	"github.com/kbisect/kbisect/internal/feature"
	"github.com/kbisect/kbisect/internal/initramfs"
	"github.com/kbisect/kbisect/internal/measure"
)

// Bounds of what a user puts into the guest, which has it all in memory.
const (
	maxScript = 1 << 20
	maxFiles  = 10_000
	maxBytes  = 256 << 20
)

// ScriptOptions is a script of the user's as the workload, and what it needs.
type ScriptOptions struct {
	Name          string   `json:"name,omitempty"` // the file as it was given; "-" or "-e" for others
	Text          string   `json:"text,omitempty"` // what runs: kept, so that a resume runs the same
	Tools         []string `json:"tools,omitempty"`
	Files         []string `json:"files,omitempty"` // HOST[:GUEST]
	ExitIsVerdict bool     `json:"exit_is_verdict,omitempty"`
	ExitOK        int      `json:"exit_ok,omitempty"` // the status by which it says that all went well
}

// Load reads the script that was asked for: Text as it was given, or the file
// Name, "-" for in. Without either it does nothing.
func (s *ScriptOptions) Load(in io.Reader) (err error) {
	switch {
	case s.Text != "" && s.Name != "":
		return Usagef("", "--script and -e exclude each other")
	case s.Text != "":
		s.Name = "-e"
		s.Text, err = checkScript(s.Name, []byte(s.Text))
	case s.Name != "":
		s.Text, err = readScript(s.Name, in)
	}
	return err
}

func readScript(name string, in io.Reader) (string, error) {
	r := in
	if name != "-" {
		f, err := os.Open(name)
		if err != nil {
			return "", Usagef("", "--script: %v", err)
		}
		defer f.Close()
		r = f
	}
	data, err := io.ReadAll(io.LimitReader(r, maxScript+1))
	if err != nil {
		return "", Usagef("", "--script %q: %v", name, err)
	}
	return checkScript("--script "+name, data)
}

// checkScript refuses what no shell could run, and ends lines in LF: a script
// from a mail has CRLF, which bash would take for part of each last word.
func checkScript(flag string, data []byte) (string, error) {
	switch {
	case len(bytes.TrimSpace(data)) == 0:
		return "", Usagef("", "%s: it is empty", flag)
	case len(data) > maxScript:
		return "", Usagef("--file HOST:GUEST takes data along", "%s: larger than %d KiB", flag, maxScript>>10)
	case bytes.IndexByte(data, 0) >= 0:
		return "", Usagef("--tool PROG packs a program, and -e runs it", "%s: it is not text", flag)
	}
	return strings.ReplaceAll(string(data), "\r\n", "\n"), nil
}

// set makes the script the workload of the options, and checks that everything
// else that was asked goes with it.
func (s *ScriptOptions) set(o *RunOptions) error {
	if s.Text == "" {
		switch {
		case len(s.Tools)+len(s.Files) > 0 || s.ExitIsVerdict || s.ExitOK != 0:
			return Usagef("kbisect run --help", "--tool, --file, --exit-ok and --exit-is-verdict belong to a --script or -e")
		case workloadName(o.Workload) == workload.Script:
			return Usagef("", "workload %q runs a script: say which, by --script FILE or -e CMD", o.Workload)
		}
		return nil
	}
	spec := s.spec(o)
	switch {
	case s.ExitOK < 0 || s.ExitOK > 255:
		return Usagef("", "--exit-ok %d: an exit status is 0 to 255", s.ExitOK)
	case s.ExitOK != 0 && s.ExitIsVerdict:
		return Usagef("", "--exit-ok and --exit-is-verdict exclude each other")
	case len(s.Tools) > 0 && o.Machine.Image != "":
		return Usagef("", "--tool packs programs of this machine; with --image the guest has those of the image")
	case o.All || o.Sweep != "":
		return Usagef("", "--script goes with no --all or --sweep")
	case o.Workload != "" && o.Workload != spec:
		return Usagef("", "--script and --workload %s exclude each other", o.Workload)
	}
	o.Workload = spec
	if s.ExitIsVerdict {
		if o.Metric != "" && o.Metric != "exit" || o.Threshold != "" && o.Threshold != exitVerdict {
			return Usagef("", "--exit-is-verdict is a verdict of its own: it goes with no --metric or --threshold")
		}
		o.Metric, o.Threshold = "exit", exitVerdict
	}
	return s.checkInterpreter()
}

// spec is the script as a workload. Only who asks for what it left behind waits
// for that.
func (s *ScriptOptions) spec(o *RunOptions) string {
	spec := workload.Script
	if s.ExitIsVerdict {
		spec += ",exit-is-verdict=true"
	}
	if s.ExitOK != 0 {
		spec += ",exit-ok=" + strconv.Itoa(s.ExitOK)
	}
	if asksSettled.MatchString(o.Metric) || asksSettled.MatchString(o.Threshold) {
		spec += ",settle=true"
	}
	return spec
}

var asksSettled = regexp.MustCompile(`^\s*` + workload.Settled + `\b`)

// exitVerdict is the threshold of --exit-is-verdict.
const exitVerdict = "exit>0"

// checkInterpreter refuses a "#!" line that the guest could not follow.
func (s *ScriptOptions) checkInterpreter() error {
	_, name := workload.Shebang(s.Text)
	if name == "" || name == "sh" || name == "dash" || slices.Contains(initramfs.Tools(), name) || slices.ContainsFunc(s.Tools, func(t string) bool { return path.Base(t) == name }) {
		return nil
	}
	return Usagef(fmt.Sprintf("add --tool %s (its libraries are found; --file adds its modules)", name), "script %s: it is for %s, which the guest does not have", s.Name, name)
}

// title names the script in a result.
func (s *ScriptOptions) title() string {
	return fmt.Sprintf("script %s (sha256 %.6x)", s.Name, sha256.Sum256([]byte(s.Text)))
}

var (
	// printsMetric finds the metrics whose unit a script says in so many words.
	printsMetric = regexp.MustCompile(`kbisect-metric\s+([a-z][a-z0-9_-]*)\s+(?:"[^"]*"|'[^']*'|\$\(\([^)]*\)\)|\$\([^)]*\)|\S+)\s+([A-Za-z1/µ]+)`)
	timeMetric   = regexp.MustCompile(`^\s*time\[([0-9]{1,3})\]\.(real|user|sys)`)
	askedMetric  = regexp.MustCompile(`^\s*([a-z][a-z0-9_-]*)\s*(?:$|[<>]=?\s*[0-9.]+\s*(\S*)\s*$)`)
)

// metrics returns what the script can be asked for: what every script has, what
// it says that it prints, and what asked (a metric or a threshold) names. Only a
// run shows whether it is printed.
func (s *ScriptOptions) metrics(defs []measure.Def, asked ...string) []measure.Def {
	defs = slices.Clone(defs)
	add := func(name, unit string) {
		u, _, ok := workload.ScriptUnit(unit)
		if !ok || slices.ContainsFunc(defs, func(d measure.Def) bool { return d.Name == name }) {
			return
		}
		defs = append(defs, measure.Def{Name: name, Unit: u, Better: workload.BetterOf(u), About: "printed by the script"})
	}
	for _, m := range printsMetric.FindAllStringSubmatch(s.Text, workload.MaxScriptMetrics) {
		add(m[1], m[2])
	}
	for _, a := range asked {
		if m := timeMetric.FindStringSubmatch(a); m != nil {
			if n, _ := strconv.Atoi(m[1]); n >= 1 && n <= workload.MaxTimes {
				add(workload.TimeMetric(n, m[2]), "ns")
			}
		} else if m := askedMetric.FindStringSubmatch(a); m != nil && strings.Contains(s.Text, m[1]) {
			add(m[1], m[2])
		}
	}
	if !slices.ContainsFunc(defs, func(d measure.Def) bool { return strings.HasPrefix(d.Name, "time[") }) && usesTime.MatchString(s.Text) {
		add(workload.TimeMetric(1, "real"), "ns") // shown where the names are listed
	}
	return defs
}

var usesTime = regexp.MustCompile(`(?m)(^|[;&|({]|\bdo|\bthen)\s*time\s`)

// extra lists what the user's files are in the guest's first file system.
func (s *ScriptOptions) extra() ([]initramfs.File, error) {
	var out []initramfs.File
	var total int64
	for _, f := range s.Files {
		from, to := splitFile(f)
		files, err := packFile(from, to, &total)
		if err != nil {
			return nil, err
		}
		out = append(out, files...)
		if len(out) > maxFiles {
			return nil, Usagef("", "--file %s: more than %d files", f, maxFiles)
		}
	}
	return out, nil
}

// splitFile reads HOST[:GUEST]. A relative GUEST is in the folder that the script
// starts in.
func splitFile(arg string) (from, to string) {
	from, to = arg, ""
	if i := strings.LastIndexByte(arg, ':'); i > 0 {
		from, to = arg[:i], arg[i+1:]
	}
	if to == "" {
		to = filepath.Base(from)
	}
	if !path.IsAbs(to) {
		to = path.Join("/root", to)
	}
	return from, path.Clean(to)
}

// reserved are the guest's own paths, which a file of the user's cannot replace.
var reserved = []string{"/init", "/kbisect", "/dev", "/proc", "/sys", "/tmp", "/run"}

// packFile lists a file, or all files of a folder.
func packFile(from, to string, total *int64) (out []initramfs.File, err error) {
	for _, r := range reserved {
		if to == r || strings.HasPrefix(to, r+"/") || to == "/" {
			return nil, Usagef("a name without a slash goes to /root, where the script starts", "--file %s: %s is the guest's own", from, to)
		}
	}
	err = filepath.WalkDir(from, func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		fi, err := os.Stat(name) // what a link leads to
		if err != nil {
			return err
		}
		rel, _ := filepath.Rel(from, name)
		switch entry := path.Join(to, filepath.ToSlash(rel)); {
		case fi.Mode().IsRegular():
			*total += fi.Size()
			out = append(out, initramfs.File{Path: entry, Mode: fi.Mode().Perm(), Source: name})
		case d.IsDir():
			out = append(out, initramfs.File{Path: entry, Mode: fs.ModeDir | 0o755})
		case name == from:
			return errors.New("neither a file nor a folder")
		}
		if *total > maxBytes || len(out) > maxFiles {
			return fmt.Errorf("more than %d MiB or %d files", maxBytes>>20, maxFiles)
		}
		return nil
	})
	if err != nil {
		return nil, Usagef("", "--file %s: %v", from, err)
	}
	return out, nil
}

// missing says what a transcript shows that the guest lacks, each with what adds
// it, but for the fragments that the kernel has.
func missing(transcript string, has []string) []string {
	var out []string
	for _, n := range feature.Missing([]byte(transcript)) {
		if n.Fragment != "" && slices.Contains(has, n.Fragment) {
			continue
		}
		text := fmt.Sprintf("line %d of the transcript, %q: the kernel lacks %s", n.Line, shorten(n.Text), n.Why)
		if n.Fragment != "" {
			text = fmt.Sprintf("line %d of the transcript, %q: add --kconfig %s", n.Line, shorten(n.Text), n.Fragment)
		}
		out = append(out, text)
	}
	for _, m := range notFound.FindAllStringSubmatch(transcript, 10) {
		if text := fmt.Sprintf("%s is not in the guest: add --tool %s", m[1], m[1]); !slices.Contains(out, text) {
			out = append(out, text)
		}
	}
	return out
}

// notFound is how bash and env say that there is no such program.
var notFound = regexp.MustCompile(`(?m)^[^+\n][^\n]*?: ([A-Za-z0-9_.+-]+): command not found$`)
