package app

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/kbisect/kbisect/guest/proto"
	"github.com/kbisect/kbisect/guest/workload"
	"github.com/kbisect/kbisect/internal/initramfs"
	"github.com/kbisect/kbisect/internal/measure"
	"github.com/kbisect/kbisect/vm"
)

// MachineOptions is what the command line says of the guest.
type MachineOptions struct {
	Accel     string        `json:"accel"` // auto, kvm, tcg
	CPUs      int           `json:"cpus"`
	MemoryMiB int           `json:"memory_mib"`
	Append    string        `json:"append,omitempty"` // kernel parameters
	BootLimit time.Duration `json:"boot_limit,omitempty"`
	AnyLoad   bool          `json:"any_load,omitempty"` // keep runs made on a busy host

	// A disk image of the user's as the guest's system.
	Image     string `json:"image,omitempty"`
	ImageRoot string `json:"image_root,omitempty"` // device of its root file system
	SSHUser   string `json:"ssh_user,omitempty"`
	SSHKey    string `json:"ssh_key,omitempty"`
}

// DefaultMachine is what the command line starts from. Two CPUs are the least
// with which a grace period waits for somebody.
func DefaultMachine() MachineOptions {
	return MachineOptions{Accel: "auto", CPUs: 2, MemoryMiB: 1024}
}

// check refuses what no machine could be made of.
func (m *MachineOptions) check() error {
	switch m.Accel {
	case "auto", "kvm", "tcg":
	default:
		return Usagef("--accel auto", "--accel %q: want auto, kvm or tcg", m.Accel)
	}
	if m.BootLimit < 0 {
		return Usagef("", "--boot-limit %s: a limit cannot be negative", m.BootLimit)
	}
	if m.CPUs < 1 || m.CPUs > 16 {
		return Usagef("", "--cpus %d: want 1 to 16, which is NR_CPUS in kconfigs/base.config", m.CPUs)
	}
	if m.MemoryMiB < 128 || m.MemoryMiB > 1<<20 {
		return Usagef("", "--memory %d: want 128 MiB to 1 TiB", m.MemoryMiB)
	}
	return m.checkImage()
}

// agentPath is where the agent is put in the guest, on a tmpfs.
const agentPath = "/tmp/kbisect-agent"

// maxRecordBytes bounds what a guest can write into a run folder as records.
const maxRecordBytes = 64 << 20

// lab boots kernels and runs workloads on them, one at a time.
type lab struct {
	start   func(context.Context, vm.Spec) (vm.Machine, error) // qemu.Start
	initrd  string                                             // measuring initramfs: kbisect-init and nothing else
	agent   string
	files   []initramfs.File // of the user's, for a guest that has no initramfs
	script  string           // of the user's, "" for none
	machine MachineOptions
	accel   vm.Accel
	reason  string        // why this accelerator
	grace   time.Duration // beyond a workload's own limit; 0 is 15 s and a tenth
}

// job is one workload to run.
type job struct {
	workload string        // name[,key=value...]
	limit    time.Duration // of the workload alone
}

// trial is everything one boot gave.
type trial struct {
	outcome measure.Outcome
	err     error // what ended it, nil if the records did
	facts   vm.Facts
	hello   *proto.Hello
	output  string // what a script printed
	events  []vm.Event

	boot, push, first, work, total time.Duration // first: from exec of the agent to its first record
}

// spec describes the machine for a kernel image.
func (l *lab) spec(image, initrd, dir string) vm.Spec {
	return vm.Spec{
		Kernel: image, Initrd: initrd, Disk: l.machine.disk(), Accel: l.accel, Dir: dir,
		CPUs: l.machine.CPUs, MemoryMiB: l.machine.MemoryMiB,
		Cmdline: strings.Fields(l.machine.Append), Boot: l.machine.BootLimit,
	}
}

