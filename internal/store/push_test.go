package store_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/resqued/resqued/internal/rdb"
	"github.com/resqued/resqued/internal/store"
	"github.com/resqued/resqued/internal/testkit/redistest"
	"github.com/resqued/resqued/internal/testkit/storetest"
)

func bytesOf(payloads ...string) [][]byte {
	out := make([][]byte, len(payloads))
	for i, p := range payloads {
		out[i] = []byte(p)
	}
	return out
}

func (f *fixture) pushUnique(queue string, payloads ...string) store.PushReply {
	f.t.Helper()
	reply, err := f.PushUnique(f.t.Context(), queue, false, bytesOf(payloads...)...)
	require.NoError(f.t, err)
	return reply
}

func TestPushUnique(t *testing.T) {
	t.Parallel()
	one, two := job("A", "[1]"), job("A", "[2]")
	redistest.Both(t, func(t *testing.T, server *redistest.Server) {
		t.Run("an equal payload is pushed once", func(t *testing.T) {
			f := setup(t, server)
			require.Equal(t, store.PushReply{Length: 1, Pushed: []bool{true}}, f.pushUnique("q", one))
			require.Equal(t, store.PushReply{Length: 1, Pushed: []bool{false}}, f.pushUnique("q", one))
			require.Equal(t, []string{"q"}, f.redis.SMembers(t.Context(), f.key("queues")).Val())
			f.inStep("q")
			at, err := f.redis.LIndex(t.Context(), f.key("queue:q:start_at"), 0).Int64()
			require.NoError(t, err)
			require.WithinDuration(t, time.Now(), time.Unix(at, 0), time.Minute)
		})
		t.Run("of several each is told", func(t *testing.T) {
			f := setup(t, server)
			f.pushUnique("q", two)
			reply := f.pushUnique("q", one, two, one, `{"class":"A","args":[ 1]}`)
			require.Equal(t, store.PushReply{Length: 3, Pushed: []bool{true, false, false, true}}, reply)
			require.Equal(t, []string{two, one, `{"class":"A","args":[ 1]}`}, f.list("queue:q"))
			f.inStep("q")
		})
		t.Run("a job that was taken may be pushed again", func(t *testing.T) {
			f := setup(t, server)
			f.pushUnique("q", one)
			require.Len(t, f.exchange(store.ExchangeRequest{Wants: f.wants(1), Queues: uniqueQueue}).Jobs, 1)
			require.True(t, f.pushUnique("q", one).Pushed[0])
		})
		t.Run("bytes survive", func(t *testing.T) {
			f := setup(t, server)
			f.pushUnique("q", delicate...)
			require.Equal(t, delicate, f.list("queue:q"))
			f.inStep("q")
		})
		for name, spoil := range map[string]func(f *fixture){
			"out of step": func(f *fixture) { f.redis.SAdd(f.t.Context(), f.key("queue:q:uniqueue"), one) },
			"of equal lengths": func(f *fixture) {
				f.pushUnique("q", one)
				f.redis.LSet(f.t.Context(), f.key("queue:q"), -1, job("X", "[]"))
			},
		} {
			t.Run("a stale member refuses nothing, "+name, func(t *testing.T) {
				f := setup(t, server)
				f.pushUnique("q", two)
				spoil(f)
				require.True(t, f.pushUnique("q", one).Pushed[0])
				require.False(t, f.pushUnique("q", one).Pushed[0])
				_, err := f.RepairUnique(t.Context(), "q")
				require.NoError(t, err)
				f.inStep("q")
			})
		}
		t.Run("what waits unknown to the set is a duplicate", func(t *testing.T) {
			f := setup(t, server)
			f.pushUnique("q", two)
			f.redis.RPush(t.Context(), f.key("queue:q"), one)
			require.False(t, f.pushUnique("q", one).Pushed[0])
			f.redis.Del(t.Context(), f.key("queue:q:uniqueue"))
			require.False(t, f.pushUnique("q", two).Pushed[0])
			require.Equal(t, []string{two, one}, f.list("queue:q"))
		})
		t.Run("a strict queue out of step takes nothing", func(t *testing.T) {
			f := setup(t, server)
			_, err := f.PushUnique(t.Context(), "q", true, []byte(one))
			require.NoError(t, err)
			f.redis.RPush(t.Context(), f.key("queue:q"), two)
			_, err = f.PushUnique(t.Context(), "q", true, []byte(job("A", "[3]")))
			require.ErrorIs(t, err, store.ErrOutOfStep)
			require.ErrorContains(t, err, "resqued locks repair q")
			require.Equal(t, []string{one, two}, f.list("queue:q"))
			strict := []store.Queue{{Name: "q", Unique: true, Strict: true}}
			reply := f.exchange(store.ExchangeRequest{Wants: f.wants(1), Queues: strict})
			require.Empty(t, reply.Jobs)
			require.Equal(t, []string{"q"}, reply.OutOfStep)
			_, err = f.RepairUnique(t.Context(), "q")
			require.NoError(t, err)
			require.Len(t, f.exchange(store.ExchangeRequest{Wants: f.wants(1), Queues: strict}).Jobs, 1)
		})
		t.Run("a key of another type is named, and nothing is pushed", func(t *testing.T) {
			for _, key := range []string{"queue:q", "queue:q:uniqueue", "queue:q:start_at", "queues"} {
				f := setup(t, server)
				f.redis.Set(t.Context(), f.key(key), "text", 0)
				_, err := f.PushUnique(t.Context(), "q", false, []byte(one))
				require.Error(t, err, key)
				for _, other := range []string{"queue:q", "queue:q:uniqueue", "queue:q:start_at"} {
					require.Equal(t, key == other, f.exists(other), other)
				}
			}
		})
	})
}

