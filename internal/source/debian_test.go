package source

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// archiveOf is a package archive in a folder, read by the real apt through file:
// URIs. It is not signed; the entries say that it is trusted.
type archiveOf struct {
	dir      string
	packages map[string]string // suite -> Packages
}

func newArchive(t testing.TB) *archiveOf {
	t.Helper()
	for _, tool := range []string{"apt-get", "apt-cache", "apt-config", "dpkg-deb"} {
		needTool(t, tool)
	}
	return &archiveOf{dir: t.TempDir(), packages: map[string]string{}}
}

// add puts a linux-source package, and the metapackage, into a suite.
func (a *archiveOf) add(t testing.TB, suite, series, version string) {
	t.Helper()
	root := t.TempDir()
	if err := os.Chmod(root, 0o755); err != nil { // dpkg-deb insists
		t.Fatal(err)
	}
	members := kernelMembers("linux-source-" + series + "/")
	members[2].Linkname = fmt.Sprintf("VERSION = %s\nPATCHLEVEL = %s\n# %s\n", series[:1], series[2:], version)
	tarball := compress(t, "xz", pack(t, members))
	write(t, filepath.Join(root, "usr/src/linux-patch-"+series+"-rt.patch.xz"), []byte("x"))
	write(t, filepath.Join(root, "usr/src/linux-source-"+series+".tar.xz"), tarball)
	a.build(t, suite, root, "linux-source-"+series, version, "")
	a.build(t, suite, meta(t), "linux-source", version, "linux-source-"+series+" (= "+version+")")
}

func meta(t testing.TB) string {
	dir := t.TempDir()
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	return dir
}

func (a *archiveOf) build(t testing.TB, suite, root, name, version, depends string) {
	t.Helper()
	control := fmt.Sprintf("Package: %s\nVersion: %s\nArchitecture: all\nMaintainer: a <a@b>\n", name, version)
	if depends != "" {
		control += "Depends: " + depends + "\n"
	}
	control += "Description: d\n"
	write(t, filepath.Join(root, "DEBIAN/control"), []byte(control))
	file := fmt.Sprintf("pool/%s_%s_all.deb", name, version)
	if err := os.MkdirAll(filepath.Join(a.dir, "pool"), 0o755); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command("dpkg-deb", "--build", root, filepath.Join(a.dir, file)).CombinedOutput(); err != nil {
		t.Fatalf("dpkg-deb: %v: %s", err, out)
	}
	deb, err := os.ReadFile(filepath.Join(a.dir, file))
	if err != nil {
		t.Fatal(err)
	}
	a.packages[suite] += fmt.Sprintf("%sFilename: %s\nSize: %d\nSHA256: %x\n\n", control, file, len(deb), sha256.Sum256(deb))
	a.publish(t, suite)
}

// publish writes the index of a suite.
func (a *archiveOf) publish(t testing.TB, suite string) {
	t.Helper()
	arch, err := exec.Command("dpkg", "--print-architecture").Output()
	if err != nil {
		t.Fatal(err)
	}
	name := "main/binary-" + strings.TrimSpace(string(arch)) + "/Packages"
	text := []byte(a.packages[suite])
	write(t, filepath.Join(a.dir, "dists", suite, name), text)
	write(t, filepath.Join(a.dir, "dists", suite, "Release"), []byte(fmt.Sprintf(
		"Origin: t\nSuite: %s\nCodename: %s\nDate: %s\nArchitectures: %s\nComponents: main\nSHA256:\n %x %d %s\n",
		suite, suite, time.Now().UTC().Format(time.RFC1123), strings.TrimSpace(string(arch)), sha256.Sum256(text), len(text), name)))
}

// host returns what the host's configuration would have: these suites.
func (a *archiveOf) host(suites ...string) func(context.Context, string) ([]aptEntry, error) {
	return func(context.Context, string) ([]aptEntry, error) {
		var list []aptEntry
		for _, s := range suites {
			list = append(list, aptEntry{URI: "file:" + a.dir, Suite: s, Options: "Trusted: yes\n"})
		}
		return list, nil
	}
}

