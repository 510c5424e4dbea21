package thread

import (
	"regexp"
	"strings"
)

// trailerKeys are those that tell of a regression, by their lower-case form.
var trailerKeys = map[string]string{
	"fixes": "Fixes", "reported-by": "Reported-by", "reported-and-tested-by": "Reported-and-tested-by",
	"tested-by": "Tested-by", "bisected-by": "Bisected-by", "link": "Link", "closes": "Closes",
}

var (
	trailerLine = regexp.MustCompile(`^([A-Z][A-Za-z]+(?:-[A-Za-z]+)*):\s+(\S.*)$`)
	// nextTrailer is one that a page has put on the same line.
	nextTrailer = regexp.MustCompile(`\s(?:[A-Z][a-z]+(?:-[a-z]+)*-by|Fixes|Link|Closes|Cc):\s`)
	commitID    = regexp.MustCompile(`^[0-9a-f]{7,64}\b`)
	signedKeys  = regexp.MustCompile(`^(?i:[a-z]+(-[a-z]+)*-by|fixes|link|closes|cc)$`)
)

// isTrailer reports whether a line is a trailer of a commit's message.
func isTrailer(s string) bool {
	if len(s) >= maxLine || !strings.Contains(s, ": ") {
		return false
	}
	m := trailerLine.FindStringSubmatch(s)
	return m != nil && signedKeys.MatchString(m[1])
}

// trailers collects the trailers of all messages, each once; what is only in
// quoted text counts too.
func (t *Thread) trailers(list []*message) {
	seen := map[string]bool{}
	for _, quoted := range []bool{false, true} {
		for _, m := range list {
			for i, l := range m.lines {
				if l.zone != inText || quoted != (l.depth > 0) {
					continue
				}
				tr, ok := trailerAt(m, i)
				if !ok || seen[trailerKey(tr)] {
					continue
				}
				seen[trailerKey(tr)] = true
				if len(t.Trailers) == MaxTrailers {
					t.warn("there are more than %d trailers; the first are kept", MaxTrailers)
					return
				}
				t.Trailers = append(t.Trailers, tr)
			}
		}
	}
}

// trailerKey is equal for trailers that say the same.
func trailerKey(t Trailer) string {
	if t.Key == "Fixes" { // the title may have been wrapped or cut
		return t.Key + " " + t.Value[:min(len(t.Value), 10)]
	}
	return t.Key + " " + strings.ToLower(t.Value)
}

// trailerAt reads the trailer at line i. A title that a mailer wrapped goes on
// in the line below.
func trailerAt(m *message, i int) (Trailer, bool) {
	l := m.lines[i]
	name, _, ok := strings.Cut(l.bare, ":")
	key := trailerKeys[strings.ToLower(name)]
	if !ok || key == "" || len(l.text) >= maxLine {
		return Trailer{}, false
	}
	found := trailerLine.FindStringSubmatch(strings.TrimRight(l.bare, " \t"))
	if found == nil {
		return Trailer{}, false
	}
	value := found[2]
	if at := nextTrailer.FindStringIndex(value); at != nil {
		value = value[:at[0]]
	}
	if strings.Contains(value, `("`) && !strings.Contains(value, `")`) && i+1 < len(m.lines) && m.lines[i+1].depth == l.depth && len(m.lines[i+1].text) < maxLine {
		if rest, _, ok := strings.Cut(m.lines[i+1].bare, `")`); ok {
			value += " " + rest + `")`
		}
	}
	value = strings.Join(strings.Fields(value), " ")
	switch key {
	case "Fixes":
		ok = commitID.MatchString(value)
	case "Link", "Closes":
		ok = strings.HasPrefix(value, "http://") || strings.HasPrefix(value, "https://")
	}
	return Trailer{Message: m.Number, Key: key, Value: value}, ok
}
