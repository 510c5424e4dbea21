package kbuild

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/kbisect/kbisect/internal/gitx"
	"github.com/kbisect/kbisect/internal/kconfig"
	"github.com/kbisect/kbisect/internal/proc"
)

// objName is the objects' folder inside the source tree. No kernel has a file
// of that name, and kbuild sees that its parent is the source.
const objName = "kbisect-obj"

// state is what is known of a build tree, state.json. It is written before each
// step that could be killed, and after it.
type state struct {
	GitDir     string    `json:"git_dir"`    // whose trees these are, for a reader
	Tree       string    `json:"tree"`       // the source is this tree; "" when there is none yet
	Step       string    `json:"step"`       // what is going on: "", "checkout" or "make"
	Since      time.Time `json:"since"`      // just before Step began
	Boot       string    `json:"boot"`       // of the machine, when this was written
	Configured bool      `json:"configured"` // .config is the one that was checked, for this tree
	Overrides  []string  `json:"overrides"`
	Rescue     []string  `json:"rescue,omitempty"` // flags that this tree does not compile without
	Layout     int       `json:"layout,omitempty"` // whose link the tree has
	Built      Target    `json:"built,omitempty"`  // what make has finished of the source as it is now, "" is nothing
	Stamp      string    `json:"stamp,omitempty"`  // of the vmlinux then
	Full       int64     `json:"full"`             // steps of the first build
	Overhead   int64     `json:"overhead"`         // steps of the last incremental build beyond its objects
	Size       int64     `json:"size"`             // bytes on disk after the first build
}

// buildTree is a locked build/KEY.
type buildTree struct {
	*job
	dir  string
	lock *fileLock
	st   state

	changed []string // paths that differ from the tree before; nil when all do
	stale   int64    // objects that depend on one of them
	objects int64    // steps that make reported
	image   string   // what was built, in dir
}

func (t *buildTree) src() string     { return filepath.Join(t.dir, "src") }
func (t *buildTree) obj() string     { return filepath.Join(t.dir, "src", objName) }
func (t *buildTree) logPath() string { return filepath.Join(t.dir, "build.log") }
func (t *buildTree) vmlinux() string { return filepath.Join(t.obj(), "vmlinux") }
func (t *buildTree) dotConfig() string {
	return filepath.Join(t.obj(), ".config")
}

// openTree locks the job's build tree, waiting while another process uses it.
func (j *job) openTree(ctx context.Context) (*buildTree, error) {
	root, err := buildRoot(j.Cache)
	if err != nil {
		return nil, err
	}
	dir := filepath.Join(root, j.treeKey)
	l, err := lock(ctx, dir+".lock", exclusive, func() { j.Progress(PhaseWait, 0, 0) })
	if err != nil {
		return nil, infra("lock build tree", err)
	}
	t := &buildTree{job: j, dir: dir, lock: l}
	if err := t.load(); err != nil {
		t.close()
		return nil, err
	}
	return t, nil
}

// close gives the tree to whoever waits for it. It may be called more than once.
func (t *buildTree) close() { t.lock.unlock() }

// load reads the state. One that does not parse cannot be trusted, nor can what
// it described.
func (t *buildTree) load() error {
	if err := os.MkdirAll(t.dir, 0o755); err != nil {
		return infra("make build tree", err)
	}
	data, err := os.ReadFile(filepath.Join(t.dir, "state.json"))
	if err == nil {
		err = json.Unmarshal(data, &t.st)
	}
	if err == nil && t.st.GitDir == t.GitDir {
		return nil
	}
	t.st = state{GitDir: t.GitDir}
	for _, name := range []string{"src", "index", "index.lock", "bin", "layout"} {
		if err := os.RemoveAll(filepath.Join(t.dir, name)); err != nil {
			return infra("make build tree", err)
		}
	}
	return nil
}

