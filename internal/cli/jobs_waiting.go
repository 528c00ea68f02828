package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/resqued/resqued"
	"github.com/resqued/resqued/client"
	"github.com/resqued/resqued/internal/config"
	"github.com/resqued/resqued/internal/selector"
	"github.com/resqued/resqued/internal/store"
	"github.com/resqued/resqued/internal/view"
	"github.com/resqued/resqued/internal/wire"
)

const (
	// waitingShown is how many waiting jobs are listed unless told otherwise.
	waitingShown = 100
	// waitingLook is at how many jobs "jobs find" looks unless told otherwise.
	waitingLook = 10000
)

// waitingFlags are the flags that select waiting jobs.
type waitingFlags struct {
	filter        client.WaitingFilter
	queues        []string
	args, pattern string
	older         time.Duration
}

// waitingFilters are those that are conditions on a job.
var waitingFilters = []string{"id", "class", "args", "match", "older-than"}

func (o *waitingFlags) add(c *cobra.Command, a *cli) {
	f := c.Flags()
	f.StringSliceVar(&o.queues, "queue", nil, "only in these `queues`; * ? [a-z] and ! as in the configuration")
	f.StringSliceVar(&o.filter.Classes, "class", nil, "jobs of these `classes`; * ? [a-z] and ! as with queues")
	f.StringSliceVar(&o.filter.IDs, "id", nil, `jobs with these ids, as "jobs find" shows them`)
	f.StringVar(&o.args, "args", "", "jobs with exactly these arguments, a `JSON` array such as [42,\"de\"]")
	f.StringVar(&o.pattern, "match", "", "whose arguments, written as JSON, fit this `regexp` somewhere")
	f.DurationVar(&o.older, "older-than", 0, `that were enqueued longer ago; only jobs whose payload holds "enqueued_at"`)
	_ = c.RegisterFlagCompletionFunc("queue", a.live(queueNames))
	_ = c.RegisterFlagCompletionFunc("class", a.live(a.classNames))
	for _, flag := range []string{"id", "args", "match", "older-than"} {
		_ = c.RegisterFlagCompletionFunc(flag, cobra.NoFileCompletions)
	}
}

// resolve completes the filter.
func (o *waitingFlags) resolve(c *cobra.Command, now time.Time) (err error) {
	for flag, list := range map[string][]string{"queue": o.queues, "class": o.filter.Classes} {
		if err := selector.CheckSet(list); err != nil {
			return usage("", "--%s: %s", flag, err)
		}
	}
	if c.Flags().Changed("args") {
		var args []json.RawMessage
		if err := json.Unmarshal([]byte(o.args), &args); err != nil || args == nil {
			return usage(`Write all arguments as one JSON array, such as [42,"de"]; --match looks for a part.`, "--args %q is no JSON array", o.args)
		}
		list := make(resqued.Args, len(args))
		copy(list, args)
		o.filter.Args = list
	}
	if o.pattern != "" {
		if o.filter.Pattern, err = regexp.Compile(o.pattern); err != nil {
			return usage("", "--match %q: %s", o.pattern, err)
		}
	}
	for _, id := range o.filter.IDs {
		if len(id) < 8 {
			return usage("", "--id %q: write eight characters of it or more", id)
		}
	}
	switch {
	case o.filter.Limit < 0:
		return usage("", "--limit %d: use 0 or more", o.filter.Limit)
	case o.older < 0:
		return usage("", "--older-than %s: a time must not be negative", o.older)
	case o.older > 0:
		o.filter.Before = now.Add(-o.older)
	}
	return nil
}

