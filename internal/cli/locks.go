package cli

import (
	"context"
	"errors"
	"fmt"
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
	l.add(v.Key, v, v.Kind, v.Key, v.HolderText(), held, lockTTL(v), v.State,
		job.Queue, v.ArgsText(), lockLimitText(v), v.Info.Proc, v.Info.Value)
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

type releaseView struct {
	Kind string `json:"kind"`
	Key  string `json:"key"`
	// State is the lock's previous state, Outcome released, refused, changed or not_found.
	State   string `json:"state"`
	Outcome string `json:"outcome"`
}

func (a *cli) locksReleaseCommand() *cobra.Command {
	var force bool
	return a.command(verb{
		use: "release KEY…", kind: edits, short: "release locks whose job is gone, or with --force any",
		long: `Release locks whose job is gone, whose process has no lease or, with --force,
any. KEY is what "locks" shows, or the key with its namespace.

If the job still runs, kill it instead: its lock goes with it. If you release
the lock anyway, the job is killed at the next beat of its process, a few
seconds later; until then another job may run as well. Whether another
program's lock is in use is unknown, so it needs --force too.

Exit codes: 1 a lock was refused, 4 no such lock.`,
		example: "locks release loner:lock:Export:7",
		args:    a.some("which lock?", "locks"), names: lockKeys,
		flags: func(f *flagSet) { f.BoolVar(&force, "force", false, "release a lock whose job may still run") },
		run:   func(ctx context.Context, s *session, args []string) error { return releaseLocks(ctx, s, args, force) },
	})
}

func releaseLocks(ctx context.Context, s *session, names []string, force bool) error {
	l := &listing{}
	refused := &problem{exit: exitOK}
	refuse := func(exit int, code, line string) {
		if refused.exit != exitFailed { // a refusal weighs more
			refused.exit, refused.code = exit, code
		}
		refused.lines = append(refused.lines, line)
	}
	for _, name := range names {
		lock, err := findLock(ctx, s, name)
		outcome, found := "", false
		if err == nil {
			outcome, found, err = s.RemoveLock(ctx, lock.Info, force)
		}
		var missing *problem
		switch {
		case errors.As(err, &missing) && missing.exit == exitNotFound:
			refuse(exitNotFound, missing.code, missing.lines[0])
			if len(names) == 1 {
				refused.hint = missing.hint
			}
			l.items = append(l.items, releaseView{Key: name, Outcome: "not_found"})
			continue
		case err != nil:
			// Report the locks that were released before the error.
			return errors.Join(err, s.tell(l))
		case !found:
			refuse(exitNotFound, "not_found", fmt.Sprintf("lock %q is gone by now", wire.Printable(lock.Key, 200)))
			outcome = "not_found"
		case outcome == store.LockReleased:
			s.did(store.EventReleased, "lock "+lock.Key, "its state was: "+lock.State, 1)
			l.names = append(l.names, lock.Key)
			l.lines.WriteString("released " + wire.Printable(lock.Key, 0) + "\n")
			if lock.State == store.LockHeld && lock.Kind != store.LonerMarker {
				s.warn("the job that held %q finds out with its process's next beat", wire.Printable(lock.Key, 200))
			}
		case outcome == store.LockChanged:
			refuse(exitFailed, "changed", fmt.Sprintf("lock %q has another holder by now: look again", wire.Printable(lock.Key, 200)))
		default:
			refuse(exitFailed, "held", refusal(lock, s.again()))
		}
		l.items = append(l.items, releaseView{Kind: lock.Kind, Key: lock.Key, State: lock.State, Outcome: outcome})
	}
	if err := s.tell(l); err != nil || refused.exit == exitOK {
		return err
	}
	return refused
}

// refusal returns why a lock was not released, and what to do instead. again is the start of a
// command.
func refusal(v *view.Lock, again string) string {
	key := wire.Printable(v.Key, 200)
	job := v.Info.Job
	switch {
	case v.State == store.LockForeign:
		return fmt.Sprintf("lock %q is not resqued's, so whether it is in use is not known; --force releases it anyway", key)
	case job == nil:
		return fmt.Sprintf("lock %q is held by %q, of which nothing more is known here; --force releases it anyway",
			key, wire.Printable(v.Info.Proc, 200))
	case v.Kind == store.LonerMarker:
		return fmt.Sprintf("the job of %q waits in %q; --force lets an equal one wait as well", key, wire.Printable(job.Queue, 200))
	}
	text := fmt.Sprintf("lock %q is held by %s, running for %s as %s", key, jobText(job.Class, v.ArgsText()),
		view.Age(v.Info.Age()), wire.Printable(wire.WorkerText(job.Worker), 200))
	if name, err := wire.ParseWorkerID(job.Worker); err == nil && name.Ours {
		text += fmt.Sprintf("; %s jobs kill %s kills it, and the lock goes with it", again,
			wire.Printable(store.RunName{Proc: v.Info.Proc, Token: v.Info.Token}.String(), 200))
	}
	return text + "; --force releases the lock while the job runs"
}
