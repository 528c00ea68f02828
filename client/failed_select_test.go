//go:build unix

package client_test

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/resqued/resqued/client"
	"github.com/resqued/resqued/internal/store"
)

func numbered(from, to int) (records []string) {
	for i := from; i < to; i++ {
		records = append(records, record(fmt.Sprintf(`{"class":"A","args":[%d]}`, i), "E", "mail"))
	}
	return records
}

// A selection does exactly what it has counted, whatever changes in between.
func TestFailuresThatComeLater(t *testing.T) {
	t.Parallel()
	for _, later := range []int{0, 1, 100, 101, 1500} {
		t.Run(fmt.Sprintf("all are removed and %d come meanwhile", later), func(t *testing.T) {
			t.Parallel()
			f := setup(t, client.Options{})
			f.fail(t, numbered(0, 1200)...)
			require.NoError(t, f.redis.SAdd(t.Context(), f.ns+":failed_queues", "mail_failed").Err())
			require.NoError(t, f.redis.RPush(t.Context(), f.ns+":mail_failed", "a", "b").Err())
			s, err := f.SelectFailed(t.Context(), client.Filter{All: true}, true)
			require.NoError(t, err)
			require.Equal(t, 1202, s.Report().Matched)
			new := numbered(1200, 1200+later)
			f.fail(t, new...)
			require.NoError(t, f.redis.RPush(t.Context(), f.ns+":mail_failed", "c").Err())
			var told []int
			report, err := s.Do(t.Context(), func(n int) { told = append(told, n) })
			require.NoError(t, err)
			require.Equal(t, client.FailedReport{Matched: 1202, Done: 1202, Queues: map[string]int{}}, report)
			require.Equal(t, 1202, told[len(told)-1])
			require.Equal(t, append([]string{}, new...), f.failed(t))
			require.Equal(t, []string{"c"}, f.redis.LRange(t.Context(), f.ns+":mail_failed", 0, -1).Val())
			require.Zero(t, f.redis.HLen(t.Context(), f.ns+":resqued:sifting").Val())
		})
	}
	t.Run("others remove some of them, too", func(t *testing.T) {
		t.Parallel()
		f := setup(t, client.Options{})
		f.fail(t, numbered(0, 300)...)
		s, err := f.SelectFailed(t.Context(), client.Filter{All: true}, true)
		require.NoError(t, err)
		f.fail(t, numbered(300, 420)...)
		for _, i := range []int{5, 150, 298} {
			require.NoError(t, f.redis.LRem(t.Context(), f.ns+":failed", 1, numbered(i, i+1)[0]).Err())
		}
		report, err := s.Do(t.Context(), nil)
		require.NoError(t, err)
		require.Equal(t, 297, report.Done)
		require.Equal(t, numbered(300, 420), f.failed(t))
	})
	for name, change := range map[string]func(f *fixture, t *testing.T){
		"the last is removed":  func(f *fixture, t *testing.T) { f.redis.LRem(t.Context(), f.ns+":failed", -1, numbered(299, 300)[0]) },
		"the first is removed": func(f *fixture, t *testing.T) { f.redis.LPop(t.Context(), f.ns+":failed") },
		"one comes before":     func(f *fixture, t *testing.T) { f.redis.LPush(t.Context(), f.ns+":failed", "a stranger") },
		"the last is retried":  func(f *fixture, t *testing.T) { f.redis.LSet(t.Context(), f.ns+":failed", 299, "retried") },
		"others remove all":    func(f *fixture, t *testing.T) { f.redis.Del(t.Context(), f.ns+":failed") },
	} {
		t.Run("nothing is removed that may be new: "+name, func(t *testing.T) {
			t.Parallel()
			f := setup(t, client.Options{})
			f.fail(t, numbered(0, 300)...)
			s, err := f.SelectFailed(t.Context(), client.Filter{All: true}, true)
			require.NoError(t, err)
			change(f, t)
			f.fail(t, "new")
			before := f.failed(t)
			report, err := s.Do(t.Context(), nil)
			require.ErrorIs(t, err, client.ErrFailuresChanged)
			require.Zero(t, report.Done)
			require.Equal(t, before, f.failed(t))
			report, err = f.RemoveFailed(t.Context(), client.Filter{All: true})
			require.NoError(t, err)
			require.Equal(t, len(before), report.Done)
		})
	}
	t.Run("with payloads beside them they go one by one", func(t *testing.T) {
		t.Parallel()
		f := setup(t, client.Options{})
		f.fail(t, numbered(0, 30)...)
		s, err := f.SelectFailed(t.Context(), client.Filter{All: true}, true)
		require.NoError(t, err)
		require.NoError(t, f.redis.HSet(t.Context(), f.ns+":resqued:parked", "x", "1").Err())
		f.fail(t, "new")
		report, err := s.Do(t.Context(), nil)
		require.NoError(t, err)
		require.Equal(t, 30, report.Done)
		require.Equal(t, []string{"new"}, f.failed(t))
	})
	for _, remove := range []bool{false, true} {
		t.Run(fmt.Sprintf("by a filter, remove %v", remove), func(t *testing.T) {
			t.Parallel()
			f := setup(t, client.Options{})
			f.fail(t, numbered(0, 3)...)
			s, err := f.SelectFailed(t.Context(), client.Filter{Classes: []string{"A"}}, remove)
			require.NoError(t, err)
			f.fail(t, numbered(3, 5)...)
			report, err := s.Do(t.Context(), nil)
			require.NoError(t, err)
			require.Equal(t, 3, report.Done)
			left := slices.DeleteFunc(f.failed(t), func(record string) bool { return strings.Contains(record, "retried_at") })
			require.Equal(t, numbered(3, 5), left)
		})
	}
	t.Run("while workers fail each failure is counted or there", func(t *testing.T) {
		t.Parallel()
		f := setup(t, client.Options{})
		const n = 3000
		var wait sync.WaitGroup
		wait.Go(func() {
			for _, r := range numbered(0, n) {
				f.redis.RPush(t.Context(), f.ns+":failed", r)
			}
		})
		over := make(chan struct{})
		go func() { wait.Wait(); close(over) }()
		removed := 0
		for busy := true; busy; {
			select {
			case <-over:
				busy = false
			default:
			}
			report, err := f.RemoveFailed(t.Context(), client.Filter{All: true})
			require.NoError(t, err)
			require.Equal(t, report.Matched, report.Done, "no more than were there when it began")
			removed += report.Done
		}
		require.Equal(t, n, removed+len(f.failed(t)))
	})
}

