package cli

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/resqued/resqued/internal/locket/classlock/postgres"
	"github.com/resqued/resqued/internal/view"
	"github.com/resqued/resqued/locker"
)

// postgresPatience is how long a list of all locks waits for PostgreSQL.
const postgresPatience = 3 * time.Second

// PostgreSQL's codes for a missing table and a missing column.
const (
	missingTable     = "42P01"
	missingColumn    = "42703"
	unknownParameter = "42704"
)

// postgresLocks returns the locks in the database at url, and whether these are all. If only they
// were requested, every failure to read them is an error; otherwise a missing table is not.
func (a *cli) postgresLocks(ctx context.Context, url, kind string, limit int) (rows []locker.Row, all bool, err error) {
	if url == "" && kind == "" {
		return nil, true, nil
	}
	if url == "" {
		return nil, false, usage("Set DATABASE_URL, or database_url_file.", "no PostgreSQL database is given")
	}
	if kind == "" {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, postgresPatience)
		defer cancel()
	}
	err = inDatabase(ctx, url, func(pool *pgxpool.Pool) error {
		rows, err = locker.ListLocked(ctx, pool, "", limit+1)
		return err
	})
	switch {
	case err == nil && len(rows) > limit:
		return rows[:limit], false, nil
	case err == nil:
		return rows, true, nil
	case kind != "":
		return nil, false, err
	case noTable(err):
		return nil, true, nil
	}
	a.warn("locks in PostgreSQL are not shown: %s", oneLine(err))
	return nil, false, nil
}

func (l *listing) addRow(ctx context.Context, r locker.Row) {
	v := databaseLock(ctx, r)
	left, held := "past", ""
	if v.TTLS != nil {
		left = view.Age(r.Left)
	}
	if v.AgeS != nil {
		held = view.Age(r.Age)
	}
	l.add(v.Key, v, v.Kind, v.Key, holderName(r.LockedBy), held, left, v.State, "", "", "", "", fmt.Sprintf("sequence %d", r.Sequence))
}

func databaseLock(ctx context.Context, r locker.Row) *view.Lock {
	left := max(r.Left, 1)
	if !r.Held() {
		left = 0
	}
	return view.NewDatabaseLock(ctx, r.Key, r.LockedBy, r.Sequence, left, r.Age)
}

// databaseLocks returns a function that lists the locks in the database at url for the dashboard,
// and one that closes its connections; nil without a database.
func databaseLocks(ctx context.Context, url string) (list func(ctx context.Context, limit int) ([]*view.Lock, bool, error), closed func(), err error) {
	if url == "" {
		return nil, func() {}, nil
	}
	pool, err := openDatabase(ctx, url)
	if err != nil {
		return nil, nil, err
	}
	return func(ctx context.Context, limit int) ([]*view.Lock, bool, error) {
		rows, err := locker.ListLocked(ctx, pool, "", limit+1)
		if err != nil && !noTable(err) {
			return nil, false, lockerProblem(err)
		}
		var locks []*view.Lock
		for _, r := range rows[:min(len(rows), limit)] {
			locks = append(locks, databaseLock(ctx, r))
		}
		return locks, len(rows) <= limit, nil
	}, func() { postgres.ClosePool(pool) }, nil
}

// noTable reports whether an error says that the table is missing, or another program's.
func noTable(err error) bool {
	server, _ := errors.AsType[*pgconn.PgError](err)
	return server != nil && (server.Code == missingTable || server.Code == missingColumn)
}