// run boots image in a fresh machine, runs the job and ends the machine. dir is
// made and gets the artifacts. A trial is returned whatever happens; only the
// context's end is an error.
func (l *lab) run(ctx context.Context, image string, j job, dir string) (trial, error) {
	var t trial
	begin := time.Now()
	var rep *proto.Report
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.err = &vm.InfraError{Op: "make run folder", Err: err}
	} else {
		rep, t.err = l.runIn(ctx, image, j, dir, &t)
	}
	t.total = time.Since(begin)
	if ctx.Err() != nil {
		return t, ctx.Err()
	}
	t.outcome = measure.Of(rep, t.err)
	if rep != nil {
		t.hello, t.output = rep.Hello, rep.Output
	}
	return t, nil
}

// runIn is run after its folder exists.
func (l *lab) runIn(ctx context.Context, image string, j job, dir string, t *trial) (rep *proto.Report, err error) {
	begin := time.Now()
	spec := l.spec(image, l.initrd, dir)
	spec.Cmdline = append(spec.Cmdline, cmdlineOf(j.workload)...)
	m, err := l.start(ctx, spec)
	t.boot = time.Since(begin)
	if err != nil {
		return nil, err
	}
	t.facts = m.Facts()
	events := make(chan []vm.Event, 1)
	go func() { events <- drain(m.Events()) }()
	defer func() {
		err = errors.Join(err, m.Close())
		t.events = <-events
		if err == nil {
			err = broken(t.events)
		}
	}()
	begin = time.Now()
	if err := l.push(ctx, m); err != nil {
		return nil, err
	}
	t.push = time.Since(begin)
	begin = time.Now()
	rep, err = l.runAgent(ctx, m, j, dir, t)
	t.work = time.Since(begin)
	return rep, err
}

// drain keeps the first events of a machine until it has ended. They are few:
// the machine drops what nobody reads, and a guest that repeats one for ever
// adds nothing.
func drain(ch <-chan vm.Event) []vm.Event {
	const most = 100
	var out []vm.Event
	for e := range ch {
		if len(out) < most && e.Kind != vm.EventExit {
			out = append(out, e)
		}
	}
	return out
}

// broken turns a fatal event that came behind a complete report into the error
// it is: numbers of a kernel that oopsed are not numbers.
func broken(events []vm.Event) error {
	for _, e := range events {
		if e.Kind.Fatal() {
			return &vm.CrashError{Event: e}
		}
	}
	return nil
}

// push puts the agent into the guest, and the user's script.
func (l *lab) push(ctx context.Context, m vm.Machine) error {
	if err := pushFile(ctx, m, l.agent, agentPath, 0o755); err != nil || l.script == "" {
		return err
	}
	if err := pushFiles(ctx, m, l.files); err != nil {
		return err
	}
	return m.Put(ctx, strings.NewReader(l.script), int64(len(l.script)), workload.ScriptPath, 0o755)
}

// pushFile puts a file of the host's into the guest.
func pushFile(ctx context.Context, m vm.Machine, from, to string, mode os.FileMode) error {
	f, err := os.Open(from)
	if err != nil {
		return &vm.InfraError{Op: "open file for the guest", Err: err}
	}
	defer f.Close()
	st, err := f.Stat()
	if err != nil {
		return &vm.InfraError{Op: "stat file for the guest", Err: err}
	}
	return m.Put(ctx, f, st.Size(), to, mode)
}

// stream collects the records of one agent run.
type stream struct {
	rep   *proto.Report
	err   error
	first time.Duration // from its begin to the first record
}

// whole reports whether the records came to an end of their own.
func (s stream) whole() bool {
	return s.err == nil && s.rep != nil && (s.rep.Done != nil || s.rep.Fail != nil)
}

// collect reads records until the last one, and calls over then: an agent with a
// thread stuck in the kernel never exits, and one that goes on talking is not
// listened to.
func collect(r *io.PipeReader, w *io.PipeWriter, keep io.Writer, nonce string, over func()) stream {
	var s stream
	begin := time.Now()
	s.rep, s.err = proto.Collect(io.TeeReader(r, keep), nonce, func(rec proto.Record) {
		if s.first == 0 {
			s.first = time.Since(begin)
		}
		if rec.Kind == proto.KindDone || rec.Kind == proto.KindFail {
			w.Close() // the end of the stream, whoever still writes
		}
	})
	r.CloseWithError(errStreamOver)
	over()
	return s
}

