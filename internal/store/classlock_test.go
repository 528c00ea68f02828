package store_test

import (
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/resqued/resqued/internal/rdb"
	"github.com/resqued/resqued/internal/store"
	"github.com/resqued/resqued/internal/testkit/redistest"
)

const lockKey = "lock:Graph:7"

// running registers a process and puts a job into its hands.
func (f *fixture) running(proc string) store.Reserved {
	f.t.Helper()
	if proc != "p1" {
		f.register(proc)
	}
	f.push("q-"+proc, job("Graph", "[7]"))
	reply := f.exchange(store.ExchangeRequest{
		Proc: proc, Wants: f.wants(1), Queues: []store.Queue{{Name: "q-" + proc}},
	})
	require.Len(f.t, reply.Jobs, 1)
	return reply.Jobs[0]
}

func (f *fixture) acquire(proc string, r store.Reserved, timeout time.Duration) store.AcquireReply {
	f.t.Helper()
	reply, err := f.AcquireLock(f.t.Context(), store.AcquireRequest{
		HeldLock: store.HeldLock{Proc: proc, Token: r.Token, Key: lockKey, Timeout: timeout, Grace: 20 * time.Second},
		Loner:    true,
	})
	require.NoError(f.t, err)
	return reply
}

func (f *fixture) get(key string) string {
	f.t.Helper()
	value, err := f.redis.Get(f.t.Context(), f.key(key)).Result()
	require.NoError(f.t, err)
	return value
}

func (f *fixture) set(key, value string) {
	f.t.Helper()
	require.NoError(f.t, f.redis.Set(f.t.Context(), f.key(key), value, 0).Err())
}

// epoch is the server's time in whole seconds, moved by some.
func (f *fixture) epoch(shift int64) int64 {
	f.t.Helper()
	now, err := f.redis.Time(f.t.Context()).Result()
	require.NoError(f.t, err)
	return now.Unix() + shift
}

// stall is how long a busy machine may let a test wait between two of its steps.
const stall = 10 // s

// lives: a key was given so many seconds to live a moment ago.
func (f *fixture) lives(key string, seconds float64, why ...any) {
	f.t.Helper()
	left := f.redis.PTTL(f.t.Context(), f.key(key)).Val().Seconds()
	require.Greater(f.t, left, seconds-stall, why...)
	require.Less(f.t, left, seconds+2, why...)
}

// around: an epoch was taken a moment ago, so many seconds ahead.
func (f *fixture) around(shift, epoch int64) {
	f.t.Helper()
	require.Greater(f.t, epoch, f.epoch(shift)-stall)
	require.Less(f.t, epoch, f.epoch(shift)+2)
}

// leading reads a value as resque-lock-timeout does: its leading digits.
func leading(t *testing.T, value string) int64 {
	t.Helper()
	var n int64
	_, err := fmt.Sscanf(value, "%d", &n)
	require.NoError(t, err)
	return n
}

