package cli

import (
	"fmt"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/spf13/cobra"

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
	return &cobra.Command{
		Use: "ls", Annotations: shows, Short: "list locks",
		Long: `List the locks of the table: held ones, "expired" ones, whose holder died, and
free ones, which keep their sequence.`,
		Args: exactly(0, "no arguments"),
		RunE: func(c *cobra.Command, _ []string) error {
			return a.withDatabase(c, f, func(pool *pgxpool.Pool) error {
				rows, err := locker.List(c.Context(), pool, f.table)
				if err != nil {
					return err
				}
				return a.printRows(rows)
			})
		},
	}
}

func (a *cli) printRows(rows []locker.Row) error {
	l := &listing{columns: []column{
		{title: "KEY"},
		{title: "STATE"},
		{title: "HOLDER"},
		{title: "AGE", right: true},
		{title: "TTL", right: true},
		{title: "SEQUENCE", right: true},
		{title: "IDENTIFIER", wide: true},
	}}
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
		if a.flags.output != outWide { // a long key must not push the other columns away
			key = wire.Printable(key, maxKeyCell)
		}
		l.add(r.Key, v, key, v.State, holderName(r.LockedBy), old, left, fmt.Sprint(r.Sequence), r.LockedBy)
	}
	if len(rows) == 0 && a.flags.output == outTable {
		a.note("no locks")
	}
	return a.print(l)
}

func (a *cli) lockerReleaseCommand(f *lockerFlags) *cobra.Command {
	var force, now bool
	c := &cobra.Command{
		Use: "release KEY", Annotations: noRedis, Short: "release a lock whose holder is gone, or with --force any",
		Long: `Release a lock whose lease is over or, with --force, one that is held. Its
holder ends the command; the next one gets the lock then, or when the lease
ends. With --now the next one gets it at once and may run alongside a holder
that still works: use it for a holder known to be dead.

Exit codes: 1 the lock is held, 4 no such lock.`,
		Args: exactly(1, "a key"),
		RunE: func(c *cobra.Command, args []string) error {
			return a.withDatabase(c, f, func(pool *pgxpool.Pool) error {
				rows, err := locker.List(c.Context(), pool, f.table, args[0])
				switch {
				case err != nil:
					return err
				case len(rows) == 0:
					return notFound("lock", args[0], nil, a.name+" locker ls")
				}
				r, key := rows[0], wire.Printable(args[0], 200)
				switch {
				case r.LockedBy == "":
					a.note("%q is free", key)
					return nil
				case r.Held() && !force && !now:
					return &problem{
						exit: exitFailed, code: "held", hint: "--force releases it while its holder works.",
						lines: []string{fmt.Sprintf("%q is held by %s for %s more", key, holderName(r.LockedBy), view.Age(r.Left))},
					}
				}
				if r.Held() && !now {
					return a.revoke(c, pool, f.table, r, key)
				}
				done, err := locker.Break(c.Context(), pool, f.table, r)
				switch {
				case err != nil:
					return err
				case !done:
					return &problem{exit: exitFailed, code: "changed", lines: []string{fmt.Sprintf("%q has another holder by now: look again", key)}}
				case r.Held():
					a.warn("%s, which held %q, finds out with its next renewal", holderName(r.LockedBy), key)
				}
				if a.flags.quiet {
					return nil
				}
				return a.printText("released " + key + "\n")
			})
		},
	}
	c.Flags().BoolVar(&force, "force", false, "release a held lock after its holder has ended")
	c.Flags().BoolVar(&now, "now", false, "release a held lock at once, although its holder may work")
	return c
}

// revoke takes a lock from its holder. It becomes free when the holder has ended.
func (a *cli) revoke(c *cobra.Command, pool *pgxpool.Pool, table string, r locker.Row, key string) error {
	if !r.Revoked() {
		done, err := locker.Revoke(c.Context(), pool, table, r)
		if err != nil {
			return err
		}
		if !done {
			return &problem{exit: exitFailed, code: "changed", lines: []string{fmt.Sprintf("%q has another holder by now: look again", key)}}
		}
	}
	a.note("%s, which held %q, is told to end; the lock is free when it has, or in %s", holderName(r.LockedBy), key, view.Age(r.Left))
	if a.flags.quiet {
		return nil
	}
	return a.printText("revoked " + key + "\n")
}

func (a *cli) lockerPruneCommand(f *lockerFlags) *cobra.Command {
	idle := defaultIdle
	c := &cobra.Command{
		Use: "prune", Annotations: noRedis, Short: "remove the rows of unused locks",
		Long: `Remove the rows of locks that have been free for --older-than. A key that comes
back continues above every sequence ever issued.`,
		Args: exactly(0, "no arguments"),
		RunE: func(c *cobra.Command, _ []string) error {
			if idle < 0 {
				return usage("", "--older-than %s: must not be negative", idle)
			}
			return a.withDatabase(c, f, func(pool *pgxpool.Pool) error {
				n, err := locker.Prune(c.Context(), pool, f.table, idle)
				if err != nil {
					return err
				}
				switch {
				case a.flags.output == outJSON:
					return a.printJSON(map[string]any{"pruned": n})
				case a.flags.quiet, a.flags.output == outName:
					return nil
				}
				return a.printText(fmt.Sprintf("pruned %d\n", n))
			})
		},
	}
	durationVar(c.Flags(), &idle, "older-than", idle, "only locks free longer than this")
	return c
}

func (a *cli) lockerMigrateCommand(f *lockerFlags) *cobra.Command {
	return &cobra.Command{
		Use: "migrate", Annotations: noRedis, Short: "create the table of locks",
		Long: `Create the table of locks, or add what an existing one lacks. You can run it
again.`,
		Args: exactly(0, "no arguments"),
		RunE: func(c *cobra.Command, _ []string) error {
			return a.withDatabase(c, f, func(pool *pgxpool.Pool) error {
				if err := locker.Migrate(c.Context(), pool, f.table); err != nil {
					return err
				}
				a.note("table %s is ready", wire.Printable(f.table, 200))
				return nil
			})
		},
	}
}
