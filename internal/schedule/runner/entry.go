package runner

import (
	"context"
	"time"

	"go.uber.org/zap"

	"github.com/resqued/resqued/internal/schedule"
	"github.com/resqued/resqued/internal/store"
)

const (
	// maxJobs limits the ticks of one call, because a script blocks the server.
	maxJobs = 100
	// maxTurns limits the calls for one schedule before others get their turn.
	maxTurns = 20
	// aberration is how far a record may be ahead of the server's clock. A record further ahead
	// was written while that clock was wrong, and would block the schedule until then.
	aberration = 24 * time.Hour
)

type entry struct {
	schedule.Definition
	timing         schedule.Timing
	payload        []byte
	unique, strict bool

	// job is the fingerprint of what is enqueued and on which conditions.
	job string

	// since is the server's time when this definition was read. If daemons differ, the newest
	// definition counts as long as one of them has it; the others wait.
	since  time.Time
	record store.CronRecord
	// from is the record's time, or the later time of a Ruby scheduler that was in charge.
	from time.Time
	// last is when resqued or a Ruby scheduler last enqueued its jobs; zero if the latter is
	// impossible.
	last time.Time
	// yields is since when another definition counts, by this machine's clock; told: it was
	// logged.
	yields time.Time
	told   bool
	// hindered is why recent ticks could not be handled, late the missed ticks that the next
	// request makes up for, named the last missed tick that was logged.
	hindered string
	late     schedule.Late
	named    time.Time
	// shown is the definition as published; publish is set while it may not be in Redis yet.
	shown   string
	publish bool
	retryAt time.Time
}

func (e *entry) print() string { return store.CronPrint(e.timing.Fingerprint(), e.job) }

// older reports whether a record's definition is newer. Of equally old ones, the larger print is.
func (e *entry) older(r store.CronRecord) bool {
	if c := r.Since.Compare(e.since); c != 0 {
		return c > 0
	}
	return store.CronPrint(r.Fingerprint, r.Job) > e.print()
}

func (e *entry) same(o *entry) bool {
	return e.shown == o.shown && e.Stored == o.Stored && e.unique == o.unique && e.strict == o.strict &&
		e.timing.Fingerprint() == o.timing.Fingerprint()
}

// renew marks the definition as read again.
func (e *entry) renew() { e.since, e.publish = time.Time{}, true }

// saw takes the schedule's record over.
func (e *entry) saw(r store.CronRecord) {
	e.record, e.from = r, r.From
	if e.last.After(r.Seen.Add(time.Second)) && e.last.After(r.From) {
		e.from = e.last
	}
}

// work enqueues the jobs of due ticks and returns when to call it again.
func (r *Runner) work(ctx context.Context, e *entry) time.Duration {
	for range maxTurns {
		now := r.serverNow()
		if now.Before(e.retryAt) {
			return e.retryAt.Sub(now)
		}
		req, next := r.request(e, now)
		if req == nil {
			return next
		}
		call, cancel := context.WithTimeout(ctx, callPatience)
		reply, err := r.store.Tick(call, *req)
		cancel()
		if err != nil {
			r.complain(ctx, "schedule "+e.Name, "a schedule cannot be seen to; trying again", zap.String("schedule", e.Name), zap.Error(err))
			e.hindered = "redis could not be asked: " + err.Error()
			return retryAfter
		}
		r.synchronise(reply.Now)
		switch reply.Status {
		case store.TickDone:
			delete(r.told, "schedule "+e.Name)
			r.report(e, req, reply)
			e.saw(reply.Record)
			e.publish = false
		case store.TickChanged:
			e.saw(reply.Record)
		case store.TickEarly:
		case store.TickGone:
			r.lookAt = time.Time{}
			return shortest
		case store.TickHeld:
			r.heldBy(reply.Holder)
			return r.lookEvery
		case store.TickStuck:
			r.complain(ctx, "schedule "+e.Name, "the jobs of a schedule cannot be enqueued: "+reply.Reason, zap.String("schedule", e.Name))
			e.hindered = reply.Reason
			e.retryAt = reply.Now.Add(time.Second)
		}
	}
	return shortest
}