func TestAcquireLock(t *testing.T) {
	t.Parallel()
	server := redistest.Shared(t)

	t.Run("a free lock with a time limit is taken, as the gem writes it", func(t *testing.T) {
		t.Parallel()
		f := setup(t, server)
		r := f.running("p1")
		before := f.epoch(0)
		reply := f.acquire("p1", r, time.Hour)
		require.True(t, reply.Got)
		value := f.get(lockKey)
		require.Equal(t, leading(t, value), reply.Expires)
		require.True(t, strings.HasSuffix(value, ":resqued:p1#"+r.Token), value)
		require.GreaterOrEqual(t, leading(t, value), before+3600, "never before the job's own deadline")
		f.around(3600, leading(t, value))
		f.lives(lockKey, 3630, "the time limit, the grace, a margin")
	})

	t.Run("one without lives as long as a job lock", func(t *testing.T) {
		t.Parallel()
		f := setup(t, server)
		r := f.running("p1")
		require.True(t, f.acquire("p1", r, 0).Got)
		require.Equal(t, "true:resqued:p1#"+r.Token, f.get(lockKey))
		f.lives(lockKey, 35)
	})

	t.Run("the lock of a living job is in the way, whatever its time", func(t *testing.T) {
		t.Parallel()
		f := setup(t, server)
		first, second := f.running("p1"), f.running("p2")
		require.True(t, f.acquire("p1", first, time.Hour).Got)
		past := fmt.Sprintf("%d:resqued:p1#%s", f.epoch(-100), first.Token)
		f.set(lockKey, past)
		require.Equal(t, store.AcquireReply{Holder: "p1#" + first.Token}, f.acquire("p2", second, time.Hour))
		require.Equal(t, past, f.get(lockKey))
		require.False(t, f.exists("resqued:held:p2"))
	})

	t.Run("the lock of a job without a record is taken over at once", func(t *testing.T) {
		t.Parallel()
		f := setup(t, server)
		r := f.running("p1")
		for _, value := range []string{"true:resqued:gone#1", fmt.Sprintf("%d:resqued:p1#999", f.epoch(1000))} {
			f.set(lockKey, value)
			require.True(t, f.acquire("p1", r, 0).Got, value)
		}
	})

	t.Run("of the gem's locks only an expired one is taken over", func(t *testing.T) {
		t.Parallel()
		f := setup(t, server)
		r := f.running("p1")
		for _, value := range []string{"true", fmt.Sprint(f.epoch(1000)), "", "nonsense"} {
			f.set(lockKey, value)
			require.Equal(t, store.AcquireReply{Holder: value}, f.acquire("p1", r, time.Hour), value)
			require.Equal(t, value, f.get(lockKey))
		}
		f.set(lockKey, fmt.Sprint(f.epoch(-2)))
		require.True(t, f.acquire("p1", r, time.Hour).Got)
	})

	t.Run("a repeated call has the lock still", func(t *testing.T) {
		t.Parallel()
		f := setup(t, server)
		r := f.running("p1")
		require.True(t, f.acquire("p1", r, time.Hour).Got)
		require.True(t, f.acquire("p1", r, time.Hour).Got)
		f.exchange(store.ExchangeRequest{Completions: []store.Completion{{Job: &r, Kind: store.Done, Held: true}}})
		require.False(t, f.exists(lockKey), "and releases it once")
		require.False(t, f.exists("resqued:held:p1"))
	})

	t.Run("a job that has ended gets none, however late its call comes", func(t *testing.T) {
		t.Parallel()
		f := setup(t, server)
		r := f.running("p1")
		f.exchange(store.ExchangeRequest{Completions: []store.Completion{done(r)}})
		require.Equal(t, store.AcquireReply{Late: true}, f.acquire("p1", r, time.Hour))
		require.False(t, f.exists(lockKey))
	})

	t.Run("a process without a lease gets none", func(t *testing.T) {
		t.Parallel()
		f := setup(t, server)
		r := f.running("p1")
		_, _, err := f.Fence(t.Context(), "p1", true)
		require.NoError(t, err)
		_, err = f.AcquireLock(t.Context(), store.AcquireRequest{HeldLock: store.HeldLock{Proc: "p1", Token: r.Token, Key: lockKey}})
		require.ErrorIs(t, err, store.ErrFenced)
		require.False(t, f.exists(lockKey))
	})

	t.Run("a key of another type is refused", func(t *testing.T) {
		t.Parallel()
		f := setup(t, server)
		r := f.running("p1")
		require.NoError(t, f.redis.RPush(t.Context(), f.key(lockKey), "x").Err())
		_, err := f.AcquireLock(t.Context(), store.AcquireRequest{HeldLock: store.HeldLock{Proc: "p1", Token: r.Token, Key: lockKey}})
		require.ErrorContains(t, err, f.key(lockKey)+" is not a string; move it away")
		require.True(t, rdb.WrongType(err))
	})
}

