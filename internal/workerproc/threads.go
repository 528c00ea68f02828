package workerproc

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"time"

	"go.uber.org/zap"

	"github.com/resqued/resqued"
	"github.com/resqued/resqued/internal/jobctx"
	"github.com/resqued/resqued/internal/locket/classlock"
	"github.com/resqued/resqued/internal/store"
	"github.com/resqued/resqued/internal/thread"
	"github.com/resqued/resqued/internal/wire"
)

type slot struct {
	worker   string
	brief    string // worker, as used in records
	assigned chan *job
}

// runner runs a job and calls done with its outcome; *thread.Runner implements it.
type runner interface {
	Run(ctx context.Context, job *resqued.Job, claim *classlock.Claim, done func(thread.Outcome))
}

// threads are the process's threads and the jobs in hand. The loop owns all fields. A thread's
// goroutine executes perform and recordDeath, which read only constant fields and answer over
// outcomes.
type threads struct {
	*shared
	work      context.Context // parent of the jobs' contexts
	runner    runner
	exchanges *exchanges
	ring      func() // alarm.ring
	counted   *counted

	slots    []*slot
	byWorker map[string]int // index of a slot by its brief id
	outcomes chan outcome   // from the threads

	idle []int // threads without a job that wait for none
	pace pace
	counters
}

type pace struct {
	brief bool          // the last ended job took less than briefly
	usual time.Duration // see usually
	fresh bool          // all jobs in hand have begun in this step
}

func newThreads(work context.Context, s *shared, exchanges *exchanges, counted *counted) *threads {
	t := &threads{
		shared: s, work: work, runner: s.d.Runner, exchanges: exchanges, ring: s.alarm.ring, counted: counted,
		byWorker: map[string]int{}, outcomes: make(chan outcome, s.cfg.Threads),
	}
	workers := make([]string, s.cfg.Threads)
	for i := range workers {
		workers[i] = s.workerID(i)
		s := &slot{worker: workers[i], brief: wire.BriefWorkerID(workers[i]), assigned: make(chan *job, 1)}
		t.slots, t.idle = append(t.slots, s), append(t.idle, i)
		t.byWorker[s.brief] = i
	}
	t.counters = newCounters(workers)
	return t
}

// start starts the threads. They end after close but are not awaited: a handler that never
// returns must not keep the process.
func (t *threads) start() {
	for _, s := range t.slots {
		go t.perform(s)
	}
}

// close ends the threads, busy ones after their job.
func (t *threads) close() {
	for _, s := range t.slots {
		close(s.assigned)
	}
}

// vacant returns how many threads have no job and wait for none, within Capacity.
func (t *threads) vacant() int {
	if t.d.Capacity == nil {
		return len(t.idle)
	}
	return max(0, min(len(t.idle), t.d.Capacity()-(len(t.slots)-len(t.idle))))
}

// full reports whether the jobs in hand use up Capacity.
func (t *threads) full() bool { return t.d.Capacity != nil && t.d.Capacity() <= len(t.jobs) }

// take removes the last n idle threads and appends them to into.
func (t *threads) take(n int, into []int) []int {
	rest := len(t.idle) - n
	into = append(into, t.idle[rest:]...)
	t.idle = t.idle[:rest]
	return into
}

func (t *threads) free(threads []int) { t.idle = append(t.idle, threads...) }

// beginAll hands reserved jobs to idle threads. Their request was sent at sent.
// Those in refused end with that error instead of running.
func (t *threads) beginAll(reserved []store.Reserved, refused map[string]error, sent time.Duration, now time.Time) {
	t.pace.fresh = len(t.jobs) == 0
	for i := range reserved {
		t.begin(&reserved[i], refused[reserved[i].Token], sent, now)
	}
}

