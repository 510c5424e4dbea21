package report

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
)

// ThreadSchema is the schema of Thread.
const ThreadSchema = "kbisect.thread/1"

// Thread is what `kbisect repro` found in a mail thread.
type Thread struct {
	Schema    string          `json:"schema"` // set by ThreadJSON
	Thread    string          `json:"thread"` // as it was given
	Form      string          `json:"form"`   // "mbox", "maildir", "mail", "web archive text"
	Messages  int             `json:"messages"`
	Kernel    string          `json:"kernel"` // that the patches were tried on, "" for none
	Folder    string          `json:"folder"` // has the patches and scripts
	Series    []ThreadSeries  `json:"series"`
	FollowUps []ThreadPatch   `json:"follow_ups"` // diffs in replies
	Scripts   []ThreadScript  `json:"scripts"`
	Timings   []ThreadTiming  `json:"timings"`
	Trailers  []ThreadTrailer `json:"trailers"`
	Cases     []string        `json:"cases"` // of the catalog, that are about this report
	Commands  []ThreadCommand `json:"commands"`
	Warnings  []string        `json:"warnings"`
}

// ThreadSeries is one version of a series.
type ThreadSeries struct {
	Subject string        `json:"subject"`
	Version int           `json:"version"`
	Resend  bool          `json:"resend"`
	Chosen  bool          `json:"chosen"`
	Of      int           `json:"of"`      // how many patches it says it has
	Missing []int         `json:"missing"` // numbers that are not in the thread
	Patches []ThreadPatch `json:"patches"`
}

// ThreadPatch is a patch in a thread.
type ThreadPatch struct {
	Message int      `json:"message"` // its number in the thread
	Line    int      `json:"line"`    // of the file, where its diff begins
	Subject string   `json:"subject"`
	Author  string   `json:"author"`
	Date    string   `json:"date"`
	N       int      `json:"n"`
	Files   []string `json:"files"`
	State   string   `json:"state"`   // StateClean, ...
	Fit     string   `json:"fit"`     // FitInTree, ..., "" if no kernel was given
	Reason  string   `json:"reason"`  // why it is damaged, refused, or fits nowhere
	Repairs []string `json:"repairs"` // what was mended
	Path    string   `json:"path"`    // of the clean patch, "" if there is none
}

// States of a patch.
const (
	StateClean    = "clean"
	StateDamaged  = "damaged" // and no kernel was given to repair it by
	StateRepaired = "repaired"
	StateRefused  = "refused" // damaged beyond what the tree makes unambiguous
)

// How a patch fits the kernel.
const (
	FitInTree  = "in the tree"
	FitApplies = "applies"
	FitNot     = "does not fit"
)

// ThreadScript is shell in a thread.
type ThreadScript struct {
	Message  int      `json:"message"`
	Line     int      `json:"line"`
	Author   string   `json:"author"`
	Text     string   `json:"text"`
	Files    []string `json:"files"`    // that it reads and that are not in the thread
	Kconfigs []string `json:"kconfigs"` // fragments that it needs
	Metric   string   `json:"metric"`   // of what the thread gives figures for
	Path     string   `json:"path"`
}

// ThreadTiming is a figure in a thread.
type ThreadTiming struct {
	Message int     `json:"message"`
	Line    int     `json:"line"`
	Seconds float64 `json:"seconds"`
	Command string  `json:"command"` // what took that long, "" if it is not said
	Text    string  `json:"text"`
}

// ThreadTrailer is a line such as "Fixes: ...".
type ThreadTrailer struct {
	Key   string `json:"key"`
	Value string `json:"value"`
}

// ThreadCommand is a line that tests something of the thread.
type ThreadCommand struct {
	Line string `json:"line"`
	What string `json:"what"`
	Best bool   `json:"best"` // what --run runs
}

// ThreadJSON writes one document.
func ThreadJSON(w io.Writer, t Thread) error {
	t.Schema = ThreadSchema
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	enc.SetEscapeHTML(false)
	return enc.Encode(t)
}

// mostListed bounds what text shows of a long list; JSON has all.
const mostListed = 12

// ThreadText writes what was found, for people.
func ThreadText(w io.Writer, t Thread) error {
	var b strings.Builder
	fmt.Fprintf(&b, "%s: %s, %s\n", t.Thread, t.Form, plural(t.Messages, "message"))
	for _, s := range t.Series {
		s.write(&b)
	}
	if len(t.FollowUps) > 0 {
		fmt.Fprintf(&b, "\ndiffs in replies\n")
		for _, p := range t.FollowUps {
			p.write(&b)
		}
	}
	for i, s := range t.Scripts {
		s.write(&b, i+1)
	}
	t.writeTimings(&b)
	t.writeTrailers(&b)
	if len(t.Cases) > 0 {
		fmt.Fprintf(&b, "\nthe catalog has this report: %s\n", strings.Join(t.Cases, ", "))
	}
	for _, text := range t.Warnings {
		fmt.Fprintf(&b, "warning: %s\n", text)
	}
	t.writeCommands(&b)
	_, err := io.WriteString(w, b.String())
	return err
}

