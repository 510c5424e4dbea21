package source

import (
	"context"
	"errors"
	"strings"

	"github.com/kbisect/kbisect/internal/gitx"
)

// errNoKernel says that a tree has not what the top of every kernel tree has.
var errNoKernel = errors.New("not a kernel source: its top has no Kbuild, or no Makefile with VERSION and PATCHLEVEL")

// treeVersion returns the kernel version of a commit or tree, errNoKernel if it
// is none.
func treeVersion(ctx context.Context, repo gitx.Repo, rev string) (string, error) {
	// The version stands in the first lines.
	makefile, err := repo.ReadFile(ctx, rev, "Makefile", 64<<10)
	if err == nil {
		_, err = repo.ReadFile(ctx, rev, "Kbuild", 1)
	}
	if errors.As(err, new(*gitx.UnknownRevisionError)) {
		return "", errNoKernel
	}
	if err != nil {
		return "", err
	}
	version := makefileVersion(makefile)
	if version == "" {
		return "", errNoKernel
	}
	return version, nil
}

// makefileVersion returns VERSION.PATCHLEVEL[.SUBLEVEL][EXTRAVERSION] of a
// kernel's top Makefile, "" if it is none.
func makefileVersion(makefile string) string {
	got := map[string]string{}
	for _, line := range strings.Split(makefile, "\n") {
		name, value, ok := strings.Cut(line, "=")
		name = strings.TrimSpace(name)
		switch name {
		case "VERSION", "PATCHLEVEL", "SUBLEVEL", "EXTRAVERSION":
			if _, seen := got[name]; ok && !seen {
				got[name] = strings.TrimSpace(value)
			}
		}
	}
	if got["VERSION"] == "" || got["PATCHLEVEL"] == "" {
		return ""
	}
	version := got["VERSION"] + "." + got["PATCHLEVEL"]
	if got["SUBLEVEL"] != "" {
		version += "." + got["SUBLEVEL"]
	}
	return version + got["EXTRAVERSION"]
}
