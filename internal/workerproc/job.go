package workerproc

import (
	"context"
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

type job struct {
	store.Reserved
	job        resqued.Job
	thread     int
	begun      time.Time
	reservedAt time.Duration   // the boot time of the request: the lock counts from it
	ctx        context.Context //nolint:containedctx // it is told to the job
	end        context.CancelCauseFunc
	claim      classlock.Claim // the thread's view of the job's class lock
	rules      rules
	mirror     mirror
	stop       stop
	handled    bool // a thread has it or had it
	runnerDied bool // its runner has died; set by the thread
	leftover   bool // Redis has lost the job's end, and no thread has it
}

// rules are the properties of a job's class.
type rules struct {
	known      bool          // the class is registered
	timeout    time.Duration // how long its code may run; 0 = no limit
	atMostOnce bool          // the job never runs again by itself
	resumes    bool          // the job always runs again
	byRunner   bool          // a runner performs it
}

// mirror is the state of worker:<id>, the key that shows the job on Resque's pages.
type mirror int

const (
	unwritten mirror = iota
	written          // perhaps: the answer may have been lost
	removed          // by other programs
)

type stop struct {
	cause    error              // why; nil = not told to stop
	by       time.Time          // when its time is up
	request  *store.KillRequest // the request that named the job; nil = none
	fails    bool               // the kill has made it fail, even if its process dies
	lockLost bool               // a lock of the job is gone, whatever the cause
}

type outcome struct {
	job *job
	thread.Outcome
}

func (j *job) named() zap.Field {
	return zap.Inline(zapcore.ObjectMarshalerFunc(func(e zapcore.ObjectEncoder) error {
		e.AddString("class", wire.Printable(j.job.Class, 200))
		e.AddString("queue", wire.Printable(j.Queue, 200))
		e.AddString("job", wire.Printable(j.job.ID, 200))
		return nil
	}))
}

// returns reports whether a job that failed because it was told to stop goes back to its queue.
func (j *job) returns(requeueLost bool) bool {
	if j.stop.request != nil { // the request decides
		return j.stop.request.Requeue
	}
	return !j.rules.atMostOnce && j.blameless(requeueLost)
}

// blameless reports whether a job was told to stop for something other than a failure of its
// own.
func (j *job) blameless(requeueLost bool) bool {
	limit, ok := errors.AsType[*limitError](j.stop.cause)
	return ok && limit.again || requeueLost && errors.Is(j.stop.cause, resqued.ErrLockLost)
}

// interrupted reports whether the reason for stopping is over when the job runs again; then it
// goes to the head of its queue. A job whose lock another has taken waits behind others.
func (j *job) interrupted() bool {
	_, limit := errors.AsType[*limitError](j.stop.cause)
	_, silent := errors.AsType[*silenceError](j.stop.cause)
	return j.stop.request == nil && (limit || silent)
}

// limitError ends jobs because a limit of the daemon is reached, not because a person wants it.
type limitError struct {
	text  string
	again bool // they go back to their queues
}

func (e *limitError) Error() string { return resqued.ErrKilled.Error() + ": " + e.text }

func (e *limitError) Unwrap() error { return resqued.ErrKilled }

func drainOver(limit time.Duration, again bool) error {
	return &limitError{text: fmt.Sprintf("drain_timeout (%s) was over while it ran", limit), again: again}
}

// exclusive reports whether others may not run while this job does: it holds a lock, or counts under a concurrency.
func (j *job) exclusive() bool { return j.LockKey != "" || j.Counts || j.claim.State().Held }

// silenceError ends exclusive jobs because no beat succeeds: others will soon take this process for dead.
type silenceError struct{ silent time.Duration }

func (e *silenceError) Error() string {
	return fmt.Sprintf("%s: no heartbeat for %s", resqued.ErrLockLost, e.silent.Round(time.Millisecond))
}

func (e *silenceError) Unwrap() error { return resqued.ErrLockLost }

// onceOnly is in the record of a job that would run again but for its class.
const onceOnly = "; " + store.OnceOnly

// jobs are the jobs in hand by token. The loop owns them; only threads adds and removes some.
type jobs map[string]*job

func (h jobs) all() []*job {
	list := make([]*job, 0, len(h))
	for _, j := range h {
		list = append(list, j)
	}
	return list
}

// ends returns when the process has to end the job. The job's context ends at its time limit;
// code that ignores that gets grace.
func (j *job) ends(grace time.Duration) time.Time {
	ends := j.stop.by
	earlier := func(t time.Time) {
		if ends.IsZero() || t.Before(ends) {
			ends = t
		}
	}
	claim := j.claim.State()
	if j.rules.timeout > 0 && !claim.Began.IsZero() {
		earlier(claim.Began.Add(j.rules.timeout + grace))
	}
	if !claim.Limit.IsZero() {
		earlier(claim.Limit.Add(grace))
	}
	if ends.IsZero() {
		return never
	}
	return ends
}

// never is later than any time; longest bounds time limits.
var never = time.Unix(1<<40, 0)

const longest = math.MaxInt64 / 2 * time.Nanosecond

func (j *job) cause() error {
	if j.stop.cause != nil {
		return j.stop.cause
	}
	return resqued.ErrTimeout
}

// locks names the locks that a job holds in the daemon's Redis, redacted.
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
