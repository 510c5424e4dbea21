package main

import (
	"io"
	"slices"
	"strings"
	"testing"
)

func TestFlagsFirst(t *testing.T) {
	a := newApp(&terminal{strings.NewReader(""), io.Discard, io.Discard})
	tests := []struct{ in, want string }{
		{"kbisect run nexthop-delete --kernel debian:6.1 -n", "kbisect run --kernel debian:6.1 -n nexthop-delete"},
		{"kbisect -q rejudge ID --threshold x>1", "kbisect -q rejudge --threshold x>1 ID"},
		{"kbisect run a --kernel=x b", "kbisect run --kernel=x a b"},
		{"kbisect run --good a -w w --bad b -- net/ --all", "kbisect run --good a -w w --bad b -- net/ --all"},
		{"kbisect boot vmlinux --memory 512 -- ip -br link", "kbisect boot --memory 512 vmlinux -- ip -br link"},
		{"kbisect run - --all", "kbisect run --all -"},
		{"kbisect run x --kernel", "kbisect run --kernel x"}, // cli says what is missing
		{"kbisect run x --unknown", "kbisect run --unknown x"},
		{"kbisect --version", "kbisect --version"},
		{"kbisect nothing a --b", "kbisect nothing a --b"},
		{"kbisect", "kbisect"},
		{"kbisect run a -k --generate-bash-completion", "kbisect run a -k --generate-bash-completion"},
	}
	for _, tt := range tests {
		in := strings.Fields(tt.in)
		if got := flagsFirst(a, slices.Clone(in)); strings.Join(got, " ") != tt.want {
			t.Errorf("%s: got %q", tt.in, got)
		}
	}
}
