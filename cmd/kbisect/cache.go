package main

import (
	"github.com/urfave/cli/v2"

	"github.com/kbisect/kbisect/internal/app"
)

func newCacheCommand(t *terminal) *cli.Command {
	var o app.CacheOptions
	return &cli.Command{
		Name:  "cache",
		Usage: "show what the cache holds, and free it",
		Description: `The cache holds kernel sources, build trees and built kernels. It is kept under
20 GiB by itself; what a live run needs is never removed.

Examples:
  kbisect cache
  kbisect cache --prune 5
  kbisect cache --clear`,
		Flags: []cli.Flag{
			&cli.Float64Flag{Name: "prune", Usage: "remove the least recently used down to `GIB`", Value: -1, DefaultText: "do not", Destination: &o.PruneGiB, Action: notNegative[float64]("prune")},
			&cli.BoolFlag{Name: "clear", Usage: "remove everything that is not in use", Destination: &o.Clear},
			jsonFlag(&o.JSON),
		},
		Action: func(c *cli.Context) error {
			if err := checkArgs(c, 0); err != nil {
				return err
			}
			return withEnv(t, c, false, func(env *app.Env) error { return app.Cache(c.Context, env, o, t.out) })
		},
	}
}
