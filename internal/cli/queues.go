package cli

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/resqued/resqued/internal/config"
	"github.com/resqued/resqued/internal/view"
	"github.com/resqued/resqued/internal/wire"
)

const maxShown = 10

func (a *cli) queuesCommand() *cobra.Command {
	limit := int64(maxShown)
	show := a.command(verb{
		use: "show QUEUE…", kind: shows, short: "show the first jobs of a queue", args: a.someQueues(), names: queueNames,
		flags: func(f *flagSet) { f.Int64Var(&limit, "limit", maxShown, "most jobs of each queue") },
		run:   func(ctx context.Context, s *session, args []string) error { return showQueues(ctx, s, args, limit) },
	})
	return a.lists(verb{
		use: "queues [QUEUE…]", kind: shows, short: "list queues, or show what waits in them",
		long: `List queues, or show what waits in them. STATE is

  run      a worker serves the queue
  starved  a worker does, but at its last try all jobs were locked
  orphan   jobs wait and no worker serves it
  idle     no worker serves it and it is empty
  paused   its jobs wait until "queues resume"
  broken   its key in Redis is not a list

WHY says why its jobs wait, as far as Redis knows: another queue comes first
and no thread is free, capped, paused (by which key), locked, its daemons are
paused or draining, or no worker has it. It is empty if a job can be taken;
"queues show" gives the reason for each daemon.

OLDEST needs jobs that say when they were pushed; plain Resque payloads do not.
CAP is the most threads of one daemon for the queue. SUSPECTS (-o wide) are
jobs whose worker process died; they wait outside the queue to run alone.`,
		example: "queues\nqueues show mail --limit 3",
		args:    cobra.ArbitraryArgs, names: queueNames, list: listQueues,
	}, "list queues (default)",
		show, a.tenantsCommand(), a.moveQueueCommand(), a.pruneQueuesCommand(), a.pauseQueuesCommand(), a.resumeQueuesCommand(),
		a.removeQueuesCommand(true), a.removeQueuesCommand(false), a.unlineQueuesCommand())
}

func (a *cli) someQueues() cobra.PositionalArgs { return a.some("which queue?", "queues") }

func listQueues(ctx context.Context, s *session, names []string) (*listing, error) {
	views, err := view.Queues(ctx, s, names...)
	if err != nil {
		return nil, s.lookup(err, "queues")
	}
	now := time.Now()
	l := newListing("QUEUE, STATE, >SIZE, >OLDEST, >BUSY, >CAP, WHY, +>SUSPECTS, +>SERVED BY, +>WITHIN, +PROBLEM").paints("STATE", queueColours)
	for _, v := range views {
		v.Servers, v.Store = nil, s.listed
		l.add(v.Queue, v, v.Queue, v.State, optional(v.Size), oldestText(v, now), strconv.Itoa(v.Busy),
			optional(v.Cap), v.Why, strconv.FormatInt(v.Suspects, 10), plural(v.Served, "thread"), promised(v), v.Problem)
	}
	if len(views) == 0 && s.forPeople() {
		s.note("no queues yet: a queue exists from the first job that is pushed to it")
	}
	return l, nil
}

// promised is how long the jobs of a queue may wait; "" = any time.
func promised(v *view.Queue) string {
	if v.WithinS == nil {
		return ""
	}
	return config.FormatDuration(time.Duration(*v.WithinS) * time.Second)
}

// oldestText is how long the first job has waited, and whether that is too long.
func oldestText(v *view.Queue, now time.Time) string {
	text := v.OldestMark() + view.Since(v.Oldest, now)
	if v.Late {
		text += " late"
	}
	return text
}

