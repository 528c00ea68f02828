package sqlscan

import (
	"context"
	"errors"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/resqued/resqued/longjob"
)

// ScanDelete deletes the rows that match a query. It is the step key of the run: a later slice
// continues with the batch that is not done, and once the step has ended it does nothing.
//
// It deletes the rows that match when it begins, unless they no longer match when their batch
// is deleted. It ends at the highest key that exists when it begins. Rows added above that key
// stay; some of the rows added below it are deleted.
func ScanDelete(ctx context.Context, r *longjob.Runner, key string, db DB, q Query, o Options) error {
	return onPostgres(r, key, db, q, o).rows(ctx, nil)
}

// ScanDestroy is like ScanDelete, but calls fn for each row before it is deleted. scan converts
// a row: pgx.RowToStructByName, pgx.RowToMap or a similar function.
//
// A batch is one transaction: its rows are locked, fn is called for each of them with that
// transaction, the rows are deleted, and the transaction is committed. After Options.HoldFor no
// further row of the batch is passed to fn. If fn returns an error, ends tx, or
// leaves it aborted by a failed statement, the transaction is rolled back.
//
// Changes by fn in tx happen once. Anything else it does may happen again for the rows of a
// batch whose transaction could not be committed. With Options.KeepRows it may also happen again
// for the batch during which a process died. fn must not call units or steps of the runner.
func ScanDestroy[T any](ctx context.Context, r *longjob.Runner, key string, db DB, q Query, o Options,
	scan pgx.RowToFunc[T], fn func(ctx context.Context, tx pgx.Tx, row T) error,
) error {
	return onPostgres(r, key, db, q, o).rows(ctx, each(reads(scan), func(ctx context.Context, t transaction, row T) error {
		return fn(ctx, t.(*pgTx).lent(), row)
	}))
}

// ReviewingSelectLoop calls fn for each row that matches a query, and runs the query again
// until no row matches: fn is expected to change the row. It is the step key of the run. scan
// converts a row: pgx.RowToStructByName, pgx.RowToMap or a similar function.
//
// While fn runs, no transaction is open and no row is locked, so fn may use other connections
// and take its time. If it writes in the transaction that Tx returns, many rows share a commit,
// which is many times faster. With Options.Parallel fn is called for several rows at a time,
// each on a goroutine of its own, and must not use r. A row was read at most Options.HoldFor
// ago. After the death of a process, fn is called again for the rows of its last batch that
// still match.
//
// fn is called Options.Calls times for a row that still matches. After that the loop skips the
// row, and when no other rows are left it fails with ErrStuck. If more than a thousand rows
// still match, fn is called for the others in each round, until their number has not fallen for
// as many rounds.
func ReviewingSelectLoop[T any](ctx context.Context, r *longjob.Runner, key string, db DB, q Query, o Options,
	scan pgx.RowToFunc[T], fn func(ctx context.Context, row T) error,
) error {
	return (&review[T]{scan: onPostgres(r, key, db, q, o).scan, fn: fn, fetch: reads(scan)}).run(ctx)
}

// ReviewingSelectBatches is like ReviewingSelectLoop, but calls fn once for all rows of a
// batch, so it can change them with one statement. Calls are counted for each row.
func ReviewingSelectBatches[T any](ctx context.Context, r *longjob.Runner, key string, db DB, q Query, o Options,
	scan pgx.RowToFunc[T], fn func(ctx context.Context, rows []T) error,
) error {
	return (&review[T]{scan: onPostgres(r, key, db, q, o).scan, batch: fn, fetch: reads(scan)}).run(ctx)
}

func reads[T any](scan pgx.RowToFunc[T]) fetch[T] {
	return func(ctx context.Context, t transaction, keys [][]string) (all []T, err error) {
		s := t.(*pgTx)
		st := newStatement()
		unnested, values := s.t.unnest(st, keys)
		st.add("SELECT resqued_row.* FROM %s CROSS JOIN LATERAL (SELECT %s FROM %s WHERE %s = %s OFFSET 0) resqued_row ORDER BY resqued_key.place",
			unnested, columnList(s.q.Columns, func(column string) string { return pgx.Identifier{column}.Sanitize() }), s.t.name, s.t.row(), tuple(values))
		err = s.each(ctx, st, func(rows pgx.Rows) error {
			row, err := scan(rows)
			all = append(all, row)
			return err
		})
		return all, err
	}
}

type postgres struct {
	*scan
	db DB
	q  Query
	t  *table // once it is known
}

func onPostgres(r *longjob.Runner, step string, db DB, q Query, o Options) *postgres {
	p := &postgres{scan: newScan(r, step, o), db: db, q: q}
	p.d = p
	return p
}

func (s *postgres) table() string { return s.q.Table.Sanitize() }

func (s *postgres) forget() { s.t = nil }

type pgTx struct {
	*postgres
	tx pgx.Tx
	// ended means that the program tried to commit the transaction or to roll it back.
	ended atomic.Bool
}

// lentTx is the transaction as the program gets it. The program must not end it.
type lentTx struct {
	pgx.Tx
	t *pgTx
}

func (l lentTx) Commit(context.Context) error   { return l.end() }
func (l lentTx) Rollback(context.Context) error { return l.end() }

func (l lentTx) end() error {
	l.t.ended.Store(true)
	return errEnded
}

func (s *pgTx) lent() pgx.Tx { return lentTx{s.tx, s} }

// intact uses the state of the transaction from the server's last reply.
func (s *pgTx) intact() error {
	conn := s.tx.Conn()
	switch {
	case s.ended.Load():
		return errEnded
	case conn.IsClosed(): // the next statement returns the reason
		return nil
	}
	switch conn.PgConn().TxStatus() {
	case 'I':
		return errEnded
	case 'E':
		return swallowedError
	}
	return nil
}

