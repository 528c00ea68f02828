package workerproc_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/resqued/resqued/internal/wire"
)

func TestManyQueues(t *testing.T) {
	t.Parallel()
	t.Run("the records of a worker with many queues do not repeat them", func(t *testing.T) {
		t.Parallel()
		queues := []string{"q"}
		for i := range 99 {
			queues = append(queues, fmt.Sprintf("a-queue-%d", i))
		}
		h, running, open := gate()
		f := start(t, handlers{"A": h}, options{queues: queues})
		f.push(payload(1))
		id := wire.WorkerID(theProc, "h", 0, 0, 7, queues)
		require.Equal(t, id, (<-running).Worker)
		records, err := f.redis.HVals(t.Context(), f.key("resqued:inflight:"+theProc)).Result()
		require.NoError(t, err)
		require.Len(t, records, 1)
		require.Contains(t, records[0], wire.BriefWorkerID(id))
		require.NotContains(t, records[0], "a-queue-98")
		eventually(t, "mirrored", func() bool { return f.redis.Exists(t.Context(), f.key("worker:"+id)).Val() == 1 })
		close(open)
		eventually(t, "done", func() bool { return f.processed() == 1 })
		require.Zero(t, f.redis.Exists(t.Context(), f.key("worker:"+id)).Val())
		f.drain()
	})
}
