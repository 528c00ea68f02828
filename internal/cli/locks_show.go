package cli

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/resqued/resqued/internal/store"
	"github.com/resqued/resqued/internal/view"
	"github.com/resqued/resqued/internal/wire"
)

func (a *cli) locksShowCommand() *cobra.Command {
	return a.command(verb{
		use: "show KEY…", kind: shows, short: "show locks in full", args: a.some("which lock?", "locks"), names: lockKeys, run: showLocks,
	})
}

func (a *cli) locksWaitingCommand() *cobra.Command {
	var limit int
	return a.command(verb{
		use: "waiting [QUEUE…]", kind: shows, short: "list queues whose jobs wait for locks, or the lines of some",
		long: `List the queues with jobs known to be locked. STATE is starved if all of them
are; the queue is skipped until a lock is released. SINCE is how long this has
been known; it is checked again after about half a minute at most. LOCKS counts
the locks in the way. LINED locked jobs wait in a line for their lock and run
in the order they were pushed; the others were put back at the tail. For queues
that only other programs work, only LOCKED is known.

With QUEUE: list the lines of these queues, a row for each lock. STATE is ready
when the lock was released and the next job of the line may be taken.`,
		args: cobra.ArbitraryArgs, names: queueNames,
		flags: func(f *flagSet) { f.limit(&limit, lockLimit, 1, "most lines of a queue") },
		run: func(ctx context.Context, s *session, queues []string) error {
			if len(queues) == 0 {
				return listWaiting(ctx, s)
			}
			now := time.Now()
			l := newListing("QUEUE, LOCK, STATE, >JOBS, >SINCE")
			return s.ofQueues(l, queues, "line", "no jobs wait in lines", func(queue string) (bool, error) {
				lines, cut, err := view.Lines(ctx, s.Store, queue, limit)
				for _, v := range lines {
					l.add(v.Lock, v, v.Queue, v.Lock, v.State, strconv.FormatInt(v.Jobs, 10), view.Since(v.Since, now))
				}
				return cut, err
			})
		},
	})
}

func showLocks(ctx context.Context, s *session, names []string) error {
	l := lockListing()
	var locks []*view.Lock
	for _, name := range names {
		v, err := findLock(ctx, s, name)
		if err != nil {
			return err
		}
		if err := v.Detail(ctx, s.Store); err != nil {
			return err
		}
		l.addLock(v)
		locks = append(locks, v)
	}
	return showEach(s.output, l, locks, s.lockText)
}

// lockKeys are the keys of locks for completion, without the namespace.
func lockKeys(ctx context.Context, s *store.Store) ([]string, error) {
	locks, _, err := view.Locks(ctx, s, "", lockCompletions)
	keys := make([]string, len(locks))
	for i, lock := range locks {
		keys[i] = lock.Key
	}
	return keys, err
}

// findLock returns the lock that a name matches; see view.FindLock.
func findLock(ctx context.Context, s *session, name string) (*view.Lock, error) {
	lock, err := view.FindLock(ctx, s.Store, name)
	if several, ok := errors.AsType[*view.AmbiguousError](err); ok {
		keys := make([]string, len(several.Matches))
		for i, key := range several.Matches {
			keys[i] = strconv.Quote(wire.Printable(key, 0))
		}
		return nil, usage("", "%q may be any of %s: write the whole key", wire.Printable(name, 200),
			wire.Printable(strings.Join(keys, ", "), 1000))
	}
	return lock, s.lookup(err, "locks")
}

func (out *output) lockText(v *view.Lock) string {
	d := details{at: 9}
	lock := v.Info
	d.line("key", v.Key)
	d.line("kind", v.Kind)
	d.painted("state", out.paint(lockColours.of(v.State), v.State))
	d.line("holder", v.HolderText())
	if job := lock.Job; job != nil {
		d.line("worker", job.Worker)
		d.line("process", lock.Proc)
		d.line("token", lock.Token)
		d.line("queue", job.Queue)
		d.line("class", job.Class)
		d.line("args", v.ArgsText())
		if job.Fence > 0 {
			d.line("fence", strconv.FormatInt(job.Fence, 10))
		}
		if !job.Since.IsZero() {
			d.line("since", job.Since.UTC().Format(time.RFC3339)+" ("+view.Age(lock.Age())+" ago)")
		}
		payload := v.Payload
		if job.Size > int64(len(job.Payload)) {
			payload += "… (" + view.Size(job.Size) + " in all)"
		}
		d.line("payload", payload)
	} else {
		d.line("process", lock.Proc)
		d.line("token", lock.Token)
	}
	d.line("ttl", lockTTL(v))
	d.line("limit", lockLimitText(v))
	d.line("value", lock.Value)
	d.line("waiting", strings.Join(v.Waiting, ", "))
	return d.String()
}

func listWaiting(ctx context.Context, s *session) error {
	list, err := view.LockedQueues(ctx, s.Store)
	if err != nil {
		return err
	}
	now := time.Now()
	l := newListing("QUEUE, STATE, >LOCKED, >LINED, >SINCE, >LOCKS").paints("STATE", queueColours)
	for _, v := range list {
		locks := ""
		if v.Locks > 0 {
			locks = strconv.FormatInt(v.Locks, 10)
		}
		l.add(v.Queue, v, v.Queue, v.State, strconv.FormatInt(v.Locked, 10)+"/"+strconv.FormatInt(v.Size, 10), strconv.FormatInt(v.Lined, 10), view.Since(v.Since, now), locks)
	}
	return s.printOr(l, "no job is known to wait for a lock")
}
