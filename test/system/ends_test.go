package system_test

import (
	"context"
	"crypto/sha1"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/resqued/resqued/internal/testkit/proctest"
	"github.com/resqued/resqued/internal/testkit/redistest"
	"github.com/resqued/resqued/test/system/harness"
)

// TestDrainWithoutRedis checks that a drain does not wait for an unavailable Redis.
func TestDrainWithoutRedis(t *testing.T) {
	t.Parallel()

	for name, leave := range map[string]func(*redistest.Server){
		"it is gone": (*redistest.Server).Kill,
		"it hangs":   (*redistest.Server).Hang,
	} {
		t.Run("nothing is in hand, and "+name, func(t *testing.T) {
			t.Parallel()
			server := redistest.Start(t, durable)
			d := harness.Start(t, harness.Options{App: true, Workers: 2, Threads: 2, Redis: server, Env: []string{longKill}})
			d.Push("mail", "Count", harness.Range(1, 20)...)
			d.AwaitProcessed(20, patience)
			leave(server)
			d.Signal(quit)
			require.True(t, d.AwaitEnd(harness.Speed(20*time.Second)), "the drain waits for redis: %s", d.Log())
			require.Zero(t, d.Exit())
			require.NotContains(t, d.Log(), "worker process died")
		})
	}

	t.Run("what has ended is tried for as long as a kill would, and then recovered", func(t *testing.T) {
		t.Parallel()
		server := redistest.Start(t, durable)
		o := harness.Options{App: true, Threads: 2, Redis: server, Env: []string{shortKill}, Config: "max_deaths: 1\n"}
		d := harness.Start(t, o)
		d.Push("mail", "Gate", 1)
		d.AwaitNoted("started", 1)
		server.Kill() // the job needs it, and fails; its end is not recorded
		d.Signal(quit)
		require.True(t, d.AwaitEnd(harness.Speed(40*time.Second)), "the drain waits for redis: %s", d.Log())
		require.Zero(t, d.Exit())
		d.AwaitLog("left to recovery")
		server.Restart()
		require.EqualValues(t, 1, d.Snapshot().InFlight)
		d.Open() // not before: the job could end while there is a server to record it
		o.Namespace, o.Config = d.Space, ""
		next := harness.Start(t, o)
		next.ForgetMasters() // the first one's entry expires
		next.AwaitProcessed(1, patience)
		next.Signal(quit)
		require.Zero(t, next.Exit())
		require.Empty(t, next.Residue())
	})

	t.Run("an end that cannot be written is parked, and takes its place later", func(t *testing.T) {
		t.Parallel()
		ctx := context.Background()
		o := harness.Options{App: true, Threads: 2, Env: []string{longKill}}
		d := harness.Start(t, o)
		require.NoError(t, d.Client.Set(ctx, d.Key("failed"), "text", 0).Err())
		d.Push("mail", "Fail", 1)
		d.AwaitNoted("ran", 1)
		d.AwaitLog("failed is not a list")
		d.Signal(quit)
		require.True(t, d.AwaitEnd(patience/2), "%s", d.Log())
		require.Zero(t, d.Exit())
		d.AwaitLog("was parked")
		requireNoLocks(t, d)
		require.Zero(t, d.Snapshot().InFlight)
		stdout, _, code := d.Run("parked", "--config", d.ConfigFile)
		require.Zero(t, code)
		require.Contains(t, stdout, "failed is not a list")

		o.Namespace = d.Space
		next := harness.Start(t, o)
		require.NoError(t, d.Client.Del(ctx, d.Key("failed")).Err())
		require.Contains(t, next.AwaitFailures(1)[0].Error, "fails as it should")
		require.Equal(t, "1", next.Noted("ran")["1"])
		next.Signal(quit)
		require.Zero(t, next.Exit())
		require.Empty(t, next.Residue())
	})
}

// TestLargeFailures checks failure records that are larger than the server accepts.
func TestLargeFailures(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	server := redistest.Start(t, redistest.Options{Args: []string{"--proto-max-bulk-len", "1mb"}})
	d := harness.Start(t, harness.Options{App: true, Threads: 2, Redis: server, Env: []string{"RESQUED_MAX_PAYLOAD=2MiB"}})
	malformed := `{"class":"Count","args":[` + strings.Repeat("x", 900_000)
	large := fmt.Sprintf(`{"class":"Fail","args":[7],"pad":%q}`, strings.Repeat("y", 1_000_000))
	d.PushRaw("mail", malformed, large)
	d.Push("mail", "Count", 1, 2, 3)
	d.AwaitNoted("ran", 4)
	failures := d.AwaitFailures(2)
	proctest.Await(t, patience, func() bool { return d.Snapshot().InFlight == 0 }, "the end of all jobs")
	for i, want := range []string{malformed, large} {
		var payload struct {
			Class string
			Args  []any
		}
		require.NoError(t, json.Unmarshal(failures[i].Payload, &payload))
		require.Equal(t, "Resqued::LargePayload", payload.Class)
		sum := sha1.Sum([]byte(want))
		require.Equal(t, hex.EncodeToString(sum[:]), payload.Args[2])
		kept := d.Client.Get(ctx, d.Key("resqued:parked:"+payload.Args[0].(string))).Val()
		require.True(t, kept == want, "the payload is not kept")
	}
	require.Contains(t, failures[0].Exception, "InvalidPayload")
	require.Contains(t, failures[1].Error, "fails as it should")

	t.Log("retried it runs again, with its whole payload")
	_, stderr, code := d.Run("failed", "retry", "--error", "fails as it should", "--yes", "--config", d.ConfigFile)
	require.Zero(t, code, stderr)
	proctest.Await(t, patience, func() bool { return d.Noted("ran")["7"] == "2" }, "the second run")
	d.AwaitFailures(3)
	require.EqualValues(t, 2, d.Client.HLen(ctx, d.Key("resqued:parked")).Val())

	t.Log("removed, its payload goes, too")
	stdout, stderr, code := d.Run("failed", "rm", "--class", "Fail", "--yes", "--config", d.ConfigFile)
	require.Zero(t, code, stderr)
	require.Contains(t, stdout, "removed 2 failures; 1 large payload")
	require.EqualValues(t, 1, d.Client.HLen(ctx, d.Key("resqued:parked")).Val())
	_, stderr, code = d.Run("failed", "rm", "--all", "--yes", "--config", d.ConfigFile)
	require.Zero(t, code, stderr)
	require.Empty(t, d.Keys("resqued:parked*"))
	d.Signal(quit)
	require.Zero(t, d.Exit())
}
