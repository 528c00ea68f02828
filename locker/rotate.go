package locker

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"
)

// DefaultPause is the default of RotateOptions.Pause.
const DefaultPause = time.Second

// RotateOptions configure Rotate.
type RotateOptions struct {
	// Options are the options of the lock. Blocking and BlockTimeout are ignored: Rotate always
	// waits.
	Options
	// Pause is the minimum time from the end of a turn until the same server tries again. Up to
	// as much is added at random, so the servers take turns in no fixed order. Default
	// DefaultPause.
	Pause time.Duration
}

// Rotate runs block again and again, on one server at a time: it takes the lock, runs block
// once, releases the lock and pauses. If every server does so, each gets turns, and when one
// dies the others continue.
//
// Rotate returns nil when ctx ends. It returns the error of block, or an error of the database
// that waiting does not repair. It continues after a turn whose lock was stolen, and while a
// database does not answer.
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
