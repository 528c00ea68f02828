package longjob

import (
	"context"
	"math/rand/v2"
	"time"
)

const lockPause = time.Second

// CriticalUnit runs fn as a unit while it holds the named lock, which all long jobs share.
// While another run holds the lock, it tries about once a second. Each try counts as a unit, so
// a slice can end while it waits. The lock is released when fn has returned, or when the
// process is found dead. Within a unit that already holds the lock, CriticalUnit runs fn as an
// ordinary unit.
func (r *Runner) CriticalUnit(ctx context.Context, lock string, fn func(ctx context.Context) error) error {
	for {
		if err := r.Continue(ctx); err != nil {
			return err
		}
		if r.locks[lock] {
			return r.unit(ctx, fn, nil)
		}
		switch got, err := r.lock(ctx, lock); {
		case err != nil:
			return err
		case got:
			defer r.unlock(ctx, lock)
			return r.unit(ctx, fn, nil)
		}
		r.mu.Lock()
		r.tried++
		r.mu.Unlock()
		// The pause is random to spread the tries of many runs. It ends early with the slice.
		if !r.rest(ctx, lockPause/2+time.Duration(rand.Int64N(int64(lockPause)))) {
			return context.Cause(ctx)
		}
	}
}

// lock tries once to take a lock, unless this run holds it.
func (r *Runner) lock(ctx context.Context, name string) (got bool, err error) {
	if r.locks[name] {
		return true, nil
	}
	if got, err = r.store.Lock(ctx, name, r.slice.Run); err != nil && !passing(err) {
		r.stop(ErrTakenOver)
		return false, ErrTakenOver
	}
	r.locks[name] = got
	return got, nil
}

func (r *Runner) unlock(ctx context.Context, name string) {
	delete(r.locks, name)
	// Without a reply the lock is free at the latest when this job has ended.
	_ = r.store.Unlock(context.WithoutCancel(ctx), name, r.slice.Run)
}

// rest waits, at most until the worker process exits or the run is paused. It returns false if
// ctx has ended.
func (r *Runner) rest(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-r.leaving:
	case <-r.pausing:
	case <-timer.C:
	}
	return true
}
