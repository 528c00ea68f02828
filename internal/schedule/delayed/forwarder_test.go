package delayed_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/resqued/resqued/internal/schedule/delayed"
	"github.com/resqued/resqued/internal/store"
	"github.com/resqued/resqued/internal/testkit/faultproxy"
	"github.com/resqued/resqued/internal/testkit/redistest"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m, redistest.Probing())
}

type counts struct{ n atomic.Int64 }

func (c *counts) Count(_ string, n int) { c.n.Add(int64(n)) }

// fake gives the answers of a test and records when it was asked.
type fake struct {
	answers []func() (store.Due, error)
	asked   []time.Duration
	filed   []string
	fail    error
	began   time.Time
}

func (f *fake) MoveDue(context.Context, string, func(string) bool) (store.Due, error) {
	f.asked = append(f.asked, time.Since(f.began))
	if len(f.answers) == 0 {
		return store.Due{}, nil
	}
	answer := f.answers[0]
	f.answers = f.answers[1:]
	return answer()
}

func (f *fake) FailMalformed(_ context.Context, malformed []store.MalformedItem, _ bool, record func([]byte, string) store.FiledFailure) (int, error) {
	for _, m := range malformed {
		f.filed = append(f.filed, string(record(m.Item, "id").Text))
	}
	return len(malformed), f.fail
}

func due(d store.Due) func() (store.Due, error) {
	return func() (store.Due, error) { return d, nil }
}

func fails(text string) func() (store.Due, error) {
	return func() (store.Due, error) { return store.Due{}, errors.New(text) }
}

// play runs a forwarder for a while, in a time of its own.
func play(t *testing.T, f *fake, cfg delayed.Config, d time.Duration) (logged []observer.LoggedEntry, dropped int64) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		core, logs := observer.New(zap.InfoLevel)
		var stats counts
		f.began = time.Now()
		ctx, cancel := context.WithTimeout(t.Context(), d)
		defer cancel()
		cfg.Stats = &stats
		delayed.NewForwarder(cfg, f, zap.New(core)).Run(ctx)
		logged, dropped = logs.All(), stats.n.Load()
	})
	return logged, dropped
}

func TestForwarderLooks(t *testing.T) {
	t.Parallel()
	ms := time.Millisecond
	t.Run("each second, and when the next job is due", func(t *testing.T) {
		t.Parallel()
		f := &fake{answers: []func() (store.Due, error){due(store.Due{}), due(store.Due{Next: 30 * ms}), due(store.Due{Next: time.Hour})}}
		play(t, f, delayed.Config{}, 3500*ms)
		require.Equal(t, []time.Duration{0, 1000 * ms, 1030 * ms, 2030 * ms, 3030 * ms}, f.asked)
	})
	t.Run("less often in a large fleet", func(t *testing.T) {
		t.Parallel()
		f := &fake{answers: []func() (store.Due, error){due(store.Due{Masters: 16}), due(store.Due{Masters: 32}), due(store.Due{Masters: 1000}), due(store.Due{Masters: 1000, Next: 30 * ms}), due(store.Due{})}}
		play(t, f, delayed.Config{}, 14*time.Second)
		require.Equal(t, []time.Duration{0, 1000 * ms, 3000 * ms, 13000 * ms, 13030 * ms}, f.asked)
	})
	t.Run("at once where more is due", func(t *testing.T) {
		t.Parallel()
		slow := func() (store.Due, error) { time.Sleep(5 * ms); return store.Due{More: true, Dropped: 2}, nil } //nolint:forbidigo // of a bubble
		f := &fake{answers: []func() (store.Due, error){slow, slow}}
		_, dropped := play(t, f, delayed.Config{}, 100*ms)
		require.Equal(t, []time.Duration{0, 10 * ms, 20 * ms}, f.asked)
		require.EqualValues(t, 4, dropped)
	})
	t.Run("again after an error, less and less often, and tells it once", func(t *testing.T) {
		t.Parallel()
		f := &fake{answers: []func() (store.Due, error){fails("a"), fails("a"), fails("b"), due(store.Due{}), fails("b")}}
		logged, _ := play(t, f, delayed.Config{}, 2*time.Second)
		require.Equal(t, []time.Duration{0, 100 * ms, 300 * ms, 700 * ms, 1700 * ms, 1800 * ms}, f.asked)
		require.Len(t, logged, 3)
	})
	t.Run("a key in the way is told once a minute", func(t *testing.T) {
		t.Parallel()
		f := &fake{}
		for range 130 {
			f.answers = append(f.answers, due(store.Due{Wrong: []string{"k"}}))
		}
		logged, _ := play(t, f, delayed.Config{}, 130*time.Second)
		require.Len(t, logged, 3)
		require.Equal(t, "k", logged[0].ContextMap()["key"])
	})
	t.Run("what is not a job is recorded as failed", func(t *testing.T) {
		t.Parallel()
		f := &fake{answers: []func() (store.Due, error){due(store.Due{Malformed: []store.MalformedItem{{Item: []byte("bad \xff")}, {Item: []byte(`{"class":"A","args":[]}`)}}})}}
		play(t, f, delayed.Config{Worker: "h~resqued:7:delayed"}, 50*ms)
		require.Len(t, f.filed, 2)
		require.Contains(t, f.filed[0], `"class":"Resqued::InvalidPayload"`)
		require.Contains(t, f.filed[1], `"payload":{"class":"A","args":[]},"exception":"Resqued::InvalidDelayedJob"`)
		require.Contains(t, f.filed[1], `"worker":"h~resqued:7:delayed"`)
		f = &fake{fail: errors.New("failed is not a list"), answers: []func() (store.Due, error){due(store.Due{More: true, Malformed: []store.MalformedItem{{Item: []byte("x")}}})}}
		logged, _ := play(t, f, delayed.Config{}, 50*ms)
		require.Len(t, f.asked, 1, "it does not try all the time")
		require.Len(t, logged, 2)
	})
}

