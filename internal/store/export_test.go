package store

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/resqued/resqued/internal/rdb"
)

// Probe runs every script once; see rdb.Client.Probe.
func (s *Store) Probe(ctx context.Context, others ...rdb.Part) error {
	return s.db.Probe(ctx, s.rehearsal(others...))
}

// PartOf is the part of a bill that a key belongs to.
func PartOf(key string) string { return partOf(key) }

// WatchedKey is the key in a line of MONITOR.
func WatchedKey(line string, db int, prefix string) (key string, ok bool) {
	return watchedKey(line, db, prefix)
}

// Rehearsed are the scripts that Probe runs.
func (s *Store) Rehearsed(ctx context.Context, others ...rdb.Part) []string {
	return s.db.Rehearsed(ctx, s.rehearsal(others...))
}

// Orphans are those of LookAround, with the server's time.
func (s *Store) Orphans(ctx context.Context) (procs []string, now time.Time, err error) {
	a, err := s.LookAround(ctx, "", "", "")
	return a.Orphans, a.Now, err
}

// LeaveSifting leaves a sifting as one does that is killed: so many records have passed.
func LeaveSifting(ctx context.Context, s *Store, list string, records int) error {
	f := s.sifting(list)
	if _, _, err := f.call(ctx, "begin"); err != nil {
		return err
	}
	for ; records > 0; records-- {
		page, err := s.db.Read.LRange(ctx, s.db.Key(list), 0, 0).Result()
		if err != nil {
			return err
		}
		if answer, _, err := f.call(ctx, "step", 1, page[0]); err != nil || answer != "OK" {
			return fmt.Errorf("step: %s: %w", answer, err)
		}
	}
	return nil
}

// NearEnd has a store sift lists of failures that are longer than that.
func NearEnd(s *Store, n int64) {
	opts := *s.opts.Load()
	opts.nearEnd = n
	s.opts.Store(&opts)
}

// NearEndOf is how far from an end of a list records of a size are taken out where they stand.
func NearEndOf(size int64) int64 { return nearEnd(size) }

// Waiting is how many jobs wait until a lane takes them.
func Waiting(s *Store) int {
	s.together.mu.Lock()
	defer s.together.mu.Unlock()
	return len(s.together.waiting)
}

// BatchJobs is how many jobs one call pushes at most.
const BatchJobs = batchJobs

// HoldLane has what is pushed together wait for a lane that leaves when it is let go.
func HoldLane(s *Store) (leave func()) {
	t := &s.together
	t.mu.Lock()
	defer t.mu.Unlock()
	t.leaving = true
	t.lanes++
	return func() { t.running.Go(func() { t.lane(s) }) }
}

// Killer ends the calls of stores after some scripts, as a kill would.
type Killer struct {
	// After is called after each script; its error is the script's.
	After func() error
}

// Watch makes a store's scripts call After.
func (k *Killer) Watch(s *Store) { s.db.Write.AddHook(k) }

func (*Killer) DialHook(next redis.DialHook) redis.DialHook { return next }

func (*Killer) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

func (k *Killer) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		err := next(ctx, cmd)
		if err == nil && k.After != nil && strings.HasPrefix(cmd.Name(), "eval") {
			err = k.After()
			cmd.SetErr(err)
		}
		return err
	}
}

// LateDelivery is a repeated delivery of what is on its way now, which can be called later.
func LateDelivery(ctx context.Context, from, to *Store, queue string) (func() error, error) {
	b, err := from.moveOut(ctx, TransferRequest{Queue: queue}, from.placeOf(queue), "", 0, 0, nil)
	if err != nil || b.number == 0 {
		return nil, err
	}
	return func() error {
		_, _, _, err := to.moveIn(ctx, queue, b)
		return err
	}, nil
}
