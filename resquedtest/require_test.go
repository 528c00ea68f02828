package resquedtest_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/resqued/resqued"
	"github.com/resqued/resqued/client"
	"github.com/resqued/resqued/resquedtest"
)

func TestRequire(t *testing.T) {
	t.Parallel()
	h := resqued.New()
	resqued.Handle(h, "Mail", func(context.Context, mail) error { return nil }, resqued.Queue("mail"))
	fails(h, "A", nil)
	q := resquedtest.New(t, h)
	toUser := func(user int) func(m mail) bool { return func(m mail) bool { return m.User == user } }

	require.Contains(t, expectFailure(t, func(t testing.TB) { resquedtest.Require(t, q, toUser(1)) }), "No job waits.")
	enqueue(t, q, "Mail", mail{1, "a"})
	enqueue(t, q, "Mail", mail{2, "b"}, client.In(time.Hour))
	enqueue(t, q, "A", 1)
	enqueue(t, q, "Mail", "text", client.Queue("low"))

	require.Equal(t, mail{1, "a"}, resquedtest.Require(t, q, toUser(1)))
	require.Equal(t, mail{2, "b"}, resquedtest.Require(t, q, toUser(2)), "one that is delayed")
	require.Equal(t, 1, resquedtest.Require[int](t, q, nil), "any of the class")
	resquedtest.RequireNone(t, q, toUser(3))
	resquedtest.RequireNoneClass[int](t, q, "B", nil)

	message := expectFailure(t, func(t testing.TB) { resquedtest.Require(t, q, toUser(3)) })
	require.Contains(t, message, `no such job of class "Mail" waits. These jobs wait:`)
	require.Contains(t, message, "\n  low: A [1]\n  low: Mail [\"text\"]\n  mail: Mail [1,\"a\"]\n  mail: Mail [2,\"b\"], in 1h0m0s")
	require.Contains(t, message, `The arguments of low: Mail ["text"]: `)
	require.NotContains(t, message, "No handler")

	message = expectFailure(t, func(t testing.TB) { resquedtest.RequireClass(t, q, "Mial", toUser(1)) })
	require.Contains(t, message, "No handler is registered for it; there are: A, Mail.")
	message = expectFailure(t, func(t testing.TB) { resquedtest.RequireNone(t, q, toUser(1)) })
	require.Contains(t, message, `a job of class "Mail" waits that must not. These jobs wait:`)
}

func TestRequireClass(t *testing.T) {
	t.Parallel()
	h := resqued.New()
	resqued.Handle(h, "Mail", func(context.Context, mail) error { return nil }, resqued.Queue("low"))
	fails(h, "A", nil)
	fails(h, "B", nil)
	h.HandleArgs("Raw", func(context.Context, resqued.Args) error { return nil }, resqued.Queue("low"))
	h.Command("Sh", []string{"true"}, resqued.Queue("low"))
	q := resquedtest.New(t, h)
	for _, class := range []string{"A", "B", "Raw", "Sh"} {
		enqueue(t, q, class, len(class))
	}
	enqueue(t, q, "Elsewhere", 7, client.Queue("low"))
	enqueue(t, q, "Mail", mail{1, "a"})

	for _, class := range []string{"A", "B", "Raw", "Sh"} {
		require.Equal(t, len(class), resquedtest.RequireClass[int](t, q, class, nil))
	}
	require.Equal(t, 7, resquedtest.RequireClass[int](t, q, "Elsewhere", nil), "a class of another program")
	require.Equal(t, `[1,"a"]`, resquedtest.RequireClass[resqued.Args](t, q, "Mail", nil).String(), "undecoded")

	for want, fn := range map[string]func(t testing.TB){
		`several classes take int (A, B): name one (RequireClass)`:     func(t testing.TB) { resquedtest.Require[int](t, q, nil) },
		`several classes take int (A, B): name one (RequireNoneClass)`: func(t testing.TB) { resquedtest.RequireNone[int](t, q, nil) },
		`no class takes []string: name the class (RequireNoneClass)`:   func(t testing.TB) { resquedtest.RequireNone[[]string](t, q, nil) },
		`class "Mail" takes resquedtest_test.mail, not int`:            func(t testing.TB) { resquedtest.RequireClass[int](t, q, "Mail", nil) },
		`class "A" takes int, not string`:                              func(t testing.TB) { resquedtest.RequireNoneClass[string](t, q, "A", nil) },
		`a job of class "Elsewhere" waits that must not. These jobs wait:
`: func(t testing.TB) { resquedtest.RequireNoneClass[int](t, q, "Elsewhere", nil) },
	} {
		require.Contains(t, expectFailure(t, fn), want)
	}
}