// Two forwarders, whose answers get lost again and again, move each job once.
func TestForwardersWhoseAnswersAreLost(t *testing.T) {
	t.Parallel()
	server := redistest.Shared(t)
	space, redisClient := redistest.Namespace(t), server.Client(t)
	proxy, err := faultproxy.Listen(faultproxy.Config{Network: "tcp", Address: server.Addr})
	require.NoError(t, err)
	serving, over := context.WithCancel(t.Context())
	var proxied sync.WaitGroup
	proxied.Go(func() { _ = proxy.Run(serving) })
	t.Cleanup(func() { over(); proxied.Wait() })
	key := func(name string) string { return space + ":" + name }
	const jobs, perList = 800, 200
	ctx := t.Context()
	for i := range jobs {
		list := fmt.Sprintf("%d", 1000+i/perList)
		redisClient.RPush(ctx, key("delayed:"+list), fmt.Sprintf(`{"class":"A","args":[%d],"queue":"q"}`, i))
		if i%perList == 0 {
			redisClient.ZAdd(ctx, key("delayed_queue_schedule"), redis.Z{Score: float64(1000 + i/perList), Member: list})
		}
	}
	moving, stop := context.WithCancel(ctx)
	var forwarders sync.WaitGroup
	for range 2 {
		s, err := store.Open(store.Options{URL: "redis://" + proxy.Addr() + "/0", Namespace: space})
		require.NoError(t, err)
		t.Cleanup(func() { _ = s.Close() })
		forwarders.Go(func() { delayed.NewForwarder(delayed.Config{Stats: &counts{}}, s, zap.NewNop()).Run(moving) })
	}
	left := func() int64 { return jobs - redisClient.LLen(ctx, key("queue:q")).Val() }
	lost := 0
	for left() > 0 {
		// The second script runs, and its reply is lost. A forwarder that loses all of its replies waits for
		// seconds between its tries.
		select {
		case <-proxy.DropReply(faultproxy.Drop{Nth: 2}):
			lost++
		case <-time.After(30 * time.Second):
			t.Fatalf("%d jobs are left", left())
		}
	}
	require.Positive(t, lost)
	stop()
	forwarders.Wait()
	got := redisClient.LRange(ctx, key("queue:q"), 0, -1).Val()
	require.Len(t, got, jobs)
	once := map[string]bool{}
	for _, payload := range got {
		require.False(t, once[payload], payload)
		once[payload] = true
	}
	require.Empty(t, strings.Join(redisClient.Keys(ctx, key("delayed*")).Val(), " "))
}
