package faultproxy

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/resqued/resqued/internal/testkit/redistest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// setup puts a proxy in front of the shared Redis. The client behind uses it; the client beside
// does not.
func setup(t *testing.T, protocol int) (p *Proxy, behind, beside *redis.Client) {
	t.Helper()
	server := redistest.Shared(t)
	p, err := Listen(Config{Network: "unix", Address: server.Socket, Seed: 1})
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	var run sync.WaitGroup
	run.Go(func() { _ = p.Run(ctx) })
	behind = redis.NewClient(&redis.Options{
		Addr: p.Addr(), Protocol: protocol, MaxRetries: -1, PoolSize: 4, ReadTimeout: patience, ContextTimeoutEnabled: true,
		MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
	})
	t.Cleanup(func() {
		_ = behind.Close()
		cancel()
		run.Wait()
	})
	return p, behind, server.Client(t)
}

// patience is how long a client waits for an answer that is expected to come.
const patience = 30 * time.Second

// brief returns a context for a call that gets no answer.
func brief(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
	t.Cleanup(cancel)
	return ctx
}

func TestProxy(t *testing.T) {
	t.Parallel()

	t.Run("bytes go through unchanged in both protocols", func(t *testing.T) {
		t.Parallel()
		for _, protocol := range []int{2, 3} {
			_, c, _ := setup(t, protocol)
			key := redistest.Namespace(t)
			big := strings.Repeat("\r\n$5\r\n", 200_000)
			require.NoError(t, c.Set(t.Context(), key, big, 0).Err())
			require.Equal(t, big, c.Get(t.Context(), key).Val())
			require.NoError(t, c.HSet(t.Context(), key+"h", "a", "1", "b", "2").Err())
			require.Len(t, c.HGetAll(t.Context(), key+"h").Val(), 2)
			pipe := c.TxPipeline()
			for range 100 {
				pipe.Incr(t.Context(), key+"n")
			}
			_, err := pipe.Exec(t.Context())
			require.NoError(t, err)
			require.Equal(t, "100", c.Get(t.Context(), key+"n").Val())
			require.Equal(t, redis.Nil, c.Get(t.Context(), key+"none").Err())
		}
	})

	t.Run("the reply of the second script is lost after the script ran", func(t *testing.T) {
		t.Parallel()
		for _, mute := range []bool{false, true} {
			p, c, beside := setup(t, 3)
			key := redistest.Namespace(t)
			gone := p.DropReply(Drop{Nth: 2, Mute: mute})
			run := func(ctx context.Context) error {
				return c.Eval(ctx, "return redis.call('INCR', KEYS[1])", []string{key}).Err()
			}
			require.NoError(t, run(t.Context()))
			require.NoError(t, c.Incr(t.Context(), key).Err(), "what is no script does not count")
			select {
			case <-gone:
				t.Fatal("too early")
			default:
			}
			require.Error(t, run(brief(t)))
			<-gone
			require.Equal(t, "3", beside.Get(t.Context(), key).Val())
			require.NoError(t, run(t.Context()))
		}
	})

	t.Run("a drop chooses by command", func(t *testing.T) {
		t.Parallel()
		p, c, beside := setup(t, 3)
		key := redistest.Namespace(t)
		gone := p.DropReply(Drop{Match: func(q Request) bool { return q.Name == "EXEC" }})
		_, err := c.TxPipelined(t.Context(), func(pipe redis.Pipeliner) error { return pipe.RPush(t.Context(), key, "v").Err() })
		require.Error(t, err)
		<-gone
		require.Equal(t, int64(1), beside.LLen(t.Context(), key).Val())
	})

	t.Run("a hold is silence that ends", func(t *testing.T) {
		t.Parallel()
		p, c, beside := setup(t, 2)
		key := redistest.Namespace(t)
		require.NoError(t, c.Ping(t.Context()).Err())
		p.Hold()
		require.Error(t, c.Set(brief(t), key, "v", 0).Err())
		require.Equal(t, int64(0), beside.Exists(t.Context(), key).Val())
		p.Release()
		// The request was on its way all the time; only its sender had given up.
		require.Eventually(t, func() bool { return beside.Exists(context.Background(), key).Val() == 1 },
			30*time.Second, time.Millisecond)
		require.NoError(t, c.Ping(t.Context()).Err())
	})

	t.Run("a cut resets, a refusal stays until it is healed", func(t *testing.T) {
		t.Parallel()
		p, c, _ := setup(t, 3)
		require.NoError(t, c.Ping(t.Context()).Err())
		require.Positive(t, p.Cut())
		p.Refuse(true)
		require.Error(t, c.Ping(t.Context()).Err())
		require.Error(t, c.Ping(t.Context()).Err())
		p.Heal()
		require.NoError(t, c.Ping(t.Context()).Err())
	})

	t.Run("a delay is added in both directions, once for a pipeline", func(t *testing.T) {
		t.Parallel()
		p, c, _ := setup(t, 3)
		require.NoError(t, c.Ping(t.Context()).Err())
		p.SetDelay(20*time.Millisecond, 5*time.Millisecond)
		began := time.Now()
		require.NoError(t, c.Ping(t.Context()).Err())
		require.GreaterOrEqual(t, time.Since(began), 40*time.Millisecond)
		// 2000 delays would exceed the client's timeout.
		_, err := c.Pipelined(t.Context(), func(pipe redis.Pipeliner) error {
			for range 2000 {
				pipe.Ping(t.Context())
			}
			return nil
		})
		require.NoError(t, err)
	})

	t.Run("the target moves", func(t *testing.T) {
		t.Parallel()
		p, c, _ := setup(t, 3)
		key := redistest.Namespace(t)
		require.NoError(t, c.Set(t.Context(), key, "here", 0).Err())
		other := redistest.Start(t, redistest.Options{})
		p.SetTarget("tcp", other.Addr)
		require.Equal(t, "here", c.Get(t.Context(), key).Val(), "a connection stays where it is")
		p.Cut()
		var err error
		require.Eventually(t, func() bool {
			err = c.Get(context.Background(), key).Err()
			return errors.Is(err, redis.Nil)
		}, 30*time.Second, time.Millisecond, "%v", err)
	})
}
