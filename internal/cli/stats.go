package cli

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/resqued/resqued/internal/longstore"
	"github.com/resqued/resqued/internal/view"
	"github.com/resqued/resqued/internal/wire"
)

// statsEvery is the default time over which rates are measured, statsLongest the maximum.
const (
	statsEvery   = time.Second
	statsLongest = time.Hour
)

func (a *cli) statsCommand() *cobra.Command {
	interval := statsEvery
	var before *view.Stats // with --watch: the last result
	bill := false
	return a.command(verb{
		use: "stats", kind: shows, short: "show totals and rates",
		long: `Show totals and rates of processed and failed jobs, running jobs and threads,
waiting jobs and their longest wait, delayed jobs, failure records, parked
jobs, and long jobs that wait or run; and how many threads the jobs of the last
hour have kept busy (a job counts when it ends, with all of its time).

Rates are measured for --interval; 0 leaves them out. With --watch they are
those between two results, so the first has none, nor has a counter that was
reset. The longest wait needs jobs that say when they were pushed; plain Resque
payloads do not.

It asks for lengths only: a million jobs cost no more than one. --redis looks
at each key instead, and says what queues, failures, history and locks cost
Redis: memory (MEMORY USAGE), and commands, watched for a second (MONITOR, which
slows Redis down meanwhile).`,
		example: "stats\nstats --interval 10s -o json\nstats --watch=5s\nstats --redis",
		args: func(c *cobra.Command, args []string) error {
			if interval < 0 || interval > statsLongest {
				return usage("", "--interval %s: use 0s to %s", interval, statsLongest)
			}
			if c.Flags().Changed("interval") && c.Flags().Changed("watch") {
				return usage("", "--interval and --watch: use one of them; --watch=5s measures for 5 seconds")
			}
			return none(c, args)
		},
		flags: func(f *flagSet) {
			f.span(&interval, "interval", statsEvery, "time to measure rates (0: no rates)")
			f.BoolVar(&bill, "redis", false, "memory and commands by queue, failures, history, locks")
		},
		run: func(ctx context.Context, s *session, _ []string) error {
			if bill {
				return s.printBill(ctx)
			}
			v, err := view.ReadStats(ctx, s, longstore.New(s.Redis()))
			if err != nil {
				return err
			}
			if v.Needed, err = view.ReadNeeded(ctx, s, v.Waiting); err != nil {
				s.note("how many threads are needed is not known: %s", err)
			}
			switch {
			case s.cmd.Flags().Changed("watch"):
				if before != nil {
					v.Measure(before)
				}
				before = v
			case interval > 0:
				if err := nap(ctx, interval); err != nil {
					return err
				}
				if v, err = v.Again(ctx, s); err != nil {
					return err
				}
			}
			return s.printStats(v)
		},
	})
}

// printBill prints what the namespace costs Redis.
func (s *session) printBill(ctx context.Context) error {
	b, err := s.Bill(ctx)
	if err != nil {
		return err
	}
	if b.Partial {
		s.note("Redis has more keys than were looked at")
	}
	if b.Unwatched != "" {
		s.note("commands are not known: %s", wire.Printable(b.Unwatched, 300))
	}
	l := newListing("PART, >KEYS, >MEMORY, >COMMANDS/S")
	l.partial = b.Partial
	for i := range b.Costs {
		c := &b.Costs[i]
		rate := ""
		if c.PerS != nil {
			rate = strconv.FormatFloat(*c.PerS, 'f', 0, 64)
		}
		l.add(c.Part, c, c.Part, view.Grouped(c.Keys), view.Size(c.Bytes), rate)
	}
	return s.print(l)
}

func (out *output) printStats(v *view.Stats) error {
	if out.flags.output == outJSON {
		return out.printJSON(v)
	}
	waiting := fmt.Sprintf("%s in %d of %s", view.Grouped(v.Waiting), v.QueuesWaiting, plural(v.Queues, "queue"))
	if v.QueuesPaused > 0 {
		waiting += ", " + out.paint(yellow, fmt.Sprintf("%d paused", v.QueuesPaused))
	}
	if v.OldestS != nil {
		waiting += ", the oldest for " + view.Left(time.Duration(*v.OldestS)*time.Second)
	}
	running := fmt.Sprintf("%s on %s", view.Grouped(v.Running), plural(v.Threads, "thread"))
	crew := fmt.Sprintf("%s with %s", plural(v.Daemons, "daemon"), plural(v.Processes, "process"))
	if v.Processes != 1 {
		crew = fmt.Sprintf("%s with %d processes", plural(v.Daemons, "daemon"), v.Processes)
	}
	if v.Others > 0 {
		crew += ", " + plural(v.Others, "other worker")
	}
	if v.Daemons+v.Others == 0 && v.Waiting > 0 {
		crew = out.paint(red, crew)
	}
	delayed := view.Grouped(v.Delayed)
	if v.DelayedPartial {
		delayed += " and more"
	}
	parked := view.Grouped(v.Parked)
	if v.Parked > 0 {
		parked = out.paint(yellow, parked)
	}
	var b strings.Builder
	for _, row := range [][2]string{
		{"processed", withRate(v.Processed, v.ProcessedPerS)},
		{"failed", withRate(v.Failed, v.FailedPerS)},
		{"running", running},
		{"workers", crew},
		{"waiting", waiting},
		{"needed", needed(v)},
		{"delayed", delayed},
		{"failures", view.Grouped(v.Failures)},
		{"parked", parked},
		{"long jobs", view.Grouped(v.LongJobs)},
	} {
		if row[1] != "" {
			fmt.Fprintf(&b, "%-9s  %s\n", row[0], row[1])
		}
	}
	return out.printText(b.String())
}

// needed says how many threads are needed, "" if that is not known.
func needed(v *view.Stats) string {
	n := v.Needed
	if n == nil {
		return ""
	}
	text := fmt.Sprintf("%.3g threads on average in the last hour, %.3g in its busiest 5 minutes", n.Average, n.Peak)
	if n.Backlog >= .1 {
		text += fmt.Sprintf("; %.3g more work off what waits in an hour", n.Backlog)
	}
	return text
}

func withRate(n int64, rate *float64) string {
	text := view.Grouped(n)
	switch {
	case rate == nil:
		return text
	case *rate == 0:
		return text + "  0/s"
	}
	return text + "  " + view.Rate(*rate)
}
