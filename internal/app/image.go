package app

import (
	"context"
	"os"
	"path"
	"slices"

	"github.com/kbisect/kbisect/internal/initramfs"
	"github.com/kbisect/kbisect/kconfigs"
	"github.com/kbisect/kbisect/vm"
)

// checkImage refuses an image that cannot be booted.
func (m *MachineOptions) checkImage() error {
	if m.Image == "" {
		if m.ImageRoot+m.SSHUser+m.SSHKey != "" {
			return Usagef("", "--image-root, --ssh-user and --ssh-key belong to an --image")
		}
		return nil
	}
	for flag, file := range map[string]string{"--image": m.Image, "--ssh-key": m.SSHKey} {
		if file == "" {
			return Usagef("ssh-keygen -t ed25519 -N '' -f FILE makes one; its .pub goes into the image's authorized_keys", "--image needs an --ssh-key")
		}
		f, err := os.Open(file)
		if err != nil {
			return Usagef("", "%s: %v", flag, err)
		}
		f.Close()
	}
	return nil
}

// configure adds the kernel options that an image needs.
func (m *MachineOptions) configure(c *ConfigOptions) {
	if m.Image != "" && !slices.Contains(c.Extra, kconfigs.Image) {
		c.Extra = append(slices.Clone(c.Extra), kconfigs.Image)
	}
}

// disk describes the image to a machine, nil if there is none.
func (m *MachineOptions) disk() *vm.Disk {
	if m.Image == "" {
		return nil
	}
	return &vm.Disk{Path: m.Image, Root: m.ImageRoot, User: m.SSHUser, Key: m.SSHKey}
}

// asRoot is what a command begins with that has to be root's.
func (m *MachineOptions) asRoot() []string {
	if m.Image == "" || m.SSHUser == "" || m.SSHUser == "root" {
		return nil
	}
	return []string{"sudo", "-n"}
}

// pushFiles puts files into a guest that runs from a disk.
func pushFiles(ctx context.Context, m vm.Machine, files []initramfs.File) error {
	var made []string
	for _, f := range files {
		dir := path.Dir(f.Path)
		if f.Mode.IsDir() {
			dir = f.Path
		}
		if !slices.Contains(made, dir) {
			if err := m.Exec(ctx, vm.Command{Argv: []string{"mkdir", "-p", dir}}); err != nil {
				return err
			}
			made = append(made, dir)
		}
		if f.Mode.IsDir() {
			continue
		}
		if err := pushFile(ctx, m, f.Source, f.Path, f.Mode.Perm()); err != nil {
			return err
		}
	}
	return nil
}
