package cli

import (
	"context"
	"slices"

	"github.com/spf13/cobra"

	"github.com/resqued/resqued/internal/app"
	"github.com/resqued/resqued/internal/config"
	"github.com/resqued/resqued/internal/store"
	"github.com/resqued/resqued/internal/view"
	"github.com/resqued/resqued/internal/wire"
)

const (
	// lockLimit is how many locks are listed by default, lockCheckLimit how many --check reads.
	lockLimit       = 1000
	lockCheckLimit  = 100_000
	lockCompletions = 200
)

func (a *cli) locksCommand() *cobra.Command {
	var kind string
	var check bool
	var limit int
	kinds := []string{store.LocketLock, store.TimeoutLock, store.LonerMarker, view.DatabaseLock}
	return a.lists(verb{
		use: "locks", kind: shows, short: "list locks and who holds them, or release one",
		long: `List locks and who holds them. KIND is

  locket    a job lock: of jobs with the same key one runs at a time
  timeout   a class lock, perhaps with a time limit
  loner     the marker of a waiting job that keeps equal ones out
  postgres  a lock of a class or another program in locker's table, where
            database_url names a PostgreSQL

STATE is

  held     its job runs or, for a marker, waits
  stale    its job's process has no lease: it is dead, or cut off from Redis;
           the lock goes when the job is recovered
  expired  its time is over, but its job still runs or waits; in PostgreSQL its
           holder is dead or cut off, and the next job takes it over
  orphan   its job is gone; the next job takes it over
  foreign  another program's, such as a Ruby gem's; no more is known

--redis-url shows locks kept in another Redis; their holders are not known
there, so none is called an orphan. Release those in PostgreSQL with "locker
release".`,
		example: "locks --kind timeout\nlocks --check\nlocks release lock:Graph:42",
		flags: func(f *flagSet) {
			f.StringVar(&kind, "kind", "", "only this kind: locket, timeout, loner or postgres")
			f.check(func() error {
				if kind != "" && !slices.Contains(kinds, kind) {
					return usage("", "--kind %q: use locket, timeout, loner or postgres", wire.Printable(kind, 200))
				}
				return nil
			})
			f.completers["kind"] = words(kinds...)
			f.limit(&limit, lockLimit, 1, "most locks")
			f.BoolVar(&check, "check", false, "exit code 3 if there are orphans")
		},
		do: func(c *cobra.Command, _ []string) error {
			most := limit
			if check && !c.Flags().Changed("limit") {
				most = lockCheckLimit
			}
			r, err := a.load(c)
			if err != nil {
				return err
			}
			return a.listLocks(c.Context(), r.Config, kind, most, check)
		},
	}, "list locks (default)",
		a.locksShowCommand(), a.locksReleaseCommand(), a.locksWaitingCommand(), a.locksUniqueCommand(), a.locksRepairCommand())
}

func (a *cli) listLocks(ctx context.Context, c config.Config, kind string, limit int, check bool) error {
	l := lockListing()
	shown, orphans := 0, 0
	if kind != view.DatabaseLock {
		s, err := app.OpenStore(c, "resqued-cli")
		if err != nil {
			return err
		}
		defer func() { _ = s.Close() }()
		locks, cut, err := view.Locks(ctx, s, kind, limit)
		if err != nil {
			return err
		}
		for _, lock := range locks {
			if lock.State == store.LockOrphan {
				orphans++
			}
			l.addLock(lock)
		}
		shown, l.partial = len(locks), cut
	}
	cut := l.partial
	if kind == "" || kind == view.DatabaseLock {
		rows, all, err := a.postgresLocks(ctx, c.DatabaseURL, kind, limit-shown)
		if err != nil {
			return err
		}
		for _, r := range rows {
			l.addRow(ctx, r)
		}
		shown, cut = shown+len(rows), cut || len(rows) > 0 && !all
		l.partial = l.partial || !all
	}
	if err := a.print(l); err != nil {
		return err
	}
	if cut {
		a.note("only %s are shown; there are more, see --limit", plural(shown, "lock"))
	}
	if shown == 0 && a.forPeople() {
		a.note("no locks")
	}
	if check && orphans > 0 {
		a.note("%s without a job; see: %s locks release --help", plural(orphans, "lock"), a.again())
		return exitCode(exitUnhealthy)
	}
	return nil
}

func lockListing() *listing {
	return newListing("KIND, KEY, HOLDER, >AGE, >TTL, STATE, +QUEUE, +ARGS, +>LIMIT, +PROCESS, +VALUE").paints("STATE", lockColours)
}

func (l *listing) addLock(v *view.Lock) {
	job := v.Info.Job
	if job == nil {
		job = &store.LockJob{}
	}
	held := ""
	if d := v.Info.Age(); d > 0 {
		held = view.Age(d)
	}
	value := v.Info.Value
	item := *v
	l.add(v.Key, &item, v.Kind, v.Key, v.HolderText(), held, lockTTL(v), v.State,
		job.Queue, v.ArgsText(), lockLimitText(v), v.Info.Proc, value)
}

func lockTTL(v *view.Lock) string {
	switch {
	case v.Info.TTL >= 0:
		return view.Age(v.Info.TTL)
	case v.Info.Expires.IsZero():
		return "none"
	}
	return lockLimitText(v) // the gem leaves the key to the next holder
}

// lockLimitText returns when a class lock's or marker's time is over, or "".
func lockLimitText(v *view.Lock) string {
	if v.Info.Expires.IsZero() {
		return ""
	}
	if left := v.Info.Expires.Sub(v.Info.At); left > 0 {
		return view.Age(left)
	}
	return "past"
}

var lockColours = colours{store.LockHeld: green, store.LockOrphan: red, store.LockStale: yellow, store.LockExpired: yellow}
