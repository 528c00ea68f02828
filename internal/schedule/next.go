package schedule

import (
	"time"

	"github.com/netresearch/go-cron"
)

// spec is a cron expression in a time zone. It is computed on the wall clock, without regard to
// zones; each wall time is then looked up in real time. Clock changes make a difference:
//
//   - A schedule that leaves out no hour follows real time: "30 * * * *" ticks at 01:30,
//     03:30 and 04:30 in spring, and at both 02:30 in autumn.
//   - Any other one follows the clock, and ticks once: "30 2 * * *" at 03:00 in spring, at the
//     first 02:30 in autumn. All its ticks in the skipped hour become one, when that hour is over.
type spec struct {
	wall   *cron.SpecSchedule // in UTC
	zone   *time.Location
	hourly bool
}

// Next returns the first tick after an instant, or the zero time.
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
		// The clock was turned back: the repeated hour has ticked already.
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
		left, entered := onWall(end, offset), onWall(end, next) // the wall clock before and after the change
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

// bounds is t.ZoneBounds with an end that is always after t. Go ends a leap year a day early where
// it computes rules (https://go.dev/issue/81583): the last day's end is that day's beginning.
func bounds(t time.Time) (start, end time.Time) {
	start, end = t.ZoneBounds()
	if !end.IsZero() && !end.After(t) {
		end = t.Add(24 * time.Hour) // no clock changes in that night
	}
	return start, end
}

// onWall is the wall clock at an instant, as if it were UTC.
func onWall(t time.Time, offset int) time.Time { return t.UTC().Add(seconds(offset)) }

func seconds(n int) time.Duration { return time.Duration(n) * time.Second }
