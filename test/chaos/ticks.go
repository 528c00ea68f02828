package main

import (
	"context"
	"crypto/sha1"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/resqued/resqued/internal/sys/procfs"
	"github.com/resqued/resqued/test/chaos/check"
)

// schedules are the schedules of every daemon. How they catch up matters only for ticks more
// than a minute late: see allAway.
var schedules = []struct {
	name, when, catchUp string
	period              time.Duration
	number              int
}{
	{"second", "* * * * * *", "all", time.Second, 1},
	{"two", "*/2 * * * * *", "last", 2 * time.Second, 2},
	{"three", "*/3 * * * * *", "none", 3 * time.Second, 3},
}

const scheduler = 8 // its number among the producers

func scheduleID(number int) string { return fmt.Sprintf("chaos-%d", number*10+scheduler) }

// scheduleConfig returns the section of the configuration, empty when schedules are to end.
func (c *chaos) scheduleConfig() string {
	if c.unscheduled.Load() {
		return ""
	}
	var b strings.Builder
	b.WriteString("schedule:\n")
	for _, s := range schedules {
		fmt.Fprintf(&b, "  %s: {cron: %q, timezone: UTC, class: Tick, args: [%s], queue: %s, catch_up: %s}\n",
			s.name, s.when, scheduleID(s.number), tickQueue, s.catchUp)
	}
	return b.String()
}

// schedule notes the schedules and waits until they have begun.
func (c *chaos) schedule(ctx context.Context, from time.Duration) error {
	all := make(map[string]*check.Schedule, len(schedules))
	for _, s := range schedules {
		id := scheduleID(s.number)
		payload := fmt.Sprintf(`{"class":"Tick","args":[%q]}`, id)
		all[id] = &check.Schedule{
			ID: id, Name: s.name, Period: s.period, CatchUp: s.catchUp, MaybeFrom: c.wall(from), To: 1<<63 - 1, MaybeTo: 1<<63 - 1,
			Digest: fmt.Sprintf("%s %x", tickQueue, sha1.Sum([]byte(payload))),
		}
	}
	err := c.awaitSchedules(ctx)
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, s := range all {
		s.From = c.wall(procfs.BootTime())
	}
	c.history.Schedules = all
	return err
}

// awaitSchedules waits until Redis knows all schedules.
func (c *chaos) awaitSchedules(ctx context.Context) error {
	return c.await(ctx, patience, "the schedules to begin", func() bool {
		known, err := c.server.ctl().HLen(ctx, key("resqued:cron")).Result()
		return err == nil && int(known) >= len(schedules)
	})
}

// unschedule removes the schedules by reloading every daemon. The error names the daemons that
// did not finish in time.
func (c *chaos) unschedule(ctx context.Context) error {
	c.unscheduled.Store(true)
	from := procfs.BootTime()
	seen := c.marks()
	for _, m := range c.machines {
		if err := m.configure(); err != nil {
			return err
		}
		m.signal(syscall.SIGHUP)
	}
	var late error
	for _, m := range c.machines {
		late = errors.Join(late, m.await(ctx, patience, seen[m], "the new configuration is in force everywhere"))
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, s := range c.history.Schedules {
		s.To, s.MaybeTo = c.wall(from), c.wall(procfs.BootTime())
	}
	return late
}

// reborn notes that the schedules began again after Redis had lost everything, and how many of
// their jobs were lost.
func (c *chaos) reborn(ctx context.Context, at time.Duration, lost []string) error {
	err := c.awaitSchedules(ctx)
	until := procfs.BootTime()
	c.mu.Lock()
	defer c.mu.Unlock()
	for id, s := range c.history.Schedules {
		gone := 0
		for _, other := range lost {
			if other == id {
				gone++
			}
		}
		s.Reborn = append(s.Reborn, check.Rebirth{From: c.wall(at), To: c.wall(until), Gone: gone})
	}
	return err
}

// wall converts an instant to ms by the wall clock.
func (c *chaos) wall(at time.Duration) int64 { return (at + c.history.Epoch).Milliseconds() }

// tickDeaths returns the remaining counts of deaths for jobs of schedules.
func (c *chaos) tickDeaths(counts map[string]string) (left []string) {
	for _, s := range c.history.Schedules {
		if n, ok := counts[s.Digest]; ok {
			left = append(left, strconv.Quote(n)+" deaths of schedule "+s.Name)
		}
	}
	return left
}
