package master

import (
	"errors"
	"slices"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"github.com/resqued/resqued/internal/store"
)

func TestHeal(t *testing.T) {
	t.Parallel()
	unique := func(_ *fixture, c *Config) {
		c.Unique = store.UniqueQueues{Match: func(queue string) bool { return queue != "other" }}
	}
	healed := func(f *fixture) []string {
		synctest.Wait()
		f.redis.mu.Lock()
		defer f.redis.mu.Unlock()
		return slices.Clone(f.redis.healed)
	}

	bubble(t, "unique queues out of step are healed in each round", func(t *testing.T) {
		f := setup(t, unique)
		f.up(2)
		f.redis.set(func() { f.redis.uneven = []string{"a", "other", "b"} })
		f.wait(roundEvery * 2)
		require.Equal(t, []string{"a", "b"}, healed(f))
		f.redis.set(func() { f.redis.uneven = []string{"a"} })
		f.wait(roundEvery * 2)
		require.Equal(t, []string{"a", "b", "a"}, healed(f))
	})

	bubble(t, "an outage of Redis is waited for", func(t *testing.T) {
		f := setup(t, unique)
		f.up(2)
		f.redis.set(func() { f.redis.uneven, f.redis.down = []string{"a"}, errors.New("down") })
		f.wait(roundEvery * 2)
		require.Empty(t, healed(f))
		f.redis.set(func() { f.redis.down = nil })
		f.wait(roundEvery * 2)
		require.Equal(t, []string{"a"}, healed(f))
	})

	bubble(t, "queues that are to be left are not healed", func(t *testing.T) {
		f := setup(t, unique, func(_ *fixture, c *Config) { c.Unique.Leave = true })
		f.up(2)
		f.redis.set(func() { f.redis.uneven = []string{"a"} })
		f.wait(roundEvery * 2)
		require.Empty(t, healed(f))
	})

	bubble(t, "what is left of others is removed", func(t *testing.T) {
		f := setup(t, unique, func(_ *fixture, c *Config) { c.Unique.Leave = true })
		f.up(2)
		f.redis.set(func() { f.redis.left = []string{"a", "other"} })
		f.wait(leftoversEvery + roundEvery*2)
		synctest.Wait()
		f.redis.mu.Lock()
		defer f.redis.mu.Unlock()
		require.Equal(t, []string{"a"}, f.redis.left)
		require.LessOrEqual(t, f.redis.sweeps, 2)
	})
}
