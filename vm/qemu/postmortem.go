package qemu

import (
	"context"
	"strings"
	"time"

	"github.com/kbisect/kbisect/vm"
)

const (
	postMortemLimit = 5 * time.Second        // of each question
	answerWait      = 500 * time.Millisecond // for the kernel's answer on the console
	maxPostMortem   = 200                    // lines
)

// postMortem asks QEMU where the CPUs of a hung guest are, and makes the kernel
// say it by an NMI. It takes a second; what fails is left out.
func (i *instance) postMortem(ctx context.Context) []string {
	ctx, cancel := context.WithTimeout(ctx, postMortemLimit)
	defer cancel()
	var lines []string
	select {
	case <-i.connected:
	case <-ctx.Done():
	}
	if text, err := i.monitor.Human(ctx, "info registers -a"); err == nil {
		lines = append(lines, instructionPointers(text)...)
	}
	before := i.console.Lines()
	if err := i.monitor.Do(ctx, "inject-nmi", nil, nil); err == nil {
		lines = append(lines, i.consoleSince(ctx, before)...)
	}
	return lines[:min(len(lines), maxPostMortem)]
}

// instructionPointers shortens "info registers -a" to a line a CPU.
func instructionPointers(text string) []string {
	var lines []string
	cpu := ""
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		if strings.HasPrefix(line, "CPU#") {
			cpu = line
		}
		if strings.HasPrefix(line, "RIP=") {
			lines = append(lines, cpu+" "+line)
		}
	}
	return lines
}

// consoleSince waits for the kernel's answer and returns the lines that the
// console has had since it had before of them, at most what its ring holds.
func (i *instance) consoleSince(ctx context.Context, before int64) []string {
	t := time.NewTimer(answerWait)
	defer t.Stop()
	select {
	case <-t.C:
	case <-i.exited:
	case <-ctx.Done():
	}
	tail := i.console.Tail()
	n := int(min(i.console.Lines()-before, int64(len(tail))))
	return tail[len(tail)-n:]
}

// sysrq asks a guest whose init still answers for its blocked tasks and what
// its CPUs do.
func (m *Machine) sysrq(ctx context.Context) []string {
	var lines []string
	for _, letter := range []string{"w", "l"} {
		before := m.inst.console.Lines()
		ctx, cancel := context.WithTimeout(ctx, postMortemLimit)
		err := m.ssh.Exec(ctx, vm.Command{Argv: []string{"@sysrq", letter}})
		if err == nil {
			lines = append(lines, m.inst.consoleSince(ctx, before)...)
		}
		cancel()
		if err != nil {
			break
		}
	}
	return lines[:min(len(lines), maxPostMortem)]
}
