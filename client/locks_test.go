//go:build unix

package client_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/resqued/resqued"
	"github.com/resqued/resqued/client"
	"github.com/resqued/resqued/internal/testkit/redistest"
)

type graph struct {
	Repo int
	Full bool
}

// locked has handlers with a loner class whose lock is that of its repository.
func locked(change ...func(*resqued.Lock[graph])) *resqued.Handlers {
	l := resqued.Lock[graph]{
		Loner: true, Timeout: time.Hour,
		Identifier: func(g graph) string { return string(rune('a' + g.Repo)) },
	}
	for _, c := range change {
		c(&l)
	}
	h := resqued.New()
	resqued.Handle(h, "Graph", func(context.Context, graph) error { return nil }, resqued.Queue("graphs"), l)
	h.HandleArgs("Plain", func(context.Context, resqued.Args) error { return nil })
	return h
}

func TestLoner(t *testing.T) {
	t.Parallel()
	for _, where := range []string{"", redistest.Shared(t).URL() + "?client_name=elsewhere"} {
		name := "in the daemon's Redis"
		if where != "" {
			name = "in another Redis"
		}
		t.Run("a second one is not pushed: "+name, func(t *testing.T) {
			t.Parallel()
			var refused []graph
			var hooked int
			f := setup(t, client.Options{
				Handlers: locked(func(l *resqued.Lock[graph]) {
					l.Redis = where
					l.OnLonerEnqueueFailed = func(_ context.Context, g graph) { refused = append(refused, g) }
				}),
				Hooks: []client.Hooks{{AfterEnqueue: func(context.Context, *client.Job, client.Result) { hooked++ }}},
			})
			res, err := f.Enqueue(t.Context(), "Graph", graph{1, false})
			require.NoError(t, err)
			require.Equal(t, client.Result{Queue: "graphs", Position: 1, Status: client.StatusEnqueued}, res)

			res, err = f.Enqueue(t.Context(), "Graph", graph{1, true})
			require.NoError(t, err)
			require.Equal(t, client.Result{Queue: "graphs", Status: client.StatusDuplicate}, res)
			require.Equal(t, []graph{{1, true}}, refused)

			require.NoError(t, f.redis.Set(t.Context(), f.ns+":lock:Graph:c", time.Now().Add(time.Hour).Unix(), 0).Err())
			res, err = f.EnqueueRaw(t.Context(), []byte(`{"class":"Graph","args":[2,false]}`))
			require.NoError(t, err)
			require.Equal(t, client.Result{Queue: "graphs", Status: client.StatusLocked}, res)

			require.Equal(t, []string{`{"class":"Graph","args":[1,false]}`}, f.queue(t, "graphs"))
			require.Equal(t, 1, hooked, "only what was pushed has been enqueued")
		})
	}

	t.Run("arguments of which no key can be made are refused", func(t *testing.T) {
		t.Parallel()
		f := setup(t, client.Options{Handlers: locked()})
		_, err := f.Enqueue(t.Context(), "Graph", "x")
		require.ErrorContains(t, err, "key of the lock of Graph: arguments: got 1 argument, takes 2")
		require.True(t, client.NotEnqueued(err))
	})

	t.Run("a job that cannot be pushed leaves no marker in the other Redis", func(t *testing.T) {
		t.Parallel()
		server, ns := redistest.Shared(t), redistest.Namespace(t)
		c, err := client.New(client.Options{
			URL: "redis://127.0.0.1:1", Namespace: ns, // no server listens there
			Handlers: locked(func(l *resqued.Lock[graph]) { l.Redis = server.URL() }),
		})
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, c.Close()) })
		_, err = c.Enqueue(t.Context(), "Graph", graph{1, false})
		require.Error(t, err)
		require.True(t, client.NotEnqueued(err))
		require.Zero(t, server.Client(t).Exists(t.Context(), ns+":loner:lock:Graph:b").Val())
	})
}

