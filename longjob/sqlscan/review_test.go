//go:build unix

package sqlscan_test

import (
	"cmp"
	"context"
	"errors"
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/resqued/resqued/longjob"
	"github.com/resqued/resqued/longjob/sqlscan"
)

// reviews returns a function that calls fn for rows of table t as long as they match.
func (b *bed) reviews(where string, o sqlscan.Options, fn func(ctx context.Context, f file) error) func(ctx context.Context, r *longjob.Runner) error {
	o.HoldFor, o.StatementTimeout = cmp.Or(o.HoldFor, time.Hour), cmp.Or(o.StatementTimeout, time.Minute)
	return func(ctx context.Context, r *longjob.Runner) error {
		return sqlscan.ReviewingSelectLoop(ctx, r, "review", b.pool, sqlscan.Query{Table: pgx.Identifier{"t"}, Where: where}, o, pgx.RowToStructByName[file], fn)
	}
}

func TestReviewingSelectLoopPostgres(t *testing.T) {
	t.Parallel()
	rename := func(b *bed, id int64) { b.sql("UPDATE t SET name = 'done' WHERE id = $1", id) }

	t.Run("or is left alone", func(t *testing.T) {
		t.Parallel()
		b := setup(t, longjob.Options{})
		b.sql(files)
		calls := 0
		b.completes(b.reviews("id <= 3", sqlscan.Options{KeepStuck: true}, func(context.Context, file) error {
			calls++
			return nil
		}))
		require.Equal(t, 3*sqlscan.DefaultCalls, calls)
	})

	t.Run("a row that takes two calls", func(t *testing.T) {
		t.Parallel()
		b := setup(t, longjob.Options{})
		b.sql(files)
		calls := 0
		b.completes(b.reviews("name <> 'done'", sqlscan.Options{Batch: 7}, func(_ context.Context, f file) error {
			calls++
			b.sql("UPDATE t SET name = CASE name WHEN 'half' THEN 'done' ELSE 'half' END WHERE id = $1", f.ID)
			return nil
		}))
		require.Equal(t, 200, calls)
		require.Equal(t, "100", b.text("SELECT count(*) FROM t WHERE name = 'done'"))
	})

	// More rows than it can remember one by one.
	const many = "CREATE TABLE t (id bigint PRIMARY KEY, name text); INSERT INTO t SELECT i, 'f' FROM generate_series(1, 2500) i"

	t.Run("very many that go on matching", func(t *testing.T) {
		t.Parallel()
		for _, keep := range []bool{false, true} {
			b := setup(t, longjob.Options{Retries: -1, MaxUnits: 3})
			b.sql(many)
			calls := map[int64]int{}
			run := b.run(b.reviews("name <> 'done'", sqlscan.Options{Batch: 400, KeepStuck: keep}, func(_ context.Context, f file) error {
				if calls[f.ID]++; f.ID%10 == 0 {
					rename(b, f.ID)
				}
				return nil
			}))
			if keep {
				require.Equal(t, longjob.StatusCompleted, run.Status, run.Error)
			} else {
				require.Equal(t, longjob.StatusFailed, run.Status)
				require.Contains(t, run.Error, sqlscan.ErrStuck.Error()+": 2250, after 3 calls each")
			}
			for id := range int64(2500) {
				if (id+1)%10 == 0 {
					require.Equal(t, 1, calls[id+1], "row %d", id+1)
				} else {
					require.InDelta(t, sqlscan.DefaultCalls+1, calls[id+1], 1, "row %d", id+1)
				}
			}
		}
	})

	t.Run("very many that take more calls than one", func(t *testing.T) {
		t.Parallel()
		b := setup(t, longjob.Options{Retries: -1, MaxUnits: 4})
		b.sql(many)
		calls := map[int64]int{}
		b.completes(b.reviews("name <> 'done'", sqlscan.Options{Batch: 400, KeepStuck: true}, func(_ context.Context, f file) error {
			if calls[f.ID]++; calls[f.ID] > 1 && f.ID != 2222 {
				rename(b, f.ID)
			}
			return nil
		}))
		require.Equal(t, "2222", b.text("SELECT id FROM t WHERE name <> 'done'"))
		require.Equal(t, []int{2, 2}, []int{calls[1], calls[2221]})
		require.InDelta(t, 4, calls[2222], 1)
	})

	t.Run("an error ends the slice, and what was done before it stays done", func(t *testing.T) {
		t.Parallel()
		b := setup(t, longjob.Options{Retries: -1})
		b.sql(files)
		broken := errors.New("broken")
		calls := map[int64]int{}
		run := b.run(b.reviews("name <> 'done'", sqlscan.Options{}, func(_ context.Context, f file) error {
			if calls[f.ID]++; f.ID == 30 && broken != nil {
				return broken
			}
			rename(b, f.ID)
			return nil
		}))
		require.Equal(t, longjob.StatusFailed, run.Status)
		require.Equal(t, "29", b.text("SELECT count(*) FROM t WHERE name = 'done'"))
		broken = nil
		require.NoError(t, b.Requeue(t.Context(), run.UUID))
		require.Equal(t, longjob.StatusCompleted, b.goOn(run.UUID).Status)
		require.Equal(t, []int{1, 2, 1}, []int{calls[29], calls[30], calls[31]})
	})

	t.Run("nothing is locked meanwhile", func(t *testing.T) {
		t.Parallel()
		b := setup(t, longjob.Options{})
		b.sql(files)
		b.completes(b.reviews("name <> 'done'", sqlscan.Options{}, func(_ context.Context, f file) error {
			if f.ID == 1 {
				b.sql("BEGIN; LOCK TABLE t IN ACCESS EXCLUSIVE MODE NOWAIT; COMMIT")
			}
			rename(b, f.ID)
			return nil
		}))
	})

	t.Run("a connection that is cut", func(t *testing.T) {
		t.Parallel()
		b := setup(t, longjob.Options{})
		b.sql(files)
		cut := func() {
			b.sql("SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity WHERE application_name = $1", b.pool.Config().ConnConfig.RuntimeParams["application_name"])
		}
		n := 0
		b.watch.on("SELECT", func() {
			if n++; n%11 == 0 {
				cut()
			}
		})
		calls := 0
		b.completes(b.reviews("name <> 'done'", sqlscan.Options{Batch: 20}, func(_ context.Context, f file) error {
			calls++
			rename(b, f.ID)
			return nil
		}))
		require.Equal(t, 100, calls)
		require.Equal(t, "100", b.text("SELECT count(*) FROM t WHERE name = 'done'"))
	})
}