func TestDebian(t *testing.T) {
	a := newArchive(t)
	a.add(t, "bookworm", "6.1", "6.1.9-1")
	a.add(t, "bookworm", "6.1", "6.1.10-1")
	a.add(t, "bookworm", "6.1", "6.1.10-2")
	a.add(t, "bookworm-security", "6.1", "6.1.11-1~deb12u1")
	a.add(t, "sid", "7.2", "7.2.13-1")
	a.add(t, "bullseye", "5.8", "5.8.1-1")
	var warns []string
	o := testOptions(t, &warns)
	o.host = a.host("bookworm", "bookworm-security")
	for _, c := range []struct{ spec, name, version string }{
		{"debian:6.1", "debian:6.1 (6.1.11-1~deb12u1)", "6.1"},
		{"debian:6.1.10", "debian:6.1 (6.1.10-2)", "6.1"},
		{"debian:6.1.10-1", "debian:6.1 (6.1.10-1)", "6.1"},
		{"debian:7.2", "debian:7.2 (7.2.13-1)", "7.2"},
		{"debian:5.8", "debian:5.8 (5.8.1-1)", "5.8"},
		{"", "debian:6.1 (6.1.11-1~deb12u1)", "6.1"},
	} {
		src, err := Open(t.Context(), c.spec, o)
		if err != nil {
			t.Errorf("%s: %v", c.spec, err)
			continue
		}
		if src.Name != c.name || src.Version != c.version {
			t.Errorf("%s: %+v", c.spec, src)
		}
	}
	var none *NotFoundError
	_, err := Open(t.Context(), "debian:6.2", o)
	if !errors.As(err, &none) || !slices.Equal(none.Have[:2], []string{"7.2.13", "6.1.11"}) {
		t.Errorf("debian:6.2: %v", err)
	}
	if l := leftovers(t, o); l != nil || len(warns) > 0 {
		t.Errorf("left behind: %v, warned: %q", l, warns)
	}
}

// TestDebianAgain follows one name over days: a new package, a dead mirror, no
// network wanted, no apt.
func TestDebianAgain(t *testing.T) {
	a := newArchive(t)
	a.add(t, "bookworm", "6.1", "6.1.9-1")
	var warns []string
	o := testOptions(t, &warns)
	now := time.Now()
	o.now = func() time.Time { return now }
	asked := 0
	o.host = func(ctx context.Context, c string) ([]aptEntry, error) {
		asked++
		return a.host("bookworm")(ctx, c)
	}
	expect := func(spec, name string, warnings int) {
		t.Helper()
		warns = nil
		src, err := Open(t.Context(), spec, o)
		if err != nil {
			t.Error(err)
		} else if src.Name != name || len(warns) != warnings {
			t.Errorf("%s: %+v, warnings %q", spec, src, warns)
		}
	}
	expect("debian:6.1", "debian:6.1 (6.1.9-1)", 0)
	a.add(t, "bookworm", "6.1", "6.1.10-1")
	now = now.Add(23 * time.Hour)
	expect("debian:6.1", "debian:6.1 (6.1.9-1)", 0)
	if asked != 1 {
		t.Errorf("the index was asked %d times in a day", asked)
	}
	now = now.Add(2 * time.Hour)
	expect("debian:6.1", "debian:6.1 (6.1.10-1)", 0)

	now = now.Add(25 * time.Hour)
	if err := os.RemoveAll(a.dir); err != nil {
		t.Fatal(err)
	}
	expect("debian:6.1", "debian:6.1 (6.1.10-1)", 1)
	expect("debian:6.1.10", "debian:6.1 (6.1.10-1)", 1)
	var gone *UnavailableError
	if _, err := Open(t.Context(), "debian:6.2", o); !errors.As(err, &gone) || len(gone.Tried) == 0 || gone.Tried[0].Err == "" {
		t.Errorf("a dead mirror: %v", err)
	}

	o.Offline = true
	expect("debian:6.1", "debian:6.1 (6.1.10-1)", 0)
	if _, err := Open(t.Context(), "debian:6.2", o); !errors.As(err, &gone) || !gone.Offline {
		t.Errorf("offline: %v", err)
	}

	o.Offline = false
	t.Setenv("PATH", t.TempDir())
	expect("debian:6.1", "debian:6.1 (6.1.10-1)", 1)
	var tool *ToolError
	if _, err := Open(t.Context(), "debian:6.2", o); !errors.As(err, &tool) || !strings.Contains(err.Error(), "git tree or a tarball") {
		t.Errorf("no apt: %v", err)
	}
	var spec *SpecError
	if _, err := Open(t.Context(), "", o); !errors.As(err, &spec) || !strings.Contains(err.Error(), Env) {
		t.Errorf("no apt and no name: %v", err)
	}
}

