package store_test

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/resqued/resqued/internal/store"
	"github.com/resqued/resqued/internal/testkit/redistest"
	"github.com/resqued/resqued/internal/testkit/storetest"
)

// pruneModel compares which names of queues are removed, and come back, with which should.
type pruneModel struct {
	store *store.Store
	redis *redis.Client
	ctx   context.Context //nolint:containedctx // of the test
	space string

	walk  string // where it is
	names map[string]*prunable
	// announced are pushes by Ruby of which the first step is done: the name was added.
	announced []string
}

// prunable is a queue as the model knows it.
type prunable struct {
	known, empty bool // it has a name; it was seen empty
	removed, old bool // its name was removed; long ago
	jobs         int
	paused       bool
	beside       string // a key that belongs to it
}

func (m *pruneModel) key(name string) string { return m.space + name }

func (m *pruneModel) run(t *rapid.T) {
	require.NoError(t, m.redis.Del(m.ctx, append(m.redis.Keys(m.ctx, m.space+"*").Val(), "none")...).Err())
	m.walk, m.announced = "", nil
	m.names = map[string]*prunable{"a": {}, "b": {}, "c": {}}
	steps := []func(*rapid.T, string, *prunable){
		m.announce, m.announce, m.push, m.push, m.take, m.take, m.pause, m.keep, m.step, m.step, m.step, m.prune, m.prune, m.byHand, m.remove, m.look, m.age,
	}
	for range rapid.IntRange(1, 60).Draw(t, "steps") {
		queue := rapid.SampledFrom([]string{"a", "b", "c"}).Draw(t, "queue")
		steps[rapid.IntRange(0, len(steps)-1).Draw(t, "step")](t, queue, m.names[queue])
		m.check(t)
	}
	for len(m.announced) > 0 {
		m.push(t, "", nil)
	}
	m.look(t, "", nil)
	m.begin(t)
	for m.walk != "" {
		m.step(t, "", nil)
	}
	for queue, q := range m.names {
		require.Equal(t, q.known, q.known || q.jobs > 0, "jobs of %s are out of sight", queue)
	}
	m.check(t)
}

// check compares Redis with the model.
func (m *pruneModel) check(t *rapid.T) {
	var known []string
	for queue, q := range m.names {
		require.EqualValues(t, q.jobs, m.redis.LLen(m.ctx, m.key("queue:"+queue)).Val(), queue)
		if q.known {
			known = append(known, queue)
			require.Equal(t, q.empty, m.redis.ZScore(m.ctx, m.key("resqued:empty"), queue).Err() == nil, "whether %s was seen empty", queue)
		} else if q.jobs > 0 {
			require.True(t, q.removed, "jobs of %s are out of sight", queue)
		}
	}
	require.ElementsMatch(t, known, m.redis.SMembers(m.ctx, m.key("queues")).Val())
}

// announce and push are Ruby's two steps of a push.
func (m *pruneModel) announce(t *rapid.T, queue string, q *prunable) {
	require.NoError(t, m.redis.SAdd(m.ctx, m.key("queues"), queue).Err())
	m.announced, q.known = append(m.announced, queue), true
}

func (m *pruneModel) push(t *rapid.T, _ string, _ *prunable) {
	if len(m.announced) == 0 {
		return
	}
	i := rapid.IntRange(0, len(m.announced)-1).Draw(t, "which")
	queue := m.announced[i]
	m.announced = slices.Delete(m.announced, i, i+1)
	require.NoError(t, m.redis.RPush(m.ctx, m.key("queue:"+queue), "{}").Err())
	m.names[queue].jobs++
}

func (m *pruneModel) take(t *rapid.T, queue string, q *prunable) {
	require.NoError(t, ignoreNil(m.redis.LPop(m.ctx, m.key("queue:"+queue)).Err()))
	q.jobs = max(q.jobs-1, 0)
}

