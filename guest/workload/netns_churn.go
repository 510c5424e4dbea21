package workload

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"strconv"
	"time"

	"github.com/kbisect/kbisect/guest/proto"
	"golang.org/x/sys/unix"
)

// netnsChurn is the ip6mr report: network namespaces are made and left. The
// report's script (1,000 times unshare -n) saw the cost because its kernel
// dismantled a namespace while it made the next; today a worker does it later,
// so that what has to be measured is the time until the last one is freed.
type netnsChurn struct{}

func (netnsChurn) Name() string { return "netns-churn" }

// Cmdline keeps pktgen out, which starts and stops a thread for each CPU in every
// namespace: that took most of the time, and the kernel's configuration is the
// same for all workloads so that all share one build.
func (netnsChurn) Cmdline() []string { return []string{"initcall_blacklist=pg_init"} }

func (netnsChurn) Doc() string {
	return "makes network namespaces and leaves them, all at once or one after the other, " +
		"and waits until the kernel has freed the last of them; booted " +
		"without pktgen, whose threads in each of them would cost more than all else"
}

func (netnsChurn) Params() []Param {
	return []Param{
		{Name: "count", Default: "200", Unit: "namespaces", Min: 1, Max: 4000, Doc: "how many"},
		{Name: "mode", Default: "burst", Choices: []string{"burst", "serial"},
			Doc: "make all and then leave them together, or make the next when the last one is gone"},
		{Name: "mroute", Default: "true", Choices: onOff, Doc: "refuse a kernel without IPv6 multicast routing, whose socket each namespace closes"},
	}
}

func (netnsChurn) Metrics() []Metric {
	return []Metric{
		{Name: "elapsed", Unit: proto.Nanoseconds, Better: proto.Lower, Doc: "create and gone together"},
		{Name: "create", Unit: proto.Nanoseconds, Better: proto.Lower, Doc: "creation of all namespaces"},
		{Name: "gone", Unit: proto.Nanoseconds, Better: proto.Lower, Doc: "from leaving to the last one freed; serial: the sum of them"},
		{Name: "dismantle", Unit: proto.Nanoseconds, Better: proto.Lower, Dist: true, When: "mode=serial",
			Doc: "one namespace, from leaving to freed"},
	}
}

// othersMost is how many namespaces of others are looked for. In a guest there
// are none.
const othersMost = 32

// settle is how long a namespace may take to go that somebody has left: several
// grace periods.
const settle = 100 * time.Millisecond

// churnRun is a netns-churn that is set up.
type churnRun struct {
	env   Env
	count int
	limit string // as it was found
	home  int    // the namespace that we came from
	// reserve is a namespace that lives as long as the run. It was made to count
	// those of others; dropping it would be a dismantle more to wait for.
	reserve int
	stay    int   // how many namespaces stay: those of others, and the reserve
	fds     []int // what keeps the burst alive
}

func (netnsChurn) Setup(ctx context.Context, env Env) (Instance, error) {
	r := &churnRun{env: env, count: env.Params.Int("count"), home: -1, reserve: -1}
	var err error
	if r.limit, err = readLimit(); err != nil {
		return nil, err
	}
	if err := r.prepare(ctx); err != nil {
		return nil, errors.Join(err, r.Teardown())
	}
	return r, nil
}

// prepare makes room for the descriptors, counts the namespaces of others and
// checks that the reserve has what the run is about.
func (r *churnRun) prepare(ctx context.Context) error {
	if err := raiseFiles(uint64(r.count) + 64); err != nil {
		return err
	}
	var err error
	if r.home, err = openNamespace(); err != nil {
		return err
	}
	return r.away(func() error {
		if err := r.makeReserve(ctx); err != nil {
			return err
		}
		if !r.env.Params.On("mroute") {
			return nil
		}
		const table = "/proc/thread-self/net/ip6_mr_vif"
		if _, err := os.Stat(table); err != nil {
			return &UnsupportedError{Feature: "IPv6 multicast routing", Needs: "CONFIG_IPV6_MROUTE", Err: err}
		}
		return nil
	})
}

