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

// releaseFor bounds the release of a lock kept elsewhere; then the lock is left to expire.
const releaseFor = 5 * time.Second

// lookFor bounds the check of a lock whose time seems to be over.
const lookFor = time.Second

// lease is a class lock that a running job holds. With a time limit, watch runs from newLease until unlock.
type lease struct {
	locks *Locks
	class *resqued.ClassLock
	job   *resqued.Job
	claim *Claim
	lock  store.HeldLock
	// ctx is the job's context and ends with the lock.
	ctx    context.Context //nolint:containedctx // handed on to the job
	cancel context.CancelCauseFunc

	ended   chan struct{}
	watcher sync.WaitGroup

	mu sync.Mutex
	// limit is when the lock's time is over, expires the matching value in Redis, in seconds since
	// 1970.
	limit   time.Time
	expires int64
	over    bool // limit has passed
}

// newLease starts the time of a lock whose request was sent at sent.
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

// left returns the time left. If it is up, it asks Redis, as another process may have refreshed the lock.
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

// move sets a later end. mu must be held.
func (l *lease) move(limit time.Time, expires int64) {
	l.limit, l.expires = limit, expires
	l.claim.Update(func(s *ClaimState) { s.Limit = limit })
}

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

func (l *lease) shown() string { return l.locks.shown(l.job, l.lock.Key) }

func (l *lease) expired() error { return &expiredError{key: l.shown(), limit: l.lock.Timeout} }

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

// lose cancels the job because its lock is gone, and notes that in the claim. The job has grace to stop.
func (l *lease) lose(cause error, grace time.Duration) {
	l.cancel(cause)
	l.claim.Update(func(s *ClaimState) {
		if s.Lost == nil {
			s.Lost, s.Grace = cause, grace
		}
	})
}

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
		err := k.store.ReleaseLock(ctx, l.lock) // by its owner's name, so it may be repeated
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

func lostTo(key, holder string) error {
	if holder == "" {
		return fmt.Errorf("%w: the class lock %s is gone", resqued.ErrLockLost, key)
	}
	return fmt.Errorf("%w: the class lock %s is held by %s", resqued.ErrLockLost, key, wire.Printable(holder, 300))
}

type expiredError struct {
	key   string
	limit time.Duration
}

func (e *expiredError) Error() string {
	return fmt.Sprintf("%s: it held its class lock %s for %s", resqued.ErrTimeout, e.key, e.limit)
}

func (e *expiredError) Unwrap() error { return resqued.ErrTimeout }

func (e *expiredError) LockTimeout() time.Duration { return e.limit }
