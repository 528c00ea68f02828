//go:build unix

package sqlscan_test

import (
	"context"
	"database/sql"
	"errors"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/resqued/resqued/internal/testkit/mysqltest"
	"github.com/resqued/resqued/longjob"
	"github.com/resqued/resqued/longjob/sqlscan"
)

// ScanDelete deletes no more rows at a time than Batch allows, even if Batch is the default of
// other functions.
func TestBatchIsALimit(t *testing.T) {
	t.Parallel()
	both(t, "rows", longjob.Options{}, func(t *testing.T, s *shop) {
		s.sql("INSERT INTO t SELECT 1 + a.id + 100 * b.id + 10000 * c.id, 'f' FROM t a, t b, t c WHERE c.id <= 2")
		s.completes(s.deletes("", patient(sqlscan.Options{Batch: sqlscan.DefaultBatch})))
		require.Equal(t, "0", s.text("SELECT count(*) FROM t"))
		require.EqualValues(t, sqlscan.DefaultBatch, s.watch.rows)
	})
}

// A row whose call takes until the slice is over and then fails is an error of the run, slice
// by slice: the rows before it, which it has undone, are not processed forever.
func TestSlowErrorsAreErrors(t *testing.T) {
	t.Parallel()
	both(t, "slow", longjob.Options{Retries: -1, MaxUnits: 1}, func(t *testing.T, s *shop) {
		calls, broken := 0, true
		s.fn = s.review(patient(sqlscan.Options{Batch: 10, HoldFor: time.Hour}), func(_ context.Context, _ *longjob.Runner, exec exec, f file) error {
			if calls++; broken && f.ID == 3 {
				return errors.New("broken")
			}
			return done(exec, f)
		})
		res, err := s.Enqueue(t.Context(), "Scan", nil)
		require.NoError(t, err)
		for range 3 {
			_, _ = s.slice() // the last ones find none
		}
		run, err := s.Get(t.Context(), res.UUID)
		require.NoError(t, err)
		require.Equal(t, longjob.StatusFailed, run.Status)
		require.Contains(t, run.Error, "broken")
		require.Equal(t, "0", s.text("SELECT count(*) FROM log"))
		broken = false
		require.NoError(t, s.Requeue(t.Context(), run.UUID))
		require.Equal(t, longjob.StatusCompleted, s.goOn(run.UUID).Status)
		s.logged()
	})
}