// TestDebianDamaged has a package that is not what the index says.
func TestDebianDamaged(t *testing.T) {
	a := newArchive(t)
	a.add(t, "bookworm", "6.1", "6.1.9-1")
	deb := filepath.Join(a.dir, "pool", "linux-source-6.1_6.1.9-1_all.deb")
	b, err := os.ReadFile(deb)
	if err != nil {
		t.Fatal(err)
	}
	b[len(b)/2] ^= 1
	write(t, deb, b)
	o := testOptions(t, nil)
	o.host = a.host("bookworm")
	if src, err := Open(t.Context(), "debian:6.1", o); err == nil {
		t.Errorf("imported %+v", src)
	}
	if l := leftovers(t, o); l != nil {
		t.Errorf("left behind: %v", l)
	}
	// Neither signed nor trusted.
	o.host = func(context.Context, string) ([]aptEntry, error) {
		return []aptEntry{{URI: "file:" + a.dir, Suite: "bookworm"}}, nil
	}
	if _, err := Open(t.Context(), "debian:6.1", o); !errors.As(err, new(*UnavailableError)) {
		t.Errorf("an unsigned archive: %v", err)
	}
}

func TestDefaultFromEnv(t *testing.T) {
	path := write(t, filepath.Join(t.TempDir(), "a.tar"), pack(t, kernelMembers("x/")))
	t.Setenv(Env, path)
	if src := mustOpen(t, "", testOptions(t, nil)); src.Name != path {
		t.Errorf("Open = %+v", src)
	}
}

func TestCompareVersions(t *testing.T) {
	// Ascending.
	list := []string{"", "6.1~rc1-1", "6.1-1", "6.1.9-1", "6.1.9-1+b1", "6.1.10-1~bpo1", "6.1.10-1", "6.1.10-1a", "6.1.10-1.1", "6.1.10-2", "6.1.010-3", "6.12-1", "7.2.13-1", "1:1-1"}
	for i, a := range list {
		for j, b := range list {
			want := min(1, max(-1, i-j))
			if got := compareVersions(a, b); got != want {
				t.Errorf("compareVersions(%q, %q) = %d; want %d", a, b, got, want)
			}
			if a == "" || b == "" {
				continue
			}
			if dpkg, err := exec.LookPath("dpkg"); err == nil && j == i+1 {
				if err := exec.Command(dpkg, "--compare-versions", a, "lt", b).Run(); err != nil {
					t.Errorf("dpkg does not think that %q < %q", a, b)
				}
			}
		}
	}
}

func FuzzCompareVersions(f *testing.F) {
	f.Add("6.1.10-1", "6.1.9~rc1-1")
	f.Add("1:2", "00")
	f.Fuzz(func(t *testing.T, a, b string) {
		if compareVersions(a, a) != 0 || compareVersions(a, b) != -compareVersions(b, a) {
			t.Errorf("%q, %q: not an order", a, b)
		}
	})
}

