package store_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/resqued/resqued/internal/store"
	"github.com/resqued/resqued/internal/testkit/redistest"
)

// stepped is a fixture on a server whose clock can be moved, with the leases of a daemon
// and a second process.
func stepped(t *testing.T) (f *fixture, step func(time.Duration)) {
	t.Helper()
	server := redistest.Start(t, redistest.Options{Clock: true})
	f = setup(t, server, func(o *store.Options) { o.Lease = 0 })
	f.register("p2")
	return f, func(by time.Duration) { server.StepClock(t, by) }
}

func (f *fixture) beat(proc string, jobs ...store.Reserved) store.BeatReply {
	f.t.Helper()
	req := store.BeatRequest{Proc: proc}
	for _, j := range jobs {
		req.Jobs = append(req.Jobs, store.Running{Token: j.Token, LockKey: j.LockKey})
	}
	reply, err := f.Beat(f.t.Context(), req)
	require.NoError(f.t, err)
	return reply
}

// The locks and leases of Redis go by its clock. When that goes forward they are past,
// though those who have them could not notice.
func TestClockGoesForward(t *testing.T) {
	t.Parallel()
	take := func(f *fixture, proc string, queues ...store.Queue) ([]store.Reserved, error) {
		reply, err := f.Exchange(f.t.Context(), store.ExchangeRequest{Proc: proc, Wants: f.wants(2), Queues: queues})
		return reply.Jobs, err
	}
	for _, by := range []time.Duration{16 * time.Second, 25 * time.Second, 33 * time.Second, 40 * time.Second, time.Hour, 365 * 24 * time.Hour} {
		t.Run(fmt.Sprintf("by %s: another process does not get a lock that is held", by), func(t *testing.T) {
			t.Parallel()
			f, step := stepped(t)
			f.push("q", job("A", "[1]"))
			held := f.reserve(1, "q")
			f.push("q", job("A", "[1]"))
			f.push("r", job("B", "[2]"))
			// It has not beaten for nearly as long as a process may.
			require.NoError(t, f.redis.ZIncrBy(t.Context(), f.key("resqued:procs"), -9000, "p1").Err())
			require.NoError(t, f.redis.PExpire(t.Context(), held[0].LockKey, 26*time.Second).Err())
			step(by)
			queues := append(locked("q"), store.Queue{Name: "r"})
			jobs, err := take(f, "p2", queues...)
			if err != nil {
				require.ErrorIs(t, err, store.ErrFenced)
				f.beat("p2")
				jobs, err = take(f, "p2", queues...)
				require.NoError(t, err)
			}
			require.Equal(t, []string{job("B", "[2]")}, payloads(jobs), "the lock of the other is held, and what has no lock runs")
			require.Empty(t, f.beat("p1", held...).Lost)
			f.exchange(store.ExchangeRequest{Completions: []store.Completion{done(held[0])}})
			jobs, err = take(f, "p2", locked("q")...)
			require.NoError(t, err)
			require.Len(t, jobs, 1)
		})
	}

	t.Run("the same process does not give a lock twice", func(t *testing.T) {
		t.Parallel()
		f, step := stepped(t)
		f.push("q", job("A", "[1]"), job("A", "[1]"))
		held := f.reserve(2, "q")
		require.Len(t, held, 1)
		step(time.Hour)
		_, err := take(f, "p1", locked("q")...)
		require.ErrorIs(t, err, store.ErrFenced)
		require.Empty(t, f.beat("p1").Lost)
		jobs, err := take(f, "p1", locked("q")...)
		require.NoError(t, err)
		require.Empty(t, jobs)
		require.Empty(t, f.beat("p1", held...).Lost)
	})

	t.Run("a process that comes new does not get it either", func(t *testing.T) {
		t.Parallel()
		f, step := stepped(t)
		f.push("q", job("A", "[1]"), job("A", "[1]"), job("A", "[2]"))
		held := f.reserve(1, "q")
		step(time.Hour)
		f.register("p3")
		jobs, err := take(f, "p3", locked("q")...)
		require.NoError(t, err)
		require.Equal(t, []string{job("A", "[2]")}, payloads(jobs))
		require.Empty(t, f.beat("p1", held...).Lost)
	})

	t.Run("nobody is taken for dead", func(t *testing.T) {
		t.Parallel()
		f, step := stepped(t)
		step(time.Hour)
		_, _, err := f.Fence(t.Context(), "p1", false)
		require.ErrorIs(t, err, store.ErrAlive)
		procs, now, err := f.Orphans(t.Context())
		require.NoError(t, err)
		require.Empty(t, procs)
		require.WithinDuration(t, time.Now().Add(time.Hour), now, time.Minute)
	})

	t.Run("a dead process keeps its locks until it is recovered", func(t *testing.T) {
		t.Parallel()
		f, step := stepped(t)
		f.push("q", job("A", "[1]"), job("A", "[1]"))
		held := f.reserve(1, "q")
		step(time.Hour)
		f.beat("p2")
		jobs, err := take(f, "p2", locked("q")...)
		require.NoError(t, err)
		require.Empty(t, jobs)
		_, _, err = f.Fence(t.Context(), "p1", true)
		require.NoError(t, err)
		require.NoError(t, f.Recover(t.Context(), "p1", []store.Verdict{{Token: held[0].Token, Action: store.Fail, Failure: store.Record([]byte("{}"))}}))
		jobs, err = take(f, "p2", locked("q")...)
		require.NoError(t, err)
		require.Len(t, jobs, 1)
	})

	t.Run("class locks are held, those with a time limit, too", func(t *testing.T) {
		t.Parallel()
		for _, limit := range []time.Duration{0, 5 * time.Minute} {
			f, step := stepped(t)
			f.push("q", job("A", "[1]"), job("A", "[2]"))
			a := f.reserve(1, "q")[0]
			b := f.exchange(store.ExchangeRequest{Proc: "p2", Wants: f.wants(1), Queues: locked("q")}).Jobs[0]
			mine := store.HeldLock{Proc: "p1", Token: a.Token, Key: "lock:A", Timeout: limit}
			other := store.HeldLock{Proc: "p2", Token: b.Token, Key: "lock:A", Timeout: limit}
			got, err := f.AcquireLock(t.Context(), store.AcquireRequest{HeldLock: mine})
			require.NoError(t, err)
			require.True(t, got.Got)
			step(time.Hour)
			_, err = f.AcquireLock(t.Context(), store.AcquireRequest{HeldLock: other})
			require.ErrorIs(t, err, store.ErrFenced)
			_, err = f.RefreshLock(t.Context(), mine)
			require.ErrorIs(t, err, store.ErrFenced)
			f.beat("p2")
			got, err = f.AcquireLock(t.Context(), store.AcquireRequest{HeldLock: other})
			require.NoError(t, err)
			require.False(t, got.Got)
			reply, err := f.Beat(t.Context(), store.BeatRequest{Proc: "p1", Jobs: []store.Running{{Token: a.Token, LockKey: a.LockKey, Held: true}}})
			require.NoError(t, err)
			require.Empty(t, reply.Lost)
			got, err = f.RefreshLock(t.Context(), mine)
			require.NoError(t, err)
			require.True(t, got.Got)
		}
	})

	t.Run("many processes are seen to in parts", func(t *testing.T) {
		t.Parallel()
		f, step := stepped(t)
		const procs = 120
		var held []store.Reserved
		for i := range procs {
			f.register(fmt.Sprintf("m%d", i))
			f.push("q", job("A", fmt.Sprintf("[%d]", i)), job("A", fmt.Sprintf("[%d]", i)))
			held = append(held, f.exchange(store.ExchangeRequest{Proc: fmt.Sprintf("m%d", i), Wants: f.wants(1), Queues: locked("q")}).Jobs...)
		}
		require.Len(t, held, procs)
		step(time.Hour)
		f.beat("m0", held[0])
		require.Positive(t, f.redis.ZCard(t.Context(), f.key("resqued:relock")).Val())
		jobs, err := take(f, "m0", locked("q")...)
		require.NoError(t, err)
		require.Empty(t, jobs)
		for range 3 {
			f.beat("m0", held[0])
		}
		require.False(t, f.exists("resqued:relock"))
		jobs, err = take(f, "m0", locked("q")...)
		require.NoError(t, err)
		require.Empty(t, jobs)
		for i, j := range held {
			require.Empty(t, f.beat(fmt.Sprintf("m%d", i), j).Lost)
		}
	})
}