// Several calls at a time, and one for a whole batch.
func TestReviewsAtATime(t *testing.T) {
	t.Parallel()
	patient := patient(sqlscan.Options{Batch: 10, HoldFor: time.Hour})

	t.Run("as many calls as asked for", func(t *testing.T) {
		t.Parallel()
		b := setup(t, longjob.Options{})
		b.sql(files)
		o := patient
		o.Parallel = 4
		var under, peak, calls atomic.Int64
		met := make(chan struct{})
		b.completes(b.reviews("name <> 'done'", o, func(_ context.Context, f file) error {
			if n := under.Add(1); n == 4 && peak.Swap(max(n, peak.Load())) < 4 {
				close(met)
			} else if n > 4 {
				peak.Store(n)
			}
			<-met // until there are four
			calls.Add(1)
			_, err := b.other.Exec(t.Context(), "UPDATE t SET name = 'done' WHERE id = $1", f.ID)
			under.Add(-1)
			return err
		}))
		require.EqualValues(t, 4, peak.Load())
		require.EqualValues(t, 100, calls.Load())
	})

	for name, end := range map[string]func(){"an error": nil, "a panic": func() { panic("broken") }, "the end of its goroutine": runtime.Goexit} {
		t.Run(name+" ends the slice, and no row is lost", func(t *testing.T) {
			t.Parallel()
			b := setup(t, longjob.Options{Retries: -1})
			b.sql(files)
			o := patient
			o.Parallel = 4
			var broken atomic.Bool
			broken.Store(true)
			run := b.run(b.reviews("name <> 'done'", o, func(ctx context.Context, f file) error {
				if f.ID == 33 && broken.Load() {
					if end != nil {
						end()
					}
					return errors.New("broken")
				}
				_, err := b.other.Exec(ctx, "UPDATE t SET name = 'done' WHERE id = $1", f.ID)
				return err
			}))
			require.Equal(t, longjob.StatusFailed, run.Status)
			if name == "the end of its goroutine" {
				require.Contains(t, run.Error, "runtime.Goexit")
			} else {
				require.Contains(t, run.Error, "broken")
			}
			broken.Store(false)
			require.NoError(t, b.Requeue(t.Context(), run.UUID))
			require.Equal(t, longjob.StatusCompleted, b.goOn(run.UUID).Status)
			require.Equal(t, "100", b.text("SELECT count(*) FROM t WHERE name = 'done'"))
		})
	}

	t.Run("a batch in one call, also of rows that go on matching", func(t *testing.T) {
		t.Parallel()
		b := setup(t, longjob.Options{Retries: -1, MaxUnits: 2})
		b.sql(files)
		calls := map[int64]int{}
		run := b.run(func(ctx context.Context, r *longjob.Runner) error {
			q := sqlscan.Query{Table: pgx.Identifier{"t"}, Where: "name <> 'done'"}
			return sqlscan.ReviewingSelectBatches(ctx, r, "review", b.pool, q, patient, pgx.RowToStructByName[file], func(_ context.Context, files []file) error {
				for _, f := range files {
					calls[f.ID]++
				}
				b.sql("UPDATE t SET name = 'done' WHERE id = ANY($1) AND id <> 7", ids(files))
				return nil
			})
		})
		require.Equal(t, longjob.StatusFailed, run.Status)
		require.Contains(t, run.Error, sqlscan.ErrStuck.Error()+": 1, after 3 calls each")
		require.Equal(t, "7", b.text("SELECT id FROM t WHERE name <> 'done'"))
		require.Equal(t, []int{1, 3, 1}, []int{calls[6], calls[7], calls[8]})
	})
}

