//go:build unix

package client_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/resqued/resqued"
	"github.com/resqued/resqued/client"
)

var nextCentury = time.Date(2100, 1, 1, 0, 0, 0, 0, time.UTC)

func TestEnqueueLater(t *testing.T) {
	t.Parallel()

	t.Run("a job waits until its time as Ruby's scheduler has it", func(t *testing.T) {
		t.Parallel()
		var seen []client.Result
		f := setup(t, client.Options{Hooks: []client.Hooks{{AfterEnqueue: func(_ context.Context, _ *client.Job, res client.Result) { seen = append(seen, res) }}}})
		res, err := f.Enqueue(t.Context(), "Mail", mail{42, "hi", ""}, client.Queue("mail"), client.At(nextCentury))
		require.NoError(t, err)
		require.Equal(t, client.Result{Queue: "mail", Status: client.StatusDelayed, Due: res.Due}, res)
		require.Equal(t, nextCentury, res.Due.UTC())
		require.Equal(t, []client.Result{res}, seen)
		require.Empty(t, f.queue(t, "mail"))
		items, err := f.redis.LRange(t.Context(), f.ns+":delayed:4102444800", 0, -1).Result()
		require.NoError(t, err)
		require.Equal(t, []string{`{"class":"Mail","args":[42,"hi"],"queue":"mail"}`}, items)
	})

	t.Run("so long from now on", func(t *testing.T) {
		t.Parallel()
		f := setup(t, client.Options{})
		before := f.redis.Time(t.Context()).Val()
		res, err := f.Enqueue(t.Context(), "Mail", nil, client.Queue("mail"), client.At(nextCentury), client.In(time.Hour))
		require.NoError(t, err)
		require.False(t, res.Due.Before(before.Truncate(time.Millisecond).Add(time.Hour)), "never early")
		require.WithinDuration(t, before.Add(time.Hour), res.Due, time.Minute)
	})

	t.Run("a time that has come is now", func(t *testing.T) {
		t.Parallel()
		f := setup(t, client.Options{UniqueQueues: []string{"u"}})
		for _, opt := range []client.Option{client.In(0), client.In(-time.Hour), client.At(time.Unix(1, 0)), client.At(time.Time{})} {
			res, err := f.Enqueue(t.Context(), "Mail", nil, client.Queue("mail"), opt)
			require.NoError(t, err)
			require.Equal(t, client.StatusEnqueued, res.Status)
		}
		require.Len(t, f.queue(t, "mail"), 4)
		for _, status := range []client.Status{client.StatusEnqueued, client.StatusDuplicate} {
			res, err := f.Enqueue(t.Context(), "Mail", nil, client.Queue("u"), client.At(time.Unix(1, 0)))
			require.NoError(t, err)
			require.Equal(t, status, res.Status)
		}
	})

	t.Run("a loner cannot wait", func(t *testing.T) {
		t.Parallel()
		f := setup(t, client.Options{Handlers: loners()})
		_, err := f.Enqueue(t.Context(), "Loner", nil, client.In(time.Hour))
		require.ErrorIs(t, err, client.ErrLonerLater)
		require.True(t, client.NotEnqueued(err))
		_, err = f.Enqueue(t.Context(), "Loner", nil, client.At(nextCentury))
		require.ErrorIs(t, err, client.ErrLonerLater)
	})

	t.Run("but one whose time has come need not", func(t *testing.T) {
		t.Parallel()
		f := setup(t, client.Options{Handlers: loners()})
		for _, status := range []client.Status{client.StatusEnqueued, client.StatusDuplicate} {
			res, err := f.Enqueue(t.Context(), "Loner", nil, client.At(time.Now().Add(-time.Minute)))
			require.NoError(t, err)
			require.Equal(t, status, res.Status)
		}
		require.Len(t, f.queue(t, "lone"), 1)
	})

	t.Run("the longest waits there are", func(t *testing.T) {
		t.Parallel()
		f := setup(t, client.Options{})
		res, err := f.Enqueue(t.Context(), "Mail", nil, client.Queue("mail"), client.In(math.MaxInt64))
		require.NoError(t, err)
		require.Equal(t, client.StatusDelayed, res.Status)
		require.Greater(t, res.Due.Year(), 2300)
		res, err = f.Enqueue(t.Context(), "Mail", nil, client.Queue("mail"), client.At(time.Date(9999, 12, 31, 23, 59, 59, 0, time.UTC)))
		require.NoError(t, err)
		require.Equal(t, 9999, res.Due.UTC().Year())
		for _, at := range []time.Time{time.Unix(1<<62, 0), time.Date(10000, 1, 2, 0, 0, 0, 0, time.UTC)} {
			_, err := f.Enqueue(t.Context(), "Mail", nil, client.Queue("mail"), client.At(at))
			require.ErrorContains(t, err, "after the year 9999")
			require.True(t, client.NotEnqueued(err))
		}
		res, err = f.Enqueue(t.Context(), "Mail", nil, client.Queue("mail"), client.At(time.Unix(-1<<55, 0)))
		require.NoError(t, err)
		require.Equal(t, client.StatusEnqueued, res.Status)
		require.Len(t, f.queue(t, "mail"), 1)
	})

	t.Run("a key of another type is told, and nothing is enqueued", func(t *testing.T) {
		t.Parallel()
		f := setup(t, client.Options{})
		require.NoError(t, f.redis.Set(t.Context(), f.ns+":delayed_queue_schedule", "x", 0).Err())
		_, err := f.Enqueue(t.Context(), "Mail", nil, client.Queue("mail"), client.In(time.Hour))
		require.ErrorContains(t, err, "delayed_queue_schedule")
		require.True(t, client.NotEnqueued(err))
	})
}

