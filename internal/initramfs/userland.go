package initramfs

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
)

// required are the tools without which a guest has no userland to speak of.
var required = []string{"bash"}

// tools are packed when the host has them: a shell, what scripts in kernel
// reports call, and what one looks at a broken guest with.
var tools = []string{
	"[", "awk", "basename", "bash", "bridge", "cat", "chmod", "chown", "comm", "cp", "cut", "date", "dd", "df",
	"dirname", "dmesg", "du", "echo", "env", "ethtool", "expr", "false", "find", "flock", "fold", "free", "grep",
	"head", "hostname", "id", "ip", "join", "kill", "less", "ln", "ls", "md5sum", "mkdir", "mkfifo", "mknod", "mktemp", "mount",
	"mv", "nice", "nl", "nohup", "nproc", "nsenter", "nstat", "numfmt", "od", "paste", "pgrep", "ping", "pkill", "printenv", "printf", "ps",
	"pwd", "readlink", "realpath", "rm", "rmdir", "sed", "seq", "setsid", "sha256sum", "shuf", "sleep", "sort", "split",
	"ss", "stat", "stty", "sync", "sysctl", "tac", "tail", "taskset", "tc", "tee", "test", "time", "timeout", "touch",
	"tr", "true", "truncate", "umount", "uname", "uniq", "unlink", "unshare", "wc", "xargs", "yes",
}

// modprobe stands in for the program: scripts of reports load their modules, and
// in a kernel of ours everything is built in. What is not there shows in the
// command that needs it.
const modprobe = `#!/bin/sh
echo "modprobe: $*: nothing to load, this kernel has what it has built in" >&2
`

// toolDirs is where a host keeps them. It is not the caller's PATH: the archive
// must not depend on who builds it.
var toolDirs = []string{"/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin"}

// terminals whose descriptions are packed for line editing.
var terminals = []string{"dumb", "linux", "screen", "screen-256color", "tmux-256color", "vt100", "vt220", "xterm", "xterm-256color"}

// ErrNoUserland is wrapped when the host lacks a tool that every userland needs.
var ErrNoUserland = errors.New("the host lacks a tool for the guest's userland")

// Userland lists the host's bash (also as sh) and common tools as entries under
// /bin, with the libraries and loaders they need. root is "/" or a folder that
// looks like one; more are further tools, which must be there. Nothing is run: the libraries are found by reading ELF headers
// as the dynamic loader would. Tools that the host lacks, or whose libraries it
// lacks, are left out, except bash.
func Userland(root string, more ...string) ([]File, error) {
	u := &userland{root: root, loader: newLoader(root), packed: map[string]string{}, paths: map[string]bool{}}
	for _, name := range tools {
		if err := u.tool(name); err != nil && slices.Contains(required, name) {
			return nil, fmt.Errorf("pack %s: %w: %w", name, ErrNoUserland, err)
		}
	}
	for _, name := range more {
		if err := u.tool(name); err != nil {
			return nil, &ToolError{name, err}
		}
	}
	u.add(File{Path: "bin/sh", Mode: fs.ModeSymlink | 0o777, Target: "bash"})
	for _, dir := range []string{"sbin", "usr/bin", "usr/sbin"} {
		u.add(File{Path: dir, Mode: fs.ModeSymlink | 0o777, Target: "/bin"})
	}
	u.add(File{Path: "etc/passwd", Mode: 0o644, Data: []byte("root:x:0:0:root:/root:/bin/bash\n")})
	u.add(File{Path: "etc/group", Mode: 0o644, Data: []byte("root:x:0:\n")})
	u.add(File{Path: "etc/hosts", Mode: 0o644, Data: []byte("127.0.0.1 localhost\n::1 localhost\n")})
	u.add(File{Path: "bin/modprobe", Mode: 0o755, Data: []byte(modprobe)})
	u.terminfo()
	return u.files, nil
}

// ToolError says that a program that was asked for cannot be packed.
type ToolError struct {
	Name string
	Err  error
}

func (e *ToolError) Error() string { return fmt.Sprintf("pack %s: %v", e.Name, e.Err) }
func (e *ToolError) Unwrap() error { return e.Err }

// Tools returns the names of the programs that a userland has, where the host
// has them.
func Tools() []string { return slices.Clone(tools) }

type userland struct {
	root   string
	loader *loader
	files  []File
	paths  map[string]bool   // of files
	packed map[string]string // real path of a tool -> its entry: several names may be one program
}

// add appends an entry, once a path.
func (u *userland) add(f File) {
	if !u.paths[f.Path] {
		u.paths[f.Path] = true
		u.files = append(u.files, f)
	}
}

// tool packs one program as bin/NAME with all it needs, or nothing.
func (u *userland) tool(name string) error {
	path, err := u.find(name)
	if err != nil {
		return err
	}
	entry := "bin/" + filepath.Base(name)
	if first, ok := u.packed[path]; ok {
		u.add(File{Path: entry, Mode: fs.ModeSymlink | 0o777, Target: filepath.Base(first)})
		return nil
	}
	needs, err := u.loader.closure(path)
	if err != nil {
		return err
	}
	u.packed[path] = entry
	u.add(File{Path: entry, Mode: 0o755, Source: path})
	for _, f := range needs {
		u.add(f)
	}
	return nil
}

// find returns the real path of a host's program.
func (u *userland) find(name string) (string, error) {
	if filepath.IsAbs(name) {
		return resolve(u.root, name)
	}
	for _, dir := range toolDirs {
		path, err := resolve(u.root, dir+"/"+name)
		if err != nil {
			continue
		}
		if fi, err := os.Stat(path); err == nil && fi.Mode().IsRegular() && fi.Mode()&0o111 != 0 {
			return path, nil
		}
	}
	return "", fmt.Errorf("find %s in %q: %w", name, toolDirs, fs.ErrNotExist)
}

// terminfo packs the descriptions that the host has, where it has them.
func (u *userland) terminfo() {
	for _, term := range terminals {
		for _, dir := range []string{"etc/terminfo", "lib/terminfo", "usr/share/terminfo"} {
			entry := filepath.Join(dir, term[:1], term)
			path, err := resolve(u.root, "/"+entry)
			if err != nil {
				continue
			}
			u.add(File{Path: entry, Mode: 0o644, Source: path})
			break
		}
	}
}
