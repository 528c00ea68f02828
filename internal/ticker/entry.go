package ticker

import (
	"context"
	"time"

	"go.uber.org/zap"

	"github.com/resqued/resqued/internal/cron"
	"github.com/resqued/resqued/internal/store"
)

const (
	// maxJobs is how many ticks one call sees to: a script blocks the server.
	maxJobs = 100
	// maxTurns is how often a schedule is tried in one go; others want their turn.
	maxTurns = 20
	// aberration is how far the record may be ahead of the server's clock. Beyond, that
	// clock was wrong once, and the schedule would stand still until then.
	aberration = 24 * time.Hour
)

// entry is one schedule.
type entry struct {
	cron.Schedule
	timing         cron.Timing
	payload        []byte
	unique, strict bool

	// since is the server's time when this definition was read. Where daemons have
	// different ones of a schedule the newest counts: the others wait.
	since  time.Time
	record store.CronRecord
	// from is what the record says, or when a Ruby scheduler was in charge after that.
	from   time.Time
	yields bool
	// shown is the definition as people can see it; publish says that it may not be
	// in Redis yet.
	shown   string
	publish bool
	retryAt time.Time
}

// same tells whether two entries do the same.
func (e *entry) same(o *entry) bool {
	return e.shown == o.shown && e.Stored == o.Stored && e.unique == o.unique && e.strict == o.strict &&
		e.timing.Fingerprint() == o.timing.Fingerprint()
}

// renew says that the definition was read again.
func (e *entry) renew() { e.since, e.publish = time.Time{}, true }

// saw takes the record of the schedule. last is when its jobs were enqueued last,
// by whomever, as far as a Ruby scheduler may be among them.
func (e *entry) saw(r store.CronRecord, last time.Time) {
	e.record, e.from = r, r.From
	if last.After(r.Seen.Add(time.Second)) && last.After(r.From) {
		e.from = last
	}
}

// work sees to the ticks of a schedule that are due. It returns when to come again.
func (t *Ticker) work(ctx context.Context, e *entry) time.Duration {
	for range maxTurns {
		now := t.serverNow()
		if now.Before(e.retryAt) {
			return e.retryAt.Sub(now)
		}
		req, next := t.request(e, now)
		if req == nil {
			return next
		}
		call, cancel := context.WithTimeout(ctx, callPatience)
		reply, err := t.store.Tick(call, *req)
		cancel()
		if err != nil {
			t.complain(ctx, "schedule "+e.Name, "a schedule cannot be seen to; trying again", zap.String("schedule", e.Name), zap.Error(err))
			return retryAfter
		}
		t.synchronise(reply.Now)
		switch reply.Status {
		case store.TickDone:
			delete(t.told, "schedule "+e.Name)
			t.tell(e, req, reply)
			e.saw(reply.Record, time.Time{})
			e.publish = false
		case store.TickChanged:
			e.saw(reply.Record, time.Time{})
		case store.TickEarly:
		case store.TickGone:
			t.lookAt = time.Time{}
			return shortest
		case store.TickHeld:
			t.heldBy(reply.Holder)
			return lookEvery
		case store.TickStuck:
			t.complain(ctx, "schedule "+e.Name, "the jobs of a schedule cannot be enqueued: "+reply.Reason, zap.String("schedule", e.Name))
			e.retryAt = reply.Now.Add(time.Second)
		}
	}
	return shortest
}

// request returns what is to be done for a schedule, or nil and when to come again.
func (t *Ticker) request(e *entry, now time.Time) (*store.TickRequest, time.Duration) {
	req := &store.TickRequest{
		Name: e.Name, Known: e.record, Fingerprint: e.timing.Fingerprint(), Since: e.since,
		Queue: e.Queue, Payload: e.payload, Unique: e.unique, Strict: e.strict, IfRunning: e.IfRunning,
		Stored: e.Stored, Charge: t.charge(),
	}
	if e.publish {
		req.Shown = e.shown
	}
	other := e.record.Fingerprint != "" && e.record.Fingerprint != req.Fingerprint
	switch {
	case t.holder != "":
		return nil, lookEvery
	case other && e.record.Since.After(e.since):
		if !e.yields {
			t.log.Warn("another daemon has a newer definition of a schedule, which counts; reload this one, or rename one of them",
				zap.String("schedule", e.Name), zap.String("when", e.When()))
		}
		e.yields = true
		return nil, lookEvery
	case other, e.record.Fingerprint == "":
		if begin := e.timing.Begin(now); !begin.Equal(now) {
			req.From = begin
		}
		e.yields = false
		return req, 0
	case !e.record.Tick.IsZero() && e.from.After(now.Add(aberration)):
		t.log.Warn("the clock of redis was ahead; a schedule begins anew", zap.String("schedule", e.Name), zap.Time("until", e.from))
		return req, 0
	}
	e.yields = false
	if e.record.Since.After(req.Since) {
		req.Since = e.record.Since // the newest of those that agree
	}
	due := e.timing.Due(e.from, now, e.CatchUp)
	if due.Last.IsZero() {
		if next := e.timing.Next(e.from); !next.IsZero() {
			return nil, next.Sub(now)
		}
		return nil, lookEvery
	}
	req.Tick, req.Missed, req.Jobs = due.Last, due.Missed, len(due.Ticks)
	if req.Jobs > maxJobs {
		req.Tick, req.Jobs = due.Ticks[maxJobs-1], maxJobs
	}
	return req, 0
}

// tell logs what came of a tick.
func (t *Ticker) tell(e *entry, req *store.TickRequest, reply store.TickReply) {
	fields := []zap.Field{zap.String("schedule", e.Name), zap.String("class", e.Class), zap.String("queue", e.Queue)}
	if req.Tick.IsZero() {
		t.log.Info("a schedule begins", append(fields, zap.String("when", e.When()), zap.Time("next", e.timing.Next(reply.Record.From)))...)
		return
	}
	if req.Missed > 0 {
		t.log.Warn("ticks of a schedule were missed: nobody looked", append(fields, zap.Int("missed", req.Missed), zap.Int("made_up", reply.Enqueued))...)
	}
	late := zap.Duration("late", reply.Now.Sub(req.Tick))
	switch {
	case reply.Skipped > 0:
		t.log.Info("a schedule was skipped: its last job has not come to its end", append(fields, zap.Int("jobs", reply.Skipped))...)
	case reply.Duplicates > 0:
		t.log.Info("a schedule was skipped: an equal job waits in its unique queue", append(fields, zap.Int("jobs", reply.Duplicates))...)
	case reply.Enqueued > 0:
		t.log.Debug("enqueued by a schedule", append(fields, zap.Int("jobs", reply.Enqueued), late)...)
	}
}
