package main

import (
	"github.com/urfave/cli/v2"

	"github.com/kbisect/kbisect/internal/app"
)

func newBuildCommand(t *terminal) *cli.Command {
	var o app.BuildOptions
	return &cli.Command{
		Name:      "build",
		Usage:     "build a kernel and print where it is",
		ArgsUsage: "[REV]",
		Description: `Builds REV (default: the source as it is) with kbisect's kernel options and
prints the path of vmlinux. A kernel that was built before costs nothing.

Examples:
  kbisect build
  kbisect build --kernel ~/net-next v6.12
  kbisect build --kernel debian:7.2 --json`,
		Flags: append(kernelFlags(&o.Kernel, &o.Config),
			&cli.StringFlag{Name: "output", Aliases: []string{"o"}, Usage: "copy vmlinux to `FILE`", Destination: &o.Output, TakesFile: true},
			jsonFlag(&o.JSON)),
		Action: func(c *cli.Context) error {
			if err := checkArgs(c, 1); err != nil {
				return err
			}
			if err := checkSet(c, "kernel", "config", "output"); err != nil {
				return err
			}
			o.Revision = c.Args().First()
			return withEnv(t, c, false, func(env *app.Env) error {
				return app.Build(c.Context, env, o, t.out)
			})
		},
	}
}
