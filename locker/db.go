package locker

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"sync"
	"time"
	"weak"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
)

// DB is a pool of connections to PostgreSQL. With a *sql.DB of a driver other than pgx, a
// waiting lock polls every half second, because database/sql cannot listen for notifications.
type DB interface {
	*pgxpool.Pool | *sql.DB
}

// attempts is how often a statement is run that the server refuses because of concurrent ones,
// which happens only under strict isolation.
const attempts = 5

type database interface {
	// row runs a statement and reads its first row; it returns false if there is none.
	row(ctx context.Context, statement string, args []any, dest ...any) (bool, error)
	rows(ctx context.Context, statement string, args []any, read func(scan func(...any) error) error) error
	// session takes a connection out of the pool until it is closed.
	session(ctx context.Context) (session, error)
	// listener opens a session for waiting, or returns errors.ErrUnsupported.
	listener(ctx context.Context) (session, error)
	pool() any
	// hijacks reports whether listener takes no connection away from the pool's other users.
	hijacks() bool
}

// session is one connection.
type session interface {
	exec(ctx context.Context, statement string) error
	row(ctx context.Context, statement string, args []any, dest ...any) (bool, error)
	// notified blocks until a notification arrives and returns its text. It fails when ctx
	// ends, which the connection survives, and when the connection ends. It returns
	// errors.ErrUnsupported if the driver cannot wait.
	notified(ctx context.Context) (string, error)
	// close returns the connection to the pool, or ends it if it is useless.
	close(useless bool)
}

func open[D DB](db D) (database, error) {
	switch db := any(db).(type) {
	case *pgxpool.Pool:
		if db != nil {
			return pgxDB{db}, nil
		}
	case *sql.DB:
		if db != nil {
			return sqlDB{db}, nil
		}
	}
	return nil, errors.New("locker: the database is nil")
}

func again(run func() error) error {
	for n := 1; ; n++ {
		err := run()
		if n == attempts || !conflict(err) {
			return err
		}
	}
}

// SQLSTATEs of statements that were not run.
const (
	serialization    = "40001"
	deadlock         = "40P01"
	stalePlan        = "0A000" // "cached plan must not change result type": the table has changed
	unknownStatement = "26000"
	knownStatement   = "42P05"
)

func conflict(err error) bool {
	code := sqlState(err)
	return code == serialization || code == deadlock || code == stalePlan
}

func sqlState(err error) string {
	if e, ok := errors.AsType[interface {
		error
		SQLState() string
	}](err); ok { // pgx and lib/pq both have it
		return e.SQLState()
	}
	return ""
}

type unsentError struct{ error }

func (e *unsentError) Unwrap() error { return e.error }

// unsent reports whether the failed statement cannot have reached the server.
func unsent(err error) bool {
	_, own := errors.AsType[*unsentError](err)
	_, connecting := errors.AsType[*pgconn.ConnectError](err)
	return own || connecting
}

// poolClosed reports whether the pool was closed. Neither package exports the error.
func poolClosed(err error) bool {
	for ; err != nil; err = errors.Unwrap(err) {
		if text := err.Error(); text == "closed pool" || text == "sql: database is closed" {
			return true
		}
	}
	return false
}

// passing reports whether waiting can repair an error. A missing table stays missing, and a
// closed pool closed.
func passing(err error) bool {
	code := sqlState(err)
	if code == "" {
		return !poolClosed(err) // not from the server, so from the network
	}
	switch code[:2] {
	case "08", "40", "53", "55", "57", "58":
		return true // connection, conflict, resources, lock, shutdown and start, I/O
	}
	return code == "25006" // read-only: a failover under way
}

// unprepared has the pools whose connections lose prepared statements, as with poolers that
// share connections by transaction.
var unprepared sync.Map // of weak.Pointer[pgxpool.Pool] and weak.Pointer[sql.DB]

type pgxDB struct{ *pgxpool.Pool }

func (d pgxDB) pool() any { return d.Pool }

// hijacks is true: a listening connection is not one of the pool's.
func (d pgxDB) hijacks() bool { return true }

// row prepares the statement if the pool does so and the server keeps it, which halves the cost
// of a lock.
func (d pgxDB) row(ctx context.Context, statement string, args []any, dest ...any) (bool, error) {
	conn, err := d.Acquire(ctx)
	if err != nil {
		return false, &unsentError{err}
	}
	defer conn.Release()
	pool := weak.Make(d.Pool)
	_, forgets := unprepared.Load(pool)
	if mode := conn.Conn().Config().DefaultQueryExecMode; mode != pgx.QueryExecModeCacheStatement || forgets {
		return pgxRow(ctx, conn, statement, pgxArgs(args), dest)
	}
	found, err := pgxRow(ctx, conn, statement, args, dest)
	if forgotten(err) {
		unprepared.Store(pool, true)
		return pgxRow(ctx, conn, statement, pgxArgs(args), dest)
	}
	return found, err
}

// forgotten reports whether a statement was not run because the connection has other prepared
// statements than the driver believes.
func forgotten(err error) bool {
	code := sqlState(err)
	return code == unknownStatement || code == knownStatement
}

func (d pgxDB) rows(ctx context.Context, statement string, args []any, read func(func(...any) error) error) error {
	rows, err := d.Query(ctx, statement, pgxArgs(args)...)
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		if err := read(rows.Scan); err != nil {
			return err
		}
	}
	return rows.Err()
}

func (d pgxDB) session(ctx context.Context) (session, error) {
	conn, err := d.Acquire(ctx)
	if err != nil {
		return nil, err
	}
	return &pgxSession{conn: conn.Conn(), giveBack: conn.Release}, nil
}

