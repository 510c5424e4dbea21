package source

import (
	"bufio"
	"fmt"
	"slices"
	"strings"
)

// aptEntry is one place apt can ask: a repository and one suite of it.
type aptEntry struct {
	URI   string
	Suite string
	// Options are the deb822 lines that say how far the repository is trusted, as
	// the host has them: a mirror that is signed by another key, or a snapshot whose
	// index has expired, is still one that the host takes.
	Options string
}

// keptOptions are the fields that Options may have, in this order, by their
// name in the one-line format; in deb822 the same name has capitals.
var keptOptions = []string{"signed-by", "trusted", "check-valid-until", "check-date", "valid-until-max", "allow-insecure", "allow-weak", "by-hash"}

func options(get func(name string) string) string {
	var b strings.Builder
	for _, name := range keptOptions {
		if v := get(name); v != "" {
			fmt.Fprintf(&b, "%s: %s\n", name, v)
		}
	}
	return b.String()
}

func (e aptEntry) String() string { return e.URI + " " + e.Suite }

// distComponent is the part of the archive that has the kernel.
const distComponent = "main"

// parseSourcesList reads the one-line format (sources.list) and returns the
// binary entries that have the distribution's main component. Lines that cannot
// be read are left to apt to complain about.
func parseSourcesList(text string) []aptEntry {
	var list []aptEntry
	for _, line := range strings.Split(text, "\n") {
		line, _, _ = strings.Cut(line, "#")
		kind, rest, _ := strings.Cut(strings.TrimSpace(strings.ReplaceAll(line, "\t", " ")), " ")
		if kind != "deb" {
			continue
		}
		rest = strings.TrimSpace(rest)
		opts := map[string]string{}
		if strings.HasPrefix(rest, "[") {
			inside, after, ok := strings.Cut(rest[1:], "]")
			if !ok {
				continue
			}
			for _, o := range strings.Fields(inside) {
				name, value, _ := strings.Cut(o, "=")
				opts[strings.ToLower(name)] = strings.ReplaceAll(value, ",", " ")
			}
			rest = after
		}
		f := strings.Fields(rest)
		if len(f) >= 3 && slices.Contains(f[2:], distComponent) {
			list = append(list, aptEntry{URI: f[0], Suite: f[1], Options: options(func(n string) string { return opts[n] })})
		}
	}
	return list
}

// parseSources reads the deb822 format (NAME.sources) likewise.
func parseSources(text string) []aptEntry {
	var list []aptEntry
	for _, st := range parseStanzas(text) {
		if !slices.Contains(strings.Fields(st["types"]), "deb") || !slices.Contains(strings.Fields(st["components"]), distComponent) {
			continue
		}
		switch strings.ToLower(st["enabled"]) {
		case "no", "false", "0", "off", "without", "disable":
			continue
		}
		for _, uri := range strings.Fields(st["uris"]) {
			for _, suite := range strings.Fields(st["suites"]) {
				list = append(list, aptEntry{URI: uri, Suite: suite, Options: options(func(n string) string { return st[n] })})
			}
		}
	}
	return list
}

// parseStanzas reads deb822 text: stanzas of "Name: value" with continuation
// lines, which keep their newline and indentation, and # comments. Names are
// lowered.
func parseStanzas(text string) []map[string]string {
	var list []map[string]string
	var cur map[string]string
	last := ""
	sc := bufio.NewScanner(strings.NewReader(text))
	sc.Buffer(nil, 4<<20)
	for sc.Scan() {
		line := sc.Text()
		switch {
		case strings.HasPrefix(line, "#"):
		case strings.TrimSpace(line) == "":
			cur, last = nil, ""
		case line[0] == ' ' || line[0] == '\t':
			if cur != nil && last != "" {
				cur[last] += "\n" + strings.TrimRight(line, " \t")
			}
		default:
			name, value, ok := strings.Cut(line, ":")
			if !ok {
				last = ""
				continue
			}
			if cur == nil {
				cur = map[string]string{}
				list = append(list, cur)
			}
			last = strings.ToLower(strings.TrimSpace(name))
			cur[last] = strings.TrimSpace(value)
		}
	}
	return list
}

// releases are Debian's, newest first. A new one must be added here, or be in the
// host's own apt configuration.
var releases = []string{"sid", "forky", "trixie", "bookworm", "bullseye"}

// home is the release that a series was made for: asked first.
var home = map[string]string{"5.10": "bullseye", "6.1": "bookworm", "6.12": "trixie"}

// The parts of a release, by what follows its name.
var suffixes = []string{"", "-updates", "-security", "-backports"}

// distEntries keeps the entries of a distribution's archive: those whose suite is
// a release known here or the host's own (codename), or a part of one.
func distEntries(all []aptEntry, codename string) []aptEntry {
	known := append(slices.Clone(releases), codename, "unstable", "testing", "stable", "oldstable", "oldoldstable")
	var list []aptEntry
	for _, e := range all {
		release, _ := splitSuite(e.Suite)
		if release != "" && slices.Contains(known, release) && !strings.HasPrefix(e.URI, "cdrom:") && !slices.Contains(list, e) {
			list = append(list, e)
		}
	}
	return list
}

// splitSuite splits "bookworm-security" into its release and its part.
func splitSuite(suite string) (release, part string) {
	for _, s := range suffixes[1:] {
		if r, ok := strings.CutSuffix(suite, s); ok {
			return r, s
		}
	}
	return suite, ""
}

// suiteGroups returns the entries to ask for a series, in the order in which to
// ask: the host's own; then each other release, the one that the series was made
// for first; last the backports. The first group that has the kernel decides.
func suiteGroups(host []aptEntry, codename, series string) [][]aptEntry {
	groups := [][]aptEntry{host}
	order := slices.Clone(releases)
	if h := home[series]; h != "" {
		order = slices.DeleteFunc(order, func(r string) bool { return r == h })
		order = slices.Insert(order, 0, h)
	}
	var backports []aptEntry
	for _, release := range order {
		var group []aptEntry
		for _, e := range otherSuites(host, release) {
			if _, part := splitSuite(e.Suite); part == "-backports" {
				backports = append(backports, e)
			} else if release != codename {
				group = append(group, e)
			}
		}
		if len(group) > 0 {
			groups = append(groups, group)
		}
	}
	for _, e := range backports {
		groups = append(groups, []aptEntry{e})
	}
	return groups
}

// otherSuites derives the entries of a release from the repositories that the
// host uses: security where the host gets security, the rest where it gets the
// rest. What the host has already is left out.
func otherSuites(host []aptEntry, release string) []aptEntry {
	var list []aptEntry
	for _, part := range suffixes {
		if release == "sid" && part != "" {
			continue
		}
		for _, e := range host {
			_, has := splitSuite(e.Suite)
			if (has == "-security") != (part == "-security") {
				continue
			}
			n := aptEntry{URI: e.URI, Suite: release + part, Options: e.Options}
			if !slices.Contains(list, n) && !slices.Contains(host, n) {
				list = append(list, n)
			}
		}
	}
	return list
}
