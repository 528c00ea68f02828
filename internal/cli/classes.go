package cli

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/resqued/resqued/internal/view"
)

// classOrder returns what sorts classes, the largest first, for a value of --by; nil if there is no such order.
func classOrder(by string) func(c *view.Class) float64 {
	switch by {
	case "time":
		return func(c *view.Class) float64 { return c.Seconds }
	case "runs":
		return func(c *view.Class) float64 { return float64(c.Runs) }
	case "failed":
		return func(c *view.Class) float64 { return float64(c.Failed) }
	case "p95":
		return func(c *view.Class) float64 { return orZero(c.P95) }
	case "wait":
		return func(c *view.Class) float64 { return orZero(c.Wait) }
	}
	return nil
}

func orZero(ms *float64) float64 {
	if ms == nil {
		return 0
	}
	return *ms
}

func (a *cli) classesCommand() *cobra.Command {
	since, until, by := "1h", "", "time"
	return a.command(verb{
		use: "classes", kind: shows, short: "list what classes of jobs cost, fail and wait",
		long: `List what the jobs of each class have cost in a span: how many ran and failed,
how long half of them and 95 % ran, and how long 95 % had waited. BEFORE is the
same of the span of this length before. Times are to about 15 %.

The history has five minutes for a day and hours for a month.`,
		example: "classes --since 10:00 --by failed\nclasses --since 8d --until 7d -o wide",
		flags: func(f *flagSet) {
			f.StringVar(&since, "since", since, "beginning of the span, a `time`: 2h, 10:00, yesterday, RFC 3339")
			f.StringVar(&until, "until", until, "end of the span, a `time`; now if not given")
			f.StringVar(&by, "by", by, "`order`: time, runs, failed, p95 or wait")
			f.completers["by"] = words("time", "runs", "failed", "p95", "wait")
		},
		run: func(ctx context.Context, s *session, _ []string) error { return listClasses(ctx, s, since, until, by) },
	})
}

func listClasses(ctx context.Context, s *session, since, until, by string) error {
	order := classOrder(by)
	if order == nil {
		return usage("Use time, runs, failed, p95 or wait.", "--by %q: there is no such order", by)
	}
	span, to, err := view.Between(since, until, time.Now())
	if err != nil {
		return usage("", "--%s", err)
	}
	classes, err := view.Classes(ctx, s.Store, span, to)
	if err != nil {
		return err
	}
	slices.SortStableFunc(classes, func(a, b view.Class) int { return cmp.Compare(order(&b), order(&a)) })
	l := newListing("CLASS, >RUNS, >BEFORE, >FAILED, >BEFORE, >P50, >P95, >BEFORE, >WAIT, >BEFORE, +>SHARE")
	for _, c := range classes {
		var runs, failed, p95, wait string
		if b := c.Before; b != nil {
			runs, failed, p95, wait = view.Grouped(b.Runs), view.Grouped(b.Failed), millis(b.P95), millis(b.Wait)
		}
		l.add(c.Class, &c, c.Class, view.Grouped(c.Runs), runs, view.Grouped(c.Failed), failed,
			millis(c.P50), millis(c.P95), p95, millis(c.Wait), wait, strconv.Itoa(int(100*c.Share+.5))+" %")
	}
	return s.printOr(l, "no job ran in this span, or none is counted yet")
}

// millis writes milliseconds for people.
func millis(ms *float64) string {
	switch {
	case ms == nil:
		return ""
	case *ms < 1000:
		return fmt.Sprintf("%.3gms", *ms)
	case *ms < 60_000:
		return fmt.Sprintf("%.3gs", *ms/1000)
	}
	return view.Age(time.Duration(*ms * float64(time.Millisecond)))
}