func TestParseSources(t *testing.T) {
	const list = `# deb http://no.where x main
deb http://a.example/debian bookworm main contrib
deb [arch=amd64 signed-by=/k1.gpg,/k2.gpg] http://a.example/debian bookworm-updates main # why
deb-src http://a.example/debian bookworm main
deb http://b.example/other bookworm stable
deb http://c.example/flat ./
deb [broken http://a.example/debian bookworm main
deb	http://tab.example/debian	sid	main
`
	want := []aptEntry{
		{"http://a.example/debian", "bookworm", ""},
		{"http://a.example/debian", "bookworm-updates", "signed-by: /k1.gpg /k2.gpg\n"},
		{"http://tab.example/debian", "sid", ""},
	}
	if got := parseSourcesList(list); !slices.Equal(got, want) {
		t.Errorf("parseSourcesList = %q; want %q", got, want)
	}
	const deb822 = `# c
Types: deb deb-src
URIs: http://a.example/debian
  http://b.example/debian
Suites: bookworm bookworm-updates
Components: main
Signed-By:
 -----BEGIN
 .
 x
Trusted: yes

Types: deb
URIs: http://off.example
Suites: bookworm
Components: main
Enabled: no

Types: deb-src
URIs: http://src.example
Suites: bookworm
Components: main
nonsense
 more`
	got := parseSources(deb822)
	if len(got) != 4 || got[3] != (aptEntry{"http://b.example/debian", "bookworm-updates", "signed-by: \n -----BEGIN\n .\n x\ntrusted: yes\n"}) {
		t.Errorf("parseSources = %q", got)
	}
}

func FuzzParseSources(f *testing.F) {
	f.Add("Types: deb\nURIs: a\nSuites: b\nComponents: main\n")
	f.Add("deb [a=b] http://x y main\n")
	f.Fuzz(func(t *testing.T, text string) {
		for _, e := range append(parseSources(text), parseSourcesList(text)...) {
			// What is written into our own sources must stay one field.
			if strings.ContainsAny(e.URI+e.Suite, " \n\t") || e.URI == "" || e.Suite == "" {
				t.Errorf("entry %q", e)
			}
			if e.Options != "" && !strings.HasSuffix(e.Options, "\n") {
				t.Errorf("options %q", e.Options)
			}
		}
	})
}

func TestSuiteGroups(t *testing.T) {
	host := distEntries([]aptEntry{
		{URI: "http://m/debian", Suite: "bookworm"},
		{URI: "http://m/debian", Suite: "bookworm-updates"},
		{URI: "http://s/debian-security", Suite: "bookworm-security"},
		{URI: "http://pg/", Suite: "bookworm-pgdg"},
		{URI: "cdrom:[x]/", Suite: "bookworm"},
		{URI: "http://node/", Suite: "nodistro"},
	}, "bookworm")
	if len(host) != 3 {
		t.Fatalf("distEntries = %v", host)
	}
	var got []string
	for _, g := range suiteGroups(host, "bookworm", "5.10") {
		var s []string
		for _, e := range g {
			s = append(s, strings.TrimPrefix(e.String(), "http://"))
		}
		got = append(got, strings.Join(s, ", "))
	}
	want := []string{
		"m/debian bookworm, m/debian bookworm-updates, s/debian-security bookworm-security",
		"m/debian bullseye, m/debian bullseye-updates, s/debian-security bullseye-security",
		"m/debian sid",
		"m/debian forky, m/debian forky-updates, s/debian-security forky-security",
		"m/debian trixie, m/debian trixie-updates, s/debian-security trixie-security",
		"m/debian bullseye-backports", "m/debian forky-backports", "m/debian trixie-backports", "m/debian bookworm-backports",
	}
	if !slices.Equal(got, want) {
		t.Errorf("suiteGroups:\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// TestReal fetches the real package, into the user's own cache so that it costs
// a download once and not every time.
func TestReal(t *testing.T) {
	if testing.Short() {
		t.Skip("downloads 140 MB the first time; run without -short")
	}
	needTool(t, "apt-get")
	cache, err := os.UserCacheDir()
	if err != nil {
		t.Fatal(err)
	}
	o := Options{Cache: filepath.Join(cache, "kbisect"), Warn: func(s string) { t.Log(s) }}
	src := mustOpen(t, "debian:6.1", o)
	if !strings.HasPrefix(src.Version, "6.1.") || !strings.HasPrefix(src.Name, "debian:6.1 (6.1.") {
		t.Errorf("Open = %+v", src)
	}
	out, err := src.Repo().Output(t.Context(), "ls-tree", "-r", "--name-only", src.Head)
	if n := bytes.Count([]byte(out), []byte("\n")); err != nil || n < 70_000 {
		t.Errorf("%d files, %v", n, err)
	}
	begin := time.Now()
	mustOpen(t, "debian:6.1", o)
	if d := time.Since(begin); d > time.Second {
		t.Errorf("warm open took %s", d)
	}
}
