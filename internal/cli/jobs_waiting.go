package cli

import (
	"cmp"
	"context"
	"encoding/json"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/resqued/resqued/client"
	"github.com/resqued/resqued/internal/redact"
	"github.com/resqued/resqued/internal/selector"
	"github.com/resqued/resqued/internal/selector/filter"
	"github.com/resqued/resqued/internal/store"
	"github.com/resqued/resqued/internal/view"
	"github.com/resqued/resqued/internal/wire"
)

const waitingShown = 100

// queuesFor returns the queues that --queue selects; none = all. Each name must be that of a queue.
func queuesFor(ctx context.Context, s *session, f client.Filter) ([]store.QueueInfo, error) {
	list, err := s.QueueList(ctx)
	if err != nil || len(f.Queues) == 0 {
		return list, err
	}
	names := slices.DeleteFunc(slices.Clone(f.Queues), func(q string) bool { return selector.IsPattern(q) || strings.HasPrefix(q, "!") })
	if _, err := view.FindQueues(list, names); err != nil {
		return nil, s.lookup(err, "queues")
	}
	return slices.DeleteFunc(list, func(q store.QueueInfo) bool { return !selector.MatchAny(f.Queues, q.Name) }), nil
}

type waitingView struct {
	Queue    string          `json:"queue"`
	Position int64           `json:"position"`
	ID       string          `json:"id"`
	Class    string          `json:"class"`
	Args     json.RawMessage `json:"args"`
	// Wrappers are the classes around an Active Job, innermost first.
	Wrappers []string `json:"wrappers,omitempty"`
	// EnqueuedAt is null if unknown.
	EnqueuedAt *time.Time `json:"enqueued_at"`
	LongJob    string     `json:"long_job,omitempty"`
	// WaitsFor is the lock, limit or turn for which it waits in a line; without its key if arguments are hidden.
	WaitsFor string `json:"waits_for,omitempty"`
	Invalid  string `json:"invalid,omitempty"`
	Payload  string `json:"payload,omitempty"`
}

func (a *cli) jobsFindCommand() *cobra.Command {
	var o filterFlags
	var payloads bool
	return a.command(verb{
		use: "find", kind: reads, short: "find waiting jobs",
		long: `Find waiting jobs by class, arguments, id and time, or without a condition list
them. POSITION counts from 1, the next job, and changes as workers take jobs.
ID is the id in the payload, or else the beginning of its SHA-256, which equal
payloads share. AGE is an estimate for payloads without the time at which they
were enqueued; --since and --until select none of these.

"schedule" lists delayed jobs; "queues -o wide" counts jobs that wait to run
alone after their process died.`,
		example: "jobs find --class 'Mail*' --arg 0.customer=42\njobs find --queue mail --args '[42]' -o json",
		args:    exactly(0, "no arguments; see --class and --arg"),
		flags: func(f *flagSet) {
			o.add(f, filter.Waiting)
			f.limit(&o.Limit, waitingShown, 0, "most jobs (0: no limit)")
			f.BoolVar(&payloads, "payload", false, "with -o json: also the whole payloads")
		},
		run: func(ctx context.Context, s *session, _ []string) error { return findWaiting(ctx, s, o, payloads) },
	})
}

func waitingListing() *listing {
	l := newListing("QUEUE, >POSITION, ID, CLASS, ARGS, +WAITS FOR, +>AGE")
	l.columns[2].least = view.ShortID
	return l
}

