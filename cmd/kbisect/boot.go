package main

import (
	"os"

	"github.com/urfave/cli/v2"

	"github.com/kbisect/kbisect/internal/app"
)

func newBootCommand(t *terminal) *cli.Command {
	o := app.BootOptions{Machine: app.DefaultMachine()}
	return &cli.Command{
		Name:      "boot",
		Usage:     "boot a kernel and get a shell in it, or run one command",
		ArgsUsage: "KERNEL [-- CMD ARG...]",
		Description: `KERNEL is a vmlinux or bzImage, or what --kernel takes (it is then built). The
guest has the host's own bash, common tools, ip, tc, ss; nothing of the host is
writable from it and it has no network. The command's exit code is returned;
kbisect's own failures are exit code 4 and usage 1.

Examples:
  kbisect boot debian:6.1
  kbisect boot ./vmlinux -- uname -r
  kbisect boot --cpus 4 ~/net-next -- sh -c 'ip link add d type dummy && ip link'`,
		Flags: append(machineFlags(&o.Machine), kernelFlags(new(string), &o.Config)[1:]...),
		Action: func(c *cli.Context) error {
			args := c.Args().Slice()
			if len(args) == 0 {
				return app.Usagef("kbisect boot debian:6.1", "which kernel?")
			}
			o.Kernel, o.Argv = args[0], args[1:]
			if len(o.Argv) > 0 && o.Argv[0] == "--" {
				o.Argv = o.Argv[1:]
			} else if len(o.Argv) > 0 {
				return app.Usagef("kbisect boot KERNEL -- CMD ARG...", "unexpected argument %q", o.Argv[0])
			}
			o.Stdin, o.Stdout, o.Stderr = t.in, t.out, t.err
			if f, ok := t.in.(*os.File); ok {
				o.Terminal = f
			}
			return withEnv(t, c, false, func(env *app.Env) error {
				return app.Boot(c.Context, env, o)
			})
		},
	}
}
