package host

import (
	"context"
	"fmt"
	"runtime"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// Sample is how busy the host is at one moment. Two of them, before and after a
// run, tell what happened in between; see Between.
type Sample struct {
	At       time.Time     `json:"at"`
	CPUs     int           `json:"cpus"`
	Load1    float64       `json:"load1"`    // runnable tasks, mean of a minute
	Pressure float64       `json:"pressure"` // share of 10 s in which a task waited for a CPU, 0 to 1; 0 without PSI
	Busy     time.Duration `json:"busy_ns"`  // CPU time used since boot, by everybody
	Steal    time.Duration `json:"steal_ns"` // CPU time that the hypervisor gave to others
	Own      time.Duration `json:"own_ns"`   // CPU time of this process and its ended children
}

// Load samples the host's load. It does not block.
func Load(ctx context.Context) (Sample, error) {
	if err := ctx.Err(); err != nil {
		return Sample{}, err
	}
	return (Options{}).system().load()
}

func (s *system) load() (Sample, error) {
	sample := Sample{At: time.Now(), CPUs: cpus(), Own: ownTime()}
	stat := s.read("/proc/stat")
	if err := sample.parseStat(stat); err != nil {
		return Sample{}, fmt.Errorf("read /proc/stat: %w", err)
	}
	one, _, _ := strings.Cut(s.read("/proc/loadavg"), " ")
	sample.Load1, _ = strconv.ParseFloat(one, 64)                 // 0 when it cannot be told
	sample.Pressure = parsePressure(s.read("/proc/pressure/cpu")) // 0 without CONFIG_PSI
	return sample, nil
}

// cpus is how many CPUs this process may use, which may be fewer than there are.
func cpus() int { return runtime.NumCPU() }

// ownTime is the CPU time of this process and of its children that have ended.
func ownTime() time.Duration {
	var total time.Duration
	for _, who := range []int{unix.RUSAGE_SELF, unix.RUSAGE_CHILDREN} {
		var r unix.Rusage
		if unix.Getrusage(who, &r) == nil {
			total += time.Duration(r.Utime.Nano() + r.Stime.Nano())
		}
	}
	return total
}

// userHZ is the unit of /proc/stat; it is 100 for every user space on Linux.
const userHZ = 100

// parseStat reads the line of all CPUs: user nice system idle iowait irq softirq
// steal guest guest_nice. guest is part of user.
func (s *Sample) parseStat(text string) error {
	line, _, _ := strings.Cut(text, "\n")
	f := strings.Fields(line)
	if len(f) < 5 || f[0] != "cpu" {
		return fmt.Errorf("unexpected line %q", line)
	}
	ticks := make([]time.Duration, 9)
	for i := 1; i < min(len(f), len(ticks)); i++ {
		n, err := strconv.ParseInt(f[i], 10, 64)
		if err != nil || n < 0 || n > 1<<50 {
			return fmt.Errorf("unexpected number %q", f[i])
		}
		ticks[i] = time.Duration(n)
	}
	tick := time.Second / userHZ
	s.Busy = (ticks[1] + ticks[2] + ticks[3] + ticks[6] + ticks[7]) * tick
	s.Steal = ticks[8] * tick
	return nil
}

// parsePressure reads "some avg10=60.65 avg60=..." as a share.
func parsePressure(text string) float64 {
	line, _, _ := strings.Cut(text, "\n")
	for _, f := range strings.Fields(line) {
		if v, ok := strings.CutPrefix(f, "avg10="); ok {
			n, err := strconv.ParseFloat(v, 64)
			if err == nil && n >= 0 && n <= 100 {
				return n / 100
			}
		}
	}
	return 0
}

// Usage is what happened between two samples, as shares of all the host's CPU
// time, 0 to 1.
type Usage struct {
	Others float64 `json:"others"` // used by other programs than this and its ended children
	Steal  float64 `json:"steal"`  // taken by the hypervisor
}

// Between compares two samples. Children count as ours once they have ended and
// been waited for, so b must be taken after the guest is gone.
func Between(a, b Sample) Usage {
	all := b.At.Sub(a.At).Seconds() * float64(b.CPUs)
	if all <= 0 {
		return Usage{}
	}
	share := func(d time.Duration) float64 { return min(max(d.Seconds()/all, 0), 1) }
	return Usage{Others: share((b.Busy - a.Busy) - (b.Own - a.Own)), Steal: share(b.Steal - a.Steal)}
}

// Map returns the usage and the load at b, for the store.
func (u Usage) Map(b Sample) map[string]float64 {
	return map[string]float64{"others": u.Others, "steal": u.Steal, "load1": b.Load1, "pressure": b.Pressure}
}

// Limits says when a host was too busy for a run to be trusted. A zero field is
// no limit.
type Limits struct {
	Others float64
	Steal  float64
}

// DefaultLimits are what a quiet workstation never reaches. They are wide: a
// latency workload compares kernels within minutes on the same host, and a run
// thrown away costs more than a little noise.
func DefaultLimits() Limits { return Limits{Others: 0.5, Steal: 0.1} }

// BusyError says that the host was too busy while a run went on. It blames no
// kernel: the run is repeated.
type BusyError struct {
	What  string // "other programs", "the hypervisor"
	Share float64
	Limit float64
}

func (e *BusyError) Error() string {
	return fmt.Sprintf("host too busy: %s took %.0f %% of the CPU time, the limit is %.0f %%", e.What, 100*e.Share, 100*e.Limit)
}

// Check returns a *BusyError if the time between two samples went beyond a limit.
func (l Limits) Check(before, after Sample) error {
	u := Between(before, after)
	if l.Steal > 0 && u.Steal > l.Steal {
		return &BusyError{"the hypervisor", u.Steal, l.Steal}
	}
	if l.Others > 0 && u.Others > l.Others {
		return &BusyError{"other programs", u.Others, l.Others}
	}
	return nil
}
