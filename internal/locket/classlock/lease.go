package classlock

import (
	"context"
	"fmt"
	"sync"
	"time"

	"go.uber.org/zap"

	"github.com/resqued/resqued"
	"github.com/resqued/resqued/internal/jobctx"
	"github.com/resqued/resqued/internal/store"
	"github.com/resqued/resqued/internal/wire"
)

// releaseFor bounds the release of a lock that is kept elsewhere; after it the lock is
// left to expire.
const releaseFor = 5 * time.Second

// lookFor bounds the look at a lock whose time seems to be over.
const lookFor = time.Second

// lease is a class lock that a running job holds. One with a time limit has a
// goroutine that waits for it, from newLease until unlock.
type lease struct {
	locks *Locks
	class *resqued.ClassLock
	job   *resqued.Job
	claim *Claim
	lock  store.HeldLock
	// ctx is the job's, and ends with the lock.
	ctx    context.Context //nolint:containedctx // handed on to the job
	cancel context.CancelCauseFunc

	ended   chan struct{}
	watcher sync.WaitGroup

	mu sync.Mutex
	// limit is when the time of the lock is over, expires what its value said then,
	// in seconds since 1970.
	limit   time.Time
	expires int64
	over    bool // it is
}

// newLease begins the time of a lock that was taken by a request sent at sent.
func newLease(ctx context.Context, locks *Locks, class *resqued.ClassLock, job *resqued.Job,
	claim *Claim, lock store.HeldLock, sent moment, expires int64,
) *lease {
	l := &lease{locks: locks, class: class, job: job, claim: claim, lock: lock, ended: make(chan struct{}), expires: expires}
	l.ctx, l.cancel = context.WithCancelCause(ctx)
	l.ctx = jobctx.WithLocks(l.ctx, service{locks: locks, lease: l})
	if lock.Timeout > 0 {
		l.limit = sent.at.Add(lock.Timeout)
		job.Deadline = l.limit
	}
	claim.Update(func(s *ClaimState) { s.Held, s.Limit = !lock.Elsewhere, l.limit })
	if k := locks.keeperOf(class); k != nil {
		k.add(l, sent.boot)
	}
	if lock.Timeout > 0 {
		l.watcher.Go(l.watch)
	}
	return l
}

// watch waits until the time of the lock is over or the job has ended.
func (l *lease) watch() {
	for {
		left := l.left()
		if left <= 0 {
			l.expire()
			return
		}
		timer := time.NewTimer(left)
		select {
		case <-l.ended:
			timer.Stop()
			return
		case <-timer.C:
		}
	}
}

// left returns how much time the lock has left. When that seems to be nothing it asks
// Redis: another process may have refreshed the lock.
func (l *lease) left() time.Duration {
	l.mu.Lock()
	left := time.Until(l.limit)
	l.mu.Unlock()
	if left > 0 {
		return left
	}
	ctx, cancel := context.WithTimeout(l.ctx, lookFor)
	defer cancel()
	expires, err := l.locks.storeOf(l.class).LockExpires(ctx, l.lock)
	l.mu.Lock()
	defer l.mu.Unlock()
	if err == nil && expires > l.expires {
		l.move(l.limit.Add(time.Duration(expires-l.expires)*time.Second), expires)
	}
	left = time.Until(l.limit)
	l.over = left <= 0
	return left
}

// move sets a later end. The caller holds mu.
func (l *lease) move(limit time.Time, expires int64) {
	l.limit, l.expires = limit, expires
	l.claim.Update(func(s *ClaimState) { s.Limit = limit })
}

// expire cancels the job and calls the class's OnLockExpiredBeforeRelease.
func (l *lease) expire() {
	l.cancel(l.expired())
	if l.class.OnLockExpiredBeforeRelease == nil {
		return
	}
	ctx := context.WithoutCancel(l.ctx)
	err := l.locks.cfg.Guard(func() error { return l.class.OnLockExpiredBeforeRelease(ctx, l.job.Args) })
	if err != nil {
		l.locks.cfg.Log.Error("OnLockExpiredBeforeRelease broke", zap.String("class", wire.Printable(l.job.Class, 200)),
			zap.String("lock", l.shown()), zap.Error(err))
	}
}

// shown is the key as it may stand in a text.
func (l *lease) shown() string { return l.locks.shown(l.job, l.lock.Key) }

func (l *lease) expired() error { return &expiredError{key: l.shown(), limit: l.lock.Timeout} }

// refresh begins the time of the lock anew.
func (l *lease) refresh(ctx context.Context) error {
	if l.ctx.Err() != nil {
		return context.Cause(l.ctx)
	}
	sent := time.Now()
	reply, err := l.locks.storeOf(l.class).RefreshLock(ctx, l.lock)
	switch {
	case err != nil:
		return fmt.Errorf("refresh the class lock %s: %w", l.shown(), l.locks.shownError(l.job, l.lock.Key, err))
	case !reply.Got:
		l.lose(lostTo(l.shown(), reply.Holder), l.locks.cfg.stopGrace())
		return context.Cause(l.ctx)
	case l.lock.Timeout == 0:
		return nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.over {
		return l.expired()
	}
	l.move(sent.Add(l.lock.Timeout), reply.Expires)
	return nil
}

// lose cancels the job because its lock is gone, and notes that in the claim for the loop of
// the process. The job has grace to stop.
func (l *lease) lose(cause error, grace time.Duration) {
	l.cancel(cause)
	l.claim.Update(func(s *ClaimState) {
		if s.Lost == nil {
			s.Lost, s.Grace = cause, grace
		}
	})
}

// unlock ends the lease when the job's code has ended.
func (l *lease) unlock() {
	close(l.ended)
	l.watcher.Wait()
	k := l.locks.keeperOf(l.class)
	if k == nil {
		l.cancel(nil)
		return
	}
	k.remove(l)
	ctx, cancel := context.WithTimeout(context.WithoutCancel(l.ctx), releaseFor)
	defer cancel()
	l.cancel(nil)
	for pause := firstPause; ; pause = min(2*pause, longPause) {
		err := k.store.ReleaseLock(ctx, l.lock) // by its owner's name: it may be repeated
		if err == nil {
			return
		}
		if sleep(ctx, pause); ctx.Err() != nil {
			l.claim.Update(func(s *ClaimState) { s.Left = true })
			l.locks.complain(k.store, "class locks cannot be released; they are left to expire",
				zap.String("lock", l.shown()), zap.Error(l.locks.shownError(l.job, l.lock.Key, err)))
			return
		}
	}
}

// lostTo returns the cause for which a job ends that has lost its lock to holder.
func lostTo(key, holder string) error {
	if holder == "" {
		return fmt.Errorf("%w: the class lock %s is gone", resqued.ErrLockLost, key)
	}
	return fmt.Errorf("%w: the class lock %s is held by %s", resqued.ErrLockLost, key, wire.Printable(holder, 300))
}

// expiredError is the cause for which a job ends that has held its lock for too long.
type expiredError struct {
	key   string
	limit time.Duration
}

func (e *expiredError) Error() string {
	return fmt.Sprintf("%s: it held its class lock %s for %s", resqued.ErrTimeout, e.key, e.limit)
}

// Unwrap returns resqued.ErrTimeout.
func (e *expiredError) Unwrap() error { return resqued.ErrTimeout }

// LockTimeout is how long the job was allowed to hold the lock.
func (e *expiredError) LockTimeout() time.Duration { return e.limit }
