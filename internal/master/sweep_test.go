package master

import (
	"errors"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"github.com/resqued/resqued/internal/sys/proc"
)

func TestSweep(t *testing.T) {
	t.Parallel()

	bubble(t, "what a killed worker process has started is ended while that itself takes its time to end", func(t *testing.T) {
		f := setup(t)
		up := f.up(2)
		name := up[0].spec.Proc
		f.redis.hold(name, reserved("a", 0))
		up[0].hard = true
		up[0].say(proc.Message{Type: "garbage"})
		require.True(t, up[0].wasKilled())
		require.True(t, up[0].wasSwept())
		require.False(t, up[1].wasSwept())
		f.wait(roundEvery * 2)
		require.False(t, f.sys.hasSwept(name))
		require.Empty(t, f.redis.seen(), "it is not reaped")
		up[0].crash()
		require.True(t, f.sys.hasSwept(name), "once more, now that nothing of it can move")
		require.Equal(t, []string{"a requeue"}, f.redis.seen())
	})

	bubble(t, "that is tried until it can be done", func(t *testing.T) {
		f := setup(t)
		up := f.up(2)
		f.sys.sweepError(errors.New("too many open files"))
		up[0].hard = true
		up[0].say(proc.Message{Type: "garbage"})
		f.wait(longestRetry * 4)
		require.False(t, up[0].wasSwept())
		f.sys.sweepError(nil)
		f.wait(longestRetry)
		require.True(t, up[0].wasSwept())
		up[0].crash()
	})

	bubble(t, "it is over when the process is reaped", func(t *testing.T) {
		f := setup(t)
		up := f.up(2)
		f.redis.hold(up[0].spec.Proc, reserved("a", 0))
		up[0].hard, up[0].stuck = true, make(chan struct{})
		up[0].say(proc.Message{Type: "garbage"})
		require.True(t, up[0].wasKilled())
		up[0].mu.Lock()
		up[0].stuck = nil
		up[0].mu.Unlock()
		up[0].crash()
		require.Equal(t, []string{"a requeue"}, f.redis.seen())
	})

	bubble(t, "a sweep that takes long holds up neither the loop nor the jobs of others", func(t *testing.T) {
		f := setup(t)
		up := f.up(2)
		for i, token := range []string{"a", "b"} {
			f.redis.hold(up[i].spec.Proc, reserved(token, 0))
		}
		stuck := make(chan struct{})
		up[0].stuck = stuck
		up[0].crash()
		require.Empty(t, f.redis.seen())
		up[1].crash()
		require.Equal(t, []string{"b requeue"}, f.redis.seen())
		f.wait(firstDelay)
		f.up(2)
		close(stuck)
		synctest.Wait()
		require.Equal(t, []string{"b requeue", "a requeue"}, f.redis.seen())
	})

	bubble(t, "it does not wait for a Redis that is silent", func(t *testing.T) {
		f := setup(t)
		up := f.up(2)
		f.redis.hold(up[0].spec.Proc, reserved("a", 0))
		f.redis.set(func() { f.redis.silent = true })
		f.wait(roundEvery * 3 / 2)
		up[0].crash()
		require.True(t, f.sys.hasSwept(up[0].spec.Proc))
		require.Empty(t, f.redis.seen(), "the recoverer waits")
		f.redis.set(func() { f.redis.silent = false })
		f.wait(redisPatience)
		require.Equal(t, []string{"a requeue"}, f.redis.seen())
	})
}

func TestSweepOthers(t *testing.T) {
	t.Parallel()

	bubble(t, "what others have left is ended before the jobs of any of them are recovered", func(t *testing.T) {
		const first, second = "h:b:5-5:0.0", "h:b:5-5:1.1"
		f := setup(t, func(f *fixture, _ *Config) {
			f.sys.dead = map[string]bool{"h:b:5-5": true}
			f.redis.procs = []string{first, second}
			f.redis.check = func(string) {
				for _, name := range []string{first, second} {
					if !f.sys.hasSwept(name) {
						t.Error("not swept: " + name)
					}
				}
			}
			f.redis.hold(first, reserved("a", 0))
			f.redis.hold(second, reserved("b", 0))
		})
		require.Equal(t, []string{"a requeue", "b requeue"}, f.redis.seen())
	})

	bubble(t, "one that has beaten since its lease was past is not ended", func(t *testing.T) {
		const name = "h:b:5-5:0.0" // its master lives
		f := setup(t, func(f *fixture, _ *Config) {
			f.redis.procs = []string{name}
			f.redis.orphans = []string{name}
			f.redis.check = func(string) { f.redis.orphans = nil }
			f.redis.hold(name, reserved("a", 0))
		})
		f.look()
		require.Empty(t, f.redis.seen())
		require.False(t, f.sys.hasSwept(name))
		// From now on it stays so.
		f.redis.set(func() { f.redis.orphans, f.redis.check = []string{name}, nil })
		f.look()
		require.Equal(t, []string{"a requeue"}, f.redis.seen())
		require.True(t, f.sys.hasSwept(name))
	})
}
