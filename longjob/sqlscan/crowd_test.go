//go:build unix

package sqlscan_test

import (
	"context"
	"math/rand/v2"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/resqued/resqued/longjob"
	"github.com/resqued/resqued/longjob/sqlscan"
)

// crowd changes rows of table t at random until stop is called: it inserts and deletes rows,
// toggles their kind, and locks some for a while. It leaves rows alone whose id is divisible by
// four.
func (b *bed) crowd() (stop func()) {
	ctx, cancel := context.WithCancel(b.t.Context())
	var all sync.WaitGroup
	for i := range 3 {
		all.Go(func() {
			random := rand.New(rand.NewPCG(uint64(i), 7))
			for ctx.Err() == nil {
				id := int64(random.IntN(4000))
				id += (4 - id%4) % 4
				id += 1 + int64(random.IntN(3))
				_ = pgx.BeginFunc(ctx, b.other, func(tx pgx.Tx) error {
					for n := range int64(5) {
						statement := []string{
							"INSERT INTO t VALUES ($1, 'drop') ON CONFLICT DO NOTHING",
							"DELETE FROM t WHERE id = $1",
							"UPDATE t SET kind = 'keep' WHERE id = $1",
							"UPDATE t SET kind = 'drop' WHERE id = $1",
							"SELECT FROM t WHERE id = $1 FOR UPDATE",
						}[random.IntN(5)]
						if _, err := tx.Exec(ctx, statement, id+4*n); err != nil {
							return err
						}
					}
					_, err := tx.Exec(ctx, "SELECT pg_sleep(0.002)")
					return err
				})
			}
		})
	}
	return func() {
		cancel()
		all.Wait()
	}
}

const crowded = `CREATE TABLE t (id bigint PRIMARY KEY, kind text NOT NULL);
	INSERT INTO t SELECT i, CASE WHEN i % 8 = 0 THEN 'keep' ELSE 'drop' END FROM generate_series(1, 4000) i;
	CREATE TABLE gone (id bigint, kind text, who text);
	CREATE FUNCTION note() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
		INSERT INTO gone VALUES (OLD.id, OLD.kind, current_setting('application_name')); RETURN OLD; END $$;
	CREATE TRIGGER note BEFORE DELETE ON t FOR EACH ROW EXECUTE FUNCTION note()`

func TestAmongOthers(t *testing.T) {
	t.Parallel()

	t.Run("nothing goes that does not match", func(t *testing.T) {
		t.Parallel()
		b := setup(t, longjob.Options{MaxUnits: 20})
		b.sql(crowded)
		stop := b.crowd()
		b.completes(b.deletes("kind = 'drop'", sqlscan.Options{Batch: 20, Window: 100}))
		stop()
		require.Equal(t, "500", b.text("SELECT count(*) FROM t WHERE id % 8 = 0"))
		require.Equal(t, "0", b.text("SELECT count(*) FROM t WHERE id % 8 = 4"), "what nobody else has touched is gone")
		require.Equal(t, "0", b.text("SELECT count(*) FROM gone WHERE kind <> 'drop' AND who LIKE 'job %'"))
		require.NotEqual(t, "0", b.text("SELECT count(*) FROM gone WHERE who = 'test'"), "nobody else was there")
	})

	t.Run("each row is visited once", func(t *testing.T) {
		t.Parallel()
		b := setup(t, longjob.Options{MaxUnits: 20})
		b.sql(crowded)
		stop := b.crowd()
		seen := map[int64]int{}
		b.completes(func(ctx context.Context, r *longjob.Runner) error {
			q := sqlscan.Query{Table: pgx.Identifier{"t"}, Where: "kind = 'drop'"}
			type row struct {
				ID   int64
				Kind string
			}
			return sqlscan.ScanDestroy(ctx, r, "see", b.pool, q, sqlscan.Options{Batch: 20, KeepRows: true}, pgx.RowToStructByName[row], func(_ context.Context, _ pgx.Tx, r row) error {
				seen[r.ID]++
				if r.Kind != "drop" {
					t.Errorf("row %d is %s", r.ID, r.Kind)
				}
				return nil
			})
		})
		stop()
		for id := int64(4); id <= 4000; id += 4 {
			want := 1
			if id%8 == 0 {
				want = 0
			}
			require.Equal(t, want, seen[id], "row %d", id)
		}
		for id, n := range seen {
			require.Equal(t, 1, n, "row %d", id)
		}
	})
}
