package kbuild

import (
	"bytes"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// Steps that a build is taken to need when nothing better is known: measured
// with kbisect's own fragments on 6.1.
const (
	firstSteps    = 1500
	overheadSteps = 25 // archives and links of an incremental build
)

// expect estimates how many steps make will report.
func (t *buildTree) expect() int64 {
	if t.st.Full == 0 || t.changed == nil || configures(t.changed) && len(t.changed) > 0 {
		return t.fullSteps()
	}
	overhead := t.st.Overhead
	if overhead == 0 {
		overhead = overheadSteps
	}
	return min(t.stale+overhead, t.fullSteps())
}

// fullSteps is the number of steps of a whole build: of this tree, of another
// one with this configuration, or of any.
func (t *buildTree) fullSteps() int64 {
	if t.st.Full > 0 {
		return t.st.Full
	}
	data, err := os.ReadFile(t.stepsPath())
	if err == nil {
		if n, err := strconv.ParseInt(strings.TrimSpace(string(data)), 10, 64); err == nil && n > 0 {
			return n
		}
	}
	return firstSteps
}

// stepsPath holds the steps of the last whole build with this configuration,
// whatever the repository.
func (t *buildTree) stepsPath() string {
	return filepath.Join(t.Cache, "build", "steps-"+t.config)
}

// learn remembers the steps of the build that just ended, for the next estimate.
func (t *buildTree) learn() {
	if t.changed == nil && t.objects > t.st.Full {
		t.st.Full = t.objects
		// It only makes an estimate better: no reason to fail.
		_ = writeFile(t.stepsPath(), []byte(strconv.FormatInt(t.objects, 10)+"\n"))
		return
	}
	if t.changed != nil && t.objects > t.stale {
		t.st.Overhead = t.objects - t.stale
	}
}

// dirty counts the objects that depend on a changed file, by what their last
// compilation read.
func (t *buildTree) dirty() int64 {
	sources := make(map[string]bool)
	var headers [][]byte
	for _, p := range t.changed {
		switch filepath.Ext(p) {
		case ".c", ".S":
			sources[strings.TrimSuffix(p, filepath.Ext(p))] = true
		default:
			headers = append(headers, []byte("/"+p+" "))
		}
	}
	if len(sources) == 0 && len(headers) == 0 {
		return 0
	}
	var n int64
	if len(headers) == 0 {
		for s := range sources {
			if _, err := os.Stat(filepath.Join(t.obj(), s+".o")); err == nil {
				n++
			}
		}
		return n
	}
	_ = filepath.WalkDir(t.obj(), func(path string, d fs.DirEntry, err error) error {
		if err == nil && strings.HasSuffix(path, ".o.cmd") && dependsOn(t.obj(), path, sources, headers) {
			n++
		}
		return nil // an estimate, whatever could not be read
	})
	return n
}

// dependsOn reports whether the object whose command file is at path was made
// from one of the sources or headers.
func dependsOn(obj, path string, sources map[string]bool, headers [][]byte) bool {
	rel, err := filepath.Rel(obj, path)
	if err != nil {
		return false
	}
	dir, name := filepath.Split(rel)
	object := strings.TrimSuffix(strings.TrimPrefix(name, "."), ".o.cmd")
	if sources[dir+object] {
		return true
	}
	data, err := os.ReadFile(path)
	if err != nil {
		return false
	}
	for _, h := range headers {
		if bytes.Contains(data, h) {
			return true
		}
	}
	return false
}
