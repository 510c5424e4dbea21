package kbuild

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/kbisect/kbisect/internal/proc"
)

// A perturbed layout is the same objects with gaps between their code. kbuild
// runs `ld` by that name, so a script of that name stands in front of it on
// PATH. It knows the links of vmlinux by their output and --whole-archive, takes
// the archives behind that apart, and puts an object with 0 to 15 times 16 bytes
// of never executed code before each member. The gap depends on the layout's
// number and the member's name alone: a kernel with a patch and one without it
// are perturbed alike. The order of the members stays, since initcalls run in it.
//
// Nothing is compiled, and no command line changes; linked anew is what depends on
// vmlinux.o. For 6.1 on two busy cores it took 21 s, of which make's walk through
// the unchanged tree is 12, where a first build took 614. 74 % of the functions
// move within their cache lines and 93 % within their pages.

// layoutStep is the granularity of the gaps, in bytes: the alignment that gcc
// gives functions, so that a gap is not swallowed by the next one's.
const layoutStep = 16

// layoutSizes is the number of gaps, the empty one included.
const layoutSizes = 16

// layoutScript is the linker in front of the linker. awk's numbers are exact up
// to 2^53; none here is above 2^46.
const layoutScript = `#!/bin/sh
# Written by kbisect: links vmlinux with gaps between the code of its objects.
ld=%s
case " $* " in
*' -o '*vmlinux*) ;;
*) exec "$ld" "$@" ;;
esac
case " $* " in
*' --whole-archive '*.a' '*) ;;
*) exec "$ld" "$@" ;;
esac
args=.kbisect-layout.$$
for arg; do printf '%%s\n' "$arg"; done | awk -v layout=%d -v sizes=%d -v dir=%s '
function gap(name,    i, h) {
	h = layout * 7919 + 1
	for (i = 1; i <= length(name); i++)
		h = (h * 31 + index(set, substr(name, i, 1))) %% 2147483647
	for (i = 0; i < 3; i++)
		h = (h * 16807 + 12345) %% 2147483647
	h = int(h / 97) %% sizes
	if (h)
		print dir "/" h ".o"
}
function member(name) {
	gap(name)
	print name
	members++
}
function expand(archive,    list, name, line) {
	list = "ar t " archive
	while ((list | getline name) > 0) {
		if ((getline line < name) < 0) { # not a thin archive: its members are no files
			close(list)
			member(archive)
			return
		}
		close(name)
		member(name)
	}
	close(list)
}
BEGIN { set = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_./-+" }
$0 == "--whole-archive" { whole = 1 }
$0 == "--no-whole-archive" { whole = 0 }
whole && /\.a$/ { expand($0); next }
{ print }
END { exit members == 0 }' >"$args" || exit 1
"$ld" @"$args"
status=$?
rm -f "$args"
exit $status
`

// linked are kbuild's files that a layout changes: without them, make links.
var linked = []string{"vmlinux", "vmlinux.o", "vmlinux.unstripped"}

// setLayout makes the tree one of the job's layout. What another layout has
// linked is removed first, so that neither is ever taken for the other, whenever
// this is interrupted.
func (t *buildTree) setLayout() error {
	if t.st.Layout == t.Layout {
		return nil
	}
	for _, name := range linked {
		if err := os.Remove(filepath.Join(t.obj(), name)); err != nil && !errors.Is(err, os.ErrNotExist) {
			return infra("clean build tree", err)
		}
	}
	t.st.Layout, t.st.Built = t.Layout, ""
	return t.save()
}

// prepareLayout writes the tools of a perturbed link.
func (t *buildTree) prepareLayout(ctx context.Context) error {
	if t.Layout == 0 {
		return nil
	}
	ld, err := exec.LookPath("ld")
	if err != nil {
		return &InfraError{Op: "find build tools", Err: errors.New("ld is not installed"), Hint: hintInstall}
	}
	dir := t.layoutDir()
	text := fmt.Sprintf(layoutScript, shellQuote(ld), t.Layout, layoutSizes, shellQuote(dir))
	if err := writeTool(filepath.Join(dir, "ld"), text); err != nil {
		return err
	}
	return writeGaps(ctx, dir)
}

func (t *buildTree) layoutDir() string { return filepath.Join(t.dir, "layout") }

// writeGaps assembles the objects that make the gaps: 15 runs of as, 0.1 s.
func writeGaps(ctx context.Context, dir string) error {
	for n := 1; n < layoutSizes; n++ {
		// nop: objtool knows it as a filler. No note says what the code uses, so
		// that the notes of the kernel's own objects stay what they are.
		c := proc.Command(ctx, "as", "--64", "-mx86-used-note=no", "-o", filepath.Join(dir, fmt.Sprint(n)+".o"), "-")
		c.Env = toolEnv()
		c.Stdin = strings.NewReader(fmt.Sprintf(".text\n.balign %d\n.fill %d, 1, 0x90\n.section .note.GNU-stack, \"\", @progbits\n", layoutStep, n*layoutStep))
		out, err := c.CombinedOutput()
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case errors.Is(err, exec.ErrNotFound):
			return &InfraError{Op: "find build tools", Err: errors.New("as is not installed"), Hint: hintInstall}
		case err != nil:
			return &InfraError{Op: "assemble a gap", Err: fmt.Errorf("%w: %s", err, strings.TrimSpace(string(out)))}
		}
	}
	return nil
}
