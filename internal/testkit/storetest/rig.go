package storetest

import (
	"context"
	"fmt"
	"io/fs"
	"sync"
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/resqued/resqued/internal/longstore"
	"github.com/resqued/resqued/internal/rdb"
	"github.com/resqued/resqued/internal/store"
	"github.com/resqued/resqued/internal/testkit/redistest"
	"github.com/resqued/resqued/internal/testkit/testlevel"
)

// Space is the namespace of every sequence: each begins with an empty database.
const Space = "m:"

// Rig is an otherwise empty Redis for sequences of random steps.
type Rig struct {
	Store *store.Store
	Long  *longstore.Store
	Redis *redis.Client
	Ctx   context.Context //nolint:containedctx // of the test
	// AsksRights is the result of the function; if it is false, no rights are taken away.
	AsksRights bool
	// Seen counts what the sequences encountered.
	Seen map[string]int
}

// NewRig starts a Redis. Its stores use a login whose rights can be changed.
func NewRig(t *testing.T) *Rig {
	t.Helper()
	server := redistest.Start(t, redistest.Options{})
	r := &Rig{Redis: server.Client(t), Ctx: t.Context(), Seen: map[string]int{}}
	r.AsksRights = AsksRights(t)
	login := ""
	if r.AsksRights {
		login = "model:pw@"
		r.Rights(t, "+@all")
	}
	s, err := store.Open(store.Options{URL: "unix://" + login + server.Socket, Namespace: "m"})
	require.NoError(t, err)
	t.Cleanup(func() { _ = s.Close() })
	r.Store, r.Long = s, longstore.New(s.Redis())
	return r
}

// AsksRights reports whether scripts can ask the server for rights. Before Redis 7 they cannot,
// and promise nothing if one is missing.
func AsksRights(t *testing.T) bool {
	t.Helper()
	major, err := redistest.Major()
	require.NoError(t, err)
	return major >= 7
}

// See notes that a sequence encountered something.
func (r *Rig) See(what string) { r.Seen[what]++ }

// Rights changes the rights of the scripts' user, if AsksRights.
func (r *Rig) Rights(t require.TestingT, rules ...string) {
	if !r.AsksRights {
		return
	}
	args := []any{"ACL", "SETUSER", "model", "on", ">pw", "~*", "&*"}
	for _, rule := range rules {
		args = append(args, rule)
	}
	require.NoError(t, r.Redis.Do(r.Ctx, args...).Err())
}

// Commands are all commands in scripts. They are searched once: the models ask thousands of
// times.
var Commands = sync.OnceValue(func() []string {
	r := rdb.Rehearsal{Files: []fs.FS{store.Lua, longstore.Lua}}
	return r.Commands()
})

// RunModel runs sequences of random steps in shards of a hundred, each shard on its own Redis:
// shards with make test, nightly at night, one with -short. Each of the sights must be seen, at
// night more than three times.
func RunModel(t *testing.T, shards, nightly int, sequence func(*Rig, *rapid.T), sights []string) {
	t.Helper()
	least := 1
	switch {
	case testing.Short():
		shards = 1
	case testlevel.Nightly():
		shards, least = nightly, 4
	}
	var mu sync.Mutex
	seen := map[string]int{}
	t.Run("shards", func(t *testing.T) {
		for i := range shards {
			t.Run(fmt.Sprint(i), func(t *testing.T) {
				t.Parallel()
				r := NewRig(t)
				rapid.Check(t, Shard(i, func(t *rapid.T) { sequence(r, t) }))
				mu.Lock()
				defer mu.Unlock()
				for what, n := range r.Seen {
					seen[what] += n
				}
			})
		}
	})
	t.Log(seen)
	if t.Failed() || testing.Short() {
		return
	}
	for _, what := range sights {
		if what == "right missing" && !AsksRights(t) {
			continue
		}
		require.GreaterOrEqual(t, seen[what], least, "the model hardly ever sees: %s", what)
	}
}

// Shard returns the property with the examples of the i-th shard. They differ from other
// shards', even with a common RAPID_SEED.
func Shard(i int, property func(*rapid.T)) func(*rapid.T) {
	return func(t *rapid.T) {
		for range i {
			rapid.Bool().Draw(t, "shard")
		}
		property(t)
	}
}

// Item is a payload in a queue.
type Item struct{ Queue, Payload string }

// Owner is the text with which a lock's value names its holder.
func Owner(proc, token string) string { return "resqued:" + proc + "#" + token }

// Must fails a sequence with an error.
func Must(t *rapid.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