// raiseFiles lets the process have n open files.
func raiseFiles(n uint64) error {
	var lim unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &lim); err != nil {
		return fmt.Errorf("read limit on open files: %w", err)
	}
	if lim.Cur >= n {
		return nil
	}
	lim.Cur, lim.Max = n, max(n, lim.Max)
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &lim); err != nil {
		return fmt.Errorf("allow %d open files: %w", n, err)
	}
	return nil
}

// away runs fn, which may leave the thread in another namespace, and goes home.
// A thread that cannot is not given back: Go ends it with its goroutine.
func (r *churnRun) away(fn func() error) error {
	runtime.LockOSThread()
	err := fn()
	if herr := r.goHome(); herr != nil {
		return errors.Join(err, herr)
	}
	runtime.UnlockOSThread()
	return err
}

// goHome leaves the thread's namespace.
func (r *churnRun) goHome() error {
	if err := unix.Setns(r.home, unix.CLONE_NEWNET); err != nil {
		return fmt.Errorf("return from network namespace: %w", err)
	}
	return nil
}

// makeReserve enters the reserve, under the lowest limit that allows it, which
// tells how many namespaces there are. One that an earlier run left to the
// kernel's worker would be counted too, and its end be taken for one of ours: the
// number must be 0, or the same twice.
func (r *churnRun) makeReserve(ctx context.Context) error {
	for last := -1; ; {
		others, err := r.enterLowest()
		if err != nil {
			return err
		}
		if others == 0 || others == last {
			r.stay = others + 1
			r.reserve, err = openNamespace()
			return err
		}
		last = others
		if err := errors.Join(r.goHome(), ctx.Err()); err != nil {
			return err
		}
		time.Sleep(settle)
	}
}

// enterLowest makes a namespace under the lowest limit that allows one, and
// returns how many there were.
func (r *churnRun) enterLowest() (others int, err error) {
	for others := range othersMost + 1 {
		if err := setLimit(others + 1); err != nil {
			return 0, err
		}
		switch errno := unshareNet(); errno {
		case 0:
			return others, nil
		case unix.ENOSPC:
		case unix.EINVAL:
			// unshare(2) knows the flag only when the feature is built in.
			return 0, &UnsupportedError{Feature: "network namespaces", Needs: "CONFIG_NET_NS", Err: errno}
		default:
			return 0, fmt.Errorf("make network namespace: %w", errno)
		}
	}
	return 0, fmt.Errorf("more than %d network namespaces of others: their end would be taken for ours; "+
		"run in a guest, or a user namespace, that has none", othersMost)
}

func (r *churnRun) Run(ctx context.Context) (ops int64, err error) {
	err = r.away(func() error {
		if r.env.Params.Text("mode") == "serial" {
			return r.serial(ctx)
		}
		return r.burst(ctx)
	})
	if err != nil {
		return 0, err
	}
	return int64(r.count), r.restore()
}

// burst makes all namespaces, leaves them and waits for the last one's end. It
// returns inside another one.
func (r *churnRun) burst(ctx context.Context) error {
	create, err := r.createAll(ctx)
	if err != nil {
		return err
	}
	// The descriptors alone hold them now.
	if err := errors.Join(r.goHome(), setLimit(r.stay+1)); err != nil {
		return err
	}
	r.env.Rec.Phase("gone")
	left := r.env.Now()
	r.closeAll()
	freed, _, err := enterNext(ctx, r.env.Now, left)
	if err != nil {
		return err
	}
	r.report(create, freed-left)
	return r.checkGone()
}

// createAll makes the burst's namespaces and returns how long that took.
func (r *churnRun) createAll(ctx context.Context) (took int64, err error) {
	if err := setLimit(r.stay + r.count); err != nil {
		return 0, err
	}
	r.env.Rec.Phase("create")
	r.fds = make([]int, 0, r.count)
	begin := r.env.Now()
	for range r.count {
		if err := ctx.Err(); err != nil {
			return 0, err
		}
		if errno := unshareNet(); errno != 0 {
			return 0, refusedAt(len(r.fds)+1, r.count, errno)
		}
		fd, err := openNamespace()
		if err != nil {
			return 0, err
		}
		r.fds = append(r.fds, fd)
		r.env.Rec.Progress(int64(len(r.fds)), int64(r.count))
	}
	took = r.env.Now() - begin
	different := map[uint64]bool{}
	for _, fd := range r.fds {
		inode, err := inodeOf(fd)
		if err != nil {
			return 0, err
		}
		different[inode] = true
	}
	return took, r.env.Rec.Check("namespaces at once", int64(r.count), int64(len(different)))
}

