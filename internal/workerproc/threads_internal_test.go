package workerproc

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/resqued/resqued"
	"github.com/resqued/resqued/internal/locket/classlock"
	"github.com/resqued/resqued/internal/store"
	"github.com/resqued/resqued/internal/thread"
)

// scripted runs each job as its class demands.
type scripted struct{}

func (scripted) Run(ctx context.Context, job *resqued.Job, _ *classlock.Claim, done func(thread.Outcome)) {
	switch job.Class {
	case "A":
		done(thread.Outcome{Result: thread.Done})
	case "Once":
		<-ctx.Done()
		done(thread.Outcome{Result: thread.Failed, Err: context.Cause(ctx), Ran: time.Second})
	default:
		done(thread.Outcome{Result: thread.Failed, Err: errors.New("unknown"), Ran: time.Second})
	}
}

func TestThreads(t *testing.T) {
	t.Parallel()
	e := setup(t).exchanges()
	th := e.threads
	th.runner = scripted{}
	th.start()
	defer th.close()
	reserve := func(token, payload string) store.Reserved {
		thread := th.take(1, nil)[0]
		th.free([]int{thread})
		return store.Reserved{Token: token, Worker: th.slots[thread].brief, Queue: "q", Payload: []byte(payload)}
	}
	begin := func(jobs ...store.Reserved) { th.beginAll(jobs, nil, 0, time.Now()) }

	require.Equal(t, 2, th.vacant())
	begin(reserve("1", `{"class":"A","args":[]}`))
	require.Equal(t, 1, th.vacant())
	require.Len(t, th.jobs, 1)
	th.finish(<-th.outcomes)
	require.Equal(t, 2, th.vacant())
	require.Empty(t, th.jobs)
	require.Equal(t, store.Done, e.ended[0].Kind)
	require.True(t, th.pace.brief)
	require.Equal(t, 1, th.done)

	// A payload that is not a job ends without a thread.
	begin(reserve("2", `garbage`))
	require.Equal(t, 2, th.vacant())
	require.Equal(t, store.Failed, e.ended[1].Kind)

	// A job that was told to stop counts as killed, and does not run again.
	begin(reserve("3", `{"class":"Once","args":[]}`))
	j := th.jobs["3"]
	j.stop.cause = resqued.ErrKilled
	j.end(resqued.ErrKilled)
	th.finish(<-th.outcomes)
	require.Equal(t, store.Failed, e.ended[2].Kind)
	require.Equal(t, []string{"3"}, e.killedTokens())
	require.False(t, th.pace.brief)

	// A job that asks for it runs again instead.
	begin(reserve("4", `{"class":"Once","args":[]}`))
	j = th.jobs["4"]
	j.stop.cause, j.stop.request = resqued.ErrKilled, &store.KillRequest{Requeue: true}
	j.end(resqued.ErrKilled)
	th.finish(<-th.outcomes)
	require.Equal(t, store.Requeued, e.ended[3].Kind)
	require.True(t, e.ended[3].Killed)
	require.Equal(t, []string{"3"}, e.killedTokens())

	require.Equal(t, 4, th.begun)
	require.Equal(t, 3, th.done, "what goes back is not done")
	var processed, failed int
	for _, stat := range th.flush() {
		processed, failed = processed+stat.Processed, failed+stat.Failed
	}
	require.Equal(t, 3, processed, "what goes back does not count")
	require.Equal(t, 2, failed)
	require.Empty(t, th.flush())
	require.Equal(t, 3, th.before[0].Processed+th.before[1].Processed)
}

func TestThreadsAskLastFirst(t *testing.T) {
	t.Parallel()
	s := setup(t)
	s.cfg.Threads = 3
	th := s.exchanges().threads
	require.Equal(t, []int{1, 2}, th.take(2, nil))
	require.Equal(t, 1, th.vacant())
	th.free([]int{2, 1})
	require.Equal(t, []int{7, 2, 1}, th.take(2, []int{7}))
}
