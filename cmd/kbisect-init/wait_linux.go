package main

import "golang.org/x/sys/unix"

// waitForAny blocks until any child can be reaped, and does not reap it.
func waitForAny() error {
	return unix.Waitid(unix.P_ALL, 0, nil, unix.WEXITED|unix.WNOWAIT, nil)
}
