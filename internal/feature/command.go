package feature

import (
	"path"
	"regexp"
	"slices"
	"strings"
)

// command is one simple command, without what only runs it (sudo, time, ip netns
// exec) and without its assignments.
type command struct {
	words []string
	text  string // as it was written
}

// Bounds of a command's parsing.
const (
	maxDepth    = 3   // of bash -c within bash -c
	maxWords    = 400 // words of a line that are looked at
	maxCommands = 200 // commands of a line
)

// tool returns the program's name, "" for an empty command.
func (c command) tool() string {
	if len(c.words) == 0 {
		return ""
	}
	return path.Base(c.words[0])
}

// has reports whether one of the arguments is word.
func (c command) has(word string) bool { return len(c.words) > 0 && slices.Contains(c.words[1:], word) }

// after returns the word behind the first argument that is name, "" for none.
func (c command) after(name string) string {
	for i := 1; i < len(c.words)-1; i++ {
		if c.words[i] == name {
			return c.words[i+1]
		}
	}
	return ""
}

// commands splits a line of shell into simple commands, in order. What it cannot
// understand comes out as a command that no table knows.
func commands(line string, depth int) []command {
	var out []command
	for _, words := range split(line) {
		if len(out) >= maxCommands {
			break
		}
		out = append(out, simple(words, depth)...)
	}
	return out
}

// simple strips what runs a command, and looks into what runs a text.
func simple(words []string, depth int) []command {
	text := strings.Join(words, " ")
	words = strip(words)
	if len(words) == 0 {
		return nil
	}
	switch name := path.Base(words[0]); {
	case shells[name] && depth < maxDepth:
		for i := 1; i < len(words)-1; i++ {
			// -c and clusters that end in it, as -xec
			if strings.HasPrefix(words[i], "-") && !strings.HasPrefix(words[i], "--") && strings.HasSuffix(words[i], "c") {
				var out []command
				for _, line := range strings.Split(words[i+1], "\n") {
					out = append(out, commands(line, depth+1)...)
				}
				return out
			}
		}
	case name == "echo" || name == "printf" || name == "cat":
		// A line of a batch file that the script is writing.
		if b := batchLine(strings.Fields(strings.Join(words[1:], " "))); b != nil {
			return []command{{b, text}}
		}
	}
	return []command{{words, text}}
}

var shells = map[string]bool{"bash": true, "sh": true, "dash": true, "busybox": true}

// runners are programs and words of the shell that run another command. Where
// options of theirs take arguments, the next word that is a known tool begins it.
var runners = map[string]bool{
	"sudo": true, "env": true, "time": true, "timeout": true, "nice": true, "ionice": true, "taskset": true, "chrt": true, "unshare": true, "nsenter": true,
	"setpriv": true, "chroot": true, "nohup": true, "exec": true, "command": true, "strace": true, "perf": true, "xargs": true, "stdbuf": true, "setsid": true,
	"if": true, "then": true, "else": true, "elif": true, "while": true, "until": true, "do": true, "!": true, "{": true, "eval": true, "watch": true,
}

var assignment = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*\+?=`)

// strip returns the words from the program on that is run in the end.
func strip(words []string) []string {
	for len(words) > 0 {
		switch name := path.Base(words[0]); {
		case assignment.MatchString(words[0]):
			words = words[1:]
		case runners[name]:
			i := slices.IndexFunc(words[1:], func(w string) bool {
				w = path.Base(w)
				return tools[w] || shells[w] || runners[w]
			})
			if i < 0 {
				return words
			}
			words = words[1+i:]
		case name == "ip":
			words = ipWords(words)
			if len(words) < 3 || words[2] != "exec" || words[1] != "netns" && words[1] != "vrf" || words[1] == "vrf" && len(words) < 5 {
				return words
			}
			words = words[min(len(words), 4):] // past the name of the namespace
		case name == "tc" || name == "bridge":
			return ipWords(words)
		default:
			return words
		}
	}
	return nil
}

// objects are the abbreviations of iproute2's objects that scripts use.
var objects = map[string]string{
	"l": "link", "li": "link", "lin": "link", "a": "addr", "r": "route", "ro": "route", "ru": "rule", "rou": "route", "tun": "tunnel", "x": "xfrm", "n": "neigh", "tunl": "tunnel",
	"q": "qdisc", "f": "filter", "c": "class", "action": "actions", "nexthop": "nexthop", "mrule": "mrule", "tu": "tunnel",
}

// ipWords returns the command of ip, tc or bridge without the options before its
// object. Of them only the family is kept, as "-f", "mpls" behind the rest: it
// decides what a route needs.
func ipWords(words []string) []string {
	out := []string{words[0]}
	family := ""
	i := 1
	for ; i < len(words) && strings.HasPrefix(words[i], "-"); i++ {
		switch opt := strings.TrimLeft(words[i], "-"); {
		case opt == "":
		case opt == "M":
			family = "mpls"
		case opt == "6":
			family = "inet6"
		case strings.HasPrefix("batch", opt):
			return []string{words[0], "-batch"}
		case strings.HasPrefix("family", opt):
			if i++; i < len(words) {
				family = words[i]
			}
		case strings.HasPrefix("netns", opt), opt == "rc", opt == "rcvbuf", opt == "l", opt == "loops", opt == "cf", opt == "conf":
			i++
		}
	}
	out = append(out, words[min(i, len(words)):]...)
	if len(out) > 1 {
		if long, ok := objects[out[1]]; ok {
			out[1] = long
		}
	}
	if family != "" {
		out = append(out, "-f", family)
	}
	return out
}

// batchLine returns a line of `ip -batch` or `tc -batch` as the command that it
// stands for, nil if it is none.
func batchLine(words []string) []string {
	if len(words) < 3 {
		return nil
	}
	object, verb := strings.Trim(words[0], `"'`), words[1]
	switch verb {
	case "add", "replace", "set", "change", "append":
	default:
		return nil
	}
	switch object {
	case "link", "route", "rule", "tunnel", "nexthop", "xfrm":
		return append([]string{"ip", object}, words[1:]...)
	case "qdisc", "filter", "class", "actions":
		return append([]string{"tc", object}, words[1:]...)
	}
	return nil
}

