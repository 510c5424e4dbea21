package kbuild

import (
	"bytes"
	"context"
	"errors"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"
)

// Inputs returns the source files that the builds with the request's
// configuration read so far, as paths relative to the source, whatever commits
// they were of: the prior of a search. It takes 0.3 s for 1,600 objects, and
// waits while another process builds in the tree. The result is nil when there
// is no such tree; ask Used about it, which knows what a compiler does not
// report. The maps of several requests may be merged into one.
//
// A folder whose sources were compiled is in the map too, with a slash at its end.
func (b Builder) Inputs(ctx context.Context, r Request) (map[string]bool, error) {
	j, err := b.plan(ctx, r)
	if err != nil {
		return nil, err
	}
	root, err := buildRoot(j.Cache)
	if err != nil {
		return nil, err
	}
	dir := filepath.Join(root, j.treeKey)
	if _, err := os.Stat(dir); errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	l, err := lock(ctx, dir+".lock", shared, nil)
	if err != nil {
		return nil, infra("lock build tree", err)
	}
	defer l.unlock()
	t := &buildTree{job: j, dir: dir}
	return t.inputs(ctx)
}

// inputs reads the command files of a tree, nil if it has none.
func (t *buildTree) inputs(ctx context.Context) (map[string]bool, error) {
	in := inputs{src: []byte(t.src() + "/"), files: make(map[string]bool)}
	err := filepath.WalkDir(t.obj(), func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		return in.read(path, d)
	})
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, infra("read build tree", err)
	}
	if len(in.files) == 0 {
		return nil, nil
	}
	return in.files, nil
}

// inputs collects the source files that command files name.
type inputs struct {
	src   []byte // absolute path of the source, with a slash
	files map[string]bool
}

// read takes a file of the build tree; most are not command files.
func (in *inputs) read(path string, d fs.DirEntry) error {
	name := d.Name()
	switch {
	case !d.Type().IsRegular():
		return nil
	case name == "auto.conf.cmd":
		data, err := os.ReadFile(path)
		in.kconfig(data)
		return err
	case name[0] != '.' || !strings.HasSuffix(name, ".cmd"):
		return nil
	}
	data, err := os.ReadFile(path)
	// Seen from the objects' folder, the source is "../"; the tools below tools/
	// are built with absolute paths, and their own files named as in their folder.
	in.scan(data, []byte("../"))
	if bytes.Contains(data, in.src) {
		in.scan(data, in.src)
		in.tool(path)
	}
	return err
}

// tool takes the source of the tool's object whose command file is at path.
func (in *inputs) tool(path string) {
	rel, ok := strings.CutPrefix(path, string(in.src)+objName+"/")
	object, isObject := strings.CutSuffix(filepath.Base(path)[1:], ".o.cmd")
	if !ok || !isObject {
		return
	}
	source := filepath.Join(filepath.Dir(rel), object+".c")
	if _, err := os.Stat(filepath.Join(string(in.src), source)); err == nil {
		in.add([]byte(source))
	}
}

// scan takes each word of data that begins with prefix.
func (in *inputs) scan(data, prefix []byte) {
	for {
		i := bytes.Index(data, prefix)
		if i < 0 {
			return
		}
		begin := i == 0 || bytes.IndexByte(wordBreaks, data[i-1]) >= 0
		data = data[i+len(prefix):]
		end := bytes.IndexAny(data, string(wordBreaks))
		if end < 0 {
			end = len(data)
		}
		if begin {
			in.add(data[:end])
		}
		data = data[end:]
	}
}

// wordBreaks stand between the names of a command file.
var wordBreaks = []byte(" \t\n\\\"';():")

// add takes a path relative to the source. Nearly all were seen before, and cost
// no memory then.
func (in *inputs) add(name []byte) {
	if in.files[string(name)] || len(name) == 0 {
		return
	}
	p := path.Clean(string(name)) // "arch/x86/boot/../lib/memcpy_64.S"
	if p == "." || strings.HasPrefix(p, "..") || strings.HasPrefix(p, objName+"/") || path.Base(p)[0] == '.' || path.Ext(p) == "" && name[len(name)-1] == '/' {
		return
	}
	in.files[p] = true
	if ext := path.Ext(p); ext != ".c" && ext != ".S" {
		return
	}
	for dir := path.Dir(p); dir != "." && !in.files[dir+"/"]; dir = path.Dir(dir) {
		in.files[dir+"/"] = true
	}
}

