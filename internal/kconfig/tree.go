package kconfig

import (
	"bufio"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sort"
	"strings"
)

// Tree is what the Kconfig files of a kernel say about its symbols, as far as a
// hint needs it: it is read line by line, without macros and without following
// `source`.
type Tree struct {
	symbols map[string]*definition
}

// definition is all that is said about one symbol, in all its places.
type definition struct {
	prompt   bool
	places   []place
	selectBy []string // symbols that select it
}

// place is one `config` entry: the conditions around and inside it.
type place struct {
	depends []string
}

// ReadTree reads the Kconfig files of the kernel source at dir, of the other
// architectures only what is not under arch/. It takes 0.2 s for 1,500 files,
// so it is for when something went wrong.
func ReadTree(dir string) (*Tree, error) {
	t := &Tree{symbols: make(map[string]*definition)}
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, _ := filepath.Rel(dir, path)
		if d.IsDir() {
			if skipDir(rel) {
				return fs.SkipDir
			}
			return nil
		}
		if !strings.HasPrefix(d.Name(), "Kconfig") || !d.Type().IsRegular() {
			return nil
		}
		return t.readFile(path)
	})
	if err != nil {
		return nil, fmt.Errorf("read Kconfig files of %s: %w", dir, err)
	}
	return t, nil
}

// skipDir says which folders have no Kconfig file that x86 reads.
func skipDir(rel string) bool {
	dir, name := filepath.Split(rel)
	switch {
	case rel == "Documentation", rel == "tools", rel == "scripts", rel == "samples":
		return true
	case dir == "arch/":
		return name != "x86"
	}
	return strings.HasPrefix(name, ".") && rel != "."
}

func (t *Tree) readFile(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	r := treeReader{tree: t}
	scan := bufio.NewScanner(f)
	for scan.Scan() {
		r.line(scan.Text())
	}
	return scan.Err()
}

// treeReader is the state inside one file.
type treeReader struct {
	tree   *Tree
	blocks []block // open if, menu and choice
	name   string  // the symbol whose entry this is, "" between entries
	def    *definition
	inMenu bool // the entry is a menu or choice: its `depends on` is of the block
	help   int  // indentation of the help text, 0 outside of one, -1 before its first line
	joined string
}

// block is an `if`, `menu` or `choice` that is not closed.
type block struct {
	conds []string
}

func (r *treeReader) line(text string) {
	text = r.joined + text
	r.joined = ""
	if cut, ok := strings.CutSuffix(text, "\\"); ok {
		r.joined = cut
		return
	}
	word, rest, _ := strings.Cut(strings.TrimSpace(text), " ")
	if tab := strings.IndexByte(word, '\t'); tab >= 0 {
		word, rest = word[:tab], word[tab+1:]+" "+rest
	}
	if word == "" || word[0] == '#' || r.skipHelp(text) {
		return
	}
	r.keyword(word, strings.TrimSpace(rest))
}

// skipHelp reports whether the line belongs to a help text, which ends where
// the indentation does.
func (r *treeReader) skipHelp(text string) bool {
	indent := 0
	for _, c := range text {
		if c == '\t' {
			indent += 8 - indent%8
		} else if c == ' ' {
			indent++
		} else {
			break
		}
	}
	if r.help == -1 {
		r.help = indent
	}
	if r.help > 0 && indent >= r.help {
		return true
	}
	r.help = 0
	return false
}

func (r *treeReader) keyword(word, rest string) {
	switch word {
	case "config", "menuconfig":
		r.begin(rest)
	case "if":
		r.end()
		r.blocks = append(r.blocks, block{conds: []string{rest}})
	case "menu", "choice":
		r.end()
		r.blocks = append(r.blocks, block{})
		r.inMenu = true
	case "endif", "endmenu", "endchoice":
		r.end()
		if len(r.blocks) > 0 {
			r.blocks = r.blocks[:len(r.blocks)-1]
		}
	case "comment", "source", "mainmenu":
		r.end()
	case "help", "---help---":
		r.help = -1
	case "depends":
		r.depends(strings.TrimSpace(strings.TrimPrefix(rest, "on")))
	case "bool", "tristate", "int", "hex", "string", "prompt":
		if r.def != nil && rest != "" {
			r.def.prompt = true
		}
	case "select":
		if target, _, _ := strings.Cut(rest, " "); r.name != "" {
			d := r.tree.define(target)
			d.selectBy = append(d.selectBy, r.name)
		}
	}
}

// begin opens the entry of a symbol, under the conditions of the open blocks.
func (r *treeReader) begin(name string) {
	r.end()
	r.name = name
	r.def = r.tree.define(name)
	var p place
	for _, b := range r.blocks {
		p.depends = append(p.depends, b.conds...)
	}
	r.def.places = append(r.def.places, p)
}

func (r *treeReader) end() { r.name, r.def, r.inMenu, r.help = "", nil, false, 0 }

func (r *treeReader) depends(expr string) {
	switch {
	case r.def != nil:
		p := &r.def.places[len(r.def.places)-1]
		p.depends = append(p.depends, expr)
	case r.inMenu && len(r.blocks) > 0:
		b := &r.blocks[len(r.blocks)-1]
		b.conds = append(b.conds, expr)
	}
}

func (t *Tree) define(name string) *definition {
	d := t.symbols[name]
	if d == nil {
		d = new(definition)
		t.symbols[name] = d
	}
	return d
}

// Hint says why want is not what final has, "" where it cannot tell.
func (t *Tree) Hint(want Symbol, final *Config) string {
	d := t.symbols[want.Name]
	if d == nil || len(d.places) == 0 {
		return "this kernel has no such symbol"
	}
	if want.Value == No {
		return selectedHint(d, final)
	}
	var unmet []string
	for _, p := range d.places {
		bad := p.unmet(final)
		if len(bad) == 0 {
			unmet = nil
			break
		}
		unmet = append(unmet, strings.Join(bad, " and "))
	}
	switch {
	case len(unmet) > 0:
		return "depends on " + strings.Join(unmet, ", or ")
	case !d.prompt && len(d.selectBy) > 0:
		return "it cannot be set, only be selected by " + shorten(d.selectBy)
	case !d.prompt:
		return "it cannot be set: the kernel computes it"
	}
	return ""
}

// selectedHint names the symbols that keep one alive that should be off.
func selectedHint(d *definition, final *Config) string {
	var by []string
	for _, s := range d.selectBy {
		if v, _ := final.Get(s); v != No {
			by = append(by, s)
		}
	}
	if len(by) == 0 {
		return ""
	}
	return "it is selected by " + shorten(by)
}

// shorten lists up to three names, sorted.
func shorten(names []string) string {
	names = append([]string(nil), names...)
	sort.Strings(names)
	if len(names) > 3 {
		return strings.Join(names[:3], ", ") + ", ..."
	}
	return strings.Join(names, ", ")
}

// unmet returns the conditions of p that do not hold, with the values of their
// symbols.
func (p place) unmet(final *Config) []string {
	var bad []string
	for _, expr := range p.depends {
		e := evaluator{final: final, text: expr}
		if ok, known := e.eval(); known && !ok {
			bad = append(bad, expr+" ("+strings.Join(e.seen, ", ")+")")
		}
	}
	return bad
}
