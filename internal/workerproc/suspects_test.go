package workerproc_test

import (
	"context"
	"errors"
	"fmt"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/resqued/resqued"
	"github.com/resqued/resqued/internal/store"
	"github.com/resqued/resqued/internal/sys/proc"
	"github.com/resqued/resqued/internal/workerproc"
)

// suspect pushes jobs whose process has died.
func (f *fixture) suspect(numbers ...int) {
	f.t.Helper()
	ctx, dead := f.t.Context(), "dead"
	require.NoError(f.t, f.store.Register(ctx, store.Registration{Proc: dead, Workers: []string{"d/0.0:1:q"}}))
	req := store.ExchangeRequest{Proc: dead, Master: "m", Queues: []store.Queue{{Name: "q"}}, Suspects: store.TakeSuspects}
	for i, n := range numbers {
		require.NoError(f.t, f.redis.LPush(ctx, f.key("queue:q"), payload(n)).Err())
		req.Wants = []store.Want{{Token: fmt.Sprint(i), Worker: "d/0.0:1:q"}}
		reply, err := f.store.Exchange(ctx, req)
		require.NoError(f.t, err)
		require.Len(f.t, reply.Jobs, 1)
	}
	held, _, err := f.store.Fence(ctx, dead, true)
	require.NoError(f.t, err)
	var verdicts []store.Verdict
	for _, j := range held {
		verdicts = append(verdicts, store.Verdict{Token: j.Token, Action: store.Suspect})
	}
	require.NoError(f.t, f.store.Recover(ctx, dead, verdicts))
}

// setApart sets all jobs of the queue apart, which requires that they are suspects.
func (f *fixture) setApart(n int) {
	f.t.Helper()
	ctx := f.t.Context()
	require.NoError(f.t, f.store.Register(ctx, store.Registration{Proc: "other"}))
	reply, err := f.store.Exchange(ctx, store.ExchangeRequest{
		Proc: "other", Master: "m", Queues: []store.Queue{{Name: "q"}}, Wants: []store.Want{{Token: "1", Worker: "w"}},
	})
	require.NoError(f.t, err)
	require.Empty(f.t, reply.Jobs)
	require.Equal(f.t, n, reply.Suspects)
	_, err = f.store.Unregister(ctx, "other")
	require.NoError(f.t, err)
}

func (f *fixture) apart() int {
	return int(f.redis.LLen(f.t.Context(), f.key("resqued:suspects:q")).Val())
}

// awaitTold waits until the master was notified that n suspects wait.
func (f *fixture) awaitTold(n int) {
	f.t.Helper()
	for {
		if msg := f.expect(proc.Apart); msg.Suspects == n {
			return
		}
	}
}

// retires skips messages about suspects and returns the message of a retirement.
func (f *fixture) retires() proc.Message {
	f.t.Helper()
	for {
		select {
		case msg := <-f.up:
			if msg.Type != proc.Apart {
				require.Equal(f.t, proc.Retires, msg.Type)
				return msg
			}
		case <-time.After(patience):
			require.Fail(f.t, "it does not retire")
		}
	}
}

