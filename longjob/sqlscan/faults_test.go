//go:build unix

package sqlscan_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/resqued/resqued/internal/testkit/pgtest"
	"github.com/resqued/resqued/longjob"
	"github.com/resqued/resqued/longjob/sqlscan"
)

// nth calls fn once, the nth time.
func nth(n int, fn func()) func() {
	return func() {
		if n--; n == 0 {
			fn()
		}
	}
}

const hundred = "CREATE TABLE t (id bigint PRIMARY KEY); INSERT INTO t SELECT generate_series(1, 100)"

// raises makes a statement that deletes rows fail as long as the condition on tries, the number
// of attempts, holds.
func raises(condition, state string) string {
	return `CREATE SEQUENCE tries;
		CREATE FUNCTION fails() RETURNS trigger LANGUAGE plpgsql AS $$ DECLARE tries bigint := nextval('tries');
		BEGIN IF ` + condition + ` THEN RAISE EXCEPTION 'as it should' USING ERRCODE = '` + state + `'; END IF; RETURN NULL; END $$;
		CREATE TRIGGER fails AFTER DELETE ON t FOR EACH STATEMENT EXECUTE FUNCTION fails()`
}

// refusing is a database that refuses the first connections.
type refusing struct {
	sqlscan.DB
	states []string
}

func (d *refusing) BeginTx(ctx context.Context, o pgx.TxOptions) (pgx.Tx, error) {
	if len(d.states) > 0 {
		state := d.states[0]
		d.states = d.states[1:]
		return nil, fmt.Errorf("connect: %w", &pgconn.PgError{Severity: "FATAL", Code: state, Message: "as it should"})
	}
	return d.DB.BeginTx(ctx, o)
}

func TestRefusedConnections(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		states []string
		want   longjob.Status
	}{
		{[]string{"57P01", "57P02", "57P03"}, longjob.StatusCompleted},
		{[]string{"53300", "08006"}, longjob.StatusCompleted},
		{[]string{"25006"}, longjob.StatusCompleted}, // the new primary is not in use yet
		{[]string{"28P01"}, longjob.StatusFailed},    // a wrong password
	} {
		t.Run(strings.Join(c.states, " "), func(t *testing.T) {
			t.Parallel()
			b := setup(t, longjob.Options{Retries: -1})
			b.sql(hundred)
			db := &refusing{b.pool, c.states}
			run := b.run(func(ctx context.Context, r *longjob.Runner) error {
				return sqlscan.ScanDelete(ctx, r, "delete", db, sqlscan.Query{Table: pgx.Identifier{"t"}}, sqlscan.Options{})
			})
			require.Equal(t, c.want, run.Status, run.Error)
			require.Empty(t, db.states)
		})
	}
}

// Keys are kept as text, whose digits extra_float_digits can cut.
func TestFloatKeys(t *testing.T) {
	t.Parallel()
	table := func(t *testing.T, column string) *bed {
		t.Helper()
		b := setupAt(t, server, longjob.Options{Retries: -1}, "&extra_float_digits=0")
		b.sql("CREATE TABLE t (k " + column + " PRIMARY KEY, done bool); INSERT INTO t VALUES (0.1), (0.2), (0.1::" + column + " + 0.2::" + column + "), (1::" + column + " / 3)")
		return b
	}
	for _, column := range []string{"float4", "float8"} {
		for _, o := range []sqlscan.Options{{}, {Batch: 1}} {
			t.Run(fmt.Sprint(column, " ", o.Batch), func(t *testing.T) {
				t.Parallel()
				b := table(t, column)
				var shown string
				b.completes(func(ctx context.Context, r *longjob.Runner) error {
					return sqlscan.ScanDestroy(ctx, r, "destroy", b.pool, sqlscan.Query{Table: pgx.Identifier{"t"}}, sqlscan.Options{Batch: o.Batch, KeepRows: true}, pgx.RowToMap,
						func(ctx context.Context, tx pgx.Tx, _ map[string]any) error {
							return tx.QueryRow(ctx, "SHOW extra_float_digits").Scan(&shown)
						})
				})
				require.Equal(t, "0", shown, "the function has the settings of its connection")
				b.completes(b.deletes("", o))
				require.Equal(t, "0", b.text("SELECT count(*) FROM t"))
			})
		}
	}
	t.Run("a scan that does not get on", func(t *testing.T) {
		t.Parallel()
		b := table(t, "float8")
		// The condition changes the setting back once the scan has set it.
		run := b.run(b.deletes("set_config('extra_float_digits', '0', true) <> ''", sqlscan.Options{Batch: 1}))
		require.Equal(t, longjob.StatusFailed, run.Status)
		require.Contains(t, run.Error, "is found behind itself")
	})
}

