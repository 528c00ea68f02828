package master

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"

	"github.com/resqued/resqued/internal/sys/proc"
)

func TestMemory(t *testing.T) {
	t.Parallel()
	const limit = 100 << 20
	// begin starts the newest process, with the given memory when ready.
	begin := func(f *fixture, rss int64) *fakeChild {
		c := f.newest()
		c.rss = rss
		c.boot()
		return c
	}
	large := func(c *fakeChild, rss int64) {
		c.say(proc.Message{Type: proc.Retires, Reason: "memory", RSS: rss, MaxRSS: limit})
	}
	one := func(_ *fixture, c *Config) { c.Slots = 1 }

	bubble(t, "a process that has grown is replaced, and it is said what it took", func(t *testing.T) {
		f := setup(t, one)
		c := begin(f, 20<<20)
		large(c, limit+1)
		f.wait(grownAfter - time.Millisecond)
		require.Equal(t, 1, f.spawned(), "not at once")
		f.wait(time.Millisecond)
		require.Equal(t, 2, f.spawned())
		logs := f.logs.FilterMessageSnippet("its memory is above max_rss").All()
		require.Len(t, logs, 1)
		require.Equal(t, zap.InfoLevel, logs[0].Level)
		require.EqualValues(t, limit, logs[0].ContextMap()["max_rss"])
		require.EqualValues(t, limit+1, logs[0].ContextMap()["rss"])
		require.EqualValues(t, 20<<20, logs[0].ContextMap()["rss_when_ready"])
	})

	bubble(t, "one that was too large from its start goes on working, longer each time, and it is said why", func(t *testing.T) {
		f := setup(t, one)
		const hours = 2
		began := time.Now()
		var lives []time.Duration
		c := begin(f, limit+1)
		for time.Since(began) < hours*time.Hour {
			spawned, ready := f.spawned(), time.Now()
			large(c, limit+2<<20)
			for f.spawned() == spawned {
				require.Empty(t, c.hear(), "it goes on")
				f.wait(time.Second)
			}
			lives = append(lives, time.Since(ready))
			next := begin(f, limit+1)
			require.Equal(t, []string{"retire"}, c.hear())
			c.leave(1, "")
			c = next
		}
		require.Less(t, len(lives), 22)
		require.Equal(t, []time.Duration{10 * time.Second, 20 * time.Second, 40 * time.Second}, lives[:3])
		require.Equal(t, swollenLongest, lives[len(lives)-1])
		logs := f.logs.FilterMessageSnippet("raise max_rss").All()
		require.NotEmpty(t, logs)
		require.LessOrEqual(t, len(logs), len(lives))
		require.Equal(t, zap.WarnLevel, logs[0].Level)
		require.EqualValues(t, limit+1, logs[0].ContextMap()["rss_when_ready"])
	})

	bubble(t, "and is replaced at once if it grows meanwhile", func(t *testing.T) {
		f := setup(t, one)
		c := begin(f, limit+1)
		large(c, limit+2)
		f.wait(5 * time.Second)
		c.say(proc.Message{Type: proc.Beat, RSS: limit + 10<<20})
		require.Equal(t, 1, f.spawned())
		c.say(proc.Message{Type: proc.Beat, RSS: 2 * limit})
		require.Equal(t, 2, f.spawned())
	})
}
