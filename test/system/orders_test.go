package system_test

import (
	"bufio"
	"bytes"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/resqued/resqued/internal/testkit/proctest"
	"github.com/resqued/resqued/test/system/harness"
)

// TestOrders checks that daemons can be paused, resumed, recycled and drained through Redis, each
// apart from its neighbour.
func TestOrders(t *testing.T) {
	t.Parallel()
	d := harness.Start(t, harness.Options{App: true, Workers: 2, Threads: 2, Queues: "a"})
	e := harness.Start(t, harness.Options{App: true, Workers: 1, Threads: 2, Queues: "b", Namespace: d.Space})
	name := func(d *harness.Daemon) string {
		var id string
		proctest.Await(t, patience, func() bool {
			ids := d.Client.SMembers(t.Context(), d.Key("resqued:masters")).Val()
			i := slices.IndexFunc(ids, func(id string) bool { return strings.Contains(id, fmt.Sprintf(":%d-", d.PID)) })
			if i >= 0 {
				id = ids[i]
			}
			return i >= 0
		}, "the entry of the master")
		return id
	}
	order := func(want int, args ...string) string {
		t.Helper()
		out, errs, code := d.Run(append([]string{"workers"}, args...)...)
		require.Equal(t, want, code, "%v: %s%s", args, out, errs)
		return out + errs
	}
	first, second := name(d), name(e)

	// A paused daemon takes nothing; its neighbour does.
	require.Contains(t, order(0, "pause", first, "--wait"), "paused; that is so now")
	require.Contains(t, order(0, "pause", first), "it is paused already")
	d.Push("a", "Count", harness.Range(1, 10)...)
	d.Push("b", "Count", harness.Range(11, 20)...)
	d.AwaitNoted("ran", 10)
	require.EqualValues(t, 10, d.Client.LLen(t.Context(), d.Key("queue:a")).Val())
	require.Contains(t, order(0, "resume", first, "--wait"), "running; that is so now")
	d.AwaitNoted("ran", 20)

	// One worker process is replaced, then all are; jobs that run go on.
	d.Push("a", "Gate", 1000)
	d.AwaitNoted("started", 1)
	before := d.WorkerPIDs()
	procs := d.Client.ZRange(t.Context(), d.Key("resqued:procs"), 0, -1).Val()
	i := slices.IndexFunc(procs, func(p string) bool { return len(p) > len(first) && p[:len(first)] == first })
	require.GreaterOrEqual(t, i, 0)
	require.Contains(t, order(0, "recycle", procs[i], "--wait"), "replacing 1 worker process; that is so now")
	require.Contains(t, order(0, "recycle", first), "replacing 2 worker processes")

	// Maintenance begins when the last job has ended.
	maintain := d.Command(t.Context(), nil, "workers", "maintain", first)
	errs, err := maintain.StderrPipe()
	require.NoError(t, err)
	var out bytes.Buffer
	maintain.Stdout = &out
	require.NoError(t, maintain.Start())
	said, err := bufio.NewReader(errs).ReadString('\n')
	require.NoError(t, err)
	require.Equal(t, "waiting for 1 running job\n", said)
	d.Open()
	require.NoError(t, maintain.Wait())
	require.Contains(t, out.String(), "paused, and none of its jobs runs")
	d.AwaitNoted("ran", 21)
	require.Contains(t, order(0, "resume", first, "--wait"), "running; that is so now")
	proctest.Await(t, patience, func() bool {
		return !slices.ContainsFunc(d.WorkerPIDs(), func(pid int) bool { return slices.Contains(before, pid) })
	}, "all of them to be replaced")
	require.Empty(t, d.Failures())

	// Refused orders, and orders to nothing.
	require.Contains(t, order(1, "pause", d.Client.ZRange(t.Context(), d.Key("resqued:procs"), 0, 0).Val()[0]), "name their master")
	require.Contains(t, order(4, "pause", "nobody"), "nobody")
	require.Contains(t, order(2, "drain", second), "this would drain 1 daemon")
	require.Contains(t, order(0, "drain", "--all", "--dry-run"), "would drain")
	d.Client.SAdd(t.Context(), d.Key("workers"), "ruby-1:77:a")
	require.Contains(t, order(1, "pause", "ruby-1"), "is a worker of Ruby's Resque")
	d.Client.SRem(t.Context(), d.Key("workers"), "ruby-1:77:a")
	old := "old:0a1b2c3d:1-1"
	d.Client.HSet(t.Context(), d.Key("resqued:master:"+old), "state", "running", "host", "old")
	d.Client.SAdd(t.Context(), d.Key("resqued:masters"), old)
	require.Contains(t, order(1, "pause", "old"), "does not take orders")
	d.Client.Del(t.Context(), d.Key("resqued:master:"+old))
	d.Client.SRem(t.Context(), d.Key("resqued:masters"), old)

	// A drained daemon leaves; its neighbour stays.
	order(0, "drain", second, "--wait", "--yes")
	require.Zero(t, e.Exit())
	require.False(t, d.Ended())
	order(0, "drain", "--all", "--wait", "--yes")
	require.Zero(t, d.Exit())
}
