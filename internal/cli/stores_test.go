package cli

import (
	"slices"
	"testing"

	"github.com/spf13/cobra"
	"github.com/stretchr/testify/require"

	"github.com/resqued/resqued"
)

// Each verb either says what several stores mean to it, or is known to need one, or none.
func TestStoreScopes(t *testing.T) {
	t.Parallel()
	alone := []string{
		// These need one, or find out for themselves.
		"enqueue", "longjobs start", "longjobs recurring tick", "top", "web", "web token add", "web token list", "web token remove", "dev", "bench",
		// These ask no Redis, or the daemon itself.
		"work", "drain", "reload", "upgrade", "health", "config", "config check", "config show", "config init", "version", "completion",
		"locker", "locker guard", "locker ls", "locker release", "locker prune", "locker migrate", "locker run", "web token",
	}
	a := &cli{name: "resqued", handlers: resqued.New()}
	var walk func(c *cobra.Command)
	walk = func(c *cobra.Command) {
		for _, sub := range c.Commands() {
			if path := verbOf(sub); sub.RunE != nil {
				_, several := storeScopes[path]
				require.True(t, several != slices.Contains(alone, path), "%s: say in storeScopes what several stores mean to it", path)
			}
			walk(sub)
		}
	}
	walk(a.root())
}

func TestStoreItem(t *testing.T) {
	t.Parallel()
	for want, item := range map[string]any{
		`{"store":"a","x":1}`: struct {
			X int `json:"x"`
		}{1},
		`{"store":"a"}`: struct{}{},
		`null`:          nil,
	} {
		text, err := storeItem{"a", item}.MarshalJSON()
		require.NoError(t, err)
		require.Equal(t, want, string(text))
	}
}
