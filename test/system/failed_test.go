package system_test

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/resqued/resqued/internal/testkit/proctest"
	"github.com/resqued/resqued/test/system/harness"
)

// failuresIn returns the failures of a list, all of which must be objects, as Ruby's page
// expects.
func failuresIn(t *testing.T, d *harness.Daemon, list string) (found []harness.Failure) {
	t.Helper()
	raw, err := d.Client.LRange(t.Context(), d.Key(list), 0, -1).Result()
	require.NoError(t, err)
	for _, text := range raw {
		var f harness.Failure
		require.NoError(t, json.Unmarshal([]byte(text), &f))
		found = append(found, f)
	}
	return found
}

// TestMultiQueueFailures checks that failures of all kinds go to the lists of Resque's
// multi-queue failure backend.
func TestMultiQueueFailures(t *testing.T) {
	t.Parallel()
	d := harness.Start(t, harness.Options{App: true, Threads: 2, Env: []string{"ON_WORKER_DEATH=fail", "RESQUED_FAILURE_BACKEND=multi-queue"}})
	await := func(list string, n int64) []harness.Failure {
		t.Helper()
		require.True(t, proctest.Within(time.Minute, func() bool { return d.Client.LLen(t.Context(), d.Key(list)).Val() >= n }), "%s\n%s", list, d.Log())
		return failuresIn(t, d, list)
	}
	d.Push("mail", "Fail", 1)
	d.PushRaw("mail", "not json")
	d.Push("queue:odd", "Fail", 2) // as the list of another queue is called
	require.Len(t, await("mail_failed", 2), 2)
	require.Len(t, await("failed", 1), 1)

	// A key that has the name of a failed list but is not a list.
	require.NoError(t, d.Client.Set(t.Context(), d.Key("low_failed"), "text", 0).Err())
	d.Push("low", "Fail", 3)
	require.Equal(t, "low", await("failed", 2)[1].Queue)

	// The failure of a process that dies.
	d.Push("reports", "Crash", 4)
	require.Equal(t, "Resque::DirtyExit", await("reports_failed", 1)[0].Exception)

	// A malformed entry among the delayed jobs.
	require.NoError(t, d.Client.RPush(t.Context(), d.Key("delayed:1000"), "junk").Err())
	require.NoError(t, d.Client.ZAdd(t.Context(), d.Key("delayed_queue_schedule"), redis.Z{Score: 1000, Member: "1000"}).Err())
	require.Equal(t, "Resqued::InvalidDelayedJob", await("_failed", 1)[0].Exception)
	require.ElementsMatch(t, []string{"mail_failed", "reports_failed", "_failed"}, d.Client.SMembers(t.Context(), d.Key("failed_queues")).Val())

	// All of them are listed, retried and removed.
	out, stderr, code := d.Run("failed", "--flat", "-o", "json")
	require.Zero(t, code, stderr)
	require.Equal(t, 6, strings.Count(out, `"id":`), out)
	require.Contains(t, out, `"list":"mail_failed"`)
	out, stderr, code = d.Run("failed", "retry", "--queue", "mail", "--class", "Fail", "--yes")
	require.Zero(t, code, stderr)
	require.Equal(t, "retried 1 job to mail\n", out)
	require.Len(t, await("mail_failed", 3), 3)
	out, stderr, code = d.Run("failed", "rm", "--all", "--yes")
	require.Zero(t, code, stderr)
	require.Equal(t, "removed 7 failures\n", out)
	for _, list := range []string{"failed", "mail_failed", "reports_failed", "_failed"} {
		require.Zero(t, d.Client.Exists(t.Context(), d.Key(list)).Val(), list)
	}
}

// TestKilledWhileRemovingFailures kills a command while it goes through a million failures
// (fewer outside of full size). None is lost: a daemon restores them.
func TestKilledWhileRemovingFailures(t *testing.T) {
	t.Parallel()
	const n = 300_000 // more than are edited where they stand
	d := harness.Start(t, harness.Options{App: true})
	for from := range n / 1000 {
		records := make([]any, 1000)
		for i := range records {
			class := "Mail"
			if i%50 == 0 {
				class = "Rare"
			}
			records[i] = fmt.Sprintf(`{"failed_at":"2026/11/20 09:56:20 UTC","payload":{"class":%q,"args":[%d]},"exception":"E","error":"e","backtrace":[],"worker":"h:1:mail","queue":"mail"}`,
				class, from*1000+i)
		}
		require.NoError(t, d.Client.RPush(t.Context(), d.Key("failed"), records...).Err())
	}
	cmd := d.Command(t.Context(), nil, "failed", "rm", "--class", "Rare", "--yes")
	require.NoError(t, cmd.Start())
	passed := d.Key("resqued:passed:failed")
	require.True(t, proctest.Within(5*time.Minute, func() bool { return d.Client.LLen(t.Context(), passed).Val() > n/10 }), "it has ended, or not begun")
	require.NoError(t, cmd.Process.Signal(syscall.SIGKILL))
	require.Error(t, cmd.Wait())
	failuresIn(t, d, "failed")
	d.Push("mail", "Fail", n)

	require.True(t, proctest.Within(2*time.Minute, func() bool { return d.Client.Exists(t.Context(), passed).Val() == 0 }), d.Log())
	d.AwaitLog("failures were brought back")
	d.AwaitProcessed(1, patience)
	last, left := -1, map[string]int{}
	for _, f := range failuresIn(t, d, "failed") {
		var payload struct {
			Class string
			Args  []int
		}
		require.NoError(t, json.Unmarshal(f.Payload, &payload))
		left[payload.Class]++
		require.Greater(t, payload.Args[0], last, "the order stays")
		last = payload.Args[0]
	}
	require.Equal(t, n-n/50, left["Mail"])
	require.Equal(t, 1, left["Fail"])
	require.Less(t, left["Rare"], n/50)

	out, stderr, code := d.Run("failed", "rm", "--class", "Rare", "--yes")
	require.Zero(t, code, stderr)
	require.Equal(t, "removed "+strconv.Itoa(left["Rare"])+" failures\n", out)
	require.EqualValues(t, n-n/50+1, d.Client.LLen(t.Context(), d.Key("failed")).Val())
}
