package agent

import (
	"fmt"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"github.com/kbisect/kbisect/guest/proto"
	"golang.org/x/sys/unix"
)

// readFacts says where the agent runs. root is "/", or a folder with files like
// those of /proc and /sys. What a kernel does not tell stays empty.
func readFacts(root string) (proto.Hello, error) {
	var uts unix.Utsname
	if err := unix.Uname(&uts); err != nil {
		return proto.Hello{}, fmt.Errorf("read kernel release: %w", err)
	}
	var boot unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &boot); err != nil {
		return proto.Hello{}, fmt.Errorf("read boot time: %w", err)
	}
	return proto.Hello{
		Release:     unix.ByteSliceToString(uts.Release[:]),
		Version:     unix.ByteSliceToString(uts.Version[:]),
		Cmdline:     readLine(filepath.Join(root, "proc/cmdline")),
		CPUs:        runtime.NumCPU(),
		HZ:          tickRate(),
		Clocksource: readLine(filepath.Join(root, "sys/devices/system/clocksource/clocksource0/current_clocksource")),
		BootNS:      boot.Nano(),
	}, nil
}

func readLine(name string) string {
	b, err := os.ReadFile(name)
	if err != nil {
		return ""
	}
	return proto.CleanText(strings.TrimSpace(string(b)))
}

// tickRate returns HZ: the coarse clock advances once a tick, and its resolution
// is the tick's length. 0 when the kernel does not say.
func tickRate() int {
	var res unix.Timespec
	if err := unix.ClockGetres(unix.CLOCK_MONOTONIC_COARSE, &res); err != nil || res.Nano() <= 0 {
		return 0
	}
	return int(math.Round(1e9 / float64(res.Nano())))
}

// Bounds of measuring the clock. A jiffies clock of 100 Hz steps every 10 ms; one
// that stands still is given up after so many reads, which take about 0.2 s.
const (
	clockSteps = 64
	clockTime  = int64(25 * time.Millisecond)
	clockReads = 2_000_000
)

// resolution returns the smallest step of the clock that was seen, in ns: what
// it counts in, or how long reading it takes, whichever is larger. A clock that
// did not move has an hour as its step.
func resolution(now func() int64) int64 {
	begin := now()
	least, last := int64(time.Hour), begin
	for reads, steps := 0, 0; reads < clockReads && steps < clockSteps; reads++ {
		at := now()
		if at > last {
			least = min(least, at-last)
			last = at
			steps++
		}
		if steps >= 2 && at-begin > clockTime {
			break
		}
	}
	return least
}
