package store_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/resqued/resqued/internal/store"
	"github.com/resqued/resqued/internal/testkit/redistest"
)

// here returns the processes of a place.
func (f *fixture) here(place string) []string {
	f.t.Helper()
	around, err := f.LookAround(f.t.Context(), "", place, "")
	require.NoError(f.t, err)
	return around.Local
}

func TestLocalProcesses(t *testing.T) {
	t.Parallel()
	redistest.Both(t, func(t *testing.T, server *redistest.Server) {
		t.Run("from their registration to their end", func(t *testing.T) {
			f := setup(t, server)
			require.Empty(t, f.here("a:b"))
			for _, proc := range []string{"a:b:2-3:1.0", "a:b:2-3:0.0", "a:b2:2-3:0.0", "a:b:c:2-3:0.0", "a:b"} {
				f.register(proc)
			}
			require.Equal(t, []string{"a:b:2-3:0.0", "a:b:2-3:1.0"}, f.here("a:b"))
			require.Equal(t, []string{"a:b:c:2-3:0.0"}, f.here("a:b:c"))
			_, err := f.Unregister(t.Context(), "a:b:2-3:1.0")
			require.NoError(t, err)
			require.Equal(t, []string{"a:b:2-3:0.0"}, f.here("a:b"))
			_, _, err = f.Fence(t.Context(), "a:b:2-3:0.0", true)
			require.NoError(t, err)
			require.Equal(t, []string{"a:b:2-3:0.0"}, f.here("a:b"), "one that waits for its recovery")
			require.NoError(t, f.Recover(t.Context(), "a:b:2-3:0.0", nil))
			require.Empty(t, f.here("a:b"))
			require.False(t, f.exists("resqued:place:a:b"))
		})
		t.Run("one that is no longer among the processes", func(t *testing.T) {
			f := setup(t, server)
			f.register("a:b:2-3:0.0")
			f.register("a:b:2-3:1.0")
			require.NoError(t, f.redis.ZRem(t.Context(), f.key("resqued:procs"), "a:b:2-3:0.0").Err())
			require.Equal(t, []string{"a:b:2-3:1.0"}, f.here("a:b"))
			require.Equal(t, []string{"a:b:2-3:1.0"}, f.redis.SMembers(t.Context(), f.key("resqued:place:a:b")).Val())
		})
		t.Run("beside a key of another type", func(t *testing.T) {
			f := setup(t, server)
			f.put("resqued:place:a:b", "text")
			f.register("a:b:2-3:0.0")
			require.Empty(t, f.here("a:b"), "it waits for its lease")
			_, err := f.Unregister(t.Context(), "a:b:2-3:0.0")
			require.NoError(t, err)
			require.False(t, f.exists("resqued:proc:a:b:2-3:0.0"))
			require.Equal(t, "text", f.get("resqued:place:a:b"))
		})
	})
}

// TestFencedProcessOfALivingMaster: who has fenced its own process knows how that ended, and no
// other master decides about its jobs between the two steps.
func TestFencedProcessOfALivingMaster(t *testing.T) {
	t.Parallel()
	redistest.Both(t, func(t *testing.T, server *redistest.Server) {
		f := setup(t, server)
		const own, proc, loose = "a:b:2-3", "a:b:2-3:0.0", "named otherwise"
		orphans := func(self string) []string {
			around, err := f.LookAround(t.Context(), "", "", self)
			require.NoError(t, err)
			return around.Orphans
		}
		_, err := f.PutMaster(t.Context(), store.MasterInfo{ID: own, TTL: time.Minute, Fields: map[string]string{"a": "b"}})
		require.NoError(t, err)
		f.register(proc)
		f.register(loose)
		for _, name := range []string{proc, loose} {
			_, _, err = f.Fence(t.Context(), name, true)
			require.NoError(t, err)
		}
		require.Equal(t, []string{loose}, orphans("c:d:4-5"))
		require.ElementsMatch(t, []string{loose, proc}, orphans(own))
		require.ElementsMatch(t, []string{loose, proc}, orphans(""))
		require.NoError(t, f.redis.Del(t.Context(), f.key("resqued:master:"+own)).Err(), "it was not heard of any more")
		require.ElementsMatch(t, []string{loose, proc}, orphans("c:d:4-5"))
	})
}

// TestLookAroundOfAFleet: what a look costs grows with the masters only to a bound, and with the
// processes elsewhere not at all; and all masters that have gone are removed.
func TestLookAroundOfAFleet(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t, redistest.Options{})
	f := setup(t, server)
	commands := func() int { return server.Commands(t) }
	f.register("a:b:2-3:0.0")
	master := func(i int) string { return fmt.Sprintf("host%d:b:2-3", i) }
	cost, lease := map[int]int{}, time.Now().Add(30*time.Second).UnixMilli()
	for hosts := range 1001 {
		_, err := f.PutMaster(t.Context(), store.MasterInfo{ID: master(hosts), TTL: time.Minute, Fields: map[string]string{"shared": "x"}})
		require.NoError(t, err)
		f.redis.ZAdd(t.Context(), f.key("resqued:procs"), redis.Z{Score: float64(lease), Member: master(hosts) + ":0.0"})
		if hosts == 16 || hosts == 1000 {
			f.here("a:b")
			before := commands()
			require.Equal(t, []string{"a:b:2-3:0.0"}, f.here("a:b"))
			cost[hosts] = commands() - before
		}
	}
	t.Log("commands by hosts:", cost)
	require.LessOrEqual(t, cost[1000], cost[16]+2)
	for i := range 100 {
		require.NoError(t, f.redis.Del(t.Context(), f.key("resqued:master:"+master(10*i))).Err())
	}
	for looks := 0; f.redis.SCard(t.Context(), f.key("resqued:masters")).Val() > 901; looks++ {
		require.Less(t, looks, 5000, "they are never found")
		f.here("a:b")
	}
}
