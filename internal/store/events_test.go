package store_test

import (
	"fmt"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/resqued/resqued/internal/store"
	"github.com/resqued/resqued/internal/testkit/redistest"
)

func TestEvents(t *testing.T) {
	t.Parallel()
	server := redistest.Shared(t)

	t.Run("they are read as they were written, page by page and one behind the other", func(t *testing.T) {
		t.Parallel()
		f := setup(t, server)
		began := time.Now().Add(-time.Minute)
		for i := range 5 {
			require.NoError(t, f.NoteEvent(t.Context(), store.Event{
				Kind: store.EventPurged, By: "alice@vm", Via: "cli", Subject: fmt.Sprint("q", i), Text: "removed jobs", Count: int64(i),
			}))
		}
		newest, err := f.Events(t.Context(), "", 2)
		require.NoError(t, err)
		require.Len(t, newest, 2)
		require.Greater(t, newest[0].At, began)
		require.Equal(t, store.Event{
			ID: newest[0].ID, At: newest[0].At, Kind: "purged", By: "alice@vm", Via: "cli", Subject: "q4", Text: "removed jobs", Count: 4,
		}, newest[0])
		older, err := f.Events(t.Context(), newest[1].ID, 100)
		require.NoError(t, err)
		require.Len(t, older, 3)
		require.Equal(t, "q2", older[0].Subject)
		require.Zero(t, older[2].Count)
		after, err := f.EventsAfter(t.Context(), older[0].ID, 100)
		require.NoError(t, err)
		require.Len(t, after, 2)
		require.Equal(t, newest[0], after[1])
		all, err := f.EventsAfter(t.Context(), "", 100)
		require.NoError(t, err)
		require.Len(t, all, 5)
		for _, id := range []string{"x", "1", "1-", "-1-0", "99999999999999999999-0", "(1-0"} {
			_, err := f.Events(t.Context(), id, 1)
			require.ErrorContains(t, err, "not an id of an event")
			_, err = f.EventsAfter(t.Context(), id, 1)
			require.ErrorContains(t, err, "not an id of an event")
		}
		none, err := f.Events(t.Context(), "0-0", 1)
		require.NoError(t, err)
		require.Empty(t, none)
		next, err := f.Events(t.Context(), "5-0", 1)
		require.NoError(t, err)
		require.Empty(t, next)
	})

	t.Run("one takes a bounded place, and there are so many at most", func(t *testing.T) {
		t.Parallel()
		f := setup(t, server)
		long := strings.Repeat("ä\x00\n\xff", 1<<18)
		require.NoError(t, f.NoteEvent(t.Context(), store.Event{Kind: store.EventKind(long), By: long, Via: long, Subject: long, Text: long}))
		size, err := f.redis.MemoryUsage(t.Context(), f.key("resqued:events")).Result()
		require.NoError(t, err)
		require.Less(t, size, int64(8<<10))
		pipe := f.redis.Pipeline()
		for range 10_300 {
			pipe.XAdd(t.Context(), &redis.XAddArgs{Stream: f.key("resqued:events"), Values: []any{"kind", "died"}})
		}
		_, err = pipe.Exec(t.Context())
		require.NoError(t, err)
		require.NoError(t, f.NoteEvent(t.Context(), store.Event{Kind: store.EventDied}))
		require.LessOrEqual(t, f.redis.XLen(t.Context(), f.key("resqued:events")).Val(), int64(10_101))
		events, err := f.Events(t.Context(), "", 1<<30)
		require.NoError(t, err)
		require.Len(t, events, store.MaxEvents)
	})

	t.Run("the list goes on behind the last id that there can be of a millisecond", func(t *testing.T) {
		t.Parallel()
		f := setup(t, server)
		for _, id := range []string{"5-0", "6-18446744073709551615", "7-0"} {
			require.NoError(t, f.redis.XAdd(t.Context(), &redis.XAddArgs{Stream: f.key("resqued:events"), ID: id, Values: []any{"kind", "died"}}).Err())
		}
		older, err := f.Events(t.Context(), "6-18446744073709551615", 5)
		require.NoError(t, err)
		require.Len(t, older, 1)
		newer, err := f.EventsAfter(t.Context(), "6-18446744073709551615", 5)
		require.NoError(t, err)
		require.Len(t, newer, 1)
		require.Equal(t, "7-0", newer[0].ID)
	})

	t.Run("what anybody has written there can be read", func(t *testing.T) {
		t.Parallel()
		f := setup(t, server)
		require.NoError(t, f.redis.XAdd(t.Context(), &redis.XAddArgs{Stream: f.key("resqued:events"), ID: "5-7", Values: []any{
			"kind", "\xff\x1b[31m", "count", "many", "text", strings.Repeat("x", 1<<20), "kind", "again", "other", "",
		}}).Err())
		events, err := f.Events(t.Context(), "", 1)
		require.NoError(t, err)
		require.Len(t, events, 1)
		require.True(t, utf8.ValidString(string(events[0].Kind)))
		require.LessOrEqual(t, len(events[0].Text), store.MaxEventText)
		require.Zero(t, events[0].Count)
		require.Equal(t, int64(5), events[0].At.UnixMilli())
		require.NoError(t, f.redis.Del(t.Context(), f.key("resqued:events")).Err())
		require.NoError(t, f.redis.Set(t.Context(), f.key("resqued:events"), "x", 0).Err())
		_, err = f.Events(t.Context(), "", 1)
		require.ErrorContains(t, err, "WRONGTYPE")
		require.ErrorContains(t, f.NoteEvent(t.Context(), store.Event{Kind: store.EventDied}), "WRONGTYPE")
	})
}