func (m *pruneModel) pause(t *rapid.T, queue string, q *prunable) {
	if q.paused = !q.paused; q.paused {
		require.NoError(t, m.redis.Set(m.ctx, m.key("pause:queue:"+queue), "true", 0).Err())
	} else {
		require.NoError(t, m.redis.Del(m.ctx, m.key("pause:queue:"+queue)).Err())
	}
}

// keep writes, or removes, what keeps the name of a queue.
func (m *pruneModel) keep(t *rapid.T, queue string, q *prunable) {
	if q.beside != "" {
		require.NoError(t, m.redis.Del(m.ctx, m.key(q.beside)).Err())
		q.beside = ""
		return
	}
	q.beside = rapid.SampledFrom([]string{"queue:" + queue + ":uniqueue", "queue:" + queue + ":start_at", "resqued:deaths:" + queue}).Draw(t, "beside")
	require.NoError(t, m.redis.RPush(m.ctx, m.key(q.beside), "1").Err())
}

func (m *pruneModel) begin(t require.TestingT) {
	require.NoError(t, m.redis.Del(m.ctx, m.key("resqued:sweeper")).Err())
	m.walk = ""
	next, err := m.store.SweepQueues(m.ctx, "me", time.Hour, "")
	require.NoError(t, err)
	m.walk = next.At
	require.Equal(t, "p0", next.At, "so few are looked at in one step")
	for _, q := range m.names {
		if q.known {
			q.empty = q.jobs == 0 && !q.paused && q.beside == ""
		}
	}
}

// step goes on with a walk, or begins one.
func (m *pruneModel) step(t *rapid.T, _ string, _ *prunable) {
	if m.walk == "" {
		m.begin(t)
		return
	}
	next, err := m.store.SweepQueues(m.ctx, "me", time.Hour, m.walk)
	require.NoError(t, err)
	require.Empty(t, next.At)
	m.walk = ""
	m.comeBack(false)
}

// comeBack is that removed queues with jobs get their names back.
func (m *pruneModel) comeBack(recent bool) {
	for _, q := range m.names {
		if q.removed && q.jobs > 0 && (!recent || !q.old) {
			q.known, q.removed = true, false
		}
	}
}

func (m *pruneModel) prune(t *rapid.T, queue string, q *prunable) {
	pruned, err := m.store.PruneIdle(m.ctx, queue, 0)
	require.NoError(t, err)
	require.Equal(t, q.known && q.empty && q.jobs == 0 && !q.paused && q.beside == "", pruned)
	m.pruned(q, pruned)
}

func (m *pruneModel) pruned(q *prunable, pruned bool) {
	if pruned {
		q.known, q.removed, q.old, q.empty = false, true, false, false
	} else if !q.known && q.jobs == 0 && !q.paused && q.beside == "" {
		q.empty = false
	}
}

func (m *pruneModel) byHand(t *rapid.T, queue string, q *prunable) {
	pruned, err := m.store.PruneQueue(m.ctx, queue)
	require.NoError(t, err)
	require.Equal(t, q.known && q.jobs == 0 && !q.paused, pruned)
	m.pruned(q, pruned)
	if pruned && q.beside != "" {
		require.Zero(t, m.redis.Exists(m.ctx, m.key(q.beside)).Val(), "what is known of it goes, too")
		q.beside = ""
	}
}

func (m *pruneModel) remove(t *rapid.T, queue string, q *prunable) {
	_, err := m.store.RemoveQueue(m.ctx, queue, false)
	require.NoError(t, err)
	m.pruned(q, q.known)
	q.jobs, q.beside, q.empty = 0, "", false
}

// look is what masters do every few seconds.
func (m *pruneModel) look(t *rapid.T, _ string, _ *prunable) {
	require.NoError(t, m.redis.Del(m.ctx, m.key("resqued:pruned:look")).Err())
	_, _, err := m.store.Orphans(m.ctx)
	require.NoError(t, err)
	m.comeBack(true)
}

