package thread

import (
	"net/url"
	"path"
	"strings"
)

// Ref reads a Message-ID ("<id@host>", "id@host") or the address of one at a
// public-inbox server ("https://host/LIST/ID/", with or without "t.mbox.gz",
// "raw", "T/#u" and the like). list is "" if it names none. ok is false if it is
// neither: a file, say, that happens to have an "@" in its name and a folder.
func Ref(s string) (list, id string, ok bool) {
	_, list, id, ok = RefURL(s)
	return list, id, ok
}

// RefURL is Ref, and says which server an address is of, for Lore.Base: "" for a
// Message-ID, and for hosts that only lead elsewhere.
func RefURL(s string) (base, list, id string, ok bool) {
	s = strings.TrimSpace(s)
	if strings.HasPrefix(s, "<http") {
		s = strings.Trim(s, "<>")
	}
	if u, err := url.Parse(s); err == nil && u.Host != "" && (u.Scheme == "https" || u.Scheme == "http") {
		return refOf(u)
	}
	if in, ok := strings.CutPrefix(s, "<"); ok {
		s, ok = strings.CutSuffix(in, ">")
		return "", "", s, ok && isID(s)
	}
	return "", "", s, isID(s) && !strings.Contains(s, "/")
}

// leadElsewhere are hosts that redirect from a Message-ID to an archive.
var leadElsewhere = map[string]bool{"lkml.kernel.org": true, "patch.msgid.link": true, "msgid.link": true}

// refOf finds the Message-ID among the parts of an address's path: the first with
// an "@". What stands before it is the list.
func refOf(u *url.URL) (base, list, id string, ok bool) {
	parts := strings.Split(strings.Trim(u.EscapedPath(), "/"), "/")
	for i, p := range parts {
		p, err := url.PathUnescape(p)
		if err != nil || !isID(p) {
			continue
		}
		before := parts[:i]
		if len(before) > 0 {
			list, before = before[len(before)-1], before[:len(before)-1]
		}
		if list == "r" || list == "all" { // they say "in any list"
			list = ""
		}
		if leadElsewhere[strings.ToLower(u.Hostname())] {
			return "", "", p, true
		}
		base = u.Scheme + "://" + u.Host + strings.TrimSuffix(path.Join("/", path.Join(before...)), "/")
		return base, list, p, true
	}
	return "", "", "", false
}

// isID reports whether s can be a Message-ID: one "@", and nothing that would end
// it in a header.
func isID(s string) bool {
	const longest = 500 // bytes; an RFC 5322 line has 998
	at := strings.IndexByte(s, '@')
	if at <= 0 || at == len(s)-1 || len(s) > longest {
		return false
	}
	return strings.IndexFunc(s, func(r rune) bool { return r <= ' ' || r == '<' || r == '>' || r == 0x7f }) < 0
}

// escapeID writes a Message-ID as a part of a path, as public-inbox does.
func escapeID(id string) string {
	const digits = "0123456789ABCDEF"
	var b strings.Builder
	for i := 0; i < len(id); i++ {
		c := id[i]
		if c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || strings.IndexByte("-._~!$&'()*+,;=:@", c) >= 0 {
			b.WriteByte(c)
			continue
		}
		b.WriteString("%" + string(digits[c>>4]) + string(digits[c&15]))
	}
	return b.String()
}
