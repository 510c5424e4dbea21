package source

import (
	"archive/tar"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"
)

// debianSpec matches what may follow "debian:": a series, an upstream version,
// or a whole package version.
var debianSpec = regexp.MustCompile(`^(\d+\.\d+)(\.\d+)?([-~+][A-Za-z0-9.~+-]+)?$`)

// resolved is the memo of a debian: name.
type resolved struct {
	Package string    `json:"package"`
	Version string    `json:"version"`
	Key     string    `json:"key"` // of the import
	Checked time.Time `json:"checked"`
}

// openDebian opens a linux-source package. version "" is the host's own.
func openDebian(ctx context.Context, version string, o Options) (*Source, error) {
	spec := "debian:" + version
	if version != "" && !debianSpec.MatchString(version) {
		return nil, &SpecError{Spec: spec, Reason: "not a version (MAJOR.MINOR, and .PATCH for a certain one)", Hint: "debian:6.1 is the newest of a series, debian:6.1.170 a certain one"}
	}
	memo := o.root("debian", version+".json")
	if version == "" {
		memo = o.root("debian", "default.json")
	}
	var known resolved
	if err := readJSON(memo, &known); err == nil && fresh(known.Checked, o.clock()) {
		if src, ok := o.imported(known.Key); ok {
			return named(src, known), nil
		}
	}
	src, err := o.fetchDebian(ctx, version, memo)
	if err == nil || ctx.Err() != nil {
		return src, err
	}
	// What cannot be checked today may still be used as it was.
	var unavailable *UnavailableError
	var missing *ToolError
	var apt *aptError
	if errors.As(err, &unavailable) || errors.As(err, &missing) || errors.As(err, &apt) {
		if src, old, ok := o.cachedDebian(version, known); ok {
			if !o.Offline {
				o.warn("%s: cannot look for a newer one, using %s of %s: %v", src.Name, old.Version, old.Checked.Format(time.DateOnly), err)
			}
			return src, nil
		}
	}
	return nil, err
}

// named fills in what an import does not know of itself.
func named(src *Source, r resolved) *Source {
	src.Name = fmt.Sprintf("debian:%s (%s)", strings.TrimPrefix(r.Package, "linux-source-"), r.Version)
	return src
}

// cachedDebian returns the newest import that a version names. known is the memo
// of that very name, which is all there is for the host's default.
func (o *Options) cachedDebian(version string, known resolved) (*Source, resolved, bool) {
	best := known
	if version != "" {
		files, _ := os.ReadDir(o.root("debian"))
		for _, f := range files {
			var r resolved
			if err := readJSON(o.root("debian", f.Name()), &r); err != nil || !matches(version, r.Package, r.Version) {
				continue
			}
			if _, ok := o.imported(r.Key); ok && (best.Key == "" || compareVersions(r.Version, best.Version) > 0) {
				best = r
			}
		}
	}
	src, ok := o.imported(best.Key)
	if best.Key == "" || !ok {
		return nil, best, false
	}
	return named(src, best), best, true
}

// fetchDebian resolves a version by the network, imports it and remembers that.
func (o *Options) fetchDebian(ctx context.Context, version, memo string) (*Source, error) {
	if o.Offline {
		return nil, &UnavailableError{Spec: specOf(version), Offline: true}
	}
	for _, tool := range []string{"apt-get", "apt-cache", "apt-config", "dpkg-deb"} {
		if _, err := exec.LookPath(tool); err == nil {
			continue
		}
		if version == "" {
			return nil, &SpecError{Reason: "none given, and this host has no linux-source package to fall back to",
				Hint: "give --kernel, or set " + Env + "; " + specForms}
		}
		return nil, &ToolError{Tool: tool, Need: "fetch a Debian kernel", Hint: "give --kernel a git tree or a tarball instead"}
	}
	if err := os.MkdirAll(o.root(), 0o755); err != nil {
		return nil, fmt.Errorf("make cache folder: %w", err)
	}
	p, err := o.findPackage(ctx, version)
	if err != nil {
		return nil, err
	}
	src, err := importOnce(ctx, o.debArchive(p), o)
	if err != nil {
		return nil, err
	}
	r := resolved{Package: p.Package, Version: p.Version, Key: debKey(p), Checked: o.clock()}
	return named(src, r), writeJSON(memo, r)
}