// begin hands a reserved job to an idle thread. An invalid payload ends at once, without a
// thread.
func (t *threads) begin(r *store.Reserved, refused error, sent time.Duration, now time.Time) {
	index := t.whose(r)
	// One allocation for all of a job.
	j := &job{Reserved: *r, thread: index, begun: now, reservedAt: sent}
	t.begun++
	t.used++
	env, err := wire.Parse(r.Payload, t.cfg.MaxPayload)
	if _, wrapped := env.Unwrap(); wrapped {
		j.Payload = wire.Unwrap(r.Payload)
		if _, err = wire.Parse(j.Payload, t.cfg.MaxPayload); err == nil {
			t.unwrap(j)
			return
		}
	}
	if err != nil {
		if invalid, ok := errors.AsType[*wire.InvalidError](err); ok { // its structure is unknown
			invalid.Excerpt = t.cfg.Redact.Text(invalid.Excerpt)
		}
		j.job = resqued.Job{Queue: r.Queue, Payload: j.Payload}
		t.record(j, thread.Outcome{Result: thread.Failed, Err: err, Exception: "Resqued::InvalidPayload", Message: err.Error()})
		return
	}
	if ref, ok := wire.ReferenceOf(env); ok {
		t.restore(j, ref)
		return
	}
	t.occupy(j.thread)
	j.handled = true
	j.claim.Init(t.id.proc, r.Token, t.ring)
	j.ctx, j.end = context.WithCancelCause(t.work)
	j.job = resqued.Job{
		ID: env.ID, Class: env.Class, Queue: r.Queue, Args: env.Args, Payload: r.Payload,
		Attempt: r.Deaths + 1, Deaths: r.Deaths, Worker: r.Worker, StartedAt: r.StartedAt,
		EnqueuedAt: env.EnqueuedAt, LockKey: r.LockKey,
	}
	if j.job.ID == "" {
		j.job.ID = t.id.proc + "/" + r.Token
	}
	if !r.EnqueuedAt.IsZero() {
		j.job.EnqueuedAt = r.EnqueuedAt // its queue knows when it was pushed
	}
	*jobctx.RunOf(&j.job) = jobctx.Run{Proc: t.id.proc, Token: r.Token, Fence: r.Fence, Wrappers: env.Wrappers, Refused: refused}
	if class, ok := t.d.Handlers.Lookup(env.Class, env.Wrappers...); ok {
		j.rules = rules{
			known: true, timeout: min(class.Timeout, longest), atMostOnce: class.AtMostOnce, resumes: class.Resumes,
			byRunner: class.Command != nil && class.Command.Runner != "",
		}
		if j.rules.byRunner {
			t.used--
		}
		if class.Name == env.Wrapper() && !j.rules.byRunner { // code for all that it wraps reads the payload's own arguments
			j.job.Class, j.job.Args = env.As(class.Name)
			jobctx.RunOf(&j.job).Wrappers = nil
		}
	}
	if limit := j.rules.timeout + t.cfg.TermTimeout; j.rules.timeout > 0 && limit < tickEvery {
		t.alarm.wake(j.begun.Add(limit)) // a tick may be too late
	}
	if refused != nil {
		t.used-- // it leaves nothing in this process
	}
	t.jobs[r.Token] = j
	if t.cfg.LogJobs {
		t.log.Info("job started", jobFields(j)...)
	}
	t.slots[j.thread].assigned <- j
}

// restore ends a job whose payload only refers to a large one, which then takes its place.
func (t *threads) restore(j *job, ref wire.Reference) {
	f := wire.Failure{
		FailedAt: time.Now(), Payload: j.Payload, Exception: "Resqued::PayloadGone", Worker: j.Worker, Queue: j.Queue,
		Error: "the payload is not kept any more under " + wire.Printable(ref.ID, 300) + ": it has been put back into a queue before, or was removed",
	}
	t.log.Info("a large payload takes the place of the reference to it", zap.String("queue", wire.Printable(j.Queue, 200)),
		zap.String("parked", wire.Printable(ref.ID, 300)), zap.Int64("bytes", ref.Size))
	t.exchanges.end(store.Completion{
		Job: &j.Reserved, Kind: store.Restored, Parked: ref.ID, Survived: true, Failure: store.File(f, t.id.proc+"#"+j.Token),
	}, false)
}

