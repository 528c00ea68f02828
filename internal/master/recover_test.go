package master

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/resqued/resqued/internal/store"
	"github.com/resqued/resqued/internal/sys/proc"
	"github.com/resqued/resqued/internal/sys/procfs"
)

var _ Store = (*store.Store)(nil)

func reserved(token string, deaths int) store.Reserved {
	return store.Reserved{Token: token, Queue: "mail", Worker: "h/0.0:1:mail", Deaths: deaths, Blame: deaths}
}

func TestRecover(t *testing.T) {
	t.Parallel()

	bubble(t, "jobs of a worker that died go back, and fail the third time", func(t *testing.T) {
		f := setup(t)
		up := f.up(2)
		f.redis.hold(up[0].spec.Proc, reserved("a", 0), reserved("b", 1), reserved("c", 2))
		up[0].crash()
		require.Equal(t, []string{"a requeue", "b requeue", "c fail"}, f.redis.seen())
		require.Contains(t, f.redis.failures[0], `"exception":"Resque::DirtyExit","error":"worker process died: signal SIGSEGV; `+
			`peak memory 64 MiB; death 3 of 3; at the same time ran Mail, Mail"`)
		require.Contains(t, f.redis.failures[0], `"payload":{"class":"Mail","args":[1]}`)
		require.Equal(t, []string{"resque-retry:Mail:356a192b7913b04c54574d18c28d46e6395428ab"}, f.redis.counts, "one that is enqueued anew begins anew")
	})

	bubble(t, "those that fail are counted, and what has no handler all together", func(t *testing.T) {
		f := setup(t, func(_ *fixture, c *Config) { c.Classes = []string{"Mail"} })
		up := f.up(2)
		other, global := reserved("other", 2), reserved("global", 2)
		other.Payload, global.Payload = []byte(`{"class":"Other","args":[]}`), []byte(`{"class":"::Mail","args":[]}`)
		f.redis.hold(up[0].spec.Proc, reserved("a", 0), reserved("c", 2), other, global)
		up[0].crash()
		require.Equal(t, []string{"a requeue", "c fail", "other fail", "global fail"}, f.redis.seen())
		require.Equal(t, []string{"Mail", "unknown", "::Mail"}, f.died.seen())
	})

	bubble(t, "they are touched only when the process is reaped and nothing of it is left", func(t *testing.T) {
		f := setup(t)
		up := f.up(2)
		name := up[0].spec.Proc
		f.redis.hold(name, reserved("a", 0))
		f.redis.check = func(p string) {
			if !f.sys.hasSwept(p) {
				t.Error("recovered before it was swept")
			}
		}
		f.sys.sweepError(errors.New("process 77 is still there"))
		up[0].hard = true
		up[0].say(proc.Message{Type: proc.Tainted, Tokens: []string{"a"}, Reason: "resqued: job killed"})
		require.True(t, up[0].wasKilled())
		f.wait(time.Second)
		require.Empty(t, f.redis.seen(), "it is not reaped")
		up[0].crash()
		f.wait(20 * time.Second)
		require.Empty(t, f.redis.seen(), "it is not swept")
		f.sys.sweepError(nil)
		f.wait(longestRetry)
		require.Equal(t, []string{"a fail"}, f.redis.seen())
	})

	bubble(t, "jobs that do not stop fail, their neighbours go back, and the slot is filled at once", func(t *testing.T) {
		f := setup(t)
		up := f.up(2)
		f.redis.hold(up[0].spec.Proc, reserved("a", 0), reserved("b", 0))
		up[0].say(proc.Message{Type: proc.Tainted, Tokens: []string{"a"}, Reason: "resqued: job timed out"})
		require.Equal(t, []string{"a fail", "b requeue"}, f.redis.seen())
		require.Contains(t, f.redis.failures[0], `"error":"Job was killed: job timed out"`)
		require.Equal(t, 3, f.spawned())
	})

	bubble(t, "a forced kill is one warning, which counts what is what", func(t *testing.T) {
		f := setup(t)
		up := f.up(2)
		f.redis.hold(up[0].spec.Proc, reserved("a", 0), reserved("b", 0))
		up[0].say(proc.Message{Type: proc.Beat, Done: 7})
		up[0].say(proc.Message{Type: proc.Tainted, Tokens: []string{"a"}, Busy: 1, Reason: "resqued: job timed out"})
		require.Equal(t, []string{"a fail", "b requeue"}, f.redis.seen())
		warnings := f.logs.Filter(func(e observer.LoggedEntry) bool { return e.Level >= zap.WarnLevel }).All()
		require.Len(t, warnings, 1)
		fields := warnings[0].ContextMap()
		require.EqualValues(t, 7, fields["jobs_done"])
		require.EqualValues(t, 1, fields["jobs_not_stopped"])
		require.Contains(t, fields["ended"], "resqued: job timed out")
		recovered := f.logs.FilterMessageSnippet("recovered the jobs").All()[0].ContextMap()
		require.EqualValues(t, 1, recovered["jobs_failed"])
		require.EqualValues(t, 1, recovered["jobs_requeued"])
	})

	bubble(t, "after TERM everything that was not finished has failed", func(t *testing.T) {
		f := setup(t)
		up := f.up(2)
		f.redis.hold(up[0].spec.Proc, reserved("a", 0))
		f.redis.hold(up[1].spec.Proc, reserved("b", 0))
		f.signal(syscall.SIGTERM)
		up[0].leave(1, "")
		up[1].crash()
		require.NoError(t, f.over())
		require.ElementsMatch(t, []string{"a fail", "b fail"}, f.redis.seen())
		require.Contains(t, f.redis.failures[0], `"error":"Job was killed"`)
	})

	bubble(t, "a worker that dies while USR1 kills its jobs does not bring them back", func(t *testing.T) {
		f := setup(t)
		up := f.up(2)
		f.redis.hold(up[0].spec.Proc, reserved("a", 0))
		f.redis.hold(up[1].spec.Proc, reserved("b", 0))
		f.signal(syscall.SIGUSR1)
		up[0].crash()
		require.Equal(t, []string{"a fail"}, f.redis.seen())
		// The other process has killed its jobs, takes new ones, and dies of one.
		up[1].say(proc.Message{Type: proc.Beat, Busy: 3, Kills: 1})
		up[1].crash()
		require.Equal(t, []string{"a fail", "b requeue"}, f.redis.seen())
	})

	bubble(t, "only what a worker held at USR1 was killed by it", func(t *testing.T) {
		f := setup(t)
		up := f.up(2)
		f.redis.hold(up[0].spec.Proc, reserved("a", 0), reserved("new", 0), reserved("third", 2))
		f.signal(syscall.SIGUSR1)
		up[0].say(proc.Message{Type: proc.Killing, Kills: 1, Tokens: []string{"a", "done"}})
		up[0].crash()
		require.Equal(t, []string{"a fail", "new requeue", "third fail"}, f.redis.seen())
		require.Equal(t, []string{"new"}, f.redis.suspects)
		require.Contains(t, f.redis.failures[0], `"error":"Job was killed"`)
		require.Contains(t, f.redis.failures[1], `"error":"worker process died: signal SIGSEGV`)
	})

	bubble(t, "a second USR1 that is not answered counts for all that a worker holds", func(t *testing.T) {
		f := setup(t)
		up := f.up(2)
		f.redis.hold(up[0].spec.Proc, reserved("a", 0), reserved("new", 0))
		f.signal(syscall.SIGUSR1)
		up[0].say(proc.Message{Type: proc.Killing, Kills: 1, Tokens: []string{"a"}})
		f.signal(syscall.SIGUSR1)
		up[0].crash()
		require.Equal(t, []string{"a fail", "new fail"}, f.redis.seen())
	})

	bubble(t, "jobs that do not stop fail also long after USR1", func(t *testing.T) {
		f := setup(t)
		up := f.up(2)
		f.redis.hold(up[0].spec.Proc, reserved("a", 0), reserved("new", 0))
		f.signal(syscall.SIGUSR1)
		up[0].say(proc.Message{Type: proc.Killing, Kills: 1, Tokens: []string{"a"}})
		for range 30 {
			f.wait(time.Second)
			up[0].say(proc.Message{Type: proc.Beat, Kills: 1, Doomed: 1})
			up[1].say(proc.Message{Type: proc.Killing, Kills: 1})
		}
		up[0].crash()
		require.Equal(t, []string{"a fail", "new requeue"}, f.redis.seen())
	})

	bubble(t, "after TERM what had not begun goes back", func(t *testing.T) {
		f := setup(t)
		up := f.up(2)
		f.redis.hold(up[0].spec.Proc, reserved("a", 0), reserved("taken", 2))
		f.signal(syscall.SIGTERM)
		up[0].say(proc.Message{Type: proc.Killing, Kills: 1, Tokens: []string{"a"}})
		up[0].crash()
		up[1].crash()
		require.NoError(t, f.over())
		require.Equal(t, []string{"a fail", "taken requeue"}, f.redis.seen())
		require.Empty(t, f.redis.suspects)
	})

	bubble(t, "what was killed fails also if its worker leaves while Redis does not take that", func(t *testing.T) {
		f := setup(t)
		up := f.up(2)
		f.redis.hold(up[0].spec.Proc, reserved("a", 0), reserved("finished", 0))
		f.signal(syscall.SIGUSR1)
		up[0].say(proc.Message{Type: proc.Killing, Kills: 1, Tokens: []string{"a"}})
		f.signal(syscall.SIGQUIT)
		up[0].leave(9, proc.Untidy)
		up[1].leave(9, "")
		require.NoError(t, f.over())
		require.Equal(t, []string{"a fail", "finished requeue"}, f.redis.seen())
	})

	bubble(t, "a worker that has not heard of USR1, or whose killed jobs are not recorded, brings none back", func(t *testing.T) {
		f := setup(t)
		up := f.up(2)
		f.redis.hold(up[0].spec.Proc, reserved("a", 0))
		f.redis.hold(up[1].spec.Proc, reserved("b", 0))
		f.signal(syscall.SIGUSR1)
		up[0].say(proc.Message{Type: proc.Beat}) // it was on its way
		up[0].crash()
		up[1].say(proc.Message{Type: proc.Beat, Kills: 1, Doomed: 1})
		up[1].crash()
		require.Equal(t, []string{"a fail", "b fail"}, f.redis.seen())
	})

	bubble(t, "a job that was to be killed has ended, and it is said what that has cost", func(t *testing.T) {
		f := setup(t)
		up := f.up(2)
		named, back := reserved("named", 0), reserved("back", 2)
		named.Kill, back.Kill = &store.KillRequest{}, &store.KillRequest{Requeue: true}
		f.redis.hold(up[0].spec.Proc, named, back, reserved("neighbour", 0), reserved("unlucky", 2))
		up[0].crash()
		require.Equal(t, []string{"named fail", "back again", "neighbour requeue", "unlucky fail"}, f.redis.seen())
		require.Contains(t, f.redis.failures[0], `"error":"Job was killed"`)
		require.Equal(t, []store.KillAnswer{
			{How: store.HowRecycled, SiblingsLost: 1}, {How: store.HowRecycled, Requeued: true, SiblingsLost: 1},
		}, f.redis.answers)
	})

	bubble(t, "neighbours of a killed job that goes back to its queue are not suspects", func(t *testing.T) {
		f := setup(t)
		up := f.up(2)
		back := reserved("back", 0)
		back.Kill = &store.KillRequest{Requeue: true}
		f.redis.hold(up[0].spec.Proc, back, reserved("neighbour", 2))
		up[0].say(proc.Message{Type: proc.Tainted, Reason: "resqued: job killed"})
		up[0].crash()
		require.Equal(t, []string{"back again", "neighbour requeue"}, f.redis.seen())
		require.Empty(t, f.redis.suspects)
		require.Equal(t, []store.KillAnswer{{How: store.HowRecycled, Requeued: true}}, f.redis.answers)
	})

	bubble(t, "a worker that left in good order costs Redis nothing", func(t *testing.T) {
		f := setup(t)
		f.up(2)[0].leave(9, "")
		synctest.Wait()
		require.Empty(t, f.redis.fenced)
		require.Empty(t, f.sys.swept)
	})

	bubble(t, "one that could not tidy up is cleaned up after", func(t *testing.T) {
		f := setup(t)
		up := f.up(2)
		f.redis.hold(up[0].spec.Proc, reserved("a", 0))
		up[0].leave(9, proc.Untidy)
		require.Equal(t, []string{"a requeue"}, f.redis.seen())
	})

	bubble(t, "one that never said hello has left nothing", func(t *testing.T) {
		f := setup(t)
		f.newest().crash()
		synctest.Wait()
		require.Empty(t, f.redis.fenced)
	})

	bubble(t, "while Redis is away it sweeps, tries again, and keeps the slots filled", func(t *testing.T) {
		f := setup(t)
		up := f.up(2)
		name := up[0].spec.Proc
		f.redis.hold(name, reserved("a", 0))
		f.redis.set(func() { f.redis.down = errors.New("connection refused") })
		up[0].crash()
		f.wait(firstDelay)
		require.True(t, f.sys.hasSwept(name))
		f.up(1)
		f.wait(time.Hour)
		require.Empty(t, f.redis.seen())
		f.redis.set(func() { f.redis.down = nil })
		f.wait(longestRetry)
		require.Equal(t, []string{"a requeue"}, f.redis.seen())
	})

	bubble(t, "at the end it does not wait for Redis for ever", func(t *testing.T) {
		f := setup(t)
		up := f.up(2)
		f.redis.hold(up[0].spec.Proc, reserved("a", 0))
		f.redis.set(func() { f.redis.down = errors.New("connection refused") })
		f.signal(syscall.SIGTERM)
		up[0].crash()
		up[1].crash()
		f.wait(lastTries - time.Second)
		require.True(t, f.running())
		f.wait(2 * time.Second)
		require.False(t, f.running())
		require.NoError(t, f.over())
	})

	bubble(t, "at the end it hardly waits for Redis if only registrations are left there", func(t *testing.T) {
		f := setup(t)
		up := f.up(2)
		f.redis.set(func() { f.redis.down = errors.New("connection refused") })
		f.signal(syscall.SIGQUIT)
		up[0].leave(9, proc.Listed)
		up[1].leave(9, proc.Listed)
		f.wait(briefTries + time.Second)
		require.False(t, f.running())
		require.NoError(t, f.over())
	})

	bubble(t, "no job is suspected whose process has left before Redis took its end", func(t *testing.T) {
		f := setup(t)
		up := f.up(2)
		f.redis.hold(up[0].spec.Proc, reserved("a", 2))
		up[0].leave(9, proc.Untidy)
		require.Equal(t, []string{"a requeue"}, f.redis.seen())
		require.Empty(t, f.redis.suspects)
	})

	bubble(t, "what cannot be moved is parked after a few tries", func(t *testing.T) {
		f := setup(t)
		up := f.up(2)
		f.redis.hold(up[0].spec.Proc, reserved("a", 0))
		f.redis.set(func() { f.redis.full = errors.New("queue:mail is not a list") })
		up[0].crash()
		f.wait(time.Minute)
		require.Equal(t, []string{"a requeue"}, f.redis.seen())
	})

	bubble(t, "jobs that cannot be read stay, and harm nothing", func(t *testing.T) {
		f := setup(t)
		up := f.up(2)
		f.redis.set(func() { f.redis.bad = []string{"x"} })
		f.redis.hold(up[0].spec.Proc, reserved("a", 0))
		up[0].crash()
		require.Equal(t, []string{"a requeue"}, f.redis.seen())
	})
}