// refusedAt explains why there are not more namespaces. pktgen starts a thread per
// CPU in each of them, and a small kernel has 4,096 process ids: ENODEV.
func refusedAt(n, of int, errno unix.Errno) error {
	hint := "give the guest more memory, or a smaller count"
	if _, err := os.Stat("/proc/thread-self/net/pktgen"); err == nil {
		hint = "use a kernel without CONFIG_PKTGEN, whose threads in each namespace use up the process ids, or a smaller count"
	}
	return fmt.Errorf("make network namespace %d of %d: %w (%s)", n, of, errno, hint)
}

// serial makes a namespace, leaves it and waits for its end, count times. What
// shows the end is that the next can be made, which is the next one.
func (r *churnRun) serial(ctx context.Context) error {
	if err := setLimit(r.stay + 1); err != nil {
		return err
	}
	r.env.Rec.Phase("dismantle")
	var create, gone, made int64
	_, took, err := enterNext(ctx, r.env.Now, r.env.Now())
	for ; err == nil && made < int64(r.count); made++ {
		create += took
		left := r.env.Now()
		if err := r.goHome(); err != nil {
			return err
		}
		var freed int64
		if freed, took, err = enterNext(ctx, r.env.Now, left); err != nil {
			break
		}
		r.env.Rec.Observe("dismantle", freed-left)
		gone += freed - left
		r.env.Rec.Progress(made+1, int64(r.count))
	}
	if err != nil {
		return err
	}
	r.report(create, gone)
	if err := r.env.Rec.Check("namespaces made", int64(r.count), made); err != nil {
		return err
	}
	return r.checkGone()
}

func (r *churnRun) report(create, gone int64) {
	r.env.Rec.Metric("create", float64(create))
	r.env.Rec.Metric("gone", float64(gone))
	r.env.Rec.Metric("elapsed", float64(create+gone))
}

// checkGone is called inside a namespace under a limit of one beside those that
// stay. That it could be made says that none of ours is left, unless one of
// others ended meanwhile: then there is room for a second, and the time is wrong.
func (r *churnRun) checkGone() error {
	var lost int64
	switch errno := unshareNet(); errno {
	case 0:
		lost = 1
	case unix.ENOSPC:
	default:
		return fmt.Errorf("make network namespace: %w", errno)
	}
	return r.env.Rec.Check("namespaces of others that ended meanwhile", 0, lost)
}

// restore sets the limit back, and checks that.
func (r *churnRun) restore() error {
	if err := writeLimit(r.limit); err != nil {
		return err
	}
	now, err := readLimit()
	if err != nil {
		return err
	}
	want, err1 := strconv.ParseInt(r.limit, 10, 64)
	got, err2 := strconv.ParseInt(now, 10, 64)
	if err := errors.Join(err1, err2); err != nil {
		return fmt.Errorf("read limit on network namespaces: %w", err)
	}
	return r.env.Rec.Check("limit restored", want, got)
}

// closeAll lets the burst go.
func (r *churnRun) closeAll() {
	for _, fd := range r.fds {
		// Nothing that could fail was written.
		_ = unix.Close(fd)
	}
	r.fds = nil
}

func (r *churnRun) Teardown() error {
	r.closeAll()
	for _, fd := range []int{r.reserve, r.home} {
		if fd >= 0 {
			_ = unix.Close(fd)
		}
	}
	return writeLimit(r.limit)
}

// openNamespace returns a descriptor that keeps the thread's namespace.
func openNamespace() (int, error) {
	fd, err := unix.Open("/proc/thread-self/ns/net", unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return -1, fmt.Errorf("open network namespace: %w", err)
	}
	return fd, nil
}

// inodeOf identifies a namespace among those that exist.
func inodeOf(fd int) (uint64, error) {
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return 0, fmt.Errorf("identify network namespace: %w", err)
	}
	return st.Ino, nil
}
