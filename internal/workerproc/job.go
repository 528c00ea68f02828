package workerproc

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"go.uber.org/zap"

	"github.com/resqued/resqued"
	"github.com/resqued/resqued/internal/locket/classlock"
	"github.com/resqued/resqued/internal/statsd"
	"github.com/resqued/resqued/internal/store"
	"github.com/resqued/resqued/internal/thread"
	"github.com/resqued/resqued/internal/wire"
)

// slot is a thread as the loop sees it.
type slot struct {
	worker   string
	brief    string // worker, as records have it
	assigned chan *job
}

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
	// atMostOnce: it does not run again by itself.
	atMostOnce bool
	// doomed: the job was told to stop for this reason, and when its time is up.
	doomed   error
	deadline time.Time
	// lost: a lock of the job is gone, whatever it was told to stop for.
	lost bool
	// request is why the job was told to stop, if somebody named it.
	request *store.KillRequest
}

type outcome struct {
	job *job
	thread.Outcome
}

// begin hands a reserved job to an idle thread. A payload that is no job ends at
// once, without a thread.
func (p *Process) begin(r *store.Reserved, sent time.Duration, now time.Time) {
	index := p.whose(r)
	// One piece of memory for all of a job.
	j := &job{Reserved: *r, thread: index, begun: now, reserved: sent}
	p.begun++
	env, err := wire.Parse(r.Payload, p.cfg.MaxPayload)
	if _, wrapped := env.Unwrap(); wrapped {
		j.Payload = wire.Unwrap(r.Payload)
		if _, err = wire.Parse(j.Payload, p.cfg.MaxPayload); err == nil {
			p.unwrap(j)
			return
		}
	}
	if err != nil {
		j.job = resqued.Job{Queue: r.Queue, Payload: j.Payload}
		p.record(j, thread.Outcome{Result: thread.Failed, Err: err, Exception: "Resqued::InvalidPayload", Message: err.Error()})
		return
	}
	if ref, ok := wire.ReferenceOf(env); ok {
		p.restore(j, ref)
		return
	}
	p.occupy(j.thread)
	j.handled = true
	j.claim.Init(p.name.Proc, r.Token, p.changed)
	j.ctx.parent = p.work
	j.job = resqued.Job{
		ID: env.ID, Class: env.Class, Queue: r.Queue, Args: env.Args, Payload: r.Payload,
		Attempt: r.Deaths + 1, Deaths: r.Deaths, Worker: r.Worker, StartedAt: r.StartedAt,
		EnqueuedAt: env.EnqueuedAt, LockKey: r.LockKey,
	}
	if j.job.ID == "" {
		j.job.ID = p.name.Proc + "/" + r.Token
	}
	if !r.EnqueuedAt.IsZero() {
		j.job.EnqueuedAt = r.EnqueuedAt // of its queue, which knows when it was pushed
	}
	j.job.SetFence(r.Fence)
	j.job.SetRun(p.name.Proc, r.Token)
	if class, ok := p.d.Handlers.Lookup(env.Class); ok {
		// The longest durations there are mean that there is no end; a grace comes on top.
		j.known, j.timeout, j.atMostOnce = true, min(class.Timeout, longest), class.AtMostOnce
	}
	if limit := j.timeout + p.cfg.TermTimeout; j.timeout > 0 && limit < tickEvery {
		p.wake(j.begun.Add(limit)) // no tick may see it in time
	}
	p.jobs[r.Token] = j
	p.threads[j.thread].assigned <- j
}

// restore has the payload take its place to which that of a job only refers.
func (p *Process) restore(j *job, ref wire.Reference) {
	f := wire.Failure{
		FailedAt: time.Now(), Payload: j.Payload, Exception: "Resqued::PayloadGone", Worker: j.Worker, Queue: j.Queue,
		Error: "the payload is not kept any more under " + wire.Printable(ref.ID, 300) + ": it has been put back into a queue before, or was removed",
	}
	p.log.Info("a large payload takes the place of the reference to it", zap.String("queue", wire.Printable(j.Queue, 200)),
		zap.String("parked", wire.Printable(ref.ID, 300)), zap.Int64("bytes", ref.Size))
	p.ended = append(p.ended, store.Completion{
		Job: &j.Reserved, Kind: store.Restored, Parked: ref.ID, Survived: true, Failure: filed(f, p.name.Proc, j.Token),
	})
	p.done++
	p.hungry = true
}