// age lets names have been removed long ago.
func (m *pruneModel) age(t *rapid.T, queue string, q *prunable) {
	if q.removed {
		require.NoError(t, m.redis.ZIncrBy(m.ctx, m.key("resqued:pruned"), -600_000, queue).Err())
		q.old = true
	}
}

func ignoreNil(err error) error {
	if err == redis.Nil { //nolint:errorlint // of the client itself
		return nil
	}
	return err
}

func TestPruneModel(t *testing.T) {
	t.Parallel()
	redistest.Both(t, func(t *testing.T, server *redistest.Server) {
		f := setup(t, server)
		m := &pruneModel{store: f.Store, redis: f.redis, ctx: t.Context(), space: f.ns + ":"}
		rapid.Check(t, m.run)
	})
}

// pruneMutants are scripts with a defect each, which the model finds.
var pruneMutants = []storetest.Mutant{
	{"the name of a queue with jobs is removed", "prune_queue", `if len(key) + len(aside) > 0 or query(`, `if query(`},
	{"the name of a paused queue is removed", "prune_queue", ` or query('EXISTS', prefix .. 'pause:queue:' .. queue) == 1 then`, ` then`},
	{"a name is removed that was not seen empty", "prune_queue", `if type(since) ~= 'string' or tonumber(since) > ms - tonumber(ARGV[3]) then return 0 end`, ``},
	{"companions do not keep a name", "prune_queue", `key .. ':uniqueue', key .. ':start_at', prefix .. 'resqued:deaths:' .. queue) > 0`, `key) > 0`},
	{"a name that was removed is not looked for", "prune_queue", `pruned.note(prefix, queue, ms)`, ``},
	{"a queue that was removed is not looked for", "remove_queue", `pruned.note(prefix, queue, (now()))`, `local _ = 0`},
	{"names that were just removed are not looked at", "orphans", `pruned.recent(prefix, ms)`, ``},
	{"names that were removed long ago are not looked at", "sweep_queues", `local back = pruned.back(prefix, names)`, `local back = 0`},
	{"a queue that was seen with jobs counts as empty", "sweep_queues", `call('ZREM', idle,`, `call('ZSCORE', idle, '') local _ = (`},
	{"a queue with a companion counts as empty", "sweep_queues", `key, key .. ':uniqueue', key .. ':start_at', prefix`, `key, prefix`},
	{"a name does not come back", "pruned", `not refused(pcall_('SADD', prefix .. 'queues', names[i]))`, `true`},
}

func TestPruneModelFindsDefects(t *testing.T) {
	t.Parallel()
	defects := storetest.Defects{Mutants: pruneMutants, Prepare: storetest.OnRig(func(r *storetest.Rig, t *rapid.T) {
		(&pruneModel{store: r.Store, redis: r.Redis, ctx: r.Ctx, space: storetest.Space}).run(t)
	})}
	defects.Find(t)
}

