package master

import (
	"time"

	"go.uber.org/zap"
)

// clockStep is the deviation of Redis's clock, since it was last seen, that counts as a change.
const clockStep = 5 * time.Second

// clock watches Redis's clock, which governs leases, locks and delayed jobs. It compares it with
// the time since this machine's boot, which does not jump.
type clock struct {
	now             time.Time // Redis's time when last seen
	asked, answered time.Duration
}

// see takes a time that Redis returned between two boot times.
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
