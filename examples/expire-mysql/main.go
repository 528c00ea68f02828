// Command expire-mysql is examples/expire for MySQL and MariaDB: a worker program with a long
// job that deletes old rows of a table, through every deploy.
//
//	export MYSQL_DSN='app@tcp(db.internal)/app?parseTime=true&interpolateParams=true'
//	go run ./examples/expire-mysql work --queues '*'
//	go run ./examples/expire-mysql start 90
//	go run ./examples/expire-mysql longjobs --watch
//
// The table is events, with a primary key and a column created_at.
package main

import (
	"context"
	"database/sql"
	"fmt"
	"os"
	"time"

	_ "github.com/go-sql-driver/mysql"

	"github.com/resqued/resqued"
	"github.com/resqued/resqued/daemon"
	"github.com/resqued/resqued/longjob"
	"github.com/resqued/resqued/longjob/sqlscan"
)

func main() {
	db, err := sql.Open("mysql", os.Getenv("MYSQL_DSN")) // it connects on first use
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	h := resqued.New()
	longjob.Register(h, "Expire", func(ctx context.Context, r *longjob.Runner, days int) error {
		return expire(ctx, r, db, days)
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
func expire(ctx context.Context, r *longjob.Runner, db *sql.DB, days int) error {
	// All slices must ask for the same rows, so the time is computed once.
	before, err := longjob.StateOnce(r, "before", func() (time.Time, error) {
		return time.Now().AddDate(0, 0, -days), nil
	})
	if err != nil {
		return err
	}
	err = sqlscan.ScanDeleteMySQL(ctx, r, "events", db, sqlscan.MySQLQuery{
		Table: "events", Where: "created_at < ?", Args: []any{before},
	}, sqlscan.Options{})
	if err != nil {
		return err // also when the slice is over
	}
	fmt.Printf("events of the last %d days are left\n", days)
	return nil
}
