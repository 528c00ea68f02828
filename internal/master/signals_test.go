package master

import (
	"os"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"

	"github.com/resqued/resqued/internal/signals"
	"github.com/resqued/resqued/internal/store"
	"github.com/resqued/resqued/internal/sys/proc"
)

// inState brings a master of two worker processes into a state, to try each cell of the table.
func inState(t *testing.T, state signals.State) (*fixture, []*fakeChild) {
	t.Helper()
	f := setup(t)
	f.reload = func() (Config, error) { return Config{Slots: 2, Threads: 4, MaxDeaths: 3, Worker: []byte("two")}, nil }
	if state == signals.Starting {
		c := f.newest()
		require.Equal(t, []string{"welcome running"}, c.hello())
		return f, []*fakeChild{c}
	}
	up := f.up(2)
	switch state {
	case signals.Paused:
		f.signal(syscall.SIGUSR2)
	case signals.Draining:
		f.signal(syscall.SIGQUIT)
	case signals.Killing:
		f.signal(syscall.SIGTERM)
	}
	for _, c := range up {
		c.hear()
	}
	require.Equal(t, state, f.m.state)
	return f, up
}

func TestSignals(t *testing.T) {
	t.Parallel()
	const kill, killExit = "kill 10s", "kill 10s exit"
	for _, c := range []struct {
		state signals.State
		sig   syscall.Signal
		next  signals.State
		hears []string
	}{
		{signals.Starting, syscall.SIGTERM, signals.Killing, []string{killExit}},
		{signals.Starting, syscall.SIGINT, signals.Killing, []string{killExit}},
		{signals.Starting, syscall.SIGQUIT, signals.Draining, []string{"state draining"}},
		{signals.Starting, syscall.SIGUSR1, signals.Starting, []string{"state running"}},
		{signals.Starting, syscall.SIGUSR2, signals.Starting, []string{"state paused"}},
		{signals.Starting, syscall.SIGCONT, signals.Starting, []string{"state running"}},
		{signals.Starting, syscall.SIGHUP, signals.Starting, nil},

		{signals.Running, syscall.SIGTERM, signals.Killing, []string{killExit}},
		{signals.Running, syscall.SIGINT, signals.Killing, []string{killExit}},
		{signals.Running, syscall.SIGQUIT, signals.Draining, []string{"state draining"}},
		{signals.Running, syscall.SIGUSR1, signals.Running, []string{kill, "state running"}},
		{signals.Running, syscall.SIGUSR2, signals.Paused, []string{"state paused"}},
		{signals.Running, syscall.SIGCONT, signals.Running, []string{"state running"}},
		{signals.Running, syscall.SIGHUP, signals.Running, nil},

		{signals.Paused, syscall.SIGTERM, signals.Killing, []string{killExit}},
		{signals.Paused, syscall.SIGINT, signals.Killing, []string{killExit}},
		{signals.Paused, syscall.SIGQUIT, signals.Draining, []string{"state draining"}},
		{signals.Paused, syscall.SIGUSR1, signals.Running, []string{kill, "state running"}},
		{signals.Paused, syscall.SIGUSR2, signals.Paused, []string{"state paused"}},
		{signals.Paused, syscall.SIGCONT, signals.Running, []string{"state running"}},
		{signals.Paused, syscall.SIGHUP, signals.Paused, nil},

		{signals.Draining, syscall.SIGTERM, signals.Killing, []string{killExit}},
		{signals.Draining, syscall.SIGINT, signals.Killing, []string{killExit}},
		{signals.Draining, syscall.SIGQUIT, signals.Draining, nil},
		{signals.Draining, syscall.SIGUSR1, signals.Draining, []string{kill}},
		{signals.Draining, syscall.SIGUSR2, signals.Draining, nil},
		{signals.Draining, syscall.SIGCONT, signals.Draining, nil},
		{signals.Draining, syscall.SIGHUP, signals.Draining, nil},

		{signals.Killing, syscall.SIGTERM, signals.Killing, nil},
		{signals.Killing, syscall.SIGINT, signals.Killing, nil},
		{signals.Killing, syscall.SIGQUIT, signals.Killing, nil},
		{signals.Killing, syscall.SIGUSR1, signals.Killing, nil},
		{signals.Killing, syscall.SIGUSR2, signals.Killing, nil},
		{signals.Killing, syscall.SIGCONT, signals.Killing, nil},
		{signals.Killing, syscall.SIGHUP, signals.Killing, nil},
	} {
		bubble(t, string(c.state)+" and "+c.sig.String(), func(t *testing.T) {
			f, workers := inState(t, c.state)
			f.signal(c.sig)
			require.Equal(t, c.next, f.m.state)
			for _, w := range workers {
				require.ElementsMatch(t, c.hears, w.hear())
				require.False(t, w.wasKilled())
			}
		})
	}
}

