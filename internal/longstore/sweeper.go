package longstore

import (
	"context"
	"sync/atomic"
	"time"

	"go.uber.org/zap"

	"github.com/resqued/resqued/internal/wire"
)

const (
	// sweepEvery is the time between two searches for runs that are lost or can be forgotten.
	sweepEvery = time.Minute
	// sweepBatch bounds the runs handled by one sweep.
	sweepBatch = 100
	// sweepPatience bounds the duration of one sweep.
	sweepPatience = 30 * time.Second
)

// Sweeper resumes runs of long jobs whose payload is lost, for example because a queue was emptied. It leaves
// slices of dead worker processes to recovery, and forgets runs that ended long enough ago. Any number of
// Sweepers may work on one Redis.
//
// A payload is lost if two searches in a row have not found it: once, it may have been moving.
type Sweeper struct {
	store  *Store
	log    *zap.Logger
	limits atomic.Pointer[Limits]

	complaint string
	// missed maps runs whose payload the last sweep did not find to their next slice.
	missed map[string]string
}

// Limits are how long a running or a queued run must be silent before its payload is searched
// for.
type Limits struct{ Running, Queued time.Duration }

// NewSweeper returns a sweeper.
func NewSweeper(s *Store, log *zap.Logger, l Limits) *Sweeper {
	sweeper := &Sweeper{store: s, log: log}
	sweeper.Use(l)
	return sweeper
}

// Use changes the limits. It may be called at any time.
func (s *Sweeper) Use(l Limits) { s.limits.Store(&l) }

// Run sweeps until ctx ends.
func (s *Sweeper) Run(ctx context.Context) {
	timer := time.NewTimer(sweepEvery)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		}
		if err := s.Sweep(ctx); err != nil && ctx.Err() == nil && err.Error() != s.complaint {
			s.complaint = err.Error()
			s.log.Error("cannot look after long jobs; trying again", zap.Error(err))
		} else if err == nil {
			s.complaint = ""
		}
		timer.Reset(sweepEvery)
	}
}

// Sweep makes one sweep.
func (s *Sweeper) Sweep(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, sweepPatience)
	defer cancel()
	if _, err := s.store.Forget(ctx, sweepBatch); err != nil {
		return err
	}
	if err := s.store.Turns(ctx, sweepEvery, sweepBatch); err != nil {
		return err
	}
	limits := *s.limits.Load()
	silent, err := s.store.Silent(ctx, min(limits.Running, limits.Queued), sweepBatch)
	if err != nil {
		return err
	}
	var sought []Record
	for _, r := range silent {
		looks, err := s.looks(ctx, r, limits)
		if err == nil && looks {
			sought = append(sought, r)
		} else if err == nil {
			err = s.store.Looked(ctx, r.UUID)
		}
		if err != nil {
			return err
		}
	}
	waits, err := s.store.Waiting(ctx, sought)
	if err != nil {
		return err
	}
	before := s.missed
	s.missed = map[string]string{}
	for _, r := range sought {
		slice, ok := before[r.UUID]
		switch {
		case waits[r.UUID]:
			err = s.store.Looked(ctx, r.UUID)
		case ok && slice == r.Fields["slice"]:
			err = s.goesOn(ctx, r)
		default:
			s.missed[r.UUID] = r.Fields["slice"]
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// looks reports whether to search for a run's payload: no process has it, and the run has been silent for long
// enough.
func (s *Sweeper) looks(ctx context.Context, r Record, limits Limits) (bool, error) {
	limit := limits.Queued
	if r.Fields["status"] == "running" {
		limit = limits.Running
		if recorded, err := s.store.Recorded(ctx, r); recorded || err != nil {
			return false, err
		}
	}
	return time.Since(time.UnixMilli(r.Number("seen"))) >= limit, nil
}

func (s *Sweeper) goesOn(ctx context.Context, r Record) error {
	err := s.store.Again(ctx, r, true)
	switch {
	case err == nil:
		s.log.Warn("a long job was lost: its payload is in no queue, and no worker process has it; it continues from what it has saved. "+
			"Another program may work its queue, or it was emptied", zap.String("uuid", r.UUID),
			zap.String("class", wire.Printable(r.Fields["class"], 200)), zap.String("queue", wire.Printable(r.Fields["queue"], 200)))
		return nil
	case Replied(err):
		return nil // it has moved
	default:
		return err
	}
}
