package store_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/resqued/resqued/internal/rdb"
	"github.com/resqued/resqued/internal/redistest"
	"github.com/resqued/resqued/internal/store"
)

var uniqueQueue = []store.Queue{{Name: "q", Unique: true}}

func (f *fixture) members(queue string) []string {
	f.t.Helper()
	members, err := f.redis.SMembers(f.t.Context(), f.key("queue:"+queue+":uniqueue")).Result()
	require.NoError(f.t, err)
	return members
}

// inStep demands that the companions of a unique queue match it, and that nothing of
// a healing is left.
func (f *fixture) inStep(queue string) {
	f.t.Helper()
	list := f.list("queue:" + queue)
	members := f.members(queue)
	require.Len(f.t, f.list("queue:"+queue+":start_at"), len(list))
	slices.Sort(list)
	slices.Sort(members)
	require.True(f.t, slices.Equal(list, members), "the set is not what waits") // of any length, quickly
	require.False(f.t, f.exists("resqued:healing:"+queue))
	if len(list) > 0 {
		require.EqualValues(f.t, -1, f.redis.TTL(f.t.Context(), f.key("queue:"+queue+":uniqueue")).Val(), "the set expires")
	}
	state, err := f.redis.HKeys(f.t.Context(), f.key("resqued:heal:"+queue)).Result()
	require.NoError(f.t, err)
	require.NotContains(f.t, state, "at")
}

// gemPush does what resque-uniqueue does.
func (f *fixture) gemPush(queue string, payloads ...string) {
	f.t.Helper()
	pipe := f.redis.Pipeline()
	pipe.SAdd(f.t.Context(), f.key("queues"), queue)
	for _, p := range payloads {
		pipe.SAdd(f.t.Context(), f.key("queue:"+queue+":uniqueue"), p)
		pipe.RPush(f.t.Context(), f.key("queue:"+queue+":start_at"), "1700000000")
		pipe.RPush(f.t.Context(), f.key("queue:"+queue), p)
	}
	_, err := pipe.Exec(f.t.Context())
	require.NoError(f.t, err)
}

func numbered(from, to int) []string {
	var out []string
	for i := from; i < to; i++ {
		out = append(out, job("A", fmt.Sprintf("[%d]", i)))
	}
	return out
}

// strangers are what programs do to a unique queue that do not know its companions,
// or do not keep them in step.
var strangers = []struct {
	name string
	do   func(f *fixture, key string)
	want func(before []string) []string
	say  store.UniqueReport
}{
	{
		"a plain RPUSH", func(f *fixture, key string) { f.redis.RPush(f.t.Context(), key, job("X", "[]"), job("Y", "[]")) },
		func(b []string) []string { return append(b, job("X", "[]"), job("Y", "[]")) },
		store.UniqueReport{MembersAdded: 2, TimesAdded: 2},
	},
	{
		"a plain LPUSH", func(f *fixture, key string) { f.redis.LPush(f.t.Context(), key, job("X", "[]")) },
		func(b []string) []string { return append([]string{job("X", "[]")}, b...) },
		store.UniqueReport{MembersAdded: 1, TimesAdded: 1},
	},
	{
		"a plain LPOP", func(f *fixture, key string) { f.redis.LPop(f.t.Context(), key) },
		func(b []string) []string { return b[1:] },
		store.UniqueReport{MembersRemoved: 1, TimesRemoved: 1},
	},
	{
		"an LREM from the middle", func(f *fixture, key string) { f.redis.LRem(f.t.Context(), key, 0, job("A", "[2]")) },
		func(b []string) []string { return slices.Delete(b, 2, 3) },
		store.UniqueReport{MembersRemoved: 1, TimesRemoved: 1},
	},
	{
		"an RPUSH of what waits already", func(f *fixture, key string) {
			f.redis.RPush(f.t.Context(), key, job("A", "[1]"), job("X", "[]"), job("X", "[]"), job("A", "[1]"))
		},
		func(b []string) []string { return append(b, job("X", "[]")) },
		store.UniqueReport{MembersAdded: 1, TimesAdded: 1, Duplicates: 3},
	},
	{
		"a DEL of the set", func(f *fixture, key string) { f.redis.Del(f.t.Context(), key+":uniqueue") },
		func(b []string) []string { return b },
		store.UniqueReport{MembersAdded: 5},
	},
	{
		"a DEL of the times", func(f *fixture, key string) { f.redis.Del(f.t.Context(), key+":start_at") },
		func(b []string) []string { return b },
		store.UniqueReport{TimesAdded: 5},
	},
	{
		"a DEL of the list", func(f *fixture, key string) { f.redis.Del(f.t.Context(), key) },
		func([]string) []string { return nil },
		store.UniqueReport{MembersRemoved: 5, TimesRemoved: 5},
	},
	{
		"an LPOP and an RPUSH, which leave the lengths equal", func(f *fixture, key string) {
			f.redis.LPop(f.t.Context(), key)
			f.redis.RPush(f.t.Context(), key, job("X", "[]"))
		},
		func(b []string) []string { return append(b[1:], job("X", "[]")) },
		store.UniqueReport{MembersAdded: 1, MembersRemoved: 1},
	},
	{
		"nothing", func(*fixture, string) {},
		func(b []string) []string { return b },
		store.UniqueReport{},
	},
}

