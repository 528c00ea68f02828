package workerproc_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/resqued/resqued"
)

// Redis comes back without its last writes, among them the end of a job.
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
	loses := func(class string) {
		f.push(`{"class":"` + class + `","args":[1]}`)
		require.Equal(t, class, <-begun)
		records := f.redis.HGetAll(t.Context(), inflight).Val()
		require.Len(t, records, 1)
		open <- struct{}{}
		eventually(t, "the job has ended", func() bool { return f.redis.HLen(t.Context(), inflight).Val() == 0 })
		require.NoError(t, f.redis.HSet(t.Context(), inflight, records).Err())
	}
	loses("A")
	require.Equal(t, "A", <-begun, "it runs again")
	open <- struct{}{}
	eventually(t, "the job has ended again", func() bool { return f.redis.HLen(t.Context(), inflight).Val() == 0 })

	loses("Once")
	eventually(t, "a class that runs at most once has failed", func() bool { return len(f.failed()) == 1 })
	require.Contains(t, f.failed()[0], "redis has lost how the job ended")
	f.drain()
	require.Empty(t, begun)
	require.Zero(t, f.redis.HLen(t.Context(), inflight).Val())
}
