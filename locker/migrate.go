package locker

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"
)

// migrationLock serializes migrations: concurrent CREATE … IF NOT EXISTS statements for the
// same name fail.
const migrationLock = 0x6c6f636b6572 // "locker"

// Migrate creates the table of locks (empty = DefaultTable) as the Ruby gem's generator does,
// or adds the columns that an existing one lacks. It may be run again.
func Migrate[D DB](ctx context.Context, db D, table string) (err error) {
	d, err := open(db)
	if err != nil {
		return err
	}
	if table == "" {
		table = DefaultTable
	}
	name, err := quoteTable(table)
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			err = fmt.Errorf("locker: migrate %q: %w", table, err)
		}
	}()
	s, err := d.session(ctx)
	if err != nil {
		return err
	}
	done := false
	defer func() { s.close(!done) }() // undoes what was not committed
	for _, statement := range []string{
		"BEGIN",
		fmt.Sprintf("SELECT pg_advisory_xact_lock(%d)", int64(migrationLock)),
		fmt.Sprintf(`CREATE TABLE IF NOT EXISTS %s (
			id bigserial PRIMARY KEY,
			locked_by character varying,
			key character varying,
			sequence bigint DEFAULT 0,
			locked_at timestamp without time zone,
			locked_until timestamp without time zone)`, name),
		// The gem's first versions had no such column.
		fmt.Sprintf("ALTER TABLE %s ADD COLUMN IF NOT EXISTS sequence bigint DEFAULT 0", name),
	} {
		if err := s.exec(ctx, statement); err != nil {
			return err
		}
	}
	if err := checkTable(ctx, s, table, name); err != nil {
		return err
	}
	if err := ensureUnique(ctx, s, table, name); err != nil {
		return err
	}
	if err := s.exec(ctx, "COMMIT"); err != nil {
		return err
	}
	done = true
	return nil
}

// checkTable refuses a table whose times depend on the time zone of the session; see zonedText.
func checkTable(ctx context.Context, s session, table, name string) error {
	var wrong bool
	_, err := s.row(ctx, `SELECT EXISTS (SELECT FROM pg_attribute
		WHERE attrelid = to_regclass($1) AND attname IN ('locked_at', 'locked_until') AND NOT attisdropped
			AND atttypid <> 'timestamp'::regtype)`, []any{name}, &wrong)
	if err == nil && wrong {
		return errors.New(zonedText(table))
	}
	return err
}

func ensureUnique(ctx context.Context, s session, table, name string) error {
	var found bool
	_, err := s.row(ctx, `SELECT EXISTS (SELECT FROM pg_index i JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = i.indkey[0]
		WHERE i.indrelid = to_regclass($1) AND i.indisunique AND i.indisvalid AND i.indpred IS NULL AND i.indnkeyatts = 1 AND a.attname = 'key')`,
		[]any{name}, &found)
	if err != nil || found {
		return err
	}
	index := "index_" + table[strings.LastIndexByte(table, '.')+1:] + "_on_key" // Rails' name
	if len(index) > maxName {
		index = "index_locks_on_key"
	}
	return s.exec(ctx, fmt.Sprintf("CREATE UNIQUE INDEX %s ON %s (key)", pgx.Identifier{index}.Sanitize(), name))
}
