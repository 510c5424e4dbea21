package initramfs

import (
	"bufio"
	"bytes"
	"debug/elf"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// loader finds libraries as ld.so(8) does, by reading files only.
type loader struct {
	root string
	dirs []string // of ld.so.conf, then the built-in ones
	// libDir is where all libraries go in the archive: the folder of the host's
	// libc, which its dynamic loader searches without a cache. One folder and
	// one file a soname flattens symbolic links and DT_RUNPATH alike.
	libDir string
	info   map[string]*object // by real path
}

// object is what the loader wants to know of one ELF file.
type object struct {
	interp  string
	needed  []string
	runpath []string
	elf32   bool // not a program for the guest
}

// builtinDirs are the default folders of the common distributions.
var builtinDirs = []string{"/lib/x86_64-linux-gnu", "/usr/lib/x86_64-linux-gnu", "/lib64", "/usr/lib64", "/lib", "/usr/lib"}

func newLoader(root string) *loader {
	l := &loader{root: root, info: map[string]*object{}}
	l.dirs = append(l.confDirs("/etc/ld.so.conf", 0), builtinDirs...)
	for _, dir := range builtinDirs {
		if _, err := resolve(root, dir+"/libc.so.6"); err == nil {
			l.libDir = dir[1:]
			break
		}
	}
	if l.libDir == "" {
		l.libDir = "lib"
	}
	return l
}

// confDirs reads the folders that a ld.so.conf names. A file that cannot be read
// names none. Includes nest at most four deep.
func (l *loader) confDirs(name string, depth int) (dirs []string) {
	path, err := resolve(l.root, name)
	if err != nil || depth > 4 {
		return nil
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return nil
	}
	for line := range strings.Lines(string(text)) {
		line, _, _ = strings.Cut(line, "#")
		line = strings.TrimSpace(line)
		if pattern, ok := strings.CutPrefix(line, "include "); ok {
			dirs = append(dirs, l.include(name, strings.TrimSpace(pattern), depth)...)
		} else if strings.HasPrefix(line, "/") {
			dirs = append(dirs, line)
		}
	}
	return dirs
}

// include expands an include line, relative to the file it stands in.
func (l *loader) include(from, pattern string, depth int) (dirs []string) {
	if !strings.HasPrefix(pattern, "/") {
		pattern = filepath.Join(filepath.Dir(from), pattern)
	}
	matches, err := filepath.Glob(filepath.Join(l.root, pattern))
	if err != nil {
		return nil // a pattern that matches nothing in ld.so either
	}
	slices.Sort(matches)
	for _, m := range matches {
		rel, err := filepath.Rel(l.root, m)
		if err == nil {
			dirs = append(dirs, l.confDirs("/"+rel, depth+1)...)
		}
	}
	return dirs
}

// closure lists all that the program at path needs beside itself, in the order
// in which it was found: loader, libraries, and for a script its interpreter.
func (l *loader) closure(path string) ([]File, error) {
	if interp, err := shebang(path); err != nil {
		return nil, err
	} else if interp != "" {
		return l.script(interp)
	}
	var files []File
	seen := map[string]bool{}
	for queue := []string{path}; len(queue) > 0; queue = queue[1:] {
		obj, err := l.object(queue[0])
		if err != nil {
			return nil, err
		}
		if obj.interp != "" && !seen[obj.interp] {
			seen[obj.interp] = true
			// Libraries name the loader as a library too; one copy is enough.
			seen[filepath.Base(obj.interp)] = true
			real, err := resolve(l.root, obj.interp)
			if err != nil {
				return nil, fmt.Errorf("find loader of %s: %w", queue[0], err)
			}
			files = append(files, File{Path: obj.interp[1:], Mode: 0o755, Source: real})
		}
		for _, soname := range obj.needed {
			if seen[soname] {
				continue
			}
			seen[soname] = true
			lib, err := l.library(soname, obj.runpath)
			if err != nil {
				return nil, fmt.Errorf("find library of %s: %w", queue[0], err)
			}
			files = append(files, File{Path: l.libDir + "/" + soname, Mode: 0o755, Source: lib})
			queue = append(queue, lib)
		}
	}
	return files, nil
}

// script packs a script's interpreter at the path that the script names.
func (l *loader) script(interp string) ([]File, error) {
	real, err := resolve(l.root, interp)
	if err != nil {
		return nil, fmt.Errorf("find interpreter: %w", err)
	}
	if next, err := shebang(real); err != nil || next != "" {
		return nil, fmt.Errorf("interpreter %s is a script itself", interp)
	}
	needs, err := l.closure(real)
	// /bin is where all programs are, whichever of the usual folders it says.
	return append(needs, File{Path: "bin/" + filepath.Base(interp), Mode: 0o755, Source: real}), err
}

// library finds a soname. A library for another machine is passed over, as
// ld.so does.
func (l *loader) library(soname string, runpath []string) (string, error) {
	for _, dir := range slices.Concat(runpath, l.dirs) {
		real, err := resolve(l.root, filepath.Join(dir, soname))
		if err != nil {
			continue
		}
		if obj, err := l.object(real); err == nil && !obj.elf32 {
			return real, nil
		}
	}
	return "", fmt.Errorf("%s: %w", soname, fs.ErrNotExist)
}

// object reads an ELF file's dynamic section, once a path.
func (l *loader) object(path string) (*object, error) {
	if obj, ok := l.info[path]; ok {
		return obj, nil
	}
	f, err := elf.Open(path)
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", path, err)
	}
	defer f.Close()
	obj := &object{elf32: f.Class != elf.ELFCLASS64 || f.Machine != elf.EM_X86_64}
	for _, p := range f.Progs {
		if p.Type == elf.PT_INTERP {
			b, err := io.ReadAll(io.LimitReader(p.Open(), 4096))
			if err != nil {
				return nil, fmt.Errorf("read %s: %w", path, err)
			}
			obj.interp = string(bytes.TrimRight(b, "\x00"))
		}
	}
	if obj.interp != "" && !strings.HasPrefix(obj.interp, "/") {
		return nil, fmt.Errorf("read %s: loader %q is not an absolute path", path, obj.interp)
	}
	// A static program has no dynamic section and needs nothing.
	if obj.needed, err = f.DynString(elf.DT_NEEDED); err != nil && f.SectionByType(elf.SHT_DYNAMIC) != nil {
		return nil, fmt.Errorf("read %s: %w", path, err)
	}
	obj.runpath = l.runpath(f, path)
	l.info[path] = obj
	return obj, nil
}