// save writes the state.
func (t *buildTree) save() error {
	t.st.Boot = bootID()
	data, err := json.MarshalIndent(t.st, "", "  ")
	if err == nil {
		err = writeFile(filepath.Join(t.dir, "state.json"), append(data, '\n'))
	}
	if err != nil {
		return infra("write build cache", err)
	}
	return nil
}

// bootID identifies the machine's current boot, "" where it cannot be told.
func bootID() string {
	data, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(data))
}

// enterSlack is subtracted from the time at which a step began, since files get
// theirs from a coarser clock. Discarding a little more than was torn costs a
// few objects.
const enterSlack = 2 * time.Second

// enter notes that step begins.
func (t *buildTree) enter(step string) error {
	t.st.Step, t.st.Since = step, time.Now().Add(-enterSlack)
	return t.save()
}

// build makes the image of the job's tree.
func (t *buildTree) build(ctx context.Context) error {
	if err := t.recover(); err != nil {
		return err
	}
	if err := t.checkout(ctx); err != nil {
		return err
	}
	log, err := os.Create(t.logPath())
	if err != nil {
		return infra("write build log", err)
	}
	defer log.Close()
	if !t.st.Configured {
		if err := t.configure(ctx, log); err != nil {
			return err
		}
	}
	err = t.compile(ctx, log)
	if errors.Is(err, errAsked) {
		// A Kconfig input changed that configures does not know of.
		if err := t.configure(ctx, log); err != nil {
			return err
		}
		err = t.compile(ctx, log)
	}
	return err
}

// recover discards what a killed build was writing: everything in the objects'
// folder that is as new as its make. The rest was complete before. After a boot
// of the machine, which may have been a loss of power, it also discards objects
// that never reached the disk, and has the source compared with its index.
func (t *buildTree) recover() error {
	// We hold the lock, so this is nobody's.
	if err := os.RemoveAll(filepath.Join(t.dir, "index.lock")); err != nil {
		return infra("clean build tree", err)
	}
	rebooted := t.st.Tree != "" && t.st.Boot != bootID()
	killed := t.st.Step == "make"
	if !rebooted && !killed {
		return nil
	}
	err := discard(t.obj(), func(info fs.FileInfo) bool {
		switch filepath.Ext(info.Name()) {
		case ".o", ".a", ".cmd":
			if rebooted && info.Size() == 0 {
				return true
			}
		}
		return killed && !info.ModTime().Before(t.st.Since)
	})
	if err != nil {
		return infra("clean build tree", err)
	}
	t.st.Configured = t.st.Configured && !killed
	t.st.Built = ""
	if t.st.Step = ""; rebooted {
		t.st.Step = "checkout"
	}
	return t.save()
}

// discard removes the files below dir that are torn.
func discard(dir string, torn func(fs.FileInfo) bool) error {
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		info, err := d.Info()
		if err != nil || !torn(info) {
			return err
		}
		return os.Remove(path)
	})
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// checkout moves the source to the job's tree.
func (t *buildTree) checkout(ctx context.Context) error {
	if t.st.Tree == t.tree && t.st.Step == "" {
		t.changed = []string{}
		return nil
	}
	from, torn := t.st.Tree, t.st.Step != ""
	if from != "" && !torn {
		changed, err := t.diff(ctx, from)
		if err != nil {
			return err
		}
		t.changed = changed
	}
	if err := os.MkdirAll(t.src(), 0o755); err != nil {
		return infra("make build tree", err)
	}
	// The configuration stays good only if this move is seen to its end.
	configured := t.st.Configured && !torn && !configures(t.changed)
	t.st.Configured = false
	if err := t.keepBuilt(ctx, torn); err != nil {
		return err
	}
	if err := t.enter("checkout"); err != nil {
		return err
	}
	if torn {
		// Files of a move that was killed, which no index knows.
		if err := t.git(ctx, "clean", "-ffdxq", "-e", "/"+objName); err != nil {
			return err
		}
	}
	if err := t.readTree(ctx, from, torn); err != nil {
		return err
	}
	t.st.Tree, t.st.Step, t.st.Configured = t.tree, "", configured
	return t.save()
}

