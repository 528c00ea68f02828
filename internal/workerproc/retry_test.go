package workerproc_test

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/resqued/resqued"
	"github.com/resqued/resqued/internal/store"
	"github.com/resqued/resqued/internal/sys/proc"
	"github.com/resqued/resqued/internal/thread/retry"
	"github.com/resqued/resqued/internal/wire"
	"github.com/resqued/resqued/internal/workerproc"
)

func book(t *testing.T, s *store.Store, r *resqued.Retry) *retry.Book {
	t.Helper()
	h := resqued.New()
	h.Register(resqued.Class{Name: "A", Retry: r, Handler: succeed})
	b, err := retry.NewBook(retry.BookConfig{Store: s, Classes: h.Classes(), Class: func(name string, _ ...string) (*resqued.Class, bool) { return h.Lookup(name) }})
	require.NoError(t, err)
	t.Cleanup(b.Close)
	return b
}

// flaky fails a number of times, and reports the attempts that it was given.
func flaky(times int) (h handlers, seen chan string) {
	seen = make(chan string, 100)
	runs := atomic.Int64{}
	return handlers{"A": func(_ context.Context, job *resqued.Job) error {
		seen <- fmt.Sprintf("%d of %d", job.Attempt, job.MaxAttempts)
		if runs.Add(1) <= int64(times) {
			return errors.New("no luck")
		}
		return nil
	}}, seen
}

// counts returns the keys of attempts that are left.
func (f *fixture) counts() []string {
	f.t.Helper()
	keys, err := f.redis.Keys(f.t.Context(), f.key("resque-retry:*")).Result()
	require.NoError(f.t, err)
	return keys
}

