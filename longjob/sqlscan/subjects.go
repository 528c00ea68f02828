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
	return func(ctx context.Context) ([]string, error) {
		subjects, err := subjects(ctx, db, sql, args)
		if err != nil {
			return nil, fmt.Errorf("sqlscan: subjects: %w", err)
		}
		return subjects, nil
	}
}

func subjects(ctx context.Context, db Querier, sql string, args []any) ([]string, error) {
	// Every type converts to text, even if pgx does not know it. The newline ends a comment.
	rows, err := db.Query(ctx, "SELECT s.subject::text FROM ("+sql+"\n) AS s(subject)", args...)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	var all []string
	for rows.Next() {
		var subject *string
		if err := rows.Scan(&subject); err != nil {
			return nil, err
		}
		if subject != nil {
			all = append(all, *subject)
		}
	}
	return all, rows.Err()
}