func TestRounds(t *testing.T) {
	t.Parallel()

	bubble(t, "this master is shown in Redis, and again every few seconds", func(t *testing.T) {
		f := setup(t)
		f.up(2)
		f.wait(roundEvery * 10)
		n := len(f.redis.masters)
		require.GreaterOrEqual(t, n, 8)
		last := f.redis.masters[n-1]
		require.Equal(t, "h:b:1-2", last.ID)
		require.Equal(t, "running", last.Fields["state"])
		require.Equal(t, "2", last.Fields["ready"])
		require.Equal(t, masterTTL, last.TTL)
	})

	bubble(t, "processes whose lease is past are recovered, whoever had them", func(t *testing.T) {
		f := setup(t)
		f.up(2)
		f.redis.hold("far:away:7-8:0.1", reserved("a", 0))
		f.redis.hold("h:b:9-9:0.0", reserved("b", 0))
		f.redis.set(func() { f.redis.orphans = []string{"far:away:7-8:0.1", "h:b:9-9:0.0"} })
		f.wait(roundEvery * 2)
		require.ElementsMatch(t, []string{"a requeue", "b requeue"}, f.redis.seen())
		require.False(t, f.sys.hasSwept("far:away:7-8:0.1"), "its processes are not here")
		require.True(t, f.sys.hasSwept("h:b:9-9:0.0"))
	})

	bubble(t, "what a dead master of this machine has left is recovered at the start", func(t *testing.T) {
		const gone, drains, lives, far = "h:b:5-5:0.0", "h:b:5-5:1.1", "h:b:6-6:0.0", "far:away:5-5:0.0"
		f := setup(t, func(f *fixture, _ *Config) {
			f.sys.dead = map[string]bool{"h:b:5-5": true, "far:away:5-5": true}
			f.sys.living = map[int]bool{4712: true}
			f.redis.traces = map[string]map[string]string{drains: procfs.Traces{PID: 4712, Start: 1}.Fields()}
			f.redis.procs = []string{gone, drains, lives, far}
			for _, p := range f.redis.procs {
				f.redis.hold(p, reserved("of "+p, 0))
			}
		})
		require.Equal(t, []string{"of " + gone + " requeue"}, f.redis.seen())
		f.up(2)
		// The process that drained without its master dies later.
		f.sys.mu.Lock()
		f.sys.living = nil
		f.sys.mu.Unlock()
		f.wait(roundEvery * 2)
		require.Equal(t, []string{"of " + gone + " requeue", "of " + drains + " requeue"}, f.redis.seen())
	})

	bubble(t, "what cannot be proven waits for the lease", func(t *testing.T) {
		const hidden, nameless, mute = "h:b:5-5:0.0", "h:b:5-5:1.1", "h:b:5-5:2.2"
		f := setup(t, func(f *fixture, _ *Config) {
			f.sys.dead = map[string]bool{"h:b:5-5": true, "h:b:1-2": true} // itself, too, as a wrong look would have it
			f.redis.traces = map[string]map[string]string{
				hidden: procfs.Traces{PID: 4712, Start: 1, View: "hidden"}.Fields(), nameless: {"pid": "-1", "start": "1"}, mute: {},
			}
			f.redis.procs = []string{hidden, nameless, mute, "h:b:1-2:0.9"}
			for _, p := range f.redis.procs {
				f.redis.hold(p, reserved("of "+p, 0))
			}
		})
		f.up(2)
		f.wait(roundEvery * 3)
		require.Empty(t, f.redis.seen())
		f.redis.set(func() { f.redis.orphans = []string{hidden, nameless, mute} })
		f.wait(roundEvery * 2)
		require.Equal(t, []string{"of " + hidden + " requeue", "of " + nameless + " requeue", "of " + mute + " requeue"}, f.redis.seen())
	})

	bubble(t, "a round does not bring back what was killed and could not be recorded yet", func(t *testing.T) {
		f := setup(t)
		f.up(2)
		for n := 1; n <= 20; n++ {
			c := f.sys.alive()[0]
			name := c.spec.Proc
			f.redis.hold(name, reserved("a", 0))
			f.redis.set(func() { f.redis.down, f.redis.orphans = errors.New("connection refused"), []string{name} })
			c.say(proc.Message{Type: proc.Tainted, Tokens: []string{"a"}})
			f.up(1)
			f.wait(20 * time.Second)
			f.redis.set(func() { f.redis.down = nil })
			f.wait(roundEvery * 2)
			require.Equal(t, slices.Repeat([]string{"a fail"}, n), f.redis.seen())
		}
	})

	bubble(t, "a living worker of ours whose lease is past is ended first", func(t *testing.T) {
		f := setup(t)
		up := f.up(2)
		name := up[0].spec.Proc
		f.redis.hold(name, reserved("a", 0))
		f.redis.set(func() { f.redis.orphans = []string{name} })
		f.wait(roundEvery * 2)
		require.True(t, up[0].wasKilled())
		require.Equal(t, []string{"a requeue"}, f.redis.seen())
	})
}

func TestDiedText(t *testing.T) {
	t.Parallel()
	held := make([]store.Reserved, 12)
	for i := range held {
		held[i] = reserved("t", 2)
		held[i].Payload = []byte(`{"class":"C\u001b[31m","args":[]}`)
	}
	held[3].Payload = []byte("{")
	text := death{cause: "exit code 2"}.diedText(held, 0, fmt.Sprintf("death %d of %d", 3, 3))
	require.True(t, strings.HasSuffix(text, " and 3 more"), text)
	require.Contains(t, text, "a job of queue mail")
	require.NotContains(t, text, "\x1b")
}
