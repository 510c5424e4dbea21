package app

import (
	"os"
	"path/filepath"
	"testing"
)

// A scratch folder of a killed kbisect goes with the next boot; one in use stays.
func TestScratchSweepsLeftovers(t *testing.T) {
	env := &Env{State: t.TempDir()}
	used, release, err := env.scratch()
	if err != nil {
		t.Fatal(err)
	}
	left := filepath.Join(env.State, "boots", "left")
	if err := os.MkdirAll(left, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(left, lockName), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	_, release2, err := env.scratch()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(left); !os.IsNotExist(err) {
		t.Errorf("the folder of a dead process stayed: %v", err)
	}
	if _, err := os.Stat(used); err != nil {
		t.Errorf("the folder in use went: %v", err)
	}
	release()
	release2()
	if rest, _ := os.ReadDir(filepath.Join(env.State, "boots")); len(rest) > 0 {
		t.Errorf("left: %v", rest)
	}
}
