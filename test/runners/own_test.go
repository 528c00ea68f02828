//go:build linux

package runners_test

import (
	"context"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestOwnTests runs the tests that each runner has in its own language.
func TestOwnTests(t *testing.T) {
	t.Parallel()
	for _, own := range []struct {
		language, dir string
		argv          []string
	}{
		{"ruby", ".", []string{"ruby", "runners/ruby/test/all.rb"}},
		{"python", "runners/python", []string{"python3", "-m", "unittest", "discover", "-s", "tests", "-t", "."}},
		{"node", "runners/node", []string{"node", "--test", "test/"}},
	} {
		t.Run(own.language, func(t *testing.T) {
			t.Parallel()
			if testing.Short() {
				t.Skip("they take some seconds")
			}
			if _, err := exec.LookPath(own.argv[0]); err != nil {
				t.Skip(err)
			}
			ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
			defer cancel()
			cmd := exec.CommandContext(ctx, own.argv[0], own.argv[1:]...)
			cmd.Dir = filepath.Join("..", "..", own.dir)
			out, err := cmd.CombinedOutput()
			require.NoError(t, err, "%s", out)
		})
	}
}
