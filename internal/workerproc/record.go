package workerproc

import (
	"errors"
	"time"

	"go.uber.org/zap"

	"github.com/resqued/resqued/internal/locket/classlock"
	"github.com/resqued/resqued/internal/statsd"
	"github.com/resqued/resqued/internal/store"
	"github.com/resqued/resqued/internal/thread"
	"github.com/resqued/resqued/internal/wire"
)

func (t *threads) record(j *job, out thread.Outcome) {
	c := store.Completion{Job: &j.Reserved, Kind: store.Done, Mirrored: j.mirror != unwritten}
	c.Held = j.leftover // it has no claim to ask
	if j.handled {
		// The loop may not know yet that a lock is lost.
		claim := j.claim.State()
		c.Held = claim.Asked
		if j.stop.cause == nil && claim.Lost != nil {
			j.stop.cause = claim.Lost
		}
		if !j.stop.lockLost && claim.Lost != nil {
			t.d.Stats.Count(statsd.LockLost, 1)
		}
	}
	c.Killed = j.stop.request != nil
	again := j.returns(t.cfg.RequeueLost)
	switch failed := out.Result == thread.Failed || out.Result == thread.Retried; {
	case failed && !again && j.stop.request == nil && j.rules.atMostOnce && j.blameless(t.cfg.RequeueLost):
		out.Result, out.Message = thread.Failed, out.Message+onceOnly
	case failed && again:
		out.Result, out.After = thread.Requeued, 0
		if j.handled {
			out.After = t.lastingLock(j)
		}
	case out.Result == thread.Retried && j.stop.request != nil:
		out.Result = thread.Failed // the request decides
	case out.Result == thread.Retried && out.Try.Attempt == 0:
		out.Result, out.After = thread.Requeued, 0 // it has not begun
	case out.Result == thread.Retried:
		out.After = max(out.After, t.lastingLock(j))
	}
	if out.Result == thread.Requeued || out.Result == thread.Retried {
		out.After = max(out.After, t.leftLock(j))
	}
	survived := j.stop.cause == nil && j.handled && !j.claim.State().Began.IsZero()
	switch out.Result {
	case thread.Requeued:
		c.Kind, c.Delay, c.Survived = store.Requeued, out.After, survived
		if again && j.interrupted() {
			c.Kind = store.Returned
		}
	case thread.Retried:
		t.retry(&c, j, out, survived)
		t.countFailed(j.thread)
	case thread.Failed:
		c.Kind = store.Failed
		c.Failure = store.File(failure(j, out), t.id.proc+"#"+j.Token)
		t.countFailed(j.thread)
	default:
		t.countProcessed(j.thread)
	}
	if out.Try != nil && (out.Try.Counted || out.Try.Attempt == 0) && out.Result != thread.Retried && out.Result != thread.Requeued {
		c.Count = &store.Count{Key: out.Try.Key} // the last attempt has ended
	}
	if out.Result != thread.Requeued { // like the counters in Redis
		t.done++
	}
	t.exchanges.end(c, j.stop.cause != nil && !again)
	t.logEnd(j, out)
}

// expiryMargin is how much longer a class lock kept elsewhere lasts than its time limit plus the
// grace for killed jobs.
const expiryMargin = 10 * time.Second

// leftLock returns how long a returning job must wait because its class lock, kept elsewhere,
// could not be released: it would meet its own lock and be dropped.
func (t *threads) leftLock(j *job) time.Duration {
	claim := j.claim.State()
	switch {
	case !claim.Left:
		return 0
	case claim.Limit.IsZero():
		return t.cfg.LockDuration
	default:
		return max(t.cfg.LockDuration, time.Until(claim.Limit)+t.cfg.TermTimeout+expiryMargin)
	}
}

// lastingLock returns how long a returning job must wait because its class lock was lost: kept
// elsewhere, it may still exist under the job's name.
func (t *threads) lastingLock(j *job) time.Duration {
	if claim := j.claim.State(); claim.Lost != nil && claim.Key != "" && !claim.Asked {
		return t.cfg.LockDuration
	}
	return 0
}

