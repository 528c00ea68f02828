package classlock_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"go.uber.org/zap"

	"github.com/resqued/resqued"
	"github.com/resqued/resqued/internal/handler"
	"github.com/resqued/resqued/internal/locket/classlock"
	"github.com/resqued/resqued/internal/locket/classlock/postgres"
	"github.com/resqued/resqued/internal/store"
	"github.com/resqued/resqued/internal/sys/procfs"
	"github.com/resqued/resqued/internal/testkit/redistest"
	"github.com/resqued/resqued/internal/thread"
	"github.com/resqued/resqued/internal/wire"
)

// patience is how long a test waits for an expected event.
const patience = 30 * time.Second

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m, redistest.Probing())
}

// locks is a process whose jobs take class locks.
type locks struct {
	*classlock.Locks
	t      *testing.T
	redis  *redis.Client
	store  *store.Store
	ns     string
	runner awaited
	tokens atomic.Int64
}

type options struct {
	ttl, beat time.Duration
	// wrap may put a wrapper around the process's Redis, and around any other.
	wrap func(classlock.Store) classlock.Store
	// database is the URL of a PostgreSQL.
	database string
}

// newLocks starts a process p1 with one class, Graph.
func newLocks(t *testing.T, h *resqued.Handlers, o options) *locks {
	t.Helper()
	server := redistest.Shared(t)
	l := &locks{t: t, redis: server.Client(t), ns: redistest.Namespace(t)}
	if o.ttl == 0 {
		o.ttl, o.beat = 35*time.Second, 10*time.Second
	}
	if o.wrap == nil {
		o.wrap = func(s classlock.Store) classlock.Store { return s }
	}
	open := func(url string) (*store.Store, error) {
		return store.Open(store.Options{URL: url, Namespace: l.ns, LockTTL: o.ttl, Lease: time.Minute})
	}
	var err error
	l.store, err = open(server.URL())
	require.NoError(t, err)
	t.Cleanup(func() { _ = l.store.Close() })
	err = l.store.Register(t.Context(), store.Registration{Proc: "p1", Workers: []string{"w"}})
	require.NoError(t, err)
	l.tokens.Store(time.Now().UnixNano())

	set, err := handler.New(h, handler.Options{})
	require.NoError(t, err)
	t.Cleanup(set.Close)
	l.Locks, err = classlock.New(classlock.Config{
		Store: o.wrap(l.store), URL: server.URL(),
		Open: func(url string) (classlock.Store, error) {
			s, err := open(url)
			if err != nil {
				return nil, err
			}
			return o.wrap(s), nil
		},
		OpenPostgres: func() (classlock.Store, error) {
			s, err := postgres.Open(postgres.Config{URL: o.database, Namespace: l.ns, Lease: o.ttl})
			if err != nil {
				return nil, err
			}
			return o.wrap(s), nil
		},
		Classes: set.Classes(), Class: set.Lookup, Style: wire.RubyUpTo33, Grace: 5 * time.Second,
		TTL: o.ttl, BeatEvery: o.beat, Guard: handler.Guard, Boot: procfs.BootTime, Log: zap.NewNop(),
	})
	require.NoError(t, err)
	t.Cleanup(l.Close)
	l.runner = awaited{&thread.Runner{Performer: set, Locker: l.Locks, Describe: handler.Describe}}
	return l
}

// elsewhere is the URL of another Redis, which is the same one by another name.
func elsewhere(t *testing.T) string {
	t.Helper()
	return redistest.Shared(t).URL() + "?client_name=elsewhere"
}

// reserve takes a job for the process.
func (l *locks) reserve(class, args string) (*resqued.Job, *classlock.Claim) {
	l.t.Helper()
	payload := []byte(fmt.Sprintf(`{"class":%q,"args":%s}`, class, args))
	queue := "q" + redistest.Unique()
	_, err := l.store.Push(l.t.Context(), queue, payload)
	require.NoError(l.t, err)
	token := fmt.Sprint(l.tokens.Add(1))
	reply, err := l.store.Exchange(l.t.Context(), store.ExchangeRequest{
		Proc: "p1", Wants: []store.Want{{Token: token, Worker: "w"}}, Queues: []store.Queue{{Name: queue}},
	})
	require.NoError(l.t, err)
	require.Len(l.t, reply.Jobs, 1)
	env, err := wire.Parse(payload, 0)
	require.NoError(l.t, err)
	return &resqued.Job{Class: class, Queue: queue, Args: env.Args, Payload: payload}, classlock.NewClaim("p1", token, nil)
}