// pick returns the queues that --queue selects, by name; none = all. A name that stands for no
// queue is refused.
func (o *waitingFlags) pick(ctx context.Context, s *store.Store, a *cli, c *cobra.Command) ([]store.QueueInfo, error) {
	list, err := s.QueueList(ctx)
	if err != nil || len(o.queues) == 0 {
		return list, err
	}
	var names []string
	for _, q := range o.queues {
		if !strings.ContainsAny(q, "*?[!") {
			names = append(names, q)
		}
	}
	if _, err := view.FindQueues(list, names); err != nil {
		return nil, a.noQueue(c, err)
	}
	return slices.DeleteFunc(list, func(q store.QueueInfo) bool { return !selector.MatchAny(o.queues, q.Name) }), nil
}

// waitingView is one waiting job in results.
type waitingView struct {
	Queue    string          `json:"queue"`
	Position int64           `json:"position"`
	ID       string          `json:"id"`
	Class    string          `json:"class"`
	Args     json.RawMessage `json:"args"`
	// EnqueuedAt is null where the payload does not hold it.
	EnqueuedAt *time.Time `json:"enqueued_at"`
	LongJob    string     `json:"long_job,omitempty"`
	Invalid    string     `json:"invalid,omitempty"`
	Payload    string     `json:"payload,omitempty"`
}

func (a *cli) jobsFindCommand() *cobra.Command {
	var o waitingFlags
	var all, payloads bool
	c := &cobra.Command{
		Use: "find", Short: "find jobs that wait in queues",
		Long: `Find jobs that wait in queues, by class, arguments, id and age. Without a condition it
lists what waits. POSITION counts from 1, the job that is next; workers take jobs meanwhile.
ID is the one in the payload, or else the beginning of its SHA-256; equal payloads share it.

It looks at the first 10,000 jobs of all these queues together, and says so if there are more;
--all looks at all of them. Jobs that wait for their time are listed by "schedule", those that
wait to run alone after their process has died are counted by "queues -o wide".`,
		Example: "  " + a.name + " jobs find --class 'Mail*' --match '\"de\"'\n  " + a.name + " jobs find --queue mail --args '[42]' -o json",
		Args:    exactly(0, "no arguments; see --class and --args"),
		RunE: func(c *cobra.Command, _ []string) error {
			if err := o.resolve(c, time.Now()); err != nil {
				return err
			}
			return a.findWaiting(c, &o, all, payloads)
		},
	}
	o.add(c, a)
	c.Flags().IntVar(&o.filter.Limit, "limit", waitingShown, "how many jobs at most (0 = any number)")
	c.Flags().BoolVar(&all, "all", false, "look at all jobs, however many wait")
	c.Flags().BoolVar(&payloads, "payload", false, "with -o json: the whole payloads, too")
	_ = c.RegisterFlagCompletionFunc("limit", cobra.NoFileCompletions)
	return c
}

// waitingColumns are those of jobs that wait.
var waitingColumns = []column{
	{title: "QUEUE"},
	{title: "POSITION", right: true},
	{title: "ID", least: 12},
	{title: "CLASS"},
	{title: "ARGS"},
	{title: "AGE", right: true, wide: true},
}

func (a *cli) findWaiting(c *cobra.Command, o *waitingFlags, all, payloads bool) error {
	var queues []store.QueueInfo
	err := a.withStore(c, func(ctx context.Context, s *store.Store) (err error) {
		queues, err = o.pick(ctx, s, a, c)
		return err
	})
	if err != nil {
		return err
	}
	l := &listing{columns: waitingColumns}
	var looked, total int64
	now, limit := time.Now(), o.filter.Limit
	err = a.withClient(c, func(ctx context.Context, jobs *client.Client, _ config.Config) error {
		for _, q := range queues {
			if q.Err != nil {
				a.warn("queue %s: %s", wire.Printable(q.Name, 100), q.Err)
				continue
			}
			total += q.Size
			if limit > 0 {
				if o.filter.Limit = limit - len(l.items); o.filter.Limit == 0 {
					continue
				}
			}
			most := int64(0)
			if !all {
				if most = waitingLook - looked; most <= 0 {
					continue
				}
			}
			n, err := jobs.FindWaiting(ctx, q.Name, o.filter, most, func(j client.WaitingJob) bool {
				a.addWaiting(l, j, now, payloads)
				return true
			})
			if err != nil {
				return err
			}
			looked += n
		}
		return nil
	})
	if err != nil {
		return err
	}
	cut := limit > 0 && len(l.items) == limit && looked < total
	l.partial = cut || looked < total
	if err := a.print(l); err != nil {
		return err
	}
	switch {
	case cut:
		a.note("only %s; there may be more, see --limit", plural(len(l.items), "job"))
	case l.partial:
		a.note("looked at %s of %s; --all for the rest", view.Grouped(looked), view.Grouped(total))
	case len(l.items) == 0 && a.flags.output != outJSON && a.flags.output != outName:
		a.note("none of %s that wait", plural(int(total), "job"))
	}
	return nil
}