func (t *threads) retry(c *store.Completion, j *job, out thread.Outcome, survived bool) {
	c.Kind, c.Delay, c.Survived = store.Retried, out.After, survived
	c.Count = &store.Count{
		Key: out.Try.Key, Value: out.Try.Count(survived, j.Deaths), Lifetime: out.Try.Lifetime(out.After),
	}
	if out.After > 0 {
		f := failure(j, out)
		f.Bare = true
		if text, gap, _ := f.Parts(""); gap == 0 { // shown on a page, which can omit large ones
			c.Failure = store.Record(text)
		}
	}
}

// countedClass is the class under which a job counts: unknown names are unlimited in number.
func (j *job) countedClass() string {
	if !j.rules.known {
		return "unknown"
	}
	return j.job.Class
}

func (t *threads) logEnd(j *job, out thread.Outcome) {
	class := j.countedClass()
	waited := time.Duration(0)
	if !j.job.EnqueuedAt.IsZero() {
		waited = max(0, j.StartedAt.Sub(j.job.EnqueuedAt))
	}
	t.tally(j, class, out, waited)
	if t.d.Observe != nil {
		t.d.Observe(Event{Job: &j.job, Outcome: out})
	}
	done := out.Result == thread.Done || out.Result == thread.Interrupted || out.Result == thread.Requeued
	if done && !t.cfg.LogJobs && !t.log.Core().Enabled(zap.DebugLevel) {
		return // skip making the fields
	}
	fields := append(jobFields(j), zap.Duration("ran", out.Ran))
	switch out.Result {
	case thread.Failed:
		t.log.Warn("job failed", append(fields, zap.String("exception", wire.Printable(out.Exception, 200)),
			zap.String("error", wire.Printable(out.Message, 2000)))...)
	case thread.Retried:
		t.log.Info("job failed and will run again", append(fields, zap.Int("attempt", j.job.Attempt), zap.Int("of", j.job.MaxAttempts),
			zap.Duration("after", out.After), zap.String("exception", wire.Printable(out.Exception, 200)),
			zap.String("error", wire.Printable(out.Message, 2000)))...)
	case thread.Dropped:
		held := &classlock.HeldError{}
		errors.As(out.Err, &held)
		t.log.Info("job dropped: its class lock is held", append(fields, zap.String("lock", held.Key),
			zap.String("holder", wire.Printable(held.Holder, 300)))...)
	case thread.Discarded:
		t.log.Info("job discarded", append(fields, zap.String("reason", wire.Printable(out.Err.Error(), 2000)))...)
	default:
		level := zap.DebugLevel
		if t.cfg.LogJobs {
			level = zap.InfoLevel
		}
		t.log.Log(level, "job "+string(out.Result), fields...)
	}
}

func jobFields(j *job) []zap.Field {
	return []zap.Field{
		zap.String("class", wire.Printable(j.job.Class, 200)), zap.String("queue", wire.Printable(j.Queue, 200)),
		zap.String("job", wire.Printable(j.job.ID, 200)), zap.String("token", j.Token),
	}
}

// tally counts the end of a job for the history and in statsd, by the rule of docs/statsd.md:
// like the counters in Redis, without jobs that go back to their queue.
func (t *threads) tally(j *job, class string, out thread.Outcome, waited time.Duration) {
	ran := out.Ran
	if !j.handled || j.claim.State().Began.IsZero() {
		ran = statsd.Unknown
	}
	t.counted.end(class, j.Queue, out.Result, ran, waited)
	var held *classlock.HeldError
	switch {
	case out.Result != thread.Requeued || ran != statsd.Unknown:
		t.d.Stats.Job(class, string(out.Result), ran, waited)
	case errors.As(out.Err, &held):
		t.d.Stats.Count(statsd.Locked, 1)
	}
}

func failure(j *job, out thread.Outcome) wire.Failure {
	f := wire.Failure{
		FailedAt: time.Now(), Payload: j.Payload, Exception: out.Exception, Error: out.Message,
		Backtrace: out.Backtrace, Worker: j.Worker, Queue: j.Queue,
	}
	if out.Try != nil {
		f.Attempts = out.Try.Attempt
	}
	return f
}
