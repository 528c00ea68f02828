// Package pruner removes the names of queues that have been empty for long, outside the master's
// loop: each look for jobs asks for all named queues.
package pruner

import (
	"context"
	"crypto/rand"
	"encoding/json"
	mathrand "math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"go.uber.org/zap"

	"github.com/resqued/resqued/internal/store"
	"github.com/resqued/resqued/internal/wire"
)

const (
	// sweepEvery is the time between two walks through all names. It is ten times as long as a
	// walk through 100,000. One of all masters makes it.
	sweepEvery = time.Minute
	// perWalk bounds the names removed after a walk; pruneRest is the pause after each. One
	// script checks those removed last every few seconds.
	perWalk, pruneRest = 2500, 100 * time.Millisecond
	// patience bounds a call.
	patience = 5 * time.Second
	// A walk rests after each step, at least leastRest, so that it takes at most a twentieth of
	// the server's time.
	restShare, leastRest, longestRest = 20, 10 * time.Millisecond, time.Second
	// maxNamed bounds the names that are logged.
	maxNamed = 10
)

// Store is what a Pruner needs of Redis; *store.Store implements it.
type Store interface {
	SweepQueues(ctx context.Context, caller string, while time.Duration, at string) (store.Sweep, error)
	IdleQueues(ctx context.Context, since time.Time, n int) ([]string, error)
	QueueUsers(ctx context.Context) (store.QueueUsers, error)
	KeepQueues(ctx context.Context, now time.Time, names []string) error
	PruneIdle(ctx context.Context, queue string, idle time.Duration) (pruned bool, err error)
}

// Pruner removes the names of queues that have been empty for a time. Any number of them may
// share a Redis.
type Pruner struct {
	store Store
	log   *zap.Logger
	tell  func(names []string)
	idle  atomic.Int64
	name  string // for its turns
	used  chan struct{}

	complaint string // the last logged error
}

// New returns a pruner of queues that are empty for idle; 0 = none. It passes removed names to
// tell.
func New(idle time.Duration, s Store, tell func(names []string), log *zap.Logger) *Pruner {
	p := &Pruner{store: s, log: log.Named("pruner"), tell: tell, name: rand.Text(), used: make(chan struct{}, 1)}
	p.idle.Store(int64(idle))
	return p
}

// Use changes the time. Any goroutine may call it.
func (p *Pruner) Use(idle time.Duration) {
	p.idle.Store(int64(idle))
	select {
	case p.used <- struct{}{}:
	default:
	}
}

// every is the time between two walks.
func every(idle time.Duration) time.Duration { return max(min(idle/2, sweepEvery), time.Second) }

// Run works until ctx ends.
func (p *Pruner) Run(ctx context.Context) {
	timer := time.NewTimer(0)
	timer.Stop()
	defer timer.Stop()
	for {
		if idle := time.Duration(p.idle.Load()); idle > 0 {
			timer.Reset(every(idle)/2 + mathrand.N(every(idle)/2)) // masters do not ask at the same time
		} else {
			timer.Stop()
		}
		select {
		case <-ctx.Done():
			return
		case <-p.used:
			continue
		case <-timer.C:
		}
		err := p.walk(ctx, time.Duration(p.idle.Load()))
		switch {
		case err == nil:
			p.complaint = ""
		case ctx.Err() == nil && err.Error() != p.complaint:
			p.complaint = err.Error()
			p.log.Warn("names of empty queues cannot be removed now; trying again", zap.Error(err))
		}
	}
}

// walk goes through all names if it is this master's turn, and removes those empty for idle.
func (p *Pruner) walk(ctx context.Context, idle time.Duration) error {
	var at store.Sweep
	for began := true; began || at.At != ""; began = false {
		start := time.Now()
		var err error
		if at, err = p.step(ctx, at.At, idle); err != nil {
			return err
		}
		if at.Back > 0 {
			p.log.Info("queues hold jobs whose names had been removed; they have them again", zap.Int("queues", at.Back))
		}
		if began && at.At == "" {
			return nil // another master's turn
		}
		if err := rest(ctx, max(leastRest, restShare*time.Since(start))); err != nil {
			return err
		}
	}
	return p.prune(ctx, at.Now, idle)
}

func (p *Pruner) step(ctx context.Context, at string, idle time.Duration) (store.Sweep, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	return p.store.SweepQueues(ctx, p.name, every(idle), at)
}

func rest(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(min(d, longestRest))
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-timer.C:
		return nil
	}
}

// prune removes names of queues empty for idle, except those that anything names.
func (p *Pruner) prune(ctx context.Context, now time.Time, idle time.Duration) error {
	call, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	names, err := p.store.IdleQueues(call, now.Add(-idle), perWalk)
	if err != nil || len(names) == 0 {
		return err
	}
	users, err := p.store.QueueUsers(call)
	if err != nil {
		return err
	}
	named := namedBy(users)
	var kept, pruned []string
	for _, name := range names {
		if named[name] {
			kept = append(kept, name)
		}
	}
	// They come up again after that time, so that they do not delay other names.
	if err := p.store.KeepQueues(call, now, kept); err != nil {
		return err
	}
	defer func() { p.told(pruned, idle) }()
	for _, name := range names {
		if named[name] {
			continue
		}
		start := time.Now()
		call, cancel := context.WithTimeout(ctx, patience)
		removed, err := p.store.PruneIdle(call, name, idle)
		cancel()
		if removed {
			pruned = append(pruned, name)
		}
		if err == nil {
			err = rest(ctx, max(pruneRest, restShare*time.Since(start)))
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (p *Pruner) told(names []string, idle time.Duration) {
	if len(names) == 0 {
		return
	}
	slices.Sort(names)
	some := make([]string, min(len(names), maxNamed))
	for i := range some {
		some[i] = wire.Printable(names[i], 100)
	}
	p.log.Info("removed the names of queues that nothing names and that have been empty for long",
		zap.Int("queues", len(names)), zap.Duration("empty_for", idle), zap.Strings("names", some))
	if p.tell != nil {
		p.tell(names)
	}
}

// namedBy returns the queues that masters, workers and schedules name, not those that match
// their patterns.
func namedBy(u store.QueueUsers) map[string]bool {
	named := map[string]bool{}
	add := func(queue string) {
		named[queue] = true
		for _, mark := range []string{":", "~"} { // a cap
			if i := strings.LastIndex(queue, mark); i >= 0 {
				if _, err := strconv.Atoi(strings.TrimSuffix(queue[i+1:], "%")); err == nil {
					named[queue[:i]] = true
				}
			}
		}
	}
	for _, queues := range u.Masters {
		for queue := range strings.SplitSeq(queues, ",") {
			add(strings.TrimSpace(queue))
		}
	}
	for _, id := range u.Workers {
		if w, err := wire.ParseWorkerID(id); err == nil {
			for _, queue := range w.Queues {
				add(queue)
			}
		}
	}
	for _, text := range u.Schedules {
		var schedule struct {
			Queue any `json:"queue"`
		}
		if json.Unmarshal([]byte(text), &schedule) == nil {
			if queue, ok := schedule.Queue.(string); ok {
				add(queue)
			}
		}
	}
	return named
}
