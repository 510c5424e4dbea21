package host

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// Status is what a row of the table comes to.
type Status string

// Statuses.
const (
	OK       Status = "ok"
	Missing  Status = "missing"  // and kbisect's main job needs it
	Warning  Status = "warning"  // it will do, perhaps not well
	Optional Status = "optional" // missing, and only some jobs need it
)

// Row is one thing that was examined.
type Row struct {
	Name    string `json:"name"`
	Status  Status `json:"status"`
	Found   string `json:"found"`   // version, path, amount; "" if there is nothing
	Need    string `json:"need"`    // what it is needed for
	Fix     string `json:"fix"`     // what to do; "" if nothing is to be done
	Package string `json:"package"` // that provides it here, "" if none does
}

// Report is everything that was examined. Its keys are stable.
type Report struct {
	OK    bool        `json:"ok"` // no row is missing
	Rows  []Row       `json:"rows"`
	Accel Accel       `json:"accel"`
	Host  Fingerprint `json:"host"`
}

// places are the rows that no package can mend.
var places = []string{"cache folder", "state folder", "free disk"}

// Err returns an error that wraps ErrMissing and names what is missing, nil if
// nothing is.
func (r Report) Err() error {
	names := r.missing()
	if len(names) == 0 {
		return nil
	}
	way := "; the fix column of kbisect doctor says what to do"
	if slices.ContainsFunc(r.Rows, func(row Row) bool { return row.Status == Missing && !slices.Contains(places, row.Name) }) {
		way = "; install with: kbisect doctor --install"
	}
	return fmt.Errorf("%w: %s%s", ErrMissing, strings.Join(names, ", "), way)
}

// ForBuilding and ForBooting name the programs without which a build or a boot
// cannot begin.
func ForBuilding() []string { return []string{"make", "gcc", "ld", "flex", "bison", "bc", "git"} }

// ForBooting is the emulator.
func ForBooting() []string { return []string{emulator} }

// Require returns an error that wraps ErrMissing when one of the programs is not
// in PATH. It only looks, which takes no time: so it can be asked before a long
// job, of which it would otherwise be the end.
func Require(programs ...string) error {
	s := Options{}.system()
	var r Report
	for _, name := range programs {
		if s.lookPath(name) == "" {
			r.Rows = append(r.Rows, Row{Name: name, Status: Missing})
		}
	}
	return r.Err()
}

func (r Report) missing() []string {
	var names []string
	for _, row := range r.Rows {
		if row.Status == Missing {
			names = append(names, row.Name)
		}
	}
	return names
}

// Row returns the row of that name.
func (r Report) Row(name string) (Row, bool) {
	for _, row := range r.Rows {
		if row.Name == name {
			return row, true
		}
	}
	return Row{}, false
}

// Needs of the host. A source is 1.5 GB unpacked and 0.5 GB in the repository,
// a build tree 0.5 GB; the cache may grow to 20 GiB, and works with less.
const (
	diskGood  = 10 << 10 // MiB
	diskLeast = 3 << 10
	memGood   = 2 << 10 // a guest of 1 GiB and two compilers
)

// Examine looks at everything. It takes about a second, longer only when
// Options.Prove boots a kernel. When ctx ends early, what was not reached counts
// as missing.
func Examine(ctx context.Context, o Options) Report {
	s := o.system()
	r := Report{Host: s.fingerprint()}
	r.Rows = append(r.Rows, s.tools(ctx)...)
	cache, row := dirRow("cache folder", "kernels, sources, build trees", func() (string, error) { return EnsureCacheDir(o.CacheDir) })
	r.Rows = append(r.Rows, row)
	_, row = dirRow("state folder", "results and history", func() (string, error) { return o.state(ctx) })
	r.Rows = append(r.Rows, row)
	r.Rows = append(r.Rows, diskRow(cache), s.memoryRow(), cpuRow(), s.loadRow())
	a, err := Accelerator(ctx, o)
	if err != nil && a.Reason == "" {
		a = Accel{Use: "tcg", State: AccelUnproved, Reason: err.Error()}
	}
	r.Accel = a
	r.Rows = append(r.Rows, accelRow(a))
	r.OK = len(r.missing()) == 0
	return r
}

// tools examines the table of tools.
func (s *system) tools(ctx context.Context) []Row {
	pm := s.manager()
	var rows []Row
	for _, t := range tools() {
		row := Row{Name: t.name, Status: OK, Need: t.need}
		var warning string
		row.Found, warning = t.find(ctx, s)
		row.Package = pm.provides(t.pkg)
		switch {
		case row.Found == "" && t.optional:
			row.Status = Optional
		case row.Found == "":
			row.Status = Missing
		case warning != "":
			row.Status, row.Fix = Warning, warning
		}
		if row.Found == "" {
			row.Fix = pm.fix(t.name, row.Package)
		}
		rows = append(rows, row)
	}
	return rows
}

