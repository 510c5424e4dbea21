package app

import (
	"bytes"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/sha256"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/crypto/ssh"

	"github.com/kbisect/kbisect/internal/initramfs"
	"github.com/kbisect/kbisect/internal/report"
	"github.com/kbisect/kbisect/vm"
)

// image is a disk image made of this machine's programs: OpenSSH's sshd and an
// init that starts it.
type image struct {
	path, key string
}

const imageInit = `#!/bin/bash
mount -t proc proc /proc
mount -t sysfs sys /sys
mount -t devtmpfs dev /dev 2>/dev/null
mkdir -p /dev/pts && mount -t devpts pts /dev/pts
mount -t tmpfs run /run
mkdir -p /run/sshd /run/netns
ip link set lo up
exec /usr/sbin/sshd -D -e
`

const imageSSHD = `Port 22
HostKey /etc/ssh/host_key
PermitRootLogin prohibit-password
StrictModes no
UsePAM no
Subsystem sftp internal-sftp
`

// newImage makes an image in a test's folder, in ext4 without partitions. extra
// are files in it; an empty text leaves one out.
func newImage(t *testing.T, extra map[string]string) image {
	t.Helper()
	for _, name := range []string{"/usr/sbin/sshd", "/usr/sbin/mkfs.ext4"} {
		if _, err := os.Stat(name); err != nil {
			t.Skipf("needs %s: kbisect doctor --install", filepath.Base(name))
		}
	}
	dir := t.TempDir()
	root := filepath.Join(dir, "root")
	files, err := initramfs.Userland("/", "sshd", "touch")
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		install(t, root, f)
	}
	im := image{path: filepath.Join(dir, "disk.raw"), key: filepath.Join(dir, "key")}
	client, public := newKey(t)
	host, _ := newKey(t)
	text := map[string]string{
		"bin/init": imageInit, "etc/ssh/sshd_config": imageSSHD, "etc/ssh/host_key": host, "root/.ssh/authorized_keys": public,
		"etc/passwd": "root:x:0:0:root:/root:/bin/bash\nsshd:x:100:65534::/run/sshd:/bin/false\n",
		"etc/shadow": "root:*:19000:0:99999:7:::\n", "tmp/keep": "", "proc/x": "", "sys/x": "", "dev/x": "", "run/x": "",
	}
	for name, s := range extra {
		text[name] = s
	}
	for name, s := range text {
		install(t, root, initramfs.File{Path: name, Mode: 0o700, Data: []byte(s)})
	}
	if err := os.Chmod(filepath.Join(root, "tmp"), 0o1777|fs.ModeSticky); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(im.key, []byte(client), 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command("/usr/sbin/mkfs.ext4", "-q", "-d", root, im.path, "128M").CombinedOutput(); err != nil {
		t.Fatalf("mkfs.ext4: %v\n%s", err, out)
	}
	return im
}

// install writes one entry below root.
func install(t *testing.T, root string, f initramfs.File) {
	t.Helper()
	path := filepath.Join(root, f.Path)
	err := os.MkdirAll(filepath.Dir(path), 0o755)
	switch {
	case err != nil:
	case f.Mode&fs.ModeSymlink != 0:
		err = os.Symlink(f.Target, path)
	case f.Source != "":
		var data []byte
		if data, err = os.ReadFile(f.Source); err == nil {
			err = os.WriteFile(path, data, f.Mode.Perm())
		}
	default:
		os.Remove(path)
		err = os.WriteFile(path, f.Data, f.Mode.Perm())
	}
	if err != nil {
		t.Fatal(err)
	}
}

// newKey returns a private key in PEM and its authorized_keys line.
func newKey(t *testing.T) (private, public string) {
	t.Helper()
	pub, key, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	block, err := ssh.MarshalPrivateKey(key, "test")
	if err != nil {
		t.Fatal(err)
	}
	p, err := ssh.NewPublicKey(pub)
	if err != nil {
		t.Fatal(err)
	}
	return string(pem.EncodeToMemory(block)), string(ssh.MarshalAuthorizedKey(p))
}

func hashOf(t *testing.T, path string) string {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	h := sha256.New()
	if _, err := io.Copy(h, f); err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf("%x", h.Sum(nil))
}

// needsImageKernel skips where a kernel with image.config is not wanted: it is a
// whole build of its own.
func needsImageKernel(t *testing.T) {
	t.Helper()
	if os.Getenv("KBISECT_TEST_IMAGE") == "" {
		t.Skip("builds a kernel with disk drivers and file systems, ten minutes the first time; run with KBISECT_TEST_IMAGE=1")
	}
}

