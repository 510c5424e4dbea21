package app

import (
	"bytes"
	"context"
	"errors"
	"os"
	"slices"
	"strings"

	"github.com/kbisect/kbisect/internal/host"
	"github.com/kbisect/kbisect/internal/kbuild"
	"github.com/kbisect/kbisect/internal/kconfig"
	"github.com/kbisect/kbisect/internal/source"
	"github.com/kbisect/kbisect/internal/ui"
	"github.com/kbisect/kbisect/kconfigs"
)

// ConfigOptions is what the command line says of the kernel's configuration.
type ConfigOptions struct {
	File  string   `json:"file,omitempty"`  // the user's own .config instead of tinyconfig
	Extra []string `json:"extra,omitempty"` // names or files of fragments
}

// resolve reads the configuration that is asked for: one for all kernels of a
// run, so that they share a build tree and can be compared.
func (c ConfigOptions) resolve() (base *kconfig.Config, fragments []*kconfig.Config, err error) {
	names := kconfigs.Default()
	if c.File != "" {
		if base, err = kconfig.ParseFile(c.File); err != nil {
			return nil, nil, Usagef("", "--config: %v", err)
		}
		names = kconfigs.Over()
	}
	for _, name := range append(names, c.Extra...) {
		f, err := fragment(name)
		if err != nil {
			return nil, nil, err
		}
		fragments = append(fragments, f)
	}
	return base, fragments, nil
}

// fragment reads a fragment by name, or else by path.
func fragment(name string) (*kconfig.Config, error) {
	if slices.Contains(kconfigs.List(), name) {
		data, err := kconfigs.Get(name)
		if err != nil {
			return nil, err
		}
		return kconfig.Parse(kconfigs.FileName(name), bytes.NewReader(data))
	}
	f, err := kconfig.ParseFile(name)
	if errors.Is(err, os.ErrNotExist) {
		return nil, Usagef("kbisect list kconfigs", "--kconfig %q: no such fragment or file%s", name, Nearest(name, kconfigs.List()))
	}
	if err != nil {
		return nil, Usagef("", "--kconfig: %v", err)
	}
	return f, nil
}

// openSource finds and imports a kernel source, with progress.
func (env *Env) openSource(ctx context.Context, spec string) (*source.Source, error) {
	if spec == "debian:" {
		return nil, Usagef("debian:6.1 is the newest of a series", "kernel source %q: which version?", spec)
	}
	p := phases{ui: env.UI, bytes: true, title: func(stage string) string {
		return map[string]string{
			source.StageWait:     "wait for another kbisect to import the source",
			source.StageIndex:    "read the package index",
			source.StageDownload: "download the kernel source",
			source.StageHash:     "read the archive",
			source.StageImport:   "import the kernel source",
		}[stage]
	}}
	src, err := source.Open(ctx, spec, source.Options{
		Cache: env.Cache, Progress: p.set,
		Warn: func(text string) { env.UI.Warn("%s", text) },
	})
	p.end(err)
	var bad *source.SpecError
	if errors.As(err, &bad) {
		hint := bad.Hint
		short := *bad
		short.Hint = "" // said on a line of its own
		return nil, &UsageError{Text: short.Error(), Hint: hint}
	}
	if st, serr := os.Stat(spec); err != nil && ctx.Err() == nil && serr == nil && st.Mode().IsRegular() {
		err = withHint(err, "if the disk is not full, %s may be damaged or incomplete: fetch it again", spec)
	}
	return src, err
}

// phases shows a sequence of phases as stages, each begun when it is first heard of.
type phases struct {
	ui    *ui.UI
	title func(phase string) string
	bytes bool // what is counted
	name  string
	stage *ui.Stage
}

func (p *phases) set(phase string, done, total int64) {
	if phase != p.name {
		p.end(nil)
		p.name, p.stage = phase, p.ui.Stage(p.title(phase))
	}
	if p.bytes {
		p.stage.SetBytes(done, total)
		return
	}
	p.stage.Set(done, total)
}

func (p *phases) end(err error) {
	if p.stage != nil {
		p.stage.End(err)
	}
	p.name, p.stage = "", nil
}

// leastDisk is what must be free before a build, in MiB: a tree with its objects
// takes 1.6 GB the first time, and nearly nothing after that.
const leastDisk = 512

// build builds one kernel, or finds it in the cache. It holds the host's lock
// while it compiles, so that nothing is measured meanwhile.
func (env *Env) build(ctx context.Context, src *source.Source, t target, c ConfigOptions) (*kbuild.Kernel, error) {
	label := t.label
	base, fragments, err := c.resolve()
	if err != nil {
		return nil, err
	}
	if err := env.require(host.ForBuilding()); err != nil {
		return nil, err
	}
	p := phases{ui: env.UI, title: func(phase string) string {
		return map[kbuild.Phase]string{
			kbuild.PhaseWait: "wait for another build", kbuild.PhaseCheckout: "check out " + label, kbuild.PhaseConfigure: "configure " + label,
			kbuild.PhaseCompile: "build " + label, kbuild.PhaseStore: "store " + label,
			kbuild.PhaseEvict: "make room in the cache",
		}[kbuild.Phase(phase)]
	}}
	r := kbuild.Request{
		GitDir: src.GitDir, Commit: t.commit, Layout: t.layout, Base: base, Fragments: fragments,
		Progress: func(phase kbuild.Phase, done, total int64) { p.set(string(phase), done, total) },
	}
	if env.compile != nil {
		return env.compile(ctx, r)
	}
	b := kbuild.Builder{Cache: env.Cache}
	if k, err := b.Lookup(ctx, r); k != nil || err != nil {
		return k, err // nobody is disturbed, and nobody has to be waited for
	}
	if err := host.CheckDisk(env.Cache, leastDisk); err != nil {
		return nil, withHint(err, "kbisect cache --prune 2 frees what was not used lately")
	}
	release, err := env.lockHost(ctx, "building "+label)
	if err != nil {
		return nil, err
	}
	defer release()
	k, err := b.Build(ctx, r)
	p.end(err)
	if err == nil {
		for _, o := range k.Overrides {
			env.UI.Debug("%s", o)
		}
	}
	return k, err
}

// require asks for programs before a long job that would end in their absence.
// With a fake compiler and machine nothing is required.
func (env *Env) require(programs []string) error {
	if env.compile != nil || env.boot != nil {
		return nil
	}
	return host.Require(programs...)
}

// lockHost takes this machine's turn to build or measure, and says whom it
// waits for.
func (env *Env) lockHost(ctx context.Context, purpose string) (func(), error) {
	dir, err := host.EnsureStateDir(env.State)
	if err != nil {
		return nil, err
	}
	return host.Lock(ctx, dir, purpose, func(owner string) { env.UI.Info("waiting for %s", owner) })
}

// blamesKernel reports whether a build error makes the revision untestable,
// rather than ending the run.
func blamesKernel(err error) bool {
	return errors.As(err, new(*kbuild.KernelError)) || errors.As(err, new(*kbuild.ConfigError))
}

// shorten keeps a reason readable in a table and a database.
func shorten(s string) string {
	s, _, _ = strings.Cut(s, "\n")
	if len(s) > 300 {
		s = strings.ToValidUTF8(s[:300], "") + "..."
	}
	return s
}
