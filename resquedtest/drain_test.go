package resquedtest_test

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/resqued/resqued"
	"github.com/resqued/resqued/client"
	"github.com/resqued/resqued/internal/testkit/testlevel"
	"github.com/resqued/resqued/resquedtest"
)

func TestDrain(t *testing.T) {
	t.Parallel()
	t.Run("works all jobs in order and tells how each has ended", func(t *testing.T) {
		t.Parallel()
		h := resqued.New()
		var seen calls
		resqued.Handle(h, "Mail", func(_ context.Context, m mail) error {
			seen.add("%d %s", m.User, m.Subject)
			return nil
		}, resqued.Queue("mail"))
		fails(h, "Fails", errBoom)
		fails(h, "Discards", resqued.Discard)
		fails(h, "GoesBack", resqued.Requeue(time.Minute))
		q := resquedtest.New(t, h)
		require.Empty(t, q.Drain(t), "no job waits")
		enqueue(t, q, "Mail", mail{1, "a"})
		enqueue(t, q, "Fails", 7)
		enqueue(t, q, "Discards", 8)
		enqueue(t, q, "GoesBack", 9)
		enqueue(t, q, "Mail", mail{2, "b"})
		enqueue(t, q, "NoSuch", nil, client.Queue("low"))
		ended := q.Drain(t)
		require.Equal(t, []string{"1 a", "2 b"}, seen.take())
		require.Equal(t, []string{
			"low: Fails [7] failed: boom",
			"low: Discards [8] discarded: resqued: discarded",
			"low: GoesBack [9] requeued for 1m0s: resqued: requeue after 1m0s",
		}, lines(ended)[:3])
		require.Contains(t, ended[3].String(), "low: NoSuch [] failed: ")
		require.Equal(t, []string{`mail: Mail [1,"a"] done`, `mail: Mail [2,"b"] done`}, lines(ended)[4:])
		require.ErrorIs(t, ended[0].Err, errBoom)
		require.Equal(t, 1, ended[0].Attempt)
		require.Equal(t, ended, q.Ended())
		require.Empty(t, q.Jobs())
		require.Len(t, q.Failed(), 2)
		require.Equal(t, "low: Fails [7]: Error: boom", q.Failed()[0].String())
		require.Empty(t, q.Drain(t), "nothing is left")
	})

	t.Run("works what jobs enqueue, wherever that is", func(t *testing.T) {
		t.Parallel()
		h := resqued.New()
		var q *resquedtest.Queues
		var seen calls
		number(h, "Count", func(ctx context.Context, n int) error {
			seen.add("%d", n)
			if n == 0 {
				return nil
			}
			_, err := q.Client().Enqueue(ctx, "Count", n-1, client.Queue("queue"+string(rune('a'+n))))
			return err
		})
		q = resquedtest.New(t, h)
		enqueue(t, q, "Count", 5)
		require.Len(t, q.Drain(t), 6)
		require.Equal(t, []string{"5", "4", "3", "2", "1", "0"}, seen.take())
	})

	t.Run("works the queues of the options only, the first one first", func(t *testing.T) {
		t.Parallel()
		h := resqued.New()
		var seen calls
		number(h, "A", func(_ context.Context, n int) error { seen.add("%d", n); return nil })
		q := resquedtest.NewWith(t, h, resquedtest.Options{Queues: []string{"high", "l*", "!lost"}})
		for n, queue := range []string{"lost", "low", "other", "high"} {
			enqueue(t, q, "A", n, client.Queue(queue))
		}
		q.Drain(t)
		require.Equal(t, []string{"3", "1"}, seen.take())
		require.Len(t, q.Jobs("lost", "other"), 2)
	})

	t.Run("leaves a paused queue alone until it is resumed", func(t *testing.T) {
		t.Parallel()
		h := resqued.New()
		fails(h, "A", nil)
		q := resquedtest.New(t, h)
		enqueue(t, q, "A", 1)
		_, err := q.Client().PauseQueue(t.Context(), "low")
		require.NoError(t, err)
		require.Empty(t, q.Drain(t))
		_, err = q.Client().ResumeQueue(t.Context(), "low")
		require.NoError(t, err)
		require.Len(t, q.Drain(t), 1)
	})

	t.Run("records a payload that is not a job, and a panic, as failed", func(t *testing.T) {
		t.Parallel()
		h := resqued.New()
		number(h, "Panics", func(context.Context, int) error { panic("oh") })
		number(h, "Exits", func(context.Context, int) error { runtime.Goexit(); return nil })
		q := resquedtest.New(t, h)
		enqueue(t, q, "Panics", 1)
		enqueue(t, q, "Exits", 2)
		redisOf(t, q).RPush(t.Context(), "resque:queue:low", "no job")
		redisOf(t, q).RPush(t.Context(), "resque:queue:low", `{"class":"Panics","args":["text"]}`)
		require.Equal(t, "low: no job: \"no job\"", q.Jobs("low")[2].String())
		ended := q.Drain(t)
		require.Len(t, ended, 4)
		require.ErrorContains(t, ended[0].Err, "oh")
		require.Error(t, ended[1].Err, "a handler that calls t.FailNow ends like this")
		require.ErrorContains(t, ended[2].Err, "invalid payload")
		require.ErrorContains(t, ended[3].Err, "arguments of Panics")
		require.Len(t, q.Failed(), 4)
	})

	t.Run("may be called by a handler, while the other jobs run", func(t *testing.T) {
		t.Parallel()
		h := resqued.New()
		var q *resquedtest.Queues
		number(h, "Outer", func(context.Context, int) error {
			if inner := q.Drain(t); len(inner) != 2 {
				return errBoom
			}
			return nil
		})
		fails(h, "Inner", nil)
		q = resquedtest.New(t, h)
		enqueue(t, q, "Outer", 0)
		enqueue(t, q, "Inner", 1)
		enqueue(t, q, "Inner", 2)
		require.Equal(t, []string{"low: Outer [0] done"}, lines(q.Drain(t)))
		require.Len(t, q.Ended(), 3)
	})

	t.Run("may be called by several goroutines at a time", func(t *testing.T) {
		t.Parallel()
		h := resqued.New()
		fails(h, "A", nil)
		q := resquedtest.New(t, h)
		for n := range 100 {
			enqueue(t, q, "A", n)
		}
		var all sync.WaitGroup
		for range 3 {
			all.Go(func() { q.Drain(t) })
		}
		all.Wait()
		require.Len(t, q.Ended(), 100)
		require.Empty(t, q.Jobs())
	})

	t.Run("may be called at the end of the test", func(t *testing.T) {
		t.Parallel()
		h := resqued.New()
		fails(h, "A", nil)
		q := resquedtest.New(t, h)
		enqueue(t, q, "A", 1)
		t.Cleanup(func() {
			require.Len(t, q.Jobs(), 1)
			require.Len(t, q.Drain(t), 1)
			require.Empty(t, q.Failed())
		})
	})

	t.Run("fails the test where a job enqueues itself for ever", func(t *testing.T) {
		t.Parallel()
		h := resqued.New()
		var q *resquedtest.Queues
		number(h, "Again", func(ctx context.Context, n int) error {
			_, err := q.Client().Enqueue(ctx, "Again", n+1)
			return err
		})
		fails(h, "Once", nil)
		q = resquedtest.NewWith(t, h, resquedtest.Options{MaxJobs: 20})
		enqueue(t, q, "Once", 0)
		enqueue(t, q, "Again", 0)
		message := expectFailure(t, func(t testing.TB) { q.Drain(t) })
		require.Contains(t, message, "21 jobs have ended and there may be more: does a job enqueue itself")
		require.Contains(t, message, "20 × Again, 1 × Once")
		require.Len(t, q.Jobs("low"), 1, "the one that would be next")
	})

	t.Run("works as many jobs as the options allow", func(t *testing.T) {
		t.Parallel()
		h := resqued.New()
		fails(h, "A", nil)
		q := resquedtest.NewWith(t, h, resquedtest.Options{MaxJobs: 3})
		for range 2 {
			for n := range 3 {
				enqueue(t, q, "A", n)
			}
			require.Len(t, q.Drain(t), 3)
		}
	})

	t.Run("fails the test where a job always goes back at once", func(t *testing.T) {
		t.Parallel()
		h := resqued.New()
		fails(h, "Back", resqued.Requeue(0))
		q := resquedtest.NewWith(t, h, resquedtest.Options{MaxJobs: 5})
		enqueue(t, q, "Back", 0)
		require.Contains(t, expectFailure(t, func(t testing.TB) { q.Drain(t) }), "Requeue(0)")
	})

	t.Run("shows a job to its handler as a daemon does", func(t *testing.T) {
		t.Parallel()
		h := resqued.New()
		var job resqued.Job
		h.Register(resqued.Class{Name: "A", Queue: "low", Timeout: time.Hour, Handler: func(ctx context.Context, j *resqued.Job) error {
			job = *j
			require.Equal(t, j, resqued.JobFrom(ctx))
			require.NotNil(t, resqued.Leaving(ctx))
			_, ok := ctx.Deadline()
			require.True(t, ok)
			return nil
		}})
		q := resquedtest.NewWith(t, h, resquedtest.Options{LocketedQueues: []string{"*"}, Namespace: "app"})
		enqueue(t, q, "A", []any{1, "x"})
		require.Equal(t, resquedtest.OutcomeDone, q.Drain(t)[0].Outcome)
		require.Equal(t, `{"class":"A","args":[1,"x"]}`, string(job.Payload))
		require.Equal(t, q.Now(), job.StartedAt.In(q.Now().Location()).Round(0))
		require.Equal(t, 1, job.Attempt)
		require.Positive(t, job.Fence())
		require.True(t, strings.HasPrefix(job.LockKey, "app:locket:job_locks:"), job.LockKey)
	})
}