func (l *locks) run(ctx context.Context, class, args string) (thread.Outcome, *classlock.Claim) {
	l.t.Helper()
	job, claim := l.reserve(class, args)
	return l.runner.Run(ctx, job, claim), claim
}

func (l *locks) get(key string) string {
	l.t.Helper()
	value, err := l.redis.Get(context.WithoutCancel(l.t.Context()), l.ns+":"+key).Result()
	if errors.Is(err, redis.Nil) {
		return ""
	}
	require.NoError(l.t, err)
	return value
}

func (l *locks) set(key, value string) {
	l.t.Helper()
	require.NoError(l.t, l.redis.Set(l.t.Context(), l.ns+":"+key, value, 0).Err())
}

func graph(fn func(ctx context.Context, args resqued.Args) error, opts ...resqued.Option) *resqued.Handlers {
	h := resqued.New()
	h.HandleArgs("Graph", fn, opts...)
	return h
}

func fine(context.Context, resqued.Args) error { return nil }

type lock = resqued.Lock[resqued.Args]

func TestClassLock(t *testing.T) {
	t.Parallel()

	t.Run("a job runs with its lock, and its claim says so", func(t *testing.T) {
		t.Parallel()
		var l *locks
		l = newLocks(t, graph(func(ctx context.Context, _ resqued.Args) error {
			require.Contains(t, l.get("lock:Graph:7-x"), ":resqued:p1#")
			require.WithinDuration(t, time.Now().Add(time.Hour), resqued.JobFrom(ctx).Deadline, time.Minute)
			held, err := resqued.Locked(ctx, "Graph", []any{7, "x"})
			require.NoError(t, err)
			require.True(t, held)
			return resqued.RefreshLock(ctx)
		}, lock{Timeout: time.Hour}), options{})
		out, claim := l.run(t.Context(), "Graph", `[7,"x"]`)
		require.Equal(t, thread.Done, out.Result, "%v", out.Err)
		state := claim.State()
		require.True(t, state.Asked && state.Held)
		require.Equal(t, "lock:Graph:7-x", state.Key)
		require.WithinDuration(t, time.Now().Add(time.Hour), state.Limit, time.Minute)
		require.False(t, state.Began.IsZero())
		require.NotEmpty(t, l.get("lock:Graph:7-x"), "it goes with the completion")
	})

	t.Run("a job finds its own lock by what it was decoded into", func(t *testing.T) {
		t.Parallel()
		type render struct {
			Graph int
			Scale float64 `resqued:"optional"`
			Style *string `resqued:"optional"`
		}
		for _, pushed := range []string{`[7]`, `[7,0]`, `[7,0.0,null]`, `[7,1e1]`} { // Go pushes [7] and [7,10]
			h := resqued.New()
			resqued.Handle(h, "Graph", func(ctx context.Context, r render) error {
				for _, args := range []any{r, &r} {
					held, err := resqued.Locked(ctx, "Graph", args)
					require.NoError(t, err)
					require.True(t, held, pushed)
				}
				r.Graph++
				held, err := resqued.Locked(ctx, "Graph", r)
				require.NoError(t, err)
				require.False(t, held, "those of another job")
				return nil
			}, resqued.Lock[render]{})
			out, _ := newLocks(t, h, options{}).run(t.Context(), "Graph", pushed)
			require.Equal(t, thread.Done, out.Result, "%v", out.Err)
		}
	})

	t.Run("a class without a lock takes none, and may ask about others", func(t *testing.T) {
		t.Parallel()
		h := graph(fine, lock{Loner: true})
		h.HandleArgs("Plain", func(ctx context.Context, _ resqued.Args) error {
			for _, ask := range []func(context.Context, string, any) (bool, error){resqued.Locked, resqued.Enqueued, resqued.LonerLocked} {
				if yes, err := ask(ctx, "Graph", 7); yes || err != nil {
					return fmt.Errorf("%t: %w", yes, err)
				}
			}
			_, err := resqued.Locked(ctx, "Plain", nil)
			require.EqualError(t, err, `class "Plain" has no Lock`)
			_, err = resqued.Locked(ctx, "Nobody", nil)
			require.EqualError(t, err, `class "Nobody" has no handler here, so its lock is not known`)
			require.ErrorIs(t, resqued.RefreshLock(ctx), resqued.ErrNotLocked)
			return nil
		})
		l := newLocks(t, h, options{})
		out, claim := l.run(t.Context(), "Plain", `[]`)
		require.Equal(t, thread.Done, out.Result, "%v", out.Err)
		require.Zero(t, claim.State().Key)
		require.False(t, claim.State().Asked)
	})

	t.Run("what becomes of a locked job is as it is configured", func(t *testing.T) {
		t.Parallel()
		never := func(context.Context, resqued.Args) error { return errors.New("it ran") }
		asked := 0
		for name, c := range map[string]struct {
			onLocked string
			fn       func(context.Context, resqued.Args) error
			want     thread.Result
			text     string
		}{
			"it is dropped":                    {"", nil, thread.Dropped, "the class lock lock:Graph: is held by other"},
			"dropped as it says":               {resqued.LockedDrop, nil, thread.Dropped, "the class lock lock:Graph: is held by other"},
			"it goes back":                     {resqued.LockedRequeue, nil, thread.Requeued, "the class lock lock:Graph: is held by other: resqued: requeue after 1s"},
			"it fails":                         {resqued.LockedFail, nil, thread.Failed, "the class lock lock:Graph: is held by other"},
			"a function that says nothing":     {"", func(context.Context, resqued.Args) error { asked++; return nil }, thread.Dropped, ""},
			"a function that wants it back":    {"", func(context.Context, resqued.Args) error { return resqued.Requeue(time.Minute) }, thread.Requeued, ""},
			"a function that does not want it": {"", func(context.Context, resqued.Args) error { return resqued.Discard }, thread.Discarded, ""},
			"a function that fails":            {"", func(context.Context, resqued.Args) error { return errors.New("busy") }, thread.Failed, "busy"},
			"a function that panics":           {"", func(context.Context, resqued.Args) error { panic("oh") }, thread.Failed, "panic: oh"},
		} {
			h := resqued.New()
			failures := 0
			h.Hook(resqued.Hooks{OnFailure: func(context.Context, *resqued.Job, error) { failures++ }})
			h.Register(resqued.Class{
				Name: "Graph", Lock: &resqued.ClassLock{OnLocked: c.onLocked, OnLockFailed: c.fn},
				Handler: func(ctx context.Context, job *resqued.Job) error { return never(ctx, job.Args) },
			})
			l := newLocks(t, h, options{})
			l.set("lock:Graph:", "other")
			out, claim := l.run(t.Context(), "Graph", `[]`)
			require.Equal(t, c.want, out.Result, name)
			if c.text != "" {
				require.EqualError(t, out.Err, c.text, name)
			}
			if c.want == thread.Failed {
				require.Equal(t, 1, failures, name)
			} else {
				require.Zero(t, failures, name)
			}
			if name == "it fails" {
				require.Equal(t, "Resqued::LockHeld", out.Exception)
			}
			require.False(t, claim.State().Held, name)
			require.True(t, claim.State().Began.IsZero(), name)
			require.Equal(t, "other", l.get("lock:Graph:"), name)
		}
		require.Equal(t, 1, asked)
	})

	t.Run("functions of the class that break fail the job", func(t *testing.T) {
		t.Parallel()
		for name, c := range map[string]struct {
			lock      lock
			exception string
		}{
			"a key that panics":     {lock{Key: func(resqued.Args) string { panic("no key") }}, "Resqued::Panic"},
			"an empty key":          {lock{Key: func(resqued.Args) string { return "" }}, "Error"},
			"a timeout that panics": {lock{TimeoutFunc: func(a resqued.Args) time.Duration { return time.Duration(a[9][0]) }}, "Resqued::Panic"},
		} {
			l := newLocks(t, graph(fine, c.lock), options{})
			out, _ := l.run(t.Context(), "Graph", `[]`)
			require.Equal(t, thread.Failed, out.Result, name)
			require.Equal(t, c.exception, out.Exception, name)
		}
	})

	t.Run("a key that holds something else fails the job instead of waiting for ever", func(t *testing.T) {
		t.Parallel()
		l := newLocks(t, graph(fine, lock{}), options{})
		require.NoError(t, l.redis.RPush(t.Context(), l.ns+":lock:Graph:", "x").Err())
		out, _ := l.run(t.Context(), "Graph", `[]`)
		require.Equal(t, thread.Failed, out.Result)
		require.Equal(t, "Resqued::LockBroken", out.Exception)
		require.ErrorContains(t, out.Err, "is not a string; move it away")
	})

	t.Run("a job whose record is gone does not run", func(t *testing.T) {
		t.Parallel()
		l := newLocks(t, graph(func(context.Context, resqued.Args) error { panic("it ran") }, lock{}), options{})
		job, claim := l.reserve("Graph", `[]`)
		require.NoError(t, l.redis.Del(t.Context(), l.ns+":resqued:inflight:p1").Err())
		out := l.runner.Run(t.Context(), job, claim)
		require.Equal(t, thread.Discarded, out.Result)
		require.Empty(t, l.get("lock:Graph:"))
	})
}

