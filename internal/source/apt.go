package source

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/kbisect/kbisect/internal/proc"
)

// pkg is one version of a linux-source package in one suite.
type pkg struct {
	Package string `json:"package"`
	Version string `json:"version"`
	SHA256  string `json:"sha256"`
	Size    int64  `json:"size"`
	Depends string `json:"depends,omitempty"`
	entry   aptEntry
}

// aptState is a private apt: its own source, lists and caches for one suite, and
// the host's keys, proxies and methods. It needs no root, and the system's lists
// and sources are neither read nor written.
type aptState struct {
	dir   string
	entry aptEntry
}

// checkEvery is how long an index counts as new.
const checkEvery = 24 * time.Hour

func (o *Options) aptState(e aptEntry) aptState {
	return aptState{dir: o.root("apt", shortHash(e.String()+"\n"+e.Options)), entry: e}
}

// prepare makes the folders and files that apt wants to find.
func (s aptState) prepare() error {
	for _, d := range []string{"lists/partial", "cache/archives/partial", "etc"} {
		if err := os.MkdirAll(filepath.Join(s.dir, d), 0o755); err != nil {
			return fmt.Errorf("make apt state: %w", err)
		}
	}
	var src strings.Builder
	fmt.Fprintf(&src, "Types: deb\nURIs: %s\nSuites: %s\nComponents: %s\n", s.entry.URI, s.entry.Suite, distComponent)
	// Only what is needed: no Contents, no DEP-11, no translations, no deltas.
	src.WriteString("Targets: Packages\nLanguages: none\nPDiffs: no\n")
	src.WriteString(s.entry.Options)
	// The hooks of the host's configuration are for the host's lists.
	const conf = "#clear APT::Update::Pre-Invoke;\n#clear APT::Update::Post-Invoke;\n#clear APT::Update::Post-Invoke-Success;\n"
	return errors.Join(
		writeFile(filepath.Join(s.dir, "etc", "kbisect.sources"), []byte(src.String())),
		writeFile(filepath.Join(s.dir, "etc", "clear.conf"), []byte(conf)),
		writeFile(filepath.Join(s.dir, "status"), nil), // nothing is installed here
	)
}

// aptError is an apt command that failed; its words are shown, never read.
type aptError struct {
	tool string
	err  error
	text string
}

func (e *aptError) Error() string {
	if e.text == "" {
		return e.tool + ": " + e.err.Error()
	}
	return fmt.Sprintf("%s: %v: %s", e.tool, e.err, e.text)
}

func (e *aptError) Unwrap() error { return e.err }

// run runs apt-get or apt-cache in the private state.
func (s aptState) run(ctx context.Context, dir, tool string, args ...string) (string, error) {
	p := func(elem ...string) string { return filepath.Join(append([]string{s.dir}, elem...)...) }
	argv := []string{"-c", p("etc", "clear.conf")}
	opts := []string{
		"Dir::Etc::SourceList=" + p("etc", "kbisect.sources"),
		"Dir::Etc::SourceParts=/dev/null",
		"Dir::Etc::Preferences=/dev/null",
		"Dir::Etc::PreferencesParts=/dev/null",
		"Dir::State::Lists=" + p("lists") + "/",
		"Dir::State::Status=" + p("status"),
		"Dir::Cache=" + p("cache") + "/",
		"Dir::Cache::pkgcache=", // 30 MB a suite, to save a second when something is downloaded
		"Dir::Cache::srcpkgcache=",
		"Acquire::GzipIndexes=true", // lists stay packed: 8 MB instead of 50
		"APT::Get::List-Cleanup=false",
		"APT::Update::Error-Mode=any", // otherwise an unreachable mirror is a success
		"Acquire::Retries=2",
		"Acquire::http::Timeout=30",
		"Acquire::https::Timeout=30",
		"Dpkg::Use-Pty=0",
	}
	if os.Geteuid() == 0 {
		// Run by root, apt downloads as the user _apt, who cannot write to root's cache.
		opts = append(opts, "APT::Sandbox::User=root")
	}
	for _, o := range opts {
		argv = append(argv, "-o", o)
	}
	cmd := proc.Command(ctx, tool, append(argv, args...)...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "LC_ALL=C", "LANG=C", "DEBIAN_FRONTEND=noninteractive")
	var out, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &stderr
	if err := cmd.Run(); err != nil {
		if cause := ctx.Err(); cause != nil {
			return "", cause
		}
		return "", &aptError{tool: tool, err: err, text: lastLines(stderr.String(), 4)}
	}
	return out.String(), nil
}