func showQueues(ctx context.Context, s *session, names []string, limit int64) error {
	if limit < 0 {
		return usage("", "--limit %d: use 0 or more", limit)
	}
	views, err := view.Queues(ctx, s, names...)
	if err != nil {
		return s.lookup(err, "queues")
	}
	l := newListing("QUEUE, >#, CLASS, ARGS")
	for _, v := range views {
		partial, err := v.ReadJobs(ctx, s, 0, limit)
		if err != nil {
			return err
		}
		l.partial = l.partial || partial
		for _, job := range v.Jobs {
			class, args := job.Class, wire.ShortArgs(string(job.Args))
			if job.Invalid != "" {
				class, args = "(invalid)", job.Invalid
			}
			l.rows = append(l.rows, []string{v.Queue, strconv.FormatInt(job.Position, 10), class, args})
		}
		s.noteServers(v)
		l.names = append(l.names, v.Queue)
		l.items = append(l.items, v)
	}
	return s.printOr(l, "no job waits in %s", wire.Printable(strings.Join(names, ", "), 200))
}

// noteServers prints why the jobs of a queue wait, and its workers.
func (out *output) noteServers(v *view.Queue) {
	if v.Why == "" || !out.forPeople() {
		return
	}
	out.note("%s waits: %s", wire.Printable(v.Queue, 200), wire.Printable(v.Why, 500))
	for i, s := range v.Servers {
		if i == maxShown {
			out.note("  and %d more; see -o json", len(v.Servers)-i)
			break
		}
		place := ""
		if s.Place > 0 {
			place = fmt.Sprintf(", looks at it as number %d", s.Place)
		}
		limit := ""
		if s.Cap > 0 {
			limit = fmt.Sprintf(", %d of at most %d of its jobs run there", s.Busy, s.Cap)
		}
		out.note("  %s: %s, %d of %s free%s%s", wire.Printable(s.Worker, 200), wire.Printable(s.State, 40), s.Free, plural(s.Threads, "thread"), place, limit)
	}
}

func (a *cli) tenantsCommand() *cobra.Command {
	var limit int
	return a.command(verb{
		use: "tenants QUEUE…", kind: reads, short: "list the tenants of fair queues",
		long: `List the tenants of fair queues with waiting jobs, the next one first, and how
many jobs each has. "(back)" are jobs of all tenants that came back without
having run: they are next. Missing are jobs that no worker process has moved to
a line yet, which takes a moment, and jobs that wait for a lock, see "locks
waiting".`,
		args: a.someQueues(), names: queueNames,
		flags: func(f *flagSet) { f.limit(&limit, lockLimit, 1, "most tenants of a queue") },
		run: func(ctx context.Context, s *session, queues []string) error {
			l := newListing("QUEUE, TENANT, >JOBS")
			return s.ofQueues(l, queues, "tenant", "no jobs wait for the turn of a tenant", func(queue string) (bool, error) {
				tenants, cut, err := view.Tenants(ctx, s.Store, queue, limit)
				for _, v := range tenants {
					name := v.Tenant
					switch {
					case v.Back:
						name = "(back)"
					case name == "":
						name = "(none)"
					}
					l.add(name, v, v.Queue, name, strconv.FormatInt(v.Jobs, 10))
				}
				return cut, err
			})
		},
	})
}

// ofQueues prints what add adds to a list for each queue, or else a note. add returns whether the
// queue has more of what is listed.
func (out *output) ofQueues(l *listing, queues []string, what, nothing string, add func(queue string) (cut bool, err error)) error {
	for _, queue := range queues {
		cut, err := add(queue)
		if err != nil {
			return err
		}
		l.partial = l.partial || cut
	}
	if l.partial {
		out.note("only %s are shown; there are more, see --limit", plural(len(l.rows), what))
	}
	return out.printOr(l, "%s", nothing)
}

var queueColours = colours{
	view.QueueRuns: green, view.QueueStarved: yellow, view.QueueOrphan: yellow, view.QueuePaused: yellow, view.QueueBroken: red,
}

func optional[T int | int64](n *T) string {
	if n == nil {
		return ""
	}
	return strconv.FormatInt(int64(*n), 10)
}