func TestLockDeadline(t *testing.T) {
	t.Parallel()
	until := func(ctx context.Context) error {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(patience):
			return errors.New("nobody told it to stop")
		}
	}

	t.Run("at the end of its time the job is told to stop, and the program is told", func(t *testing.T) {
		t.Parallel()
		called, release := make(chan string, 1), make(chan struct{})
		l := newLocks(t, graph(func(ctx context.Context, _ resqued.Args) error {
			err := until(ctx)
			require.ErrorIs(t, context.Cause(ctx), resqued.ErrTimeout)
			require.ErrorIs(t, resqued.RefreshLock(ctx), resqued.ErrTimeout, "too late")
			return err
		}, lock{Timeout: 50 * time.Millisecond, OnLockExpiredBeforeRelease: func(ctx context.Context, args resqued.Args) {
			require.NoError(t, ctx.Err())
			require.NotNil(t, resqued.JobFrom(ctx))
			called <- args.String()
			<-release
		}}), options{})
		job, claim := l.reserve("Graph", `[7]`)
		result := make(chan thread.Outcome, 1)
		go func() { result <- l.runner.Run(t.Context(), job, claim) }()
		require.Equal(t, "[7]", <-called)
		select {
		case <-result:
			require.Fail(t, "the job ended before its callback had")
		case <-time.After(50 * time.Millisecond):
		}
		close(release)
		out := <-result
		require.Equal(t, thread.Failed, out.Result)
		require.Equal(t, "Resqued::Timeout", out.Exception)
		require.Equal(t, "held its class lock longer than 50ms: context canceled", out.Message)
	})

	t.Run("a callback that panics harms nobody", func(t *testing.T) {
		t.Parallel()
		l := newLocks(t, graph(func(ctx context.Context, _ resqued.Args) error { return until(ctx) },
			lock{Timeout: time.Millisecond, OnLockExpiredBeforeRelease: func(context.Context, resqued.Args) { panic("oh") }}), options{})
		out, _ := l.run(t.Context(), "Graph", `[]`)
		require.Equal(t, "Resqued::Timeout", out.Exception)
	})

	t.Run("a refresh moves it", func(t *testing.T) {
		t.Parallel()
		var claim *classlock.Claim
		l := newLocks(t, graph(func(ctx context.Context, _ resqued.Args) error {
			first := claim.State().Limit
			require.NoError(t, resqued.RefreshLock(ctx))
			require.True(t, claim.State().Limit.After(first))
			for ; time.Now().Before(first.Add(50 * time.Millisecond)); <-time.After(10 * time.Millisecond) {
				if err := resqued.RefreshLock(ctx); err != nil {
					return err
				}
			}
			return ctx.Err()
		}, lock{Timeout: 5 * time.Second}), options{})
		var job *resqued.Job
		job, claim = l.reserve("Graph", `[]`)
		out := l.runner.Run(t.Context(), job, claim)
		require.Equal(t, thread.Done, out.Result, "%v", out.Err)
	})

	t.Run("somebody else may give the job more time", func(t *testing.T) {
		t.Parallel()
		var l *locks
		var claim *classlock.Claim
		l = newLocks(t, graph(func(ctx context.Context, _ resqued.Args) error {
			held, err := l.store.ExtendLock(ctx, "lock:Graph:", time.Hour, false)
			require.True(t, held)
			require.NoError(t, err)
			first := claim.State().Limit
			require.Eventually(t, func() bool { return claim.State().Limit.After(first) }, patience, 5*time.Millisecond)
			require.WithinDuration(t, time.Now().Add(time.Hour), claim.State().Limit, time.Minute)
			return ctx.Err()
		}, lock{Timeout: 3 * time.Second}), options{})
		var job *resqued.Job
		job, claim = l.reserve("Graph", `[]`)
		out := l.runner.Run(t.Context(), job, claim)
		require.Equal(t, thread.Done, out.Result, "%v", out.Err)
	})

	t.Run("a job that does not need all of its time is not told anything", func(t *testing.T) {
		t.Parallel()
		l := newLocks(t, graph(fine, lock{Timeout: time.Hour, OnLockExpiredBeforeRelease: func(context.Context, resqued.Args) {
			panic("called")
		}}), options{})
		out, _ := l.run(t.Context(), "Graph", `[]`)
		require.Equal(t, thread.Done, out.Result)
	})

	t.Run("who has lost the lock finds out when it refreshes", func(t *testing.T) {
		t.Parallel()
		var l *locks
		l = newLocks(t, graph(func(ctx context.Context, _ resqued.Args) error {
			l.set("lock:Graph:", "true")
			err := resqued.RefreshLock(ctx)
			require.ErrorIs(t, err, resqued.ErrLockLost)
			require.ErrorIs(t, context.Cause(ctx), resqued.ErrLockLost)
			return err
		}, lock{Timeout: time.Hour}), options{})
		out, claim := l.run(t.Context(), "Graph", `[]`)
		require.Equal(t, thread.Failed, out.Result)
		require.Equal(t, "Resqued::LockLost", out.Exception)
		require.ErrorIs(t, claim.State().Lost, resqued.ErrLockLost)
		require.Equal(t, 7*time.Second, claim.State().Grace)
		require.Equal(t, "true", l.get("lock:Graph:"))
	})
}

