//go:build unix

package client_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/resqued/resqued"
	"github.com/resqued/resqued/client"
)

func TestUniqueQueues(t *testing.T) {
	t.Parallel()
	unique := client.Options{UniqueQueues: []string{"mail*", "!mail-all"}}

	t.Run("an equal job is pushed once, and the result tells", func(t *testing.T) {
		t.Parallel()
		pushed := 0
		o := unique
		o.Hooks = []client.Hooks{{AfterEnqueue: func(context.Context, *client.Job, client.Result) { pushed++ }}}
		f := setup(t, o)
		res, err := f.Enqueue(t.Context(), "Mail", 1, client.Queue("mail"))
		require.NoError(t, err)
		require.Equal(t, client.Result{Queue: "mail", Position: 1, Status: client.StatusEnqueued}, res)
		res, err = f.Enqueue(t.Context(), "Mail", 1, client.Queue("mail"))
		require.NoError(t, err)
		require.Equal(t, client.Result{Queue: "mail", Status: client.StatusDuplicate}, res)
		require.Equal(t, 1, pushed)
		require.Len(t, f.queue(t, "mail"), 1)
		require.Equal(t, f.queue(t, "mail"), f.redis.SMembers(t.Context(), f.ns+":queue:mail:uniqueue").Val())
		for range 2 {
			res, err = f.Enqueue(t.Context(), "Mail", 1, client.Queue("mail-all"))
			require.NoError(t, err)
			require.Equal(t, client.StatusEnqueued, res.Status)
		}
	})

	t.Run("a strict queue out of step refuses", func(t *testing.T) {
		t.Parallel()
		o := unique
		o.UniqueQueuesStrict = true
		f := setup(t, o)
		f.redis.RPush(t.Context(), f.ns+":queue:mail", "x")
		_, err := f.Enqueue(t.Context(), "Mail", 1, client.Queue("mail"))
		require.ErrorIs(t, err, client.ErrOutOfStep)
		require.ErrorContains(t, err, "resqued locks repair mail")
		require.True(t, client.NotEnqueued(err))
	})

	t.Run("patterns that make no sense are refused", func(t *testing.T) {
		t.Parallel()
		_, err := client.New(client.Options{UniqueQueues: []string{"mail:3"}})
		require.ErrorContains(t, err, "UniqueQueues")
	})

	t.Run("a loner in a unique queue keeps its companions in step", func(t *testing.T) {
		t.Parallel()
		o := unique
		o.Handlers = loner()
		f := setup(t, o)
		res, err := f.Enqueue(t.Context(), "Graph", 7, client.Queue("mail"))
		require.NoError(t, err)
		require.Equal(t, client.StatusEnqueued, res.Status)
		require.Equal(t, f.queue(t, "mail"), f.redis.SMembers(t.Context(), f.ns+":queue:mail:uniqueue").Val())
	})
}

// loner has one class, a loner.
func loner() *resqued.Handlers {
	h := resqued.New()
	h.HandleArgs("Graph", func(context.Context, resqued.Args) error { return nil }, resqued.Lock[resqued.Args]{Loner: true})
	return h
}