// findPackage asks group after group of suites until one has the version.
func (o *Options) findPackage(ctx context.Context, version string) (pkg, error) {
	codename := hostCodename()
	ask := hostEntries
	if o.host != nil {
		ask = o.host
	}
	host, err := ask(ctx, codename)
	if err != nil {
		return pkg{}, err
	}
	series := ""
	if m := debianSpec.FindStringSubmatch(version); m != nil {
		series = m[1]
	}
	groups := [][]aptEntry{host}
	if version != "" {
		groups = suiteGroups(host, codename, series)
	}
	var all []pkg
	var tried []Attempt
	answered := false
	for _, group := range groups {
		here, attempts, err := o.askGroup(ctx, group)
		if err != nil {
			return pkg{}, err
		}
		if p, ok := choose(version, here); ok {
			return p, nil
		}
		all, tried = append(all, here...), append(tried, attempts...)
		answered = answered || slices.ContainsFunc(attempts, func(a Attempt) bool { return a.Err == "" })
		if !answered {
			break // the host's own repositories do not answer: neither will the others
		}
	}
	if !answered {
		return pkg{}, &UnavailableError{Spec: specOf(version), Tried: tried}
	}
	return pkg{}, &NotFoundError{Spec: specOf(version), Have: serves(all), Tried: tried}
}

// askGroup asks the suites of a group, at once. A suite that does not answer is
// an Attempt with an error; only what makes going on useless is an error.
func (o *Options) askGroup(ctx context.Context, group []aptEntry) ([]pkg, []Attempt, error) {
	lists, errs := make([][]pkg, len(group)), make([]error, len(group))
	var wg sync.WaitGroup
	for i, e := range group {
		wg.Go(func() { lists[i], errs[i] = o.aptState(e).packages(ctx, o) })
	}
	wg.Wait()
	attempts := make([]Attempt, len(group))
	for i, err := range errs {
		if ctx.Err() != nil {
			return nil, nil, ctx.Err()
		}
		if errors.As(err, new(*DiskFullError)) {
			return nil, nil, err
		}
		attempts[i].Where = group[i].String()
		if err != nil {
			attempts[i].Err = err.Error()
		}
	}
	return slices.Concat(lists...), attempts, nil
}

// choose returns the newest package that version names. "" is what the
// metapackage linux-source depends on.
func choose(version string, list []pkg) (pkg, bool) {
	var best pkg
	for _, p := range list {
		if matches(version, p.Package, p.Version) && (best.Package == "" || compareVersions(p.Version, best.Version) > 0) {
			best = p
		}
	}
	if version != "" || best.Package == "" {
		return best, best.Package != ""
	}
	// best is the newest metapackage: "Depends: linux-source-6.1 (>= ...)".
	for _, f := range strings.FieldsFunc(best.Depends, func(r rune) bool { return strings.ContainsRune(" ,|(", r) }) {
		if v, ok := strings.CutPrefix(f, "linux-source-"); ok {
			return choose(v, list)
		}
	}
	return pkg{}, false
}

// matches reports whether a package is one that version names.
func matches(version, name, full string) bool {
	if version == "" {
		return name == "linux-source"
	}
	series, ok := strings.CutPrefix(name, "linux-source-")
	if !ok {
		return false
	}
	_, upstream, _ := splitVersion(full)
	switch {
	case strings.ContainsAny(version, "-~+"):
		return full == version
	case strings.Count(version, ".") > 1:
		return upstream == version || series == version // Ubuntu's 6.8.0 is a series
	}
	return series == version || strings.HasPrefix(series, version+".")
}

