package system_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/resqued/resqued/internal/testkit/proctest"
	"github.com/resqued/resqued/internal/testkit/redistest"
	"github.com/resqued/resqued/test/system/harness"
)

// TestMixedFleet has Ruby workers with resque-locket and a daemon work the same queues. Neither
// side runs a job while one with the same payload runs on the other side.
func TestMixedFleet(t *testing.T) {
	t.Parallel()
	for _, style := range []struct{ name, arrow string }{{"ruby", "=>"}, {"ruby34", " => "}} {
		t.Run(style.name, func(t *testing.T) {
			t.Parallel()
			jobs, holds, gems := mixed(t, style.name, style.arrow, true)
			requireExclusion(t, holds)
			t.Logf("%d jobs, %d of them by gem workers", jobs, gems)
		})
	}

	// The gem looks and takes in two commands. Overlaps may come only from what happens between
	// them.
	t.Run("with the gem's race", func(t *testing.T) {
		t.Parallel()
		jobs, holds, gems := mixed(t, "ruby", "=>", false)
		overlaps := 0
		for _, list := range byKey(holds) {
			for i, h := range list[1:] {
				if h.at < list[i].end {
					overlaps++
				}
			}
		}
		t.Logf("%d jobs, %d of them by gem workers; two at a time %d times", jobs, gems, overlaps)
		require.LessOrEqual(t, overlaps, gems)
	})
}

// mixed works jobs with a daemon and four gem workers. It requires that each is done once and
// nothing is left.
func mixed(t *testing.T, style, arrow string, whole bool) (jobs int, holds []hold, gems int) {
	t.Helper()
	const keys, workers = 10, 4
	jobs = size(2_000, 20_000)
	server := redistest.Shared(t)
	d := harness.Start(t, harness.Options{
		App: true, Workers: 2, Threads: 4, Queues: "mail,low", Trace: t.TempDir(), Config: "job_lock_key: " + style + "\n",
	})
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var running sync.WaitGroup
	var ruby []*gemWorker
	for i := range workers {
		queues := []string{"mail", "low"}
		g := newGemWorker(t, server.Client(t), d.Space, "ruby1:"+strconv.Itoa(i)+":"+strings.Join(queues, ","), queues...)
		g.arrow, g.whole = arrow, whole
		g.traceTo(t, d.Trace)
		ruby = append(ruby, g)
		running.Go(func() {
			if err := g.run(ctx); err != nil {
				t.Errorf("gem worker: %v", err)
			}
		})
	}

	pushed := map[string]int{}
	payloads := make([]string, jobs)
	for i := range payloads {
		key := rand.IntN(keys)
		payloads[i] = fmt.Sprintf(`{"class":"Hold","args":[%d,%d]}`, key, 100*(key%8))
		lock, _, err := ruby[0].lockOf(payloads[i])
		require.NoError(t, err)
		pushed[lock]++
	}
	i := 0
	for part := range slices.Chunk(payloads, 250) {
		d.PushRaw([]string{"mail", "low"}[i%2], part...)
		i++
	}
	proctest.Await(t, 10*time.Minute, func() bool {
		holds = holdsOf(t, readTrace(t, d.Trace))
		return len(holds) >= jobs
	}, "all jobs")
	cancel()
	running.Wait()
	d.Signal(quit)
	require.Zero(t, d.Exit())

	holds = holdsOf(t, readTrace(t, d.Trace))
	ran := map[string]int{}
	for _, h := range holds {
		require.True(t, h.ended)
		ran[h.key]++
		if h.fence == 0 {
			gems++
		}
	}
	require.Equal(t, pushed, ran)
	require.Empty(t, d.Failures())
	s := d.Snapshot()
	require.Zero(t, s.Queued+s.InFlight+s.Delayed)
	require.Positive(t, gems, "the gem workers got nothing")
	require.Less(t, gems, jobs, "the daemon got nothing")
	residue := slices.DeleteFunc(d.Residue(), func(key string) bool {
		switch {
		case strings.HasPrefix(key, "stat:processed:ruby1:"): // none of the daemon's business
			return true
		case strings.HasPrefix(key, "resqued:seen:"), strings.HasPrefix(key, "resqued:blocked:"):
			// Gem workers delete the counters that lead to these keys. The keys expire.
			return d.Client.TTL(t.Context(), d.Key(key)).Val() > 0
		default:
			return false
		}
	})
	require.Empty(t, residue)
	return jobs, holds, gems
}

// TestMixedFleetWaits checks that each side waits for a long job of the other.
func TestMixedFleetWaits(t *testing.T) {
	t.Parallel()
	const payload = `{"class":"Hold","args":[1,1000]}`
	ctx := context.Background()
	server := redistest.Shared(t)
	start := func(t *testing.T) (*harness.Daemon, *gemWorker) {
		t.Helper()
		d := harness.Start(t, harness.Options{
			App: true, Threads: 2, Queues: "ours", Config: "job_lock_key: ruby\n", Trace: t.TempDir(),
		})
		g := newGemWorker(t, server.Client(t), d.Space, "ruby1:1:theirs", "theirs")
		g.traceTo(t, d.Trace)
		return d, g
	}

	t.Run("the daemon for the gem", func(t *testing.T) {
		t.Parallel()
		d, g := start(t)
		taken, release := make(chan struct{}), make(chan struct{})
		g.perform = func() {
			close(taken)
			<-release
		}
		d.PushRaw("theirs", payload)
		var done sync.WaitGroup
		done.Go(func() {
			if _, err := g.once(ctx); err != nil {
				t.Errorf("gem worker: %v", err)
			}
		})
		<-taken
		d.PushRaw("ours", payload, payload)
		proctest.Await(t, patience, func() bool {
			return d.Client.HGet(ctx, d.Key("resqued:lined"), "ours").Val() == "2"
		}, "a look at both jobs")
		require.Len(t, readTrace(t, d.Trace), 1)
		close(release)
		done.Wait()
		d.AwaitProcessed(3, patience)
		requireExclusion(t, holdsOf(t, readTrace(t, d.Trace)))
		requireNoLocks(t, d)
	})

	t.Run("the gem for the daemon", func(t *testing.T) {
		t.Parallel()
		d, g := start(t)
		d.PushRaw("ours", `{"class":"Hold","args":[1,3600000000]}`)
		proctest.Await(t, patience, func() bool { return len(readTrace(t, d.Trace)) == 1 }, "the start of the job")
		d.PushRaw("theirs", `{"class":"Hold","args":[1,3600000000]}`)
		_, err := g.once(ctx)
		require.NoError(t, err)
		require.EqualValues(t, 1, g.bounced.Load())
		require.Len(t, readTrace(t, d.Trace), 1)
		require.EqualValues(t, 1, d.Client.LLen(ctx, d.Key("queue:theirs")).Val())
		// At a second look all jobs are known to be locked, so it does not try any.
		worked, err := g.once(ctx)
		require.NoError(t, err)
		require.False(t, worked)
		d.Signal(term)
		require.Zero(t, d.Exit())
	})
}