func TestClassLockEnds(t *testing.T) {
	t.Parallel()
	server := redistest.Shared(t)

	t.Run("with its job, atomically", func(t *testing.T) {
		t.Parallel()
		for _, kind := range []store.Kind{store.Done, store.Failed, store.Requeued, store.Returned} {
			f := setup(t, server)
			r := f.running("p1")
			require.True(t, f.acquire("p1", r, time.Hour).Got)
			f.exchange(store.ExchangeRequest{Completions: []store.Completion{{Job: &r, Kind: kind, Held: true, Failure: store.Record([]byte("{}"))}}})
			require.False(t, f.exists(lockKey), string(kind))
			require.False(t, f.exists("resqued:held:p1"), string(kind))
		}
	})

	t.Run("but not when somebody else has it by then", func(t *testing.T) {
		t.Parallel()
		f := setup(t, server)
		r := f.running("p1")
		require.True(t, f.acquire("p1", r, time.Hour).Got)
		stolen := fmt.Sprint(f.epoch(1000)) // as the gem takes an expired lock
		f.set(lockKey, stolen)
		f.exchange(store.ExchangeRequest{Completions: []store.Completion{{Job: &r, Kind: store.Done, Held: true}}})
		require.Equal(t, stolen, f.get(lockKey))
		require.False(t, f.exists("resqued:held:p1"))
	})

	t.Run("with its process", func(t *testing.T) {
		t.Parallel()
		f := setup(t, server)
		r := f.running("p1")
		require.True(t, f.acquire("p1", r, 0).Got)
		_, _, err := f.Fence(t.Context(), "p1", true)
		require.NoError(t, err)
		require.NoError(t, f.Recover(t.Context(), "p1", []store.Verdict{{Token: r.Token, Action: store.Requeue}}))
		require.False(t, f.exists(lockKey))
		require.False(t, f.exists("resqued:held:p1"))
	})

	t.Run("a beat extends one without a time limit and finds out when one is lost", func(t *testing.T) {
		t.Parallel()
		f := setup(t, server)
		r := f.running("p1")
		require.True(t, f.acquire("p1", r, 0).Got)
		require.NoError(t, f.redis.Expire(t.Context(), f.key(lockKey), 5*time.Second).Err())
		beat := store.BeatRequest{Proc: "p1", Jobs: []store.Running{{Token: r.Token, Held: true}}}
		reply, err := f.Beat(t.Context(), beat)
		require.NoError(t, err)
		require.Empty(t, reply.Lost)
		f.lives(lockKey, 35)

		require.True(t, f.acquire("p1", r, time.Hour).Got)
		require.NoError(t, f.redis.Expire(t.Context(), f.key(lockKey), 50*time.Second).Err())
		_, err = f.Beat(t.Context(), beat)
		require.NoError(t, err)
		f.lives(lockKey, 50, "a timed one ends when it has to")

		f.set(lockKey, "true")
		reply, err = f.Beat(t.Context(), beat)
		require.NoError(t, err)
		require.Equal(t, []string{r.Token}, reply.Lost)
	})
}

func TestRefreshLock(t *testing.T) {
	t.Parallel()
	server := redistest.Shared(t)
	held := func(r store.Reserved) store.HeldLock {
		return store.HeldLock{Proc: "p1", Token: r.Token, Key: lockKey, Timeout: time.Hour, Grace: 20 * time.Second}
	}

	t.Run("it begins the time anew, and the lock is released all the same", func(t *testing.T) {
		t.Parallel()
		f := setup(t, server)
		r := f.running("p1")
		require.True(t, f.acquire("p1", r, time.Minute).Got)
		reply, err := f.RefreshLock(t.Context(), held(r))
		require.NoError(t, err)
		require.True(t, reply.Got)
		require.Equal(t, leading(t, f.get(lockKey)), reply.Expires)
		f.around(3600, leading(t, f.get(lockKey)))
		f.lives(lockKey, 3630)
		f.exchange(store.ExchangeRequest{Completions: []store.Completion{{Job: &r, Kind: store.Done, Held: true}}})
		require.False(t, f.exists(lockKey))
	})

	t.Run("a lock that another has, or nobody, is lost", func(t *testing.T) {
		t.Parallel()
		f := setup(t, server)
		r := f.running("p1")
		reply, err := f.RefreshLock(t.Context(), held(r))
		require.NoError(t, err)
		require.Equal(t, store.AcquireReply{}, reply)
		require.False(t, f.exists(lockKey))
		f.set(lockKey, "true:resqued:p9#4")
		reply, err = f.RefreshLock(t.Context(), held(r))
		require.NoError(t, err)
		require.Equal(t, store.AcquireReply{Holder: "p9#4"}, reply)
		require.Equal(t, "true:resqued:p9#4", f.get(lockKey))
	})

	t.Run("that of a job which has ended is not revived", func(t *testing.T) {
		t.Parallel()
		f := setup(t, server)
		r := f.running("p1")
		require.True(t, f.acquire("p1", r, time.Minute).Got)
		f.exchange(store.ExchangeRequest{Completions: []store.Completion{done(r)}}) // without the flag: the lock stays
		reply, err := f.RefreshLock(t.Context(), held(r))
		require.NoError(t, err)
		require.False(t, reply.Got)
	})
}