// unwrap puts the bytes back into their queue that a payload of class
// Resqued::InvalidPayload holds: they are a job after all, whose lock is another one than
// that which was taken for what is around them.
func (p *Process) unwrap(j *job) {
	p.ended = append(p.ended, store.Completion{Job: &j.Reserved, Kind: store.Requeued, Payload: j.Payload, Survived: true})
	p.done++
	p.hungry = true
	p.log.Info("a payload that was refused before goes back to its queue as it was", zap.String("queue", wire.Printable(j.Queue, 200)))
}

// whose returns the thread of a job, and has the job name it by its whole id.
func (p *Process) whose(r *store.Reserved) int {
	index := p.byWorker[r.Worker]
	r.Worker = p.threads[index].worker
	return index
}

// occupy takes a thread out of the idle ones. It is among the last of them, because
// those are asked for first.
func (p *Process) occupy(thread int) {
	for i, index := range slices.Backward(p.idle) {
		if index == thread {
			p.idle = slices.Delete(p.idle, i, i+1)
			return
		}
	}
}

// perform is a thread: it runs what it is given until the loop ends. A job whose code
// ends the goroutine (runtime.Goexit) does not end the thread.
func (p *Process) perform(s *slot) {
	over := false
	defer func() {
		if !over {
			go p.perform(s)
		}
	}()
	for j := range s.assigned {
		p.d.Runner.Run(&j.ctx, &j.job, &j.claim, func(out thread.Outcome) { p.outcomes <- outcome{job: j, Outcome: out} })
	}
	over = true
}

// finish takes a job back from its thread.
func (p *Process) finish(o outcome) {
	o.job.ctx.end(nil)
	p.brief = o.Ran < briefly
	delete(p.jobs, o.job.Token)
	p.idle = append(p.idle, o.job.thread)
	p.record(o.job, o.Outcome)
}

// record notes the end of a job for the next exchange.
func (p *Process) record(j *job, out thread.Outcome) {
	c := store.Completion{Job: &j.Reserved, Kind: store.Done, Mirrored: j.mirrored}
	stat := &p.stats[j.thread]
	if j.handled {
		// The loop may not have seen yet that a lock is lost.
		claim := j.claim.State()
		c.Held = claim.Asked
		if j.doomed == nil && claim.Lost != nil {
			j.doomed = claim.Lost
		}
		if !j.lost && claim.Lost != nil {
			p.d.Stats.Count(statsd.LockLost, 1)
		}
	}
	c.Killed = j.request != nil
	again := p.returns(j)
	switch failed := out.Result == thread.Failed || out.Result == thread.Retried; {
	case failed && again:
		out.Result, out.After = thread.Requeued, 0
		if j.handled {
			out.After = p.lastingLock(j)
		}
	case out.Result == thread.Retried && j.request != nil:
		out.Result = thread.Failed // whoever asks for it has the last word
	case out.Result == thread.Retried && out.Try.Attempt == 0:
		out.Result, out.After = thread.Requeued, 0 // it has not begun
	case out.Result == thread.Retried:
		out.After = max(out.After, p.lastingLock(j))
	}
	survived := j.doomed == nil && j.handled && !j.claim.State().Began.IsZero()
	switch out.Result {
	case thread.Requeued:
		c.Kind, c.Delay, c.Survived = store.Requeued, out.After, survived
	case thread.Retried:
		p.retry(&c, j, out, survived)
		stat.Failed++
		stat.Processed++
	case thread.Failed:
		c.Kind = store.Failed
		c.Failure = filed(failure(j, out), p.name.Proc, j.Token)
		stat.Failed++
		stat.Processed++
	default:
		stat.Processed++
	}
	if out.Try != nil && (out.Try.Counted || out.Try.Attempt == 0) && out.Result != thread.Retried && out.Result != thread.Requeued {
		c.Count = &store.Count{Key: out.Try.Key} // it has come to its end
	}
	p.done++
	p.ended = append(p.ended, c)
	if j.doomed != nil && !again {
		p.killed[j.Token] = true
	}
	p.hungry = true
	p.tell(j, out)
}

