//go:build unix

package client_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/resqued/resqued/client"
	"github.com/resqued/resqued/internal/wire"
)

func (f *fixture) fail(t *testing.T, records ...string) {
	t.Helper()
	for _, r := range records {
		require.NoError(t, f.redis.RPush(t.Context(), f.ns+":failed", r).Err())
	}
}

func (f *fixture) failed(t *testing.T) []string {
	t.Helper()
	list, err := f.redis.LRange(t.Context(), f.ns+":failed", 0, -1).Result()
	require.NoError(t, err)
	return list
}

func record(payload, exception, queue string) string {
	return recordAt("2026/11/20 09:56:20 UTC", payload, exception, queue)
}

func recordAt(at, payload, exception, queue string) string {
	return fmt.Sprintf(`{"failed_at":"`+at+`","payload":%s,"exception":%q,"error":"no luck","backtrace":[],"worker":"w","queue":%q}`,
		payload, exception, queue)
}

func TestRetryFailed(t *testing.T) {
	t.Parallel()
	one := `{"class":"A","args":[1.0,"\/"],"id":"4f"}`

	t.Run("the payload goes back byte by byte and the record stays, for one retry", func(t *testing.T) {
		t.Parallel()
		f := setup(t, client.Options{})
		f.fail(t, record(one, "Timeout", "mail"))
		count, err := f.CountFailed(t.Context(), client.Filter{All: true}, false)
		require.NoError(t, err)
		require.Equal(t, client.FailedReport{Matched: 1, Queues: map[string]int{"mail": 1}}, count)
		require.Equal(t, []string{record(one, "Timeout", "mail")}, f.failed(t))

		report, err := f.RetryFailed(t.Context(), client.Filter{All: true})
		require.NoError(t, err)
		require.Equal(t, client.FailedReport{Matched: 1, Done: 1, Queues: map[string]int{"mail": 1}}, report)
		require.Equal(t, []string{one}, f.queue(t, "mail"))
		left := f.failed(t)
		require.Len(t, left, 1)
		require.Regexp(t, `"queue":"mail","retried_at":"\d{4}/\d\d/\d\d \d\d:\d\d:\d\d \S+"\}$`, left[0])

		report, err = f.RetryFailed(t.Context(), client.Filter{All: true})
		require.NoError(t, err)
		require.Zero(t, report.Matched)
		var handled []int
		again, err := f.SelectFailed(t.Context(), client.Filter{All: true, Retried: "any"}, false)
		require.NoError(t, err)
		report, err = again.Do(t.Context(), func(n int) { handled = append(handled, n) })
		require.NoError(t, err)
		require.Equal(t, 1, report.Done)
		require.Equal(t, []int{1}, handled)
		id := wire.FailureID([]byte(f.failed(t)[0]))
		report, err = f.RetryFailed(t.Context(), client.Filter{IDs: []string{id[:8]}})
		require.NoError(t, err)
		require.Equal(t, 1, report.Done)
		require.Len(t, f.queue(t, "mail"), 3)
	})

	t.Run("a duplicate in a unique queue is told as such", func(t *testing.T) {
		t.Parallel()
		f := setup(t, client.Options{UniqueQueues: []string{"mail"}})
		f.fail(t, record(one, "Timeout", "mail"), record(one, "Timeout", "other"), record(one, "Late", "mail"))
		report, err := f.RetryFailed(t.Context(), client.Filter{Classes: []string{"A"}})
		require.NoError(t, err)
		require.Equal(t, client.FailedReport{Matched: 3, Done: 3, Duplicates: 1, Queues: map[string]int{"mail": 1, "other": 1}}, report)
		require.Len(t, f.queue(t, "mail"), 1)
		require.Equal(t, f.queue(t, "mail"), f.redis.SMembers(t.Context(), f.ns+":queue:mail:uniqueue").Val())
	})

	t.Run("what failed as no payload goes back as it was", func(t *testing.T) {
		t.Parallel()
		f := setup(t, client.Options{})
		f.fail(t, string(wire.Failure{Payload: []byte("rubbish"), Queue: "q"}.Encode()), record("null", "E", "q"), record(one, "E", ""), "rubbish")
		report, err := f.RetryFailed(t.Context(), client.Filter{All: true})
		require.NoError(t, err)
		require.Equal(t, client.FailedReport{Matched: 4, Stuck: 4, Queues: map[string]int{}}, report)
		require.Len(t, f.failed(t), 4)
	})

	t.Run("filters", func(t *testing.T) {
		t.Parallel()
		f := setup(t, client.Options{})
		records := []string{
			record(`{"class":"A","args":[1]}`, "Timeout", "mail"), record(`{"class":"B","args":[1]}`, "Timeout::Error", "mail"),
			record(`{"class":"A","args":[2]}`, "Other", "reports"), "rubbish",
		}
		f.fail(t, records...)
		for want, filter := range map[int][]client.Filter{
			4: {{All: true}},
			3: {{Error: "no luck"}, {All: true, Limit: 3}},
			2: {{Classes: []string{"A"}}, {Error: "Timeout"}, {Queues: []string{"mail"}}},
			1: {{Classes: []string{"A"}, Queues: []string{"mail"}}, {IDs: []string{wire.FailureID([]byte("rubbish"))[:12]}}, {Classes: []string{"A"}, Limit: 1}},
			0: {{Classes: []string{"C"}}, {All: true, Classes: []string{"a"}}, {IDs: []string{""}}, {IDs: []string{"ffffffffffff"}}},
		} {
			for _, one := range filter {
				report, err := f.CountFailed(t.Context(), one, true)
				require.NoError(t, err)
				require.Equal(t, want, report.Matched, "%+v", one)
			}
		}
		f.fail(t, recordAt("2026/11/19 09:56:20 UTC", `{"class":"Old","args":[]}`, "Timeout", "mail"), recordAt("odd", `{"class":"Odd","args":[]}`, "Timeout", "odd"))
		noon := time.Date(2026, 11, 19, 12, 0, 0, 0, time.UTC)
		for want, filter := range map[int]client.Filter{
			1: {Until: noon}, 3: {Since: noon}, 2: {Since: noon, Error: "Timeout"}, 0: {Since: noon, Until: noon.Add(time.Hour)},
			4: {Error: "/^Time(out|s)/"}, 5: {Error: "/LUCK|luck$/"},
		} {
			report, err := f.CountFailed(t.Context(), filter, true)
			require.NoError(t, err)
			require.Equal(t, want, report.Matched, "%+v", filter)
		}
		// Zones that are not certain: IST is 02:30 to 07:00 UTC, XYZT 18:00 of the day before to 20:00.
		f.fail(t, recordAt("2026/11/19 08:00:00 IST", `{"class":"Zone","args":[]}`, "Timeout", "zone"), recordAt("2026/11/19 08:00:00 XYZT", `{"class":"Zone","args":[]}`, "Timeout", "zone"))
		for hour, want := range map[int][2]int{-8: {0, 2}, 2: {0, 1}, 4: {0, 0}, 8: {1, 0}, 21: {2, 0}} {
			at := time.Date(2026, 11, 19, hour, 0, 0, 0, time.UTC)
			for i, filter := range []client.Filter{{Queues: []string{"zone"}, Until: at}, {Queues: []string{"zone"}, Since: at}} {
				report, err := f.CountFailed(t.Context(), filter, true)
				require.NoError(t, err)
				require.Equal(t, want[i], report.Matched, "%+v", filter)
			}
		}
		for range 4 {
			require.NoError(t, f.redis.RPop(t.Context(), f.ns+":failed").Err())
		}
		_, err := f.CountFailed(t.Context(), client.Filter{Limit: 3, Retried: "any"}, true)
		require.ErrorIs(t, err, client.ErrNoFilter)

		report, err := f.RemoveFailed(t.Context(), client.Filter{Error: "Timeout"})
		require.NoError(t, err)
		require.Equal(t, 2, report.Done)
		require.Equal(t, records[2:], f.failed(t))
		report, err = f.RemoveFailed(t.Context(), client.Filter{All: true})
		require.NoError(t, err)
		require.Equal(t, 2, report.Done)
		require.Empty(t, f.failed(t))
	})
}
