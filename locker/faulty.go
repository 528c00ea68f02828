package locker

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"
)

// SQLSTATEs of errors that show a fault of the table.
const (
	missingTable  = "42P01"
	missingColumn = "42703"
	missingIndex  = "42P10"
	wrongType     = "42883" // no function for times without a time zone takes this type
	nullValue     = "23502"
)

// explainedError describes a fault and its remedy in other words than the server's.
type explainedError struct {
	text string
	err  error
}

func (e *explainedError) Error() string { return e.text }
func (e *explainedError) Unwrap() error { return e.err }

func explain(err error, table string) error {
	table = nameOf(table)
	switch code := sqlState(err); {
	case code == missingTable:
		return fmt.Errorf("%w; make the table with: resqued locker migrate", err)
	case code == missingColumn:
		return fmt.Errorf("%w; add what table %q lacks with: resqued locker migrate", err, table)
	case code == missingIndex:
		text := fmt.Sprintf("table %q has no unique index on key, without which two can hold one lock; make it with: resqued locker migrate", table)
		return &explainedError{text, err}
	case code == wrongType && strings.Contains(err.Error(), "timestamp_"):
		return &explainedError{zonedText(table), err}
	}
	return err
}

// zonedText explains a table whose times have a time zone. Sessions in different zones would
// see a lease end at different times.
func zonedText(table string) string {
	name, err := quoteTable(table)
	if err != nil {
		name = table
	}
	return fmt.Sprintf("the times of table %q have a time zone, so that sessions in different zones do not agree on who holds a lock; "+
		"while nothing holds a lock, run: ALTER TABLE %s ALTER locked_at TYPE timestamp USING locked_at AT TIME ZONE 'UTC', "+
		"ALTER locked_until TYPE timestamp USING locked_until AT TIME ZONE 'UTC'", table, name)
}

// missingValue reports whether a row could not be inserted because the table has required
// columns without a default, such as Rails' created_at and updated_at.
func missingValue(err error) bool { return sqlState(err) == nullValue }

func insertFilled(ctx context.Context, db database, table, key string) error {
	name, err := quoteTable(nameOf(table))
	if err != nil {
		return err
	}
	columns, values := "key, sequence", fmt.Sprintf("$1, COALESCE((SELECT sequence FROM %s WHERE key = $2), 0)", name)
	err = db.rows(ctx, `SELECT attname::text, atttypid::regtype::text FROM pg_attribute
		WHERE attrelid = to_regclass($1) AND attnum > 0 AND NOT attisdropped AND attnotnull AND NOT atthasdef AND attidentity = ''
			AND attname NOT IN ('id', 'key', 'sequence') ORDER BY attnum`, []any{name}, func(scan func(...any) error) error {
		var column, kind string
		if err := scan(&column, &kind); err != nil {
			return err
		}
		var value string
		switch kind {
		case "timestamp without time zone", "date":
			value = now
		case "timestamp with time zone":
			value = "clock_timestamp()"
		default:
			return fmt.Errorf("column %q (%s) of table %q must not be null and has no default; give it one, or let it be null", column, kind, nameOf(table))
		}
		columns += ", " + pgx.Identifier{column}.Sanitize()
		values += ", " + value
		return nil
	})
	if err != nil {
		return err
	}
	var made string
	_, err = db.row(ctx, fmt.Sprintf("INSERT INTO %s (%s) VALUES (%s) ON CONFLICT (key) DO NOTHING RETURNING key", name, columns, values),
		[]any{key, prunedKey}, &made)
	return err
}

// revokedMark is the suffix of a holder's identifier after its lock was revoked. With it,
// neither our renewals nor the gem's find the row.
const revokedMark = " revoked"

// maxIdentifier is the length limit of the gem's first tables, in characters.
const maxIdentifier = 255

func revokedName(id string) string {
	if strings.HasSuffix(id, revokedMark) {
		return id
	}
	if keep := maxIdentifier - len(revokedMark); len(id) > keep {
		if runes := []rune(id); len(runes) > keep {
			id = string(runes[:keep])
		}
	}
	return id + revokedMark
}

var errRevokedName = errors.New("locker: Identifier must not end with \"" + revokedMark + "\"")
