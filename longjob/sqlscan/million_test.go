//go:build unix

package sqlscan_test

import (
	"context"
	"os"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/resqued/resqued/longjob"
	"github.com/resqued/resqued/longjob/sqlscan"
)

// A million rows are deleted in constant memory, by statements of at most 20,000 rows that
// the server would end after a quarter of a second.
func TestAMillionRows(t *testing.T) {
	t.Parallel()
	n := 50_000
	if os.Getenv("RESQUED_TEST_FULL") != "" {
		n = 1_000_000
	}
	b := setup(t, longjob.Options{})
	b.sql("CREATE TABLE t (id bigint PRIMARY KEY, kind text NOT NULL, body text NOT NULL)")
	b.sql("INSERT INTO t SELECT i, CASE WHEN i % 10 = 0 THEN 'keep' ELSE 'drop' END, repeat('x', 100) FROM generate_series(1, $1::int * 10 / 9) i", n)
	all := b.text("SELECT count(*) FROM t WHERE kind = 'drop'")
	limits := 0
	b.watch.on("set_config", func() { limits++ })

	// Memory in use, without garbage, whose amount depends on the collector.
	inUse := func() int64 {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return int64(m.HeapAlloc)
	}
	began, first, peak := time.Now(), inUse(), int64(0)
	fn := b.deletes("kind = $1", sqlscan.Options{StatementTimeout: 250 * time.Millisecond}, "drop")
	run := b.completes(func(ctx context.Context, r *longjob.Runner) error {
		r.EveryUnits(max(n/20_000, 1), func(context.Context) error {
			peak = max(peak, inUse()-first)
			return nil
		})
		return fn(ctx, r)
	})
	took := time.Since(began)
	require.Equal(t, all, b.text("SELECT "+strings.TrimSpace(all)+" - count(*) FROM t WHERE kind = 'drop'"))
	require.Equal(t, b.text("SELECT count(*) FROM t"), b.text("SELECT count(*) FROM t WHERE id % 10 = 0"))
	require.LessOrEqual(t, b.watch.rows, int64(sqlscan.DefaultBatch*sqlscan.DefaultWindow))
	require.GreaterOrEqual(t, limits, int(run.Units), "each transaction has its limits")
	require.Less(t, peak, int64(4<<20), "the memory grows with the table")
	t.Logf("%d rows in %s: %.0f rows/s, %d units, %d statements, the longest %s; %.1f MiB more in use at the peak",
		run.Steps[0].Done, took.Round(time.Millisecond), float64(run.Steps[0].Done)/took.Seconds(), run.Units,
		b.watch.statements, b.watch.longest.Round(100*time.Microsecond), float64(peak)/(1<<20))
}
