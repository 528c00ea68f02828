package cli

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/resqued/resqued/internal/rdb"
	"github.com/resqued/resqued/internal/store"
	"github.com/resqued/resqued/internal/view"
	"github.com/resqued/resqued/internal/wire"
)

const followEvery = time.Second

func (a *cli) eventsCommand() *cobra.Command {
	var o view.EventFilter
	var follow bool
	return a.command(verb{
		use: "events", kind: shows, short: "list events of daemons and changes by people",
		long: `List events, newest first: daemons that started, stopped, took over from an
older version or reloaded; worker processes that died, or were replaced for
their memory or age; jobs that were told to stop, and lost locks; and changes
made with this program: pauses, purges, retries, removals, kills. There is no
event per job.

Redis keeps about 10,000 events. Those from times when Redis did not answer may
be missing; of many alike within a minute only the first are kept.`,
		example: "events --limit 20\nevents --kind died,killed\nevents --follow",
		flags: func(f *flagSet) {
			f.IntVar(&o.Limit, "limit", 50, "how many at most")
			f.StringSliceVar(&o.Kinds, "kind", nil, "only these `kinds`, such as died,killed")
			f.StringVar(&o.Before, "before", "", "only those before this `id` (\"next\" of -o json)")
			f.BoolVarP(&follow, "follow", "f", false, "show the newest, then each new one, newest last")
			f.completers["kind"] = words(eventKinds()...)
			f.check(func() error {
				if o.Limit < 1 || o.Limit > store.MaxEvents {
					return usage("", "--limit %d: use 1 to %d", o.Limit, store.MaxEvents)
				}
				for _, kind := range o.Kinds {
					if !slices.Contains(eventKinds(), kind) {
						return usage("Kinds are: "+strings.Join(eventKinds(), ", ")+".", "--kind %q is none", wire.Printable(kind, 100))
					}
				}
				if follow && o.Before != "" {
					return usage("", "use --follow or --before, not both")
				}
				return nil
			})
		},
		run: func(ctx context.Context, s *session, _ []string) error {
			if follow {
				return followEvents(ctx, s, o)
			}
			return listEvents(ctx, s, o)
		},
	})
}

func eventKinds() (names []string) {
	for _, kind := range store.EventKinds {
		names = append(names, string(kind))
	}
	return names
}

func listEvents(ctx context.Context, s *session, f view.EventFilter) error {
	events, next, err := view.Events(ctx, s, f)
	if err != nil {
		return eventProblem(err)
	}
	l := newListing("WHEN, KIND, SUBJECT, WHAT, +>COUNT, BY, +VIA, +ID").paints("KIND", eventColours)
	l.next = next
	for _, v := range events {
		count := ""
		if v.Count != nil {
			count = strconv.FormatInt(*v.Count, 10)
		}
		l.add(v.ID, v, v.At.Local().Format(time.DateTime), v.Kind, v.Subject, v.Text, count, v.By, v.Via, v.ID)
	}
	if s.forPeople() {
		switch {
		case len(events) == 0:
			s.note("no events")
		case next != "":
			s.note("there are more; see --limit, or: %s events --before %s", s.again(), next)
		}
	}
	return s.print(l)
}

// followEvents shows events until it is interrupted. While Redis does not answer, it waits.
func followEvents(ctx context.Context, s *session, f view.EventFilter) error {
	ctx, stop := interruptible(ctx)
	defer stop()
	shown, _, err := view.Events(ctx, s, f)
	if err != nil {
		return eventProblem(err)
	}
	newest, err := s.Events(ctx, "", 1)
	if err != nil {
		return eventProblem(err)
	}
	last := ""
	if len(newest) > 0 {
		last = newest[0].ID
	}
	slices.Reverse(shown)
	for away := false; ; {
		for _, v := range shown {
			if err := s.printEvent(v); err != nil {
				return err
			}
		}
		if err := nap(ctx, followEvery); err != nil {
			return nil //nolint:nilerr // it was interrupted, which is how it ends
		}
		shown, last, err = view.EventsSince(ctx, s, f, last)
		switch {
		case ctx.Err() != nil:
			return nil
		case rdb.Unreachable(err):
			if !away {
				s.warn("%s; trying again", err)
			}
			away = true
		case err != nil:
			return err
		default:
			away = false
		}
	}
}

func (out *output) printEvent(v view.Event) error {
	switch out.flags.output {
	case outJSON:
		return out.printJSON(v)
	case outName:
		return out.printText(v.ID + "\n")
	}
	parts := []string{v.At.Local().Format(time.DateTime), out.paint(eventColours.of(v.Kind), v.Kind)}
	for _, part := range []string{v.Subject, v.Text} {
		if part != "" {
			parts = append(parts, wire.Printable(part, 0))
		}
	}
	if v.By != "" {
		parts = append(parts, "by "+wire.Printable(v.By, 0))
	}
	return out.printText(strings.Join(parts, "  ") + "\n")
}

var eventColours = colours{
	string(store.EventDied): red, string(store.EventKilled): red, string(store.EventLockLost): red, string(store.EventHostDead): red,
	string(store.EventRefused): red, string(store.EventPaused): yellow, string(store.EventPurged): yellow, string(store.EventRemoved): yellow,
}

func eventProblem(err error) error {
	if bad, ok := errors.AsType[*store.EventIDError](err); ok {
		return usage("It is the \"next\" of: events -o json", "--before %s", bad.Error())
	}
	return err
}
