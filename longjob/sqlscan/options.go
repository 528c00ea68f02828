package sqlscan

import (
	"context"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"
)

// Defaults of Options.
const (
	DefaultBatch            = 1000
	DefaultWindow           = 20 // times the batch
	DefaultStatementTimeout = time.Second
	DefaultLockTimeout      = 500 * time.Millisecond
	DefaultIdleTimeout      = time.Minute
	DefaultHoldFor          = time.Second
	DefaultPatience         = time.Minute
	DefaultCalls            = 3
)

// DB is where transactions begin: a *pgxpool.Pool. A single *pgx.Conn will do, but then a
// lost connection fails the slice.
type DB interface {
	BeginTx(ctx context.Context, o pgx.TxOptions) (pgx.Tx, error)
}

// Query selects rows of a table. Each slice has to give the same one: what is computed, such
// as a date, belongs into the arguments of the run or into longjob.StateOnce.
type Query struct {
	// Table is a table or a partitioned table, with its schema if it needs one:
	// pgx.Identifier{"shop", "orders"}.
	Table pgx.Identifier
	// Key are the columns of a unique index in its order, none of which may be NULL; empty
	// = the primary key. The rows are taken in that order.
	Key []string
	// Where is a condition in SQL, with $1, $2 and so on for Args; empty = all rows.
	Where string
	Args  []any
	// Columns are those that a function gets; empty = all.
	Columns []string
}

// Options bound what a scan asks of the database; the zero value of each is its default.
type Options struct {
	// Batch is how many rows a batch has at most.
	Batch int
	// Window is how many rows of the table one statement looks at to find those of a batch,
	// so that it is short even if hardly any matches. Negative = as many as it takes: better
	// where an index has just those rows that match, in the order of the key.
	Window int
	// StatementTimeout ends a statement that takes longer. The batch is tried again with
	// half of its rows, and so on; later batches grow again.
	StatementTimeout time.Duration
	// LockTimeout bounds how long a statement waits for a lock, say of the table.
	LockTimeout time.Duration
	// IdleTimeout is how long a transaction may stand still, because a function takes its
	// time or a process was stopped, before the server ends it.
	IdleTimeout time.Duration
	// HoldFor ends a batch early when functions have worked on it for so long.
	HoldFor time.Duration
	// Patience is how long a scan waits at its end for rows that others have locked, before
	// it fails with ErrLocked.
	Patience time.Duration
	// Calls is how often ReviewingSelectLoop calls its function for a row that goes on
	// matching; then it passes over that row, and fails with ErrStuck in the end. KeepStuck
	// has it end well then.
	Calls     int
	KeepStuck bool
	// KeepRows has ScanDestroy delete nothing: whatever is done, its function does.
	KeepRows bool
	// Total is how many rows there are, for the progress; 0 = what the planner of the
	// database believes, negative = unknown.
	Total int64
}

var (
	// ErrLocked: others have had rows locked for longer than Options.Patience.
	ErrLocked = errors.New("rows are locked by others")
	// ErrStuck: rows match the query of ReviewingSelectLoop whatever its function does.
	ErrStuck = errors.New("rows go on matching")
)

func (o Options) defaults() Options {
	if o.Batch <= 0 {
		o.Batch = DefaultBatch
	}
	if o.Window == 0 {
		o.Window = DefaultWindow * o.Batch
	}
	if o.Calls <= 0 {
		o.Calls = DefaultCalls
	}
	for _, d := range []struct {
		value *time.Duration
		def   time.Duration
	}{
		{&o.StatementTimeout, DefaultStatementTimeout},
		{&o.LockTimeout, DefaultLockTimeout},
		{&o.IdleTimeout, DefaultIdleTimeout},
		{&o.HoldFor, DefaultHoldFor},
		{&o.Patience, DefaultPatience},
	} {
		if *d.value <= 0 {
			*d.value = d.def
		}
	}
	return o
}
