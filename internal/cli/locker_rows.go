package cli

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/spf13/cobra"

	"github.com/resqued/resqued/internal/locket/classlock/postgres"
	"github.com/resqued/resqued/internal/view"
	"github.com/resqued/resqued/internal/wire"
	"github.com/resqued/resqued/locker"
)

// defaultIdle is how long prune keeps a row by default.
const defaultIdle = 24 * time.Hour

// maxKeyCell limits a key in a table, in bytes; -o wide shows all of it.
const maxKeyCell = 40

const (
	rowHeld    = "held"
	rowRevoked = "revoked"
	rowExpired = "expired"
	rowFree    = "free"
)

type rowView struct {
	Key   string `json:"key"`
	State string `json:"state"`
	// Holder has the lock, or had it until its lease ended; null if it was released.
	Holder *string `json:"holder"`
	// AgeS is for how many seconds the lock has been held, or since it was last taken; null =
	// never. TTLS is how long it is held without a renewal; null if it is not held.
	AgeS     *int64 `json:"age_s"`
	TTLS     *int64 `json:"ttl_s"`
	Sequence int64  `json:"sequence"`
}

func viewRow(r locker.Row) rowView {
	v := rowView{Key: r.Key, State: rowFree, Sequence: r.Sequence}
	if r.LockedBy != "" {
		v.State, v.Holder = rowExpired, &r.LockedBy
	}
	if r.Held() {
		v.State, v.TTLS = rowHeld, new(int64(r.Left/time.Second))
		if r.Revoked() {
			v.State = rowRevoked
		}
	}
	if !r.LockedAt.IsZero() {
		v.AgeS = new(int64(r.Age / time.Second))
	}
	return v
}

func (a *cli) lockerListCommand(f *lockerFlags) *cobra.Command {
	return a.command(verb{
		use: "ls", kind: shows, short: "list locks",
		long: `List the locks of the table: held ones, "expired" ones, whose holder died, and
free ones, which keep their sequence.`,
		do: a.inLocker(f, func(ctx context.Context, pool *pgxpool.Pool, _ []string) error {
			rows, err := locker.List(ctx, pool, f.table)
			if err != nil {
				return err
			}
			return a.printRows(rows)
		}),
	})
}

// inLocker runs a verb with the database of the locks.
func (a *cli) inLocker(f *lockerFlags, do func(ctx context.Context, pool *pgxpool.Pool, args []string) error) func(c *cobra.Command, args []string) error {
	return func(c *cobra.Command, args []string) error {
		return a.withDatabase(c, f, func(pool *pgxpool.Pool) error { return do(c.Context(), pool, args) })
	}
}

func (out *output) printRows(rows []locker.Row) error {
	l := newListing("KEY, STATE, HOLDER, >AGE, >TTL, >SEQUENCE, +IDENTIFIER")
	for _, r := range rows {
		v := viewRow(r)
		var old, left string
		if v.AgeS != nil {
			old = view.Age(max(0, r.Age))
		}
		if v.TTLS != nil {
			left = view.Age(r.Left)
		}
		key := r.Key
		if out.flags.output != outWide { // a long key must not push the other columns away
			key = wire.Printable(key, maxKeyCell)
		}
		l.add(r.Key, v, key, v.State, holderName(r.LockedBy), old, left, fmt.Sprint(r.Sequence), r.LockedBy)
	}
	if len(rows) == 0 && out.flags.output == outTable {
		out.note("no locks")
	}
	return out.print(l)
}

func (a *cli) lockerReleaseCommand(f *lockerFlags) *cobra.Command {
	var force, now bool
	return a.command(verb{
		use: "release KEY", kind: noRedis, short: "release a lock whose holder is gone, or with --force any",
		long: `Release a lock whose lease is over or, with --force, one that is held. Its
holder ends the command; the next one gets the lock then, or when the lease
ends. With --now the next one gets it at once and may run alongside a holder
that still works: use it for a holder known to be dead.

Exit codes: 1 the lock is held, 4 no such lock.`,
		args: exactly(1, "a key"),
		flags: func(f *flagSet) {
			f.BoolVar(&force, "force", false, "release a held lock after its holder has ended")
			f.BoolVar(&now, "now", false, "release a held lock at once, although its holder may work")
		},
		do: a.inLocker(f, func(ctx context.Context, pool *pgxpool.Pool, args []string) error {
			rows, err := locker.List(ctx, pool, f.table, args[0])
			if err != nil {
				return err
			}
			if len(rows) == 0 {
				return notFound("lock", args[0], nil, a.name+" locker ls")
			}
			r, key := rows[0], wire.Printable(args[0], 200)
			switch {
			case r.LockedBy == "":
				a.note("%q is free", key)
				return nil
			case r.Held() && !force && !now:
				return failure("held", "--force releases it while its holder works.",
					"%q is held by %s for %s more", key, holderName(r.LockedBy), view.Age(r.Left))
			}
			take, did := locker.Break[*pgxpool.Pool], "released"
			if r.Held() && !now { // it becomes free when the holder has ended
				take, did = locker.Revoke[*pgxpool.Pool], "revoked"
			}
			if did == "released" || !r.Revoked() {
				done, err := take(ctx, pool, f.table, r)
				if err != nil {
					return err
				}
				if !done {
					return failure("changed", "", "%q has another holder by now: look again", key)
				}
			}
			switch {
			case did == "revoked":
				a.note("%s, which held %q, is told to end; the lock is free when it has, or in %s", holderName(r.LockedBy), key, view.Age(r.Left))
			case r.Held():
				a.warn("%s, which held %q, finds out with its next renewal", holderName(r.LockedBy), key)
			}
			if a.flags.quiet {
				return nil
			}
			return a.printText(did + " " + key + "\n")
		}),
	})
}

func (a *cli) lockerPruneCommand(f *lockerFlags) *cobra.Command {
	var idle time.Duration
	return a.command(verb{
		use: "prune", kind: noRedis, short: "remove the rows of unused locks",
		long: `Remove the rows of unused locks. A key that comes back continues above every
sequence ever issued.`,
		flags: func(f *flagSet) { f.span(&idle, "free-for", defaultIdle, "only locks free for this time or longer") },
		do: a.inLocker(f, func(ctx context.Context, pool *pgxpool.Pool, _ []string) error {
			n, err := locker.Prune(ctx, pool, f.table, idle)
			if err != nil {
				return err
			}
			return a.result(map[string]any{"pruned": n}, "", fmt.Sprintf("pruned %d\n", n))
		}),
	})
}

func (a *cli) lockerMigrateCommand(f *lockerFlags) *cobra.Command {
	return a.command(verb{
		use: "migrate", kind: noRedis, short: "create the table of locks",
		long: `Create the table of locks, or add what an existing one lacks. You can run it
again.`,
		do: a.inLocker(f, func(ctx context.Context, pool *pgxpool.Pool, _ []string) error {
			err := locker.Migrate(ctx, pool, f.table)
			if err == nil {
				a.note("table %s is ready", wire.Printable(f.table, 200))
			}
			return err
		}),
	})
}

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
func (out *output) postgresLocks(ctx context.Context, url, kind string, limit int) (rows []locker.Row, all bool, err error) {
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
	out.warn("locks in PostgreSQL are not shown: %s", oneLine(err))
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
