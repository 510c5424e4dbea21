package main

import (
	"github.com/urfave/cli/v2"

	"github.com/kbisect/kbisect/internal/app"
	"github.com/kbisect/kbisect/internal/report"
)

const runHelp = `For each CASE of the catalog (kbisect list cases), build the kernel with and
without its fix, boot both in QEMU in turn, run the case's workload, and say
what the fix does. With --patch and -w the patch is yours instead.

With --good and --bad, or --series, find the commit or patch that made the
workload's metric worse: the ends are measured first, then the revisions that
tell most a second, and the culprit is confirmed against its parent on fresh
boots. -- PATH... keeps the commits that change one of these paths.

Examples:
  kbisect run nexthop-delete
  kbisect run --kernel debian:6.12 netdev-wait-allrefs nexthop-delete
  kbisect run --kernel ~/net-next -w nexthop-delete,count=16384 nexthop-delete
  kbisect run --all --kernel debian:6.1
  kbisect run --sweep count=100,1000,4000,16384 nexthop-delete
  kbisect run --patch my.patch -w netdev-delete,count=200 --threshold 'elapsed>5s'
  kbisect run --kernel ~/net-next --good v6.1 --bad HEAD -w nexthop-delete --threshold 'flush>500ms' -- net/
  kbisect run --kernel debian:6.1 --series thread.mbox -w nexthop-delete,count=200
  kbisect run --kernel ~/net-next --series v6.1..topic --each -w netdev-delete
  kbisect run --script repro.sh --metric 'time[1].real' nexthop-delete
  kbisect run -e 'for i in {1..100}; do unshare -n true; done' netns-dismantle
  kbisect run --kernel ~/net-next --good v6.1 --bad HEAD --script test.sh --exit-is-verdict

SRC of --kernel is a git tree, a tarball, or debian:VERSION (the distribution's
source package, fetched without root). A patch that the tree already has is
taken out for "without"; one that it lacks is put in for "with".

` + exitHelp + `
Of several cases the first of 4, 2, 5, 3 that occurs decides.`

