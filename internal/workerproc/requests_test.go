package workerproc_test

import (
	"context"
	"errors"
	"math"
	"path"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/resqued/resqued"
	"github.com/resqued/resqued/internal/store"
	"github.com/resqued/resqued/internal/sys/proc"
	"github.com/resqued/resqued/internal/workerproc"
)

const theProc = "h:boot:1-1:0.1"

// askFor requests the end of a job as the command line does.
func (f *fixture) askFor(job *resqued.Job, r store.KillRequest) store.RunName {
	f.t.Helper()
	run := store.RunName{Proc: theProc, Token: path.Base(job.ID)}
	outcome, err := f.store.RequestKill(f.t.Context(), run, r)
	require.NoError(f.t, err)
	require.Equal(f.t, store.KillAsked, outcome)
	return run
}

func (f *fixture) killState(run store.RunName) store.KillState {
	f.t.Helper()
	states, err := f.store.KillStates(f.t.Context(), []store.RunName{run})
	require.NoError(f.t, err)
	return states[0]
}

// seldom is an interval after which beats come only for urgent reports.
var seldom = workerproc.Config{BeatEvery: time.Hour, LockDuration: 24 * time.Hour}

// ended waits until the job has ended, and returns the answer.
func (f *fixture) ended(run store.RunName) *store.KillAnswer {
	f.t.Helper()
	eventually(f.t, "the job ends", func() bool { return !f.killState(run).Running })
	return f.killState(run).Answer
}

// stuck returns a handler that ignores its context until free is closed.
func stuck(running chan *resqued.Job) (h func(context.Context, *resqued.Job) error, free chan struct{}) {
	free = make(chan struct{})
	return func(_ context.Context, job *resqued.Job) error {
		running <- job
		<-free
		return nil
	}, free
}

func TestRequests(t *testing.T) {
	t.Parallel()

	t.Run("the job that is named is killed, and no other", func(t *testing.T) {
		t.Parallel()
		h, running, open := gate()
		f := start(t, handlers{"A": h}, options{cfg: workerproc.Config{Threads: 2}})
		f.push(payload(1), payload(2))
		first := <-running
		<-running
		require.Equal(t, &store.KillAnswer{How: store.HowCancelled}, f.ended(f.askFor(first, store.KillRequest{Grace: patience})))
		require.Len(t, f.failed(), 1)
		require.Contains(t, f.failed()[0], `"exception":"Resque::DirtyExit","error":"Job was killed"`)
		require.Contains(t, f.failed()[0], string(first.Payload))
		close(open)
		eventually(t, "the other finishes", func() bool { return f.processed() == 2 })
		require.Len(t, f.failed(), 1)
		f.drain()
	})

	t.Run("a request for a job that has ended is removed", func(t *testing.T) {
		t.Parallel()
		var last atomic.Pointer[resqued.Job]
		h, running, open := gate()
		f := start(t, handlers{"A": h, "Quick": func(_ context.Context, job *resqued.Job) error {
			last.Store(job)
			return nil
		}}, options{})
		f.push(`{"class":"Quick","args":[]}`)
		eventually(t, "it is done", func() bool { return f.processed() == 1 })
		f.push(payload(1))
		next := <-running
		// As if it had been requested just before the job ended.
		token := path.Base(last.Load().ID)
		require.NotEqual(t, token, path.Base(next.ID))
		require.NoError(t, f.redis.HSet(t.Context(), f.key("resqued:kills:"+theProc), token, "0 0").Err())
		eventually(t, "the request is gone", func() bool {
			return f.redis.Exists(t.Context(), f.key("resqued:kills:"+theProc)).Val() == 0
		})
		require.Nil(t, f.ended(store.RunName{Proc: theProc, Token: token}))
		close(open)
		eventually(t, "the next job finishes", func() bool { return f.processed() == 2 })
		require.Empty(t, f.failed())
		f.drain()
	})

	t.Run("a killed job goes back to the tail of its queue if that was asked for", func(t *testing.T) {
		t.Parallel()
		h, running, open := gate()
		f := start(t, handlers{"A": h}, options{})
		f.push(payload(1), payload(2))
		run := f.askFor(<-running, store.KillRequest{Grace: patience, Requeue: true})
		require.Equal(t, payload(2), string((<-running).Payload))
		require.Equal(t, &store.KillAnswer{How: store.HowCancelled, Requeued: true}, f.ended(run))
		close(open)
		require.Equal(t, payload(1), string((<-running).Payload))
		eventually(t, "both finish", func() bool { return f.processed() == 2 })
		require.Empty(t, f.failed())
		f.drain()
	})

	t.Run("a job that does not care and succeeds has finished", func(t *testing.T) {
		t.Parallel()
		running := make(chan *resqued.Job, 1)
		h, free := stuck(running)
		f := start(t, handlers{"A": h}, options{cfg: seldom})
		f.push(payload(1))
		run := f.askFor(<-running, store.KillRequest{Grace: patience, Requeue: true})
		eventually(t, "it is told to stop", func() bool { return f.killState(run).Told })
		require.False(t, f.killState(run).Stubborn)
		close(free)
		require.Equal(t, &store.KillAnswer{How: store.HowFinished}, f.ended(run))
		require.Empty(t, f.failed())
		f.drain()
	})

	t.Run("a stubborn job costs its process when its neighbours have finished", func(t *testing.T) {
		t.Parallel()
		for _, requeue := range []bool{false, true} {
			h, running, open := gate()
			ignore, free := stuck(running)
			f := start(t, handlers{"A": h, "Stuck": ignore}, options{cfg: workerproc.Config{Threads: 2, TermTimeout: patience}})
			f.push(`{"class":"Stuck","args":[]}`)
			job := <-running
			f.push(payload(1))
			<-running
			run := f.askFor(job, store.KillRequest{Grace: time.Millisecond, Requeue: requeue})
			require.Equal(t, "tainted", f.expect(proc.Retires).Reason)
			eventually(t, "others see it", func() bool { return f.killState(run).Stubborn })
			close(open)
			tainted := f.expect(proc.Tainted)
			<-f.exited
			require.Equal(t, 1, f.recorded, "the neighbour")
			if requeue {
				require.Empty(t, tainted.Tokens, "it may run again")
			} else {
				require.Equal(t, []string{run.Token}, tainted.Tokens)
			}
			// The master learns from Redis what was requested, whatever it is told.
			held, _, err := f.store.Fence(t.Context(), theProc, true)
			require.NoError(t, err)
			require.Len(t, held, 1)
			require.Equal(t, &store.KillRequest{Grace: time.Millisecond, Requeue: requeue}, held[0].Kill)
			close(free)
			f.die()
		}
	})

	t.Run("a second request may be shorter", func(t *testing.T) {
		t.Parallel()
		running := make(chan *resqued.Job, 1)
		h, free := stuck(running)
		f := start(t, handlers{"A": h}, options{})
		defer close(free)
		f.push(payload(1))
		job := <-running
		run := f.askFor(job, store.KillRequest{Grace: time.Hour})
		eventually(t, "it is told to stop", func() bool { return f.killState(run).Told })
		f.askFor(job, store.KillRequest{Grace: time.Millisecond})
		require.Equal(t, "tainted", f.expect(proc.Retires).Reason)
		require.Equal(t, []string{run.Token}, f.expect(proc.Tainted).Tokens)
		<-f.exited
	})

	t.Run("while redis does not answer the jobs go on, and the request is found later", func(t *testing.T) {
		t.Parallel()
		h, running, _ := gate()
		m := &mute{}
		f := start(t, handlers{"A": h}, options{wrap: func(s workerproc.Store) workerproc.Store {
			m.Store = s
			return m
		}})
		m.away.Store(true)
		f.push(payload(1))
		run := f.askFor(<-running, store.KillRequest{Grace: patience})
		eventually(t, "it has asked twice", func() bool { return m.asked.Load() >= 2 })
		require.True(t, f.killState(run).Running)
		m.away.Store(false)
		require.Equal(t, &store.KillAnswer{How: store.HowCancelled}, f.ended(run))
		f.drain()
	})

	t.Run("a process without a job does not look for requests", func(t *testing.T) {
		t.Parallel()
		h, running, open := gate()
		m := &mute{}
		f := start(t, handlers{"A": succeed, "B": h}, options{wrap: func(s workerproc.Store) workerproc.Store {
			m.Store = s
			return m
		}})
		f.push(payload(1))
		eventually(t, "done", func() bool { return f.processed() == 1 })
		// If the machine stalls, even this job may take so long that the process asks.
		var asked int64
		eventually(t, "no request is looked for", func() bool {
			asked = m.asked.Load()
			<-time.After(6 * workerproc.TickEvery)
			return m.asked.Load() == asked
		})
		f.push(`{"class":"B","args":[]}`)
		<-running
		eventually(t, "it asks for a long one", func() bool { return m.asked.Load() > asked })
		close(open)
		f.drain()
	})
}

