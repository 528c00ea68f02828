package workerproc

import (
	"slices"

	"go.uber.org/zap"

	"github.com/resqued/resqued/internal/store"
)

// The set of workers is Resque's, and programs in Ruby remove from it what they take for
// dead, and record its jobs as failed. Beats tell of it, and then the threads of this
// process are registered again.

// lookFor is how many threads each beat looks for, in turn: programs that remove workers
// remove all that look alike.
const lookFor = 16

// mostQueues is in how many failure lists of queues a failure is searched for.
const mostQueues = 16

// looks returns the ids that the next beat looks for.
func (p *Process) looks() []string {
	ids := make([]string, min(lookFor, p.threads.workers()))
	for i := range ids {
		ids[i] = p.threads.worker(p.looked % p.threads.workers())
		p.looked++
	}
	return ids
}

// enroll has the threads registered again that are not.
func (p *Process) enroll() {
	if p.beating || p.leaving {
		return
	}
	e := &store.Enrollment{Proc: p.id.proc, Started: p.registrar.registration.Started, Threads: make([]store.EnrolledThread, p.threads.workers())}
	for i := range e.Threads {
		e.Threads[i].WorkerStat = p.threads.tallies.flushed(i)
		e.Threads[i].Worker = p.threads.worker(i)
	}
	for _, j := range p.threads.jobs {
		e.Threads[j.thread].Token = j.Token
		if len(e.Queues) < mostQueues && !slices.Contains(e.Queues, j.Queue) {
			e.Queues = append(e.Queues, j.Queue)
		}
	}
	p.beating = true
	p.beats <- beatCall{enroll: e}
}

// enrolled takes the answer.
func (p *Process) enrolled(r beatResult) {
	if len(r.again) == 0 {
		return
	}
	for _, j := range p.threads.jobs {
		j.unmirrored = j.unmirrored || j.mirrored && slices.Contains(r.again, j.thread)
	}
	p.log.Warn("another program has removed threads of this process from the workers in redis, as a pruner does; they are registered again, "+
		"and what it has recorded as failed is taken back",
		zap.Int("threads", len(r.again)), zap.Int("failures", r.unfailed))
}
