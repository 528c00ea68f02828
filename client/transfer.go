package client

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	"github.com/resqued/resqued/internal/selector/filter"
	"github.com/resqued/resqued/internal/store"
	"github.com/resqued/resqued/internal/wire"
)

// ErrUniqueQueue means that the queue is unique: its jobs cannot be moved to another store.
var ErrUniqueQueue = errors.New("it is a unique queue: its jobs cannot be moved to another store")

// MoveQueueTo moves the jobs that wait in a queue to the queue of the same name in the Redis,
// or namespace, of another client: in order, in batches, with payloads unchanged. Each job
// arrives once. If the move is interrupted, for example by a crash, some jobs are in transit,
// in neither queue; the next call for the queue continues with them. Jobs that are pushed after
// the call began may stay.
//
// Jobs that run, delayed jobs, suspects (which wait to run alone), slices of long jobs and jobs
// of loner classes stay. Unique queues are refused with ErrUniqueQueue. Counts of deaths start
// over. Hooks are not called. MoveOptions.Head has no effect.
//
// After an error, some jobs may have been moved: at least those of the report.
func (c *Client) MoveQueueTo(ctx context.Context, queue string, other *Client, o MoveOptions) (report WaitingReport, err error) {
	switch err := wire.CheckQueue(queue); {
	case err != nil:
		return report, &refusedError{err}
	case c.unique(queue) || other.unique(queue):
		return report, fmt.Errorf("move %q: %w", queue, &refusedError{ErrUniqueQueue})
	case c.store.Where() == other.store.Where() && c.opts.Namespace == other.opts.Namespace:
		return report, &refusedError{errors.New("these are the same store")}
	}
	n, err := c.store.Length(ctx, queue)
	if err != nil {
		return report, err
	}
	left := newStaying()
	pick := c.picker(new(filter.Matcher), queue, left)
	moved, err := c.store.Transfer(ctx, other.store, store.TransferRequest{
		Queue: queue, Where: cmp.Or(o.Name, other.store.Where()+", namespace "+other.opts.Namespace), Limit: n,
		Pick: func(payload []byte) bool {
			marker, ok := pick(payload)
			if ok && marker != "" {
				left.loners[string(payload)] = true
				return false
			}
			return ok
		},
		Step: o.step,
	})
	report.Done = moved
	left.count(&report)
	if errors.Is(err, store.ErrUniqueTransfer) {
		err = fmt.Errorf("move %q: %w", queue, ErrUniqueQueue)
	}
	return report, err
}

// ErrMoveGoesOn means that the other store answers, so MoveQueueTo can continue.
var ErrMoveGoesOn = errors.New("the store that its jobs are on their way to answers: let the move go on instead")

// MoveQueueBack puts jobs that an interrupted MoveQueueTo left in transit back to the head of
// their queue, and returns their number. Use it if the other store is gone for good. If other
// answers and is the store they were moving to, the error is ErrMoveGoesOn. Jobs that had
// arrived there run twice if that store comes back.
func (c *Client) MoveQueueBack(ctx context.Context, queue string, other *Client) (jobs int64, err error) {
	if err := wire.CheckQueue(queue); err != nil {
		return 0, &refusedError{err}
	}
	jobs, err = c.store.TransferBack(ctx, other.store, queue)
	if errors.Is(err, store.ErrTransferGoesOn) {
		err = fmt.Errorf("move %q back: %w", queue, ErrMoveGoesOn)
	}
	return jobs, err
}