// When the clock goes back, what waits for a pause does not wait for so much longer.
func TestClockGoesBack(t *testing.T) {
	t.Parallel()
	f, step := stepped(t)
	f.register("h:b:1-2:0.0")
	f.push("q", job("A", "[1]"))
	held := f.exchange(store.ExchangeRequest{Proc: "h:b:1-2:0.0", Wants: f.wants(1), Queues: locked("q")}).Jobs
	f.exchange(store.ExchangeRequest{Proc: "h:b:1-2:0.0", Completions: []store.Completion{{Job: &held[0], Kind: store.Requeued, Delay: time.Minute}}})
	for _, r := range f.EnqueueLater(t.Context(), []store.LaterJob{{Queue: "q", Payload: []byte(`{"class":"B","args":[],"x":1}`), At: time.Now().Add(2 * time.Minute)}}) {
		require.NoError(t, r.Err)
	}
	step(-time.Hour)
	f.beat("p1")
	f.beat("p2")
	due, err := f.MoveDue(t.Context(), "", nil)
	require.NoError(t, err)
	require.InDelta(t, time.Minute, due.Next, float64(50*time.Second))
	var at []float64
	for _, z := range f.redis.ZRangeWithScores(t.Context(), f.key("resqued:delayed"), 0, -1).Val() {
		at = append(at, z.Score)
	}
	require.Len(t, at, 2)
	require.InDelta(t, float64(time.Now().Add(2*time.Minute).UnixMilli()), at[1], 60_000, "a time is a time")
	jobs, err := f.Exchange(t.Context(), store.ExchangeRequest{Proc: "p1", Wants: f.wants(1), Queues: locked("q")})
	require.NoError(t, err)
	require.Empty(t, jobs.Jobs)
}
