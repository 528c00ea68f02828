package master

import (
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/resqued/resqued/internal/store"
	"github.com/resqued/resqued/internal/sys/proc"
)

func ends() proc.Message { return proc.Message{Type: proc.Ends} }

// ahead makes the first of two worker processes announce its end, and returns it and its ready
// successor.
func (f *fixture) ahead() (old, next *fakeChild) {
	f.t.Helper()
	old = f.up(2)[0]
	old.say(ends())
	require.Equal(f.t, 3, f.spawned())
	next = f.newest()
	require.Equal(f.t, []string{"welcome waiting"}, next.hello())
	next.ready()
	require.Empty(f.t, old.hear())
	require.Empty(f.t, next.hear())
	return old, next
}

func TestAhead(t *testing.T) {
	t.Parallel()

	bubble(t, "a successor is ready before it is needed, and works when the old one has stopped", func(t *testing.T) {
		f := setup(t)
		old, next := f.ahead()
		require.NotContains(t, f.m.status(""), "3 worker")
		require.NotContains(t, f.m.status(""), "retiring")
		old.say(retires("quota"))
		require.Equal(t, []string{"state running"}, next.hear())
		require.Empty(t, old.hear(), "it has told by itself")
		require.Equal(t, 3, f.spawned())
		old.leave(9, "")
		f.wait(time.Minute)
		require.Equal(t, 3, f.spawned())
		require.Len(t, f.sys.alive(), 2)
		f.sys.alive()[0].die(proc.Exit{Code: -1, Signal: syscall.SIGKILL})
		f.wait(5 * time.Second)
		f.newest().boot()
		f.wait(time.Minute)
		require.Equal(t, "died=1 jobs=1 memory=0 age=0 other=0", f.redis.shown(store.FieldEnds))
	})

	bubble(t, "one that boots when it is needed works as soon as it is ready", func(t *testing.T) {
		for _, greeted := range []bool{true, false} {
			f := setup(t)
			old := f.up(2)[0]
			old.say(ends())
			next := f.newest()
			if greeted {
				require.Equal(t, []string{"welcome waiting"}, next.hello())
			}
			old.say(retires("quota"))
			if greeted {
				require.Equal(t, []string{"state running"}, next.hear())
			} else {
				require.Equal(t, []string{"welcome running"}, next.hello())
			}
			next.ready()
			require.Equal(t, 3, f.spawned())
			old.leave(9, "")
			require.Equal(t, 3, f.spawned())
		}
	})

	bubble(t, "one waits at a time, and others are replaced meanwhile", func(t *testing.T) {
		f := setup(t, func(_ *fixture, c *Config) { c.Slots = 3 })
		up := f.up(3)
		for _, c := range up {
			c.say(ends())
		}
		f.up(1)
		f.wait(time.Second)
		require.Equal(t, 4, f.spawned())
		up[2].say(retires("quota"))
		require.Equal(t, 5, f.spawned())
		require.Equal(t, []string{"welcome running"}, f.newest().hello())
	})

	bubble(t, "it waits for room beside those that finish", func(t *testing.T) {
		f := setup(t)
		up := f.up(2)
		up[0].say(retires("quota"))
		f.up(1)
		up[1].say(ends())
		require.Equal(t, 4, f.spawned(), "one that waits needs no room")
		next := f.up(1)[0]
		next.hear()
		up[1].say(retires("quota"))
		require.Empty(t, next.hear(), "max_retiring is 1")
		up[0].say(proc.Message{Type: proc.Bye, Done: 9}) // nothing is left of it but its exit
		require.Equal(t, []string{"state running"}, next.hear())
	})

	bubble(t, "no slot waits where no process may be beside the full number", func(t *testing.T) {
		f := setup(t, func(_ *fixture, c *Config) { c.MaxRetiring = 0 })
		f.up(2)[0].say(ends())
		require.Equal(t, 2, f.spawned())
	})

	bubble(t, "it takes the place of one that dies, or is too old", func(t *testing.T) {
		f := setup(t)
		old, next := f.ahead()
		old.crash()
		require.Equal(t, []string{"state running"}, next.hear())

		f = setup(t)
		old, next = f.ahead()
		old.say(retires("age"))
		require.Equal(t, []string{"state running"}, next.hear())
		require.Equal(t, []string{"retire"}, old.hear())
		require.Equal(t, 3, f.spawned())
	})

	bubble(t, "one that dies while it waits costs the old one nothing", func(t *testing.T) {
		f := setup(t)
		old, next := f.ahead()
		next.crash()
		require.Empty(t, old.hear())
		f.wait(firstDelay)
		require.Equal(t, 4, f.spawned())
	})

	bubble(t, "one that is not needed leaves, and no other comes until the old one stops", func(t *testing.T) {
		f := setup(t)
		old, next := f.ahead()
		f.wait(aheadAtMost)
		require.Equal(t, []string{"retire"}, next.hear())
		next.leave(0, "")
		f.wait(time.Hour)
		require.Equal(t, 3, f.spawned())
		require.Empty(t, old.hear())
		old.say(retires("quota"))
		require.Equal(t, 4, f.spawned())
	})

	bubble(t, "a new configuration does not wait for it", func(t *testing.T) {
		f := setup(t)
		_, next := f.ahead()
		f.reload = func() (Config, error) {
			return Config{Slots: 2, Threads: 4, MaxRetiring: 1, MaxDeaths: 3, Worker: []byte("two")}, nil
		}
		f.signal(syscall.SIGHUP)
		require.Equal(t, []string{"retire"}, next.hear())
		require.Equal(t, []byte("two"), f.newest().spec.Config)
	})

	bubble(t, "a pause is passed on when its turn comes", func(t *testing.T) {
		f := setup(t)
		old, next := f.ahead()
		f.signal(syscall.SIGUSR2)
		require.Empty(t, next.hear())
		old.say(retires("quota"))
		require.Equal(t, []string{"state paused"}, next.hear())
	})

	bubble(t, "one job at a time stays one at a time", func(t *testing.T) {
		f := setup(t, func(_ *fixture, c *Config) { c.Slots, c.Threads = 1, 1 })
		old := f.up(1)[0]
		old.say(ends())
		next := f.newest()
		require.Equal(t, []string{"welcome waiting"}, next.hello())
		next.ready()
		old.say(retires("quota"))
		require.Empty(t, next.hear())
		old.leave(9, "")
		require.Equal(t, []string{"state running"}, next.hear())
	})

	bubble(t, "worker processes are told how long a start takes", func(t *testing.T) {
		f := setup(t)
		require.Zero(t, f.m.lead)
		first := f.newest()
		first.hello()
		f.wait(40 * time.Millisecond)
		first.ready()
		require.Equal(t, 40*time.Millisecond, f.m.lead)
		second := f.newest()
		second.say(proc.Message{Type: proc.Hello, Protocol: proc.Protocol})
		require.Equal(t, 40*time.Millisecond, second.heard[0].Lead)
		f.wait(80 * time.Millisecond)
		second.ready()
		require.Equal(t, 50*time.Millisecond, f.m.lead)
	})
}
