package main

import (
	"github.com/urfave/cli/v2"

	"github.com/kbisect/kbisect/internal/app"
	"github.com/kbisect/kbisect/internal/report"
	"github.com/kbisect/kbisect/internal/thread"
)

func newReproCommand(t *terminal) *cli.Command {
	o := app.ReproOptions{RunOptions: app.DefaultRunOptions()}
	r := &o.RunOptions
	var install, asJSON bool
	return &cli.Command{
		Name:      "repro",
		Usage:     "read a mail thread and reproduce the regression that it reports",
		ArgsUsage: "THREAD",
		Description: `THREAD is an mbox (also .gz), a maildir, one mail, the text of a thread as web
archives print it, "-" for standard input, or a Message-ID or URL, which is
fetched from a public-inbox server (--lore).

It lists the patches, with the newest version of the series chosen, the scripts
and timing figures quoted in the text, and the trailers; and prints the lines of
kbisect run that would test them. Nothing of the thread is run on this machine:
scripts run in the guest only, which has no network and no folder of the host's.

With --kernel the patches are tried on that tree. One that a mailer or an archive
damaged (lost tabs, wrapped lines) is repaired where the tree leaves no doubt;
what was repaired is listed, and the patch is in the folder that is named.

Examples:
  kbisect repro thread.mbox.gz
  kbisect repro --kernel debian:6.1 --run thread.mbox
  kbisect repro --kernel ~/net-next --out fixes/ 20201016172914.643282-1-idosch@idosch.org
  kbisect repro --kernel debian:6.1 --file nexthop.batch --run thread.txt

` + exitHelp,
		Flags: append(append(kernelFlags(&r.Kernel, &r.Config), machineFlags(&r.Machine)...),
			&cli.StringFlag{Name: "lore", Usage: "fetch from the public-inbox server at `BASE`, or from a list of it", DefaultText: "the URL's, or " + thread.DefaultLore, Destination: &o.Lore},
			&cli.IntFlag{Name: "series-version", Usage: "take version `N` of the series", DefaultText: "the newest complete one", Destination: &o.Version},
			&cli.StringFlag{Name: "out", Usage: "write clean patches and scripts to `DIR`", DefaultText: "a folder of kbisect's own", Destination: &o.Out, TakesFile: true},
			&cli.BoolFlag{Name: "run", Usage: "run the best of the lines", Destination: &o.Run},
			&cli.StringFlag{Name: "base", Usage: "revision of --kernel to start from", DefaultText: "HEAD", Destination: &r.Base},
			&cli.StringFlag{Name: "workload", Aliases: []string{"w"}, Usage: "`NAME[,key=value...]` instead of the thread's script", Destination: &r.Workload},
			&cli.StringFlag{Name: "script", Usage: "`FILE` instead of the thread's script", TakesFile: true, Destination: &r.Script.Name},
			&cli.StringSliceFlag{Name: "tool", Usage: "a further program of this machine for the script: `PROG`",
				Action: func(_ *cli.Context, v []string) error { r.Script.Tools = v; return nil }},
			&cli.StringSliceFlag{Name: "file", Usage: "a file or folder for the script, `HOST[:GUEST]`; it starts in /root", TakesFile: true,
				Action: func(_ *cli.Context, v []string) error { r.Script.Files = v; return nil }},
			&cli.StringSliceFlag{Name: "fixup", Usage: "a patch `FILE` put into every kernel that it fits", TakesFile: true,
				Action: func(_ *cli.Context, v []string) error { r.Fixup = v; return nil }},
			&cli.StringFlag{Name: "metric", Usage: "`METRIC` to compare", DefaultText: "the time that the thread is about, or elapsed", Destination: &r.Metric},
			&cli.StringFlag{Name: "threshold", Usage: "`EXPR` such as 'time[1].real>2s'", Destination: &r.Threshold},
			&cli.IntFlag{Name: "exit-ok", Usage: "the exit `STATUS` by which the script says that all went well", Destination: &r.Script.ExitOK},
			&cli.BoolFlag{Name: "exit-is-verdict", Usage: "the script's exit status is the verdict", Destination: &r.Script.ExitIsVerdict},
			&cli.DurationFlag{Name: "limit", Usage: "stop a workload after this long", DefaultText: "5m", Destination: &r.Limit},
			&cli.IntFlag{Name: "max-runs", Usage: "at most this many runs a side", Value: r.MaxRuns, Destination: &r.MaxRuns},
			&cli.BoolFlag{Name: "quick", Usage: "3 runs a side decide when every one is at least 2x apart (error probability 5 %)", Destination: &r.Quick},
			&cli.BoolFlag{Name: "any-load", Usage: "keep runs made while the host was busy", Destination: &r.Machine.AnyLoad},
			&cli.BoolFlag{Name: "install", Usage: "install missing host packages first", Destination: &install},
			jsonFlag(&asJSON),
		),
		Action: func(c *cli.Context) error {
			if err := checkArgs(c, 1); err != nil {
				return err
			}
			if err := checkSet(c, "kernel", "base", "lore", "out", "workload", "script", "metric", "threshold", "config"); err != nil {
				return err
			}
			o.Thread, o.In = c.Args().First(), t.in
			if o.Thread == "" {
				return app.Usagef("kbisect repro thread.mbox", "which thread?")
			}
			if err := r.Script.Load(t.in); err != nil {
				return err
			}
			return withEnv(t, c, install, func(env *app.Env) error {
				res, err := app.Repro(c.Context, env, o, func(found report.Thread) error { return t.found(env, found, o.Run, asJSON) })
				return t.result(res, err, asJSON)
			})
		},
	}
}

// found prints what is in a thread: as the result, or before it.
func (t *terminal) found(env *app.Env, found report.Thread, more, asJSON bool) error {
	switch {
	case more:
		w := env.UI.Writer()
		defer w.Close()
		return report.ThreadText(w, found)
	case asJSON:
		return report.ThreadJSON(t.out, found)
	}
	return report.ThreadText(t.out, found)
}