func newRunCommand(t *terminal) *cli.Command {
	o := app.DefaultRunOptions()
	var install, asJSON bool
	return &cli.Command{
		Name:         "run",
		Usage:        "measure kernels with and without a patch, or find the commit that changed them",
		ArgsUsage:    "[CASE...] | [-- PATH...]",
		Description:  runHelp,
		BashComplete: complete(caseNames),
		Flags: append(append(kernelFlags(&o.Kernel, &o.Config), machineFlags(&o.Machine)...),
			&cli.StringFlag{Name: "base", Usage: "revision of --kernel to start from", DefaultText: "HEAD", Destination: &o.Base},
			&cli.StringFlag{Name: "patch", Usage: "a patch `FILE` of yours instead of a case", Destination: &o.Patch, TakesFile: true},
			&cli.StringFlag{Name: "with", Usage: "the same, of a `FILE` that the tree must lack: it is put in for \"with\"", Destination: &o.With, TakesFile: true},
			&cli.StringFlag{Name: "without", Usage: "the same, of a `FILE` that the tree must have: it is taken out for \"without\"", Destination: &o.Without, TakesFile: true},
			&cli.StringFlag{Name: "workload", Aliases: []string{"w"}, Usage: "`NAME[,key=value...]` instead of the case's (kbisect list workloads)", Destination: &o.Workload},
			&cli.StringFlag{Name: "metric", Usage: "`METRIC[.stat]` to compare instead of the case's", Destination: &o.Metric},
			&cli.StringFlag{Name: "threshold", Usage: "`EXPR` such as 'flush>500ms': a run above it counts as slow", Destination: &o.Threshold},
			&cli.DurationFlag{Name: "limit", Usage: "stop a workload after this long; it is then no number", DefaultText: "the case's, or 5m; 30m in a sweep", Destination: &o.Limit},
			&cli.BoolFlag{Name: "timeout-is-bad", Usage: "count a run stopped at the limit as slow, not as untestable", Destination: &o.TimeoutIsBad},
			&cli.IntFlag{Name: "max-runs", Usage: "at most this many runs a side", Value: o.MaxRuns, Destination: &o.MaxRuns},
			&cli.DurationFlag{Name: "budget", Usage: "stop measuring after this long and report what is known", DefaultText: "none", Destination: &o.Budget},
			&cli.Float64Flag{Name: "min-ratio", Usage: "the smallest `FACTOR` that counts as a difference", Value: o.MinRatio, Destination: &o.MinRatio},
			&cli.BoolFlag{Name: "any-load", Usage: "keep runs made while the host was busy", Destination: &o.Machine.AnyLoad},
			&cli.BoolFlag{Name: "quick", Usage: "3 runs a side decide when every one is at least 2x apart (error probability 5 %)", Destination: &o.Quick},
			&cli.BoolFlag{Name: "measure-noop", Usage: "measure also when both kernels are identical", Destination: &o.MeasureNoop},
			&cli.StringFlag{Name: "catalog", Usage: "`DIR` with cases instead of the built-in catalog", Destination: &o.Catalog, TakesFile: true},
			&cli.BoolFlag{Name: "all", Usage: "every case of the catalog, in one table", Destination: &o.All},
			&cli.StringFlag{Name: "sweep", Usage: "measure at several values of a workload's parameter, `NAME=VALUE,VALUE...`, and fit how the cost grows, without a verdict", Destination: &o.Sweep},
			&cli.StringFlag{Name: "good", Usage: "the `REV` of --kernel that is good: the search begins behind it", Destination: &o.Good},
			&cli.StringFlag{Name: "bad", Usage: "the `REV` that is bad: the search ends at it", Destination: &o.Bad},
			&cli.StringSliceFlag{Name: "series", Usage: "search a series on --base: `MBOX|DIR|FILE...|A..B`", TakesFile: true,
				Action: func(_ *cli.Context, v []string) error { o.Series = v; return nil }},
			&cli.BoolFlag{Name: "each", Usage: "measure every patch of the series alone, with v without, instead of a search", Destination: &o.Each},
			&cli.StringFlag{Name: "look-for", Usage: "`higher|lower`: how the bad end's numbers lie", DefaultText: "what is worse", Destination: &o.LookFor},
			&cli.StringFlag{Name: "strategy", Usage: "`bayes|sprt`: sprt is a plain sequential test at the midpoints of git bisect, to compare with", DefaultText: "bayes", Destination: &o.Strategy},
			&cli.StringSliceFlag{Name: "fixup", Usage: "a patch `FILE` put into every kernel that it fits: a build fix, or what uncovers the regression", TakesFile: true,
				Action: func(_ *cli.Context, v []string) error { o.Fixup = v; return nil }},
			&cli.StringSliceFlag{Name: "suspect", Usage: "commits that change `PATH` are three times as likely",
				Action: func(_ *cli.Context, v []string) error { o.Suspect = v; return nil }},
			&cli.StringFlag{Name: "script", Usage: "run the shell script `FILE` in the guest as the workload, - for stdin: it has this machine's bash, ip, tc, ss, ethtool, coreutils, awk ...", TakesFile: true, Destination: &o.Script.Name},
			&cli.StringFlag{Name: "e", Usage: "run the shell command `CMD` as the workload", Destination: &o.Script.Text},
			&cli.StringSliceFlag{Name: "tool", Usage: "a further program of this machine for the script, with its libraries: `PROG`",
				Action: func(_ *cli.Context, v []string) error { o.Script.Tools = v; return nil }},
			&cli.StringSliceFlag{Name: "file", Usage: "a file or folder for the script, `HOST[:GUEST]`; it starts in /root", TakesFile: true,
				Action: func(_ *cli.Context, v []string) error { o.Script.Files = v; return nil }},
			&cli.IntFlag{Name: "exit-ok", Usage: "the exit `STATUS` by which the script says that all went well", Destination: &o.Script.ExitOK},
			&cli.BoolFlag{Name: "exit-is-verdict", Usage: "the script's exit status is the verdict, as for git bisect run: 0 good, 125 untestable, else bad", Destination: &o.Script.ExitIsVerdict},
			&cli.BoolFlag{Name: "dry-run", Aliases: []string{"n"}, Usage: "print the plan and its predicted cost, and stop", Destination: &o.DryRun},
			&cli.BoolFlag{Name: "install", Usage: "install missing host packages first", Destination: &install},
			jsonFlag(&asJSON),
		),
		Action: func(c *cli.Context) error {
			if err := checkArgs(c, -1); err != nil {
				return err
			}
			if err := checkSet(c, "kernel", "base", "patch", "with", "without", "workload", "metric", "threshold", "catalog", "config", "sweep", "good", "bad", "look-for", "strategy", "script", "e"); err != nil {
				return err
			}
			switch args := c.Args().Slice(); {
			case o.Good+o.Bad != "":
				o.Paths = args
			case len(o.Series) > 0: // a shell has expanded --series *.patch
				o.Series = append(o.Series, args...)
			default:
				o.Cases = args
			}
			if err := o.Script.Load(t.in); err != nil {
				return err
			}
			if asJSON && o.DryRun {
				return app.Usagef("", "--json and --dry-run exclude each other: a plan is text")
			}
			return withEnv(t, c, install, func(env *app.Env) error {
				res, err := app.Run(c.Context, env, o, t.out)
				return t.result(res, err, asJSON)
			})
		},
	}
}

