package main

import (
	"github.com/urfave/cli/v2"

	"github.com/kbisect/kbisect/internal/app"
)

func newDoctorCommand(t *terminal) *cli.Command {
	var o app.DoctorOptions
	return &cli.Command{
		Name:  "doctor",
		Usage: "show what this machine has and lacks, and install it",
		Description: `Lists every tool, package, permission, the free disk, QEMU and its firmware, the
compiler, and the accelerator by proof: KVM counts only if a kernel of ours
booted with it. Exit code 4 if something needed is missing.

Examples:
  kbisect doctor
  kbisect doctor --install
  kbisect doctor --prove --json`,
		Flags: []cli.Flag{
			&cli.BoolFlag{Name: "install", Usage: "install what is missing (apt, dnf, zypper, pacman; as root or through sudo)", Destination: &o.Install},
			&cli.BoolFlag{Name: "dry-run", Aliases: []string{"n"}, Usage: "with --install: print the commands only", Destination: &o.DryRun},
			&cli.BoolFlag{Name: "prove", Usage: "prove the accelerator again, building a kernel if there is none", Destination: &o.Prove},
			jsonFlag(&o.JSON),
		},
		Action: func(c *cli.Context) error {
			if err := checkArgs(c, 0); err != nil {
				return err
			}
			u := t.newUI(c)
			defer u.Close()
			return app.Doctor(c.Context, u, o, t.out, t.err)
		},
	}
}
