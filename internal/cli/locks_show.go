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
	return &cobra.Command{
		Use: "show KEY…", Annotations: shows, Short: "show locks in full",
		Args: someKeys, ValidArgsFunction: a.live(lockKeys),
		RunE: func(c *cobra.Command, args []string) error {
			return a.withStore(c, func(ctx context.Context, s *store.Store) error { return a.showLocks(ctx, s, args) })
		},
	}
}

func (a *cli) locksWaitingCommand() *cobra.Command {
	limit := lockLimit
	c := &cobra.Command{
		Use: "waiting [QUEUE…]", Annotations: shows, Short: "list queues whose jobs wait for locks, or the lines of some",
		Long: `List the queues with jobs known to be locked. STATE is starved if all of them
are; the queue is skipped until a lock is released. SINCE is how long this has
been known; it is checked again after about half a minute at most. LOCKS counts
the locks in the way. LINED locked jobs wait in a line for their lock and run
in the order they were pushed; the others were put back at the tail. For queues
that only other programs work, only LOCKED is known.

With QUEUE: list the lines of these queues, a row for each lock. STATE is ready
when the lock was released and the next job of the line may be taken.`,
		Args: cobra.ArbitraryArgs, ValidArgsFunction: a.live(queueNames),
		RunE: func(c *cobra.Command, queues []string) error {
			if len(queues) == 0 {
				return a.withStore(c, a.listWaiting)
			}
			if limit < 1 {
				return usage("", "--limit %d: use 1 or more", limit)
			}
			return a.withStore(c, func(ctx context.Context, s *store.Store) error { return a.listLines(ctx, s, queues, limit) })
		},
	}
	c.Flags().IntVar(&limit, "limit", lockLimit, "most lines of a queue")
	return c
}

func (a *cli) listLines(ctx context.Context, s *store.Store, queues []string, limit int) error {
	now := time.Now()
	l := &listing{columns: []column{
		{title: "QUEUE"},
		{title: "LOCK"},
		{title: "STATE"},
		{title: "JOBS", right: true},
		{title: "SINCE", right: true},
	}}
	shown := 0
	for _, queue := range queues {
		lines, cut, err := view.Lines(ctx, s, queue, limit)
		if err != nil {
			return err
		}
		for _, v := range lines {
			l.add(v.Lock, v, v.Queue, v.Lock, v.State, strconv.FormatInt(v.Jobs, 10), view.Since(v.Since, now))
		}
		shown, l.partial = shown+len(lines), l.partial || cut
	}
	if l.partial {
		a.note("only %s are shown; there are more, see --limit", plural(shown, "line"))
	}
	if shown == 0 && a.forPeople() {
		a.note("no jobs wait in lines")
	}
	return a.print(l)
}

func someKeys(c *cobra.Command, args []string) error {
	if len(args) == 0 {
		return usage("See: "+c.Parent().CommandPath(), "which lock?")
	}
	return nil
}

func (a *cli) showLocks(ctx context.Context, s *store.Store, names []string) error {
	l := lockListing()
	var b strings.Builder
	for i, name := range names {
		v, err := a.findLock(ctx, s, name)
		if err != nil {
			return err
		}
		if err := v.Detail(ctx, s); err != nil {
			return err
		}
		l.addLock(v)
		if i > 0 {
			b.WriteByte('\n')
		}
		b.WriteString(a.lockText(v))
	}
	if !a.forPeople() {
		return a.print(l)
	}
	return a.printText(b.String())
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
func (a *cli) findLock(ctx context.Context, s *store.Store, name string) (*view.Lock, error) {
	lock, err := view.FindLock(ctx, s, name)
	if several, ok := errors.AsType[*view.AmbiguousError](err); ok {
		keys := make([]string, len(several.Matches))
		for i, key := range several.Matches {
			keys[i] = strconv.Quote(wire.Printable(key, 0))
		}
		return nil, usage("", "%q may be any of %s: write the whole key", wire.Printable(name, 200),
			wire.Printable(strings.Join(keys, ", "), 1000))
	}
	return lock, lookup(err, a.again()+" locks", nil)
}

func (a *cli) lockText(v *view.Lock) string {
	var b strings.Builder
	line := func(name, value string) {
		if value != "" {
			b.WriteString(name + strings.Repeat(" ", 9-len(name)) + wire.Printable(value, 0) + "\n")
		}
	}
	lock := v.Info
	line("key", v.Key)
	line("kind", v.Kind)
	b.WriteString("state    " + a.paint(lockColour(v.State), v.State) + "\n")
	line("holder", v.HolderText())
	if job := lock.Job; job != nil {
		line("worker", job.Worker)
		line("process", lock.Proc)
		line("token", lock.Token)
		line("queue", job.Queue)
		line("class", job.Class)
		line("args", v.ArgsText())
		if job.Fence > 0 {
			line("fence", strconv.FormatInt(job.Fence, 10))
		}
		if !job.Since.IsZero() {
			line("since", job.Since.UTC().Format(time.RFC3339)+" ("+view.Age(lock.Age())+" ago)")
		}
		payload := v.Payload
		if job.Size > int64(len(job.Payload)) {
			payload += "… (" + view.Size(job.Size) + " in all)"
		}
		line("payload", payload)
	} else {
		line("process", lock.Proc)
		line("token", lock.Token)
	}
	line("ttl", lockTTL(v))
	line("limit", lockLimitText(v))
	line("value", lock.Value)
	line("waiting", strings.Join(v.Waiting, ", "))
	return b.String()
}

func (a *cli) listWaiting(ctx context.Context, s *store.Store) error {
	list, err := view.LockedQueues(ctx, s)
	if err != nil {
		return err
	}
	now := time.Now()
	l := &listing{columns: []column{
		{title: "QUEUE"},
		{title: "STATE", colour: queueColour},
		{title: "LOCKED", right: true},
		{title: "LINED", right: true},
		{title: "SINCE", right: true},
		{title: "LOCKS", right: true},
	}}
	for _, v := range list {
		locks := ""
		if v.Locks > 0 {
			locks = strconv.FormatInt(v.Locks, 10)
		}
		l.add(v.Queue, v, v.Queue, v.State, strconv.FormatInt(v.Locked, 10)+"/"+strconv.FormatInt(v.Size, 10), strconv.FormatInt(v.Lined, 10), view.Since(v.Since, now), locks)
	}
	if len(list) == 0 && a.forPeople() {
		a.note("no job is known to wait for a lock")
	}
	return a.print(l)
}