// Equal records are separate failures: an id selects the one in its place, once.
func TestEqualFailures(t *testing.T) {
	t.Parallel()
	twin := numbered(0, 1)[0]
	id := func(index int64) string { return store.FailureID([]byte(twin), index) }
	retried := func(f *fixture, t *testing.T) (places []int) {
		t.Helper()
		for i, record := range f.failed(t) {
			if strings.Contains(record, "retried_at") {
				places = append(places, i)
			}
		}
		return places
	}
	for at := range 3 {
		t.Run(fmt.Sprintf("the one at %d is retried once", at), func(t *testing.T) {
			t.Parallel()
			f := setup(t, client.Options{})
			f.fail(t, twin, twin, twin)
			for try := range 3 {
				report, err := f.RetryFailed(t.Context(), client.Filter{IDs: []string{id(int64(at))}})
				require.NoError(t, err)
				require.Equal(t, max(0, 1-try), report.Done, "try %d", try)
				require.Equal(t, []int{at}, retried(f, t))
				require.Len(t, f.queue(t, "mail"), 1)
			}
			// Once more by the id that it has now; equal ones that were retried at that time stay.
			now := f.failed(t)[at]
			report, err := f.RetryFailed(t.Context(), client.Filter{IDs: []string{store.FailureID([]byte(now), int64(at))}})
			require.NoError(t, err)
			require.Equal(t, 1, report.Done)
		})
	}
	t.Run("those that were retried at the same time", func(t *testing.T) {
		t.Parallel()
		f := setup(t, client.Options{})
		old := strings.TrimSuffix(twin, "}") + `,"retried_at":"2026/11/20 10:00:00 UTC"}`
		f.fail(t, old, old, old)
		for try := range 3 {
			report, err := f.RetryFailed(t.Context(), client.Filter{IDs: []string{store.FailureID([]byte(old), 2)}})
			require.NoError(t, err)
			require.Equal(t, max(0, 1-try), report.Done, "try %d", try)
		}
		require.Equal(t, []string{old, old}, f.failed(t)[:2])
	})
	t.Run("one behind its place, or far before it, is another", func(t *testing.T) {
		t.Parallel()
		f := setup(t, client.Options{})
		f.fail(t, append(append([]string{twin}, numbered(1, 300)...), twin, twin)...)
		for _, at := range []int64{300, 300, 301, 301} {
			_, err := f.RetryFailed(t.Context(), client.Filter{IDs: []string{id(at)}})
			require.NoError(t, err)
		}
		require.Equal(t, []int{300, 301}, retried(f, t))
		report, err := f.RetryFailed(t.Context(), client.Filter{IDs: []string{id(0)}})
		require.NoError(t, err)
		require.Equal(t, 1, report.Done)
	})
	t.Run("others have moved them", func(t *testing.T) {
		t.Parallel()
		f := setup(t, client.Options{})
		f.fail(t, "x", twin, "y", twin)
		require.NoError(t, f.redis.LPop(t.Context(), f.ns+":failed").Err())
		for range 2 {
			_, err := f.RetryFailed(t.Context(), client.Filter{IDs: []string{id(3)}})
			require.NoError(t, err)
		}
		require.Equal(t, []int{2}, retried(f, t))
	})
	t.Run("others have moved them far", func(t *testing.T) {
		t.Parallel()
		f := setup(t, client.Options{})
		f.fail(t, slices.Concat([]string{twin}, numbered(1, 301), []string{twin}, numbered(301, 601))...)
		for range 2 {
			_, err := f.RetryFailed(t.Context(), client.Filter{IDs: []string{id(301)}})
			require.NoError(t, err)
			for _, other := range numbered(1, 260) {
				require.NoError(t, f.redis.LRem(t.Context(), f.ns+":failed", 1, other).Err())
			}
		}
		require.Equal(t, []int{42}, retried(f, t))
	})
	t.Run("all at once, and again", func(t *testing.T) {
		t.Parallel()
		f := setup(t, client.Options{})
		f.fail(t, twin, "x", twin, twin, twin)
		some := []string{id(0), id(3), id(3), id(4)}
		for try := range 2 {
			report, err := f.RetryFailed(t.Context(), client.Filter{IDs: some})
			require.NoError(t, err)
			require.Equal(t, 3*(1-try), report.Done)
			require.Equal(t, []int{0, 3, 4}, retried(f, t))
			require.Len(t, f.queue(t, "mail"), 3)
		}
	})
	t.Run("two retry the same one at once", func(t *testing.T) {
		t.Parallel()
		f := setup(t, client.Options{})
		f.fail(t, twin, twin, twin)
		ask := client.Filter{IDs: []string{id(1)}}
		one, err := f.SelectFailed(t.Context(), ask, false)
		require.NoError(t, err)
		two, err := f.SelectFailed(t.Context(), ask, false)
		require.NoError(t, err)
		report, err := one.Do(t.Context(), nil)
		require.NoError(t, err)
		require.Equal(t, 1, report.Done)
		report, err = two.Do(t.Context(), nil)
		require.NoError(t, err)
		require.Equal(t, client.FailedReport{Matched: 1, Gone: 1, Queues: map[string]int{}}, report)
		require.Equal(t, []int{1}, retried(f, t))
	})
	t.Run("removed one by one", func(t *testing.T) {
		t.Parallel()
		f := setup(t, client.Options{})
		f.fail(t, twin, "x", twin, twin)
		for left := 3; left > 0; left-- {
			report, err := f.RemoveFailed(t.Context(), client.Filter{IDs: []string{id(0), id(0)}})
			require.NoError(t, err)
			require.Equal(t, 1, report.Done)
			require.Len(t, f.failed(t), left)
			if left == 3 {
				report, err = f.RemoveFailed(t.Context(), client.Filter{IDs: []string{id(0)}})
				require.NoError(t, err)
				require.Zero(t, report.Done, "the others stand behind that place")
				require.NoError(t, f.redis.LRem(t.Context(), f.ns+":failed", 1, "x").Err())
				f.fail(t, "y")
			}
		}
	})
}
