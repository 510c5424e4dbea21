package workload

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"unsafe"

	"golang.org/x/sys/unix"
)

// The kernel has no event for the end of a namespace. What shows it is a limit:
// user.max_net_namespaces counts a namespace until cleanup_net() is through with
// it, its last grace periods included. With the limit at "what stays, and one
// more", making a namespace is refused (ENOSPC, before anything is allocated: a
// few us) as long as one that goes is left.
const limitFile = "/proc/sys/user/max_net_namespaces"

// Bounds of waiting between two tries: 1 % of what has passed, so that what is
// measured is too long by 1 % at most, or by 0.5 ms if that is more. Trying more
// often would take a CPU from the worker.
const (
	pollLeast = int64(500e3)
	pollMost  = int64(20e6)
	pollPart  = 100
)

func readLimit() (string, error) {
	b, err := os.ReadFile(limitFile)
	if errors.Is(err, os.ErrNotExist) {
		return "", &UnsupportedError{Feature: "limit on network namespaces", Needs: "CONFIG_USER_NS and CONFIG_PROC_SYSCTL", Err: err}
	}
	if err != nil {
		return "", fmt.Errorf("read limit on network namespaces: %w", err)
	}
	return strings.TrimSpace(string(b)), nil
}

func setLimit(n int) error { return writeLimit(strconv.Itoa(n)) }

func writeLimit(value string) error {
	if err := os.WriteFile(limitFile, []byte(value), 0o644); err != nil {
		return fmt.Errorf("set limit on network namespaces: %w", err)
	}
	return nil
}

// unshareNet moves the thread to a new namespace. It does not tell Go's scheduler,
// which would start its monitor thread at each try.
func unshareNet() unix.Errno {
	_, _, errno := unix.RawSyscall(unix.SYS_UNSHARE, unix.CLONE_NEWNET, 0, 0)
	return errno
}

// pause sleeps for ns or less, see unshareNet.
func pause(ns int64) {
	t := unix.NsecToTimespec(ns)
	unix.RawSyscall(unix.SYS_NANOSLEEP, uintptr(unsafe.Pointer(&t)), 0, 0)
}

// enterNext makes a namespace as soon as the limit allows it. It returns when the
// try that succeeded began, which is when the last one before was gone, and how
// long it took: making one is no part of the other's end.
func enterNext(ctx context.Context, now func() int64, since int64) (freed, took int64, err error) {
	for {
		at := now()
		switch errno := unshareNet(); errno {
		case 0:
			return at, now() - at, nil
		case unix.ENOSPC:
		default:
			return 0, 0, fmt.Errorf("make network namespace: %w", errno)
		}
		if err := ctx.Err(); err != nil {
			return 0, 0, err
		}
		pause(min(max((at-since)/pollPart, pollLeast), pollMost))
	}
}

// awaitFreed waits until the kernel has freed every network namespace that
// nobody holds any more, and returns when, in ns of now. Those that a process is
// in, or that are mounted (ip netns add), when it is called are not waited for.
func awaitFreed(ctx context.Context, now func() int64) (at int64, err error) {
	limit, err := readLimit()
	if err != nil {
		return 0, err
	}
	held, err := heldNamespaces()
	if err != nil {
		return 0, err
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		// Go ends the thread with its goroutine, and it is in another namespace
		// by then.
		runtime.LockOSThread()
		if err = setLimit(held + 1); err == nil {
			at, _, err = enterNext(ctx, now, now())
		}
	}()
	<-done
	return at, errors.Join(err, writeLimit(limit))
}

// heldNamespaces counts the network namespaces beside our own that a process is
// in or that are mounted.
func heldNamespaces() (int, error) {
	own, err := os.Readlink("/proc/self/ns/net")
	if err != nil {
		return 0, fmt.Errorf("identify network namespace: %w", err)
	}
	held := map[string]bool{}
	tasks, err := filepath.Glob("/proc/[0-9]*/ns/net")
	if err != nil {
		return 0, err
	}
	for _, t := range tasks {
		// A process that ends meanwhile has no namespace.
		if name, err := os.Readlink(t); err == nil {
			held[name] = true
		}
	}
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return 0, fmt.Errorf("read mounts: %w", err)
	}
	for line := range strings.Lines(string(mounts)) {
		// The fourth field of an nsfs mount is the namespace, net:[4026532008].
		if f := strings.Fields(line); len(f) > 3 && strings.HasPrefix(f[3], "net:[") {
			held[f[3]] = true
		}
	}
	delete(held, own)
	return len(held), nil
}
