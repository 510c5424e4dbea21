package main

import (
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/kbisect/kbisect/guest/workload"
	"github.com/kbisect/kbisect/internal/app"
	"github.com/kbisect/kbisect/kconfigs"
	"github.com/kbisect/kbisect/patches"
)

// The scripts ask the program itself (cli's --generate-bash-completion), so
// that they never go stale.
var completions = map[string]string{
	"bash": `_kbisect() {
  local IFS=$'\n' words=("${COMP_WORDS[@]:0:$COMP_CWORD}") cur="${COMP_WORDS[$COMP_CWORD]}"
  [[ $cur == -* ]] && words+=("$cur")
  COMPREPLY=($(compgen -W "$("${words[@]}" --generate-bash-completion 2>/dev/null)" -- "$cur"))
}
complete -o bashdefault -o default -F _kbisect kbisect
`,
	"zsh": `#compdef kbisect
_kbisect() {
  local -a opts
  local cur=${words[-1]}
  if [[ $cur == -* ]]; then
    opts=("${(@f)$(${words[@]:0:#words[@]-1} ${cur} --generate-bash-completion 2>/dev/null)}")
  else
    opts=("${(@f)$(${words[@]:0:#words[@]-1} --generate-bash-completion 2>/dev/null)}")
  fi
  [[ -n $opts ]] && compadd -- ${opts%%:*} || _files
}
compdef _kbisect kbisect
`,
	"fish": `function __kbisect_complete
  set -l words (commandline -opc)
  set -l cur (commandline -ct)
  string match -q -- '-*' $cur; and set -a words $cur
  $words --generate-bash-completion 2>/dev/null
end
complete -c kbisect -a '(__kbisect_complete)'
`,
}

func newCompletionCommand(t *terminal) *cli.Command {
	return &cli.Command{
		Name:      "completion",
		Usage:     "print the completion script for a shell",
		ArgsUsage: "bash|zsh|fish",
		Description: `Examples:
  source <(kbisect completion bash)
  kbisect completion fish > ~/.config/fish/completions/kbisect.fish`,
		BashComplete: completeWords("bash", "zsh", "fish"),
		Action: func(c *cli.Context) error {
			if err := checkArgs(c, 1); err != nil {
				return err
			}
			script, ok := completions[c.Args().First()]
			if !ok {
				return app.Usagef("kbisect completion bash", "no completion for shell %q: want bash, zsh or fish", c.Args().First())
			}
			_, err := fmt.Fprint(t.out, script)
			return err
		},
	}
}

// completeWords completes an argument from fixed words.
func completeWords(words ...string) cli.BashCompleteFunc {
	return complete(func(*cli.Context) []string { return words })
}

// complete completes a flag's value where one is wanted, else flags as cli does,
// and an argument from words.
func complete(words func(*cli.Context) []string) cli.BashCompleteFunc {
	return func(c *cli.Context) {
		var out []string
		last := lastWord(os.Args)
		switch flag := wantsValue(c.Command, last); {
		case flag == "" && strings.HasPrefix(last, "-"):
			cli.DefaultCompleteWithFlags(c.Command)(c)
		case flag == "":
			out = words(c)
		case flagValues[flag] != nil:
			out = flagValues[flag]()
		default: // files, which is what shells do with nothing
		}
		for _, w := range out {
			fmt.Fprintln(c.App.Writer, w)
		}
	}
}

// lastWord is what stands before cli's own flag, which ends the arguments.
func lastWord(args []string) string {
	if len(args) < 2 {
		return ""
	}
	return args[len(args)-2]
}

// wantsValue returns the long name of the flag if word is one that takes a
// value, else "".
func wantsValue(cmd *cli.Command, word string) string {
	if cmd == nil || !strings.HasPrefix(word, "-") || !takesValue(cmd, word) {
		return ""
	}
	for _, f := range cmd.Flags {
		if slices.Contains(f.Names(), strings.TrimLeft(word, "-")) {
			return f.Names()[0]
		}
	}
	return ""
}

// flagValues has the flags whose values are from a list.
var flagValues = map[string]func() []string{
	"accel":    func() []string { return []string{"auto", "kvm", "tcg"} },
	"kconfig":  kconfigs.Optional,
	"look-for": func() []string { return []string{"higher", "lower"} },
	"strategy": func() []string { return []string{app.StrategyBayes, app.StrategySPRT} },
	"workload": func() (names []string) {
		for _, w := range workload.All() {
			names = append(names, w.Name())
		}
		return names
	},
}

func caseNames(*cli.Context) (names []string) {
	cases, err := patches.Embedded()
	if err != nil {
		return nil
	}
	for _, e := range cases {
		names = append(names, e.Name)
	}
	return names
}

// runIDs returns what takes the id of an earlier run its words.
func runIDs(t *terminal, interrupted bool) func(*cli.Context) []string {
	return func(c *cli.Context) []string {
		env, err := app.OpenEnv(t.newUI(c))
		if err != nil {
			return nil
		}
		return app.RunIDs(c.Context, env, interrupted)
	}
}
