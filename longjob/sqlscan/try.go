package sqlscan

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/resqued/resqued"
	"github.com/resqued/resqued/longjob"
)

const (
	// tries is how often a transaction is begun that the server or a proxy ends; with the
	// pauses that takes about 6 seconds.
	tries      = 8
	firstPause = 50 * time.Millisecond
	// maxAltered is how often a transaction is begun again because the table was altered: each
	// connection of a pool has prepared its statements.
	maxAltered = 100
	// vain is the minimum time for which a slice tries before its end is a failure.
	vain = 5 * time.Second
)

// fnError is an error of the program's function; lostError is one that loses the connection.
type (
	fnError   struct{ error }
	lostError struct{ error }
)

func (e fnError) Unwrap() error   { return e.error }
func (e lostError) Unwrap() error { return e.error }

// transaction runs fn in a transaction with limits for its statements and locks.
func (s *scan) transaction(ctx context.Context, o pgx.TxOptions, fn func(tx pgx.Tx) error) error {
	begin, cancel := context.WithTimeout(ctx, s.o.StatementTimeout+grace)
	defer cancel()
	tx, err := s.db.BeginTx(begin, o)
	if err != nil {
		if _, ok := errors.AsType[*pgconn.PgError](err); !ok {
			err = lostError{err}
		}
		return err
	}
	defer func() { // also when fn panics
		end, cancel := context.WithTimeout(context.WithoutCancel(ctx), grace)
		defer cancel()
		_ = tx.Rollback(end) // a transaction that is committed takes no harm
	}()
	err = s.bounded(ctx, tx)
	if err == nil {
		if err = fn(tx); err == nil {
			end, cancel := context.WithTimeout(ctx, s.o.StatementTimeout+grace)
			defer cancel()
			err = tx.Commit(end)
		}
	}
	if err != nil && tx.Conn().IsClosed() {
		err = lostError{err}
	}
	return err
}

// bounded sets the limits of a transaction.
func (s *scan) bounded(ctx context.Context, tx pgx.Tx) error {
	st := &statement{}
	st.add("SELECT ''")
	for _, setting := range [][2]string{
		{"statement_timeout", ms(s.o.StatementTimeout)},
		{"lock_timeout", ms(s.o.LockTimeout)},
		{"idle_in_transaction_session_timeout", ms(s.o.IdleTimeout)},
		// The best plan for a few rows of a key is not the best on average.
		{"plan_cache_mode", "force_custom_plan"},
		// Keys are kept as text, which must be convertible back.
		{"datestyle", "ISO"},
		// If the planner assumes that few rows are left it would read and sort all of them,
		// which is wrong for a new table: until byKey they are read in order. The cost of that
		// must not look high enough for JIT compilation.
		{"enable_sort", "off"},
		{"jit", "off"},
	} {
		st.add(" || set_config(%s::text, %s::text, true)", st.arg(setting[0]), st.arg(setting[1]))
	}
	return s.each(ctx, tx, st, func(pgx.Rows) error { return nil })
}

// byKey is for statements about rows that are known by their keys. Each is one look into the
// index, also in a table that the planner would rather read as a whole, or from its beginning,
// to join so many.
func (s *scan) byKey(ctx context.Context, tx pgx.Tx) error {
	return s.set(ctx, tx, "set_config('enable_sort', NULL, true), set_config('jit', 'off', true), "+
		"set_config('enable_hashjoin', 'off', true), set_config('enable_mergejoin', 'off', true)")
}

// release resets what must not affect the statements of others.
func (s *scan) release(ctx context.Context, tx pgx.Tx) error {
	return s.set(ctx, tx, "set_config('enable_sort', NULL, true), set_config('jit', NULL, true), "+
		"set_config('enable_hashjoin', NULL, true), set_config('enable_mergejoin', NULL, true)")
}

func (s *scan) set(ctx context.Context, tx pgx.Tx, settings string) error {
	st := &statement{}
	st.add("SELECT %s", settings)
	return s.each(ctx, tx, st, func(pgx.Rows) error { return nil })
}

func ms(d time.Duration) string { return strconv.FormatInt(max(d.Milliseconds(), 1), 10) }

// again calls fn until it succeeds or fails permanently: each call is a transaction, which was
// rolled back or whose work is done when fn is called again. shrink is called to reduce the
// work when a statement took too long; it returns false if that is not possible.
func (s *scan) again(ctx context.Context, shrink func() bool, fn func(ctx context.Context) error) error {
	pause, began := firstPause, time.Now()
	for n, altered := 1, 0; ; {
		err := fn(ctx)
		switch {
		case err == nil, ctx.Err() == nil && runnerSays(err):
			return err
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case tooLong(err) && shrink():
		case changed(err) && altered < maxAltered:
			altered++ // each connection finds out by itself
			s.t = nil // its key may have got another type
		case !passing(err) || n == tries:
			return err
		default:
			n++
			s.rest(ctx, pause)
			pause *= 2
		}
		if stop := s.r.Continue(ctx); stop != nil {
			if errors.Is(stop, longjob.ErrYield) && s.pages == 0 && !leaving(ctx) && (n > tries/2 || time.Since(began) > vain) {
				return err // the next slice would end as this one does, and so on
			}
			return stop
		}
	}
}

// runnerSays reports whether an error means the end of the slice.
func runnerSays(err error) bool {
	return slices.ContainsFunc([]error{longjob.ErrYield, longjob.ErrCancelled, longjob.ErrTakenOver}, func(e error) bool { return errors.Is(err, e) })
}

// code returns the SQLSTATE of an error, or "" if it is none of the server's.
func code(err error) string {
	if server, ok := errors.AsType[*pgconn.PgError](err); ok {
		return server.Code
	}
	return ""
}

// tooLong reports whether a statement of this package was ended by its time limit.
func tooLong(err error) bool {
	_, fn := errors.AsType[fnError](err)
	return !fn && code(err) == "57014"
}

// changed reports whether columns or types of the table have changed since the statement was
// prepared. The driver prepares it again for the next attempt.
func changed(err error) bool {
	server, ok := errors.AsType[*pgconn.PgError](err)
	return ok && server.Code == "0A000" && server.Routine == "RevalidateCachedQuery" // the text is in any language
}

// passing reports whether the transaction may succeed when it is tried again.
func passing(err error) bool {
	_, fn := errors.AsType[fnError](err)
	_, lost := errors.AsType[lostError](err)
	switch c := code(err); {
	case c == "40001", c == "40P01", c == "55P03": // serialization, deadlock, lock timeout
		return true
	case fn && !lost:
		return false
	case c == "57P01", c == "57P02", c == "57P03", // ended, crashed, starting
		c == "53300", // too many connections
		len(c) == 5 && c[:2] == "08":
		return true
	default:
		return lost && (c == "" || !fn)
	}
}

func leaving(ctx context.Context) bool {
	select {
	case <-resqued.Leaving(ctx):
		return true
	default:
		return false
	}
}

// rest waits, but not longer than the process may stay.
func (s *scan) rest(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-resqued.Leaving(ctx):
	case <-timer.C:
	}
}

func (s *scan) wrap(err error) error {
	if err == nil || runnerSays(err) {
		return err
	}
	return fmt.Errorf("sqlscan: step %q, table %s: %w", s.step, s.q.Table.Sanitize(), err)
}
