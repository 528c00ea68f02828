package client

import (
	"context"
	"errors"

	"github.com/resqued/resqued/internal/store"
)

// ErrLonerLater means that a job of a loner class cannot be delayed: whether a job with the
// same lock will wait or run at that time is not known now.
var ErrLonerLater = errors.New("jobs of a loner class cannot be enqueued for later")

func (c *Client) laterJob(job *Job, payload []byte) store.LaterJob {
	return store.LaterJob{Queue: job.Queue, Payload: payload, Unique: c.unique(job.Queue), In: job.In, At: job.At}
}

func (c *Client) delay(ctx context.Context, job *Job, payload []byte) (Result, error) {
	return delayed(job.Queue, c.store.EnqueueLater(ctx, []store.LaterJob{c.laterJob(job, payload)})[0])
}

func delayed(queue string, reply store.LaterReply) (Result, error) {
	switch {
	case reply.Err != nil:
		return Result{}, reply.Err
	case !reply.Due.IsZero():
		return Result{Queue: queue, Status: StatusDelayed, Due: reply.Due}, nil
	}
	return pushed(queue, reply.Length, reply.Pushed), nil
}
