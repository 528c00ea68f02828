package runner

import (
	"context"
	"sync"
	"time"

	"go.uber.org/zap"

	"github.com/resqued/resqued/internal/schedule"
	"github.com/resqued/resqued/internal/store"
)

const (
	// lookEvery is the time between looks at the records and at the schedules in Redis. It bounds
	// the drift of the estimated server time. resque-scheduler applies changes as late.
	lookEvery    = 5 * time.Second
	callPatience = 5 * time.Second
	retryAfter   = 250 * time.Millisecond
	// away is the age of a note whose schedule no daemon has. Notes are renewed every third of it.
	away = 30 * time.Second
	// shortest is the minimum pause: timers fire a little early or late.
	shortest = time.Millisecond
)

// Store is what a Runner needs of Redis; *store.Store implements it.
type Store interface {
	Schedules(ctx context.Context, req store.SchedulesRequest) (store.SchedulesReply, error)
	Tick(ctx context.Context, req store.TickRequest) (store.TickReply, error)
	// ForgetRemoved forgets schedules that were removed from Redis, and those that no daemon has.
	ForgetRemoved(ctx context.Context, left map[string]store.KeptNote) error
	ReleaseSchedulerLock(ctx context.Context, c store.SchedulerLock) error
}

// Config is which schedules a Runner has and how it enqueues their jobs.
type Config struct {
	Schedules []schedule.Definition
	// Stored adds the schedules that resque-scheduler keeps in Redis, completed by Defaults.
	Stored   bool
	Defaults schedule.Defaults
	// SchedulerLock, if not zero, leaves the work to a Ruby scheduler while it is in charge.
	SchedulerLock store.SchedulerLock
	// Unique reports whether a queue holds equal payloads only once; nil = none does. With Strict,
	// such a queue is refused if its keys do not match.
	Unique func(queue string) bool
	Strict bool
	// Keeper identifies this daemon across restarts. It lets the daemon forget schedules that it
	// no longer has. Empty: the daemon intentionally has none, and forgets none.
	Keeper string
}

// Runner enqueues the jobs of schedules while Run runs.
type Runner struct {
	store Store
	log   *zap.Logger
	// now is this machine's clock, used for differences only.
	now             func() time.Time
	lookEvery, away time.Duration

	mu      sync.Mutex
	given   *Config // by Set, not yet taken
	changed chan struct{}

	// Run owns the rest.
	plan    plan
	lookAt  time.Time // by this machine's clock
	server  time.Time // the server's clock at measure
	measure time.Time // by this machine's clock
	holder  string    // the other scheduler in charge, or ""
	told    map[string]string
	watch   watch
	// left counts schedules that this daemon no longer has and has not forgotten yet.
	left int
}

// New returns a Runner without schedules.
func New(s Store, log *zap.Logger) *Runner {
	return &Runner{
		store: s, log: log, now: time.Now, lookEvery: lookEvery, away: away,
		changed: make(chan struct{}, 1), told: map[string]string{},
	}
}

// Set replaces the schedules. It may be called at any time.
func (r *Runner) Set(c Config) {
	r.mu.Lock()
	r.given = &c
	r.mu.Unlock()
	select {
	case r.changed <- struct{}{}:
	default:
	}
}

// Run enqueues jobs until ctx ends.
func (r *Runner) Run(ctx context.Context) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			r.leave()
			return
		case <-r.changed:
		case <-timer.C:
		}
		timer.Reset(r.turn(ctx))
	}
}

// turn does what is due and returns when to call it again.
func (r *Runner) turn(ctx context.Context) time.Duration {
	r.take()
	if r.plan.empty() && (r.plan.cfg.Keeper == "" || !r.lookAt.IsZero() && r.left == 0) {
		return time.Hour
	}
	if !r.now().Before(r.lookAt) {
		if err := r.look(ctx); err != nil {
			r.complain(ctx, "redis", "schedules cannot be looked at; trying again", zap.Error(err))
			r.plan.hinder("redis could not be asked: " + err.Error())
			r.watch.blind()
			return retryAfter
		}
	}
	wait := max(r.lookAt.Sub(r.now()), shortest)
	for _, name := range r.plan.names() {
		wait = min(wait, r.work(ctx, r.plan.entries[name]))
	}
	return max(wait, shortest)
}

