package resquedtest

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/resqued/resqued"
	"github.com/resqued/resqued/internal/wire"
)

// Enqueued is a waiting job.
type Enqueued struct {
	// Class, Queue and Args are the job's; a payload that is not a job has no Class.
	Class, Queue string
	Args         resqued.Args
	// Payload holds the bytes that were pushed.
	Payload []byte
	// Due is when a delayed job goes to its queue; zero if it waits there.
	Due time.Time
}

// Failure is a record of the failed list.
type Failure struct {
	// Class, Queue and Args are the job's; a payload that is not a job has no Class.
	Class, Queue string
	Args         resqued.Args
	// Exception and Message are the recorded form of the handler's error.
	Exception, Message string
	// Attempts is how often the job has run; 0 if its class has no Retry.
	Attempts int
	// Payload holds the bytes that were pushed.
	Payload []byte
}

// Jobs returns the jobs that wait in these queues, each queue from its head. Without names it
// returns the jobs of all queues, sorted by name. Delayed jobs are not included.
func (q *Queues) Jobs(queues ...string) []Enqueued {
	q.tb.Helper()
	ctx := q.context()
	if len(queues) == 0 {
		infos, err := q.worker.store.QueueList(ctx)
		if err != nil {
			q.tb.Fatalf("resquedtest: %v", err)
		}
		for _, info := range infos {
			queues = append(queues, info.Name)
		}
	}
	var jobs []Enqueued
	for _, name := range queues {
		payloads, err := q.worker.store.Payloads(ctx, name, 0, math.MaxInt32)
		if err != nil {
			q.tb.Fatalf("resquedtest: %v", err)
		}
		for _, payload := range payloads {
			jobs = append(jobs, enqueuedOf(name, payload))
		}
	}
	return jobs
}

// Delayed returns the jobs that wait for a later time, the next due first: delayed and requeued
// jobs, and jobs that run again after a failure.
func (q *Queues) Delayed() []Enqueued {
	q.tb.Helper()
	var jobs []Enqueued
	for delayed, err := range q.worker.store.DelayedJobs(q.context()) {
		if err != nil {
			q.tb.Fatalf("resquedtest: %v", err)
		}
		job := enqueuedOf(delayed.Queue, delayed.Payload)
		job.Due = delayed.Due
		jobs = append(jobs, job)
	}
	slices.SortStableFunc(jobs, func(a, b Enqueued) int { return a.Due.Compare(b.Due) })
	return jobs
}

// Failed returns the records of the jobs that failed for good, the oldest first.
func (q *Queues) Failed() []Failure {
	q.tb.Helper()
	ctx := q.context()
	var failures []Failure
	lists, err := q.worker.store.FailureLists(ctx)
	for _, list := range lists {
		if err == nil {
			err = q.worker.store.ScanFailed(ctx, list, func(_ int64, record []byte) bool {
				if f, err := wire.ParseFailureBrief(record); err == nil {
					failures = append(failures, failureOf(f))
				}
				return true
			})
		}
	}
	if err != nil {
		q.tb.Fatalf("resquedtest: %v", err)
	}
	return failures
}

func enqueuedOf(queue string, payload []byte) Enqueued {
	job := Enqueued{Queue: queue, Payload: payload}
	if e, err := wire.Parse(payload, 0); err == nil {
		job.Class, job.Args = e.Class, e.Args
	}
	return job
}

func failureOf(f wire.Failure) Failure {
	job := enqueuedOf(f.Queue, f.Payload)
	return Failure{
		Class: job.Class, Queue: f.Queue, Args: job.Args, Payload: f.Payload,
		Exception: f.Exception, Message: f.Error, Attempts: f.Attempts,
	}
}

// String returns a line about the job, for the message of a test.
func (j Enqueued) String() string {
	if j.Class == "" {
		return fmt.Sprintf("%s: no job: %.200q", j.Queue, j.Payload)
	}
	return fmt.Sprintf("%s: %s %s", j.Queue, j.Class, j.Args)
}

// String returns a line about the record, for the message of a test.
func (f Failure) String() string {
	name := f.Class
	if name == "" {
		name = "no job"
	}
	return fmt.Sprintf("%s: %s %s: %s: %s", f.Queue, name, f.Args, f.Exception, f.Message)
}

func (q *Queues) waiting() string {
	q.tb.Helper()
	now := q.Now()
	lines := []string{}
	for _, job := range q.Jobs() {
		lines = append(lines, "  "+job.String())
	}
	for _, job := range q.Delayed() {
		lines = append(lines, fmt.Sprintf("  %s, in %s", job, max(0, job.Due.Sub(now))))
	}
	if len(lines) == 0 {
		return "No job waits."
	}
	return "These jobs wait:\n" + strings.Join(lines, "\n")
}