func (s ThreadSeries) write(b *strings.Builder) {
	fmt.Fprintf(b, "\nseries v%d", s.Version)
	if s.Resend {
		b.WriteString(" RESEND")
	}
	if s.Chosen {
		b.WriteString(" (chosen)")
	}
	fmt.Fprintf(b, ": %s\n", s.Subject)
	for _, p := range s.Patches {
		p.write(b)
	}
	if len(s.Missing) > 0 {
		fmt.Fprintf(b, "  missing of %d: %s\n", s.Of, strings.Trim(fmt.Sprint(s.Missing), "[]"))
	}
}

func (p ThreadPatch) write(b *strings.Builder) {
	number := "  "
	if p.N > 0 {
		number = fmt.Sprintf("%2d", p.N)
	}
	fmt.Fprintf(b, "  %s  %s\n      %s\n", number, p.Subject, strings.Join(nonEmpty(p.Author, p.Date), ", "))
	files := p.Files
	if len(files) > mostListed {
		files = append(files[:mostListed:mostListed], fmt.Sprintf("and %d more", len(p.Files)-mostListed))
	}
	fmt.Fprintf(b, "      %s\n", strings.Join(files, " "))
	if p.State != StateClean {
		fmt.Fprintf(b, "      %s%s\n", p.State, because(p.State != StateRepaired, p.Reason))
	}
	for _, r := range p.Repairs {
		fmt.Fprintf(b, "        %s\n", r)
	}
	if p.Fit != "" {
		fmt.Fprintf(b, "      %s%s\n", p.Fit, because(p.Fit == FitNot, p.Reason))
	}
}

func because(say bool, reason string) string {
	if !say || reason == "" {
		return ""
	}
	return ": " + strings.ReplaceAll(reason, "\n", "\n        ")
}

func nonEmpty(list ...string) (out []string) {
	for _, s := range list {
		if s != "" {
			out = append(out, s)
		}
	}
	return out
}

func (s ThreadScript) write(b *strings.Builder, n int) {
	fmt.Fprintf(b, "\nscript %d, line %d%s\n", n, s.Line, because(s.Author != "", s.Author))
	lines := strings.Split(strings.TrimRight(s.Text, "\n"), "\n")
	for i, line := range lines {
		if i == mostListed {
			fmt.Fprintf(b, "    ... %d more lines in %s\n", len(lines)-i, s.Path)
			break
		}
		fmt.Fprintf(b, "    %s\n", line)
	}
	if len(s.Files) > 0 {
		fmt.Fprintf(b, "  needs what is not in the thread: %s (--file HOST:NAME)\n", strings.Join(s.Files, ", "))
	}
	if len(s.Kconfigs) > 0 {
		fmt.Fprintf(b, "  needs --kconfig %s\n", strings.Join(s.Kconfigs, " --kconfig "))
	}
}

func (t Thread) writeTimings(b *strings.Builder) {
	if len(t.Timings) == 0 {
		return
	}
	fmt.Fprintf(b, "\ntimes in the thread\n")
	for i, x := range t.Timings {
		if i == mostListed {
			fmt.Fprintf(b, "  ... and %d more\n", len(t.Timings)-i)
			break
		}
		what := x.Command
		if what == "" {
			what = x.Text
		}
		fmt.Fprintf(b, "  %10.3f s  %s\n", x.Seconds, what)
	}
}

func (t Thread) writeTrailers(b *strings.Builder) {
	if len(t.Trailers) > 0 {
		b.WriteByte('\n')
	}
	for _, x := range t.Trailers {
		fmt.Fprintf(b, "%s: %s\n", x.Key, x.Value)
	}
}

func (t Thread) writeCommands(b *strings.Builder) {
	if len(t.Commands) == 0 {
		fmt.Fprintf(b, "\nnothing in it can be run\n")
		return
	}
	fmt.Fprintf(b, "\nto test it\n")
	for _, c := range t.Commands {
		what := c.What
		if c.Best {
			what += " (what --run does)"
		}
		fmt.Fprintf(b, "  # %s\n  %s\n", what, c.Line)
	}
	if t.Folder != "" {
		fmt.Fprintf(b, "patches and scripts are in %s\n", t.Folder)
	}
}
