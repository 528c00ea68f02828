package workerproc_test

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/resqued/resqued"
	"github.com/resqued/resqued/internal/jobctx"
	"github.com/resqued/resqued/internal/store"
	"github.com/resqued/resqued/internal/sys/proc"
	"github.com/resqued/resqued/internal/workerproc"
)

// Without room for more jobs, a process leaves them in their queue, and asks once it has room.
func TestCapacity(t *testing.T) {
	t.Parallel()
	var room atomic.Int64
	roomier, free := make(chan struct{}, 1), make(chan struct{})
	wait := func(context.Context, *resqued.Job) error { <-free; return nil }
	f := start(t, handlers{"Resident": wait}, options{
		cfg: workerproc.Config{Threads: 8}, capacity: func() int { return int(room.Load()) }, roomier: roomier,
	})
	for i := range 10 {
		f.push(fmt.Sprintf(`{"class":"Resident","args":[%d]}`, i))
	}
	grow := func(n int64) {
		room.Store(n)
		roomier <- struct{}{}
		eventually(t, "as many jobs as there is room for", func() bool { return f.started.Load() == n && f.waiting() == int(10-n) })
		require.EqualValues(t, 10-n, f.waiting())
	}
	require.Equal(t, 10, f.waiting())
	grow(3)
	grow(8)
	close(free)
	eventually(t, "all processed", func() bool { return f.processed() == 10 })
	f.drain()
	f.expect(proc.Bye)
}

// Jobs that runners perform do not use up the process.
func TestRunnersUseUpNoProcess(t *testing.T) {
	t.Parallel()
	f := start(t, handlers{"Resident": succeed, "A": succeed}, options{cfg: workerproc.Config{Threads: 4, JobsPerFork: 5}})
	for i := range 40 {
		f.push(fmt.Sprintf(`{"class":"Resident","args":[%d]}`, i))
	}
	eventually(t, "all processed", func() bool { return f.processed() == 40 })
	for i := range 5 {
		f.push(payload(i))
	}
	require.Equal(t, "quota", f.expect(proc.Retires).Reason)
	require.Equal(t, 45, f.expect(proc.Bye).Done)
	f.ends()
}

// A job whose runner has died goes to the head of its queue as a suspect, with its death, until it
// has died too often.
func TestDeathsOfRunners(t *testing.T) {
	t.Parallel()
	die := func(context.Context, *resqued.Job) error {
		return &jobctx.DeathError{Err: errors.New("runner app (pid 7) was ended by SIGKILL")}
	}
	t.Run("again", func(t *testing.T) {
		t.Parallel()
		f := start(t, handlers{"Resident": die}, options{cfg: workerproc.Config{Threads: 2, DeathPolicy: store.Policy{MaxDeaths: 2}}})
		f.push(`{"class":"Resident","args":[1]}`)
		eventually(t, "a suspect apart", func() bool {
			return f.redis.LLen(context.Background(), f.ns+":resqued:suspects:q").Val() == 1
		})
		require.Empty(t, f.failed())
		require.Zero(t, f.processed())
		require.EqualValues(t, 1, f.started.Load())
		require.Empty(t, f.redis.Keys(context.Background(), f.ns+":locket:*").Val(), "its lock is free")
		require.Equal(t, 1, f.expect(proc.Apart).Suspects)
		f.drain()
		f.expect(proc.Bye)
	})
	for name, o := range map[string]struct {
		class  string
		policy store.Policy
		says   string
	}{
		"too often":       {"Resident", store.Policy{MaxDeaths: 1}, "death 1 of 1"},
		"on_worker_death": {"Resident", store.Policy{MaxDeaths: 3, Fail: true}, "on_worker_death is fail"},
		"at most once":    {"Once", store.Policy{MaxDeaths: 3}, "at_most_once"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := start(t, handlers{o.class: die}, options{cfg: workerproc.Config{Threads: 2, DeathPolicy: o.policy}})
			f.push(`{"class":"` + o.class + `","args":[1]}`)
			eventually(t, "the failure", func() bool { return len(f.failed()) == 1 })
			failed := f.failed()[0]
			for _, part := range []string{"Resque::DirtyExit", "was ended by SIGKILL", o.says} {
				require.Contains(t, failed, part)
			}
			require.EqualValues(t, 1, f.started.Load())
			f.drain()
			f.expect(proc.Bye)
		})
	}
}
