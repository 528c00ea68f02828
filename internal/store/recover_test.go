package store_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/resqued/resqued/internal/store"
	"github.com/resqued/resqued/internal/testkit/redistest"
)

// Records have long ids of workers without their queues.
func TestMirrorsOfTheDead(t *testing.T) {
	t.Parallel()
	redistest.Both(t, func(t *testing.T, server *redistest.Server) {
		f := setup(t, server)
		ids := []string{"h/0.1:7:a,b,c", "h/0.10:7:a,b,c"}
		require.NoError(t, f.Register(t.Context(), store.Registration{Proc: "p2", Workers: ids}))
		f.push("q", job("A", "[1]"), job("A", "[2]"))
		wants := f.wants(2)
		wants[0].Worker, wants[1].Worker = "h/0.1:7:3-queues", "h/0.10:7:3-queues"
		jobs := f.exchange(store.ExchangeRequest{Proc: "p2", Wants: wants, Queues: locked("q")}).Jobs
		require.Len(t, jobs, 2)
		var mirrors []store.Mirror
		for i, j := range jobs {
			mirrors = append(mirrors, store.Mirror{Token: j.Token, Worker: ids[i], Value: []byte("{}")})
		}
		require.NoError(t, f.WriteMirrors(t.Context(), "p2", mirrors))
		_, _, err := f.Fence(t.Context(), "p2", true)
		require.NoError(t, err)
		for i, j := range []store.Reserved{jobs[1], jobs[0]} {
			require.Equal(t, i == 0, f.exists("worker:"+ids[1]))
			require.True(t, f.exists("worker:"+ids[0]))
			require.NoError(t, f.Recover(t.Context(), "p2", []store.Verdict{{Token: j.Token, Action: store.Requeue}}))
		}
		require.False(t, f.exists("worker:"+ids[0]))
	})
}

// The fields that a process registered are available to the master that finds it dead.
func TestProcFields(t *testing.T) {
	t.Parallel()
	redistest.Both(t, func(t *testing.T, server *redistest.Server) {
		f := setup(t, server)
		info := map[string]string{"pid": "7", "start": "9", "view": ""}
		require.NoError(t, f.Register(t.Context(), store.Registration{Proc: "p2", Workers: []string{"w:7:q"}, Info: info}))
		names := []string{"pid", "start", "view", "cgroup"}
		fields, err := f.ProcFields(t.Context(), "p2", names)
		require.NoError(t, err)
		require.Equal(t, info, fields)
		fields, err = f.ProcFields(t.Context(), "nobody", names)
		require.NoError(t, err)
		require.Empty(t, fields)
		require.NoError(t, f.redis.Set(t.Context(), f.ns+":resqued:proc:odd", "text", 0).Err())
		_, err = f.ProcFields(t.Context(), "odd", names)
		require.ErrorContains(t, err, "read the entry of odd")
	})
}

// A process that lives may say that a job of it has died, as long as no other process handles its jobs.
func TestBury(t *testing.T) {
	t.Parallel()
	redistest.Both(t, func(t *testing.T, server *redistest.Server) {
		f := setup(t, server)
		require.NoError(t, f.Register(t.Context(), store.Registration{Proc: "p2", Workers: []string{"w:7:q"}}))
		f.push("q", job("A", "[1]"), job("A", "[2]"), job("A", "[3]"))
		jobs := f.exchange(store.ExchangeRequest{Proc: "p2", Wants: f.wants(2), Queues: locked("q")}).Jobs
		require.Len(t, jobs, 2)
		require.ErrorIs(t, f.Recover(t.Context(), "p2", []store.Verdict{{Token: jobs[0].Token, Action: store.Requeue}}), store.ErrAlive)
		for range 2 { // an answer may be lost
			require.NoError(t, f.Bury(t.Context(), "p2", store.Verdict{Token: jobs[0].Token, Action: store.Requeue}))
			require.Equal(t, []string{job("A", "[1]"), job("A", "[3]")}, f.redis.LRange(t.Context(), f.ns+":queue:q", 0, -1).Val())
			require.Equal(t, []string{jobs[1].Token}, f.redis.HKeys(t.Context(), f.ns+":resqued:inflight:p2").Val())
			require.EqualValues(t, 1, f.redis.HLen(t.Context(), f.ns+":resqued:deaths:q").Val())
			require.False(t, f.exists(jobs[0].LockKey), "its lock is free")
		}
		_, _, err := f.Fence(t.Context(), "p2", true)
		require.NoError(t, err)
		require.ErrorIs(t, f.Bury(t.Context(), "p2", store.Verdict{Token: jobs[1].Token, Action: store.Requeue}), store.ErrFenced)
		require.Equal(t, []string{jobs[1].Token}, f.redis.HKeys(t.Context(), f.ns+":resqued:inflight:p2").Val())
	})
}
