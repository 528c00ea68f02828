package main

import (
	"context"
	"database/sql"
	"strings"
	"sync"
	"time"

	_ "github.com/go-sql-driver/mysql"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/resqued/resqued"
	"github.com/resqued/resqued/longjob"
	"github.com/resqued/resqued/longjob/sqlscan"
)

// registerRows registers Delete, which deletes the rows of table events whose kind is its
// argument, and Destroy, which also copies each to table archive in the same transaction.
func registerRows(h *resqued.Handlers, url string) {
	if dsn, ok := strings.CutPrefix(url, "mysql:"); ok {
		registerMySQLRows(h, dsn)
		return
	}
	pool := sync.OnceValues(func() (*pgxpool.Pool, error) { return pgxpool.New(context.Background(), url) })
	o := rowsOptions
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

var rowsOptions = longjob.Options{Queue: "rows", Slice: time.Second, MaxDeaths: 50, RetryAfter: time.Second}

// registerMySQLRows is registerRows for MySQL.
func registerMySQLRows(h *resqued.Handlers, dsn string) {
	pool := sync.OnceValues(func() (*sql.DB, error) { return sql.Open("mysql", dsn) })
	query := func(kind string) sqlscan.MySQLQuery {
		return sqlscan.MySQLQuery{Table: "events", Where: "kind = ?", Args: []any{kind}, Columns: []string{"id"}}
	}
	longjob.Register(h, "Delete", func(ctx context.Context, r *longjob.Runner, kind string) error {
		db, err := pool()
		if err != nil {
			return err
		}
		return sqlscan.ScanDeleteMySQL(ctx, r, "rows", db, query(kind), sqlscan.Options{})
	}, rowsOptions)
	longjob.Register(h, "Destroy", func(ctx context.Context, r *longjob.Runner, kind string) error {
		db, err := pool()
		if err != nil {
			return err
		}
		scan := func(rows *sql.Rows) (id int64, err error) { return id, rows.Scan(&id) }
		return sqlscan.ScanDestroyMySQL(ctx, r, "rows", db, query(kind), sqlscan.Options{Batch: 100}, scan, func(ctx context.Context, tx *sql.Tx, id int64) error {
			_, err := tx.ExecContext(ctx, "INSERT INTO archive VALUES (?)", id)
			return err
		})
	}, rowsOptions)
}
