// Package sqlscan lets long jobs process tables of PostgreSQL, MySQL and MariaDB in batches, in
// the order of their key. Each batch is a unit of the run and a transaction.
//
//	func expire(ctx context.Context, r *longjob.Runner, before time.Time) error {
//		return sqlscan.ScanDelete(ctx, r, "delete", pool, sqlscan.Query{
//			Table: pgx.Identifier{"events"}, Where: "created_at < $1", Args: []any{before},
//		}, sqlscan.Options{})
//	}
//
// ScanDelete deletes rows. ScanDestroy calls a function for each row before it deletes the row.
// ReviewingSelectLoop calls a function for each row until no row matches any more. All three
// use constant memory and hold locks for a short time. They skip rows that other transactions
// have locked and return to them later. They can end after any batch, and continue in the next
// slice. The functions whose names end in MySQL do the same with a *sql.DB of MySQL or MariaDB.
//
// README.md describes what happens to rows that are added, changed or removed during a scan.
package sqlscan
