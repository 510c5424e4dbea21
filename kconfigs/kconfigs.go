// Package kconfigs holds the kernel configuration fragments that kbisect merges
// over tinyconfig: base.config, one file a feature that all kernels share, and
// optional ones (--kconfig NAME) for what a script needs besides. Each line that
// matters says why; base.config explains the notation (package internal/kconfig
// reads it).
//
//	for _, name := range kconfigs.Default() {
//		text, err := kconfigs.Get(name)
//		...
//	}
//
// An optional fragment repeats what it needs of another, so that each is complete
// over the shared ones.
package kconfigs

import (
	"embed"
	"fmt"
	"slices"
	"sort"
	"strings"
)

// Base is the fragment that every kernel needs; Own is the one that is merged
// over a .config of the user's, and over nothing else.
const (
	Base = "base"
	Own  = "own"
)

// Image is the fragment of a guest that is a disk image of the user's.
const Image = "image"

// net trims the network stack, which is the user's business in a .config of the
// user's; own.config has what it needs of it.
const net = "net"

const ext = ".config"

//go:embed *.config
var files embed.FS

// List returns the names of all fragments, sorted: "base", "dummy", ...
func List() []string {
	entries, err := files.ReadDir(".")
	if err != nil {
		panic("kconfigs: embedded folder: " + err.Error()) // it is part of the program
	}
	var names []string
	for _, e := range entries {
		names = append(names, strings.TrimSuffix(e.Name(), ext))
	}
	sort.Strings(names)
	return names
}

// shared are the fragments of the one configuration that all cases share, in
// merge order. The order is part of a kernel's key in the cache: any change here
// builds every kernel anew.
var shared = []string{Base, "dummy", "mroute", net, "netns", "pktgen", "qdisc", "veth", "vlan"}

// Default returns the fragments of the one configuration that all cases share,
// in merge order: base first, then what workloads of kbisect need. A shared
// configuration means one build tree, so that the second case builds
// incrementally. The slice is the caller's.
func Default() []string { return slices.Clone(shared) }

// Over returns the fragments that are merged over a .config of the user's: Own,
// which makes it boot, and every shared feature, which workloads need built in.
// The slice is the caller's.
func Over() []string {
	names := []string{Own}
	for _, n := range shared {
		if n != Base && n != net {
			names = append(names, n)
		}
	}
	return names
}

// Optional returns the names of the fragments that are merged only where they are
// asked for, sorted.
func Optional() []string {
	return slices.DeleteFunc(List(), func(n string) bool { return n == Own || slices.Contains(shared, n) })
}

// Get returns the text of the fragment name ("base", without ".config").
func Get(name string) ([]byte, error) {
	data, err := files.ReadFile(name + ext)
	if err != nil {
		return nil, fmt.Errorf("kconfig fragment %q: unknown; there are %s", name, strings.Join(List(), ", "))
	}
	return data, nil
}

// FileName is the name under which messages show the fragment.
func FileName(name string) string { return "kconfigs/" + name + ext }

// Summary returns what the fragment is for: the first sentence of its heading.
func Summary(name string) (string, error) {
	data, err := Get(name)
	if err != nil {
		return "", err
	}
	var head []string
	for _, line := range strings.Split(string(data), "\n") {
		text, ok := strings.CutPrefix(line, "#")
		if !ok || strings.TrimSpace(text) == "" {
			break
		}
		head = append(head, strings.TrimSpace(text))
	}
	text := strings.TrimPrefix(strings.Join(head, " "), name+ext+": ")
	if i := strings.Index(text, ". "); i >= 0 {
		text = text[:i]
	}
	return strings.TrimSuffix(text, "."), nil
}
