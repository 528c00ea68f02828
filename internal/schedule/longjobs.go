package schedule

import (
	"context"
	"errors"
	"time"

	"go.uber.org/zap"

	"github.com/resqued/resqued/internal/store"
	"github.com/resqued/resqued/internal/wire"
)

const (
	// sweepEvery is the time between two looks for runs of long jobs that are lost or are
	// to be forgotten.
	sweepEvery = time.Minute
	// sweepBatch bounds what one look does.
	sweepBatch = 100
	// sweepPatience bounds one look.
	sweepPatience = 30 * time.Second
)

// LongStore is what a Sweeper asks of Redis; *store.Store is one.
type LongStore interface {
	LongSilent(ctx context.Context, silent time.Duration, n int) ([]store.LongRecord, error)
	LongRecorded(ctx context.Context, r store.LongRecord) (bool, error)
	LongWaiting(ctx context.Context, r store.LongRecord) (bool, error)
	LongLooked(ctx context.Context, uuid string) error
	LongAgain(ctx context.Context, r store.LongRecord, lost bool) error
	LongForget(ctx context.Context, n int) (int, error)
	LongTurns(ctx context.Context, silent time.Duration, n int) error
}

// Sweeper has runs of long jobs go on whose payload is nowhere: somebody has emptied a queue,
// or removed a job. The slices of dead worker processes are not its business, recovery puts
// those back. And it forgets runs that have ended long enough ago. Any number of Sweepers may
// work on one Redis.
type Sweeper struct {
	Store LongStore
	Log   *zap.Logger
	// Running and Queued are how long a run has given no sign of life that runs, or that
	// waits, before it is looked for.
	Running, Queued time.Duration

	complaint string
}

// Run works until ctx ends.
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
			s.Log.Error("cannot look after long jobs; trying again", zap.Error(err))
		} else if err == nil {
			s.complaint = ""
		}
		timer.Reset(sweepEvery)
	}
}

// Sweep looks once.
func (s *Sweeper) Sweep(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, sweepPatience)
	defer cancel()
	if _, err := s.Store.LongForget(ctx, sweepBatch); err != nil {
		return err
	}
	if err := s.Store.LongTurns(ctx, sweepEvery, sweepBatch); err != nil {
		return err
	}
	silent, err := s.Store.LongSilent(ctx, min(s.Running, s.Queued), sweepBatch)
	if err != nil {
		return err
	}
	for _, r := range silent {
		if err := s.look(ctx, r); err != nil {
			return err
		}
	}
	return nil
}

// look has a run go on if it is lost.
func (s *Sweeper) look(ctx context.Context, r store.LongRecord) error {
	lost, err := s.lost(ctx, r)
	if err == nil && !lost {
		return s.Store.LongLooked(ctx, r.UUID)
	}
	if err == nil {
		err = s.Store.LongAgain(ctx, r, true)
	}
	switch {
	case err == nil:
		s.Log.Warn("a long job was lost; it goes on from what it has saved", zap.String("uuid", r.UUID),
			zap.String("class", wire.Printable(r.Fields["class"], 200)))
		return nil
	case errors.Is(err, store.ErrLongGone), errors.Is(err, store.ErrLongOver), errors.Is(err, store.ErrLongStale),
		errors.Is(err, store.ErrLongEnding), errors.Is(err, store.ErrLongNewer):
		return nil // it has moved meanwhile
	default:
		return err
	}
}

// lost tells whether nobody has a run in hand and its payload is nowhere.
func (s *Sweeper) lost(ctx context.Context, r store.LongRecord) (bool, error) {
	limit := s.Queued
	if r.Fields["status"] == "running" {
		limit = s.Running
		if recorded, err := s.Store.LongRecorded(ctx, r); recorded || err != nil {
			return false, err
		}
	}
	if time.Since(time.UnixMilli(r.Number("seen"))) < limit {
		return false, nil
	}
	waits, err := s.Store.LongWaiting(ctx, r)
	return !waits, err
}
