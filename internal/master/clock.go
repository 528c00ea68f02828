package master

import (
	"time"

	"go.uber.org/zap"
)

// clockStep is by how much Redis's clock has to be off, since it was seen last, to count
// as set.
const clockStep = 5 * time.Second

// clock watches that of Redis, by which leases, locks and all that waits for its time go.
// It is compared with the time since this machine has booted, which does not jump.
type clock struct {
	now             time.Time // of Redis, when it was seen last
	asked, answered time.Duration
}

// see takes a time that Redis has told between two boot times.
func (c *clock) see(log *zap.Logger, now time.Time, asked, answered time.Duration) {
	last := *c
	*c = clock{now, asked, answered}
	if last.now.IsZero() || now.IsZero() {
		return
	}
	went, least, most := now.Sub(last.now), asked-last.answered, answered-last.asked
	switch {
	case went > most+clockStep:
		log.Error("redis's clock was set forward: locks and leases are kept; what waits for its time is due so much earlier",
			zap.Duration("by", (went-most).Round(time.Second)), zap.Time("redis", now))
	case went < least-clockStep:
		log.Error("redis's clock was set back: schedules and jobs that wait for their time wait so much longer",
			zap.Duration("by", (least-went).Round(time.Second)), zap.Time("redis", now))
	}
}
