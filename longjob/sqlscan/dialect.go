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
	// table returns the quoted name of the table.
	table() string
	// open begins a transaction, whose statements are limited.
	open(ctx context.Context, l limits) (transaction, error)
	// forget drops what is known of the table, because it was altered.
	forget()
	// judge says what an error means.
	judge(err error) verdict
}

// limits of a transaction.
type limits struct {
	kind      kind
	statement time.Duration
	lock      time.Duration
}

type kind int

const (
	locking  kind = iota // locks rows, reads what is committed
	sweeping             // deletes a part of the table, reads what is committed
	snapshot             // reads the table as it is when the transaction begins
	looking              // reads what is committed
	shared               // is the program's, for several calls of its function
)

// verdict is what an error of the database means.
type verdict struct {
	passing bool // the transaction may succeed when it is tried again
	tooLong bool // a statement of this package was ended by its time limit
	altered bool // columns or types have changed since the statement was prepared
	locked  bool // a lock was not free in time, or there was a deadlock
	foreign bool // another table refers to a row
}

// transaction is a transaction on the table. Keys are text.
type transaction interface {
	// end commits the transaction if err is nil, otherwise it rolls it back and returns err.
	end(ctx context.Context, err error) error
	// know reads the properties of the table, unless they are known.
	know(ctx context.Context) error
	// highest returns the highest key of the table, or nil if it is empty.
	highest(ctx context.Context) ([]string, error)
	// estimate returns about how many rows match.
	estimate(ctx context.Context) (int64, error)
	// edge returns the key that is n rows after the beginning of a span, whether they match
	// or not, or nil if there are fewer rows.
	edge(ctx context.Context, sp span, n int) ([]string, error)
	// bound is like edge for rows that match.
	bound(ctx context.Context, sp span, n int) ([]string, error)
	// sweep deletes the rows of a span that match.
	sweep(ctx context.Context, sp span) (int64, error)
	// candidates returns the first n rows of a span that match, in the order of the key.
	// With lock it locks those that are not locked, without waiting.
	candidates(ctx context.Context, sp span, n int, lock bool) ([]candidate, error)
	// byKey is called before statements about rows that are known by their keys.
	byKey(ctx context.Context) error
	// matching returns which of some rows match.
	matching(ctx context.Context, keys [][]string) ([][]string, error)
	// remove deletes rows and returns their number.
	remove(ctx context.Context, keys [][]string) (int64, error)
	// intact returns an error if the program, which had the transaction, has ended it, as far as
	// that is known without asking the server.
	intact() error
	// exec runs a statement that returns nothing.
	exec(ctx context.Context, sql string) error
}

// transaction runs fn in a transaction.
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

// errEnded is the error of a function that does not leave its transaction as it was; swallowedError
// is that of one that goes on in a transaction that a statement has broken.
var (
	errEnded       = fnError{errors.New("the function went on after its transaction had ended: it has to return the error of a deadlock, and must not commit, roll back or change tables")}
	swallowedError = fnError{errors.New("the function returned no error, though a statement had failed in its transaction, which undoes all of it: return that error, or put what may fail into a savepoint, by Begin of the transaction")}
)

// errPanic rolls a transaction back whose function does not return.
var errPanic = errors.New("panic")

// span is a part of a table: the keys above from, up to and including to, restricted to those
// in keys. A nil field is not a restriction.
type span struct {
	from, to []string
	keys     [][]string
}

// candidate is a row that matches.
type candidate struct {
	key []string
	// mine: this transaction has locked it. Otherwise another holds it or has changed it
	// meanwhile, or no lock was requested.
	mine bool
}

// statement is a statement under construction. mark writes the placeholder of an argument.
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

// grace is how much longer than the server this side waits for a statement, in case the
// connection is dead without an error.
const grace = 10 * time.Second

// clock starts to measure a statement; the function that it returns ends that.
func (s *scan) clock() func() {
	began := time.Now()
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.slowest = max(s.slowest, time.Since(began))
	}
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

// Is makes the run fail at once.
func (e refusal) Is(target error) bool { return target == longjob.ErrFinal }