// TestWrapperClass checks that handlers of an Active Job's wrapper apply if the job has none of
// its own.
func TestWrapperClass(t *testing.T) {
	t.Parallel()
	const wrapper = "ActiveJob::QueueAdapters::ResqueAdapter::JobWrapper"
	h := resqued.New()
	h.HandleArgs(wrapper, func(context.Context, resqued.Args) error { return nil }, resqued.Queue("rails"),
		resqued.Lock[resqued.Args]{Loner: true, Timeout: time.Hour})
	h.HandleArgs("Own", func(context.Context, resqued.Args) error { return nil }, resqued.Queue("own"))
	f := setup(t, client.Options{Handlers: h})
	payload := func(class string) []byte {
		return []byte(`{"class":"` + wrapper + `","args":[{"job_class":"` + class + `","job_id":"1","arguments":[7]}]}`)
	}
	res, err := f.EnqueueRaw(t.Context(), payload("Mail"))
	require.NoError(t, err)
	require.Equal(t, client.Result{Queue: "rails", Position: 1, Status: client.StatusEnqueued}, res)
	res, err = f.EnqueueRaw(t.Context(), payload("Mail"))
	require.NoError(t, err)
	require.Equal(t, client.StatusDuplicate, res.Status)
	n, err := f.Dequeue(t.Context(), "rails", "Mail", []int{7})
	require.NoError(t, err)
	require.EqualValues(t, 1, n)
	res, err = f.EnqueueRaw(t.Context(), payload("Mail"))
	require.NoError(t, err)
	require.Equal(t, client.StatusEnqueued, res.Status, "its marker has gone with it")
	res, err = f.EnqueueRaw(t.Context(), payload("Own"))
	require.NoError(t, err)
	require.Equal(t, "own", res.Queue)
}

func TestLockHelpers(t *testing.T) {
	t.Parallel()
	t.Run("they tell what runs and what waits", func(t *testing.T) {
		t.Parallel()
		f := setup(t, client.Options{Handlers: locked()})
		ask := func() (locked, enqueued, loner bool) {
			t.Helper()
			var errs [3]error
			locked, errs[0] = f.Locked(t.Context(), "Graph", graph{1, true})
			enqueued, errs[1] = f.Enqueued(t.Context(), "Graph", graph{1, true})
			loner, errs[2] = f.LonerLocked(t.Context(), "Graph", graph{1, true})
			require.Equal(t, [3]error{}, errs)
			return locked, enqueued, loner
		}
		running, waiting, either := ask()
		require.False(t, running || waiting || either)
		_, err := f.Enqueue(t.Context(), "Graph", graph{1, false})
		require.NoError(t, err)
		running, waiting, either = ask()
		require.True(t, !running && waiting && either)

		require.NoError(t, f.redis.Del(t.Context(), f.ns+":loner:lock:Graph:b").Err())
		require.ErrorIs(t, f.RefreshLock(t.Context(), "Graph", graph{1, true}), resqued.ErrNotLocked)
		soon := time.Now().Add(time.Minute).Unix()
		require.NoError(t, f.redis.Set(t.Context(), f.ns+":lock:Graph:b", soon, 0).Err())
		running, waiting, either = ask()
		require.True(t, running && !waiting && either)
		require.NoError(t, f.RefreshLock(t.Context(), "Graph", graph{1, true}))
		later, err := f.redis.Get(t.Context(), f.ns+":lock:Graph:b").Int64()
		require.NoError(t, err)
		require.Greater(t, later, soon+3000)
	})

	t.Run("hashes are printed as the workers' Ruby does", func(t *testing.T) {
		t.Parallel()
		h := resqued.New()
		h.HandleArgs("A", func(context.Context, resqued.Args) error { return nil }, resqued.Lock[resqued.Args]{})
		for style, key := range map[bool]string{false: `lock:A:{"k"=>1}`, true: `lock:A:{"k" => 1}`} {
			f := setup(t, client.Options{Handlers: h, Ruby34: style})
			require.NoError(t, f.redis.Set(t.Context(), f.ns+":"+key, "true", 0).Err())
			yes, err := f.Locked(t.Context(), "A", []any{map[string]int{"k": 1}})
			require.NoError(t, err)
			require.True(t, yes, key)
		}
	})

	t.Run("a class without a known lock is an error that says so", func(t *testing.T) {
		t.Parallel()
		f := setup(t, client.Options{})
		_, err := f.Locked(t.Context(), "Graph", nil)
		require.EqualError(t, err, `class "Graph": the client knows no locks: pass the handlers to client.New`)
		f = setup(t, client.Options{Handlers: locked()})
		_, err = f.Enqueued(t.Context(), "Nobody", nil)
		require.EqualError(t, err, `class "Nobody" is not among the client's handlers, so its lock is not known`)
		_, err = f.LonerLocked(t.Context(), "Plain", nil)
		require.EqualError(t, err, `class "Plain" has no Lock`)
		require.ErrorContains(t, f.RefreshLock(t.Context(), "Graph", "x"), "takes 2")
	})
}
