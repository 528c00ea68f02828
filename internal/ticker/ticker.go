// Package ticker enqueues the jobs of schedules when their time comes.
//
// Every master runs one, and there is no leader: each computes by the server's clock
// which ticks are due, from a record that is kept in Redis, and asks one script to see
// to them. That goes by the record, so that of all that ask one is heard. A master that
// dies, or whose clock is wrong, takes nothing with it.
//
// Where daemons have different definitions of one schedule the newest counts, as long as a
// daemon is there that has it: each notes now and then that it is.
//
// ticker.go is the loop, entry.go one schedule, missed.go what it says of ticks that were
// missed, plan.go which schedules there are, watch.go which of them have a daemon.
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
	// away is how long the note of a schedule stays as it is before no daemon has it any
	// more. A third of it is how often it is renewed.
	away = 30 * time.Second
	// shortest is the shortest pause: timers wake up a little early or late.
	shortest = time.Millisecond
)

// Store is what a ticker asks of Redis; *store.Store is one.
type Store interface {
	Schedules(ctx context.Context, req store.SchedulesRequest) (store.SchedulesReply, error)
	Tick(ctx context.Context, req store.TickRequest) (store.TickReply, error)
	// ForgetRemoved forgets the schedules that were kept in Redis, and are not any more, and
	// those that no daemon has any more.
	ForgetRemoved(ctx context.Context, left map[string]store.KeptNote) error
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
	// Keeper is the same for each start of this daemon, however often it is restarted, and
	// for no other: it forgets the schedules that it had and has no more. Empty = it has none
	// by intention, and forgets none.
	Keeper string
}

// Ticker keeps schedules. New makes one, Run lets it work.
type Ticker struct {
	store Store
	log   *zap.Logger
	// now is the clock of this machine, of which only differences count.
	now func() time.Time
	// lookEvery and away are the constants of the same name.
	lookEvery, away time.Duration

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
	watch   watch
	// left are schedules that this daemon had, and has no more, as far as they are not
	// forgotten yet.
	left int
}

// New returns a ticker without schedules.
func New(s Store, log *zap.Logger) *Ticker {
	return &Ticker{
		store: s, log: log, now: time.Now, lookEvery: lookEvery, away: away,
		changed: make(chan struct{}, 1), told: map[string]string{},
	}
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
	if t.plan.empty() && (t.plan.cfg.Keeper == "" || !t.lookAt.IsZero() && t.left == 0) {
		return time.Hour
	}
	if !t.now().Before(t.lookAt) {
		if err := t.look(ctx); err != nil {
			t.complain(ctx, "redis", "schedules cannot be looked at; trying again", zap.Error(err))
			t.plan.hinder("redis could not be asked: " + err.Error())
			t.watch.blind()
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
	charge := t.charge()
	if t.plan.empty() {
		charge = store.Charge{} // whoever has schedules may be in charge
	}
	for range 3 {
		req := store.SchedulesRequest{
			Stored: t.plan.cfg.Stored, Digest: t.plan.digest, Charge: charge, Names: t.plan.names(),
			Keeper: t.plan.cfg.Keeper, Renew: t.away / 3,
		}
		for _, name := range req.Names {
			req.Prints = append(req.Prints, t.plan.entries[name].print())
		}
		call, cancel := context.WithTimeout(ctx, callPatience)
		reply, err := t.store.Schedules(call, req)
		cancel()
		if err != nil {
			return err
		}
		t.synchronise(reply.Now)
		t.heldBy(reply.Holder)
		for i, name := range req.Names {
			e := t.plan.entries[name]
			e.last = reply.Last[i]
			if req.Charge.Me == "" {
				e.last = time.Time{} // it was resqued itself
			}
			e.saw(reply.Records[i])
		}
		delete(t.told, "redis")
		t.watch.saw(reply.Kept, t.now())
		left := t.gone(reply.Kept)
		again := reply.Stored != nil
		if again || len(left) > 0 {
			call, cancel := context.WithTimeout(ctx, callPatience)
			err := t.store.ForgetRemoved(call, left)
			cancel()
			if err != nil {
				return err
			}
			t.left -= len(left)
		}
		if again {
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
	t.lookAt = t.now().Add(t.lookEvery)
	return nil
}

// gone returns the notes of schedules that this daemon had, as did no other, and has no
// more: one that is added again counts from then on, and not from when it was removed.
func (t *Ticker) gone(kept map[string]store.KeptNote) map[string]store.KeptNote {
	gone := map[string]store.KeptNote{}
	t.left = 0
	for name, note := range kept {
		if _, have := t.plan.entries[name]; have || note.Keeper != t.plan.cfg.Keeper {
			continue
		}
		t.left++
		if t.watch.away(name, t.now(), t.away) {
			gone[name] = note
			t.log.Info("no daemon has a schedule any more; it is forgotten", zap.String("schedule", name))
		}
	}
	return gone
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
			t.plan.hinder("the scheduler " + holder + " was in charge")
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
