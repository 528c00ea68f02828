package locker

import (
	"context"
	"time"
)

// obtain takes the lock, and with Blocking waits for it. The first answer of the
// database counts, whatever it is: an outage is ridden out by those who wait already.
func (l *Lock) obtain(ctx context.Context) (bool, error) {
	var timeout <-chan time.Time
	if l.o.BlockTimeout > 0 {
		timer := time.NewTimer(l.o.BlockTimeout)
		defer timer.Stop()
		timeout = timer.C
	}
	got, err := l.Get(ctx)
	if err != nil {
		l.abandon(ctx)
	}
	if got || err != nil || !l.o.Blocking {
		return got, err
	}
	w := subscribe(l.db, topic(l.key))
	defer w.leave()
	for {
		select {
		case <-w.wake:
			w.done = false
		case <-timeout:
			return false, nil
		case <-ctx.Done():
			return false, context.Cause(ctx)
		}
		got, err := l.Get(ctx)
		switch {
		case got:
			w.done = true
			return true, nil
		case ctx.Err() != nil:
			l.abandon(ctx)
			return false, context.Cause(ctx)
		case err != nil && !passing(err):
			return false, err
		}
		w.done = err == nil
	}
}

// abandon gives back what a Get without an answer may have taken.
func (l *Lock) abandon(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
	defer cancel()
	_, _ = l.releaseOnce(ctx, l.Identifier())
}
