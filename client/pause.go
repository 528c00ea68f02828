package client

import "context"

// PauseQueue keeps workers from taking jobs out of a queue: those of resqued, and those of
// Ruby with resque-pause. Jobs that run are not affected, and jobs can still be enqueued.
// PauseQueue reports whether the queue was not paused before.
func (c *Client) PauseQueue(ctx context.Context, queue string) (changed bool, err error) {
	return c.store.Pause(ctx, queue)
}

// ResumeQueue undoes PauseQueue and reports whether the queue was paused.
func (c *Client) ResumeQueue(ctx context.Context, queue string) (changed bool, err error) {
	return c.store.Resume(ctx, queue)
}

// PauseAll pauses all queues, including those that do not exist yet. It returns false if they
// were paused by it already. Queues paused by PauseQueue stay paused after ResumeAll.
func (c *Client) PauseAll(ctx context.Context) (changed bool, err error) {
	return c.store.PauseAll(ctx)
}

// ResumeAll undoes PauseAll, and also Resque's own pause-all-workers. It reports whether either
// was set.
func (c *Client) ResumeAll(ctx context.Context) (changed bool, err error) {
	return c.store.ResumeAll(ctx)
}
