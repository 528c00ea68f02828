package workerproc_test

import (
	"context"
	"path"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/resqued/resqued"
	"github.com/resqued/resqued/internal/proc"
	"github.com/resqued/resqued/internal/thread"
	"github.com/resqued/resqued/internal/workerproc"
)

// A job whose lock is gone, or goes soon, has no more time than that, whatever else
// was decided before.
func TestNobodyOutlivesItsLock(t *testing.T) {
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
		require.NoError(t, f.redis.Del(t.Context(), job.LockKey).Err())
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

// limits says when the class locks of classes end, counted from when they are taken.
type limits map[string]time.Duration

func (l limits) Lock(ctx context.Context, job *resqued.Job, claim *thread.Claim) (context.Context, func(), error) {
	if left, ok := l[job.Class]; ok {
		claim.Update(func(s *thread.ClaimState) { s.Limit = time.Now().Add(left) })
	}
	return ctx, func() {}, nil
}