func TestStatementsOfTheFunctionThatTakeTooLong(t *testing.T) {
	t.Parallel()
	slow := func(ctx context.Context, tx pgx.Tx) error {
		_, err := tx.Exec(ctx, "SELECT pg_sleep(60)")
		return err
	}
	b := setup(t, longjob.Options{Retries: -1})
	b.sql(files)
	o := sqlscan.Options{StatementTimeout: 200 * time.Millisecond}
	for _, fn := range []func(ctx context.Context, r *longjob.Runner) error{
		b.destroys("", o, func(ctx context.Context, _ *longjob.Runner, tx pgx.Tx, _ file) error { return slow(ctx, tx) }),
		func(ctx context.Context, r *longjob.Runner) error {
			return sqlscan.ReviewingSelectLoop(ctx, r, "review", b.pool, sqlscan.Query{Table: pgx.Identifier{"t"}}, o, pgx.RowToStructByName[file],
				func(ctx context.Context, _ file) error {
					tx, err := sqlscan.Tx(ctx)
					if err != nil {
						return err
					}
					return slow(ctx, tx)
				})
		},
	} {
		run := b.run(fn)
		require.Equal(t, longjob.StatusFailed, run.Status)
		require.Contains(t, run.Error, "a statement of the function may take 200ms in its transaction (Options.StatementTimeout): ")
	}
}

