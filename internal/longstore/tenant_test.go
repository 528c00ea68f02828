package longstore_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/resqued/resqued/internal/longstore"
)

func TestTenants(t *testing.T) {
	t.Parallel()
	setup := func(t *testing.T, share int) *tenants { return newTenants(t, t, share) }
	// cancelled is a tenant whose first run was cancelled while its slice runs; another waits.
	cancelled := func(t *testing.T) (*tenants, *slicehand) {
		t.Helper()
		w := setup(t, 1)
		first := w.add(longstore.Always, "a1", "a")
		w.add(longstore.Always, "a2", "a")
		h := w.take()
		w.begin(h)
		require.ErrorIs(t, w.long.Cancel(t.Context(), first, time.Hour), longstore.ErrEnding)
		return w, h
	}

	t.Run("a tenant with many runs lets another have its turn", func(t *testing.T) {
		t.Parallel()
		w := setup(t, 2)
		for i := range 20 {
			w.add(longstore.Always, fmt.Sprint("a", i), "a")
		}
		w.add(longstore.Always, "b0", "b")
		require.Len(t, w.list("queue:q"), 2)
		order := ""
		for range 12 {
			h := w.take()
			w.begin(h)
			order += w.whose[h.slice.UUID]
			w.end(h, longstore.Yields)
			w.check()
		}
		require.Equal(t, 4, strings.Count(order, "b"), "one slice of three: %s", order)
		w.finish()
	})

	t.Run("its process dies instead", func(t *testing.T) {
		t.Parallel()
		w, h := cancelled(t)
		w.die(h)
		h = w.take() // the payload of the cancelled one
		w.begin(h)
		require.Len(t, w.list("queue:q"), 1)
		w.finish()
	})

	t.Run("its payload is thrown away then", func(t *testing.T) {
		t.Parallel()
		w, h := cancelled(t)
		w.die(h)
		require.NoError(t, w.redis.Del(t.Context(), w.ns+":queue:q").Err())
		require.NoError(t, w.long.Turns(t.Context(), time.Second, 10))
		require.Empty(t, w.list("queue:q"))
		w.advance(2000)
		require.NoError(t, w.long.Turns(t.Context(), time.Second, 10))
		require.Len(t, w.list("queue:q"), 1)
		w.finish()
	})

	t.Run("a slice that waits for some time leaves room, and stands in line afterwards", func(t *testing.T) {
		t.Parallel()
		w := setup(t, 1)
		w.add(longstore.Always, "a1", "a")
		w.add(longstore.Always, "a2", "a")
		h := w.take()
		w.begin(h)
		w.end(h, longstore.Waits)
		w.advance(2 * minute)
		_, err := w.store.MoveDue(t.Context(), "", nil)
		require.NoError(t, err)
		require.Len(t, w.list("queue:q"), 2)
		second, third := w.take(), w.take()
		w.begin(second)
		w.begin(third)
		require.True(t, second.begun)
		require.False(t, third.begun)
		w.check()
		r, err := w.long.Run(t.Context(), third.slice.UUID)
		require.NoError(t, err)
		require.EqualValues(t, 1, r.Place)
		waits, err := w.long.Waiting(t.Context(), []longstore.Record{r})
		require.NoError(t, err)
		require.True(t, waits[r.UUID], "it is not lost")
		w.end(second, longstore.Completed)
		require.Len(t, w.list("queue:q"), 1)
		w.finish()
	})

	t.Run("a slice that waits in a line of its queue is not lost", func(t *testing.T) {
		t.Parallel()
		w := setup(t, 1)
		w.add(longstore.Always, "a1", "a")
		w.add(longstore.Always, "b1", "b")
		payloads := w.list("queue:q")
		require.Len(t, payloads, 2)
		require.NoError(t, w.redis.Del(t.Context(), w.ns+":queue:q").Err())
		// The first one waits for the turn of a tenant of a fair queue, the second one for a lock.
		line, turn := w.ns+":resqued:line:1:q:L[1]", w.ns+":resqued:turn:1:q:=x"
		require.NoError(t, w.redis.RPush(t.Context(), line, payloads[1]).Err())
		require.NoError(t, w.redis.ZAdd(t.Context(), w.ns+":resqued:lines:q", redis.Z{Member: "L[1]"}).Err())
		require.NoError(t, w.redis.RPush(t.Context(), turn, payloads[0]).Err())
		require.NoError(t, w.redis.ZAdd(t.Context(), w.ns+":resqued:turns:q", redis.Z{Member: "=x"}).Err())
		var runs []longstore.Record
		require.NoError(t, w.long.Runs(t.Context(), func(r longstore.Record) bool { runs = append(runs, r); return true }))
		waits, err := w.long.Waiting(t.Context(), runs)
		require.NoError(t, err)
		require.Len(t, waits, 2)
	})

	t.Run("what people have deleted is found", func(t *testing.T) {
		t.Parallel()
		w := setup(t, 1)
		for i := range 3 {
			w.add(longstore.Always, fmt.Sprint("a", i), "a")
		}
		key := func(name string) string { return w.ns + ":resqued:longjob:" + name }
		require.NoError(t, w.redis.Del(t.Context(), key("line:a")).Err())
		lost := func() int {
			n := 0
			require.NoError(t, w.long.Runs(t.Context(), func(r longstore.Record) bool {
				waits, err := w.long.Waiting(t.Context(), []longstore.Record{r})
				require.NoError(t, err)
				if !waits[r.UUID] {
					n++
					require.NoError(t, w.long.Again(t.Context(), r, true))
				}
				return true
			}))
			return n
		}
		require.Equal(t, 2, lost())
		w.lines = map[string][]string{}
		w.check()
		require.Len(t, w.list("queue:q"), 1)
		require.NoError(t, w.redis.Del(t.Context(), key("busy:a"), key("tenants"), w.ns+":queue:q").Err())
		require.Equal(t, 1, lost(), "the others stand in line")
		require.NoError(t, w.long.Turns(t.Context(), 0, 10))
		w.lines = map[string][]string{}
		w.check()
		require.Len(t, w.list("queue:q"), 1)
		w.finish()
	})

	t.Run("very many whose queue takes nothing do not hold up those behind them", func(t *testing.T) {
		t.Parallel()
		w := setup(t, 1)
		w.add(longstore.Always, "a1", "a")
		for i := range 350 {
			stuck := w.run(fmt.Sprint("stuck", i))
			stuck.Tenant, stuck.Queue = "a", "stuck"
			_, err := w.long.AddRuns(t.Context(), longstore.Always, []longstore.NewRun{stuck})
			require.NoError(t, err)
		}
		w.add(longstore.Always, "a2", "a")
		before := w.redis.ZRange(t.Context(), w.ns+":resqued:longjob:line:a", 0, -1).Val()
		require.NoError(t, w.redis.Set(t.Context(), w.ns+":queue:stuck", "x", 0).Err())
		h := w.take()
		w.begin(h)
		w.end(h, longstore.Completed)
		require.NoError(t, w.long.Turns(t.Context(), 0, 10))
		require.Len(t, w.list("queue:q"), 1)
		require.Equal(t, before[350], w.take().slice.UUID)
		// They keep their order among themselves.
		after := w.redis.ZRange(t.Context(), w.ns+":resqued:longjob:line:a", 0, -1).Val()
		require.ElementsMatch(t, before[:350], after)
		first := slices.Index(after, before[0])
		require.Equal(t, before[:350], slices.Concat(after[first:], after[:first]))
	})

	t.Run("more room, and a queue that takes nothing", func(t *testing.T) {
		t.Parallel()
		w := setup(t, 1)
		w.add(longstore.Always, "a1", "a")
		stuck := w.run("a2")
		stuck.Tenant, stuck.Queue = "a", "stuck"
		_, err := w.long.AddRuns(t.Context(), longstore.Always, []longstore.NewRun{stuck})
		require.NoError(t, err)
		w.add(longstore.Always, "a3", "a")
		w.add(longstore.Always, "a4", "a")
		require.NoError(t, w.redis.Set(t.Context(), w.ns+":queue:stuck", "x", 0).Err())
		w.share = 3
		h := w.take()
		w.begin(h)
		require.Len(t, w.list("queue:q"), 2, "two more at once")
		require.Equal(t, []string{stuck.UUID}, w.redis.ZRange(t.Context(), w.ns+":resqued:longjob:line:a", 0, -1).Val())
		w.end(h, longstore.Yields)
		require.Len(t, w.list("queue:q"), 3)
		require.NoError(t, w.redis.Del(t.Context(), w.ns+":queue:stuck").Err())
		require.NoError(t, w.long.Cancel(t.Context(), stuck.UUID, 0))
		w.finish()
	})

	t.Run("a class with an odd name, and what is in the way", func(t *testing.T) {
		t.Parallel()
		w := setup(t, 1)
		odd := longstore.NewRun{UUID: "x", Kind: "k", Class: `A","args":["<é>\`, Args: []byte("[]"), Queue: "q", Tenant: `t "1"`}
		next := odd
		next.UUID, next.Kind = "y", "l"
		_, err := w.long.AddRuns(t.Context(), longstore.Always, []longstore.NewRun{odd, next})
		require.NoError(t, err)
		require.NoError(t, w.long.Cancel(t.Context(), "x", 0))
		require.Equal(t, []string{string(longstore.Payload(odd.Class, "x", 1)), string(longstore.Payload(odd.Class, "y", 1))}, w.list("queue:q"))
		for _, key := range []string{"busy:z", "line:z", "tenants", "shares"} {
			w := setup(t, 1)
			require.NoError(t, w.redis.Set(t.Context(), w.ns+":resqued:longjob:"+key, "x", 0).Err())
			run := w.run("k")
			run.Tenant = "z"
			_, err := w.long.AddRuns(t.Context(), longstore.Always, []longstore.NewRun{run})
			require.ErrorContains(t, err, "RESQUEDTYPE")
			require.Empty(t, w.list("queue:q"))
			require.Zero(t, w.redis.Exists(t.Context(), w.ns+":resqued:longjob:run:"+run.UUID).Val())
		}
	})
}
