package system_test

import (
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/resqued/resqued/internal/testkit/redistest"
	"github.com/resqued/resqued/test/system/harness"
)

// TestRedisIsBackWhileIdle makes Redis refuse an idle daemon, as a wrong password does, and
// then lifts the refusal. The master and its workers each log that Redis is back.
func TestRedisIsBackWhileIdle(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t, redistest.Options{})
	d := harness.Start(t, harness.Options{Redis: server})
	c := redis.NewClient(&redis.Options{Network: "unix", Addr: server.Socket, MaxRetries: -1})
	defer c.Close() //nolint:errcheck // of a test
	require.NoError(t, c.Do(t.Context(), "CONFIG", "SET", "requirepass", "other").Err())
	require.NoError(t, c.Do(t.Context(), "AUTH", "other").Err())
	require.NoError(t, c.Do(t.Context(), "CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes").Err())
	d.AwaitLog("cannot look for jobs")
	d.AwaitLog("redis cannot be told of this master")
	mended := redis.NewClient(&redis.Options{Network: "unix", Addr: server.Socket, Password: "other"})
	defer mended.Close() //nolint:errcheck // of a test
	require.NoError(t, mended.Do(t.Context(), "CONFIG", "SET", "requirepass", "").Err())
	d.AwaitLog(`"redis is back"`)
}