func TestExtendLock(t *testing.T) {
	t.Parallel()
	server := redistest.Shared(t)
	extend := func(f *fixture, timeout time.Duration) bool {
		f.t.Helper()
		held, err := f.ExtendLock(f.t.Context(), lockKey, timeout, false)
		require.NoError(f.t, err)
		return held
	}
	expires := func(f *fixture, token string) int64 {
		f.t.Helper()
		n, err := f.LockExpires(f.t.Context(), store.HeldLock{Proc: "p1", Token: token, Key: lockKey})
		require.NoError(f.t, err)
		return n
	}

	t.Run("anybody may give a holder more time", func(t *testing.T) {
		t.Parallel()
		f := setup(t, server)
		r := f.running("p1")
		first := f.acquire("p1", r, time.Minute)
		require.Equal(t, first.Expires, expires(f, r.Token))
		require.True(t, extend(f, time.Hour))
		f.around(3600, expires(f, r.Token))
		f.lives(lockKey, 3630)
		require.True(t, extend(f, time.Second), "never less")
		f.around(3600, expires(f, r.Token))
		require.Zero(t, expires(f, "another"))

		beat, err := f.Beat(t.Context(), store.BeatRequest{Proc: "p1", Jobs: []store.Running{{Token: r.Token, Held: true}}})
		require.NoError(t, err)
		require.Empty(t, beat.Lost, "the holder has it still")
		f.exchange(store.ExchangeRequest{Completions: []store.Completion{{Job: &r, Kind: store.Done, Held: true}}})
		require.False(t, f.exists(lockKey), "and releases it")
	})

	t.Run("a lock that nobody holds is not taken", func(t *testing.T) {
		t.Parallel()
		f := setup(t, server)
		require.False(t, extend(f, time.Hour))
		require.False(t, f.exists(lockKey))
		require.Zero(t, expires(f, "1"))
		f.set(lockKey, "true:resqued:gone#1")
		require.False(t, extend(f, time.Hour))
	})

	t.Run("the gem's keeps its form", func(t *testing.T) {
		t.Parallel()
		f := setup(t, server)
		f.set(lockKey, fmt.Sprint(f.epoch(5)))
		require.True(t, extend(f, time.Hour))
		require.Regexp(t, `^\d+$`, f.get(lockKey))
		f.around(3600, leading(t, f.get(lockKey)))
		require.Negative(t, f.redis.TTL(t.Context(), f.key(lockKey)).Val())
		f.set(lockKey, "true")
		require.True(t, extend(f, time.Hour))
		require.Equal(t, "true", f.get(lockKey))
	})
}

func TestTheLongestTimeLimit(t *testing.T) {
	t.Parallel()
	f := setup(t, redistest.Shared(t))
	reply, err := f.EnqueueLoner(t.Context(), store.LonerRequest{
		Key: lockKey, Timeout: math.MaxInt64, Queue: "q-p1", Payload: []byte(job("Graph", "[8]")),
	})
	require.NoError(t, err)
	require.Equal(t, store.LonerPushed, reply.Status)
	r := f.running("p1")
	require.True(t, f.acquire("p1", r, math.MaxInt64).Got)
	refreshed, err := f.RefreshLock(t.Context(), store.HeldLock{Proc: "p1", Token: r.Token, Key: lockKey, Timeout: math.MaxInt64, Grace: time.Minute})
	require.NoError(t, err)
	require.True(t, refreshed.Got)
	require.Greater(t, f.redis.TTL(t.Context(), f.key(lockKey)).Val(), 200*365*24*time.Hour)
}

