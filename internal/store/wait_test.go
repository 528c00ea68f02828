package store_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/resqued/resqued/internal/store"
	"github.com/resqued/resqued/internal/testkit/redistest"
)

func waiter(t *testing.T, s *store.Store) *store.Waiter {
	t.Helper()
	w, err := s.OpenWaiter(store.MaxWaits)
	require.NoError(t, err)
	t.Cleanup(func() { _ = w.Close() })
	return w
}

// waitsAt waits at the server of a store, if the server has BLMOVE.
func waitsAt(t *testing.T, s *store.Store) {
	t.Helper()
	if !redistest.Knows(t, "BLMOVE") {
		require.ErrorIs(t, s.CanWait(t.Context()), store.ErrNoWaiting)
		return
	}
	require.NoError(t, s.CanWait(t.Context()))
	w := waiter(t, s)
	_, err := s.Push(t.Context(), "wait", []byte("{}"))
	require.NoError(t, err)
	found, err := w.Await(t.Context(), "wait")
	require.NoError(t, err)
	require.True(t, found)
	names, err := w.Queues(t.Context())
	require.NoError(t, err)
	require.Contains(t, names, "wait")
	_, err = s.RemoveQueue(t.Context(), "wait", false)
	require.NoError(t, err)
}

func TestAwait(t *testing.T) {
	t.Parallel()
	redistest.Both(t, func(t *testing.T, server *redistest.Server) {
		if server.Mini == nil {
			redistest.Needs(t, "BLMOVE")
		}
		t.Run("a push ends it, by whoever it is, and changes nothing", func(t *testing.T) {
			f := setup(t, server)
			w := waiter(t, f.Store)
			for i, push := range []func(payload string) error{
				func(p string) error { _, err := f.Push(t.Context(), "q", []byte(p)); return err },
				func(p string) error { return f.redis.LPush(t.Context(), f.key("queue:q"), p).Err() },
				func(p string) error { return f.redis.RPush(t.Context(), f.key("queue:q"), p, p).Err() },
			} {
				ended := make(chan bool, 1)
				go func() {
					found, _ := w.Await(t.Context(), "q")
					ended <- found
				}()
				p := delicate[i]
				require.NoError(t, push(p))
				require.True(t, <-ended)
				require.Subset(t, []string{p, p}, f.list("queue:q"))
				found, err := w.Await(t.Context(), "q")
				require.NoError(t, err)
				require.True(t, found, "it holds something still")
				require.NoError(t, f.redis.Del(t.Context(), f.key("queue:q")).Err())
			}
		})

		t.Run("the payload's bytes and the order stay what they are", func(t *testing.T) {
			f := setup(t, server)
			w := waiter(t, f.Store)
			payloads := append([]string{"1", "007", "-0", strings.Repeat("x", 100_000)}, delicate...)
			f.push("q", payloads...)
			for left := payloads; len(left) > 0; left = left[1:] {
				found, err := w.Await(t.Context(), "q")
				require.NoError(t, err)
				require.True(t, found)
				require.Equal(t, left, f.list("queue:q"))
				require.NoError(t, f.redis.LPop(t.Context(), f.key("queue:q")).Err())
			}
			require.False(t, f.exists("queue:q"))
		})

		t.Run("a unique queue stays in step", func(t *testing.T) {
			f := setup(t, server)
			w := waiter(t, f.Store)
			_, err := f.PushUnique(t.Context(), "q", false, []byte(job("A", "[1]")), []byte(job("A", "[2]")))
			require.NoError(t, err)
			for range 3 {
				found, err := w.Await(t.Context(), "q")
				require.NoError(t, err)
				require.True(t, found)
			}
			f.inStep("q")
		})

		t.Run("Close ends it at once", func(t *testing.T) {
			at := server
			if server.Mini == nil {
				at = redistest.Start(t, redistest.Options{}) // where no other test waits
			}
			f := setup(t, at)
			w := waiter(t, f.Store)
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			ended := make(chan error, 3)
			for i := range 3 {
				go func() {
					_, err := w.Await(ctx, fmt.Sprint("q", i))
					ended <- err
				}()
			}
			if server.Mini == nil {
				f.blocked(3)
			}
			cancel()
			require.NoError(t, w.Close())
			for range 3 {
				require.Error(t, <-ended)
			}
			if server.Mini == nil {
				f.blocked(0)
			}
		})

		t.Run("a key that holds no list is told", func(t *testing.T) {
			f := setup(t, server)
			require.NoError(t, f.redis.Set(t.Context(), f.key("queue:q"), "x", 0).Err())
			_, err := waiter(t, f.Store).Await(t.Context(), "q")
			require.ErrorIs(t, err, store.ErrNoQueue)
			require.NoError(t, f.CanWait(t.Context()))
		})
	})
}

