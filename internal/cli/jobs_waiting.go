package cli

import (
	"context"
	"encoding/json"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/resqued/resqued"
	"github.com/resqued/resqued/client"
	"github.com/resqued/resqued/internal/redact"
	"github.com/resqued/resqued/internal/selector"
	"github.com/resqued/resqued/internal/store"
	"github.com/resqued/resqued/internal/view"
	"github.com/resqued/resqued/internal/wire"
)

const (
	waitingShown = 100
	// waitingLook is how many jobs "jobs find" reads by default.
	waitingLook = 10000
)

type waitingFlags struct {
	filter        client.WaitingFilter
	queues        []string
	args, pattern string
	older         time.Duration
}

// waitingFilters are the flags that are conditions on a job.
var waitingFilters = []string{"id", "class", "args", "match", "waiting-for"}

func (o *waitingFlags) add(f *flagSet) {
	f.StringSliceVar(&o.queues, "queue", nil, "only these `queues`, also * ? [a-z] and !")
	f.StringSliceVar(&o.filter.Classes, "class", nil, "only these `classes`, also * ? [a-z] and !")
	f.StringSliceVar(&o.filter.IDs, "id", nil, `only these ids, as "jobs find" shows them`)
	f.StringVar(&o.args, "args", "", "only these exact arguments, a `JSON` array: [42,\"de\"]")
	f.StringVar(&o.pattern, "match", "", "only if the arguments as JSON match this `regexp`")
	f.span(&o.older, "waiting-for", 0, `only jobs that have waited for this time or longer; "rm" and "move" need "enqueued_at" in the payload`)
}

func (o *waitingFlags) resolve(f *flagSet, now time.Time) (err error) {
	for flag, list := range map[string][]string{"queue": o.queues, "class": o.filter.Classes} {
		if err := selector.CheckSet(list); err != nil {
			return usage("", "--%s: %s", flag, err)
		}
	}
	if f.Changed("args") {
		var args []json.RawMessage
		if err := json.Unmarshal([]byte(o.args), &args); err != nil || args == nil {
			return usage(`Write all arguments as one JSON array, such as [42,"de"]; --match looks for a part.`, "--args %q is not a JSON array", o.args)
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
	if o.older > 0 {
		o.filter.Before = now.Add(-o.older)
	}
	return nil
}

// pick returns the queues that --queue selects; none = all. Each name must match a queue.
func (o *waitingFlags) pick(ctx context.Context, s *session) ([]store.QueueInfo, error) {
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
		return nil, s.lookup(err, "queues")
	}
	return slices.DeleteFunc(list, func(q store.QueueInfo) bool { return !selector.MatchAny(o.queues, q.Name) }), nil
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
	Invalid    string     `json:"invalid,omitempty"`
	Payload    string     `json:"payload,omitempty"`
}

func (a *cli) jobsFindCommand() *cobra.Command {
	var o waitingFlags
	var all, payloads bool
	return a.command(verb{
		use: "find", kind: reads, short: "find waiting jobs",
		long: `Find waiting jobs by class, arguments, id and age, or without a condition list
them. POSITION counts from 1, the next job, and changes as workers take jobs.
ID is the id in the payload, or else the beginning of its SHA-256, which equal
payloads share.

It looks at the first 10,000 jobs of all these queues together, and says so if
there are more; --all looks at all. "schedule" lists delayed jobs; "queues -o
wide" counts jobs that wait to run alone after their process died.`,
		example: "jobs find --class 'Mail*' --match '\"de\"'\njobs find --queue mail --args '[42]' -o json",
		args:    exactly(0, "no arguments; see --class and --args"),
		flags: func(f *flagSet) {
			o.add(f)
			f.limit(&o.filter.Limit, waitingShown, 0, "most jobs (0: no limit)")
			f.BoolVar(&all, "all", false, "look at all jobs")
			f.BoolVar(&payloads, "payload", false, "with -o json: also the whole payloads")
			f.check(func() error { return o.resolve(f, time.Now()) })
		},
		run: func(ctx context.Context, s *session, _ []string) error { return findWaiting(ctx, s, o, all, payloads) },
	})
}

func waitingListing() *listing {
	l := newListing("QUEUE, >POSITION, ID, CLASS, ARGS, +>AGE")
	l.columns[2].least = view.ShortID
	return l
}

func findWaiting(ctx context.Context, s *session, o waitingFlags, all, payloads bool) error {
	rules := view.Rules(ctx)
	queues, err := o.pick(ctx, s)
	if err != nil {
		return err
	}
	l := waitingListing()
	var looked, total int64
	now, limit := time.Now(), o.filter.Limit
	o.filter.Limit = 0 // not all that is selected is shown
	for _, q := range queues {
		if q.Err != nil {
			s.warn("queue %s: %s", wire.Printable(q.Name, 100), q.Err)
			continue
		}
		total += q.Size
		most := waitingLook - looked
		if limit > 0 && len(l.items) == limit || !all && most <= 0 {
			continue
		}
		if all {
			most = 0
		}
		n, err := s.jobs.FindWaiting(ctx, q.Name, o.filter, most, func(j client.WaitingJob) bool {
			if o.shows(rules, j) {
				addWaiting(l, rules, j, now, payloads)
			}
			return limit == 0 || len(l.items) < limit
		})
		if err != nil {
			return err
		}
		looked += n
	}
	cut := limit > 0 && len(l.items) == limit && looked < total
	l.partial = cut || looked < total
	if err := s.print(l); err != nil {
		return err
	}
	switch {
	case cut:
		s.note("only %s; there may be more, see --limit", plural(len(l.items), "job"))
	case l.partial && len(l.items) == 0:
		s.note("none of the first %s; --all looks at the other %s, too", view.Grouped(looked), view.Grouped(total-looked))
	case l.partial:
		s.note("looked at %s of %s; --all for the rest", view.Grouped(looked), view.Grouped(total))
	case len(l.items) == 0 && s.forPeople():
		s.note("none of %s that wait", plural(int(total), "job"))
	}
	return nil
}

// shows reports whether the visible part of the arguments meets the conditions on them.
func (o *waitingFlags) shows(rules *redact.Rules, j client.WaitingJob) bool {
	if !rules.Any() || o.filter.Args == nil && o.filter.Pattern == nil {
		return true
	}
	args := j.Args.String()
	shown := string(rules.Args(j.Class, json.RawMessage(args), j.Wrappers...))
	return (o.filter.Args == nil || shown == args) && (o.filter.Pattern == nil || o.filter.Pattern.MatchString(shown))
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
	if payloads {
		v.Payload = rules.Payload(j.Payload)
	}
	l.add(j.ID, v, j.Queue, strconv.FormatInt(j.Position, 10), j.ID, class, args, view.Since(j.EnqueuedAt, now))
}
