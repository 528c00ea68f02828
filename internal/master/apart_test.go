package master

import (
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/resqued/resqued/internal/sys/proc"
)

func waiting(n int) proc.Message { return proc.Message{Type: proc.Apart, Suspects: n} }

func took(left int) proc.Message { return proc.Message{Type: proc.Apart, Suspects: left, On: true} }

// isolated starts the next process for a suspect and makes it work.
func (f *fixture) isolated(left int) *fakeChild {
	f.t.Helper()
	c := f.newest()
	require.Equal(f.t, "resqued (resque-3): worker for a suspect", c.spec.Title)
	require.Equal(f.t, []string{"welcome running alone"}, c.hello())
	c.ready()
	c.say(took(left))
	return c
}

func TestApart(t *testing.T) {
	t.Parallel()

	bubble(t, "a process for each suspect, at most as many as there are slots", func(t *testing.T) {
		f := setup(t)
		up := f.up(2)
		up[0].say(waiting(5))
		require.Equal(t, 3, f.spawned(), "one boots at a time")
		a := f.isolated(4)
		require.Equal(t, 4, f.spawned())
		b := f.isolated(3)
		up[1].say(waiting(3))
		f.wait(time.Second)
		require.Equal(t, 4, f.spawned())
		require.Contains(t, f.sys.title(), "2 workers, 2 suspects apart, ")
		a.say(retires("quota"))
		a.leave(1, "")
		require.Equal(t, 5, f.spawned())
		f.isolated(0)
		b.leave(1, "")
		f.wait(time.Minute)
		require.Equal(t, 5, f.spawned())
		require.Equal(t, "h:b:1-2:2.4", f.newest().spec.Proc)
		require.Empty(t, f.redis.seen())
	})

	bubble(t, "suspects that run for long do not hold up the others, up to the threads of a process", func(t *testing.T) {
		f := setup(t)
		up := f.up(2)
		left := 9
		up[0].say(waiting(left))
		for range 2 {
			left--
			f.isolated(left)
		}
		require.Equal(t, 4, f.spawned())
		f.wait(harmless + time.Second)
		require.Equal(t, 5, f.spawned())
		f.isolated(6)
		require.Equal(t, 6, f.spawned())
		f.isolated(5)
		f.wait(harmless + time.Second)
		require.Equal(t, 6, f.spawned(), "4 threads")
	})

	bubble(t, "one that finds all suspects locked is followed by another after a while only", func(t *testing.T) {
		f := setup(t)
		up := f.up(2)
		up[0].say(waiting(1))
		for range 5 {
			c := f.newest()
			require.Equal(t, []string{"welcome running alone"}, c.hello())
			c.ready()
			c.say(waiting(1))
			c.leave(0, "")
			before := f.spawned()
			f.wait(firstDelay / 4)
			require.Equal(t, before, f.spawned())
			f.wait(longestDelay)
			require.Equal(t, before+1, f.spawned())
		}
		f.isolated(0)
	})

	bubble(t, "the suspect that kills again goes back as one, and fails at its third death", func(t *testing.T) {
		f := setup(t)
		up := f.up(2)
		f.redis.hold(up[0].spec.Proc, reserved("a", 0), reserved("b", 0))
		up[0].crash()
		require.Equal(t, []string{"a requeue", "b requeue"}, f.redis.seen())
		require.Equal(t, []string{"a", "b"}, f.redis.suspects)
		f.wait(firstDelay)
		f.up(1)

		up[1].say(waiting(2))
		a, b := f.isolated(1), f.isolated(0)
		f.redis.hold(a.spec.Proc, reserved("a", 1))
		a.crash()
		b.leave(1, "")
		require.Equal(t, []string{"a", "b", "a"}, f.redis.suspects)
		up[1].say(waiting(1))
		f.wait(time.Second)
		a = f.isolated(0)
		f.redis.hold(a.spec.Proc, reserved("a", 2))
		a.crash()
		require.Equal(t, []string{"a requeue", "b requeue", "a requeue", "a fail"}, f.redis.seen())
		require.Contains(t, f.redis.failures[0], `worker process died: signal SIGSEGV; peak memory 64 MiB; death 3 of 3"`)
	})

	bubble(t, "deaths are spaced out", func(t *testing.T) {
		f := setup(t)
		up := f.up(2)
		for range 10 {
			n := f.spawned()
			up[0].say(waiting(1))
			for f.spawned() == n {
				f.wait(firstDelay)
			}
			f.isolated(0).crash()
		}
		n := f.spawned()
		up[0].say(waiting(1))
		f.wait(longestDelay / 3)
		require.Equal(t, n, f.spawned())
		f.wait(longestDelay)
		f.isolated(0).leave(1, "")
		up[0].say(waiting(1))
		require.Equal(t, n+2, f.spawned(), "a suspect that is harmless ends that")
	})

	bubble(t, "no job is suspected where the cause is known, or where the death came from outside", func(t *testing.T) {
		f := setup(t)
		up := f.up(2)
		f.redis.hold(up[0].spec.Proc, reserved("a", 0), reserved("b", 0))
		up[0].say(proc.Message{Type: proc.Tainted, Tokens: []string{"a"}, Reason: "resqued (resque-3): job timed out"})
		f.redis.hold(up[1].spec.Proc, reserved("c", 2))
		f.redis.set(func() { f.redis.orphans = []string{up[1].spec.Proc} })
		f.wait(roundEvery * 2)
		f.redis.hold("far:away:7-8:0.1", reserved("d", 2))
		f.redis.set(func() { f.redis.orphans = []string{"far:away:7-8:0.1"} })
		f.wait(roundEvery * 2)
		require.Equal(t, []string{"a fail", "b requeue", "c requeue", "d requeue"}, f.redis.seen())
		require.Empty(t, f.redis.suspects)
	})

	bubble(t, "a job that dies with its machine again and again fails in the end", func(t *testing.T) {
		f := setup(t)
		f.up(2)
		almost, last := reserved("a", 10), reserved("b", 11)
		almost.Blame, last.Blame = 1, 0
		f.redis.hold("far:away:7-8:0.1", almost, last)
		f.redis.set(func() { f.redis.orphans = []string{"far:away:7-8:0.1"} })
		f.wait(roundEvery * 2)
		require.Equal(t, []string{"a requeue", "b fail"}, f.redis.seen())
		require.Contains(t, f.redis.failures[0], "death 12 of any cause, and the most are 12 (4 times max_deaths)")
	})

	bubble(t, "with max_deaths 1 nothing ever runs again", func(t *testing.T) {
		f := setup(t, func(_ *fixture, c *Config) { c.MaxDeaths = 1 })
		up := f.up(2)
		f.redis.hold(up[0].spec.Proc, reserved("a", 0))
		up[0].crash()
		f.redis.hold("far:away:7-8:0.1", reserved("b", 0))
		f.redis.set(func() { f.redis.orphans = []string{"far:away:7-8:0.1"} })
		f.wait(roundEvery * 2)
		require.Equal(t, []string{"a fail", "b fail"}, f.redis.seen())
	})

	bubble(t, "signals reach them, and none is started while paused or leaving", func(t *testing.T) {
		f := setup(t)
		up := f.up(2)
		up[0].say(waiting(3))
		a := f.isolated(2)
		f.signal(syscall.SIGUSR2)
		b := f.newest()
		require.Equal(t, []string{"welcome paused alone"}, b.hello())
		b.ready()
		require.Equal(t, []string{"state paused"}, a.hear())
		f.wait(time.Second)
		require.Equal(t, 4, f.spawned())
		f.signal(syscall.SIGUSR1)
		require.Equal(t, []string{"kill 10s", "state running"}, a.hear())
		b.say(took(1))
		a.leave(1, "")
		c := f.isolated(0)
		f.reload = func() (Config, error) { return Config{Slots: 2, Threads: 4, MaxDeaths: 3, Worker: []byte("two")}, nil }
		f.signal(syscall.SIGHUP)
		for range 2 {
			require.Equal(t, "two", string(f.newest().spec.Config))
			f.up(1)
		}
		require.Equal(t, []string{}, c.hear(), "it is not replaced")
		up[0].leave(1, "")
		up[1].leave(1, "")

		f.signal(syscall.SIGQUIT)
		require.Equal(t, []string{"state draining"}, c.hear())
		c.say(waiting(7))
		n := f.spawned()
		for _, w := range f.sys.alive() {
			if w != c {
				w.leave(1, "")
			}
		}
		require.True(t, f.running(), "its job is not finished")
		c.leave(1, "")
		require.NoError(t, f.over())
		require.Equal(t, n, f.spawned())
	})

	bubble(t, "they neither look out for others nor keep the master from being ready", func(t *testing.T) {
		f := setup(t)
		up := f.up(2)
		up[0].say(waiting(1))
		c := f.isolated(0)
		up[0].say(proc.Message{Type: proc.Found})
		up[0].crash()
		up[1].crash()
		f.wait(time.Second)
		require.Empty(t, c.told())
		require.True(t, strings.HasPrefix(f.sys.title(), "resqued (resque-3): master: running, 0 of 2 workers, 1 suspect apart"), f.sys.title())
	})
}
