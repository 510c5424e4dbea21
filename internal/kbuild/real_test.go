package kbuild

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/kbisect/kbisect/internal/gitx"
	"github.com/kbisect/kbisect/internal/kconfig"
	"github.com/kbisect/kbisect/kconfigs"
)

// fragments returns the embedded configuration.
func fragments(t testing.TB) []*kconfig.Config {
	t.Helper()
	var all []*kconfig.Config
	for _, name := range kconfigs.Default() {
		text, err := kconfigs.Get(name)
		if err != nil {
			t.Fatal(err)
		}
		c, err := kconfig.Parse(kconfigs.FileName(name), strings.NewReader(string(text)))
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, c)
	}
	return all
}

// TestRealDev is for development.
func TestRealDev(t *testing.T) {
	repo, cache := os.Getenv("KB_REPO"), os.Getenv("KB_CACHE")
	if repo == "" {
		t.Skip("no KB_REPO")
	}
	b := Builder{Cache: cache, NoCcache: os.Getenv("KB_NOCCACHE") != ""}
	last := Phase("")
	begin := time.Now()
	k, err := b.Build(context.Background(), Request{GitDir: repo, Commit: os.Getenv("KB_COMMIT"), Fragments: fragments(t), Progress: func(p Phase, done, total int64) {
		if p != last || total > 0 && done%500 == 0 || done == total {
			t.Logf("%6.1fs %s %d/%d", time.Since(begin).Seconds(), p, done, total)
		}
		last = p
	}})
	if err != nil {
		t.Fatal(err)
	}
	defer k.Release()
	t.Logf("%+v", k)
	_ = gitx.Repo{}
	_ = filepath.Join
}
