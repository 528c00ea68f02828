package resquedtest_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
	"github.com/stretchr/testify/require"

	"github.com/resqued/resqued"
	"github.com/resqued/resqued/resquedtest"
)

// redisOf returns a client of the Redis behind the queues.
func redisOf(t *testing.T, q *resquedtest.Queues) *redis.Client {
	t.Helper()
	o, err := redis.ParseURL(q.URL())
	require.NoError(t, err)
	o.MaintNotificationsConfig = &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}
	c := redis.NewClient(o)
	t.Cleanup(func() { _ = c.Close() })
	return c
}

func TestJobLocks(t *testing.T) {
	t.Parallel()
	t.Run("of jobs with the same arguments one runs at a time", func(t *testing.T) {
		t.Parallel()
		h := resqued.New()
		var q *resquedtest.Queues
		first := true
		number(h, "A", func(_ context.Context, n int) error {
			if first {
				first = false
				require.Equal(t, []string{"low: A [1] done"}, lines(q.Drain(t)), "the equal job waits")
				require.Len(t, q.Jobs("low"), 1)
			}
			return nil
		})
		q = resquedtest.NewWith(t, h, resquedtest.Options{LocketedQueues: []string{"low"}})
		enqueue(t, q, "A", 0)
		enqueue(t, q, "A", 0)
		enqueue(t, q, "A", 1)
		require.Equal(t, []string{"low: A [0] done", "low: A [0] done"}, lines(q.Drain(t)))
	})

	t.Run("jobs of all queues take one unless the options name others", func(t *testing.T) {
		t.Parallel()
		for name, queues := range map[string][]string{"all": nil, "low": {"low"}, "others": {"high"}, "none": {}} {
			h := resqued.New()
			var locked, fenced bool
			h.Register(resqued.Class{Name: "A", Queue: "low", Handler: func(_ context.Context, j *resqued.Job) error {
				locked, fenced = j.LockKey != "", j.Fence() > 0
				return nil
			}})
			q := resquedtest.NewWith(t, h, resquedtest.Options{LocketedQueues: queues})
			enqueue(t, q, "A", 1)
			q.Drain(t)
			want := name == "all" || name == "low"
			require.Equal(t, want, locked, name)
			require.Equal(t, want, fenced, name)
		}
	})

	t.Run("jobs that wait for a lock keep their order", func(t *testing.T) {
		t.Parallel()
		h := resqued.New()
		number(h, "A", func(context.Context, int) error { return nil })
		q := resquedtest.NewWith(t, h, resquedtest.Options{LocketedQueues: []string{"*"}, JobLockKey: "{{class}}"})
		require.NoError(t, redisOf(t, q).Set(t.Context(), lockKeyOf(t, "{{class}}"), "another", time.Minute).Err())
		for n := range 3 {
			enqueue(t, q, "A", n)
			require.Empty(t, q.Drain(t))
		}
		require.NoError(t, redisOf(t, q).Del(t.Context(), lockKeyOf(t, "{{class}}")).Err())
		enqueue(t, q, "A", 3)
		require.Equal(t, []string{"low: A [0] done", "low: A [1] done", "low: A [2] done", "low: A [3] done"}, lines(q.Drain(t)))
	})

	t.Run("a job whose lock another holds waits until that has expired", func(t *testing.T) {
		t.Parallel()
		for _, style := range []string{"", "payload", "ruby34", "{{class}}"} {
			h := resqued.New()
			fails(h, "A", nil)
			q := resquedtest.NewWith(t, h, resquedtest.Options{LocketedQueues: []string{"*"}, JobLockKey: style})
			key := lockKeyOf(t, style)
			require.NoError(t, redisOf(t, q).Set(t.Context(), key, "another", time.Minute).Err())
			enqueue(t, q, "A", 1)
			require.Empty(t, q.Drain(t), "%q", style)
			require.Len(t, q.Jobs("low"), 1)
			q.Advance(59 * time.Second)
			require.Empty(t, q.Drain(t), "%q", style)
			q.Advance(time.Second)
			require.Len(t, q.Drain(t), 1, "%q", style)
		}
	})

	t.Run("a key may be computed by the program", func(t *testing.T) {
		t.Parallel()
		h := resqued.New()
		var keys calls
		h.Register(resqued.Class{Name: "A", Queue: "low", JobLockKey: func(*resqued.Job) string { return "mine" }, Handler: func(_ context.Context, j *resqued.Job) error {
			keys.add("%s", j.LockKey)
			return nil
		}})
		q := resquedtest.NewWith(t, h, resquedtest.Options{LocketedQueues: []string{"*"}})
		enqueue(t, q, "A", 1)
		q.Drain(t)
		require.Equal(t, []string{"resque:locket:job_locks:mine"}, keys.take())
	})
}

// lockKeyOf returns the key of the lock of a job A with the argument 1.
func lockKeyOf(t *testing.T, style string) (key string) {
	t.Helper()
	h := resqued.New()
	h.Register(resqued.Class{Name: "A", Queue: "low", Handler: func(_ context.Context, j *resqued.Job) error {
		key = j.LockKey
		return nil
	}})
	q := resquedtest.NewWith(t, h, resquedtest.Options{LocketedQueues: []string{"*"}, JobLockKey: style})
	enqueue(t, q, "A", 1)
	q.Drain(t)
	require.NotEmpty(t, key)
	return key
}

