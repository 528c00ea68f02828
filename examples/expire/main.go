// Command expire is a worker program with a long job that deletes old rows of a table, through
// every deploy.
//
//	export DATABASE_URL=postgres://app@db.internal/app
//	go run ./examples/expire work --queues '*'
//	go run ./examples/expire start 90
//	go run ./examples/expire longjobs --watch
//
// The table is events, with a primary key and a column created_at.
package main

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/resqued/resqued"
	"github.com/resqued/resqued/daemon"
	"github.com/resqued/resqued/longjob"
	"github.com/resqued/resqued/longjob/sqlscan"
)

func main() {
	// It connects on first use. If the variable is not set, pgx uses PGHOST and the like.
	pool, err := pgxpool.New(context.Background(), os.Getenv("DATABASE_URL"))
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	h := resqued.New()
	longjob.Register(h, "Expire", func(ctx context.Context, r *longjob.Runner, days int) error {
		return expire(ctx, r, pool, days)
	}, longjob.Options{Queue: "low"})
	if len(os.Args) == 3 && os.Args[1] == "start" {
		if err := start(h, os.Args[2]); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	daemon.Main(h)
}

// start enqueues a run, unless one for the same number of days waits or runs.
func start(h *resqued.Handlers, days string) error {
	c, err := longjob.NewClient(longjob.ClientOptions{URL: os.Getenv("REDIS_URL"), Namespace: os.Getenv("RESQUE_NAMESPACE"), Handlers: h})
	if err != nil {
		return err
	}
	defer func() { _ = c.Close() }()
	var number int
	if _, err := fmt.Sscan(days, &number); err != nil {
		return err
	}
	res, err := c.EnqueueUnique(context.Background(), "Expire", number)
	if err == nil {
		fmt.Println(res.Outcome, res.UUID)
	}
	return err
}

// expire runs from its beginning in each slice.
func expire(ctx context.Context, r *longjob.Runner, pool *pgxpool.Pool, days int) error {
	// All slices must ask for the same rows, so the time is computed once.
	before, err := longjob.StateOnce(r, "before", func() (time.Time, error) {
		return time.Now().AddDate(0, 0, -days), nil
	})
	if err != nil {
		return err
	}
	err = sqlscan.ScanDelete(ctx, r, "events", pool, sqlscan.Query{
		Table: pgx.Identifier{"events"}, Where: "created_at < $1", Args: []any{before},
	}, sqlscan.Options{})
	if err != nil {
		return err // also when the slice is over
	}
	fmt.Printf("events of the last %d days are left\n", days)
	return nil
}
