//go:build linux

package procfs

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestBootTime(t *testing.T) {
	t.Parallel()
	first := BootTime()
	require.Positive(t, first)
	require.GreaterOrEqual(t, BootTime(), first)
}