// scriptLines returns the lines of a script, continued ones joined, comments
// left out.
func scriptLines(script string) []string {
	var out []string
	var part strings.Builder
	for _, line := range strings.Split(script, "\n") {
		line = strings.TrimSpace(line)
		if strings.HasPrefix(line, "#") && part.Len() == 0 {
			continue
		}
		if text, more := strings.CutSuffix(line, `\`); more && part.Len() < maxLine {
			part.WriteString(text + " ")
			continue
		}
		part.WriteString(line)
		text := part.String()
		part.Reset()
		// The body of a here-document for ip -batch -.
		if b := batchLine(strings.Fields(text)); b != nil {
			text = strings.Join(b, " ")
		}
		out = append(out, text[:min(len(text), 16*maxLine)])
	}
	return append(out, part.String())
}

// split returns the words of each simple command of a line. Quotes are taken off;
// expansions stay as they are, and begin a command of their own: "$(ip link)".
func split(line string) [][]string {
	s := splitter{}
	for i := 0; i < len(line) && s.count < maxWords; i++ {
		i = s.next(line, i)
	}
	s.end()
	return s.out
}

// splitter is the state of split.
type splitter struct {
	out   [][]string
	words []string
	word  strings.Builder
	open  bool // word is one, even if it is empty
	quote byte // ' or ", 0 outside
	count int
}

// next takes the byte at i, and returns the index of the last one that it used.
func (s *splitter) next(line string, i int) int {
	ch := line[i]
	switch {
	case s.quote == '\'' && ch != '\'', s.quote == '"' && ch != '"' && ch != '\\' && ch != '`' && !strings.HasPrefix(line[i:], "$("):
		s.word.WriteByte(ch)
	case s.quote != 0 && ch == s.quote:
		s.quote = 0
	case ch == '\\' && i+1 < len(line):
		s.word.WriteByte(line[i+1])
		s.open = true
		return i + 1
	case (ch == '\'' || ch == '"') && s.quote == 0:
		s.quote, s.open = ch, true
	case strings.HasPrefix(line[i:], "$(("):
		// A number: part of a word.
		if end := strings.Index(line[i:], "))"); end > 0 {
			s.word.WriteString(line[i : i+end+2])
			return i + end + 1
		}
		s.end()
		return len(line)
	case strings.HasPrefix(line[i:], "$("), strings.HasPrefix(line[i:], "<("):
		s.quote = 0 // what follows is a command, whatever it is inside of
		s.end()
		return i + 1
	case ch == '#' && !s.open && s.word.Len() == 0:
		s.end()
		return len(line)
	case strings.IndexByte(";&|()`\n", ch) >= 0:
		s.end()
	case ch == ' ' || ch == '\t' || ch == '<' || ch == '>':
		s.endWord()
	default:
		s.word.WriteByte(ch)
	}
	return i
}

func (s *splitter) endWord() {
	if s.open || s.word.Len() > 0 {
		s.words = append(s.words, s.word.String())
		s.count++
	}
	s.word.Reset()
	s.open = false
}

func (s *splitter) end() {
	s.endWord()
	if len(s.words) > 0 {
		s.out = append(s.out, s.words)
	}
	s.words = nil
}
