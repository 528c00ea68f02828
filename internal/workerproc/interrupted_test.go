package workerproc_test

import (
	"context"
	"path"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/resqued/resqued"
	"github.com/resqued/resqued/internal/store"
	"github.com/resqued/resqued/internal/sys/proc"
	"github.com/resqued/resqued/internal/workerproc"
)

// killing waits for the next message that names killed jobs.
func (f *fixture) killing() proc.Message {
	f.t.Helper()
	var m *proc.Message
	eventually(f.t, "the names of killed jobs", func() bool {
		m = f.kill.Swap(nil)
		return m != nil
	})
	return *m
}

// Jobs that a drain does not wait for go back to the head of their queue; they have neither
// failed nor died.
func TestOverdueDrain(t *testing.T) {
	t.Parallel()
	const why = "drain_timeout (50s) was over while it ran"
	over := func(requeue bool) proc.Message {
		return proc.Message{Type: proc.KillJobs, Grace: patience, Exit: true, Cause: why, Requeue: requeue}
	}

	t.Run("they go back", func(t *testing.T) {
		t.Parallel()
		h, running, _ := gate()
		var cause error
		f := start(t, handlers{"A": func(ctx context.Context, job *resqued.Job) error {
			err := h(ctx, job)
			cause = context.Cause(ctx)
			return err
		}}, options{})
		f.push(payload(1), payload(2))
		job := <-running
		require.NotEmpty(t, job.LockKey)
		f.down <- proc.Message{Type: proc.SetState, State: "draining"}
		f.down <- over(true)
		killing := f.killing()
		require.Zero(t, killing.Kills, "it is not a kill")
		require.Empty(t, killing.Tokens)
		f.ends()
		require.ErrorIs(t, cause, resqued.ErrKilled)
		require.Contains(t, cause.Error(), why)
		require.Empty(t, f.failed())
		require.Zero(t, f.processed())
		list, err := f.redis.LRange(t.Context(), f.key("queue:q"), 0, -1).Result()
		require.NoError(t, err)
		require.Equal(t, []string{payload(1), payload(2)}, list)
	})

	t.Run("they fail, with the reason, if that is asked for, and if they run at most once", func(t *testing.T) {
		t.Parallel()
		for class, requeue := range map[string]bool{"A": false, "Once": true} {
			h, running, _ := gate()
			f := start(t, handlers{class: h}, options{cfg: workerproc.Config{DeathPolicy: store.Policy{AtMostOnce: []string{"Once"}}}})
			f.push(`{"class":"` + class + `","args":[1]}`)
			token := path.Base((<-running).ID)
			f.down <- over(requeue)
			require.Equal(t, []string{token}, f.killing().Tokens)
			f.ends()
			require.Len(t, f.failed(), 1)
			want := `"exception":"Resque::DirtyExit","error":"Job was killed: ` + why
			if requeue {
				want += "; at_most_once: it may have run, so it does not run again by itself"
			}
			require.Contains(t, f.failed()[0], want+`"`)
			require.Zero(t, f.waiting())
		}
	})

	t.Run("a person has killed it before", func(t *testing.T) {
		t.Parallel()
		running, slow := make(chan *resqued.Job, 1), make(chan struct{})
		f := start(t, handlers{"A": func(ctx context.Context, job *resqued.Job) error {
			running <- job
			<-slow
			return context.Cause(ctx)
		}}, options{})
		f.push(payload(1))
		token := path.Base((<-running).ID)
		f.down <- proc.Message{Type: proc.KillJobs, Grace: patience}
		require.Equal(t, []string{token}, f.killing().Tokens)
		f.down <- over(true)
		require.Equal(t, []string{token}, f.killing().Tokens)
		close(slow)
		f.ends()
		require.Len(t, f.failed(), 1)
		require.Contains(t, f.failed()[0], `"error":"Job was killed"`)
	})

	t.Run("one that does not stop is named to the master as one that runs again", func(t *testing.T) {
		t.Parallel()
		running := make(chan *resqued.Job, 1)
		ignore, free := stuck(running)
		f := start(t, handlers{"Stuck": ignore}, options{})
		defer close(free)
		f.push(`{"class":"Stuck","args":[]}`)
		token := path.Base((<-running).ID)
		m := over(true)
		m.Grace = 30 * time.Millisecond
		f.down <- m
		tainted := f.expect(proc.Tainted)
		require.Empty(t, tainted.Tokens)
		require.Equal(t, []string{token}, tainted.Again)
		<-f.exited
	})
}