// runAgent runs the agent and reads its records as they come. Anything that the
// guest says is bounded before it is kept.
func (l *lab) runAgent(ctx context.Context, m vm.Machine, j job, dir string, t *trial) (*proto.Report, error) {
	nonce := newNonce()
	records, err := os.Create(filepath.Join(dir, "records.jsonl"))
	if err != nil {
		return nil, &vm.InfraError{Op: "create records", Err: err}
	}
	defer records.Close()

	// The workload ends itself a little before the host gives up on it, so that
	// a slow run still reports what it finished.
	limit := j.limit + orDefault(l.grace, 15*time.Second+j.limit/10)
	timed, stop := context.WithTimeout(ctx, limit)
	defer stop()
	running, over := context.WithCancelCause(timed)
	defer over(nil)
	pr, pw := io.Pipe()
	done := make(chan stream, 1)
	go func() {
		done <- collect(pr, pw, &bounded{w: records, left: maxRecordBytes}, nonce, func() { over(errStreamOver) })
	}()
	stderr := &bounded{w: io.Discard, left: 1 << 20, keep: 4096}
	err = m.Exec(running, vm.Command{
		Argv:   append(l.machine.asRoot(), agentPath, "-workload", j.workload, "-nonce", nonce, "-limit", j.limit.String()),
		Stdout: pw, Stderr: stderr,
	})
	pw.Close()
	s := <-done
	t.first = s.first
	if ctx.Err() != nil {
		return s.rep, ctx.Err()
	}
	return s.rep, agentError(err, s, errors.Is(timed.Err(), context.DeadlineExceeded), j, stderr)
}

var errStreamOver = errors.New("record stream is over")

// agentError decides which of the two endings, the command's and the stream's,
// says what happened. late is true when the host's own limit passed.
func agentError(exec error, s stream, late bool, j job, stderr *bounded) error {
	var exit *vm.ExitError
	var timeout *vm.TimeoutError
	switch {
	case s.whole() && !errors.As(exec, new(*vm.CrashError)):
		return nil // what the agent did behind its last record does not matter
	case errors.As(exec, &timeout):
		timeout.What, timeout.Limit = "workload", j.limit
		return timeout
	case late:
		return &vm.TimeoutError{What: "workload", Limit: j.limit}
	case exec != nil && !errors.As(exec, &exit) && !errors.Is(exec, context.Canceled):
		return exec
	case exit != nil:
		return &vm.InfraError{Op: "run agent", Err: fmt.Errorf("%w: %w%s", exit, orError(s.err), stderr.tail())}
	}
	return &vm.InfraError{Op: "read records", Err: orError(s.err)}
}

// orError stands in for the error of a stream that ended without one and without
// its last record.
func orError(err error) error {
	if err == nil {
		return proto.ErrNoDone
	}
	return err
}

// bounded passes on at most left bytes and drops the rest silently; it keeps
// the last keep bytes.
type bounded struct {
	w    io.Writer
	left int
	keep int
	last []byte
}

func (b *bounded) Write(p []byte) (int, error) {
	if n := min(len(p), b.left); n > 0 {
		b.left -= n
		if _, err := b.w.Write(p[:n]); err != nil {
			return 0, err
		}
	}
	if b.keep > 0 {
		b.last = append(b.last, p...)
		b.last = b.last[max(0, len(b.last)-b.keep):]
	}
	return len(p), nil
}

// tail is ": TEXT" of the last thing written, "" if nothing was.
func (b *bounded) tail() string {
	s := strings.TrimSpace(strings.ToValidUTF8(string(b.last), "?"))
	if s == "" {
		return ""
	}
	return ": " + s
}
