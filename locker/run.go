package locker

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
)

const (
	// releaseFor is how long a release is tried before the lock is left to expire.
	releaseFor = 5 * time.Second
	// lookEvery limits the sleep of a keeper: a timer stops while the machine is suspended, but
	// the lease does not.
	lookEvery = time.Second
	// retryEvery is the pause after a failed renewal.
	retryEvery = 100 * time.Millisecond
	// hearAfter is how long a block lasts before its lock listens for its revocation, so short
	// blocks cost nothing.
	hearAfter = time.Second
)

// Run runs block while it holds the lock on key, and reports whether it did. Without
// Options.Blocking it returns false if another holds the lock.
//
// block gets the sequence of this acquisition and a context that ends with the lease. Run
// returns when block has returned, with the error of block. If the lock was lost in between,
// ErrLockStolen is joined to that error. ErrNotReleased means that block is done, but others
// have to wait for the end of the lease.
//
// If an attempt to take the lock fails, Run gives back what it may have taken. If the database
// does not answer that within a second, others also have to wait for the end of the lease.
func Run[D DB](ctx context.Context, db D, key string, o Options, block func(ctx context.Context, sequence int64) error) (bool, error) {
	l, err := New(db, key, o)
	if err != nil {
		return false, err
	}
	return l.Run(ctx, block)
}

// Run is like the function Run, for this Lock. It returns ErrInUse if Run is already running.
func (l *Lock) Run(ctx context.Context, block func(ctx context.Context, sequence int64) error) (bool, error) {
	l.mu.Lock()
	running := l.running
	l.running = true
	l.mu.Unlock()
	if running {
		return false, ErrInUse
	}
	defer func() {
		l.mu.Lock()
		l.running = false
		l.mu.Unlock()
	}()
	if got, err := l.obtain(ctx); !got {
		return false, err
	}
	return true, l.hold(ctx, block)
}

// hold runs the block and releases the lock, even if the block panics.
func (l *Lock) hold(ctx context.Context, block func(context.Context, int64) error) (err error) {
	inner, cancel := context.WithCancelCause(ctx)
	work := &leaseContext{Context: inner, lock: l, cancel: cancel}
	// The block holds the lock until it has returned, even if ctx has ended.
	own := context.WithoutCancel(ctx)
	keeping, quit := context.WithCancel(own)
	var keeper sync.WaitGroup
	n := &notices{lock: l}
	defer n.end()
	keeper.Go(func() { l.keep(keeping, work, n) })
	defer func() {
		quit()
		keeper.Wait()
		lost := work.stolen()
		cancel(nil)
		switch released := l.giveBack(own, lost); {
		case err == nil:
			err = released
		case released != nil:
			err = errors.Join(err, released)
		}
	}()
	return block(work, l.Sequence())
}

// notices wakes the keeper of a revoked lock.
type notices struct {
	lock   *Lock
	waiter *waiter
}

// heard returns the channel of revocations, or nil while the lock has been held only for a
// short time.
func (n *notices) heard(held time.Duration) <-chan struct{} {
	if n.waiter == nil {
		if held < hearAfter || !n.lock.db.hijacks() {
			return nil
		}
		n.waiter = listenOnly(n.lock.db, noticeTopic(n.lock.Identifier()))
	}
	return n.waiter.wake
}

// end unsubscribes. It runs after the release of the lock, which need not wait for it.
func (n *notices) end() {
	if n.waiter != nil {
		n.waiter.leave()
	}
}

// keep renews the lock until ctx ends. It ends the block's context when the lock is lost.
func (l *Lock) keep(ctx context.Context, work *leaseContext, n *notices) {
	began := l.sentAt()
	next := began + l.o.RenewEvery
	for {
		left, _ := l.Left()
		told, on := pause(ctx, min(next-bootTime(), left, lookEvery), n.heard(bootTime()-began))
		if !on || work.stolen() != nil {
			return
		}
		if bootTime() < next && !told {
			continue
		}
		left, _ = l.Left()
		// Half of the remaining time, so that an attempt on a dead connection is followed by
		// others.
		attempt, done := context.WithTimeout(ctx, max(left/2, time.Millisecond))
		err := l.Renew(attempt)
		done()
		switch {
		case ctx.Err() != nil:
			return
		case errors.Is(err, ErrLockStolen):
			work.cancel(err)
			return
		case err != nil:
			work.why(err)
			l.o.report(err)
			next = bootTime() + min(retryEvery, l.o.RenewEvery)
		default:
			next = l.sentAt() + l.o.RenewEvery
		}
	}
}

// pause sleeps for d or until tell; on is false if ctx has ended.
func pause(ctx context.Context, d time.Duration, tell <-chan struct{}) (told, on bool) {
	timer := time.NewTimer(max(0, d))
	defer timer.Stop()
	select {
	case <-tell:
		return true, ctx.Err() == nil
	case <-timer.C:
		return false, ctx.Err() == nil
	case <-ctx.Done():
		return false, false
	}
}

func (l *Lock) sentAt() time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.sent
}

// giveBack releases the lock after the block, however the block ended.
func (l *Lock) giveBack(ctx context.Context, lost error) error {
	ctx, cancel := context.WithTimeout(ctx, releaseFor)
	defer cancel()
	id := l.Identifier()
	for n := 0; ; n++ {
		// Each attempt gets a part, so a dead connection does not use up all the time.
		attempt, done := context.WithTimeout(ctx, releaseFor/3)
		found, err := l.releaseOnce(attempt, id)
		done()
		switch {
		case err == nil && lost == nil && !found && n == 0:
			return fmt.Errorf("%w: %q was no longer ours in the table", ErrLockStolen, l.key)
		case err == nil, lost != nil:
			// The second attempt finds nothing if the first one has taken effect after all. A
			// lost lock is only cleaned up if it has not been taken since.
			return lost
		case !passing(err), !sleep(ctx, retryEvery):
			return fmt.Errorf("%w: %w", ErrNotReleased, err)
		}
	}
}

func sleep(ctx context.Context, d time.Duration) bool {
	_, on := pause(ctx, d, nil)
	return on
}