// keepBuilt forgets what the tree has built, unless the move changes nothing that
// it was built from.
func (t *buildTree) keepBuilt(ctx context.Context, torn bool) error {
	if t.st.Built == "" {
		return nil
	}
	keep := false
	if t.changed != nil && !torn {
		var err error
		if keep, err = t.unused(ctx, t.changed); err != nil {
			return err
		}
	}
	if !keep {
		t.st.Built = ""
	}
	return nil
}

// readTree writes the files of the tree. Between two known trees it touches what
// differs; in doubt it compares each file with the index.
func (t *buildTree) readTree(ctx context.Context, from string, torn bool) error {
	if from == "" || torn {
		return t.git(ctx, "read-tree", "-v", "--reset", "-u", t.tree)
	}
	err := t.git(ctx, "read-tree", "-v", "-m", "-u", from, t.tree)
	if err == nil || ctx.Err() != nil {
		return err
	}
	// A file is not as git left it; --reset makes it so.
	return t.git(ctx, "read-tree", "-v", "--reset", "-u", t.tree)
}

// diff returns the paths that differ between tree from and the job's.
func (t *buildTree) diff(ctx context.Context, from string) ([]string, error) {
	out, err := gitx.Repo{Dir: t.GitDir}.Output(ctx, "diff-tree", "-r", "-z", "--no-renames", "--name-only", from, t.tree)
	switch {
	case ctx.Err() != nil:
		return nil, ctx.Err()
	case err != nil:
		// The tree before is gone from the repository: all may differ.
		return nil, nil
	}
	changed := []string{}
	for _, p := range strings.Split(out, "\x00") {
		if p != "" {
			changed = append(changed, p)
		}
	}
	return changed, nil
}

// git runs a command on the source tree, with the index beside it.
func (t *buildTree) git(ctx context.Context, args ...string) error {
	c := proc.Command(ctx, "git", args...)
	c.Dir = t.src()
	c.Env = append(gitx.Environ(),
		"GIT_DIR="+gitDir(t.GitDir),
		"GIT_WORK_TREE="+t.src(),
		"GIT_INDEX_FILE="+filepath.Join(t.dir, "index"),
		"GIT_PROGRESS_DELAY=0",
	)
	p := &gitProgress{report: func(done, total int64) { t.Progress(PhaseCheckout, done, total) }}
	c.Stderr = p
	err := c.Run()
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		return ctx.Err()
	}
	e := &InfraError{Op: "check out kernel source", Err: fmt.Errorf("git %s: %w: %s", args[0], err, p.text())}
	if strings.Contains(p.text(), "No space left on device") {
		e.Hint = hintDisk
	}
	return e
}

// gitDir returns the repository behind dir, which may be a work tree's top.
func gitDir(dir string) string {
	if _, err := os.Stat(filepath.Join(dir, ".git")); err == nil {
		return filepath.Join(dir, ".git")
	}
	return dir
}

// gitProgress reads git's "Updating files:  12% (9713/80941)", and keeps the rest.
type gitProgress struct {
	report func(done, total int64)
	part   []byte
	rest   []byte
}

var gitCount = regexp.MustCompile(`^Updating files: +\d+% \((\d+)/(\d+)\)`)

// Write implements io.Writer; it never fails.
func (p *gitProgress) Write(b []byte) (int, error) {
	p.part = append(p.part, b...)
	for {
		i := bytes.IndexAny(p.part, "\r\n")
		if i < 0 {
			break
		}
		p.line(p.part[:i])
		p.part = p.part[i+1:]
	}
	return len(b), nil
}

func (p *gitProgress) line(line []byte) {
	if m := gitCount.FindSubmatch(line); m != nil {
		done, _ := strconv.ParseInt(string(m[1]), 10, 64)
		total, _ := strconv.ParseInt(string(m[2]), 10, 64)
		p.report(done, total)
		return
	}
	if len(line) > 0 && len(p.rest) < 4<<10 {
		p.rest = append(append(p.rest, line...), '\n')
	}
}