// serves lists the upstream versions of packages, newest first.
func serves(list []pkg) []string {
	var have []string
	for _, p := range list {
		if _, upstream, _ := splitVersion(p.Version); p.Package != "linux-source" && !slices.Contains(have, upstream) {
			have = append(have, upstream)
		}
	}
	slices.SortFunc(have, func(a, b string) int { return compareVersions(b, a) })
	return have
}

// debKey names the import of a package: readable, and unique by its hash.
func debKey(p pkg) string {
	sum := p.SHA256
	if len(sum) < 8 {
		sum = shortHash(p.entry.String() + p.Package + p.Version)
	}
	return "debian-" + strings.ReplaceAll(p.Version, ":", "_") + "-" + sum[:8]
}

// debArchive is the kernel tarball inside a package that is yet to be downloaded.
func (o *Options) debArchive(p pkg) archive {
	key := debKey(p)
	return archive{
		key: key, name: p.Package + " " + p.Version, size: p.Size,
		read: func(ctx context.Context, use func(io.Reader) error) (err error) {
			// Inside the import's own temporary folder: it goes when that goes.
			dir := o.root("imports", tmpPrefix+key, "deb")
			if err := os.Mkdir(dir, 0o755); err != nil {
				return err
			}
			defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
			deb, err := o.aptState(p.entry).download(ctx, p, dir, o)
			if err != nil {
				return err
			}
			if err := checkSum(ctx, deb, p.SHA256); err != nil {
				return err
			}
			return readDeb(ctx, deb, func(r io.Reader, size int64) error {
				return use(&counter{r: r, total: size, tell: func(n, t int64) { o.progress(StageImport, n, t) }})
			})
		},
	}
}

// checkSum compares a file with the index once more, so that what is imported is
// what was promised even if apt were configured to be lenient.
func checkSum(ctx context.Context, file, want string) error {
	if want == "" {
		return nil // an index without SHA-256 is refused by apt itself
	}
	f, err := os.Open(file)
	if err != nil {
		return err
	}
	defer f.Close()
	h := sha256.New()
	if _, err := io.Copy(h, &ctxReader{ctx, f}); err != nil {
		return fmt.Errorf("read package: %w", err)
	}
	if got := hex.EncodeToString(h.Sum(nil)); got != want {
		return fmt.Errorf("check %q: its SHA-256 is %s and not %s as the index says: fetch it again", filepath.Base(file), got, want)
	}
	return nil
}

// kernelMember matches the kernel in a linux-source package; the -rt patches and
// Ubuntu's debian/ folder lie beside it.
var kernelMember = regexp.MustCompile(`^usr/src/(linux-source-[0-9.]+/)?linux-source-[0-9.]+\.tar(\.[a-z0-9]+)?$`)

// readDeb calls use with the kernel tarball in a package.
func readDeb(ctx context.Context, deb string, use func(r io.Reader, size int64) error) error {
	return withTool(ctx, []string{"dpkg-deb", "--fsys-tarfile", deb}, nil, func(r io.Reader) error {
		tr := tar.NewReader(r)
		found := false
		for {
			h, err := tr.Next()
			if err == io.EOF {
				break
			}
			if err != nil {
				return fmt.Errorf("read package: %w", noEOF(err))
			}
			if h.Typeflag != tar.TypeReg || found || !kernelMember.MatchString(path.Clean(h.Name)) {
				continue
			}
			found = true
			if err := use(tr, h.Size); err != nil {
				return err
			}
		}
		if !found {
			return fmt.Errorf("read package: %q has no kernel tarball in usr/src", filepath.Base(deb))
		}
		// Padding after the end of the archive: the program must not die of a closed pipe.
		_, err := io.Copy(io.Discard, r)
		return err
	})
}

// specOf names a version in a message; "" is what the host itself has.
func specOf(version string) string {
	if version == "" {
		return "the distribution's kernel source"
	}
	return "debian:" + version
}
