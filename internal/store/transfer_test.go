package store_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/resqued/resqued/internal/store"
	"github.com/resqued/resqued/internal/testkit/redistest"
	"github.com/resqued/resqued/internal/testkit/storetest"
)

var errKilled = errors.New("killed")

// killer is an error from the nth script on.
func killer(n int) func() error {
	return func() error {
		if n--; n <= 0 {
			return errKilled
		}
		return nil
	}
}

func watch(stores ...*fixture) *store.Killer {
	k := &store.Killer{}
	for _, f := range stores {
		k.Watch(f.Store)
	}
	return k
}

// transferModel moves jobs between two stores, is killed at any point, and demands that each job
// is in one place, once, in order.
type transferModel struct {
	a, b           *store.Store
	redis          *redis.Client
	ctx            context.Context //nolint:containedctx // of the test
	spaceA, spaceB string
	killer         *store.Killer
}

func (m *transferModel) list(key string) []string { return m.redis.LRange(m.ctx, key, 0, -1).Val() }

func (m *transferModel) request() store.TransferRequest {
	n, err := m.a.Length(m.ctx, "q")
	if err != nil {
		panic(err)
	}
	return store.TransferRequest{Queue: "q", Where: "b", Limit: n, Pick: func(p []byte) bool { return !strings.HasPrefix(string(p), "stay") }}
}

func (m *transferModel) run(t *rapid.T) {
	for _, space := range []string{m.spaceA, m.spaceB} {
		m.redis.Del(m.ctx, space+"queue:q", space+"queues", space+"resqued:moving", space+"resqued:moving:q", space+"resqued:moved")
	}
	serial := 0
	var pushed, takenA, takenB []string
	take := func(space string, into *[]string) {
		if p, err := m.redis.LPop(m.ctx, space+"queue:q").Result(); err == nil {
			*into = append(*into, p)
		}
	}
	var late []func() error
	for range rapid.IntRange(1, 12).Draw(t, "steps") {
		switch step := rapid.SampledFrom([]string{"push", "push", "move", "move", "move", "takeA", "takeB", "keep", "late", "back", "pushB"}).Draw(t, "step"); step {
		case "push":
			for range rapid.IntRange(1, 8).Draw(t, "n") {
				serial++
				p := fmt.Sprintf("%s %d", rapid.SampledFrom([]string{"job", "job", "job", "stay"}).Draw(t, "kind"), serial)
				pushed = append(pushed, p)
				require.NoError(t, m.redis.RPush(m.ctx, m.spaceA+"queue:q", p).Err())
			}
		case "pushB":
			serial++
			p := fmt.Sprintf("own %d", serial)
			pushed = append(pushed, p)
			require.NoError(t, m.redis.RPush(m.ctx, m.spaceB+"queue:q", p).Err())
		case "move":
			at := rapid.IntRange(0, 9).Draw(t, "killed after")
			m.killer.After = killer(at + 1)
			_, err := m.a.Transfer(m.ctx, m.b, m.request())
			m.killer.After = nil
			if !errors.Is(err, errKilled) {
				require.NoError(t, err)
			}
		case "takeA":
			take(m.spaceA, &takenA)
		case "takeB":
			take(m.spaceB, &takenB)
		case "keep":
			again, err := store.LateDelivery(m.ctx, m.a, m.b, "q")
			require.NoError(t, err)
			if again != nil {
				late = append(late, again)
				require.NoError(t, again()) // it has arrived once, whatever its caller has heard
			}
		case "late":
			for _, again := range late {
				require.NoError(t, again())
			}
		case "back":
			// Only what has not arrived may go back.
			if err := m.stagedArrived(); err == nil {
				_, err := m.a.TransferBack(m.ctx, nil, "q")
				require.NoError(t, err)
			}
		}
	}
	_, err := m.a.Transfer(m.ctx, m.b, m.request())
	require.NoError(t, err)
	for _, again := range late {
		require.NoError(t, again())
	}
	restA, restB := m.list(m.spaceA+"queue:q"), m.list(m.spaceB+"queue:q")
	require.Empty(t, m.list(m.spaceA+"resqued:moving:q"))
	require.Equal(t, sorted(pushed), sorted(slices.Concat(takenA, takenB, restA, restB)), "each job is in one place")
	for _, p := range restA {
		require.True(t, strings.HasPrefix(p, "stay"), p)
	}
	var arrived []int
	for _, p := range slices.Concat(takenB, restB) {
		var n int
		if _, err := fmt.Sscanf(p, "job %d", &n); err == nil {
			arrived = append(arrived, n)
		}
		require.False(t, strings.HasPrefix(p, "stay"), p)
	}
	require.True(t, slices.IsSorted(arrived), "in order: %v", arrived)
}

