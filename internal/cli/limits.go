package cli

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/resqued/resqued/internal/store"
	"github.com/resqued/resqued/internal/view"
	"github.com/resqued/resqued/internal/wire"
)

func (a *cli) limitsCommand() *cobra.Command {
	show := a.command(verb{
		use: "show LIMIT…", kind: shows, short: "show limits with the running jobs that count under them",
		long: `Show limits and the jobs that run under them. LIMIT is a name, or a name, a
colon and a key.`,
		args: a.some("which limit?", "limits"), names: limitNames,
		run: showLimits,
	})
	var o struct {
		concurrency int
		rate        string
		burst       int
		pause       bool
		span        time.Duration
	}
	set := a.command(verb{
		use: "set LIMIT", kind: adds, short: "override a limit for a time",
		long: `Override a limit, or one key of it, on all machines and for a time. It needs no
reload; afterwards the configuration counts again. LIMIT is a name, or a name, a
colon and a key. Running jobs are not stopped. An override of a key counts
before one of the whole limit.`,
		example: "limits set stripe:42 --concurrency 1 --for 1h\nlimits set mail --rate 10/1m --burst 5\nlimits set stripe --pause --for 10m",
		args:    exactly(1, "one limit"), names: limitNames,
		flags: func(f *flagSet) {
			f.IntVar(&o.concurrency, "concurrency", 0, "how many jobs may run at once")
			f.StringVar(&o.rate, "rate", "", "how many jobs may begin, a `number/time`: 100/1m")
			f.IntVar(&o.burst, "burst", 0, "how many may begin at once after a pause, with --rate (0: as it is)")
			f.BoolVar(&o.pause, "pause", false, "let none begin")
			f.span(&o.span, "for", time.Hour, "end of the override")
		},
		run: func(ctx context.Context, s *session, args []string) error {
			var concurrency *int
			if o.pause || o.concurrency > 0 {
				concurrency = &o.concurrency
			}
			switch {
			case o.pause && (o.concurrency != 0 || o.rate != ""):
				return usage("", "--pause goes with neither --concurrency nor --rate")
			case concurrency == nil && o.rate == "":
				return usage("", "give --concurrency, --rate or --pause")
			case o.concurrency < 0 || o.burst < 0 || o.span <= 0:
				return usage("", "--concurrency and --burst must not be negative, --for must be more than 0")
			}
			over, err := view.OverrideOf(args[0], concurrency, o.rate, int64(o.burst), time.Now().Add(o.span))
			if err != nil {
				return usage("", "--%s", err)
			}
			if err := knownLimit(ctx, s, args[0]); err != nil {
				return err
			}
			if err := s.SetLimit(ctx, over); err != nil {
				return err
			}
			l := &listing{}
			text := "overridden until " + over.Until.Format(time.RFC3339)
			s.did(store.EventOrdered, "limit "+args[0], text, 1)
			l.did(args[0], map[string]any{"limit": args[0], "until": over.Until.UTC()}, "limit %s: %s", wire.Printable(args[0], 200), text)
			return s.tell(l)
		},
	})
	reset := a.command(verb{
		use: "reset LIMIT…", kind: adds, short: "end overrides of limits", args: a.some("which limit?", "limits"), names: limitNames,
		long: `End overrides of limits, also the ones that jobs set when their service has had
too many requests (LimitHit).`,
		run: func(ctx context.Context, s *session, args []string) error {
			l := &listing{}
			for _, name := range args {
				was, err := s.ResetLimit(ctx, name)
				if err != nil {
					_ = s.tell(l)
					return err
				}
				text := "no longer overridden"
				if !was {
					text = "was not overridden"
				} else {
					s.did(store.EventOrdered, "limit "+name, text, 1)
				}
				l.did(name, map[string]any{"limit": name, "changed": was}, "limit %s %s", wire.Printable(name, 200), text)
			}
			return s.tell(l)
		},
	})
	return a.lists(verb{
		use: "limits", kind: shows, short: "list, override and reset limits of running jobs and rates",
		long: `List the limits of all daemons, and how many jobs of each key run and wait.
NEXT is when the next job may begin, where that depends on a time.`,
		example: "limits\nlimits show stripe:42\nlimits set stripe:42 --concurrency 1 --for 1h",
		run:     func(ctx context.Context, s *session, _ []string) error { return listLimits(ctx, s) },
	}, "list limits (default)", show, set, reset)
}

func listLimits(ctx context.Context, s *session) error {
	limits, err := view.Limits(ctx, s.Store)
	if err != nil {
		return err
	}
	l := newListing("LIMIT, KEY, >RUNNING, >MOST, RATE, >WAITING, QUEUES, NEXT, OVERRIDE")
	now := time.Now()
	for i := range limits {
		v := &limits[i]
		most, next := "", ""
		if v.Most > 0 || v.Closed {
			most = fmt.Sprint(v.Most)
		}
		if v.Next != nil {
			next = view.Age(max(0, v.Next.Sub(now)))
		}
		l.add(v.Gate(), v, v.Name, v.Key, view.Grouped(v.Running), most, v.Rate, view.Grouped(v.Waiting), strings.Join(v.Queues, " "), next, v.Override)
	}
	if err := s.print(l); err != nil {
		return err
	}
	if len(limits) == 0 && s.forPeople() {
		s.note("no daemon has limits; see docs/limits.md")
	}
	return nil
}

func showLimits(ctx context.Context, s *session, args []string) error {
	limits, err := view.Limits(ctx, s.Store)
	if err != nil {
		return err
	}
	l := newListing("LIMIT, KEY, JOB, RULE")
	for _, name := range args {
		found := false
		for i := range limits {
			v := &limits[i]
			if v.Name != name && v.Gate() != name {
				continue
			}
			found = true
			for _, holder := range v.Holders {
				l.add(holder, v, v.Name, v.Key, holder, v.Rule)
			}
			if len(v.Holders) == 0 {
				l.add(v.Gate(), v, v.Name, v.Key, "", v.Rule)
			}
		}
		if !found {
			return unknownLimit(ctx, s, name)
		}
	}
	return s.print(l)
}

// knownLimit fails if no daemon has a limit of that name.
func knownLimit(ctx context.Context, s *session, limit string) error {
	rules, err := view.LimitRules(ctx, s.Store)
	if name, _, _ := strings.Cut(limit, ":"); err != nil || rules[name] != "" {
		return err
	}
	return unknownLimit(ctx, s, limit)
}

func unknownLimit(ctx context.Context, s *session, limit string) error {
	known, err := limitNames(ctx, s.Store)
	if err != nil {
		return err
	}
	return notFound("limit", limit, known, s.again()+" limits")
}

func limitNames(ctx context.Context, s *store.Store) ([]string, error) {
	limits, err := view.Limits(ctx, s)
	names := map[string]bool{}
	for i := range limits {
		names[limits[i].Name], names[limits[i].Gate()] = true, true
	}
	return slices.Sorted(maps.Keys(names)), err
}
