package app

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/resqued/resqued/internal/config"
)

func TestLittleMemory(t *testing.T) {
	t.Parallel()
	resolved := func(rss int64) *config.Resolved {
		return &config.Resolved{Config: config.Config{WorkerCount: 4, MaxRetiring: 1, MaxRSS: rss}}
	}
	const little, enough = 512 << 20, 1 << 30
	warned := littleMemory(resolved(config.RSSAuto), little)
	require.Len(t, warned, 1)
	require.Contains(t, warned[0].Message, "worker_count 4: the control group allows 512MiB")
	require.Empty(t, littleMemory(resolved(config.RSSAuto), enough))
	require.Empty(t, littleMemory(resolved(config.RSSAuto), 0), "no limit")
	require.Empty(t, littleMemory(resolved(0), little), "a limit was not wanted")
	require.Empty(t, littleMemory(resolved(64<<20), little), "it was set")
}