func TestUniqueStrangers(t *testing.T) {
	t.Parallel()
	redistest.Both(t, func(t *testing.T, server *redistest.Server) {
		for _, c := range strangers {
			broken := func(t *testing.T) (*fixture, []string) {
				f := setup(t, server)
				f.gemPush("q", numbered(0, 5)...)
				c.do(f, f.key("queue:q"))
				return f, c.want(numbered(0, 5))
			}
			t.Run("a repair mends "+c.name, func(t *testing.T) {
				f, want := broken(t)
				report, err := f.RepairUnique(t.Context(), "q")
				require.NoError(t, err)
				f.inStep("q")
				require.Equal(t, want, append([]string(nil), f.list("queue:q")...))
				c.say.Queue, c.say.Jobs = "q", int64(len(want))
				require.Equal(t, c.say, report)
				require.Equal(t, c.name != "nothing", report.Changed())
				again, err := f.RepairUnique(t.Context(), "q")
				require.NoError(t, err)
				require.False(t, again.Changed())
			})
			t.Run("the daemon works through "+c.name, func(t *testing.T) {
				f, want := broken(t)
				even := len(f.list("queue:q")) == len(f.members("q")) && len(f.members("q")) == len(f.list("queue:q:start_at"))
				reply := f.exchange(store.ExchangeRequest{Wants: f.wants(1), Queues: uniqueQueue})
				require.Equal(t, !even, len(reply.OutOfStep) > 0)
				require.Equal(t, min(1, len(want)), len(reply.Jobs))
				jobs := f.exchange(store.ExchangeRequest{Wants: f.wants(20), Queues: uniqueQueue}).Jobs
				require.Len(t, jobs, max(0, len(want)-1))
				f.exchange(store.ExchangeRequest{Queues: uniqueQueue, Wants: f.wants(1)})
				healed, err := f.HealUnique(t.Context(), "q")
				require.NoError(t, err)
				require.False(t, healed, "there was nothing left")
				for _, key := range []string{"queue:q", "queue:q:uniqueue", "queue:q:start_at"} {
					require.False(t, f.exists(key), key)
				}
			})
		}
	})
}

func TestUniqueWrongTypes(t *testing.T) {
	t.Parallel()
	redistest.Both(t, func(t *testing.T, server *redistest.Server) {
		for _, companion := range []string{"", ":uniqueue", ":start_at"} {
			t.Run("queue:q"+companion, func(t *testing.T) {
				f := setup(t, server)
				if companion != "" {
					f.redis.RPush(t.Context(), f.key("queue:q"), job("A", "[1]"))
				}
				f.redis.Set(t.Context(), f.key("queue:q"+companion), "text", 0)
				reply := f.exchange(store.ExchangeRequest{Wants: f.wants(1), Queues: uniqueQueue})
				require.Equal(t, []string{"q"}, reply.WrongType)
				require.Empty(t, reply.Jobs)
				_, err := f.RepairUnique(t.Context(), "q")
				require.ErrorContains(t, err, "move it away")
				require.True(t, rdb.Unexecuted(err))
			})
		}
	})
}

// touched is how many elements of a long queue one step looks at, at most.
const touched = 1100