// TestRealImage runs on a disk image with OpenSSH: a command, its exit status,
// what it writes, and what it reaches.
func TestRealImage(t *testing.T) {
	needsImageKernel(t)
	env := realEnv(t)
	im := newImage(t, nil)
	before := hashOf(t, im.path)
	for _, format := range []string{"raw", "qcow2"} {
		t.Run(format, func(t *testing.T) {
			im := im
			if format == "qcow2" {
				to := filepath.Join(t.TempDir(), "disk, as qcow2")
				if out, err := exec.Command("qemu-img", "convert", "-O", "qcow2", im.path, to).CombinedOutput(); err != nil {
					t.Skipf("needs qemu-img: %v %s", err, out)
				}
				im.path = to
			}
			begin := time.Now()
			// The overlay takes what is written; the host's own ports are out of reach.
			status, out := bootImage(t, env, im, "echo written > /root/x && sync && cat /root/x; "+
				"mount | head -1; timeout 2 bash -c 'exec 3<>/dev/tcp/10.0.2.2/22' && echo REACHED; uname -r; exit 7")
			t.Logf("%s: %s\n%s", format, time.Since(begin).Round(100*time.Millisecond), out)
			if status != 7 || !strings.Contains(out, "written\n") || !strings.Contains(out, "ext4") || strings.Contains(out, "REACHED") {
				t.Errorf("status %d\n%s", status, out)
			}
		})
	}
	if hashOf(t, im.path) != before {
		t.Error("the image was written to")
	}
}

// bootImage runs a shell command as `kbisect boot --image` does.
func bootImage(t *testing.T, env *Env, im image, command string) (status int, out string) {
	t.Helper()
	var text bytes.Buffer
	o := BootOptions{Kernel: realOptions().Kernel, Argv: []string{"bash", "-c", command}, Machine: DefaultMachine(), Stdout: &text, Stderr: &text}
	im.into(&o.Machine)
	err := Boot(t.Context(), env, o)
	var exit *GuestExit
	if errors.As(err, &exit) {
		return exit.Status, text.String()
	}
	if err != nil {
		t.Fatalf("%v\n%s", err, Detail(err))
	}
	return 0, text.String()
}

func (im image) into(m *MachineOptions) {
	m.Image, m.SSHKey = im.path, im.key
	if !strings.HasSuffix(im.path, ".raw") {
		m.ImageRoot = "/dev/vda" // this qcow2 has no partitions
	}
}

// TestRealImageScript measures with a script and a file of the user's on an image.
func TestRealImageScript(t *testing.T) {
	needsImageKernel(t)
	env := realEnv(t)
	o := deleteOptions(t)
	im := newImage(t, nil)
	im.into(&o.Machine)
	res, err := Run(t.Context(), env, o, os.Stderr)
	if err != nil {
		t.Fatalf("%v\n%s", err, Detail(err))
	}
	if c := res.Comparisons[0]; c.Verdict != report.Faster || res.Environment.Image != im.path {
		t.Errorf("%s on %q", c.Verdict, res.Environment.Image)
	}
}

// TestRealImageThatFails: what is wrong with an image is said, and how to mend it.
func TestRealImageThatFails(t *testing.T) {
	needsImageKernel(t)
	env := realEnv(t)
	good := newImage(t, nil)
	stranger := good
	stranger.key = filepath.Join(t.TempDir(), "stranger")
	private, _ := newKey(t)
	if err := os.WriteFile(stranger.key, []byte(private), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		im     image
		root   string
		want   string
		kernel bool // it is the boot that fails
	}{
		"another key":     {stranger, "", "authorized_keys", false},
		"no such root":    {good, "/dev/vda7", "--image-root", true},
		"no sshd":         {newImage(t, map[string]string{"bin/init": "#!/bin/bash\nexec sleep 1000\n"}), "", "does its sshd start", true},
		"no key at all":   {image{good.path, good.path}, "", "no private key", false},
		"no image at all": {image{good.key, good.key}, "", "too short for a disk image", false},
	} {
		t.Run(name, func(t *testing.T) {
			o := BootOptions{Kernel: realOptions().Kernel, Argv: []string{"true"}, Machine: DefaultMachine(), Stdout: io.Discard, Stderr: io.Discard}
			o.Machine.Image, o.Machine.SSHKey, o.Machine.ImageRoot, o.Machine.BootLimit = c.im.path, c.im.key, c.root, 20*time.Second
			err := Boot(t.Context(), env, o)
			if err == nil || !strings.Contains(err.Error(), c.want) || errors.As(err, new(*vm.BootError)) != c.kernel {
				t.Errorf("got %v, want %q", err, c.want)
			}
		})
	}
}
