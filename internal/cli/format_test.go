package cli

import (
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/resqued/resqued"
)

// looking are the verbs that change nothing which another version may have written, or that
// need no Redis.
var looking = []string{
	"completion", "completion bash", "completion fish", "completion powershell", "completion zsh", "config", "config check", "config init", "config show", "doctor",
	"bench", "dev", "drain", "enqueue", "events", "health", "hosts", "hosts ls", "reload", "upgrade", "version", "work",
	"failed", "failed ls", "failed show", "jobs", "jobs find", "jobs ls", "jobs show", "jobs wait", "locks", "locks ls",
	"locks show", "locks unique", "locks waiting", "longjobs", "longjobs ls", "longjobs recurring", "longjobs recurring tick", "longjobs show", "longjobs start",
	"parked", "parked ls", "parked payload", "queues", "queues ls", "queues pause", "queues resume", "queues show", "queues tenants",
	"reload", "schedule", "schedule ls", "stats", "upgrade", "workers", "workers ls", "workers show",
	"web", "web token", "web token add", "web token list", "web token remove",
}

// Each verb says whether it changes what another version may have written.
func TestEditingVerbs(t *testing.T) {
	t.Parallel()
	var all []string
	var walk func(c *cobra.Command)
	walk = func(c *cobra.Command) {
		if verb := verbOf(c); c.Runnable() && verb != "" && !strings.HasPrefix(verb, "locker") && !strings.HasPrefix(verb, "__") {
			all = append(all, verb)
		}
		for _, sub := range c.Commands() {
			walk(sub)
		}
	}
	a := &cli{name: "resqued", handlers: resqued.New()}
	walk(a.root())
	for _, verb := range all {
		assert.NotEqual(t, slices.Contains(editing, verb), slices.Contains(looking, verb),
			"%q has to stand in one of two lists: editing in format.go, if it changes what another version may have written, or looking here", verb)
	}
	for _, verb := range editing {
		require.Contains(t, all, verb)
	}
}
