//go:build unix

package longjob_test

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/resqued/resqued"
	"github.com/resqued/resqued/internal/jobctx"
	"github.com/resqued/resqued/internal/longstore"
	"github.com/resqued/resqued/internal/store"
	"github.com/resqued/resqued/internal/testkit/redistest"
	"github.com/resqued/resqued/internal/wire"
	"github.com/resqued/resqued/longjob"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(withRedis{m}, redistest.Probing())
}

// bed is a Redis with a registry, a client and processes that work slices one by one.
type bed struct {
	*longjob.Client
	t     *testing.T
	h     *resqued.Handlers
	store *store.Store
	long  *longstore.Store
	redis *redis.Client
	ns    string
	next  atomic.Int64

	crashed, buried chan struct{}
}

func newBed(t *testing.T) *bed {
	t.Helper()
	server := redistest.Shared(t)
	b := &bed{t: t, h: resqued.New(), redis: server.Client(t), ns: redistest.Namespace(t), crashed: make(chan struct{}), buried: make(chan struct{})}
	var err error
	b.store, err = store.Open(store.Options{URL: server.URL(), Namespace: b.ns, Lease: time.Hour, LockTTL: store.DefaultLease})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, b.store.Close()) })
	b.long = longstore.New(b.store.Redis())
	b.Client, err = longjob.NewClient(longjob.ClientOptions{URL: server.URL(), Namespace: b.ns, Handlers: b.h})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, b.Close()) })
	return b
}

// taken is a slice in the hands of a process.
type taken struct {
	b        *bed
	proc     string
	reserved store.Reserved
	leaving  context.Context
	leave    context.CancelFunc
	ctx      context.Context
	kill     context.CancelCauseFunc
}

// proc registers a process.
func (b *bed) proc() string {
	b.t.Helper()
	proc := fmt.Sprintf("p%d", b.next.Add(1))
	require.NoError(b.t, b.store.Register(b.t.Context(), store.Registration{Proc: proc, Workers: []string{"h/0.0:1:q"}, Started: "now", Info: map[string]string{"pid": "1"}}))
	return proc
}

// take reserves a job by a process of its own; nil = no job waits.
func (b *bed) take(queues ...string) *taken {
	b.t.Helper()
	proc := b.proc()
	req := store.ExchangeRequest{Proc: proc, Master: "m", Wants: []store.Want{{Token: "t", Worker: "h/0.0:1:q"}}, Suspects: store.TakeSuspects}
	for _, q := range queues {
		req.Queues = append(req.Queues, store.Queue{Name: q, Locked: true})
	}
	reply, err := b.store.Exchange(b.t.Context(), req)
	require.NoError(b.t, err)
	if len(reply.Jobs) == 0 {
		return nil
	}
	k := &taken{b: b, proc: proc, reserved: reply.Jobs[0]}
	k.leaving, k.leave = context.WithCancel(b.t.Context())
	k.ctx, k.kill = context.WithCancelCause(b.long.InContext(b.t.Context()))
	return k
}

// perform runs the handler of the slice and returns its error.
func (k *taken) perform() error {
	e, err := wire.Parse(k.reserved.Payload, 0)
	if err != nil {
		return err
	}
	class, ok := k.b.h.Lookup(e.Class)
	if !ok {
		return fmt.Errorf("no class %q", e.Class)
	}
	job := &resqued.Job{ID: e.ID, Class: e.Class, Args: e.Args, Payload: k.reserved.Payload, Queue: k.reserved.Queue}
	*jobctx.RunOf(job) = jobctx.Run{Proc: k.proc, Token: k.reserved.Token}
	return class.Handler(jobctx.WithLeaving(k.ctx, k.leaving), job)
}

// complete ends the record of the slice as a worker process does.
func (k *taken) complete(result error) {
	k.b.t.Helper()
	c := store.Completion{Job: &k.reserved, Kind: store.Done}
	var requeue *resqued.RequeueError
	switch {
	case errors.As(result, &requeue):
		c.Kind, c.Delay = store.Requeued, requeue.After
	case errors.Is(result, resqued.Discard):
	case result != nil:
		c.Kind, c.Failure = store.Failed, store.Record([]byte(`{"error":"x"}`))
	}
	_, err := k.b.store.Exchange(k.b.t.Context(), store.ExchangeRequest{Proc: k.proc, Master: "m", Completions: []store.Completion{c}})
	require.NoError(k.b.t, err)
}

// die recovers the slice as if its process was found dead.
func (k *taken) die() {
	k.b.t.Helper()
	_, _, err := k.b.store.Fence(k.b.t.Context(), k.proc, true)
	require.NoError(k.b.t, err)
	require.NoError(k.b.t, k.b.store.Recover(k.b.t.Context(), k.proc, []store.Verdict{{Token: k.reserved.Token, Action: store.Requeue}}))
}

// work runs slices until nothing waits, and returns how many. None of them may fail.
func (b *bed) work(queues ...string) (slices int) {
	b.t.Helper()
	for {
		k := b.take(queues...)
		if k == nil {
			return slices
		}
		err := k.perform()
		if err != nil && !errors.Is(err, resqued.Discard) {
			var requeue *resqued.RequeueError
			require.ErrorAs(b.t, err, &requeue)
		}
		k.complete(err)
		slices++
		require.Less(b.t, slices, 10000, "it goes on for ever")
	}
}

func (b *bed) run(uuid string) longjob.Run {
	b.t.Helper()
	run, err := b.Get(b.t.Context(), uuid)
	require.NoError(b.t, err)
	return run
}

func (b *bed) enqueue(class string, args any) string {
	b.t.Helper()
	res, err := b.Enqueue(b.t.Context(), class, args)
	require.NoError(b.t, err)
	require.Equal(b.t, longjob.OutcomeNew, res.Outcome)
	return res.UUID
}

// quick are options of tests: a slice ends after each unit.
func quick() longjob.Options {
	return longjob.Options{Queue: "q", RequeueQueue: "low", MaxUnits: 1, Slice: time.Hour}
}