// flaky is a Redis some of whose answers are lost.
type flaky struct {
	classlock.Store
	mu   sync.Mutex
	lose int // answers
	all  bool
	hang bool // instead of an error
}

func (f *flaky) lost() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.lose--
	return f.all || f.lose >= 0
}

// fail loses all further answers.
func (f *flaky) fail() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.all = true
}

func (f *flaky) AcquireLock(ctx context.Context, req store.AcquireRequest) (store.AcquireReply, error) {
	reply, err := f.Store.AcquireLock(ctx, req)
	if f.lost() {
		return store.AcquireReply{}, errors.New("the answer got lost")
	}
	return reply, err
}

func (f *flaky) KeepsAll() bool {
	s, ok := f.Store.(interface{ KeepsAll() bool })
	return ok && s.KeepsAll()
}

func (f *flaky) KeepLocks(ctx context.Context, l []store.HeldLock) ([]int, error) {
	if f.lost() {
		if f.hang {
			<-ctx.Done()
		}
		return nil, errors.New("no answer")
	}
	return f.Store.KeepLocks(ctx, l)
}

func TestLockOutage(t *testing.T) {
	t.Parallel()
	t.Run("an answer that got lost is asked for again", func(t *testing.T) {
		t.Parallel()
		l := newLocks(t, graph(fine, lock{}), options{wrap: func(s classlock.Store) classlock.Store {
			return &flaky{Store: s, lose: 3}
		}})
		out, _ := l.run(t.Context(), "Graph", `[]`)
		require.Equal(t, thread.Done, out.Result)
	})

	t.Run("a job that is killed while it waits never runs, and releases what it may have", func(t *testing.T) {
		t.Parallel()
		for _, url := range []string{"", elsewhere(t)} {
			l := newLocks(t, graph(func(context.Context, resqued.Args) error { panic("it ran") }, lock{Redis: url, Timeout: time.Hour}),
				options{wrap: func(s classlock.Store) classlock.Store { return &flaky{Store: s, all: true} }})
			ctx, cancel := context.WithCancelCause(t.Context())
			defer cancel(nil)
			job, claim := l.reserve("Graph", `[]`)
			result := make(chan thread.Outcome, 1)
			go func() { result <- l.runner.Run(ctx, job, claim) }()
			require.Eventually(t, func() bool { return l.get("lock:Graph:") != "" }, patience, time.Millisecond)
			cancel(resqued.ErrKilled)
			out := <-result
			require.Equal(t, thread.Failed, out.Result)
			require.Equal(t, thread.KilledException, out.Exception)
			require.Equal(t, url == "", claim.State().Asked, "its completion releases the lock")
			require.False(t, claim.State().Held)
			require.Equal(t, url == "", l.get("lock:Graph:") != "")
		}
	})

	t.Run("a lock elsewhere that cannot be released is known to be left", func(t *testing.T) {
		t.Parallel()
		if testing.Short() {
			t.Skip("it waits for the end of the tries to release the lock")
		}
		l := newLocks(t, graph(fine, lock{Redis: elsewhere(t)}), options{wrap: func(s classlock.Store) classlock.Store { return holding{s} }})
		out, claim := l.run(t.Context(), "Graph", `[]`)
		require.Equal(t, thread.Done, out.Result)
		require.True(t, claim.State().Left)
		require.NotEmpty(t, l.get("lock:Graph:"))
	})
}