// stagedArrived returns an error unless it is certain that what is on its way has not arrived.
func (m *transferModel) stagedArrived() error {
	number := m.redis.HGet(m.ctx, m.spaceA+"resqued:moving", "n:q").Val()
	id := m.redis.HGet(m.ctx, m.spaceA+"resqued:moving", "id").Val()
	last, _, _ := strings.Cut(m.redis.HGet(m.ctx, m.spaceB+"resqued:moved", id+":q").Val(), " ")
	if number != "" && number == last {
		return errors.New("it has arrived")
	}
	return nil
}

func TestTransferModel(t *testing.T) {
	t.Parallel()
	redistest.Both(t, func(t *testing.T, server *redistest.Server) {
		a, b := setup(t, server), setup(t, server)
		m := &transferModel{a: a.Store, b: b.Store, redis: a.redis, ctx: t.Context(), spaceA: a.ns + ":", spaceB: b.ns + ":", killer: watch(a, b)}
		rapid.Check(t, m.run)
	})
}

// transferMutants are scripts with a defect each, which the model finds.
var transferMutants = []storetest.Mutant{
	{"a batch is taken while one is on its way", "move_out", `if len(aside) > 0 then`, `if false then`},
	{"a taken job stays", "taking", `call('LSET', key, f.at, hole)`, ``},
	{"the order of a batch is turned around", "move_out", `call('RPUSH', aside, f.payload)`, `call('LPUSH', aside, f.payload)`},
	{"a batch is pushed again", "move_in", `if number <= last then`, `if number < last then`},
	{"an old batch is pushed again", "move_in", `if number <= last then`, `if number == last then`},
	{"the number is forgotten", "move_in", `call('HSET', moved, 'id', id, from,`, `call('HSET', moved, 'id', id, 'x',`},
	{"jobs go to the head", "move_in", `call('RPUSH', key, ARGV[i])`, `call('LPUSH', key, ARGV[i])`},
	{"what has arrived stays on its way", "move_end", `call('UNLINK', aside)`, ``},
	{"what goes back is turned around", "move_end", `for i = #jobs, 1, -1 do`, `for i = 1, #jobs do`},
	{"what goes back is gone", "move_end", `call('LPUSH', key, jobs[i])`, ``},
}

func TestTransferModelFindsDefects(t *testing.T) {
	t.Parallel()
	defects := storetest.Defects{Mutants: transferMutants, Prepare: func(t *testing.T, m storetest.Mutant) func(*rapid.T) {
		t.Helper()
		server := redistest.Start(t, redistest.Options{})
		a, b := setup(t, server), setup(t, server)
		for _, s := range []*fixture{a, b} {
			require.NoError(t, storetest.Alter(s.Redis(), m[1], m[2], m[3]))
		}
		return (&transferModel{a: a.Store, b: b.Store, redis: a.redis, ctx: t.Context(), spaceA: a.ns + ":", spaceB: b.ns + ":", killer: watch(a, b)}).run
	}}
	defects.Find(t)
}

