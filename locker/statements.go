package locker

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
)

const channel = "resqued_locker"

// now is the database's clock in the gem's format: UTC, without a time zone. It advances within
// a statement that has waited for a row.
const now = "clock_timestamp() AT TIME ZONE 'UTC'"

// Comparisons with a time of the table. Unlike an operator, a function does not convert its
// arguments: the server refuses it for a column with a time zone, whose value would depend on
// the zone of the session. Every statement that grants or extends a lock contains such a
// function.
const (
	over = "pg_catalog.timestamp_lt(locked_until, " + now + ")"
	// Infinity cannot be subtracted from, and is reported as infinite.
	remaining = "COALESCE(CASE WHEN pg_catalog.isfinite(locked_until) THEN EXTRACT(EPOCH FROM pg_catalog.timestamp_mi(locked_until, " + now + "))::float8 " +
		"WHEN " + over + " THEN '-infinity'::float8 WHEN locked_until IS NOT NULL THEN 'infinity'::float8 END, 0)"
	age = "COALESCE(EXTRACT(EPOCH FROM pg_catalog.timestamp_mi(" + now + ", locked_at)), 0)::float8"
)

// durable is an expression that makes the commit of its statement survive a crash of the
// server, even where commits do not: neither a sequence nor a lock may be given out twice.
const durable = `CASE WHEN current_setting('synchronous_commit') = 'off' THEN set_config('synchronous_commit', 'local', true) END`

// hasty is the opposite, for a release: its commit does not wait for the disk. A release that a
// crash undoes leaves the lock to the end of its lease, and every later acquisition is durable.
// It also shortens the time for which all notifications of a database wait.
const hasty = `set_config('synchronous_commit', 'off', true)`

// statements are the SQL of one table. Durations go in as seconds.
type statements struct{ take, get, renew, release, revoke, revoked string }

func newStatements(table string) (statements, error) {
	t, err := quoteTable(table)
	if err != nil {
		return statements{}, err
	}
	take := fmt.Sprintf(`UPDATE %[1]s SET locked_by = $2, locked_at = %[2]s, locked_until = %[2]s + $3::float8 * interval '1 second',
				sequence = COALESCE(sequence, 0) + 1
			WHERE key = $1 AND (locked_by IS NULL OR locked_by = $2 OR %[4]s)
			RETURNING sequence::bigint, %[3]s AS durable`, t, now, durable, over)
	return statements{
		// $1 key, $2 identifier, $3 lease. It returns a row if the lock is ours now.
		take: take,
		// For when take has returned no row; $4 prunedKey. The row has the sequence if the lock
		// is ours now, or else the holder. It returns no row if another client inserted the
		// key's row at the same time. It inserts only if the key has no row, because an INSERT
		// that meets another row uses up a number of the id.
		get: fmt.Sprintf(`WITH got AS (%[4]s),
			made AS (
				INSERT INTO %[1]s (key, locked_by, locked_at, locked_until, sequence)
				SELECT $1, $2, %[2]s, %[2]s + $3::float8 * interval '1 second', COALESCE((SELECT sequence FROM %[1]s WHERE key = $4), 0) + 1
				WHERE NOT EXISTS (SELECT FROM %[1]s WHERE key = $1)
				ON CONFLICT (key) DO NOTHING
				RETURNING sequence::bigint, %[3]s AS durable)
			SELECT sequence, durable, '', 0::float8 FROM got
			UNION ALL SELECT sequence, durable, '', 0 FROM made
			UNION ALL SELECT NULL, NULL, COALESCE(locked_by, ''), %[5]s
				FROM %[1]s WHERE key = $1 AND NOT EXISTS (SELECT FROM got)`, t, now, durable, take, remaining),
		// $1 key, $2 identifier, $3 lease
		renew: fmt.Sprintf(`UPDATE %[1]s SET locked_until = %[2]s + $3::float8 * interval '1 second'
			WHERE key = $1 AND locked_by = $2 RETURNING sequence::bigint, %[3]s, %[4]s`, t, now, durable, over),
		// $1 key, $2 and $3 identifiers, $4 channel, $5 topic. The notification goes out with
		// the commit.
		release: fmt.Sprintf(`UPDATE %[1]s SET locked_by = NULL WHERE key = $1 AND locked_by IN ($2, $3)
			RETURNING pg_notify($4, $5)::text, %[2]s`, t, hasty),
		// $1 key, $2 identifier, $3 the revoked one, $4 channel, $5 topic
		revoke: fmt.Sprintf(`UPDATE %[1]s SET locked_by = $3 WHERE key = $1 AND locked_by = $2 AND NOT %[2]s
			RETURNING pg_notify($4, $5)::text`, t, over),
		// $1 key, $2 the revoked identifier
		revoked: fmt.Sprintf(`SELECT true FROM %[1]s WHERE key = $1 AND locked_by = $2`, t),
	}, nil
}

// topic returns the text of a notification: a hash of the key, which may be too long or secret.
func topic(key string) string {
	sum := sha256.Sum256([]byte(key))
	return hex.EncodeToString(sum[:16])
}

func noticeTopic(id string) string { return topic("holder " + id) }