// kconfig takes the list of Kconfig files that the configuration was made from.
func (in *inputs) kconfig(data []byte) {
	for _, w := range bytes.Fields(data) {
		if bytes.HasPrefix(w[bytes.LastIndexByte(w, '/')+1:], []byte("Kconfig")) {
			in.add(w)
		}
	}
}

// Used reports whether a change of the file at path, relative to the source, can
// change the kernels whose Inputs are given: those files, every Kconfig file,
// the makefiles of folders that were compiled from, what x86 has of headers and
// tables, and the scripts. In doubt it says yes: a wrong yes costs a search less
// than a wrong no. Of nil, which knows nothing, everything is used.
func Used(inputs map[string]bool, file string) bool {
	if inputs == nil || inputs[file] {
		return true
	}
	dir, name := path.Split(file)
	arch, x86 := strings.CutPrefix(file, "arch/")
	x86 = x86 && strings.HasPrefix(arch, "x86/")
	top, _, below := strings.Cut(file, "/")
	switch {
	case top == "arch" && !x86 && dir != "arch/", top == "Documentation", top == "samples":
		return false
	case strings.HasPrefix(name, "Kconfig"):
		return top != "tools"
	case name == "Makefile", name == "Kbuild", strings.HasPrefix(name, "Makefile."):
		return !below || top == "scripts" || inputs[dir] || x86 && path.Dir(file) == "arch/x86"
	case top == "scripts":
		return name != "checkpatch.pl"
	}
	return x86 && (strings.HasSuffix(name, ".h") || strings.HasSuffix(name, ".tbl"))
}

// unused reports whether a change of files, which are relative to the source, is
// sure to leave the tree's objects as they are, by the rules that make itself
// goes by: C and assembler files that no object was made from, and what is
// documentation, tests or of another architecture. A third to a half of the
// commits of net-next are of drivers that our configuration does not build; each
// of them would cost make's walk through the whole tree, 6 to 20 s.
func (t *buildTree) unused(ctx context.Context, changed []string) (bool, error) {
	var code []string
	for _, p := range changed {
		switch {
		case foreign(p):
		case !compiled(p):
			return false, nil
		default:
			if _, err := os.Stat(filepath.Join(t.obj(), strings.TrimSuffix(p, path.Ext(p))+".o")); err == nil {
				return false, nil // the usual case costs nothing
			}
			code = append(code, p)
		}
	}
	if len(code) == 0 {
		return true, nil
	}
	in, err := t.inputs(ctx)
	if in == nil || err != nil {
		return false, err
	}
	for _, p := range code {
		if Used(in, p) {
			return false, nil
		}
	}
	return true, nil
}

// compiled reports whether the uses of a source file are all in command files.
// Headers below include/ may also be packed or searched as a whole.
func compiled(p string) bool {
	top, _, _ := strings.Cut(p, "/")
	switch top {
	case "include", "scripts", "tools", "usr", "certs", "rust":
		return false
	}
	switch path.Ext(p) {
	case ".c", ".S", ".h":
		return true
	}
	return false
}

// foreign reports whether no x86 kernel is made from the file at p.
func foreign(p string) bool {
	for _, dir := range []string{"Documentation/", "LICENSES/", "samples/", "tools/testing/", "tools/perf/"} {
		if strings.HasPrefix(p, dir) {
			// Kconfig reads Documentation/Kconfig and samples/Kconfig, of all architectures.
			return !strings.HasPrefix(path.Base(p), "Kconfig")
		}
	}
	if rest, ok := strings.CutPrefix(p, "arch/"); ok {
		return strings.Contains(rest, "/") && !strings.HasPrefix(rest, "x86/")
	}
	return p == "MAINTAINERS" || p == "CREDITS" || p == ".mailmap"
}
