package main

import (
	"context"
	"flag"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
)

var update = flag.Bool("update", false, "rewrite golden parts of testdata")

func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){
		"kbisect": func() { os.Exit(run(context.Background(), os.Args, os.Stdin, os.Stdout, os.Stderr)) },
	})
}

// TestScripts runs the command line as a person would. No script needs a kernel.
func TestScripts(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir:           "testdata",
		UpdateScripts: *update,
		Deadline:      time.Now().Add(3 * time.Minute), // a script that begins to build is wrong
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			// link FILE PROGRAM: a link to a program of the host's.
			"link": func(ts *testscript.TestScript, _ bool, args []string) {
				for _, dir := range filepath.SplitList(ts.Getenv("PATH")) {
					path := filepath.Join(dir, args[1])
					if _, err := os.Stat(path); err == nil {
						ts.Check(os.Symlink(path, ts.MkAbs(args[0])))
						return
					}
				}
				ts.Fatalf("no program %s", args[1])
			},
		},
		Setup: func(e *testscript.Env) error {
			e.Setenv("XDG_CACHE_HOME", e.WorkDir+"/cache")
			e.Setenv("XDG_STATE_HOME", e.WorkDir+"/state")
			e.Setenv("HOME", e.WorkDir)
			return nil
		},
	})
}
