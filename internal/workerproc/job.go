package workerproc

import (
	"errors"
	"fmt"
	"math"
	"strings"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"github.com/resqued/resqued"
	"github.com/resqued/resqued/internal/jobctx"
	"github.com/resqued/resqued/internal/locket/classlock"
	"github.com/resqued/resqued/internal/redact"
	"github.com/resqued/resqued/internal/store"
	"github.com/resqued/resqued/internal/thread"
	"github.com/resqued/resqued/internal/wire"
)

// job is a reserved job in the hands of a thread.
type job struct {
	store.Reserved
	job    resqued.Job
	thread int
	begun  time.Time
	// reserved is the boot time at which the request for the job was sent, from when
	// its lock counts.
	reserved time.Duration
	ctx      jobContext
	// mirrored: worker:<id> may have been written. unmirrored: others have removed it.
	mirrored, unmirrored bool
	// claim is what the job's thread says of its class lock, timeout how long its
	// code may run; 0 = no limit.
	claim   classlock.Claim
	timeout time.Duration
	// handled: a thread has it, or had. known: its class is registered.
	handled, known bool
	// atMostOnce: it does not run again by itself. resumes: it does in any case.
	atMostOnce, resumes bool
	// resident: a runner performs it.
	resident bool
	// orphaned: the runner that performed it has died. Its thread sets it.
	orphaned bool
	// leftover: Redis has lost how the job ended, and no thread has it.
	leftover bool
	// doomed: the job was told to stop for this reason, and when its time is up.
	doomed   error
	deadline time.Time
	// fails: it was killed, and has failed with that, also if its process dies.
	fails bool
	// lost: a lock of the job is gone, whatever it was told to stop for.
	lost bool
	// request is the request that named the job, if one told it to stop.
	request *store.KillRequest
}

type outcome struct {
	job *job
	thread.Outcome
}

// named is which job a log line is about.
func (j *job) named() zap.Field {
	return zap.Inline(zapcore.ObjectMarshalerFunc(func(e zapcore.ObjectEncoder) error {
		e.AddString("class", wire.Printable(j.job.Class, 200))
		e.AddString("queue", wire.Printable(j.Queue, 200))
		e.AddString("job", wire.Printable(j.job.ID, 200))
		return nil
	}))
}

// returns reports whether a job that was told to stop, and has failed with that, goes
// back to its queue.
func (j *job) returns(requeueLost bool) bool {
	if j.request != nil { // it has the last word
		return j.request.Requeue
	}
	return !j.atMostOnce && j.blameless(requeueLost)
}

// blameless reports whether a job was told to stop for something that is no failure of it.
func (j *job) blameless(requeueLost bool) bool {
	limit, ok := errors.AsType[*limitError](j.doomed)
	return ok && limit.again || requeueLost && errors.Is(j.doomed, resqued.ErrLockLost)
}

// interrupted reports whether what the job was told to stop for is over when it runs again: it
// goes to the head of its queue then. A job whose lock another has taken waits behind others.
func (j *job) interrupted() bool {
	_, limit := errors.AsType[*limitError](j.doomed)
	_, silent := errors.AsType[*silenceError](j.doomed)
	return j.request == nil && (limit || silent)
}

// limitError ends jobs because a limit of the daemon is over, not because a person wants it.
type limitError struct {
	text  string
	again bool // they go back to their queues
}

func (e *limitError) Error() string { return resqued.ErrKilled.Error() + ": " + e.text }

// Unwrap returns the cause that handlers ask for.
func (e *limitError) Unwrap() error { return resqued.ErrKilled }

// drainOver ends the jobs of a drain that has taken longer than limit.
func drainOver(limit time.Duration, again bool) error {
	return &limitError{text: fmt.Sprintf("drain_timeout (%s) was over while it ran", limit), again: again}
}

// silenceError ends jobs whose locks expire soon because no beat gets through.
type silenceError struct{ silent time.Duration }

func (e *silenceError) Error() string {
	return fmt.Sprintf("%s: no heartbeat for %s", resqued.ErrLockLost, e.silent.Round(time.Millisecond))
}

// Unwrap returns the cause that handlers ask for.
func (e *silenceError) Unwrap() error { return resqued.ErrLockLost }

// onceOnly stands in the record of a job that would run again, but for its class.
const onceOnly = "; " + store.OnceOnly

// jobs are the jobs in hand by their tokens. The loop owns them, and only threads adds
// and removes some.
type jobs map[string]*job

// all returns all jobs.
func (h jobs) all() []*job {
	list := make([]*job, 0, len(h))
	for _, j := range h {
		list = append(list, j)
	}
	return list
}

// named returns those of some tokens that are in hand.
func (h jobs) named(tokens []string) []*job {
	var list []*job
	for _, t := range tokens {
		if j := h[t]; j != nil {
			list = append(list, j)
		}
	}
	return list
}

// ends returns when the process has to end the job. The context of the job ends when its
// time is over; code that ignores that has grace.
func (j *job) ends(grace time.Duration) time.Time {
	ends := j.deadline
	earlier := func(t time.Time) {
		if ends.IsZero() || t.Before(ends) {
			ends = t
		}
	}
	claim := j.claim.State()
	if j.timeout > 0 && !claim.Began.IsZero() {
		earlier(claim.Began.Add(j.timeout + grace))
	}
	if !claim.Limit.IsZero() {
		earlier(claim.Limit.Add(grace))
	}
	if ends.IsZero() {
		return never
	}
	return ends
}

// never is after the end of everything; longest is what a time limit may be.
var never = time.Unix(1<<40, 0)

const longest = math.MaxInt64 / 2 * time.Nanosecond

// cause returns why a job was told to stop.
func (j *job) cause() error {
	if j.doomed != nil {
		return j.doomed
	}
	return resqued.ErrTimeout
}

// locks names the locks that a job holds in the daemon's Redis, as they may be shown.
func (j *job) locks(rules *redact.Rules) string {
	var names []string
	name := func(kind, key string) {
		names = append(names, wire.Printable(rules.Key(kind, j.job.Class, []byte(j.job.Args.String()), key, jobctx.RunOf(&j.job).Wrappers...), 300))
	}
	if j.LockKey != "" {
		name(store.LocketLock, j.LockKey)
	}
	if claim := j.claim.State(); claim.Held {
		name(store.TimeoutLock, claim.Key)
	}
	return strings.Join(names, " or ")
}
