package resqued_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/resqued/resqued"
	"github.com/resqued/resqued/internal/jobctx"
	"github.com/resqued/resqued/internal/wire"
)

type graph struct {
	Repo   int
	Branch string `resqued:"optional"`
}

func build(context.Context, graph) error { return nil }

func TestLock(t *testing.T) {
	t.Parallel()
	var told []string
	h := resqued.New()
	resqued.Handle(h, "Graph", build, resqued.Queue("graphs"), resqued.Lock[graph]{
		TimeoutFunc:  func(g graph) time.Duration { return time.Duration(g.Repo) * time.Second },
		Identifier:   func(g graph) string { return g.Branch },
		Redis:        "redis://locks",
		Loner:        true,
		OnLockFailed: func(_ context.Context, g graph) error { return errors.New("busy: " + g.Branch) },
		OnLonerEnqueueFailed: func(_ context.Context, g graph) {
			told = append(told, "loner "+g.Branch)
		},
		OnLockExpiredBeforeRelease: func(_ context.Context, g graph) { told = append(told, "expired "+g.Branch) },
	})
	c, ok := h.Lookup("Graph")
	require.True(t, ok)
	require.Equal(t, "graphs", c.Queue, "other options count as well")
	l, good, bad := c.Lock, args(`7`, `"main"`), args(`"x"`)

	t.Run("its functions take the decoded arguments", func(t *testing.T) {
		t.Parallel()
		timeout, err := wire.ClassLockTimeout(l, good)
		require.NoError(t, err)
		require.Equal(t, 7*time.Second, timeout)
		id, err := l.Identifier(good)
		require.NoError(t, err)
		require.Equal(t, "main", id)
		require.Nil(t, l.Key)
		require.True(t, l.Loner)
		require.Equal(t, "redis://locks", l.Redis)
		require.EqualError(t, l.OnLockFailed(t.Context(), good), "busy: main")
		require.NoError(t, l.OnLonerEnqueueFailed(t.Context(), good))
		require.NoError(t, l.OnLockExpiredBeforeRelease(t.Context(), good))
		require.Equal(t, []string{"loner main", "expired main"}, told)
	})

	t.Run("arguments that do not decode are an error of each", func(t *testing.T) {
		t.Parallel()
		const want = `arguments: args[0] (Repo): "x" does not fit into int`
		_, err := wire.ClassLockTimeout(l, bad)
		require.EqualError(t, err, "timeout of the lock: "+want)
		_, err = l.Identifier(bad)
		require.EqualError(t, err, want)
		require.EqualError(t, l.OnLockFailed(t.Context(), bad), want)
		require.EqualError(t, l.OnLonerEnqueueFailed(t.Context(), bad), want)
		require.EqualError(t, l.OnLockExpiredBeforeRelease(t.Context(), bad), want)
	})

	t.Run("a limit of less than nothing is none", func(t *testing.T) {
		t.Parallel()
		timeout, err := wire.ClassLockTimeout(l, args(`-1`))
		require.NoError(t, err)
		require.Zero(t, timeout)
	})

	t.Run("any class may have one over its plain arguments", func(t *testing.T) {
		t.Parallel()
		h := resqued.New()
		h.Command("Thumb", []string{"thumb"}, resqued.Lock[resqued.Args]{
			Timeout: time.Minute,
			Key:     func(a resqued.Args) string { return "thumb:" + a.String() },
		})
		c, _ := h.Lookup("Thumb")
		timeout, err := wire.ClassLockTimeout(c.Lock, nil)
		require.NoError(t, err)
		require.Equal(t, time.Minute, timeout)
		key, err := c.Lock.Key(args(`1`, `2`))
		require.NoError(t, err)
		require.Equal(t, "thumb:[1,2]", key)
		require.Nil(t, c.Lock.OnLockFailed)
		require.Nil(t, c.Lock.OnLonerEnqueueFailed)
		require.Nil(t, c.Lock.OnLockExpiredBeforeRelease)
	})
}

