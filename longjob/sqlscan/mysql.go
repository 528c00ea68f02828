package sqlscan

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"math"
	"reflect"
	"strings"
	"time"

	"github.com/resqued/resqued/longjob"
)

// MySQLQuery selects rows of a table of MySQL or MariaDB. It must be the same in each slice:
// pass computed values, such as a time, as arguments of the run, or keep them with
// longjob.StateOnce.
type MySQLQuery struct {
	// Table is an InnoDB table, Database the database that contains it; empty = the
	// connection's.
	Table, Database string
	// Key has the columns of a unique index, in its order; none of them may be NULL. Empty =
	// the primary key. Rows are processed in the order of the key.
	Key []string
	// Where is a condition in SQL, with ? for each of Args; empty = all rows.
	Where string
	Args  []any
	// Columns has the columns that are passed to the function; empty = all.
	Columns []string
}

// ScanDeleteMySQL is ScanDelete for MySQL (8.0 or newer) and MariaDB (10.6 or newer), with any
// database/sql driver for them, such as github.com/go-sql-driver/mysql.
func ScanDeleteMySQL(ctx context.Context, r *longjob.Runner, key string, db *sql.DB, q MySQLQuery, o Options) error {
	return onMySQL(r, key, db, q, o).rows(ctx, nil)
}

// ScanDestroyMySQL is ScanDestroy for MySQL and MariaDB. scan converts a row: it calls
// rows.Scan once, for the columns of the query. fn must use tx for changes that must happen
// exactly once, and must neither commit it nor roll it back.
func ScanDestroyMySQL[T any](ctx context.Context, r *longjob.Runner, key string, db *sql.DB, q MySQLQuery, o Options,
	scan func(rows *sql.Rows) (T, error), fn func(ctx context.Context, tx *sql.Tx, row T) error,
) error {
	return onMySQL(r, key, db, q, o).rows(ctx, each(readsMySQL(scan), func(ctx context.Context, t transaction, row T) error {
		return fn(ctx, t.(*myTx).tx, row)
	}))
}

// ReviewingSelectLoopMySQL is ReviewingSelectLoop for MySQL and MariaDB. scan converts a row as
// for ScanDestroyMySQL.
func ReviewingSelectLoopMySQL[T any](ctx context.Context, r *longjob.Runner, key string, db *sql.DB, q MySQLQuery, o Options,
	scan func(rows *sql.Rows) (T, error), fn func(ctx context.Context, row T) error,
) error {
	return (&review[T]{scan: onMySQL(r, key, db, q, o).scan, fn: fn, fetch: readsMySQL(scan)}).run(ctx)
}

// ReviewingSelectBatchesMySQL is ReviewingSelectBatches for MySQL and MariaDB. scan converts a
// row as for ScanDestroyMySQL.
func ReviewingSelectBatchesMySQL[T any](ctx context.Context, r *longjob.Runner, key string, db *sql.DB, q MySQLQuery, o Options,
	scan func(rows *sql.Rows) (T, error), fn func(ctx context.Context, rows []T) error,
) error {
	return (&review[T]{scan: onMySQL(r, key, db, q, o).scan, batch: fn, fetch: readsMySQL(scan)}).run(ctx)
}

// SubjectsMySQL is Subjects for MySQL and MariaDB.
func SubjectsMySQL(db *sql.DB, query string, args ...any) func(ctx context.Context) ([]string, error) {
	return subjects(func(ctx context.Context) ([]string, error) { return subjectsMySQL(ctx, db, query, args) })
}

func subjectsMySQL(ctx context.Context, db *sql.DB, query string, args []any) (all []string, err error) {
	rows, err := db.QueryContext(ctx, query, args...)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, rows.Close()) }()
	columns, err := rows.Columns()
	if err != nil {
		return nil, err
	}
	if len(columns) == 0 {
		return nil, errors.New("the query returns no columns")
	}
	var subject sql.NullString
	dest := []any{&subject}
	for range columns[1:] {
		dest = append(dest, new(sql.RawBytes))
	}
	for rows.Next() {
		if err := rows.Scan(dest...); err != nil {
			return nil, err
		}
		if subject.Valid {
			all = append(all, subject.String)
		}
	}
	return all, rows.Err()
}

type mysql struct {
	*scan
	db *sql.DB
	q  MySQLQuery
	// flavour and t are the properties of the server and the table, once they are known.
	flavour *flavour
	t       *myTable
}

type flavour struct {
	// statement and idle are the session variables that limit the time of a statement and of an
	// idle transaction.
	statement, idle string
	// inSeconds means that statement is in seconds, not in milliseconds.
	inSeconds bool
	// usable is the condition that the planner may use an index.
	usable string
	// noWait is the minimum number of seconds for which a statement can wait for a row.
	noWait int
	// readsOnly means that the server limits only SELECT, so the client ends other statements.
	readsOnly bool
	// explain is the statement that shows the planner's estimate.
	explain string
}