// A function that ends its transaction, or continues after a statement that has aborted it,
// gets an error that says so, and what it has undone does not count as done.
func TestTransactionsThatTheFunctionEnds(t *testing.T) {
	t.Parallel()
	ends := map[string]func(ctx context.Context, tx pgx.Tx) error{
		"COMMIT":   func(ctx context.Context, tx pgx.Tx) error { _, err := tx.Exec(ctx, "COMMIT"); return err },
		"ROLLBACK": func(ctx context.Context, tx pgx.Tx) error { _, err := tx.Exec(ctx, "ROLLBACK"); return err },
		"Rollback": func(ctx context.Context, tx pgx.Tx) error { _ = tx.Rollback(ctx); return nil },
		"Commit":   func(ctx context.Context, tx pgx.Tx) error { _ = tx.Commit(ctx); return nil },
		"an error that it does not return": func(ctx context.Context, tx pgx.Tx) error {
			_, _ = tx.Exec(ctx, "SELECT 1/0")
			return nil
		},
	}
	mine := func(name string) string {
		if name[0] == 'a' {
			return "return that error"
		}
		return "must not commit, roll back"
	}
	for name, end := range ends {
		t.Run("ScanDestroy "+name, func(t *testing.T) {
			t.Parallel()
			b := setup(t, longjob.Options{Retries: -1})
			b.sql(files)
			run := b.run(b.destroys("", patient(sqlscan.Options{Batch: 10, KeepRows: true}), func(ctx context.Context, _ *longjob.Runner, tx pgx.Tx, f file) error {
				if _, err := tx.Exec(ctx, "INSERT INTO log VALUES ($1)", f.ID); err != nil || f.ID != 20 {
					return err
				}
				return end(ctx, tx)
			}))
			require.Equal(t, longjob.StatusFailed, run.Status)
			require.Contains(t, run.Error, mine(name))
			require.EqualValues(t, 10, run.Steps[0].Done)
			if name != "COMMIT" {
				require.Equal(t, "10", b.text("SELECT count(*) FROM log"))
			}
		})
		t.Run("ReviewingSelectLoop "+name, func(t *testing.T) {
			t.Parallel()
			b := setup(t, longjob.Options{Retries: -1})
			b.sql(files)
			run := b.run(b.reviews("name <> 'done'", patient(sqlscan.Options{Batch: 10, HoldFor: time.Hour}), func(ctx context.Context, f file) error {
				tx, err := sqlscan.Tx(ctx)
				if err != nil {
					return err
				}
				if _, err := tx.Exec(ctx, "UPDATE t SET name = 'done' WHERE id = $1", f.ID); err != nil || f.ID != 15 {
					return err
				}
				return end(ctx, tx)
			}))
			require.Equal(t, longjob.StatusFailed, run.Status)
			require.Contains(t, run.Error, mine(name))
			switch name {
			case "COMMIT":
			case "an error that it does not return":
				require.Equal(t, "14", b.text("SELECT count(*) FROM t WHERE name = 'done'"), "it undoes itself alone")
			default:
				require.Equal(t, "10", b.text("SELECT count(*) FROM t WHERE name = 'done'"))
			}
		})
	}
	for name, end := range map[string]func(ctx context.Context, tx *sql.Tx) error{
		"COMMIT":   func(ctx context.Context, tx *sql.Tx) error { _, err := tx.ExecContext(ctx, "COMMIT"); return err },
		"Commit":   func(_ context.Context, tx *sql.Tx) error { return tx.Commit() },
		"Rollback": func(_ context.Context, tx *sql.Tx) error { return tx.Rollback() },
	} {
		t.Run("MariaDB "+name, func(t *testing.T) {
			t.Parallel()
			b := setupMySQL(t, longjob.Options{Retries: -1})
			b.sql(myHundred)
			run := b.run(b.destroys("", patient(sqlscan.Options{Batch: 1}), func(ctx context.Context, _ *longjob.Runner, tx *sql.Tx, _ file) error { return end(ctx, tx) }))
			require.Equal(t, longjob.StatusFailed, run.Status)
			require.Contains(t, run.Error, "must not commit, roll back")
			require.Equal(t, "100", b.text("SELECT COUNT(*) FROM t"))
			calls := 0
			run = b.run(b.reviews("name <> 'done'", patient(sqlscan.Options{Batch: 10}), func(ctx context.Context, f file) error {
				calls++
				tx, err := sqlscan.TxMySQL(ctx)
				if err != nil || f.ID != 1 {
					return errors.Join(err, errors.New("called"))
				}
				return end(ctx, tx)
			}))
			require.Equal(t, longjob.StatusFailed, run.Status)
			require.NotContains(t, run.Error, "sql: transaction has already been")
			require.LessOrEqual(t, calls, 3)
		})
	}
	t.Run("savepoints are its own", func(t *testing.T) {
		t.Parallel()
		b := setup(t, longjob.Options{})
		b.sql(files)
		b.completes(b.reviews("name <> 'done'", patient(sqlscan.Options{Batch: 10, HoldFor: time.Hour}), func(ctx context.Context, f file) error {
			tx, err := sqlscan.Tx(ctx)
			if err != nil {
				return err
			}
			err = pgx.BeginFunc(ctx, tx, func(tx pgx.Tx) error {
				_, err := tx.Exec(ctx, "SELECT 1/0")
				return err
			})
			if err == nil {
				return errors.New("no error")
			}
			_, err = tx.Exec(ctx, "UPDATE t SET name = 'done' WHERE id = $1", f.ID)
			return err
		}))
		require.Equal(t, "100", b.text("SELECT count(*) FROM t WHERE name = 'done'"))
	})
}

// If a lock timeout undoes the whole transaction, as with innodb_rollback_on_timeout, no row is
// deleted without the function's changes for it.
func TestRollbackOnTimeout(t *testing.T) {
	t.Parallel()
	server := mysqltest.Start(t, mysqltest.Options{Settings: []string{"innodb_rollback_on_timeout=ON"}})
	b := setupMySQLAt(t, server, longjob.Options{}, "")
	b.sql(myHundred)
	b.sql("CREATE TABLE child (id bigint PRIMARY KEY, FOREIGN KEY (id) REFERENCES t (id) ON DELETE CASCADE); INSERT INTO child VALUES (5)")
	held := b.begin()
	b.in(held, "SELECT * FROM child FOR UPDATE") // for which the deletion of row 5 waits
	calls := 0
	b.completes(b.destroys("", patient(sqlscan.Options{Batch: 10}), func(ctx context.Context, _ *longjob.Runner, tx *sql.Tx, f file) error {
		if f.ID == 5 {
			if calls++; calls == 2 {
				require.NoError(t, held.Rollback())
			}
		}
		_, err := tx.ExecContext(ctx, "INSERT INTO log VALUES (?)", f.ID)
		return err
	}))
	require.Equal(t, 2, calls)
	require.Equal(t, "0", b.text("SELECT COUNT(*) FROM t"))
	require.Equal(t, "100 100", b.text("SELECT CONCAT_WS(' ', COUNT(*), COUNT(DISTINCT id)) FROM log"))
}
