package store_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/resqued/resqued/internal/history"
	"github.com/resqued/resqued/internal/history/queueage"
	"github.com/resqued/resqued/internal/store"
	"github.com/resqued/resqued/internal/testkit/proctest"
	"github.com/resqued/resqued/internal/testkit/redistest"
)

// aged is a fixture for ages: it looks when it is told to.
type aged struct {
	*fixture
	looked time.Time // the time of the last look
}

func (f *aged) look() {
	f.t.Helper()
	require.NoError(f.t, f.redis.Del(f.t.Context(), f.key("resqued:age:turn")).Err())
	f.looked = time.Now()
	mine, err := f.LookAtAges(f.t.Context())
	require.NoError(f.t, err)
	require.True(f.t, mine)
	// The next step is to have a later time, also by the server's clock, which a busy server reads late.
	proctest.Await(f.t, time.Minute, func() bool { return f.redis.Time(f.t.Context()).Val().Sub(f.looked) > 10*round }, "a later time")
}

// round is how far apart two readings of one time may be.
const round = 10 * time.Millisecond

func (f *aged) age(queue string) store.Age {
	f.t.Helper()
	all, err := f.QueueList(f.t.Context())
	require.NoError(f.t, err)
	for _, q := range all {
		if q.Name == queue {
			return q.Age
		}
	}
	f.t.Fatalf("no queue %q", queue)
	return store.Age{}
}

// between requires that an age says that its job was pushed after a look, and before a time.
func (f *aged) between(queue string, after, before time.Time) {
	f.t.Helper()
	a := f.age(queue)
	require.Equal(f.t, queueage.Measured, a.Source, f.redis.HGetAll(f.t.Context(), f.key("resqued:age:lists")).Val())
	require.WithinRange(f.t, a.Pushed, after.Add(-round), before.Add(round))
}

// TestAges pushes and takes jobs between looks: what is known of their age comes from nothing but
// these looks.
func TestAges(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t, redistest.Options{})
	start := func(t *testing.T) *aged {
		t.Helper()
		f := &aged{fixture: setup(t, server)}
		f.look() // nothing waits
		return f
	}

	t.Run("the first job has waited since the look before it", func(t *testing.T) {
		t.Parallel()
		f := start(t)
		none := f.looked
		f.push("mail", numbered(0, 10)...)
		f.look()
		first := f.looked
		f.between("mail", none, first)
		f.push("mail", numbered(10, 20)...)
		f.look()
		f.between("mail", none, first)
		require.Len(t, f.exchange(store.ExchangeRequest{Wants: f.wants(10), Queues: []store.Queue{{Name: "mail"}}}).Jobs, 10)
		f.look()
		f.between("mail", first, f.looked)

		// Workers of other programs take jobs, too.
		second := f.looked
		require.NoError(t, f.redis.LPopCount(t.Context(), f.key("queue:mail"), 10).Err())
		f.push("mail", numbered(20, 23)...)
		f.look()
		f.between("mail", second, f.looked)
	})

	t.Run("nothing is left of a queue that is empty", func(t *testing.T) {
		t.Parallel()
		f := start(t)
		f.push("mail", numbered(0, 3)...)
		f.look()
		require.True(t, f.exists("resqued:age"))
		f.exchange(store.ExchangeRequest{Wants: f.wants(3), Queues: []store.Queue{{Name: "mail"}}})
		f.look()
		require.Zero(t, f.age("mail"))
		require.False(t, f.exists("resqued:age"))
		require.False(t, f.exists("resqued:age:lists"))
	})

	t.Run("what was there at the first look has waited for so long at least", func(t *testing.T) {
		t.Parallel()
		f := &aged{fixture: setup(t, server)}
		f.push("mail", numbered(0, 3)...)
		f.look()
		require.Equal(t, queueage.AtLeast, f.age("mail").Source)
		f.push("mail", numbered(3, 6)...)
		f.look()
		f.exchange(store.ExchangeRequest{Wants: f.wants(3), Queues: []store.Queue{{Name: "mail"}}})
		f.look()
		require.Equal(t, queueage.Measured, f.age("mail").Source)
	})

	t.Run("of equal jobs the ended ones are counted", func(t *testing.T) {
		t.Parallel()
		f := start(t)
		none := f.looked
		same := strings.Split(strings.Repeat(job("A", "[]")+" ", 10), " ")[:10]
		f.push("mail", same...)
		f.look()
		first := f.looked
		f.look() // two are found: from now on it is known how many have ended
		f.counted("mail", 1)
		f.look()
		for range 10 {
			require.NoError(t, f.redis.LPop(t.Context(), f.key("queue:mail")).Err())
		}
		f.push("mail", same...)
		f.counted("mail", 10)
		f.look()
		a := f.age("mail")
		require.Equal(t, queueage.Estimate, a.Source)
		require.True(t, a.Pushed.After(first), "%s is not after %s (nothing waited at %s)", a.Pushed, first, none)
	})

	t.Run("a job keeps its age where it is taken out of order", func(t *testing.T) {
		t.Parallel()
		for name, c := range map[string]struct {
			queues []store.Queue
			jobs   []string
		}{
			"for a lock":  {lined("mail"), []string{job("A", "[1]"), job("A", "[1]"), job("A", "[1]")}},
			"for a turn":  {fair(byArg, "mail"), jobsOf("a", 0, 3)},
			"of a unique": {[]store.Queue{{Name: "mail", Unique: true}}, numbered(0, 3)},
		} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				f := start(t)
				none := f.looked
				f.push("mail", c.jobs...)
				f.look()
				first := f.looked
				f.push("mail", numbered(100, 101)...)
				f.look()
				got := f.exchange(store.ExchangeRequest{Wants: f.wants(2), Queues: c.queues}).Jobs
				require.NotEmpty(t, got)
				f.look()
				f.between("mail", none, first)
			})
		}
	})

	t.Run("what users do to a queue", func(t *testing.T) {
		t.Parallel()
		// Each begins with ten jobs of the first look and ten of the second, and changes the queue.
		for name, c := range map[string]struct {
			change func(f *aged)
			queue  string
			after  func(none, first, second time.Time) (from, to time.Time)
		}{
			"purge, then push": {func(f *aged) {
				_, err := f.RemoveQueue(f.t.Context(), "mail", true)
				require.NoError(f.t, err)
				f.push("mail", numbered(100, 103)...)
			}, "mail", func(_, _, second time.Time) (time.Time, time.Time) { return second, time.Now() }},
			"remove the first ten": {func(f *aged) {
				gone, err := f.Dequeue(f.t.Context(), "mail", func(p []byte) bool { return slices.Contains(numbered(0, 10), string(p)) }, nil)
				require.NoError(f.t, err)
				require.EqualValues(f.t, 10, gone)
			}, "mail", func(_, first, second time.Time) (time.Time, time.Time) { return first, second }},
			"move the first ten away": {func(f *aged) {
				f.moved(store.MoveRequest{From: "mail", To: "other", Limit: 10}, 10)
			}, "mail", func(_, first, second time.Time) (time.Time, time.Time) { return first, second }},
			"move to a queue": {func(f *aged) {
				f.moved(store.MoveRequest{From: "mail", To: "other"}, 20)
			}, "other", func(_, _, second time.Time) (time.Time, time.Time) { return second, time.Now() }},
			"move before others": {func(f *aged) {
				f.push("other", numbered(200, 205)...)
				f.look()
				f.moved(store.MoveRequest{From: "mail", To: "other", Head: true}, 20)
				f.exchange(store.ExchangeRequest{Wants: f.wants(20), Queues: []store.Queue{{Name: "other"}}})
			}, "other", func(_, _, second time.Time) (time.Time, time.Time) { return second, time.Now() }},
		} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				f := start(t)
				none := f.looked
				f.push("mail", numbered(0, 10)...)
				f.look()
				first := f.looked
				f.push("mail", numbered(10, 20)...)
				f.look()
				second := f.looked
				c.change(f)
				f.look()
				from, to := c.after(none, first, second)
				f.between(c.queue, from, to)
			})
		}
	})

	t.Run("equal jobs after a purge are only an estimate", func(t *testing.T) {
		t.Parallel()
		f := start(t)
		f.push("mail", numbered(0, 10)...)
		f.look()
		_, err := f.RemoveQueue(t.Context(), "mail", true)
		require.NoError(t, err)
		f.push("mail", numbered(0, 3)...)
		f.look()
		require.Equal(t, queueage.Estimate, f.age("mail").Source)
	})

	t.Run("of many one looks, and strangers' keys harm nothing", func(t *testing.T) {
		t.Parallel()
		f := start(t)
		mine, err := f.LookAtAges(t.Context())
		require.NoError(t, err)
		require.False(t, mine)
		require.NoError(t, f.redis.SAdd(t.Context(), f.key("queues"), "odd").Err())
		require.NoError(t, f.redis.Set(t.Context(), f.key("queue:odd"), "x", 0).Err())
		f.push("mail", "", strings.Repeat("x", 2*queueage.MaxAnchor))
		f.look()
		require.NoError(t, f.redis.HSet(t.Context(), f.key("resqued:age:lists"), "queue:mail", "2 what is this").Err())
		require.NoError(t, f.redis.HSet(t.Context(), f.key("resqued:age"), "mail", "x y z").Err())
		require.Zero(t, f.age("mail"))
		f.look()
		require.NotZero(t, f.age("mail").Pushed)
	})
}

