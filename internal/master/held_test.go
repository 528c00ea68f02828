package master

import (
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// A reload that is held takes effect when that is said, and is as if it had not been otherwise.
func TestHeldReload(t *testing.T) {
	t.Parallel()

	// held begins one, and returns its first worker process, which is ready.
	held := func(t *testing.T) (f *fixture, up []*fakeChild, c *fakeChild, dropped *int) {
		t.Helper()
		dropped = new(int)
		f, up = reloading(t, 2, func(c *Config) { c.Dropped = func() { *dropped++ } })
		verdict := f.ask(Request{Hold: true})
		require.Equal(t, 3, f.spawned())
		c = f.newest()
		require.Equal(t, []byte("two"), c.spec.Config)
		require.Empty(t, verdict)
		require.Equal(t, []string{"welcome waiting"}, c.hello())
		c.ready()
		require.Equal(t, Verdict{OK: true, Text: "its first worker process is ready with the new configuration"}, <-verdict)
		require.Empty(t, up[0].hear())
		require.Empty(t, up[1].hear())
		return f, up, c, dropped
	}
	// same requires that the old configuration is in force, and the held process told to leave.
	same := func(t *testing.T, f *fixture, c *fakeChild, before any, dropped int) {
		t.Helper()
		require.Equal(t, 1, dropped)
		require.Equal(t, []string{"retire"}, c.hear())
		c.leave(0, "")
		require.Equal(t, before, f.standing())
		require.Equal(t, 3, f.spawned())
		require.Equal(t, 2, f.systemd.count("ready"))
	}

	bubble(t, "taken", func(t *testing.T) {
		f, up, c, dropped := held(t)
		f.wait(heldFor / 2)
		require.Empty(t, c.hear())
		v := <-f.ask(Request{Take: true})
		require.True(t, v.OK)
		require.Contains(t, v.Text, "the new configuration is in force")
		require.Equal(t, []string{"state running"}, c.hear())
		gone := 0
		for _, old := range up {
			for _, word := range old.hear() {
				require.Equal(t, "retire", word)
				gone++
				old.leave(5, "")
			}
		}
		require.Equal(t, 1, gone)
		require.Equal(t, 4, f.spawned(), "the other slot follows")
		require.Zero(t, *dropped)
	})

	bubble(t, "dropped", func(t *testing.T) {
		f, _, c, dropped := held(t)
		before := f.standing()
		require.Equal(t, Verdict{OK: true, Text: "the old configuration stays"}, <-f.ask(Request{Drop: true}))
		same(t, f, c, before, *dropped)
		require.True(t, (<-f.ask(Request{Drop: true})).OK, "there is nothing to drop any more")
	})

	bubble(t, "forgotten by who has asked", func(t *testing.T) {
		f, _, c, dropped := held(t)
		before := f.standing()
		f.wait(heldFor + time.Second)
		same(t, f, c, before, *dropped)
	})

	bubble(t, "its process dies", func(t *testing.T) {
		f, _, c, dropped := held(t)
		before := f.standing()
		c.crash()
		require.Equal(t, before, f.standing())
		require.Equal(t, 1, *dropped)
		verdict := f.ask(Request{Take: true}) // a reload of its own
		require.Equal(t, 4, f.spawned())
		f.newest().boot()
		require.Contains(t, (<-verdict).Text, "the new configuration is in force")
	})

	bubble(t, "the old process of its slot dies", func(t *testing.T) {
		f, up, c, _ := held(t)
		before := f.m.slots[f.m.roll.held.slot.number].current.child.(*fakeChild)
		require.Contains(t, up, before)
		before.crash()
		require.Equal(t, 3, f.spawned())
		<-f.ask(Request{Drop: true})
		c.leave(0, "")
		f.wait(time.Minute)
		require.Equal(t, []byte("one"), f.newest().spec.Config)
	})

	bubble(t, "the daemon stops", func(t *testing.T) {
		f, _, c, dropped := held(t)
		f.signal(syscall.SIGTERM)
		require.Equal(t, 1, *dropped)
		require.Contains(t, c.hear()[0], "kill")
	})

	bubble(t, "another one asks, too", func(t *testing.T) {
		f, _ := reloading(t, 1, nil)
		verdict := f.ask(Request{Hold: true})
		other := f.ask(Request{})
		f.newest().boot()
		require.True(t, (<-verdict).OK)
		require.Empty(t, other, "it waits for the decision")
		require.True(t, (<-f.ask(Request{Drop: true})).OK)
		require.Equal(t, 3, f.spawned())
		f.newest().boot()
		require.Contains(t, (<-other).Text, "the new configuration is in force")
	})
}