// blocked waits until so many wait at the server.
func (f *fixture) blocked(n int) {
	f.t.Helper()
	require.Eventually(f.t, func() bool {
		list, err := f.redis.ClientList(f.t.Context()).Result()
		require.NoError(f.t, err)
		blocked := 0
		for line := range strings.Lines(list) {
			if strings.Contains(line, " cmd=blmove ") && strings.Contains(line, " flags=b ") {
				blocked++
			}
		}
		return blocked == n
	}, 30*time.Second, 3*time.Millisecond)
}

// TestAwaitLosesNothing: while many wait for the same queue, each job is taken once and
// in order, and a queue of one job never looks empty.
func TestAwaitLosesNothing(t *testing.T) {
	t.Parallel()
	redistest.Needs(t, "BLMOVE")
	f := setup(t, redistest.Shared(t))
	w := waiter(t, f.Store)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	const waiters, jobs = 4, 500
	ended := make(chan int, waiters)
	for range waiters {
		go func() {
			woken := 0
			for ctx.Err() == nil {
				if found, err := w.Await(ctx, "q"); err == nil && found {
					woken++
				}
			}
			ended <- woken
		}()
	}
	key := f.key("queue:q")
	for i := range jobs {
		require.NoError(t, f.redis.RPush(ctx, key, i).Err())
		for range 3 {
			require.EqualValues(t, 1, f.redis.LLen(ctx, key).Val())
		}
		require.Equal(t, fmt.Sprint(i), f.redis.LPop(ctx, key).Val())
		require.ErrorIs(t, f.redis.LPop(ctx, key).Err(), redis.Nil)
	}
	cancel()
	require.NoError(t, w.Close())
	woken := 0
	for range waiters {
		woken += <-ended
	}
	require.Greater(t, woken, waiters, "they were woken while they waited")
}

func TestServersThatLetNobodyWait(t *testing.T) {
	t.Parallel()
	for name, o := range map[string]redistest.Options{
		"older than 6.2":      redistest.Without(t, "BLMOVE"),
		"no right to BLMOVE":  {Users: []string{"resqued on >SECRET ~* &* +@all -blmove"}},
		"not in the category": {Users: []string{"resqued on >SECRET ~* &* +@all -@blocking"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := redistest.Start(t, o)
			opts := store.Options{URL: server.URL(), Namespace: redistest.Namespace(t)}
			if o.Users != nil {
				opts.URL = server.URLAs("resqued", "SECRET")
			}
			s, err := store.Open(opts)
			require.NoError(t, err)
			defer func() { _ = s.Close() }()
			require.ErrorIs(t, s.CanWait(t.Context()), store.ErrNoWaiting)
			_, err = waiter(t, s).Await(t.Context(), "q")
			require.ErrorIs(t, err, store.ErrNoWaiting)
			require.NoError(t, s.WaitReady(t.Context(), nil), "all else works")
		})
	}

	t.Run("one that is not there says nothing about it", func(t *testing.T) {
		t.Parallel()
		server := redistest.Start(t, redistest.Options{})
		f := setup(t, server)
		server.Kill()
		require.NoError(t, f.CanWait(t.Context()))
		_, err := waiter(t, f.Store).Await(t.Context(), "q")
		require.Error(t, err)
		require.False(t, errors.Is(err, store.ErrNoWaiting))
	})
}