// TestOldLooks: a look that is some time ago is not relied on, and soon not believed.
func TestOldLooks(t *testing.T) {
	t.Parallel()
	f := &aged{fixture: setup(t, redistest.Start(t, redistest.Options{}))}
	f.push("mail", numbered(0, 3)...)
	f.look()
	for ago, want := range map[time.Duration]store.Age{
		0: {Source: queueage.Measured}, 10 * time.Second: {Source: queueage.Estimate, Stale: true}, 3 * time.Minute: {}, -3 * time.Minute: {},
	} {
		looked := time.Now().Add(-ago).UnixMilli()
		require.NoError(t, f.redis.HSet(t.Context(), f.key("resqued:age"), "mail", fmt.Sprintf("%d %d measured false", looked, looked)).Err())
		got := f.age("mail")
		got.Pushed = time.Time{}
		require.Equal(t, want, got, ago)
	}
	// Keys of a wrong type go.
	for _, key := range []string{"resqued:age", "resqued:age:lists"} {
		require.NoError(t, f.redis.Set(t.Context(), f.key(key), "x", 0).Err())
	}
	f.look()
	f.look()
	require.NotZero(t, f.age("mail").Pushed)
}

func (f *aged) moved(r store.MoveRequest, want int64) {
	f.t.Helper()
	r.Pick = func([]byte) (string, bool) { return "", true }
	report, err := f.MoveJobs(f.t.Context(), r)
	require.NoError(f.t, err)
	require.Equal(f.t, want, report.Moved)
}

// counted has the history count jobs of a queue.
func (f *aged) counted(queue string, n int) {
	f.t.Helper()
	var sum history.Sum
	for range n {
		sum.Add(history.Processed, 0, 0)
	}
	sums := map[history.Name]*history.Sum{{Kind: history.Queue, Name: queue}: &sum}
	_, err := f.AddHistory(f.t.Context(), []history.Series{{Minute: time.Now().Unix() / 60, Sums: sums}})
	require.NoError(f.t, err)
}