func TestTimeout(t *testing.T) {
	t.Parallel()
	t.Run("a job whose timeout is over fails", func(t *testing.T) {
		t.Parallel()
		h := resqued.New()
		number(h, "Slow", func(ctx context.Context, _ int) error { <-ctx.Done(); return context.Cause(ctx) }, resqued.Timeout(10*time.Millisecond))
		q := resquedtest.New(t, h)
		enqueue(t, q, "Slow", 1)
		ended := q.Drain(t)
		require.ErrorIs(t, ended[0].Err, resqued.ErrTimeout)
		require.Equal(t, "Resqued::Timeout", q.Failed()[0].Exception)
	})

	t.Run("one that goes on nevertheless fails the test", func(t *testing.T) {
		t.Parallel()
		h := resqued.New()
		over := make(chan struct{})
		number(h, "Deaf", func(context.Context, int) error { <-over; return nil }, resqued.Timeout(10*time.Millisecond))
		q := resquedtest.NewWith(t, h, resquedtest.Options{TermTimeout: 50 * time.Millisecond})
		enqueue(t, q, "Deaf", 1)
		message := expectFailure(t, func(t testing.TB) { q.Drain(t) })
		close(over)
		require.Contains(t, message, "a job runs for 50ms after it was told to stop")
		require.Contains(t, message, "a daemon would kill its worker process")
	})
}

