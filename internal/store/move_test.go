package store_test

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/resqued/resqued/internal/store"
	"github.com/resqued/resqued/internal/testkit/redistest"
	"github.com/resqued/resqued/internal/testkit/storetest"
)

func anything([]byte) (string, bool) { return "", true }

func picking(part string) func([]byte) (string, bool) {
	return func(payload []byte) (string, bool) { return "", strings.Contains(string(payload), part) }
}

// moveModel compares what a move does with what it should.
type moveModel struct {
	store *store.Store
	redis *redis.Client
	ctx   context.Context //nolint:containedctx // of the test
	space string
}

func (m *moveModel) list(key string) []string { return m.redis.LRange(m.ctx, m.space+key, 0, -1).Val() }

func (m *moveModel) push(t *rapid.T, queue string, unique bool, payloads []string) {
	if len(payloads) == 0 {
		return
	}
	if !unique {
		_, err := m.store.Push(m.ctx, queue, bytesOf(payloads...)...)
		require.NoError(t, err)
		return
	}
	_, err := m.store.PushUnique(m.ctx, queue, true, bytesOf(payloads...)...)
	require.NoError(t, err)
	for i := range payloads {
		require.NoError(t, m.redis.LSet(m.ctx, m.space+"queue:"+queue+":start_at", int64(i), strconv.Itoa(1000+i)).Err())
	}
}

// even demands that the companions of a unique queue match it.
func (m *moveModel) even(t *rapid.T, queue string) {
	list, members := m.list("queue:"+queue), m.redis.SMembers(m.ctx, m.space+"queue:"+queue+":uniqueue").Val()
	require.Equal(t, sorted(list), sorted(members))
	require.Len(t, m.list("queue:"+queue+":start_at"), len(list))
}

func (m *moveModel) run(t *rapid.T) {
	for _, queue := range []string{"from", "to"} {
		m.redis.Del(m.ctx, m.space+"queue:"+queue, m.space+"queue:"+queue+":uniqueue", m.space+"queue:"+queue+":start_at")
	}
	draw := func(label string, bound int, unique bool) []string {
		var out []string
		for range rapid.IntRange(0, bound).Draw(t, label) {
			p := job(rapid.SampledFrom([]string{"A", "B"}).Draw(t, "class"), fmt.Sprintf("[%d]", rapid.IntRange(0, 5).Draw(t, "arg")))
			if !unique || !slices.Contains(out, p) {
				out = append(out, p)
			}
		}
		return out
	}
	uniqueSource, uniqueTarget := rapid.Bool().Draw(t, "source unique"), rapid.Bool().Draw(t, "target unique")
	source, target := draw("source", 25, uniqueSource), draw("target", 5, uniqueTarget)
	m.push(t, "from", uniqueSource, source)
	m.push(t, "to", uniqueTarget, target)
	head := rapid.Bool().Draw(t, "head")
	limit := rapid.IntRange(0, 6).Draw(t, "limit")
	part := rapid.SampledFrom([]string{"A", "B", "class"}).Draw(t, "part")

	var wanted []int
	for i, p := range source {
		if strings.Contains(p, part) && (head || limit == 0 || len(wanted) < limit) {
			wanted = append(wanted, i)
		}
	}
	if head && limit > 0 { // the last ones, since Skip is 0
		wanted = wanted[max(0, len(wanted)-limit):]
	}
	moved, stay := []string{}, map[int]bool{}
	order := slices.Clone(wanted)
	if head {
		slices.Reverse(order)
	}
	for _, i := range order {
		if uniqueTarget && (slices.Contains(target, source[i]) || slices.Contains(moved, source[i])) {
			stay[i] = true
			continue
		}
		moved = append(moved, source[i])
	}
	left := []string{}
	for i, p := range source {
		if !slices.Contains(wanted, i) || stay[i] {
			left = append(left, p)
		}
	}
	count := len(moved)
	result := slices.Concat(target, moved)
	if head {
		slices.Reverse(moved)
		result = slices.Concat(moved, target)
	}
	report, err := m.store.MoveJobs(m.ctx, store.MoveRequest{
		From: "from", To: "to", Unique: uniqueTarget, Head: head, Limit: int64(limit), Pick: picking(part),
	})
	require.NoError(t, err)
	require.Equal(t, store.MoveReport{Moved: int64(count), Duplicates: int64(len(stay))}, report)
	// Of equal payloads any may be the one that stays.
	require.Equal(t, sorted(left), sorted(m.list("queue:from")))
	require.Equal(t, certain(left, source, wanted), certain(m.list("queue:from"), source, wanted), "the order of what stays")
	require.Equal(t, append([]string{}, result...), append([]string{}, m.list("queue:to")...))
	if uniqueSource {
		m.even(t, "from")
	}
	if !uniqueTarget {
		return
	}
	m.even(t, "to")
	times := m.list("queue:to:start_at")
	for i, p := range result {
		if at := slices.Index(target, p); at >= 0 {
			require.Equal(t, strconv.Itoa(1000+at), times[i])
		} else if uniqueSource {
			require.Equal(t, strconv.Itoa(1000+slices.Index(source, p)), times[i], "each with its own time")
		}
	}
}

