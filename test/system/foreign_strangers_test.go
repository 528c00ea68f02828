package system_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/resqued/resqued/internal/testkit/proctest"
	"github.com/resqued/resqued/internal/testkit/redistest"
	"github.com/resqued/resqued/internal/wire"
	"github.com/resqued/resqued/test/system/harness"
)

// busyThreads starts a daemon of four threads, each with a job that Ruby's pages show, and
// returns their ids.
func busyThreads(t *testing.T, queues string) (d *harness.Daemon, ids []string) {
	t.Helper()
	d = harness.Start(t, harness.Options{
		App: true, Workers: 2, Threads: 2, Queues: queues, Namespace: redistest.Namespace(t), Config: "heartbeat_frequency: 2s",
	})
	d.Push("mail", "Gate", 1, 2, 3, 4)
	d.AwaitNoted("started", 4)
	proctest.Await(t, patience, func() bool { return len(working(t, d)) == 4 }, "all jobs under worker:<id>")
	return d, d.Client.SMembers(t.Context(), d.Key("workers")).Val()
}

// working returns the ids of the workers that have a job, by the method of Worker.working.
func working(t *testing.T, d *harness.Daemon) (ids []string) {
	t.Helper()
	for _, id := range d.Client.SMembers(t.Context(), d.Key("workers")).Val() {
		if d.Client.Exists(t.Context(), d.Key("worker:"+id)).Val() == 1 {
			ids = append(ids, id)
		}
	}
	return ids
}

// TestRubyPageShowsTheWorkers checks that ids fit Resque's web page: it links to each worker by
// its unescaped id, its routes take one path segment, and it shows the part before the first
// colon as the host.
func TestRubyPageShowsTheWorkers(t *testing.T) {
	t.Parallel()
	d, ids := busyThreads(t, "mail,a/b?c#d%20\"")
	require.Len(t, ids, 4)
	hosts, pids := map[string]bool{}, map[string]bool{}
	for _, id := range ids {
		require.NotContains(t, id, "/")
		require.False(t, strings.ContainsAny(id, "?#%\"'<>&+ \\"), id)
		parts := strings.Split(id, ":")
		hosts[parts[0]], pids[parts[1]] = true, true
		require.True(t, strings.HasPrefix(parts[2], "mail,"), "the queues that the page shows: %s", id)
		name, err := wire.ParseWorkerID(id)
		require.NoError(t, err)
		require.Contains(t, d.WorkerPIDs(), name.PID)
	}
	require.Len(t, hosts, 1, "one host")
	require.Len(t, pids, 4, "each thread is told from the others")
	d.Open()
	d.AwaitProcessed(4, patience)
}

// TestWorkersMadeOfOurIDsPruneNone follows Resque.workers.each(&:prune_dead_workers): a worker
// made from each of resqued's ids prunes none.
func TestWorkersMadeOfOurIDsPruneNone(t *testing.T) {
	t.Parallel()
	for _, queues := range []string{"*", "mail", "mail,low"} {
		t.Run(queues, func(t *testing.T) {
			t.Parallel()
			d, ids := busyThreads(t, queues)
			for _, id := range ids {
				r, queues := attach(d.Client, d.Space, id)
				require.NoError(t, d.Client.Del(t.Context(), d.Key("pruning_dead_workers_in_progress")).Err())
				require.NoError(t, r.pruneDeadWorkers(t.Context(), queues))
				require.Empty(t, r.pruned)
			}
			require.ElementsMatch(t, ids, d.Client.SMembers(t.Context(), d.Key("workers")).Val())
			require.Empty(t, d.Failures())
			d.Open()
			d.AwaitProcessed(4, patience)
		})
	}
}

// TestRubyTakesOurProcessesForWorkers checks that scripts which compare pids with worker_pids
// find resqued's processes alive.
func TestRubyTakesOurProcessesForWorkers(t *testing.T) {
	t.Parallel()
	d, _ := busyThreads(t, "*")
	known, err := rubyWorkerPIDs()
	require.NoError(t, err)
	for _, p := range d.Processes() {
		if strings.HasPrefix(p.Title, "resqued") {
			require.True(t, known[fmt.Sprint(p.PID)], "%d %s", p.PID, p.Title)
		}
	}
	require.True(t, known[fmt.Sprint(d.PID)], "the master")
	d.Open()
	d.AwaitProcessed(4, patience)
}

// TestUnregisteredByAStranger follows Resque.workers.each(&:unregister_worker), which removes
// all workers and fails their jobs.
func TestUnregisteredByAStranger(t *testing.T) {
	t.Parallel()
	d, ids := busyThreads(t, "*")
	for i, id := range ids {
		exception, text := "Resque::DirtyExit", "Job still being processed"
		if i == 0 {
			exception, text = "Resque::PruneDeadWorkerDirtyExit", "Worker "+id+" did not gracefully exit while processing Gate"
		}
		r, _ := attach(d.Client, d.Space, id)
		require.NoError(t, r.unregister(t.Context(), id, exception, text))
	}
	proctest.Await(t, patience, func() bool { return len(working(t, d)) == 4 }, "all registered, with their jobs")
	require.ElementsMatch(t, ids, d.Client.SMembers(t.Context(), d.Key("workers")).Val())
	for _, id := range ids {
		require.EqualValues(t, 1, d.Client.Exists(t.Context(), d.Key("worker:"+id+":started")).Val())
	}
	require.Empty(t, d.Failures())
	d.Open()
	d.AwaitProcessed(4, patience)
	require.Len(t, d.Noted("ran"), 4)
	d.Signal(quit)
	require.Zero(t, d.Exit())
	require.Empty(t, d.Client.SMembers(t.Context(), d.Key("workers")).Val())
}