// A job that exceeds its time limit is ended in the same way as a killed one.
func TestAJobThatIgnoresItsTimeout(t *testing.T) {
	t.Parallel()
	h, running, open := gate()
	ignore, free := stuck(running)
	f := start(t, handlers{"A": h, "Stuck": ignore}, options{
		timeout: time.Millisecond, cfg: workerproc.Config{Threads: 2, TermTimeout: 500 * time.Millisecond},
	})
	defer close(free)
	f.push(payload(1))
	<-running
	f.push(`{"class":"Stuck","args":[]}`)
	token := path.Base((<-running).ID)
	require.Equal(t, "tainted", f.expect(proc.Retires).Reason)
	eventually(t, "others see it", func() bool { return f.killState(store.RunName{Proc: theProc, Token: token}).Stubborn })
	close(open)
	tainted := f.expect(proc.Tainted)
	require.Equal(t, []string{token}, tainted.Tokens)
	require.Equal(t, "resqued: job timed out", tainted.Reason)
	<-f.exited
}

// The maximum limit means no limit: adding the grace must not overflow.
func TestTheLongestTimeout(t *testing.T) {
	t.Parallel()
	h, running, open := gate()
	f := start(t, handlers{"Stuck": h}, options{timeout: math.MaxInt64, cfg: workerproc.Config{Threads: 1}})
	f.push(`{"class":"Stuck","args":[]}`)
	<-running
	select { // no event says that nothing happens
	case <-f.exited:
		t.Fatal("the process has left")
	case m := <-f.up:
		require.NotEqual(t, proc.Tainted, m.Type, m.Reason)
	case <-time.After(6 * workerproc.TickEvery):
	}
	close(open)
	f.drain()
	require.Empty(t, f.failed())
}

// timed gives the class Stuck a time limit.
type timed struct {
	workerproc.Handlers
	limit time.Duration
}

func (h timed) Lookup(class string, _ ...string) (*resqued.Class, bool) {
	c, ok := h.Handlers.Lookup(class)
	if class == "Stuck" {
		c.Timeout = h.limit
	}
	return c, ok
}

// mute is a Redis that answers no polls for requests while away is set.
type mute struct {
	workerproc.Store
	away  atomic.Bool
	asked atomic.Int64
}

func (m *mute) Kills(ctx context.Context, proc string) (map[string]store.KillRequest, error) {
	m.asked.Add(1)
	if m.away.Load() {
		return nil, errors.New("cut off")
	}
	return m.Store.Kills(ctx, proc)
}