func (p *gitProgress) text() string {
	return strings.TrimSpace(string(p.rest) + string(p.part))
}

// configures reports whether a change can alter what a configuration becomes:
// Kconfig files, the tools that read them, and the makefiles that call them.
func configures(changed []string) bool {
	if changed == nil {
		return true
	}
	for _, p := range changed {
		name := p[strings.LastIndexByte(p, '/')+1:]
		switch {
		case foreign(p): // arch/arm64/Kconfig is not read for x86
		case strings.HasPrefix(name, "Kconfig"), strings.HasPrefix(p, "scripts/"),
			strings.HasPrefix(p, "kernel/configs/"), strings.HasPrefix(p, "arch/x86/configs/"),
			strings.HasPrefix(p, "arch/x86/Makefile"), p == "Makefile":
			return true
		}
	}
	return false
}

// configure makes .config: tinyconfig or the user's, the fragments over it, and
// what the kernel's own rules make of that, checked.
func (t *buildTree) configure(ctx context.Context, log io.Writer) error {
	t.Progress(PhaseConfigure, 0, 0)
	t.st.Configured = false
	if err := os.MkdirAll(t.obj(), 0o755); err != nil {
		return infra("make build tree", err)
	}
	start, err := t.startConfig(ctx, log)
	if err != nil {
		return err
	}
	wanted, inner := kconfig.Merge(t.Fragments...)
	_, outer := kconfig.Merge(start, wanted)
	t.st.Overrides = overrides(t.Request, inner, outer)
	// The wanted lines come last: of the members of a choice, the last one set wins.
	var text bytes.Buffer
	_, _ = start.Without(wanted).WriteTo(&text) // a buffer takes all
	_, _ = wanted.WriteTo(&text)
	if err := writeFile(t.dotConfig(), text.Bytes()); err != nil {
		return infra("write kernel config", err)
	}
	if err := t.make(ctx, log, "configure", nil, "olddefconfig"); err != nil {
		return err
	}
	final, err := kconfig.ParseFile(t.dotConfig())
	if err != nil {
		return infra("read kernel config", err)
	}
	if err := t.check(wanted, final); err != nil {
		return err
	}
	t.st.Configured = true
	return t.save()
}

// startConfig returns what the fragments are merged over.
func (t *buildTree) startConfig(ctx context.Context, log io.Writer) (*kconfig.Config, error) {
	if t.Base != nil {
		return t.Base, nil
	}
	if err := t.make(ctx, log, "configure", nil, "tinyconfig"); err != nil {
		return nil, err
	}
	c, err := kconfig.ParseFile(t.dotConfig())
	if err != nil {
		return nil, infra("read kernel config", err)
	}
	return c, nil
}

func forVersion(fragments []*kconfig.Config, v kconfig.Version) []*kconfig.Config {
	var out []*kconfig.Config
	for _, f := range fragments {
		out = append(out, f.For(v))
	}
	return out
}

// overrides returns what a person should know of a merge: fragments against each
// other, and against the user's .config; not against tinyconfig, which they are
// there to change.
func overrides(r Request, inner, outer []kconfig.Override) []string {
	all := inner
	if r.Base != nil {
		all = append(all, outer...)
	}
	var lines []string
	for _, o := range all {
		lines = append(lines, o.String())
	}
	return lines
}

// check compares the final configuration with what was wanted.
func (t *buildTree) check(wanted, final *kconfig.Config) error {
	err := kconfig.Check(wanted, final, nil)
	var check *kconfig.CheckError
	if !errors.As(err, &check) {
		return err
	}
	// Only now is it worth reading all Kconfig files.
	if tree, treeErr := kconfig.ReadTree(t.src()); treeErr == nil {
		for i, m := range check.Misses {
			check.Misses[i].Hint = tree.Hint(m.Want, final)
		}
	}
	return &ConfigError{Version: t.version, Err: check}
}