func TestLockRefused(t *testing.T) {
	t.Parallel()
	id := func(resqued.Args) (string, error) { return "", nil }
	for _, tt := range []struct {
		name, want string
		lock       resqued.ClassLock
	}{
		{"a negative timeout", "Timeout is negative: -1s", resqued.ClassLock{Timeout: -time.Second}},
		{"two timeouts", "give either Timeout or TimeoutFunc", resqued.ClassLock{
			Timeout: 1, TimeoutFunc: func(resqued.Args) (time.Duration, error) { return 0, nil },
		}},
		{"a whole key and an identifier", "give at most one of Identifier, ClassWide and Key", resqued.ClassLock{Identifier: id, Key: id}},
		{"a whole key for a class-wide lock", "give at most one of Identifier, ClassWide and Key", resqued.ClassLock{ClassWide: true, Key: id}},
		{"a store that nobody knows", `unknown Store "mysql"; use redis or postgres`, resqued.ClassLock{Store: "mysql"}},
		{"two places", "give either Redis or StorePostgres", resqued.ClassLock{Store: resqued.StorePostgres, Redis: "redis://locks"}},
		{"a loner in PostgreSQL", "a Loner needs its lock in Redis, which says whether it may be enqueued; leave StorePostgres out", resqued.ClassLock{Store: resqued.StorePostgres, Loner: true}},
		{"a policy that nobody knows", `OnLocked is "wait"; use drop, requeue or fail`, resqued.ClassLock{OnLocked: "wait"}},
		{"a policy beside a function", "give either OnLocked or OnLockFailed", resqued.ClassLock{
			OnLocked: resqued.LockedFail, OnLockFailed: func(context.Context, resqued.Args) error { return nil },
		}},
	} {
		t.Run(tt.name+" panics", func(t *testing.T) {
			t.Parallel()
			require.PanicsWithValue(t, `resqued: the lock of class "A": `+tt.want, func() {
				resqued.New().Register(resqued.Class{Name: "A", Handler: nothing, Lock: &tt.lock})
			})
		})
	}
	t.Run("a lock over another type than the handler's panics", func(t *testing.T) {
		t.Parallel()
		require.PanicsWithValue(t, `resqued: class "Graph" takes a resqued_test.graph, its lock a resqued_test.mail`, func() {
			resqued.Handle(resqued.New(), "Graph", build, resqued.Lock[mail]{})
		})
		require.NotPanics(t, func() { resqued.Handle(resqued.New(), "Graph", build, resqued.Lock[resqued.Args]{}) })
	})
}

func TestJobLockKey(t *testing.T) {
	t.Parallel()
	h := resqued.New()
	require.Nil(t, h.JobLockKeyFunc())
	h.JobLockKey(func(job *resqued.Job) string { return "all " + job.Class })
	h.HandleArgs("A", func(context.Context, resqued.Args) error { return nil },
		resqued.JobLockKey(func(job *resqued.Job) string { return "one " + job.Class }))
	c, _ := h.Lookup("A")
	job := &resqued.Job{Class: "A"}
	require.Equal(t, "one A", c.JobLockKey(job))
	require.Equal(t, "all A", h.JobLockKeyFunc()(job))
}

type fakeLocks struct{ asked []string }

func (f *fakeLocks) ask(name, class string, args any) (bool, error) {
	f.asked = append(f.asked, name+" "+class)
	return args == any(7), nil
}

func (f *fakeLocks) Locked(_ context.Context, class string, args any) (bool, error) {
	return f.ask("locked", class, args)
}

func (f *fakeLocks) Enqueued(_ context.Context, class string, args any) (bool, error) {
	return f.ask("enqueued", class, args)
}

func (f *fakeLocks) LonerLocked(_ context.Context, class string, args any) (bool, error) {
	return f.ask("loner", class, args)
}

func (f *fakeLocks) RefreshLock(context.Context) error { return resqued.ErrNotLocked }

func TestLockService(t *testing.T) {
	t.Parallel()
	t.Run("the context's service answers", func(t *testing.T) {
		t.Parallel()
		f := &fakeLocks{}
		ctx := jobctx.WithLocks(t.Context(), f)
		for _, ask := range []func(context.Context, string, any) (bool, error){resqued.Locked, resqued.Enqueued, resqued.LonerLocked} {
			yes, err := ask(ctx, "A", 7)
			require.NoError(t, err)
			require.True(t, yes)
		}
		require.Equal(t, []string{"locked A", "enqueued A", "loner A"}, f.asked)
		require.ErrorIs(t, resqued.RefreshLock(ctx), resqued.ErrNotLocked)
	})
	t.Run("outside of a job nobody answers", func(t *testing.T) {
		t.Parallel()
		_, err := resqued.Locked(t.Context(), "A", 7)
		require.ErrorIs(t, err, resqued.ErrOutsideJob)
		_, err = resqued.Enqueued(t.Context(), "A", 7)
		require.ErrorIs(t, err, resqued.ErrOutsideJob)
		_, err = resqued.LonerLocked(t.Context(), "A", 7)
		require.ErrorIs(t, err, resqued.ErrOutsideJob)
		require.ErrorIs(t, resqued.RefreshLock(t.Context()), resqued.ErrOutsideJob)
	})
}