// dirRow makes a folder's row; the path is "" if it cannot be used.
func dirRow(name, need string, ensure func() (string, error)) (string, Row) {
	dir, err := ensure()
	if err == nil {
		return dir, Row{Name: name, Status: OK, Found: dir, Need: need}
	}
	row := Row{Name: name, Status: Missing, Need: need, Fix: err.Error()}
	var de *DirError
	if errors.As(err, &de) {
		row.Fix = fmt.Sprintf("%s: %v; set %s to a folder that can be written to", de.Path, de.Err, de.Variable)
	}
	return "", row
}

// state is the state folder, if what it holds can be used.
func (o Options) state(ctx context.Context) (string, error) {
	dir, err := EnsureStateDir(o.StateDir)
	if err != nil || o.CheckState == nil {
		return dir, err
	}
	return dir, o.CheckState(ctx, dir)
}

// freeMiB is what an ordinary user may still write where dir is or will be.
func freeMiB(dir string) (int, error) {
	for {
		var st unix.Statfs_t
		err := unix.Statfs(dir, &st)
		if errors.Is(err, unix.ENOENT) && dir != "/" {
			dir = filepath.Dir(dir)
			continue
		}
		if err != nil {
			return 0, &os.PathError{Op: "statfs", Path: dir, Err: err}
		}
		return int(st.Bavail * uint64(st.Bsize) >> 20), nil
	}
}

// CheckDisk returns an error when less than mib MiB are free where dir is.
func CheckDisk(dir string, mib int) error {
	free, err := freeMiB(dir)
	if err != nil {
		return err
	}
	if free < mib {
		return fmt.Errorf("disk of %s: %s free, %s needed; free some space, or set XDG_CACHE_HOME to a folder on another disk", dir, gib(free), gib(mib))
	}
	return nil
}

func diskRow(cache string) Row {
	row := Row{Name: "free disk", Status: OK, Need: gib(diskGood) + " for the cache"}
	if cache == "" {
		row.Status, row.Fix = Missing, "see the cache folder"
		return row
	}
	free, err := freeMiB(cache)
	if err != nil {
		row.Status, row.Fix = Warning, err.Error()
		return row
	}
	row.Found = gib(free)
	switch fix := "free some space, or set XDG_CACHE_HOME to a folder on another disk"; {
	case free < diskLeast:
		row.Status, row.Fix = Missing, fix
	case free < diskGood:
		row.Status, row.Fix = Warning, fix
	}
	return row
}

func gib(mib int) string { return fmt.Sprintf("%.1f GiB", float64(mib)/1024) }

func (s *system) memoryRow() Row {
	free := s.memory("MemAvailable")
	row := Row{Name: "free memory", Status: OK, Found: gib(free), Need: gib(memGood) + " for a guest and a build"}
	if free < memGood {
		row.Status, row.Fix = Warning, "end other programs"
	}
	return row
}

func cpuRow() Row {
	row := Row{Name: "CPUs", Status: OK, Found: fmt.Sprint(cpus()), Need: "2 for a guest: RCU waits need both"}
	if cpus() < 2 {
		row.Status, row.Fix = Warning, "latencies of two virtual CPUs on one real CPU are noisy"
	}
	return row
}

// loadRow looks whether measuring now would be disturbed.
func (s *system) loadRow() Row {
	row := Row{Name: "load", Status: OK, Need: "a quiet host while measuring"}
	l, err := s.load()
	if err != nil {
		row.Status, row.Fix = Warning, err.Error()
		return row
	}
	row.Found = fmt.Sprintf("%.2f, %.0f %% of time waiting for a CPU", l.Load1, 100*l.Pressure)
	if l.Load1 > float64(l.CPUs)/2 || l.Pressure > 0.2 {
		row.Status, row.Fix = Warning, "end other programs before measuring"
	}
	return row
}

// accelRow is a warning at worst: everything works under TCG, only slower.
func accelRow(a Accel) Row {
	row := Row{Name: "accelerator", Status: OK, Found: a.Use + ": " + a.Reason, Need: "guests (TCG works too, slower)"}
	switch a.State {
	case AccelUnproved:
		row.Status, row.Fix = Warning, "kbisect doctor --prove"
	case AccelDenied:
		row.Status, row.Fix = Warning, "sudo usermod -aG kvm $USER, then log in again"
	}
	return row
}
