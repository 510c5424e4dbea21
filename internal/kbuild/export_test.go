package kbuild

import (
	"context"
	"io"
	"os"

	"github.com/kbisect/kbisect/internal/kconfig"
)

// Configure makes the request's .config of the source of version v that is in
// dir/src, as Build does before it compiles, and returns it. The error is what
// Build would return. Nothing outside of dir is written.
func Configure(ctx context.Context, dir string, v kconfig.Version, r Request) (*kconfig.Config, error) {
	t, err := treeIn(ctx, dir, v, r)
	if err != nil {
		return nil, err
	}
	if err := t.configure(ctx, io.Discard); err != nil {
		return nil, err
	}
	return kconfig.ParseFile(t.dotConfig())
}

// TinyConfig makes what Configure begins with where a request has no Base. Given
// as its Base, it saves half of the time.
func TinyConfig(ctx context.Context, dir string) (*kconfig.Config, error) {
	t, err := treeIn(ctx, dir, kconfig.Version{}, Request{})
	if err != nil {
		return nil, err
	}
	if err := os.MkdirAll(t.obj(), 0o755); err != nil {
		return nil, err
	}
	return t.startConfig(ctx, io.Discard)
}

func treeIn(ctx context.Context, dir string, v kconfig.Version, r Request) (*buildTree, error) {
	tools, err := DetectToolchain(ctx, "")
	if err != nil {
		return nil, err
	}
	r.Fragments = forVersion(r.Fragments, v)
	r.Progress = func(Phase, int64, int64) {}
	return &buildTree{dir: dir, job: &job{Builder: Builder{Cache: dir, Jobs: 1, NoCcache: true}, Request: r, tools: tools, version: v}}, nil
}
