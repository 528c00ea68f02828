//go:build unix

package client_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/resqued/resqued"
	"github.com/resqued/resqued/client"
	"github.com/resqued/resqued/internal/testkit/redistest"
)

// inStores has two stores on one server: queues that begin with m, and all others except x.
func inStores(t *testing.T, o client.Options) (s *client.Stores, a, b *fixture) {
	t.Helper()
	server := redistest.Shared(t)
	a, b = &fixture{redis: server.Client(t), ns: redistest.Namespace(t)}, &fixture{redis: server.Client(t), ns: redistest.Namespace(t)}
	o.URL = server.URL()
	s, err := client.NewStores(o,
		client.Store{Name: "a", Namespace: a.ns, Queues: []string{"mail", "m*"}},
		client.Store{Name: "b", Namespace: b.ns, Queues: []string{"*", "!x"}})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	a.Client, b.Client = s.Store("a"), s.Store("b")
	return s, a, b
}

func TestStores(t *testing.T) {
	t.Parallel()
	t.Run("a job goes to the store of its queue", func(t *testing.T) {
		t.Parallel()
		s, a, b := inStores(t, client.Options{})
		for _, queue := range []string{"mail", "m1", "bulk"} {
			res, err := s.Enqueue(t.Context(), "Mail", []int{1}, client.Queue(queue))
			require.NoError(t, err)
			require.Equal(t, client.Result{Queue: queue, Position: 1, Status: client.StatusEnqueued}, res)
		}
		require.Len(t, a.queue(t, "mail"), 1)
		require.Len(t, a.queue(t, "m1"), 1)
		require.Equal(t, []string{`{"class":"Mail","args":[1]}`}, b.queue(t, "bulk"))
		require.Empty(t, b.queue(t, "mail"))
		require.Equal(t, []string{"a", "b"}, s.Names())
		name, err := s.StoreOf("m2")
		require.NoError(t, err)
		require.Equal(t, "a", name)
		require.Nil(t, s.Store("c"))
	})
	t.Run("one that is to wait waits there", func(t *testing.T) {
		t.Parallel()
		s, a, b := inStores(t, client.Options{})
		_, err := s.Enqueue(t.Context(), "Mail", nil, client.Queue("bulk"), client.At(nextCentury))
		require.NoError(t, err)
		require.EqualValues(t, 1, b.redis.LLen(t.Context(), b.ns+":delayed:4102444800").Val())
		require.Zero(t, a.redis.Exists(t.Context(), a.ns+":delayed_queue_schedule").Val())
	})
	t.Run("a queue without a store is refused, and certainly not pushed", func(t *testing.T) {
		t.Parallel()
		s, _, _ := inStores(t, client.Options{})
		_, err := s.Enqueue(t.Context(), "Mail", nil, client.Queue("x"))
		require.ErrorIs(t, err, client.ErrNoStore)
		require.True(t, client.NotEnqueued(err))
		_, err = s.Enqueue(t.Context(), "Mail", nil)
		require.ErrorIs(t, err, client.ErrNoQueue)
		_, err = s.Of("x")
		require.ErrorIs(t, err, client.ErrNoStore)
	})
	t.Run("the queue that counts is that of the class, and then what a hook has made of it", func(t *testing.T) {
		t.Parallel()
		h := resqued.New()
		resqued.Handle(h, "Mail", func(context.Context, int) error { return nil }, resqued.Queue("mail"))
		var after []string
		s, a, b := inStores(t, client.Options{Handlers: h, Hooks: []client.Hooks{{
			BeforeEnqueue: func(_ context.Context, j *client.Job) error {
				if j.Args.String() == "[2]" {
					j.Queue = "bulk"
				}
				return nil
			},
			AfterEnqueue: func(_ context.Context, j *client.Job, _ client.Result) { after = append(after, j.Queue) },
		}}})
		for _, id := range []int{1, 2} {
			_, err := s.Enqueue(t.Context(), "Mail", id)
			require.NoError(t, err)
		}
		require.Len(t, a.queue(t, "mail"), 1)
		require.Len(t, b.queue(t, "bulk"), 1)
		require.Equal(t, []string{"mail", "bulk"}, after)
	})
	t.Run("many at once are sorted", func(t *testing.T) {
		t.Parallel()
		s, a, b := inStores(t, client.Options{UniqueQueues: []string{"u"}})
		var jobs []client.EnqueueParams
		for i := range 6 {
			jobs = append(jobs, client.EnqueueParams{Class: "Mail", Args: []int{i}, Queue: []string{"mail", "bulk"}[i%2]})
		}
		jobs = append(jobs, client.EnqueueParams{Class: "Mail", Queue: "x"}, client.EnqueueParams{Class: "Mail", Queue: "u"},
			client.EnqueueParams{Class: "Mail", Queue: "u"}, client.EnqueueParams{Class: "Mail", Queue: "bulk", At: nextCentury})
		results, err := s.EnqueueMany(t.Context(), jobs)
		require.ErrorIs(t, err, client.ErrNoStore)
		require.Equal(t, []string{`{"class":"Mail","args":[0]}`, `{"class":"Mail","args":[2]}`, `{"class":"Mail","args":[4]}`}, a.queue(t, "mail"))
		require.Equal(t, []string{`{"class":"Mail","args":[1]}`, `{"class":"Mail","args":[3]}`, `{"class":"Mail","args":[5]}`}, b.queue(t, "bulk"))
		for i, r := range results[:6] {
			require.NoError(t, r.Err)
			require.EqualValues(t, i/2+1, r.Position)
		}
		require.True(t, client.NotEnqueued(results[6].Err))
		require.Equal(t, []client.Status{client.StatusEnqueued, client.StatusDuplicate, client.StatusDelayed},
			[]client.Status{results[7].Status, results[8].Status, results[9].Status})
	})
	t.Run("a loner is asked for in its store, also whether its time has come", func(t *testing.T) {
		t.Parallel()
		h := resqued.New()
		resqued.Handle(h, "Once", func(context.Context, int) error { return nil }, resqued.Queue("mail"), resqued.Lock[int]{Loner: true})
		s, a, _ := inStores(t, client.Options{Handlers: h})
		for _, want := range []client.Status{client.StatusEnqueued, client.StatusDuplicate} {
			res, err := s.Enqueue(t.Context(), "Once", 1, client.At(time.Unix(1, 0)))
			require.NoError(t, err)
			require.Equal(t, want, res.Status)
		}
		require.Len(t, a.queue(t, "mail"), 1)
		_, err := s.Enqueue(t.Context(), "Once", 1, client.At(nextCentury))
		require.ErrorIs(t, err, client.ErrLonerLater)
	})
	t.Run("a store that is away does not hold up the other", func(t *testing.T) {
		t.Parallel()
		server, gone := redistest.Start(t, redistest.Options{}), redistest.Start(t, redistest.Options{})
		gone.Kill()
		s, err := client.NewStores(client.Options{}, client.Store{Name: "a", URL: gone.URL(), Queues: []string{"a"}}, client.Store{Name: "b", URL: server.URL(), Queues: []string{"b"}})
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, s.Close()) })
		results, err := s.EnqueueMany(t.Context(), []client.EnqueueParams{{Class: "A", Queue: "a"}, {Class: "B", Queue: "b"}})
		require.True(t, client.Unreachable(err), err)
		require.True(t, client.NotEnqueued(results[0].Err))
		require.NoError(t, results[1].Err)
	})
	t.Run("options that make no sense are refused", func(t *testing.T) {
		t.Parallel()
		for _, all := range [][]client.Store{
			{},
			{{Queues: []string{"a"}}},
			{{Name: "a"}},
			{{Name: "a", Queues: []string{"!a"}}},
			{{Name: "a", Queues: []string{"a"}}, {Name: "a", Queues: []string{"b"}}},
			{{Name: "a", Queues: []string{"a"}, URL: "http://x"}},
			{{Name: "a", Queues: []string{"a"}, CAFile: "/no/such"}},
			{{Name: "a", Queues: []string{"a"}, CertFile: "/no/such"}},
		} {
			s, err := client.NewStores(client.Options{}, all...)
			require.Error(t, err)
			require.Nil(t, s)
			require.False(t, errors.Is(err, client.ErrNoStore))
		}
	})
}