// listener takes its connection away from the pool for good. The pool may then open another
// one: waiters must not take the place of renewals.
func (d pgxDB) listener(ctx context.Context) (session, error) {
	conn, err := d.Acquire(ctx)
	if err != nil {
		return nil, err
	}
	return &pgxSession{conn: conn.Hijack()}, nil
}

// pgxArgs keeps a statement from being prepared: poolers that share connections by transaction
// might run it where it is unknown.
func pgxArgs(args []any) []any { return append([]any{pgx.QueryExecModeExec}, args...) }

func pgxRow(ctx context.Context, c interface {
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
}, statement string, args, dest []any,
) (bool, error) {
	err := again(func() error { return c.QueryRow(ctx, statement, args...).Scan(dest...) })
	if errors.Is(err, pgx.ErrNoRows) {
		return false, nil
	}
	return err == nil, err
}

type pgxSession struct {
	conn     *pgx.Conn
	giveBack func() // nil = not the pool's connection
}

func (s *pgxSession) exec(ctx context.Context, statement string) error {
	_, err := s.conn.Exec(ctx, statement, pgx.QueryExecModeExec)
	return err
}

func (s *pgxSession) row(ctx context.Context, statement string, args []any, dest ...any) (bool, error) {
	return pgxRow(ctx, s.conn, statement, pgxArgs(args), dest)
}

func (s *pgxSession) notified(ctx context.Context) (string, error) { return notified(ctx, s.conn) }

func notified(ctx context.Context, conn *pgx.Conn) (string, error) {
	n, err := conn.WaitForNotification(ctx)
	if err != nil {
		return "", err
	}
	return n.Payload, nil
}

func (s *pgxSession) close(useless bool) {
	if useless || s.giveBack == nil {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		_ = s.conn.Close(ctx)
		cancel()
	}
	if s.giveBack != nil {
		s.giveBack()
	}
}

type sqlDB struct{ *sql.DB }

func (d sqlDB) pool() any { return d.DB }

func (d sqlDB) hijacks() bool { return false }

func (d sqlDB) row(ctx context.Context, statement string, args []any, dest ...any) (bool, error) {
	for n := 1; ; n++ {
		found, err := d.rowOnce(ctx, statement, args, dest)
		if n == attempts || !errors.Is(err, driver.ErrBadConn) { // nothing was run
			return found, err
		}
	}
}

func (d sqlDB) rowOnce(ctx context.Context, statement string, args, dest []any) (bool, error) {
	conn, err := d.Conn(ctx)
	if err != nil {
		return false, &unsentError{err}
	}
	defer func() { _ = conn.Close() }()
	pool, s := weak.Make(d.DB), sqlSession{conn}
	if _, forgets := unprepared.Load(pool); forgets {
		return s.row(ctx, statement, args, dest...)
	}
	found, err := sqlRow(ctx, conn, statement, args, dest)
	if forgotten(err) && s.pgx() {
		unprepared.Store(pool, true)
		return s.row(ctx, statement, args, dest...)
	}
	return found, err
}

func (d sqlDB) rows(ctx context.Context, statement string, args []any, read func(func(...any) error) error) error {
	conn, err := d.Conn(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }()
	rows, err := conn.QueryContext(ctx, statement, sqlSession{conn}.args(args)...)
	if err != nil {
		return err
	}
	defer func() { _ = rows.Close() }()
	for rows.Next() {
		if err := read(rows.Scan); err != nil {
			return err
		}
	}
	return rows.Err()
}

func (d sqlDB) session(ctx context.Context) (session, error) {
	conn, err := d.Conn(ctx)
	if err != nil {
		return nil, err
	}
	return sqlSession{conn}, nil
}

func (d sqlDB) listener(ctx context.Context) (session, error) {
	if d.Stats().MaxOpenConnections == 1 {
		return nil, errors.ErrUnsupported // the only connection is needed for polling
	}
	s, err := d.session(ctx)
	if err != nil {
		return nil, err
	}
	if err := s.(sqlSession).raw(func(*pgx.Conn) error { return nil }); err != nil {
		s.close(false)
		return nil, err
	}
	return s, nil
}

func sqlRow(ctx context.Context, c interface {
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
}, statement string, args, dest []any,
) (bool, error) {
	err := again(func() error { return c.QueryRowContext(ctx, statement, args...).Scan(dest...) })
	if errors.Is(err, sql.ErrNoRows) {
		return false, nil
	}
	return err == nil, err
}

type sqlSession struct{ conn *sql.Conn }

func (s sqlSession) exec(ctx context.Context, statement string) error {
	_, err := s.conn.ExecContext(ctx, statement)
	return err
}

func (s sqlSession) row(ctx context.Context, statement string, args []any, dest ...any) (bool, error) {
	return sqlRow(ctx, s.conn, statement, s.args(args), dest)
}

// args keeps pgx from preparing a statement, as pgxArgs does. Other drivers do not know that
// mode.
func (s sqlSession) args(args []any) []any {
	if s.pgx() {
		return pgxArgs(args)
	}
	return args
}

func (s sqlSession) pgx() bool {
	return s.raw(func(*pgx.Conn) error { return nil }) == nil
}

func (s sqlSession) raw(use func(*pgx.Conn) error) error {
	return s.conn.Raw(func(conn any) error {
		c, ok := conn.(interface{ Conn() *pgx.Conn })
		if !ok {
			return errors.ErrUnsupported
		}
		return use(c.Conn())
	})
}

func (s sqlSession) notified(ctx context.Context) (payload string, err error) {
	err = s.raw(func(c *pgx.Conn) (err error) {
		payload, err = notified(ctx, c)
		return err
	})
	return payload, err
}

func (s sqlSession) close(useless bool) {
	if useless {
		_ = s.conn.Raw(func(any) error { return driver.ErrBadConn }) // database/sql then ends it
	}
	_ = s.conn.Close()
}
