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

// ends records the ends of jobs.
type ends struct {
	ends   []store.Completion
	killed []string
}

func (e *ends) end(c store.Completion, killed bool) {
	e.ends = append(e.ends, c)
	if killed {
		e.killed = append(e.killed, c.Job.Token)
	}
}

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
	s, e := setup(t), &ends{}
	th := newThreads(t.Context(), s.cfg, s.id, s.deps, e, s.alarm, newCounted(s.link, s.deps.Log))
	th.runner = scripted{}
	th.start()
	defer th.close()
	reserve := func(token, payload string) store.Reserved {
		thread := th.take(1, nil)[0]
		th.free([]int{thread})
		return store.Reserved{Token: token, Worker: th.shortID(thread), Queue: "q", Payload: []byte(payload)}
	}
	begin := func(jobs ...store.Reserved) { th.beginAll(jobs, 0, time.Now()) }

	require.Equal(t, 2, th.vacant())
	begin(reserve("1", `{"class":"A","args":[]}`))
	require.Equal(t, 1, th.vacant())
	require.Len(t, th.jobs, 1)
	th.finish(<-th.outcomes)
	require.Equal(t, 2, th.vacant())
	require.Empty(t, th.jobs)
	require.Equal(t, store.Done, e.ends[0].Kind)
	require.True(t, th.endedBriefly())
	require.Equal(t, 1, th.jobsDone())

	// A payload that is not a job ends without a thread.
	begin(reserve("2", `garbage`))
	require.Equal(t, 2, th.vacant())
	require.Equal(t, store.Failed, e.ends[1].Kind)

	// A job that was told to stop counts as killed, and does not run again.
	begin(reserve("3", `{"class":"Once","args":[]}`))
	j := th.jobs["3"]
	j.stop.cause = resqued.ErrKilled
	j.ctx.end(resqued.ErrKilled)
	th.finish(<-th.outcomes)
	require.Equal(t, store.Failed, e.ends[2].Kind)
	require.Equal(t, []string{"3"}, e.killed)
	require.False(t, th.endedBriefly())

	// A job that asks for it runs again instead.
	begin(reserve("4", `{"class":"Once","args":[]}`))
	j = th.jobs["4"]
	j.stop.cause, j.stop.request = resqued.ErrKilled, &store.KillRequest{Requeue: true}
	j.ctx.end(resqued.ErrKilled)
	th.finish(<-th.outcomes)
	require.Equal(t, store.Requeued, e.ends[3].Kind)
	require.True(t, e.ends[3].Killed)
	require.Equal(t, []string{"3"}, e.killed)

	require.Equal(t, 4, th.jobsBegun())
	require.Equal(t, 3, th.jobsDone(), "what goes back is not done")
	var processed, failed int
	for _, stat := range th.flush() {
		processed, failed = processed+stat.Processed, failed+stat.Failed
	}
	require.Equal(t, 3, processed, "what goes back does not count")
	require.Equal(t, 2, failed)
	require.Empty(t, th.flush())
	require.Equal(t, 3, th.flushed(0).Processed+th.flushed(1).Processed)
}

func TestThreadsAskLastFirst(t *testing.T) {
	t.Parallel()
	s := setup(t)
	s.cfg.Threads = 3
	th := newThreads(t.Context(), s.cfg, s.id, s.deps, &ends{}, s.alarm, newCounted(s.link, s.deps.Log))
	require.Equal(t, []int{1, 2}, th.take(2, nil))
	require.Equal(t, 1, th.vacant())
	th.free([]int{2, 1})
	require.Equal(t, []int{7, 2, 1}, th.take(2, []int{7}))
}
