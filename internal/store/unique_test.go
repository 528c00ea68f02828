package store_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/resqued/resqued/internal/rdb"
	"github.com/resqued/resqued/internal/store"
	"github.com/resqued/resqued/internal/testkit/redistest"
)

var uniqueQueue = []store.Queue{{Name: "q", Unique: true}}

func (f *fixture) members(queue string) []string {
	f.t.Helper()
	members, err := f.redis.SMembers(f.t.Context(), f.key("queue:"+queue+":uniqueue")).Result()
	require.NoError(f.t, err)
	return members
}

// inStep demands that the companions of a unique queue match it, and that nothing is left of
// their repair.
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
			t.Run(c.name+" is repaired", func(t *testing.T) {
				f, want := broken(t)
				report, err := f.RepairUnique(t.Context(), "q")
				require.NoError(t, err)
				f.inStep("q")
				require.Equal(t, want, append([]string(nil), f.list("queue:q")...))
				c.say.Queue, c.say.Jobs = "q", int64(len(want))
				require.Len(t, report.Dropped, int(c.say.Duplicates))
				report.Dropped = nil
				require.Equal(t, c.say, report)
				require.Equal(t, c.name != "nothing", report.Changed())
				again, err := f.RepairUnique(t.Context(), "q")
				require.NoError(t, err)
				require.False(t, again.Changed())
			})
			t.Run("the daemon works through "+c.name, func(t *testing.T) {
				f, _ := broken(t)
				waits := f.list("queue:q")
				reply := f.exchange(store.ExchangeRequest{Wants: f.wants(20), Queues: uniqueQueue})
				require.Empty(t, reply.OutOfStep)
				var got []string
				for _, j := range reply.Jobs {
					got = append(got, string(j.Payload))
				}
				require.Equal(t, append([]string(nil), waits...), got, "it drops nothing")
				_, err := f.RepairUneven(t.Context(), "q")
				require.NoError(t, err)
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

// Of equal jobs the first keeps its place and its time.
func TestRepairKeepsTheFirst(t *testing.T) {
	t.Parallel()
	redistest.Both(t, func(t *testing.T, server *redistest.Server) {
		f := setup(t, server)
		a, b, c, d := job("A", "[1]"), job("A", "[2]"), job("A", "[3]"), job("A", "[4]")
		f.redis.RPush(t.Context(), f.key("queue:q"), a, b, a, c, b, b, d)
		f.redis.RPush(t.Context(), f.key("queue:q:start_at"), 1, 2, 3, 4, 5, 6, 7)
		for _, old := range []string{"resqued:heal:q", "resqued:healing:q"} {
			f.redis.HSet(t.Context(), f.key(old), "at", 3) // of an interrupted repair
		}
		report, err := f.RepairUneven(t.Context(), "q")
		require.NoError(t, err)
		require.Equal(t, []string{a, b, c, d}, f.list("queue:q"))
		require.Equal(t, []string{"1", "2", "4", "7"}, f.list("queue:q:start_at"))
		require.Equal(t, []string{a, b, b}, report.Dropped)
		require.EqualValues(t, 3, report.Duplicates)
		f.inStep("q")
	})
}

// A daemon repairs what it has to, and only what takes Redis little time.
func TestRepairUneven(t *testing.T) {
	t.Parallel()
	server := redistest.Shared(t)
	t.Run("equal lengths are left", func(t *testing.T) {
		t.Parallel()
		f := setup(t, server)
		f.gemPush("q", numbered(0, 3)...)
		f.redis.LSet(t.Context(), f.key("queue:q"), 0, job("X", "[1]"))
		report, err := f.RepairUneven(t.Context(), "q")
		require.NoError(t, err)
		require.Equal(t, store.UniqueReport{Queue: "q", Jobs: 3}, report)
		require.Contains(t, f.members("q"), job("A", "[0]"))
	})
	t.Run("a queue rests after a repair, but not for people", func(t *testing.T) {
		t.Parallel()
		f := setup(t, server)
		f.redis.RPush(t.Context(), f.key("queue:q"), job("A", "[1]"))
		rest := time.Now().Add(9 * time.Second).UnixMilli()
		f.redis.HSet(t.Context(), f.key("resqued:heal:q"), "rest", rest)
		report, err := f.RepairUneven(t.Context(), "q")
		require.NoError(t, err)
		require.False(t, report.Changed())
		report, err = f.RepairUnique(t.Context(), "q")
		require.NoError(t, err)
		require.True(t, report.Changed())
	})
	for name, size := range map[string]int{"very many jobs": 60_000, "few large ones": 12, "large ones behind small ones": 40} {
		t.Run(name+" are for people", func(t *testing.T) {
			t.Parallel()
			f := setup(t, server)
			payload := func(i int) string { return job("A", fmt.Sprintf("[%d]", i)) }
			if size < 100 {
				payload = func(i int) string {
					return job("A", fmt.Sprintf("[%d,%q]", i, strings.Repeat("x", min(max(0, i+13-size), 1)<<20)))
				}
			}
			pipe := f.redis.Pipeline()
			for i := range size {
				pipe.RPush(t.Context(), f.key("queue:q"), payload(i))
			}
			_, err := pipe.Exec(t.Context())
			require.NoError(t, err)
			report, err := f.RepairUneven(t.Context(), "q")
			require.NoError(t, err)
			require.Equal(t, store.UniqueReport{Queue: "q", Jobs: int64(size), TooLong: true}, report)
			require.False(t, f.exists("queue:q:uniqueue"))
			report, err = f.RepairUnique(t.Context(), "q")
			require.NoError(t, err)
			require.Equal(t, store.UniqueReport{Queue: "q", Jobs: int64(size), MembersAdded: int64(size), TimesAdded: int64(size)}, report)
			f.inStep("q")
		})
	}
}

func anys(list []string) []any {
	out := make([]any, len(list))
	for i, v := range list {
		out[i] = v
	}
	return out
}

// A full server refuses new members; jobs must still be able to leave it.
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
	require.Equal(t, []string{job("A", "[2]"), job("X", "[]")}, f.list("queue:q"))
	_, err = f.RepairUnique(t.Context(), "q")
	require.NoError(t, err)
	f.inStep("q")
}

func TestOutOfStep(t *testing.T) {
	t.Parallel()
	redistest.Both(t, func(t *testing.T, server *redistest.Server) {
		f := setup(t, server)
		for _, queue := range []string{"even", "last", "plain", "typed", "gone"} {
			f.gemPush(queue, job("A", "[1]"), job("A", "[2]"))
		}
		f.redis.LTrim(t.Context(), f.key("queue:last"), 2, -1) // by strangers
		f.redis.RPush(t.Context(), f.key("queue:plain"), job("A", "[3]"))
		f.redis.Del(t.Context(), f.key("queue:typed:uniqueue"))
		f.redis.Set(t.Context(), f.key("queue:typed:uniqueue"), "text", 0)
		f.redis.Del(t.Context(), f.key("queue:gone")) // as Resque.remove_queue does
		f.redis.SRem(t.Context(), f.key("queues"), "gone")
		unique := store.UniqueQueues{Names: []string{"gone", "even"}, Match: func(queue string) bool { return queue != "plain" }}
		queues, next, err := f.OutOfStep(t.Context(), unique, 0)
		require.NoError(t, err)
		require.Zero(t, next)
		require.ElementsMatch(t, []string{"last", "gone"}, queues)
		for _, queue := range queues {
			report, err := f.RepairUneven(t.Context(), queue)
			require.NoError(t, err)
			require.True(t, report.Changed())
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
	repairs := map[string]func(f *fixture) error{
		"by itself": func(f *fixture) error {
			queues, _, err := f.OutOfStep(f.t.Context(), store.UniqueQueues{Match: func(string) bool { return true }}, 0)
			require.Equal(f.t, []string{"q"}, queues)
			if err == nil {
				_, err = f.RepairUneven(f.t.Context(), "q")
			}
			return err
		},
		"on request": func(f *fixture) error {
			report, err := f.RepairUnique(f.t.Context(), "q")
			require.EqualValues(f.t, 1, report.Duplicates)
			return err
		},
	}
	for name, repair := range repairs {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := setup(t, redistest.Shared(t))
			same := job("A", "[1]")
			f.push("q", same, same, same)
			held := f.turn(2, nil, "q")
			require.Len(t, held, 1)
			require.Empty(t, f.list("queue:q"))
			require.NoError(t, repair(f))
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
	report, err := s.RepairUneven(ctx, "u")
	require.NoError(t, err)
	require.True(t, report.Changed())
	report, err = s.RepairUnique(ctx, "u")
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