// While a long queue is out of step, only its ends say what waits.
func TestPushUniqueOutOfStep(t *testing.T) {
	t.Parallel()
	redistest.Both(t, func(t *testing.T, server *redistest.Server) {
		f := setup(t, server)
		const jobs = 30_000
		f.gemPush("q", numbered(0, jobs)...)
		f.redis.SAdd(t.Context(), f.key("queue:q:uniqueue"), job("Z", "[1]"))
		f.redis.RPush(t.Context(), f.key("queue:q"), job("X", "[1]"))
		require.False(t, f.pushUnique("q", job("A", "[0]")).Pushed[0], "at the head")
		require.False(t, f.pushUnique("q", job("X", "[1]")).Pushed[0], "at the tail, unknown to the set")
		require.True(t, f.pushUnique("q", job("Z", "[1]")).Pushed[0], "a stale member")
		require.True(t, f.pushUnique("q", job("A", "[15000]")).Pushed[0], "in the middle")
		report, err := f.RepairUnique(t.Context(), "q")
		require.NoError(t, err)
		require.Equal(t, []string{job("A", "[15000]")}, report.Dropped)
		f.inStep("q")
		require.Equal(t, append(numbered(0, jobs), job("X", "[1]"), job("Z", "[1]")), f.list("queue:q"))
		require.False(t, f.pushUnique("q", job("A", "[15000]")).Pushed[0], "the set knows it")
	})
}

// uniqueGem is resque-uniqueue on the wire: three scripts, sent by their names.
type uniqueGem struct {
	f                *fixture
	push, check, pop *redis.Script
}

func newUniqueGem(f *fixture) uniqueGem {
	names := "local q, s, t = KEYS[1], KEYS[1] .. ':uniqueue', KEYS[1] .. ':start_at'\n"
	return uniqueGem{
		f: f,
		push: redis.NewScript(names + `if redis.call('SADD', s, ARGV[1]) == 0 then return nil end
			redis.call('RPUSH', t, ARGV[2])
			return redis.call('RPUSH', q, ARGV[1])`),
		check: redis.NewScript(names + `local n = redis.call('LLEN', q)
			if n ~= redis.call('SCARD', s) or n ~= redis.call('LLEN', t) then return nil end
			return 1`),
		pop: redis.NewScript(names + `local p, at = redis.call('LPOP', q), redis.call('LPOP', t)
			if p then redis.call('SREM', s, p) end
			return {p, at}`),
	}
}

func (g uniqueGem) run(s *redis.Script, args ...any) any {
	g.f.t.Helper()
	v, err := s.Run(g.f.t.Context(), g.f.redis, []string{g.f.key("queue:q")}, args...).Result()
	if err != redis.Nil { //nolint:errorlint // never wrapped
		require.NoError(g.f.t, err)
	}
	return v
}

func (g uniqueGem) enqueue(payload string) (pushed bool) {
	g.f.redis.SAdd(g.f.t.Context(), g.f.key("queues"), "q")
	return g.run(g.push, payload, time.Now().Unix()) != nil
}

// reserve does as the gem's worker: it raises when the lengths differ.
func (g uniqueGem) reserve() (payload string) {
	g.f.t.Helper()
	require.EqualValues(g.f.t, 1, g.run(g.check), "the gem raises")
	job, _ := g.run(g.pop).([]any)
	if len(job) == 0 || job[0] == nil {
		return ""
	}
	require.NotNil(g.f.t, job[1], "no start time")
	payload, _ = job[0].(string)
	return payload
}