func TestFaultsPostgres(t *testing.T) {
	t.Parallel()
	t.Run("the server crashes", func(t *testing.T) {
		t.Parallel()
		own := pgtest.Start(t, pgtest.Options{Durable: true})
		b := setupAt(t, own, longjob.Options{}, "")
		b.sql(hundred)
		b.watch.on("DELETE", nth(3, func() {
			require.NoError(t, own.Restart(context.WithoutCancel(t.Context())))
			b.other.Reset()
		}))
		b.completes(b.deletes("", sqlscan.Options{Batch: 10}))
		require.Equal(t, "0", b.text("SELECT count(*) FROM t"))
	})

	for state, tries := range map[string]string{"40001": "5", "40P01": "7", "55P03": "7"} { // after a lock a batch is half as large
		t.Run("what passes is tried again: "+state, func(t *testing.T) {
			t.Parallel()
			b := setup(t, longjob.Options{})
			b.sql(hundred)
			b.sql(raises("tries IN (1, 3, 4)", state))
			run := b.completes(b.deletes("", sqlscan.Options{Batch: 50}))
			require.Equal(t, "0", b.text("SELECT count(*) FROM t"))
			require.Equal(t, tries, b.text("SELECT last_value FROM tries"))
			require.Equal(t, 1, run.Slices)
			require.EqualValues(t, 100, run.Steps[0].Done)
		})
	}

	t.Run("what does not pass fails the slice in the end", func(t *testing.T) {
		t.Parallel()
		b := setup(t, longjob.Options{Retries: -1})
		b.sql(hundred)
		b.sql(raises("true", "40001"))
		run := b.run(b.deletes("", sqlscan.Options{Batch: 50}))
		require.Equal(t, longjob.StatusFailed, run.Status)
		require.Contains(t, run.Error, "as it should")
		require.Equal(t, "8", b.text("SELECT last_value FROM tries"))
		require.Equal(t, "100", b.text("SELECT count(*) FROM t"))
	})

	t.Run("a row that another table refers to is named, if COMMIT alone checks that", func(t *testing.T) {
		t.Parallel()
		for name, scan := range map[string]func(b *bed) func(ctx context.Context, r *longjob.Runner) error{
			"ScanDelete": func(b *bed) func(ctx context.Context, r *longjob.Runner) error {
				return b.deletes("", sqlscan.Options{})
			},
			"ScanDestroy": func(b *bed) func(ctx context.Context, r *longjob.Runner) error {
				return b.destroys("", patient(sqlscan.Options{}), func(context.Context, *longjob.Runner, pgx.Tx, file) error { return nil })
			},
		} {
			b := setup(t, longjob.Options{Retries: -1})
			b.sql(files)
			b.sql("CREATE TABLE u (t bigint REFERENCES t DEFERRABLE INITIALLY DEFERRED); INSERT INTO u VALUES (70)")
			run := b.run(scan(b))
			require.Equal(t, longjob.StatusFailed, run.Status, name)
			require.Contains(t, run.Error, "violates foreign key constraint", name)
			require.Contains(t, run.Error, "Key (id)=(70) is still referenced", name)
			require.Equal(t, "100", b.text("SELECT count(*) FROM t"), name)
		}
	})

	t.Run("a row that another table refers to is named once the function has worked", func(t *testing.T) {
		t.Parallel()
		b := setup(t, longjob.Options{Retries: -1})
		b.sql(files)
		b.sql("CREATE TABLE u (t bigint REFERENCES t); INSERT INTO u VALUES (60), (91), (70)")
		calls := 0
		run := b.run(b.destroys("", patient(sqlscan.Options{Batch: 50}), func(ctx context.Context, _ *longjob.Runner, tx pgx.Tx, f file) error {
			calls++
			_, err := tx.Exec(ctx, "DELETE FROM u WHERE t = $1 AND t <> 70", f.ID)
			return err
		}))
		require.Equal(t, longjob.StatusFailed, run.Status)
		require.Contains(t, run.Error, `row ["70"]: `)
		require.Equal(t, 100, calls)
		require.Equal(t, "50", b.text("SELECT count(*) FROM t"))
		require.Equal(t, "3", b.text("SELECT count(*) FROM u"), "the batch is undone")
	})

	t.Run("a statement that takes too long has less to do", func(t *testing.T) {
		t.Parallel()
		b := setup(t, longjob.Options{})
		b.sql(hundred)
		b.sql(`CREATE FUNCTION slow() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
				IF (SELECT count(*) FROM gone) > 5 THEN PERFORM pg_sleep(600); END IF; RETURN NULL; END $$;
			CREATE TRIGGER slow AFTER DELETE ON t REFERENCING OLD TABLE AS gone FOR EACH STATEMENT EXECUTE FUNCTION slow()`)
		run := b.completes(b.deletes("", sqlscan.Options{Batch: 20, StatementTimeout: 500 * time.Millisecond}))
		require.Equal(t, "0", b.text("SELECT count(*) FROM t"))
		require.GreaterOrEqual(t, run.Units, int64(20))
	})

	t.Run("one that takes too long looks at less", func(t *testing.T) {
		t.Parallel()
		b := setup(t, longjob.Options{})
		b.sql("CREATE TABLE t (id bigint PRIMARY KEY); INSERT INTO t SELECT generate_series(1, 100)")
		// The first batch sets a window that is too large for later rows.
		b.completes(b.deletes("CASE WHEN id > 8 THEN pg_sleep(0.01) IS NULL ELSE true END", sqlscan.Options{Batch: 8, Window: 100, StatementTimeout: 600 * time.Millisecond}))
		require.Equal(t, "92", b.text("SELECT count(*) FROM t"))
	})

	t.Run("one that takes too long for a single row fails", func(t *testing.T) {
		t.Parallel()
		b := setup(t, longjob.Options{Retries: -1})
		b.sql(hundred)
		b.sql("CREATE FUNCTION slow() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN PERFORM pg_sleep(600); END $$; CREATE TRIGGER slow AFTER DELETE ON t EXECUTE FUNCTION slow()")
		run := b.run(b.deletes("", sqlscan.Options{Batch: 4, StatementTimeout: 100 * time.Millisecond}))
		require.Equal(t, longjob.StatusFailed, run.Status)
		require.Contains(t, run.Error, "statement timeout")
		require.Equal(t, "100", b.text("SELECT count(*) FROM t"))
	})

	t.Run("a database that is not there fails the slice, however short that is", func(t *testing.T) {
		t.Parallel()
		b := setup(t, longjob.Options{Slice: time.Second, Retries: -1})
		nowhere, err := pgxpool.New(t.Context(), "postgres:///x?host="+t.TempDir())
		require.NoError(t, err)
		t.Cleanup(nowhere.Close)
		run := b.run(func(ctx context.Context, r *longjob.Runner) error {
			return sqlscan.ScanDelete(ctx, r, "delete", nowhere, sqlscan.Query{Table: pgx.Identifier{"t"}}, sqlscan.Options{})
		})
		require.Equal(t, longjob.StatusFailed, run.Status)
		require.Contains(t, run.Error, "failed to connect")
		require.Equal(t, 1, run.Slices)
	})

	t.Run("a process that is to leave waits for nothing", func(t *testing.T) {
		t.Parallel()
		b := setup(t, longjob.Options{Slice: time.Hour})
		b.sql(hundred)
		tx := b.begin("SELECT FROM t WHERE id = 9 FOR UPDATE")
		b.watch.on("SKIP LOCKED", nth(5, b.leave))
		b.fn = b.deletes("", sqlscan.Options{Patience: time.Hour})
		res, err := b.Enqueue(t.Context(), "Scan", nil)
		require.NoError(t, err)
		_, _ = b.slice()
		run, err := b.Get(t.Context(), res.UUID)
		require.NoError(t, err)
		require.Equal(t, longjob.StatusQueued, run.Status)
		require.Empty(t, run.Error)
		require.NoError(t, tx.Rollback(t.Context()))
		b.leaving, b.leave = context.WithCancel(t.Context())
		require.Equal(t, longjob.StatusCompleted, b.goOn(res.UUID).Status)
		require.Equal(t, "0", b.text("SELECT count(*) FROM t"))
	})
}
