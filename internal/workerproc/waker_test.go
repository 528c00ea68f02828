package workerproc_test

import (
	"context"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/resqued/resqued"
	"github.com/resqued/resqued/internal/store"
	"github.com/resqued/resqued/internal/sys/proc"
	"github.com/resqued/resqued/internal/testkit/redistest"
	"github.com/resqued/resqued/internal/workerproc"
)

// never is an interval longer than the tests, so that jobs are found only by the waker.
const never = time.Hour

// wakeful starts a process, with or without a waker, on a server of its own.
func wakeful(t *testing.T, h handlers, o options) *fixture {
	t.Helper()
	if o.server == nil {
		o.server = redistest.Start(t, redistest.Options{})
	}
	o.waker = true
	return start(t, h, o)
}

func (f *fixture) pollForAll(on bool) { f.down <- proc.Message{Type: proc.Poller, On: on} }

// clients returns the connections that wait, or have waited last.
func (f *fixture) clients() []string {
	return f.connections(func(line string) bool { return strings.Contains(line, " cmd=blmove ") })
}

func (f *fixture) connections(which func(line string) bool) (ids []string) {
	f.t.Helper()
	list, err := f.redis.ClientList(f.t.Context()).Result()
	require.NoError(f.t, err)
	for line := range strings.Lines(list) {
		if which(line) {
			id, _, _ := strings.Cut(strings.TrimPrefix(line, "id="), " ")
			ids = append(ids, id)
		}
	}
	return ids
}

func (f *fixture) waits(n int) {
	f.t.Helper()
	eventually(f.t, "connections that wait", func() bool { return len(f.clients()) == n })
}

// waitsNow is waits without the connections that have waited: a look begun before a test has
// pushed anything may have waited for that queue, too.
func (f *fixture) waitsNow(n int) {
	f.t.Helper()
	eventually(f.t, "connections that are blocked", func() bool {
		return n == len(f.connections(func(line string) bool {
			_, flags, _ := strings.Cut(line, " flags=")
			flags, _, _ = strings.Cut(flags, " ")
			return strings.Contains(flags, "b")
		}))
	})
}

// calls returns how many waits have begun, including refused ones.
func (f *fixture) calls() (n int) {
	f.t.Helper()
	text, err := f.redis.Info(f.t.Context(), "commandstats").Result()
	require.NoError(f.t, err)
	_, line, _ := strings.Cut(text, "cmdstat_blmove:")
	line, _, _ = strings.Cut(line, "\r")
	for field := range strings.SplitSeq(line, ",") {
		name, value, _ := strings.Cut(field, "=")
		if name == "calls" || name == "rejected_calls" {
			count, err := strconv.Atoi(value)
			require.NoError(f.t, err)
			n += count
		}
	}
	return n
}

// polled counts polls.
type polled struct {
	workerproc.Store
	n *atomic.Int64
}

func (p polled) Poll(ctx context.Context, r store.PollRequest) (store.PollReply, error) {
	defer p.n.Add(1)
	return p.Store.Poll(ctx, r)
}

// counting makes the polls of a process count.
func counting(o options) (options, func(t *testing.T, n int64)) {
	var n atomic.Int64
	o.wrap = func(s workerproc.Store) workerproc.Store { return polled{s, &n} }
	return o, func(t *testing.T, more int64) {
		t.Helper()
		from := n.Load()
		eventually(t, "looks", func() bool { return n.Load() >= from+more })
	}
}

