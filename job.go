package resqued

import (
	"context"
	"time"

	"github.com/resqued/resqued/internal/jobctx"
)

// Job is one unit of work as its handler sees it. Changing a Job changes nothing in Redis.
type Job struct {
	// ID is the "id" of the payload. Without one, it names this run of the job: the worker
	// process and the token under which the job was reserved.
	ID string
	// Class is the "class" of the payload, which selects the handler.
	Class string
	// Queue is the name of the queue from which the job was taken, without the namespace.
	Queue string
	// Args are the positional arguments of the payload.
	Args Args
	// Payload holds the bytes that were pushed, unchanged.
	Payload []byte
	// Attempt is 1 for the first run, plus one for each worker process that died while it ran
	// the job. With a Retry it also counts earlier failed runs, including runs in Ruby, and
	// IgnoreDeaths excludes deaths.
	Attempt int
	// MaxAttempts is how often the Retry of the class lets the job run; 0 without a Retry. If
	// the run with this number fails, the job has failed for good.
	MaxAttempts int
	// Deaths counts the worker processes that died while they ran this job.
	Deaths int
	// Worker is the id under which the thread that runs the job is registered in Redis.
	Worker string
	// StartedAt is the time at which the job was reserved, by the clock of Redis.
	StartedAt time.Time
	// EnqueuedAt is the time at which the job was pushed. It is zero if the producer did not
	// record it; plain Resque payloads have no time.
	EnqueuedAt time.Time
	// Deadline is the time at which the job's timeout ends it; zero without a timeout.
	Deadline time.Time
	// LockKey is the Redis key of the job lock that this job holds, including the namespace. It
	// is empty if the queue has no job locks.
	LockKey string
	// LockSequence is the fencing token of the job's class lock if that lock is kept in
	// PostgreSQL, else 0. Each later holder has a larger one.
	LockSequence int64

	run jobctx.Run
}

func init() {
	jobctx.Provide(func(job any) *jobctx.Run { return &job.(*Job).run })
}

// Fence returns the job's fencing token: each later holder of the same lock has a larger one,
// even if Redis lost its last writes. Store it with what the job writes elsewhere, and refuse a
// write with a smaller one.
func (j *Job) Fence() int64 { return j.run.Fence }

// JobFrom returns the job whose handler got ctx, or nil outside a handler.
func JobFrom(ctx context.Context) *Job {
	job, _ := jobctx.Job(ctx).(*Job)
	return job
}

// Leaving returns a channel that is closed when the job should make room: its worker process is
// to exit (a signal, a new configuration, its limit of jobs), or the job has run for MaxRun. The
// job may still finish, but a handler that can continue in another process, for example by
// returning Requeue, should return soon. Outside a daemon the channel is nil and never ready.
func Leaving(ctx context.Context) <-chan struct{} { return jobctx.Leaving(ctx) }
