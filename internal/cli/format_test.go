package cli

import (
	"testing"

	"github.com/spf13/cobra"
	"github.com/stretchr/testify/assert"

	"github.com/resqued/resqued"
)

// Each verb has a kind: changes of other versions' records must be guarded.
func TestKindsOfVerbs(t *testing.T) {
	t.Parallel()
	var walk func(c *cobra.Command)
	walk = func(c *cobra.Command) {
		for _, sub := range c.Commands() {
			assert.NotEmpty(t, sub.Annotations["kind"], "%s needs Annotations of format.go", sub.CommandPath())
			walk(sub)
		}
	}
	a := &cli{name: "resqued", handlers: resqued.New()}
	walk(a.root())
}