func TestLocksElsewhere(t *testing.T) {
	t.Parallel()
	server := redistest.Shared(t)
	lock := func(token string, timeout time.Duration) store.HeldLock {
		return store.HeldLock{Proc: "far", Token: token, Key: lockKey, Timeout: timeout, Elsewhere: true}
	}
	acquire := func(f *fixture, l store.HeldLock) store.AcquireReply {
		f.t.Helper()
		reply, err := f.AcquireLock(f.t.Context(), store.AcquireRequest{HeldLock: l, Loner: true, Queue: "q", Payload: []byte("p")})
		require.NoError(f.t, err)
		return reply
	}

	t.Run("they are taken and released without any record", func(t *testing.T) {
		t.Parallel()
		f := setup(t, server)
		require.True(t, acquire(f, lock("1", 0)).Got)
		require.Equal(t, store.AcquireReply{Holder: "far#1"}, acquire(f, lock("2", 0)), "nobody knows whether its holder lives")
		require.NoError(t, f.ReleaseLock(t.Context(), lock("2", 0)))
		require.True(t, f.exists(lockKey), "a stranger does not release it")
		require.NoError(t, f.ReleaseLock(t.Context(), lock("1", 0)))
		require.False(t, f.exists(lockKey))
		require.False(t, f.exists("resqued:held:far"))
	})

	t.Run("they are extended, and missed", func(t *testing.T) {
		t.Parallel()
		f := setup(t, server)
		require.True(t, acquire(f, lock("1", 0)).Got)
		require.NoError(t, f.redis.Expire(t.Context(), f.key(lockKey), 5*time.Second).Err())
		other := store.HeldLock{Proc: "far", Token: "2", Key: "lock:Gone", Elsewhere: true}
		lost, err := f.KeepLocks(t.Context(), []store.HeldLock{lock("1", 0), other, lock("1", 0)})
		require.NoError(t, err)
		require.Equal(t, []int{1}, lost)
		f.lives(lockKey, 35)
	})

	t.Run("one with a time limit is refreshed, not extended", func(t *testing.T) {
		t.Parallel()
		f := setup(t, server)
		require.True(t, acquire(f, lock("1", time.Minute)).Got)
		lost, err := f.KeepLocks(t.Context(), []store.HeldLock{lock("1", time.Minute)})
		require.NoError(t, err)
		require.Empty(t, lost)
		f.lives(lockKey, 70)
		reply, err := f.RefreshLock(t.Context(), lock("1", time.Hour))
		require.NoError(t, err)
		require.True(t, reply.Got)
		f.lives(lockKey, 3610)
		lost, err = f.KeepLocks(t.Context(), []store.HeldLock{lock("1", time.Hour)})
		require.NoError(t, err)
		require.Empty(t, lost, "the new time makes it no other lock")
	})
}

