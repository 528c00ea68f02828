package workerproc_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
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
		id := "h/0.0:7:" + strings.Join(queues, ",")
		require.Equal(t, id, (<-running).Worker)
		records, err := f.redis.HVals(t.Context(), f.key("resqued:inflight:"+theProc)).Result()
		require.NoError(t, err)
		require.Len(t, records, 1)
		require.Contains(t, records[0], "h/0.0:7:100-queues")
		require.NotContains(t, records[0], "a-queue-98")
		eventually(t, "mirrored", func() bool { return f.redis.Exists(t.Context(), f.key("worker:"+id)).Val() == 1 })
		close(open)
		eventually(t, "done", func() bool { return f.processed() == 1 })
		require.Zero(t, f.redis.Exists(t.Context(), f.key("worker:"+id)).Val())
		f.drain()
	})
}