// take applies the configuration given to Set.
func (r *Runner) take() {
	r.mu.Lock()
	given := r.given
	r.given = nil
	r.mu.Unlock()
	if given == nil {
		return
	}
	if r.schedulerLock() != given.SchedulerLock {
		r.leave()
		r.holder = ""
	}
	r.lookAt = time.Time{}
	r.plan.configure(*given, r.reportBad)
}

// look reads the records of the schedules, and which are in Redis.
func (r *Runner) look(ctx context.Context) error {
	lock := r.schedulerLock()
	if r.plan.empty() {
		lock = store.SchedulerLock{} // daemons with schedules may be in charge
	}
	for range 3 {
		req := store.SchedulesRequest{
			Stored: r.plan.cfg.Stored, Digest: r.plan.digest, SchedulerLock: lock, Names: r.plan.names(),
			Keeper: r.plan.cfg.Keeper, Renew: r.away / 3,
		}
		for _, name := range req.Names {
			req.Prints = append(req.Prints, r.plan.entries[name].print())
		}
		call, cancel := context.WithTimeout(ctx, callPatience)
		reply, err := r.store.Schedules(call, req)
		cancel()
		if err != nil {
			return err
		}
		r.synchronise(reply.Now)
		r.heldBy(reply.Holder)
		for i, name := range req.Names {
			e := r.plan.entries[name]
			e.last = reply.Last[i]
			if req.SchedulerLock.Me == "" {
				e.last = time.Time{} // resqued itself enqueued them
			}
			e.saw(reply.Records[i])
		}
		delete(r.told, "redis")
		r.watch.saw(reply.Kept, r.now())
		left := r.gone(reply.Kept)
		again := reply.Stored != nil
		if again || len(left) > 0 {
			call, cancel := context.WithTimeout(ctx, callPatience)
			err := r.store.ForgetRemoved(call, left)
			cancel()
			if err != nil {
				return err
			}
			r.left -= len(left)
		}
		if again {
			r.plan.found(reply.Stored, reply.Digest, r.reportBad)
		}
		for _, e := range r.plan.entries {
			if e.since.IsZero() {
				e.since = reply.Now
			}
		}
		if !again {
			break
		}
	}
	r.lookAt = r.now().Add(r.lookEvery)
	return nil
}

// gone returns the notes of schedules that only this daemon had and no longer has. A schedule that
// is added again counts from then on, not from its removal.
func (r *Runner) gone(kept map[string]store.KeptNote) map[string]store.KeptNote {
	gone := map[string]store.KeptNote{}
	r.left = 0
	for name, note := range kept {
		if _, have := r.plan.entries[name]; have || note.Keeper != r.plan.cfg.Keeper {
			continue
		}
		r.left++
		if r.watch.away(name, r.now(), r.away) {
			gone[name] = note
			r.log.Info("no daemon has a schedule any more; it is forgotten", zap.String("schedule", name))
		}
	}
	return gone
}

// synchronise notes the server's clock. As a reply takes a while, the estimate is never ahead of
// it.
func (r *Runner) synchronise(server time.Time) { r.server, r.measure = server, r.now() }

func (r *Runner) serverNow() time.Time { return r.server.Add(r.now().Sub(r.measure)) }

func (r *Runner) schedulerLock() store.SchedulerLock { return r.plan.cfg.SchedulerLock }

// heldBy notes the other scheduler in charge; "" = none.
func (r *Runner) heldBy(holder string) {
	if holder != r.holder {
		if holder != "" {
			r.log.Info("another scheduler is in charge; waiting", zap.String("holder", holder))
			r.plan.hinder("the scheduler " + holder + " was in charge")
		} else {
			r.log.Info("in charge of the schedules")
		}
	}
	r.holder = holder
}

// leave releases the scheduler lock, so that others need not wait for it to expire.
func (r *Runner) leave() {
	if r.schedulerLock().Me == "" || r.holder != "" {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	if err := r.store.ReleaseSchedulerLock(ctx, r.schedulerLock()); err != nil {
		r.log.Warn("the master lock of resque-scheduler stays until it expires", zap.Error(err))
	}
}

// complain logs a problem unless it is the last one logged about this.
func (r *Runner) complain(ctx context.Context, about, what string, fields ...zap.Field) {
	if ctx.Err() != nil || r.told[about] == what {
		return
	}
	r.told[about] = what
	r.log.Warn(what, fields...)
}

func (r *Runner) reportBad(name string, err error) {
	r.complain(context.Background(), "schedule "+name, "a schedule cannot be used: "+err.Error(), zap.String("schedule", name))
}