func TestEnqueueLoner(t *testing.T) {
	t.Parallel()
	server := redistest.Shared(t)
	payload := job("Graph", "[7]")
	const marker = "loner:" + lockKey
	enqueue := func(f *fixture, change ...func(*store.LonerRequest)) store.LonerReply {
		f.t.Helper()
		req := store.LonerRequest{Key: lockKey, Queue: "q", Payload: []byte(payload)}
		for _, c := range change {
			c(&req)
		}
		reply, err := f.EnqueueLoner(f.t.Context(), req)
		require.NoError(f.t, err)
		return reply
	}
	timed := func(r *store.LonerRequest) { r.Timeout = time.Hour }
	unique := func(r *store.LonerRequest) { r.Unique = true }

	t.Run("the first one is pushed and marked, a second one is not", func(t *testing.T) {
		t.Parallel()
		f := setup(t, server)
		require.Equal(t, store.LonerReply{Status: store.LonerPushed, Length: 1}, enqueue(f))
		require.Equal(t, store.LonerReply{Status: store.LonerDuplicate}, enqueue(f))
		other := func(r *store.LonerRequest) { r.Payload = []byte(job("Graph", "[7,8]")) }
		require.Equal(t, store.LonerReply{Status: store.LonerDuplicate}, enqueue(f, other), "the key counts, not the payload")
		require.Equal(t, []string{payload}, f.list("queue:q"))
		require.Equal(t, "true:queue:1:q"+payload, f.get(marker))
		require.True(t, f.redis.SIsMember(t.Context(), f.key("queues"), "q").Val())
		state, err := f.LockState(t.Context(), lockKey, false)
		require.NoError(t, err)
		require.Equal(t, store.LockState{Marked: true}, state)
	})

	t.Run("a marker with a time limit has the gem's value and expires", func(t *testing.T) {
		t.Parallel()
		f := setup(t, server)
		enqueue(f, timed)
		value := f.get(marker)
		f.around(3600, leading(t, value))
		require.True(t, strings.HasSuffix(value, ":queue:1:q"+payload))
		f.lives(marker, 3610)
		f.set(marker, fmt.Sprintf("%d:queue:1:q%s", f.epoch(-2), payload))
		require.Equal(t, store.LonerReply{Status: store.LonerPushed, Length: 2}, enqueue(f, timed), "past its time it counts no more")
	})

	t.Run("while one runs, none is pushed", func(t *testing.T) {
		t.Parallel()
		f := setup(t, server)
		r := f.running("p1")
		require.True(t, f.acquire("p1", r, 0).Got)
		require.Equal(t, store.LonerReply{Status: store.LonerLocked, Holder: "p1#" + r.Token}, enqueue(f))
		require.False(t, f.exists(marker))
		state, err := f.LockState(t.Context(), lockKey, false)
		require.NoError(t, err)
		require.Equal(t, store.LockState{Holder: "p1#" + r.Token}, state)
		f.set(lockKey, "true:resqued:gone#1")
		require.Equal(t, store.LonerPushed, enqueue(f).Status, "a dead one is in nobody's way")
	})

	t.Run("the gem's marker and lock count as the gem counts them", func(t *testing.T) {
		t.Parallel()
		f := setup(t, server)
		f.set(marker, "true")
		require.Equal(t, store.LonerDuplicate, enqueue(f).Status)
		f.set(marker, fmt.Sprint(f.epoch(-2)))
		require.Equal(t, store.LonerPushed, enqueue(f, timed).Status)
		f.set(lockKey, fmt.Sprint(f.epoch(100)))
		require.Equal(t, store.LonerReply{Status: store.LonerLocked, Holder: f.get(lockKey)}, enqueue(f))
	})

	t.Run("the marker goes when its job starts, whether it gets the lock or not", func(t *testing.T) {
		t.Parallel()
		f := setup(t, server)
		start := func() store.Reserved {
			jobs := f.exchange(store.ExchangeRequest{Wants: f.wants(1), Queues: []store.Queue{{Name: "q"}}}).Jobs
			require.Len(t, jobs, 1)
			return jobs[0]
		}
		enqueue(f)
		r := start()
		require.Equal(t, store.LonerDuplicate, enqueue(f).Status, "in hand, but not decided yet")
		require.True(t, f.acquire("p1", r, 0).Got)
		require.False(t, f.exists(marker))
		require.Equal(t, store.LonerLocked, enqueue(f).Status)

		f.set(marker, "true:queue:1:q"+payload)
		f.push("q", payload)
		second := start()
		require.False(t, f.acquire("p1", second, 0).Got)
		require.False(t, f.exists(marker))
	})

	t.Run("the marker of another job with the same lock stays", func(t *testing.T) {
		t.Parallel()
		f := setup(t, server)
		enqueue(f)
		r := f.running("p1")
		require.True(t, f.acquire("p1", r, 0).Got)
		require.True(t, f.exists(marker))
	})

	t.Run("a marker whose job is nowhere is taken over", func(t *testing.T) {
		t.Parallel()
		f := setup(t, server)
		enqueue(f)
		require.NoError(t, f.redis.LPop(t.Context(), f.key("queue:q")).Err())
		state, err := f.LockState(t.Context(), lockKey, false)
		require.NoError(t, err)
		require.False(t, state.Marked)
		require.Equal(t, store.LonerReply{Status: store.LonerPushed, Length: 1}, enqueue(f))
	})

	t.Run("in a queue too long to look through it counts", func(t *testing.T) {
		t.Parallel()
		f := setup(t, server)
		enqueue(f)
		require.NoError(t, f.redis.LPop(t.Context(), f.key("queue:q")).Err())
		for range 1001 {
			f.redis.RPush(t.Context(), f.key("queue:q"), "x")
		}
		require.Equal(t, store.LonerDuplicate, enqueue(f).Status)
		require.NoError(t, f.redis.LPop(t.Context(), f.key("queue:q")).Err())
		require.Equal(t, store.LonerPushed, enqueue(f).Status)
	})

	t.Run("a removed job takes its marker along, and only its own", func(t *testing.T) {
		t.Parallel()
		f := setup(t, server)
		enqueue(f)
		removed, err := f.Unmark(t.Context(), lockKey, "q", []byte("another"))
		require.NoError(t, err)
		require.False(t, removed)
		removed, err = f.Unmark(t.Context(), lockKey, "q", []byte(payload))
		require.NoError(t, err)
		require.True(t, removed)
		require.False(t, f.exists(marker))
	})

	t.Run("a unique queue's companions are kept in step", func(t *testing.T) {
		t.Parallel()
		f := setup(t, server)
		require.Equal(t, store.LonerReply{Status: store.LonerPushed, Length: 1}, enqueue(f, unique))
		require.Equal(t, []string{payload}, f.redis.SMembers(t.Context(), f.key("queue:q:uniqueue")).Val())
		starts := f.list("queue:q:start_at")
		require.Len(t, starts, 1)
		f.around(0, leading(t, starts[0]))

		require.NoError(t, f.redis.Del(t.Context(), f.key(marker)).Err())
		require.Equal(t, store.LonerDuplicate, enqueue(f, unique).Status, "an equal one waits that was not marked")
		require.False(t, f.exists(marker))
		require.Len(t, f.list("queue:q"), 1)
	})

	t.Run("a strict unique queue whose companions do not match is left alone", func(t *testing.T) {
		t.Parallel()
		f := setup(t, server)
		f.push("q", "x")
		_, err := f.EnqueueLoner(t.Context(), store.LonerRequest{Key: lockKey, Queue: "q", Payload: []byte(payload), Unique: true, Strict: true})
		require.ErrorIs(t, err, store.ErrOutOfStep)
		require.False(t, f.exists(marker))
		require.Equal(t, []string{"x"}, f.list("queue:q"))
	})

	t.Run("elsewhere only the marker is left", func(t *testing.T) {
		t.Parallel()
		f := setup(t, server)
		elsewhere := func(r *store.LonerRequest) { r.Elsewhere = true }
		require.Equal(t, store.LonerReply{Status: store.LonerPushed}, enqueue(f, elsewhere))
		require.Equal(t, store.LonerDuplicate, enqueue(f, elsewhere).Status)
		require.False(t, f.exists("queue:q"))
		f.lives(marker, 86400)
		reply, err := f.AcquireLock(t.Context(), store.AcquireRequest{
			HeldLock: store.HeldLock{Proc: "far", Token: "1", Key: lockKey, Elsewhere: true},
			Loner:    true, Queue: "q", Payload: []byte(payload),
		})
		require.NoError(t, err)
		require.True(t, reply.Got)
		require.False(t, f.exists(marker))
	})

	t.Run("keys of another type are refused, and nothing is pushed", func(t *testing.T) {
		t.Parallel()
		for _, key := range []string{lockKey, marker, "queue:q", "queues"} {
			f := setup(t, server)
			require.NoError(t, f.redis.Del(t.Context(), f.key(key)).Err())
			require.NoError(t, f.redis.HSet(t.Context(), f.key(key), "a", "b").Err())
			_, err := f.EnqueueLoner(t.Context(), store.LonerRequest{Key: lockKey, Queue: "q", Payload: []byte(payload)})
			require.Error(t, err, key)
			require.True(t, rdb.Unexecuted(err), key)
			require.True(t, key == "queue:q" || !f.exists("queue:q"), key)
		}
	})
}

