package locker

import (
	"context"
	"fmt"
	"time"
)

// obtain takes the lock. With Blocking it waits for the lock and for a database that does not
// answer.
func (l *Lock) obtain(ctx context.Context) (got bool, err error) {
	limited := ctx
	if l.o.BlockTimeout > 0 {
		var cancel context.CancelFunc
		limited, cancel = context.WithTimeout(ctx, l.o.BlockTimeout)
		defer cancel()
	}
	w := &waiting{lock: l}
	defer func() {
		if !got && w.unknown {
			l.abandon(ctx)
		}
	}()
	if got, err = w.ask(limited); got || !l.o.Blocking {
		return got, err
	}
	if err != nil && (ctx.Err() != nil || limited.Err() == nil && !passing(err)) {
		return false, err
	}
	turns := subscribe(l.db, topic(l.key))
	defer turns.leave()
	for {
		select {
		case <-turns.wake:
			turns.done = false
		case <-limited.Done():
			if ctx.Err() != nil {
				return false, context.Cause(ctx)
			}
			if w.answered {
				return false, nil
			}
			return false, fmt.Errorf("locker: get %q: no answer within %s: %w", l.key, l.o.BlockTimeout, w.failed)
		}
		got, err := w.ask(limited)
		switch {
		case got:
			turns.done = true
			return true, nil
		case err != nil && limited.Err() == nil && !passing(err):
			return false, err
		}
		turns.done = err == nil
	}
}

type waiting struct {
	lock *Lock
	// answered: the database has named the holder of the lock at least once.
	answered bool
	failed   error // of the last attempt
	// unknown: the last attempt may have taken the lock.
	unknown bool
}

func (w *waiting) ask(ctx context.Context) (bool, error) {
	got, err := w.lock.Get(ctx)
	w.failed = err
	if err == nil {
		w.answered, w.unknown = true, false
		return got, nil
	}
	w.unknown = w.unknown || !unsent(err)
	if ctx.Err() == nil && passing(err) && w.lock.o.Blocking {
		w.lock.o.report(err)
	}
	return false, err
}

// abandon releases the lock that a Get without an answer may have taken.
func (l *Lock) abandon(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
	defer cancel()
	_, _ = l.releaseOnce(ctx, l.Identifier())
}