// holding releases no lock.
type holding struct{ classlock.Store }

func (holding) ReleaseLock(context.Context, store.HeldLock) error { return errors.New("no answer") }

func TestLocksInAnotherRedis(t *testing.T) {
	t.Parallel()
	t.Run("they are released when the job has ended", func(t *testing.T) {
		t.Parallel()
		var l *locks
		l = newLocks(t, graph(func(ctx context.Context, _ resqued.Args) error {
			require.NotEmpty(t, l.get("lock:Graph:7"))
			require.NoError(t, resqued.RefreshLock(ctx))
			held, err := resqued.Locked(ctx, "Graph", 7)
			require.NoError(t, err)
			require.True(t, held)
			return errors.New("failed")
		}, lock{Redis: elsewhere(t), Timeout: time.Minute}), options{})
		out, claim := l.run(t.Context(), "Graph", `[7]`)
		require.EqualError(t, out.Err, "failed")
		require.False(t, claim.State().Asked, "the completion has nothing to release")
		require.Empty(t, l.get("lock:Graph:7"))
		require.Zero(t, l.redis.Exists(t.Context(), l.ns+":resqued:held:p1").Val())
	})

	t.Run("the daemon's own Redis by its own name is no other", func(t *testing.T) {
		t.Parallel()
		l := newLocks(t, graph(fine, lock{Redis: redistest.Shared(t).URL()}), options{})
		_, claim := l.run(t.Context(), "Graph", `[7]`)
		require.True(t, claim.State().Held)
	})

	t.Run("a URL that cannot work is refused at once", func(t *testing.T) {
		t.Parallel()
		h := graph(fine, lock{Redis: "http://locks"})
		set, err := handler.New(h, handler.Options{})
		require.NoError(t, err)
		_, err = classlock.New(classlock.Config{
			Classes: set.Classes(), Class: set.Lookup,
			Open: func(url string) (classlock.Store, error) { return store.Open(store.Options{URL: url, Namespace: "x"}) },
		})
		require.ErrorContains(t, err, `lock of class "Graph": redis_url "http://locks"`)
	})

	t.Run("one without a time limit is extended until its job has ended", func(t *testing.T) {
		t.Parallel()
		l, _, result := waiting(t, lock{Redis: elsewhere(t)}, options{ttl: 60 * time.Second, beat: 50 * time.Millisecond})
		key := l.ns + ":lock:Graph:"
		for range 3 {
			require.NoError(t, l.redis.Expire(t.Context(), key, 20*time.Second).Err())
			require.Eventually(t, func() bool { return l.redis.TTL(t.Context(), key).Val() > 40*time.Second }, patience, 10*time.Millisecond)
		}
		require.NoError(t, l.redis.Set(t.Context(), key, "true", 0).Err())
		out := <-result
		require.Equal(t, "Resqued::LockLost", out.Exception, "and missed when it is stolen")
		require.Equal(t, "true", l.get("lock:Graph:"), "the thief keeps it")
	})

	t.Run("when nobody answers, the job stops before the lock expires", func(t *testing.T) {
		t.Parallel()
		began := time.Now()
		var mine *flaky
		_, claim, result := waiting(t, lock{Redis: elsewhere(t)}, options{ttl: 8 * time.Second, beat: 50 * time.Millisecond, wrap: func(s classlock.Store) classlock.Store {
			mine = &flaky{Store: s}
			return mine
		}})
		mine.fail()
		out := <-result
		require.Equal(t, "Resqued::LockLost", out.Exception)
		require.ErrorContains(t, claim.State().Lost, ", which has its class lock, has not answered for")
		require.LessOrEqual(t, claim.State().Grace, 1600*time.Millisecond, "what is left of its lease")
		require.Greater(t, time.Since(began), 4*time.Second)
	})
}

