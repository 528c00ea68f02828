package workerproc

import (
	"context"
	"slices"

	"go.uber.org/zap"

	"github.com/resqued/resqued/internal/store"
)

// The set of workers is Resque's: Ruby programs remove from it what they consider dead, and
// record its jobs as failed. Beats detect that and register this process's threads again.

// lookFor is how many threads each beat checks, in turn: programs that remove workers remove all
// that look alike.
const lookFor = 16

// mostQueues is in how many queues' failure lists to search for a failure.
const mostQueues = 16

func (b *beats) looks() []string {
	ids := make([]string, min(lookFor, len(b.threads.slots)))
	for i := range ids {
		ids[i] = b.threads.slots[b.looked%len(b.threads.slots)].worker
		b.looked++
	}
	return ids
}

func (b *beats) enroll() {
	if b.calling || b.life.leaving {
		return
	}
	e := &store.Enrollment{Proc: b.id.proc, Started: b.registrar.registration.Started, Threads: make([]store.EnrolledThread, len(b.threads.slots))}
	for i := range e.Threads {
		e.Threads[i].WorkerStat = b.threads.before[i]
		e.Threads[i].Worker = b.threads.slots[i].worker
	}
	for _, j := range b.jobs {
		e.Threads[j.thread].Token = j.Token
		if len(e.Queues) < mostQueues && !slices.Contains(e.Queues, j.Queue) {
			e.Queues = append(e.Queues, j.Queue)
		}
	}
	var again []int
	var unfailed int
	b.call(func(work context.Context) (err error) {
		again, unfailed, err = b.d.Store.Enroll(work, *e)
		return err
	}, func(bool) { b.enrolled(again, unfailed) })
}

// enrolled handles that threads were registered again and failures were taken back.
func (b *beats) enrolled(again []int, unfailed int) {
	if len(again) == 0 {
		return
	}
	for _, j := range b.jobs {
		if j.mirror == written && slices.Contains(again, j.thread) {
			j.mirror = removed
		}
	}
	b.log.Warn("another program has removed threads of this process from the workers in redis, as a pruner does; they are registered again, "+
		"and what it has recorded as failed is taken back",
		zap.Int("threads", len(again)), zap.Int("failures", unfailed))
}
