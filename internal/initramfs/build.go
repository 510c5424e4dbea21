package initramfs

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"time"

	"github.com/google/renameio/v2"
)

// Options says what goes into an initramfs.
type Options struct {
	// Init is the host's path of a static kbisect-init, packed as /init.
	Init string
	// Userland adds the host's shell and tools (see Userland).
	Userland bool
	// Tools are further programs of the host's, by name or absolute path, packed
	// as Userland's are. One that is not there is a *ToolError.
	Tools []string
	// Extra entries; they may not repeat a path.
	Extra []File
}

// format is part of every key: raise it when the same options give other bytes.
const format = "kbisect.initramfs/1"

// Build returns the path of an initramfs for o in cacheDir, which it makes when
// it is not there. It is uncompressed: under emulation the kernel unpacks it
// faster than it would decompress one. A file that is there already is reused;
// its name is a key of the content of Init and Extra and of the identity (path,
// inode, size, times) of the host files of Userland. Two processes at once do
// the same work twice and agree. The file belongs to the cache.
func Build(ctx context.Context, cacheDir string, o Options) (string, error) {
	files, err := o.files()
	if err != nil {
		return "", err
	}
	key, err := keyOf(ctx, o, files)
	if err != nil {
		return "", err
	}
	if err := os.MkdirAll(cacheDir, 0o755); err != nil {
		return "", fmt.Errorf("make initramfs cache: %w", err)
	}
	name := filepath.Join(cacheDir, "initramfs-"+key+".cpio")
	if fi, err := os.Stat(name); err == nil && fi.Mode().IsRegular() {
		now := time.Now()
		_ = os.Chtimes(name, now, now) // only prune looks at it
		return name, nil
	}
	if err := writeFile(ctx, name, files); err != nil {
		return "", err
	}
	return name, prune(cacheDir)
}

// kept is how many archives stay in the cache: a new script's files make a new
// one, of 25 MB with the userland. One in use is among the newest.
const kept = 16

// prune removes all but the newest archives.
func prune(cacheDir string) error {
	names, err := filepath.Glob(filepath.Join(cacheDir, "initramfs-*.cpio"))
	if err != nil || len(names) <= kept {
		return err
	}
	used := map[string]time.Time{}
	for _, name := range names {
		if fi, err := os.Stat(name); err == nil {
			used[name] = fi.ModTime()
		}
	}
	slices.SortFunc(names, func(a, b string) int { return used[b].Compare(used[a]) })
	for _, name := range names[kept:] {
		if err := os.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("prune initramfs cache: %w", err)
		}
	}
	return nil
}

// files lists the whole archive.
func (o Options) files() ([]File, error) {
	if o.Init == "" {
		return nil, errors.New("build initramfs: no init given")
	}
	files := []File{
		{Path: "init", Mode: 0o755, Source: o.Init},
		{Path: "dev", Mode: fs.ModeDir | 0o755},
		// The kernel opens it for init before anything is mounted.
		{Path: "dev/console", Mode: fs.ModeDevice | fs.ModeCharDevice | 0o600, Major: 5, Minor: 1},
		{Path: "kbisect", Mode: fs.ModeDir | 0o700}, // the run's keys are appended here
		{Path: "proc", Mode: fs.ModeDir | 0o555},
		{Path: "root", Mode: fs.ModeDir | 0o700},
		{Path: "run", Mode: fs.ModeDir | 0o755},
		{Path: "sys", Mode: fs.ModeDir | 0o555},
		{Path: "tmp", Mode: fs.ModeDir | fs.ModeSticky | 0o777},
	}
	if o.Userland {
		host, err := Userland("/", o.Tools...)
		if err != nil {
			return nil, err
		}
		files = append(files, host...)
	}
	return append(files, o.Extra...), nil
}

// keyOf hashes what decides the archive's bytes. Hashing 20 MB of userland at
// every boot would cost more than the boot's own share of this package, so a
// host file counts by its identity; init is hashed, as builds replace it often.
func keyOf(ctx context.Context, o Options, files []File) (string, error) {
	h := sha256.New()
	fmt.Fprintf(h, "%s\n", format)
	for _, f := range files {
		if err := ctx.Err(); err != nil {
			return "", err
		}
		fmt.Fprintf(h, "%q %o %q %d %d %q\n", f.Path, f.Mode, f.Target, f.Major, f.Minor, f.Data)
		if f.Source == "" {
			continue
		}
		stamp := stampOf
		if f.Source == o.Init {
			stamp = contentOf
		}
		if err := stamp(h, f.Source); err != nil {
			return "", fmt.Errorf("read file for initramfs: %w", err)
		}
	}
	return hex.EncodeToString(h.Sum(nil))[:32], nil
}

func contentOf(h hash.Hash, name string) error {
	f, err := os.Open(name)
	if err != nil {
		return err
	}
	defer f.Close()
	_, err = io.Copy(h, f)
	return err
}

func stampOf(h hash.Hash, name string) error {
	fi, err := os.Stat(name)
	if err != nil {
		return err
	}
	st, ok := fi.Sys().(*syscall.Stat_t)
	if !ok {
		return fmt.Errorf("stat %s: no inode", name)
	}
	// The change time moves even when a package keeps the modification time.
	fmt.Fprintf(h, "%q %d %d %d %d %d\n", name, st.Dev, st.Ino, st.Size, st.Mtim.Nano(), st.Ctim.Nano())
	return nil
}

// writeFile writes the archive beside its name and renames it: a reader sees a
// whole one or none.
func writeFile(ctx context.Context, name string, files []File) error {
	f, err := renameio.NewPendingFile(name, renameio.WithTempDir(filepath.Dir(name)), renameio.WithPermissions(0o644))
	if err != nil {
		return fmt.Errorf("create initramfs: %w", err)
	}
	defer f.Cleanup()
	if err := Write(contextWriter{ctx, f}, files); err != nil {
		return err
	}
	// On the disk: a crash of the host must not leave an empty file under a valid key.
	if err := f.CloseAtomicallyReplace(); err != nil {
		return fmt.Errorf("write initramfs: %w", err)
	}
	return nil
}

// contextWriter stops a long write when its caller gives up. It lives for one
// call of writeFile only.
type contextWriter struct {
	ctx context.Context
	w   io.Writer
}

func (c contextWriter) Write(b []byte) (int, error) {
	if err := c.ctx.Err(); err != nil {
		return 0, err
	}
	return c.w.Write(b)
}