// runpath returns the folders of DT_RUNPATH, or of the older DT_RPATH.
func (l *loader) runpath(f *elf.File, path string) (dirs []string) {
	list, err := f.DynString(elf.DT_RUNPATH)
	if err != nil || len(list) == 0 {
		list, err = f.DynString(elf.DT_RPATH)
	}
	if err != nil {
		return nil
	}
	origin := filepath.Dir("/" + strings.TrimPrefix(path, l.root))
	for _, entry := range list {
		for dir := range strings.SplitSeq(entry, ":") {
			dir = strings.NewReplacer("$ORIGIN", origin, "${ORIGIN}", origin).Replace(dir)
			if strings.HasPrefix(dir, "/") {
				dirs = append(dirs, dir)
			}
		}
	}
	return dirs
}

// shebang returns a script's interpreter, "" for anything else.
func shebang(path string) (string, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	line, err := bufio.NewReader(io.LimitReader(f, 256)).ReadString('\n')
	if err != nil && err != io.EOF {
		return "", err
	}
	rest, ok := strings.CutPrefix(line, "#!")
	if !ok {
		return "", nil
	}
	fields := strings.Fields(rest)
	if len(fields) == 0 || !strings.HasPrefix(fields[0], "/") {
		return "", fmt.Errorf("read %s: script without an interpreter", path)
	}
	return fields[0], nil
}

var errLinks = errors.New("too many symbolic links")

// resolve follows symbolic links of name inside root and returns the host's path
// of what it leads to, which exists.
func resolve(root, name string) (string, error) {
	rest := strings.Split(strings.Trim(name, "/"), "/")
	at := "/"
	for links := 0; len(rest) > 0; {
		part := rest[0]
		rest = rest[1:]
		switch part {
		case "", ".":
			continue
		case "..":
			at = filepath.Dir(at)
			continue
		}
		next := filepath.Join(at, part)
		target, err := os.Readlink(filepath.Join(root, next))
		if err != nil {
			at = next // no link; the Lstat below says whether it exists
			continue
		}
		if links++; links > 40 {
			return "", fmt.Errorf("resolve %s: %w", name, errLinks)
		}
		if strings.HasPrefix(target, "/") {
			at = "/"
		}
		rest = append(strings.Split(target, "/"), rest...)
	}
	path := filepath.Join(root, at)
	if _, err := os.Lstat(path); err != nil {
		return "", err
	}
	return path, nil
}