func TestWaker(t *testing.T) {
	t.Parallel()
	redistest.Needs(t, "BLMOVE")

	for _, queues := range [][]string{{"q", "other"}, {"*"}} {
		t.Run("a push wakes an idle poller: "+queues[0], func(t *testing.T) {
			t.Parallel()
			server := redistest.Start(t, redistest.Options{})
			running := make(chan *resqued.Job)
			f := wakeful(t, handlers{"A": func(_ context.Context, job *resqued.Job) error {
				running <- job
				return nil
			}}, options{server: server, queues: queues, cfg: workerproc.Config{Interval: never, Threads: 2}})
			f.push(payload(-1)) // so that the queue is known
			f.down <- proc.Message{Type: proc.Look}
			<-running
			f.pollForAll(true)
			for i := range 50 {
				f.push(payload(i))
				<-running
			}
			eventually(t, "all processed", func() bool { return f.processed() == 51 })
			f.drain()
			f.waits(0) // Redis may not have read of the end yet
		})
	}

	t.Run("queues that a glob matches are waited for before there was a job in them", func(t *testing.T) {
		t.Parallel()
		server := redistest.Start(t, redistest.Options{})
		f := wakeful(t, handlers{"A": succeed}, options{server: server, queues: []string{"*", "!x*"}, cfg: workerproc.Config{Interval: never}})
		require.NoError(t, f.redis.SAdd(t.Context(), f.key("queues"), "q", "r", "x1", "x2").Err())
		f.pollForAll(true)
		f.waits(2)
		f.push(payload(1))
		eventually(t, "processed", func() bool { return f.processed() == 1 })
		f.drain()
	})

	t.Run("one thread is woken again and again, jobs that take a while included", func(t *testing.T) {
		t.Parallel()
		handler, running, open := gate()
		f := wakeful(t, handlers{"A": handler}, options{cfg: workerproc.Config{Interval: never}})
		f.pollForAll(true)
		f.waits(1)
		for i := range 10 {
			f.push(payload(i))
			<-running
			open <- struct{}{}
		}
		f.drain()
	})

	t.Run("only the poller waits", func(t *testing.T) {
		t.Parallel()
		o, looks := counting(options{})
		f := wakeful(t, handlers{"A": succeed}, o)
		f.push(payload(1))
		eventually(t, "processed", func() bool { return f.processed() == 1 })
		looks(t, 10)
		require.Zero(t, f.calls())
		f.pollForAll(true)
		f.waits(1)
		f.pollForAll(false)
		f.waits(0)
		f.drain()
	})

	t.Run("paused or leaving it has no connection", func(t *testing.T) {
		t.Parallel()
		f := wakeful(t, handlers{"A": succeed}, options{queues: []string{"q", "r", "s"}, cfg: workerproc.Config{Interval: never}})
		f.pollForAll(true)
		f.waits(3)
		f.down <- proc.Message{Type: proc.SetState, State: "paused"}
		f.waits(0)
		f.push(payload(1))
		f.down <- proc.Message{Type: proc.SetState, State: "running"}
		eventually(t, "processed", func() bool { return f.processed() == 1 })
		f.waits(3)
		f.push(payload(2))
		eventually(t, "processed", func() bool { return f.processed() == 2 })
		f.drain()
		f.waits(0) // Redis may not have read of the end yet
	})

	t.Run("a queue of locked jobs is not waited for", func(t *testing.T) {
		t.Parallel()
		o, looks := counting(options{})
		f := wakeful(t, handlers{"A": succeed}, o)
		lock := f.key("locket:job_locks:A[1]")
		require.NoError(t, f.redis.Set(t.Context(), lock, "", 0).Err())
		f.pollForAll(true)
		f.waits(1)
		f.push(payload(1))
		looks(t, 30)
		require.LessOrEqual(t, f.calls(), 3)
		require.NoError(t, f.redis.Del(t.Context(), lock).Err())
		eventually(t, "processed", func() bool { return f.processed() == 1 })
		f.drain()
	})

	t.Run("a paused queue of jobs is not waited for, and holds up no other", func(t *testing.T) {
		t.Parallel()
		o, looks := counting(options{queues: []string{"paused", "q"}})
		f := wakeful(t, handlers{"A": succeed}, o)
		pause := f.key("pause:queue:paused")
		require.NoError(t, f.redis.Set(t.Context(), pause, "true", 0).Err())
		_, err := f.store.Push(t.Context(), "paused", []byte(payload(1)))
		require.NoError(t, err)
		f.pollForAll(true)
		f.waitsNow(1)
		began := time.Now()
		looks(t, 30)
		// Each wait for the other queue lasts five seconds.
		require.LessOrEqual(t, f.calls(), 2+int(time.Since(began)/(5*time.Second)))
		f.push(payload(2))
		eventually(t, "processed", func() bool { return f.processed() == 1 })
		require.NoError(t, f.redis.Del(t.Context(), pause).Err())
		eventually(t, "processed", func() bool { return f.processed() == 2 })
		f.waitsNow(2)
		f.drain()
	})

	t.Run("waiting that is over at once, for ever, is not repeated for ever", func(t *testing.T) {
		t.Parallel()
		var awaited atomic.Int64
		o, looks := counting(options{open: func() (workerproc.Waiter, error) { return &restless{n: &awaited}, nil }})
		began := time.Now()
		f := wakeful(t, handlers{"A": succeed}, o)
		f.pollForAll(true)
		looks(t, 30)
		// The pauses grow to a second.
		require.Less(t, awaited.Load(), 20+int64(time.Since(began)/time.Second))
		f.drain()
	})

	t.Run("a key that holds no list is left alone, and the others are waited for", func(t *testing.T) {
		t.Parallel()
		o, looks := counting(options{queues: []string{"bad", "q"}})
		f := wakeful(t, handlers{"A": succeed}, o)
		require.NoError(t, f.redis.Set(t.Context(), f.key("queue:bad"), "x", 0).Err())
		f.pollForAll(true)
		began := time.Now()
		looks(t, 30)
		// Each wait for the other queue lasts five seconds.
		require.LessOrEqual(t, f.calls(), 3+int(time.Since(began)/(5*time.Second)))
		f.push(payload(1))
		eventually(t, "processed", func() bool { return f.processed() == 1 })
		f.drain()
	})

	t.Run("a lost connection is made again", func(t *testing.T) {
		t.Parallel()
		f := wakeful(t, handlers{"A": succeed}, options{cfg: workerproc.Config{Interval: never}})
		f.pollForAll(true)
		f.waits(1)
		old := f.clients()[0]
		require.NoError(t, f.redis.Do(t.Context(), "CLIENT", "KILL", "ID", old).Err())
		eventually(t, "another connection", func() bool {
			now := f.clients()
			return len(now) == 1 && now[0] != old
		})
		f.push(payload(1))
		eventually(t, "processed", func() bool { return f.processed() == 1 })
		f.drain()
	})

	t.Run("a server that starts again, or becomes a replica for a while, is waited at again", func(t *testing.T) {
		t.Parallel()
		for name, away := range map[string]func(t *testing.T, f *fixture, server *redistest.Server){
			"restart": func(_ *testing.T, _ *fixture, server *redistest.Server) {
				server.Kill()
				server.Restart()
			},
			"failover and back": func(t *testing.T, f *fixture, _ *redistest.Server) {
				t.Helper()
				require.NoError(t, f.redis.Do(t.Context(), "REPLICAOF", "127.0.0.1", "1").Err())
				f.waits(0) // Redis ends a wait when its role changes
				require.NoError(t, f.redis.Do(t.Context(), "REPLICAOF", "NO", "ONE").Err())
			},
		} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				server := redistest.Start(t, redistest.Options{})
				f := wakeful(t, handlers{"A": succeed}, options{server: server, queues: []string{"q", "r"}})
				f.pollForAll(true)
				f.waits(2)
				before := f.calls()
				away(t, f, server)
				f.waits(2)
				require.LessOrEqual(t, f.calls()-before, 20, "it waits before it tries again")
				f.push(payload(1))
				eventually(t, "processed", func() bool { return f.processed() == 1 })
				f.drain()
			})
		}
	})

	t.Run("others who take the jobs first do not make it spin", func(t *testing.T) {
		t.Parallel()
		f := wakeful(t, handlers{"A": succeed}, options{cfg: workerproc.Config{Interval: never}})
		f.pollForAll(true)
		f.waits(1)
		// Like Ruby's workers, but so that nothing is left when the process looks.
		for i := range 50 {
			require.NoError(t, f.redis.Watch(t.Context(), func(tx *redis.Tx) error {
				_, err := tx.TxPipelined(t.Context(), func(p redis.Pipeliner) error {
					p.RPush(t.Context(), f.key("queue:q"), payload(i))
					p.LPop(t.Context(), f.key("queue:q"))
					return nil
				})
				return err
			}))
		}
		require.LessOrEqual(t, f.calls(), 50)
		f.push(payload(100))
		eventually(t, "processed", func() bool { return f.processed() == 1 })
		f.drain()
	})

	t.Run("without the right to wait, or after it is taken away, jobs are found at each interval", func(t *testing.T) {
		t.Parallel()
		server := redistest.Start(t, redistest.Options{Users: []string{"resqued on >SECRET ~* &* +@all"}})
		o, looks := counting(options{server: server, user: "resqued"})
		f := wakeful(t, handlers{"A": succeed}, o)
		f.pollForAll(true)
		f.waits(1)
		require.NoError(t, f.redis.Do(t.Context(), "ACL", "SETUSER", "resqued", "-blmove").Err())
		f.push(payload(1))
		eventually(t, "processed", func() bool { return f.processed() == 1 })
		f.waits(0)
		calls := f.calls()
		f.push(payload(2))
		eventually(t, "processed", func() bool { return f.processed() == 2 })
		looks(t, 30)
		require.Equal(t, calls, f.calls())
		f.drain()
	})
}

// TestWakerOnAnOldServer checks that jobs are found without BLMOVE, which came with Redis 6.2.
func TestWakerOnAnOldServer(t *testing.T) {
	t.Parallel()
	o, looks := counting(options{server: redistest.Start(t, redistest.Without(t, "BLMOVE"))})
	f := wakeful(t, handlers{"A": succeed}, o)
	f.pollForAll(true)
	f.push(payload(1))
	eventually(t, "processed", func() bool { return f.processed() == 1 })
	looks(t, 30)
	f.drain()
}

// restless is a Waiter that always finds something, like one connected to another server than
// the poller.
type restless struct{ n *atomic.Int64 }

func (r *restless) Await(context.Context, string) (bool, error) {
	r.n.Add(1)
	return true, nil
}

func (r *restless) Queues(context.Context) ([]string, error) { return nil, nil }
func (r *restless) Close() error                             { return nil }
