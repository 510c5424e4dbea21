package main

import (
	"github.com/urfave/cli/v2"

	"github.com/kbisect/kbisect/internal/app"
)

func newRunsCommand(t *terminal) *cli.Command {
	var o app.RunsOptions
	return &cli.Command{
		Name:  "runs",
		Usage: "list earlier runs",
		Description: `Examples:
  kbisect runs
  kbisect runs --last 3 --json
  kbisect runs --prune 30   (forget all but the newest 30, with their folders)`,
		Flags: []cli.Flag{
			&cli.IntFlag{Name: "last", Usage: "the newest `N` only", Destination: &o.Last},
			&cli.IntFlag{Name: "prune", Usage: "forget all but the newest `N`", Value: -1, Destination: &o.Prune, DefaultText: "keep all", Action: notNegative[int]("prune")},
			jsonFlag(&o.JSON),
		},
		Action: func(c *cli.Context) error {
			if err := checkArgs(c, 0); err != nil {
				return err
			}
			return withEnv(t, c, false, func(env *app.Env) error { return app.Runs(c.Context, env, o, t.out) })
		},
	}
}

func newShowCommand(t *terminal) *cli.Command {
	var asJSON, outcomes bool
	return &cli.Command{
		Name:         "show",
		Usage:        "show the result of an earlier run and its steps",
		ArgsUsage:    "[ID]",
		BashComplete: complete(runIDs(t, false)),
		Description: `ID is an id of kbisect runs or its beginning; the newest run if left out.

Examples:
  kbisect show
  kbisect show --steps 20261130-1542
  kbisect show --json`,
		Flags: []cli.Flag{
			&cli.BoolFlag{Name: "steps", Usage: "list every build and run", Destination: &outcomes},
			jsonFlag(&asJSON),
		},
		Action: func(c *cli.Context) error {
			if err := checkArgs(c, 1); err != nil {
				return err
			}
			return withEnv(t, c, false, func(env *app.Env) error {
				return app.Show(c.Context, env, c.Args().First(), outcomes, asJSON, t.out)
			})
		},
	}
}

func newResumeCommand(t *terminal) *cli.Command {
	var asJSON bool
	return &cli.Command{
		Name:         "resume",
		Usage:        "go on with an interrupted run, repeating no build and no finished run",
		ArgsUsage:    "[ID]",
		BashComplete: complete(runIDs(t, true)),
		Description: `ID is an id of kbisect runs or its beginning; the newest interrupted run if left
out.

` + exitHelp,
		Flags: []cli.Flag{jsonFlag(&asJSON)},
		Action: func(c *cli.Context) error {
			if err := checkArgs(c, 1); err != nil {
				return err
			}
			return withEnv(t, c, false, func(env *app.Env) error {
				res, err := app.Resume(c.Context, env, c.Args().First())
				return t.result(res, err, asJSON)
			})
		},
	}
}

func newRejudgeCommand(t *terminal) *cli.Command {
	var o app.RejudgeOptions
	var asJSON bool
	return &cli.Command{
		Name:         "rejudge",
		Usage:        "decide a search again under another threshold, without new runs",
		ArgsUsage:    "[ID]",
		BashComplete: complete(runIDs(t, false)),
		Description: `Outcomes are kept as values, so that another threshold or metric decides from the
same runs. Where they do not suffice the answer is "inconclusive". Nothing is
built, run or stored. ID is an id of kbisect runs or its beginning; the newest
run if left out.

Examples:
  kbisect rejudge --threshold 'flush>500ms'
  kbisect rejudge 20261130-1542 --metric elapsed

` + exitHelp,
		Flags: []cli.Flag{
			&cli.StringFlag{Name: "threshold", Usage: "`EXPR` such as 'flush>500ms': a run above it counts as bad", Destination: &o.Threshold},
			&cli.StringFlag{Name: "metric", Usage: "`METRIC[.stat]` to compare instead", Destination: &o.Metric},
			&cli.StringFlag{Name: "look-for", Usage: "`higher|lower`: how the bad end's numbers lie", DefaultText: "as in the run", Destination: &o.LookFor},
			jsonFlag(&asJSON),
		},
		Action: func(c *cli.Context) error {
			if err := checkArgs(c, 1); err != nil {
				return err
			}
			if err := checkSet(c, "threshold", "metric", "look-for"); err != nil {
				return err
			}
			return withEnv(t, c, false, func(env *app.Env) error {
				o.ID = c.Args().First()
				res, err := app.Rejudge(c.Context, env, o)
				return t.result(res, err, asJSON)
			})
		},
	}
}
