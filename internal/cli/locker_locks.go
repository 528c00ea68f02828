package cli

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/resqued/resqued/internal/store"
	"github.com/resqued/resqued/internal/view"
	"github.com/resqued/resqued/locker"
)

// postgresLock is the kind of a lock in PostgreSQL.
const postgresLock = "postgres"

// postgresPatience is how long a list of all locks waits for PostgreSQL.
const postgresPatience = 3 * time.Second

// The codes of PostgreSQL's errors about a table or a column that does not exist.
const (
	missingTable  = "42P01"
	missingColumn = "42703"
	// unknownParameter: the server has no such setting.
	unknownParameter = "42704"
)

// postgresLocks returns the locks in the database at url, and whether these are all. If only
// they were asked for, everything that keeps them from being read is an error. Otherwise a
// database without a table of locks is none.
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
	server, _ := errors.AsType[*pgconn.PgError](err)
	switch {
	case err == nil && len(rows) > limit:
		return rows[:limit], false, nil
	case err == nil:
		return rows, true, nil
	case kind != "":
		return nil, false, err
	case server != nil && (server.Code == missingTable || server.Code == missingColumn): // the table belongs to another program
		return nil, true, nil
	}
	a.warn("locks in PostgreSQL are not shown: %s", strings.Join(strings.Fields(err.Error()), " "))
	return nil, false, nil
}

// addRow adds a lock in PostgreSQL.
func (l *listing) addRow(r locker.Row) {
	v := &view.Lock{Kind: postgresLock, Key: r.Key, Holder: &r.LockedBy, State: store.LockExpired, Sequence: r.Sequence}
	left, held := "past", ""
	if r.Held() {
		v.State, left = store.LockHeld, view.Age(r.Left)
		v.TTLS = new(int64(r.Left / time.Second))
	}
	if r.Age > 0 {
		v.AgeS, held = new(int64(r.Age/time.Second)), view.Age(r.Age)
	}
	l.add(v.Key, v, v.Kind, v.Key, holderName(r.LockedBy), held, left, v.State, "", "", "", "", fmt.Sprintf("sequence %d", r.Sequence))
}