func (a *cli) addWaiting(l *listing, j client.WaitingJob, now time.Time, payloads bool) {
	v := &waitingView{Queue: j.Queue, Position: j.Position, ID: j.ID, Class: j.Class, Args: json.RawMessage(j.Args.String()), LongJob: j.LongJob}
	class, args := j.Class, j.Args.String()
	if j.Invalid != nil {
		v.Invalid, v.Args = j.Invalid.Error(), json.RawMessage("null")
		class, args = "(invalid)", v.Invalid
	}
	if !j.EnqueuedAt.IsZero() {
		at := j.EnqueuedAt.UTC()
		v.EnqueuedAt = &at
	}
	if payloads {
		v.Payload = string(j.Payload)
	}
	l.add(j.ID, v, j.Queue, strconv.FormatInt(j.Position, 10), j.ID, class, args, view.Since(j.EnqueuedAt, now))
}

// waitingEdit is what "jobs rm" and "jobs move" do.
type waitingEdit struct {
	waitingFlags
	move, head, unknown bool
	to                  string
	yes, dryRun         bool
}

// waitingEditView is what became of the jobs of one queue.
type waitingEditView struct {
	Queue string `json:"queue"`
	// To is the queue that they were moved to.
	To string `json:"to,omitempty"`
	// Jobs is how many were removed or moved.
	Jobs int64 `json:"jobs"`
	// The rest are jobs that were meant and stay.
	Duplicates int64 `json:"duplicates"`
	LongJobs   int64 `json:"long_jobs"`
	Loners     int64 `json:"loners"`
	DryRun     bool  `json:"dry_run,omitempty"`
}