// unwrap puts the bytes inside a payload of class Resqued::InvalidPayload back into their queue.
// They are a job after all, and the lock taken for the outer payload is not theirs.
func (t *threads) unwrap(j *job) {
	t.exchanges.end(store.Completion{Job: &j.Reserved, Kind: store.Requeued, Payload: j.Payload, Survived: true}, false)
	t.log.Info("a payload that was refused before goes back to its queue as it was", zap.String("queue", wire.Printable(j.Queue, 200)))
}

// whose returns the index of a job's thread, and sets Worker to the full id.
func (t *threads) whose(r *store.Reserved) int {
	index := t.byWorker[r.Worker]
	r.Worker = t.slots[index].worker
	return index
}

// occupy removes a thread from the idle ones. It searches from the end, because the last ones
// are asked for first.
func (t *threads) occupy(thread int) {
	for i, index := range slices.Backward(t.idle) {
		if index == thread {
			t.idle = slices.Delete(t.idle, i, i+1)
			return
		}
	}
}

// perform is a thread: it runs assigned jobs until close. A job that ends the goroutine
// (runtime.Goexit) does not end the thread.
func (t *threads) perform(s *slot) {
	over := false
	defer func() {
		if !over {
			go t.perform(s)
		}
	}()
	for j := range s.assigned {
		t.runner.Run(j.ctx, &j.job, &j.claim, func(out thread.Outcome) {
			if out.Result == thread.Died {
				out = t.recordDeath(j, out)
			}
			t.outcomes <- outcome{job: j, Outcome: out}
		})
	}
	over = true
}

func (t *threads) finish(o outcome) {
	o.job.end(nil)
	t.pace.brief = o.Ran < briefly
	t.usually(o.job, o.Ran)
	delete(t.jobs, o.job.Token)
	t.idle = append(t.idle, o.job.thread)
	if o.job.runnerDied {
		t.link.happened(store.EventDied, fmt.Sprintf("a runner, with %s of queue %s: %s", o.job.countedClass(), o.job.Queue, o.Message), 1)
	}
	if o.Result == thread.Died {
		t.buried(o.job, o.Outcome)
		return
	}
	t.record(o.job, o.Outcome)
}

func (s *shared) workerID(thread int) string {
	return wire.WorkerID(s.id.proc, s.cfg.Host, s.id.slot, thread, s.cfg.PID, s.cfg.Queues.Names())
}

// takeOutcomes finishes the jobs that have ended in between, so that they go with the same
// exchange.
func (t *threads) takeOutcomes() {
	for {
		select {
		case o := <-t.outcomes:
			t.finish(o)
		default:
			return
		}
	}
}

const (
	// briefly is the longest job worth waiting for: less than a call.
	briefly = 50 * time.Microsecond
	// gathers is how often the loop yields until all jobs that have just begun have ended. Every
	// third time, Go's scheduler resumes it before some of them.
	gathers = 4
	// gatherFor bounds the wait: something else has the processor.
	gatherFor = 5 * time.Millisecond
)

// gather lets jobs that have just begun run before the next exchange leaves, so that it includes
// those that end at once. It waits only if jobs have been shorter than an exchange and none in
// hand has run for longer: such a job could keep the processor and hold up the others.
func (t *threads) gather() {
	fresh := t.pace.fresh
	t.pace.fresh = false
	if !fresh {
		return
	}
	began := time.Now()
	for n := 0; n < gathers && t.pace.brief && len(t.jobs) > 0 && time.Since(began) < gatherFor; n++ {
		runtime.Gosched()
		t.takeOutcomes()
	}
}