// result prints what was found, if anything was, and returns how it ended.
func (t *terminal) result(res *report.Result, err error, asJSON bool) error {
	if res != nil {
		if werr := t.write(res, asJSON); werr != nil {
			return werr
		}
	}
	return err
}

func (t *terminal) write(res *report.Result, asJSON bool) error {
	if asJSON {
		return report.JSON(t.out, *res)
	}
	return report.Text(t.out, *res)
}

func jsonFlag(dst *bool) cli.Flag {
	return &cli.BoolFlag{Name: "json", Usage: "print one JSON document", Destination: dst}
}

func kernelFlags(kernel *string, config *app.ConfigOptions) []cli.Flag {
	return []cli.Flag{
		&cli.StringFlag{Name: "kernel", Aliases: []string{"k"}, EnvVars: []string{"KBISECT_KERNEL"},
			Usage: "`SRC`: a git tree, a tarball, or debian:VERSION (default: the distribution's)", Destination: kernel},
		&cli.StringSliceFlag{Name: "kconfig", Usage: "add a `NAME|FILE` of kernel options (kbisect list kconfigs)",
			Action: func(_ *cli.Context, v []string) error { config.Extra = v; return nil }},
		&cli.StringFlag{Name: "config", Usage: "your own .config `FILE` instead of kbisect's small one", Destination: &config.File, TakesFile: true},
	}
}

func machineFlags(m *app.MachineOptions) []cli.Flag {
	return []cli.Flag{
		&cli.StringFlag{Name: "accel", Usage: "auto, kvm or tcg; auto takes KVM only if a kernel has booted with it", Value: m.Accel, Destination: &m.Accel},
		&cli.IntFlag{Name: "cpus", Usage: "virtual CPUs", Value: m.CPUs, Destination: &m.CPUs},
		&cli.IntFlag{Name: "memory", Usage: "guest memory in `MiB`", Value: m.MemoryMiB, Destination: &m.MemoryMiB},
		&cli.StringFlag{Name: "append", Usage: "kernel `PARAMETERS` to add", Destination: &m.Append},
		&cli.DurationFlag{Name: "boot-limit", Usage: "give up on a boot after this long", DefaultText: "60s under TCG, 5m with --image", Destination: &m.BootLimit},
		&cli.StringFlag{Name: "image", Usage: "a `DISK` image (qcow2 or raw) with an sshd as the guest's system; it is not written", Destination: &m.Image, TakesFile: true},
		&cli.StringFlag{Name: "image-root", Usage: "`DEVICE` of its root file system", DefaultText: "/dev/vda1 if it has partitions, else /dev/vda", Destination: &m.ImageRoot},
		&cli.StringFlag{Name: "ssh-user", Usage: "`USER` that its sshd lets in: root, or one that may sudo without a password", DefaultText: "root", Destination: &m.SSHUser},
		&cli.StringFlag{Name: "ssh-key", Usage: "private key `FILE` that it lets in", Destination: &m.SSHKey, TakesFile: true},
	}
}

// withEnv opens kbisect's folders, installs what is missing if asked, and
// closes everything whatever f does.
func withEnv(t *terminal, c *cli.Context, install bool, f func(*app.Env) error) (err error) {
	u := t.newUI(c)
	defer u.Close()
	env, err := app.OpenEnv(u)
	if err != nil {
		return err
	}
	if install {
		if err := app.InstallMissing(c.Context, env, t.err); err != nil {
			return err
		}
	}
	return f(env)
}
