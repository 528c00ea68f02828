package client

import "context"

// PauseQueue keeps every worker from taking jobs out of a queue until ResumeQueue: those
// of resqued, and those of Ruby that have resque-pause. Jobs that run go on, and jobs can
// be enqueued. It reports whether the queue was not paused before.
func (c *Client) PauseQueue(ctx context.Context, queue string) (changed bool, err error) {
	return c.store.Pause(ctx, queue)
}

// ResumeQueue ends that, and reports whether the queue was paused.
func (c *Client) ResumeQueue(ctx context.Context, queue string) (changed bool, err error) {
	return c.store.Resume(ctx, queue)
}

// PauseAll pauses all queues, those that come to be later included. What PauseQueue has
// paused stays so after ResumeAll.
func (c *Client) PauseAll(ctx context.Context) (changed bool, err error) {
	return c.store.PauseAll(ctx)
}

// ResumeAll ends that, and Resque's own pause-all-workers.
func (c *Client) ResumeAll(ctx context.Context) (changed bool, err error) {
	return c.store.ResumeAll(ctx)
}
