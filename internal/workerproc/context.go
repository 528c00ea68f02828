package workerproc

import (
	"context"
	"sync"
	"time"
)

// jobContext is the context of a job. Many jobs never use more than Err, so the cancellable
// context behind it is made on demand.
type jobContext struct {
	parent context.Context //nolint:containedctx // it is one itself

	mu     sync.Mutex
	made   context.Context //nolint:containedctx // as above
	cancel context.CancelCauseFunc
	// ended: end was called with cause before made existed.
	ended bool
	cause error
}

// end ends the context. Only the first cause counts; nil means context.Canceled.
func (c *jobContext) end(cause error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.made != nil {
		c.cancel(cause)
		return
	}
	if !c.ended {
		c.ended, c.cause = true, cause
	}
}

func (c *jobContext) full() context.Context {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.made == nil {
		c.made, c.cancel = context.WithCancelCause(c.parent)
		if c.ended {
			c.cancel(c.cause)
		}
	}
	return c.made
}

func (c *jobContext) Deadline() (time.Time, bool) { return c.parent.Deadline() }

func (c *jobContext) Done() <-chan struct{} { return c.full().Done() }

func (c *jobContext) Err() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.made != nil:
		return c.made.Err()
	case c.ended:
		return context.Canceled
	default:
		return c.parent.Err()
	}
}

// Value implements context.Context. Package context finds the cause by such a value.
func (c *jobContext) Value(key any) any { return c.full().Value(key) }
