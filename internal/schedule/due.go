package schedule

import "time"

const (
	// Grace is how late a tick may be before it counts as missed: the time in which one
	// daemon takes over from another is not an outage.
	Grace = time.Minute
	// maxCatchUp is how many missed ticks are made up for at most: the last ones.
	maxCatchUp = 1000
	// maxSteps bounds the search after years without a look.
	maxSteps = 100_000
)

// Due is what there is to do at an instant.
type Due struct {
	// Ticks are those for which jobs are to be enqueued, the oldest first.
	Ticks []time.Time
	// Missed counts those for which none are, because they are too long ago.
	Missed int
	// Last is the last tick of all; zero if there is none. The next ones are due
	// after it.
	Last time.Time
	// Late are the ticks that come too late.
	Late Late
}

// Late are ticks that were not handled in time.
type Late struct {
	// Ticks is how many there are, MadeUp for how many of them jobs are enqueued.
	Ticks, MadeUp int
	// From and To are the first and the last one.
	From, To time.Time
}

// Due returns what is to be done for the ticks after at, up to now.
func (t Timing) Due(at, now time.Time, catchUp string) Due {
	var due Due
	var missed []time.Time // those that may be made up for
	keep := 1
	switch catchUp {
	case CatchUpAll:
		keep = maxCatchUp
	case CatchUpNone:
		keep = 0
	}
	late := now.Add(-Grace)
	steps := 0
	for {
		tick := t.Next(at)
		if tick.IsZero() || tick.After(now) {
			break
		}
		at, due.Last = tick, tick
		if !tick.Before(late) {
			due.Ticks = append(due.Ticks, tick)
			continue
		}
		if due.Late.Ticks++; due.Late.From.IsZero() {
			due.Late.From = tick
		}
		due.Late.To = tick
		if missed = append(missed, tick); len(missed) > 2*maxCatchUp {
			missed = append(missed[:0], missed[len(missed)-maxCatchUp:]...)
		}
		if steps++; steps == maxSteps {
			ahead := t.leap(at, late)
			if t.every > 0 {
				due.Late.Ticks += int(ahead.Sub(at) / t.every)
			}
			at = ahead
		}
	}
	missed = missed[max(0, len(missed)-keep):]
	due.Late.MadeUp = len(missed)
	due.Missed = due.Late.Ticks - len(missed)
	due.Ticks = append(missed, due.Ticks...)
	return due
}

// leap goes ahead to shortly before an instant.
func (t Timing) leap(at, before time.Time) time.Time {
	if t.every > 0 {
		if n := before.Sub(at)/t.every - 2*maxCatchUp; n > 0 {
			return at.Add(n * t.every)
		}
		return at
	}
	if start := before.Add(-2 * maxCatchUp * time.Minute); start.After(at) {
		return start
	}
	return at
}
