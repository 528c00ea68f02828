package main

import (
	"context"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/resqued/resqued"
	"github.com/resqued/resqued/longjob"
	"github.com/resqued/resqued/longjob/sqlscan"
)

// registerRows registers Delete, which deletes the rows of table events whose kind is its
// argument, and Destroy, which also copies each to table archive in the same transaction.
func registerRows(h *resqued.Handlers, url string) {
	pool := sync.OnceValues(func() (*pgxpool.Pool, error) { return pgxpool.New(context.Background(), url) })
	o := longjob.Options{Queue: "rows", Slice: time.Second, MaxDeaths: 50, RetryAfter: time.Second}
	query := func(kind string) sqlscan.Query {
		return sqlscan.Query{Table: pgx.Identifier{"events"}, Where: "kind = $1", Args: []any{kind}}
	}
	longjob.Register(h, "Delete", func(ctx context.Context, r *longjob.Runner, kind string) error {
		db, err := pool()
		if err != nil {
			return err
		}
		return sqlscan.ScanDelete(ctx, r, "rows", db, query(kind), sqlscan.Options{})
	}, o)
	longjob.Register(h, "Destroy", func(ctx context.Context, r *longjob.Runner, kind string) error {
		db, err := pool()
		if err != nil {
			return err
		}
		return sqlscan.ScanDestroy(ctx, r, "rows", db, query(kind), sqlscan.Options{Batch: 100}, pgx.RowToMap, func(ctx context.Context, tx pgx.Tx, event map[string]any) error {
			_, err := tx.Exec(ctx, "INSERT INTO archive VALUES ($1)", event["id"])
			return err
		})
	}, o)
}