// errAsked says that make wanted to ask about a new symbol.
var errAsked = errors.New("the kernel's configuration wants an answer")

// compile runs the one make that builds the image.
func (t *buildTree) compile(ctx context.Context, log io.Writer) error {
	if err := t.setLayout(); err != nil {
		return err
	}
	t.image = t.vmlinux()
	if t.Target == BzImage {
		t.image = filepath.Join(t.obj(), "arch/x86/boot/bzImage")
	}
	if t.isBuilt() {
		fmt.Fprintf(log, "kbisect: none of %d changed files is used by this configuration: the kernel is the one before\n", len(t.changed))
		return nil
	}
	if err := t.prepareLayout(ctx); err != nil {
		return err
	}
	t.stale = t.dirty()
	expect := t.expect()
	t.Progress(PhaseCompile, 0, expect)
	count := func(n int64) { t.Progress(PhaseCompile, n, max(expect, n)) }
	if err := t.make(ctx, log, "compile", count, string(t.Target)); err != nil {
		return err
	}
	t.learn()
	t.st.Built, t.st.Stamp = t.Target, stampOf(t.vmlinux())
	return t.save()
}

// isBuilt reports whether the tree has the job's image already, as make left it.
func (t *buildTree) isBuilt() bool {
	if t.st.Built != t.Target && t.st.Built != BzImage || t.st.Stamp != stampOf(t.vmlinux()) {
		return false
	}
	_, err := os.Stat(t.image)
	return err == nil
}

// stampOf tells a file from one that was written later; "" is for none.
func stampOf(path string) string {
	info, err := os.Stat(path)
	if err != nil {
		return ""
	}
	return fmt.Sprintf("%d %d", info.Size(), info.ModTime().UnixNano())
}

// make runs make with kbisect's settings, and once more with those flags that
// rescue an old kernel from a new toolchain, where its errors say so. Flags that
// did not help are dropped again.
func (t *buildTree) make(ctx context.Context, log io.Writer, step string, count func(int64), target string) error {
	known := t.st.Rescue
	for {
		out, err := t.makeOnce(ctx, log, step, count, target)
		var kernel *KernelError
		if !errors.As(err, &kernel) {
			return err
		}
		if !errors.Is(err, errAsked) && t.rescue(log, out) {
			continue
		}
		if len(t.st.Rescue) == len(known) {
			return err
		}
		t.st.Rescue = known
		if saveErr := t.save(); saveErr != nil {
			return saveErr
		}
		return err
	}
}

// makeOnce runs make, and keeps the note of what is going on.
func (t *buildTree) makeOnce(ctx context.Context, log io.Writer, step string, count func(int64), target string) (*output, error) {
	t.st.Built = ""
	if err := t.enter("make"); err != nil {
		return nil, err
	}
	env, err := t.makeEnv(step)
	if err != nil {
		return nil, err
	}
	before := t.objects
	out := &output{log: log, src: t.src()}
	if count != nil {
		out.count = func(n int64) { count(before + n) }
	}
	m := makeRun{
		step: step,
		args: append([]string{"-C", t.src(), "O=" + t.obj(), "-j" + strconv.Itoa(t.Jobs), "ARCH=x86_64", "CC=" + t.tools.CC, "LOCALVERSION="}, append(t.fewerShells(), target)...),
		env:  env,
		out:  out,
		log:  t.logPath(),
	}
	err = m.run(ctx)
	if step == "compile" {
		t.objects += out.lines
	}
	if m.hard || tornWrite(err) {
		return out, err // the note stays, for recover
	}
	t.st.Step = ""
	if saveErr := t.save(); err == nil {
		err = saveErr
	}
	if out.closed && err != nil && step == "compile" && ctx.Err() == nil {
		err = fmt.Errorf("%w: %w", errAsked, err)
	}
	return out, err
}