func TestDequeue(t *testing.T) {
	t.Parallel()
	raw := func(f *fixture, payloads ...string) {
		for _, p := range payloads {
			require.NoError(t, f.redis.RPush(t.Context(), f.ns+":queue:q", p).Err())
		}
	}

	t.Run("jobs of every producer match by class and decoded arguments", func(t *testing.T) {
		t.Parallel()
		f := setup(t, client.Options{})
		left := []string{
			`{"class":"A","args":[2,{"a":1,"b":[2]}]}`, `{"class":"A","args":[1,{"a":1,"b":[2]},3]}`,
			`{"class":"B","args":[1,{"a":1,"b":[2]}]}`, `{"class":"A","args":["1",{"a":1,"b":[2]}]}`,
			`{"class":"A"}`, `not json`, `{"class":"A","args":[1,{"a":1,"b":[2],"c":null}]}`,
		}
		raw(f, left[0], `{"class":"A","args":[1,{"a":1,"b":[2]}]}`, left[1])
		raw(f, `{"class":"A","args":[1,{"b":[2],"a":1}],"id":"4f","generation":1}`, left[2], left[3])
		raw(f, `{"class":"A","queue":"q","args":[1.0, {"a":1,"b":[2e0]}]}`)
		raw(f, left[4:]...)
		n, err := f.Dequeue(t.Context(), "q", "A", []any{1, map[string]any{"b": []int{2}, "a": 1}})
		require.NoError(t, err)
		require.EqualValues(t, 3, n)
		require.Equal(t, left, f.queue(t, "q"))
	})

	t.Run("large numbers are compared in full", func(t *testing.T) {
		t.Parallel()
		f := setup(t, client.Options{})
		raw(f, `{"class":"A","args":[12345678901234567]}`, `{"class":"A","args":[12345678901234568]}`, `{"class":"A","args":[1e400]}`)
		n, err := f.Dequeue(t.Context(), "q", "A", 12345678901234567)
		require.NoError(t, err)
		require.EqualValues(t, 1, n)
		require.Len(t, f.queue(t, "q"), 2)
	})

	t.Run("no arguments are those of a payload without any", func(t *testing.T) {
		t.Parallel()
		f := setup(t, client.Options{})
		raw(f, `{"class":"A"}`, `{"class":"A","args":null}`, `{"class":"A","args":[]}`, `{"class":"A","args":[1]}`)
		n, err := f.Dequeue(t.Context(), "q", "A", nil)
		require.NoError(t, err)
		require.EqualValues(t, 3, n)
		n, err = f.DequeueClass(t.Context(), "q", "A")
		require.NoError(t, err)
		require.EqualValues(t, 1, n)
	})

	for name, remove := range map[string]func(f *fixture) (int64, error){
		"dequeued":       func(f *fixture) (int64, error) { return f.Dequeue(t.Context(), "q", "Graph", 7) },
		"of its class":   func(f *fixture) (int64, error) { return f.DequeueClass(t.Context(), "q", "Graph") },
		"of its queue":   func(f *fixture) (int64, error) { return f.RemoveQueue(t.Context(), "q") },
		"in the cleanup": func(f *fixture) (int64, error) { return f.PurgeQueue(t.Context(), "q") },
	} {
		t.Run("a loner that was removed leaves no marker, "+name, func(t *testing.T) {
			t.Parallel()
			f := setup(t, client.Options{Handlers: loner(), UniqueQueues: []string{"*"}})
			_, err := f.Enqueue(t.Context(), "Graph", 7, client.Queue("q"))
			require.NoError(t, err)
			waits, err := f.Enqueued(t.Context(), "Graph", 7)
			require.NoError(t, err)
			require.True(t, waits)
			n, err := remove(f)
			require.NoError(t, err)
			require.EqualValues(t, 1, n)
			left := f.redis.Keys(t.Context(), f.ns+":*").Val()
			require.Subset(t, []string{f.ns + ":queues", f.ns + ":resqued:pruned"}, left)
		})
	}
}

func TestRemoveQueue(t *testing.T) {
	t.Parallel()
	f := setup(t, client.Options{})
	for _, queue := range []string{"a", "b"} {
		_, err := f.Enqueue(t.Context(), "A", 1, client.Queue(queue))
		require.NoError(t, err)
	}
	n, err := f.RemoveQueue(t.Context(), "a")
	require.NoError(t, err)
	require.EqualValues(t, 1, n)
	n, err = f.PurgeQueue(t.Context(), "b")
	require.NoError(t, err)
	require.EqualValues(t, 1, n)
	require.Equal(t, []string{"b"}, f.redis.SMembers(t.Context(), f.ns+":queues").Val())
}

// A slice of a long job stays where its run looks for it, also as a suspect. If it were taken
// for lost, the run would continue with another slice.
func TestMoveQueueLeavesSlices(t *testing.T) {
	t.Parallel()
	f := setup(t, client.Options{})
	slice := `{"class":"Copy","args":["123e4567"],"id":"123e4567.1"}`
	f.redis.RPush(t.Context(), f.ns+":queue:mail", `{"class":"A","args":[1]}`, slice)
	f.redis.RPush(t.Context(), f.ns+":resqued:suspects:mail", "- "+slice, `- {"class":"A","args":[2]}`)
	report, err := f.MoveQueue(t.Context(), "mail", "post", client.MoveOptions{})
	require.NoError(t, err)
	require.Equal(t, client.WaitingReport{Done: 2, LongJobs: 2}, report)
	require.Equal(t, []string{slice}, f.queue(t, "mail"))
	require.Equal(t, []string{"- " + slice}, f.redis.LRange(t.Context(), f.ns+":resqued:suspects:mail", 0, -1).Val())
	require.Equal(t, []string{`- {"class":"A","args":[2]}`}, f.redis.LRange(t.Context(), f.ns+":resqued:suspects:post", 0, -1).Val())
}
