package vmtest

import (
	"fmt"
	"testing"
)

// newc makes one entry, padded as the format wants.
func newc(name, data string) string {
	pad := func(s string) string { return s + "\x00\x00\x00"[:-len(s)&3] }
	h := fmt.Sprintf("070701%08X%08X%08X%08X%08X%08X%08X%08X%08X%08X%08X%08X%08X", 0, 0, 0, 0, 1, 0, len(data), 0, 0, 0, 0, len(name)+1, 0)
	return pad(h+name+"\x00") + pad(data)
}

func TestNewcFile(t *testing.T) {
	archive := "\x00\x00\x00\x00" + newc("a", "old") + newc("TRAILER!!!", "") + "\x00\x00\x00\x00" + newc("d", "") + newc("a", "newer") + newc("TRAILER!!!", "")
	for name, want := range map[string]string{"a": "newer", "d": "", "none": ""} {
		if got := newcFile([]byte(archive), name); string(got) != want {
			t.Errorf("%s = %q, want %q", name, got, want)
		}
	}
	if got := newcFile([]byte(archive[:118]), "a"); got != nil {
		t.Errorf("a cut archive gave %q", got)
	}
}