func TestShutdown(t *testing.T) {
	t.Parallel()

	bubble(t, "a drain ends when the last worker has left", func(t *testing.T) {
		f := setup(t)
		up := f.up(2)
		f.redis.set(func() { f.redis.lined = 7 })
		f.signal(syscall.SIGQUIT)
		up[0].leave(5, "")
		f.wait(time.Hour)
		require.True(t, f.running())
		require.Equal(t, 2, f.spawned())
		up[1].leave(5, "")
		require.NoError(t, f.over())
		require.True(t, f.redis.dropped)
		require.Equal(t, 1, f.logs.FilterMessageSnippet("queues unline").FilterField(zap.Int64("jobs", 7)).Len())
	})

	bubble(t, "a worker that does not leave after a kill is ended shortly after its grace", func(t *testing.T) {
		f := setup(t)
		up := f.up(2)
		f.signal(syscall.SIGTERM)
		up[0].leave(0, "")
		f.wait(10*time.Second + killMargin - time.Millisecond)
		require.False(t, up[1].wasKilled())
		f.wait(2 * time.Millisecond)
		require.True(t, up[1].wasKilled())
		require.NoError(t, f.over())
	})

	bubble(t, "a second TERM counts only a second later, and then ends everything", func(t *testing.T) {
		f := setup(t)
		up := f.up(2)
		f.signal(syscall.SIGTERM)
		f.wait(900 * time.Millisecond)
		f.signal(syscall.SIGTERM)
		require.False(t, up[0].wasKilled())
		f.wait(200 * time.Millisecond)
		f.signal(syscall.SIGTERM)
		require.True(t, up[0].wasKilled())
		require.True(t, up[1].wasKilled())
		require.NoError(t, f.over())
	})

	bubble(t, "a drain that takes too long becomes a kill", func(t *testing.T) {
		f := setup(t, func(_ *fixture, c *Config) { c.DrainTimeout = time.Minute })
		up := f.up(2)
		f.signal(syscall.SIGQUIT)
		f.wait(59 * time.Second)
		require.Equal(t, []string{"state draining"}, up[0].hear())
		f.wait(2 * time.Second)
		require.Equal(t, []string{"kill 10s exit: drain_timeout (1m0s) was over while it ran"}, up[0].hear())
		f.wait(11 * time.Second)
		require.NoError(t, f.over())
	})

	bubble(t, "its jobs go back without a death, also those that do not stop", func(t *testing.T) {
		const why = "drain_timeout (1m0s) was over while it ran"
		f := setup(t, func(_ *fixture, c *Config) {
			c.DrainTimeout, c.DrainRequeue = time.Minute, true
			c.Policy = store.Policy{AtMostOnce: []string{"Once"}}
		})
		up := f.up(2)
		once := reserved("once", 0)
		once.Payload = []byte(`{"class":"Once","args":[]}`)
		killed := reserved("killed", 0)
		f.redis.hold(up[0].spec.Proc, reserved("a", 0), reserved("b", 11), once, killed)
		f.redis.hold(up[1].spec.Proc, reserved("c", 0))
		f.signal(syscall.SIGUSR1)
		up[0].say(proc.Message{Type: proc.Killing, Kills: 1, Tokens: []string{"killed"}})
		up[1].say(proc.Message{Type: proc.Killing, Kills: 1})
		f.signal(syscall.SIGQUIT)
		up[0].hear()
		f.wait(61 * time.Second)
		require.Equal(t, []string{"kill 10s exit requeue: " + why}, up[0].hear())
		// It names none: it hangs. The other one names the job that does not stop.
		up[1].say(proc.Message{Type: proc.Tainted, Again: []string{"c"}, Reason: "resqued: job killed: " + why})
		f.wait(11 * time.Second)
		require.NoError(t, f.over())
		require.ElementsMatch(t, []string{"a back", "b back", "once fail", "killed fail", "c back"}, f.redis.seen())
		require.ElementsMatch(t, []bool{true, true}, []bool{
			strings.Contains(f.redis.failures[0]+f.redis.failures[1], `"error":"Job was killed: `+why+`; at_most_once: it may have run`),
			strings.Contains(f.redis.failures[0]+f.redis.failures[1], `"error":"Job was killed: `+why+`"`),
		})
	})

	bubble(t, "a job whose lock is lost goes back without a death, though it does not stop", func(t *testing.T) {
		f := setup(t)
		up := f.up(2)
		f.redis.hold(up[0].spec.Proc, reserved("a", 11), reserved("b", 0))
		up[0].say(proc.Message{Type: proc.Tainted, Again: []string{"a"}, Reason: "resqued: job lock lost: no heartbeat for 20s"})
		f.wait(time.Second)
		require.Equal(t, []string{"a back", "b requeue"}, f.redis.seen())
	})

	bubble(t, "without a limit it drains for ever, and asks for the time", func(t *testing.T) {
		f := setup(t)
		up := f.up(2)
		f.signal(syscall.SIGQUIT)
		require.Equal(t, 1, f.systemd.count("stopping"))
		f.wait(time.Hour)
		require.True(t, f.running())
		require.Greater(t, f.systemd.count("extend 20s"), 700)
		require.False(t, up[0].wasKilled())
	})

	bubble(t, "a worker that has said nothing yet is ended by a kill, and told of a drain", func(t *testing.T) {
		f := setup(t)
		f.up(1)
		silent := f.newest()
		f.signal(syscall.SIGQUIT)
		require.Equal(t, []string{"welcome draining"}, silent.hello())

		g := setup(t)
		g.up(1)
		silent = g.newest()
		g.signal(syscall.SIGTERM)
		require.True(t, silent.wasKilled())
	})

	bubble(t, "the end of the program's context is a TERM", func(t *testing.T) {
		f := setup(t)
		up := f.up(2)
		f.cancel()
		require.Equal(t, []string{"kill 10s exit"}, up[0].hear())
	})

	bubble(t, "at a terminal ^C drains, and kills when it comes again", func(t *testing.T) {
		f := setup(t, func(_ *fixture, c *Config) { c.DevSignals = true })
		up := f.up(2)
		f.signal(os.Interrupt)
		require.Equal(t, []string{"state draining"}, up[0].hear())
		f.wait(2 * time.Second)
		f.signal(os.Interrupt)
		require.Equal(t, []string{"kill 10s exit"}, up[0].hear())
	})
}

