package sqlscan

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"
)

// Querier runs a query: a *pgxpool.Pool or a *pgx.Conn.
type Querier interface {
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
}

// Subjects returns a function that runs a query and returns its first column as text, in the
// order of the rows and without NULLs. With longjob.Each it provides the subjects of a
// recurring long job.
func Subjects(db Querier, sql string, args ...any) func(ctx context.Context) ([]string, error) {
	// Every type converts to text, even if pgx does not know it. The newline ends a comment.
	sql = "SELECT s.subject::text FROM (" + sql + "\n) AS s(subject) WHERE s.subject::text IS NOT NULL"
	return subjects(func(ctx context.Context) ([]string, error) {
		rows, err := db.Query(ctx, sql, args...)
		if err != nil {
			return nil, err
		}
		return pgx.CollectRows(rows, pgx.RowTo[string])
	})
}

func subjects(read func(ctx context.Context) ([]string, error)) func(ctx context.Context) ([]string, error) {
	return func(ctx context.Context) ([]string, error) {
		all, err := read(ctx)
		if err != nil {
			return nil, fmt.Errorf("sqlscan: subjects: %w", err)
		}
		return all, nil
	}
}