func (a *cli) editWaitingCommand(move bool) *cobra.Command {
	e := &waitingEdit{move: move}
	c := &cobra.Command{
		Use: "rm", Short: "remove jobs that wait in queues",
		Long: `Remove jobs that wait in queues, by class, arguments, id and age; "jobs find" with the same
flags lists them. The set and the times of a unique queue, markers of loner classes and counts
of deaths follow. On a terminal it asks first; elsewhere it needs --yes.

Jobs that run, that wait for their time ("schedule rm") or to run alone after their process has
died ("queues purge") stay. So do slices of long jobs, since the run would be taken for lost and
resumed: use "longjobs cancel".`,
		Example: "  " + a.name + " jobs rm --queue mail --class Newsletter --dry-run\n  " + a.name + " jobs rm --class Mail --args '[42]' --yes",
	}
	if move {
		c.Use, c.Short = "move --to QUEUE", "move jobs that wait to another queue"
		c.Long = `Move jobs that wait to the tail of another queue, or with --head to its head, unchanged and in
their order; "jobs find" with the same flags lists them. Each job is taken out and pushed in one
step, so whatever breaks, it waits in exactly one queue. What belongs to it follows: the set and
the times of a unique queue, the marker of a loner class, its count of deaths. A job stays if
the other queue is unique and an equal one waits there. On a terminal it asks first; elsewhere
it needs --yes.

Jobs that run, that wait for their time or to run alone ("queues move") stay, and slices of long
jobs, which go on in the queue of their run.`
		c.Example = "  " + a.name + " jobs move --queue mail --class Newsletter --to bulk\n  " + a.name + " jobs move --class Mail --args '[42]' --to mail_high --head --yes"
	}
	c.Args = func(c *cobra.Command, args []string) error {
		switch {
		case len(args) > 0:
			return usage("See: "+a.name+" jobs find", "no arguments are expected; select jobs with --class, --args, --match, --id or --older-than")
		case move && e.to == "":
			return usage("See: "+a.name+" queues", "to which queue? Use --to")
		case move && wire.CheckQueue(e.to) != nil:
			return usage("", "--to: %s", wire.CheckQueue(e.to))
		case move && slices.Contains(e.queues, e.to):
			return usage("", "--to %s: the jobs wait there already", e.to)
		case !slices.ContainsFunc(waitingFilters, c.Flags().Changed):
			whole := "queues purge QUEUE"
			if move {
				whole = "queues move QUEUE QUEUE"
			}
			return usage("Use --class, --args, --match, --id or --older-than. For all jobs of a queue: "+a.name+" "+whole, "which jobs?")
		}
		return e.resolve(c, time.Now())
	}
	c.RunE = func(c *cobra.Command, _ []string) error { return a.editWaiting(c, e) }
	e.add(c, a)
	f := c.Flags()
	f.IntVar(&e.filter.Limit, "limit", 0, "how many jobs at most, the first of each queue (0 = any number)")
	f.BoolVar(&e.yes, "yes", false, "do not ask")
	f.BoolVar(&e.dryRun, "dry-run", false, "only tell how many these are")
	_ = c.RegisterFlagCompletionFunc("limit", cobra.NoFileCompletions)
	if move {
		f.StringVar(&e.to, "to", "", "the `queue` that they are moved to")
		f.BoolVar(&e.head, "head", false, "to its head, to be taken next")
		f.BoolVar(&e.unknown, "unknown", false, "also to a queue that does not exist yet")
		_ = c.RegisterFlagCompletionFunc("to", a.live(queueNames))
	}
	return c
}

func (a *cli) editWaiting(c *cobra.Command, e *waitingEdit) error {
	var queues []store.QueueInfo
	err := a.withStore(c, func(ctx context.Context, s *store.Store) (err error) {
		if e.move {
			if err := a.targetQueue(ctx, c, s, e.to, e.unknown); err != nil {
				return err
			}
		}
		queues, err = e.pick(ctx, s, a, c)
		return err
	})
	if err != nil {
		return err
	}
	return a.withClient(c, func(ctx context.Context, jobs *client.Client, _ config.Config) error {
		var views []*waitingEditView
		for _, q := range queues {
			if q.Err != nil {
				a.warn("queue %s: %s", wire.Printable(q.Name, 100), q.Err)
				continue
			}
			if q.Size == 0 || e.move && q.Name == e.to {
				continue
			}
			if e.yes && !e.dryRun {
				views = append(views, &waitingEditView{Queue: q.Name, To: e.to})
				continue
			}
			report, err := jobs.CountWaiting(ctx, q.Name, e.filter)
			if err != nil {
				return err
			}
			if report != (client.WaitingReport{}) {
				views = append(views, e.view(q.Name, report))
			}
		}
		if e.dryRun {
			return a.tellWaiting(views, e, true)
		}
		if !e.yes && len(views) > 0 {
			if err := a.confirm(e.question(views)); err != nil {
				return err
			}
		}
		ctx, stop := interruptible(ctx)
		defer stop()
		for i, v := range views {
			report, err := e.edit(ctx, jobs, v.Queue)
			*v = *e.view(v.Queue, report)
			if err != nil {
				_ = a.tellWaiting(views[:i+1], e, false)
				return interrupted(ctx, err)
			}
		}
		return a.tellWaiting(slices.DeleteFunc(views, func(v *waitingEditView) bool {
			return v.Jobs+v.Duplicates+v.LongJobs+v.Loners == 0
		}), e, false)
	})
}

