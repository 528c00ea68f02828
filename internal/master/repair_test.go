package master

import (
	"errors"
	"slices"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"github.com/resqued/resqued/internal/store"
)

func TestRepair(t *testing.T) {
	t.Parallel()
	unique := func(_ *fixture, c *Config) {
		c.Unique = store.UniqueQueues{Match: func(queue string) bool { return queue != "other" }}
	}
	repaired := func(f *fixture) []string {
		synctest.Wait()
		f.redis.mu.Lock()
		defer f.redis.mu.Unlock()
		return slices.Clone(f.redis.repaired)
	}

	bubble(t, "unique queues out of step are repaired in each round", func(t *testing.T) {
		f := setup(t, unique)
		f.up(2)
		f.redis.set(func() { f.redis.uneven = []string{"a", "other", "b"} })
		f.wait(roundEvery * 2)
		require.Equal(t, []string{"a", "b"}, repaired(f))
		f.redis.set(func() { f.redis.uneven = []string{"a"} })
		f.wait(roundEvery * 2)
		require.Equal(t, []string{"a", "b", "a"}, repaired(f))
	})

	bubble(t, "what a repair has dropped is logged and counted", func(t *testing.T) {
		f := setup(t, unique)
		f.up(2)
		payload := `{"class":"Mail","args":["secret"]}`
		f.redis.set(func() {
			f.redis.uneven, f.redis.repair = []string{"a"}, store.UniqueReport{Duplicates: 7, Dropped: []string{payload, "{"}}
		})
		f.wait(roundEvery * 2)
		f.redis.set(func() { f.redis.uneven = []string{"a"} })
		f.wait(roundEvery * 2)
		require.Len(t, repaired(f), 2)
		logs := f.logs.FilterMessageSnippet("were repaired").All()
		require.Len(t, logs, 2, "no drop goes unsaid")
		fields := logs[0].ContextMap()
		require.Equal(t, "a", fields["queue"])
		require.EqualValues(t, 7, fields["dropped"])
		require.Equal(t, []any{"Mail", ""}, fields["classes"])
		require.Equal(t, []int{7, 7}, f.died.repairs)
	})

	bubble(t, "a repair that drops nothing is logged once a minute", func(t *testing.T) {
		f := setup(t, unique)
		f.up(2)
		for range 3 {
			f.redis.set(func() { f.redis.uneven, f.redis.repair = []string{"a"}, store.UniqueReport{MembersAdded: 1} })
			f.wait(roundEvery * 2)
		}
		require.Len(t, repaired(f), 3)
		require.Equal(t, 1, f.logs.FilterMessageSnippet("were repaired").Len())
		require.Equal(t, []int{0, 0, 0}, f.died.repairs)
	})

	bubble(t, "a queue that is too long is left, and says what to run", func(t *testing.T) {
		f := setup(t, unique)
		f.up(2)
		f.redis.set(func() {
			f.redis.uneven, f.redis.repair = []string{"a"}, store.UniqueReport{Jobs: 1_000_000, TooLong: true}
		})
		f.wait(roundEvery * 4)
		require.Empty(t, repaired(f))
		require.Equal(t, 1, f.logs.FilterMessageSnippet("run: resqued locks repair a").Len())
		require.Empty(t, f.died.repairs)
	})

	bubble(t, "an outage of Redis is waited for", func(t *testing.T) {
		f := setup(t, unique)
		f.up(2)
		f.redis.set(func() { f.redis.uneven, f.redis.down = []string{"a"}, errors.New("down") })
		f.wait(roundEvery * 2)
		require.Empty(t, repaired(f))
		f.redis.set(func() { f.redis.down = nil })
		f.wait(roundEvery * 2)
		require.Equal(t, []string{"a"}, repaired(f))
	})

	bubble(t, "queues that are to be left are not repaired", func(t *testing.T) {
		f := setup(t, unique, func(_ *fixture, c *Config) { c.Unique.Leave = true })
		f.up(2)
		f.redis.set(func() { f.redis.uneven = []string{"a"} })
		f.wait(roundEvery * 2)
		require.Empty(t, repaired(f))
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
