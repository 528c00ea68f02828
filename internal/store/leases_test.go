package store_test

import (
	"fmt"
	"regexp"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/resqued/resqued/internal/store"
	"github.com/resqued/resqued/internal/testkit/redistest"
)

// A daemon whose own lease is short does not cut the leases of others.
func TestLeasesOfOthers(t *testing.T) {
	t.Parallel()
	redistest.Both(t, func(t *testing.T, server *redistest.Server) {
		var opts store.Options
		f := setup(t, server, func(o *store.Options) { o.Lease = store.DefaultLease; opts = *o })
		opts.Lease, opts.BeatEvery, opts.LockTTL = 2*time.Second, 500*time.Millisecond, 2*time.Second
		other, err := store.Open(opts)
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, other.Close()) })
		f.beat("p1")
		before := f.redis.ZScore(t.Context(), f.key("resqued:procs"), "p1").Val()
		procs, _, err := other.Orphans(t.Context())
		require.NoError(t, err)
		require.Empty(t, procs)
		require.GreaterOrEqual(t, f.redis.ZScore(t.Context(), f.key("resqued:procs"), "p1").Val(), before)
	})
}

// fleet is a daemon with the longest lease that there is, whose process is p1, and one with a
// short lease, whose process is s1.
func fleet(t *testing.T, server *redistest.Server) (f *fixture, short *store.Store) {
	t.Helper()
	var opts store.Options
	f = setup(t, server, func(o *store.Options) { o.Lease, o.BeatEvery = store.DefaultLease, store.DefaultBeatEvery; opts = *o })
	opts.Lease, opts.BeatEvery, opts.LockTTL = 2*time.Second, 500*time.Millisecond, 2*time.Second
	short, err := store.Open(opts)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, short.Close()) })
	return f, short
}

// silent makes the last beats of all processes older by d.
func (f *fixture) silent(d time.Duration) {
	f.t.Helper()
	number := regexp.MustCompile(`[0-9]{13}`)
	for _, field := range []string{"beat", "paces"} {
		text, err := f.redis.HGet(f.t.Context(), f.key("resqued:meta"), field).Result()
		require.NoError(f.t, err)
		text = number.ReplaceAllStringFunc(text, func(n string) string {
			at, _ := strconv.ParseInt(n, 10, 64)
			return fmt.Sprint(at - d.Milliseconds())
		})
		require.NoError(f.t, f.redis.HSet(f.t.Context(), f.key("resqued:meta"), field, text).Err())
	}
}

// grace is how long no lease is judged.
func (f *fixture) grace() time.Duration {
	f.t.Helper()
	ms, _ := f.redis.HGet(f.t.Context(), f.key("resqued:meta"), "grace").Int64()
	return time.Until(time.UnixMilli(ms))
}

