//go:build linux

package locker_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"os"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/resqued/resqued/locker"
)

// checkFeeds is the work that one server does at a time.
func checkFeeds(ctx context.Context, sequence int64) error {
	fmt.Println("checking feeds, with the sequence", sequence)
	return ctx.Err()
}

// The holder of the lock checks the feeds; the other servers wait for their turn.
func ExampleRun() {
	ctx := context.Background()
	pool, err := pgxpool.New(ctx, os.Getenv("DATABASE_URL"))
	if err != nil {
		log.Fatal(err)
	}
	defer pool.Close()
	if err := locker.Migrate(ctx, pool, locker.DefaultTable); err != nil {
		log.Fatal(err)
	}
	ran, err := locker.Run(ctx, pool, "feeds", locker.Options{Blocking: true, BlockTimeout: time.Minute}, checkFeeds)
	switch {
	case errors.Is(err, locker.ErrLockStolen):
		log.Print("another server may have begun meanwhile")
	case err != nil:
		log.Fatal(err)
	case !ran:
		log.Print("another server has held the lock for a minute")
	}
}

// Servers take turns until their context ends.
func ExampleRotate() {
	ctx := context.Background()
	pool, err := pgxpool.New(ctx, os.Getenv("DATABASE_URL"))
	if err != nil {
		log.Fatal(err)
	}
	defer pool.Close()
	if err := locker.Rotate(ctx, pool, "feeds", locker.RotateOptions{Pause: 5 * time.Second}, checkFeeds); err != nil {
		log.Fatal(err)
	}
}

// A lock that is taken, renewed and given back step by step.
func ExampleNew() {
	ctx := context.Background()
	pool, err := pgxpool.New(ctx, os.Getenv("DATABASE_URL"))
	if err != nil {
		log.Fatal(err)
	}
	defer pool.Close()
	lock, err := locker.New(pool, "feeds", locker.Options{LockFor: time.Minute})
	if err != nil {
		log.Fatal(err)
	}
	got, err := lock.Get(ctx)
	if err != nil {
		log.Fatal(err)
	}
	if !got {
		fmt.Println("held by", lock.Holder().LockedBy)
		return
	}
	if err := lock.Renew(ctx); err != nil { // at least once a minute
		log.Fatal(err)
	}
	if err := lock.Release(ctx); err != nil {
		log.Fatal(err)
	}
}

// A lock without a table, for as long as one connection lasts.
func ExampleAdvisory() {
	ctx := context.Background()
	pool, err := pgxpool.New(ctx, os.Getenv("DATABASE_URL"))
	if err != nil {
		log.Fatal(err)
	}
	defer pool.Close()
	ran, err := locker.Advisory(ctx, pool, "nightly report", locker.AdvisoryOptions{}, func(ctx context.Context) error {
		return nil // the report
	})
	fmt.Println(ran, err)
}
