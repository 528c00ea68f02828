package store_test

import (
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/resqued/resqued/internal/store"
	"github.com/resqued/resqued/internal/testkit/redistest"
)

func (f *fixture) next(limit int, queues ...string) (jobs []store.DelayedJob, more bool) {
	f.t.Helper()
	jobs, next, err := f.NextDelayed(f.t.Context(), store.DelayedPlace{}, limit, func(j *store.DelayedJob) bool {
		return len(queues) == 0 || slices.Contains(queues, j.Queue)
	})
	require.NoError(f.t, err)
	return jobs, next != store.DelayedPlace{}
}

func (f *fixture) undelay(run bool, jobs ...store.DelayedJob) string {
	f.t.Helper()
	var marks []byte
	require.NoError(f.t, f.Undelay(f.t.Context(), jobs, run, func(queue string) bool { return queue == "u" },
		func(_ store.DelayedJob, what store.FailedOutcome) { marks = append(marks, byte(what)) }))
	return string(marks)
}

// A server before 6.0.6 has no LPOS to look for an equal job.
func TestUndelayWithoutLPOS(t *testing.T) {
	t.Parallel()
	f := setup(t, redistest.Start(t, redistest.Without(t, "LPOS")))
	one := store.LaterJob{Queue: "q", Payload: []byte(job("A", "[1]")), At: nextCentury}
	f.later(one, one)
	known := f.key("timestamps:" + rubyItem("A", "[1]", "q"))
	for _, left := range [][]string{{"delayed:4102444800"}, {}} {
		jobs, _ := f.next(1)
		require.Equal(t, "r", f.undelay(false, jobs...))
		require.Equal(t, left, f.redis.SMembers(t.Context(), known).Val())
	}
}

func TestUndelay(t *testing.T) {
	t.Parallel()
	redistest.Both(t, func(t *testing.T, server *redistest.Server) {
		t.Run("jobs are listed as they are due", func(t *testing.T) {
			f := setup(t, server)
			at := nextCentury.Unix()
			f.asRuby(at, rubyItem("A", "[1]", "q"), "garbage", rubyItem("A", "[1]", "q"))
			f.asRuby(at+10, `{"class":"A","queue":"r","args":[3]}`)
			f.delayed(nextCentury.Add(5*time.Second), "later:x#1", "q", `{"class":"A","args":[2],"id":"x"}`)
			jobs, more := f.next(10)
			require.False(t, more)
			var got []string
			ids := map[string]bool{}
			for _, j := range jobs {
				got = append(got, j.Due.Sub(nextCentury).String()+" "+j.Queue+" "+string(j.Payload))
				ids[j.ID()] = true
			}
			require.Equal(t, []string{
				"0s q " + rubyItem("A", "[1]", "q"), "0s  ", "0s q " + rubyItem("A", "[1]", "q"),
				`5s q {"class":"A","args":[2],"id":"x"}`, `10s r {"class":"A","queue":"r","args":[3]}`,
			}, got)
			require.Len(t, ids, 4, "equal jobs that are due together share one")
			jobs, more = f.next(2, "q")
			require.True(t, more)
			require.Len(t, jobs, 2)
			_, more = f.next(3, "q")
			require.False(t, more)
			n, partial, err := f.Delayed(t.Context(), 10)
			require.NoError(t, err)
			require.False(t, partial)
			require.EqualValues(t, 5, n)
			_, partial, err = f.Delayed(t.Context(), 1)
			require.NoError(t, err)
			require.True(t, partial)
		})
		t.Run("each is removed, or pushed, once", func(t *testing.T) {
			f := setup(t, server)
			before := append(f.keys(), f.key("queues"), f.key("queue:q"))
			f.later(
				store.LaterJob{Queue: "q", Payload: []byte(job("A", "[1]")), At: nextCentury},
				store.LaterJob{Queue: "q", Payload: []byte(job("A", "[1]")), At: nextCentury},
				store.LaterJob{Queue: "q", Payload: []byte(` {"class":"A"}`), At: nextCentury},
			)
			jobs, _ := f.next(10)
			require.Equal(t, "r", f.undelay(true, jobs[0]))
			require.Equal(t, "rrg", f.undelay(false, append(jobs[1:], jobs[0])...))
			require.Equal(t, "ggg", f.undelay(true, jobs...))
			require.Len(t, f.list("queue:q"), 1)
			require.ElementsMatch(t, before, f.keys(), "nothing is left")
		})
		t.Run("an equal one that stays is still known", func(t *testing.T) {
			f := setup(t, server)
			one := store.LaterJob{Queue: "q", Payload: []byte(job("A", "[1]")), At: nextCentury}
			f.later(one, one)
			jobs, _ := f.next(1)
			require.Equal(t, "r", f.undelay(false, jobs...))
			require.Equal(t, []string{"delayed:4102444800"}, f.redis.SMembers(t.Context(), f.key("timestamps:"+rubyItem("A", "[1]", "q"))).Val())
		})
		t.Run("a unique queue takes no second, and what cannot be pushed stays", func(t *testing.T) {
			f := setup(t, server)
			f.asRuby(nextCentury.Unix(), "garbage", rubyItem("A", "[1]", "bad"), rubyItem("A", "[1]", "u"), rubyItem("A", "[1]", "u"))
			require.NoError(t, f.redis.Set(t.Context(), f.key("queue:bad"), "x", 0).Err())
			jobs, _ := f.next(10)
			require.Equal(t, "xxru", f.undelay(true, jobs...))
			f.inStep("u")
			require.Equal(t, []string{"garbage", rubyItem("A", "[1]", "bad")}, f.list("delayed:4102444800"))
			require.Equal(t, "rr", f.undelay(false, jobs[:2]...))
		})
	})
}