// A queue of 100,000 jobs is healed in steps, while jobs are pushed to it and taken
// from it: what is pushed meanwhile is neither refused nor let in twice.
func TestUniqueHealsInSteps(t *testing.T) {
	t.Parallel()
	server := redistest.Shared(t)
	const jobs = 100_000
	fill := func(t *testing.T) *fixture {
		f := setup(t, server)
		for i := 0; i < jobs; i += 10_000 {
			f.gemPush("q", numbered(i, i+10_000)...)
		}
		return f
	}

	t.Run("with pops and returns meanwhile", func(t *testing.T) {
		t.Parallel()
		f := fill(t)
		key := f.key("queue:q")
		f.redis.SRem(t.Context(), key+":uniqueue", job("A", "[70000]"))       // lost
		f.redis.SAdd(t.Context(), key+":uniqueue", job("Z", "[1]"))           // stale
		f.redis.RPush(t.Context(), key, job("X", "[1]"), job("A", "[50000]")) // unknown, and twice
		f.redis.LTrim(t.Context(), key+":start_at", 0, 89_999)                // 10,000 too few
		push := func(payloads ...string) (pushed []bool) {
			if redistest.Knows(t, "LPOS") {
				return f.pushUnique("q", payloads...).Pushed
			}
			for _, p := range payloads { // many at once are looked for less far there
				pushed = append(pushed, f.pushUnique("q", p).Pushed...)
			}
			return pushed
		}
		steps, jobsOut, healed := 0, []store.Reserved(nil), 0
		for ; steps < 1000 && healed == 0; steps++ {
			before := f.redis.SCard(t.Context(), f.key("resqued:healing:q")).Val()
			report, state, err := f.Step(t.Context(), "q")
			require.NoError(t, err)
			require.LessOrEqual(t, state.Touched, int64(touched))
			require.LessOrEqual(t, report.TimesAdded, int64(1000))
			require.LessOrEqual(t, f.redis.SCard(t.Context(), f.key("resqued:healing:q")).Val()-before, int64(1000))
			if state.Done {
				healed++
				break
			}
			reply := f.exchange(store.ExchangeRequest{Wants: f.wants(7), Queues: uniqueQueue})
			require.Len(t, reply.Jobs, 7)
			jobsOut = append(jobsOut, reply.Jobs[:5]...)
			f.exchange(store.ExchangeRequest{Completions: []store.Completion{
				{Job: &reply.Jobs[6], Kind: store.Returned}, {Job: &reply.Jobs[5], Kind: store.Returned},
			}})
			pushed := push(job("B", fmt.Sprintf("[%d]", steps)), string(reply.Jobs[6].Payload), job("A", "[99999]"), job("X", "[1]"))
			require.Equal(t, []bool{true, false, false, false}, pushed)
		}
		require.Equal(t, 1, healed)
		require.Greater(t, steps, jobs/1000)
		f.inStep("q")
		list := f.list("queue:q")
		require.Len(t, list, jobs+1-len(jobsOut)+steps)
		require.Equal(t, job("X", "[1]"), list[jobs-len(jobsOut)])
		require.Equal(t, job("B", fmt.Sprintf("[%d]", steps-1)), list[len(list)-1])
		require.Equal(t, job("A", fmt.Sprintf("[%d]", len(jobsOut))), list[0])
	})

	t.Run("with foreign pops that shift it", func(t *testing.T) {
		t.Parallel()
		f := fill(t)
		key := f.key("queue:q")
		f.redis.SAdd(t.Context(), key+":uniqueue", job("Z", "[1]"))
		for range 5 {
			_, _, err := f.Step(t.Context(), "q")
			require.NoError(t, err)
		}
		// The number stays as it was, what the numbers stand for does not.
		f.redis.LTrim(t.Context(), key, 100, -1)
		f.redis.RPush(t.Context(), key, anys(numbered(jobs, jobs+100))...)
		report, err := f.RepairUnique(t.Context(), "q")
		require.NoError(t, err)
		require.EqualValues(t, 101, report.MembersRemoved)
		f.inStep("q")
	})

	t.Run("with another queue in its place, which looks the same where it looks", func(t *testing.T) {
		t.Parallel()
		f := setup(t, server)
		f.gemPush("q", numbered(0, 1500)...)
		f.redis.RPush(t.Context(), f.key("queue:q"), job("X", "[1]"))
		_, _, err := f.Step(t.Context(), "q")
		require.NoError(t, err)
		f.redis.Del(t.Context(), f.key("queue:q"))
		want := append(numbered(1, 999), job("B", "[1]"), job("A", "[999]"), job("A", "[0]"), job("A", "[1499]"))
		f.redis.RPush(t.Context(), f.key("queue:q"), anys(want)...)
		for done := false; !done; {
			_, step, err := f.Step(t.Context(), "q")
			require.NoError(t, err)
			done = step.Done
		}
		require.Equal(t, want, f.list("queue:q"), "none is dropped as a duplicate of one that has gone")
		f.inStep("q")
	})

	t.Run("at the daemon's own pace", func(t *testing.T) {
		t.Parallel()
		f := fill(t)
		f.redis.RPush(t.Context(), f.key("queue:q"), job("X", "[1]"))
		reply := f.exchange(store.ExchangeRequest{Wants: f.wants(1), Queues: uniqueQueue})
		require.Len(t, reply.Jobs, 1)
		require.Empty(t, reply.OutOfStep, "one step does not heal it")
		healed, err := f.HealUnique(t.Context(), "q")
		require.NoError(t, err)
		require.True(t, healed)
		f.inStep("q")
	})
}

