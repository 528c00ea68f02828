package locker

import (
	"context"
	"errors"
	"fmt"
	"sync"
)

// leaseContext is the context of a block. It ends when the lease does, not only when
// somebody has noticed: a process that was stopped and runs again finds it ended at
// its first look.
type leaseContext struct {
	context.Context
	lock   *Lock
	cancel context.CancelCauseFunc

	mu     sync.Mutex
	failed error
}

// Err looks at the clock itself.
func (c *leaseContext) Err() error {
	if err := c.Context.Err(); err != nil {
		return err
	}
	if work, _ := c.lock.Left(); work == 0 {
		c.mu.Lock()
		failed := c.failed
		c.mu.Unlock()
		err := fmt.Errorf("%w: %q was not renewed in time", ErrLockStolen, c.lock.key)
		if failed != nil {
			err = fmt.Errorf("%w: %w", err, failed)
		}
		c.cancel(err)
	}
	return c.Context.Err()
}

// why keeps the reason of a renewal that failed, for the cause.
func (c *leaseContext) why(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.failed = err
}

// stolen returns why the lock was lost, or nil if it is held.
func (c *leaseContext) stolen() error {
	if c.Err() == nil {
		return nil
	}
	if err := context.Cause(c.Context); errors.Is(err, ErrLockStolen) {
		return err
	}
	// It was ended from outside; the lease may be over all the same.
	if work, _ := c.lock.Left(); work == 0 {
		return fmt.Errorf("%w: %q was not renewed in time", ErrLockStolen, c.lock.key)
	}
	return nil
}
