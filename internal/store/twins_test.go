package store_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/resqued/resqued/internal/redistest"
	"github.com/resqued/resqued/internal/store"
	"github.com/resqued/resqued/internal/storetest"
)

// shortSighted is a fixture whose scripts look at a few elements only, as they look at some
// ten thousand of a long queue.
func shortSighted(t *testing.T, server *redistest.Server) *fixture {
	t.Helper()
	f := setup(t, server)
	require.NoError(t, storetest.Alter(f.Redis(), "unique", "local near = 1000 ", "local near = 2 ", "deep = 25000, looks = 50000", "deep = 1, looks = 2",
		"math.floor(twins.looks / 2), 100)", "math.floor(twins.looks / 2), 1)", "local part = 1000 ", "local part = 3 ",
		"bound - 1, 100 do", "bound - 1 do", "-i - 100, -i - 1", "-i - 1, -i - 1", "bound - 1 or -1, 100 do", "bound - 1 or -1 do", "i, i + 99", "i, i"))
	return f
}

// comesBack puts a job into q that has failed.
func (f *fixture) comesBack(i int) {
	f.t.Helper()
	f.redis.RPush(f.t.Context(), f.key("failed"), job("A", fmt.Sprintf("[%d]", i)))
	require.NoError(f.t, f.EditFailed(f.t.Context(), store.FailedWork{
		List: "failed", Targets: all(f.t, f.Store), Remove: true,
		Edit: func(record []byte) store.FailedEdit {
			return store.FailedEdit{Remove: true, Queue: "q", Payload: record, Unique: true}
		},
		Done: func([]byte, store.FailedEdit, store.FailedOutcome) {},
	}))
}

// A strict queue in which equal jobs wait stays in use, however long nobody works it, and
// whatever is dequeued from it.
func TestTwinsOfAStrictQueue(t *testing.T) {
	t.Parallel()
	redistest.Both(t, func(t *testing.T, server *redistest.Server) {
		f := shortSighted(t, server)
		push := func(i int) {
			t.Helper()
			_, err := f.PushUnique(t.Context(), "q", true, []byte(job("A", fmt.Sprintf("[%d]", i))))
			require.NoError(t, err)
		}
		dequeue := func(i int) {
			t.Helper()
			n, err := f.Dequeue(t.Context(), "q", func(p []byte) bool { return string(p) == job("A", fmt.Sprintf("[%d]", i)) }, nil)
			require.NoError(t, err)
			require.Positive(t, n)
		}
		f.gemPush("q", numbered(0, 20)...)
		f.comesBack(10)
		f.comesBack(12)
		require.Len(t, f.list("queue:q"), 22)
		require.Greater(t, f.redis.TTL(t.Context(), f.key("resqued:twins:q")).Val(), 24*time.Hour)
		push(30)
		dequeue(5)
		push(31)
		dequeue(10)
		push(32)
		_, _, err := f.Step(t.Context(), "q")
		require.NoError(t, err)
		dequeue(7)
		push(33)
		require.Greater(t, f.redis.TTL(t.Context(), f.key("resqued:twins:q")).Val(), 24*time.Hour)
		var seen []string
		for range 100 {
			reply := f.exchange(store.ExchangeRequest{Wants: f.wants(1), Queues: []store.Queue{{Name: "q", Unique: true, Strict: true}}})
			require.Empty(t, reply.OutOfStep)
			for _, j := range reply.Jobs {
				seen = append(seen, string(j.Payload))
			}
		}
		require.Subset(t, seen, []string{job("A", "[12]"), job("A", "[33]")})
		require.NotContains(t, seen, job("A", "[10]"))
		require.Empty(t, f.list("queue:q"))
		f.inStep("q")
	})
}
