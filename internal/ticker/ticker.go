// Package ticker enqueues the jobs of schedules when their time comes.
//
// Every master runs one, and there is no leader: each computes by the server's clock
// which ticks are due, from a record that is kept in Redis, and asks one script to see
// to them. That goes by the record, so that of all that ask one is heard. A master that
// dies, or whose clock is wrong, takes nothing with it.
//
// ticker.go is the loop, entry.go one schedule, plan.go which schedules there are.
package ticker

import (
	"context"
	"sync"
	"time"

	"go.uber.org/zap"

	"github.com/resqued/resqued/internal/cron"
	"github.com/resqued/resqued/internal/store"
)

const (
	// lookEvery is how often the records are looked at, and the schedules in Redis. It
	// also bounds how far the estimate of the server's time can drift, and it is what
	// resque-scheduler allows for a change.
	lookEvery = 5 * time.Second
	// callPatience bounds one call to Redis.
	callPatience = 5 * time.Second
	// retryAfter is the pause after a call that failed.
	retryAfter = 250 * time.Millisecond
	// shortest is the shortest pause: timers wake up a little early or late.
	shortest = time.Millisecond
)

// Store is what a ticker asks of Redis; *store.Store is one.
type Store interface {
	Schedules(ctx context.Context, req store.SchedulesRequest) (store.SchedulesReply, error)
	Tick(ctx context.Context, req store.TickRequest) (store.TickReply, error)
	// ForgetRemoved forgets the schedules that were kept in Redis, and are not any more.
	ForgetRemoved(ctx context.Context) error
	LeaveCharge(ctx context.Context, c store.Charge) error
}

// Config says which schedules there are, and how their jobs are enqueued.
type Config struct {
	Schedules []cron.Schedule
	// Stored: also those that resque-scheduler keeps in Redis. Defaults complete them.
	Stored   bool
	Defaults cron.Defaults
	// Charge, if given, leaves the work to a Ruby scheduler as long as that is in
	// charge.
	Charge store.Charge
	// Unique tells which queues hold a payload once, Strict that they are refused when
	// their keys do not match. Unique may be nil: none.
	Unique func(queue string) bool
	Strict bool
}

// Ticker keeps schedules. New makes one, Run lets it work.
type Ticker struct {
	store Store
	log   *zap.Logger
	// now is the clock of this machine, of which only differences count.
	now func() time.Time

	mu      sync.Mutex
	given   *Config // by Set, not yet taken
	changed chan struct{}

	// The rest belongs to Run.
	plan    plan
	lookAt  time.Time // by this machine's clock
	server  time.Time // what the server's clock showed at
	measure time.Time // this time of this machine
	holder  string    // who else is in charge; "" nobody
	told    map[string]string
}

// New returns a ticker without schedules.
func New(s Store, log *zap.Logger) *Ticker {
	return &Ticker{store: s, log: log, now: time.Now, changed: make(chan struct{}, 1), told: map[string]string{}}
}

// Set gives it schedules, in place of those that it has. It may be called at any time.
func (t *Ticker) Set(c Config) {
	t.mu.Lock()
	t.given = &c
	t.mu.Unlock()
	select {
	case t.changed <- struct{}{}:
	default:
	}
}

// Run enqueues jobs until ctx ends.
func (t *Ticker) Run(ctx context.Context) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			t.leave()
			return
		case <-t.changed:
		case <-timer.C:
		}
		timer.Reset(t.turn(ctx))
	}
}

// turn does what is due and returns when to come again.
func (t *Ticker) turn(ctx context.Context) time.Duration {
	t.take()
	if len(t.plan.cfg.Schedules) == 0 && !t.plan.cfg.Stored {
		return time.Hour
	}
	if !t.now().Before(t.lookAt) {
		if err := t.look(ctx); err != nil {
			t.complain(ctx, "redis", "schedules cannot be looked at; trying again", zap.Error(err))
			return retryAfter
		}
	}
	wait := max(t.lookAt.Sub(t.now()), shortest)
	for _, name := range t.plan.names() {
		wait = min(wait, t.work(ctx, t.plan.entries[name]))
	}
	return max(wait, shortest)
}

// take puts a configuration into force that was given.
func (t *Ticker) take() {
	t.mu.Lock()
	given := t.given
	t.given = nil
	t.mu.Unlock()
	if given == nil {
		return
	}
	if t.charge() != given.Charge {
		t.leave()
		t.holder = ""
	}
	t.lookAt = time.Time{}
	t.plan.configure(*given, t.tellBad)
}

// look reads how the schedules stand, and which ones are in Redis.
func (t *Ticker) look(ctx context.Context) error {
	for range 3 {
		req := store.SchedulesRequest{Stored: t.plan.cfg.Stored, Digest: t.plan.digest, Charge: t.charge(), Names: t.plan.names()}
		call, cancel := context.WithTimeout(ctx, callPatience)
		reply, err := t.store.Schedules(call, req)
		cancel()
		if err != nil {
			return err
		}
		t.synchronise(reply.Now)
		t.heldBy(reply.Holder)
		for i, name := range req.Names {
			last := reply.Last[i]
			if req.Charge.Me == "" {
				last = time.Time{} // it was nobody but resqued
			}
			t.plan.entries[name].saw(reply.Records[i], last)
		}
		delete(t.told, "redis")
		again := reply.Stored != nil
		if again {
			call, cancel := context.WithTimeout(ctx, callPatience)
			err := t.store.ForgetRemoved(call)
			cancel()
			if err != nil {
				return err
			}
			t.plan.found(reply.Stored, reply.Digest, t.tellBad)
		}
		for _, e := range t.plan.entries {
			if e.since.IsZero() {
				e.since = reply.Now
			}
		}
		if !again {
			break
		}
	}
	t.lookAt = t.now().Add(lookEvery)
	return nil
}

// synchronise notes what the server's clock shows. The answer was on its way for a
// while: the estimate is never ahead of it.
func (t *Ticker) synchronise(server time.Time) { t.server, t.measure = server, t.now() }

func (t *Ticker) serverNow() time.Time { return t.server.Add(t.now().Sub(t.measure)) }

func (t *Ticker) charge() store.Charge { return t.plan.cfg.Charge }

// heldBy notes who else is in charge, "" nobody.
func (t *Ticker) heldBy(holder string) {
	if holder != t.holder {
		if holder != "" {
			t.log.Info("another scheduler is in charge; waiting", zap.String("holder", holder))
		} else {
			t.log.Info("in charge of the schedules")
		}
	}
	t.holder = holder
}

// leave lets others be in charge at once.
func (t *Ticker) leave() {
	if t.charge().Me == "" || t.holder != "" {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	if err := t.store.LeaveCharge(ctx, t.charge()); err != nil {
		t.log.Warn("the master lock of resque-scheduler stays until it expires", zap.Error(err))
	}
}

// complain logs a thing that goes wrong once, until it is something else.
func (t *Ticker) complain(ctx context.Context, about, what string, fields ...zap.Field) {
	if ctx.Err() != nil || t.told[about] == what {
		return
	}
	t.told[about] = what
	t.log.Warn(what, fields...)
}

func (t *Ticker) tellBad(name string, err error) {
	t.complain(context.Background(), "schedule "+name, "a schedule cannot be used: "+err.Error(), zap.String("schedule", name))
}
