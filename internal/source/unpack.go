package source

import (
	"bufio"
	"bytes"
	"compress/bzip2"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"os/exec"

	"github.com/kbisect/kbisect/internal/proc"
)

// packing is how an archive is compressed, told by its first bytes and not by
// its name.
type packing struct {
	name  string
	magic string
	at    int      // offset of magic
	tool  []string // nil: in process
	pure  func(io.Reader) (io.Reader, error)
}

// In process where the standard library is fast enough. Its bzip2 reads 30 MB/s,
// hence the tool when it is there.
var packings = []packing{
	{name: "xz", magic: "\xfd7zXZ\x00", tool: []string{"xz", "-dc", "-T0"}},
	{name: "zstd", magic: "\x28\xb5\x2f\xfd", tool: []string{"zstd", "-dcq"}},
	{name: "gzip", magic: "\x1f\x8b", pure: func(r io.Reader) (io.Reader, error) { return gzip.NewReader(r) }},
	{name: "bzip2", magic: "BZh", tool: []string{"bzip2", "-dc"}, pure: func(r io.Reader) (io.Reader, error) { return bzip2.NewReader(r), nil }},
	{name: "tar", magic: "ustar", at: 257, pure: func(r io.Reader) (io.Reader, error) { return r, nil }},
}

// errNoArchive says that a file is in no format that is known.
var errNoArchive = errors.New("not an archive (tar, plain or packed by gzip, xz, zstd or bzip2)")

// withUnpacked calls use with the decompressed content of r. The decompressor,
// if it is a program, has ended when withUnpacked returns.
func withUnpacked(ctx context.Context, r io.Reader, use func(io.Reader) error) error {
	br := bufio.NewReaderSize(r, 1<<20)
	p, err := sniff(br)
	if err != nil {
		return err
	}
	if p.tool != nil {
		if _, err := exec.LookPath(p.tool[0]); err == nil {
			return withTool(ctx, p.tool, br, use)
		} else if p.pure == nil {
			return &ToolError{Tool: p.tool[0], Need: "unpack a ." + p.name + " archive"}
		}
	}
	plain, err := p.pure(br)
	if err != nil {
		return fmt.Errorf("read archive: %w", err)
	}
	return use(plain)
}

func sniff(br *bufio.Reader) (packing, error) {
	head, err := br.Peek(512)
	if err != nil && err != io.EOF {
		return packing{}, fmt.Errorf("read archive: %w", err)
	}
	for _, p := range packings {
		if len(head) >= p.at && bytes.HasPrefix(head[p.at:], []byte(p.magic)) {
			return p, nil
		}
	}
	return packing{}, errNoArchive
}

// withTool runs a filter program between r and use.
func withTool(ctx context.Context, argv []string, r io.Reader, use func(io.Reader) error) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	cmd := proc.Command(ctx, argv[0], argv[1:]...)
	var stderr bytes.Buffer
	cmd.Stdin, cmd.Stderr = r, &stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		return fmt.Errorf("start %s: %w", argv[0], err)
	}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("start %s: %w", argv[0], err)
	}
	useErr := use(out)
	if useErr != nil {
		cancel() // it may be blocked writing what nobody reads
	}
	waitErr := cmd.Wait()
	// A truncated file ends the program with an error and the stream without one:
	// its word counts more, unless it was only killed by us.
	if waitErr != nil && (useErr == nil || errors.Is(useErr, io.ErrUnexpectedEOF)) {
		return fmt.Errorf("unpack archive: %s: %w: %s", argv[0], waitErr, bytes.TrimSpace(stderr.Bytes()))
	}
	return useErr
}

// counter reports how far a reader was read.
type counter struct {
	r     io.Reader
	n     int64
	total int64
	last  int64
	tell  func(done, total int64)
}

// countStep is how many bytes lie between two reports.
const countStep = 1 << 20

func (c *counter) Read(p []byte) (int, error) {
	n, err := c.r.Read(p)
	c.n += int64(n)
	if c.n-c.last >= countStep || (err != nil && c.n != c.last) {
		c.last = c.n
		c.tell(c.n, c.total)
	}
	return n, err
}
