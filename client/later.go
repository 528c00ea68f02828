package client

import (
	"context"
	"errors"

	"github.com/resqued/resqued/internal/store"
)

// ErrLonerLater: a job of a loner class cannot be delayed. Whether a job with the same lock
// waits or runs is known now, but not at the time at which it would be pushed.
var ErrLonerLater = errors.New("jobs of a loner class cannot be enqueued for later")

// laterJob is what the store is told of a job.
func (c *Client) laterJob(job *Job, payload []byte) store.LaterJob {
	return store.LaterJob{Queue: job.Queue, Payload: payload, Unique: c.unique(job.Queue), In: job.In, At: job.At}
}

// delay has a job wait for its time.
func (c *Client) delay(ctx context.Context, job *Job, payload []byte) (Result, error) {
	return delayed(job.Queue, c.store.EnqueueLater(ctx, []store.LaterJob{c.laterJob(job, payload)})[0])
}

func delayed(queue string, reply store.LaterReply) (Result, error) {
	switch {
	case reply.Err != nil:
		return Result{}, reply.Err
	case !reply.Due.IsZero():
		return Result{Queue: queue, Status: StatusDelayed, Due: reply.Due}, nil
	case !reply.Pushed:
		return Result{Queue: queue, Status: StatusDuplicate}, nil
	}
	return Result{Queue: queue, Position: reply.Length, Status: StatusEnqueued}, nil
}