func TestKillJobs(t *testing.T) {
	t.Parallel()

	bubble(t, "a worker that does not answer USR1 is ended, whatever else it says", func(t *testing.T) {
		f := setup(t)
		up := f.up(2)
		up[0].mu.Lock()
		up[0].mute = true
		up[0].mu.Unlock()
		f.signal(syscall.SIGUSR1)
		up[1].say(proc.Message{Type: proc.Killing, Kills: 1})
		f.wait(10*time.Second + killMargin + time.Millisecond)
		require.True(t, up[0].wasKilled())
		require.False(t, up[1].wasKilled())
		f.signal(syscall.SIGUSR1)
		f.wait(10*time.Second + killMargin + time.Millisecond)
		require.True(t, up[1].wasKilled(), "it beats, but does not name its jobs")
		require.Equal(t, signals.Running, f.m.state)
	})

	bubble(t, "a pause that begins before the first worker is ready holds", func(t *testing.T) {
		f := setup(t)
		f.signal(syscall.SIGUSR2)
		c := f.newest()
		require.Equal(t, []string{"welcome paused"}, c.hello())
		c.say(proc.Message{Type: proc.Ready})
		require.Equal(t, signals.Paused, f.m.state)
		require.Equal(t, 1, f.systemd.count("ready"))
		require.Equal(t, []string{"welcome paused"}, f.newest().hello())
	})

	bubble(t, "and ends when CONT comes before it, too", func(t *testing.T) {
		f := setup(t)
		f.signal(syscall.SIGUSR2)
		c := f.newest()
		require.Equal(t, []string{"welcome paused"}, c.hello())
		f.signal(syscall.SIGCONT)
		require.Equal(t, []string{"state running"}, c.hear())
		c.say(proc.Message{Type: proc.Ready})
		require.Equal(t, signals.Running, f.m.state)
	})

	bubble(t, "strays are looked for soon after a child process has ended, not for each of them", func(t *testing.T) {
		f := setup(t)
		f.up(2)
		before := f.sys.looks()
		for range 100 {
			f.signal(syscall.SIGCHLD)
		}
		require.Equal(t, before, f.sys.looks())
		f.wait(straysAfter)
		require.Equal(t, before+1, f.sys.looks())
	})

	bubble(t, "signals that come together all take effect", func(t *testing.T) {
		f := setup(t)
		f.up(2)
		f.signals <- syscall.SIGUSR1
		f.signals <- syscall.SIGUSR2
		f.signals <- syscall.SIGCHLD
		f.signals <- syscall.SIGWINCH
		f.signals <- syscall.SIGQUIT
		synctest.Wait()
		require.Equal(t, signals.Draining, f.m.state)
		require.Positive(t, f.sys.looks())
	})
}