// TestSweepQueues: a walk goes through all names in steps, and is that of one caller.
func TestSweepQueues(t *testing.T) {
	t.Parallel()
	redistest.Both(t, func(t *testing.T, server *redistest.Server) {
		f := setup(t, server)
		const n = 3000
		names := map[string]bool{}
		for i := range n {
			names[fmt.Sprintf("q%d", i)] = true
		}
		require.NoError(t, f.redis.SAdd(t.Context(), f.key("queues"), slices.Collect(maps.Keys(names))).Err())
		f.push("q7", job("A", "[1]"))
		sweep := func(caller, at string) store.Sweep {
			next, err := f.SweepQueues(t.Context(), caller, time.Hour, at)
			require.NoError(t, err)
			return next
		}
		at, steps := sweep("one", ""), 1
		for ; at.At != ""; steps++ {
			require.Empty(t, sweep("two", "").At, "it is the turn of one")
			require.Empty(t, sweep("two", at.At).At, "it is the walk of one")
			at = sweep("one", at.At)
		}
		require.Greater(t, steps, 5)
		require.Empty(t, sweep("one", "").At, "not again, within that time")
		idle, err := f.IdleQueues(t.Context(), at.Now.Add(time.Hour), n)
		require.NoError(t, err)
		delete(names, "q7")
		require.ElementsMatch(t, slices.Collect(maps.Keys(names)), idle)

		some, err := f.IdleQueues(t.Context(), at.Now.Add(-time.Hour), n)
		require.NoError(t, err)
		require.Empty(t, some, "they have not been empty for so long")
		pruned, err := f.PruneIdle(t.Context(), "q8", time.Hour)
		require.NoError(t, err)
		require.False(t, pruned)
		require.NoError(t, f.KeepQueues(t.Context(), at.Now.Add(time.Hour), []string{"q8", "none"}))
		pruned, err = f.PruneIdle(t.Context(), "q8", 0)
		require.NoError(t, err)
		require.False(t, pruned, "it was kept")
		require.EqualValues(t, n-1, f.redis.ZCard(t.Context(), f.key("resqued:empty")).Val(), "what is not known is not kept")

		// Its clock was set back: q8 would stay for as long.
		require.NoError(t, f.redis.Del(t.Context(), f.key("resqued:sweeper")).Err())
		sweep("one", "")
		require.LessOrEqual(t, f.redis.ZScore(t.Context(), f.key("resqued:empty"), "q8").Val(), float64(at.Now.Add(time.Minute).UnixMilli()))

		// One whose jobs wait for turns is not empty, whatever the list holds.
		f.push("q6", jobsOf("a", 0, 3)...)
		require.Len(t, f.fairly(1, nil, fair(byArg, "q6")...), 1)
		require.Empty(t, f.list("queue:q6"))
		require.NoError(t, f.redis.Del(t.Context(), f.key("resqued:sweeper")).Err())
		for at = sweep("one", ""); at.At != ""; {
			at = sweep("one", at.At)
		}
		require.ErrorIs(t, f.redis.ZScore(t.Context(), f.key("resqued:empty"), "q6").Err(), redis.Nil)

		require.NoError(t, f.redis.Set(t.Context(), f.key("resqued:pruned"), "odd", 0).Err())
		_, err = f.SweepQueues(t.Context(), "one", time.Hour, "q0")
		require.ErrorContains(t, err, "is not a sorted set")
		_, err = f.PruneQueue(t.Context(), "q9")
		require.Error(t, err)
		require.True(t, f.redis.SIsMember(t.Context(), f.key("queues"), "q9").Val(), "nothing was done")
	})
}

// TestQueueUsers: who names queues.
func TestQueueUsers(t *testing.T) {
	t.Parallel()
	redistest.Both(t, func(t *testing.T, server *redistest.Server) {
		f := setup(t, server)
		_, err := f.PutMaster(t.Context(), store.MasterInfo{ID: "one", TTL: time.Hour, Fields: map[string]string{"queues": "a:2,b"}})
		require.NoError(t, err)
		require.NoError(t, f.redis.SAdd(t.Context(), f.key("resqued:masters"), "gone").Err())
		require.NoError(t, f.redis.SAdd(t.Context(), f.key("workers"), "host:1:c,d").Err())
		require.NoError(t, f.redis.HSet(t.Context(), f.key("resqued:schedules"), "s", `{"queue":"e"}`).Err())
		require.NoError(t, f.redis.HSet(t.Context(), f.key("persistent_schedules"), "s", `{"queue":"g"}`).Err())
		users, err := f.QueueUsers(t.Context())
		require.NoError(t, err)
		require.ElementsMatch(t, []string{"a:2,b", ""}, users.Masters)
		require.Contains(t, users.Workers, "host:1:c,d")
		require.Equal(t, []string{`{"queue":"e"}`, `{"queue":"g"}`}, users.Schedules)
	})
}
