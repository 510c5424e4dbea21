// Package initramfs writes the guest's first file system: a reproducible newc
// archive with kbisect-init as /init, and for interactive use the host's own
// shell and network tools with the libraries they need.
//
//	path, err := initramfs.Build(ctx, cacheDir, initramfs.Options{Init: initPath})
//
// Equal input gives equal bytes: entries are sorted, times and owners are zero.
package initramfs

import (
	"bufio"
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"
)

// File is one entry of an archive.
type File struct {
	Path string      // slash-separated, absolute or not: "/bin/sh" and "bin/sh" are the same
	Mode fs.FileMode // permissions, and the type: regular, fs.ModeDir, fs.ModeSymlink or fs.ModeDevice|fs.ModeCharDevice

	// A regular file's content is Data, or that of the host's file Source.
	Data   []byte
	Source string

	Target       string // where a symbolic link leads
	Major, Minor uint32 // a device's numbers
}

// ErrPath is wrapped by errors about an entry's path: one that is empty, leads
// out of the archive, is there twice, or lies below something that is no folder.
var ErrPath = errors.New("unusable path")

// block is what an archive is padded to, so that another one can be appended to
// the file: the kernel wants it at a multiple of four, tools at one of 512.
const block = 512

// Write writes a newc archive of files, their parent folders, and nothing else.
// It blocks as w and the Source files do, and keeps neither.
func Write(w io.Writer, files []File) error {
	entries, err := plan(files)
	if err != nil {
		return err
	}
	cw := &writer{w: bufio.NewWriterSize(w, 256<<10)}
	for _, f := range entries {
		if err := cw.entry(f); err != nil {
			return fmt.Errorf("write initramfs entry %q: %w", f.Path, err)
		}
	}
	cw.header("TRAILER!!!", 0, 1, 0, 0, 0)
	cw.pad(block)
	if err := cw.w.Flush(); err != nil {
		return fmt.Errorf("write initramfs: %w", err)
	}
	return nil
}

// plan cleans the paths, adds missing parents and sorts. The kernel silently
// drops a/b when a is not there before it (u-root/u-root#2532); sorting by path
// puts every parent in front of what is in it.
func plan(files []File) ([]File, error) {
	byPath := make(map[string]File, 2*len(files))
	for _, f := range files {
		p := path.Clean("/" + f.Path)[1:]
		if p == "" || strings.ContainsRune(f.Path, 0) || slices.Contains(strings.Split(f.Path, "/"), "..") {
			return nil, fmt.Errorf("add %q: %w", f.Path, ErrPath)
		}
		if _, twice := byPath[p]; twice {
			return nil, fmt.Errorf("add %q twice: %w", f.Path, ErrPath)
		}
		f.Path = p
		byPath[p] = f
	}
	for _, f := range files {
		for dir := path.Dir(path.Clean("/" + f.Path)[1:]); dir != "."; dir = path.Dir(dir) {
			parent, there := byPath[dir]
			if !there {
				byPath[dir] = File{Path: dir, Mode: fs.ModeDir | 0o755}
			} else if !parent.Mode.IsDir() {
				return nil, fmt.Errorf("add %q below %q, which is no folder: %w", f.Path, dir, ErrPath)
			}
		}
	}
	entries := make([]File, 0, len(byPath))
	for _, f := range byPath {
		entries = append(entries, f)
	}
	slices.SortFunc(entries, func(a, b File) int { return cmp.Compare(a.Path, b.Path) })
	return entries, nil
}

// writer writes newc records. It counts bytes for the padding and inodes for
// the headers; errors stay in its bufio.Writer until Flush.
type writer struct {
	w   *bufio.Writer
	n   int64
	ino uint32
}

func (c *writer) entry(f File) error {
	mode, err := unixMode(f.Mode)
	if err != nil {
		return err
	}
	c.ino++
	switch {
	case f.Mode.IsRegular():
		return c.regular(f, mode)
	case f.Mode&fs.ModeSymlink != 0:
		c.header(f.Path, mode, 1, int64(len(f.Target)), 0, 0)
		c.body(strings.NewReader(f.Target), int64(len(f.Target)))
	case f.Mode.IsDir():
		c.header(f.Path, mode, 2, 0, 0, 0)
	default:
		c.header(f.Path, mode, 1, 0, f.Major, f.Minor)
	}
	return nil
}

func (c *writer) regular(f File, mode uint32) error {
	if f.Source == "" {
		c.header(f.Path, mode, 1, int64(len(f.Data)), 0, 0)
		return c.body(bytes.NewReader(f.Data), int64(len(f.Data)))
	}
	src, err := os.Open(f.Source)
	if err != nil {
		return err
	}
	defer src.Close()
	fi, err := src.Stat()
	if err != nil {
		return err
	}
	// The header has 32 bits for a size.
	if !fi.Mode().IsRegular() || fi.Size() > 1<<31 {
		return fmt.Errorf("%s: not a regular file of at most 2 GiB", f.Source)
	}
	c.header(f.Path, mode, 1, fi.Size(), 0, 0)
	return c.body(src, fi.Size())
}

// header writes a record's fixed part and its name. Owner, time, the device it
// was on and the checksum are zero.
func (c *writer) header(name string, mode uint32, nlink int, size int64, major, minor uint32) {
	n, _ := fmt.Fprintf(c.w, "070701%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%s\x00",
		c.ino, mode, 0, 0, nlink, 0, size, 0, 0, major, minor, len(name)+1, 0, name)
	c.n += int64(n)
	c.pad(4)
}

// body copies exactly size bytes: a file that changes while it is read would
// shift every later record.
func (c *writer) body(r io.Reader, size int64) error {
	n, err := io.CopyN(c.w, r, size)
	c.n += n
	if err == io.EOF {
		return fmt.Errorf("the file shrank to %d of %d bytes while it was read", n, size)
	}
	c.pad(4)
	return err
}

func (c *writer) pad(to int64) {
	if rest := c.n % to; rest != 0 {
		n, _ := c.w.Write(make([]byte, to-rest)) // bufio keeps the error for Flush
		c.n += int64(n)
	}
}

// unixMode translates a mode to what stat(2) has.
func unixMode(m fs.FileMode) (uint32, error) {
	u := uint32(m.Perm())
	for bit, unix := range map[fs.FileMode]uint32{fs.ModeSetuid: 0o4000, fs.ModeSetgid: 0o2000, fs.ModeSticky: 0o1000} {
		if m&bit != 0 {
			u |= unix
		}
	}
	switch m.Type() {
	case 0:
		return u | 0o100000, nil
	case fs.ModeDir:
		return u | 0o040000, nil
	case fs.ModeSymlink:
		return u | 0o120000, nil
	case fs.ModeDevice | fs.ModeCharDevice:
		return u | 0o020000, nil
	}
	return 0, fmt.Errorf("mode %s: only files, folders, symbolic links and character devices can be packed", m)
}
