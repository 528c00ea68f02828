package cli

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/resqued/resqued/internal/longstore"
	"github.com/resqued/resqued/internal/store"
	"github.com/resqued/resqued/internal/view"
)

// statsEvery is the default time over which rates are measured, statsLongest the maximum.
const (
	statsEvery   = time.Second
	statsLongest = time.Hour
)

func (a *cli) statsCommand() *cobra.Command {
	interval := statsEvery
	var before *view.Stats // with --watch: the last result
	c := &cobra.Command{
		Use: "stats", Annotations: shows, Short: "show totals and rates",
		Long: `Show totals and rates of processed and failed jobs, running jobs and threads,
waiting jobs and their longest wait, delayed jobs, failure records, parked
jobs, and long jobs that wait or run.

Rates are measured for --interval; 0 leaves them out. With --watch they are
those between two results, so the first has none, nor has a counter that was
reset. The longest wait needs jobs that say when they were pushed; plain Resque
payloads do not.

It asks for lengths only: a million jobs cost no more than one.`,
		Example: "  " + a.name + " stats\n  " + a.name + " stats --interval 10s -o json\n  " + a.name + " stats --watch=5s",
		Args: func(c *cobra.Command, args []string) error {
			if interval < 0 || interval > statsLongest {
				return usage("", "--interval %s: use 0s to %s", interval, statsLongest)
			}
			if c.Flags().Changed("interval") && c.Flags().Changed("watch") {
				return usage("", "--interval and --watch: use one of them; --watch=5s measures for 5 seconds")
			}
			return exactly(0, "no arguments")(c, args)
		},
		RunE: func(c *cobra.Command, _ []string) error {
			return a.withStore(c, func(ctx context.Context, s *store.Store) error {
				v, err := view.ReadStats(ctx, s, longstore.New(s.Redis()))
				if err != nil {
					return err
				}
				switch {
				case c.Flags().Changed("watch"):
					if before != nil {
						v.Measure(before)
					}
					before = v
				case interval > 0:
					if v, err = laterStats(ctx, s, v, interval); err != nil {
						return err
					}
				}
				return a.printStats(v)
			})
		},
	}
	durationVar(c.Flags(), &interval, "interval", statsEvery, "time to measure rates (0: no rates)")
	_ = c.RegisterFlagCompletionFunc("interval", cobra.NoFileCompletions)
	return c
}

// laterStats waits for an interval and returns the totals with the rates since v.
func laterStats(ctx context.Context, s *store.Store, v *view.Stats, interval time.Duration) (*view.Stats, error) {
	select {
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-time.After(interval):
	}
	return v.Again(ctx, s)
}

func (a *cli) printStats(v *view.Stats) error {
	if a.flags.output == outJSON {
		return a.printJSON(v)
	}
	waiting := fmt.Sprintf("%s in %d of %s", view.Grouped(v.Waiting), v.QueuesWaiting, plural(v.Queues, "queue"))
	if v.QueuesPaused > 0 {
		waiting += ", " + a.paint(yellow, fmt.Sprintf("%d paused", v.QueuesPaused))
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
		crew = a.paint(red, crew)
	}
	delayed := view.Grouped(v.Delayed)
	if v.DelayedPartial {
		delayed += " and more"
	}
	var b strings.Builder
	for _, row := range [][2]string{
		{"processed", withRate(v.Processed, v.ProcessedPerS)},
		{"failed", withRate(v.Failed, v.FailedPerS)},
		{"running", running},
		{"workers", crew},
		{"waiting", waiting},
		{"delayed", delayed},
		{"failures", view.Grouped(v.Failures)},
		{"parked", a.paint(alarm(v.Parked > 0), view.Grouped(v.Parked))},
		{"long jobs", view.Grouped(v.LongJobs)},
	} {
		fmt.Fprintf(&b, "%-9s  %s\n", row[0], row[1])
	}
	return a.printText(b.String())
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

func alarm(is bool) string {
	if is {
		return yellow
	}
	return ""
}
