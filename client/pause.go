package client

import (
	"context"

	"github.com/resqued/resqued/internal/store"
)

// PauseQueue keeps resqued's workers, and Ruby's workers with resque-pause, from taking jobs
// out of a queue. Jobs that run are not affected, and jobs can still be enqueued. PauseQueue
// returns false if the queue was paused already.
func (c *Client) PauseQueue(ctx context.Context, queue string) (changed bool, err error) {
	before, _, err := c.store.Pause(ctx, queue, store.PauseOptions{})
	return before == nil && err == nil, err
}

// ResumeQueue undoes PauseQueue. It returns false if the queue was not paused.
func (c *Client) ResumeQueue(ctx context.Context, queue string) (changed bool, err error) {
	return c.store.Resume(ctx, queue)
}

// PauseAll pauses all queues, including queues that do not exist yet. It returns false if they
// were paused already. Queues paused by PauseQueue stay paused after ResumeAll.
func (c *Client) PauseAll(ctx context.Context) (changed bool, err error) {
	before, _, err := c.store.PauseAll(ctx, store.PauseOptions{})
	return before == nil && err == nil, err
}

// ResumeAll undoes PauseAll and Resque's own pause-all-workers. It returns false if neither was
// set.
func (c *Client) ResumeAll(ctx context.Context) (changed bool, err error) {
	return c.store.ResumeAll(ctx)
}
