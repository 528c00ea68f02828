package locker

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"
)

// DefaultPause is the default of RotateOptions.
const DefaultPause = time.Second

// RotateOptions are how servers take turns.
type RotateOptions struct {
	// Options are those of the lock; it is always a blocking one, and BlockTimeout is
	// not used.
	Options
	// Pause is the least time from the end of a turn to the next try of the same
	// server; as much again is added at random, so that the others get their turns, in
	// no fixed order. Make it longer than a turn is to be had elsewhere. Default 1 s.
	Pause time.Duration
}

// Rotate runs block again and again, on one server at a time: it takes the lock, runs
// block once, releases the lock and pauses. When every server does so, each gets its
// share of the turns over time, and when one dies the others go on.
//
// It ends when ctx does, and returns nil then, or with an error: block's, or one of
// the database that waiting does not mend. A turn whose lock was stolen, and a database
// that is away, are no reason to end.
func Rotate[D DB](ctx context.Context, db D, key string, o RotateOptions, block func(ctx context.Context, sequence int64) error) error {
	if o.Pause == 0 {
		o.Pause = DefaultPause
	}
	if o.Pause < 0 {
		return fmt.Errorf("locker: Pause %s must not be negative", o.Pause)
	}
	o.Blocking, o.BlockTimeout = true, 0
	l, err := New(db, key, o.Options)
	if err != nil {
		return err
	}
	for ctx.Err() == nil {
		var failed error
		_, err := l.Run(ctx, func(ctx context.Context, sequence int64) error {
			failed = block(ctx, sequence)
			return failed
		})
		switch {
		case ctx.Err() != nil:
			if errors.Is(failed, ctx.Err()) || errors.Is(failed, context.Cause(ctx)) {
				return nil
			}
			return failed
		case err == nil, errors.Is(err, ErrLockStolen), errors.Is(err, ErrNotReleased) && failed == nil:
		case failed != nil:
			return failed
		case !passing(err):
			return err
		}
		sleep(ctx, o.Pause+rand.N(o.Pause))
	}
	return nil
}