func TestCommands(t *testing.T) {
	t.Parallel()
	testlevel.Integration(t)
	h := resqued.New()
	out := filepath.Join(t.TempDir(), "out")
	h.Command("Writes", []string{"sh", "-c", "cat > " + out}, resqued.Queue("low"))
	h.Command("Fails", []string{"sh", "-c", "echo oh >&2; exit 3"}, resqued.Queue("low"))
	q := resquedtest.New(t, h)
	enqueue(t, q, "Writes", mail{1, "a"})
	enqueue(t, q, "Fails", nil)
	ended := q.Drain(t)
	require.Equal(t, resquedtest.OutcomeDone, ended[0].Outcome, ended[0])
	text, err := os.ReadFile(out)
	require.NoError(t, err)
	require.Contains(t, string(text), `"args":[1,"a"]`)
	require.ErrorContains(t, ended[1].Err, "3")
}

func TestHooksAndMiddleware(t *testing.T) {
	t.Parallel()
	var seen calls
	h := resqued.New()
	fails(h, "A", nil)
	fails(h, "Fails", errBoom)
	h.Use(func(next resqued.Handler) resqued.Handler {
		return func(ctx context.Context, job *resqued.Job) error {
			seen.add("around %s", job.Class)
			return next(ctx, job)
		}
	})
	h.Hook(resqued.Hooks{
		AfterFork:     func(context.Context) error { seen.add("fork"); return nil },
		BeforePerform: func(_ context.Context, job *resqued.Job) error { seen.add("before %s", job.Class); return nil },
		AfterPerform:  func(_ context.Context, job *resqued.Job) { seen.add("after %s", job.Class) },
		OnFailure:     func(_ context.Context, _ *resqued.Job, err error) { seen.add("failure %s", err) },
	})
	q := resquedtest.New(t, h)
	enqueue(t, q, "A", 1)
	q.Drain(t)
	enqueue(t, q, "Fails", 1)
	q.Drain(t)
	require.Equal(t, []string{"fork", "before A", "around A", "after A", "before Fails", "around Fails", "failure boom"}, seen.take())

	h = resqued.New()
	h.Hook(resqued.Hooks{AfterFork: func(context.Context) error { return errors.New("no database") }})
	q = resquedtest.New(t, h)
	require.Contains(t, expectFailure(t, func(t testing.TB) { q.Drain(t) }), "hook AfterFork: no database")
}

func TestOptionsThatCannotWork(t *testing.T) {
	t.Parallel()
	for want, o := range map[string]resquedtest.Options{
		"option Queues":         {Queues: []string{"["}},
		"option UniqueQueues":   {UniqueQueues: []string{"["}},
		"option LocketedQueues": {LocketedQueues: []string{"["}},
		"nonsense":              {JobLockKey: "nonsense"},
	} {
		require.Contains(t, expectFailure(t, func(t testing.TB) { resquedtest.NewWith(t, nil, o) }), want, "%v", o)
	}
	h := resqued.New()
	h.JobLockKey(func(*resqued.Job) string { return "k" })
	require.Contains(t, expectFailure(t, func(t testing.TB) {
		resquedtest.NewWith(t, h, resquedtest.Options{JobLockKey: "payload"})
	}), "Handlers.JobLockKey")
}

// A test links only what the handlers' program links, and not its command line.
func TestLinksNoCommandLine(t *testing.T) {
	t.Parallel()
	testlevel.Integration(t)
	out, err := exec.Command("go", "list", "-deps", ".").Output()
	require.NoError(t, err)
	for _, module := range []string{"spf13/", "stretchr/testify", "jackc/pgx", "internal/cli", "internal/app", "internal/config"} {
		require.NotContains(t, string(out), module)
	}
}

// The title of a process belongs to the whole program.
func TestLeavesTheTitleAlone(t *testing.T) {
	t.Parallel()
	before, err := os.ReadFile("/proc/self/cmdline")
	require.NoError(t, err)
	resquedtest.New(t, nil).Drain(t)
	after, err := os.ReadFile("/proc/self/cmdline")
	require.NoError(t, err)
	require.Equal(t, string(before), string(after))
}