// lastLines joins the last n non-empty lines of a program's complaint.
func lastLines(s string, n int) string {
	lines := slices.DeleteFunc(strings.Split(s, "\n"), func(l string) bool { return strings.TrimSpace(l) == "" })
	return strings.Join(lines[max(0, len(lines)-n):], "; ")
}

// listing is what was found in a suite's index, and when it was fetched.
type listing struct {
	Fetched  time.Time `json:"fetched"`
	Packages []pkg     `json:"packages"`
}

// fresh reports whether t is less than checkEvery ago. A clock that was set back
// makes nothing fresh for ever.
func fresh(t, now time.Time) bool {
	age := now.Sub(t)
	return age >= 0 && age < checkEvery
}

// packages fetches the suite's index if the one at hand is old, and returns its
// linux-source packages.
func (s aptState) packages(ctx context.Context, o *Options) ([]pkg, error) {
	unlock, err := o.lock(ctx, "apt-"+filepath.Base(s.dir))
	if err != nil {
		return nil, err
	}
	defer unlock()
	if err := s.prepare(); err != nil {
		return nil, diskFull(err, o.root(), 64<<20)
	}
	var known listing
	file := filepath.Join(s.dir, "packages.json")
	if err := readJSON(file, &known); err != nil || !fresh(known.Fetched, o.clock()) {
		o.progress(StageIndex, 0, 0)
		if _, err := s.run(ctx, s.dir, "apt-get", "update", "-qq"); err != nil {
			return nil, diskFull(err, s.dir, 64<<20)
		}
		known.Fetched = o.clock()
		if known.Packages, err = s.query(ctx); err != nil {
			return nil, err
		}
		if err := writeJSON(file, known); err != nil {
			return nil, diskFull(err, s.dir, 64<<20)
		}
	}
	for i := range known.Packages {
		known.Packages[i].entry = s.entry
	}
	return known.Packages, nil
}

// query reads the linux-source packages, all versions, out of the index.
func (s aptState) query(ctx context.Context) ([]pkg, error) {
	names, err := s.run(ctx, s.dir, "apt-cache", "pkgnames", "linux-source")
	if err != nil {
		return nil, err
	}
	wanted := slices.DeleteFunc(strings.Fields(names), func(n string) bool { return !sourcePackage.MatchString(n) })
	if len(wanted) == 0 {
		return nil, nil
	}
	slices.Sort(wanted)
	out, err := s.run(ctx, s.dir, "apt-cache", append([]string{"show"}, wanted...)...)
	if err != nil {
		return nil, err
	}
	return parsePackages(out), nil
}

// sourcePackage matches the metapackage and Debian's (linux-source-6.1) and
// Ubuntu's (linux-source-6.8.0) names, not the -rt and vendor variants.
var sourcePackage = regexp.MustCompile(`^linux-source(-\d+\.\d+(\.\d+)?)?$`)

func parsePackages(text string) []pkg {
	var list []pkg
	for _, st := range parseStanzas(text) {
		size, _ := strconv.ParseInt(st["size"], 10, 64) // 0 is "unknown", good enough for an estimate
		p := pkg{Package: st["package"], Version: st["version"], SHA256: st["sha256"], Size: size, Depends: st["depends"]}
		if sourcePackage.MatchString(p.Package) && p.Version != "" {
			list = append(list, p)
		}
	}
	return list
}

