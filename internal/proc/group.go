package proc

import (
	"bytes"
	"fmt"
	"os"
	"strconv"
	"time"

	"golang.org/x/sys/unix"
)

// How long Wait waits for processes that were sent SIGKILL: normally less than
// a millisecond each; longer when one sits in an uninterruptible system call.
const (
	groupPoll  = 500 * time.Microsecond
	groupScan  = 20 * time.Millisecond // from here on look for zombies
	groupLimit = 10 * time.Second
)

// waitExited blocks until pid, a child of ours, is dead, and leaves it unreaped.
func waitExited(pid int) {
	for {
		var info unix.Siginfo
		err := unix.Waitid(unix.P_PID, pid, &info, unix.WEXITED|unix.WNOWAIT, nil)
		if err != unix.EINTR {
			return
		}
	}
}

// waitGroupGone blocks until no living process is in group pgid, whose leader
// was reaped. Grandchildren are reaped by init (or a subreaper), in its own
// time; one that never does (a container's PID 1) leaves zombies, which hold
// nothing and count as gone.
func waitGroupGone(pgid int) error {
	begin := time.Now()
	for {
		if unix.Kill(-pgid, 0) == unix.ESRCH {
			return nil
		}
		since := time.Since(begin)
		if since > groupScan && !groupAlive(pgid) {
			return nil
		}
		if since > groupLimit {
			return fmt.Errorf("process group %d: still alive %s after SIGKILL", pgid, groupLimit)
		}
		// Started by us or not, what is left is killed: a child may
		// have been forked by one that was itself just being killed.
		_ = unix.Kill(-pgid, unix.SIGKILL)
		time.Sleep(groupPoll)
	}
}

// groupAlive reports whether /proc shows a process in group pgid that is not a
// zombie.
func groupAlive(pgid int) bool {
	dir, err := os.Open("/proc")
	if err != nil {
		return false
	}
	defer dir.Close()
	names, _ := dir.Readdirnames(-1)
	for _, n := range names {
		if _, err := strconv.Atoi(n); err != nil {
			continue
		}
		stat, err := os.ReadFile("/proc/" + n + "/stat")
		if err != nil {
			continue // it ended meanwhile
		}
		if state, g, ok := parseStat(stat); ok && g == pgid && state != 'Z' && state != 'X' {
			return true
		}
	}
	return false
}

// parseStat returns state and process group of a /proc/PID/stat line. The
// command name stands in parentheses and may itself hold any of them.
func parseStat(stat []byte) (state byte, pgrp int, ok bool) {
	i := bytes.LastIndexByte(stat, ')')
	if i < 0 {
		return 0, 0, false
	}
	f := bytes.Fields(stat[i+1:])
	if len(f) < 3 || len(f[0]) != 1 {
		return 0, 0, false
	}
	pgrp, err := strconv.Atoi(string(f[2]))
	return f[0][0], pgrp, err == nil
}
