package store_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/resqued/resqued/internal/rdb"
	"github.com/resqued/resqued/internal/store"
	"github.com/resqued/resqued/internal/testkit/faultproxy"
	"github.com/resqued/resqued/internal/testkit/redistest"
)

// demoted is a store whose connections lead to a server that is a replica now, while
// new ones lead to another, next.
func demoted(t *testing.T, staleReads string) (f *fixture, next *redis.Client) {
	t.Helper()
	const connections = 8
	old, successor := redistest.Start(t, redistest.Options{}), redistest.Start(t, redistest.Options{})
	proxy, err := faultproxy.Listen(faultproxy.Config{Network: "unix", Address: old.Socket})
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	served := make(chan error, 1)
	go func() { served <- proxy.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		require.NoError(t, <-served)
	})
	f = setup(t, old, func(o *store.Options) { o.URL, o.PoolSize = "redis://"+proxy.Addr()+"/0", connections })

	proxy.Hold()
	var all sync.WaitGroup
	for range connections {
		all.Go(func() { _, err := f.Push(t.Context(), "before", []byte("{}")); require.NoError(t, err) })
		all.Go(func() { require.NoError(t, f.Ping(t.Context())) })
	}
	require.Eventually(t, func() bool { return proxy.Connections.Load() >= 2*connections }, 30*time.Second, time.Millisecond)
	proxy.Release()
	all.Wait()

	beside := old.Client(t)
	require.NoError(t, beside.ConfigSet(t.Context(), "replica-serve-stale-data", staleReads).Err())
	require.NoError(t, beside.Do(t.Context(), "REPLICAOF", "127.0.0.1", "1").Err())
	proxy.SetTarget("unix", successor.Socket)
	return f, successor.Client(t)
}

func TestAServerThatIsPrimaryNoMore(t *testing.T) {
	t.Parallel()
	calls := map[string]func(ctx context.Context, s *store.Store) error{
		"push": func(ctx context.Context, s *store.Store) error {
			_, err := s.Push(ctx, "q", []byte(job("A", "[1]")))
			return err
		},
		"push to a unique queue": func(ctx context.Context, s *store.Store) error {
			_, err := s.PushUnique(ctx, "q", false, []byte(job("A", "[1]")))
			return err
		},
		"register": func(ctx context.Context, s *store.Store) error {
			return s.Register(ctx, store.Registration{Proc: "p2", Workers: []string{"w:1:q"}, Started: "now"})
		},
		"show a master": func(ctx context.Context, s *store.Store) error {
			_, err := s.PutMaster(ctx, store.MasterInfo{ID: "m", Fields: map[string]string{"a": "b"}, TTL: time.Minute})
			return err
		},
		"remove a master": func(ctx context.Context, s *store.Store) error {
			_, err := s.DropMaster(ctx, "m")
			return err
		},
	}
	for name, call := range calls {
		for word, staleReads := range map[string]string{"READONLY": "yes", "MASTERDOWN": "no"} {
			t.Run(name+", "+word, func(t *testing.T) {
				t.Parallel()
				f, next := demoted(t, staleReads)
				if major, err := redistest.Major(); name == "push" && word == "READONLY" && (err != nil || major < 6) {
					require.NoError(t, err)
					// It answers EXEC as if all had gone well, with no replies: as docs/redis-keys.md
					// has it, nothing was pushed and the outcome is unknown.
					f.Redis().Write.(*redis.Client).Options().ReadTimeout = time.Second
					err := call(t.Context(), f.Store)
					require.Error(t, err)
					require.False(t, rdb.Unexecuted(err))
					require.Zero(t, next.Exists(t.Context(), f.key("queue:q")).Val())
					return
				}
				require.NoError(t, call(t.Context(), f.Store), "the next try must go to the successor")
				// So must all that follows, reading included.
				require.NoError(t, next.SAdd(t.Context(), f.key("queues"), "after").Err())
				queues, err := f.QueueList(t.Context())
				require.NoError(t, err)
				require.Contains(t, fmt.Sprint(queues), "after")
			})
		}
	}
}

// refused is an answer of a server.
type refused string

func (r refused) Error() string { return string(r) }
func (refused) RedisError()     {}

func TestUnexecuted(t *testing.T) {
	t.Parallel()
	const before7 = "ERR Error running script (call to f_0123): @user_script:7: @user_script: 7: "
	for text, want := range map[string]bool{
		"READONLY You can't write against a read only replica.":                                    true,
		"READONLY You can't write against a read only replica. script: 01, on @user_script:7.":     true,
		before7 + "-READONLY You can't write against a read only replica.":                         true,
		before7 + "-OOM command not allowed when used memory > 'maxmemory'.":                       true,
		"OOM command not allowed when used memory > 'maxmemory'. script: 01, on @user_script:7.":   true,
		"LOADING Redis is loading the dataset in memory":                                           true,
		"ERR max number of clients reached":                                                        true,
		"RESQUEDTYPE queue:q is not a list; move it away":                                          true,
		"ERR max number of clientsx":                                                               false,
		"BUSYKEY Target key name already exists.":                                                  false,
		"WRONGTYPE Operation against a key holding the wrong kind of value":                        false,
		before7 + "WRONGTYPE Operation against a key holding the wrong kind of value":              false,
		"ERR Error running script (call to f_0123): @user_script:58: -RESQUEDTYPE h is not a hash": true,
		"@user_script: 694: -OOM command not allowed when used memory > 'maxmemory'.":              true,
		"@user_script: 694: The user executing the script can't run this command or subcommand":    false,
		"EXECABORT Transaction discarded because of previous errors.":                              false,
		"EXECABORT Transaction discarded because of: OOM command not allowed.":                     true,
		"EXECABORT Transaction discarded because of: somebody":                                     false,
		"ERR something about READONLY servers":                                                     false,
	} {
		require.Equal(t, want, rdb.Unexecuted(fmt.Errorf("push: %w", refused(text))), text)
	}
	require.False(t, rdb.Unexecuted(nil))
	require.False(t, rdb.Unexecuted(errors.New("READONLY, says somebody else")))
}