func onMySQL(r *longjob.Runner, step string, db *sql.DB, q MySQLQuery, o Options) *mysql {
	m := &mysql{scan: newScan(r, step, o), db: db, q: q}
	m.d = m
	return m
}

func (m *mysql) table() string {
	if m.q.Database == "" {
		return quoted(m.q.Table)
	}
	return quoted(m.q.Database) + "." + quoted(m.q.Table)
}

func quoted(name string) string { return "`" + strings.ReplaceAll(name, "`", "``") + "`" }

func (m *mysql) forget() { m.t = nil }

type myTx struct {
	*mysql
	conn *sql.Conn
	tx   *sql.Tx
	l    limits
	// cancel ends the context of tx.
	cancel context.CancelFunc
	// restore has the SET clauses with the session's original values.
	restore []string
}

// open begins a transaction. Its session variables are reset at the end, because the connection
// goes back to a pool.
func (m *mysql) open(ctx context.Context, l limits) (transaction, error) {
	begin, cancel := context.WithTimeout(ctx, m.o.StatementTimeout+grace)
	defer cancel()
	conn, err := m.db.Conn(begin)
	if err != nil {
		if number(err) == 0 {
			err = lostError{err}
		}
		return nil, err
	}
	t := &myTx{mysql: m, conn: conn, l: l, cancel: func() {}}
	if err := t.begin(ctx, begin); err != nil {
		return nil, t.end(ctx, err)
	}
	return t, nil
}

func (t *myTx) begin(ctx, begin context.Context) (err error) {
	if t.flavour == nil {
		if t.flavour, err = t.detect(begin); err != nil {
			return err
		}
	}
	if err := t.bounded(begin); err != nil {
		return err
	}
	o := sql.TxOptions{Isolation: sql.LevelReadCommitted}
	switch t.l.kind {
	case snapshot:
		o = sql.TxOptions{Isolation: sql.LevelRepeatableRead, ReadOnly: true}
	case looking:
		o.ReadOnly = true
	case locking, sweeping, shared:
	}
	// The context of BeginTx lasts as long as the transaction, so a timer limits the beginning.
	whole, cancel := context.WithCancel(context.WithoutCancel(ctx))
	t.cancel = cancel
	late := time.AfterFunc(t.l.statement+grace, cancel)
	t.tx, err = t.conn.BeginTx(whole, &o)
	late.Stop()
	if err == nil && t.l.kind == shared {
		err = t.lend(ctx)
	}
	return err
}

// A deadlock ends the whole transaction, and later statements are committed one by one. A
// savepoint shows whether there was one transaction from lend to back, while the program had
// it.
const lent = "resqued_lent"

func (t *myTx) lend(ctx context.Context) error { return t.exec(ctx, "SAVEPOINT "+lent) }

func (t *myTx) back(ctx context.Context) error {
	err := t.exec(ctx, "RELEASE SAVEPOINT "+lent)
	if number(err) == noSavepoint || errors.Is(err, sql.ErrTxDone) {
		return errEnded
	}
	return err
}

// intact returns nil, because back asks the server.
func (t *myTx) intact() error { return nil }

const noSavepoint = 1305

func (t *myTx) end(ctx context.Context, err error) error {
	if err == nil && t.l.kind == shared {
		err = t.back(ctx)
	}
	if err == nil {
		// The driver's Commit has no time limit. The Rollback below then finds nothing to undo.
		err = t.commit(ctx)
	}
	end, cancel := context.WithTimeout(context.WithoutCancel(ctx), grace)
	defer cancel()
	if t.tx != nil {
		_ = t.tx.Rollback() // harmless after a commit
	}
	t.cancel()
	fit := err == nil || t.conn.PingContext(end) == nil
	if !fit {
		err = lostError{err}
	}
	if fit = fit && t.reset(end) == nil; !fit {
		_ = t.conn.Raw(func(any) error { return driver.ErrBadConn })
	}
	_ = t.conn.Close()
	return err
}

func (t *myTx) detect(ctx context.Context) (*flavour, error) {
	var version string
	if err := t.conn.QueryRowContext(ctx, "SELECT VERSION()").Scan(&version); err != nil {
		return nil, err
	}
	var major, minor int
	_, _ = fmt.Sscanf(version, "%d.%d", &major, &minor) // anything else counts as too old
	if strings.Contains(version, "MariaDB") {
		if major < 10 || major == 10 && minor < 6 {
			return nil, refusal{fmt.Errorf("MariaDB %s is too old: 10.6 is the first version with SKIP LOCKED", version)}
		}
		return &flavour{statement: "max_statement_time", inSeconds: true, idle: "idle_transaction_timeout", usable: "s.IGNORED = 'NO'", explain: "EXPLAIN EXTENDED"}, nil
	}
	if major < 8 {
		return nil, refusal{fmt.Errorf("MySQL %s is too old: 8.0 is the first version with SKIP LOCKED", version)}
	}
	return &flavour{statement: "max_execution_time", readsOnly: true, idle: "wait_timeout", usable: "s.IS_VISIBLE = 'YES'", noWait: 1, explain: "EXPLAIN FORMAT=TRADITIONAL"}, nil
}

