// Command locker checks feeds on one server at a time. Start it on as many servers as you like:
// they take turns, and when one dies the others continue.
//
//	DATABASE_URL=postgres://app@db.internal/app go run ./examples/locker
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/resqued/resqued/locker"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	if err := run(ctx); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(ctx context.Context) error {
	// If it is not set, pgx uses PGHOST, PGUSER and the like.
	pool, err := pgxpool.New(ctx, os.Getenv("DATABASE_URL"))
	if err != nil {
		return err
	}
	defer pool.Close()
	if err := locker.Migrate(ctx, pool, ""); err != nil {
		return err
	}
	return locker.Rotate(ctx, pool, "feeds", locker.RotateOptions{}, checkFeeds)
}

// checkFeeds is one turn. It stops when ctx ends, because then another may begin.
func checkFeeds(ctx context.Context, sequence int64) error {
	fmt.Printf("turn %d: checking feeds\n", sequence)
	select {
	case <-time.After(2 * time.Second): // the work
	case <-ctx.Done():
	}
	return nil
}