func TestSuspects(t *testing.T) {
	t.Parallel()

	t.Run("a process of several threads sets them apart, works on, and tells its master", func(t *testing.T) {
		t.Parallel()
		f := start(t, handlers{"A": succeed}, options{state: "paused", cfg: workerproc.Config{Threads: 2}})
		f.suspect(1, 2)
		f.push(payload(3))
		f.down <- proc.Message{Type: proc.SetState, State: "running"}
		f.awaitTold(2)
		eventually(t, "the other job", func() bool { return f.processed() == 1 })
		require.Equal(t, 2, f.apart())
		f.awaitTold(2) // again and again
		require.NoError(t, f.redis.Del(t.Context(), f.key("resqued:suspects:q")).Err())
		f.awaitTold(0)
		f.drain()
	})

	t.Run("it tells of those that others have set apart, though all its threads are busy", func(t *testing.T) {
		t.Parallel()
		h, running, open := gate()
		f := start(t, handlers{"A": h}, options{cfg: workerproc.Config{Threads: 2}})
		f.push(payload(3), payload(4))
		<-running
		<-running
		f.suspect(1)
		f.setApart(1)
		f.awaitTold(1)
		close(open)
		f.drain()
	})

	t.Run("those of queues that it does not work are not a concern of it", func(t *testing.T) {
		t.Parallel()
		f := start(t, handlers{"A": succeed}, options{queues: []string{"other"}, cfg: workerproc.Config{Threads: 2}})
		f.suspect(1)
		f.setApart(1)
		_, err := f.store.Push(t.Context(), "other", []byte(payload(2)))
		require.NoError(t, err)
		eventually(t, "the job of its queue", func() bool { return f.processed() == 1 })
		f.drain()
		require.Equal(t, proc.Bye, (<-f.up).Type)
		require.Equal(t, 1, f.apart())
	})

	t.Run("a new process of one thread runs one like any job, later ones are set apart", func(t *testing.T) {
		t.Parallel()
		h, running, open := gate()
		f := start(t, handlers{"A": h}, options{state: "paused"})
		f.suspect(1, 2)
		f.down <- proc.Message{Type: proc.SetState, State: "running"}
		require.Equal(t, 1, (<-running).Deaths)
		close(open)
		f.awaitTold(1)
		require.Equal(t, 1, f.apart())
		require.Equal(t, 1, f.processed())
		f.drain()
	})

	t.Run("a process for suspects runs one of them alone, and leaves", func(t *testing.T) {
		t.Parallel()
		h, running, open := gate()
		f := start(t, handlers{"A": h}, options{alone: true, state: "paused", cfg: workerproc.Config{Threads: 8, JobsPerFork: 50, UntilEmpty: true}})
		f.suspect(1, 2)
		f.setApart(2)
		f.push(payload(3))
		f.down <- proc.Message{Type: proc.SetState, State: "running"}
		job := <-running
		require.Equal(t, `[1]`, job.Args.String())
		told := f.expect(proc.Apart)
		require.True(t, told.On)
		require.Equal(t, 1, told.Suspects)
		require.Equal(t, "1", f.redis.HGet(t.Context(), f.key("resqued:proc:h:boot:1-1:0.1"), store.InfoAlone).Val())
		require.Equal(t, "quota", f.retires().Reason)
		close(open)
		require.Equal(t, 1, f.expect(proc.Bye).Done)
		f.ends()
		require.Equal(t, 1, f.apart())
		require.Equal(t, 1, f.waiting())
		require.EqualValues(t, 1, f.started.Load())
	})

	t.Run("it leaves when there is none, and when all are locked", func(t *testing.T) {
		t.Parallel()
		for _, locked := range []bool{false, true} {
			f := start(t, handlers{"A": succeed}, options{alone: true, state: "paused", queues: []string{"*"}})
			left := 0
			if locked {
				left = 1
				f.suspect(1)
				f.setApart(1)
				require.NoError(t, f.redis.Set(t.Context(), f.key("locket:job_locks:A[1]"), "", time.Minute).Err())
			}
			f.push(payload(3))
			f.down <- proc.Message{Type: proc.SetState, State: "running"}
			told := f.expect(proc.Apart)
			require.False(t, told.On)
			require.Equal(t, left, told.Suspects)
			require.Zero(t, f.expect(proc.Bye).Done)
			require.NoError(t, <-f.result)
			require.Zero(t, f.started.Load())
		}
	})

	t.Run("its job is killed like any other", func(t *testing.T) {
		t.Parallel()
		h, running, _ := gate()
		f := start(t, handlers{"A": h}, options{alone: true, state: "paused"})
		f.suspect(1)
		f.setApart(1)
		f.down <- proc.Message{Type: proc.SetState, State: "running"}
		<-running
		f.signals <- syscall.SIGUSR1
		f.retires()
		f.expect(proc.Bye)
		f.ends()
		require.Len(t, f.failed(), 1)
		require.Zero(t, f.redis.ZCard(t.Context(), f.key("resqued:deaths")).Val())
	})

	t.Run("until empty: the process waits for suspects", func(t *testing.T) {
		t.Parallel()
		f := start(t, handlers{"A": succeed}, options{state: "paused", cfg: workerproc.Config{UntilEmpty: true, Threads: 2}})
		f.suspect(1)
		f.down <- proc.Message{Type: proc.SetState, State: "running"}
		f.awaitTold(1)
		f.awaitTold(1) // it looks, and stays
		require.NoError(t, f.redis.Del(t.Context(), f.key("resqued:suspects:q")).Err())
		f.awaitTold(0)
		require.Equal(t, "empty", f.expect(proc.Bye).Reason)
		f.ends()
	})

	t.Run("who survives a run and goes back is not a suspect any more", func(t *testing.T) {
		t.Parallel()
		for _, err := range []error{resqued.Requeue(0), errors.New("fails")} {
			first := true
			f := start(t, handlers{"A": func(context.Context, *resqued.Job) error {
				if !first {
					return nil
				}
				first = false
				return err
			}}, options{state: "paused"})
			f.suspect(1)
			f.down <- proc.Message{Type: proc.SetState, State: "running"}
			eventually(t, "done", func() bool { return f.processed() == 1 })
			require.Zero(t, f.redis.ZCard(t.Context(), f.key("resqued:deaths")).Val())
			f.drain()
		}
	})
}
