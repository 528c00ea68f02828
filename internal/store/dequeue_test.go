package store_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/resqued/resqued/internal/testkit/redistest"
)

func contains(part string) func([]byte) bool {
	return func(payload []byte) bool { return strings.Contains(string(payload), part) }
}

func TestDequeue(t *testing.T) {
	t.Parallel()
	redistest.Both(t, func(t *testing.T, server *redistest.Server) {
		dequeue := func(f *fixture, part string) []string {
			f.t.Helper()
			var gone []string
			n, err := f.Dequeue(f.t.Context(), "q", contains(part), func(payloads [][]byte) error {
				for _, p := range payloads {
					gone = append(gone, string(p))
				}
				return nil
			})
			require.NoError(f.t, err)
			require.EqualValues(f.t, len(gone), n)
			return gone
		}
		t.Run("removes what matches, as often as it waits", func(t *testing.T) {
			f := setup(t, server)
			f.push("q", job("A", "[1]"), job("B", "[1]"), job("A", "[2]"), job("A", "[1]"), job("B", "[2]"))
			require.Equal(t, []string{job("A", "[1]"), job("A", "[2]"), job("A", "[1]")}, dequeue(f, `"A"`))
			require.Equal(t, []string{job("B", "[1]"), job("B", "[2]")}, f.list("queue:q"))
			require.Empty(t, dequeue(f, `"A"`))
			require.False(t, f.exists("queue:q:uniqueue"))
		})
		t.Run("the companions of a unique queue follow, each job with its own time", func(t *testing.T) {
			f := setup(t, server)
			f.pushUnique("q", numbered(0, 10)...)
			for i := range 10 {
				f.redis.LSet(t.Context(), f.key("queue:q:start_at"), int64(i), 1700000000+i)
			}
			require.Len(t, dequeue(f, "[3]"), 1)
			require.Len(t, dequeue(f, "[8]"), 1)
			f.inStep("q")
			require.Equal(t, []string{
				"1700000000", "1700000001", "1700000002", "1700000004", "1700000005",
				"1700000006", "1700000007", "1700000009",
			}, f.list("queue:q:start_at"))
			require.True(t, f.pushUnique("q", job("A", "[3]")).Pushed[0])
			require.Len(t, dequeue(f, "["), 9)
			require.False(t, f.exists("queue:q:uniqueue"))
			require.False(t, f.exists("queue:q:start_at"))
		})
		t.Run("many pages, while others take and push", func(t *testing.T) {
			f := setup(t, server)
			for i := range 20 {
				_, err := f.Push(t.Context(), "q", bytesOf(numbered(200*i, 200*i+200)...)...)
				require.NoError(t, err)
			}
			pages := 0
			n, err := f.Dequeue(t.Context(), "q", contains("7]"), func([][]byte) error {
				if pages++; pages < 20 {
					f.redis.LPopCount(t.Context(), f.key("queue:q"), 9)
					f.redis.RPush(t.Context(), f.key("queue:q"), job("B", "[1]"))
				}
				return nil
			})
			require.NoError(t, err)
			require.Greater(t, pages, 5)
			require.Greater(t, n, int64(380))
			for _, payload := range f.list("queue:q") {
				require.NotContains(t, payload, "7]")
			}
		})
		t.Run("the callback's error ends it", func(t *testing.T) {
			f := setup(t, server)
			f.push("q", job("A", "[1]"))
			bad := errors.New("no")
			n, err := f.Dequeue(t.Context(), "q", contains("A"), func([][]byte) error { return bad })
			require.ErrorIs(t, err, bad)
			require.EqualValues(t, 1, n)
		})
		t.Run("large payloads come in small pages", func(t *testing.T) {
			f := setup(t, server)
			for i := range 12 {
				f.push("q", job("A", fmt.Sprintf(`["%s",%d]`, strings.Repeat("x", 1<<19), i%2)))
			}
			require.Len(t, dequeue(f, ",1]"), 6)
			require.Len(t, f.list("queue:q"), 6)
		})
		t.Run("locked jobs are looked at afresh", func(t *testing.T) {
			f := setup(t, server)
			f.redis.HSet(t.Context(), f.key("locket:queue_lock_counters"), "q", 1)
			f.push("q", job("A", "[1]"), job("B", "[1]"))
			dequeue(f, "B")
			require.False(t, f.exists("locket:queue_lock_counters"))
		})
		t.Run("a key that is not a list is named", func(t *testing.T) {
			f := setup(t, server)
			f.redis.Set(t.Context(), f.key("queue:q"), "text", 0)
			_, err := f.Dequeue(t.Context(), "q", contains("A"), nil)
			require.ErrorContains(t, err, `dequeue from "q"`)
		})
	})
}

func TestRemoveQueue(t *testing.T) {
	t.Parallel()
	redistest.Both(t, func(t *testing.T, server *redistest.Server) {
		for _, keep := range []bool{false, true} {
			t.Run(fmt.Sprintf("keep=%v", keep), func(t *testing.T) {
				f := setup(t, server)
				f.gemPush("q", numbered(0, 2500)...)
				f.redis.RPush(t.Context(), f.key("queue:q"), job("X", "[]"))
				f.redis.HSet(t.Context(), f.key("locket:queue_lock_counters"), "q", 1)
				f.redis.Set(t.Context(), f.key("resqued:seen:q"), "1 1", 0)
				f.redis.SAdd(t.Context(), f.key("resqued:blocked:q"), "x")
				n, err := f.RemoveQueue(t.Context(), "q", keep)
				require.NoError(t, err)
				require.EqualValues(t, 2501, n)
				for _, key := range []string{
					"queue:q", "queue:q:uniqueue", "queue:q:start_at",
					"resqued:seen:q", "resqued:blocked:q", "locket:queue_lock_counters",
				} {
					require.False(t, f.exists(key), key)
				}
				require.Equal(t, keep, f.exists("queues"))
			})
		}
		t.Run("one that is not there", func(t *testing.T) {
			f := setup(t, server)
			n, err := f.RemoveQueue(t.Context(), "q", false)
			require.NoError(t, err)
			require.Zero(t, n)
		})
		t.Run("a key that is not a list is left", func(t *testing.T) {
			f := setup(t, server)
			f.redis.Set(t.Context(), f.key("queue:q"), "text", 0)
			_, err := f.RemoveQueue(t.Context(), "q", false)
			require.ErrorContains(t, err, "move it away")
			require.True(t, f.exists("queue:q"))
		})
	})
}
