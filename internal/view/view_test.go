package view_test

import (
	"context"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/resqued/resqued/internal/store"
	"github.com/resqued/resqued/internal/testkit/redistest"
	"github.com/resqued/resqued/internal/view"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m, redistest.Probing()) }

const (
	master = "web-1:0a1b2c3d:4700-55"
	proc   = master + ":0.1"
	worker = "web-1~resqued:9120.0.3-k2f9:q:,q"
)

// fixture is a namespace with one worker process, 9120, of a master, 4700.
type fixture struct {
	*testing.T
	ns    string
	redis *redis.Client
	store *store.Store
	url   string
}

// views runs a test on a Redis and on miniredis.
func views(t *testing.T, test func(f *fixture)) {
	t.Parallel()
	redistest.Both(t, func(t *testing.T, server *redistest.Server) {
		f := &fixture{T: t, ns: redistest.Namespace(t), redis: server.Client(t), url: server.URL()}
		s, err := store.Open(store.Options{URL: f.url, Namespace: f.ns, Lease: time.Hour, LockTTL: store.DefaultLease})
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, s.Close()) })
		f.store = s
		require.NoError(t, s.Register(t.Context(), store.Registration{
			Proc: proc, Workers: []string{worker},
			Info: map[string]string{
				"host": "web-1", "pid": "9120", "slot": "0", "state": "running", "threads": "4", "quota": "100", "done": "97", "rss": "4096",
				"queues": "q", "version": "v1",
			},
		}))
		test(f)
	})
}

// do runs one command on Redis; its first argument is a key without the namespace.
func (f *fixture) do(command, key string, args ...any) {
	f.Helper()
	require.NoError(f, f.redis.Do(f.Context(), append([]any{command, f.ns + ":" + key}, args...)...).Err())
}

func (f *fixture) putMaster(fields map[string]string) {
	f.Helper()
	_, err := f.store.PutMaster(f.Context(), store.MasterInfo{ID: master, Fields: fields, TTL: time.Hour})
	require.NoError(f, err)
}

// push enqueues payloads in a queue.
func (f *fixture) push(queue string, payloads ...string) {
	f.Helper()
	for _, p := range payloads {
		_, err := f.store.Push(f.Context(), queue, []byte(p))
		require.NoError(f, err)
	}
}

// reserve takes a job of queue q as the process does.
func (f *fixture) reserve(payload string) store.Reserved {
	f.Helper()
	f.push("q", payload)
	reply, err := f.store.Exchange(f.Context(), store.ExchangeRequest{
		Proc: proc, Wants: []store.Want{{Token: redistest.Unique(), Worker: worker}}, Queues: []store.Queue{{Name: "q", Locked: true}},
	})
	require.NoError(f, err)
	require.Len(f, reply.Jobs, 1)
	return reply.Jobs[0]
}

// requireNotFound demands that err says that there is no such thing, and what there is.
func requireNotFound(t *testing.T, err error, kind, name string, known ...string) {
	t.Helper()
	var missing *view.NotFoundError
	require.ErrorAs(t, err, &missing)
	require.Equal(t, kind, missing.Kind)
	require.Equal(t, name, missing.Name)
	require.Subset(t, missing.Known, known)
}

// cancelled is a context that has ended.
func cancelled() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return ctx
}
