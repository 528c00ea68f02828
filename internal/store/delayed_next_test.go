package store_test

import (
	"fmt"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/resqued/resqued/internal/store"
	"github.com/resqued/resqued/internal/testkit/redistest"
)

// page returns what is behind a cursor, and the next cursor.
func (f *fixture) page(cursor string, limit int) (payloads []string, next string) {
	f.t.Helper()
	after, err := store.ParseDelayedPlace(cursor)
	require.NoError(f.t, err)
	jobs, place, err := f.NextDelayed(f.t.Context(), after, limit, func(*store.DelayedJob) bool { return true })
	require.NoError(f.t, err)
	for _, j := range jobs {
		payloads = append(payloads, string(j.Payload))
	}
	return payloads, place.String()
}

func TestDelayedPages(t *testing.T) {
	t.Parallel()
	redistest.Both(t, func(t *testing.T, server *redistest.Server) {
		at := nextCentury.Unix()
		item := func(n int) string { return rubyItem("A", "["+strconv.Itoa(n)+"]", "q") }
		own := func(f *fixture, ms int, id string) string {
			payload := `{"class":"A","id":"` + id + `"}`
			f.delayed(nextCentury.Add(time.Duration(ms)*time.Millisecond), id, "q", payload)
			return payload
		}
		// Jobs of both kinds, before each other, together, and equal ones.
		fill := func(f *fixture) (all []string) {
			first := []string{own(f, -500, "later:c#1"), own(f, 0, "later:a#1"), own(f, 0, "later:b#1"), own(f, 0, "later:c#2")}
			f.asRuby(at, item(1), "garbage", item(1), item(1), item(2))
			all = append(first, item(1), "", item(1), item(1), item(2))
			all = append(all, own(f, 500, "later:a#2"))
			f.asRuby(at+1, item(3))
			all = append(all, item(3), own(f, 1001, "later:a#3"))
			f.asRuby(at+2, item(4), item(5))
			return append(all, item(4), item(5))
		}
		t.Run("each job is on one page, of whatever size", func(t *testing.T) {
			f := setup(t, server)
			all := fill(f)
			for size := 1; size <= len(all)+1; size++ {
				var got []string
				for cursor, pages := "", 0; ; pages++ {
					require.Less(t, pages, len(all), "size %d", size)
					some, next := f.page(cursor, size)
					require.LessOrEqual(t, len(some), size)
					if got = append(got, some...); next == "" {
						break
					}
					cursor = next
				}
				require.Equal(t, all, got, "size %d", size)
			}
		})
		t.Run("what comes between two pages shifts nothing", func(t *testing.T) {
			f := setup(t, server)
			all := fill(f)
			for shown := 1; shown < len(all); shown++ {
				_, cursor := f.page("", shown)
				// Before the place, and in front of it among those that are due together.
				own(f, -900+shown, fmt.Sprintf("later:new#%d", shown))
				f.asRuby(at-10, fmt.Sprint("new", shown))
				rest, _ := f.page(cursor, 100)
				require.Equal(t, all[shown:], rest, "after %d", shown)
				f.redis.ZRem(t.Context(), f.key("resqued:delayed"), fmt.Sprintf(`later:new#%d 1 q{"class":"A","id":"later:new#%d"}`, shown, shown))
				f.redis.Del(t.Context(), f.key(fmt.Sprintf("delayed:%d", at-10)))
				f.redis.ZRem(t.Context(), f.key("delayed_queue_schedule"), at-10)
			}
			_, cursor := f.page("", 3)
			own(f, 0, "later:a#0")
			f.asRuby(at, item(9))
			rest, _ := f.page(cursor, 100)
			require.Equal(t, append(append(append([]string{}, all[3:9]...), item(9)), all[9:]...), rest)
		})
		t.Run("what goes between two pages costs no other its place", func(t *testing.T) {
			f := setup(t, server)
			all := fill(f)
			_, own := f.page("", 3)
			_, ruby := f.page("", 9)
			_, last := f.page("", 13)
			f.redis.ZRem(t.Context(), f.key("resqued:delayed"), `later:a#1 1 q{"class":"A","id":"later:a#1"}`)
			f.redis.LRem(t.Context(), f.key(fmt.Sprintf("delayed:%d", at)), 1, item(1))
			rest, _ := f.page(own, 100)
			require.Equal(t, append([]string{all[3]}, all[5:]...), rest)
			rest, _ = f.page(ruby, 100)
			require.Equal(t, all[9:], rest)
			// The job before the place: those of its time are seen again, and none is passed over.
			f.redis.LRem(t.Context(), f.key(fmt.Sprintf("delayed:%d", at+2)), 1, item(4))
			rest, next := f.page(last, 100)
			require.Equal(t, []string{item(5)}, rest)
			require.Empty(t, next)
		})
	})
	for _, bad := range []string{"1", "s", "s1", "sx,1,0123456789abcdef", "s1,0,0123456789abcdef", "sNaN,1,0123456789abcdef", "q1,1,0123456789abcdef", "s1,1,0"} {
		_, err := store.ParseDelayedPlace(bad)
		require.Error(t, err, bad)
	}
	for _, good := range []string{"s1,1,0123456789abcdef", "r1.5,70,0123456789abcdef", "r-Inf,1,0123456789abcdef", "r+Inf,1,0123456789abcdef"} {
		place, err := store.ParseDelayedPlace(good)
		require.NoError(t, err, good)
		require.Equal(t, good, place.String())
	}
}
