package workerproc

import (
	"time"
)

// A lock lasts for its duration D from when the last beat was sent. Its holder tells the job to
// stop at 20/35 of D and ends the process at 27/35, before any other process can get the lock.
const (
	lockStop = 20.0 / 35
	lockEnd  = 27.0 / 35
)

// lease is how long the locks of this process are safe. The loop owns all fields.
type lease struct {
	duration time.Duration
	// elsewhere is Deps.LocksEnd.
	elsewhere func() time.Duration
	// renewed is the boot time at which the last successful beat, or the registration, was sent:
	// the server may have applied it at once.
	renewed time.Duration
}

func newLease(duration time.Duration, elsewhere func() time.Duration) *lease {
	return &lease{duration: duration, elsewhere: elsewhere}
}

// end returns when this process must be gone if no further beat succeeds: before others can get
// its locks.
func (l *lease) end() time.Duration {
	ends := l.renewed + part(l.duration, lockEnd)
	if l.elsewhere == nil {
		return ends
	}
	if elsewhere := l.elsewhere(); elsewhere > 0 {
		return min(ends, elsewhere)
	}
	return ends
}

// grace returns how long a job that has lost its lock may take to stop.
func (l *lease) grace() time.Duration { return part(l.duration, lockEnd-lockStop) }

// silent returns how long there has been no beat, and whether a job reserved at that boot time
// has to stop for it.
func (l *lease) silent(now, reserved time.Duration) (silent time.Duration, stop bool) {
	silent = now - max(l.renewed, reserved)
	return silent, silent >= part(l.duration, lockStop)
}

// left returns how long a job may take to stop after such a silence.
func (l *lease) left(silent time.Duration) time.Duration {
	return max(0, part(l.duration, lockEnd)-silent)
}

func part(d time.Duration, share float64) time.Duration { return time.Duration(float64(d) * share) }
