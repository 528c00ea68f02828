package cli

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/resqued/resqued/internal/store"
	"github.com/resqued/resqued/internal/view"
	"github.com/resqued/resqued/internal/wire"
)

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
		view.Age(v.Info.Age()), wire.Printable(view.WorkerText(job.Worker), 200))
	if name, err := wire.ParseWorkerID(job.Worker); err == nil && name.Ours {
		text += fmt.Sprintf("; %s jobs kill %s kills it, and the lock goes with it", again,
			wire.Printable(store.RunName{Proc: v.Info.Proc, Token: v.Info.Token}.String(), 200))
	}
	return text + "; --force releases the lock while the job runs"
}