// gem is a worker of resque-lock-timeout as it is on the wire.
type gem struct{ *fixture }

// acquire is the gem's algorithm for a lock with a time limit, command by command.
func (g gem) acquire(now, until int64) bool {
	g.t.Helper()
	key, ctx := g.key(lockKey), g.t.Context()
	if ok, err := g.redis.SetNX(ctx, key, until, 0).Result(); err == nil && ok {
		return true
	}
	value, err := g.redis.Get(ctx, key).Result()
	require.NoError(g.t, err)
	if leading(g.t, value) < now {
		old, err := g.redis.GetSet(ctx, key, until).Result() //nolint:staticcheck // what the gem sends
		require.NoError(g.t, err)
		return leading(g.t, old) < now
	}
	return g.redis.SetNX(ctx, key, until, 0).Val()
}

func TestMixedFleet(t *testing.T) {
	t.Parallel()
	server := redistest.Shared(t)
	t.Run("a gem's worker waits for ours", func(t *testing.T) {
		t.Parallel()
		f := setup(t, server)
		r := f.running("p1")
		require.True(t, f.acquire("p1", r, time.Minute).Got)
		value := f.get(lockKey)
		require.False(t, gem{f}.acquire(f.epoch(0), f.epoch(60)))
		require.Equal(t, value, f.get(lockKey))
		require.True(t, gem{f}.acquire(f.epoch(62), f.epoch(120)), "and reads when it ends")
	})
	t.Run("ours waits for a gem's worker", func(t *testing.T) {
		t.Parallel()
		f := setup(t, server)
		r := f.running("p1")
		require.True(t, gem{f}.acquire(f.epoch(0), f.epoch(60)))
		require.False(t, f.acquire("p1", r, time.Minute).Got)
		require.NoError(t, f.redis.Del(t.Context(), f.key(lockKey)).Err())
		require.True(t, f.acquire("p1", r, time.Minute).Got)
	})
}