func anys(list []string) []any {
	out := make([]any, len(list))
	for i, v := range list {
		out[i] = v
	}
	return out
}

// A full server refuses new members; jobs have to leave it all the same.
func TestUniqueOnAFullServer(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t, redistest.Options{})
	f := setup(t, server)
	f.gemPush("q", numbered(0, 3)...)
	f.redis.RPush(t.Context(), f.key("queue:q"), job("X", "[]"))
	require.NoError(t, f.redis.ConfigSet(t.Context(), "maxmemory", "1").Err())
	reply := f.exchange(store.ExchangeRequest{Wants: f.wants(2), Queues: uniqueQueue})
	require.Len(t, reply.Jobs, 2)
	_, err := f.RepairUnique(t.Context(), "q")
	require.Equal(t, "OOM", rdb.Refusal(err), err)
	require.NoError(t, f.redis.ConfigSet(t.Context(), "maxmemory", "0").Err())
	_, err = f.RepairUnique(t.Context(), "q")
	require.NoError(t, err)
	f.inStep("q")
	require.Len(t, f.list("queue:q"), 2)
}

func TestOutOfStep(t *testing.T) {
	t.Parallel()
	redistest.Both(t, func(t *testing.T, server *redistest.Server) {
		f := setup(t, server)
		for _, queue := range []string{"even", "last", "begun", "plain", "typed", "gone"} {
			f.gemPush(queue, job("A", "[1]"), job("A", "[2]"))
		}
		f.redis.LTrim(t.Context(), f.key("queue:last"), 2, -1) // by strangers
		f.redis.RPush(t.Context(), f.key("queue:plain"), job("A", "[3]"))
		f.redis.Del(t.Context(), f.key("queue:typed:uniqueue"))
		f.redis.Set(t.Context(), f.key("queue:typed:uniqueue"), "text", 0)
		f.redis.HSet(t.Context(), f.key("resqued:heal:begun"), "at", 1)
		f.redis.Del(t.Context(), f.key("queue:gone")) // as Resque.remove_queue does
		f.redis.SRem(t.Context(), f.key("queues"), "gone")
		unique := store.UniqueQueues{Names: []string{"gone", "even"}, Match: func(queue string) bool { return queue != "plain" }}
		queues, next, err := f.OutOfStep(t.Context(), unique, 0)
		require.NoError(t, err)
		require.Zero(t, next)
		require.ElementsMatch(t, []string{"last", "begun", "gone"}, queues)
		for _, queue := range queues {
			healed, err := f.HealUnique(t.Context(), queue)
			require.NoError(t, err)
			require.True(t, healed)
			f.inStep(queue)
		}
		require.False(t, f.exists("queue:last:uniqueue"))
		require.False(t, f.exists("queue:gone:start_at"))
		queues, _, err = f.OutOfStep(t.Context(), unique, 0)
		require.NoError(t, err)
		require.Empty(t, queues)
	})
}

