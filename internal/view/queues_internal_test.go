package view

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/resqued/resqued/internal/store"
)

// TestQueueLists: of many workers with the same queues the queues are matched once.
func TestQueueLists(t *testing.T) {
	t.Parallel()
	var workers []store.WorkerInfo
	for i := range 80_000 {
		workers = append(workers, store.NewWorkerInfo(fmt.Sprintf("h%d:%d:mail,img", i%40, i)))
	}
	workers = append(workers, store.NewWorkerInfo("h:1:*"), store.NewWorkerInfo("h:2:mailimg"), store.NewWorkerInfo("no worker"))
	lists := queueLists(workers)
	require.Len(t, lists, 3)
	require.Equal(t, 80_000, lists[0].workers)
	require.Equal(t, []string{"mail", "img"}, lists[0].patterns)
	require.Equal(t, 1, lists[1].workers)
}
