package locker

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
)

// channel is where releases are told to those who wait.
const channel = "resqued_locker"

// now is the database's clock, as the gem writes it: UTC, without a time zone. It does
// not stand still within a statement that has waited for a row.
const now = "clock_timestamp() AT TIME ZONE 'UTC'"

// durable is an expression that makes the commit of its statement survive a crash of
// the server, where commits need not: a sequence that has been given out must never be
// given out again, nor a lock to a second holder.
const durable = `CASE WHEN current_setting('synchronous_commit') = 'off' THEN set_config('synchronous_commit', 'local', true) END`

// statements are the SQL of one table. Times go in as seconds.
type statements struct{ get, insert, renew, release string }

func newStatements(table string) (statements, error) {
	t, err := quoteTable(table)
	if err != nil {
		return statements{}, err
	}
	return statements{
		// $1 key, $2 identifier, $3 lease. A row comes back if the key has one: the
		// sequence if the lock is ours now, and who had it before.
		get: fmt.Sprintf(`WITH got AS (
			UPDATE %[1]s SET locked_by = $2, locked_at = %[2]s, locked_until = %[2]s + $3::float8 * interval '1 second',
				sequence = COALESCE(sequence, 0) + 1
			WHERE key = $1 AND (locked_by IS NULL OR locked_by = $2 OR locked_until < %[2]s)
			RETURNING sequence, %[3]s AS durable)
			SELECT (SELECT sequence FROM got), (SELECT durable FROM got), COALESCE(locked_by, ''),
				COALESCE(EXTRACT(EPOCH FROM locked_until - %[2]s), 0)::float8
			FROM %[1]s WHERE key = $1`, t, now, durable),
		// $1 key, $2 prunedKey. Not at every turn: a conflict uses up a number of the id.
		insert: fmt.Sprintf(`INSERT INTO %[1]s (key, sequence) VALUES ($1, COALESCE((SELECT sequence FROM %[1]s WHERE key = $2), 0))
			ON CONFLICT (key) DO NOTHING`, t),
		// $1 key, $2 identifier, $3 lease
		renew: fmt.Sprintf(`UPDATE %[1]s SET locked_until = %[2]s + $3::float8 * interval '1 second'
			WHERE key = $1 AND locked_by = $2 RETURNING sequence, %[3]s`, t, now, durable),
		// $1 key, $2 identifier, $3 channel, $4 topic. The notification goes out with the
		// commit.
		release: fmt.Sprintf(`WITH gone AS (
			UPDATE %[1]s SET locked_by = NULL WHERE key = $1 AND locked_by = $2 RETURNING key)
			SELECT pg_notify($3, $4)::text FROM gone`, t),
	}, nil
}

// topic is what a notification says: a key may be too long for one, and others need
// not read it.
func topic(key string) string {
	sum := sha256.Sum256([]byte(key))
	return hex.EncodeToString(sum[:16])
}