// A store that is full takes no jobs of another, as it takes none of a program.
func TestTransferToAFullServer(t *testing.T) {
	t.Parallel()
	a, b := setup(t, redistest.Shared(t)), setup(t, redistest.Start(t, redistest.Options{}))
	r := store.TransferRequest{Queue: "q", Where: "b", Limit: 9, Pick: func([]byte) bool { return true }}
	a.push("q", "1", "2")
	require.NoError(t, b.redis.ConfigSet(t.Context(), "maxmemory", "1").Err())
	_, err := a.Transfer(t.Context(), b.Store, r)
	require.ErrorContains(t, err, "OOM")
	require.Empty(t, b.list("queue:q"))
	require.NoError(t, b.redis.ConfigSet(t.Context(), "maxmemory", "0").Err())
	_, err = a.Transfer(t.Context(), b.Store, r)
	require.NoError(t, err)
	require.NoError(t, b.redis.ConfigSet(t.Context(), "maxmemory", "1").Err())
	a.push("q", "3", "4")
	_, err = a.Transfer(t.Context(), b.Store, r)
	require.ErrorContains(t, err, "OOM")
	require.Equal(t, []string{"1", "2"}, b.list("queue:q"))
	require.NoError(t, b.redis.ConfigSet(t.Context(), "maxmemory", "0").Err())
	_, err = a.Transfer(t.Context(), b.Store, r)
	require.NoError(t, err)
	require.Equal(t, []string{"1", "2", "3", "4"}, b.list("queue:q"))
}