func TestUniqueBesideTheGem(t *testing.T) {
	t.Parallel()
	redistest.Both(t, func(t *testing.T, server *redistest.Server) {
		f := setup(t, server)
		g := newUniqueGem(f)
		queues := []store.Queue{{Name: "q", Unique: true, Locked: true}}
		waiting := map[string]bool{}
		take := func(payload string) {
			require.True(t, waiting[payload], payload)
			delete(waiting, payload)
		}
		var held []store.Reserved
		for i := range 600 {
			payload := job("A", fmt.Sprintf("[%d]", i*7%23))
			switch i % 6 {
			case 0:
				require.Equal(t, !waiting[payload], g.enqueue(payload))
				waiting[payload] = true
			case 1, 2:
				require.Equal(t, !waiting[payload], f.pushUnique("q", payload).Pushed[0])
				waiting[payload] = true
			case 3:
				if p := g.reserve(); p != "" {
					take(p)
				}
			case 4:
				reply := f.exchange(store.ExchangeRequest{Wants: f.wants(2), Queues: queues})
				require.Empty(t, reply.OutOfStep)
				for _, j := range reply.Jobs {
					require.False(t, j.EnqueuedAt.IsZero())
					take(string(j.Payload))
				}
				held = append(held, reply.Jobs...)
			case 5:
				if len(held) == 0 {
					break
				}
				kind := []store.Kind{store.Done, store.Requeued, store.Returned}[i%3]
				reply := f.exchange(store.ExchangeRequest{Completions: []store.Completion{{Job: &held[0], Kind: kind}}})
				if kind != store.Done {
					require.Equal(t, waiting[string(held[0].Payload)], len(reply.Duplicates) == 1)
					waiting[string(held[0].Payload)] = true
				}
				held = held[1:]
			}
			require.EqualValues(t, 1, g.run(g.check), "the gem raises")
		}
		require.Len(t, f.list("queue:q"), len(waiting))
	})
}

// Without the right to MULTI the server takes a transaction's commands one by one.
func TestPushWithFewRights(t *testing.T) {
	t.Parallel()
	redistest.NeedsMajor(t, 6)
	server := redistest.Start(t, redistest.Options{})
	client := server.Client(t)
	push := func(rights string) error {
		args := []any{"ACL", "SETUSER", "producer", "reset", "on", ">pw", "~resque:*"}
		for rule := range strings.FieldsSeq(rights) {
			args = append(args, rule)
		}
		require.NoError(t, client.Do(t.Context(), args...).Err())
		s, err := store.Open(store.Options{URL: server.URLAs("producer", "pw"), Namespace: "resque"})
		require.NoError(t, err)
		defer func() { _ = s.Close() }()
		_, err = s.Push(t.Context(), "q", []byte("x"))
		return err
	}
	require.NoError(t, push("+multi +exec +sadd +rpush +ping +@connection"))
	require.EqualValues(t, 1, client.LLen(t.Context(), "resque:queue:q").Val())
	err := push("+multi +exec +sadd +ping +@connection")
	require.ErrorContains(t, err, "NOPERM")
	require.True(t, rdb.Unexecuted(err))
	require.EqualValues(t, 1, client.LLen(t.Context(), "resque:queue:q").Val())
	err = push("+exec +sadd +rpush +ping +@connection")
	require.ErrorContains(t, err, "may have been pushed")
	require.False(t, rdb.Unexecuted(err))
}

// Rights that change while a transaction is under way may refuse one command of it.
func TestPushThatIsRefusedInPart(t *testing.T) {
	t.Parallel()
	for refusedAt, unexecuted := range map[int]bool{1: false, 2: true} {
		f := setup(t, redistest.Shared(t))
		storetest.Intercept(f.Redis(), func(cmds []redis.Cmder, _ func() error) error {
			push, ok := cmds[2].(*redis.IntCmd)
			require.True(t, ok)
			push.SetVal(1)
			err := refused("NOPERM ACLs rules changed between the moment the transaction was accumulated and the EXEC call.")
			cmds[refusedAt].SetErr(err)
			if refusedAt == 2 {
				push.SetVal(0)
			}
			return err
		})
		_, err := f.Push(t.Context(), "q", []byte(job("A", "[1]")))
		require.Error(t, err)
		require.Equal(t, unexecuted, rdb.Unexecuted(err), refusedAt)
	}
}
