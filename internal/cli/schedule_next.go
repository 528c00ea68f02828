package cli

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/resqued/resqued/internal/view"
)

// ticksShown bounds the ticks of one schedule.
const ticksShown = 1000

type tickView struct {
	At    time.Time `json:"at"`
	Name  string    `json:"name"`
	Class string    `json:"class"`
	Queue string    `json:"queue"`
	// Clocks says that the clocks of its time zone have changed since the tick before.
	Clocks string `json:"clocks,omitempty"`
}

func (a *cli) scheduleNextCommand() *cobra.Command {
	length := 7 * 24 * time.Hour
	limit := scheduleLimit
	return a.command(verb{
		use: "next [NAME…]", kind: reads, short: "list the coming ticks of schedules",
		long: `List when schedules tick, with the time zone of each. CLOCKS is how far the
clocks of that zone have changed since the schedule's tick before: docs/cron.md
says which ticks come in a night of 23 or 25 hours.`,
		example: "schedule next --for 2d\nschedule next nightly --for 200d -o json",
		args:    func(*cobra.Command, []string) error { return nil },
		names:   scheduleNames,
		flags: func(f *flagSet) {
			f.span(&length, "for", length, "how far to look ahead")
			f.limit(&limit, limit, 1, "most ticks, next first")
		},
		run: func(ctx context.Context, s *session, names []string) error {
			return listTicks(ctx, s, names, length, limit)
		},
	})
}

func listTicks(ctx context.Context, s *session, names []string, length time.Duration, limit int) error {
	schedules, now, err := s.schedules(ctx)
	if err != nil {
		return err
	}
	if len(names) > 0 {
		if schedules, err = view.FindSchedules(schedules, names); err != nil {
			return s.lookup(err, "schedule")
		}
	}
	var ticks []tickView
	cut := false
	for _, v := range schedules {
		n := 0
		before := now
		for at := range v.Ticks(now.Add(length)) {
			if n++; n > max(limit, ticksShown) {
				cut = true
				break
			}
			t := tickView{At: at, Name: v.Name, Class: v.Class, Queue: v.Queue}
			_, old := before.In(at.Location()).Zone()
			if _, offset := at.Zone(); offset != old {
				t.Clocks = fmt.Sprintf("%+gh", float64(offset-old)/3600)
			}
			ticks, before = append(ticks, t), at
		}
	}
	slices.SortStableFunc(ticks, func(a, b tickView) int { return a.At.Compare(b.At) })
	l := newListing("AT, NAME, >IN, CLASS, QUEUE, CLOCKS")
	if l.partial = cut || len(ticks) > limit; len(ticks) > limit {
		ticks = ticks[:limit]
	}
	for _, t := range ticks {
		l.add(t.Name, t, t.At.Format("Mon 2006-01-02 15:04:05 MST"), t.Name, until(t.At, now), t.Class, t.Queue, t.Clocks)
	}
	if l.partial && s.forPeople() {
		defer s.note("only the next %d ticks are shown; see --limit", len(ticks))
	}
	return s.printOr(l, "no schedule ticks in the next %s", strings.TrimSpace(view.Left(length)))
}
