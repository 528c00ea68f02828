// Package delayed moves delayed jobs to their queues when they are due.
package delayed

import (
	"context"
	"crypto/rand"
	"sync/atomic"
	"time"

	"go.uber.org/zap"

	"github.com/resqued/resqued/internal/statsd"
	"github.com/resqued/resqued/internal/store"
	"github.com/resqued/resqued/internal/wire"
)

const (
	// lookEvery is the time between looks if no job is known to be due earlier. A job that is
	// enqueued after one look and due before the next is moved by a worker process that looks for
	// jobs; if all are busy it has to wait anyway.
	lookEvery = time.Second
	// lookers is how many masters look that often. With more, each looks less often, at least
	// every longestLook, so that the total rate stays the same.
	lookers, longestLook = 16, 10 * time.Second

	// patience bounds one call, so that a silent Redis is noticed.
	patience = 5 * time.Second
	// backlogRest bounds the pause after a call that left due jobs behind.
	backlogRest = 20 * time.Millisecond

	firstRetry   = 100 * time.Millisecond
	longestRetry = 5 * time.Second

	// toldAgain is how long a key that is in the way is not logged again.
	toldAgain = time.Minute
)

// Store is what a Forwarder needs of Redis; *store.Store implements it.
type Store interface {
	MoveDue(ctx context.Context, caller string, unique func(queue string) bool) (store.Due, error)
	FailMalformed(ctx context.Context, malformed []store.MalformedItem, lists bool, record func(item []byte, id string) store.FiledFailure) (int, error)
}

// Stats takes counts; *statsd.Client implements it.
type Stats interface {
	Count(what string, n int)
}

// Config is how a Forwarder works.
type Config struct {
	// Unique reports whether a queue holds equal payloads only once; nil = none does.
	Unique func(queue string) bool
	// Worker names this process in failure records.
	Worker string
	// FailureLists records failures as Resque's multi-queue failure backend does.
	FailureLists bool
	Stats        Stats
}

// Forwarder moves delayed jobs to their queues when they are due. Several may share a Redis.
type Forwarder struct {
	store Store
	log   *zap.Logger
	cfg   atomic.Pointer[Config]
	name  string // identifies this process to MoveDue

	told      map[string]time.Time // keys in the way, and when that was logged
	complaint string               // the last error that was logged
	tries     int                  // since the last call that succeeded
}

// NewForwarder returns a forwarder; Run starts it.
func NewForwarder(cfg Config, s Store, log *zap.Logger) *Forwarder {
	m := &Forwarder{store: s, log: log.Named("delayed"), name: rand.Text(), told: map[string]time.Time{}}
	m.Use(cfg)
	return m
}

// Use changes the configuration. It may be called at any time.
func (m *Forwarder) Use(cfg Config) { m.cfg.Store(&cfg) }

// Run works until ctx ends.
func (m *Forwarder) Run(ctx context.Context) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		}
		timer.Reset(m.turn(ctx))
	}
}

// turn moves due jobs and returns when to look again.
func (m *Forwarder) turn(ctx context.Context) time.Duration {
	cfg := *m.cfg.Load()
	began := time.Now()
	call, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	due, err := m.store.MoveDue(call, m.name, cfg.Unique)
	if err != nil {
		return m.complain(ctx, "delayed jobs cannot be moved to their queues; trying again", err)
	}
	cfg.Stats.Count(statsd.Duplicate, due.Dropped)
	m.report(due.Wrong)
	if len(due.Malformed) > 0 {
		if err := m.file(call, due.Malformed, cfg); err != nil {
			return m.complain(ctx, "what is not a delayed job stands among them and cannot be recorded as failed", err)
		}
	}
	m.complaint, m.tries = "", 0
	every := min(lookEvery*time.Duration(max(lookers, due.Masters))/lookers, longestLook)
	switch {
	case due.More:
		// Leave time for other clients.
		return min(time.Since(began), backlogRest)
	case due.Next > 0:
		return min(due.Next, every)
	default:
		return every
	}
}

// file records items that are not jobs as failed.
func (m *Forwarder) file(ctx context.Context, malformed []store.MalformedItem, cfg Config) error {
	n, err := m.store.FailMalformed(ctx, malformed, cfg.FailureLists, func(item []byte, id string) store.FiledFailure {
		return store.File(wire.Failure{
			FailedAt: time.Now(), Payload: item, Exception: "Resqued::InvalidDelayedJob", Worker: cfg.Worker,
			Error: "this stood among the delayed jobs and is none: it has to be a JSON object with the name of a queue under \"queue\" that does not end in :start_at or :uniqueue",
		}, id)
	})
	if n > 0 {
		m.log.Error("what stood among the delayed jobs and is none was recorded as failed", zap.Int("items", n))
	}
	return err
}

// report logs keys that are in the way, each once per toldAgain.
func (m *Forwarder) report(keys []string) {
	for key, at := range m.told {
		if time.Since(at) >= toldAgain {
			delete(m.told, key)
		}
	}
	for _, key := range keys {
		if _, told := m.told[key]; !told {
			m.told[key] = time.Now()
			m.log.Error("a key holds something else than it should; delayed jobs wait until it is moved away",
				zap.String("key", wire.Printable(key, 200)))
		}
	}
}

// complain logs an error unless it repeats the last one, and returns when to try again.
func (m *Forwarder) complain(ctx context.Context, what string, err error) time.Duration {
	if text := what + err.Error(); text != m.complaint && ctx.Err() == nil {
		m.complaint = text
		m.log.Error(what, zap.Error(err))
	}
	wait := min(firstRetry<<min(m.tries, 16), longestRetry)
	m.tries++
	return wait
}
