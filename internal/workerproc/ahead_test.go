package workerproc_test

import (
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/resqued/resqued"
	"github.com/resqued/resqued/internal/sys/proc"
	"github.com/resqued/resqued/internal/workerproc"
)

func TestWaiting(t *testing.T) {
	t.Parallel()

	t.Run("it takes no job before its turn comes, and is not paused", func(t *testing.T) {
		t.Parallel()
		var hooked atomic.Int32
		count := func() { hooked.Add(1) }
		f := start(t, handlers{"A": succeed}, options{
			state: "waiting", hooks: resqued.Hooks{BeforePause: count, AfterPause: count},
			cfg: workerproc.Config{Threads: 4},
		})
		for i := range 20 {
			f.push(payload(i))
		}
		require.Equal(t, 20, f.waiting())
		require.Equal(t, "running", f.redis.HGet(t.Context(), f.key("resqued:proc:h:boot:1-1:0.1"), "state").Val())
		f.down <- proc.Message{Type: proc.SetState, State: "running"}
		eventually(t, "all jobs", func() bool { return f.processed() == 20 })
		require.Zero(t, hooked.Load())
		f.drain()
	})

	t.Run("it leaves when it is not needed", func(t *testing.T) {
		t.Parallel()
		f := start(t, handlers{"A": succeed}, options{state: "waiting"})
		f.push(payload(1))
		f.down <- proc.Message{Type: proc.Retire}
		f.expect(proc.Bye)
		f.ends()
		require.Equal(t, 1, f.waiting())
	})

	t.Run("jobs of other queues than those that it has seen are found", func(t *testing.T) {
		t.Parallel()
		f := start(t, handlers{"A": succeed}, options{state: "waiting", queues: []string{"*"}})
		_, err := f.store.Push(t.Context(), "other", []byte(payload(1)))
		require.NoError(t, err)
		f.down <- proc.Message{Type: proc.SetState, State: "running"}
		eventually(t, "the job", func() bool { return f.processed() == 1 })
		f.drain()
	})
}
