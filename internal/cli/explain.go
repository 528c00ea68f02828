package cli

import (
	"regexp"
	"strings"
	"sync"

	"github.com/spf13/cobra"

	"github.com/resqued/resqued/docs"
	"github.com/resqued/resqued/internal/view"
)

// runbooks returns the texts of docs/operations.md by the codes of their findings.
var runbooks = sync.OnceValues(func() (codes []string, texts map[string]string) {
	title, link := regexp.MustCompile("(?m)^### `([a-z_]+)`: (.*)\n"), regexp.MustCompile(`\[([^]]+)\]\([^)]+\)`)
	page := docs.Operations()
	texts = map[string]string{}
	for _, at := range title.FindAllStringSubmatchIndex(page, -1) {
		code, what, rest := page[at[2]:at[3]], page[at[4]:at[5]], page[at[1]:]
		if end := strings.Index(rest, "\n#"); end >= 0 {
			rest = rest[:end]
		}
		plain := strings.ReplaceAll(link.ReplaceAllString(strings.TrimSpace(rest), "$1"), "**", "")
		codes, texts[code] = append(codes, code), code+": "+what+"\n\n"+plain+"\n"
	}
	return codes, texts
})

func (a *cli) explainCommand() *cobra.Command {
	c := a.command(verb{
		use: "explain CODE…", kind: noRedis, short: "print what to do about a finding of doctor",
		long: `Print the runbook of a finding, by the code that "doctor -o json" and the end of
each line of "doctor" have. The runbooks are part of this program.`,
		example: "explain queue_orphan",
		args:    a.some("which finding?", "doctor"),
		do: func(c *cobra.Command, args []string) error {
			codes, texts := runbooks()
			for i, code := range args {
				text, ok := texts[code]
				if !ok {
					return lookup(&view.NotFoundError{Kind: "finding", Name: code, Known: codes}, a.again()+" doctor", c)
				}
				if i > 0 {
					text = "\n" + text
				}
				if err := a.printText(text); err != nil {
					return err
				}
			}
			return nil
		},
	})
	c.ValidArgsFunction = func(c *cobra.Command, args []string, begun string) ([]string, cobra.ShellCompDirective) {
		codes, _ := runbooks()
		return words(codes...)(c, args, begun)
	}
	return c
}
