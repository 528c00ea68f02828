//go:build linux

package locker_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/resqued/resqued/internal/testkit/pgtest"
	"github.com/resqued/resqued/locker"
)

// BenchmarkLock compares the cost of a lock and its unlock: a block of Run, the statements of
// the Ruby gem (without Ruby's own time), and an advisory lock in a transaction. They take
// turns within one run, so the ratios are valid on a busy machine as well. Each worker has a
// connection and a key of its own.
//
// "durable" servers write each commit to disk, the others do not wait for it.
func BenchmarkLock(b *testing.B) {
	for _, durable := range []bool{true, false} {
		s := pgtest.Start(b, pgtest.Options{Durable: durable})
		for _, workers := range []int{1, 8} {
			b.Run(fmt.Sprintf("durable=%t/connections=%d", durable, workers), func(b *testing.B) { benchmarkLock(b, s, workers) })
		}
	}
}

// benchTurn is how many locks each worker takes in one turn.
const benchTurn = 10

func benchmarkLock(b *testing.B, s *pgtest.Server, workers int) {
	config, err := pgxpool.ParseConfig(s.URL(""))
	require.NoError(b, err)
	config.MaxConns = int32(workers)
	pool, err := pgxpool.NewWithConfig(b.Context(), config)
	require.NoError(b, err)
	defer pool.Close()
	table := fmt.Sprintf("locks%d", tables.Add(1))
	require.NoError(b, locker.Migrate(b.Context(), pool, table))

	kinds := []struct {
		name string
		once func(ctx context.Context, worker int) error
	}{
		{"locker", func(ctx context.Context, worker int) error {
			_, err := locker.Run(ctx, pool, fmt.Sprintf("ours %d", worker), locker.Options{Table: table},
				func(context.Context, int64) error { return nil })
			return err
		}},
		{"gem", func(ctx context.Context, worker int) error { return gemOnce(ctx, pool, table, worker) }},
		{"advisory", func(ctx context.Context, worker int) error { return advisoryOnce(ctx, pool, worker) }},
		{"new key", func(ctx context.Context, worker int) error {
			_, err := locker.Run(ctx, pool, fmt.Sprintf("new %d", fresh.Add(1)), locker.Options{Table: table},
				func(context.Context, int64) error { return nil })
			return err
		}},
	}
	turn := func(once func(context.Context, int) error) time.Duration {
		var all sync.WaitGroup
		began := time.Now()
		for worker := range workers {
			all.Go(func() {
				for range benchTurn {
					if err := once(b.Context(), worker); err != nil {
						b.Error(err)
						return
					}
				}
			})
		}
		all.Wait()
		return time.Since(began)
	}
	took := make([]time.Duration, len(kinds))
	for _, kind := range kinds { // connections, rows, prepared statements
		turn(kind.once)
	}
	turns := 0
	for b.Loop() {
		turns++
		for n, kind := range kinds {
			took[n] += turn(kind.once)
		}
	}
	locks := float64(turns * workers * benchTurn)
	for n, kind := range kinds {
		b.ReportMetric(locks/took[n].Seconds(), strings.ReplaceAll(kind.name, " ", "-")+"/s")
	}
	b.ReportMetric(took[1].Seconds()/took[0].Seconds(), "locker:gem")
	b.ReportMetric(0, "ns/op")
}

// fresh numbers keys that were never locked.
var fresh atomic.Int64

// gemOnce sends what Locker.run sends: it looks for the row, takes the lock, asks for the
// sequence, and releases the lock.
func gemOnce(ctx context.Context, pool *pgxpool.Pool, table string, worker int) error {
	key, id := fmt.Sprintf("gem %d", worker), fmt.Sprintf("host:ruby pid:%d guid:0", worker)
	statement := func(text string) string { return strings.ReplaceAll(text, "%s", table) }
	var row int64
	if err := pool.QueryRow(ctx, statement("SELECT id FROM %s WHERE key = $1 LIMIT 1"), key).Scan(&row); err != nil {
		if _, err := pool.Exec(ctx, statement(gemEnsure), key); err != nil {
			return err
		}
	}
	if _, err := pool.Exec(ctx, statement(gemGet), key, id); err != nil {
		return err
	}
	if err := pool.QueryRow(ctx, statement("SELECT sequence FROM %s WHERE key = $1 AND locked_by = $2 LIMIT 1"), key, id).Scan(&row); err != nil {
		return err
	}
	_, err := pool.Exec(ctx, statement(gemRelease), key, id)
	return err
}

// advisoryOnce is a lock that the server keeps in memory.
func advisoryOnce(ctx context.Context, pool *pgxpool.Pool, worker int) error {
	tx, err := pool.Begin(ctx)
	if err != nil {
		return err
	}
	if _, err := tx.Exec(ctx, "SELECT pg_advisory_xact_lock(1, $1)", worker); err != nil {
		return err
	}
	return tx.Commit(ctx)
}