// targetQueue refuses a queue that does not exist, unless unknown ones are meant, and warns where
// it is not served or is paused.
func (a *cli) targetQueue(ctx context.Context, c *cobra.Command, s *store.Store, name string, unknown bool) error {
	found, err := view.Queues(ctx, s, name)
	var missing *view.NotFoundError
	switch {
	case errors.As(err, &missing) && unknown:
		return nil
	case errors.As(err, &missing):
		p := lookup(err, a.name+" queues; --unknown creates it", c)
		return p
	case err != nil:
		return err
	}
	switch q := found[0]; {
	case q.State == view.QueueBroken:
		return fmt.Errorf("queue %q: %s", name, q.Problem)
	case q.State == view.QueuePaused:
		a.warn("queue %s is paused; its jobs wait until: %s queues resume %s", wire.Printable(name, 100), a.name, wire.Printable(name, 100))
	case q.Served == 0:
		a.warn("no worker serves queue %s", wire.Printable(name, 100))
	}
	return nil
}

func (e *waitingEdit) edit(ctx context.Context, jobs *client.Client, queue string) (client.WaitingReport, error) {
	if e.move {
		return jobs.MoveWaiting(ctx, queue, e.to, e.filter, client.MoveOptions{Head: e.head})
	}
	return jobs.RemoveWaiting(ctx, queue, e.filter)
}

func (e *waitingEdit) view(queue string, r client.WaitingReport) *waitingEditView {
	return &waitingEditView{
		Queue: queue, To: e.to, Jobs: r.Done, Duplicates: r.Duplicates, LongJobs: r.LongJobs, Loners: r.Loners, DryRun: e.dryRun,
	}
}

// question returns what would be done.
func (e *waitingEdit) question(views []*waitingEditView) string {
	n, by := int64(0), map[string]bool{}
	for _, v := range views {
		n += v.Jobs
		by[v.Queue] = true
	}
	from := wire.Printable(strings.Join(slices.Sorted(maps.Keys(by)), ", "), 200)
	if e.move {
		return fmt.Sprintf("move %s of %s to %s", plural(int(n), "job"), from, wire.Printable(e.to, 100))
	}
	return fmt.Sprintf("remove %s of %s", plural(int(n), "job"), from)
}

func (a *cli) tellWaiting(views []*waitingEditView, e *waitingEdit, dry bool) error {
	l := &listing{}
	var text strings.Builder
	var slicesLeft int64
	did := "removed"
	switch {
	case e.move && dry:
		did = "would move"
	case e.move:
		did = "moved"
	case dry:
		did = "would remove"
	}
	for _, v := range views {
		l.names, l.items = append(l.names, v.Queue), append(l.items, v)
		fmt.Fprintf(&text, "%s %s of %s", did, plural(int(v.Jobs), "job"), wire.Printable(v.Queue, 100))
		if e.move {
			text.WriteString(" to " + wire.Printable(e.to, 100))
		}
		if v.Duplicates > 0 {
			fmt.Fprintf(&text, "; %d stay: an equal job waits in %s", v.Duplicates, wire.Printable(e.to, 100))
		}
		if v.Loners > 0 {
			fmt.Fprintf(&text, "; %d stay: the lock of their class is kept elsewhere and cannot follow", v.Loners)
		}
		text.WriteString("\n")
		slicesLeft += v.LongJobs
	}
	if len(views) == 0 {
		fmt.Fprintf(&text, "%s no job\n", did)
	}
	var err error
	switch {
	case a.flags.output == outJSON || a.flags.output == outName:
		err = a.print(l)
	case !a.flags.quiet:
		err = a.printText(text.String())
	}
	if err == nil && slicesLeft > 0 {
		stay := "stay"
		if slicesLeft == 1 {
			stay = "stays"
		}
		a.warn("%s of long jobs %s; see: %s longjobs cancel", plural(int(slicesLeft), "slice"), stay, a.name)
	}
	return err
}
