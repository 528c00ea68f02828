package locker

import (
	"context"
	"errors"
	"fmt"
	"sync"
)

// leaseContext is the context of a block. It ends with the lease by the clock, not by an event:
// a process that was stopped finds it ended when it first checks.
type leaseContext struct {
	context.Context
	lock   *Lock
	cancel context.CancelCauseFunc

	mu     sync.Mutex
	failed error
}

// Err checks the clock first.
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

// why keeps the error of a failed renewal for the cause.
func (c *leaseContext) why(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.failed = err
}

func (c *leaseContext) stolen() error {
	if c.Err() == nil {
		return nil
	}
	if err := context.Cause(c.Context); errors.Is(err, ErrLockStolen) {
		return err
	}
	// Cancelled by the parent; the lease may be over as well.
	if work, _ := c.lock.Left(); work == 0 {
		return fmt.Errorf("%w: %q was not renewed in time", ErrLockStolen, c.lock.key)
	}
	return nil
}