// certain leaves out payloads that were to be moved: of equal ones any may stay.
func certain(list, source []string, wanted []int) []string {
	out := []string{}
	for _, p := range list {
		if !slices.ContainsFunc(wanted, func(i int) bool { return source[i] == p }) {
			out = append(out, p)
		}
	}
	return out
}

func sorted(list []string) []string {
	list = append([]string{}, list...)
	slices.Sort(list)
	return list
}

func TestMoveModel(t *testing.T) {
	t.Parallel()
	redistest.Both(t, func(t *testing.T, server *redistest.Server) {
		f := setup(t, server)
		m := &moveModel{store: f.Store, redis: f.redis, ctx: t.Context(), space: f.ns + ":"}
		rapid.Check(t, m.run)
	})
}

func TestMoveJobs(t *testing.T) {
	t.Parallel()
	redistest.Both(t, func(t *testing.T, server *redistest.Server) {
		for _, head := range []bool{false, true} {
			t.Run(fmt.Sprintf("many parts keep their order, to the head: %v", head), func(t *testing.T) {
				f := setup(t, server)
				f.push("to", job("B", "[0]"))
				f.push("from", numbered(0, 3000)...)
				steps := 0
				report, err := f.MoveJobs(t.Context(), store.MoveRequest{From: "from", To: "to", Head: head, Pick: anything, Step: func(store.MoveReport) error {
					steps++
					n := f.redis.LLen(t.Context(), f.key("queue:from")).Val() + f.redis.LLen(t.Context(), f.key("queue:to")).Val()
					require.EqualValues(t, 3001, n, "each waits once")
					return nil
				}})
				require.NoError(t, err)
				require.EqualValues(t, 3000, report.Moved)
				require.Greater(t, steps, 5)
				want := append([]string{job("B", "[0]")}, numbered(0, 3000)...)
				if head {
					want = append(numbered(0, 3000), job("B", "[0]"))
				}
				require.Equal(t, want, f.list("queue:to"))
				require.False(t, f.exists("queue:from"))
			})
			t.Run(fmt.Sprintf("others take and push meanwhile, to the head: %v", head), func(t *testing.T) {
				f := setup(t, server)
				f.push("from", numbered(0, 2000)...)
				taken := map[string]int{}
				_, err := f.MoveJobs(t.Context(), store.MoveRequest{From: "from", To: "to", Head: head, Pick: picking("7]"), Step: func(store.MoveReport) error {
					for _, p := range f.redis.LPopCount(t.Context(), f.key("queue:from"), 7).Val() {
						taken[p]++
					}
					f.push("from", job("B", "[1]"))
					return nil
				}})
				require.NoError(t, err)
				for _, p := range slices.Concat(f.list("queue:from"), f.list("queue:to")) {
					taken[p]++
				}
				for _, p := range numbered(0, 2000) {
					require.Equal(t, 1, taken[p], p)
				}
			})
		}
		t.Run("the count of deaths follows, and the job stays a suspect", func(t *testing.T) {
			f := setup(t, server)
			f.died("q", job("A", "[1]"))
			_, err := f.MoveJobs(t.Context(), store.MoveRequest{From: "q", To: "to", Pick: anything})
			require.NoError(t, err)
			require.Empty(t, f.deathOf("q", job("A", "[1]")))
			require.Equal(t, "1 1", f.deathOf("to", job("A", "[1]")))
			require.Equal(t, 1, f.want(1, store.SetApart, store.Queue{Name: "to"}).Suspects)
			n, err := f.MoveSuspects(t.Context(), "to", "third", picking("none"))
			require.NoError(t, err)
			require.Zero(t, n)
			n, err = f.MoveSuspects(t.Context(), "to", "third", anything)
			require.NoError(t, err)
			require.EqualValues(t, 1, n)
			require.Empty(t, f.deathOf("to", job("A", "[1]")))
			jobs := f.want(1, store.OnlySuspects, store.Queue{Name: "third"}).Jobs
			require.Equal(t, []string{job("A", "[1]")}, payloads(jobs))
			require.Equal(t, 1, jobs[0].Blame)
			require.False(t, f.exists("resqued:suspects:to"))
		})
		t.Run("the marker of a loner follows", func(t *testing.T) {
			f := setup(t, server)
			loner := store.LonerRequest{Key: "l", Timeout: time.Hour, Queue: "q", Payload: []byte(job("A", "[1]"))}
			_, err := f.EnqueueLoner(t.Context(), loner)
			require.NoError(t, err)
			_, err = f.MoveJobs(t.Context(), store.MoveRequest{From: "q", To: "to", Pick: func([]byte) (string, bool) { return "l", true }})
			require.NoError(t, err)
			require.Contains(t, f.redis.Get(t.Context(), f.key("loner:l")).Val(), `:queue:2:to{"class"`)
			require.Greater(t, f.redis.PTTL(t.Context(), f.key("loner:l")).Val(), time.Minute)
			loner.Queue = "to"
			reply, err := f.EnqueueLoner(t.Context(), loner)
			require.NoError(t, err)
			require.Equal(t, store.LonerDuplicate, reply.Status)

			// And that of one that waits to run alone.
			f.redis.RPush(t.Context(), f.key("resqued:suspects:to"), "- "+f.redis.LPop(t.Context(), f.key("queue:to")).Val())
			_, err = f.MoveSuspects(t.Context(), "to", "third", func([]byte) (string, bool) { return "l", true })
			require.NoError(t, err)
			loner.Queue = "third"
			reply, err = f.EnqueueLoner(t.Context(), loner)
			require.NoError(t, err)
			require.Equal(t, store.LonerDuplicate, reply.Status)
		})
		t.Run("keys of another type", func(t *testing.T) {
			for _, key := range []string{"queue:q", "queue:to", "queues", "queue:q:uniqueue", "queue:to:start_at"} {
				f := setup(t, server)
				f.push("q", job("A", "[1]"))
				f.redis.Del(t.Context(), f.key(key))
				f.redis.Set(t.Context(), f.key(key), "text", 0)
				if key == "queue:q" {
					f.push("other", job("A", "[1]"))
				}
				before := f.list("queue:to:x")
				_, err := f.MoveJobs(t.Context(), store.MoveRequest{From: "q", To: "to", Unique: true, Pick: anything})
				require.Error(t, err, key)
				require.Equal(t, before, f.list("queue:to:x"))
				if key != "queue:q" {
					require.Equal(t, []string{job("A", "[1]")}, f.list("queue:q"), key)
				}
			}
			f := setup(t, server)
			_, err := f.MoveJobs(t.Context(), store.MoveRequest{From: "q", To: "q", Pick: anything})
			require.ErrorContains(t, err, "to itself")
		})
		t.Run("empty queues are pruned, others are not", func(t *testing.T) {
			f := setup(t, server)
			for queue, want := range map[string]bool{"empty": true, "paused": false, "full": false, "apart": false, "none": false} {
				if queue != "none" {
					f.redis.SAdd(t.Context(), f.key("queues"), queue)
				}
				f.redis.Set(t.Context(), f.key("pause:queue:paused"), "true", 0)
				f.push("full", "x")
				f.redis.RPush(t.Context(), f.key("resqued:suspects:apart"), "- x")
				pruned, err := f.PruneQueue(t.Context(), queue)
				require.NoError(t, err)
				require.Equal(t, want, pruned, queue)
				require.Equal(t, !want && queue != "none", f.redis.SIsMember(t.Context(), f.key("queues"), queue).Val(), queue)
			}
		})
	})
}

