package vmtest

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/crypto/ssh"
)

// fakeEnv tells a re-exec'd test binary which Mode of FakeQEMU to play.
const fakeEnv = "KBISECT_FAKE_QEMU"

// Mode is what a fake QEMU does.
type Mode string

// Modes. Each is a way in which a real one behaves, or has.
const (
	BadArgs    Mode = "bad-args"   // complains and exits with status 1
	Silent     Mode = "silent"     // never a byte on the console; the monitor answers
	Deaf       Mode = "deaf"       // silent, and the monitor does not answer either
	Panic      Mode = "panic"      // panics before init, and resets
	PanicStuck Mode = "panicstuck" // panics and then hangs
	Reset      Mode = "reset"      // resets without a word of why
	GiveUp     Mode = "giveup"     // init says what it lacks and powers off
	Killed     Mode = "killed"     // is killed from outside
	Slow       Mode = "slow"       // prints a line now and then, and never gets up
	Flood      Mode = "flood"      // prints garbage as fast as it can, and never gets up
	Up         Mode = "up"         // boots; see FakeCommand
)

// Commands that the guest of a fake QEMU in mode Up understands beside those of
// SSHServer.
const (
	FakePanic    = "fake-panic"    // the kernel panics
	FakeHang     = "fake-hang"     // the command never ends; sysrq answers
	FakePowerOff = "fake-poweroff" // the guest powers itself off
	FakeKilled   = "fake-killed"   // QEMU is killed from outside
	FakeWarn     = "fake-warn"     // the kernel warns
)

// FakeQEMU returns the program to run as QEMU for the rest of the test, the test
// binary itself, whose TestMain must begin with MainFakeQEMU.
func FakeQEMU(t *testing.T, mode Mode) string {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv(fakeEnv, string(mode))
	return self
}

// MainFakeQEMU plays QEMU, and does not return, if this process was started as
// one.
func MainFakeQEMU() {
	mode := Mode(os.Getenv(fakeEnv))
	if mode == "" {
		return
	}
	if strings.Contains(strings.Join(os.Args, " "), "-L help") {
		os.Exit(0)
	}
	os.Exit(playQEMU(mode))
}

// fakeQEMU is a fake's connections.
type fakeQEMU struct {
	console      io.Writer
	monitor, ssh net.Conn
	qmp          chan *QMP // the server's side of the monitor, once it was greeted
}

// openConsole opens what the console's chardev names, as QEMU does.
func openConsole() (*os.File, error) {
	for _, a := range os.Args {
		if path, ok := strings.CutPrefix(a, "file,id=console,path="); ok {
			return os.OpenFile(path, os.O_WRONLY, 0)
		}
	}
	return nil, errors.New("no console in the arguments")
}

func playQEMU(mode Mode) int {
	if mode == BadArgs {
		fmt.Fprintln(os.Stderr, "qemu-system-x86_64: -machine q36: unsupported machine type")
		return 1
	}
	// A real guest's commands do not hold QEMU's files: one that outlives the fake
	// would keep the console open, and Close waits for its end.
	for fd := 3; fd < 16; fd++ {
		syscall.CloseOnExec(fd)
	}
	f := &fakeQEMU{qmp: make(chan *QMP, 1)}
	console, err := openConsole()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	f.console = console
	for id, conn := range map[string]*net.Conn{"qmp": &f.monitor, "ssh": &f.ssh} {
		c, err := inherited(id)
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		*conn = c
	}
	if mode != Deaf {
		go ServeQMP(f.monitor, Greeting, f.answer)
	}
	return f.play(mode)
}

func (f *fakeQEMU) play(mode Mode) int {
	switch mode {
	case Panic:
		f.print("Linux version 6.1.0", "Kernel panic - not syncing: VFS: Unable to mount root fs")
		return f.shutdown("guest-reset")
	case PanicStuck:
		f.print("Kernel panic - not syncing: stuck")
	case Reset:
		f.print("Linux version 6.1.0")
		return f.shutdown("guest-reset")
	case GiveUp:
		f.print("Linux version 6.1.0", "kbisect-init: fatal: find virtio-serial port: not there")
		return f.shutdown("guest-shutdown")
	case Killed:
		f.print("Linux version 6.1.0")
		_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
	case Slow:
		for {
			f.print("still here")
			time.Sleep(10 * time.Millisecond)
		}
	case Flood:
		garbage := bytes.Repeat([]byte("\x00\x1b[2J\xff\n"), 10_000)
		for {
			_, _ = f.console.Write(garbage)
		}
	case Up:
		return f.serve()
	}
	select {} // until it is killed
}

