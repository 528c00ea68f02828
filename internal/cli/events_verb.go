package cli

import (
	"context"
	"errors"
	"os/signal"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/resqued/resqued/internal/rdb"
	"github.com/resqued/resqued/internal/store"
	"github.com/resqued/resqued/internal/view"
	"github.com/resqued/resqued/internal/wire"
)

const followEvery = time.Second

func (a *cli) eventsCommand() *cobra.Command {
	var f view.EventFilter
	var follow bool
	c := &cobra.Command{
		Use: "events", Annotations: shows, Short: "list events of daemons and changes by people", Args: exactly(0, "no arguments"),
		Long: `List events, newest first: daemons that started, stopped, took over from an
older version or reloaded; worker processes that died, or were replaced for
their memory or age; jobs that were told to stop, and lost locks; and changes
made with this program: pauses, purges, retries, removals, kills. There is no
event per job.

Redis keeps about 10,000 events. Those from times when Redis did not answer may
be missing; of many alike within a minute only the first are kept.`,
		Example: "  " + a.name + " events --limit 20\n  " + a.name + " events --kind died,killed\n  " + a.name + " events --follow",
		RunE: func(c *cobra.Command, _ []string) error {
			if f.Limit < 1 || f.Limit > store.MaxEvents {
				return usage("", "--limit %d: use 1 to %d", f.Limit, store.MaxEvents)
			}
			for _, kind := range f.Kinds {
				if !slices.Contains(store.EventKinds, store.EventKind(kind)) {
					return usage("Kinds are: "+strings.Join(eventKinds(), ", ")+".", "--kind %q is none", wire.Printable(kind, 100))
				}
			}
			if follow && f.Before != "" {
				return usage("", "use --follow or --before, not both")
			}
			return a.withStore(c, func(ctx context.Context, s *store.Store) error {
				if follow {
					return a.followEvents(ctx, s, f)
				}
				return a.listEvents(ctx, s, f)
			})
		},
	}
	flags := c.Flags()
	flags.IntVar(&f.Limit, "limit", 50, "how many at most")
	flags.StringSliceVar(&f.Kinds, "kind", nil, "only these `kinds`, such as died,killed")
	flags.StringVar(&f.Before, "before", "", "only those before this `id` (\"next\" of -o json)")
	flags.BoolVarP(&follow, "follow", "f", false, "show the newest, then each new one, newest last")
	_ = c.RegisterFlagCompletionFunc("limit", cobra.NoFileCompletions)
	_ = c.RegisterFlagCompletionFunc("before", cobra.NoFileCompletions)
	_ = c.RegisterFlagCompletionFunc("kind", words(eventKinds()...))
	return c
}

func eventKinds() (names []string) {
	for _, kind := range store.EventKinds {
		names = append(names, string(kind))
	}
	return names
}

func (a *cli) listEvents(ctx context.Context, s *store.Store, f view.EventFilter) error {
	events, next, err := view.Events(ctx, s, f)
	if err != nil {
		return eventProblem(err)
	}
	l := &listing{next: next, columns: []column{
		{title: "WHEN"},
		{title: "KIND", colour: eventColour},
		{title: "SUBJECT"},
		{title: "WHAT"},
		{title: "COUNT", right: true, wide: true},
		{title: "BY"},
		{title: "VIA", wide: true},
		{title: "ID", wide: true},
	}}
	for _, v := range events {
		count := ""
		if v.Count != nil {
			count = strconv.FormatInt(*v.Count, 10)
		}
		l.add(v.ID, v, v.At.Local().Format(time.DateTime), v.Kind, v.Subject, v.Text, count, v.By, v.Via, v.ID)
	}
	if a.forPeople() {
		switch {
		case len(events) == 0:
			a.note("no events")
		case next != "":
			a.note("there are more; see --limit, or: %s events --before %s", a.again(), next)
		}
	}
	return a.print(l)
}

// followEvents shows events until it is interrupted. While Redis does not answer, it waits.
func (a *cli) followEvents(ctx context.Context, s *store.Store, f view.EventFilter) error {
	ctx, stop := signal.NotifyContext(ctx, syscall.SIGINT, syscall.SIGTERM)
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
			if err := a.printEvent(v); err != nil {
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
				a.warn("%s; trying again", err)
			}
			away = true
		case err != nil:
			return err
		default:
			away = false
		}
	}
}

func (a *cli) printEvent(v view.Event) error {
	switch a.flags.output {
	case outJSON:
		return a.printJSON(v)
	case outName:
		return a.printText(v.ID + "\n")
	}
	parts := []string{v.At.Local().Format(time.DateTime), a.paint(eventColour(v.Kind), v.Kind)}
	for _, part := range []string{v.Subject, v.Text} {
		if part != "" {
			parts = append(parts, wire.Printable(part, 0))
		}
	}
	if v.By != "" {
		parts = append(parts, "by "+wire.Printable(v.By, 0))
	}
	return a.printText(strings.Join(parts, "  ") + "\n")
}

func eventColour(kind string) string {
	switch store.EventKind(kind) {
	case store.EventDied, store.EventKilled, store.EventLockLost, store.EventHostDead, store.EventRefused:
		return red
	case store.EventPaused, store.EventPurged, store.EventRemoved:
		return yellow
	}
	return ""
}

func eventProblem(err error) error {
	if bad, ok := errors.AsType[*store.EventIDError](err); ok {
		return usage("It is the \"next\" of: events -o json", "--before %s", bad.Error())
	}
	return err
}
