package kbuild

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// rescue is a known reason for which an old kernel does not compile with a newer
// toolchain, and the flag that helps. None of them changes the code of what
// compiles without.
type rescue struct {
	seen   *regexp.Regexp // a line of the output
	except *regexp.Regexp // but not such a line
	flag   string
	where  place
	why    string // for the log
}

// place is where a rescue's flag goes.
type place int

const (
	first  place = iota // before the compiler's other flags: what these say themselves wins
	last                // behind them, since they say the contrary
	setenv              // a variable of make's environment
)

// rescues is the table. A tree gets a flag at its first such error, and keeps it.
var rescues = []rescue{
	{
		// The kernel proper asks for gnu89 or gnu11 itself; its boot code, real
		// mode code, EFI stub and some host tools took the compiler's default.
		seen:  regexp.MustCompile(`error: (?:cannot use keyword .(?:false|true|bool|nullptr|constexpr|typeof_unqual). as|.(?:bool|nullptr). cannot be (?:defined via .typedef.|used here))|error: (?:expected identifier|two or more data types).*before .(?:bool|false|true).|too many arguments to function .*; expected 0, have \d`),
		flag:  "-std=gnu11",
		where: first,
		why:   "gcc 15 compiles C23 by default, which has bool, true and false as keywords",
	},
	{
		// tools/objtool and its libsubcmd have -Werror whatever the kernel's
		// configuration says: gcc 12 and `realloc`, newer C libraries and strlcpy.
		// The exceptions are asked for one by one, and are the kernel's fault.
		seen:   regexp.MustCompile(`error: .*\[-Werror(?:=[-+\w]+=?)?\]$`),
		except: regexp.MustCompile(`\[-Werror=(?:implicit-function-declaration|implicit-int|return-type|strict-prototypes|date-time|incompatible-pointer-types|designated-init|int-conversion|vla)\]$`),
		flag:   "-Wno-error",
		where:  last,
		why:    "a newer compiler warns of more, and warnings are errors there",
	},
	{
		seen:  regexp.MustCompile("multiple definition of .yylloc'"),
		flag:  "-fcommon",
		where: first,
		why:   "gcc 10 no longer merges variables that are defined twice, as scripts/dtc did before 5.6",
	},
	{
		seen:  regexp.MustCompile(`error: .-mindirect-branch. and .-fcf-protection. are not compatible|error: .-fcf-protection\S* is not (?:compatible|supported)`),
		flag:  "-fcf-protection=none",
		where: first,
		why:   "this compiler protects branches by default, which kernels before 5.4 do not expect",
	},
	{
		// link-vmlinux.sh names this way out itself.
		seen:  regexp.MustCompile(`^Inconsistent kallsyms data`),
		flag:  "KALLSYMS_EXTRA_PASS=1",
		where: setenv,
		why:   "the table of symbols moved the symbols once more",
	},
}

// rescueOf returns the index of the rescue for a line of output, -1 for none.
func rescueOf(line string) int {
	return slices.IndexFunc(rescues, func(r rescue) bool {
		return r.seen.MatchString(line) && (r.except == nil || !r.except.MatchString(line))
	})
}

// rescue adds the flags that help against what out saw to those of the tree, and
// reports whether there are new ones: then it is worth trying again.
func (t *buildTree) rescue(log io.Writer, out *output) bool {
	more := false
	for i, r := range rescues {
		if !out.rescues[i] || slices.Contains(t.st.Rescue, r.flag) || !t.canRescue(r) {
			continue
		}
		// A failing log is noticed by the make.
		fmt.Fprintf(log, "kbisect: once more with %s: %s\n", r.flag, r.why)
		t.st.Rescue = append(slices.Clip(t.st.Rescue), r.flag)
		more = true
	}
	return more
}

// canRescue reports whether a flag can be given: a compiler that is named by its
// path is not found through PATH.
func (t *buildTree) canRescue(r rescue) bool {
	return r.where == setenv || filepath.Base(t.tools.CC) == t.tools.CC
}

// flags returns the tree's rescue flags of one place.
func (t *buildTree) rescueFlags(where place) []string {
	var flags []string
	for _, r := range rescues {
		if r.where == where && slices.Contains(t.st.Rescue, r.flag) {
			flags = append(flags, r.flag)
		}
	}
	return flags
}

// wrapCompilers puts scripts into dir, a folder on make's PATH, that add the
// rescue flags to the kernel's and the host's compiler. kbuild's command lines
// stay as they are, so that nothing that did compile is compiled again; and it
// reaches the parts of a kernel that set their flags anew.
func (t *buildTree) wrapCompilers(dir string) error {
	before, behind := t.rescueFlags(first), t.rescueFlags(last)
	if len(before)+len(behind) == 0 {
		return nil
	}
	for _, name := range []string{"gcc", t.tools.CC} {
		actual, err := exec.LookPath(name)
		if err != nil {
			continue // gcc beside another compiler: no host tool will find it either
		}
		// A probe of what the compiler can do gets no answer changed by -Wno-error.
		text := fmt.Sprintf(`#!/bin/sh
# Written by kbisect: this kernel does not compile without these flags.
cc=%[1]s
for arg; do
	case $arg in /dev/null | -) exec ${KBISECT_CCACHE:+"$KBISECT_CCACHE"} "$cc" %[2]s "$@" ;; esac
done
exec ${KBISECT_CCACHE:+"$KBISECT_CCACHE"} "$cc" %[2]s "$@" %[3]s
`, shellQuote(actual), strings.Join(before, " "), strings.Join(behind, " "))
		if err := writeTool(filepath.Join(dir, name), text); err != nil {
			return err
		}
	}
	return nil
}

// writeTool makes an executable script. A link that stands there is replaced,
// not followed.
func writeTool(path, text string) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return infra("write build tools", err)
	}
	err := os.RemoveAll(path)
	if err == nil {
		err = os.WriteFile(path, []byte(text), 0o755)
	}
	if err != nil {
		return infra("write build tools", err)
	}
	return nil
}

// shellQuote quotes a word for sh.
func shellQuote(s string) string { return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'" }
