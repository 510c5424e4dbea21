package app

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/google/renameio/v2"
	"github.com/kbisect/kbisect/internal/report"
	"github.com/kbisect/kbisect/internal/series"
	"github.com/kbisect/kbisect/internal/thread"
)

// save writes the clean patches and the scripts, so that the commands that are
// printed can be run as they stand.
func (r *repro) save() error {
	dir := r.opts.Out
	if dir == "" {
		text, err := json.Marshal(r.doc)
		if err != nil {
			return err
		}
		dir = filepath.Join(r.env.State, "threads", fmt.Sprintf("%.6x", sha256.Sum256(text)))
	}
	dir, err := filepath.Abs(dir)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return Usagef("", "--out %s: %v", dir, err)
	}
	r.doc.Folder = dir
	for i := range r.thread.Series {
		s := &r.thread.Series[i]
		for j := range s.Patches {
			p := &s.Patches[j]
			name := fmt.Sprintf("v%d-%04d-%s.patch", p.Version, orDefault(p.N, j+1), slug(p.Subject))
			if err := r.savePatch(p, name, &r.doc.Series[i].Patches[j]); err != nil {
				return err
			}
		}
	}
	for i := range r.thread.FollowUp {
		p := &r.thread.FollowUp[i]
		if err := r.savePatch(p, fmt.Sprintf("reply-%04d-%s.patch", i+1, slug(p.Subject)), &r.doc.FollowUps[i]); err != nil {
			return err
		}
	}
	for i := range r.doc.Scripts {
		row := &r.doc.Scripts[i]
		row.Path = filepath.Join(dir, fmt.Sprintf("script-%d.sh", i+1))
		if err := saveFile(row.Path, []byte(strings.TrimRight(row.Text, "\n")+"\n"), 0o755); err != nil {
			return err
		}
	}
	return nil
}

// savePatch writes a patch as a mail, if there is a usable one.
func (r *repro) savePatch(p *thread.Patch, name string, row *report.ThreadPatch) error {
	clean, ok := r.clean[p]
	if !ok {
		return nil
	}
	row.Path = filepath.Join(r.doc.Folder, name)
	return saveFile(row.Path, mailOf(p, clean), 0o644)
}

// mailOf is a patch as git am and kbisect read it.
func mailOf(p *thread.Patch, clean series.Patch) []byte {
	var b strings.Builder
	oneLine := func(s string) string { return strings.Join(strings.Fields(s), " ") }
	fmt.Fprintf(&b, "From: %s\n", oneLine(p.Author))
	if p.Date != "" {
		fmt.Fprintf(&b, "Date: %s\n", oneLine(p.Date))
	}
	tag := "PATCH"
	if p.Version > 1 {
		tag += fmt.Sprintf(" v%d", p.Version)
	}
	if p.Of > 0 {
		tag += fmt.Sprintf(" %d/%d", p.N, p.Of)
	}
	fmt.Fprintf(&b, "Subject: [%s] %s\n\n---\n", tag, oneLine(p.Subject))
	data := string(clean.Data)
	if at := diffBegins.FindStringIndex(data); at != nil { // without what stands before the diff
		data = data[at[0]:]
	}
	b.WriteString(data)
	return []byte(b.String())
}

var diffBegins = regexp.MustCompile(`(?m)^(diff --git |--- [^\n]+\n\+\+\+ )`)

// saveFile writes a file that is not there, or is the same already: a folder of
// the user's may hold something else of that name.
func saveFile(path string, data []byte, mode os.FileMode) error {
	if old, err := os.ReadFile(path); err == nil {
		if string(old) == string(data) {
			return nil
		}
		return Usagef("give an empty folder", "--out: %s is there already, with something else in it", path)
	}
	if err := renameio.WriteFile(path, data, mode, renameio.WithTempDir(filepath.Dir(path))); err != nil {
		return Usagef("", "--out: %v", err)
	}
	return nil
}

var notInName = regexp.MustCompile(`[^A-Za-z0-9._]+`)

