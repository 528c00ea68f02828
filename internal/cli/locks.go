package cli

import (
	"context"

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
	limit := lockLimit
	ls := func(c *cobra.Command, _ []string) error {
		switch kind {
		case "", store.LocketLock, store.TimeoutLock, store.LonerMarker, view.DatabaseLock:
		default:
			return usage("", "--kind %q: use locket, timeout, loner or postgres", wire.Printable(kind, 200))
		}
		if limit < 1 {
			return usage("", "--limit %d: use 1 or more", limit)
		}
		most := limit
		if check && !c.Flags().Changed("limit") {
			most = lockCheckLimit
		}
		r, err := a.load(c)
		if err != nil {
			return err
		}
		return a.listLocks(c.Context(), r.Config, kind, most, check)
	}
	flags := func(c *cobra.Command) *cobra.Command {
		c.Flags().StringVar(&kind, "kind", "", "only this kind: locket, timeout, loner or postgres")
		c.Flags().IntVar(&limit, "limit", lockLimit, "most locks")
		c.Flags().BoolVar(&check, "check", false, "exit code 3 if there are orphans")
		_ = c.RegisterFlagCompletionFunc("kind", words(store.LocketLock, store.TimeoutLock, store.LonerMarker, view.DatabaseLock))
		return c
	}
	parent := flags(&cobra.Command{
		Use: "locks", Annotations: shows, Short: "list locks and who holds them, or release one", RunE: ls,
		Long: `List locks and who holds them. KIND is

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
		Example: "  " + a.name + " locks --kind timeout\n  " + a.name + " locks --check\n" +
			"  " + a.name + " locks release lock:Graph:42",
		Args: func(c *cobra.Command, args []string) error {
			if len(args) > 0 {
				return unknownVerb(c, args[0])
			}
			return nil
		},
	})
	parent.AddCommand(
		flags(&cobra.Command{
			Use: "ls", Annotations: shows, Short: "list locks (default)", Args: exactly(0, "no arguments"), RunE: ls,
		}),
		a.locksShowCommand(), a.locksReleaseCommand(), a.locksWaitingCommand(), a.locksUniqueCommand(),
		a.locksRepairCommand())
	return parent
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
	return &listing{columns: []column{
		{title: "KIND"},
		{title: "KEY"},
		{title: "HOLDER"},
		{title: "AGE", right: true},
		{title: "TTL", right: true},
		{title: "STATE", colour: lockColour},
		{title: "QUEUE", wide: true},
		{title: "ARGS", wide: true},
		{title: "LIMIT", right: true, wide: true},
		{title: "PROCESS", wide: true},
		{title: "VALUE", wide: true},
	}}
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

func lockColour(state string) string {
	switch state {
	case store.LockHeld:
		return green
	case store.LockOrphan:
		return red
	case store.LockStale, store.LockExpired:
		return yellow
	}
	return ""
}
