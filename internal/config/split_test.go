package config

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestSplitCommand(t *testing.T) {
	t.Parallel()
	for text, want := range map[string][]string{
		"bundle exec resqued-runner config/environment": {"bundle", "exec", "resqued-runner", "config/environment"},
		"  ruby\t-Ilib  a.rb ":                          {"ruby", "-Ilib", "a.rb"},
		`ruby 'a b.rb' "c d" e\ f ''`:                   {"ruby", "a b.rb", "c d", "e f", ""},
		`sh -c 'cd /app && exec ruby "$1" | cat' x`:     {"sh", "-c", `cd /app && exec ruby "$1" | cat`, "x"},
		`a "b\"c\\d\e" 'f\g' h"i"'j'`:                   {"a", `b"c\d\e`, `f\g`, "hij"},
		`a \| \$x "\$y" b#c d~e x=1`:                    {"a", "|", "$x", "$y", "b#c", "d~e", "x=1"},
		"python3 -m resqued_runner äpp":                 {"python3", "-m", "resqued_runner", "äpp"},
		"env RAILS_ENV=production ruby a.rb":            {"env", "RAILS_ENV=production", "ruby", "a.rb"},
	} {
		got, err := SplitCommand(text)
		require.NoError(t, err, text)
		require.Equal(t, want, got, text)
	}
	for text, want := range map[string]string{
		"":                    "names no program",
		"  ":                  "names no program",
		"'' a":                "names no program",
		"a | b":               `'|' at character 3 needs a shell`,
		"ä && b":              `'&' at character 3 needs a shell`,
		"a; b":                `';' at character 2`,
		"a > b":               `'>' at character 3`,
		"ruby $APP":           `'$' at character 6`,
		`ruby "$APP"`:         `'$' at character 7`,
		"ruby `x`":            "'`' at character 6",
		"ruby *.rb":           `'*' at character 6`,
		"~/bin/x":             `'~' at character 1`,
		"a # b":               `'#' at character 3`,
		"a (b)":               `'(' at character 3`,
		"ruby 'a":             "a quote (') is never closed",
		`ruby "a`:             `a quote (") is never closed`,
		`ruby a\`:             "ends with a backslash",
		"RAILS_ENV=test ruby": `"RAILS_ENV=test" sets a variable, which only a shell does; put env in front of it: --runner 'env RAILS_ENV=test ruby'`,
		"a \x00":              "NUL",
	} {
		_, err := SplitCommand(text)
		require.ErrorContains(t, err, want, text)
	}
}

func FuzzSplitCommand(f *testing.F) {
	for _, seed := range []string{"a b", `a 'b' "c\"" \d`, "'", "\\", "$", "\x00", "\xff", "a=b"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		argv, err := SplitCommand(text)
		if err != nil {
			require.Empty(t, argv)
			return
		}
		require.NotEmpty(t, argv)
		require.NotEmpty(t, argv[0])
	})
}
