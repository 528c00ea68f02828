package system_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/resqued/resqued/internal/testkit/proctest"
	"github.com/resqued/resqued/test/system/harness"
)

// TestAgesOfQueues: the age of jobs without a time in their payload is known, in lists, in lines
// of a fair queue, and when old jobs are searched. Jobs that wait longer than promised are late.
func TestAgesOfQueues(t *testing.T) {
	t.Parallel()
	d := harness.Start(t, harness.Options{App: true, Threads: 1, Config: "within: {paused: 1s, mail: 1s, fair: 1h}\nfair: {fair: '{{args.0}}'}\n"})
	ok := func(args ...string) string {
		out, stderr, code := d.Run(append(args, "--config", d.ConfigFile)...)
		require.Zero(t, code, stderr)
		return out
	}
	proctest.Await(t, patience, func() bool { return d.Client.Exists(t.Context(), d.Key("resqued:age:turn")).Val() == 1 }, "the first look at queues")
	d.Push("fair", "Act", 7) // takes the only thread
	d.AwaitNoted("started", 1)
	d.Push("paused", "Count", 1, 2)
	d.Push("mail", "Count", 3)
	ok("queues", "pause", "paused")
	d.Push("fair", "Count", 7, 8, 9)
	type aged struct {
		Size         int64
		OldestS      *int64 `json:"oldest_s"`
		OldestSource string `json:"oldest_source"`
		Late         bool
	}
	queue := func(name string) (q aged) {
		out, list := ok("queues", name, "-o", "json"), struct{ Items []json.RawMessage }{}
		require.NoError(t, json.Unmarshal([]byte(out), &list), out)
		require.NoError(t, json.Unmarshal(list.Items[0], &q))
		return q
	}
	proctest.Await(t, patience, func() bool { return queue("paused").Late }, "a queue that is late")
	require.Contains(t, []string{"measured", "at_least"}, queue("paused").OldestSource, "a machine that is busy may look too late to measure")
	proctest.Await(t, patience, func() bool { q := queue("fair"); return q.Size == 3 && q.OldestS != nil && *q.OldestS > 0 }, "the age of jobs in lines")
	require.False(t, queue("fair").Late)
	proctest.Await(t, patience, func() bool {
		return strings.HasSuffix(strings.TrimSpace(ok("jobs", "find", "--queue", "paused", "-o", "wide")), "s")
	}, "the estimated ages of jobs")
	require.Contains(t, ok("doctor"), "mail: 1 job waits, and the first has waited for longer than promised")

	ok("queues", "resume", "paused")
	d.Open()
	d.AwaitProcessed(7, patience)
	proctest.Await(t, patience, func() bool { return queue("paused").OldestS == nil && queue("fair").OldestS == nil }, "the end of their ages")
	d.Signal(quit)
	require.Zero(t, d.Exit())
	require.Empty(t, d.Residue())
}
