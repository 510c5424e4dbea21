package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"syscall"
	"time"
)

// shellPath runs exec requests when the guest has it.
const shellPath = "/bin/sh"

// exec runs one command line: by the shell if there is one, else directly.
func (se *session) exec(line string) exit {
	argv := []string{"sh", "-c", line}
	path := shellPath
	if _, err := os.Stat(shellPath); err != nil {
		words, err := splitWords(line)
		if err != nil {
			return se.fail(2, err)
		}
		argv, path = words, words[0]
	}
	return se.spawn(path, argv)
}

// shell runs a login shell.
func (se *session) shell() exit {
	for _, path := range []string{"/bin/bash", shellPath} {
		if _, err := os.Stat(path); err == nil {
			return se.spawn(path, []string{"-" + path[len("/bin/"):]})
		}
	}
	return se.fail(127, errors.New("the guest has no shell: its initramfs was made without userland"))
}

// spawn runs a program and passes its output on until it ends.
func (se *session) spawn(name string, argv []string) exit {
	path, err := lookPath(name)
	if errors.Is(err, os.ErrNotExist) {
		return se.fail(127, fmt.Errorf("%s: not found", name))
	}
	if err != nil {
		return se.fail(126, err)
	}
	io, err := se.stdio()
	if err != nil {
		return se.fail(126, err)
	}
	defer io.closeAll()
	attr := &syscall.ProcAttr{Dir: se.s.dir, Env: mergeEnv(se.s.env, se.env), Files: io.childFDs(),
		Sys: &syscall.SysProcAttr{Setsid: true, Setctty: se.pty != nil}}
	c, err := se.s.reap.start(path, argv, attr)
	io.closeChild()
	if err != nil {
		return se.fail(126, fmt.Errorf("start %s: %w", path, err))
	}
	se.mu.Lock()
	se.child = c
	se.mu.Unlock()
	io.pump(se, c.done)
	<-c.done
	io.drain()
	return exitOf(c.status)
}

// stdio is a command's standard files: the child's ends, and ours.
type stdio struct {
	child []*os.File // 0, 1, 2
	in    *os.File   // ours; the terminal's master is in and out
	out   []*os.File
	tty   bool
	work  sync.WaitGroup // copies of output
}

// stdio makes pipes, or takes the session's terminal.
func (se *session) stdio() (s *stdio, err error) {
	if se.pty != nil {
		slave, err := se.pty.openSlave()
		if err != nil {
			return nil, err
		}
		m := se.pty.master
		return &stdio{child: []*os.File{slave, slave, slave}, in: m, out: []*os.File{m}, tty: true}, nil
	}
	s = &stdio{}
	defer func() {
		if err != nil {
			s.closeChild()
			s.closeAll()
		}
	}()
	r, w, err := os.Pipe()
	if err != nil {
		return nil, fmt.Errorf("open pipe: %w", err)
	}
	s.child, s.in = append(s.child, r), w
	for range 2 {
		r, w, err := os.Pipe()
		if err != nil {
			return s, fmt.Errorf("open pipe: %w", err)
		}
		s.child, s.out = append(s.child, w), append(s.out, r)
	}
	return s, nil
}

func (s *stdio) childFDs() []uintptr {
	fds := make([]uintptr, len(s.child))
	for i, f := range s.child {
		fds[i] = f.Fd()
	}
	return fds
}

// closeChild closes the child's ends in init: an end that stays open here would
// keep the command's pipes from ever ending.
func (s *stdio) closeChild() {
	for _, f := range s.child {
		f.Close()
	}
	s.child = nil
}

// closeAll closes our ends; the terminal is the session's.
func (s *stdio) closeAll() {
	if s.tty {
		return
	}
	s.in.Close()
	for _, f := range s.out {
		f.Close()
	}
}

// pump copies input and output in the background. The copy of input ends when
// the client closes its side, or the pipe is closed under it.
func (s *stdio) pump(se *session, ended <-chan struct{}) {
	go func() {
		_, _ = io.Copy(s.in, se.ch) // either end may go first; both are normal
		if !s.tty {
			s.in.Close()
		}
	}()
	dst := []io.Writer{se.ch, se.ch.Stderr()}
	for i, src := range s.out {
		s.work.Go(func() {
			copyOutput(dst[i], src, ended)
			// The client may have gone: the command then gets SIGPIPE, or EIO.
			if !s.tty {
				src.Close()
			}
		})
	}
}

// copyOutput copies until src ends. Once the command has ended, src may stay
// open in a background process that it left: then silence ends the copy, or
// more output than a pipe could have held.
func copyOutput(dst io.Writer, src *os.File, ended <-chan struct{}) {
	buf := make([]byte, 32<<10)
	late := 0
	for late < maxLate {
		n, err := src.Read(buf)
		if _, werr := dst.Write(buf[:n]); err != nil || werr != nil {
			return
		}
		select {
		case <-ended:
			late += n
			_ = src.SetReadDeadline(time.Now().Add(drainLimit)) // fails only on a closed file
		default:
		}
	}
}

// drain waits for the copies of output after the command has ended.
func (s *stdio) drain() {
	for _, f := range s.out {
		_ = f.SetReadDeadline(time.Now().Add(drainLimit)) // fails on one that has ended already
	}
	s.work.Wait()
}

// lookPath finds a program in the PATH of commands, which is init's own.
func lookPath(name string) (string, error) {
	if strings.Contains(name, "/") {
		return name, executable(name)
	}
	found := fmt.Errorf("%s: %w", name, os.ErrNotExist)
	for dir := range strings.SplitSeq(os.Getenv("PATH"), ":") {
		if dir == "" {
			continue
		}
		path := dir + "/" + name
		err := executable(path)
		if err == nil {
			return path, nil
		}
		if !errors.Is(err, os.ErrNotExist) {
			found = err
		}
	}
	return "", found
}

func executable(path string) error {
	fi, err := os.Stat(path)
	if err != nil {
		return err
	}
	if fi.IsDir() || fi.Mode()&0o111 == 0 {
		return fmt.Errorf("%s: %w", path, os.ErrPermission)
	}
	return nil
}

// mergeEnv returns base with the later assignments of more in place.
func mergeEnv(base, more []string) []string {
	index := map[string]int{}
	var env []string
	for _, list := range [][]string{base, more} {
		for _, kv := range list {
			name, _, _ := cutEnv(kv)
			if i, ok := index[name]; ok {
				env[i] = kv
				continue
			}
			index[name] = len(env)
			env = append(env, kv)
		}
	}
	return env
}
