package app

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"text/tabwriter"

	"github.com/dustin/go-humanize"
	"github.com/google/renameio/v2"

	"github.com/kbisect/kbisect/internal/gitx"
	"github.com/kbisect/kbisect/internal/kbuild"
)

// BuildOptions is what `kbisect build` was asked.
type BuildOptions struct {
	Kernel   string
	Revision string // "" for the source as it is
	Config   ConfigOptions
	Output   string // copy the image here
	JSON     bool
}

// Build builds a kernel and prints the path of its image.
func Build(ctx context.Context, env *Env, o BuildOptions, out io.Writer) error {
	src, err := env.openSource(ctx, o.Kernel)
	if err != nil {
		return err
	}
	commit, err := src.Resolve(ctx, o.Revision)
	if errors.As(err, new(*gitx.UnknownRevisionError)) {
		return Usagef("", "%q: no such revision in %s", o.Revision, src.Name)
	}
	if err != nil {
		return err
	}
	k, err := env.build(ctx, src, target{commit: commit, label: "linux " + src.Version}, o.Config)
	if err != nil {
		return err
	}
	defer k.Release()
	image := k.Image
	if o.Output != "" {
		if err := copyFile(o.Output, k.Image); err != nil {
			return err
		}
		image = o.Output
	}
	if o.JSON {
		return writeJSON(out, struct {
			kbuild.Info
			Commit string `json:"commit"`
			Image  string `json:"image"`
			Dotcfg string `json:"dot_config"`
			Cached bool   `json:"cached"`
		}{k.Info, k.Commit, image, k.Config, k.Cached})
	}
	_, err = fmt.Fprintln(out, image)
	return err
}

// copyFile copies a file: whole, or not at all.
func copyFile(to, from string) error {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	f, err := renameio.NewPendingFile(to, renameio.WithTempDir(filepath.Dir(to)), renameio.WithPermissions(0o644))
	if err != nil {
		return withHint(fmt.Errorf("write %s: %w", to, err), "name a file in a folder that is there and writable")
	}
	defer f.Cleanup()
	if _, err := io.Copy(f.File, in); err != nil {
		return fmt.Errorf("write %s: %w", to, err)
	}
	if err := f.CloseAtomicallyReplace(); err != nil {
		return fmt.Errorf("write %s: %w", to, err)
	}
	return nil
}

// CacheOptions is what `kbisect cache` was asked.
type CacheOptions struct {
	PruneGiB float64 // negative for no pruning
	Clear    bool
	JSON     bool
}

// Cache prints what the cache holds, after freeing what was asked.
func Cache(ctx context.Context, env *Env, o CacheOptions, out io.Writer) error {
	b := kbuild.Builder{Cache: env.Cache}
	var gone []kbuild.Entry
	var err error
	switch {
	case o.Clear && o.PruneGiB >= 0:
		return Usagef("", "--clear and --prune exclude each other")
	case o.Clear:
		gone, err = b.Clear(ctx)
	case o.PruneGiB >= 0:
		gone, err = b.Prune(ctx, int64(o.PruneGiB*(1<<30)))
	}
	if err != nil {
		return err
	}
	for _, e := range gone {
		env.UI.Info("removed %s %s, %s", e.Kind, e.Name, humanize.IBytes(uint64(e.Bytes)))
	}
	u, err := b.Usage(ctx)
	if err != nil {
		return err
	}
	if o.JSON {
		return writeJSON(out, u)
	}
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintf(w, "what\tsize\tlast used\tname\n")
	for _, e := range u.Entries {
		used := "-"
		switch {
		case e.Held:
			used = "in use"
		case !e.Used.IsZero():
			used = humanize.Time(e.Used)
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\n", e.Kind, humanize.IBytes(uint64(e.Bytes)), used, strings.TrimSpace(e.Name+" "+e.About))
	}
	fmt.Fprintf(w, "total\t%s\tof %s\t%s\n", humanize.IBytes(uint64(u.Bytes)), humanize.IBytes(uint64(u.Budget)), env.Cache)
	return w.Flush()
}

func writeJSON(w io.Writer, v any) error {
	e := json.NewEncoder(w)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	return e.Encode(v)
}
