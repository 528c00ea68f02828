//go:build unix

package sqlscan_test

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/resqued/resqued"
	"github.com/resqued/resqued/internal/jobctx"
	"github.com/resqued/resqued/internal/longstore"
	"github.com/resqued/resqued/internal/store"
	"github.com/resqued/resqued/internal/testkit/mysqltest"
	"github.com/resqued/resqued/internal/testkit/pgtest"
	"github.com/resqued/resqued/internal/testkit/redistest"
	"github.com/resqued/resqued/internal/testkit/testlevel"
	"github.com/resqued/resqued/internal/wire"
	"github.com/resqued/resqued/longjob"
)

// server is the PostgreSQL of all tests that do not disturb theirs. Each test has a schema of
// its own.
var server *pgtest.Server

// maria is the MariaDB of these tests. Each test has a database of its own.
var maria *mysqltest.Server

func TestMain(m *testing.M) {
	if testlevel.Unit() {
		return // each test needs the server
	}
	os.Exit(func() int {
		// Most tests wait for pauses and for the server; an explicit -parallel takes
		// precedence.
		err := flag.Set("test.parallel", "6")
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		if server, err = pgtest.Launch(context.Background(), pgtest.Options{}); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		defer server.Stop()
		if maria, err = mysqltest.Launch(context.Background(), mysqltest.Options{Env: []string{"TZ=CET-1CEST,M3.5.0,M10.5.0/3"}}); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		defer maria.Stop()
		code := m.Run()
		if err := goleak.Find(redistest.Probing()); err != nil && code == 0 {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		return code
	}())
}

var schemas atomic.Int64

// bed is a schema, and a Redis with a class of long jobs, Scan, whose function a test sets.
type bed struct {
	*longjob.Client
	t     testing.TB
	pool  *pgxpool.Pool // of the job
	other *pgxpool.Pool // of the test, its statements are not watched
	watch *watch
	store *store.Store
	long  *longstore.Store
	procs int
	fn    func(ctx context.Context, r *longjob.Runner) error

	handler func(ctx context.Context, job *resqued.Job) error
	// leaving ends when the processes are to leave.
	leaving context.Context
	leave   context.CancelFunc
}

func setup(t testing.TB, o longjob.Options) *bed { return setupAt(t, server, o, "") }

// setupAt is setup with further parameters for the job's connections.
func setupAt(t testing.TB, server *pgtest.Server, o longjob.Options, params string) *bed {
	t.Helper()
	b := jobs(t, o)
	schema := fmt.Sprintf("s%d", schemas.Add(1))
	open := func(tracer pgx.QueryTracer, name, params string) *pgxpool.Pool {
		config, err := pgxpool.ParseConfig(server.URL("") + params)
		require.NoError(t, err)
		config.MaxConns = 4
		config.ConnConfig.Tracer = tracer
		config.ConnConfig.RuntimeParams["search_path"] = schema
		config.ConnConfig.RuntimeParams["application_name"] = name
		pool, err := pgxpool.NewWithConfig(t.Context(), config)
		require.NoError(t, err)
		t.Cleanup(pool.Close)
		return pool
	}
	b.pool, b.other = open(b.watch, "job "+schema, params), open(nil, "test", "")
	b.sql("CREATE SCHEMA " + schema)
	return b
}

// jobs returns a bed without a database.
func jobs(t testing.TB, o longjob.Options) *bed {
	t.Helper()
	cache := redistest.Shared(t)
	b := &bed{t: t, watch: &watch{}}
	b.leaving, b.leave = context.WithCancel(t.Context())
	h, ns := resqued.New(), redistest.Namespace(t)
	if o.Queue == "" {
		o.Queue = "q"
	}
	o.Slice = cmp.Or(o.Slice, time.Hour) // nor what a slice is
	longjob.Register(h, "Scan", func(ctx context.Context, r *longjob.Runner, _ struct{}) error { return b.fn(ctx, r) }, o)
	var err error
	b.store, err = store.Open(store.Options{URL: cache.URL(), Namespace: ns, Lease: time.Hour, LockTTL: store.DefaultLease})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, b.store.Close()) })
	b.long = longstore.New(b.store.Redis())
	b.Client, err = longjob.NewClient(longjob.ClientOptions{URL: cache.URL(), Namespace: ns, Handlers: h})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, b.Close()) })
	b.handler = func(ctx context.Context, job *resqued.Job) error {
		class, _ := h.Lookup("Scan")
		return class.Handler(ctx, job)
	}
	return b
}

// begin opens a transaction that is not the scan's and ends with the test, and executes a statement in it.
func (b *bed) begin(statement string) pgx.Tx {
	b.t.Helper()
	tx, err := b.other.Begin(b.t.Context())
	require.NoError(b.t, err)
	b.t.Cleanup(func() { _ = tx.Rollback(context.WithoutCancel(b.t.Context())) })
	_, err = tx.Exec(b.t.Context(), statement)
	require.NoError(b.t, err)
	return tx
}

