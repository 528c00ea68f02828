package sqlscan

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/resqued/resqued/longjob"
)

// dialect is a database as a scan uses it.
type dialect interface {
	table() string
	open(ctx context.Context, l limits) (transaction, error)
	// forget drops the cached properties of the table, because it was altered.
	forget()
	judge(err error) verdict
}

type limits struct {
	kind      kind
	statement time.Duration
	lock      time.Duration
}

type kind int

const (
	locking  kind = iota // locks rows, reads committed data
	sweeping             // deletes a part of the table, reads committed data
	snapshot             // reads one snapshot of the table
	looking              // reads committed data
	shared               // belongs to the program, for several calls of its function
)

// verdict is what an error of the database means.
type verdict struct {
	passing bool // another try may succeed
	tooLong bool // a statement of this package exceeded its time limit
	altered bool // columns or types have changed since the statement was prepared
	locked  bool // a lock was not free in time, or there was a deadlock
	foreign bool // another table refers to a row
}

// transaction is a transaction on the table. Keys are text.
type transaction interface {
	// end commits the transaction if err is nil. Otherwise it rolls back and returns err.
	end(ctx context.Context, err error) error
	know(ctx context.Context) error
	highest(ctx context.Context) ([]string, error)
	// estimate returns about how many rows match.
	estimate(ctx context.Context) (int64, error)
	// edge returns the key of the nth row of a span, or of its nth matching row; nil if there
	// are fewer rows.
	edge(ctx context.Context, sp span, n int, matching bool) ([]string, error)
	// sweep deletes the matching rows of a span.
	sweep(ctx context.Context, sp span) (int64, error)
	// candidates returns the first n matching rows of a span, in the order of the key. With
	// lock it locks the rows that are free, without waiting.
	candidates(ctx context.Context, sp span, n int, lock bool) ([]candidate, error)
	// byKey is called before statements that identify rows by their keys.
	byKey(ctx context.Context) error
	matching(ctx context.Context, keys [][]string) ([][]string, error)
	remove(ctx context.Context, keys [][]string) (int64, error)
	// lend is called before the program gets the transaction, back afterwards.
	lend(ctx context.Context) error
	back(ctx context.Context) error
	// intact returns an error if the program has ended the transaction that was lent to it, as
	// far as that is known without a round trip.
	intact() error
	exec(ctx context.Context, sql string) error
}

func (s *scan) transaction(ctx context.Context, l limits, fn func(tx transaction) error) error {
	tx, err := s.d.open(ctx, l)
	if err != nil {
		return err
	}
	returned := false
	defer func() {
		if !returned {
			_ = tx.end(ctx, errPanic)
		}
	}()
	err = fn(tx)
	returned = true
	return tx.end(ctx, err)
}

// errEnded is the error of a function that ended the transaction lent to it. swallowedError is
// the error of a function that continued in a transaction that a failed statement has aborted.
var (
	errEnded       = fnError{errors.New("the function went on after its transaction had ended: it has to return the error of a deadlock, and must not commit, roll back or change tables")}
	swallowedError = fnError{errors.New("the function returned no error, though a statement had failed in its transaction, which undoes all of it: return that error, or put what may fail into a savepoint, by Begin of the transaction")}
)

// errPanic rolls a transaction back whose function does not return.
var errPanic = errors.New("panic")

// span is a part of a table: the keys above from, up to and including to, restricted to keys. A
// nil field does not restrict it.
type span struct {
	from, to []string
	keys     [][]string
}

type candidate struct {
	key []string
	// mine means that this transaction has locked the row. Otherwise another transaction has
	// locked or changed it, or no lock was requested.
	mine bool
}

// statement is a statement under construction. mark returns the placeholder of the nth
// argument.
type statement struct {
	text strings.Builder
	args []any
	mark func(n int) string
}

func (st *statement) arg(v any) string {
	st.args = append(st.args, v)
	return st.mark(len(st.args))
}

func (st *statement) add(format string, a ...any) { fmt.Fprintf(&st.text, format, a...) }

// grace is how much longer than the server the client waits for a statement, in case the
// connection is dead without an error.
const grace = 10 * time.Second

// clock starts measuring a statement. The returned function stops.
func (s *scan) clock() func() {
	began := time.Now()
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.slowest = max(s.slowest, time.Since(began))
	}
}

func first(keys [][]string, err error) ([]string, error) {
	if err != nil || len(keys) == 0 {
		return nil, err
	}
	return keys[0], nil
}

// columnList returns the quoted columns that are passed to the function.
func columnList(columns []string, quoted func(column string) string) string {
	if len(columns) == 0 {
		return "*"
	}
	list := make([]string, len(columns))
	for i, column := range columns {
		list[i] = quoted(column)
	}
	return strings.Join(list, ", ")
}

func tuple(parts []string) string {
	if len(parts) == 1 {
		return parts[0]
	}
	return "(" + strings.Join(parts, ", ") + ")"
}

// refusal is an error that another try would not change.
type refusal struct{ error }

func (e refusal) Unwrap() error { return e.error }

// Is makes a refusal a longjob.ErrFinal, so the run fails at once.
func (e refusal) Is(target error) bool { return target == longjob.ErrFinal }