func findWaiting(ctx context.Context, s *session, o filterFlags, payloads bool) error {
	queues, err := queuesFor(ctx, s, o.Filter)
	if err != nil {
		return err
	}
	ctx, stop := interruptible(ctx)
	defer stop()
	l, rules, now := waitingListing(), redact.From(ctx), time.Now()
	looked, total := 0, int64(0)
	for _, q := range queues {
		total += q.Size
	}
	bar := s.progressOf("looked at", int(total))
	for _, q := range queues {
		switch {
		case q.Err != nil:
			s.warn("queue %s: %s", wire.Printable(q.Name, 100), q.Err)
			continue
		case l.partial:
			continue
		}
		before := looked
		n, err := s.jobs.FindWaiting(filter.WithProgress(ctx, func(n int) { bar.at(before + n) }), q.Name, o.unlimited(), 0, func(j client.WaitingJob) bool {
			if l.partial = o.Limit > 0 && len(l.items) == o.Limit; !l.partial {
				addWaiting(l, rules, j, now, payloads)
			}
			return !l.partial
		})
		if looked += int(n); err != nil {
			bar.done()
			return interrupted(ctx, err)
		}
	}
	bar.done()
	if err := s.print(l); err != nil {
		return err
	}
	switch {
	case l.partial:
		s.note("only %s; there are more, see --limit", plural(len(l.items), "job"))
	case len(l.items) == 0 && s.forPeople():
		s.note("none of %s that wait", plural(int(total), "job"))
	}
	return nil
}

// showWaiting shows the jobs of these names if all of them wait; otherwise it returns unknown.
func showWaiting(ctx context.Context, s *session, names []string, unknown error) error {
	queues, err := s.QueueList(ctx)
	if err != nil {
		return err
	}
	ctx, stop := interruptible(ctx)
	defer stop()
	l, rules, now := waitingListing(), redact.From(ctx), time.Now()
	for _, name := range names {
		before := len(l.items)
		for _, q := range queues {
			_, err := s.jobs.FindWaiting(ctx, q.Name, client.Filter{IDs: []string{name}}, 0, func(j client.WaitingJob) bool {
				addWaiting(l, rules, j, now, true)
				return true
			})
			if err != nil {
				return interrupted(ctx, err)
			}
		}
		if len(l.items) == before {
			return unknown
		}
	}
	views := make([]*waitingView, len(l.items))
	for i, v := range l.items {
		views[i], _ = v.(*waitingView)
	}
	return showEach(s.output, l, views, func(v *waitingView) string {
		d := details{at: 10}
		d.line("id", v.ID)
		d.line("class", v.Class)
		d.line("args", string(v.Args))
		d.line("queue", v.Queue)
		d.line("position", strconv.FormatInt(v.Position, 10))
		d.line("waits for", cmp.Or(v.WaitsFor, "a thread"))
		if v.EnqueuedAt != nil {
			d.line("enqueued", v.EnqueuedAt.Format(time.RFC3339)+" ("+view.Since(*v.EnqueuedAt, now)+" ago)")
		}
		d.line("invalid", v.Invalid)
		d.line("payload", shownPayload(v.Payload))
		return d.String()
	})
}

func addWaiting(l *listing, rules *redact.Rules, j client.WaitingJob, now time.Time, payloads bool) {
	v := &waitingView{Queue: j.Queue, Position: j.Position, ID: j.ID, Class: j.Class, Args: rules.Args(j.Class, json.RawMessage(j.Args.String()), j.Wrappers...), Wrappers: j.Wrappers, LongJob: j.LongJob}
	class, args := j.Class, wire.ShortArgs(string(v.Args))
	if j.Invalid != nil {
		v.Invalid, v.Args = rules.Text(j.Invalid.Error()), json.RawMessage("null")
		class, args = "(invalid)", v.Invalid
	}
	if !j.EnqueuedAt.IsZero() {
		at := j.EnqueuedAt.UTC()
		v.EnqueuedAt = &at
	}
	if v.WaitsFor = j.WaitsFor; rules.Any() { // keys are made of arguments
		v.WaitsFor, _, _ = strings.Cut(strings.Replace(j.WaitsFor, "lock ", "lock:", 1), ":")
	}
	if payloads {
		v.Payload = rules.Payload(j.Payload)
	}
	l.add(j.ID, v, j.Queue, strconv.FormatInt(j.Position, 10), j.ID, class, args, wire.Printable(v.WaitsFor, 200), view.Since(j.EnqueuedAt, now))
}
