package locker

import (
	"context"
	"database/sql"
	"fmt"
	"time"
)

// pruneBatch is how many rows one statement of Prune removes.
const pruneBatch = 1000

// Row is a row of the table of locks. Its times are the database's, in UTC.
type Row struct {
	Key string
	// LockedBy is the identifier of the holder; empty if the lock was released.
	LockedBy string
	LockedAt time.Time
	// Left is for how long the lock is held unless it is renewed; negative if its lease
	// is over, which a holder that died leaves behind.
	Left     time.Duration
	Sequence int64
	// Age is for how long the holder has had the lock, or how long ago it was last
	// taken.
	Age time.Duration
}

// Held says whether the row keeps others out.
func (r Row) Held() bool { return r.LockedBy != "" && r.Left >= 0 }

// List returns the rows of a table (empty: DefaultTable) in the order of their keys.
// With keys it returns those that exist of them.
func List[D DB](ctx context.Context, db D, table string, keys ...string) ([]Row, error) {
	if len(keys) == 0 {
		return list(ctx, db, table, " ORDER BY key")
	}
	var all []Row
	for _, key := range keys {
		rows, err := list(ctx, db, table, " AND key = $2", key)
		if err != nil {
			return nil, err
		}
		all = append(all, rows...)
	}
	return all, nil
}

// ListLocked returns the first rows, in the order of their keys, that name a holder:
// those that are held, and those of holders that died.
func ListLocked[D DB](ctx context.Context, db D, table string, limit int) ([]Row, error) {
	return list(ctx, db, table, " AND locked_by IS NOT NULL ORDER BY key LIMIT $2::bigint", limit)
}

// list reads the rows that a condition, which begins with $2, lets through.
func list[D DB](ctx context.Context, db D, table, condition string, args ...any) ([]Row, error) {
	d, name, err := openTable(db, table)
	if err != nil {
		return nil, err
	}
	read := fmt.Sprintf(`SELECT key, COALESCE(locked_by, ''), locked_at, COALESCE(sequence, 0)::bigint,
			COALESCE(EXTRACT(EPOCH FROM locked_until - %[2]s), 0)::float8, COALESCE(EXTRACT(EPOCH FROM %[2]s - locked_at), 0)::float8
		FROM %[1]s WHERE key <> $1`, name, now)
	var rows []Row
	take := func(scan func(...any) error) error {
		var r Row
		var at sql.NullTime
		var left, age float64
		if err := scan(&r.Key, &r.LockedBy, &at, &r.Sequence, &left, &age); err != nil {
			return err
		}
		r.LockedAt, r.Left, r.Age = at.Time, seconds(left), seconds(age)
		rows = append(rows, r)
		return nil
	}
	if err := d.rows(ctx, read+condition, append([]any{prunedKey}, args...), take); err != nil {
		return nil, fmt.Errorf("locker: list: %w", err)
	}
	return rows, nil
}

// Break takes a lock away from the holder that a Row names, and wakes one that waits.
// It returns false if that one does not hold it any more. The holder notices with its
// next renewal; up to then both it and another one may work.
func Break[D DB](ctx context.Context, db D, table string, r Row) (bool, error) {
	d, name, err := openTable(db, table)
	if err != nil {
		return false, err
	}
	s, err := newStatements(nameOf(table))
	if err != nil {
		return false, fmt.Errorf("locker: break %q in %s: %w", r.Key, name, err)
	}
	var told sql.NullString
	found, err := d.row(ctx, s.release, []any{r.Key, r.LockedBy, channel, topic(r.Key)}, &told)
	if err != nil {
		return false, fmt.Errorf("locker: break %q: %w", r.Key, err)
	}
	return found, nil
}

// Prune removes the rows that nobody holds and that nobody has held for longer than
// idle, and returns how many. A key that is locked again later goes on above every
// sequence that was ever given out.
//
// A Ruby process makes its row when it makes its Locker object, and does not make it
// again: let idle be longer than such objects wait between being made and used, a day
// for example.
func Prune[D DB](ctx context.Context, db D, table string, idle time.Duration) (int64, error) {
	d, name, err := openTable(db, table)
	if err != nil {
		return 0, err
	}
	if idle < 0 {
		return 0, fmt.Errorf("locker: prune: idle %s must not be negative", idle)
	}
	statement := fmt.Sprintf(`WITH idle AS (
			SELECT ctid FROM %[1]s WHERE key <> $1 AND locked_until < %[2]s - $2::float8 * interval '1 second'
			LIMIT %[3]d FOR UPDATE SKIP LOCKED),
		gone AS (DELETE FROM %[1]s WHERE ctid IN (SELECT ctid FROM idle) RETURNING sequence),
		kept AS (INSERT INTO %[1]s AS l (key, sequence) SELECT $1, max(sequence) FROM gone HAVING count(*) > 0
			ON CONFLICT (key) DO UPDATE SET sequence = GREATEST(l.sequence, excluded.sequence)
			RETURNING %[4]s AS durable)
		SELECT (SELECT count(*) FROM gone), (SELECT durable FROM kept)`, name, now, pruneBatch, durable)
	var total int64
	for {
		var n int64
		var durable sql.NullString
		if _, err := d.row(ctx, statement, []any{prunedKey, idle.Seconds()}, &n, &durable); err != nil {
			return total, fmt.Errorf("locker: prune: %w", err)
		}
		if total += n; n < pruneBatch {
			return total, nil
		}
	}
}

func openTable[D DB](db D, table string) (d database, name string, err error) {
	if d, err = open(db); err != nil {
		return nil, "", err
	}
	name, err = quoteTable(nameOf(table))
	return d, name, err
}

func nameOf(table string) string {
	if table == "" {
		return DefaultTable
	}
	return table
}

func seconds(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }
