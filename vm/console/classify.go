package console

import (
	"regexp"
	"strings"

	"github.com/kbisect/kbisect/vm"
)

// stamp is what printk may put before a message: a level, the time, and with
// CONFIG_PRINTK_CALLER the task or CPU.
var stamp = regexp.MustCompile(`^(<\d+>)?\[ *\d+\.\d{6}\](\[ *[TC]\d+\])? ?`)

// strip removes printk's stamp from a line.
func strip(line string) string {
	if !strings.HasPrefix(line, "[") && !strings.HasPrefix(line, "<") {
		return line
	}
	return line[len(stamp.FindString(line)):]
}

// dieLine ends the first line of a CPU exception's report: "Oops: 0000 [#1] SMP".
var dieLine = regexp.MustCompile(`(: [0-9a-f]{4} |, maybe for address .* |: .* )\[#\d+\]`)

// hungTask is khungtaskd's report; since 6.15 it may say what on.
var hungTask = regexp.MustCompile(`^INFO: task .+ blocked .*for more than \d+ seconds`)

// harmlessBUG lists what debugging options report as BUG although the kernel
// goes on as before: the run can still be trusted.
var harmlessBUG = []string{
	"BUG: sleeping function called from invalid context",
	"BUG: using ", // ... smp_processor_id() in preemptible code
	"BUG: KCSAN:",
	"BUG: MAX_LOCKDEP_",
	"BUG: MAX_LOCK_DEPTH",
	"BUG: MAX_STACK_TRACE_ENTRIES",
	"BUG: memory leak",
}

// Classify says what a console line, without printk's stamp, means. ok is false
// for nearly all of them. The first line of a report counts; what follows it
// (registers, a trace) means nothing by itself.
func Classify(m string) (kind vm.EventKind, ok bool) {
	switch {
	case strings.HasPrefix(m, "Kernel panic - not syncing"):
		return vm.EventPanic, true
	case strings.HasPrefix(m, "unregister_netdevice: waiting for "):
		return vm.EventNetdevWait, true
	case isLockup(m):
		return vm.EventSoftLockup, true
	case isRCUStall(m):
		return vm.EventRCUStall, true
	case hungTask.MatchString(m):
		return vm.EventHungTask, true
	case hasAnyPrefix(m, harmlessBUG...), hasAnyPrefix(m, "WARNING: ", "UBSAN: "):
		return vm.EventWarning, true
	case hasAnyPrefix(m, "BUG: ", "kernel BUG at ", "BUG at "):
		return vm.EventBUG, true
	case strings.HasPrefix(m, "Oops: "), hasAnyPrefix(m, "general protection fault", "divide error", "invalid opcode", "int3", "stack segment", "double fault") && dieLine.MatchString(m):
		return vm.EventOops, true
	case hasAnyPrefix(m, "Out of memory: ", "Memory cgroup out of memory: "), strings.Contains(m, " invoked oom-killer: "):
		return vm.EventOOM, true
	}
	return "", false
}

// isLockup matches the watchdogs' reports of a CPU or a workqueue that does not
// get on.
func isLockup(m string) bool {
	m = strings.TrimPrefix(m, "watchdog: ")
	return hasAnyPrefix(m, "BUG: soft lockup - CPU", "BUG: workqueue lockup - ",
		"Watchdog detected hard LOCKUP on cpu", "CPU") && strings.Contains(strings.ToLower(m), "lockup")
}

// isRCUStall matches what kernel/rcu prints when a grace period does not end.
func isRCUStall(m string) bool {
	m = strings.TrimPrefix(m, "rcu: ")
	m = strings.TrimPrefix(m, "INFO: ")
	if !strings.HasPrefix(m, "rcu") {
		return false
	}
	for _, s := range []string{
		" self-detected stall on CPU", " detected stalls on CPUs/tasks", " detected expedited stalls on CPUs/tasks",
		" kthread starved for ", " kthread timer wakeup didn't happen for ",
	} {
		if strings.Contains(m, s) {
			return true
		}
	}
	return false
}

func hasAnyPrefix(s string, prefixes ...string) bool {
	for _, p := range prefixes {
		if strings.HasPrefix(s, p) {
			return true
		}
	}
	return false
}