func TestTransfer(t *testing.T) {
	t.Parallel()
	redistest.Both(t, func(t *testing.T, server *redistest.Server) {
		t.Run("many large jobs go in batches, byte by byte", func(t *testing.T) {
			a, b := setup(t, server), setup(t, server)
			var want []string
			for i := range 1200 {
				want = append(want, fmt.Sprintf(`{"class":"A","args":[%d,"%s\u2028é"]}`, i, strings.Repeat("x", i%50*100)))
			}
			a.push("q", want...)
			steps := 0
			moved, err := a.Transfer(t.Context(), b.Store, store.TransferRequest{
				Queue: "q", Where: "b", Limit: 1200, Pick: func([]byte) bool { return true }, Step: func(int64) error { steps++; return nil },
			})
			require.NoError(t, err)
			require.EqualValues(t, 1200, moved)
			require.Greater(t, steps, 2)
			require.Equal(t, want, b.list("queue:q"))
			require.Empty(t, a.list("queue:q"))
			require.True(t, b.redis.SIsMember(t.Context(), b.key("queues"), "q").Val())
		})
		t.Run("jobs in lines go first, and leave no line", func(t *testing.T) {
			a, b := setup(t, server), setup(t, server)
			a.push("q", lockmates("A", 20)...)
			held := a.turn(3, nil, "q")
			require.Len(t, held, 1)
			a.push("q", job("B", "[1]"))
			n, err := a.Length(t.Context(), "q")
			require.NoError(t, err)
			require.EqualValues(t, 20, n)
			moved, err := a.Transfer(t.Context(), b.Store, store.TransferRequest{Queue: "q", Where: "b", Limit: n, Pick: func([]byte) bool { return true }})
			require.NoError(t, err)
			require.EqualValues(t, 20, moved)
			require.Equal(t, append(lockmates("A", 20)[1:], job("B", "[1]")), b.list("queue:q"))
			a.turn(0, held, "q")
			a.noLines("q")
		})
		t.Run("one limit is kept", func(t *testing.T) {
			a, b := setup(t, server), setup(t, server)
			a.push("q", "1", "2", "3")
			moved, err := a.Transfer(t.Context(), b.Store, store.TransferRequest{Queue: "q", Limit: 2, Pick: func([]byte) bool { return true }})
			require.NoError(t, err)
			require.EqualValues(t, 2, moved)
			require.Equal(t, []string{"3"}, a.list("queue:q"))
		})
		t.Run("what is on its way to another store is not sent elsewhere", func(t *testing.T) {
			a, b, c := setup(t, server), setup(t, server), setup(t, server)
			a.push("q", "1", "2")
			r := store.TransferRequest{Queue: "q", Where: "b", Limit: 2, Pick: func([]byte) bool { return true }}
			k := watch(a, b)
			k.After = killer(3) // it has taken the jobs
			_, err := a.Transfer(t.Context(), b.Store, r)
			k.After = nil
			require.ErrorIs(t, err, errKilled)
			jobs, where, err := a.Transferring(t.Context())
			require.NoError(t, err)
			require.Equal(t, map[string]int64{"q": 2}, jobs)
			require.Equal(t, map[string]string{"q": "b"}, where)
			var elsewhere *store.TransferElsewhereError
			_, err = a.Transfer(t.Context(), c.Store, r)
			require.ErrorAs(t, err, &elsewhere)
			require.Equal(t, 2, elsewhere.Jobs)
			_, err = a.TransferBack(t.Context(), b.Store, "q")
			require.ErrorIs(t, err, store.ErrTransferGoesOn)
			back, err := a.TransferBack(t.Context(), c.Store, "q")
			require.NoError(t, err)
			require.EqualValues(t, 2, back)
			require.Equal(t, []string{"1", "2"}, a.list("queue:q"))
			_, err = a.Transfer(t.Context(), c.Store, r)
			require.NoError(t, err)
			require.Equal(t, []string{"1", "2"}, c.list("queue:q"))
			jobs, _, err = a.Transferring(t.Context())
			require.NoError(t, err)
			require.Empty(t, jobs)
		})
		t.Run("a store that has lost what it knew sends under a new number, and loses nothing", func(t *testing.T) {
			for _, known := range []string{"1", "2"} { // it sends 2, an old number, or 3, that of another batch
				a, b := setup(t, server), setup(t, server)
				r := store.TransferRequest{Queue: "q", Where: "b", Limit: 9, Pick: func([]byte) bool { return true }}
				for _, p := range []string{"1", "2", "3"} {
					a.push("q", p)
					_, err := a.Transfer(t.Context(), b.Store, r)
					require.NoError(t, err)
				}
				require.NoError(t, a.redis.HSet(t.Context(), a.key("resqued:moving"), "n:q", known).Err())
				a.push("q", "4")
				_, err := a.Transfer(t.Context(), b.Store, r)
				require.NoError(t, err)
				require.Equal(t, []string{"1", "2", "3", "4"}, b.list("queue:q"), known)
				require.Empty(t, a.list("resqued:moving:q"))
			}
		})
		t.Run("of two who move at the same time neither sends again what the other has", func(t *testing.T) {
			a, b := setup(t, server), setup(t, server)
			want := make([]string, 100)
			for i := range want {
				want[i] = strconv.Itoa(i)
			}
			a.push("q", want...)
			r := store.TransferRequest{Queue: "q", Where: "b", Limit: 100, Pick: func([]byte) bool { return true }}
			scripts, k := 0, watch(a, b)
			k.After = func() error {
				if scripts++; scripts < 3 {
					return nil
				}
				// It has taken jobs. While it stands still, another ends its batch, and is killed with the next one delivered.
				k.After = killer(6)
				_, err := a.Transfer(t.Context(), b.Store, r)
				k.After = nil
				require.ErrorIs(t, err, errKilled)
				return nil
			}
			_, err := a.Transfer(t.Context(), b.Store, r)
			require.NoError(t, err)
			_, err = a.Transfer(t.Context(), b.Store, r)
			require.NoError(t, err)
			require.Equal(t, want, b.list("queue:q"))
			require.Empty(t, a.list("queue:q"))
		})
		t.Run("a unique queue is refused, and keys of another type", func(t *testing.T) {
			a, b := setup(t, server), setup(t, server)
			_, err := a.PushUnique(t.Context(), "q", true, []byte("1"))
			require.NoError(t, err)
			r := store.TransferRequest{Queue: "q", Where: "b", Limit: 9, Pick: func([]byte) bool { return true }}
			_, err = a.Transfer(t.Context(), b.Store, r)
			require.ErrorIs(t, err, store.ErrUniqueTransfer)
			for _, key := range []string{"queue:q", "queues", "resqued:moved"} {
				a, b := setup(t, server), setup(t, server)
				a.push("q", "1")
				b.redis.Del(t.Context(), b.key(key))
				b.redis.Set(t.Context(), b.key(key), "text", 0)
				_, err = a.Transfer(t.Context(), b.Store, r)
				require.ErrorContains(t, err, "RESQUEDTYPE", key)
				require.Equal(t, []string{"1"}, a.list("queue:q"), key)
			}
			for _, key := range []string{"resqued:moving", "resqued:moving:q"} {
				a, b := setup(t, server), setup(t, server)
				a.push("q", "1")
				a.redis.Set(t.Context(), a.key(key), "text", 0)
				_, err = a.Transfer(t.Context(), b.Store, r)
				require.ErrorContains(t, err, "RESQUEDTYPE", key)
				require.Equal(t, []string{"1"}, a.list("queue:q"), key)
			}
		})
	})
}