// download fetches a package into dir, an empty folder, and returns its path. apt
// checks it against the index, and the index against the archive's key.
func (s aptState) download(ctx context.Context, p pkg, dir string, o *Options) (string, error) {
	unlock, err := o.lock(ctx, "apt-"+filepath.Base(s.dir))
	if err != nil {
		return "", err
	}
	defer unlock()
	stop := watchSize(dir, func(n int64) { o.progress(StageDownload, min(n, p.Size), p.Size) })
	_, err = s.run(ctx, dir, "apt-get", "-qq", "download", p.Package+"="+p.Version)
	stop()
	if err != nil {
		return "", err
	}
	debs, err := filepath.Glob(filepath.Join(globQuote(dir), "*.deb"))
	if err != nil || len(debs) != 1 {
		return "", fmt.Errorf("download %s %s: %d packages came, %w", p.Package, p.Version, len(debs), errors.Join(err, os.ErrNotExist))
	}
	return debs[0], nil
}

// globQuote escapes what filepath.Glob would take for a pattern.
func globQuote(s string) string {
	return strings.NewReplacer(`\`, `\\`, `*`, `\*`, `?`, `\?`, `[`, `\[`).Replace(s)
}

// watchSize calls tell with the size of the files in dir, a few times a second,
// until the returned function is called.
func watchSize(dir string, tell func(int64)) (stop func()) {
	quit, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		tick := time.NewTicker(200 * time.Millisecond)
		defer tick.Stop()
		for {
			select {
			case <-quit:
				return
			case <-tick.C:
				var sum int64
				entries, _ := os.ReadDir(dir)
				for _, e := range entries {
					if info, err := e.Info(); err == nil {
						sum += info.Size()
					}
				}
				tell(sum)
			}
		}
	}()
	return func() { close(quit); <-done }
}

// hostEntries reads the host's own apt configuration: the repositories of its
// distribution, in the order in which they are configured.
func hostEntries(ctx context.Context, codename string) ([]aptEntry, error) {
	out, err := proc.Command(ctx, "apt-config", "shell", "LIST", "Dir::Etc::SourceList/f", "PARTS", "Dir::Etc::SourceParts/d").Output()
	if err != nil {
		return nil, fmt.Errorf("read apt configuration: %w", err)
	}
	var all []aptEntry
	for _, line := range strings.Split(string(out), "\n") {
		name, value, _ := strings.Cut(strings.TrimSpace(line), "=")
		value = strings.Trim(value, "'")
		switch name {
		case "LIST":
			all = append(all, readSources(value, true)...)
		case "PARTS":
			entries, _ := os.ReadDir(value) // sorted, as apt reads them; none is fine
			for _, e := range entries {
				all = append(all, readSources(filepath.Join(value, e.Name()), false)...)
			}
		}
	}
	return distEntries(all, codename), nil
}

// readSources reads one file of apt's; the main one has no ending that counts.
func readSources(path string, main bool) []aptEntry {
	ext := filepath.Ext(path)
	if ext != ".list" && ext != ".sources" && !main {
		return nil // apt ignores it as well
	}
	b, err := os.ReadFile(path)
	if err != nil {
		return nil // not there, or not for this user: apt's own complaint is better
	}
	if ext == ".sources" {
		return parseSources(string(b))
	}
	return parseSourcesList(string(b))
}

// hostCodename returns VERSION_CODENAME of os-release, "" when there is none.
func hostCodename() string {
	for _, path := range []string{"/etc/os-release", "/usr/lib/os-release"} {
		b, err := os.ReadFile(path)
		if err != nil {
			continue
		}
		for _, line := range strings.Split(string(b), "\n") {
			if v, ok := strings.CutPrefix(line, "VERSION_CODENAME="); ok {
				return strings.Trim(strings.TrimSpace(v), `"'`)
			}
		}
		return ""
	}
	return ""
}
