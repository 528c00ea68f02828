// Package sqlscan has long jobs work through tables of PostgreSQL, in batches of 1,000 rows
// in the order of their key, each batch a unit of the run and a transaction of its own.
//
//	func expire(ctx context.Context, r *longjob.Runner, before time.Time) error {
//		return sqlscan.ScanDelete(ctx, r, "delete", pool, sqlscan.Query{
//			Table: pgx.Identifier{"events"}, Where: "created_at < $1", Args: []any{before},
//		}, sqlscan.Options{})
//	}
//
// ScanDelete deletes rows, ScanDestroy hands each to a function first, ReviewingSelectLoop
// calls a function until no row matches any more. All three work in constant memory, hold
// locks for a short time, pass over rows that others have locked and come back to them, end
// between any two batches, and go on in the next slice where the last one has ended.
//
// Which rows those are when others come and go meanwhile, docs/longjob.md tells.
package sqlscan
