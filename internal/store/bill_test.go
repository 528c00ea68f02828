package store_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/resqued/resqued/internal/store"
	"github.com/resqued/resqued/internal/testkit/redistest"
)

// TestBill: each part of a namespace has its keys, its memory and its commands, in scripts and outside.
func TestBill(t *testing.T) {
	t.Parallel()
	f := setup(t, redistest.Shared(t))
	long := make([]byte, 100_000)
	for key, part := range map[string]string{
		"queue:mail": "queue mail", "queue:mail:uniqueue": "queue mail", "resqued:suspects:mail": "queue mail", "resqued:line:4:mail:some:lock": "queue mail",
		"resqued:turn:3:a:b:1": "queue a:b", "failed": "failures", "mail_failed": "failures", "resqued:hist:t:all:h1": "history", "locket:job_locks:A[]": "locks",
		"delayed:17": "delayed jobs", "resqued:longjob:locks": "long jobs", "some:other": "the rest",
	} {
		require.Equal(t, part, store.PartOf(key), key)
	}
	require.NoError(t, f.redis.RPush(t.Context(), f.key("queue:mail"), "{}").Err())
	require.NoError(t, f.redis.Set(t.Context(), f.key("stat:processed"), long, 0).Err())
	work, stop := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		for work.Err() == nil {
			_ = f.redis.Eval(work, `return redis.call('LLEN', KEYS[1])`, []string{f.key("queue:mail")}).Err()
			_ = f.redis.Get(work, f.key("locket:job_locks:A")).Err()
		}
	}()
	b, err := f.Bill(t.Context())
	stop()
	<-done
	require.NoError(t, err)
	require.Empty(t, b.Unwatched)
	parts := map[string]store.Cost{}
	for _, c := range b.Costs {
		parts[c.Part] = c
	}
	require.Equal(t, "history", b.Costs[0].Part, "it is the largest")
	require.Greater(t, parts["history"].Bytes, int64(100_000))
	require.EqualValues(t, 1, parts["queue mail"].Keys)
	require.Positive(t, *parts["queue mail"].PerS)
	require.Positive(t, *parts["locks"].PerS)
	require.Zero(t, *parts["history"].PerS)
}

// TestWatchedKey: names are as in Redis, and other databases do not count.
func TestWatchedKey(t *testing.T) {
	t.Parallel()
	for line, key := range map[string]string{
		`+1700000000.1 [0 127.0.0.1:1] "lpop" "ns:queue:mail"`:              "queue:mail",
		`+1700000000.1 [0 lua] "LLEN" "ns:queue:b\xc3\xbcro"`:               "queue:büro",
		`+1700000000.1 [0 unix:/a] "del" "other" "ns:a\"b\\c" "ns:d"`:       `a"b\c`,
		`+1700000000.1 [0 127.0.0.1:1] "EVALSHA" "abc" "1" "ns:queue:mail"`: "",
		`+1700000000.1 [1 127.0.0.1:1] "lpop" "ns:queue:mail"`:              "",
		`+1700000000.1 [0 127.0.0.1:1] "set" "other" "a long val`:           "",
		`+OK`: "",
	} {
		got, ok := store.WatchedKey(line, 0, "ns:")
		require.Equal(t, key, got, line)
		require.Equal(t, key != "", ok, line)
	}
}

// TestBillWithoutMonitor: without the right to MONITOR the memory is known.
func TestBillWithoutMonitor(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t, redistest.Options{})
	f := setup(t, server)
	require.NoError(t, f.redis.RPush(t.Context(), f.key("queue:mail"), "{}").Err())
	require.NoError(t, f.redis.Do(t.Context(), "ACL", "SETUSER", "default", "-monitor").Err())
	b, err := f.Bill(t.Context())
	require.NoError(t, err)
	require.Contains(t, b.Unwatched, "NOPERM")
	require.NotEmpty(t, b.Costs)
	require.Nil(t, b.Costs[0].PerS)
	require.Positive(t, b.Costs[0].Bytes)
}
