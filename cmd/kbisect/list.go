package main

import (
	"github.com/urfave/cli/v2"

	"github.com/kbisect/kbisect/internal/app"
)

func newListCommand(t *terminal) *cli.Command {
	var catalog string
	var asJSON bool
	return &cli.Command{
		Name:      "list",
		Usage:     "list cases, workloads with their parameters and metrics, and kernel option sets",
		ArgsUsage: "[cases|workloads|kconfigs]",
		Description: `Examples:
  kbisect list
  kbisect list workloads
  kbisect list --json cases`,
		Flags: []cli.Flag{
			&cli.StringFlag{Name: "catalog", Usage: "`DIR` with cases instead of the built-in catalog", Destination: &catalog, TakesFile: true},
			jsonFlag(&asJSON),
		},
		BashComplete: completeWords("cases", "workloads", "kconfigs"),
		Action: func(c *cli.Context) error {
			if err := checkArgs(c, 1); err != nil {
				return err
			}
			return app.List(t.out, c.Args().First(), catalog, asJSON)
		},
	}
}