// waits reports whether another daemon's newer definition still counts.
func (r *Runner) waits(e *entry) bool {
	now := r.now()
	if e.yields.IsZero() {
		e.yields = now
	}
	if now.Sub(e.yields) >= r.away && r.watch.away(e.Name, now, r.away) {
		return false
	}
	// A definition in Redis is the same for all daemons, but they read it at different times.
	if !e.told && (e.Stored == "" || now.Sub(e.yields) >= 2*r.lookEvery) {
		r.log.Warn("another daemon has a newer definition of a schedule, which counts as long as it is there; reload this one, or rename one of them",
			zap.String("schedule", e.Name), zap.String("when", e.When()), zap.String("class", e.Class), zap.String("queue", e.Queue))
		e.told = true
	}
	return true
}

func (e *entry) why() string {
	switch {
	case e.hindered != "":
		return e.hindered
	case e.since.After(e.late.From):
		return "no daemon with this schedule ran"
	}
	return "the daemons with this schedule did not run, though they were there: stopped, suspended or without a processor"
}

// request returns what to do for a schedule, or nil and when to look again.
func (r *Runner) request(e *entry, now time.Time) (*store.TickRequest, time.Duration) {
	req := &store.TickRequest{
		Name: e.Name, Known: e.record, Print: e.print(), Since: e.since,
		Queue: e.Queue, Payload: e.payload, Unique: e.unique, Strict: e.strict, IfRunning: e.IfRunning,
		Stored: e.Stored, SchedulerLock: r.schedulerLock(), Keeper: r.plan.cfg.Keeper,
	}
	known := e.record.Fingerprint != ""
	other := known && store.CronPrint(e.record.Fingerprint, e.record.Job) != req.Print
	if e.publish || other {
		req.Shown = e.shown
	}
	switch {
	case r.holder != "":
		return nil, r.lookEvery
	case other && e.older(e.record) && r.waits(e):
		return nil, r.lookEvery
	case known && other && e.record.Fingerprint == e.timing.Fingerprint():
		req.Claim = true
		return req, 0
	case other, !known:
		if begin := e.timing.Begin(now); !begin.Equal(now) {
			req.From = begin
		}
		return req, 0
	case !e.record.Tick.IsZero() && e.from.After(now.Add(aberration)):
		r.log.Warn("the clock of redis was ahead; a schedule begins anew", zap.String("schedule", e.Name), zap.Time("until", e.from))
		return req, 0
	}
	e.yields, e.told = time.Time{}, false
	if e.record.Since.After(req.Since) {
		req.Since = e.record.Since // the newest of those that agree
	}
	due := e.timing.Due(e.from, now, e.CatchUp)
	if due.Last.IsZero() {
		e.hindered = ""
		if next := e.timing.Next(e.from); !next.IsZero() {
			return nil, next.Sub(now)
		}
		return nil, r.lookEvery
	}
	e.late = due.Late
	req.Tick, req.Missed, req.Jobs = due.Last, due.Missed, len(due.Ticks)
	if req.Jobs > maxJobs {
		req.Tick, req.Jobs = due.Ticks[maxJobs-1], maxJobs
	}
	return req, 0
}

func (r *Runner) report(e *entry, req *store.TickRequest, reply store.TickReply) {
	fields := []zap.Field{zap.String("schedule", e.Name), zap.String("class", e.Class), zap.String("queue", e.Queue)}
	if req.Tick.IsZero() {
		fields = append(fields, zap.String("when", e.When()), zap.Time("next", e.timing.Next(reply.Record.From)))
		switch {
		case !e.yields.IsZero():
			r.log.Warn("the daemons with a newer definition of a schedule have left; that of this one counts again", fields...)
		case req.Known.Fingerprint != "":
			r.log.Info("a newer definition of a schedule takes the place of another", fields...)
		default:
			r.log.Info("a schedule begins", fields...)
		}
		return
	}
	if late := e.late; late.To.After(e.named) {
		r.log.Warn("ticks of a schedule were missed", append(fields, zap.Int("missed", late.Ticks), zap.Int("made_up", late.MadeUp),
			zap.Time("from", late.From), zap.Time("to", late.To), zap.String("why", e.why()))...)
		e.named = late.To
	}
	e.hindered = ""
	late := zap.Duration("late", reply.Now.Sub(req.Tick))
	switch {
	case reply.Skipped > 0:
		r.log.Info("a schedule was skipped: its last job has not come to its end", append(fields, zap.Int("jobs", reply.Skipped))...)
	case reply.Duplicates > 0:
		r.log.Info("a schedule was skipped: an equal job waits in its unique queue", append(fields, zap.Int("jobs", reply.Duplicates))...)
	case reply.Enqueued > 0:
		r.log.Debug("enqueued by a schedule", append(fields, zap.Int("jobs", reply.Enqueued), late)...)
	}
}
