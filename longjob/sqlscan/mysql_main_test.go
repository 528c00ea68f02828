//go:build unix

package sqlscan_test

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/stretchr/testify/require"

	"github.com/resqued/resqued/internal/testkit/mysqltest"
	"github.com/resqued/resqued/longjob"
	"github.com/resqued/resqued/longjob/sqlscan"
)

// myBed is a bed with a database of MariaDB.
type myBed struct {
	*bed
	db    *sql.DB // of the job
	other *sql.DB // of the test, its statements are not watched
	name  string
}

func setupMySQL(t testing.TB, o longjob.Options) *myBed { return setupMySQLAt(t, maria, o, "") }

func setupMySQLAt(t testing.TB, server *mysqltest.Server, o longjob.Options, params string) *myBed {
	t.Helper()
	b := &myBed{bed: jobs(t, o), name: fmt.Sprintf("d%d", schemas.Add(1))}
	admin := b.open(server.DSN("")+"?multiStatements=true", nil)
	_, err := admin.ExecContext(t.Context(), "CREATE DATABASE "+b.name)
	require.NoError(t, err)
	b.other = b.open(server.DSN(b.name)+"?multiStatements=true", nil)
	b.db = b.open(server.DSN(b.name)+"?application="+params, b.watch)
	b.db.SetMaxOpenConns(4)
	return b
}

// open opens a pool whose statements are watched.
func (b *myBed) open(dsn string, w *watch) *sql.DB {
	b.t.Helper()
	dsn = strings.Replace(dsn, "application=", "", 1)
	config, err := mysql.ParseDSN(strings.Replace(dsn, "?&", "?", 1))
	require.NoError(b.t, err)
	config.Logger = &mysql.NopLogger{} // tests cut connections
	var connector driver.Connector
	connector, err = mysql.NewConnector(config)
	require.NoError(b.t, err)
	if w != nil {
		connector = watchedConnector{connector, w, config.InterpolateParams}
	}
	db := sql.OpenDB(connector)
	b.t.Cleanup(func() { _ = db.Close() })
	return db
}

// sql runs statements.
func (b *myBed) sql(statement string, args ...any) {
	b.t.Helper()
	_, err := b.other.ExecContext(b.t.Context(), statement, args...)
	require.NoError(b.t, err)
}

// text returns the first column of all rows of a query, separated by blanks.
func (b *myBed) text(query string, args ...any) string {
	b.t.Helper()
	all, err := sqlscan.SubjectsMySQL(b.other, query, args...)(b.t.Context())
	require.NoError(b.t, err)
	return strings.Join(all, " ")
}

// cut ends the connections of the job.
func (b *myBed) cut() {
	for id := range strings.FieldsSeq(b.text("SELECT ID FROM information_schema.PROCESSLIST WHERE DB = ? AND ID <> CONNECTION_ID() AND COMMAND <> 'Killed'", b.name)) {
		_, _ = b.other.ExecContext(b.t.Context(), "KILL "+id) // one may have gone
	}
}

func (b *myBed) begin() *sql.Tx {
	b.t.Helper()
	tx, err := b.other.BeginTx(b.t.Context(), nil)
	require.NoError(b.t, err)
	b.t.Cleanup(func() { _ = tx.Rollback() })
	return tx
}

func (b *myBed) in(tx *sql.Tx, statement string, args ...any) {
	b.t.Helper()
	_, err := tx.ExecContext(b.t.Context(), statement, args...)
	require.NoError(b.t, err)
}

// deletes is a function that deletes rows of table t.
func (b *myBed) deletes(where string, o sqlscan.Options, args ...any) func(ctx context.Context, r *longjob.Runner) error {
	return func(ctx context.Context, r *longjob.Runner) error {
		return sqlscan.ScanDeleteMySQL(ctx, r, "delete", b.db, sqlscan.MySQLQuery{Table: "t", Where: where, Args: args}, o)
	}
}

func scanFile(rows *sql.Rows) (f file, err error) { return f, rows.Scan(&f.ID, &f.Name) }

// destroys returns a function that calls fn for rows of table t.
func (b *myBed) destroys(where string, o sqlscan.Options, fn func(ctx context.Context, r *longjob.Runner, tx *sql.Tx, f file) error) func(ctx context.Context, r *longjob.Runner) error {
	if o.HoldFor == 0 {
		o.HoldFor = time.Hour // the size of a batch must not depend on the machine
	}
	return func(ctx context.Context, r *longjob.Runner) error {
		return sqlscan.ScanDestroyMySQL(ctx, r, "destroy", b.db, sqlscan.MySQLQuery{Table: "t", Where: where, Columns: []string{"id", "name"}}, o, scanFile,
			func(ctx context.Context, tx *sql.Tx, f file) error { return fn(ctx, r, tx, f) })
	}
}