// TestTurnedUniqueWithLines: a queue that becomes unique knows the equal jobs in its lines.
func TestTurnedUniqueWithLines(t *testing.T) {
	t.Parallel()
	heals := map[string]func(f *fixture) error{
		"by itself": func(f *fixture) error {
			queues, _, err := f.OutOfStep(f.t.Context(), store.UniqueQueues{Match: func(string) bool { return true }}, 0)
			require.Equal(f.t, []string{"q"}, queues)
			if err == nil {
				_, err = f.HealUnique(f.t.Context(), "q")
			}
			return err
		},
		"on request": func(f *fixture) error {
			report, err := f.RepairUnique(f.t.Context(), "q")
			require.EqualValues(f.t, 1, report.Duplicates)
			return err
		},
	}
	for name, heal := range heals {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := setup(t, redistest.Shared(t))
			same := job("A", "[1]")
			f.push("q", same, same, same)
			held := f.turn(2, nil, "q")
			require.Len(t, held, 1)
			require.Empty(t, f.list("queue:q"))
			require.NoError(t, heal(f))
			require.Equal(t, []string{same}, f.list("queue:q"))
			f.inStep("q")
			f.noLines("q")
			reply, err := f.PushUnique(t.Context(), "q", true, []byte(same))
			require.NoError(t, err)
			require.Equal(t, []bool{false}, reply.Pushed)
		})
	}
}

func TestOutOfStepInManyQueues(t *testing.T) {
	t.Parallel()
	f := setup(t, redistest.Shared(t))
	const queues = 30_000
	for i := 0; i < queues; i += 1000 {
		names := make([]any, 1000)
		for k := range names {
			names[k] = fmt.Sprintf("q%d", i+k)
		}
		f.redis.SAdd(t.Context(), f.key("queues"), names...)
	}
	f.redis.SAdd(t.Context(), f.key("queue:q29999:uniqueue"), "stale")
	var found []string
	calls, cursor := 0, uint64(0)
	for calls == 0 || cursor != 0 {
		part, next, err := f.OutOfStep(t.Context(), store.UniqueQueues{Match: func(string) bool { return true }}, cursor)
		require.NoError(t, err)
		found, cursor, calls = append(found, part...), next, calls+1
	}
	require.Contains(t, found, "q29999")
	require.Greater(t, calls, 1)
}

// uniqueWorksAt calls every script of unique queues and of what people remove.
func uniqueWorksAt(t *testing.T, s *store.Store) {
	t.Helper()
	ctx := t.Context()
	_, err := s.PushUnique(ctx, "u", false, bytesOf(numbered(0, 5)...)...)
	require.NoError(t, err)
	_, err = s.Push(ctx, "u", []byte(job("A", "[3]")), []byte(job("A", "[9]"))) // as one who does not know
	require.NoError(t, err)
	queues, _, err := s.OutOfStep(ctx, store.UniqueQueues{Match: func(queue string) bool { return queue == "u" }}, 0)
	require.NoError(t, err)
	require.Equal(t, []string{"u"}, queues)
	healed, err := s.HealUnique(ctx, "u")
	require.NoError(t, err)
	require.True(t, healed)
	report, err := s.RepairUnique(ctx, "u")
	require.NoError(t, err)
	require.EqualValues(t, 6, report.Jobs)
	n, err := s.Dequeue(ctx, "u", func(p []byte) bool { return string(p) == job("A", "[1]") }, nil)
	require.NoError(t, err)
	require.EqualValues(t, 1, n)
	edited := 0
	require.NoError(t, s.EditFailed(ctx, store.FailedWork{
		List: "failed", Targets: all(t, s), Remove: true,
		Edit: func([]byte) store.FailedEdit {
			return store.FailedEdit{Remove: true, Queue: "u", Payload: []byte(job("A", "[1]")), Unique: true}
		},
		Done: func([]byte, store.FailedEdit, store.FailedOutcome) { edited++ },
	}))
	require.Equal(t, 1, edited)
	n, err = s.RemoveQueue(ctx, "u", false)
	require.NoError(t, err)
	require.EqualValues(t, 6, n)
}
