package sqlscan

import (
	"cmp"
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
	DefaultMaxLag           = 5 * time.Second
)

// DB begins transactions: a *pgxpool.Pool, or a single *pgx.Conn. With a *pgx.Conn, a lost
// connection fails the slice.
type DB interface {
	BeginTx(ctx context.Context, o pgx.TxOptions) (pgx.Tx, error)
}

// Query selects rows of a table. It must be the same in each slice: pass computed values, such
// as a time, as arguments of the run, or keep them with longjob.StateOnce.
type Query struct {
	// Table is a table or a partitioned table, with its schema if necessary:
	// pgx.Identifier{"shop", "orders"}.
	Table pgx.Identifier
	// Key has the columns of a unique index, in its order; none of them may be NULL. Empty =
	// the primary key. Rows are processed in the order of the key.
	Key []string
	// Where is a condition in SQL, with $1, $2 and so on for Args; empty = all rows.
	Where string
	Args  []any
	// Columns has the columns that are passed to the function; empty = all.
	Columns []string
}

// Options limit the load that a scan puts on the database. The zero value of a field means its
// default.
type Options struct {
	// Batch is the maximum number of rows of a batch. The size of batches adapts to the time
	// that statements take. The default is 1,000, with which ScanDelete uses up to 20,000.
	Batch int
	// Window is the number of rows that one statement examines to find the rows of a batch, so
	// it is short even if few rows match; the default is 20 batches. Negative = no limit, which
	// is better if an index contains exactly the matching rows, in the order of the key.
	Window int
	// StatementTimeout is the longest duration of a statement. A batch that takes longer is
	// tried again with half of its rows, and so on. Later batches grow again, until a
	// statement takes about two fifths of it. The default is 250 milliseconds, and a second for
	// a batch of one row. It also limits the statements of a function in its transaction;
	// exceeding it there is an error of the function. In Tx the default is a second.
	StatementTimeout time.Duration
	// LockTimeout is how long a statement waits for a lock, such as the table's.
	LockTimeout time.Duration
	// IdleTimeout is how long a transaction may be idle, because a function takes long or the
	// process was stopped, before the server ends it.
	IdleTimeout time.Duration
	// HoldFor is how long functions process a batch before it ends early.
	HoldFor time.Duration
	// Patience is how long a scan waits at its end for rows locked by other transactions,
	// before it fails with ErrLocked.
	Patience time.Duration
	// Calls is how often ReviewingSelectLoop calls its function for a row that still matches.
	// After that it skips the row, and at its end fails with ErrStuck, or succeeds if KeepStuck
	// is set.
	Calls     int
	KeepStuck bool
	// Parallel is how many calls of its function ReviewingSelectLoop makes at a time; default
	// one.
	Parallel int
	// Lag returns the lag of the database's replicas, as ReplicaLag and ReplicaLagMySQL do. It
	// is called before a batch, at most once a second. While it returns more than MaxLag, no
	// batch begins, and after some seconds the run waits outside of its slice. If it returns an
	// error, the slice fails. If a right is missing, the run fails.
	Lag    func(ctx context.Context) (time.Duration, error)
	MaxLag time.Duration
	// KeepRows makes ScanDestroy delete no rows itself: its function does what is necessary.
	KeepRows bool
	// Total is the number of rows for the progress; 0 = the planner's estimate, negative =
	// unknown.
	Total int64
}

var (
	// ErrLocked means that other transactions kept rows locked for longer than
	// Options.Patience.
	ErrLocked = errors.New("rows are locked by others")
	// ErrStuck means that rows still match the query of ReviewingSelectLoop after its function
	// was called Options.Calls times for them.
	ErrStuck = errors.New("rows go on matching")
)

func (o Options) defaults() Options {
	o.Batch = orDefault(o.Batch, DefaultBatch)
	o.Parallel = max(o.Parallel, 1)
	o.Window = cmp.Or(o.Window, DefaultWindow*o.Batch)
	o.Calls = orDefault(o.Calls, DefaultCalls)
	o.StatementTimeout = orDefault(o.StatementTimeout, DefaultStatementTimeout)
	o.LockTimeout = orDefault(o.LockTimeout, DefaultLockTimeout)
	o.IdleTimeout = orDefault(o.IdleTimeout, DefaultIdleTimeout)
	o.HoldFor = orDefault(o.HoldFor, DefaultHoldFor)
	o.Patience = orDefault(o.Patience, DefaultPatience)
	o.MaxLag = orDefault(o.MaxLag, DefaultMaxLag)
	return o
}

func orDefault[T int | time.Duration](v, def T) T {
	if v <= 0 {
		return def
	}
	return v
}