// slug is a subject as git format-patch makes a file name of it.
func slug(subject string) string {
	s := strings.Trim(notInName.ReplaceAllString(subject, "-"), "-.")
	return strings.TrimRight(s[:min(len(s), 52)], "-.")
}

// commands makes the lines that would test the thread, the best first.
func (r *repro) commands() {
	for _, c := range r.candidates() {
		line := report.ThreadCommand{Line: commandLine(c.opts), What: c.what}
		if c.ready && r.best == nil {
			line.Best = true
			opts := c.opts
			r.best = &opts
		}
		r.doc.Commands = append(r.doc.Commands, line)
	}
}

// candidate is a way to test the thread.
type candidate struct {
	opts  RunOptions
	what  string
	ready bool // everything that it needs is there
}

func (r *repro) candidates() (out []candidate) {
	given := r.opts.RunOptions
	patches, subject := r.usablePatches()
	for _, w := range r.workloads() {
		o := given
		o.Script, o.Workload, o.Metric, o.Config.Extra = w.opts.Script, w.opts.Workload, w.opts.Metric, w.opts.Config.Extra
		switch {
		case len(patches) == 1:
			o.Patch = patches[0]
			out = append(out, candidate{o, fmt.Sprintf("what %q does, by %s", subject, w.what), w.ready})
		case len(patches) > 1:
			o.Series, o.LookFor = patches, "lower"
			out = append(out, candidate{o, fmt.Sprintf("which patch of %q makes it faster, by %s", subject, w.what), w.ready})
		default: // the catalog has the report's patch for this kernel
			for _, name := range r.doc.Cases {
				o := o
				o.Cases = []string{name}
				out = append(out, candidate{o, fmt.Sprintf("what the catalog's patch for this report does, by %s", w.what), w.ready})
			}
		}
		if fixes := r.fixes(); fixes != "" {
			o := o
			o.Patch, o.Series, o.LookFor = "", nil, ""
			o.Kernel, o.Good, o.Bad = orDefault(treeOf(given.Kernel), "TREE"), fixes+"^", fixes
			out = append(out, candidate{o, "whether the commit that it says it fixes made it slow", false})
		} else if len(patches) == 0 {
			o := o
			o.Kernel, o.Good, o.Bad = orDefault(treeOf(given.Kernel), "TREE"), "GOOD", "BAD"
			out = append(out, candidate{o, "which commit of a git tree made it slow, by " + w.what, false})
		}
	}
	for _, name := range r.doc.Cases {
		o := given
		o.Cases = []string{name}
		out = append(out, candidate{o, "the catalog's own patch and workload for this report", true})
	}
	slices.SortStableFunc(out, func(a, b candidate) int { return boolOrder(b.ready) - boolOrder(a.ready) })
	return out
}

func boolOrder(b bool) int {
	if b {
		return 1
	}
	return 0
}

// treeOf returns the kernel if it can be a git tree: a package has no history.
func treeOf(kernel string) string {
	if st, err := os.Stat(kernel); err == nil && st.IsDir() {
		return kernel
	}
	return ""
}

// usablePatches returns the files of the chosen series, nil unless all of them
// are usable.
func (r *repro) usablePatches() (files []string, subject string) {
	for _, s := range r.doc.Series {
		if !s.Chosen {
			continue
		}
		for _, p := range s.Patches {
			if p.Path == "" || p.Fit == report.FitNot {
				return nil, ""
			}
			files = append(files, p.Path)
		}
		return files, s.Subject
	}
	return nil, ""
}

// way is a workload that may show what the thread is about.
type way struct {
	opts  RunOptions // its Script, Workload, Metric and Config.Extra count
	what  string
	ready bool
}

