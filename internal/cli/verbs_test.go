package cli

import (
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/spf13/cobra"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/resqued/resqued"
)

// Each verb has a kind: changes of other versions' records must be guarded. Its help fits 80 columns.
func TestKindsOfVerbs(t *testing.T) {
	t.Parallel()
	var walk func(c *cobra.Command)
	walk = func(c *cobra.Command) {
		for _, sub := range c.Commands() {
			assert.NotEmpty(t, sub.Annotations["kind"], "%s needs a kind of verbs.go", sub.CommandPath())
			for line := range strings.Lines(sub.Long + "\n" + sub.UsageString()) {
				if !strings.HasPrefix(line, "Use \"") { // written by cobra
					assert.LessOrEqual(t, utf8.RuneCountInString(line), 81, "%s --help: %s", sub.CommandPath(), line)
				}
			}
			walk(sub)
		}
	}
	a := &cli{output: output{name: "resqued"}, handlers: resqued.New()}
	walk(a.root())
}

// Shells offer files for the flags that take one, and for no others.
func TestCompletionOfFlags(t *testing.T) {
	t.Parallel()
	root := (&cli{output: output{name: "resqued"}, handlers: resqued.New()}).root()
	for flag, completed := range map[string]bool{"limit": true, "class": true, "since": true, "payload-file": false} {
		retry, _, err := root.Find([]string{"failed", "retry"})
		require.NoError(t, err)
		_, found := retry.GetFlagCompletionFunc(flag)
		assert.Equal(t, completed, found, flag)
	}
}

func TestExamples(t *testing.T) {
	t.Parallel()
	a := &cli{output: output{name: "mine"}}
	require.Equal(t, "  mine queues\n  echo | mine enqueue", a.examples("queues\n  echo | mine enqueue"))
	require.Empty(t, a.examples(""))
}
