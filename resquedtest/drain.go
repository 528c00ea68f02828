package resquedtest

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/resqued/resqued"
)

// Outcome says how one run of a job ended.
type Outcome string

// The outcomes.
const (
	// OutcomeDone means that the handler returned nil.
	OutcomeDone Outcome = "done"
	// OutcomeDiscarded means that the handler returned resqued.Discard.
	OutcomeDiscarded Outcome = "discarded"
	// OutcomeDropped means that the job did not run, because its class lock was held.
	OutcomeDropped Outcome = "dropped"
	// OutcomeRequeued means that the job goes back to its queue, because the handler returned
	// resqued.Requeue or because its class lock was held.
	OutcomeRequeued Outcome = "requeued"
	// OutcomeRetried means that the job failed and runs again, by the Retry of its class.
	OutcomeRetried Outcome = "retried"
	// OutcomeFailed means that the job failed for good and is in the failed list.
	OutcomeFailed Outcome = "failed"
)

// Ended is a run of a job that has ended.
type Ended struct {
	// Class, Queue and Args are the job's; a payload that is not a job has only a Queue.
	Class, Queue string
	Args         resqued.Args
	// Attempt is the number of the run, as the handler saw it.
	Attempt int
	// Outcome is how the run ended.
	Outcome Outcome
	// Err is the handler's error, or why the job did not run; nil with OutcomeDone.
	Err error
	// After is how long the job waits with OutcomeRequeued or OutcomeRetried.
	After time.Duration
}

// String returns a line about the run, for the message of a test.
func (e Ended) String() string {
	text := fmt.Sprintf("%s: %s %s %s", e.Queue, e.Class, e.Args, e.Outcome)
	if e.After > 0 {
		text += fmt.Sprintf(" for %s", e.After)
	}
	if e.Err != nil {
		text += ": " + e.Err.Error()
	}
	return text
}

// maxDepth is the maximum number of nested worker processes: how deep jobs may call Drain, or
// run each other by Inline.
const maxDepth = 50

// Drain performs the jobs that are due, one after another, including jobs that they enqueue,
// until no job can run now. It returns the runs in the order in which they ended. A job that
// fails does not fail the test: look at the result.
//
// Jobs stay if they wait for a later time, or if their job lock or queue does not let them run.
// Drain fails the test if more than Options.MaxJobs jobs end, or if a job continues for
// Options.TermTimeout after it was told to stop.
//
// A handler may call Drain: other jobs run while that handler waits.
func (q *Queues) Drain(t testing.TB) []Ended {
	t.Helper()
	ended, err := q.drain()
	if err != nil {
		t.Fatalf("resquedtest: Drain: %v", err)
	}
	return ended
}

// Ended returns all ended runs of jobs in these queues, in the order in which they ended.
func (q *Queues) Ended() []Ended {
	q.mu.Lock()
	defer q.mu.Unlock()
	return slices.Clone(q.ended)
}

func (q *Queues) drain() ([]Ended, error) {
	r := q.enter()
	if r == nil {
		return nil, nil // all runs stop; the outermost returns why
	}
	err := q.worker.work(q.context(), r)
	overrun := q.leave(r)
	if err == nil && overrun != "" {
		err = fmt.Errorf("%s", overrun)
	}
	return r.ended, err
}

type run struct {
	queues *Queues
	master *master
	ended  []Ended
}

// enter begins a run, or returns nil if none may begin.
func (q *Queues) enter() *run {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.runs) == 0 {
		q.count, q.classes, q.overrun = 0, map[string]int{}, ""
	}
	if len(q.runs) >= maxDepth {
		q.stop(fmt.Sprintf("%d jobs have begun, each run by the one before: does a job enqueue itself? Jobs: %s", len(q.runs), q.counted()))
	}
	if q.overrun != "" {
		return nil
	}
	r := &run{queues: q, master: newMaster()}
	q.runs[r] = true
	return r
}

// leave ends a run. The last one returns why all were stopped, if they were.
func (q *Queues) leave(r *run) (overrun string) {
	q.mu.Lock()
	defer q.mu.Unlock()
	delete(q.runs, r)
	if len(q.runs) > 0 {
		return ""
	}
	return q.overrun
}

func (r *run) add(e Ended) {
	q := r.queues
	q.mu.Lock()
	defer q.mu.Unlock()
	r.ended, q.ended = append(r.ended, e), append(q.ended, e)
	q.count++
	q.classes[e.Class]++
	if q.count > q.opts.MaxJobs {
		q.stop(fmt.Sprintf("%d jobs have ended and there may be more: does a job enqueue itself, or always return Requeue(0)? "+
			"If these are right, raise Options.MaxJobs. Jobs: %s", q.count, q.counted()))
	}
}

// stop makes all runs end after their current job. q.mu must be held.
func (q *Queues) stop(why string) {
	if q.overrun != "" {
		return
	}
	q.overrun = why
	for r := range q.runs {
		r.master.drain()
	}
}

// counted lists how many jobs of each class have ended. q.mu must be held.
func (q *Queues) counted() string {
	if len(q.classes) == 0 {
		return "none has ended"
	}
	names := slices.SortedFunc(maps.Keys(q.classes), func(a, b string) int {
		if d := q.classes[b] - q.classes[a]; d != 0 {
			return d
		}
		return strings.Compare(a, b)
	})
	texts := make([]string, len(names))
	for i, name := range names {
		texts[i] = fmt.Sprintf("%d × %s", q.classes[name], name)
	}
	return strings.Join(texts, ", ")
}