// Everything that class locks do needs no more rights than docs/redis-keys.md says.
func TestClassLockRights(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t, redistest.Options{Users: []string{
		"resqued on >pw ~* -@all +@read +@write +@transaction +@connection +eval +evalsha +time -@dangerous +info",
	}})
	f := setup(t, server, func(o *store.Options) { o.URL = server.URLAs("resqued", "pw") })
	_, err := f.EnqueueLoner(t.Context(), store.LonerRequest{Key: lockKey, Queue: "q", Payload: []byte(job("Graph", "[7]")), Unique: true})
	require.NoError(t, err)
	_, err = f.EnqueueLoner(t.Context(), store.LonerRequest{Key: lockKey, Queue: "q", Payload: []byte(job("Graph", "[7]"))})
	require.NoError(t, err)
	r := f.running("p1")
	require.True(t, f.acquire("p1", r, time.Minute).Got)
	kept, err := f.RefreshLock(t.Context(), store.HeldLock{Proc: "p1", Token: r.Token, Key: lockKey, Timeout: time.Minute})
	require.NoError(t, err)
	require.True(t, kept.Got)
	_, err = f.ExtendLock(t.Context(), lockKey, time.Hour, false)
	require.NoError(t, err)
	_, err = f.LockExpires(t.Context(), store.HeldLock{Key: lockKey})
	require.NoError(t, err)
	_, err = f.LockState(t.Context(), lockKey, false)
	require.NoError(t, err)
	_, err = f.KeepLocks(t.Context(), []store.HeldLock{{Proc: "p1", Token: r.Token, Key: lockKey}})
	require.NoError(t, err)
	require.NoError(t, f.ReleaseLock(t.Context(), store.HeldLock{Proc: "p1", Token: r.Token, Key: lockKey}))
	_, err = f.Unmark(t.Context(), lockKey, "q", []byte("x"))
	require.NoError(t, err)
}