// emptyCommand is how kernels before 6.4 define what runs a step, whether there
// is anything to run or not. For each C object that is up to date, that is a
// shell which sets traps and ends: 1,015 of the 2,000 processes that a make with
// nothing to do starts for 6.1, and a third of its time.
var emptyCommand = regexp.MustCompile(`(?m)^cmd = @(set -e; [^,\n]*\$\(cmd_\$\(1\)\))$`)

// fewerShells returns the definition that replaces it, as kernels have it since:
// the same where there is something to run.
func (t *buildTree) fewerShells() []string {
	text, err := os.ReadFile(filepath.Join(t.src(), "scripts/Kbuild.include"))
	if err != nil {
		return nil
	}
	m := emptyCommand.FindSubmatch(text)
	if m == nil {
		return nil
	}
	return []string{"cmd=@$(if $(cmd_$(1))," + string(m[1]) + ",:)"}
}

// tornWrite reports whether a make ended because its files could not be written:
// any of them may be torn, since not all of kbuild's steps check.
func tornWrite(err error) bool {
	for _, e := range []error{syscall.ENOSPC, syscall.EDQUOT, syscall.EIO, syscall.EROFS} {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}

// ccacheLimit is the number of objects from which ccache is worth its start for
// each of them. A one-file variant is in the cache of kernels anyway.
const ccacheLimit = 40

// makeEnv returns what make's environment has beside toolEnv: folders in front
// of PATH with tools that stand for others. By PATH, because another CC= or LD=
// would change every command line, and kbuild would build everything anew.
func (t *buildTree) makeEnv(step string) ([]string, error) {
	bin := filepath.Join(t.dir, "bin")
	env := t.rescueFlags(setenv)
	var path []string
	if t.Layout != 0 && step == "compile" {
		path = append(path, t.layoutDir())
	}
	wrapped := len(t.rescueFlags(first))+len(t.rescueFlags(last)) > 0
	if wrapped {
		path = append(path, bin)
		if err := t.wrapCompilers(bin); err != nil {
			return nil, err
		}
	}
	if t.wantsCcache(step) {
		switch {
		case wrapped:
			env = append(env, "KBISECT_CCACHE="+t.tools.Ccache)
		case linkCcache(t.tools, bin):
			path = append(path, bin)
		}
		env = append(env,
			"CCACHE_CONFIGPATH=/dev/null", // the user's settings are not ours
			"CCACHE_DIR="+filepath.Join(t.Cache, "ccache"),
			"CCACHE_MAXSIZE="+strconv.FormatInt(t.budget()/4>>20, 10)+"M",
			"CCACHE_NOHASHDIR=1", // all paths are relative: the folder does not matter
			"CCACHE_COMPILERCHECK=content",
		)
	}
	if len(path) > 0 {
		env = append(env, "PATH="+strings.Join(append(path, os.Getenv("PATH")), ":"))
	}
	return env, nil
}

// wantsCcache reports whether ccache is to stand before the compiler.
func (t *buildTree) wantsCcache(step string) bool {
	return !t.NoCcache && t.tools.Ccache != "" && step == "compile" && t.expect() >= ccacheLimit
}

// linkCcache makes ccache stand for the compiler in the folder bin. Where that
// does not work, it is only slower.
func linkCcache(tools Toolchain, bin string) bool {
	link := filepath.Join(bin, tools.CC)
	if to, err := os.Readlink(link); err == nil && to == tools.Ccache {
		return true
	}
	_ = os.RemoveAll(link)
	return os.MkdirAll(bin, 0o755) == nil && os.Symlink(tools.Ccache, link) == nil
}

// hashFile returns the SHA-256 of a file, in hexadecimal.
func hashFile(path string) (string, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	h := sha256.New()
	if _, err := io.Copy(h, f); err != nil {
		return "", err
	}
	return hex.EncodeToString(h.Sum(nil)), nil
}