func (t *myTx) bounded(ctx context.Context) error {
	limit := fmt.Sprint(max(t.l.statement.Milliseconds(), 1))
	if t.flavour.inSeconds {
		limit = fmt.Sprint(t.l.statement.Seconds())
	}
	row := seconds(t.l.lock)
	if t.l.kind == sweeping {
		row = t.flavour.noWait
	}
	variables := [][2]string{
		{t.flavour.statement, limit},
		{t.flavour.idle, fmt.Sprint(seconds(t.o.IdleTimeout))},
		{"innodb_lock_wait_timeout", fmt.Sprint(row)},
		{"lock_wait_timeout", fmt.Sprint(seconds(t.l.lock))},
	}
	if t.l.kind == sweeping {
		// It would refuse an index hint, and the program's condition.
		variables = append(variables, [2]string{"sql_safe_updates", "0"})
	}
	return t.set(ctx, variables)
}

// set sets session variables and records the original values.
func (t *myTx) set(ctx context.Context, variables [][2]string) error {
	names, values, dest := make([]string, len(variables)), make([]string, len(variables)), make([]any, len(variables))
	was := make([]string, len(variables))
	for i, v := range variables {
		names[i], values[i], dest[i] = "@@SESSION."+v[0], "SESSION "+v[0]+" = "+v[1], &was[i]
	}
	if err := t.conn.QueryRowContext(ctx, "SELECT "+strings.Join(names, ", ")).Scan(dest...); err != nil {
		return err
	}
	for i, v := range variables {
		if v[1][0] == '\'' {
			was[i] = "'" + strings.ReplaceAll(was[i], "'", "''") + "'"
		}
		t.restore = append(t.restore, "SESSION "+v[0]+" = "+was[i])
	}
	_, err := t.conn.ExecContext(ctx, "SET "+strings.Join(values, ", "))
	return err
}

func (t *myTx) reset(ctx context.Context) error {
	if len(t.restore) == 0 {
		return nil
	}
	_, err := t.conn.ExecContext(ctx, "SET "+strings.Join(t.restore, ", "))
	return err
}

// seconds rounds up, because the server's smallest unit is a second.
func seconds(d time.Duration) int { return max(1, int(math.Ceil(d.Seconds()))) }

// lateError is the error of a statement that the client has ended.
type lateError struct{ error }

func (e lateError) Unwrap() error { return e.error }

// number returns the number of an error of the server, or 0 for other errors. Drivers have
// their own types for these, with the number in a field.
func number(err error) int {
	for ; err != nil; err = unwrapped(err) {
		v := reflect.Indirect(reflect.ValueOf(err))
		if v.Kind() != reflect.Struct {
			continue
		}
		for _, name := range []string{"Number", "Code"} {
			if f := v.FieldByName(name); f.IsValid() && f.Kind() == reflect.Uint16 {
				return int(f.Uint())
			}
		}
	}
	return 0
}

// unwrapped returns the wrapped error; of several the first one that is the server's.
func unwrapped(err error) error {
	if several, ok := err.(interface{ Unwrap() []error }); ok {
		for _, one := range several.Unwrap() {
			if number(one) != 0 {
				return one
			}
		}
	}
	return errors.Unwrap(err)
}

// lockTimeout undoes its statement, not the transaction.
const lockTimeout = 1205

func (m *mysql) judge(err error) (v verdict) {
	_, fn := errors.AsType[fnError](err)
	_, lost := errors.AsType[lostError](err)
	_, late := errors.AsType[lateError](err)
	n := number(err)
	v.tooLong = !fn && late
	switch n {
	case 1969, 3024, 1317: // statement time of MariaDB and MySQL; interrupted
		v.tooLong = !fn
	case 1412, 1615: // the table was altered since the transaction began or the statement was prepared
		v.altered = true
	case 1451, 1217:
		v.foreign = !fn
	case lockTimeout, 1213, 3572: // lock timeout, deadlock, NOWAIT
		v.locked, v.passing = true, true
	case 1040, 1203, 1053, 1927, 1180, // too many connections, shutting down, killed, an error of COMMIT
		1290, 1836: // read only: another server is the primary now
		v.passing = !fn || lost
	default:
		v.passing = lost && (n == 0 || !fn) && !late
	}
	return v
}