func TestRetries(t *testing.T) {
	t.Parallel()
	for name, waits := range map[string][]time.Duration{"at once": {0}, "after a while": {20 * time.Millisecond, 40 * time.Millisecond}} {
		t.Run("a job that fails runs again until it is done, "+name, func(t *testing.T) {
			t.Parallel()
			h, seen := flaky(2)
			f := start(t, h, options{retries: &resqued.Retry{Attempts: 3, Backoff: waits}})
			f.push(payload(1))
			require.Equal(t, []string{"1 of 3", "2 of 3", "3 of 3"}, []string{next(t, seen), next(t, seen), next(t, seen)})
			eventually(t, "it is done", func() bool { return f.processed() == 3 })
			_, failures, err := f.store.Stats(t.Context())
			require.NoError(t, err)
			require.EqualValues(t, 2, failures)
			require.Empty(t, f.failed())
			require.Empty(t, f.counts())
			require.Zero(t, f.waiting())
			f.drain()
		})
	}

	t.Run("a job that has run as often as it may has failed, and tells how often that was", func(t *testing.T) {
		t.Parallel()
		h, seen := flaky(9)
		f := start(t, h, options{retries: &resqued.Retry{Attempts: 2, Backoff: []time.Duration{0}}})
		for _, first := range []string{"1 of 2", "1 of 2"} { // a job that comes anew begins anew
			f.push(payload(1))
			require.Equal(t, []string{first, "2 of 2"}, []string{next(t, seen), next(t, seen)})
			eventually(t, "it has failed", func() bool { return len(f.failed()) > 0 && f.processed()%2 == 0 })
			require.Contains(t, f.failed()[0], `"exception":"Error","error":"no luck","backtrace":[],"worker":"`+wire.WorkerID(theProc, "h", 0, 0, 7, []string{"q"})+`","queue":"q","attempts":2}`)
			require.Empty(t, f.counts())
			require.NoError(t, f.redis.Del(t.Context(), f.key("failed")).Err())
		}
		require.Empty(t, seen)
		f.drain()
	})

	t.Run("attempts are counted together with Ruby's", func(t *testing.T) {
		t.Parallel()
		h, seen := flaky(2)
		f := start(t, h, options{retries: &resqued.Retry{Attempts: 9, Backoff: []time.Duration{time.Hour}, ExpireAfter: time.Hour}})
		key := f.key("resque-retry:A:356a192b7913b04c54574d18c28d46e6395428ab") // the SHA-1 of 1
		require.NoError(t, f.redis.Set(t.Context(), key, "3", 0).Err())         // its fourth run has failed there
		f.push(payload(1))
		require.Equal(t, "5 of 9", next(t, seen))
		eventually(t, "it waits", func() bool { return f.processed() == 1 })
		require.Equal(t, "4", f.redis.Get(t.Context(), key).Val(), "so that the gem, which adds one, goes on with its sixth")
		require.Equal(t, 2*time.Hour, f.redis.TTL(t.Context(), key).Val().Round(time.Minute))
		record := f.redis.Get(t.Context(), f.key("failure-resque-retry:A:356a192b7913b04c54574d18c28d46e6395428ab")).Val()
		require.Regexp(t, `^\{"failed_at":"\d{4}/\d\d/\d\d \d\d:\d\d:\d\d","payload":\{"class":"A","args":\[1\]\},"exception":"Error","error":"no luck",`, record)
		f.drain()
	})

	t.Run("Discard is the end of the count, Requeue is not", func(t *testing.T) {
		t.Parallel()
		results := make(chan error, 5)
		seen := make(chan int, 5)
		f := start(t, handlers{"A": func(_ context.Context, job *resqued.Job) error {
			seen <- job.Attempt
			return <-results
		}}, options{retries: &resqued.Retry{Backoff: []time.Duration{0}}})
		for _, err := range []error{errors.New("no luck"), resqued.Requeue(0), resqued.Discard} {
			results <- err
		}
		f.push(payload(1))
		require.Equal(t, []int{1, 2, 2}, []int{next(t, seen), next(t, seen), next(t, seen)})
		eventually(t, "it has ended", func() bool { return f.processed() == 2 })
		require.Empty(t, f.counts())
		require.Empty(t, f.failed())
		f.drain()
	})

	t.Run("a job that is killed by its id does not run again, one that is killed with others does", func(t *testing.T) {
		t.Parallel()
		h, running, _ := gate()
		f := start(t, handlers{"A": h}, options{cfg: seldom, retries: &resqued.Retry{Backoff: []time.Duration{0}}})
		f.push(payload(1))
		first := next(t, running)
		f.down <- proc.Message{Type: proc.KillJobs}
		second := next(t, running)
		require.Equal(t, [2]int{1, 2}, [2]int{first.Attempt, second.Attempt})
		answer := f.ended(f.askFor(second, store.KillRequest{Grace: time.Minute}))
		require.False(t, answer.Requeued)
		require.Len(t, f.failed(), 1)
		require.Contains(t, f.failed()[0], `"error":"Job was killed"`)
		require.Contains(t, f.failed()[0], `"attempts":2}`)
		require.Zero(t, f.waiting())
		require.Empty(t, f.counts())
		f.drain()
	})

	t.Run("a reply that is lost counts no run twice", func(t *testing.T) {
		t.Parallel()
		h, seen := flaky(2)
		f := start(t, h, options{
			retries: &resqued.Retry{Attempts: 3, Backoff: []time.Duration{0}},
			wrap:    func(s workerproc.Store) workerproc.Store { return &replyLost{Store: s} },
		})
		f.push(payload(1))
		require.Equal(t, []string{"1 of 3", "2 of 3", "3 of 3"}, []string{next(t, seen), next(t, seen), next(t, seen)})
		eventually(t, "it is done", func() bool { return f.processed() == 3 })
		require.Empty(t, f.counts())
		f.drain()
	})

	t.Run("a run that its process has not survived is an attempt, unless it is not to be", func(t *testing.T) {
		t.Parallel()
		for ignore, want := range map[bool]string{false: "3 of 5", true: "1 of 5"} {
			h, seen := flaky(0)
			f := start(t, h, options{state: "paused", retries: &resqued.Retry{IgnoreDeaths: ignore}})
			f.push(payload(1))
			f.dies(t)
			f.dies(t)
			f.down <- proc.Message{Type: proc.SetState, State: "running"}
			require.Equal(t, want, next(t, seen))
			f.drain()
		}
	})
}

// next waits for a report of a handler.
func next[T any](t *testing.T, told chan T) T {
	t.Helper()
	select {
	case v := <-told:
		return v
	case <-time.After(patience):
		require.FailNow(t, "no job runs")
		panic("unreachable")
	}
}

// dies makes another process take a job and die of something else.
func (f *fixture) dies(t *testing.T) {
	t.Helper()
	require.NoError(t, f.store.Register(t.Context(), store.Registration{Proc: "other", Workers: []string{"o:1:q"}, Started: "now"}))
	reply, err := f.store.Exchange(t.Context(), store.ExchangeRequest{
		Proc: "other", Master: "o", Wants: []store.Want{{Token: "1", Worker: "o:1:q"}}, Queues: []store.Queue{{Name: "q"}},
	})
	require.NoError(t, err)
	require.Len(t, reply.Jobs, 1)
	_, _, err = f.store.Fence(t.Context(), "other", true)
	require.NoError(t, err)
	require.NoError(t, f.store.Recover(t.Context(), "other", []store.Verdict{{Token: "1", Action: store.Requeue}}))
}

// replyLost loses the first reply to each exchange that ends a job.
type replyLost struct {
	workerproc.Store
}

func (l *replyLost) Exchange(ctx context.Context, req store.ExchangeRequest) (store.ExchangeReply, error) {
	reply, err := l.Store.Exchange(ctx, req)
	if err == nil && len(req.Completions) > 0 && !req.Repeat {
		return store.ExchangeReply{}, errors.New("the reply is lost")
	}
	return reply, err
}