// waiting starts a job that waits until it is told to stop.
func waiting(t *testing.T, lock lock, o options) (*locks, *classlock.Claim, <-chan thread.Outcome) {
	t.Helper()
	begun := make(chan struct{})
	l := newLocks(t, graph(func(ctx context.Context, _ resqued.Args) error {
		close(begun)
		select {
		case <-ctx.Done():
		case <-time.After(patience):
		}
		return ctx.Err()
	}, lock), o)
	job, claim := l.reserve("Graph", `[]`)
	result := make(chan thread.Outcome, 1)
	go func() { result <- l.runner.Run(t.Context(), job, claim) }()
	select {
	case <-begun:
	case <-time.After(patience):
		require.Fail(t, "the job did not begin")
	}
	return l, claim, result
}

// TestClassLockExcludes checks that the gem's lock values are understood, and that no two jobs
// hold one lock.
func TestClassLockExcludes(t *testing.T) {
	t.Parallel()
	var inside, most, ran atomic.Int64
	l := newLocks(t, graph(func(context.Context, resqued.Args) error {
		now := inside.Add(1)
		for m := most.Load(); now > m && !most.CompareAndSwap(m, now); m = most.Load() {
		}
		ran.Add(1)
		<-time.After(time.Millisecond)
		inside.Add(-1)
		return nil
	}, lock{}), options{})
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			for range 10 {
				job, claim := l.reserve("Graph", `[1]`)
				out := l.runner.Run(t.Context(), job, claim)
				kind := store.Done
				reply, err := l.store.Exchange(t.Context(), store.ExchangeRequest{Proc: "p1", Completions: []store.Completion{{
					Job: &store.Reserved{Token: claim.Token, Queue: job.Queue}, Kind: kind, Held: claim.State().Asked,
				}}})
				if err != nil || !reply.Applied[0] || out.Result != thread.Done && out.Result != thread.Dropped {
					t.Errorf("%v %v %+v", err, reply, out)
				}
			}
		})
	}
	all.Wait()
	require.EqualValues(t, 1, most.Load())
	require.Positive(t, ran.Load())
	require.Empty(t, l.get("lock:Graph:1"))
}

// awaited is a Runner that returns the outcomes of its jobs.
type awaited struct{ *thread.Runner }

func (a awaited) Run(ctx context.Context, job *resqued.Job, claim *classlock.Claim) (out thread.Outcome) {
	a.Runner.Run(ctx, job, claim, func(o thread.Outcome) { out = o })
	return out
}
