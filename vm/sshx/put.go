package sshx

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"hash/crc64"
	"io"
	"os"
	"path"
	"strings"

	"github.com/pkg/sftp"

	"github.com/kbisect/kbisect/vm"
)

// crcTable is that of kbisect-init: the check is for what the guest makes of
// packets that SSH has authenticated already, and it costs a tenth of SHA-256 there.
var crcTable = crc64.MakeTable(crc64.ECMA)

// errCorrupt says that the guest's file is not what was sent.
var errCorrupt = errors.New("the guest's copy differs from what was sent")

// Put writes size bytes of r to name in the guest: into a temporary file beside
// it, whose size and CRC-64 are compared, and which is then renamed over name.
// So name is never half written. The folder must exist. Puts come one after the
// other. r must not block: it is read until its end, or size bytes, even when
// ctx is done.
func (c *Client) Put(ctx context.Context, r io.Reader, size int64, name string, mode os.FileMode) error {
	c.files.mu.Lock()
	defer c.files.mu.Unlock()
	err := c.do(ctx, func() error { return c.put(ctx, r, size, name, mode) }, c.files.drop)
	if err != nil {
		c.files.drop() // its state is unknown: the next Put opens another
		if ctx.Err() == nil {
			err = c.reason(err)
		}
		return fmt.Errorf("put %s: %w", name, err)
	}
	return nil
}

func (c *Client) put(ctx context.Context, r io.Reader, size int64, name string, mode os.FileMode) error {
	s, err := c.sftp()
	if err != nil {
		return err
	}
	temp := path.Join(path.Dir(name), "."+path.Base(name)+".kbisect-new")
	sum, err := c.upload(s, r, size, temp, mode)
	if err == nil {
		err = c.verify(ctx, s, temp, sum)
	}
	if err == nil {
		err = s.PosixRename(temp, name)
	}
	if err != nil {
		_ = s.Remove(temp) // the first error is the one to tell
	}
	return err
}

// sftp returns the SFTP session, opened if need be. files.mu is held.
func (c *Client) sftp() (*sftp.Client, error) {
	if s := c.files.client.Load(); s != nil {
		return s, nil
	}
	s, err := sftp.NewClient(c.ssh, sftp.UseConcurrentWrites(true))
	if err != nil {
		return nil, fmt.Errorf("open sftp session: %w", err)
	}
	c.files.client.Store(s)
	return s, nil
}

// upload writes the file and returns the hash of what was sent.
func (c *Client) upload(s *sftp.Client, r io.Reader, size int64, temp string, mode os.FileMode) (string, error) {
	f, err := s.OpenFile(temp, os.O_WRONLY|os.O_CREATE|os.O_TRUNC)
	if err != nil {
		return "", fmt.Errorf("create: %w", err)
	}
	defer f.Close()
	sum := crc64.New(crcTable)
	// One byte more than wanted shows that there is more. The reader is not
	// a *io.LimitedReader, which would make sftp take its size on trust.
	n, err := f.ReadFromWithConcurrency(io.TeeReader(io.LimitReader(r, size+1), sum), 0)
	if err != nil {
		return "", fmt.Errorf("write: %w", err)
	}
	if n != size {
		return "", fmt.Errorf("source has %d bytes or more, want %d", n, size)
	}
	if err := f.Chmod(mode.Perm()); err != nil {
		return "", fmt.Errorf("chmod: %w", err)
	}
	fi, err := f.Stat()
	if err != nil {
		return "", fmt.Errorf("stat: %w", err)
	}
	if fi.Size() != size {
		return "", fmt.Errorf("%w: %d bytes, want %d", errCorrupt, fi.Size(), size)
	}
	if err := f.Close(); err != nil {
		return "", fmt.Errorf("close: %w", err)
	}
	return fmt.Sprintf("%016x", sum.Sum64()), nil
}

// verify compares the guest's hash of a file. kbisect-init makes it there; of
// another SSH server the file is read back.
func (c *Client) verify(ctx context.Context, s *sftp.Client, name, want string) error {
	var out bytes.Buffer
	err := c.Exec(ctx, vm.Command{Argv: []string{"@crc64", name}, Stdout: &out})
	got := strings.TrimSpace(out.String())
	var exit *vm.ExitError
	if errors.As(err, &exit) {
		got, err = readBack(s, name)
	}
	if err != nil {
		return fmt.Errorf("hash: %w", err)
	}
	if got != want {
		return fmt.Errorf("%w: crc64 %.64q, want %s", errCorrupt, got, want)
	}
	return nil
}

func readBack(s *sftp.Client, name string) (string, error) {
	f, err := s.Open(name)
	if err != nil {
		return "", err
	}
	defer f.Close()
	sum := crc64.New(crcTable)
	if _, err := f.WriteTo(sum); err != nil {
		return "", err
	}
	return fmt.Sprintf("%016x", sum.Sum64()), nil
}