func TestClassLocks(t *testing.T) {
	t.Parallel()
	held := func(_ context.Context, n int) error { return fmt.Errorf("held for %d", n) }
	for name, c := range map[string]struct {
		change func(l *resqued.Lock[int])
		want   string
	}{
		"a job whose lock is held is dropped": {func(*resqued.Lock[int]) {}, "dropped: the class lock k is held by "},
		"it fails if its class wants that":    {func(l *resqued.Lock[int]) { l.OnLockFailed = held }, "failed: held for 2"},
		"or it goes back": {func(l *resqued.Lock[int]) {
			l.OnLockFailed = func(context.Context, int) error { return resqued.Requeue(time.Minute) }
		}, "requeued for 1m0s: "},
		"a lock of another Redis is here, too":   {func(l *resqued.Lock[int]) { l.Redis = "redis://locks.invalid:1/0" }, "dropped: the class lock k is held by "},
		"and so is one that is kept in Postgres": {func(l *resqued.Lock[int]) { l.Store = resqued.StorePostgres }, "dropped: the class lock k is held by "},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			lock := resqued.Lock[int]{Key: func(int) string { return "k" }}
			c.change(&lock)
			h := resqued.New()
			var q *resquedtest.Queues
			var inner []string
			number(h, "A", func(ctx context.Context, _ int) error {
				if inner == nil {
					inner = lines(q.Drain(t))
				}
				locked, err := resqued.Locked(ctx, "A", 1)
				require.NoError(t, err)
				require.True(t, locked)
				return resqued.RefreshLock(ctx)
			}, lock)
			q = resquedtest.New(t, h)
			enqueue(t, q, "A", 1)
			enqueue(t, q, "A", 2) // an equal one would wait for the job lock
			require.Equal(t, []string{"low: A [1] done"}, lines(q.Drain(t)))
			require.Len(t, inner, 1)
			require.Contains(t, inner[0], c.want)
			enqueue(t, q, "A", 1)
			require.Equal(t, []string{"low: A [1] done"}, lines(q.Drain(t)), "the lock is free again")
		})
	}

	t.Run("a lock that Ruby holds is free when its time is over", func(t *testing.T) {
		t.Parallel()
		h := resqued.New()
		fails(h, "A", nil, resqued.Lock[int]{Key: func(int) string { return "k" }, Timeout: time.Minute})
		q := resquedtest.New(t, h)
		require.NoError(t, redisOf(t, q).Set(t.Context(), "resque:k", q.Now().Unix()+100, 0).Err())
		enqueue(t, q, "A", 1)
		require.Equal(t, resquedtest.OutcomeDropped, q.Drain(t)[0].Outcome)
		q.Advance(2 * time.Minute)
		enqueue(t, q, "A", 1)
		require.Equal(t, resquedtest.OutcomeDone, q.Drain(t)[0].Outcome)
	})

	t.Run("a loner is enqueued once until it has run", func(t *testing.T) {
		t.Parallel()
		h := resqued.New()
		var q *resquedtest.Queues
		number(h, "A", func(context.Context, int) error {
			require.Equal(t, "locked", status(enqueue(t, q, "A", 1)))
			return nil
		}, resqued.Lock[int]{Loner: true})
		q = resquedtest.New(t, h)
		require.Equal(t, "enqueued", status(enqueue(t, q, "A", 1)))
		require.Equal(t, "duplicate", status(enqueue(t, q, "A", 1)))
		require.Len(t, q.Drain(t), 1)
		require.Equal(t, "enqueued", status(enqueue(t, q, "A", 1)))
	})

	t.Run("the handlers of the program are left as they are", func(t *testing.T) {
		t.Parallel()
		h := resqued.New()
		fails(h, "A", nil, resqued.Lock[int]{Store: resqued.StorePostgres})
		resquedtest.New(t, h)
		class, _ := h.Lookup("A")
		require.Equal(t, resqued.StorePostgres, class.Lock.Store)
	})
}

func TestUniqueQueues(t *testing.T) {
	t.Parallel()
	h := resqued.New()
	fails(h, "A", nil)
	q := resquedtest.NewWith(t, h, resquedtest.Options{UniqueQueues: []string{"low"}})
	require.Equal(t, "enqueued", status(enqueue(t, q, "A", 1)))
	require.Equal(t, "duplicate", status(enqueue(t, q, "A", 1)))
	require.Len(t, q.Jobs("low"), 1)
	require.Len(t, q.Drain(t), 1)
	require.Equal(t, "enqueued", status(enqueue(t, q, "A", 1)))

	for strict, want := range map[bool]int{false: 2, true: 0} {
		q = resquedtest.NewWith(t, h, resquedtest.Options{UniqueQueues: []string{"*"}, UniqueQueuesStrict: strict})
		enqueue(t, q, "A", 1)
		redisOf(t, q).RPush(t.Context(), "resque:queue:low", `{"class":"A","args":[2]}`)
		require.Len(t, q.Drain(t), want, "what does not know the queue has pushed to it")
	}
}