func TestMoveQueueTo(t *testing.T) {
	t.Parallel()
	t.Run("all that waits goes, unchanged and in order, but what is bound to its store", func(t *testing.T) {
		t.Parallel()
		h := resqued.New()
		resqued.Handle(h, "Once", func(context.Context, int) error { return nil }, resqued.Lock[int]{Loner: true})
		s, a, b := inStores(t, client.Options{Handlers: h, UniqueQueues: []string{"u"}})
		var want []string
		for _, payload := range []string{`{"class":"A","args":[1.0,"é\u2028"], "x" : 1}`, `no json`, `{"class":"A","args":[2]}`} {
			want = append(want, payload)
			require.NoError(t, a.redis.RPush(t.Context(), a.ns+":queue:mail", payload).Err())
		}
		_, err := s.Enqueue(t.Context(), "Once", 1, client.Queue("mail"))
		require.NoError(t, err)
		report, err := a.MoveQueueTo(t.Context(), "mail", b.Client, client.MoveOptions{})
		require.NoError(t, err)
		require.Equal(t, client.WaitingReport{Done: 3, Loners: 1}, report)
		require.Equal(t, want, b.queue(t, "mail"))
		require.Equal(t, []string{`{"class":"Once","args":[1]}`}, a.queue(t, "mail"))
	})
	t.Run("what makes no sense is refused", func(t *testing.T) {
		t.Parallel()
		_, a, b := inStores(t, client.Options{UniqueQueues: []string{"u"}})
		_, err := a.MoveQueueTo(t.Context(), "u", b.Client, client.MoveOptions{})
		require.ErrorIs(t, err, client.ErrUniqueQueue)
		_, err = a.MoveQueueTo(t.Context(), "mail", a.Client, client.MoveOptions{})
		require.ErrorContains(t, err, "the same store")
		_, err = a.MoveQueueTo(t.Context(), "q:start_at", b.Client, client.MoveOptions{})
		require.Error(t, err)
		n, err := a.MoveQueueBack(t.Context(), "mail", b.Client)
		require.NoError(t, err)
		require.Zero(t, n)
	})
}
