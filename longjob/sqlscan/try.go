package sqlscan

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/resqued/resqued"
	"github.com/resqued/resqued/longjob"
)

const (
	// tries is how often a transaction is tried that the server or a proxy ends. With the
	// pauses that takes about 6 seconds.
	tries      = 8
	firstPause = 50 * time.Millisecond
	// maxAltered is how often a transaction is tried because the table was altered: each
	// connection of a pool has its own prepared statements.
	maxAltered = 100
	// vain is the minimum time for which a slice tries before its end counts as a failure.
	vain = 5 * time.Second
)

// fnError is an error of the program's function, lostError an error that loses the connection.
type (
	fnError   struct{ error }
	lostError struct{ error }
)

func (e fnError) Unwrap() error   { return e.error }
func (e lostError) Unwrap() error { return e.error }

// again calls fn until it succeeds or fails permanently. Each call is a transaction; before
// another call it was rolled back or its work is complete. at is the place whose batch shrinks
// when a statement took too long or met a lock; nil = it cannot.
func (s *scan) again(ctx context.Context, at *place, fn func(ctx context.Context) error) error {
	pause, began := firstPause, time.Now()
	for n, altered := 1, 0; ; {
		err := fn(ctx)
		var v verdict
		if err != nil {
			v = s.d.judge(err)
		}
		switch {
		case err == nil, ctx.Err() == nil && runnerSays(err):
			return err
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case s.sweeping && (v.locked || v.foreign):
			s.careful = quickEnough // rows are locked one by one, or the referenced row is named
			if v.locked {
				s.shrink(at)
			}
			continue // even if the slice is over: the next one would start the same way
		case v.tooLong && at != nil && s.shrink(at):
		case v.altered && altered < maxAltered:
			altered++ // each connection finds out by itself
			s.d.forget()
		case !v.passing || n == tries:
			return err
		default:
			n++
			s.rest(ctx, pause)
			pause *= 2
		}
		if stop := s.r.Continue(ctx); stop != nil {
			if errors.Is(stop, longjob.ErrYield) && s.pages == 0 && !leaving(ctx) && (n > tries/2 || time.Since(began) > vain) {
				return err // the next slice would end the same way
			}
			return stop
		}
	}
}

func runnerSays(err error) bool {
	return slices.ContainsFunc([]error{longjob.ErrYield, longjob.ErrCancelled, longjob.ErrTakenOver}, func(e error) bool { return errors.Is(err, e) })
}

func leaving(ctx context.Context) bool {
	select {
	case <-resqued.Leaving(ctx):
		return true
	default:
		return false
	}
}

// rest waits, at most until the worker process exits.
func (s *scan) rest(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-resqued.Leaving(ctx):
	case <-timer.C:
	}
}

func (s *scan) wrap(err error) error {
	if err == nil || runnerSays(err) {
		return err
	}
	return fmt.Errorf("sqlscan: step %q, table %s: %w", s.step, s.d.table(), err)
}