// workloads lists the user's own, or those of the thread: the scripts that time
// something if there are any.
func (r *repro) workloads() (out []way) {
	given := r.opts.RunOptions
	if given.Script.Text != "" || given.Workload != "" {
		return []way{{given, orDefault(given.Script.Name, given.Workload), true}}
	}
	timed := func(s report.ThreadScript) bool { return s.Metric != "" }
	any := slices.ContainsFunc(r.doc.Scripts, timed)
	for i, s := range r.doc.Scripts {
		if any && !timed(s) {
			continue // it sets something up, or shows something
		}
		o := given
		o.Script.Name, o.Script.Text = s.Path, s.Text
		if o.Metric == "" && o.Threshold == "" && !o.Script.ExitIsVerdict {
			o.Metric = orDefault(r.metric, s.Metric)
		}
		if endsInFalse.MatchString(s.Text) && !o.Script.ExitIsVerdict && o.Script.ExitOK == 0 {
			o.Script.ExitOK = 1
		}
		for _, k := range s.Kconfigs {
			if !slices.Contains(o.Config.Extra, k) {
				o.Config.Extra = append(slices.Clone(o.Config.Extra), k)
			}
		}
		lacks := r.lacking(s)
		for _, f := range lacks {
			o.Script.Files = append(slices.Clone(o.Script.Files), "PATH:"+f)
		}
		out = append(out, way{o, fmt.Sprintf("script %d", i+1), len(lacks) == 0})
	}
	return out
}

// endsInFalse finds a script whose last command is there to fail: the status of
// `for ...; do unshare -n /bin/false; done` is 1 when all went well.
var endsInFalse = regexp.MustCompile(`(?:^|[;\n]\s*|[^|&\s][ \t]+)(?:(?:/usr)?/bin/)?false\s*(?:;?\s*done\s*)?$`)

// lacking lists the files of a script that the user has not given.
func (r *repro) lacking(s report.ThreadScript) (out []string) {
	for _, f := range s.Files {
		given := slices.ContainsFunc(r.opts.RunOptions.Script.Files, func(arg string) bool {
			_, to := splitFile(arg)
			return to == "/root/"+strings.TrimPrefix(f, "./")
		})
		if !given {
			out = append(out, f)
		}
	}
	return out
}

// fixes is the commit that the thread says it fixes, "" if it names none or
// several.
func (r *repro) fixes() string {
	var found []string
	for _, t := range r.thread.Trailers {
		if m := fixesID.FindString(t.Value); t.Key == "Fixes" && m != "" && !slices.Contains(found, m) {
			found = append(found, m)
		}
	}
	if len(found) != 1 {
		return ""
	}
	return found[0]
}

var fixesID = regexp.MustCompile(`^[0-9a-f]{8,40}`)

// commandLine is a `kbisect run` with these options, quoted for a shell.
func commandLine(o RunOptions) string {
	words := []string{"kbisect", "run"}
	add := func(flag, value string) {
		if value != "" {
			words = append(words, flag, quote(value))
		}
	}
	each := func(flag string, values []string) {
		for _, v := range values {
			add(flag, v)
		}
	}
	add("--kernel", o.Kernel)
	add("--base", o.Base)
	each("--kconfig", o.Config.Extra)
	add("--good", o.Good)
	add("--bad", o.Bad)
	add("--patch", o.Patch)
	each("--series", o.Series)
	add("--look-for", o.LookFor)
	each("--fixup", o.Fixup)
	if o.Script.Text != "" {
		add("--script", o.Script.Name)
	} else {
		add("-w", o.Workload)
	}
	each("--tool", o.Script.Tools)
	each("--file", o.Script.Files)
	if o.Script.ExitOK != 0 {
		add("--exit-ok", strconv.Itoa(o.Script.ExitOK))
	}
	add("--metric", o.Metric)
	add("--threshold", o.Threshold)
	if o.Quick {
		words = append(words, "--quick")
	}
	if o.Script.ExitIsVerdict {
		words = append(words, "--exit-is-verdict")
	}
	return strings.Join(append(words, o.Cases...), " ")
}

var plainWord = regexp.MustCompile(`^[A-Za-z0-9_./:=,+@%^~-]+$`)

func quote(word string) string {
	if plainWord.MatchString(word) {
		return word
	}
	return "'" + strings.ReplaceAll(word, "'", `'\''`) + "'"
}
