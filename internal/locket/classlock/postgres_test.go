package classlock_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/resqued/resqued"
	"github.com/resqued/resqued/internal/locket/classlock"
	"github.com/resqued/resqued/internal/store"
	"github.com/resqued/resqued/internal/sys/procfs"
	"github.com/resqued/resqued/internal/testkit/pgtest"
	"github.com/resqued/resqued/internal/thread"
	"github.com/resqued/resqued/locker"
)

func TestLocksInPostgres(t *testing.T) {
	t.Parallel()
	server := pgtest.Start(t, pgtest.Options{})
	pool, err := pgxpool.New(t.Context(), server.URL(""))
	require.NoError(t, err)
	t.Cleanup(pool.Close)
	require.NoError(t, locker.Migrate(t.Context(), pool, ""))

	// row is the lock of the class, or the zero Row.
	row := func(t *testing.T, l *locks) locker.Row {
		t.Helper()
		rows, err := locker.List(context.WithoutCancel(t.Context()), pool, "", l.ns+":lock:Graph")
		require.NoError(t, err)
		if len(rows) == 0 {
			return locker.Row{}
		}
		return rows[0]
	}
	exec := func(t *testing.T, l *locks, set string) {
		t.Helper()
		_, err := pool.Exec(t.Context(), "UPDATE locks SET "+set+" WHERE key = $1", l.ns+":lock:Graph")
		require.NoError(t, err)
	}
	inPostgres := lock{Store: resqued.StorePostgres, ClassWide: true}

	t.Run("a job runs with its lock, and it is free when the code has ended", func(t *testing.T) {
		t.Parallel()
		var l *locks
		var sequences []int64
		limited := inPostgres
		limited.Timeout = time.Minute
		l = newLocks(t, graph(func(ctx context.Context, _ resqued.Args) error {
			require.True(t, row(t, l).Held())
			require.NoError(t, resqued.RefreshLock(ctx))
			held, err := resqued.Locked(ctx, "Graph", 7)
			require.NoError(t, err)
			require.True(t, held)
			require.Positive(t, l.Ends())
			sequences = append(sequences, resqued.JobFrom(ctx).LockSequence)
			return errors.New("failed")
		}, limited), options{database: server.URL("")})
		for range 2 {
			out, claim := l.run(t.Context(), "Graph", `[7]`)
			require.EqualError(t, out.Err, "failed")
			require.False(t, claim.State().Asked, "the completion has nothing to release")
			require.False(t, row(t, l).Held())
			require.Zero(t, l.Ends())
		}
		require.Equal(t, []int64{1, 2}, sequences)
		require.Empty(t, l.get("lock:Graph"), "Redis has no part in it")
	})

	t.Run("what finds it held is dropped, but not after a death that may have left it", func(t *testing.T) {
		t.Parallel()
		l := newLocks(t, graph(fine, inPostgres), options{database: server.URL("")})
		other, err := locker.New(pool, l.ns+":lock:Graph", locker.Options{})
		require.NoError(t, err)
		got, err := other.Get(t.Context())
		require.NoError(t, err)
		require.True(t, got)
		out, _ := l.run(t.Context(), "Graph", `[]`)
		require.Equal(t, thread.Dropped, out.Result)
		require.ErrorContains(t, out.Err, other.Identifier())
		job, claim := l.reserve("Graph", `[]`)
		job.Deaths = 1
		out = l.runner.Run(t.Context(), job, claim)
		require.Equal(t, thread.Requeued, out.Result)
		require.Equal(t, time.Second, out.After)
		require.NoError(t, other.Release(t.Context()))
		require.Equal(t, thread.Done, l.runner.Run(t.Context(), job, claim).Result)
	})

	t.Run("without a table the job fails, and says what to do", func(t *testing.T) {
		t.Parallel()
		_, err := pool.Exec(t.Context(), "CREATE DATABASE empty")
		require.NoError(t, err)
		l := newLocks(t, graph(fine, inPostgres), options{database: server.URL("empty")})
		out, _ := l.run(t.Context(), "Graph", `[]`)
		require.Equal(t, "Resqued::LockBroken", out.Exception)
		require.ErrorContains(t, out.Err, "make the table with: resqued locker migrate")
	})

	for name, timeout := range map[string]time.Duration{"without a time limit": 0, "with a time limit": time.Hour} {
		t.Run("one "+name+" is extended, and missed when it is stolen", func(t *testing.T) {
			t.Parallel()
			lock := inPostgres
			lock.Timeout = timeout
			l, claim, result := waiting(t, lock, options{database: server.URL(""), ttl: 30 * time.Second, beat: 50 * time.Millisecond})
			for range 3 {
				exec(t, l, "locked_until = clock_timestamp() AT TIME ZONE 'UTC' + interval '5 seconds'")
				require.Eventually(t, func() bool { return row(t, l).Left > 20*time.Second }, patience, 10*time.Millisecond)
			}
			exec(t, l, "locked_by = 'thief'")
			require.Equal(t, "Resqued::LockLost", (<-result).Exception)
			require.Positive(t, claim.State().Grace)
			require.Equal(t, "thief", row(t, l).LockedBy, "who keeps it")
		})

		t.Run("one "+name+" ends its job before the lease when PostgreSQL is silent", func(t *testing.T) {
			t.Parallel()
			lock := inPostgres
			lock.Timeout = timeout
			var mine *flaky
			l, claim, result := waiting(t, lock, options{database: server.URL(""), ttl: 8 * time.Second, beat: 50 * time.Millisecond, wrap: func(s classlock.Store) classlock.Store {
				f := &flaky{Store: s, hang: true}
				if _, ok := s.(interface{ KeepsAll() bool }); ok {
					mine = f
				}
				return f
			}})
			mine.fail() // nothing else may end it
			ends := l.Ends()
			require.Greater(t, ends, procfs.BootTime())
			out := <-result
			require.Equal(t, "Resqued::LockLost", out.Exception)
			require.ErrorContains(t, claim.State().Lost, "has not answered for")
			require.ErrorContains(t, claim.State().Lost, "postgres ")
			require.LessOrEqual(t, claim.State().Grace, 1600*time.Millisecond, "what is left of its lease")
		})
	}

	t.Run("a lock whose answer took too long is asked for again", func(t *testing.T) {
		t.Parallel()
		l := newLocks(t, graph(func(ctx context.Context, _ resqued.Args) error {
			require.GreaterOrEqual(t, resqued.JobFrom(ctx).LockSequence, int64(2))
			return nil
		}, inPostgres), options{database: server.URL(""), ttl: 8 * time.Second, beat: 50 * time.Millisecond, wrap: func(s classlock.Store) classlock.Store {
			return &lagging{Store: s, by: 4800 * time.Millisecond}
		}})
		out, _ := l.run(t.Context(), "Graph", `[]`)
		require.NoError(t, out.Err)
	})
}

// lagging delays the first answer to a request for a lock.
type lagging struct {
	classlock.Store
	by    time.Duration
	asked bool
}

func (s *lagging) AcquireLock(ctx context.Context, req store.AcquireRequest) (store.AcquireReply, error) {
	reply, err := s.Store.AcquireLock(ctx, req)
	if !s.asked {
		s.asked = true
		<-time.After(s.by)
	}
	return reply, err
}
