package host

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/google/renameio/v2"
	"golang.org/x/sys/unix"
)

// ErrNoKernel is what Options.Prove wraps when there is no kernel to boot yet.
var ErrNoKernel = errors.New("no kernel has been built yet")

// AccelState says how sure the choice of an accelerator is.
type AccelState string

// States. Opening /dev/kvm proves nothing: on a host that emulates
// virtualisation it opens, makes a VM, and the guest never prints a line.
const (
	AccelProved   AccelState = "proved"   // a kernel booted to userspace under KVM
	AccelRefuted  AccelState = "refuted"  // it did not
	AccelAbsent   AccelState = "absent"   // there is no /dev/kvm
	AccelDenied   AccelState = "denied"   // it may not be opened
	AccelUnproved AccelState = "unproved" // it opens; nothing was booted yet
)

// Accel is the accelerator to use and why.
type Accel struct {
	Use    string     `json:"use"` // "kvm" or "tcg"
	State  AccelState `json:"state"`
	Reason string     `json:"reason"`
	Cached bool       `json:"cached"` // remembered from an earlier proof
	At     time.Time  `json:"at"`     // of the proof; zero if there was none
}

// proveWithin bounds a proof: a kernel that works under KVM is in userspace
// after a second.
const proveWithin = 2 * time.Minute

// Accelerator decides between KVM and TCG: by the remembered answer for this
// host, QEMU and kernel, else by Options.Prove, whose answer is remembered. The
// error is that of ctx; everything else is in the answer.
func Accelerator(ctx context.Context, o Options) (Accel, error) {
	s := o.system()
	if a, ok := s.device(); !ok {
		return a, nil
	}
	path, err := o.accelFile(ctx)
	if err == nil && !o.Reprove {
		if a, err := readAccel(path); err == nil {
			return a, nil
		}
	}
	if o.Prove == nil {
		return Accel{Use: "tcg", State: AccelUnproved, Reason: "KVM was not proved to work yet; see kbisect doctor --prove"}, ctx.Err()
	}
	a, sure, perr := prove(ctx, o.Prove)
	if perr != nil || !sure || err != nil {
		return a, perr
	}
	if werr := writeAccel(path, a); werr != nil {
		a.Reason += fmt.Sprintf(" (not remembered: %v)", werr)
	}
	return a, nil
}

// device looks whether /dev/kvm can be used at all.
func (s *system) device() (Accel, bool) {
	path := s.root + "/dev/kvm"
	f, err := os.OpenFile(path, os.O_RDWR|unix.O_CLOEXEC, 0)
	switch {
	case err == nil:
		f.Close()
		return Accel{}, true
	case errors.Is(err, fs.ErrNotExist):
		return Accel{Use: "tcg", State: AccelAbsent, Reason: "there is no /dev/kvm"}, false
	case errors.Is(err, fs.ErrPermission):
		return Accel{Use: "tcg", State: AccelDenied, Reason: "/dev/kvm may not be opened; join its group, mostly kvm"}, false
	}
	return Accel{Use: "tcg", State: AccelDenied, Reason: fmt.Sprintf("/dev/kvm: %v", errors.Unwrap(err))}, false
}

// prove asks for a proof. sure is false when the answer must not be remembered.
func prove(ctx context.Context, f func(context.Context) error) (a Accel, sure bool, err error) {
	bounded, cancel := context.WithTimeout(ctx, proveWithin)
	defer cancel()
	perr := f(bounded)
	a = Accel{Use: "kvm", State: AccelProved, Reason: "a kernel booted to userspace under KVM", At: time.Now().UTC()}
	switch {
	case perr == nil:
		return a, true, nil
	case ctx.Err() != nil: // interrupted: that says nothing of KVM
		return Accel{Use: "tcg", State: AccelUnproved, Reason: "the proof was interrupted"}, false, ctx.Err()
	case errors.Is(perr, ErrNoKernel):
		return Accel{Use: "tcg", State: AccelUnproved,
			Reason: "KVM was not proved to work yet: " + ErrNoKernel.Error() + "; kbisect doctor --prove builds one"}, false, nil
	}
	a.Use, a.State = "tcg", AccelRefuted
	a.Reason = "a kernel did not boot under KVM: " + firstLine(perr.Error())
	return a, true, nil
}

func firstLine(s string) string {
	line, _, _ := strings.Cut(s, "\n")
	return line
}

// accelFile names the file of the answer. It differs when anything does that
// could change the answer; the machine's id is in it because a home folder may
// be shared between machines.
func (o Options) accelFile(ctx context.Context) (string, error) {
	dir, err := EnsureCacheDir(o.CacheDir)
	if err != nil {
		return "", err
	}
	s := o.system()
	h := sha256.New()
	for _, part := range []string{"1", s.read("/etc/machine-id"), s.read("/proc/sys/kernel/hostname"),
		s.fingerprint().CPU, s.read("/proc/sys/kernel/osrelease"), s.qemuVersion(ctx)} {
		fmt.Fprintf(h, "%q\n", part)
	}
	dir = filepath.Join(dir, "accel")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", err
	}
	return filepath.Join(dir, hex.EncodeToString(h.Sum(nil))[:16]+".json"), nil
}

// readAccel reads a remembered answer. A file that makes no sense is no answer.
func readAccel(path string) (Accel, error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return Accel{}, err
	}
	var a Accel
	if err := json.Unmarshal(b, &a); err != nil {
		return Accel{}, err
	}
	if !(a.Use == "kvm" && a.State == AccelProved || a.Use == "tcg" && a.State == AccelRefuted) {
		return Accel{}, fmt.Errorf("%s: not an answer", path)
	}
	a.Cached = true
	return a, nil
}

// writeAccel remembers an answer: the whole file, or none.
func writeAccel(path string, a Accel) error {
	b, err := json.Marshal(a)
	if err != nil {
		return err
	}
	return renameio.WriteFile(path, b, 0o644, renameio.WithTempDir(filepath.Dir(path)))
}
