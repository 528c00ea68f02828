package workerproc_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/resqued/resqued"
	"github.com/resqued/resqued/internal/store"
	"github.com/resqued/resqued/internal/workerproc"
)

func TestDeathPolicy(t *testing.T) {
	t.Parallel()
	policy := store.Policy{Fail: true, AtMostOnce: []string{"Once"}}
	told := func(t *testing.T, f *fixture) store.Policy {
		t.Helper()
		p, err := f.store.PolicyOf(t.Context(), theProc, store.Policy{})
		require.NoError(t, err)
		return p
	}

	t.Run("redis knows it, also when it had lost its data", func(t *testing.T) {
		t.Parallel()
		f := start(t, handlers{}, options{short: true, cfg: workerproc.Config{DeathPolicy: policy}})
		require.Equal(t, policy, told(t, f))
		keys, err := f.redis.Keys(t.Context(), f.key("*")).Result()
		require.NoError(t, err)
		require.NoError(t, f.redis.Del(t.Context(), keys...).Err())
		eventually(t, "it is there again", func() bool { return len(told(t, f).AtMostOnce) > 0 })
		require.Equal(t, policy, told(t, f))
		f.drain()
	})

	t.Run("a job that has lost its lock goes back, but not if its class runs at most once", func(t *testing.T) {
		t.Parallel()
		running, open := make(chan *resqued.Job, 10), make(chan struct{})
		h := func(ctx context.Context, job *resqued.Job) error {
			running <- job
			select {
			case <-open:
				return nil
			case <-ctx.Done():
				return context.Cause(ctx)
			}
		}
		f := start(t, handlers{"A": h, "Once": h}, options{short: true, cfg: workerproc.Config{RequeueLost: true, DeathPolicy: policy}})
		loses := func(class string, lost func() bool) {
			f.push(`{"class":"` + class + `","args":[1]}`)
			job := <-running
			require.Equal(t, class, job.Class)
			f.lose(job, lost)
		}
		loses("A", func() bool { return len(running) == 1 })
		require.Equal(t, "A", (<-running).Class, "again")
		open <- struct{}{}
		loses("Once", func() bool { return len(f.failed()) == 1 })
		require.Contains(t, f.failed()[0], "Resqued::LockLost")
		require.Zero(t, f.waiting())
		f.drain()
		require.Empty(t, running, "nothing has run again")
	})
}
