package schedule

import "time"

const (
	// Grace is how late a tick may be before it is missed. It covers the handover between daemons.
	Grace = time.Minute
	// maxCatchUp is how many missed ticks, the last ones, are made up for.
	maxCatchUp = 1000
	// maxSteps bounds the search after years without a look.
	maxSteps = 100_000
)

// Due is the work of an instant.
type Due struct {
	// Ticks are the ticks to enqueue jobs for, the oldest first.
	Ticks []time.Time
	// Missed counts the ticks that get no job because they are too old.
	Missed int
	// Last is the last tick, from which the next ones are computed; zero if there is none.
	Last time.Time
	// Late are the ticks that were not handled in time.
	Late Late
}

// Late are ticks that were not handled in time.
type Late struct {
	// Ticks is their number, MadeUp how many of them get a job.
	Ticks, MadeUp int
	From, To      time.Time
}

// Due returns what to do about the ticks after at, up to now.
func (t Timing) Due(at, now time.Time, catchUp string) Due {
	var due Due
	var missed []time.Time // the last late ticks, which catch_up may make up for
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

// leap skips ahead to shortly before an instant.
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