// answer is the fake monitor: an NMI makes the kernel print a trace.
func (f *fakeQEMU) answer(q *QMP, c QMPCommand) {
	switch c.Execute {
	case "qmp_capabilities":
		q.Return(c, "{}")
		f.qmp <- q
	case "human-monitor-command":
		q.Return(c, `"\r\nCPU#0\r\nRAX=0 RBX=1\r\nRIP=ffffffff81000000 RFL=00000046\r\n"`)
	case "inject-nmi":
		f.print("NMI: trace of a hung CPU")
		q.Return(c, "{}")
	default:
		q.Refuse(c, "The command "+c.Execute+" has not been found")
	}
}

func (f *fakeQEMU) print(lines ...string) {
	for _, l := range lines {
		_, _ = io.WriteString(f.console, l+"\r\n") // a closed console is not the guest's affair
	}
}

// shutdown ends as QEMU does when the guest has: with an event and status 0.
func (f *fakeQEMU) shutdown(reason string) int {
	q := <-f.qmp
	q.Raw(fmt.Sprintf(`{"event": "SHUTDOWN", "data": {"guest": true, "reason": %q}, "timestamp": {"seconds": 1, "microseconds": 1}}`, reason))
	return 0
}

// serve is a guest that boots.
func (f *fakeQEMU) serve() int {
	archive, err := os.ReadFile(argAfter("-initrd"))
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	f.print("Linux version 6.1.0", "Run /init as init process", "kbisect-init: ready")
	end := make(chan string, 1)
	s := &SSHServer{
		HostPEM: newcFile(archive, "kbisect/host_key"), AuthorizedKey: newcFile(archive, "kbisect/authorized_key"),
		Handle: func(line string, _ ssh.Channel) (int, bool) { return f.command(line, end) },
	}
	go func() {
		if err := s.Serve(f.ssh); err != nil {
			fmt.Fprintln(os.Stderr, err)
		}
	}()
	return f.shutdown(<-end)
}

// command is a line of a guest in mode Up.
func (f *fakeQEMU) command(line string, end chan<- string) (status int, ok bool) {
	switch line {
	case FakePanic:
		f.print("BUG: kernel NULL pointer dereference, address: 0000000000000008",
			"Kernel panic - not syncing: Fatal exception")
		end <- "guest-reset"
		select {}
	case FakePowerOff:
		end <- "guest-shutdown"
		select {}
	case FakeKilled:
		_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
		select {}
	case FakeWarn:
		f.print("WARNING: CPU: 0 PID: 1 at net/core/dev.c:1 x+0x1/0x2")
		return 0, true
	case FakeHang:
		time.Sleep(time.Second)
		return 0, true
	case "@sysrq w":
		f.print("sysrq: Show Blocked State", "task:ip state:D stack:0 pid:77")
		return 0, true
	case "@sysrq l":
		return 0, true
	}
	return 0, false
}

// argAfter returns the argument that follows name, "" if there is none.
func argAfter(name string) string {
	for i, a := range os.Args[:len(os.Args)-1] {
		if a == name {
			return os.Args[i+1]
		}
	}
	return ""
}

// inherited opens the connection of the chardev with that id.
func inherited(id string) (net.Conn, error) {
	prefix := "socket,id=" + id + ",fd="
	for _, a := range os.Args {
		text, ok := strings.CutPrefix(a, prefix)
		if !ok {
			continue
		}
		n, err := strconv.Atoi(text)
		if err != nil {
			return nil, fmt.Errorf("fake qemu: %q: %w", a, err)
		}
		f := os.NewFile(uintptr(n), id)
		defer f.Close()
		return net.FileConn(f)
	}
	return nil, fmt.Errorf("fake qemu: no chardev %q", id)
}

// newcFile finds a file in newc archives that follow one another, as the
// kernel's unpacking does. The last one of a name counts.
func newcFile(archive []byte, name string) []byte {
	const header = 110
	var found []byte
	for len(archive) >= header {
		if archive[0] == 0 { // padding between archives
			archive = archive[4:]
			continue
		}
		field := func(i int) int {
			n, _ := strconv.ParseUint(string(archive[6+8*i:14+8*i]), 16, 32)
			return int(n)
		}
		size, nameLen := field(6), field(11)
		data := (header + nameLen + 3) &^ 3
		end := (data + size + 3) &^ 3
		if string(archive[:6]) != "070701" || nameLen < 1 || end > len(archive) {
			return nil
		}
		if string(archive[header:header+nameLen-1]) == name {
			found = archive[data : data+size]
		}
		archive = archive[end:]
	}
	return found
}
