package cli

import (
	"context"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/resqued/resqued/internal/app"
	"github.com/resqued/resqued/internal/config"
	"github.com/resqued/resqued/internal/selector"
	"github.com/resqued/resqued/internal/store"
	"github.com/resqued/resqued/internal/wire"
)

// completionTimeout is how long a shell waits for names from Redis.
const completionTimeout = time.Second

func (a *cli) completionCommand() *cobra.Command {
	shells := []string{"bash", "zsh", "fish", "powershell"}
	c := a.command(verb{
		use: "completion SHELL", kind: noRedis, short: "print a completion script for bash, zsh, fish or powershell",
		example: "  source <(" + a.name + " completion bash)",
		args: func(c *cobra.Command, args []string) error {
			if len(args) == 1 && slices.Contains(shells, args[0]) {
				return nil
			}
			return usage("Example: "+c.CommandPath()+" bash", "completion takes one of %s", strings.Join(shells, ", "))
		},
		do: func(c *cobra.Command, args []string) error {
			root, err := c.Root(), error(nil)
			switch args[0] {
			case "bash":
				err = printBashCompletion(a.stdout, root)
			case "zsh":
				err = root.GenZshCompletion(a.stdout)
			case "fish":
				err = root.GenFishCompletion(a.stdout, true)
			case "powershell":
				err = root.GenPowerShellCompletionWithDesc(a.stdout)
			}
			if isBrokenPipe(err) {
				return nil
			}
			return err
		},
	})
	c.ValidArgs = shells
	return c
}

// bashWords is the line of cobra's script that needs the package bash-completion. bashWordsAlone
// replaces it, and finds the words itself without that package.
const (
	bashWords      = "    _get_comp_words_by_ref \"$@\" cur prev words cword\n"
	bashWordsAlone = `    if declare -F _get_comp_words_by_ref >/dev/null 2>&1; then
        _get_comp_words_by_ref "$@" cur prev words cword
        return
    fi
    # Bash has split words at = and : as well. Words without a space between them belong together.
    local i word space line=${COMP_LINE:0:COMP_POINT}
    line=${line#*"${COMP_WORDS[0]}"}
    words=("${COMP_WORDS[0]}")
    for ((i = 1; i <= COMP_CWORD; i++)); do
        space=${line%%[![:space:]]*}
        line=${line#"$space"}
        word=${COMP_WORDS[i]}
        # The cursor may stand in the middle of the last one.
        if ((i == COMP_CWORD)); then word=$line; fi
        line=${line#"$word"}
        if [[ -n $space ]]; then words+=("$word"); else words[${#words[@]}-1]+=$word; fi
    done
    cword=$((${#words[@]} - 1))
    cur=${words[cword]}
    prev=
    if ((cword > 0)); then prev=${words[cword-1]}; fi
`
)

func printBashCompletion(stdout io.Writer, root *cobra.Command) error {
	var script strings.Builder
	if err := root.GenBashCompletionV2(&script, true); err != nil {
		return err
	}
	_, err := io.WriteString(stdout, strings.Replace(script.String(), bashWords, bashWordsAlone, 1))
	return err
}

type completer = func(c *cobra.Command, args []string, prefix string) ([]cobra.Completion, cobra.ShellCompDirective)

func words(list ...string) completer {
	return func(*cobra.Command, []string, string) ([]cobra.Completion, cobra.ShellCompDirective) {
		return list, cobra.ShellCompDirectiveNoFileComp
	}
}

// live completes with names from Redis, or nothing: an error would be printed into the prompt.
func (a *cli) live(names func(ctx context.Context, s *store.Store) ([]string, error)) completer {
	return func(c *cobra.Command, args []string, prefix string) ([]cobra.Completion, cobra.ShellCompDirective) {
		ctx, cancel := context.WithTimeout(c.Context(), completionTimeout)
		defer cancel()
		r, err := a.load(c)
		if err != nil {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		s, err := app.OpenStore(r.Config, "resqued-cli")
		if err != nil {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		defer func() { _ = s.Close() }()
		found, err := names(ctx, s)
		if err != nil {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		var out []cobra.Completion
		for _, name := range found {
			// Names that a shell would split or a terminal would interpret are not offered.
			if strings.HasPrefix(name, prefix) && !slices.Contains(args, name) &&
				wire.Printable(name, 200) == name && !strings.ContainsAny(name, " \t\"'`$\\;&|<>()") {
				out = append(out, name)
			}
		}
		return out, cobra.ShellCompDirectiveNoFileComp
	}
}

func (a *cli) storesToComplete(c *cobra.Command, _ []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
	r, err := a.loadAs(c, config.Options{})
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	return storeNames(r), cobra.ShellCompDirectiveNoFileComp
}

func queueNames(ctx context.Context, s *store.Store) ([]string, error) {
	list, err := s.QueueList(ctx)
	names := make([]string, len(list))
	for i, q := range list {
		names[i] = q.Name
	}
	return names, err
}

// classNames are the classes that have a handler here, and those of jobs at the head of queues.
func (a *cli) classNames(ctx context.Context, s *store.Store) ([]string, error) {
	names := slices.DeleteFunc(a.program().Registry().Classes(), selector.IsPattern)
	queues, err := s.QueueList(ctx)
	if err != nil {
		return names, nil //nolint:nilerr // the registered classes are better than nothing
	}
	for _, q := range queues[:min(len(queues), 20)] {
		payloads, err := s.Payloads(ctx, q.Name, 0, 5)
		if err != nil {
			continue
		}
		for _, p := range payloads {
			if e, err := wire.Parse(p, 0); err == nil {
				names = append(names, e.Class)
			}
		}
	}
	slices.Sort(names)
	return slices.Compact(names), nil
}
