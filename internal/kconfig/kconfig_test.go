package kconfig

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/kbisect/kbisect/kconfigs"
)

func parse(t *testing.T, name, text string) *Config {
	t.Helper()
	c, err := Parse(name, strings.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func version(t *testing.T, s string) Version {
	t.Helper()
	v, err := ParseVersion(s)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

func TestParseLines(t *testing.T) {
	tests := []struct {
		line string
		want Symbol // Pos is filled in
	}{
		{"CONFIG_SMP=y", Symbol{Name: "SMP", Value: "y"}},
		{"  CONFIG_SMP=y\t\r", Symbol{Name: "SMP", Value: "y"}},
		{"CONFIG_SMP=y # any text: optional", Symbol{Name: "SMP", Value: "y"}},
		{"CONFIG_SMP=y # optional", Symbol{Name: "SMP", Value: "y", Optional: true}},
		{"CONFIG_SMP=y#optional; as it is slow", Symbol{Name: "SMP", Value: "y", Optional: true}},
		{"CONFIG_SMP=y # optionally", Symbol{Name: "SMP", Value: "y"}},
		{"CONFIG_A=m # kernels: <7.0", Symbol{Name: "A", Value: "m", Kernels: Range{Before: Version{7, 0}}}},
		{"CONFIG_A=m # kernels: >=5.11 <6.1.3; gone then", Symbol{Name: "A", Value: "m", Kernels: Range{Version{5, 11}, Version{6, 1, 3}}}},
		{"CONFIG_A=m # optional, kernels: >=5.11", Symbol{Name: "A", Value: "m", Optional: true, Kernels: Range{From: Version{5, 11}}}},
		{"# CONFIG_VT is not set", Symbol{Name: "VT", Value: "n"}},
		{"# CONFIG_VT is not set # optional", Symbol{Name: "VT", Value: "n", Optional: true}},
		{"CONFIG_VT=n", Symbol{Name: "VT", Value: "n"}},
		{`CONFIG_S="a # \" b"`, Symbol{Name: "S", Value: `"a # \" b"`}},
		{`CONFIG_S="" # optional`, Symbol{Name: "S", Value: `""`, Optional: true}},
		{"CONFIG_N=-4", Symbol{Name: "N", Value: "-4"}},
		{"CONFIG_X=0xFf", Symbol{Name: "X", Value: "0xFf"}},
	}
	for _, tt := range tests {
		c, err := Parse("f", strings.NewReader("# heading\n\n"+tt.line+"\n"))
		if err != nil {
			t.Errorf("%q: %v", tt.line, err)
			continue
		}
		tt.want.Pos = Pos{"f", 3}
		if diff := cmp.Diff([]Symbol{tt.want}, c.Symbols); diff != "" {
			t.Errorf("%q: (-want +got)\n%s", tt.line, diff)
		}
	}
}

func TestParseErrors(t *testing.T) {
	tests := []struct{ text, want string }{
		{"CONFIG_A=y\nfoo\n", `f:2: "foo" is neither`},
		{"CONFIG_A=", "f:1: CONFIG_A: it has no value"},
		{"CONFIG_A=yes", `value "yes" is not`},
		{"CONFIG_A=y m", `"m" follows the value`},
		{"CONFIG_A", "is not CONFIG_NAME=value"},
		{"CONFIG_A-B=y", "is not CONFIG_NAME=value"},
		{`CONFIG_A="x`, "its string has no end"},
		{"CONFIG_A=y # kernels: 7.0", "not one >=VERSION"},
		{"CONFIG_A=y # kernels: >=7 ", "want MAJOR.MINOR"},
		{"CONFIG_A=y # kernels: >=7.0 <6.0", "it is empty"},
		{"CONFIG_A=y\x00", "NUL byte"},
		{"# nothing\n", "it sets no CONFIG_ symbol"},
		{"CONFIG_A=" + strings.Repeat("1", maxLine+1), "f:1: line is longer"},
		{strings.Repeat("#\n", maxBytes/2) + "CONFIG_A=y\n", "larger than 16 MiB"},
	}
	for _, tt := range tests {
		_, err := Parse("f", strings.NewReader(tt.text))
		if err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%.40q: got %v, want %q", tt.text, err, tt.want)
		}
	}
	path := filepath.Join(t.TempDir(), "my file.config")
	if err := os.WriteFile(path, []byte("CONFIG_A=y\nx\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	var syntax *SyntaxError
	if _, err := ParseFile(path); !errors.As(err, &syntax) || syntax.Pos != (Pos{path, 2}) {
		t.Errorf("ParseFile: %v", err)
	}
	if _, err := ParseFile(path + "x"); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("ParseFile of nothing: %v", err)
	}
}

func TestHeaderVersion(t *testing.T) {
	c := parse(t, ".config", "#\n# Automatically generated file; DO NOT EDIT.\n# Linux/x86 6.1.192 Kernel Configuration\n#\nCONFIG_A=y\n")
	if c.Version != (Version{6, 1, 192}) {
		t.Errorf("version = %v", c.Version)
	}
}

func TestVersions(t *testing.T) {
	for _, tt := range []struct {
		text string
		want string // "" is an error
	}{
		{"6.1", "6.1"}, {"6.1.192", "6.1.192"}, {"7.2-rc3", "7.2"}, {"6.1.0-13-amd64", "6.1"},
		{"6.1.y", "6.1"}, {"6.1.", "6.1"}, {"5.10.223+", "5.10.223"},
		{"6", ""}, {"6.", ""}, {"", ""}, {"v6.1", ""}, {"6.999999999999999999999", ""},
	} {
		v, err := ParseVersion(tt.text)
		if (err != nil) != (tt.want == "") || err == nil && v.String() != tt.want {
			t.Errorf("ParseVersion(%q) = %v, %v", tt.text, v, err)
		}
	}
	r, err := ParseRange(">=5.10 <6.1.3")
	if err != nil {
		t.Fatal(err)
	}
	for text, want := range map[string]bool{"5.9.200": false, "5.10": true, "6.1.2": true, "6.1.3": false, "7.0": false} {
		if got := r.Contains(version(t, text)); got != want {
			t.Errorf("%v contains %s = %v", r, text, got)
		}
	}
	if r.Contains(Version{}) || !(Range{}).Contains(Version{}) {
		t.Error("an unknown version is in the unbounded range only")
	}
}

func TestMerge(t *testing.T) {
	base := parse(t, "base", "CONFIG_A=y\nCONFIG_B=y # optional\nCONFIG_V=y # kernels: <7.0\nCONFIG_V=n # kernels: >=7.0\n")
	user := parse(t, "user", "CONFIG_A=n\nCONFIG_B=y\nCONFIG_C=250\nCONFIG_C=1000\n")
	for _, tt := range []struct{ kernel, v string }{{"6.1", "y"}, {"7.2", "n"}} {
		got, over := Merge(base.For(version(t, tt.kernel)), user.For(version(t, tt.kernel)))
		var text bytes.Buffer
		if _, err := got.WriteTo(&text); err != nil {
			t.Fatal(err)
		}
		v := "CONFIG_V=y\n"
		if tt.v == No {
			v = "# CONFIG_V is not set\n"
		}
		want := "# CONFIG_A is not set\nCONFIG_B=y\nCONFIG_C=1000\n" + v
		if diff := cmp.Diff(want, text.String()); diff != "" {
			t.Errorf("(-want +got)\n%s", diff)
		}
		if len(over) != 1 || over[0].String() != "user:1: CONFIG_A=n overrides y of base:1" {
			t.Errorf("overrides = %v", over)
		}
		if b := got.find("B"); b.Optional {
			t.Error("B is optional, though one file needs it")
		}
	}
	if len(user.Dups) != 1 || user.Dups[0].String() != "user:4: CONFIG_C=1000 overrides 250 of user:3" {
		t.Errorf("dups = %v", user.Dups)
	}
}

func TestHash(t *testing.T) {
	a := parse(t, "a", "CONFIG_A=y\nCONFIG_B=\"x\"\n")
	same := parse(t, "b", "# other\nCONFIG_B=\"x\"\n\nCONFIG_A=y\nCONFIG_CC_VERSION_TEXT=\"gcc 13\"\n")
	if a.Hash() != same.Hash() {
		t.Error("order, comments or the compiler's text change the hash")
	}
	for _, text := range []string{"CONFIG_A=y\n", "CONFIG_A=m\nCONFIG_B=\"x\"\n", "CONFIG_A=y # optional\nCONFIG_B=\"x\"\n"} {
		if parse(t, "c", text).Hash() == a.Hash() {
			t.Errorf("%q has the same hash", text)
		}
	}
}

// TestHashFor: what is for other kernels does not count.
func TestHashFor(t *testing.T) {
	a := parse(t, "a", "CONFIG_A=y\n").For(Version{6, 1})
	b := parse(t, "b", "CONFIG_A=y # kernels: <7.0\nCONFIG_B=y # kernels: <6.0\n").For(Version{6, 1})
	if a.Hash() != b.Hash() {
		t.Error("lines for other kernels change the hash")
	}
}

func TestDrift(t *testing.T) {
	a := parse(t, "a", "CONFIG_A=y\nCONFIG_B=y\n# CONFIG_C is not set\nCONFIG_GCC_VERSION=120200\n")
	b := parse(t, "b", "CONFIG_A=m\nCONFIG_D=7\n# CONFIG_E is not set\nCONFIG_GCC_VERSION=130000\n")
	var got []string
	for _, c := range Drift(a, b) {
		got = append(got, c.String())
	}
	want := []string{"CONFIG_A: y -> m", "CONFIG_B: y -> n", "CONFIG_D: n -> 7"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
	if d := Drift(a, a); d != nil {
		t.Errorf("drift from itself: %v", d)
	}
}

const testKconfig = `
mainmenu "x"
config NET
	bool "Networking"
	help
	  if this were code
	  config WRONG

if NET
menu "Options"
	depends on EXPERT || !EMBEDDED

config INET
	bool "TCP/IP"
	depends on \
		BLOCK && (A=y || B!=m)
	select CRYPTO_LIB
endmenu
endif # NET

config CRYPTO_LIB
	bool
config COMPUTED
	def_bool $(success,true)
config MACRO
	bool "x"
	depends on $(cc-option,-m)
config BLOCK
	bool "b"
`

func TestCheckAndHints(t *testing.T) {
	dir := t.TempDir()
	for path, text := range map[string]string{"net/Kconfig.debug": testKconfig, "arch/arm/Kconfig": "config ARM\n\tbool \"arm\"\n"} {
		path = filepath.Join(dir, path)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	tree, err := ReadTree(dir)
	if err != nil {
		t.Fatal(err)
	}
	final := parse(t, ".config", "CONFIG_NET=y\nCONFIG_EXPERT=y\nCONFIG_B=m\nCONFIG_HEX=0xff\n# CONFIG_BLOCK is not set\n")
	tests := []struct{ want, miss string }{
		{"CONFIG_NET=y", ""},
		{"CONFIG_GONE=n", ""},
		{"CONFIG_HEX=0xFF", ""},
		{`CONFIG_EMPTY=""`, ""},
		{"CONFIG_INET=y # optional", ""},
		{"CONFIG_INET=y", "w:1: CONFIG_INET: wanted y, got n: depends on BLOCK && (A=y || B!=m) (BLOCK=n, A=n, B=m)"},
		{"CONFIG_WRONG=y", "w:1: CONFIG_WRONG: wanted y, got n: this kernel has no such symbol"},
		{"CONFIG_ARM=y", "w:1: CONFIG_ARM: wanted y, got n: this kernel has no such symbol"},
		{"CONFIG_CRYPTO_LIB=y", "w:1: CONFIG_CRYPTO_LIB: wanted y, got n: it cannot be set, only be selected by INET"},
		{"CONFIG_COMPUTED=y", "w:1: CONFIG_COMPUTED: wanted y, got n: it cannot be set: the kernel computes it"},
		{"CONFIG_MACRO=y", "w:1: CONFIG_MACRO: wanted y, got n"},
		{"CONFIG_NET=n", "w:1: CONFIG_NET: wanted n, got y"},
	}
	for _, tt := range tests {
		err := Check(parse(t, "w", tt.want+"\n"), final, tree.Hint)
		var check *CheckError
		switch {
		case tt.miss == "" && err != nil:
			t.Errorf("%s: %v", tt.want, err)
		case tt.miss == "":
		case !errors.As(err, &check) || len(check.Misses) != 1 || check.Misses[0].String() != tt.miss:
			t.Errorf("%s:\ngot  %v\nwant %s", tt.want, err, tt.miss)
		}
	}
	on := parse(t, ".config", "CONFIG_INET=y\nCONFIG_CRYPTO_LIB=y\n")
	if got := tree.Hint(Symbol{Name: "CRYPTO_LIB", Value: No}, on); got != "it is selected by INET" {
		t.Errorf("hint = %q", got)
	}
	err = Check(parse(t, "w", "CONFIG_X=y\nCONFIG_Y=y\n"), final, nil)
	if err == nil || !strings.Contains(err.Error(), "2 symbols did not survive:\n  w:1: CONFIG_X") {
		t.Errorf("two misses: %v", err)
	}
}

// TestEmbeddedFragments holds the fragments that are part of kbisect to the
// notation, for the kernels that it is for.
func TestEmbeddedFragments(t *testing.T) {
	for _, kernel := range []string{"5.10.223", "6.1.192", "6.12.30", "7.2.13"} {
		var all []*Config
		for _, name := range kconfigs.Default() {
			text, err := kconfigs.Get(name)
			if err != nil {
				t.Fatal(err)
			}
			c := parse(t, kconfigs.FileName(name), string(text))
			if len(c.Dups) > 0 {
				t.Errorf("%s: %v", name, c.Dups)
			}
			all = append(all, c.For(version(t, kernel)))
		}
		got, over := Merge(all...)
		if len(over) > 0 {
			t.Errorf("%s: fragments contradict each other: %v", kernel, over)
		}
		for _, must := range []string{"SMP", "PVH", "VIRTIO_CONSOLE", "IKCONFIG_PROC", "DEVTMPFS", "UNIX98_PTYS", "HZ_250"} {
			if s := got.find(must); s == nil || s.Value != "y" || s.Optional {
				t.Errorf("%s: %s is not wanted: %+v", kernel, must, s)
			}
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add("CONFIG_A=y # optional, kernels: >=5.10 <7.0; why\n# CONFIG_B is not set\nCONFIG_S=\"a\\\"b\"\n")
	f.Add("# Linux/x86 6.1.192 Kernel Configuration\nCONFIG_X=0x10\n")
	f.Fuzz(func(t *testing.T, text string) {
		c, err := Parse("f", strings.NewReader(text))
		if err != nil {
			return
		}
		// What was understood is written so that it is understood the same.
		c = c.For(Version{6, 1})
		if len(c.Symbols) == 0 {
			return
		}
		var b bytes.Buffer
		if _, err := c.WriteTo(&b); err != nil {
			t.Fatal(err)
		}
		again, err := Parse("f", &b)
		if err != nil {
			t.Fatalf("written text: %v", err)
		}
		if d := Drift(c, again); d != nil {
			t.Fatalf("drift: %v", d)
		}
	})
}

func FuzzExpr(f *testing.F) {
	f.Add("NET && (INET || !IPV6=m) && $(x)")
	final := &Config{Symbols: []Symbol{{Name: "NET", Value: "y"}}}
	f.Fuzz(func(_ *testing.T, text string) {
		e := evaluator{final: final, text: text}
		e.eval()
	})
}
