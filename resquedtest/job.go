package resquedtest

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/resqued/resqued"
	"github.com/resqued/resqued/internal/wire"
)

// JobOption changes what Job returns: WithAttempt, WithFence and others.
type JobOption interface{ apply(p *jobParts) }

type jobOptionFunc func(p *jobParts)

func (f jobOptionFunc) apply(p *jobParts) { f(p) }

type jobParts struct {
	job     *resqued.Job
	fence   int64
	timeout time.Duration
	leaving bool
	locked  bool // the job holds its class lock
}

// Job returns a job and its context, as a handler gets them, to test one function by itself
// without Redis. Args are as for client.Enqueue. Without options the job runs for the first
// time and has neither a lock nor a timeout.
//
//	ctx, job := resquedtest.Job(t, "Mail", Mail{User: 42}, resquedtest.WithAttempt(3))
//	err := handle(ctx, job)
//
// The context ends with the test.
func Job(t testing.TB, class string, args any, opts ...JobOption) (context.Context, *resqued.Job) {
	t.Helper()
	payload, err := wire.EncodePayload(class, wire.ArgList(args))
	if err != nil {
		t.Fatalf("resquedtest: Job: %v", err)
	}
	envelope, err := wire.Parse(payload, 0)
	if err != nil {
		t.Fatalf("resquedtest: Job: %v", err)
	}
	_, own := envelope.As(class)
	now := time.Now()
	p := jobParts{job: &resqued.Job{
		ID: "resquedtest/1", Class: class, Queue: "test", Args: slices.Clone(own), Payload: payload,
		Attempt: 1, Worker: "resquedtest:1:test", StartedAt: now, EnqueuedAt: now,
	}}
	for _, opt := range opts {
		opt.apply(&p)
	}
	return p.context(t), p.job
}

// WithID sets the job's ID.
func WithID(id string) JobOption {
	return jobOptionFunc(func(p *jobParts) { p.job.ID = id })
}

// WithQueue sets the queue from which the job was taken; the default is "test".
func WithQueue(name string) JobOption {
	return jobOptionFunc(func(p *jobParts) { p.job.Queue = name })
}

// WithAttempt sets the number of the run, 1 for the first.
func WithAttempt(n int) JobOption {
	return jobOptionFunc(func(p *jobParts) { p.job.Attempt = n })
}

// WithMaxAttempts sets how often the job may run.
func WithMaxAttempts(n int) JobOption {
	return jobOptionFunc(func(p *jobParts) { p.job.MaxAttempts = n })
}

// WithDeaths sets how many worker processes died while they ran the job.
func WithDeaths(n int) JobOption {
	return jobOptionFunc(func(p *jobParts) { p.job.Deaths = n })
}

// WithFence sets the fencing token of the job, and gives it a job lock.
func WithFence(n int64) JobOption {
	return jobOptionFunc(func(p *jobParts) {
		p.fence = n
		p.job.LockKey = "resque:locket:job_locks:resquedtest"
	})
}

// WithDeadline ends the context after d with the cause resqued.ErrTimeout, as the timeout of a
// class does. It sets the job's Deadline.
func WithDeadline(d time.Duration) JobOption {
	return jobOptionFunc(func(p *jobParts) { p.timeout = d })
}

// WithLeaving simulates a worker process that is to exit: the channel of resqued.Leaving is
// closed.
func WithLeaving() JobOption {
	return jobOptionFunc(func(p *jobParts) { p.leaving = true })
}

// WithClassLock makes the job hold the lock of its class: resqued.RefreshLock succeeds, and
// resqued.Locked and similar functions report what a job alone would see. Without it they
// return an error.
func WithClassLock() JobOption {
	return jobOptionFunc(func(p *jobParts) { p.locked = true })
}
