package resqued

import (
	"context"
	"time"

	"github.com/resqued/resqued/internal/jobctx"
)

// Job is one unit of work as a handler sees it. It is a description: changing
// it changes nothing in Redis.
type Job struct {
	// ID names this run of the job: the payload's own "id" where the producer
	// wrote one (the Files.com fork does), else the process and in-flight token
	// under which the job was reserved.
	ID string
	// Class selects the handler; it is the payload's "class" as it stands there.
	Class string
	// Queue is the queue that the job was taken from, without the namespace.
	Queue string
	// Args are the payload's positional arguments, each as its raw JSON.
	Args Args
	// Payload holds the bytes that were pushed, unchanged.
	Payload []byte
	// Attempt is 1 for the first run, and one more for each worker process that
	// died with the job. For a class with a Retry it also counts the runs that failed
	// before, in Ruby too, and with IgnoreDeaths not those that died.
	Attempt int
	// MaxAttempts is how often the job may run by its class's Retry: if the run with
	// this number fails, it was the last. 0 without a Retry.
	MaxAttempts int
	// Deaths counts the worker processes that died while they ran this job.
	Deaths int
	// Worker is the id under which the thread is registered in Redis.
	Worker string
	// StartedAt is when the job was reserved, by the clock of Redis.
	StartedAt time.Time
	// EnqueuedAt is when the job was pushed; zero where the producer did not
	// say so (plain Resque payloads carry no time).
	EnqueuedAt time.Time
	// Deadline is when the job's timeout ends it; zero without a timeout.
	Deadline time.Time
	// LockKey is the key of the job lock that this job holds, with the
	// namespace; empty where its queue is not locked.
	LockKey string
	// LockSequence is the fencing token of the job's class lock if that is kept in
	// PostgreSQL: it is larger for each later holder of the lock. Else it is 0.
	LockSequence int64

	run jobctx.Run
}

func init() {
	jobctx.Provide(func(job any) *jobctx.Run { return &job.(*Job).run })
}

// Fence returns the job's fencing token: a number that is larger for each later
// holder of the same lock, also after a Redis that lost its last writes. Store
// it with whatever the job writes elsewhere and refuse smaller ones.
func (j *Job) Fence() int64 { return j.run.Fence }

// JobFrom returns the job that ctx belongs to, or nil outside of a handler.
func JobFrom(ctx context.Context) *Job {
	job, _ := jobctx.Job(ctx).(*Job)
	return job
}

// Leaving returns a channel that is closed when the worker process of ctx's job would
// like to leave (QUIT, a new configuration, used up) or has to. Such a job may finish in
// peace; one that can go on elsewhere should end soon. The channel is nil, and so never
// closed, outside of a daemon.
func Leaving(ctx context.Context) <-chan struct{} { return jobctx.Leaving(ctx) }
