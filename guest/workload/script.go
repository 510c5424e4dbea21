package workload

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path"
	"strings"
	"syscall"
	"time"

	"github.com/kbisect/kbisect/guest/proto"
)

// Script is the name of the workload that runs a script of the user's.
const Script = "script"

// ScriptPath is where the host puts the script before it runs the workload.
const ScriptPath = "/tmp/kbisect-script"

// Settled is the metric of a script that ends when the kernel is through with
// what the script left to it.
const Settled = "settled"

// scriptDir is where a script starts, and where files of the user's are.
const scriptDir = "/root"

// scriptDrain is how long output that is in the pipe already may take to be read.
const scriptDrain = 200 * time.Millisecond

// scriptSkip is the exit status by which a script says that it cannot tell, as
// for git bisect run.
const scriptSkip = 125

// script runs a shell script, most often one that stood in a report. What it
// prints and each command it ran (set -x) are the run's transcript; what it
// reports are its own times, see scriptReader.
type script struct{}

func (script) Name() string { return Script }

func (script) Doc() string {
	return "runs a shell script of yours (--script FILE or -e CMD) with the host's own bash, ip and tc; " +
		"its metrics are elapsed, the times that `time` in it prints, and lines `kbisect-metric NAME VALUE UNIT`"
}

func (script) Params() []Param {
	return []Param{
		{Name: "exit-is-verdict", Default: "false", Choices: onOff, Doc: "its exit status is the verdict, as for git bisect run: 0 good, 125 untestable, else bad"},
		{Name: "exit-ok", Default: "0", Min: 0, Max: 255, Doc: "the exit status by which it says that all went well"},
		{Name: "settle", Default: "false", Choices: onOff, Doc: "wait until the network namespaces that it left are freed, and report settled"},
	}
}

func (script) Metrics() []Metric {
	return []Metric{
		{Name: "elapsed", Unit: proto.Nanoseconds, Better: proto.Lower, Doc: "the whole script"},
		{Name: "exit", Unit: proto.Count, Better: proto.Lower, Doc: "its exit status; another one than exit-ok is untestable unless exit-is-verdict"},
		{Name: Settled, Unit: proto.Nanoseconds, Better: proto.Lower, When: "settle=true",
			Doc: "the whole script, and until the kernel has freed the network namespaces that it left"},
	}
}

func (script) Setup(_ context.Context, env Env) (Instance, error) {
	argv, err := interpreter(ScriptPath)
	if err != nil {
		return nil, err
	}
	return &scriptRun{env: env, argv: argv}, nil
}

// interpreter returns the command that runs a script: its own "#!" line, but for
// shells bash with its trace on, and bash if it has none.
func interpreter(path string) ([]string, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("open script: %w", err)
	}
	defer f.Close()
	head := make([]byte, 256)
	n, err := io.ReadFull(f, head)
	if err != nil && !errors.Is(err, io.ErrUnexpectedEOF) && !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("read script: %w", err)
	}
	return interpreterOf(string(head[:n]), path), nil
}

func interpreterOf(head, script string) []string {
	words, name := Shebang(head)
	switch name {
	case "":
		return []string{"bash", "-x", script}
	case "sh", "bash", "dash": // all of them are bash in the guest: only it has `time`
		return append([]string{"bash", "-x"}, append(shellOptions(words), script)...)
	}
	return append(words, script)
}

// Shebang reads the "#!" line that a script begins with: its words, and the name
// of the interpreter, that behind env if it is env. Both are empty without one.
func Shebang(script string) (words []string, name string) {
	line, _, _ := strings.Cut(script, "\n")
	command, ok := strings.CutPrefix(line, "#!")
	if words = strings.Fields(command); !ok || len(words) == 0 {
		return nil, ""
	}
	name = path.Base(words[0])
	if name == "env" && len(words) > 1 {
		name = words[1]
	}
	return words, name
}

// shellOptions keeps the options of a "#!" line, "-e".
func shellOptions(words []string) (options []string) {
	for _, w := range words {
		if len(w) > 1 && w[0] == '-' {
			options = append(options, w)
		}
	}
	return options
}

// scriptRun is a script that is about to run.
type scriptRun struct {
	env  Env
	argv []string
}

