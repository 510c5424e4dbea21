package main

import (
	"slices"
	"strings"

	"github.com/urfave/cli/v2"
)

// flagsFirst moves a command's flags in front of its arguments, since cli takes
// what stands behind an argument for one. What follows "--" stays as it is.
func flagsFirst(a *cli.App, args []string) []string {
	if len(args) > 0 && args[len(args)-1] == "--generate-bash-completion" {
		return args
	}
	at := 1
	for at < len(args) && strings.HasPrefix(args[at], "-") { // the app's own flags have no values
		at++
	}
	if at >= len(args) {
		return args
	}
	cmd := a.Command(args[at])
	if cmd == nil {
		return args
	}
	at++
	flags, rest := slices.Clone(args[:at]), []string{}
	for ; at < len(args); at++ {
		arg := args[at]
		switch {
		case arg == "--":
			return slices.Concat(flags, rest, args[at:])
		case len(arg) < 2 || arg[0] != '-':
			rest = append(rest, arg)
		default:
			flags = append(flags, arg)
			if takesValue(cmd, arg) && at+1 < len(args) {
				at++
				flags = append(flags, args[at])
			}
		}
	}
	return append(flags, rest...)
}

// takesValue reports whether the next argument is the flag's value.
func takesValue(cmd *cli.Command, arg string) bool {
	name := strings.TrimLeft(arg, "-")
	if strings.Contains(name, "=") {
		return false
	}
	for _, f := range cmd.Flags {
		if slices.Contains(f.Names(), name) {
			d, ok := f.(cli.DocGenerationFlag)
			return ok && d.TakesValue()
		}
	}
	return false
}
