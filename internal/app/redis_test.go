package app

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/resqued/resqued/internal/config"
	"github.com/resqued/resqued/internal/testkit/redistest"
)

// TestRedisIsBack: go-redis needs up to a second to notice that, after as many failed dials as
// its pool has connections.
func TestRedisIsBack(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t, redistest.Options{})
	loaded, err := config.Load(config.Options{Environ: []string{"REDIS_URL=" + server.URL()}})
	require.NoError(t, err)
	s, err := OpenStore(loaded.Config, "resqued-test")
	require.NoError(t, err)
	defer func() { require.NoError(t, s.Close()) }()

	server.Stop()
	for range 5 { // a few dials each
		require.Error(t, s.Ping(t.Context()))
	}
	server.Restart()
	require.NoError(t, s.Ping(t.Context()), "it is back")
}
