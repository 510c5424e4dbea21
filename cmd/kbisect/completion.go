package main

import (
	"fmt"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/kbisect/kbisect/internal/app"
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

// completeWords completes an argument from fixed words, and flags as cli does.
func completeWords(words ...string) cli.BashCompleteFunc {
	return func(c *cli.Context) {
		cli.DefaultCompleteWithFlags(c.Command)(c)
		fmt.Fprintln(c.App.Writer, strings.Join(words, "\n"))
	}
}

func completeCases(c *cli.Context) {
	cases, err := patches.Embedded()
	if err != nil {
		return
	}
	var names []string
	for _, e := range cases {
		names = append(names, e.Name)
	}
	completeWords(names...)(c)
}
