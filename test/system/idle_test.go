package system_test

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/resqued/resqued/internal/testkit/proctest"
	"github.com/resqued/resqued/test/system/harness"
)

// TestIdle measures an idle daemon of 4 processes of 8 threads, with 20 empty queues.
func TestIdle(t *testing.T) {
	t.Parallel()
	o := fleet
	o.App = true
	d := harness.Start(t, o)
	for i := range 20 {
		require.NoError(t, d.Client.SAdd(context.Background(), d.Key("queues"), "empty-"+string(rune('a'+i))).Err())
	}

	t.Run("it costs next to nothing", func(t *testing.T) {
		// Starting is not idling, and a process that has just started looks for jobs at every
		// interval for a while. How long that takes depends on the machine.
		d.AwaitStatus("running, 4 workers")
		<-time.After(6 * time.Second)
		const watch = 5 * time.Second
		proctest.Await(t, 2*time.Minute, func() bool {
			used, began := -cpuTime(d), time.Now()
			<-time.After(watch)
			used += cpuTime(d)
			percent := 100 * used.Seconds() / time.Since(began).Seconds()
			t.Logf("%.1f %% of one core", percent)
			// The goal is 1 %; a machine that runs other tests at the same time is allowed
			// more.
			return percent < 5
		}, "five seconds of idleness")
	})

	t.Run("a job is picked up within an interval", func(t *testing.T) {
		var waits []time.Duration
		for id := 1; id <= 20; id++ {
			began := time.Now()
			d.Push("empty-c", "Count", id)
			d.AwaitNoted("ran", id)
			waits = append(waits, time.Since(began))
		}
		slices.Sort(waits)
		t.Logf("median %s, slowest %s", waits[len(waits)/2], waits[len(waits)-1])
		// INTERVAL is 0.1 s, and polling for the result adds up to 0.05 s.
		require.Less(t, waits[len(waits)/2], harness.Speed(300*time.Millisecond))
	})
}

// TestMemoryStaysFlat checks that a handler that leaks a megabyte per job does not make the
// daemon grow, because its processes are replaced.
func TestMemoryStaysFlat(t *testing.T) {
	t.Parallel()
	jobs := 2_000
	if harness.Full() {
		jobs = 20_000
	}
	o := fleet
	o.App = true
	d := harness.Start(t, o)
	tree := func() (total int64) {
		for _, p := range d.Processes() {
			total += proctest.Memory(p.PID)
		}
		return total >> 20
	}
	d.Push("mail", "Leak", harness.Range(1, jobs)...)
	var highest, looks [2]int64 // of the first and of the second half
	proctest.Await(t, 5*time.Minute, func() bool {
		done := d.Snapshot().Processed
		half := 0
		if done > int64(jobs/2) {
			half = 1
		}
		looks[half]++
		highest[half] = max(highest[half], tree())
		return done == int64(jobs)
	}, "%d leaking jobs", jobs)
	t.Logf("%d jobs leaked 1 MiB each; the tree took at most %d MiB in the first half, %d MiB in the second",
		jobs, highest[0], highest[1])
	// 4 processes of at most 100 jobs, a fifth that retires, and unused heap; a daemon that
	// does not give memory back would use several thousand.
	if harness.Race() {
		t.Skip("the race detector takes several times as much memory")
	}
	require.Less(t, highest[1], int64(1400))
	if looks[0] >= 20 { // or it may not have seen how much the first half took
		require.Less(t, float64(highest[1]), 1.5*float64(highest[0])+100)
	}
}
