package locker

import (
	"context"
	"database/sql"
	"fmt"
	"strings"
	"time"
)

const pruneBatch = 1000

// Row is a row of the table of locks. Its times are by the database's clock, in UTC.
type Row struct {
	Key string
	// LockedBy is the identifier of the holder; empty = released. If the lock was revoked, it
	// has a suffix; see Revoked.
	LockedBy string
	// LockedAt is the time of the last acquisition.
	LockedAt time.Time
	// Left is the time until the lease ends unless it is renewed. It is negative if the lease
	// is over, because the holder died.
	Left time.Duration
	// Sequence is the sequence of the last acquisition.
	Sequence int64
	// Age is the time since the last acquisition.
	Age time.Duration
}

// Held reports whether the lock is held, so others cannot take it.
func (r Row) Held() bool { return r.LockedBy != "" && r.Left >= 0 }

// Revoked reports whether Revoke took the lock away from its holder. Others cannot take it
// until the holder has ended its work or the lease ends.
func (r Row) Revoked() bool { return strings.HasSuffix(r.LockedBy, revokedMark) }

// List returns the rows of a table (empty = DefaultTable) in the order of their keys. If keys
// are given, it returns only their rows, in the order of the arguments, and skips keys without
// a row.
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

// ListLocked returns at most limit rows that name a holder, in the order of their keys: locks
// that are held, and locks of holders that died. An empty table means DefaultTable.
func ListLocked[D DB](ctx context.Context, db D, table string, limit int) ([]Row, error) {
	return list(ctx, db, table, " AND locked_by IS NOT NULL ORDER BY key LIMIT $2::bigint", limit)
}

// list returns the rows that match a condition, whose parameters begin with $2.
func list[D DB](ctx context.Context, db D, table, condition string, args ...any) ([]Row, error) {
	d, name, err := openTable(db, table)
	if err != nil {
		return nil, err
	}
	read := fmt.Sprintf(`SELECT key, COALESCE(locked_by, ''), locked_at, COALESCE(sequence, 0)::bigint, %[2]s, %[3]s
		FROM %[1]s WHERE key <> $1`, name, remaining, age)
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
		return nil, fmt.Errorf("locker: list: %w", explain(err, table))
	}
	return rows, nil
}

// Revoke takes a lock away from the holder named by r.LockedBy. The lock stays locked until the
// holder has ended its work and released it, or until its lease ends. Revoke returns false if
// that holder no longer has the lock.
//
// A holder on a pgx pool whose Run has lasted for a second is notified at once. Others,
// including the Ruby gem, notice at their next renewal. Holders of the gem do not release a
// lost lock.
func Revoke[D DB](ctx context.Context, db D, table string, r Row) (bool, error) {
	d, s, err := openStatements(db, table)
	if err != nil {
		return false, fmt.Errorf("locker: revoke %q: %w", r.Key, err)
	}
	if r.Revoked() {
		return false, nil
	}
	var told sql.NullString
	found, err := d.row(ctx, s.revoke, []any{r.Key, r.LockedBy, revokedName(r.LockedBy), channel, noticeTopic(r.LockedBy)}, &told)
	if err != nil {
		return false, fmt.Errorf("locker: revoke %q: %w", r.Key, explain(err, table))
	}
	return found, nil
}

// Break frees the lock of the holder named by r.LockedBy, revoked or not, and wakes one waiter.
// It returns false if that holder no longer has the lock. The holder notices at its next
// renewal: until then it and the next holder may both work. Revoke avoids that.
func Break[D DB](ctx context.Context, db D, table string, r Row) (bool, error) {
	d, s, err := openStatements(db, table)
	if err != nil {
		return false, fmt.Errorf("locker: break %q: %w", r.Key, err)
	}
	found, err := release(ctx, d, s, r.Key, r.LockedBy, revokedName(r.LockedBy))
	if err != nil {
		return false, fmt.Errorf("locker: break %q: %w", r.Key, explain(err, table))
	}
	return found, nil
}

// Prune removes the rows of locks that have not been held for longer than idle, and returns
// their number. A key that is locked again later continues above every earlier sequence.
//
// A Ruby process creates its row only when it creates its Locker object. Choose an idle longer
// than the time from there to the use of such objects, for example a day.
func Prune[D DB](ctx context.Context, db D, table string, idle time.Duration) (int64, error) {
	d, name, err := openTable(db, table)
	if err != nil {
		return 0, err
	}
	if idle < 0 {
		return 0, fmt.Errorf("locker: prune: idle %s must not be negative", idle)
	}
	statement := fmt.Sprintf(`WITH idle AS (
			SELECT ctid FROM %[1]s WHERE key <> $1 AND pg_catalog.timestamp_lt(locked_until, %[2]s - $2::float8 * interval '1 second')
			LIMIT %[3]d FOR UPDATE SKIP LOCKED),
		gone AS (DELETE FROM %[1]s WHERE ctid IN (SELECT ctid FROM idle) RETURNING sequence),
		kept AS (UPDATE %[1]s AS l SET sequence = GREATEST(l.sequence, g.sequence) FROM (SELECT max(sequence) AS sequence FROM gone) AS g
			WHERE l.key = $1 AND g.sequence IS NOT NULL RETURNING %[4]s AS durable),
		made AS (INSERT INTO %[1]s AS l (key, sequence) SELECT $1, max(sequence) FROM gone
			HAVING count(*) > 0 AND NOT EXISTS (SELECT FROM %[1]s WHERE key = $1)
			ON CONFLICT (key) DO UPDATE SET sequence = GREATEST(l.sequence, excluded.sequence)
			RETURNING %[4]s AS durable)
		SELECT (SELECT count(*) FROM gone), (SELECT durable FROM kept), (SELECT durable FROM made)`, name, now, pruneBatch, durable)
	var total int64
	filled := false
	for {
		var n int64
		var kept, made sql.NullString
		_, err := d.row(ctx, statement, []any{prunedKey, idle.Seconds()}, &n, &kept, &made)
		if missingValue(err) && !filled {
			filled = true
			if err = insertFilled(ctx, d, nameOf(table), prunedKey); err == nil {
				continue
			}
		}
		if err != nil {
			return total, fmt.Errorf("locker: prune: %w", explain(err, table))
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

func openStatements[D DB](db D, table string) (d database, s statements, err error) {
	if d, err = open(db); err != nil {
		return nil, statements{}, err
	}
	s, err = newStatements(nameOf(table))
	return d, s, err
}

func nameOf(table string) string {
	if table == "" {
		return DefaultTable
	}
	return table
}

// seconds converts to a duration; too large a value, such as infinity, becomes the maximum.
func seconds(s float64) time.Duration {
	return time.Duration(max(min(s*float64(time.Second), maxSeconds), -maxSeconds))
}

// maxSeconds is just below the longest duration, which is not a float64.
const maxSeconds = float64(1<<63 - 1024)