// No batch begins while the replicas are behind.
func TestLag(t *testing.T) {
	t.Parallel()
	b := setup(t, longjob.Options{Retries: -1})
	b.sql(files)
	var lag time.Duration
	asked := 0
	o := patient(sqlscan.Options{Batch: 50})
	o.Lag = func(context.Context) (time.Duration, error) {
		asked++
		if lag < 0 {
			return 0, errors.New("the replica is gone")
		}
		return lag, nil
	}
	lag = time.Hour
	b.fn = b.deletes("", o)
	res, err := b.Enqueue(t.Context(), "Scan", nil)
	require.NoError(t, err)
	_, more := b.slice()
	require.True(t, more)
	run, err := b.Get(t.Context(), res.UUID)
	require.NoError(t, err)
	require.Equal(t, longjob.StatusQueued, run.Status)
	require.Equal(t, "the replicas are 1h0m0s behind", run.Message)
	require.Zero(t, run.Failures)
	require.Equal(t, "100", b.text("SELECT count(*) FROM t"))
	require.Greater(t, asked, 1)

	lag = 5 * time.Second // not more than MaxLag
	b.completes(b.fn)
	require.Equal(t, "0", b.text("SELECT count(*) FROM t"))

	lag = -1
	run = b.run(b.fn)
	require.Equal(t, longjob.StatusFailed, run.Status)
	require.Contains(t, run.Error, "how far the replicas are behind: the replica is gone")
}