// reviews returns a function that calls fn for rows of table t as long as they match.
func (b *myBed) reviews(where string, o sqlscan.Options, fn func(ctx context.Context, f file) error) func(ctx context.Context, r *longjob.Runner) error {
	if o.HoldFor == 0 {
		o.HoldFor = time.Hour
	}
	return func(ctx context.Context, r *longjob.Runner) error {
		return sqlscan.ReviewingSelectLoopMySQL(ctx, r, "review", b.db, sqlscan.MySQLQuery{Table: "t", Where: where, Columns: []string{"id", "name"}}, o, scanFile, fn)
	}
}

// watchedConnector, watchedConn and watchedStmt report each statement to a watch.
type watchedConnector struct {
	driver.Connector
	w            *watch
	interpolates bool // statements with arguments are not prepared
}

func (c watchedConnector) Connect(ctx context.Context) (driver.Conn, error) {
	conn, err := c.Connector.Connect(ctx)
	if err != nil {
		return nil, err
	}
	return &watchedConn{conn, c.w, c.interpolates}, nil
}

type watchedConn struct {
	driver.Conn
	w            *watch
	interpolates bool
}

// around calls fn as the statement text.
func (w *watch) around(text string, fn func() (int64, error)) {
	w.mu.Lock()
	before := w.before
	w.mu.Unlock()
	if before != nil {
		before(text)
	}
	began := time.Now()
	n, err := fn()
	if err == driver.ErrSkip { //nolint:errorlint // as database/sql compares it
		return // it is prepared instead
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.count(text, n, time.Since(began))
}

func (c *watchedConn) ExecContext(ctx context.Context, text string, args []driver.NamedValue) (res driver.Result, err error) {
	if len(args) > 0 && !c.interpolates {
		return nil, driver.ErrSkip
	}
	c.w.around(text, func() (n int64, _ error) {
		if res, err = c.Conn.(driver.ExecerContext).ExecContext(ctx, text, args); err == nil {
			n, _ = res.RowsAffected()
		}
		return n, err
	})
	return res, err
}

func (c *watchedConn) QueryContext(ctx context.Context, text string, args []driver.NamedValue) (rows driver.Rows, err error) {
	if len(args) > 0 && !c.interpolates {
		return nil, driver.ErrSkip
	}
	c.w.around(text, func() (int64, error) {
		rows, err = c.Conn.(driver.QueryerContext).QueryContext(ctx, text, args)
		return 0, err
	})
	return rows, err
}

func (c *watchedConn) PrepareContext(ctx context.Context, text string) (driver.Stmt, error) {
	st, err := c.Conn.(driver.ConnPrepareContext).PrepareContext(ctx, text)
	if err != nil {
		return nil, err
	}
	return &watchedStmt{st, text, c.w}, nil
}

func (c *watchedConn) BeginTx(ctx context.Context, o driver.TxOptions) (tx driver.Tx, err error) {
	c.w.around("begin", func() (int64, error) {
		tx, err = c.Conn.(driver.ConnBeginTx).BeginTx(ctx, o)
		return 0, err
	})
	return tx, err
}

func (c *watchedConn) Ping(ctx context.Context) error { return c.Conn.(driver.Pinger).Ping(ctx) }

func (c *watchedConn) ResetSession(ctx context.Context) error {
	return c.Conn.(driver.SessionResetter).ResetSession(ctx)
}

func (c *watchedConn) IsValid() bool { return c.Conn.(driver.Validator).IsValid() }

func (c *watchedConn) CheckNamedValue(v *driver.NamedValue) error {
	return c.Conn.(driver.NamedValueChecker).CheckNamedValue(v)
}

type watchedStmt struct {
	driver.Stmt
	text string
	w    *watch
}

func (s *watchedStmt) ExecContext(ctx context.Context, args []driver.NamedValue) (res driver.Result, err error) {
	s.w.around(s.text, func() (n int64, _ error) {
		if res, err = s.Stmt.(driver.StmtExecContext).ExecContext(ctx, args); err == nil {
			n, _ = res.RowsAffected()
		}
		return n, err
	})
	return res, err
}

func (s *watchedStmt) QueryContext(ctx context.Context, args []driver.NamedValue) (rows driver.Rows, err error) {
	s.w.around(s.text, func() (int64, error) {
		rows, err = s.Stmt.(driver.StmtQueryContext).QueryContext(ctx, args)
		return 0, err
	})
	return rows, err
}

func (s *watchedStmt) CheckNamedValue(v *driver.NamedValue) error {
	return s.Stmt.(driver.NamedValueChecker).CheckNamedValue(v)
}