func TestJob(t *testing.T) {
	t.Parallel()
	t.Run("without options it runs for the first time and holds nothing", func(t *testing.T) {
		t.Parallel()
		ctx, job := resquedtest.Job(t, "Mail", mail{1, "a"})
		require.Equal(t, job, resqued.JobFrom(ctx))
		require.Equal(t, "Mail", job.Class)
		require.Equal(t, `[1,"a"]`, job.Args.String())
		require.Equal(t, `{"class":"Mail","args":[1,"a"]}`, string(job.Payload))
		require.Equal(t, 1, job.Attempt)
		require.Zero(t, job.Fence())
		require.True(t, job.Deadline.IsZero())
		require.Error(t, resqued.RefreshLock(ctx))
		select {
		case <-resqued.Leaving(ctx):
			t.Error("its process stays")
		default:
		}
	})

	t.Run("the class of a wrapper has the arguments of the wrapper", func(t *testing.T) {
		t.Parallel()
		_, job := resquedtest.Job(t, "X::JobWrapper", []map[string]any{{"job_class": "Mail", "arguments": []int{7}}})
		require.Equal(t, `[{"arguments":[7],"job_class":"Mail"}]`, job.Args.String())
	})

	t.Run("options say what else it is", func(t *testing.T) {
		t.Parallel()
		ctx, job := resquedtest.Job(t, "Mail", nil, resquedtest.WithID("x"), resquedtest.WithQueue("mail"), resquedtest.WithAttempt(3),
			resquedtest.WithMaxAttempts(4), resquedtest.WithDeaths(2), resquedtest.WithFence(17), resquedtest.WithLeaving(), resquedtest.WithClassLock())
		require.Equal(t, "x mail 3 4 2", join(job.ID, job.Queue, job.Attempt, job.MaxAttempts, job.Deaths))
		require.EqualValues(t, 17, job.Fence())
		require.NotEmpty(t, job.LockKey)
		<-resqued.Leaving(ctx)
		require.NoError(t, resqued.RefreshLock(ctx))
		for class, want := range map[string]bool{"Mail": true, "Other": false} {
			locked, err := resqued.Locked(ctx, class, nil)
			require.NoError(t, err)
			require.Equal(t, want, locked)
			locked, err = resqued.LonerLocked(ctx, class, nil)
			require.NoError(t, err)
			require.Equal(t, want, locked)
			waits, err := resqued.Enqueued(ctx, class, nil)
			require.NoError(t, err)
			require.False(t, waits)
		}
	})

	t.Run("its context ends at the deadline as that of a timeout does", func(t *testing.T) {
		t.Parallel()
		ctx, job := resquedtest.Job(t, "Mail", nil, resquedtest.WithDeadline(time.Millisecond))
		require.WithinDuration(t, time.Now(), job.Deadline, time.Minute)
		<-ctx.Done()
		require.ErrorIs(t, context.Cause(ctx), resqued.ErrTimeout)
	})

	t.Run("arguments that are not JSON fail the test", func(t *testing.T) {
		t.Parallel()
		require.Contains(t, expectFailure(t, func(t testing.TB) { resquedtest.Job(t, "Mail", func() {}) }), "resquedtest: Job: ")
		require.Contains(t, expectFailure(t, func(t testing.TB) { resquedtest.Job(t, "", errors.New("")) }), "resquedtest: Job: ")
	})
}
