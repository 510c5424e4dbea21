package source

import (
	"archive/tar"
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/kbisect/kbisect/internal/gitx"
)

// Bounds of an archive. A kernel has 80,000 files and 1.3 GiB (6.1).
const (
	maxFiles = 1 << 20
	maxBytes = 16 << 30
)

// importRef is where fast-import leaves its commit until it is known to be a kernel.
const importRef = "refs/heads/import"

// importTar streams a tar archive into a new commit at importRef of repo. No
// file touches the disk: unpacking, adding and packing 80,000 files costs twice
// the time.
func importTar(ctx context.Context, repo gitx.Repo, archive io.Reader) error {
	// A pipe of the system, so that git reads what was written here without a copy
	// in between.
	pr, pw, err := os.Pipe()
	if err != nil {
		return fmt.Errorf("start import: %w", err)
	}
	growPipe(pw)
	written := make(chan error, 1)
	go func() {
		err := writeStream(ctx, pw, archive)
		// After an error "done" is missing, and git does not take the end for one.
		written <- errors.Join(err, pw.Close())
	}()
	git := repo.Do(ctx, gitx.Command{
		// pack.compression: level 1 takes a third of the time of the default and
		// costs a quarter more disk. depth 0: a file is no delta of the file before it.
		Args:  []string{"-c", "pack.compression=1", "-c", "fastimport.unpackLimit=0", "fast-import", "--quiet", "--done", "--depth=0", "--date-format=raw"},
		Stdin: pr,
	})
	_ = pr.Close() // the last reader: a writer that is still at it gets EPIPE
	err = <-written
	if err == nil || errors.Is(err, syscall.EPIPE) {
		return git
	}
	return err
}

// growPipe makes room for a megabyte, against the default of 64 KiB; where that
// is not allowed it is only slower.
func growPipe(f *os.File) {
	if conn, err := f.SyscallConn(); err == nil {
		_ = conn.Control(func(fd uintptr) { _, _ = unix.FcntlInt(fd, unix.F_SETPIPE_SZ, 1<<20) })
	}
}

// writeStream writes the whole fast-import stream of an archive.
func writeStream(ctx context.Context, w io.Writer, archive io.Reader) error {
	s := &stream{w: bufio.NewWriterSize(w, 1<<20)}
	fmt.Fprintf(s.w, "feature done\ncommit %s\ncommitter %s <%s> %s\ndata 0\n\n", importRef, gitx.CommitName, gitx.CommitEmail, gitx.CommitDate)
	end := &endBlock{r: archive}
	tr := tar.NewReader(end)
	for {
		if err := ctx.Err(); err != nil {
			return err
		}
		h, err := tr.Next()
		if err == io.EOF {
			break
		}
		if err != nil {
			return fmt.Errorf("read archive: %w", err)
		}
		if err := s.entry(h, tr); err != nil {
			return err
		}
	}
	if !end.zero() {
		return fmt.Errorf("read archive: it has no end: %w", io.ErrUnexpectedEOF)
	}
	if s.files == 0 {
		return errors.New("read archive: it has no files")
	}
	fmt.Fprint(s.w, "\ndone\n")
	if err := s.w.Flush(); err != nil {
		return err
	}
	// The decompressor's own check of its input comes at its end.
	if _, err := io.Copy(io.Discard, archive); err != nil {
		return fmt.Errorf("read archive: %w", err)
	}
	return nil
}

// endBlock remembers the last block that was read. An archive ends in blocks of
// zeros; archive/tar takes one that was cut between two members for complete.
type endBlock struct {
	r    io.Reader
	last []byte
}

const blockSize = 512

func (e *endBlock) Read(p []byte) (int, error) {
	n, err := e.r.Read(p)
	if n >= blockSize {
		e.last = append(e.last[:0], p[n-blockSize:n]...)
	} else {
		e.last = append(e.last, p[:n]...)
		e.last = append(e.last[:0], e.last[max(0, len(e.last)-blockSize):]...)
	}
	return n, err
}

func (e *endBlock) zero() bool {
	return len(e.last) == blockSize && len(bytes.Trim(e.last, "\x00")) == 0
}

// stream is the state of one import.
type stream struct {
	w     *bufio.Writer
	files int
	bytes int64
}

// entry writes one archive member.
func (s *stream) entry(h *tar.Header, r io.Reader) error {
	switch h.Typeflag {
	case tar.TypeDir, tar.TypeXGlobalHeader:
		return nil // git has no folders; the header of `git archive` is a comment
	}
	name, err := memberPath(h.Name)
	if err != nil {
		return err
	}
	s.files++
	s.bytes += h.Size
	if s.files > maxFiles || s.bytes > maxBytes {
		return fmt.Errorf("read archive: more than %d files or %d GiB: this is no kernel", maxFiles, int64(maxBytes)>>30)
	}
	switch h.Typeflag {
	case tar.TypeReg, tar.TypeGNUSparse:
		mode := "100644"
		if h.Mode&0o100 != 0 {
			mode = "100755"
		}
		return s.blob(mode, name, h.Size, r)
	case tar.TypeSymlink:
		// The target is only text here. It is not followed by anything of ours, and
		// a kernel has links that lead out of a folder and back.
		return s.blob("120000", name, int64(len(h.Linkname)), strings.NewReader(h.Linkname))
	case tar.TypeLink:
		target, err := memberPath(h.Linkname)
		if err != nil {
			return err
		}
		_, err = fmt.Fprintf(s.w, "C %s %s\n", quotePath(target), quotePath(name))
		return err
	}
	return fmt.Errorf("read archive: %q is neither a file, a folder nor a link (type %q)", h.Name, h.Typeflag)
}

func (s *stream) blob(mode, name string, size int64, r io.Reader) error {
	fmt.Fprintf(s.w, "M %s inline %s\ndata %d\n", mode, quotePath(name), size)
	if _, err := io.CopyN(s.w, r, size); err != nil {
		if errors.Is(err, syscall.EPIPE) {
			return err
		}
		return fmt.Errorf("read archive: %q: %w", name, noEOF(err))
	}
	return s.w.WriteByte('\n')
}

// noEOF makes a premature end visible as one.
func noEOF(err error) error {
	if err == io.EOF {
		return io.ErrUnexpectedEOF
	}
	return err
}

// memberPath cleans the name of an archive member and refuses one that would
// leave the tree or reach into a .git folder.
func memberPath(name string) (string, error) {
	clean := path.Clean(name)
	bad := name == "" || clean == "." || strings.HasPrefix(name, "/") || strings.ContainsRune(name, 0)
	for _, part := range strings.Split(name, "/") {
		bad = bad || part == ".." || strings.EqualFold(part, ".git")
	}
	if bad {
		return "", fmt.Errorf("read archive: refused member name %q", name)
	}
	return clean, nil
}

// quotePath writes a path as fast-import reads it. Only what must be is quoted.
func quotePath(p string) string {
	if !strings.ContainsAny(p, "\"\\\n ") {
		return p
	}
	return `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`, "\n", `\n`).Replace(p) + `"`
}
