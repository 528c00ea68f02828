//go:build unix

package sqlscan_test

import (
	"context"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/resqued/resqued/internal/testkit/proctest"
	"github.com/resqued/resqued/longjob"
	"github.com/resqued/resqued/longjob/sqlscan"
)

// gate is a condition on a table's kind that, at row 5, waits for a lock.
const gate = `CREATE FUNCTION gate(id bigint, lock bigint) RETURNS boolean LANGUAGE plpgsql AS $$ BEGIN
	IF id = 5 THEN PERFORM pg_advisory_xact_lock_shared(lock); END IF; RETURN true; END $$`

// meanwhile runs a statement while another waits for the lock, which is free afterwards.
func (b *bed) meanwhile(lock int64, statement string) (done <-chan error) {
	ctx, result := b.t.Context(), make(chan error, 1)
	tx, err := b.other.Begin(ctx)
	require.NoError(b.t, err)
	_, err = tx.Exec(ctx, "SELECT pg_advisory_xact_lock($1)", lock)
	require.NoError(b.t, err)
	go func() {
		defer func() { _ = tx.Rollback(context.WithoutCancel(ctx)) }()
		waits := func() (waits bool) {
			err = tx.QueryRow(ctx, "SELECT EXISTS (SELECT FROM pg_locks WHERE locktype = 'advisory' AND NOT granted AND objid = $1)", lock).Scan(&waits)
			return waits || err != nil
		}
		if !proctest.Within(time.Minute, waits) {
			err = context.DeadlineExceeded
		}
		if err == nil {
			_, err = tx.Exec(ctx, statement)
		}
		if err == nil {
			err = tx.Commit(ctx)
		}
		result <- err
	}()
	return result
}

// A row that no longer matches when it is locked is left alone, even if it matched when the
// same statement found it.
func TestRowsThatChangeBeforeTheyAreLocked(t *testing.T) {
	t.Parallel()
	begin := func(t *testing.T) (*bed, sqlscan.Query, sqlscan.Options, <-chan error) {
		t.Helper()
		b, lock := setup(t, longjob.Options{}), schemas.Add(1)
		b.sql("CREATE TABLE t (id bigint PRIMARY KEY, kind text NOT NULL); INSERT INTO t SELECT i, 'drop' FROM generate_series(1, 10) i;" + gate)
		// Row 5 was read already; later rows come from the same snapshot.
		changed := b.meanwhile(lock, `
			WITH gone AS (DELETE FROM t WHERE id = 10) UPDATE t
			SET kind = CASE id WHEN 9 THEN 'drop' ELSE 'keep' END, id = CASE id WHEN 9 THEN 20 ELSE id END WHERE id IN (5, 8, 9)`)
		q := sqlscan.Query{Table: pgx.Identifier{"t"}, Where: "CASE WHEN kind = 'drop' THEN gate(id, $1) END", Args: []any{lock}}
		return b, q, sqlscan.Options{StatementTimeout: 2 * time.Minute, LockTimeout: 2 * time.Minute}, changed
	}

	t.Run("ScanDelete", func(t *testing.T) {
		t.Parallel()
		b, q, o, changed := begin(t)
		run := b.completes(func(ctx context.Context, r *longjob.Runner) error {
			return sqlscan.ScanDelete(ctx, r, "delete", b.pool, q, o)
		})
		require.NoError(t, <-changed)
		require.Equal(t, "5 8 20", b.text("SELECT id FROM t ORDER BY id"))
		require.EqualValues(t, 6, run.Steps[0].Done)
	})

	t.Run("ScanDestroy", func(t *testing.T) {
		t.Parallel()
		b, q, o, changed := begin(t)
		q.Columns = []string{"id"}
		var seen []int64
		b.completes(func(ctx context.Context, r *longjob.Runner) error {
			return sqlscan.ScanDestroy(ctx, r, "destroy", b.pool, q, o, pgx.RowTo[int64], func(_ context.Context, _ pgx.Tx, id int64) error {
				seen = append(seen, id)
				return nil
			})
		})
		require.NoError(t, <-changed)
		require.Equal(t, []int64{1, 2, 3, 4, 6, 7}, seen)
		require.Equal(t, "5 8 20", b.text("SELECT id FROM t ORDER BY id"))
	})
}