// Daemons whose job_lock_duration differs, and so the leases of their processes and how often
// these beat, do not mistake each other's silence.
func TestFleetOfSeveralLeases(t *testing.T) {
	t.Parallel()
	redistest.Both(t, func(t *testing.T, server *redistest.Server) {
		register := func(t *testing.T, s *store.Store, proc string) {
			require.NoError(t, s.Register(t.Context(), store.Registration{Proc: proc, Workers: []string{"h:" + proc + ":q"}}))
		}
		beat := func(t *testing.T, s *store.Store, proc string) {
			_, err := s.Beat(t.Context(), store.BeatRequest{Proc: proc})
			require.NoError(t, err)
		}

		t.Run("locks are taken again for as long as their holders need", func(t *testing.T) {
			f, short := fleet(t, server)
			f.push("q", job("A", "[1]"))
			r := f.exchange(store.ExchangeRequest{Wants: []store.Want{{Token: "1", Worker: "w"}}, Queues: []store.Queue{{Name: "q", Locked: true}}})
			require.Len(t, r.Jobs, 1)
			lock := r.Jobs[0].LockKey
			require.NotEmpty(t, lock)
			f.silent(time.Minute)
			require.NoError(t, f.redis.Del(t.Context(), lock).Err())
			register(t, short, "s1")
			beat(t, short, "s1")
			require.Greater(t, f.redis.TTL(t.Context(), lock).Val(), 20*time.Second)
		})

		t.Run("a silence that the short ones notice gives the long ones time", func(t *testing.T) {
			f, short := fleet(t, server)
			register(t, short, "s1")
			f.beat("p1")
			f.silent(time.Minute)
			beat(t, short, "s1")
			require.Greater(t, f.grace(), 20*time.Second)
		})

		t.Run("a silence that the long ones do not notice may end the leases of short ones", func(t *testing.T) {
			f, short := fleet(t, server)
			f.beat("p1")
			register(t, short, "s1")
			require.Eventually(t, func() bool {
				return f.redis.ZScore(t.Context(), f.key("resqued:procs"), "s1").Val() < float64(time.Now().Add(-time.Second).UnixMilli())
			}, 30*time.Second, 50*time.Millisecond)
			procs, _, err := f.Orphans(t.Context())
			require.NoError(t, err)
			require.Empty(t, procs)
			_, _, err = f.Fence(t.Context(), "s1", false)
			require.ErrorIs(t, err, store.ErrAlive)
		})

		t.Run("a short one without processes hears no silence between the beats of long ones", func(t *testing.T) {
			f, short := fleet(t, server)
			f.beat("p1")
			f.silent(8 * time.Second)
			_, _, err := short.Orphans(t.Context())
			require.NoError(t, err)
			require.LessOrEqual(t, f.grace(), time.Duration(0))
			// Nor does one that starts, or is dead.
			register(t, short, "s1")
			require.LessOrEqual(t, f.grace(), time.Duration(0))
			f.beat("p1")
			f.silent(8 * time.Second)
			f.beat("p1") // s1 may have been silent because all were
			require.Positive(t, f.grace())
			require.NoError(t, f.redis.HDel(t.Context(), f.key("resqued:meta"), "grace").Err())
			f.silent(8 * time.Second)
			f.beat("p1")
			require.LessOrEqual(t, f.grace(), time.Duration(0))
		})

		t.Run("a clock that was set back leaves no beat in the future", func(t *testing.T) {
			f, short := fleet(t, server)
			register(t, short, "s1")
			f.beat("p1")
			f.silent(-24 * time.Hour)
			f.beat("p1")
			require.Positive(t, f.grace())
			for _, n := range regexp.MustCompile(`[0-9]{13}`).FindAllString(f.redis.HGet(t.Context(), f.key("resqued:meta"), "paces").Val(), -1) {
				at, err := strconv.ParseInt(n, 10, 64)
				require.NoError(t, err)
				require.Less(t, time.Until(time.UnixMilli(at)), time.Hour)
			}
		})

		t.Run("a pause that begins after the clock was set back is not cut", func(t *testing.T) {
			f := setup(t, server)
			const proc = "h:b:1-1:0.0"
			f.register(proc)
			f.beat("p1")
			pause := func(n int) {
				f.push("q", job("A", fmt.Sprint("[", n, "]")))
				held := f.exchange(store.ExchangeRequest{Proc: proc, Wants: f.wants(1), Queues: locked("q")}).Jobs
				later := done(held[0])
				later.Kind, later.Delay = store.Requeued, 2*time.Hour
				f.exchange(store.ExchangeRequest{Proc: proc, Completions: []store.Completion{later}})
			}
			pause(1)
			f.silent(-time.Hour) // the first one began before
			pause(2)
			f.beat("p1")
			var left []time.Duration
			for _, z := range f.redis.ZRangeWithScores(t.Context(), f.key("resqued:delayed"), 0, -1).Val() {
				left = append(left, time.Until(time.UnixMilli(int64(z.Score))))
			}
			require.Len(t, left, 2)
			require.InDelta(t, time.Hour, left[0], float64(10*time.Minute))
			require.InDelta(t, 2*time.Hour, left[1], float64(10*time.Minute))
		})
	})
}
