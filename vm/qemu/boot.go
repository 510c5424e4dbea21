package qemu

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/kbisect/kbisect/vm"
	"github.com/kbisect/kbisect/vm/sshx"
)

const (
	// look is how often a boot is looked at for silence.
	look = 50 * time.Millisecond
	// fatalGrace is how long a kernel that panicked has to print its trace
	// and reset; a broken one never does.
	fatalGrace = 5 * time.Second
	// exitGrace is how long QEMU has to end once its monitor has.
	exitGrace = 5 * time.Second
)

// boot starts one machine and waits for its SSH. After an error nothing of it is
// left but the logs.
func (p *plan) boot(ctx context.Context) (*Machine, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if p.Disk != nil {
		return p.bootDisk(ctx)
	}
	keys, err := sshx.NewKeys()
	if err != nil {
		return nil, &vm.InfraError{Op: "make keys", Err: err}
	}
	initrd, err := runInitrd(p.Initrd, keys)
	if err != nil {
		return nil, &vm.InfraError{Op: "write initramfs", Err: err}
	}
	i, err := p.launch(initrd)
	if err != nil {
		return nil, err
	}
	return i.up(ctx, func(ctx context.Context) (*sshx.Client, error) {
		return sshx.Dial(ctx, i.pipes.ssh, keys, sshx.Options{})
	})
}

// up waits until a machine that was launched can be spoken to.
func (i *instance) up(ctx context.Context, dial func(context.Context) (*sshx.Client, error)) (*Machine, error) {
	client, err := i.await(ctx, dial)
	if err != nil {
		_ = i.close() // the first error is the one to tell
		return nil, err
	}
	// QEMU greets before it starts the guest, so this does not wait.
	<-i.connected
	if i.connErr != nil {
		client.Close()
		err := i.infra("connect monitor", i.connErr)
		_ = i.close()
		return nil, err
	}
	return newMachine(i, client), nil
}

// dialed is the end of a dial.
type dialed struct {
	client *sshx.Client
	err    error
}

// await waits for SSH, or for the reason why there will be none.
func (i *instance) await(ctx context.Context, open func(context.Context) (*sshx.Client, error)) (*sshx.Client, error) {
	dialCtx, cancel := context.WithCancel(context.Background())
	defer cancel()
	dial := make(chan dialed, 1)
	go func() {
		c, err := open(dialCtx)
		dial <- dialed{c, err}
	}()
	err := i.watchBoot(ctx, dial)
	var up *upError
	if errors.As(err, &up) {
		return up.client, nil
	}
	cancel()
	var failed *dialError
	if errors.As(err, &failed) {
		return nil, failed.why
	}
	if d := <-dial; d.client != nil { // a moment too late
		d.client.Close()
	}
	return nil, err
}

// upError ends watchBoot with success, dialError with a dial that has failed:
// in both cases the dial's channel is empty.
type (
	upError   struct{ client *sshx.Client }
	dialError struct{ why error }
)

func (*upError) Error() string     { return "up" }
func (e *dialError) Error() string { return e.why.Error() }

// watchBoot returns what ends a boot, which is always an error.
func (i *instance) watchBoot(ctx context.Context, dial <-chan dialed) error {
	limit := time.NewTimer(i.plan.Boot)
	defer limit.Stop()
	tick := time.NewTicker(look)
	defer tick.Stop()
	connected := i.connected
	for {
		select {
		case d := <-dial:
			if d.err == nil {
				return &upError{d.client}
			}
			return &dialError{i.dialFailed(d.err)}
		case <-i.exited:
			return i.ended(false)
		case <-connected:
			connected = nil
			if i.connErr != nil {
				return i.monitorFailed()
			}
		case <-ctx.Done():
			return ctx.Err()
		case <-limit.C:
			return i.hung(i.late())
		case <-tick.C:
			if err := i.checkConsole(); err != nil {
				return err
			}
		}
	}
}

// checkConsole returns an error for a console that has panicked for good, or
// that is silent.
func (i *instance) checkConsole() error {
	i.mu.Lock()
	fatal := i.fatal
	i.mu.Unlock()
	if fatal != nil {
		if time.Since(i.start)-fatal.At > fatalGrace {
			return i.hung("kernel " + string(fatal.Kind) + ": " + fatal.Line)
		}
		return nil
	}
	if time.Since(i.console.Last()) <= i.plan.Silence {
		return nil
	}
	return i.hung(fmt.Sprintf("silent for %s after %d bytes on the console", i.plan.Silence, i.console.Bytes()))
}

// late is the reason of a boot that took too long: what its console said last of
// itself, a stall or a flood, is nearer to the fault than the limit is.
func (i *instance) late() string {
	reason := fmt.Sprintf("not up within %s", i.plan.Boot)
	i.mu.Lock()
	defer i.mu.Unlock()
	if e := i.noticed; e != nil {
		reason += fmt.Sprintf(", %s after %s: %s", e.Kind, e.At.Round(time.Second), e.Line)
	}
	return reason
}

// hung makes the error of a boot that does not get on, after a look at where it
// stands.
func (i *instance) hung(reason string) *vm.BootError {
	trace := i.postMortem(context.Background())
	f := i.failure()
	f.PostMortem = trace
	return &vm.BootError{Failure: f, Reason: reason}
}

// monitorFailed waits for QEMU's end, which is the usual reason, and blames the
// monitor otherwise.
func (i *instance) monitorFailed() error {
	if i.waitExit(exitGrace) {
		return i.ended(false)
	}
	return i.infra("connect monitor", i.connErr)
}

// dialFailed tells a guest that ended from one that served nonsense.
func (i *instance) dialFailed(err error) error {
	var refused *sshx.RefusedError
	if errors.As(err, &refused) { // the guest is well, and will not have us
		return i.infra("log in", err)
	}
	if i.waitExit(exitGrace) {
		return i.ended(false)
	}
	return i.infra("dial guest", err)
}

// waitExit reports whether QEMU ends within limit.
func (i *instance) waitExit(limit time.Duration) bool {
	t := time.NewTimer(limit)
	defer t.Stop()
	select {
	case <-i.exited:
		return true
	case <-t.C:
		return false
	}
}