// moveMutants are scripts with a defect each, which the model of moves finds.
var moveMutants = []storetest.Mutant{
	{"a moved job stays", "taking", `call('LSET', key, f.at, hole)`, ``},
	{"a moved job leaves a hole", "taking", `call('LREM', key, direction, hole)`, ``},
	{"the place of a time stays", "taking", `if aligned then call('LSET', starts, f.at, hole) end`, ``},
	{"a member stays of a moved job", "taking", `if companions then call('SREM', set, f.payload) end`, ``},
	{"a job is moved beside its equal", "move_jobs", `if unique then
    pushed`, `if false then
    pushed`},
	{"the order at the head is turned around", "taking", `back and #waiting + 1 - k or k`, `k`},
	{"jobs go to the tail, not to the head", "move_jobs", `push(target, payload, head)`, `push(target, payload, false)`},
	{"jobs get a new time", "move_jobs", `f.start or fmt(`, `fmt(`},
	{"a duplicate is removed", "move_jobs", `if pushed then
    t.take`, `if true then
    t.take`},
}

// TestMoveModelFindsDefects is TestModelFindsDefects for moves.
func TestMoveModelFindsDefects(t *testing.T) {
	t.Parallel()
	defects := storetest.Defects{Mutants: moveMutants, Prepare: storetest.OnRig(func(r *storetest.Rig, t *rapid.T) {
		(&moveModel{store: r.Store, redis: r.Redis, ctx: r.Ctx, space: storetest.Space}).run(t)
	})}
	defects.Find(t)
}
