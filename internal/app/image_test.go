package app

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/kbisect/kbisect/kconfigs"
	"github.com/kbisect/kbisect/vm/vmtest"
)

func TestImageOptions(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		change func(*MachineOptions)
		want   string // "" for no error
	}{
		{func(m *MachineOptions) { m.Image, m.SSHKey = file, file }, ""},
		{func(m *MachineOptions) { m.Image = file }, "--image needs an --ssh-key"},
		{func(m *MachineOptions) { m.Image, m.SSHKey = file, "/no/such/key" }, "--ssh-key: open /no/such/key"},
		{func(m *MachineOptions) { m.Image, m.SSHKey = "/no/such/disk", file }, "--image: open /no/such/disk"},
		{func(m *MachineOptions) { m.SSHUser = "me" }, "belong to an --image"},
	} {
		m := DefaultMachine()
		c.change(&m)
		err := m.check()
		if c.want == "" && err != nil || c.want != "" && (!errors.As(err, new(*UsageError)) || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%+v: got %v, want %q", m, err, c.want)
		}
	}
	var o ConfigOptions
	m := MachineOptions{Image: file}
	for range 2 { // a resume asks again
		m.configure(&o)
	}
	if !slices.Equal(o.Extra, []string{kconfigs.Image}) {
		t.Errorf("fragments %q", o.Extra)
	}
	if got := (&MachineOptions{Image: file, SSHUser: "debian"}).asRoot(); !slices.Equal(got, []string{"sudo", "-n"}) {
		t.Errorf("debian becomes root by %q", got)
	}
}

// A guest on a disk gets the user's files over the wire.
func TestPushFiles(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "lib")
	if err := errors.Join(os.MkdirAll(filepath.Join(dir, "sub"), 0o755), os.WriteFile(filepath.Join(dir, "sub/b"), []byte("bb"), 0o644)); err != nil {
		t.Fatal(err)
	}
	s := ScriptOptions{Files: []string{dir + ":/opt/lib"}}
	files, err := s.extra()
	if err != nil {
		t.Fatal(err)
	}
	var m vmtest.Machine
	if err := pushFiles(t.Context(), &m, files); err != nil {
		t.Fatal(err)
	}
	if got := string(m.File("/opt/lib/sub/b")); got != "bb" {
		t.Errorf("the file has %q", got)
	}
	var made []string
	for _, c := range m.Execs() {
		made = append(made, strings.Join(c.Argv, " "))
	}
	if want := []string{"mkdir -p /opt/lib", "mkdir -p /opt/lib/sub"}; !slices.Equal(made, want) {
		t.Errorf("commands %q, want %q", made, want)
	}
}