func loners() *resqued.Handlers {
	h := resqued.New()
	h.HandleArgs("Loner", func(context.Context, resqued.Args) error { return nil }, resqued.Queue("lone"), resqued.Lock[resqued.Args]{Loner: true})
	return h
}

func TestEnqueueMany(t *testing.T) {
	t.Parallel()

	t.Run("each has its answer, and one that fails holds up no others", func(t *testing.T) {
		t.Parallel()
		full := errors.New("quota is used up")
		var seen []string
		f := setup(t, client.Options{
			Handlers: loners(), UniqueQueues: []string{"u"},
			Hooks: []client.Hooks{{
				BeforeEnqueue: func(_ context.Context, job *client.Job) error {
					if job.Class == "Refused" {
						return full
					}
					if len(job.Payload) > 0 {
						job.Payload[0] = 'X' // changes nothing
					}
					return nil
				},
				AfterEnqueue: func(_ context.Context, job *client.Job, res client.Result) {
					seen = append(seen, job.Class+" "+res.Queue)
				},
			}},
		})
		require.NoError(t, f.redis.Set(t.Context(), f.ns+":queue:bad", "x", 0).Err())
		answers, err := f.EnqueueMany(t.Context(), []client.EnqueueParams{
			{Class: "A", Args: []any{1}, Queue: "q"},
			{Class: "B", Queue: "bad"},
			{Class: "A", Args: []any{2}, Queue: "q"},
			{Class: "Refused", Queue: "q"},
			{Class: "A", Queue: ""},
			{Payload: []byte(`{"class":"A","args":{}}`), Queue: "q"},
			{Payload: []byte(`{"class":"A", "args":[3],"id":"x"}`), Queue: "q"},
			{Class: "A", Args: []any{1}, Queue: "u"},
			{Class: "A", Args: []any{1}, Queue: "u"},
			{Class: "A", Args: []any{2}, Queue: "u"},
			{Class: "A", Args: []any{4}, Queue: "q", At: nextCentury},
			{Class: "Loner"},
			{Class: "Loner"},
			{Class: "Loner", In: time.Hour},
			{Class: "A", Args: make(chan int), Queue: "q"},
		})
		require.ErrorContains(t, err, "6 of 15 jobs: enqueue \"B\": push to \"bad\"")
		var got []string
		for _, a := range answers {
			if a.Err != nil {
				require.Equal(t, client.Result{}, a.Result)
				got = append(got, "error")
			} else {
				got = append(got, fmt.Sprintf("%s %s %d", a.Status, a.Queue, a.Position))
			}
		}
		require.Equal(t, []string{
			"enqueued q 1", "error", "enqueued q 2", "error", "error", "error", "enqueued q 3",
			"enqueued u 1", "duplicate u 0", "enqueued u 2", "delayed q 0", "enqueued lone 1", "duplicate lone 0", "error", "error",
		}, got)
		require.Equal(t, nextCentury, answers[10].Due.UTC())
		for i, want := range map[int]error{3: full, 4: client.ErrNoQueue, 13: client.ErrLonerLater} {
			require.ErrorIs(t, answers[i].Err, want)
			require.True(t, client.NotEnqueued(answers[i].Err))
		}
		require.Equal(t, []string{`{"class":"A","args":[1]}`, `{"class":"A","args":[2]}`, `{"class":"A", "args":[3],"id":"x"}`}, f.queue(t, "q"))
		require.Equal(t, []string{"A q", "A q", "A q", "A u", "A u", "A q", "Loner lone"}, seen)
		require.ElementsMatch(t, []string{"q", "u", "lone", "bad"}, f.redis.SMembers(t.Context(), f.ns+":queues").Val())
	})

	t.Run("thousands, in their order", func(t *testing.T) {
		t.Parallel()
		f := setup(t, client.Options{UniqueQueues: []string{"u"}})
		var jobs []client.EnqueueParams
		want := map[string][]string{}
		for i := range 7000 {
			queue := []string{"a", "b", "u"}[i%3]
			jobs = append(jobs, client.EnqueueParams{Class: "A", Args: []any{i}, Queue: queue})
			want[queue] = append(want[queue], fmt.Sprintf(`{"class":"A","args":[%d]}`, i))
		}
		answers, err := f.EnqueueMany(t.Context(), jobs)
		require.NoError(t, err)
		for i, a := range answers {
			require.Equal(t, client.Result{Queue: jobs[i].Queue, Position: int64(i/3 + 1), Status: client.StatusEnqueued}, a.Result)
		}
		for queue, payloads := range want {
			require.Equal(t, payloads, f.queue(t, queue))
		}
	})

	t.Run("jobs of one queue keep their order, whichever way they take", func(t *testing.T) {
		t.Parallel()
		h := loners()
		f := setup(t, client.Options{UniqueQueues: []string{"u"}, Handlers: h})
		past, future := time.Unix(1, 0), time.Now().Add(30*time.Minute)
		var jobs []client.EnqueueParams
		want := map[string][]string{}
		for i := range 300 {
			job := client.EnqueueParams{Class: "A", Args: []any{i}, Queue: []string{"q", "u", "p"}[i%3]}
			switch i / 3 % 4 {
			case 1:
				job.At = past
			case 2:
				job.Class = "Loner"
			case 3:
				job.At = future
			}
			if job.Queue == "u" && job.Class == "Loner" {
				job.Class = "A"
			}
			jobs = append(jobs, job)
			if !job.At.Equal(future) {
				want[job.Queue] = append(want[job.Queue], fmt.Sprintf(`{"class":%q,"args":[%d]}`, job.Class, i))
			}
		}
		answers, err := f.EnqueueMany(t.Context(), jobs)
		require.NoError(t, err)
		for queue, payloads := range want {
			require.Equal(t, payloads, f.queue(t, queue), queue)
		}
		for i, a := range answers {
			if jobs[i].At.Equal(future) {
				require.Equal(t, client.StatusDelayed, a.Status)
			} else {
				require.Equal(t, client.StatusEnqueued, a.Status)
			}
		}
	})

	t.Run("jobs that are due together keep their order, too", func(t *testing.T) {
		t.Parallel()
		f := setup(t, client.Options{})
		var jobs []client.EnqueueParams
		at := time.Now().Add(time.Hour).Truncate(time.Second)
		for i := range 1200 { // that Ruby does not see, in several calls
			jobs = append(jobs, client.EnqueueParams{Payload: fmt.Appendf(nil, `{"class":"A","args":[%d],"id":"x"}`, i), Queue: "q", At: at})
		}
		_, err := f.EnqueueMany(t.Context(), jobs)
		require.NoError(t, err)
		members, err := f.redis.ZRange(t.Context(), f.ns+":resqued:delayed", 0, -1).Result()
		require.NoError(t, err)
		require.Len(t, members, len(jobs))
		for i, member := range members {
			require.Contains(t, member, fmt.Sprintf(`"args":[%d]`, i))
		}
	})

	t.Run("none", func(t *testing.T) {
		t.Parallel()
		answers, err := setup(t, client.Options{}).EnqueueMany(t.Context(), nil)
		require.NoError(t, err)
		require.Empty(t, answers)
	})

	t.Run("nothing is pushed where queues cannot be made known", func(t *testing.T) {
		t.Parallel()
		f := setup(t, client.Options{})
		require.NoError(t, f.redis.Set(t.Context(), f.ns+":queues", "x", 0).Err())
		answers, err := f.EnqueueMany(t.Context(), []client.EnqueueParams{{Class: "A", Queue: "q"}})
		require.ErrorContains(t, err, "WRONGTYPE")
		require.True(t, client.NotEnqueued(answers[0].Err))
		require.Empty(t, f.queue(t, "q"))
	})
}
