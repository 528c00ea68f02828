package system_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/resqued/resqued/client"
	"github.com/resqued/resqued/internal/testkit/proctest"
	"github.com/resqued/resqued/test/system/harness"
)

// enqueuer returns a client for a daemon's namespace.
func enqueuer(t *testing.T, d *harness.Daemon) *client.Client {
	t.Helper()
	c, err := client.New(client.Options{URL: d.URL, Namespace: d.Space})
	require.NoError(t, err)
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// asRubyDelays adds delayed jobs in the format of resque-scheduler.
func asRubyDelays(t *testing.T, d *harness.Daemon, at time.Time, queue string, ids ...int) {
	t.Helper()
	ctx, list := context.Background(), "delayed:"+strconv.FormatInt(at.Unix(), 10)
	for some := range slices.Chunk(ids, 1000) {
		_, err := d.Client.Pipelined(ctx, func(pipe redis.Pipeliner) error {
			for _, id := range some {
				item := fmt.Sprintf(`{"class":"Count","args":[%d],"queue":%q}`, id, queue)
				pipe.RPush(ctx, d.Key(list), item)
				pipe.SAdd(ctx, d.Key("timestamps:"+item), list)
			}
			pipe.ZAdd(ctx, d.Key("delayed_queue_schedule"), redis.Z{Score: float64(at.Unix()), Member: at.Unix()})
			return nil
		})
		require.NoError(t, err)
	}
}

// delayAll enqueues jobs of all kinds that are due in the same second, and returns that time.
// If the machine is too slow to enqueue them before, it starts over with a later time.
func delayAll(t *testing.T, d *harness.Daemon, jobs int) (due time.Time) {
	t.Helper()
	for ahead := time.Duration(8+jobs/5_000) * time.Second; ; ahead *= 2 {
		due = time.Now().Add(ahead).Truncate(time.Second)
		asRubyDelays(t, d, due, "later", harness.Range(1, jobs/3)...)
		var many []client.EnqueueParams
		for id := jobs/3 + 1; id <= jobs; id++ {
			job := client.EnqueueParams{Payload: fmt.Appendf(nil, `{"class":"Count","args":[%d]}`, id), Queue: "later", At: due}
			if id%2 == 0 { // waits where only we know
				job.Payload = fmt.Appendf(nil, `{"class":"Count","args":[%d],"id":"%d"}`, id, id)
			}
			many = append(many, job)
		}
		_, err := enqueuer(t, d).EnqueueMany(t.Context(), many)
		require.NoError(t, err)
		delayed := d.Snapshot().Delayed
		if time.Now().Before(due) {
			require.EqualValues(t, jobs, delayed)
			return due
		}
		for _, pattern := range []string{"delayed*", "resqued:delayed*", "timestamps:*", "queue:*"} {
			for _, key := range d.Keys(pattern) {
				require.NoError(t, d.Client.Del(t.Context(), d.Key(key)).Err())
			}
		}
	}
}

// TestDelayedJobsOfMastersThatAreKilled has three masters move jobs that are due in one second.
// Any of them may be killed at any time; each job is moved once. No worker takes from their
// queue, so that it shows every move.
func TestDelayedJobsOfMastersThatAreKilled(t *testing.T) {
	t.Parallel()
	jobs := 12_000
	if harness.Full() {
		jobs = 100_000
	}
	o := harness.Options{App: true, Queues: "other"}
	first := harness.Start(t, o)
	masters := []*harness.Daemon{first, successor(t, first, o), successor(t, first, o)}

	due := delayAll(t, first, jobs)
	stop := first.Conserve(int64(jobs))

	unready := o
	unready.Unready = true // the next one is killed before
	killed, whileMoving := 0, 0
	proctest.Await(t, patience, func() bool { return first.Snapshot().Queued > 0 }, "the first moved jobs")
	require.False(t, time.Now().Before(due), "jobs were moved before their time")
	for _, d := range masters[:2] { // two of three at once, in the middle of it
		d.Signal(syscall.SIGKILL)
	}
	if first.Snapshot().Delayed > 0 {
		whileMoving += 2
	}
	for i, d := range masters[:2] {
		require.NotZero(t, d.Exit())
		d.ForgetMasters()
		masters[i] = successor(t, first, unready)
		killed++
	}
	step := int64(jobs / 30)
	for next := int64(jobs); first.Snapshot().Delayed > 0; {
		// Some jobs must be moved between two kills, or the test would never end.
		proctest.Await(t, patience, func() bool { return first.Snapshot().Delayed < next }, "more moved jobs")
		next = max(1, first.Snapshot().Delayed-rand.Int64N(2*step)) // 1: until all are moved
		i := rand.IntN(len(masters))
		if first.Snapshot().Delayed > 0 {
			whileMoving++
		}
		killMaster(t, masters[i])
		killed++
		masters[i] = successor(t, first, unready)
	}
	looks := stop()
	t.Logf("%d jobs were in their queue %s after they were due; %d masters were killed, %d of them before that; %d looks",
		jobs, time.Since(due).Round(time.Millisecond), killed, whileMoving, looks)

	payloads, err := first.Client.LRange(t.Context(), first.Key("queue:later"), 0, -1).Result()
	require.NoError(t, err)
	require.Len(t, payloads, jobs)
	slices.Sort(payloads)
	require.Len(t, slices.Compact(payloads), jobs, "each once")
	require.Empty(t, first.Keys("timestamps:*"))
	require.Empty(t, first.Keys("delayed*"))
	require.Empty(t, first.Keys("resqued:delayed"))
	require.Empty(t, first.Failures())
}

// TestDelayedJobsAreInTime checks that a job never starts before it is due, and not much later.
func TestDelayedJobsAreInTime(t *testing.T) {
	t.Parallel()
	o := fleet
	o.App = true
	d := harness.Start(t, o)
	c := enqueuer(t, d)
	var late []time.Duration
	for id := 1; id <= 12; id++ {
		in := time.Duration(rand.IntN(1500)) * time.Millisecond
		res, err := c.Enqueue(t.Context(), "Count", []any{id}, client.Queue("mail"), client.In(in))
		require.NoError(t, err)
		d.AwaitNoted("ran", id)
		if !res.Due.IsZero() {
			late = append(late, time.Since(res.Due))
			require.Positive(t, late[len(late)-1], "it ran too early")
		}
	}
	slices.Sort(late)
	t.Logf("jobs were done so long after they were due: median %s, slowest %s", late[len(late)/2], late[len(late)-1])
	// The goal is 250 ms; polling for the result adds up to 50 ms.
	require.Less(t, late[len(late)/2], harness.Speed(300*time.Millisecond))
}

// TestUntilEmptyAndDelayedJobs checks that a daemon that works until nothing is left waits for
// the jobs that it has put back itself, but not for jobs that are due next century.
func TestUntilEmptyAndDelayedJobs(t *testing.T) {
	t.Parallel()
	d := harness.Start(t, harness.Options{App: true, Queues: "other"})
	for _, payload := range []string{`{"class":"Count","args":[1]}`, `{"class":"Count","args":[2],"id":"x"}`} {
		_, err := enqueuer(t, d).EnqueueRaw(t.Context(), []byte(payload), client.Queue("mail"), client.At(time.Date(2100, 1, 1, 0, 0, 0, 0, time.UTC)))
		require.NoError(t, err)
	}
	d.Push("mail", "Count", 3)
	o := harness.Options{App: true, Queues: "mail", Args: []string{"--until-empty"}}
	next := successor(t, d, o)
	require.True(t, next.AwaitEnd(patience))
	require.EqualValues(t, 2, d.Snapshot().Delayed)
	require.EqualValues(t, 1, d.Snapshot().Processed)
}

// TestKilledMasterComesBackToDelayedJobs checks that the next master moves what became due
// while there was none.
func TestKilledMasterComesBackToDelayedJobs(t *testing.T) {
	t.Parallel()
	o := harness.Options{App: true}
	d := harness.Start(t, o)
	d.Signal(syscall.SIGKILL)
	require.NotZero(t, d.Exit())
	d.ForgetMasters()
	proctest.Await(t, patience, func() bool { return len(d.Processes()) == 0 }, "the end of its worker process, which moves them, too")
	at := time.Now().Add(time.Second)
	asRubyDelays(t, d, at, "mail", 1, 2, 3)
	<-time.After(time.Until(at.Add(time.Second)))
	require.EqualValues(t, 3, d.Snapshot().Delayed, "no master is there to move them")
	next := successor(t, d, o)
	next.AwaitProcessed(3, patience)
}
