package workerproc_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/resqued/resqued"
)

// Redis restarts without its last writes, including the end of a job.
func TestLeftoverRecords(t *testing.T) {
	t.Parallel()
	begun, open := make(chan string, 10), make(chan struct{})
	h := func(_ context.Context, job *resqued.Job) error {
		begun <- job.Class
		<-open
		return nil
	}
	f := start(t, handlers{"A": h, "Once": h}, options{short: true})
	inflight := f.key("resqued:inflight:" + theProc)
	loses := func(class string, also func(token string)) {
		f.push(`{"class":"` + class + `","args":[1]}`)
		require.Equal(t, class, <-begun)
		records := f.redis.HGetAll(t.Context(), inflight).Val()
		require.Len(t, records, 1)
		open <- struct{}{}
		eventually(t, "the job has ended", func() bool { return f.redis.HLen(t.Context(), inflight).Val() == 0 })
		for token := range records {
			if also != nil {
				also(token)
			}
		}
		require.NoError(t, f.redis.HSet(t.Context(), inflight, records).Err())
	}
	loses("A", nil)
	require.Equal(t, "A", <-begun, "it runs again")
	open <- struct{}{}
	eventually(t, "the job has ended again", func() bool { return f.redis.HLen(t.Context(), inflight).Val() == 0 })

	held, lock := f.key("resqued:held:"+theProc), f.key("lock:once")
	loses("Once", func(token string) {
		require.NoError(t, f.redis.Set(t.Context(), lock, "true:mine", 0).Err())
		require.NoError(t, f.redis.HSet(t.Context(), held, token, fmt.Sprintf("%d %d\n%s%s", len(lock), len("true:mine"), lock, "true:mine")).Err())
	})
	eventually(t, "a class that runs at most once has failed", func() bool { return len(f.failed()) == 1 })
	require.Contains(t, f.failed()[0], "redis has lost how the job ended")
	require.Zero(t, f.redis.Exists(t.Context(), held, lock).Val(), "its class locks are free")
	f.drain()
	require.Empty(t, begun)
	require.Zero(t, f.redis.HLen(t.Context(), inflight).Val())
}