func (r *scriptRun) Run(ctx context.Context) (int64, error) {
	r.env.Rec.Phase(Script)
	out, in, err := os.Pipe()
	if err != nil {
		return 0, fmt.Errorf("open pipe: %w", err)
	}
	defer out.Close()
	cmd := r.command(ctx, in)
	read := &scriptReader{}
	done := make(chan struct{})
	begin := r.env.Now()
	err = cmd.Start()
	in.Close()
	if err != nil {
		return 0, fmt.Errorf("start %s: %w", r.argv[0], err)
	}
	go func() {
		defer close(done)
		// Neither writer fails, so what ends it is the pipe's end or its deadline.
		_, _ = io.Copy(io.MultiWriter(r.env.Rec.Output(), read), out)
	}()
	err = cmd.Wait()
	elapsed := r.env.Now() - begin
	// What the script left in the background may hold the pipe for ever: what is
	// in it by now is read, no more.
	_ = out.SetReadDeadline(time.Now().Add(scriptDrain)) // a pipe of os.Pipe has deadlines
	<-done
	read.end()
	if err != nil && !errors.As(err, new(*exec.ExitError)) {
		return 0, fmt.Errorf("run script: %w", err)
	}
	if err := r.report(elapsed, exitStatus(cmd.ProcessState), read); err != nil {
		return 0, err
	}
	return 1, r.settle(ctx, begin)
}

// settle waits for what the script left behind, if that was asked.
func (r *scriptRun) settle(ctx context.Context, begin int64) error {
	if !r.env.Params.On("settle") {
		return nil
	}
	r.env.Rec.Phase("settle")
	at, err := awaitFreed(ctx, r.env.Now)
	if err != nil {
		return fmt.Errorf("wait for the end of network namespaces: %w", err)
	}
	r.env.Rec.Metric(Settled, float64(at-begin))
	return nil
}

// command is the script with all its output, and bash's trace, in one pipe: so
// they keep their order. It is a process group of its own.
func (r *scriptRun) command(ctx context.Context, in *os.File) *exec.Cmd {
	cmd := exec.CommandContext(ctx, r.argv[0], r.argv[1:]...)
	cmd.Stdout, cmd.Stderr = in, in
	cmd.ExtraFiles = []*os.File{in}
	// A trace on descriptor 3 stays out of what the script itself redirects.
	cmd.Env = append(os.Environ(), "BASH_XTRACEFD=3", "PS4=+ ")
	if _, err := os.Stat(scriptDir); err == nil {
		cmd.Dir = scriptDir
	}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	return cmd
}

// report gives the script's numbers to the recorder.
func (r *scriptRun) report(elapsed int64, status int, read *scriptReader) error {
	verdict := r.env.Params.On("exit-is-verdict")
	switch {
	case read.err != nil:
		return read.err
	case verdict && status == scriptSkip:
		return fmt.Errorf("the script exited with %d: it cannot tell", status)
	case status != r.env.Params.Int("exit-ok") && !verdict:
		return &ScriptError{Status: status, Last: read.last()}
	}
	r.env.Rec.Metric("elapsed", float64(elapsed))
	r.env.Rec.Metric("exit", float64(status))
	for _, m := range read.metrics {
		r.env.Rec.Define(Metric{Name: m.name, Unit: m.unit, Better: BetterOf(m.unit), Printed: true})
		r.env.Rec.Metric(m.name, m.value)
	}
	return nil
}

// BetterOf is which way a number of a script improves, by its unit.
func BetterOf(u proto.Unit) proto.Better {
	if u == proto.PerSecond {
		return proto.Higher
	}
	return proto.Lower
}

// ScriptError says that a script failed.
type ScriptError struct {
	Status int
	Last   string // what it printed last, "" if nothing
}

func (e *ScriptError) Error() string {
	text := fmt.Sprintf("the script exited with status %d", e.Status)
	if e.Last != "" {
		text += "; its last words: " + e.Last
	}
	return text
}

func (r *scriptRun) Teardown() error { return nil }

// exitStatus is the status that a shell would show.
func exitStatus(s *os.ProcessState) int {
	if w, ok := s.Sys().(syscall.WaitStatus); ok && w.Signaled() {
		return 128 + int(w.Signal())
	}
	return s.ExitCode()
}
