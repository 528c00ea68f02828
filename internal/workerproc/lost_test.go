package workerproc_test

import (
	"context"
	"path"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/resqued/resqued"
	"github.com/resqued/resqued/internal/locket/classlock"
	"github.com/resqued/resqued/internal/sys/proc"
	"github.com/resqued/resqued/internal/sys/procfs"
	"github.com/resqued/resqued/internal/testkit/proctest"
	"github.com/resqued/resqued/internal/thread"
	"github.com/resqued/resqued/internal/workerproc"
)

// A job whose lock is lost, or is about to be, has no more time than the lock, whatever was
// decided before.
func TestJobsDoNotOutliveTheirLocks(t *testing.T) {
	t.Parallel()

	t.Run("a job that was told to stop, with time to do so, loses its lock", func(t *testing.T) {
		t.Parallel()
		running := make(chan *resqued.Job, 2)
		ignore, free := stuck(running)
		f := start(t, handlers{"Stuck": ignore}, options{short: true})
		defer close(free)
		f.push(`{"class":"Stuck","args":[]}`)
		job := <-running
		f.down <- proc.Message{Type: proc.KillJobs, Grace: time.Hour}
		require.NoError(t, f.redis.Set(t.Context(), job.LockKey, "another", time.Hour).Err())
		require.Equal(t, "tainted", f.expect(proc.Retires).Reason)
		require.Equal(t, []string{path.Base(job.ID)}, f.expect(proc.Tainted).Tokens)
		<-f.exited
	})

	t.Run("no neighbour is waited for when the time of a class lock has been over for long", func(t *testing.T) {
		t.Parallel()
		h, running, _ := gate()
		ignore, free := stuck(running)
		f := start(t, handlers{"A": h, "Stuck": ignore}, options{
			locker: limits{"Stuck": -2 * patience}, cfg: workerproc.Config{Threads: 2, TermTimeout: 2 * patience},
		})
		defer close(free)
		f.push(payload(1))
		<-running
		f.push(`{"class":"Stuck","args":[]}`)
		token := path.Base((<-running).ID)
		require.Equal(t, "tainted", f.expect(proc.Retires).Reason)
		require.Equal(t, []string{token}, f.expect(proc.Tainted).Tokens)
		<-f.exited
	})
}

// The master is notified when the first of all locks ends, wherever it is stored: it kills a
// process that was stopped before that.
func TestLocksElsewhere(t *testing.T) {
	t.Parallel()
	told := func(f *fixture, want func(end time.Duration) bool) {
		t.Helper()
		proctest.Await(t, patience, func() bool {
			beat := f.beat.Load()
			return beat != nil && want(beat.LockEnd)
		}, "a report")
	}
	t.Run("the earlier end is told", func(t *testing.T) {
		t.Parallel()
		var end atomic.Int64
		f := start(t, handlers{}, options{short: true, ends: func() time.Duration { return time.Duration(end.Load()) }})
		told(f, func(end time.Duration) bool { return end > procfs.BootTime() })
		end.Store(int64(procfs.BootTime() - time.Second))
		told(f, func(told time.Duration) bool { return told == time.Duration(end.Load()) })
		end.Store(int64(procfs.BootTime() + time.Hour))
		told(f, func(end time.Duration) bool { return end > procfs.BootTime() && end < procfs.BootTime()+time.Minute })
	})

	t.Run("a job that goes back waits for what may be left of its own lock", func(t *testing.T) {
		t.Parallel()
		events := make(chan workerproc.Event, 1)
		f := start(t, handlers{"A": func(ctx context.Context, _ *resqued.Job) error {
			<-ctx.Done()
			return ctx.Err()
		}}, options{locker: thief{}, events: events, cfg: workerproc.Config{RequeueLost: true, LockDuration: 7 * time.Second}})
		f.push(`{"class":"A","args":[]}`)
		out := (<-events).Outcome
		require.Equal(t, thread.Requeued, out.Result)
		require.Equal(t, 7*time.Second, out.After)
	})

	t.Run("also if it could not be released", func(t *testing.T) {
		t.Parallel()
		for _, tc := range []struct {
			limit time.Duration
			err   error
			least time.Duration
		}{{0, resqued.Requeue(0), 7 * time.Second}, {time.Hour, resqued.Requeue(time.Second), time.Hour}, {0, resqued.Requeue(time.Minute), time.Minute}} {
			events := make(chan workerproc.Event, 1)
			f := start(t, handlers{"A": func(context.Context, *resqued.Job) error { return tc.err }},
				options{locker: leaver(tc.limit), events: events, cfg: workerproc.Config{LockDuration: 7 * time.Second}})
			f.push(`{"class":"A","args":[]}`)
			out := (<-events).Outcome
			require.Equal(t, thread.Requeued, out.Result)
			require.GreaterOrEqual(t, out.After, tc.least)
			require.Less(t, out.After, tc.least+time.Minute)
		}
	})
}

// leaver cannot release the locks that it grants, with a time limit.
type leaver time.Duration

func (l leaver) Lock(ctx context.Context, _ *resqued.Job, claim *classlock.Claim) (context.Context, func(), error) {
	claim.Update(func(s *classlock.ClaimState) {
		if s.Key = "lock:A"; l > 0 {
			s.Limit = time.Now().Add(time.Duration(l))
		}
	})
	return ctx, func() { claim.Update(func(s *classlock.ClaimState) { s.Left = true }) }, nil
}

// thief takes away every lock that it grants.
type thief struct{}

func (thief) Lock(ctx context.Context, _ *resqued.Job, claim *classlock.Claim) (context.Context, func(), error) {
	claim.Update(func(s *classlock.ClaimState) { s.Key, s.Lost, s.Grace = "lock:A", resqued.ErrLockLost, patience })
	return ctx, func() {}, nil
}

// limits returns when the class locks of classes end, counted from when they are taken.
type limits map[string]time.Duration

func (l limits) Lock(ctx context.Context, job *resqued.Job, claim *classlock.Claim) (context.Context, func(), error) {
	if left, ok := l[job.Class]; ok {
		claim.Update(func(s *classlock.ClaimState) { s.Limit = time.Now().Add(left) })
	}
	return ctx, func() {}, nil
}