func (s *pgTx) know(ctx context.Context) (err error) {
	if s.t == nil {
		s.t, err = s.describe(ctx)
	}
	return err
}

func (s *postgres) open(ctx context.Context, l limits) (transaction, error) {
	o := pgx.TxOptions{IsoLevel: pgx.ReadCommitted}
	switch l.kind {
	case snapshot:
		o = pgx.TxOptions{IsoLevel: pgx.RepeatableRead, AccessMode: pgx.ReadOnly}
	case looking:
		o.AccessMode = pgx.ReadOnly
	case locking, sweeping, shared:
	}
	begin, cancel := context.WithTimeout(ctx, s.o.StatementTimeout+grace)
	defer cancel()
	tx, err := s.db.BeginTx(begin, o)
	if err != nil {
		if _, ok := errors.AsType[*pgconn.PgError](err); !ok {
			err = lostError{err}
		}
		return nil, err
	}
	t := &pgTx{postgres: s, tx: tx}
	if err := t.bounded(ctx, l); err != nil {
		return nil, t.end(ctx, err)
	}
	return t, nil
}

func (s *pgTx) end(ctx context.Context, err error) error {
	if err == nil {
		end, cancel := context.WithTimeout(ctx, s.o.StatementTimeout+grace)
		defer cancel()
		err = s.detailed(s.tx.Commit(end))
	}
	if err != nil && s.tx.Conn().IsClosed() {
		err = lostError{err}
	}
	end, cancel := context.WithTimeout(context.WithoutCancel(ctx), grace)
	defer cancel()
	_ = s.tx.Rollback(end) // harmless after a commit
	return err
}

func (s *pgTx) bounded(ctx context.Context, l limits) error {
	st := newStatement()
	seq := "on"
	if l.kind == sweeping {
		seq = "off" // use the index of the key, whatever the planner estimates
	}
	st.add("SELECT ''")
	settings := [][2]string{
		{"statement_timeout", ms(l.statement)},
		{"lock_timeout", ms(l.lock)},
		{"idle_in_transaction_session_timeout", ms(s.o.IdleTimeout)},
		// The best plan for a few rows of a key is not the best on average.
		{"plan_cache_mode", "force_custom_plan"},
		// Keys are kept as text, which must be convertible back.
		{"datestyle", "ISO"},
		{"extra_float_digits", "3"},
		// If the planner expects few remaining rows, it would read and sort all of them, which
		// is wrong for a new table. Until byKey, rows are therefore read in order. The cost of
		// that must not cause JIT compilation.
		{"enable_sort", "off"},
		{"jit", "off"},
		{"enable_seqscan", seq},
	}
	if l.kind == shared {
		settings = settings[:3] // the statements are the program's
	}
	for _, setting := range settings {
		st.add(" || set_config(%s::text, %s::text, true)", st.arg(setting[0]), st.arg(setting[1]))
	}
	return s.each(ctx, st, func(pgx.Rows) error { return nil })
}

// byKey makes each row one lookup in the index, even if the planner would rather join by
// reading the table as a whole or from its beginning.
func (s *pgTx) byKey(ctx context.Context) error {
	return s.set(ctx, "set_config('enable_sort', NULL, true), set_config('jit', 'off', true), "+
		"set_config('enable_hashjoin', 'off', true), set_config('enable_mergejoin', 'off', true), "+
		"set_config('plan_cache_mode', 'force_custom_plan', true), set_config('datestyle', 'ISO', true), set_config('extra_float_digits', '3', true)")
}

// lend resets settings that must not affect the program's statements.
func (s *pgTx) lend(ctx context.Context) error {
	return s.set(ctx, "set_config('enable_sort', NULL, true), set_config('jit', NULL, true), "+
		"set_config('enable_hashjoin', NULL, true), set_config('enable_mergejoin', NULL, true), "+
		"set_config('plan_cache_mode', NULL, true), set_config('datestyle', NULL, true), set_config('extra_float_digits', NULL, true), set_config('enable_seqscan', NULL, true)")
}

func (s *pgTx) back(ctx context.Context) error { return s.byKey(ctx) }

func (s *pgTx) set(ctx context.Context, settings string) error {
	st := newStatement()
	st.add("SELECT %s", settings)
	return s.each(ctx, st, func(pgx.Rows) error { return nil })
}

func ms(d time.Duration) string { return strconv.FormatInt(max(d.Milliseconds(), 1), 10) }

func (s *postgres) judge(err error) (v verdict) {
	c, routine := "", ""
	if server, ok := errors.AsType[*pgconn.PgError](err); ok {
		c, routine = server.Code, server.Routine
	}
	_, fn := errors.AsType[fnError](err)
	_, lost := errors.AsType[lostError](err)
	v.tooLong = !fn && c == "57014"
	v.altered = c == "0A000" && routine == "RevalidateCachedQuery" // independent of the language of the text
	v.foreign = !fn && (c == "23503" || c == "23001")
	switch {
	case c == "40P01", c == "55P03": // deadlock, lock timeout
		v.locked, v.passing = true, true
	case c == "40001": // serialization
		v.passing = true
	case fn && !lost:
	case c == "57P01", c == "57P02", c == "57P03", // admin shutdown, crash shutdown, cannot connect now
		c == "53300", // too many connections
		c == "25006", // read only: another server is the primary now
		len(c) == 5 && c[:2] == "08":
		v.passing = true
	default:
		v.passing = lost && (c == "" || !fn)
	}
	return v
}
