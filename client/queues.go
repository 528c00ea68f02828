package client

import (
	"context"
	"fmt"
	"slices"

	"github.com/resqued/resqued/internal/selector/filter"
	"github.com/resqued/resqued/internal/wire"
)

// Dequeue removes the jobs of a class with these arguments that wait in a queue, and returns
// their number. args are as for Enqueue. Arguments are compared decoded, so {"a":1,"b":2}
// equals {"b":2,"a":1}; other keys of the payload do not matter. Jobs that are pushed during
// the call may stay. Jobs that run are not affected.
//
// After an error, some jobs may have been removed: at least the returned number.
func (c *Client) Dequeue(ctx context.Context, queue, class string, args any) (removed int64, err error) {
	wanted, err := wire.Args(args)
	if err != nil {
		return 0, fmt.Errorf("dequeue: %w", err)
	}
	same, err := filter.Same(wanted)
	if err != nil {
		return 0, fmt.Errorf("dequeue: %w", err)
	}
	return c.dequeue(ctx, queue, func(e wire.Envelope) bool {
		_, args := e.As(class)
		return e.Is(class) && same(args)
	})
}

// DequeueClass removes all jobs of a class that wait in a queue and returns their number. It is
// otherwise like Dequeue.
func (c *Client) DequeueClass(ctx context.Context, queue, class string) (removed int64, err error) {
	return c.dequeue(ctx, queue, func(e wire.Envelope) bool { return e.Is(class) })
}

func (c *Client) dequeue(ctx context.Context, queue string, match func(e wire.Envelope) bool) (int64, error) {
	if err := wire.CheckQueue(queue); err != nil {
		return 0, &refusedError{err}
	}
	return c.take(ctx, queue, func(payload []byte) bool {
		e, err := wire.Parse(payload, 0)
		return err == nil && match(e)
	})
}

// take removes the payloads that pick selects, with the markers of loner jobs among them.
func (c *Client) take(ctx context.Context, queue string, pick func(payload []byte) bool) (int64, error) {
	return c.store.Dequeue(ctx, queue, pick, func(payloads [][]byte) error { return c.unmark(ctx, queue, payloads) })
}

// RemoveQueue removes a queue and all jobs that wait in it, and returns the number of jobs.
// Jobs that run are not affected; if one is requeued, the queue exists again.
func (c *Client) RemoveQueue(ctx context.Context, queue string) (removed int64, err error) {
	return c.removeQueue(ctx, queue, false)
}

// PurgeQueue removes all jobs that wait in a queue and returns their number. The queue itself
// stays.
func (c *Client) PurgeQueue(ctx context.Context, queue string) (removed int64, err error) {
	return c.removeQueue(ctx, queue, true)
}

func (c *Client) removeQueue(ctx context.Context, queue string, keep bool) (removed int64, err error) {
	if err := wire.CheckQueue(queue); err != nil {
		return 0, &refusedError{err}
	}
	if c.loners() {
		// One by one, because each may have left a marker.
		if removed, err = c.take(ctx, queue, func([]byte) bool { return true }); err != nil {
			return removed, err
		}
	}
	rest, err := c.store.RemoveQueue(ctx, queue, keep)
	return removed + rest, err
}

func (c *Client) loners() bool {
	return c.opts.Handlers != nil && slices.ContainsFunc(c.opts.Handlers.Classes(), func(name string) bool { return c.loner(name) != nil })
}

// unmark removes the markers of loner jobs that will not start. Markers of classes that the
// client does not know are recognized as orphans by the next enqueue.
func (c *Client) unmark(ctx context.Context, queue string, payloads [][]byte) error {
	if !c.loners() {
		return nil
	}
	for _, payload := range payloads {
		e, err := wire.Parse(payload, 0)
		if err != nil {
			continue
		}
		l := c.lonerLock(e)
		if l == nil {
			continue
		}
		if _, err := l.store.Unmark(ctx, l.key, queue, payload); err != nil {
			return l.failed(err)
		}
	}
	return nil
}