// sql runs statements.
func (b *bed) sql(statement string, args ...any) {
	b.t.Helper()
	_, err := b.other.Exec(b.t.Context(), statement, args...)
	require.NoError(b.t, err)
}

// text returns the first column of all rows of a query as text, separated by blanks.
func (b *bed) text(query string, args ...any) string {
	b.t.Helper()
	rows, err := b.other.Query(b.t.Context(), "SELECT x::text FROM ("+query+") AS s(x)", args...)
	require.NoError(b.t, err)
	all, err := pgx.CollectRows(rows, pgx.RowTo[string])
	require.NoError(b.t, err)
	return strings.Join(all, " ")
}

// slice runs one slice in a process of its own, and returns the result of its handler. It
// returns false if no slice waits.
func (b *bed) slice() (error, bool) {
	b.t.Helper()
	b.procs++
	proc := fmt.Sprintf("p%d", b.procs)
	require.NoError(b.t, b.store.Register(b.t.Context(), store.Registration{Proc: proc, Workers: []string{"h/0.0:1:q"}, Started: "now", Info: map[string]string{"pid": "1"}}))
	reply, err := b.store.Exchange(b.t.Context(), store.ExchangeRequest{
		Proc: proc, Master: "m", Wants: []store.Want{{Token: "t", Worker: "h/0.0:1:q"}}, Suspects: store.TakeSuspects, Queues: []store.Queue{{Name: "q", Locked: true}},
	})
	require.NoError(b.t, err)
	if len(reply.Jobs) == 0 {
		return nil, false
	}
	reserved := reply.Jobs[0]
	e, err := wire.Parse(reserved.Payload, 0)
	require.NoError(b.t, err)
	job := &resqued.Job{ID: e.ID, Class: e.Class, Args: e.Args, Payload: reserved.Payload, Queue: reserved.Queue}
	*jobctx.RunOf(job) = jobctx.Run{Proc: proc, Token: reserved.Token}
	result := b.handler(jobctx.WithLeaving(b.long.InContext(b.t.Context()), b.leaving), job)

	c := store.Completion{Job: &reserved, Kind: store.Done}
	var requeue *resqued.RequeueError
	switch {
	case errors.As(result, &requeue):
		c.Kind, c.Delay = store.Requeued, requeue.After
	case errors.Is(result, resqued.Discard):
	default:
		require.NoError(b.t, result)
	}
	_, err = b.store.Exchange(b.t.Context(), store.ExchangeRequest{Proc: proc, Master: "m", Completions: []store.Completion{c}})
	require.NoError(b.t, err)
	return result, true
}

// run enqueues a run of fn and works its slices until none waits. It returns the run's final
// state.
func (b *bed) run(fn func(ctx context.Context, r *longjob.Runner) error) longjob.Run {
	b.t.Helper()
	b.fn = fn
	res, err := b.Enqueue(b.t.Context(), "Scan", nil)
	require.NoError(b.t, err)
	return b.goOn(res.UUID)
}

func (b *bed) goOn(uuid string) longjob.Run {
	b.t.Helper()
	for {
		if _, more := b.slice(); !more {
			run, err := b.Get(b.t.Context(), uuid)
			require.NoError(b.t, err)
			return run
		}
	}
}

// completes is run for a function that must succeed.
func (b *bed) completes(fn func(ctx context.Context, r *longjob.Runner) error) longjob.Run {
	b.t.Helper()
	run := b.run(fn)
	require.Equal(b.t, longjob.StatusCompleted, run.Status, run.Error)
	require.Empty(b.t, run.Warning)
	return run
}

// watch records the statements of a job.
type watch struct {
	mu         sync.Mutex
	statements int
	rows       int64 // of the largest one
	longest    time.Duration
	slowest    string
	before     func(sql string) // called before each
}

type watchKey struct{}

type watched struct {
	sql   string
	began time.Time
}

func (w *watch) TraceQueryStart(ctx context.Context, _ *pgx.Conn, data pgx.TraceQueryStartData) context.Context {
	w.mu.Lock()
	before := w.before
	w.mu.Unlock()
	if before != nil {
		before(data.SQL)
	}
	return context.WithValue(ctx, watchKey{}, watched{data.SQL, time.Now()})
}

func (w *watch) TraceQueryEnd(ctx context.Context, _ *pgx.Conn, data pgx.TraceQueryEndData) {
	q, _ := ctx.Value(watchKey{}).(watched)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.count(q.sql, data.CommandTag.RowsAffected(), time.Since(q.began))
}

// count records a statement; mu is held.
func (w *watch) count(sql string, rows int64, took time.Duration) {
	w.statements++
	w.rows = max(w.rows, rows)
	if took > w.longest {
		w.longest, w.slowest = took, sql
	}
}

// on makes fn be called before each statement that contains a text.
func (w *watch) on(part string, fn func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.before = func(sql string) {
		if strings.Contains(sql, part) {
			fn()
		}
	}
}
