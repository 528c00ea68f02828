package schedule

import (
	"time"

	"github.com/netresearch/go-cron"
)

// spec is a cron expression in a time zone.
//
// The expression is computed on the wall clock, as if there were no zones; what the
// wall clock says is then looked for in the time that passes. An hour that is left out
// in spring, and one that comes twice in autumn, make a difference there:
//
//   - A schedule of every hour goes on with the time that passes: "30 * * * *" ticks at
//     01:30, 03:30 and 04:30 in spring, and at both 02:30 in autumn.
//   - Any other one is meant by the clock, and ticks once: "30 2 * * *" at 03:00 in
//     spring, at the first 02:30 in autumn. What falls into an hour that is left out
//     ticks when that is over, all of it as one.
type spec struct {
	wall   *cron.SpecSchedule // in UTC
	zone   *time.Location
	hourly bool
}

// Next returns the first tick after an instant; the zero time if there is none.
func (t Timing) Next(after time.Time) time.Time {
	if t.spec == nil {
		return after.Add(t.every)
	}
	return t.spec.next(after)
}

func (s *spec) next(after time.Time) time.Time {
	now := after.In(s.zone)
	_, offset := now.Zone()
	start, end := bounds(now)
	wall := onWall(now, offset)
	if !start.IsZero() && !s.hourly {
		// Until then the clock shows what it has shown before.
		_, before := start.Add(-time.Nanosecond).In(s.zone).Zone()
		if again := onWall(start, before); wall.Before(again) && before > offset {
			wall = again.Add(-time.Second)
		}
	}
	for {
		tick := s.wall.Next(wall)
		if tick.IsZero() {
			return time.Time{}
		}
		at := tick.Add(-seconds(offset))
		if end.IsZero() || at.Before(end) {
			return at.In(s.zone)
		}
		_, next := end.In(s.zone).Zone()
		left, entered := onWall(end, offset), onWall(end, next) // what the clock shows before and after
		switch {
		case next > offset && tick.Before(entered) && !s.hourly:
			return end.In(s.zone)
		case next < offset && !s.hourly:
			wall = left.Add(-time.Second)
		default:
			wall = entered.Add(-time.Second)
		}
		offset = next
		_, end = bounds(end.In(s.zone))
	}
}

// bounds is t.ZoneBounds, with an end that is always after t. Where a zone's rules are computed,
// as all are with the database that is built in, Go ends a leap year a day early
// (https://go.dev/issue/81583): the end of its last day is the day's beginning.
func bounds(t time.Time) (start, end time.Time) {
	start, end = t.ZoneBounds()
	if !end.IsZero() && !end.After(t) {
		end = t.Add(24 * time.Hour) // no clock changes in that night
	}
	return start, end
}

// onWall is what the clock shows at an instant, as if that were UTC.
func onWall(t time.Time, offset int) time.Time { return t.UTC().Add(seconds(offset)) }

func seconds(n int) time.Duration { return time.Duration(n) * time.Second }