// lastingLock is how long a job that goes back has to wait because its class lock, which
// is kept elsewhere, may still be there under its own name: it could not be released.
func (p *Process) lastingLock(j *job) time.Duration {
	if claim := j.claim.State(); claim.Lost != nil && claim.Key != "" && !claim.Asked {
		return p.cfg.LockDuration
	}
	return 0
}

// failure is what is recorded of a job that has failed.
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

// retry notes that a job runs again.
func (p *Process) retry(c *store.Completion, j *job, out thread.Outcome, survived bool) {
	c.Kind, c.Delay, c.Survived = store.Retried, out.After, survived
	c.Count = &store.Count{
		Key: out.Try.Key, Value: out.Try.Count(survived, j.Deaths), Lifetime: out.Try.Lifetime(out.After),
	}
	if out.After > 0 {
		f := failure(j, out)
		f.Bare = true
		if text, gap, _ := f.Parts(""); gap == 0 { // a page shows it, which can do without the large ones
			c.Failure = store.Record(text)
		}
	}
}

// filed is a failure as Redis gets it.
func filed(f wire.Failure, proc, token string) store.FiledFailure {
	text, gap, reference := f.Parts(proc + "#" + token)
	return store.FiledFailure{Text: text, Gap: gap, Reference: reference}
}

// tell logs and counts the end of a job.
func (p *Process) tell(j *job, out thread.Outcome) {
	class := j.job.Class
	if !j.known {
		class = "unknown"
	}
	waited := time.Duration(0)
	if !j.job.EnqueuedAt.IsZero() {
		waited = max(0, j.StartedAt.Sub(j.job.EnqueuedAt))
	}
	p.tally(j, class, out, waited)
	if p.d.Observe != nil {
		p.d.Observe(Event{Job: &j.job, Outcome: out})
	}
	done := out.Result == thread.Done || out.Result == thread.Requeued
	if done && !p.log.Core().Enabled(zap.DebugLevel) {
		return // nobody wants to know, so the fields need not be made
	}
	fields := []zap.Field{
		zap.String("class", wire.Printable(j.job.Class, 200)), zap.String("queue", wire.Printable(j.Queue, 200)),
		zap.String("id", wire.Printable(j.job.ID, 200)), zap.Duration("ran", out.Ran),
	}
	switch out.Result {
	case thread.Failed:
		p.log.Warn("job failed", append(fields, zap.String("exception", wire.Printable(out.Exception, 200)),
			zap.String("error", wire.Printable(out.Message, 2000)))...)
	case thread.Retried:
		p.log.Info("job failed and will run again", append(fields, zap.Int("attempt", j.job.Attempt), zap.Int("of", j.job.MaxAttempts),
			zap.Duration("after", out.After), zap.String("exception", wire.Printable(out.Exception, 200)),
			zap.String("error", wire.Printable(out.Message, 2000)))...)
	case thread.Dropped:
		held := &classlock.HeldError{}
		errors.As(out.Err, &held)
		p.log.Info("job dropped: its class lock is held", append(fields, zap.String("lock", wire.Printable(held.Key, 300)),
			zap.String("holder", wire.Printable(held.Holder, 300)))...)
	case thread.Discarded:
		p.log.Info("job discarded", append(fields, zap.String("reason", wire.Printable(out.Err.Error(), 2000)))...)
	default:
		p.log.Debug("job "+string(out.Result), fields...)
	}
}

// tally counts the end of a job in statsd, by the rule of docs/statsd.md: as the counters in
// Redis do, which leave out what goes back to its queue.
func (p *Process) tally(j *job, class string, out thread.Outcome, waited time.Duration) {
	ran := out.Ran
	if !j.handled || j.claim.State().Began.IsZero() {
		ran = statsd.Unknown
	}
	var held *classlock.HeldError
	switch {
	case out.Result != thread.Requeued || ran != statsd.Unknown:
		p.d.Stats.Job(class, string(out.Result), ran, waited)
	case errors.As(out.Err, &held):
		p.d.Stats.Count(statsd.Locked, 1)
	}
}

func (p *Process) workerID(index int) string {
	return wire.WorkerID(p.name.Proc, p.cfg.Host, p.name.Slot, index, p.cfg.PID, p.cfg.Queues.Names())
}

func (j *job) String() string {
	return fmt.Sprintf("%s (%s)", wire.Printable(j.job.Class, 200), wire.Printable(j.job.ID, 200))
}
